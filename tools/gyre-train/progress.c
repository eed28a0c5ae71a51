/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/progress.c: a bar that is redrawn on a terminal; now and then a plain line elsewhere. */
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "tools/gyre-train/progress.h"

#define REDRAW_S 0.1
#define PLAIN_S  5.0

static double seconds(base_time_t from, base_time_t to)
{
    return (double)(to - from) * 1e-9;
}

void train_progress_start(train_progress_t *progress, FILE *out, int style, uint64_t first, uint64_t skipped,
                          uint64_t steps, double before, double time_limit, double val)
{
    *progress = (train_progress_t){.out = out,
                                   .style = style,
                                   .skipped = skipped,
                                   .first = first,
                                   .steps = steps,
                                   .before = before,
                                   .time_limit = time_limit,
                                   .val = val};
    if (style == TRAIN_PROGRESS_AUTO) {
        const char *terminal = base_env("TERM");
        int dumb = terminal && strcmp(terminal, "dumb") == 0; /* knows no way back to the line's beginning */
        progress->style = isatty(fileno(out)) && !dumb ? TRAIN_PROGRESS_BAR : TRAIN_PROGRESS_LINES;
    }
    progress->start = progress->last = base_now();
}

/* As wide as the terminal is now: somebody may be resizing it. */
static int columns_of(const train_progress_t *progress)
{
    struct winsize size;
    if (ioctl(fileno(progress->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

static void print_left(char *text, size_t bytes, double left)
{
    unsigned long s = (unsigned long)fmax(0.0, left + 0.5);
    if (s >= 3600)
        snprintf(text, bytes, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, bytes, "%lu:%02lu", s / 60, s % 60);
}

/* The part of the whole run that is done, and of what this process has to do: the end is whichever comes
 * first, steps or clock. */
static void parts_done(const train_progress_t *progress, uint64_t step, double elapsed, double *whole,
                       double *mine)
{
    *whole = (double)step / (double)progress->steps;
    *mine = (double)(step - progress->first) / (double)(progress->steps - progress->first);
    if (progress->time_limit > 0.0) {
        *whole = fmax(*whole, (progress->before + elapsed) / progress->time_limit);
        *mine = fmax(*mine, elapsed / fmax(progress->time_limit - progress->before, 1e-9));
    }
    *whole = fmin(*whole, 1.0);
    *mine = fmin(*mine, 1.0);
}

static void draw(train_progress_t *progress, double done, const char *numbers)
{
    char bar[41] = "";
    int columns = columns_of(progress), width = columns - (int)strlen(numbers) - 5;
    width = width > 40 ? 40 : width;
    for (int i = 0; i < width; i++)
        bar[i] = i < (int)(done * width + 0.5) ? '#' : '.';
    fprintf(progress->out, "\r\033[K%s%s%s%.*s", width > 0 ? "[" : "", bar, width > 0 ? "] " : "",
            columns - 1, numbers);
    progress->drawn = 1;
}

void train_progress_step(train_progress_t *progress, const train_step_t *step, uint64_t tokens, int last)
{
    base_time_t now = base_now();
    double elapsed = seconds(progress->start, now), rate = (double)tokens / fmax(step->seconds, 1e-9);
    int bar = progress->style == TRAIN_PROGRESS_BAR;
    progress->rate = progress->rate > 0.0 ? 0.95 * progress->rate + 0.05 * rate : rate;
    progress->skipped += step->skipped || step->spike;
    if (!isnan(step->val))
        progress->val = step->val;
    int due = seconds(progress->last, now) >= (bar ? REDRAW_S : PLAIN_S);
    if (progress->style == TRAIN_PROGRESS_NONE ||
        (!due && !last && step->step != progress->first + 1 && (bar || isnan(step->val))))
        return;
    progress->last = now;

    double done, part;
    parts_done(progress, step->step, elapsed, &done, &part);
    char left[32], val[32] = "", of[32] = "", skipped[48] = "", numbers[240];
    if (progress->steps != UINT64_MAX)
        snprintf(of, sizeof of, "/%llu", (unsigned long long)progress->steps);
    print_left(left, sizeof left, last || part <= 0.0 ? 0.0 : elapsed / part - elapsed);
    if (!isnan(progress->val))
        snprintf(val, sizeof val, "  val %.4f", progress->val);
    if (progress->skipped > 0)
        snprintf(skipped, sizeof skipped, "  %llu skipped", (unsigned long long)progress->skipped);
    snprintf(numbers, sizeof numbers, "step %llu%s  loss %.4f%s%s  %.0f tokens/s  %s left",
             (unsigned long long)step->step, of, step->loss, val, skipped, progress->rate, left);
    if (bar)
        draw(progress, last ? 1.0 : done, numbers);
    else
        fprintf(progress->out, "%s\n", numbers);
    fflush(progress->out);
}

void train_progress_end(train_progress_t *progress)
{
    if (progress->drawn)
        fputc('\n', progress->out);
    progress->drawn = 0;
}
