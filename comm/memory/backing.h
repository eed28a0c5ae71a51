/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/backing.h: the shared file in which groups that are made later have their segments.
 *
 * The first group of a job on a host makes a file for its segment (comm/locate.c). The file is far longer
 * than that and takes no memory for what is not used. Each of the ranks that have it keeps its descriptor,
 * and a part of it is that rank's to give out. A later group whose ranks on this host all have the same file
 * lies there: its maker sends a place, where a file of its own would have to be fetched through two watchers.
 *
 * A rank gives out its places one after the other, and a place twice only if all that were there have left it
 * (rooms.h). So the ranks share no lock, and a rank that was stopped and goes on never writes to another
 * group's segment. The memory of a segment goes back to the system when all of its ranks have left it, but
 * for a few pages of those that are given out again, or when the last process closes the file. */
#ifndef COMM_MEMORY_BACKING_H
#define COMM_MEMORY_BACKING_H

#include <stddef.h>
#include <stdint.h>

typedef struct comm_backing comm_backing_t;
typedef struct comm_room comm_room_t;
typedef struct comm_rooms comm_rooms_t;

/* How long a file with a segment of `bytes` at its beginning has to be, to back the segments of `places`
 * ranks. 0: too long for this process (RLIMIT_FSIZE). */
uint64_t comm_backing_length(size_t bytes, int places);
/* fd: such a file, duplicated. name: the same for all that have it, and for no other, not 0. place: this
 * rank's, of `places`. reads: [places] 1: this process is able to read the memory of the rank with that
 * place; copied. NULL: no memory or descriptor for it, or it is not so long. */
comm_backing_t *comm_backing_open(int fd, size_t bytes, uint64_t name, int places, int place,
                                  const unsigned char *reads);
/* NULL is fine. No segment of it may be open. */
void comm_backing_close(comm_backing_t *backing);

uint64_t comm_backing_name(const comm_backing_t *backing);
int comm_backing_place(const comm_backing_t *backing);
int comm_backing_fd(const comm_backing_t *backing);
/* 1: this process was able to read the memory of the rank with that place. */
int comm_backing_reads(const comm_backing_t *backing, int place);

/* Room for a segment, all zeros: its offset in the file. 0: nothing is left. By any thread. */
uint64_t comm_backing_take(comm_backing_t *backing, size_t bytes);
/* Nobody has used the room that was taken last. */
void comm_backing_untake(comm_backing_t *backing, uint64_t at, size_t bytes);
/* Gives memory that nobody uses back to the system: 1, and it is all zeros. 0: it stays as it is. */
int comm_backing_give_back(const comm_backing_t *backing, uint64_t at, size_t bytes);
/* What this process keeps of it (rooms.h). */
comm_rooms_t *comm_backing_rooms(comm_backing_t *backing);

#endif
