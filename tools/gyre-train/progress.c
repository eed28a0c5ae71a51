/* tools/gyre-train/progress.c: a bar that is redrawn on a terminal; now and then a plain line elsewhere. */
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/gyre-train/train.h"

#define REDRAW_S 0.1
#define PLAIN_S  5.0

static double seconds(base_time_t from, base_time_t to)
{
    return (double)(to - from) * 1e-9;
}

void train_progress_start(train_progress_t *progress, FILE *out, uint64_t first, uint64_t steps,
                          double before, double time_limit)
{
    struct winsize size;
    *progress = (train_progress_t){.out = out,
                                   .first = first,
                                   .steps = steps,
                                   .before = before,
                                   .time_limit = time_limit,
                                   .val = NAN,
                                   .columns = 80};
    progress->tty = isatty(fileno(out));
    if (progress->tty && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        progress->columns = size.ws_col;
    progress->start = progress->last = base_now();
}

static void print_left(char *text, size_t bytes, double left)
{
    unsigned long s = (unsigned long)fmax(0.0, left + 0.5);
    if (s >= 3600)
        snprintf(text, bytes, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, bytes, "%lu:%02lu", s / 60, s % 60);
}

void train_progress_step(train_progress_t *progress, const train_step_t *step, uint64_t tokens, int last)
{
    base_time_t now = base_now();
    double elapsed = seconds(progress->start, now), rate = (double)tokens / fmax(step->seconds, 1e-9);
    progress->rate = progress->rate > 0.0 ? 0.95 * progress->rate + 0.05 * rate : rate;
    if (!isnan(step->val))
        progress->val = step->val;
    int due = seconds(progress->last, now) >= (progress->tty ? REDRAW_S : PLAIN_S);
    if (!due && !last && step->step != progress->first + 1 && (progress->tty || isnan(step->val)))
        return;
    progress->last = now;

    /* the end is whichever comes first, steps or clock */
    double done = (double)step->step / (double)progress->steps;
    double part = (double)(step->step - progress->first) / (double)(progress->steps - progress->first);
    if (progress->time_limit > 0.0) {
        done = fmax(done, (progress->before + elapsed) / progress->time_limit);
        part = fmax(part, elapsed / fmax(progress->time_limit - progress->before, 1e-9));
    }
    done = last ? 1.0 : fmin(done, 1.0);
    part = last ? 1.0 : fmin(part, 1.0); /* of what this process has to do */
    char left[32], val[32] = "", of[32] = "", numbers[192];
    if (progress->steps != UINT64_MAX)
        snprintf(of, sizeof of, "/%llu", (unsigned long long)progress->steps);
    print_left(left, sizeof left, part > 0.0 ? elapsed / part - elapsed : 0.0);
    if (!isnan(progress->val))
        snprintf(val, sizeof val, "  val %.4f", progress->val);
    int length = snprintf(numbers, sizeof numbers, "step %llu%s  loss %.4f%s  %.0f tokens/s  %s left",
                          (unsigned long long)step->step, of, step->loss, val, progress->rate, left);
    if (!progress->tty) {
        fprintf(progress->out, "%s\n", numbers);
        fflush(progress->out);
        return;
    }
    char bar[41] = "";
    int width = progress->columns - length - 5;
    width = width > 40 ? 40 : width;
    for (int i = 0; i < width; i++)
        bar[i] = i < (int)(done * width + 0.5) ? '#' : '.';
    fprintf(progress->out, "\r\033[K%s%s%s%.*s", width > 0 ? "[" : "", bar, width > 0 ? "] " : "",
            progress->columns - 1, numbers);
    fflush(progress->out);
}

void train_progress_end(train_progress_t *progress)
{
    if (progress->tty && progress->last != progress->start)
        fputc('\n', progress->out);
}
