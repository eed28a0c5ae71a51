/* SPDX-License-Identifier: Apache-2.0 */
/* tests/failing/inject.h: makes the k-th request of a kind fail: for memory, a descriptor, a mapping, a
 * thread, a write, a service of UCX, memory inside jansson, or of the emulator of CUDA. Otherwise only
 * requests of Gyre's own objects count, not those inside libraries: the linker sends them here (--wrap). */
#ifndef TESTS_FAILING_INJECT_H
#define TESTS_FAILING_INJECT_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    INJECT_MEMORY,
    INJECT_DESCRIPTOR,
    INJECT_MAP,
    INJECT_THREAD,
    INJECT_WRITE,
    INJECT_UCX,
    INJECT_JSON,
    INJECT_CUDA, /* a call of CUDA has no memory */
    INJECT_LOST, /* a call of CUDA and all later ones report that the device is broken */
    INJECT_KINDS
} inject_kind_t;

extern const char *const inject_names[INJECT_KINDS];

/* From now on the k-th request of the kind fails, once; k counts from 1, over all threads. */
void inject_arm(inject_kind_t kind, long k);
void inject_disarm(void);
/* From now on the kind's requests are counted and none fails. calls[i] says through which calls request i + 1
 * was made: a hash of the last three return addresses. `room`: how many fit. Not for INJECT_CUDA and
 * INJECT_LOST. */
void inject_trace(inject_kind_t kind, uint64_t *calls, long room);
/* What errors of CUDA say. */
const char *inject_words(inject_kind_t kind);
/* Pieces of the emulated device's memory that this process has not freed; or of all else: streams, events,
 * pinned memory, mappings. */
long inject_left(int memory);
/* From now on jansson asks for memory here. */
void inject_json(void);
/* Loads UCX, whose services are asked for here from now on. 0: it cannot be loaded; why: [room] the
 * reason. */
int inject_ucx(char *why, size_t room);
/* Requests of the kind since it was armed. */
long inject_count(void);
/* From now on, until inject_disarm(), requests of all kinds are counted, and how many of one there were. Not
 * for INJECT_CUDA and INJECT_LOST. */
void inject_watch(void);
long inject_seen(inject_kind_t kind);
/* The function that failed, or NULL, and the offset of the call in the program, for addr2line. */
const char *inject_struck(long *offset);

#endif
