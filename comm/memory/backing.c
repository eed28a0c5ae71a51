/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/backing.c: see backing.h. */
#include "comm/memory/backing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "comm/memory/rooms.h"

/* A rank's part: addresses, not memory. 4 million segments of 4 MiB, and 2^17 ranks before offsets end. */
static const uint64_t PART = UINT64_C(1) << 44;
enum { ALIGNED = 1 << 16, /* a page of any system */ RANKS_MOST = 1 << 17 };

struct comm_backing {
    int fd;
    uint64_t name;
    int place, places;
    _Atomic uint64_t next; /* offset of the next room that this rank gives out */
    uint64_t end;
    comm_rooms_t rooms;
    unsigned char reads[]; /* [places] */
};

uint64_t comm_backing_length(size_t bytes, int places)
{
    struct rlimit limit;

    /* A file beyond the limit is not refused: the process gets SIGXFSZ. */
    if (places > RANKS_MOST || getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY)
        return 0;
    return base_round_up(bytes, ALIGNED) + (uint64_t)places * PART;
}

comm_backing_t *comm_backing_open(int fd, size_t bytes, uint64_t name, int places, int place,
                                  const unsigned char *reads)
{
    const uint64_t begin = base_round_up(bytes, ALIGNED);
    struct stat file;
    comm_backing_t *backing;

    if (fstat(fd, &file) != 0 || (uint64_t)file.st_size != begin + (uint64_t)places * PART)
        return NULL;
    backing = malloc(sizeof *backing + (size_t)places);
    if (!backing)
        return NULL;
    backing->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (backing->fd < 0) {
        free(backing);
        return NULL;
    }
    backing->name = name;
    backing->place = place;
    backing->places = places;
    atomic_init(&backing->next, begin + (uint64_t)place * PART);
    backing->end = begin + (uint64_t)(place + 1) * PART;
    comm_rooms_init(&backing->rooms);
    memcpy(backing->reads, reads, (size_t)places);
    return backing;
}

void comm_backing_close(comm_backing_t *backing)
{
    if (!backing)
        return;
    comm_rooms_free(&backing->rooms);
    close(backing->fd);
    free(backing);
}

uint64_t comm_backing_name(const comm_backing_t *backing)
{
    return backing ? backing->name : 0;
}

int comm_backing_place(const comm_backing_t *backing)
{
    return backing ? backing->place : -1;
}

int comm_backing_fd(const comm_backing_t *backing)
{
    return backing->fd;
}

int comm_backing_reads(const comm_backing_t *backing, int place)
{
    return place >= 0 && place < backing->places && backing->reads[place];
}

uint64_t comm_backing_take(comm_backing_t *backing, size_t bytes)
{
    const uint64_t room = base_round_up(bytes, ALIGNED);
    uint64_t at = atomic_load_explicit(&backing->next, memory_order_relaxed);

    do
        if (room > backing->end - at)
            return 0;
    while (!atomic_compare_exchange_weak_explicit(&backing->next, &at, at + room, memory_order_relaxed,
                                                  memory_order_relaxed));
    return at;
}

void comm_backing_untake(comm_backing_t *backing, uint64_t at, size_t bytes)
{
    uint64_t next = at + base_round_up(bytes, ALIGNED);

    /* If another thread has taken one since, this one stays unused. */
    (void)atomic_compare_exchange_strong_explicit(&backing->next, &next, at, memory_order_relaxed,
                                                  memory_order_relaxed);
}

int comm_backing_give_back(const comm_backing_t *backing, uint64_t at, size_t bytes)
{
    if (base_memory_file_give_back(backing->fd, at, bytes) == 0)
        return 1;
    log_info("the memory of a communicator is kept until the job ends (fallocate: %s)", strerror(errno));
    return 0;
}

comm_rooms_t *comm_backing_rooms(comm_backing_t *backing)
{
    return &backing->rooms;
}
