/* SPDX-License-Identifier: Apache-2.0 */
/* examples/train.c: train a small GPT from a program.
 *
 *     make examples
 *     ucx-run -n 2 build/examples/train [FILE]
 *
 * FILE is a JSON object with the options of gyre-train(1), as for its --config; without it the settings below
 * are taken. The loss has the same bits on 1, 2 or 4 ranks. */
#include <stdio.h>

#include <gyre/gyre.h>
#include <gyre/train.h>

/* Gyre has logged why. */
#define TRY(call)                                            \
    do {                                                     \
        if ((call) != GYRE_OK) {                             \
            fprintf(stderr, "train: failed in %s\n", #call); \
            return 1;                                        \
        }                                                    \
    } while (0)

static const char settings[] = "{\"data\": \"/usr/share/common-licenses\", \"steps\": 60, \"layers\": 2, "
                               "\"hidden\": 64, \"heads\": 4, \"seq\": 64, \"batch\": 8, \"zero\": 1, "
                               "\"warmup\": 10, \"eval-sequences\": 32}";

int main(int argc, char **argv)
{
    gyre_comm_t *world;
    gyre_train_t *train;
    gyre_train_stats_t stats = {.size = sizeof stats};
    double before, after;

    TRY(gyre_init(NULL, &world));
    int speaks = gyre_comm_rank(world) == 0;
    TRY(gyre_train_create(world, argc > 1 ? argv[1] : settings, &train));
    TRY(gyre_train_evaluate(train, &before));
    while (!stats.done) {
        TRY(gyre_train_step(train, &stats));
        if (speaks)
            printf("step %llu  loss %.17g\n", (unsigned long long)stats.step, stats.loss);
    }
    TRY(gyre_train_evaluate(train, &after));
    TRY(gyre_train_finish(train)); /* writes what FILE names with "save", "log", "report" */
    if (speaks)
        printf("validation loss %.4f, before training %.4f\n", after, before);
    TRY(gyre_train_destroy(train));
    TRY(gyre_finalize(world));
    return 0;
}
