/* comm/identity.c: who this process is: from the caller's config, else GYRE_*, else torchrun's variables, else it is
 * alone. Half an identity is an error that names what is missing, never a guess. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/boot_addr.h"
#include "comm/bootstrap.h"

enum { RANKS_MAX = 1 << 20 };

static gyre_status_t put_text(char *out, size_t bytes, const char *text, const char *name)
{
    size_t n = strlen(text);
    if (n >= bytes)
        return gyre_fail(GYRE_ERR_INVALID, "%s is longer than %zu bytes", name, bytes - 1);
    memcpy(out, text, n + 1);
    return GYRE_OK;
}

/* 64 hex digits. */
static gyre_status_t put_secret(comm_identity_t *out, const char *hex, const char *name)
{
    size_t bytes = 0;
    const char *end = NULL;
    if (strlen(hex) != 64 ||
        sodium_hex2bin(out->secret, sizeof(out->secret), hex, 64, NULL, &bytes, &end) != 0 || bytes != 32)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s is not 64 hex digits; make one with: od -An -tx1 -N32 /dev/urandom | tr -d ' \\n'", name);
    out->have_secret = 1;
    return GYRE_OK;
}

/* A secret that anybody can compute who knows the parts: it keeps jobs apart, not attackers out. */
static void weak_secret(comm_identity_t *out, const char *what, const char *a, const char *b)
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, sizeof(out->secret));
    const char *parts[] = {"gyre weak secret 1", what, a, b};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        crypto_generichash_update(&state, (const unsigned char *)parts[i], strlen(parts[i]) + 1);
    crypto_generichash_final(&state, out->secret, sizeof(out->secret));
    out->have_secret = 1;
}

static gyre_status_t check_ranks(const comm_identity_t *out, const char *rank_name, const char *size_name)
{
    if (out->size < 1 || out->size > RANKS_MAX)
        return gyre_fail(GYRE_ERR_INVALID, "%s=%d is not in 1..%d", size_name, out->size, RANKS_MAX);
    if (out->rank < 0 || out->rank >= out->size)
        return gyre_fail(GYRE_ERR_INVALID, "%s=%d is not in 0..%d (%s=%d)", rank_name, out->rank,
                         out->size - 1, size_name, out->size);
    return GYRE_OK;
}

/* A job of one rank. source: NULL: already noted. */
static void alone(comm_identity_t *out, const char *source)
{
    out->rank = 0;
    out->size = 1;
    out->root[0] = '\0';
    if (source != NULL)
        snprintf(out->source, sizeof(out->source), "%s", source);
    if (out->job[0] == '\0')
        strcpy(out->job, "alone");
    if (!out->have_secret)
        randombytes_buf(out->secret, sizeof(out->secret));
    out->have_secret = 1;
}

/* No secret was given and ranks were not started by a launcher that makes one. */
static gyre_status_t hand_made_secret(comm_identity_t *out)
{
    char host[256], uid[32], port_text[16];
    int port = 0;
    if (!boot_root_split(out->root, host, &port) || !boot_host_is_loopback(host))
        return gyre_fail(
            GYRE_ERR_AUTH,
            "GYRE_SECRET is not set, and the root %s can be reached from other hosts: start with ucx-run, "
            "or set the same secret on all ranks, made once with: "
            "GYRE_SECRET=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \\n')",
            out->root);
    snprintf(uid, sizeof(uid), "%ld", (long)getuid());
    snprintf(port_text, sizeof(port_text), "%d", port);
    weak_secret(out, uid, out->job, port_text);
    log_info("GYRE_SECRET is not set: one was derived from the user, the job and the port, which keeps other "
             "jobs out "
             "but no other user of this host");
    return GYRE_OK;
}

/* Do Gyre's own variables say who this is? Half of it counts. */
static int is_gyre(void)
{
    return !base_setting_is_default(SET_RANK) || !base_setting_is_default(SET_SIZE) ||
           *base_setting_string(SET_ROOT) != '\0';
}

/* Rank, size and root from config and GYRE_*; *given: 0 if neither says anything. */
static gyre_status_t from_gyre(const gyre_config_t *config, comm_identity_t *out, int *given)
{
    int by_config = 0;
    out->rank = (int)base_setting_int(SET_RANK);
    out->size = (int)base_setting_int(SET_SIZE);
    const char *root = base_setting_string(SET_ROOT);
    *given = is_gyre();
    if (config != NULL) {
        by_config = config->rank >= 0 || config->nranks >= 0 || config->root != NULL;
        out->rank = config->rank >= 0 ? config->rank : out->rank;
        out->size = config->nranks >= 0 ? config->nranks : out->size;
        root = config->root != NULL ? config->root : root;
    }
    *given = *given || by_config;
    if (!*given)
        return GYRE_OK;
    snprintf(out->source, sizeof(out->source), "%s", by_config ? "config" : "GYRE_*");
    if (out->rank < 0 && base_setting_is_default(SET_RANK))
        return gyre_fail(GYRE_ERR_INVALID,
                         "GYRE_RANK (or config.rank) is missing while GYRE_SIZE or GYRE_ROOT is set");
    if (out->size < 0 && base_setting_is_default(SET_SIZE))
        return gyre_fail(GYRE_ERR_INVALID,
                         "GYRE_SIZE (or config.nranks) is missing while GYRE_RANK or GYRE_ROOT is set");
    gyre_status_t st = check_ranks(out, "GYRE_RANK", "GYRE_SIZE");
    if (st == GYRE_OK)
        st = put_text(out->root, sizeof(out->root), root, "GYRE_ROOT");
    if (st != GYRE_OK || out->size == 1)
        return st;
    char host[256];
    int port;
    if (out->root[0] == '\0')
        return gyre_fail(GYRE_ERR_INVALID,
                         "GYRE_ROOT (or config.root) is missing for a job of %d ranks: give rank 0's "
                         "host:port",
                         out->size);
    if (!boot_root_split(out->root, host, &port))
        return gyre_fail(GYRE_ERR_INVALID, "GYRE_ROOT=%s is not host:port (IPv6: [address]:port)", out->root);
    if (out->job[0] == '\0')
        strcpy(out->job, "job");
    if (out->rank == 0)
        out->root_fd = (int)base_setting_int(SET_ROOT_FD);
    return out->have_secret ? GYRE_OK : hand_made_secret(out);
}

static gyre_status_t env_number(const char *name, const char *because, int high, int *out)
{
    const char *text = base_env(name);
    char *end = NULL;
    if (text == NULL || *text == '\0')
        return gyre_fail(GYRE_ERR_INVALID, "%s is not set although %s is", name, because);
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || !isdigit((unsigned char)*text) || value > high)
        return gyre_fail(GYRE_ERR_INVALID, "%s=%s is not a number in 0..%d", name, text, high);
    *out = (int)value;
    return GYRE_OK;
}

/* torchrun: its own store holds MASTER_PORT, so our rendezvous is one port above. */
static gyre_status_t from_torchrun(comm_identity_t *out)
{
    int port = 0;
    gyre_status_t st = env_number("RANK", "WORLD_SIZE", RANKS_MAX, &out->rank);
    if (st == GYRE_OK)
        st = env_number("WORLD_SIZE", "RANK", RANKS_MAX, &out->size);
    if (st == GYRE_OK)
        st = check_ranks(out, "RANK", "WORLD_SIZE");
    if (st != GYRE_OK)
        return st;
    if (out->size == 1) {
        alone(out, "torchrun");
        return GYRE_OK;
    }
    const char *addr = base_env("MASTER_ADDR");
    if (addr == NULL || *addr == '\0')
        return gyre_fail(GYRE_ERR_INVALID, "MASTER_ADDR is not set although RANK and WORLD_SIZE are");
    st = env_number("MASTER_PORT", "MASTER_ADDR", 65534, &port);
    if (st != GYRE_OK)
        return st;
    if (port < 1)
        return gyre_fail(GYRE_ERR_INVALID, "MASTER_PORT=%d is not in 1..65534", port);
    int colon = strchr(addr, ':') != NULL;
    int n = snprintf(out->root, sizeof(out->root), "%s%s%s:%d", colon ? "[" : "", addr, colon ? "]" : "",
                     port + 1);
    char host[256];
    int checked;
    if (n < 0 || (size_t)n >= sizeof(out->root) || !boot_root_split(out->root, host, &checked))
        return gyre_fail(GYRE_ERR_INVALID, "MASTER_ADDR=%s is not a host name or address", addr);
    strcpy(out->source, "torchrun");
    const char *run = base_env("TORCHELASTIC_RUN_ID");
    if (run == NULL)
        run = "";
    if (out->job[0] == '\0')
        snprintf(out->job, sizeof(out->job), "%s", *run != '\0' ? run : "torchrun");
    if (!out->have_secret) {
        weak_secret(out, "torchrun", run, out->root);
        log_info("GYRE_SECRET is not set: one was derived from torchrun's run id and address, which keeps "
                 "other jobs "
                 "out but nobody who knows these; set GYRE_SECRET on untrusted networks");
    }
    return GYRE_OK;
}

int comm_identity_rank_hint(void)
{
    int64_t rank = 0, size = 0;
    if (is_gyre()) {
        rank = base_setting_int(SET_RANK);
        size = base_setting_int(SET_SIZE);
    } else {
        const char *own = base_env("RANK"), *all = base_env("WORLD_SIZE");
        rank = own != NULL ? strtol(own, NULL, 10) : 0;
        size = all != NULL ? strtol(all, NULL, 10) : 0;
    }
    return rank > 0 && rank < size && size <= RANKS_MAX ? (int)rank : 0;
}

gyre_status_t comm_identity_find(const gyre_config_t *config, comm_identity_t *out)
{
    comm_identity_t found;
    int given = 0;
    memset(&found, 0, sizeof(found));
    found.root_fd = -1;
    if (sodium_init() < 0)
        return gyre_fail(GYRE_ERR_SYSTEM, "libsodium cannot start: no source of random numbers?");
    gyre_status_t st = base_settings_load();
    if (st == GYRE_OK)
        st = put_text(found.job, sizeof(found.job), base_setting_string(SET_JOB), "GYRE_JOB");
    const char *secret = base_setting_string(SET_SECRET);
    if (st == GYRE_OK && config != NULL && config->secret != NULL)
        st = put_secret(&found, config->secret, "config.secret");
    else if (st == GYRE_OK && *secret != '\0')
        st = put_secret(&found, secret, "GYRE_SECRET");
    if (st == GYRE_OK)
        st = from_gyre(config, &found, &given);
    if (st == GYRE_OK && given && found.size == 1)
        alone(&found, NULL);
    else if (st == GYRE_OK && !given && (base_env("RANK") != NULL || base_env("WORLD_SIZE") != NULL))
        st = from_torchrun(&found);
    else if (st == GYRE_OK && !given)
        alone(&found, "singleton");
    if (st == GYRE_OK)
        *out = found;
    sodium_memzero(&found, sizeof(found));
    return st;
}
