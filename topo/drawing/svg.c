/* SPDX-License-Identifier: Apache-2.0 */
/* topo/drawing/svg.c: draws the machine, and ranks on it, as one self-contained SVG file. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/file.h"
#include "base/settings/size.h"
#include "base/text/svg.h"
#include "topo/orders/order.h"
#include "topo/drawing/drawing.h"
#include "topo/drawing/layout.h"

typedef struct {
    const topo_t *topo;
    FILE *out;
    base_arena_t arena;
    box_t *machine;
    int ranks;
    int *cores, *order; /* [ranks]: plan and ring */
    double *x, *y;      /* [ranks]: centre of a rank's badge on its core, or in the panel of the unbound */
    int *rank_of;       /* [core_count], -1: none */
    double width, height;
    char title[128];
} drawing_t;

#define MARGIN       28.0
#define TITLE_HEIGHT 74.0
#define BADGE        10.5
#define LEVEL        34.0 /* of a tree: pixels from parent to child */

static const char style[] =
    "text{font-family:'DejaVu Sans',Verdana,Helvetica,Arial,sans-serif;fill:#1f2a3d}\n"
    ".h1{font-size:18px;font-weight:bold}.h2{font-size:12px;fill:#55617a}.t{font-size:12px;font-weight:bold}"
    "\n"
    ".n{font-size:10.5px;fill:#55617a}.c{font-size:9.5px;fill:#6b768c;text-anchor:middle}.m{text-anchor:"
    "middle}\n"
    ".e{text-anchor:end}.p{fill:#f3f5f9;stroke:#aeb8ca;stroke-width:1.4}.u{fill:#e6ecf6;stroke:#b4c2da}\n"
    ".l{fill:#d5e0f1;stroke:#a9bbd8}.k{fill:#fff;stroke:#a9b6cc}.g{fill:#e0f2e3;stroke:#57995f}\n"
    ".w{fill:#fdf0d8;stroke:#c4913a}.b{fill:#5b667b}.s{fill:#8792a6}.bt{font-size:10.5px;fill:#fff;text-"
    "anchor:middle}\n"
    ".wire{fill:none;stroke:#8792a6;stroke-width:1.4}.ring{fill:none;stroke:#d9580f;stroke-width:1.8;opacity:"
    ".85}\n"
    ".edge{stroke:#9fb0cc;stroke-width:1.5}.r{fill:#1d4f9e;stroke:#fff;stroke-width:1.2}\n"
    ".leaf{fill:#7f9cc9;stroke:#fff;stroke-width:1.2}.rt{font-size:10px;font-weight:bold;fill:#fff;text-"
    "anchor:middle}\n";

static void text(drawing_t *d, double x, double y, const char *class, const char *words)
{
    base_svg_text(d->out, x, y, class, words);
}

static void rectangle(drawing_t *d, const box_t *box, double height, const char *class, double radius)
{
    base_svg_rect(d->out, box->x, box->y, box->width, height, radius, class);
}

static void wire(drawing_t *d, double x1, double y1, double x2, double y2)
{
    base_svg_line(d->out, x1, y1, x2, y2, "wire");
}

/* --- the machine --- */

static void draw_titled(drawing_t *d, const box_t *box, const char *class, double radius)
{
    double baseline = box->y + (box->kind == BOX_PACKAGE ? 22 : box->kind == BOX_NUMA ? 19 : 16);
    double inset = box->kind == BOX_L3 ? 8 : 12;
    rectangle(d, box, box->height, class, radius);
    text(d, box->x + inset, baseline, box->kind == BOX_L3 ? "n" : "t", box->title);
    text(d, box->x + box->width - inset, baseline, "n e", box->note);
}

static void draw_core(drawing_t *d, const box_t *box)
{
    char number[16];
    int rank = d->rank_of[box->index];
    rectangle(d, box, box->height, "k", 5);
    snprintf(number, sizeof number, "%d", d->topo->cores[box->index].facts.number);
    text(d, box->x + box->width / 2, rank < 0 ? box->y + box->height / 2 + 3.5 : box->y + 12, "c", number);
    if (rank >= 0) {
        d->x[rank] = box->x + box->width / 2;
        d->y[rank] = box->y + 27;
    }
}

static void draw_device(drawing_t *d, const box_t *box)
{
    rectangle(d, box, box->height, d->topo->devices[box->index].facts.kind == TOPO_GPU ? "g" : "w", 5);
    text(d, box->x + box->width / 2, box->y + 16, "t m", box->title);
    text(d, box->x + box->width / 2, box->y + 30, "n m", box->note);
}

static void draw_pill(drawing_t *d, const box_t *box)
{
    rectangle(d, box, TOPO_SVG_PILL, box->kind == BOX_BRIDGE ? "b" : "s", 11);
    text(d, box->x + box->width / 2, box->y + 15, "bt", box->title);
}

/* A line down the left side of a column of devices, with a branch to each. top: where it starts. */
static void draw_column_wires(drawing_t *d, const box_t *column, double top)
{
    double x = column->x + 8;
    for (const box_t *device = column->child; device; device = device->next) {
        double y = device->y + device->height / 2;
        wire(d, x, y, device->x, y);
        if (!device->next)
            wire(d, x, top, x, y);
    }
}

/* From a host bridge's pill to the rail above its switches and ports, and down to each. */
static void draw_bridge_wires(drawing_t *d, const box_t *bridge)
{
    double pill = bridge->y + TOPO_SVG_PILL, rail = pill + 13, middle = bridge->x + bridge->width / 2;
    double left = middle, right = middle;
    wire(d, middle, pill, middle, rail);
    for (const box_t *child = bridge->child; child; child = child->next) {
        double x = child->kind == BOX_SWITCH ? child->x + child->width / 2 : child->x + 8;
        left = x < left ? x : left;
        right = x > right ? x : right;
        if (child->kind == BOX_SWITCH)
            wire(d, x, rail, x, child->y);
        else
            draw_column_wires(d, child, rail);
    }
    wire(d, left, rail, right, rail);
}

static void draw_box(drawing_t *d, const box_t *box)
{
    switch (box->kind) {
    case BOX_PACKAGE:
        draw_titled(d, box, "p", 10);
        break;
    case BOX_NUMA:
        draw_titled(d, box, "u", 8);
        break;
    case BOX_L3:
        draw_titled(d, box, "l", 6);
        break;
    case BOX_CORE:
        draw_core(d, box);
        break;
    case BOX_DEVICE:
        draw_device(d, box);
        break;
    case BOX_BRIDGE:
        draw_bridge_wires(d, box);
        draw_pill(d, box);
        break;
    case BOX_SWITCH:
        draw_column_wires(d, box, box->y + TOPO_SVG_PILL);
        draw_pill(d, box);
        break;
    case BOX_PLAIN:
    case BOX_PORTS:
        break;
    }
    /* Two boxes above each other, a package and the area of its bridges: join them. */
    if (box->kind == BOX_PACKAGE && box->next)
        for (const box_t *bridge = box->next->child; bridge; bridge = bridge->next) {
            double x = bridge->x + bridge->width / 2, low = box->x + 16, high = box->x + box->width - 16;
            double from = x < low ? low : x > high ? high : x, y = box->y + box->height;
            fprintf(d->out, "<path class=\"wire\" d=\"M%.1f %.1fV%.1fH%.1fV%.1f\"/>\n", from, y, y + 13, x,
                    bridge->y);
        }
    for (const box_t *child = box->child; child; child = child->next)
        draw_box(d, child);
}

static void draw_title(drawing_t *d, const char *words)
{
    char line[256], memory[BASE_SIZE_TEXT], l2[BASE_SIZE_TEXT], l1[BASE_SIZE_TEXT];
    topo_summary_t sum;
    topo_summary(d->topo, &sum);
    text(d, MARGIN, 36, "h1", words);
    snprintf(line, sizeof line,
             "%d package%s, %d NUMA node%s, %d core%s, %d PU%s, %s of memory; per core L2 %s, L1d %s",
             sum.packages, sum.packages == 1 ? "" : "s", sum.numa_nodes, sum.numa_nodes == 1 ? "" : "s",
             sum.cores, sum.cores == 1 ? "" : "s", sum.pus, sum.pus == 1 ? "" : "s",
             base_size_about((double)sum.memory_bytes, memory),
             sum.l2_bytes ? base_size_about((double)sum.l2_bytes, l2) : "unknown",
             sum.l1_bytes ? base_size_about((double)sum.l1_bytes, l1) : "unknown");
    text(d, MARGIN, 56, "h2", line);
    if (d->width < topo_svg_text_width(line, 12) + 2 * MARGIN)
        d->width = topo_svg_text_width(line, 12) + 2 * MARGIN;
}

/* --- ranks --- */

static void badge(drawing_t *d, double x, double y, double radius, const char *class, int rank)
{
    char number[16];
    fprintf(d->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\"/>\n", x, y, radius, class);
    snprintf(number, sizeof number, "%d", rank);
    if (radius < 5.5) /* too small to read */
        return;
    fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"rt\" style=\"font-size:%.1fpx\">%s</text>\n", x,
            y + radius * 0.35, radius * (rank < 100 ? 0.95 : 0.72), number);
}

/* A link of the ring: bent to its left, so that the two directions between two ranks do not cover each
 * other. */
static void draw_link(drawing_t *d, int from, int to, double radius)
{
    double dx = d->x[to] - d->x[from], dy = d->y[to] - d->y[from], length = hypot(dx, dy);
    if (length < 1)
        return;
    double bend = length < 60 ? 0.12 * length : fmin(110, 0.14 * length - 1);
    double mx = (d->x[from] + d->x[to]) / 2 + dy / length * bend;
    double my = (d->y[from] + d->y[to]) / 2 - dx / length * bend;
    double out = hypot(mx - d->x[from], my - d->y[from]), in = hypot(d->x[to] - mx, d->y[to] - my);
    fprintf(d->out, "<path class=\"ring\" marker-end=\"url(#tip)\" d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\"/>\n",
            d->x[from] + (mx - d->x[from]) / out * radius, d->y[from] + (my - d->y[from]) / out * radius, mx,
            my, d->x[to] - (d->x[to] - mx) / in * (radius + 3),
            d->y[to] - (d->y[to] - my) / in * (radius + 3));
}

static void draw_ring(drawing_t *d, double radius)
{
    for (int i = 0; i < d->ranks && d->ranks > 1; i++)
        draw_link(d, d->order[i], d->order[(i + 1) % d->ranks], radius);
    for (int rank = 0; rank < d->ranks; rank++)
        badge(d, d->x[rank], d->y[rank], radius, "r", rank);
}

/* Ranks without cores stand in a circle below the machine. Returns the height taken. */
static double draw_unbound(drawing_t *d, double y)
{
    char words[96];
    double around = fmin(fmax(46, d->ranks * 5.0), 180);
    double radius = fmin(BADGE, around * 6.2832 / d->ranks / 3.4);
    snprintf(words, sizeof words, "ring: %d ranks on %d core%s would run unbound", d->ranks,
             d->topo->core_count, d->topo->core_count == 1 ? "" : "s");
    text(d, MARGIN, y + 14, "t", words);
    for (int i = 0; i < d->ranks; i++) {
        double angle = 6.283185307179586 * i / d->ranks - 1.5707963267948966;
        d->x[d->order[i]] = MARGIN + around + 14 + around * cos(angle);
        d->y[d->order[i]] = y + 38 + around + around * sin(angle);
    }
    draw_ring(d, radius);
    return 2 * around + 72;
}

typedef struct {
    int tree, placed; /* ranks that have their place already */
    double left, top, step, radius;
    int deepest;
} tree_view_t;

static void draw_edge(drawing_t *d, double x1, double y1, double x2, double y2, double radius)
{
    double part = radius / hypot(x2 - x1, y2 - y1), dx = (x2 - x1) * part, dy = (y2 - y1) * part;
    base_svg_line(d->out, x1 + dx, y1 + dy, x2 - dx, y2 - dy, "edge");
}

/* In-order: the subtree before a rank stands left of it, the one after it right. *x: where it stands. */
static void draw_subtree(drawing_t *d, tree_view_t *view, int rank, int depth, double *x)
{
    topo_tree_node_t node = topo_double_tree(d->ranks, rank, view->tree);
    double y = view->top + depth * LEVEL, child_x[2];
    view->deepest = depth > view->deepest ? depth : view->deepest;
    if (node.child[0] >= 0)
        draw_subtree(d, view, node.child[0], depth + 1, &child_x[0]);
    *x = view->left + (view->placed++ + 0.5) * view->step;
    if (node.child[1] >= 0)
        draw_subtree(d, view, node.child[1], depth + 1, &child_x[1]);
    for (int i = 0; i < 2; i++)
        if (node.child[i] >= 0)
            draw_edge(d, *x, y, child_x[i], y + LEVEL, view->radius);
    badge(d, *x, y, view->radius, node.child[0] >= 0 ? "r" : "leaf", rank);
}

/* Returns the height taken. */
static double draw_tree(drawing_t *d, int tree, double x, double y, double width)
{
    double step = fmin(width / d->ranks, 40), root_x;
    tree_view_t view = {
        .tree = tree, .left = x, .top = y + 40, .step = step, .radius = fmin(BADGE, step * 0.46)};
    text(d, x, y + 14, "t", tree == 0 ? "tree 0" : "tree 1");
    for (int rank = 0; rank < d->ranks; rank++)
        if (topo_double_tree(d->ranks, rank, tree).parent < 0)
            draw_subtree(d, &view, rank, 0, &root_x);
    return 40 + view.deepest * LEVEL + 38;
}

static double draw_trees(drawing_t *d, double y)
{
    double whole = d->width - 2 * MARGIN, half = (whole - MARGIN) / 2;
    if (d->ranks * 22.0 <= half) {
        double left = draw_tree(d, 0, MARGIN, y, half), right = draw_tree(d, 1, MARGIN * 2 + half, y, half);
        return fmax(left, right);
    }
    double first = draw_tree(d, 0, MARGIN, y, whole);
    return first + draw_tree(d, 1, MARGIN, y + first, whole);
}

/* --- the file --- */

static gyre_status_t prepare(drawing_t *d)
{
    size_t ranks = (size_t)d->ranks;
    d->machine = topo_svg_layout(d->topo, &d->arena, MARGIN, TITLE_HEIGHT);
    d->cores = base_arena_alloc(&d->arena, ranks + 1, sizeof *d->cores);
    d->order = base_arena_alloc(&d->arena, ranks + 1, sizeof *d->order);
    d->x = base_arena_alloc(&d->arena, ranks + 1, sizeof *d->x);
    d->y = base_arena_alloc(&d->arena, ranks + 1, sizeof *d->y);
    d->rank_of = base_arena_alloc(&d->arena, (size_t)d->topo->core_count, sizeof *d->rank_of);
    if (!d->machine || !d->cores || !d->order || !d->x || !d->y || !d->rank_of)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to draw %d ranks", d->ranks);
    d->width = d->machine->width + 2 * MARGIN;
    for (int core = 0; core < d->topo->core_count; core++)
        d->rank_of[core] = -1;
    if (d->ranks == 0)
        return GYRE_OK;
    gyre_status_t status = topo_bind_plan(d->topo, TOPO_BIND_CORE, d->ranks, d->cores);
    for (int rank = 0; status == GYRE_OK && rank < d->ranks; rank++)
        if (d->cores[rank] >= 0)
            d->rank_of[d->cores[rank]] = rank;
    return status == GYRE_OK ? topo_ring_of_cores(d->topo, d->ranks, d->cores, d->order) : status;
}

/* The body: all but the frame, whose size is known afterwards only. */
static void draw(drawing_t *d)
{
    const char *host = hwloc_obj_get_info_by_name(hwloc_get_root_obj(d->topo->hwloc), "HostName");
    if (d->ranks > 0)
        snprintf(d->title, sizeof d->title, "%s with %d rank%s", host ? host : "Machine", d->ranks,
                 d->ranks == 1 ? "" : "s");
    else
        snprintf(d->title, sizeof d->title, "%s", host ? host : "Machine");
    draw_title(d, d->title);
    draw_box(d, d->machine);
    double y = d->machine->y + d->machine->height + 30;
    if (d->ranks > 0) {
        if (d->cores[0] >= 0)
            draw_ring(d, BADGE);
        else
            y += draw_unbound(d, y);
        y += draw_trees(d, y);
    }
    if (d->ranks > 1) {
        text(d, MARGIN, y, "h2",
             "orange: the ring; dark in the trees: inner nodes, which no rank is in both");
        y += 22;
    }
    d->height = y + 6;
}

static void draw_frame(const drawing_t *d, FILE *out)
{
    base_svg_open(out, d->width, d->height, d->title, style);
    fputs("<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"6\" refY=\"4\" markerWidth=\"4.5\" "
          "markerHeight=\"4.5\" "
          "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#d9580f\"/></marker></defs>\n",
          out);
}

static gyre_status_t write_file(const drawing_t *d, const char *path, const char *body)
{
    base_file_t file;
    gyre_status_t status = base_file_begin(path, &file);
    if (status != GYRE_OK)
        return status;
    draw_frame(d, file.out);
    fputs(body, file.out);
    base_svg_close(file.out);
    return base_file_commit(&file);
}

gyre_status_t topo_svg(const topo_t *topo, int ranks, const char *path)
{
    if (!topo || ranks < 0 || !path)
        return gyre_fail(GYRE_ERR_INVALID, "topo_svg: cannot draw %d ranks into %s", ranks,
                         path ? path : "no file");
    drawing_t d = {.topo = topo, .ranks = ranks};
    char *body = NULL;
    size_t bytes = 0;
    gyre_status_t status = prepare(&d);
    if (status == GYRE_OK) {
        d.out = open_memstream(&body, &bytes);
        if (!d.out)
            status = gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "cannot draw %d ranks", ranks);
    }
    if (status == GYRE_OK) {
        draw(&d);
        int failed = ferror(d.out);
        if (fclose(d.out) != 0 || failed)
            status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the drawing of %d ranks", ranks);
    }
    if (status == GYRE_OK)
        status = write_file(&d, path, body);
    free(body);
    base_arena_free(&d.arena);
    return status;
}
