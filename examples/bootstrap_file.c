/* SPDX-License-Identifier: Apache-2.0 */
/* examples/bootstrap_file.c: a job whose processes have nothing in common but a folder.
 *
 *     for r in 0 1 2; do build/examples/bootstrap_file $r 3 /shared/folder & done; wait
 *
 * Shows gyre_comm_create with an all-gather through files. They hold the job's secret: the folder should be
 * the user's alone, and empty. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <gyre/gyre.h>

typedef struct {
    const char *folder;
    int rank, nranks, calls;
} files_t;

static void name_of(const files_t *files, int rank, const char *end, char name[4096])
{
    snprintf(name, 4096, "%s/%d.%d%s", files->folder, files->calls, rank, end);
}

/* A file appears under its name when it is complete. */
static int put(const files_t *files, const void *data, size_t bytes)
{
    char name[4096], unfinished[4096];
    name_of(files, files->rank, "", name);
    name_of(files, files->rank, ".new", unfinished);
    int fd = open(unfinished, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        return 0;
    int ok = write(fd, data, bytes) == (ssize_t)bytes;
    ok = close(fd) == 0 && ok;
    return ok && rename(unfinished, name) == 0;
}

static int get(const files_t *files, int rank, void *data, size_t bytes)
{
    char name[4096];
    int fd = -1;
    name_of(files, rank, "", name);
    for (int tries = 0; tries < 3000 && fd < 0; tries++) { /* 30 s */
        if (tries > 0)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        fd = open(name, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0)
        return 0;
    int ok = read(fd, data, bytes) == (ssize_t)bytes;
    close(fd);
    return ok;
}

static gyre_status_t by_files(const void *mine, void *all, size_t bytes, void *user)
{
    files_t *files = user;
    int ok = put(files, mine, bytes);
    for (int r = 0; ok && r < files->nranks; r++)
        ok = get(files, r, (char *)all + (size_t)r * bytes, bytes);
    files->calls++;
    return ok ? GYRE_OK : GYRE_ERR_IO;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: bootstrap_file rank ranks folder\n");
        return 2;
    }
    files_t files = {.folder = argv[3], .rank = atoi(argv[1]), .nranks = atoi(argv[2])};
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    config.rank = files.rank;
    config.nranks = files.nranks;
    config.all_gather = by_files;
    config.user = &files;
    config.name = "bootstrap_file";
    gyre_comm_t *comm;
    if (gyre_comm_create(&config, &comm) != GYRE_OK)
        return 1; /* Gyre has logged why */
    double mine = files.rank + 1, sum = 0;
    gyre_status_t status = gyre_all_reduce(&mine, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm);
    if (status == GYRE_OK)
        printf("rank %d of %d: the sum is %g\n", files.rank, files.nranks, sum);
    return gyre_finalize(comm) != GYRE_OK || status != GYRE_OK;
}
