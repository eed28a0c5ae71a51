/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/page.c: one HTML file, nothing fetched from elsewhere, no scripts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/settings/size.h"
#include "base/text/svg.h"
#include "pipeline/report/page.h"
#include "pipeline/report/svg.h"

static const char style[] =
    "body{font:15px/1.5 system-ui,'Segoe "
    "UI',Helvetica,Arial,sans-serif;color:#1c2733;background:#f5f7f9;margin:0}\n"
    "main{max-width:900px;margin:0 auto;padding:28px 20px 48px}\n"
    "h1{font-size:26px;margin:0 0 2px}h2{font-size:17px;margin:0 0 10px}\n"
    ".sub{color:#6b7785;margin:0 0 20px}\n"
    "section{background:#fff;border:1px solid #e1e6eb;border-radius:10px;padding:18px 20px;margin:0 0 18px}\n"
    ".tiles{display:flex;flex-wrap:wrap;gap:12px;margin:0 0 18px}\n"
    ".tile{background:#fff;border:1px solid #e1e6eb;border-radius:10px;padding:12px 14px;flex:1 1 78px}\n"
    ".tile b{display:block;white-space:nowrap;font-size:21px;font-weight:600;line-height:1.25}\n"
    ".tile span{color:#6b7785;font-size:13px}\n"
    "svg{display:block;width:100%;height:auto}\n"
    ".grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(330px,1fr));gap:14px 22px}\n"
    "figure{margin:0}figcaption{font-size:13px;color:#6b7785;margin:0 0 4px}\n"
    "summary{cursor:pointer;font-size:17px;font-weight:600}details table{margin-top:10px}\n"
    "th{text-align:left;font-weight:400;font-size:13px;color:#6b7785;padding:3px 10px 3px 0}\n"
    ".plain td{width:auto!important;color:inherit!important}\n"
    ".bar{display:flex;height:20px;border-radius:5px;overflow:hidden;background:#eef1f4;margin:3px 0 10px}\n"
    ".bar i{display:block;height:100%}\n"
    ".key{display:flex;justify-content:space-between;font-size:13px;color:#6b7785}\n"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f5f7f9;border-radius:6px;padding:14px "
    "16px;margin:0;"
    "font:13px/1.5 ui-monospace,'DejaVu Sans Mono',Consolas,monospace}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px}\n"
    "td{padding:3px 10px 3px "
    "0;vertical-align:top;overflow-wrap:anywhere}td:nth-child(odd){color:#6b7785;width:18%}\n"
    "td:nth-child(even){width:32%}\n"
    "p.note{color:#6b7785;font-size:13px;margin:8px 0 0}\n"
    "@media print{body{background:#fff}}\n";

static void escaped_bytes(FILE *out, const char *text)
{
    char *readable = train_readable((const unsigned char *)text, strlen(text));
    base_svg_escape(out, readable ? readable : "?");
    free(readable);
}

static void tile(FILE *out, const char *value, const char *name)
{
    fprintf(out, "<div class=\"tile\"><b>%s</b><span>%s</span></div>\n", value, name);
}

/* What validation came to; nothing if there was none. */
static void loss_tiles(FILE *out, const train_record_t *record, int is_text)
{
    char text[64];
    if (isnan(record->final_val))
        return;
    snprintf(text, sizeof text, "%.3f", record->final_val);
    tile(out, text, is_text ? "validation loss, nats per byte" : "validation loss, nats per token");
    for (size_t s = 0; s < record->sets && record->sets > 1; s++) {
        snprintf(text, sizeof text, "%.3f", record->set[s].final_val);
        tile(out, text, record->set[s].name);
    }
    if (is_text) {
        snprintf(text, sizeof text, "%.2f", record->final_val / log(2.0));
        tile(out, text, "bits per byte");
    }
    snprintf(text, sizeof text, "%.0f&thinsp;%%", 100.0 * record->final_val / record->unigram);
    tile(out, text, is_text ? "of the entropy of single bytes" : "of the entropy of single tokens");
}

static void tiles(FILE *out, const train_record_t *record, int is_text)
{
    char text[64];
    train_step_t total = train_record_total(record);
    double seconds = fmax(total.seconds, 1e-9), memory = (double)train_memory_most(&record->memory, NULL);
    fputs("<div class=\"tiles\">\n", out);
    loss_tiles(out, record, is_text);
    if (record->steps > 0) {
        double rate = train_record_parts(record) * (double)record->tokens_per_step / seconds;
        snprintf(text, sizeof text, rate >= 1e4 ? "%.1f&thinsp;k" : "%.0f", rate >= 1e4 ? rate / 1e3 : rate);
        tile(out, text, "tokens per second");
        if (record->flops_per_step > 0.0 && record->peak_flops > 0.0) {
            snprintf(text, sizeof text, "%.0f&thinsp;%%",
                     100.0 * train_record_parts(record) * record->flops_per_step / seconds /
                         record->peak_flops);
            tile(out, text, "MFU: operations of the peak");
        }
        if (!isnan(total.exposed_s)) {
            snprintf(text, sizeof text, "%.1f&thinsp;%%", 100.0 * total.exposed_s / seconds);
            tile(out, text, "of the step goes into communication");
        }
    }
    if (memory > 0.0) {
        char size[BASE_SIZE_TEXT];
        tile(out, base_size_about(memory, size), "of memory, on the fullest rank");
    }
    fputs("</div>\n", out);
}

static void share(FILE *out, const char *name, const char *color, double part, double whole)
{
    double percent = 100.0 * part / fmax(whole, 1e-9);
    fprintf(out,
            "<div class=\"key\"><span>%s</span><span>%.2f s &middot; %.1f&thinsp;%%</span></div>\n"
            "<div class=\"bar\"><i style=\"width:%.2f%%;background:%s\"></i></div>\n",
            name, part, percent, fmin(percent, 100.0), color);
}

static void times(FILE *out, const train_record_t *record)
{
    train_step_t total = train_record_total(record);
    fputs("<section><h2>Where the time went</h2>\n", out);
    if (record->steps == 0) {
        fputs("<p class=\"note\">No steps were made.</p></section>\n", out);
        return;
    }
    if (isnan(total.exposed_s)) {
        fprintf(out,
                "<p class=\"note\">Of rank 0, %.2f s in %zu steps. On a GPU the training thread enqueues and "
                "streams wait: "
                "what is computed and what is waited for is seen in the timeline of a step.</p></section>\n",
                total.seconds, record->steps);
        return;
    }
    share(out, "compute", "#9dbbe3", total.compute_s, total.seconds);
    share(out,
          "exposed communication: the training thread waits, for data or for a slower rank, or moves data "
          "itself",
          "#d9601a", total.exposed_s, total.seconds);
    share(out, "hidden communication: under way while the training thread computes", "#2f9e6e",
          total.hidden_s, total.seconds);
    train_svg_time(out, record);
    fprintf(out,
            "<p class=\"note\">Of rank 0, %.2f s in %zu steps. Compute and exposed communication add up to "
            "the step; "
            "hidden communication lies inside compute.%s</p></section>\n",
            total.seconds, record->steps,
            record->ranks == 1 ? " With one rank there is nothing to communicate." : "");
}

/* One step, who did what. */
static void timeline_of(FILE *out, const train_record_t *record, const train_watched_t *step)
{
    if (!step || step->count == 0)
        return;
    fprintf(out, "<section><h2>Step %llu on every rank</h2>\n", (unsigned long long)step->step);
    train_svg_timeline(out, record, step);
    fprintf(out,
            "<p class=\"note\">Of each rank: above what its training thread computes (numbers are "
            "micro-batches), below "
            "what it waits for or moves itself; thin at the bottom what travels while it "
            "computes.%s</p></section>\n",
            record->ranks > 64 ? " The first 64 ranks." : "");
}

static void memory_of(FILE *out, const train_record_t *record)
{
    if (record->memory.kinds == 0)
        return;
    fputs("<section><h2>Memory</h2>\n", out);
    train_svg_memory(out, record);
    fprintf(out, "<p class=\"note\">What training allocates, to the byte.%s</p></section>\n",
            record->memory.ranks > 64 ? " The first 64 ranks." : "");
}

static void pair(FILE *out, const char *name, const char *value)
{
    fprintf(out, "<tr><td>%s</td><td>%s</td></tr>\n", name, value);
}

static void layout_of(FILE *out, const train_config_t *options, const train_record_t *record)
{
    const pipe_layout_t *layout = &record->layout;
    char text[128];
    fputs("<section><h2>Layout</h2><table class=\"plain\">\n", out);
    snprintf(text, sizeof text, "%d = %zu tensor &times; %zu context &times; %zu data &times; %zu pipeline",
             record->ranks, layout->tp, pipe_layout_context(layout), layout->dp, layout->pp);
    pair(out, "ranks", text);
    if (layout->ep > 1) {
        snprintf(text, sizeof text, "%zu data-parallel ranks", layout->ep);
        pair(out, "experts over", text);
    }
    if (*record->device)
        pair(out, "GPU of rank 0", record->device);
    snprintf(text, sizeof text, "%llu sequences of %llu tokens, %zu per micro-batch",
             (unsigned long long)options->batch, (unsigned long long)options->seq, layout->micro_batch);
    pair(out, "batch", text);
    if (record->grows)
        pair(out, "it grows, START:INCREMENT:SEQUENCES", options->batch_rampup);
    snprintf(text, sizeof text, "%d", layout->zero);
    pair(out, "ZeRO stage", text);
    if (layout->tp > 1)
        pair(out, "sequence parallelism", layout->sequence ? "on" : "off");
    if (layout->pp > 1) {
        snprintf(text, sizeof text, "%s, %zu chunk%s per rank", pipe_kind_name(layout->schedule),
                 layout->chunks, layout->chunks == 1 ? "" : "s");
        pair(out, "schedule", text);
        for (size_t s = 0; s < pipe_layout_stages(layout); s++) {
            char name[32];
            size_t first, count;
            pipe_layout_layers(layout, options->layers, s, &first, &count);
            snprintf(name, sizeof name, "stage %zu", s);
            if (count > 0)
                snprintf(text, sizeof text, "%slayers %zu to %zu%s", s == 0 ? "embedding, " : "", first,
                         first + count - 1, s + 1 == pipe_layout_stages(layout) ? ", head" : "");
            else
                snprintf(text, sizeof text, "%s", s == 0 ? "embedding" : "head");
            pair(out, name, text);
        }
    }
    if (record->peak_flops > 0.0) {
        snprintf(text, sizeof text, "%.4g GFLOP/s of all ranks%s", record->peak_flops * 1e-9,
                 options->peak_flops > 0.0 ? "" : ", measured at the start by products of matrices");
        pair(out, "peak", text);
    }
    fputs("</table></section>\n", out);
}

static void settings(FILE *out, const train_config_t *options)
{
    const char *name;
    char value[4096];
    size_t column = 0;
    fputs("<section><details><summary>Settings</summary><table>\n", out);
    for (size_t i = 0; train_config_row(options, i, &name, value, sizeof value); i++) {
        if (!*value)
            continue;
        fprintf(out, "%s<td>%s</td><td>", column % 2 ? "" : "<tr>", name);
        escaped_bytes(out, value);
        fprintf(out, "</td>%s\n", column++ % 2 ? "</tr>" : "");
    }
    fprintf(out, "%s</table></details></section>\n", column % 2 ? "</tr>" : "");
}

static void losses(FILE *out, const train_config_t *options, const train_record_t *record, int is_text)
{
    fputs("<section><h2>Loss</h2>\n", out);
    train_svg_loss(out, record, is_text);
    fprintf(out,
            "<p class=\"note\">The dashed line, %.3f nats, is the entropy of single %ss: what a model "
            "reaches that "
            "knows how often each %s occurs and nothing else.",
            record->unigram, is_text ? "byte" : "token", is_text ? "byte" : "token");
    if (options->valid_data)
        fputs(" Validation is on data of its own.", out);
    else if (options->valid_fraction > 0.0)
        fprintf(out, " Validation is on the last %.6g of the data, which is never trained on.",
                options->valid_fraction);
    fputs("</p></section>\n", out);
    if (record->steps == 0)
        return;
    fputs("<section><h2>Over the steps</h2><div class=\"grid\">\n", out);
    train_svg_curves(out, record);
    size_t skipped = 0, spikes = 0;
    for (size_t i = 0; i < record->steps; i++) {
        skipped += record->step[i].skipped != 0;
        spikes += record->step[i].spike != TRAIN_SPIKE_NONE;
    }
    fputs("</div>", out);
    if (skipped > 0)
        fprintf(out,
                "<p class=\"note\">%zu update%s left out, since gradients overflowed: the marks below the "
                "curves.</p>",
                skipped, skipped == 1 ? " was" : "s were");
    if (spikes > 0)
        fprintf(out,
                "<p class=\"note\">%zu update%s left out, since the loss or the gradient was far above the "
                "median: the marks below the curves.</p>",
                spikes, spikes == 1 ? " was" : "s were");
    fputs("</section>\n", out);
}

static void page(FILE *out, const train_config_t *options, const train_record_t *record,
                 const model_data_t *data, const train_watched_t *step)
{
    char date[64] = "";
    time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M", &local);
    fprintf(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>gyre-train</title>\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><style>\n%s</style></head>\n"
        "<body><main><h1>A GPT, trained by Gyre</h1>\n<p class=\"sub\">",
        style);
    fprintf(out, "%.2f million parameters on %d rank%s &middot; %.0f KB of %s in %zu file%s from ",
            (double)record->parameters / 1e6, record->ranks, record->ranks == 1 ? "" : "s",
            (double)data->bytes / 1e3, data->is_text ? "text" : "tokens", data->files,
            data->files == 1 ? "" : "s");
    escaped_bytes(out, options->data);
    fprintf(out, " &middot; %llu steps in %.1f s &middot; %s</p>\n", (unsigned long long)record->done,
            record->seconds, date);
    tiles(out, record, data->is_text);
    losses(out, options, record, data->is_text);
    if (record->sample) {
        fprintf(out, "<section><h2>A sample, temperature %g</h2><pre>", options->temperature);
        base_svg_escape(out, record->sample);
        fputs("</pre></section>\n", out);
    }
    times(out, record);
    timeline_of(out, record, step);
    memory_of(out, record);
    layout_of(out, options, record);
    settings(out, options);
    fprintf(out, "<p class=\"sub\">gyre-train %s &middot; weights %016llx</p></main></body></html>\n",
            GYRE_VERSION, (unsigned long long)record->hash);
}

gyre_status_t train_report_write(const char *path, const train_config_t *options,
                                 const train_record_t *record, const model_data_t *data,
                                 const train_watched_t *step)
{
    base_file_t file;
    gyre_status_t status = base_file_begin(path, &file);
    if (status != GYRE_OK)
        return status;
    page(file.out, options, record, data, step);
    return base_file_commit(&file);
}
