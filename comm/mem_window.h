/* comm/mem_window.h: what the owner of a window (mem.c) and those who map it (mem_map.c) agree on. */
#ifndef COMM_MEM_WINDOW_H
#define COMM_MEM_WINDOW_H

#include <stdatomic.h>
#include <stdint.h>

enum { MEM_CONTROL_BYTES = 4096 }; /* the last page of a window */

typedef struct {
    _Atomic uint32_t closed; /* 1: the owner has freed the window */
} mem_control_t;

#endif
