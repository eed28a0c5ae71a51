/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/record.c: the history of a run and its JSON-lines log.
 *
 * A run that is resumed goes on in the file that it has: it holds one curve, whatever was done twice.
 * Losses, norms and rates are written with 17 digits, so a line up to "tokens_per_second" is the same text
 * exactly when the bits are the same. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/grow.h"
#include "base/text/json.h"
#include "base/log.h"
#include "base/utf8.h"
#include "model/network/hf_config.h"
#include "pipeline/report/record.h"
#include "pipeline/report/tensorboard.h"

static gyre_status_t open_log(const char *path, FILE **in)
{
    *in = fopen(path, "re");
    return *in ? GYRE_OK : gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read the log %s", path);
}

static gyre_status_t not_a_log(const char *path)
{
    return gyre_fail(GYRE_ERR_FORMAT, "%s is not the log of a run: name another with --log", path);
}

/* Nothing but a log is replaced by one: what is there begins as one, as far as it goes. */
static gyre_status_t check_begin(const char *path)
{
    static const char begins[] = "{\"config\"";
    char text[sizeof begins - 1];
    struct stat info;
    FILE *in;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return GYRE_OK;
    gyre_status_t status = open_log(path, &in);
    if (status != GYRE_OK)
        return status;
    const size_t n = fread(text, 1, sizeof text, in);
    fclose(in);
    return memcmp(text, begins, n) == 0 ? GYRE_OK : not_a_log(path);
}

gyre_status_t train_record_open(train_record_t *record, const train_config_t *options)
{
    if (options->log) {
        gyre_status_t status = check_begin(options->log);
        if (status != GYRE_OK)
            return status;
    }
    if (options->tensorboard) {
        gyre_status_t status = train_board_open(options->tensorboard, &record->board);
        if (status != GYRE_OK)
            return status;
    }
    record->log_path = options->log;
    if (!options->log)
        return GYRE_OK;
    /* the old content stays for now: a run that is resumed appends to it */
    int fd = open(options->log, O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0 || !(record->log = fdopen(fd, "w"))) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        return gyre_fail_errno(GYRE_ERR_IO, why, "cannot create the log %s: name another with --log",
                               options->log);
    }
    return GYRE_OK;
}

/* `status` of a call about the board; an error ends the board, not the run. */
static void boarded(train_record_t *record, gyre_status_t status)
{
    if (status == GYRE_OK)
        return;
    record->board_status = status;
    (void)train_board_close(record->board); /* the first error has been reported */
    record->board = NULL;
}

static gyre_status_t written(train_record_t *record)
{
    if (fflush(record->log) == 0 && !ferror(record->log))
        return GYRE_OK;
    record->log_status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write the log %s", record->log_path);
    fclose(record->log);
    record->log = NULL;
    return record->log_status;
}

/* 1: the log has lines to go on with. A pipe or a device has none. */
static int is_file(const train_record_t *record)
{
    struct stat info;
    return record->log && fstat(fileno(record->log), &info) == 0 && S_ISREG(info.st_mode);
}

/* Cuts the log, if it is a file, to its first `bytes` bytes. */
static gyre_status_t cut(train_record_t *record, off_t bytes)
{
    int fd = fileno(record->log);
    if (!is_file(record))
        return GYRE_OK;
    if (ftruncate(fd, bytes) != 0 || lseek(fd, bytes, SEEK_SET) < 0)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot cut the log %s", record->log_path);
    return GYRE_OK;
}

/* A number as `format` writes it, or null, and then the text of the last parameter. */
__attribute__((format(printf, 3, 0))) static void put_number(FILE *out, const char *name, const char *format,
                                                             double value, const char *behind)
{
    fprintf(out, "\"%s\":", name);
    if (isfinite(value))
        fprintf(out, format, value);
    else
        fputs("null", out);
    fputs(behind, out);
}

/* The architecture, as --model takes it: flags, a recipe or weights may have said what it is. */
static gyre_status_t write_model(train_record_t *record)
{
    json_t *model;
    gyre_status_t status = model_config_to_json(record->model, &model);
    if (status != GYRE_OK)
        return status;
    fputs(",\"model\":", record->log);
    int good = json_dumpf(model, record->log, JSON_COMPACT) == 0;
    json_decref(model);
    if (good || ferror(record->log)) /* the latter is what `written` sees */
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the model in the log");
}

static gyre_status_t write_first_line(train_record_t *record, const train_config_t *options,
                                      const model_data_t *data)
{
    fputs("{\"config\":", record->log);
    gyre_status_t status = train_config_write(options, record->log);
    if (status != GYRE_OK)
        return status;
    if (record->model && (status = write_model(record)) != GYRE_OK)
        return status;
    if (record->id != 0)
        fprintf(record->log, ",\"run\":\"%016" PRIx64 "\"", record->id);
    fprintf(record->log, ",\"ranks\":%d,\"parameters\":%zu,\"bytes\":%llu,\"files\":%zu,", record->ranks,
            record->parameters, (unsigned long long)data->bytes, data->files);
    put_number(record->log, "unigram_entropy", "%.17g", record->unigram, "}\n");
    return written(record);
}

gyre_status_t train_record_start(train_record_t *record, const train_config_t *options,
                                 const model_data_t *data)
{
    if (getrandom(&record->id, sizeof record->id, 0) != (ssize_t)sizeof record->id)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "cannot draw the number of the run");
    if (record->board) {
        gyre_status_t status = train_board_start(record->board, 0);
        if (status != GYRE_OK)
            return status;
    }
    if (!record->log)
        return GYRE_OK;
    gyre_status_t status = cut(record, 0);
    return status == GYRE_OK ? write_first_line(record, options, data) : status;
}

static gyre_status_t remember(train_record_t *record, const train_step_t *step)
{
    if (!base_grow(&record->step, &record->room, record->steps, 1, sizeof *record->step))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the history of %zu steps", record->steps + 1);
    record->step[record->steps++] = *step;
    return GYRE_OK;
}

static double step_tokens(const train_record_t *record, const train_step_t *step)
{
    return (double)record->tokens_per_step * train_step_part(record, step);
}

/* NaN where there is no number: an older log, or null. */
static double number_of(const json_t *line, const char *name)
{
    const json_t *value = json_object_get(line, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const char *const spike_names[] = {[TRAIN_SPIKE_LOSS] = "loss", [TRAIN_SPIKE_NORM] = "norm"};

static train_spike_t read_spike(const json_t *line)
{
    const char *name = json_string_value(json_object_get(line, "spike"));
    return !name ? TRAIN_SPIKE_NONE : strcmp(name, "loss") == 0 ? TRAIN_SPIKE_LOSS : TRAIN_SPIKE_NORM;
}

/* A line of a step as it was. `batch`: what the first line says, for lines of older logs. 0: it is another
 * line. */
static int read_step(const train_record_t *record, const json_t *line, uint64_t batch, train_step_t *step)
{
    const json_t *number = json_object_get(line, "step"), *sequences = json_object_get(line, "batch");
    if (!json_is_integer(number) || json_integer_value(number) < 1)
        return 0;
    double rate = json_number_value(json_object_get(line, "tokens_per_second"));
    double scale = number_of(line, "loss_scale");
    *step = (train_step_t){.step = (uint64_t)json_integer_value(number),
                           .loss = number_of(line, "loss"),
                           .grad_norm = number_of(line, "grad_norm"),
                           .lr = json_number_value(json_object_get(line, "lr")),
                           .val = number_of(line, "val_loss"),
                           .loss_scale = isnan(scale) ? 1.0 : scale,
                           .spike = read_spike(line),
                           .mfu = number_of(line, "mfu"),
                           .bubble = number_of(line, "bubble"),
                           .batch = sequences ? (uint64_t)json_integer_value(sequences) : batch,
                           .balance = number_of(line, "balance_loss"),
                           .dropped = number_of(line, "dropped"),
                           .z_loss = number_of(line, "z_loss"),
                           .router_z = number_of(line, "router_z_loss"),
                           .compute_s = number_of(line, "compute_s"),
                           .exposed_s = number_of(line, "exposed_s"),
                           .hidden_s = number_of(line, "hidden_s")};
    step->unlearned = json_is_true(json_object_get(line, "unlearned"));
    step->skipped = !step->spike && json_is_true(json_object_get(line, "skipped"));
    step->seconds = rate > 0.0 ? step_tokens(record, step) / rate : 0.0;
    return 1;
}

/* The first line is that of a log, and of this run. */
static gyre_status_t check_first_line(const train_record_t *record, const json_t *line, const char *path)
{
    const json_t *run = json_object_get(line, "run");
    if (!json_is_object(json_object_get(line, "config")))
        return not_a_log(path);
    if (record->id != 0 && json_is_string(run) && base_json_hex_value(run) != record->id)
        return gyre_fail(GYRE_ERR_INVALID, "%s is the log of another run: name another with --log", path);
    return GYRE_OK;
}

gyre_status_t train_record_read(train_record_t *record, FILE *in, const char *path, uint64_t last,
                                off_t *keep, off_t *begin)
{
    char *text = NULL;
    size_t room = 0, lines = 0;
    off_t end = 0;
    uint64_t before = 0, batch = 0;
    gyre_status_t status = GYRE_OK;
    ssize_t ended = 0;
    for (ssize_t n; status == GYRE_OK && (ended = n = getline(&text, &room, in)) > 0; lines++) {
        train_step_t step;
        json_error_t error;
        int lacks;
        json_t *line = base_json_text(text, (size_t)n, &error, &lacks);
        end += n;
        if (lacks) /* what follows must not be cut off */
            status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read the log %s", path);
        else if (lines == 0)
            status = check_first_line(record, line, path);
        if (lines == 0)
            batch = (uint64_t)json_integer_value(json_object_get(json_object_get(line, "config"), "batch"));
        int whole = json_is_object(line) && text[n - 1] == '\n';
        int is_step = whole && read_step(record, line, batch, &step);
        json_decref(line);
        if (!whole || (is_step && (step.step > last || step.step <= before)))
            break;
        if (is_step && status == GYRE_OK) {
            before = step.step;
            *begin = end - n;
            status = remember(record, &step);
        }
        if (is_step || lines == 0)
            *keep = end;
    }
    if (status == GYRE_OK && ended < 0 && !feof(in))
        status = gyre_fail_errno(errno == ENOMEM ? GYRE_ERR_NO_MEMORY : GYRE_ERR_IO, errno,
                                 "cannot read the log %s", path);
    if (status == GYRE_OK && lines > 0 && record->steps < last)
        log_warning("the log %s lacks %llu of the %llu steps up to the checkpoint", path,
                    (unsigned long long)(last - record->steps), (unsigned long long)last);
    free(text);
    return status;
}

/* "name":value, as text that reads back to the same bits, and once more as it lies in memory; JSON has no
 * word for what is not finite. */
static void put_exact(FILE *out, const char *name, double value)
{
    if (isfinite(value))
        fprintf(out, "\"%s\":%.17g,\"%s_hex\":\"%a\",", name, value, name, value);
    else
        fprintf(out, "\"%s\":null,\"%s_hex\":\"%a\",", name, name, value);
}

/* The validation loss, and that of each set as it was measured last. */
static void put_validation(const train_record_t *record, double mean)
{
    put_number(record->log, "val_loss", "%.17g", mean, ",");
    if (record->sets > 0)
        fputs("\"val_losses\":{", record->log);
    for (size_t s = 0; s < record->sets; s++)
        put_number(record->log, record->set[s].name, "%.17g", record->set[s].final_val,
                   s + 1 < record->sets ? "," : "},");
}

/* Everything before tokens_per_second depends on no clock: layouts are compared by it. */
static void write_step(train_record_t *record, const train_step_t *step)
{
    FILE *out = record->log;
    fprintf(out, "{\"step\":%llu,", (unsigned long long)step->step);
    put_exact(out, "loss", step->loss);
    if (!isnan(step->val))
        put_validation(record, step->val);
    put_exact(out, "grad_norm", step->grad_norm);
    put_number(out, "lr", "%.17g", step->lr, ",");
    put_number(out, "loss_scale", "%.17g", step->loss_scale, ",");
    fprintf(out, "\"skipped\":%s,", step->skipped || step->spike ? "true" : "false");
    if (step->spike)
        fprintf(out, "\"spike\":\"%s\",", spike_names[step->spike]);
    if (step->unlearned)
        fputs("\"unlearned\":true,", out);
    fprintf(out, "\"batch\":%llu,", (unsigned long long)step->batch);
    if (!isnan(step->dropped)) { /* a model with experts */
        put_number(out, "balance_loss", "%.17g", step->balance, ",");
        put_number(out, "dropped", "%.17g", step->dropped, ",");
    }
    if (!isnan(step->z_loss))
        put_number(out, "z_loss", "%.17g", step->z_loss, ",");
    if (!isnan(step->router_z))
        put_number(out, "router_z_loss", "%.17g", step->router_z, ",");
    put_number(out, "tokens_per_second", "%.1f", step_tokens(record, step) / fmax(step->seconds, 1e-9), ",");
    if (!isnan(step->mfu))
        put_number(out, "mfu", "%.4f", step->mfu, ",");
    if (!isnan(step->bubble))
        put_number(out, "bubble", "%.4f", step->bubble, ",");
    put_number(out, "compute_s", "%.6f", step->compute_s, ",");
    put_number(out, "exposed_s", "%.6f", step->exposed_s, ",");
    put_number(out, "hidden_s", "%.6f", step->hidden_s, "}\n");
}

gyre_status_t train_record_check(const train_record_t *record, const char *log_path)
{
    train_record_t first = {.id = record->id}; /* steps up to 0: there are none */
    off_t keep = 0, begin = 0;
    FILE *in;
    if (!is_file(record))
        return GYRE_OK;
    gyre_status_t status = open_log(log_path, &in);
    if (status != GYRE_OK)
        return status;
    status = train_record_read(&first, in, log_path, 0, &keep, &begin);
    fclose(in);
    return status;
}

/* The step's validation loss, which came late, to the history and to its line, which begins at `begin`. The
 * rest of the line stays as it is: another process wrote it, maybe with other options. */
static gyre_status_t put_late(train_record_t *record, FILE *in, const char *path, off_t begin, double val)
{
    char *line = NULL;
    size_t room = 0;
    gyre_status_t status = GYRE_OK;
    record->step[record->steps - 1].val = val;
    if (fseeko(in, begin, SEEK_SET) != 0 || getline(&line, &room, in) <= 0)
        status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read the log %s", path);
    const char *rest = status == GYRE_OK ? strstr(line, "\"grad_norm\"") : NULL;
    if (rest && (status = cut(record, begin + (rest - line))) == GYRE_OK) {
        put_validation(record, val);
        fputs(rest, record->log);
    }
    free(line);
    return status;
}

/* The old log's part of train_record_resume; *keep as train_record_read says it. */
static gyre_status_t take_up(train_record_t *record, const char *path, uint64_t step, double val, off_t *keep)
{
    FILE *in;
    off_t begin = 0;
    gyre_status_t status = open_log(path, &in);
    if (status != GYRE_OK)
        return status;
    status = train_record_read(record, in, path, step, keep, &begin);
    if (status == GYRE_OK)
        status = cut(record, *keep);
    const train_step_t *last = record->steps > 0 ? &record->step[record->steps - 1] : NULL;
    if (status == GYRE_OK && !isnan(val) && last && last->step == step && isnan(last->val))
        status = put_late(record, in, path, begin, val);
    fclose(in);
    return status;
}

gyre_status_t train_record_resume(train_record_t *record, const char *log_path, const train_config_t *options,
                                  const model_data_t *data, uint64_t step, double val)
{
    off_t keep = 0;
    record->done = step;
    gyre_status_t status = record->board ? train_board_start(record->board, step) : GYRE_OK;
    if (status == GYRE_OK && record->board && !isnan(val))
        boarded(record, train_board_validation(record->board, record, step, val));
    if (!record->log || status != GYRE_OK)
        return status;
    if (is_file(record))
        status = take_up(record, log_path, step, val, &keep);
    if (status == GYRE_OK && keep == 0)
        status = write_first_line(record, options, data);
    if (status != GYRE_OK || !record->log)
        return status;
    fprintf(record->log, "{\"resumed\":%llu,\"ranks\":%d}\n", (unsigned long long)step, record->ranks);
    return written(record);
}

gyre_status_t train_record_step(train_record_t *record, train_step_t *step)
{
    step->mfu = record->flops_per_step > 0.0 && record->peak_flops > 0.0
                    ? record->flops_per_step * train_step_part(record, step) / fmax(step->seconds, 1e-9) /
                          record->peak_flops
                    : NAN;
    gyre_status_t status = remember(record, step);
    if (status != GYRE_OK)
        return status;
    record->done = step->step;
    record->unlearned += step->unlearned != 0;
    /* a full disk is no reason to lose the training: the end returns it */
    if (record->board)
        boarded(record, train_board_step(record->board, record, step));
    if (record->log) {
        write_step(record, step);
        (void)written(record);
    }
    return GYRE_OK;
}

/* What each rank held, by kind: the end of the line. */
static void put_memory(FILE *log, const train_memory_t *memory)
{
    fputs("\"memory\":{\"kinds\":[", log);
    for (size_t k = 0; k < memory->kinds; k++)
        fprintf(log, "%s\"%s\"", k ? "," : "", memory->kind[k]);
    fputs("],\"ranks\":[", log);
    for (size_t i = 0; i < memory->ranks * memory->kinds; i++)
        fprintf(log, "%s%" PRIu64 "%s",
                i % memory->kinds ? ","
                : i               ? ",["
                                  : "[",
                memory->bytes[i], (i + 1) % memory->kinds ? "" : "]");
    fputs("]}}\n", log);
}

static gyre_status_t finish_log(train_record_t *record)
{
    if (!record->log)
        return record->log_status;
    fprintf(record->log, "{\"steps\":%llu,\"spikes\":%llu,", (unsigned long long)record->done,
            (unsigned long long)record->spikes);
    put_validation(record, record->final_val);
    fprintf(record->log, "\"weights_hash\":\"%016llx\",", (unsigned long long)record->hash);
    put_number(record->log, "seconds", "%.3f", record->seconds, record->memory.kinds ? "," : "}\n");
    if (record->memory.kinds > 0)
        put_memory(record->log, &record->memory);
    gyre_status_t status = written(record);
    if (status == GYRE_OK && fclose(record->log) != 0)
        status = record->log_status =
            gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write the log %s", record->log_path);
    record->log = NULL;
    return status;
}

gyre_status_t train_record_finish(train_record_t *record)
{
    if (record->board) {
        record->board_status = train_board_close(record->board);
        record->board = NULL;
    }
    gyre_status_t status = finish_log(record);
    return status != GYRE_OK ? status : record->board_status;
}

uint64_t train_memory_most(const train_memory_t *memory, size_t *rank)
{
    uint64_t most = 0;
    for (size_t r = 0; r < memory->ranks; r++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < memory->kinds; k++)
            sum += memory->bytes[r * memory->kinds + k];
        if (sum > most && rank)
            *rank = r;
        most = sum > most ? sum : most;
    }
    return most;
}

void train_record_free(train_record_t *record)
{
    if (record->log)
        fclose(record->log);
    if (record->board)
        (void)train_board_close(record->board); /* the run has failed, and has said so */
    free(record->step);
    free(record->memory.bytes);
    free(record->sample);
    memset(record, 0, sizeof *record);
}

double train_step_part(const train_record_t *record, const train_step_t *step)
{
    return record->batch > 0 && step->batch > 0 ? (double)step->batch / (double)record->batch : 1.0;
}

double train_record_parts(const train_record_t *record)
{
    double parts = 0.0;
    for (size_t i = 0; i < record->steps; i++)
        parts += train_step_part(record, &record->step[i]);
    return parts;
}

train_step_t train_record_total(const train_record_t *record)
{
    train_step_t total = {0};
    for (size_t i = 0; i < record->steps; i++) {
        total.seconds += record->step[i].seconds;
        total.compute_s += record->step[i].compute_s;
        total.exposed_s += record->step[i].exposed_s;
        total.hidden_s += record->step[i].hidden_s;
    }
    return total;
}

char *train_readable(const unsigned char *bytes, size_t count)
{
    char *text = malloc(3 * count + 1), *to = text;
    if (!text)
        return NULL;
    for (size_t i = 0; i < count;) {
        uint32_t letter;
        size_t n = base_utf8_decode(bytes + i, count - i, &letter);
        int control =
            n == 1 && ((bytes[i] < 0x20 && bytes[i] != '\n' && bytes[i] != '\t') || bytes[i] == 0x7f);
        control |= n == 2 && bytes[i] == 0xc2 && bytes[i + 1] < 0xa0;
        if (n > 0 && !control) {
            memcpy(to, bytes + i, n);
            to += n;
        } else {
            memcpy(to, "\xef\xbf\xbd", 3);
            to += 3;
        }
        i += n > 0 ? n : base_utf8_bad(bytes + i, count - i);
    }
    *to = 0;
    return text;
}
