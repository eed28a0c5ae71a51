/* tools/gyre-train/report.c: one HTML file, nothing fetched from elsewhere, no scripts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "tools/gyre-train/train.h"

static const char style[] =
    "body{font:15px/1.5 system-ui,'Segoe "
    "UI',Helvetica,Arial,sans-serif;color:#1c2733;background:#f5f7f9;margin:0}\n"
    "main{max-width:900px;margin:0 auto;padding:28px 20px 48px}\n"
    "h1{font-size:26px;margin:0 0 2px}h2{font-size:17px;margin:0 0 10px}\n"
    ".sub{color:#6b7785;margin:0 0 20px}\n"
    "section{background:#fff;border:1px solid #e1e6eb;border-radius:10px;padding:18px 20px;margin:0 0 18px}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:0 0 18px}\n"
    ".tile{background:#fff;border:1px solid #e1e6eb;border-radius:10px;padding:12px 16px}\n"
    ".tile b{display:block;font-size:23px;font-weight:600;line-height:1.25}\n"
    ".tile span{color:#6b7785;font-size:13px}\n"
    "svg{display:block;width:100%;height:auto}\n"
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

static void escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
}

static void escaped_bytes(FILE *out, const char *text)
{
    char *readable = train_readable((const unsigned char *)text, strlen(text));
    escaped(out, readable ? readable : "?");
    free(readable);
}

static void tile(FILE *out, const char *value, const char *name)
{
    fprintf(out, "<div class=\"tile\"><b>%s</b><span>%s</span></div>\n", value, name);
}

static void tiles(FILE *out, const train_record_t *record)
{
    char text[64];
    train_step_t total = train_record_total(record);
    fputs("<div class=\"tiles\">\n", out);
    snprintf(text, sizeof text, "%.3f", record->final_val);
    tile(out, text, "validation loss, nats per byte");
    snprintf(text, sizeof text, "%.0f&thinsp;%%", 100.0 * record->final_val / record->unigram);
    tile(out, text, "of the entropy of single bytes");
    snprintf(text, sizeof text, "%.2f", record->final_val / log(2.0));
    tile(out, text, "bits per byte");
    if (record->steps > 0) {
        double rate = (double)record->steps * (double)record->tokens_per_step / fmax(total.seconds, 1e-9);
        snprintf(text, sizeof text, rate >= 1e4 ? "%.1f&thinsp;k" : "%.0f", rate >= 1e4 ? rate / 1e3 : rate);
        tile(out, text, "tokens per second");
        snprintf(text, sizeof text, "%.1f&thinsp;%%", 100.0 * total.exposed_s / fmax(total.seconds, 1e-9));
        tile(out, text, "of the step goes into communication");
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

static void settings(FILE *out, const train_options_t *options)
{
    const char *name;
    char value[4096];
    size_t column = 0;
    fputs("<section><h2>Settings</h2><table>\n", out);
    for (size_t i = 0; train_options_row(options, i, &name, value, sizeof value); i++) {
        if (!*value)
            continue;
        fprintf(out, "%s<td>%s</td><td>", column % 2 ? "" : "<tr>", name);
        escaped_bytes(out, value);
        fprintf(out, "</td>%s\n", column++ % 2 ? "</tr>" : "");
    }
    fprintf(out, "%s</table></section>\n", column % 2 ? "</tr>" : "");
}

static void page(FILE *out, const train_options_t *options, const train_record_t *record,
                 const model_data_t *data)
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
    tiles(out, record);
    fputs("<section><h2>Loss</h2>\n", out);
    train_svg_loss(out, record);
    fprintf(out,
            "<p class=\"note\">The dashed line, %.3f nats, is the entropy of single bytes: what a model "
            "reaches that "
            "knows how often each byte occurs and nothing else. Validation is on the last tenth of the text, "
            "which is "
            "never trained on.</p></section>\n",
            record->unigram);
    if (record->sample) {
        fprintf(out, "<section><h2>A sample, temperature %g</h2><pre>", options->temperature);
        escaped(out, record->sample);
        fputs("</pre></section>\n", out);
    }
    times(out, record);
    settings(out, options);
    fprintf(out, "<p class=\"sub\">gyre-train %s &middot; weights %016llx</p></main></body></html>\n",
            GYRE_VERSION, (unsigned long long)record->hash);
}

gyre_status_t train_report_write(const char *path, const train_options_t *options,
                                 const train_record_t *record, const model_data_t *data)
{
    base_file_t file;
    gyre_status_t status = base_file_begin(path, &file);
    if (status != GYRE_OK)
        return status;
    page(file.out, options, record, data);
    return base_file_commit(&file);
}
