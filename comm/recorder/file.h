/* SPDX-License-Identifier: Apache-2.0 */
/* comm/recorder/file.h: making and reading flight recorders (recorder.h). */
#ifndef COMM_RECORDER_FILE_H
#define COMM_RECORDER_FILE_H

#include <stddef.h>

#include <gyre/status.h>

#include "comm/recorder/recorder.h"

typedef struct {
    int fd;       /* close-on-exec */
    size_t bytes; /* mapped */
    comm_recorder_head_t *head;
    comm_recorder_slot_t *slots; /* [head->slots], writable, shared */
    char *path;                  /* owned: the file; NULL: it is in memory */
} comm_recorder_t;

/* Makes a recorder of `slots` slots for a job of `size` ranks. dir: folder for a file
 * "gyre-JOB.HOST[.PART].rec", or "": memory. The file's blocks are allocated now, so a disk that fills up
 * later causes no fault. If the file cannot be made (the disk is full), one warning reports it and the
 * recorder is in memory. part: "" for a launcher, else a part of the name that no other recorder of this host
 * has. NO_MEMORY, SYSTEM. */
gyre_status_t comm_recorder_create(const char *dir, const char *job, const char *part, int size, int slots,
                                   comm_recorder_t *out);
/* Unmaps and closes; `discard` removes the file. */
void comm_recorder_destroy(comm_recorder_t *recorder, int discard);

/* The launcher's notes. */
void comm_recorder_note_child(comm_recorder_slot_t *slot, int rank, int pid);
void comm_recorder_note_end(comm_recorder_slot_t *slot, int status);

/* Returns 1 if bytes [0, bytes) begin with a head of this version that fits a memfd or file of `total` bytes;
 * else 0 and *why (static text). head: any alignment. */
int comm_recorder_head_check(const void *head, size_t bytes, unsigned long long total, const char **why);

/* Reads a whole recorder from `fd` without mapping it (a file may shrink meanwhile). *slots: [head->slots],
 * freed by the caller. Makes the fields safe: states are in range, texts end and are UTF-8, head->job and
 * head->host are printable. IO, FORMAT, NO_MEMORY, UNSUPPORTED: it is of another version, and the last-error
 * text names its job and both versions (all quiet). */
gyre_status_t comm_recorder_read(int fd, comm_recorder_head_t *head, comm_recorder_slot_t **slots);
/* The same from memory: data: [bytes]. */
gyre_status_t comm_recorder_parse(const unsigned char *data, size_t bytes, comm_recorder_head_t *head,
                                  comm_recorder_slot_t **slots);

#endif
