/* SPDX-License-Identifier: Apache-2.0 */
/* topo/drawing/layout.c: turns the machine into nested boxes and gives them places.
 *
 * First the boxes are made (packages around NUMA nodes around L3 caches around cores, and under each
 * package the PCIe trees that hang off it), then measured from the inside out, then placed from the
 * outside in. */
#include "topo/drawing/drawing.h"
#include "topo/drawing/layout.h"

#include <string.h>

#include "base/settings/size.h"

typedef struct {
    const topo_t *topo;
    box_t *boxes; /* enough for all: counted before */
    size_t used;
} builder_t;

double topo_svg_text_width(const char *text, double size)
{
    return (double)strlen(text) * size * 0.56;
}

static box_t *add(builder_t *b, box_t *parent, box_kind_t kind, int index, int columns)
{
    box_t *box = &b->boxes[b->used++];
    box->kind = kind;
    box->index = index;
    box->columns = columns;
    if (parent && parent->last)
        parent->last->next = box;
    else if (parent)
        parent->child = box;
    if (parent)
        parent->last = box;
    return box;
}

/* A pleasant number of columns for n equal things: wider than high, and without a ragged last row if it
 * can be. */
static int columns_for(int n)
{
    int root = 1;
    while (root * root < n)
        root++;
    for (int columns = root; columns <= 2 * root && columns <= n; columns++)
        if (n % columns == 0)
            return columns;
    return root;
}

static void choose_columns(box_t *box)
{
    int children = 0;
    for (box_t *child = box->child; child; child = child->next)
        children++;
    box->columns = columns_for(children);
}

/* --- cores --- */

static int run_end(const topo_t *topo, int first, int end, int (*number)(const topo_core_t *))
{
    int next = first + 1;
    while (next < end && number(&topo->cores[next].facts) == number(&topo->cores[first].facts))
        next++;
    return next;
}

static int package_of(const topo_core_t *core)
{
    return core->package;
}

static int numa_of(const topo_core_t *core)
{
    return core->numa;
}

static int l3_of(const topo_core_t *core)
{
    return core->l3;
}

static void add_caches(builder_t *b, box_t *parent, int first, int end)
{
    char size[BASE_SIZE_TEXT];
    for (int at = first, next; at < end; at = next) {
        next = run_end(b->topo, at, end, l3_of);
        int l3 = l3_of(&b->topo->cores[at].facts);
        box_t *box = add(b, parent, l3 < 0 ? BOX_PLAIN : BOX_L3, -1, columns_for(next - at));
        if (l3 >= 0) {
            hwloc_obj_t cache = hwloc_get_obj_by_type(b->topo->hwloc, HWLOC_OBJ_L3CACHE, (unsigned)l3);
            snprintf(box->title, sizeof box->title, "L3 %d", l3);
            base_size_about((double)cache->attr->cache.size, size);
            snprintf(box->note, sizeof box->note, "%s", size);
        }
        for (int core = at; core < next; core++)
            add(b, box, BOX_CORE, core, 1);
    }
    choose_columns(parent);
}

static void add_numa_nodes(builder_t *b, box_t *parent, int first, int end)
{
    char size[BASE_SIZE_TEXT];
    for (int at = first, next; at < end; at = next) {
        next = run_end(b->topo, at, end, numa_of);
        int numa = numa_of(&b->topo->cores[at].facts);
        box_t *box = add(b, parent, numa < 0 ? BOX_PLAIN : BOX_NUMA, -1, 1);
        if (numa >= 0) {
            hwloc_obj_t node = hwloc_get_obj_by_type(b->topo->hwloc, HWLOC_OBJ_NUMANODE, (unsigned)numa);
            snprintf(box->title, sizeof box->title, "NUMA node %d", numa);
            base_size_about((double)node->attr->numanode.local_memory, size);
            snprintf(box->note, sizeof box->note, "%s", size);
        }
        add_caches(b, box, at, next);
    }
    choose_columns(parent);
}

static void add_package(builder_t *b, box_t *cell, int first, int end)
{
    int package = package_of(&b->topo->cores[first].facts);
    box_t *box = add(b, cell, package < 0 ? BOX_PLAIN : BOX_PACKAGE, -1, 1);
    if (package >= 0) {
        hwloc_obj_t obj = hwloc_get_obj_by_type(b->topo->hwloc, HWLOC_OBJ_PACKAGE, (unsigned)package);
        const char *model = hwloc_obj_get_info_by_name(obj, "CPUModel");
        snprintf(box->title, sizeof box->title, "Package %d", package);
        snprintf(box->note, sizeof box->note, "%s", model ? model : "");
    }
    add_numa_nodes(b, box, first, end);
}

/* --- devices --- */

/* The package under which a device is drawn: -1 also for one of which this process may use no core. */
static int home_of(const topo_t *topo, int device)
{
    int package = topo->devices[device].facts.package;
    for (int core = 0; core < topo->core_count; core++)
        if (package >= 0 && topo->cores[core].facts.package == package)
            return package;
    return -1;
}

static int same_bridge(const topo_t *topo, int a, int b)
{
    return home_of(topo, a) == home_of(topo, b) &&
           topo->devices[a].facts.bridge == topo->devices[b].facts.bridge;
}

static void add_device(builder_t *b, box_t *parent, int device)
{
    const topo_device_t *facts = &b->topo->devices[device].facts;
    box_t *box = add(b, parent, BOX_DEVICE, device, 1);
    snprintf(box->title, sizeof box->title, "%s", facts->name);
    snprintf(box->note, sizeof box->note, "%s %s",
             facts->kind == TOPO_GPU ? "GPU"
             : facts->rdma           ? "RDMA NIC"
                                     : "NIC",
             strncmp(facts->pci, "0000:", 5) == 0 ? facts->pci + 5 : facts->pci);
}

/* The devices of one switch (NULL: those without one), in a box of their own. */
static void add_switch(builder_t *b, box_t *bridge, int first, hwloc_obj_t at)
{
    box_t *box = add(b, bridge, at ? BOX_SWITCH : BOX_PORTS, -1, 1);
    if (at)
        snprintf(box->title, sizeof box->title, "switch %02x:%02x.%x",
                 (unsigned)at->attr->bridge.upstream.pci.bus, (unsigned)at->attr->bridge.upstream.pci.dev,
                 (unsigned)at->attr->bridge.upstream.pci.func);
    for (int device = first; device < b->topo->device_count; device++)
        if (same_bridge(b->topo, first, device) && topo_switch_of(b->topo, device) == at)
            add_device(b, box, device);
}

static void add_bridge(builder_t *b, box_t *area, int first)
{
    const topo_device_t *facts = &b->topo->devices[first].facts;
    box_t *box = add(b, area, BOX_BRIDGE, -1, 0);
    if (facts->bridge < 0)
        snprintf(box->title, sizeof box->title, "no known bridge");
    else if (facts->numa >= 0)
        snprintf(box->title, sizeof box->title, "PCIe %d, NUMA node %d", facts->bridge, facts->numa);
    else
        snprintf(box->title, sizeof box->title, "PCIe %d", facts->bridge);
    for (int device = first; device < b->topo->device_count; device++) {
        int seen = !same_bridge(b->topo, first, device);
        hwloc_obj_t at = topo_switch_of(b->topo, device);
        for (int before = first; before < device && !seen; before++)
            seen = same_bridge(b->topo, before, device) && topo_switch_of(b->topo, before) == at;
        if (seen)
            continue;
        add_switch(b, box, device, at);
        box->columns++; /* all side by side, so that a line from above reaches each */
    }
}

static void add_devices(builder_t *b, box_t *cell, int package)
{
    box_t *area = NULL;
    for (int device = 0; device < b->topo->device_count; device++) {
        int seen = home_of(b->topo, device) != package;
        for (int before = 0; before < device && !seen; before++)
            seen = same_bridge(b->topo, before, device);
        if (seen)
            continue;
        if (!area)
            area = add(b, cell, BOX_PLAIN, -1, 0);
        add_bridge(b, area, device);
        area->columns++;
    }
}

/* --- sizes and places --- */

typedef struct {
    double pad, head, gap, indent;
} style_t;

static style_t style_of(box_kind_t kind)
{
    switch (kind) {
    case BOX_PACKAGE:
        return (style_t){14, 34, 14, 0};
    case BOX_NUMA:
        return (style_t){12, 28, 12, 0};
    case BOX_L3:
        return (style_t){8, 24, 6, 0};
    case BOX_BRIDGE:
        return (style_t){0, TOPO_SVG_PILL + 26, 22, 0};
    case BOX_SWITCH:
        return (style_t){0, TOPO_SVG_PILL + 12, 8, 16};
    case BOX_PORTS:
        return (style_t){0, 0, 8, 16};
    default:
        return (style_t){0, 0, 26, 0};
    }
}

/* Widths of the columns that the children of a box need, one after the other. */
static double column_width(const box_t *box, int column)
{
    double width = 0;
    int at = 0;
    for (const box_t *child = box->child; child; child = child->next, at++)
        if (at % box->columns == column && child->width > width)
            width = child->width;
    return width;
}

static double row_height(const box_t *first, int columns)
{
    double height = 0;
    for (const box_t *child = first; child && columns > 0; child = child->next, columns--)
        if (child->height > height)
            height = child->height;
    return height;
}

static void measure(box_t *box)
{
    if (box->kind == BOX_CORE || box->kind == BOX_DEVICE) {
        double text = topo_svg_text_width(box->title, 12) + 16,
               note = topo_svg_text_width(box->note, 10) + 16;
        box->width = box->kind == BOX_CORE ? 42 : 108;
        box->height = box->kind == BOX_CORE ? 42 : 38;
        if (box->kind == BOX_DEVICE && text > box->width)
            box->width = text;
        if (box->kind == BOX_DEVICE && note > box->width)
            box->width = note;
        return;
    }
    style_t style = style_of(box->kind);
    int at = 0;
    box->content_width = 0;
    box->height = style.head + style.pad;
    for (box_t *child = box->child; child; child = child->next)
        measure(child);
    for (box_t *child = box->child; child; child = child->next, at++) {
        if (at < box->columns)
            box->content_width += column_width(box, at) + (at > 0 ? style.gap : 0);
        if (at % box->columns == 0)
            box->height += row_height(child, box->columns) + (at > 0 ? style.gap : 0);
    }
    double title = topo_svg_text_width(box->title, 14) + topo_svg_text_width(box->note, 11) + 40;
    box->width = box->content_width + 2 * style.pad + style.indent;
    if (box->kind == BOX_BRIDGE || box->kind == BOX_SWITCH)
        title = topo_svg_text_width(box->title, 11) + 24;
    if (box->title[0] && title > box->width)
        box->width = title;
}

static void place(box_t *box, double x, double y)
{
    style_t style = style_of(box->kind);
    int at = 0;
    double left = x + style.indent + (box->width - style.indent - box->content_width) / 2;
    double cx = left, cy = y + style.head;
    const box_t *first = box->child; /* of the row */
    box->x = x;
    box->y = y;
    for (box_t *child = box->child; child; child = child->next, at++) {
        int column = at % box->columns;
        if (column == 0) {
            cx = left;
            first = child;
        }
        double width = column_width(box, column);
        place(child, cx + (width - child->width) / 2, cy);
        cx += width + style.gap;
        if (column == box->columns - 1 || !child->next)
            cy += row_height(first, box->columns) + style.gap;
    }
}

box_t *topo_svg_layout(const topo_t *topo, base_arena_t *arena, double x, double y)
{
    /* At most: a package with its cell, a NUMA node and a cache per core; a bridge, a switch and an area
     * per device. */
    size_t most = 2 + 6 * (size_t)topo->core_count + 6 * (size_t)topo->device_count;
    builder_t b = {.topo = topo, .boxes = base_arena_alloc(arena, most, sizeof *b.boxes)};
    if (!b.boxes)
        return NULL;
    box_t *machine = add(&b, NULL, BOX_PLAIN, -1, 1);
    for (int at = 0, next; at < topo->core_count; at = next) {
        next = run_end(topo, at, topo->core_count, package_of);
        box_t *cell = add(&b, machine, BOX_PLAIN, -1, 1);
        int package = package_of(&topo->cores[at].facts);
        add_package(&b, cell, at, next);
        if (package >= 0)
            add_devices(&b, cell, package);
    }
    choose_columns(machine);
    int homeless = 0;
    for (int device = 0; device < topo->device_count; device++)
        homeless += home_of(topo, device) < 0;
    if (homeless > 0)
        add_devices(&b, add(&b, machine, BOX_PLAIN, -1, 1), -1);
    measure(machine);
    place(machine, x, y);
    return machine;
}
