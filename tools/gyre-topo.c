/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-topo.c: prints and draws the machine, and where ranks would go on it. See gyre-topo(1). */
#include <limits.h>
#include <stdlib.h>

#include "tools/shared/flags.h"
#include "tools/shared/output.h"
#include "topo/drawing/drawing.h"

enum { MOST_RANKS = 4096 };

static const char usage[] =
    "usage: gyre-topo [--xml FILE] [--ranks N] [--svg FILE]\n"
    "\n"
    "Prints what this machine is: packages, NUMA nodes, caches and cores that this process may use, GPUs "
    "and\n"
    "network devices, which of them are near each other, and how far all of them are apart.\n";

typedef struct {
    const char *xml, *svg;
    int ranks;
} options_t;

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, options_t *options)
{
    const flag_t rows[] = {
        {FLAG(0, "xml", TEXT, &options->xml, "FILE",
              "describe the machine in FILE instead (written by: lstopo --of xml FILE)")},
        {FLAG('n', "ranks", INT, &options->ranks, "N",
              "also print where N ranks would be bound, the ring and the two trees over them\n(1 to 4096)"),
         .low = 1, .high = MOST_RANKS},
        {FLAG(0, "svg", TEXT, &options->svg, "FILE", "also draw all that into FILE; - is standard output")},
    };
    const flags_t flags = {.program = "gyre-topo", .usage = usage, FLAG_ROWS(rows)};
    char why[2 * PATH_MAX];
    const int done = flags_take(&flags, argc, argv, NULL);
    if (done < 0 && !flags_apart("svg", options->svg, options->xml, why, sizeof why))
        return flags_wrong("gyre-topo", "%s", why);
    flags_output(options->svg);
    return done;
}

static gyre_status_t show(const topo_t *topo, const options_t *options)
{
    gyre_status_t status = GYRE_OK;
    topo_print(topo, stdout);
    if (options->ranks > 0)
        status = topo_print_ranks(topo, options->ranks, stdout);
    if (status == GYRE_OK && options->svg) {
        status = topo_svg(topo, options->ranks, options->svg);
        if (status == GYRE_OK)
            printf("drawn in %s\n", options->svg);
    }
    return status;
}

int main(int argc, char **argv)
{
    options_t options = {0};
    topo_t *topo = NULL;
    int done = parse(argc, argv, &options);
    if (done >= 0)
        return done;
    if (topo_load(options.xml, &topo) != GYRE_OK) /* the library has logged the reason */
        return EXIT_FAILURE;
    gyre_status_t status = show(topo, &options);
    topo_free(topo);
    return output_end("gyre-topo", status == GYRE_OK ? EXIT_SUCCESS : EXIT_FAILURE, EXIT_FAILURE);
}
