/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-tokenize/encode.c: batches of documents go round a ring: the main thread fills a place, any
 * worker encodes it, the main thread writes it when its turn comes. So the file does not depend on the
 * number of workers. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread/team.h"
#include "tools/gyre-tokenize/tokenize.h"

typedef enum { EMPTY, FILLED, TAKEN, DONE } place_state_t;

typedef struct {
    place_state_t state;
    tokenize_batch_t batch;
    tokenize_documents_t made; /* owned */
    gyre_status_t status;
    char why[512];
} place_t;

typedef struct {
    const tokenize_options_t *options;
    model_tokenizer_t *tokenizer;
    model_chat_t *chat; /* NULL: no conversation has come */
    tokenize_input_t *input;
    model_tokens_writer_t *writer;
    place_t *place; /* [places] */
    size_t places;
    pthread_mutex_t lock;
    pthread_cond_t filled, done;
    uint64_t first_free; /* number of the next batch that a worker takes; batch k is at place k % places */
    int ended;
    pthread_t *thread; /* [threads] */
    size_t threads;
    /* for the terminal */
    base_time_t start, last;
    uint64_t bytes, documents, tokens, learned, longer, unlearned;
    int tty;
} ring_t;

/* ---- signals ------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted; /* the signal's number; 0: none has come */

static void interrupt(int number)
{
    interrupted = number;
}

/* A signal that ends the program leaves no half of a file; a second one ends it at once. It ends a read of
 * standard input, too. */
static void watch_signals(void)
{
    static const int number[] = {SIGHUP, SIGINT, SIGTERM};
    const struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (sigaction(number[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            (void)sigaction(number[i], &action, NULL);
}

/* ---- a worker ------------------------------------------------------------------------------------------ */

gyre_status_t tokenize_coder_chat(tokenize_coder_t *coder, const model_chat_t **out)
{
    ring_t *ring = coder->ring;
    pthread_mutex_lock(&ring->lock);
    gyre_status_t status = ring->chat
                               ? GYRE_OK
                               : model_chat_open(ring->tokenizer, ring->options->tokenizer,
                                                 ring->options->template, ring->options->date, &ring->chat);
    *out = ring->chat;
    pthread_mutex_unlock(&ring->lock);
    return status;
}

static int is_blank(const char *line, size_t length)
{
    size_t i = 0;
    while (i < length && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r'))
        i++;
    return i == length;
}

static gyre_status_t encode_batch(tokenize_coder_t *coder, place_t *place)
{
    const tokenize_batch_t *batch = &place->batch;
    tokenize_documents_t *made = &place->made;
    made->ids.count = made->count = 0;
    made->longer = made->unlearned = 0;
    if (batch->line == 0)
        return tokenize_text(coder, (const char *)batch->text, batch->bytes, made);
    gyre_status_t status = GYRE_OK;
    const char *at = (const char *)batch->text, *end = at + batch->bytes;
    for (uint64_t number = batch->line; status == GYRE_OK && at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *line = at;
        if (!stop)
            stop = end;
        at = stop + 1;
        if (number == 1 && stop - line >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
            line += 3; /* a byte-order mark, which some editors put before the first line */
        const tokenize_line_t one = {batch->path, number, line, (size_t)(stop - line)};
        if (!is_blank(line, one.length))
            status = tokenize_line(coder, &one, made);
    }
    return status;
}

static void *work(void *arg)
{
    ring_t *ring = arg;
    tokenize_coder_t coder = {.options = ring->options, .tokenizer = ring->tokenizer, .ring = ring};
    gyre_status_t ready = model_encoder_create(ring->tokenizer, &coder.encoder);
    if (ready == GYRE_OK)
        model_encoder_specials(coder.encoder, ring->options->specials);
    pthread_mutex_lock(&ring->lock);
    for (;;) {
        place_t *place = &ring->place[ring->first_free % ring->places];
        if (place->state != FILLED) {
            if (ring->ended)
                break;
            pthread_cond_wait(&ring->filled, &ring->lock);
            continue;
        }
        ring->first_free++;
        place->state = TAKEN;
        pthread_mutex_unlock(&ring->lock);
        place->status = ready == GYRE_OK ? encode_batch(&coder, place) : ready;
        if (place->status != GYRE_OK)
            snprintf(place->why, sizeof place->why, "%s", gyre_last_error());
        pthread_mutex_lock(&ring->lock);
        place->state = DONE;
        pthread_cond_signal(&ring->done);
    }
    pthread_mutex_unlock(&ring->lock);
    model_encoder_destroy(coder.encoder);
    return NULL;
}

/* ---- the main thread ----------------------------------------------------------------------------------- */

static void show_progress(ring_t *ring, int last)
{
    base_time_t now = base_now();
    double seconds = (double)(now - ring->start) * 1e-9;
    uint64_t all = tokenize_input_bytes(ring->input);
    if (ring->options->quiet || (!last && (double)(now - ring->last) * 1e-9 < (ring->tty ? 0.2 : 10.0)) ||
        (last && !ring->tty))
        return;
    ring->last = now;
    char part[32] = "";
    if (all > 0)
        snprintf(part, sizeof part, "%3.0f %%  ", 100.0 * (double)ring->bytes / (double)all);
    fprintf(stderr, "%s%s%.1f MB, %" PRIu64 " document%s, %.2f million tokens, %.1f MB/s%s",
            ring->tty ? "\r" : "", part, (double)ring->bytes / 1e6, ring->documents,
            ring->documents == 1 ? "" : "s", (double)ring->tokens / 1e6,
            (double)ring->bytes / 1e6 / (seconds > 1e-3 ? seconds : 1e-3),
            ring->tty && !last ? "\033[K" : "\n");
    fflush(stderr);
}

/* Waits for the batch at `place` and writes it. */
static gyre_status_t write_place(ring_t *ring, place_t *place)
{
    pthread_mutex_lock(&ring->lock);
    while (place->state != DONE)
        pthread_cond_wait(&ring->done, &ring->lock);
    pthread_mutex_unlock(&ring->lock);
    gyre_status_t status = place->status;
    if (status != GYRE_OK)
        return gyre_fail(status, "%s", place->why);
    const tokenize_documents_t *made = &place->made;
    for (size_t d = 0, begin = 0; status == GYRE_OK && d < made->count; begin = made->end[d++])
        status = model_tokens_add(ring->writer, made->ids.id + begin, made->ids.learned + begin,
                                  made->end[d] - begin);
    ring->bytes += place->batch.bytes;
    ring->documents += made->count;
    ring->tokens += made->ids.count;
    for (size_t i = 0; i < made->ids.count; i++)
        ring->learned += made->ids.learned[i];
    ring->longer += made->longer;
    ring->unlearned += made->unlearned;
    pthread_mutex_lock(&ring->lock);
    place->state = EMPTY;
    pthread_mutex_unlock(&ring->lock);
    show_progress(ring, 0);
    return status;
}

static gyre_status_t go_round(ring_t *ring)
{
    gyre_status_t status = GYRE_OK;
    uint64_t filled = 0, written = 0;
    int more = 1;
    while (status == GYRE_OK && (more || written < filled)) {
        place_t *place = &ring->place[filled % ring->places];
        if (interrupted)
            return gyre_fail_quiet(GYRE_ERR_IO, "interrupted by signal %d", (int)interrupted);
        if (!more || filled - written == ring->places) {
            status = write_place(ring, &ring->place[written++ % ring->places]);
            continue;
        }
        status = tokenize_input_next(ring->input, &place->batch, &more);
        if (status != GYRE_OK || !more)
            continue;
        pthread_mutex_lock(&ring->lock);
        place->state = FILLED;
        filled++;
        pthread_cond_signal(&ring->filled);
        pthread_mutex_unlock(&ring->lock);
    }
    return status;
}

static gyre_status_t start_workers(ring_t *ring)
{
    size_t threads = (size_t)ring->options->threads;
    base_team_check(threads, "--threads");
    ring->places = 2 * threads + 2;
    ring->place = calloc(ring->places, sizeof *ring->place);
    ring->thread = calloc(threads, sizeof *ring->thread);
    if (!ring->place || !ring->thread)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu threads", threads);
    for (size_t i = 0; i < threads; i++) {
        int err = pthread_create(&ring->thread[i], NULL, work, ring);
        if (err != 0)
            return gyre_fail_errno(GYRE_ERR_NO_MEMORY, err, "cannot start thread %zu: take fewer --threads",
                                   i + 1);
        ring->threads++;
    }
    return GYRE_OK;
}

static void stop_workers(ring_t *ring)
{
    pthread_mutex_lock(&ring->lock);
    ring->ended = 1;
    pthread_cond_broadcast(&ring->filled);
    pthread_mutex_unlock(&ring->lock);
    for (size_t i = 0; i < ring->threads; i++)
        pthread_join(ring->thread[i], NULL);
    for (size_t i = 0; ring->place && i < ring->places; i++) {
        free(ring->place[i].batch.text);
        free(ring->place[i].made.ids.id);
        free(ring->place[i].made.ids.learned);
        free(ring->place[i].made.end);
    }
    free(ring->place);
    free(ring->thread);
}

static gyre_status_t open_writer(ring_t *ring)
{
    const tokenize_options_t *options = ring->options;
    const model_tokens_header_t header = {.vocab = model_tokenizer_vocab(ring->tokenizer),
                                          .tokenizer = model_tokenizer_name(ring->tokenizer),
                                          .tokenizer_hash = model_tokenizer_hash(ring->tokenizer),
                                          .eot = model_tokenizer_eot(ring->tokenizer)};
    if (options->eot && header.eot < 0)
        return gyre_fail(GYRE_ERR_INVALID, "--eot: the tokenizer %s has no token for the end of a text",
                         header.tokenizer);
    return model_tokens_create(options->out, &header, &ring->writer);
}

gyre_status_t tokenize_encode(const tokenize_options_t *options)
{
    ring_t ring = {.options = options,
                   .lock = PTHREAD_MUTEX_INITIALIZER,
                   .filled = PTHREAD_COND_INITIALIZER,
                   .done = PTHREAD_COND_INITIALIZER,
                   .tty = isatty(STDERR_FILENO)};
    watch_signals();
    gyre_status_t status = model_tokenizer_open(options->tokenizer, &ring.tokenizer);
    if (status == GYRE_OK)
        status = tokenize_input_open(options, &ring.input);
    if (status == GYRE_OK)
        status = open_writer(&ring);
    ring.start = ring.last = base_now();
    if (status == GYRE_OK) {
        if ((status = start_workers(&ring)) == GYRE_OK)
            status = go_round(&ring);
        stop_workers(&ring);
    }
    if (status == GYRE_OK && ring.documents == 0 && ring.longer + ring.unlearned > 0)
        status = gyre_fail(GYRE_ERR_INVALID,
                           "nothing is left to write: %" PRIu64
                           " conversations are longer than --context, %" PRIu64 " have no answer to learn",
                           ring.longer, ring.unlearned);
    else if (status == GYRE_OK && ring.tokens == 0)
        status = gyre_fail(GYRE_ERR_INVALID, "%s%s: nothing to write: there is no %s in it",
                           options->inputs[0], options->input_count > 1 ? " and what follows" : "",
                           options->jsonl && ring.documents == 0 ? "line of JSON" : "text");
    if (status == GYRE_OK) {
        show_progress(&ring, 1);
        status = model_tokens_finish(ring.writer);
        ring.writer = NULL;
    }
    model_tokens_abandon(ring.writer);
    if (status == GYRE_OK)
        printf("%s: %" PRIu64 " tokens of %s in %" PRIu64 " document%s from %.1f MB in %.1f s\n",
               options->out, ring.tokens, model_tokenizer_name(ring.tokenizer), ring.documents,
               ring.documents == 1 ? "" : "s", (double)ring.bytes / 1e6,
               (double)(base_now() - ring.start) * 1e-9);
    if (status == GYRE_OK && ring.learned < ring.tokens)
        printf("%" PRIu64 " of the tokens are learned: answers and completions, each with its end\n",
               ring.learned);
    if (status == GYRE_OK && ring.longer > 0)
        log_warning("%" PRIu64 " conversations of more than %" PRIu64 " tokens were left out", ring.longer,
                    options->context);
    if (status == GYRE_OK && ring.unlearned > 0)
        log_warning("%" PRIu64 " conversations without an answer were left out: --learn all takes them",
                    ring.unlearned);
    if (status == GYRE_OK && tokenize_input_skipped(ring.input) > 0)
        log_warning("%zu files in folders do not look like text and were left out",
                    tokenize_input_skipped(ring.input));
    if (ring.input)
        tokenize_input_close(ring.input);
    model_chat_destroy(ring.chat);
    model_tokenizer_destroy(ring.tokenizer);
    if (interrupted)
        (void)raise(interrupted); /* the exit status is that of the signal */
    return status;
}
