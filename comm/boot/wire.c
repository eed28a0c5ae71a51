/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/wire.c: buffers and authenticated frames of bootstrap connections. See wire.h. */
#include "comm/boot/wire.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "comm/net/held.h"

int boot_buf_reserve(boot_buf_t *buf, size_t more)
{
    if (buf->from == buf->to)
        buf->from = buf->to = 0;
    size_t need;
    if (!base_add(buf->to, more, &need))
        return 0;
    if (need <= buf->cap)
        return 1;
    if (buf->from > 0) {
        memmove(buf->data, buf->data + buf->from, buf->to - buf->from);
        buf->to -= buf->from;
        need -= buf->from;
        buf->from = 0;
        if (need <= buf->cap)
            return 1;
    }
    return base_grow(&buf->data, &buf->cap, 0, need, 1);
}

int boot_buf_add(boot_buf_t *buf, const void *data, size_t bytes)
{
    if (!boot_buf_reserve(buf, bytes))
        return 0;
    if (bytes > 0)
        memcpy(buf->data + buf->to, data, bytes);
    buf->to += bytes;
    return 1;
}

void boot_buf_free(boot_buf_t *buf)
{
    free(buf->data);
    memset(buf, 0, sizeof(*buf));
}

/* ---- connections --------------------------------------------------------------------------------------- */

void boot_conn_open(boot_conn_t *conn, int fd)
{
    memset(conn, 0, sizeof(*conn));
    conn->fd = fd;
    boot_addr_t peer;
    if (boot_addr_of(fd, 1, &peer))
        boot_addr_text(&peer, conn->where);
    else
        strcpy(conn->where, "unknown address");
}

void boot_conn_close(boot_conn_t *conn)
{
    if (conn->fd >= 0)
        boot_let_go(conn->fd);
    boot_buf_free(&conn->in);
    boot_buf_free(&conn->out);
    boot_buf_free(&conn->message);
    sodium_memzero(conn, sizeof(*conn));
    conn->fd = -1;
}

void boot_conn_move(boot_conn_t *to, boot_conn_t *from)
{
    *to = *from;
    sodium_memzero(from, sizeof(*from));
    from->fd = -1;
}

static void frame_mac(const unsigned char key[32], const unsigned char *frame, size_t bytes,
                      unsigned char mac[BOOT_FRAME_MAC])
{
    crypto_generichash(mac, BOOT_FRAME_MAC, frame, bytes, key, 32);
}

gyre_status_t boot_conn_send(boot_conn_t *conn, boot_type_t type, const void *data, size_t bytes)
{
    if (conn->write_failed)
        return GYRE_OK;
    if (bytes > BOOT_MESSAGE_MAX)
        return gyre_fail(GYRE_ERR_INVALID, "a bootstrap message of %zu bytes exceeds %d", bytes,
                         BOOT_MESSAGE_MAX);
    const unsigned char *from = data;
    /* All of it or nothing: half a message would spoil the stream. */
    size_t frames = bytes / BOOT_FRAME_PAYLOAD + 1;
    if (!boot_buf_reserve(&conn->out, bytes + frames * (BOOT_FRAME_HEAD + BOOT_FRAME_MAC)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a bootstrap message of %zu bytes", bytes);
    do {
        size_t part = base_min_size(bytes, BOOT_FRAME_PAYLOAD);
        unsigned char *head = conn->out.data + conn->out.to;
        boot_put32(head, (uint32_t)part);
        head[4] = (unsigned char)type;
        head[5] = part < bytes;
        head[6] = head[7] = 0;
        boot_put64(head + 8, conn->count_out++);
        if (part > 0)
            memcpy(head + BOOT_FRAME_HEAD, from, part);
        frame_mac(conn->key_out, head, BOOT_FRAME_HEAD + part, head + BOOT_FRAME_HEAD + part);
        conn->out.to += BOOT_FRAME_HEAD + part + BOOT_FRAME_MAC;
        if (part > 0)
            from += part;
        bytes -= part;
    } while (bytes > 0);
    boot_conn_flush(conn);
    return GYRE_OK;
}

void boot_conn_flush(boot_conn_t *conn)
{
    while (boot_buf_len(&conn->out) > 0 && !conn->write_failed) {
        ssize_t n = send(conn->fd, conn->out.data + conn->out.from, boot_buf_len(&conn->out), MSG_NOSIGNAL);
        if (n >= 0)
            conn->out.from += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM)
            return; /* the kernel has no room now: it goes when the socket is writable */
        else if (errno != EINTR)
            conn->write_failed = errno;
    }
    boot_buf_free(&conn->out); /* idle connections hold no memory */
}

int boot_conn_unsent(const boot_conn_t *conn)
{
    return boot_buf_len(&conn->out) > 0;
}

boot_read_t boot_conn_read(boot_conn_t *conn, size_t limit)
{
    size_t have = boot_buf_len(&conn->in);
    size_t want = base_min_size(limit > have ? limit - have : 0, have < 4096 ? 4096 : have);
    if (want == 0)
        return BOOT_READ_SOME; /* full: the caller takes what is there first */
    if (!boot_buf_reserve(&conn->in, want)) {
        errno = ENOMEM;
        return BOOT_READ_ERROR;
    }
    for (;;) {
        ssize_t n = recv(conn->fd, conn->in.data + conn->in.to, want, 0);
        if (n > 0) {
            conn->in.to += (size_t)n;
            return BOOT_READ_SOME;
        }
        if (n == 0)
            return BOOT_READ_EOF;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return BOOT_READ_AGAIN;
        if (errno != EINTR)
            return BOOT_READ_ERROR;
    }
}

int boot_conn_next(boot_conn_t *conn, boot_message_t *message, const char **why)
{
    if (conn->message_used) {
        boot_buf_free(&conn->message);
        conn->message_used = 0;
    }
    for (;;) {
        size_t have = boot_buf_len(&conn->in);
        if (have == 0)
            boot_buf_free(&conn->in);
        if (have < BOOT_FRAME_HEAD)
            return 0;
        const unsigned char *head = conn->in.data + conn->in.from;
        size_t bytes = boot_get32(head);
        *why = "a frame is too long";
        if (bytes > BOOT_FRAME_PAYLOAD)
            return -1;
        if (have < BOOT_FRAME_HEAD + bytes + BOOT_FRAME_MAC)
            return 0;
        unsigned char mac[BOOT_FRAME_MAC];
        frame_mac(conn->key_in, head, BOOT_FRAME_HEAD + bytes, mac);
        *why = "a frame failed authentication";
        if (sodium_memcmp(mac, head + BOOT_FRAME_HEAD + bytes, BOOT_FRAME_MAC) != 0)
            return -1;
        *why = "a frame is out of order";
        if (boot_get64(head + 8) != conn->count_in)
            return -1;
        conn->count_in++;
        *why = "a message is too long";
        if (boot_buf_len(&conn->message) + bytes > BOOT_MESSAGE_MAX)
            return -1;
        *why = "no memory for its message";
        if (!boot_buf_add(&conn->message, head + BOOT_FRAME_HEAD, bytes))
            return -2;
        boot_type_t type = (boot_type_t)head[4];
        int more = head[5];
        conn->in.from += BOOT_FRAME_HEAD + bytes + BOOT_FRAME_MAC;
        if (more)
            continue;
        message->type = type;
        message->data = conn->message.data;
        message->bytes = boot_buf_len(&conn->message);
        conn->message_used = 1;
        return 1;
    }
}
