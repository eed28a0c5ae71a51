/* SPDX-License-Identifier: Apache-2.0 */
/* topo/drawing/layout.h: the boxes of the machine's drawing and where they stand; for svg.c only. */
#ifndef TOPO_DRAWING_LAYOUT_H
#define TOPO_DRAWING_LAYOUT_H

#include "base/arena.h"
#include "topo/graph.h"

typedef enum {
    BOX_PLAIN, /* invisible: keeps its children together */
    BOX_PACKAGE,
    BOX_NUMA,
    BOX_L3,
    BOX_CORE,
    BOX_BRIDGE, /* a host bridge: a pill above its children */
    BOX_SWITCH, /* a PCIe switch: a pill above its devices */
    BOX_PORTS,  /* devices without a switch of their own, one above the other */
    BOX_DEVICE
} box_kind_t;

typedef struct box {
    box_kind_t kind;
    int index;   /* core or device of the topo_t; others -1 */
    int columns; /* children stand in rows of so many */
    char title[128], note[64];
    double x, y, width, height; /* pixels; x and y from the drawing's top left */
    double content_width;       /* of the children together */
    struct box *child, *last, *next;
} box_t;

#define TOPO_SVG_PILL 22.0 /* height of a bridge's or switch's pill */

/* Pixels that a line of text of `size` pixels height takes, roughly: the reader's font is not known here. */
double topo_svg_text_width(const char *text, double size);

/* The machine as boxes, all of them owned by arena, with the outermost one's top left at (x, y). NULL: no
 * memory. */
box_t *topo_svg_layout(const topo_t *topo, base_arena_t *arena, double x, double y);

#endif
