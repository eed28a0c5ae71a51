/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/tensorboard.c: event files that TensorBoard reads.
 *
 * A file is a series of TFRecords (length, its checksum, data, its checksum; little-endian; CRC-32C, rotated
 * and shifted so that a checksum of checksums stays one), each an Event of
 * tensorboard/compat/proto/event.proto. Only scalars are needed, so the few fields are encoded here: no
 * library is worth that.
 *
 * Each start of a run writes a file of its own. TensorBoard reads the files of a folder in the order of their
 * names. A SessionLog with the status START makes TensorBoard forget what it read of that step and later
 * steps. So a run that was killed and resumed has one curve, and a new run in an old folder replaces the old
 * run's curves. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "pipeline/report/tensorboard.h"

enum { ROOM = 4096, TAG = 64 };
#define PREFIX "events.out.tfevents."

/* A message under construction. What does not fit is not written, and `full` says so. */
typedef struct {
    unsigned char data[ROOM];
    size_t bytes;
    int full;
} message_t;

struct train_board {
    char *folder, *path; /* path NULL: not begun */
    FILE *out;
    uint32_t table[256];             /* of the CRC */
    message_t event, summary, value; /* one inside the other */
};

/* ---- TFRecord ------------------------------------------------------------------------------------------ */

/* CRC-32C (Castagnoli), reflected: RFC 3720, appendix B.4. */
static void make_table(uint32_t table[256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        table[i] = crc;
    }
}

static uint32_t masked_crc(const train_board_t *board, const unsigned char *data, size_t bytes)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++)
        crc = board->table[(crc ^ data[i]) & 0xff] ^ crc >> 8;
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void little(uint64_t value, int bytes, unsigned char *out)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> 8 * i);
}

static gyre_status_t failed(const train_board_t *board)
{
    return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write TensorBoard's file %s", board->path);
}

static gyre_status_t write_record(train_board_t *board, const message_t *message)
{
    unsigned char head[12], foot[4];
    if (message->full)
        return gyre_fail(GYRE_ERR_INTERNAL, "an event for TensorBoard is longer than %d bytes", ROOM);
    little(message->bytes, 8, head);
    little(masked_crc(board, head, 8), 4, head + 8);
    little(masked_crc(board, message->data, message->bytes), 4, foot);
    fwrite(head, 1, sizeof head, board->out);
    fwrite(message->data, 1, message->bytes, board->out);
    fwrite(foot, 1, sizeof foot, board->out);
    return GYRE_OK; /* fflush and ferror tell */
}

/* ---- protocol buffers ---------------------------------------------------------------------------------- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_bytes(message_t *message, const void *data, size_t bytes)
{
    if (bytes > ROOM - message->bytes) {
        message->full = 1;
        return;
    }
    memcpy(message->data + message->bytes, data, bytes);
    message->bytes += bytes;
}

static void put_varint(message_t *message, uint64_t value)
{
    unsigned char byte[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        byte[n++] = (unsigned char)(value | 0x80);
    byte[n++] = (unsigned char)value;
    put_bytes(message, byte, n);
}

static void put_key(message_t *message, unsigned field, unsigned wire)
{
    put_varint(message, field << 3 | wire);
}

static void put_double(message_t *message, unsigned field, double value)
{
    uint64_t bits;
    unsigned char byte[8];
    memcpy(&bits, &value, sizeof bits);
    little(bits, 8, byte);
    put_key(message, field, FIXED64);
    put_bytes(message, byte, sizeof byte);
}

static void put_float(message_t *message, unsigned field, float value)
{
    uint32_t bits;
    unsigned char byte[4];
    memcpy(&bits, &value, sizeof bits);
    little(bits, 4, byte);
    put_key(message, field, FIXED32);
    put_bytes(message, byte, sizeof byte);
}

static void put_block(message_t *message, unsigned field, const void *data, size_t bytes)
{
    put_key(message, field, BYTES);
    put_varint(message, bytes);
    put_bytes(message, data, bytes);
}

static void put_message(message_t *message, unsigned field, const message_t *inner)
{
    message->full |= inner->full;
    put_block(message, field, inner->data, inner->bytes);
}

/* ---- events -------------------------------------------------------------------------------------------- */

/* Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7. */
static void begin_event(train_board_t *board, uint64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    board->event.bytes = 0;
    board->event.full = 0;
    put_double(&board->event, 1, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    if (step > 0) {
        put_key(&board->event, 2, VARINT);
        put_varint(&board->event, step);
    }
}

/* Summary: value = 1 { tag = 1, simple_value = 2 }. What is not known (NaN) is left out. */
static void add_scalar(train_board_t *board, const char *tag, double value)
{
    if (isnan(value))
        return;
    board->value.bytes = 0;
    board->value.full = 0;
    put_block(&board->value, 1, tag, strlen(tag));
    put_float(&board->value, 2, (float)value);
    put_message(&board->summary, 1, &board->value);
}

/* The largest of all ranks, for each kind. */
static void add_memory(train_board_t *board, const train_memory_t *memory)
{
    char tag[TAG];
    for (size_t k = 0; k < memory->kinds; k++) {
        uint64_t most = 0;
        for (size_t r = 0; r < memory->ranks; r++)
            if (memory->bytes[r * memory->kinds + k] > most)
                most = memory->bytes[r * memory->kinds + k];
        snprintf(tag, sizeof tag, "memory/%s", memory->kind[k]);
        for (char *c = tag; *c; c++)
            *c = *c == ' ' ? '_' : *c;
        add_scalar(board, tag, (double)most);
    }
}

/* The mean of the sets, and each of those that have a name. NaN: there was no validation. */
static void add_validation(train_board_t *board, const train_record_t *record, double mean)
{
    add_scalar(board, "loss/validation", mean);
    for (size_t s = 0; s < record->sets && !isnan(mean); s++) {
        char tag[TAG];
        snprintf(tag, sizeof tag, "loss/validation/%s", record->set[s].name);
        add_scalar(board, tag, record->set[s].final_val);
    }
}

static void begin_summary(train_board_t *board)
{
    board->summary.bytes = 0;
    board->summary.full = 0;
}

static gyre_status_t write_summary(train_board_t *board, uint64_t step)
{
    begin_event(board, step);
    put_message(&board->event, 5, &board->summary);
    gyre_status_t status = write_record(board, &board->event);
    if (status == GYRE_OK && (fflush(board->out) != 0 || ferror(board->out)))
        status = failed(board);
    return status;
}

gyre_status_t train_board_validation(train_board_t *board, const train_record_t *record, uint64_t step,
                                     double val)
{
    begin_summary(board);
    add_validation(board, record, val);
    return write_summary(board, step);
}

gyre_status_t train_board_step(train_board_t *board, const train_record_t *record, const train_step_t *step)
{
    double seconds = fmax(step->seconds, 1e-9);
    begin_summary(board);
    add_scalar(board, "loss/train", step->loss);
    add_validation(board, record, step->val);
    add_scalar(board, "learning_rate", step->lr);
    add_scalar(board, "grad_norm", step->grad_norm);
    add_scalar(board, "loss_scale", step->loss_scale);
    add_scalar(board, "skipped", step->skipped || step->spike ? 1.0 : 0.0);
    add_scalar(board, "batch", (double)step->batch);
    add_scalar(board, "experts/balance_loss", step->balance);
    add_scalar(board, "experts/dropped", step->dropped);
    add_scalar(board, "loss/z", step->z_loss);
    add_scalar(board, "experts/z_loss", step->router_z);
    add_scalar(board, "tokens_per_second",
               (double)record->tokens_per_step * train_step_part(record, step) / seconds);
    add_scalar(board, "mfu", step->mfu);
    add_scalar(board, "communication/exposed", step->exposed_s / seconds);
    add_scalar(board, "communication/hidden", step->hidden_s / seconds);
    add_scalar(board, "communication/bubble", step->bubble);
    add_memory(board, &record->memory);
    return write_summary(board, step->step);
}

/* ---- files --------------------------------------------------------------------------------------------- */

gyre_status_t train_board_open(const char *folder, train_board_t **out)
{
    train_board_t *board = calloc(1, sizeof *board);
    if (!board || !(board->folder = strdup(folder))) {
        free(board);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for TensorBoard's events");
    }
    make_table(board->table);
    struct stat info;
    int made = mkdir(folder, 0777) == 0, why = made || errno == EEXIST ? 0 : errno;
    if (!why && (stat(folder, &info) != 0 || access(folder, W_OK | X_OK) != 0))
        why = errno;
    else if (!why && !S_ISDIR(info.st_mode))
        why = ENOTDIR;
    if (made)
        (void)rmdir(folder); /* train_board_start makes it: a run that is refused before leaves none */
    if (why) {
        (void)train_board_close(board); /* it has no file */
        return gyre_fail_errno(GYRE_ERR_IO, why,
                               "cannot write events to %s: name another folder with --tensorboard", folder);
    }
    *out = board;
    return GYRE_OK;
}

/* A file's name holds the second at which the file was begun. Our name sorts after all that are there, even
 * if two runs begin in one second or a clock was set back. */
static long long next_second(const char *folder)
{
    long long latest = time(NULL);
    DIR *list = opendir(folder);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0) {
            long long second = strtoll(entry->d_name + strlen(PREFIX), NULL, 10);
            if (second >= latest && second < 9999999999)
                latest = second + 1;
        }
    if (list)
        closedir(list);
    return latest;
}

gyre_status_t train_board_start(train_board_t *board, uint64_t step)
{
    char host[65] = "localhost";
    static const char version[] = "brain.Event:2";
    if (gethostname(host, sizeof host) != 0 || !host[0])
        snprintf(host, sizeof host, "localhost");
    host[sizeof host - 1] = '\0';
    if (asprintf(&board->path, "%s/" PREFIX "%010lld.%s.%ld.0", board->folder, next_second(board->folder),
                 host, (long)getpid()) < 0) {
        board->path = NULL;
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for TensorBoard's events");
    }
    if ((mkdir(board->folder, 0777) != 0 && errno != EEXIST) || !(board->out = fopen(board->path, "wxe")))
        return gyre_fail_errno(GYRE_ERR_IO, errno,
                               "cannot create TensorBoard's file %s: name another folder with "
                               "--tensorboard",
                               board->path);
    begin_event(board, 0);
    put_block(&board->event, 3, version, strlen(version));
    gyre_status_t status = write_record(board, &board->event);
    /* SessionLog: status = 1 (START = 1) */
    board->value.bytes = 0;
    put_key(&board->value, 1, VARINT);
    put_varint(&board->value, 1);
    begin_event(board, step + 1);
    put_message(&board->event, 7, &board->value);
    if (status == GYRE_OK)
        status = write_record(board, &board->event);
    if (status == GYRE_OK && fflush(board->out) != 0)
        status = failed(board);
    return status;
}

gyre_status_t train_board_close(train_board_t *board)
{
    gyre_status_t status = GYRE_OK;
    if (board && board->out && fclose(board->out) != 0)
        status = failed(board);
    if (board) {
        free(board->folder);
        free(board->path);
    }
    free(board);
    return status;
}
