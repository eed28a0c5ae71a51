/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/identity.c: the order in which an identity is looked for, and the identity that the config and
 * GYRE_* give. See identity.h. */
#include "comm/launch/identity.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/net/address.h"
#include "comm/launch/internal.h"

int identity_has(const char *name)
{
    const char *text = base_env(name);
    return text != NULL && *text != '\0';
}

static gyre_status_t identity_put(char *out, size_t bytes, const char *text, const char *name)
{
    size_t n = strlen(text);
    if (n >= bytes)
        return gyre_fail(GYRE_ERR_INVALID, "%s is longer than %zu bytes", name, bytes - 1);
    memcpy(out, text, n + 1);
    return GYRE_OK;
}

gyre_status_t identity_large(const char *name, const char *because, int64_t high, int64_t *out)
{
    const char *text = base_env(name);
    char *end = NULL;
    if (text == NULL || *text == '\0')
        return gyre_fail(GYRE_ERR_INVALID, "%s is not set although %s is", name, because);
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || *text < '0' || *text > '9' || value > high)
        return gyre_fail(GYRE_ERR_INVALID, "%s=%.100s is not a number in 0..%lld", name, text,
                         (long long)high);
    *out = value;
    return GYRE_OK;
}

gyre_status_t identity_number(const char *name, const char *because, int high, int *out)
{
    int64_t value = 0;
    gyre_status_t st = identity_large(name, because, high, &value);
    if (st == GYRE_OK)
        *out = (int)value;
    return st;
}

gyre_status_t identity_check(const comm_identity_t *out, const char *rank_name, const char *size_name)
{
    if (out->size < 1 || out->size > COMM_RANKS_MAX)
        return gyre_fail(GYRE_ERR_INVALID, "%s=%d is not in 1..%d", size_name, out->size, COMM_RANKS_MAX);
    if (out->rank < 0 || out->rank >= out->size)
        return gyre_fail(GYRE_ERR_INVALID, "%s=%d is not in 0..%d (%s=%d)", rank_name, out->rank,
                         out->size - 1, size_name, out->size);
    return GYRE_OK;
}

void identity_job(comm_identity_t *out, const char *text, int common)
{
    if (out->job[0] != '\0')
        return;
    snprintf(out->job, sizeof(out->job), "%.*s", (int)sizeof(out->job) - 1, text);
    out->job_is_common = common;
}

gyre_status_t identity_root(comm_identity_t *out, const char *host, int port, const char *variable)
{
    char checked[256];
    int checked_port;
    int colon = strchr(host, ':') != NULL; /* an IPv6 address */
    int n =
        snprintf(out->root, sizeof(out->root), "%s%s%s:%d", colon ? "[" : "", host, colon ? "]" : "", port);
    if (n < 0 || (size_t)n >= sizeof(out->root) || !boot_root_split(out->root, checked, &checked_port))
        return gyre_fail(GYRE_ERR_INVALID, "%s=%.200s is not a host name or address", variable, host);
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

/* A secret that anybody who knows the parts can compute. It keeps jobs apart; it does not keep attackers
 * out. */
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

void identity_alone(comm_identity_t *out, const char *source)
{
    out->rank = 0;
    out->size = 1;
    out->root[0] = '\0';
    if (source != NULL)
        snprintf(out->source, sizeof(out->source), "%s", source);
    identity_job(out, "job", 1); /* as of a larger job: newcomers may make it one */
    if (!out->have_secret)
        randombytes_buf(out->secret, sizeof(out->secret));
    out->have_secret = 1;
}

gyre_status_t identity_secret(comm_identity_t *out, const char *hint)
{
    char host[256], uid[32], port_text[16];
    int port = 0;
    if (out->have_secret)
        return GYRE_OK;
    if (!boot_root_split(out->root, host, &port) || !boot_host_is_loopback(host))
        return gyre_fail(
            GYRE_ERR_AUTH,
            "GYRE_SECRET is not set, and the root %s can be reached from other hosts: start with ucx-run, "
            "or set the same secret on all ranks, made once with: "
            "GYRE_SECRET=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \\n')%s",
            out->root, hint);
    snprintf(uid, sizeof(uid), "%ld", (long)getuid());
    snprintf(port_text, sizeof(port_text), "%d", port);
    weak_secret(out, uid, out->job, port_text);
    log_info("GYRE_SECRET is not set: one was derived from the user, the job and the port, which keeps other "
             "jobs out "
             "but no other user of this host");
    return GYRE_OK;
}

/* Do Gyre's own variables, or the caller, give the identity? Half an identity counts. A root alone does not
 * count: it may be the meeting point for the ranks of another launcher. A size without a rank belongs to the
 * pod of an Indexed Job, if this process runs in one. */
static int is_gyre(const gyre_config_t *config)
{
    if (config != NULL && (config->rank >= 0 || config->nranks >= 0))
        return 1;
    return !base_setting_is_default(SET_RANK) ||
           (!base_setting_is_default(SET_SIZE) && !identity_has("JOB_COMPLETION_INDEX"));
}

static gyre_status_t from_gyre(const gyre_config_t *config, comm_identity_t *out)
{
    int by_config = config != NULL && (config->rank >= 0 || config->nranks >= 0 || config->root != NULL);
    out->rank = config != NULL && config->rank >= 0 ? config->rank : (int)base_setting_int(SET_RANK);
    out->size = config != NULL && config->nranks >= 0 ? config->nranks : (int)base_setting_int(SET_SIZE);
    snprintf(out->source, sizeof(out->source), "%s", by_config ? "config" : "GYRE_*");
    if (out->rank < 0 && base_setting_is_default(SET_RANK))
        return gyre_fail(GYRE_ERR_INVALID,
                         "GYRE_RANK (or config.rank) is missing while GYRE_SIZE or GYRE_ROOT is set");
    if (out->size < 0 && base_setting_is_default(SET_SIZE))
        return gyre_fail(GYRE_ERR_INVALID,
                         "GYRE_SIZE (or config.nranks) is missing while GYRE_RANK or GYRE_ROOT is set");
    gyre_status_t st = identity_check(out, config != NULL && config->rank >= 0 ? "config.rank" : "GYRE_RANK",
                                      config != NULL && config->nranks >= 0 ? "config.nranks" : "GYRE_SIZE");
    if (st != GYRE_OK)
        return st;
    if (out->size == 1) {
        identity_alone(out, NULL);
        return GYRE_OK;
    }
    if (out->root[0] == '\0')
        return gyre_fail(GYRE_ERR_INVALID,
                         "GYRE_ROOT (or config.root) is missing for a job of %d ranks: give rank 0's "
                         "host:port",
                         out->size);
    identity_job(out, "job", 1);
    if (out->rank == 0)
        out->root_fd = (int)base_setting_int(SET_ROOT_FD);
    return identity_secret(out, "");
}

static int is_pmix(void)
{
    if (!identity_has("PMIX_NAMESPACE") && !identity_has("PMIX_RANK"))
        return 0;
    /* Without the library, use what else the launcher gives; without that, return PMIx's error. */
    return identity_pmix_usable() || !(identity_has("OMPI_COMM_WORLD_RANK") || identity_is_slurm());
}

static int is_pmi1(void)
{
    return identity_has("PMI_FD") || identity_has("PMI_RANK") || identity_has("PMI_SIZE");
}

static int is_ompi(void)
{
    return identity_has("OMPI_COMM_WORLD_RANK") || identity_has("OMPI_COMM_WORLD_SIZE");
}

static int is_torchrun(void)
{
    return identity_has("RANK") || identity_has("WORLD_SIZE");
}

/* torchrun's workers, also where srun or mpirun started one torchrun per host: then the others' variables
 * number the torchruns. */
static int is_elastic(void)
{
    return identity_has("TORCHELASTIC_RUN_ID") && is_torchrun();
}

static int is_index(void)
{
    return identity_has("JOB_COMPLETION_INDEX");
}

/* The order of identity.h. rank, size: the variables to which the hint looks. */
static const struct {
    int (*here)(void);
    gyre_status_t (*read)(comm_identity_t *out);
    const char *rank, *size;
} launchers[] = {
    {is_elastic, identity_from_torchrun, "RANK", "WORLD_SIZE"},
    {is_pmix, identity_from_pmix, "PMIX_RANK", NULL},
    {is_pmi1, identity_from_pmi1, "PMI_RANK", "PMI_SIZE"},
    {is_ompi, identity_from_ompi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {identity_is_slurm, identity_from_slurm, "SLURM_PROCID", "SLURM_NTASKS"},
    {is_torchrun, identity_from_torchrun, "RANK", "WORLD_SIZE"},
    {is_index, identity_from_index, "JOB_COMPLETION_INDEX", "GYRE_SIZE"},
};
enum { LAUNCHERS = sizeof(launchers) / sizeof(launchers[0]) };

static int launcher(void)
{
    int i = 0;
    while (i < LAUNCHERS && !launchers[i].here())
        i++;
    return i;
}

static int64_t hint_number(const char *name)
{
    const char *text = base_env(name);
    return text != NULL ? strtol(text, NULL, 10) : 0;
}

int comm_identity_rank_hint(void)
{
    int64_t rank = 0, size = COMM_RANKS_MAX;
    int i = launcher();
    if (is_gyre(NULL)) {
        rank = base_setting_int(SET_RANK);
        size = base_setting_int(SET_SIZE);
    } else if (i < LAUNCHERS) {
        rank = hint_number(launchers[i].rank);
        if (launchers[i].size != NULL)
            size = hint_number(launchers[i].size);
    }
    return rank > 0 && rank < size && size <= COMM_RANKS_MAX ? (int)rank : 0;
}

void comm_identity_job(const comm_identity_t *who, char *text)
{
    static const char label[] = "gyre job 1";
    unsigned char hash[crypto_generichash_BYTES_MIN];
    snprintf(text, COMM_JOB_BYTES, "%s", who->job);
    if (!who->job_is_common)
        return;
    crypto_generichash(hash, sizeof(hash), (const unsigned char *)label, sizeof(label), who->secret,
                       sizeof(who->secret));
    snprintf(text, COMM_JOB_BYTES, "%.40s-%02x%02x%02x%02x", who->job, hash[0], hash[1], hash[2], hash[3]);
}

/* What the user gave and no launcher overrides: the job's id, its secret, where to meet. */
static gyre_status_t given(const gyre_config_t *config, comm_identity_t *out)
{
    char host[256];
    int port;
    const char *secret = base_setting_string(SET_SECRET);
    const char *root = base_setting_string(SET_ROOT);
    gyre_status_t st = identity_put(out->job, sizeof(out->job), base_setting_string(SET_JOB), "GYRE_JOB");
    if (st == GYRE_OK && config != NULL && config->secret != NULL)
        st = put_secret(out, config->secret, "config.secret");
    else if (st == GYRE_OK && *secret != '\0')
        st = put_secret(out, secret, "GYRE_SECRET");
    if (config != NULL && config->root != NULL)
        root = config->root;
    if (st == GYRE_OK)
        st = identity_put(out->root, sizeof(out->root), root, "GYRE_ROOT");
    if (st == GYRE_OK && *root != '\0' && !boot_root_split(root, host, &port))
        st = gyre_fail(GYRE_ERR_INVALID, "%s=%s is not host:port (IPv6: [address]:port)",
                       config != NULL && config->root != NULL ? "config.root" : "GYRE_ROOT", root);
    return st;
}

gyre_status_t comm_identity_find(const gyre_config_t *config, comm_identity_t *out)
{
    comm_identity_t found;
    memset(&found, 0, sizeof(found));
    found.root_fd = found.pmi_fd = -1;
    if (sodium_init() < 0)
        return gyre_fail(GYRE_ERR_SYSTEM, "libsodium cannot start: no source of random numbers?");
    gyre_status_t st = base_settings_load();
    if (st == GYRE_OK)
        st = given(config, &found);
    int i = launcher();
    if (st == GYRE_OK && (is_gyre(config) || (i == LAUNCHERS && found.root[0] != '\0')))
        st = from_gyre(config, &found);
    else if (st == GYRE_OK && i < LAUNCHERS)
        st = launchers[i].read(&found);
    else if (st == GYRE_OK)
        identity_alone(&found, "singleton");
    if (st == GYRE_OK)
        *out = found;
    sodium_memzero(&found, sizeof(found));
    return st;
}
