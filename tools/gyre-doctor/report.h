/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/report.h: the result: a list of findings that is printed or written as JSON.
 *
 * The parts that look (machine.c, kernel.c, network.c, software.c) add findings; main prints them. They also
 * fill `facts`, from which the last section, "Gyre will use", is made. */
#ifndef GYRE_DOCTOR_REPORT_H
#define GYRE_DOCTOR_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "base/arena.h"

typedef enum {
    FOUND_OK,      /* there and good */
    FOUND_NOTE,    /* absent or less than the best, and Gyre works without it */
    FOUND_WARNING, /* something will be slower or may fail under load */
    FOUND_MISSING  /* required: Gyre does not work */
} found_t;

typedef struct finding {
    struct finding *next;
    found_t state;
    const char *section, *name, *value;
    const char *advice; /* what to do; "" if nothing */
} finding_t;

typedef struct {
    base_arena_t memory;
    finding_t *first, *last;
    const char *section; /* of the findings that follow */
    struct {
        int windows, memfd;            /* shared memory between local ranks; memfd_create may be called */
        int cma;                       /* process_vm_readv works between ranks */
        int gpus, rdma_devices, rails; /* rails: ports that the verbs transport would use */
        char transports[256];          /* UCX's, that reach other hosts: "tcp rc_mlx5" */
    } facts;
} report_t;

/* The value is formatted; the advice is taken as it is. Copies all but the section. */
void report_add(report_t *report, found_t state, const char *name, const char *advice, const char *format,
                ...) __attribute__((format(printf, 5, 6)));
/* Adds `word` to a list of words with spaces between, once, if there is room. list: [bytes]. */
void report_word(char *list, size_t bytes, const char *word);
int report_count(const report_t *report, found_t state);
void report_print(const report_t *report, FILE *out);
json_t *report_json(const report_t *report); /* a new reference; NULL: no memory */
json_t *report_settings_json(void);          /* the same */
/* A JSON string of text from outside: JSON must be UTF-8, so odd bytes of other text become '?'. */
json_t *report_text_json(const char *text);
void report_free(report_t *report);

void look_at_machine(report_t *report);
void look_at_kernel(report_t *report);
void look_at_network(report_t *report);
void look_at_limits(report_t *report); /* after the network: what is enough depends on it */
void look_at_gpus(report_t *report);
void look_at_gpu_health(report_t *report, int index);
void look_at_software(report_t *report);
void look_at_choices(report_t *report); /* what Gyre will use; last */

#endif
