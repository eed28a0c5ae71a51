/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/boot/test_identity.c: the identity of a process, from config, GYRE_* and launchers' variables,
 * and their order; half an identity is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/bootstrap.h"

#define SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static const char *const names[] = {"GYRE_RANK",
                                    "GYRE_SIZE",
                                    "GYRE_ROOT",
                                    "GYRE_ROOT_FD",
                                    "GYRE_SECRET",
                                    "GYRE_JOB",
                                    "GYRE_PORT_RANGE",
                                    "PMIX_NAMESPACE",
                                    "PMIX_RANK",
                                    "PMI_FD",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "OMPI_MCA_ess_base_jobid",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_NPROCS",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_NODELIST",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_JOB_NODELIST",
                                    "SLURM_NNODES",
                                    "SLURM_STEP_NUM_NODES",
                                    "SLURM_JOB_NUM_NODES",
                                    "SLURM_NODEID",
                                    "SLURMD_NODENAME",
                                    "SLURM_JOB_ID",
                                    "SLURM_JOBID",
                                    "SLURM_STEP_ID",
                                    "SLURM_STEPID",
                                    "RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_RUN_ID",
                                    "JOB_COMPLETION_INDEX"};
#define PMIX    "PMIX_NAMESPACE=slurm.pmix.7.0", "PMIX_RANK=1"
#define PMI1    "PMI_FD=9", "PMI_RANK=2", "PMI_SIZE=5"
#define OMPI    "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=6", "OMPI_COMM_WORLD_LOCAL_SIZE=6"
#define STEP    "SLURM_JOB_ID=7", "SLURM_STEP_ID=2", "SLURM_NNODES=2", "SLURM_NODELIST=n[04-05],m7"
#define SLURM   "SLURM_PROCID=4", "SLURM_NTASKS=7", STEP
#define TORCH   "RANK=5", "WORLD_SIZE=8", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"
#define ELASTIC TORCH, "TORCHELASTIC_RUN_ID=run-1"
#define INDEX   "JOB_COMPLETION_INDEX=6"

/* The identity that a process with these variables ("NAME=value", ended by NULL) would find. */
static gyre_status_t with(const char *const *variables, const gyre_config_t *config, comm_identity_t *who)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    for (; *variables != NULL; variables++) {
        char name[64];
        const char *value = strchr(*variables, '=');
        snprintf(name, sizeof(name), "%.*s", (int)(value - *variables), *variables);
        setenv(name, value + 1, 1);
    }
    base_settings_reload();
    base_log_set_level(BASE_LOG_NONE);
    memset(who, 0xee, sizeof(*who));
    return comm_identity_find(config, who);
}
#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NO_ENV   ((const char *const[]){NULL})

static void alone(void **state)
{
    (void)state;
    comm_identity_t a, b;
    assert_int_equal(with(NO_ENV, NULL, &a), GYRE_OK);
    assert_int_equal(a.rank, 0);
    assert_int_equal(a.size, 1);
    assert_int_equal(a.root_fd, -1);
    assert_string_equal(a.root, "");
    assert_string_equal(a.source, "singleton");
    assert_true(a.have_secret);
    assert_int_equal(with(NO_ENV, NULL, &b), GYRE_OK);
    assert_memory_not_equal(a.secret, b.secret, 32); /* random: no two singletons share one */
    assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=1"), NULL, &a), GYRE_OK);
    assert_int_equal(a.size, 1);
    assert_string_equal(a.source, "GYRE_*");
    assert_int_equal(with(ENV("RANK=0", "WORLD_SIZE=1"), NULL, &a), GYRE_OK);
    assert_string_equal(a.source, "torchrun");
    assert_int_equal(with(ENV("MASTER_ADDR=h", "MASTER_PORT=1"), NULL, &a),
                     GYRE_OK); /* many scripts export these */
    assert_string_equal(a.source, "singleton");
    assert_int_equal(with(ENV("RANK=", "WORLD_SIZE="), NULL, &a), GYRE_OK); /* an empty one is not set */
    assert_string_equal(a.source, "singleton");
}

/* Tools that speak before gyre_init speak at the same rank. */
static void the_hint_agrees(void **state)
{
    (void)state;
    static const char *const good[][9] = {
        {NULL},
        {"GYRE_RANK=2", "GYRE_SIZE=4", "GYRE_ROOT=127.0.0.1:9", "RANK=1", NULL},
        {"GYRE_RANK=0", "GYRE_SIZE=1", "RANK=3", NULL},
        {TORCH, NULL},
        {"RANK=0", "WORLD_SIZE=1", NULL},
        {PMI1, NULL},
        {OMPI, NULL},
        {SLURM, "GYRE_SECRET=" SECRET, NULL},
        {INDEX, "GYRE_SIZE=9", "GYRE_ROOT=pod-0.svc:5", "GYRE_SECRET=" SECRET, NULL},
        {"SLURM_PROCID=3", "SLURM_NTASKS=4", NULL}, /* a batch script: no step */
    };
    comm_identity_t who;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(with(good[i], NULL, &who), GYRE_OK);
        assert_int_equal(comm_identity_rank_hint(), who.rank);
    }
    static const char *const bad[][4] = {{"RANK=3", NULL},
                                         {"GYRE_RANK=3", NULL},
                                         {"GYRE_ROOT=h:1", "RANK=2", "WORLD_SIZE=4", NULL},
                                         {"PMI_RANK=4", "PMI_FD=3", NULL},
                                         {"RANK=4", "WORLD_SIZE=4", NULL}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_not_equal(with(bad[i], NULL, &who), GYRE_OK);
        if (i != 2) /* it is rank 2 for sure; what it lacks is a secret */
            assert_int_equal(comm_identity_rank_hint(), 0);
    }
}

/* The first match counts; a launcher whose variables are an outer one's is not believed. */
static void the_order(void **state)
{
    (void)state;
    static const struct {
        const char *variables[40], *source;
        int rank;
    } cases[] = {
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:9", PMIX, PMI1, OMPI, SLURM, TORCH, INDEX, NULL},
         "GYRE_*",
         0},
        {{PMI1, OMPI, SLURM, TORCH, INDEX, NULL}, "PMI-1", 2},
        {{OMPI, SLURM, TORCH, INDEX, NULL}, "Open MPI", 3},
        {{SLURM, TORCH, INDEX, "GYRE_SECRET=" SECRET, NULL}, "Slurm", 4},
        {{TORCH, INDEX, NULL}, "torchrun", 5},
        {{INDEX, "GYRE_SIZE=9", "GYRE_ROOT=p-0.s:5", "GYRE_SECRET=" SECRET, NULL}, "Indexed Job", 6},
        {{SLURM, ELASTIC, NULL}, "torchrun", 5}, /* srun torchrun: SLURM_PROCID numbers the torchruns */
        {{PMI1, ELASTIC, NULL}, "torchrun", 5},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_JOB_ID=1", "SLURM_STEP_ID=4294967290", TORCH, NULL},
         "torchrun",
         5},
    };
    comm_identity_t who;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (with(cases[i].variables, NULL, &who) != GYRE_OK)
            fail_msg("case %zu: %s", i, gyre_last_error());
        assert_string_equal(who.source, cases[i].source);
        assert_int_equal(who.rank, cases[i].rank);
    }
}

/* libpmix is opened only now, and may be missing: both ways must end well. */
static void from_pmix(void **state)
{
    (void)state;
    comm_identity_t who;
    gyre_status_t st = with(ENV(PMIX), NULL, &who);
    if (st == GYRE_OK) {
        assert_string_equal(who.source, "PMIx");
        assert_int_equal(who.meet, COMM_MEET_PMIX);
        assert_int_equal(who.rank, 1);
        assert_int_equal(comm_identity_rank_hint(), 1);
        assert_int_equal(with(ENV(PMIX, PMI1), NULL, &who), GYRE_ERR_INVALID); /* nested launchers: 1 or 2? */
        assert_non_null(strstr(gyre_last_error(), "PMIX_RANK=1 and PMI_RANK=2"));
    } else { /* a machine without it: what else the launcher says */
        assert_int_equal(st, GYRE_ERR_UNSUPPORTED);
        assert_non_null(strstr(gyre_last_error(), "libpmix.so.2"));
        assert_int_equal(with(ENV(PMIX, OMPI), NULL, &who), GYRE_OK);
        assert_string_equal(who.source, "Open MPI");
        assert_int_equal(with(ENV(PMIX, SLURM, "GYRE_SECRET=" SECRET), NULL, &who), GYRE_OK);
        assert_string_equal(who.source, "Slurm");
    }
}

static void from_pmi1(void **state)
{
    (void)state;
    comm_identity_t who;
    assert_int_equal(with(ENV(PMI1), NULL, &who), GYRE_OK);
    assert_int_equal(who.meet, COMM_MEET_PMI1);
    assert_int_equal(who.pmi_fd, 9);
    assert_int_equal(who.size, 5);
    assert_int_equal(who.have_secret, 0);
    assert_int_equal(with(ENV("PMI_FD=9", "PMI_RANK=0", "PMI_SIZE=1"), NULL, &who), GYRE_OK);
    assert_int_equal(who.meet, COMM_MEET_KNOWN); /* alone: nothing to ask for */
    assert_int_equal(
        with(ENV("PMI_RANK=1", "PMI_SIZE=3", "GYRE_ROOT=h:1", "GYRE_SECRET=" SECRET), NULL, &who), GYRE_OK);
    assert_int_equal(who.meet, COMM_MEET_KNOWN); /* no wire, but the user says where */
    assert_string_equal(who.root, "h:1");
}

static void from_ompi(void **state)
{
    (void)state;
    comm_identity_t who, other;
    assert_int_equal(with(ENV(OMPI, "OMPI_MCA_ess_base_jobid=77"), NULL, &who), GYRE_OK);
    assert_int_equal(who.size, 6);
    assert_memory_equal(who.root, "127.0.0.1:", 10); /* all are here, says mpirun; if not, they do not meet */
    assert_int_equal(with(ENV(OMPI, "OMPI_MCA_ess_base_jobid=78"), NULL, &other), GYRE_OK);
    assert_string_not_equal(who.root, other.root);
    assert_memory_not_equal(who.secret, other.secret, 32);
    assert_int_equal(
        with(ENV("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=6", "OMPI_COMM_WORLD_LOCAL_SIZE=2"), NULL,
             &who),
        GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "GYRE_ROOT"));
    assert_int_equal(with(ENV("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=6", "GYRE_ROOT=far:7",
                              "GYRE_SECRET=" SECRET),
                          NULL, &who),
                     GYRE_OK);
    assert_string_equal(who.root, "far:7");
}

static void from_slurm(void **state)
{
    (void)state;
    comm_identity_t who, other;
    assert_int_equal(with(ENV(SLURM, "GYRE_SECRET=" SECRET), NULL, &who), GYRE_OK);
    assert_int_equal(who.size, 7);
    assert_string_equal(who.job, "slurm-7.2");
    assert_string_equal(who.root, "n04:20429"); /* 20000 + 7 * 61 + 2 */
    assert_int_equal(with(ENV(SLURM, "GYRE_SECRET=" SECRET, "GYRE_PORT_RANGE=700-709"), NULL, &who), GYRE_OK);
    assert_string_equal(who.root, "n04:709");
    /* The step's own facts come before the allocation's. */
    assert_int_equal(
        with(ENV(SLURM, "SLURM_STEP_NUM_TASKS=5", "SLURM_STEP_NODELIST=m7,m8", "GYRE_SECRET=" SECRET), NULL,
             &who),
        GYRE_OK);
    assert_int_equal(who.size, 5);
    assert_string_equal(who.root, "m7:20429");
    assert_int_equal(with(ENV(SLURM, "SLURM_JOB_ID=3000000008", "GYRE_SECRET=" SECRET), NULL, &who), GYRE_OK);
    assert_string_equal(who.job, "slurm-3000000008.2"); /* of a federation: its upper bits name the cluster */
    assert_string_equal(who.root, "n04:20490");
    /* No secret: only on one host, where all meet on loopback. */
    assert_int_equal(with(ENV(SLURM), NULL, &who), GYRE_ERR_AUTH);
    assert_non_null(strstr(gyre_last_error(), "--mpi=pmi2"));
    assert_int_equal(with(ENV(SLURM, "SLURM_STEP_NUM_NODES=1"), NULL, &who), GYRE_OK);
    assert_string_equal(who.root, "127.0.0.1:20429");
    assert_int_equal(with(ENV(SLURM, "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_ID=3"), NULL, &other), GYRE_OK);
    assert_memory_not_equal(who.secret, other.secret, 32);
    assert_int_equal(with(ENV(SLURM, "GYRE_ROOT=localhost:5"), NULL, &who), GYRE_OK);
    assert_string_equal(who.root, "localhost:5");
    assert_int_equal(with(ENV("SLURM_PROCID=0", "SLURM_NTASKS=1", STEP), NULL, &who), GYRE_OK);
    assert_string_equal(who.source, "Slurm");
    assert_int_equal(who.size, 1);
    /* Ranks of Hydra or mpirun inside the allocation, a batch script, an interactive shell. */
    assert_int_equal(with(ENV(SLURM, "PMI_RANK=1"), NULL, &who), GYRE_ERR_INVALID);
    assert_int_equal(with(ENV("SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=7"), NULL, &who), GYRE_OK);
    assert_string_equal(who.source, "singleton");
    assert_int_equal(with(ENV(SLURM, "SLURM_STEP_ID=4294967291"), NULL, &who), GYRE_OK);
    assert_string_equal(who.source, "singleton");
}

/* An id that waits for its rank 0 stays, however many of other jobs the process uses meanwhile. */
static void ids_that_wait(void **state)
{
    (void)state;
    const comm_gather_t by = {.call = "test"};
    unsigned char mine[COMM_ID_BYTES], other[COMM_ID_BYTES];
    comm_identity_t who;
    assert_int_equal(comm_unique_id(mine), GYRE_OK);
    memcpy(other, mine, sizeof(other));
    for (int job = 1; job <= 200; job++) {
        other[40] = (unsigned char)(mine[40] + job); /* its number */
        assert_int_equal(comm_identity_by_id(&by, other, "", 1, 2, &who), GYRE_OK);
    }
    assert_int_equal(comm_identity_by_id(&by, mine, "", 0, 2, &who), GYRE_OK);
    assert_true(who.root_fd >= 0);
    close(who.root_fd);
    assert_int_equal(comm_identity_by_id(&by, other, "", 1, 2, &who),
                     GYRE_ERR_INVALID); /* it is still known */
}

static void from_gyre(void **state)
{
    (void)state;
    comm_identity_t who;
    assert_int_equal(with(ENV("GYRE_RANK=2", "GYRE_SIZE=4", "GYRE_ROOT=far:1234", "GYRE_SECRET=" SECRET,
                              "GYRE_JOB=j7", "GYRE_ROOT_FD=5", "RANK=1", "WORLD_SIZE=2"),
                          NULL, &who),
                     GYRE_OK);
    assert_int_equal(who.rank, 2);
    assert_int_equal(who.size, 4);
    assert_int_equal(who.root_fd, -1); /* for rank 0 only */
    assert_string_equal(who.root, "far:1234");
    assert_string_equal(who.job, "j7");
    assert_string_equal(who.source, "GYRE_*");
    assert_int_equal(who.secret[1], 0x11);
    assert_int_equal(who.secret[31], 0xff);
    assert_int_equal(
        with(ENV("GYRE_RANK=0", "GYRE_SIZE=4", "GYRE_ROOT=[::1]:1234", "GYRE_ROOT_FD=5"), NULL, &who),
        GYRE_OK);
    assert_int_equal(who.root_fd, 5);
}

static void from_config(void **state)
{
    (void)state;
    comm_identity_t who;
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.rank = 1;
    config.nranks = 3;
    config.root = "h:9";
    config.secret = SECRET;
    assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=x:1"), &config, &who), GYRE_OK);
    assert_int_equal(who.rank, 1);
    assert_int_equal(who.size, 3);
    assert_string_equal(who.root, "h:9");
    assert_string_equal(who.source, "config");
    config.nranks = -1; /* the rest from the environment */
    assert_int_equal(with(ENV("GYRE_SIZE=2"), &config, &who), GYRE_OK);
    assert_int_equal(who.size, 2);
    config.secret = "abc";
    assert_int_equal(with(ENV("GYRE_SIZE=2"), &config, &who), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "config.secret"));
    config.secret = SECRET;
    config.rank = 2;
    assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=2"), &config, &who), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "config.rank=2 is not in 0..1 (GYRE_SIZE=2)"));
    config.nranks = 0;
    assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=2"), &config, &who), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "config.nranks=0 is not in 1.."));
    config.root = "h";
    assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=2"), &config, &who), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "config.root=h is not host:port"));
}

/* Jobs that nobody gave an id get different ones for gyre-doctor, the same on all their ranks. */
static void ids_to_show(void **state)
{
    (void)state;
    comm_identity_t who;
    char first[COMM_JOB_BYTES], second[COMM_JOB_BYTES];
    assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=1"), NULL, &who), GYRE_OK);
    comm_identity_job(&who, first);
    assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=1"), NULL, &who), GYRE_OK);
    comm_identity_job(&who, second);
    assert_int_equal(strncmp(first, "job-", 4), 0);
    assert_string_not_equal(first, second);
    for (int port = 0; port < 2; port++) {
        char *shown = port ? second : first;
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(with(ENV(rank ? "RANK=1" : "RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
                                      "MASTER_ADDR=node0", port ? "MASTER_PORT=29500" : "MASTER_PORT=29600",
                                      "TORCHELASTIC_RUN_ID=none"),
                                  NULL, &who),
                             GYRE_OK);
            char name[COMM_JOB_BYTES];
            comm_identity_job(&who, name);
            if (rank > 0)
                assert_string_equal(name, shown);
            strcpy(shown, name);
        }
        assert_int_equal(strncmp(shown, "none-", 5), 0);
    }
    assert_string_not_equal(first, second);
    static const struct {
        const char *variables[9], *shown; /* shown: of an id that other jobs have, too, the beginning */
    } rows[] = {
        {{"GYRE_RANK=0", "GYRE_SIZE=2", NULL}, "job-"},
        {{"PMI_RANK=0", "PMI_SIZE=2", NULL}, "pmi-"},
        {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", NULL}, "openmpi-"},
        {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_MCA_ess_base_jobid=7", NULL}, "7"},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=2", STEP, NULL}, "slurm-"},
        {{"RANK=0", "WORLD_SIZE=2", NULL}, "torchrun-"},
        {{"RANK=0", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=run-1", NULL}, "run-1"},
        {{"JOB_COMPLETION_INDEX=0", "GYRE_SIZE=2", NULL}, "indexed-"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *variables[14] = {"GYRE_ROOT=localhost:1", "GYRE_SECRET=" SECRET, NULL};
        int n = 2, common = rows[i].shown[strlen(rows[i].shown) - 1] == '-';
        for (int k = 0; rows[i].variables[k] != NULL; k++)
            variables[n++] = rows[i].variables[k];
        assert_int_equal(with(variables, NULL, &who), GYRE_OK);
        comm_identity_job(&who, first);
        if (strlen(first) != strlen(rows[i].shown) + (common ? 8 : 0) ||
            strncmp(first, rows[i].shown, strlen(rows[i].shown)) != 0)
            fail_msg("%s instead of %s", first, rows[i].shown);
        variables[n] = "GYRE_JOB=job"; /* given: others do not have it */
        assert_int_equal(with(variables, NULL, &who), GYRE_OK);
        comm_identity_job(&who, first);
        assert_string_equal(first, "job");
    }
    assert_int_equal(
        with(ENV("GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:1", "GYRE_SECRET=" SECRET), NULL, &who),
        GYRE_OK);
    comm_identity_job(&who, first);
    setenv("GYRE_JOIN", "localhost:2", 1);
    base_settings_reload();
    assert_int_equal(comm_boot_newcomer(&who), GYRE_OK); /* it shows the id of the job that it joins */
    unsetenv("GYRE_JOIN");
    comm_identity_job(&who, second);
    assert_string_equal(first, second);
}

static void from_torchrun(void **state)
{
    (void)state;
    comm_identity_t a, b;
    assert_int_equal(with(ENV("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=node0", "MASTER_PORT=29500",
                              "TORCHELASTIC_RUN_ID=run-1", "GYRE_SECRET=" SECRET),
                          NULL, &a),
                     GYRE_OK);
    assert_int_equal(a.rank, 1);
    assert_int_equal(a.size, 4);
    assert_string_equal(a.root, "node0:29501"); /* torchrun's own store holds MASTER_PORT */
    assert_string_equal(a.job, "run-1");
    assert_string_equal(a.source, "torchrun");
    assert_int_equal(a.secret[1], 0x11);
    assert_int_equal(
        with(ENV("RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=fe80::1", "MASTER_PORT=29500", "GYRE_SECRET=" SECRET),
             NULL, &b),
        GYRE_OK);
    assert_string_equal(b.root, "[fe80::1]:29501");
    /* On one host no secret need be given: they meet on loopback. */
    assert_int_equal(with(ENV("RANK=1", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=node0",
                              "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=run-1"),
                          NULL, &a),
                     GYRE_OK);
    assert_string_equal(a.root, "127.0.0.1:29501");
    assert_int_equal(with(ENV("RANK=3", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=node0",
                              "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=run-1"),
                          NULL, &b),
                     GYRE_OK);
    assert_memory_equal(a.secret, b.secret, 32); /* all ranks derive the same, */
    assert_int_equal(with(ENV("RANK=3", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=node0",
                              "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=run-2"),
                          NULL, &b),
                     GYRE_OK);
    assert_memory_not_equal(a.secret, b.secret, 32); /* other runs another */
    /* Over several hosts anybody on the network knows what can be derived. */
    assert_int_equal(with(ENV("RANK=1", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=node0",
                              "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=run-1"),
                          NULL, &a),
                     GYRE_ERR_AUTH);
    assert_non_null(strstr(gyre_last_error(), "GYRE_SECRET"));
}

static void from_index(void **state)
{
    (void)state;
    comm_identity_t who;
    assert_int_equal(with(ENV("JOB_COMPLETION_INDEX=3", "GYRE_SIZE=4", "GYRE_ROOT=train-0.train:29600",
                              "GYRE_SECRET=" SECRET),
                          NULL, &who),
                     GYRE_OK);
    assert_int_equal(who.rank, 3);
    assert_int_equal(who.size, 4);
    assert_string_equal(who.root, "train-0.train:29600");
    assert_int_equal(
        with(ENV("JOB_COMPLETION_INDEX=3", "GYRE_SIZE=4", "GYRE_ROOT=train-0.train:29600"), NULL, &who),
        GYRE_ERR_AUTH);
    assert_int_equal(with(ENV("JOB_COMPLETION_INDEX=3", "GYRE_RANK=0", "GYRE_SIZE=1"), NULL, &who), GYRE_OK);
    assert_string_equal(who.source, "GYRE_*");
}

/* No secret: only where no other host can connect. */
static void by_hand(void **state)
{
    (void)state;
    static const char *const near[] = {"GYRE_ROOT=127.0.0.1:80", "GYRE_ROOT=localhost:80",
                                       "GYRE_ROOT=[::1]:80"};
    static const char *const far[] = {"GYRE_ROOT=10.0.0.1:80", "GYRE_ROOT=node0:80",
                                      "GYRE_ROOT=localhost.evil:80", "GYRE_ROOT=127.evil.org:80",
                                      "GYRE_ROOT=[2001:db8::1]:80"};
    comm_identity_t who, again;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=2", near[i]), NULL, &who), GYRE_OK);
        assert_true(who.have_secret);
        assert_int_equal(with(ENV("GYRE_RANK=1", "GYRE_SIZE=2", near[i]), NULL, &again), GYRE_OK);
        assert_memory_equal(who.secret, again.secret, 32);
        assert_int_equal(with(ENV("GYRE_RANK=1", "GYRE_SIZE=2", near[i], "GYRE_JOB=other"), NULL, &again),
                         GYRE_OK);
        assert_memory_not_equal(who.secret, again.secret, 32);
    }
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(with(ENV("GYRE_RANK=0", "GYRE_SIZE=2", far[i]), NULL, &who), GYRE_ERR_AUTH);
        assert_non_null(strstr(gyre_last_error(), "od -An -tx1 -N32 /dev/urandom | tr -d ' \\n'"));
    }
}

/* Each broken environment is INVALID and names the variable. */
static void broken(void **state)
{
    (void)state;
    static const struct {
        const char *variables[9];
        const char *named;
    } cases[] = {
        {{"GYRE_RANK=1", NULL}, "GYRE_SIZE"},
        {{"GYRE_SIZE=2", NULL}, "GYRE_RANK"},
        {{"GYRE_ROOT=h:1", NULL}, "GYRE_RANK"},
        {{"GYRE_RANK=1", "GYRE_SIZE=2", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=2", "GYRE_SIZE=2", "GYRE_ROOT=localhost:1", NULL}, "GYRE_RANK=2"},
        {{"GYRE_RANK=-3", "GYRE_SIZE=2", "GYRE_ROOT=localhost:1", NULL}, "GYRE_RANK"},
        {{"GYRE_RANK=0", "GYRE_SIZE=0", NULL}, "GYRE_SIZE"},
        {{"GYRE_RANK=x", "GYRE_SIZE=2", "GYRE_ROOT=localhost:1", NULL}, "GYRE_RANK"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:0", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:65536", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:12x", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=:12", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=::1:12", NULL}, "GYRE_ROOT"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:1", "GYRE_SECRET=abcd", NULL}, "GYRE_SECRET"},
        {{"GYRE_RANK=0", "GYRE_SIZE=2", "GYRE_ROOT=localhost:1",
          "GYRE_SECRET=0011223344556677889zaabbccddeeff00112233445566778899aabbccddeeff", NULL},
         "GYRE_SECRET"},
        {{"GYRE_JOB=0123456789012345678901234567890123456789012345678901234567890123", NULL}, "GYRE_JOB"},
        {{"PMIX_RANK=0", NULL}, "PMIX_NAMESPACE"},
        {{"PMIX_NAMESPACE=x", NULL}, "PMIX_RANK"},
        {{"PMIX_NAMESPACE=x", "PMIX_RANK=-1", NULL}, "PMIX_RANK=-1"},
        {{"PMI_FD=3", NULL}, "PMI_RANK"},
        {{"PMI_SIZE=2", NULL}, "PMI_RANK is not set although PMI_SIZE is"},
        {{"PMI_FD=3", "PMI_RANK=0", NULL}, "PMI_SIZE"},
        {{"PMI_FD=x", "PMI_RANK=0", "PMI_SIZE=2", NULL}, "PMI_FD=x"},
        {{"PMI_FD=3", "PMI_RANK=2", "PMI_SIZE=2", NULL}, "PMI_RANK=2"},
        {{"PMI_FD=3", "PMI_RANK=0", "PMI_SIZE=99999999999999999999", NULL}, "PMI_SIZE="},
        {{"PMI_RANK=0", "PMI_SIZE=2", NULL}, "PMI_FD"},
        {{"OMPI_COMM_WORLD_RANK=0", NULL}, "OMPI_COMM_WORLD_SIZE"},
        {{"OMPI_COMM_WORLD_SIZE=2", NULL}, "OMPI_COMM_WORLD_RANK"},
        {{"OMPI_COMM_WORLD_RANK=9", "OMPI_COMM_WORLD_SIZE=2", NULL}, "OMPI_COMM_WORLD_RANK=9"},
        {{"SLURM_PROCID=0", STEP, NULL}, "SLURM_NTASKS"},
        {{"SLURM_PROCID=7", "SLURM_NTASKS=7", STEP, NULL}, "SLURM_PROCID=7"},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_ID=1", NULL}, "SLURM_JOB_ID"},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=2", STEP, "SLURM_NODEID=1", NULL}, "SLURM_NODEID=1"},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=2", STEP, "SLURMD_NODENAME=m7", NULL}, "SLURMD_NODENAME=m7"},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=2", STEP, "SLURM_JOB_ID=4294967296", NULL},
         "SLURM_JOB_ID=4294967296"},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=2", STEP, "SLURM_STEP_NODELIST=n[3", NULL},
         "SLURM_STEP_NODELIST=n[3"},
        {{"JOB_COMPLETION_INDEX=0", NULL}, "GYRE_SIZE"},
        {{"JOB_COMPLETION_INDEX=0", "GYRE_SIZE=2", NULL}, "GYRE_ROOT"},
        {{"JOB_COMPLETION_INDEX=2", "GYRE_SIZE=2", NULL}, "JOB_COMPLETION_INDEX=2"},
        {{"RANK=0", NULL}, "WORLD_SIZE"},
        {{"WORLD_SIZE=2", NULL}, "RANK"},
        {{"RANK=0", "WORLD_SIZE=2", NULL}, "MASTER_ADDR"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", NULL}, "MASTER_PORT"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=65535", NULL}, "MASTER_PORT"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=0", NULL}, "MASTER_PORT"},
        {{"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=10", NULL}, "RANK=2"},
        {{"RANK=1x", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=10", NULL}, "RANK=1x"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        comm_identity_t who, untouched;
        memset(&untouched, 0xee, sizeof(untouched));
        gyre_status_t st = with(cases[i].variables, NULL, &who);
        if (st != GYRE_ERR_INVALID || strstr(gyre_last_error(), cases[i].named) == NULL)
            fail_msg("case %zu (%s): status %d, \"%s\"", i, cases[i].variables[0], (int)st,
                     gyre_last_error());
        assert_memory_equal(&who, &untouched, sizeof(who)); /* outputs are set only on success */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),         cmocka_unit_test(the_hint_agrees), cmocka_unit_test(the_order),
        cmocka_unit_test(from_gyre),     cmocka_unit_test(from_config),     cmocka_unit_test(from_pmix),
        cmocka_unit_test(from_pmi1),     cmocka_unit_test(from_ompi),       cmocka_unit_test(from_slurm),
        cmocka_unit_test(from_torchrun), cmocka_unit_test(from_index),      cmocka_unit_test(by_hand),
        cmocka_unit_test(ids_to_show),   cmocka_unit_test(ids_that_wait),   cmocka_unit_test(broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
