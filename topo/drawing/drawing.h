/* SPDX-License-Identifier: Apache-2.0 */
/* topo/drawing/drawing.h: the machine for people to look at, as text and as an SVG. For gyre-topo; not
 * part of libgyre. */
#ifndef TOPO_DRAWING_DRAWING_H
#define TOPO_DRAWING_DRAWING_H

#include <stdio.h>

#include "topo/topo.h"

/* The tree of the machine, its devices, the nearest ones and the distances between them. */
void topo_print(const topo_t *topo, FILE *out);
/* Where `ranks` ranks would be bound (CORE), and the ring and the two trees over them. */
gyre_status_t topo_print_ranks(const topo_t *topo, int ranks, FILE *out);
/* The ring over `ranks` ranks that run on `cores` (a plan; -1: unbound). order: [ranks]. */
gyre_status_t topo_ring_of_cores(const topo_t *topo, int ranks, const int *cores, int *order);
/* A drawing of the machine; ranks > 0: also of where they would be bound, of the ring and trees over them. */
gyre_status_t topo_svg(const topo_t *topo, int ranks, const char *path);

#endif
