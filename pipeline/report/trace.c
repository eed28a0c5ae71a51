/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/trace.c: a trace that Perfetto (ui.perfetto.dev) and chrome://tracing show.
 *
 * The JSON form of the Trace Event Format: complete events ("ph": "X") in microseconds, a process for each
 * rank. The first lane of a rank is the training thread's work. The second lane is what the thread waits for.
 * The messages have as many more lanes as there are messages under way at a time: slices of one lane must not
 * overlap in part. */
#include <stdlib.h>

#include "base/error.h"
#include "base/file.h"
#include "pipeline/report/trace.h"

enum { STEP_LANE = 0, COMPUTE_LANE = 1, WAIT_LANE = 2, TRAVEL_LANE = 3, TRAVEL_LANES = 32 };

const char *train_span_name(int kind)
{
    static const char *const name[MODEL_SPAN_KINDS] = {
        [MODEL_SPAN_FORWARD] = "forward",
        [MODEL_SPAN_BACKWARD] = "backward",
        [MODEL_SPAN_BACKWARD_WEIGHT] = "weight gradient",
        [MODEL_SPAN_OPTIMISER] = "optimiser",
        [MODEL_SPAN_WAIT] = "wait for a stage",
        [MODEL_SPAN_TENSOR] = "tensor parallel",
        [MODEL_SPAN_CONTEXT] = "context parallel",
        [MODEL_SPAN_EXPERTS] = "expert parallel",
        [MODEL_SPAN_REDUCE] = "reduce",
        [MODEL_SPAN_GATHER] = "gather",
        [MODEL_SPAN_TRAVEL] = "in flight",
    };
    return kind >= 0 && kind < MODEL_SPAN_KINDS ? name[kind] : "?";
}

typedef struct {
    FILE *out;
    base_time_t zero; /* the trace's beginning */
    int events;
} trace_t;

static void separate(trace_t *trace)
{
    fputs(trace->events++ ? ",\n" : "\n", trace->out);
}

static void name_lane(trace_t *trace, size_t rank, int lane, const char *name)
{
    separate(trace);
    fprintf(
        trace->out,
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%zu,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n"
        "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%zu,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
        rank, lane, name, rank, lane, lane);
}

static void name_rank(trace_t *trace, const train_record_t *record, size_t rank)
{
    pipe_place_t place = pipe_layout_place(&record->layout, rank);
    separate(trace);
    fprintf(
        trace->out,
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%zu,\"args\":{\"name\":\"rank %zu (pp %zu, dp %zu, "
        "cp %zu, tp %zu)\"}},\n"
        "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%zu,\"args\":{\"sort_index\":%zu}}",
        rank, rank, place.pp, place.dp, place.cp, place.tp, rank, rank);
    name_lane(trace, rank, STEP_LANE, "step");
    name_lane(trace, rank, COMPUTE_LANE, "compute");
    name_lane(trace, rank, WAIT_LANE, "communication, waited for");
}

static void put_slice(trace_t *trace, const char *name, const char *category, size_t rank, int lane,
                      base_time_t start, base_time_t end)
{
    separate(trace);
    fprintf(trace->out,
            "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%zu,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
            name, category, rank, lane, (double)(start - trace->zero) * 1e-3, (double)(end - start) * 1e-3);
}

static void put_span(trace_t *trace, const model_span_t *span, int lane, uint64_t step)
{
    put_slice(trace, train_span_name(span->kind), span->kind < MODEL_SPAN_WAIT ? "compute" : "communication",
              (size_t)span->rank, lane, span->start, span->end);
    fprintf(trace->out, ",\"args\":{\"step\":%llu", (unsigned long long)step);
    if (span->micro_batch >= 0)
        fprintf(trace->out, ",\"micro_batch\":%d", span->micro_batch);
    if (span->chunk >= 0)
        fprintf(trace->out, ",\"chunk\":%d", span->chunk);
    fputs("}}", trace->out);
}

/* One rank's spans of a step, in the order of their starts. Returns how many lanes of `travel` are in use. */
static int put_rank(trace_t *trace, const model_span_t *span, size_t count, uint64_t step, int lanes)
{
    base_time_t busy[TRAVEL_LANES] = {0}, start = span[0].start, end = span[0].end;
    for (size_t i = 0; i < count; i++) {
        int lane = span[i].kind < MODEL_SPAN_WAIT ? COMPUTE_LANE : WAIT_LANE;
        start = span[i].start < start ? span[i].start : start;
        end = span[i].end > end ? span[i].end : end;
        if (span[i].kind >= MODEL_SPAN_TRAVEL) {
            int free_lane = 0; /* the first in which nothing is under way; the last takes what is left over */
            while (free_lane < TRAVEL_LANES - 1 && busy[free_lane] > span[i].start)
                free_lane++;
            busy[free_lane] = span[i].end;
            lane = TRAVEL_LANE + free_lane;
            for (; lanes <= free_lane; lanes++)
                name_lane(trace, (size_t)span[i].rank, TRAVEL_LANE + lanes, "communication, in flight");
        }
        put_span(trace, &span[i], lane, step);
    }
    char name[32];
    snprintf(name, sizeof name, "step %llu", (unsigned long long)step);
    put_slice(trace, name, "step", (size_t)span[0].rank, STEP_LANE, start, end);
    fputs("}", trace->out);
    return lanes;
}

static gyre_status_t put_all(trace_t *trace, const train_watched_t *step, size_t steps,
                             const train_record_t *record)
{
    size_t ranks = (size_t)record->ranks;
    int *lanes = calloc(ranks, sizeof *lanes);
    if (!lanes)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a trace of %zu ranks", ranks);
    for (size_t r = 0; r < ranks; r++)
        name_rank(trace, record, r);
    for (size_t s = 0; s < steps; s++)
        for (size_t i = 0, n; i < step[s].count; i += n) {
            const model_span_t *span = &step[s].span[i];
            for (n = 1; i + n < step[s].count && span[n].rank == span->rank; n++)
                ;
            lanes[span->rank] = put_rank(trace, span, n, step[s].step, lanes[span->rank]);
        }
    free(lanes);
    return GYRE_OK;
}

gyre_status_t train_trace_write(const char *path, const train_record_t *record, const train_watched_t *step,
                                size_t steps)
{
    base_file_t file;
    if (steps == 0)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "no step of --trace-steps was made: the trace %s is not written; name steps that this "
            "start makes",
            path);
    gyre_status_t status = base_file_begin(path, &file);
    if (status != GYRE_OK)
        return status;
    trace_t trace = {.out = file.out, .zero = step[0].start};
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", file.out);
    status = put_all(&trace, step, steps, record);
    fprintf(file.out, "\n],\"otherData\":{\"program\":\"gyre-train %s\"}}\n", GYRE_VERSION);
    if (status != GYRE_OK) {
        base_file_abandon(&file);
        return status;
    }
    return base_file_commit(&file);
}
