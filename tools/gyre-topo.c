/* tools/gyre-topo.c: prints and draws the machine, and where ranks would go on it. See gyre-topo(1). */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include <gyre/version.h>

#include "topo/drawing/drawing.h"

enum { EXIT_USAGE = 2, MOST_RANKS = 4096 };

static const char help[] =
    "usage: gyre-topo [--xml FILE] [--ranks N] [--svg FILE]\n"
    "\n"
    "Prints what this machine is: packages, NUMA nodes, caches and cores that this process may use, GPUs "
    "and\n"
    "network devices, which of them are near each other, and how far all of them are apart.\n"
    "\n"
    "  --xml FILE      describe the machine in FILE instead (written by: lstopo --of xml FILE)\n"
    "  -n, --ranks N   also print where N ranks would be bound, the ring and the two trees over them (1 to "
    "4096)\n"
    "  --svg FILE      also draw all that into FILE\n"
    "  -h, --help      this text\n"
    "  --version       the version\n";

typedef struct {
    const char *xml, *svg;
    int ranks;
} options_t;

static int usage_error(const char *what, const char *value)
{
    fprintf(stderr, "gyre-topo: %s %s; see gyre-topo --help\n", what, value);
    return EXIT_USAGE;
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, options_t *options)
{
    static const struct option known[] = {
        {"xml", required_argument, NULL, 'x'}, {"ranks", required_argument, NULL, 'n'},
        {"svg", required_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},   {NULL, 0, NULL, 0}};
    char *end;
    long number;
    for (int flag; (flag = getopt_long(argc, argv, "hn:", known, NULL)) != -1;) {
        switch (flag) {
        case 'x':
            options->xml = optarg;
            break;
        case 's':
            options->svg = optarg;
            break;
        case 'n':
            errno = 0;
            number = strtol(optarg, &end, 10);
            if (end == optarg || *end || errno || number < 1 || number > MOST_RANKS)
                return usage_error("--ranks wants a number from 1 to 4096, not", optarg);
            options->ranks = (int)number;
            break;
        case 'h':
            fputs(help, stdout);
            return EXIT_SUCCESS;
        case 'v':
            printf("gyre-topo %s\n", GYRE_VERSION);
            return EXIT_SUCCESS;
        default: /* getopt has said what is wrong */
            fputs("gyre-topo: see gyre-topo --help\n", stderr);
            return EXIT_USAGE;
        }
    }
    return optind < argc ? usage_error("does not know what to do with", argv[optind]) : -1;
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
    if (topo_load(options.xml, &topo) != GYRE_OK) /* the library has said why */
        return EXIT_FAILURE;
    gyre_status_t status = show(topo, &options);
    topo_free(topo);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "gyre-topo: cannot write the output: %s\n", strerror(errno));
        return EXIT_FAILURE;
    }
    return status == GYRE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
