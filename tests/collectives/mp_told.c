/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 3 */
/* tests/collectives/mp_told.c: a rank that only receives others' disagreement reports the whole story, too.
 * Rank 1 finds that rank 0 sends something else than rank 1 expects. Rank 2 is not involved and waits in a
 * barrier; its watcher reports the error. Whether the waiting or the progress notices first is chance, hence
 * the rounds. Long spinning makes both likely. Ranks on hosts of their own cannot read the story from each
 * other's boards. */
#include "tests/support/mp.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "collectives/run/communicator.h"

enum { ROUNDS = 6 };

/* Rank 0 reports an error to all and is gone a moment later; rank 1 itself sees a broken link. It reports
 * rank 0's story even so, whichever it notices first. */
static void first_cause(gyre_comm_t *world)
{
    gyre_comm_t *comm;
    int rank = gyre_comm_rank(world);
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    if (rank == 0)
        MP_OK(gyre_comm_abort(comm, "counts differ"));
    for (int turn = 0; turn < 1000 && comm_watch_aborted(comm->world->watch, comm->id, NULL, 0) == GYRE_OK;
         turn++)
        usleep(10000);
    if (rank == 1) {
        gyre_fail_quiet(GYRE_ERR_PEER_DEAD, "rank 0 died: it ended");
        coll_drive(comm);
        coll_comm_fail(comm, NULL, GYRE_ERR_PEER_DEAD, NULL);
        coll_stop_driving(comm);
        MP_CHECK(gyre_comm_error(comm) == GYRE_ERR_ABORTED && strstr(comm->error_text, "counts differ"),
                 "rank 1 says only: %s", comm->error_text);
    }
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world));
}

/* A rank that polls and never sleeps reports the rank that it waits for, too, as long as it does. */
static void polling(gyre_comm_t *world)
{
    gyre_request_t *request;
    int rank = gyre_comm_rank(world), word = 0;
    if (rank == 0) {
        MP_OK(gyre_recv(&word, 1, GYRE_INT32, 1, world)); /* it is noted */
        MP_OK(gyre_send(&word, 1, GYRE_INT32, 1, world));
    } else if (rank == 1) {
        const comm_recorder_slot_t *slot = world->world->recorder;
        base_time_t until = base_deadline(10.0);
        MP_OK(gyre_irecv(&word, 1, GYRE_INT32, 0, world, &request));
        while (slot->waiting_for != 0 && base_now() < until)
            MP_OK(gyre_progress(world));
        MP_CHECK(slot->waiting_for == 0, "it waits for %d", (int)slot->waiting_for);
        MP_OK(gyre_send(&word, 1, GYRE_INT32, 0, world));
        gyre_status_t status;
        while ((status = gyre_test(&request)) == GYRE_IN_PROGRESS)
            ;
        MP_CHECK(status == GYRE_OK && slot->waiting_for == -1, "it still waits for %d",
                 (int)slot->waiting_for);
    }
    MP_OK(gyre_barrier(world));
}

int main(void)
{
    gyre_comm_t *world;

    setenv("GYRE_HOST_RANKS", "1", 1);
    setenv("GYRE_SPIN", "20000", 1);
    setenv("GYRE_LOG", "none", 1); /* the errors are wanted */
    MP_OK(gyre_init(NULL, &world));
    int rank = gyre_comm_rank(world);
    for (int round = 0; round < ROUNDS; round++) {
        gyre_comm_t *comm;
        float x[16] = {0};
        MP_OK(gyre_comm_split(world, 0, rank, &comm));
        gyre_status_t status = rank == 0   ? gyre_send(x, 8, GYRE_FLOAT32, 1, comm)
                               : rank == 1 ? gyre_recv(x, 9, GYRE_FLOAT32, 0, comm)
                                           : GYRE_OK;
        if (status == GYRE_OK)
            status = gyre_barrier(comm);
        const char *text = gyre_last_error();
        MP_CHECK(status == GYRE_ERR_MISMATCH, "round %d: %s: %s", round, gyre_status_string(status), text);
        MP_CHECK(strstr(text, "rank 1 called recv from rank 0 #1 (count 9, float)") &&
                     strstr(text, "rank 0 called send to rank 1 #1 (count 8, float)") &&
                     strstr(text, "in the same order"),
                 "round %d: rank %d says only: %s", round, rank, text);
        MP_OK(gyre_comm_destroy(comm));
        MP_OK(gyre_barrier(world));
    }
    first_cause(world);
    polling(world);
    MP_OK(gyre_finalize(world));
    return 0;
}
