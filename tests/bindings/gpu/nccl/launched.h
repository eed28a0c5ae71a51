/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/gpu/nccl/launched.h: what programs of several processes share. ucx-run starts the processes;
 * an id goes from process 0 to the others in a file, as it would by MPI or a store. */
#ifndef TESTS_NCCL_LAUNCHED_H
#define TESTS_NCCL_LAUNCHED_H

#include "tests/bindings/gpu/nccl/program.h"

static const char *id_file;

/* The number of this process, and of all; `file`: the begin of the names of files with ids. */
static inline void launched(const char *file, int *process, int *processes)
{
    const char *number = getenv("GYRE_RANK"), *of = getenv("GYRE_SIZE");
    CHECK(number && of, "GYRE_RANK or GYRE_SIZE is not set: start it with ucx-run");
    *process = atoi(number);
    *processes = atoi(of);
    id_file = file;
    (void)alarm(50);
}

/* Each id has a file of its own. first: this is process 0, which makes it. */
static inline ncclUniqueId new_id(int first)
{
    static int ids;
    char name[512], part[520];
    ncclUniqueId id;
    (void)snprintf(name, sizeof name, "%s.%d", id_file, ids++);
    (void)snprintf(part, sizeof part, "%s.part", name);
    FILE *f = NULL;
    if (first) {
        NCCL(ncclGetUniqueId(&id));
        CHECK((f = fopen(part, "w")) && fwrite(&id, sizeof id, 1, f) == 1 && fclose(f) == 0, "%s", part);
        CHECK(rename(part, name) == 0, "%s", name);
        return id;
    }
    for (int tries = 0; !(f = fopen(name, "r")); tries++) {
        CHECK(tries < 20000, "no %s", name);
        (void)usleep(1000);
    }
    CHECK(fread(&id, sizeof id, 1, f) == 1 && fclose(f) == 0, "%s", name);
    return id;
}

/* Returns when all processes have called it, by files: a rank that leaves a collective may die before the
 * others have left it. */
static inline void meet(int process, int processes)
{
    char name[520];
    for (int p = 0; p < processes; p++) {
        (void)snprintf(name, sizeof name, "%s.up.%d", id_file, (process + p) % processes);
        FILE *f = fopen(name, p == 0 ? "w" : "r");
        for (int tries = 0; !f; f = fopen(name, "r"), tries++) {
            CHECK(p > 0 && tries < 20000, "no %s", name);
            (void)usleep(1000);
        }
        (void)fclose(f);
    }
}

#endif
