/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_recorder.c: the flight recorder outlives its process, and never writes where it must
 * not. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gyre/comm.h>

#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/recorder/file.h"

static void settings(int fd, int local_rank)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", fd);
    base_settings_set(SET_RECORDER_FD, text, "test");
    snprintf(text, sizeof(text), "%d", local_rank);
    base_settings_set(SET_LOCAL_RANK, text, "test");
}

static void layout(void **state)
{
    (void)state;
    assert_int_equal(sizeof(comm_call_t), 40);
    assert_int_equal(sizeof(comm_recorder_slot_t) % 64, 0);
    assert_int_equal(offsetof(comm_recorder_slot_t, finishing), 28); /* tests/support/launch.sh writes it */
    assert_int_equal(offsetof(comm_recorder_head_t, slot_bytes), 12);
    assert_true(comm_recorder_bytes(7) >= 7 * sizeof(comm_recorder_slot_t));
    assert_true(comm_recorder_bytes(0) > 0);
}

static void private_slot(void **state)
{
    (void)state;
    settings(-1, -1);
    comm_recorder_slot_t *slot = comm_recorder_open("test", 3, 4);
    assert_non_null(slot);
    assert_int_equal(slot->rank, 3);
    assert_int_equal(slot->pid, getpid());
    assert_int_equal(atomic_load(&slot->state), 1);
    assert_int_equal(slot->waiting_for, -1);
    for (uint32_t k = 1; k <= 40; k++) {
        comm_call_t call = {.seq = k, .count = k * 10, .root = -1};
        comm_recorder_begin(slot, &call, 12345);
        assert_int_equal(atomic_load(&slot->state), 2);
        assert_int_equal(atomic_load(&slot->head), k);
        comm_recorder_end(slot);
        assert_int_equal(atomic_load(&slot->state), 1);
    }
    assert_int_equal(slot->started_ns, 12345);
    for (uint32_t k = 40 - COMM_RECORDER_CALLS; k < 40; k++) /* the newest calls are kept, in their places */
        assert_int_equal(slot->calls[k % COMM_RECORDER_CALLS].seq, k + 1);
    char text[2000];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    comm_recorder_fail(slot, text);
    comm_recorder_end(slot); /* a failure is not forgotten by the end of its call */
    assert_int_equal(atomic_load(&slot->state), 3);
    assert_int_equal(strlen(slot->error), sizeof(slot->error) - 1);
    comm_recorder_close(slot);
    comm_recorder_close(NULL);
}

/* Every slot of a launcher's memory: written by processes that are killed, read afterwards. */
static void outlives_its_process(void **state)
{
    (void)state;
    enum { SLOTS = 9 }; /* slots that lie across pages among them */
    comm_recorder_t made;
    assert_int_equal(comm_recorder_create("", "test", "", SLOTS, SLOTS, &made), GYRE_OK);
    assert_null(made.path);
    int fd = made.fd;
    comm_recorder_slot_t *all = made.slots;
    for (int i = 0; i < SLOTS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            settings(fd, i);
            comm_recorder_slot_t *slot = comm_recorder_open("test", 100 + i, 200);
            comm_call_t call = {.seq = (uint32_t)i + 1, .op = 5, .count = 77};
            comm_recorder_begin(slot, &call, 12345);
            comm_recorder_wait(slot, i + 1);
            if (i % 3 == 1)
                comm_recorder_fail(slot, "it broke");
            if (i % 3 == 2) {
                comm_recorder_end(slot);
                comm_recorder_close(slot);
            }
            kill(getpid(), SIGKILL);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(all[i].rank, 100 + i);
        assert_int_equal(all[i].pid, pid);
    }
    static const uint32_t states[] = {2, 3, 4};
    for (int i = 0; i < SLOTS; i++) { /* no process wrote into a neighbour's slot */
        assert_int_equal(all[i].rank, 100 + i);
        assert_int_equal(atomic_load(&all[i].state), states[i % 3]);
        assert_int_equal(atomic_load(&all[i].head), 1);
        assert_int_equal(all[i].calls[0].seq, i + 1);
        assert_int_equal(all[i].calls[0].count, 77);
        assert_int_equal(all[i].waiting_for, i + 1);
        assert_string_equal(all[i].error, i % 3 == 1 ? "it broke" : "");
    }
    /* A restarted rank takes its slot over, whatever state its predecessor left it in. */
    pid_t pid = fork();
    if (pid == 0) {
        alarm(10);
        settings(fd, 4);
        comm_recorder_slot_t *slot = comm_recorder_open("test", 104, 200);
        comm_call_t call = {.seq = 9};
        comm_recorder_begin(slot, &call, 1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(all[4].pid, pid);
    assert_int_equal(atomic_load(&all[4].head), 1);
    assert_int_equal(all[4].calls[0].seq, 9);
    assert_string_equal(all[4].error, "");
    comm_recorder_destroy(&made, 1);
}

/* Writes that must be finished, as the launcher sees them in `seen`. */
static int hold(const comm_recorder_slot_t *seen)
{
    comm_recorder_hold(1); /* there is no slot yet */
    if (atomic_load(&seen->finishing) != 7)
        return 1;
    comm_recorder_slot_t *slot = comm_recorder_open("test", 1, 2);
    /* what a process before this one has left does not count */
    if (atomic_load(&seen->finishing) != 1)
        return 2;
    comm_recorder_hold(1);
    if (atomic_load(&seen->finishing) != 2)
        return 3;
    comm_recorder_close(slot);
    comm_recorder_hold(0); /* it can be closed meanwhile */
    if (atomic_load(&seen->finishing) != 1 || atomic_load(&seen->state) != 4)
        return 4;
    slot = comm_recorder_open("test", 1, 2); /* and another job of this process can take it */
    if (atomic_load(&seen->finishing) != 1)
        return 5;
    comm_recorder_close(slot);
    comm_recorder_hold(0);
    if (atomic_load(&seen->finishing) != 0)
        return 6;
    slot = comm_recorder_open("test", 1, 2);
    comm_recorder_hold(0); /* one too many */
    comm_recorder_hold(1);
    return atomic_load(&seen->finishing) == 1 ? 0 : 7;
}

static void unfinished_writes(void **state)
{
    (void)state;
    comm_recorder_t made;
    assert_int_equal(comm_recorder_create("", "test", "", 2, 2, &made), GYRE_OK);
    atomic_store(&made.slots[1].finishing, 7);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(10);
        settings(made.fd, 1);
        _exit(hold(&made.slots[1]));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&made.slots[0].finishing), 0);
    comm_recorder_destroy(&made, 1);
}

/* What a reader makes of a file: all of it, or a refusal, never more than is there. */
static void in_a_file(void **state)
{
    (void)state;
    enum { SLOTS = 4 };
    char dir[] = "/tmp/gyre-recorder-XXXXXX", path[600];
    comm_recorder_t made;
    comm_recorder_head_t head;
    comm_recorder_slot_t *slots = NULL;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(comm_recorder_create(dir, "a/../b\n", "", 9, SLOTS, &made), GYRE_OK);
    assert_non_null(made.path);
    assert_int_equal(strncmp(made.path + strlen(dir), "/gyre-a_.._b_.", 14), 0);
    struct stat info;
    assert_int_equal(stat(made.path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_true(info.st_blocks * 512 >= info.st_size); /* no hole that a full disk could refuse later */
    pid_t pid = fork();
    if (pid == 0) {
        settings(made.fd, 2);
        comm_recorder_slot_t *slot = comm_recorder_open("other", 7, 9);
        comm_call_t call = {.seq = 5, .op = 5, .count = 77};
        comm_recorder_begin(slot, &call, 12345);
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    comm_recorder_note_child(&made.slots[2], 7, (int)pid);
    comm_recorder_note_end(&made.slots[2], status);
    memset(made.slots[3].error, 0, sizeof(made.slots[3].error));
    comm_recorder_fail(&made.slots[3], "cannot read na\xefve, \xc3\xa9t\xc3\xa9, \xc3");
    snprintf(path, sizeof(path), "%s", made.path);
    comm_recorder_destroy(&made, 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(comm_recorder_read(fd, &head, &slots), GYRE_OK);
    assert_int_equal(head.slots, SLOTS);
    assert_int_equal(head.size, 9);
    assert_string_equal(head.job, "a/../b ");
    assert_int_equal(slots[2].rank, 7);
    assert_int_equal(slots[2].state, 2);
    assert_int_equal(slots[2].child, pid);
    assert_int_equal(slots[2].status, SIGKILL);
    assert_true(slots[2].ended_ns > 0);
    assert_string_equal(slots[3].error, "cannot read na?ve, \xc3\xa9t\xc3\xa9, ?"); /* JSON takes UTF-8 */
    free(slots);
    /* Too large, and then also of a later version with longer slots. */
    assert_int_equal(ftruncate(fd, (off_t)comm_recorder_bytes(COMM_RECORDER_SLOTS_MAX) + 1), 0);
    assert_int_equal(comm_recorder_read(fd, &head, &slots), GYRE_ERR_FORMAT);
    comm_recorder_head_t later = head;
    later.version++;
    later.slot_bytes *= 2;
    assert_int_equal(pwrite(fd, &later, sizeof(later), 0), sizeof(later));
    assert_int_equal(comm_recorder_read(fd, &head, &slots), GYRE_ERR_UNSUPPORTED);
    assert_int_equal(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
    assert_int_equal(ftruncate(fd, 4096 + 100), 0);
    assert_int_equal(comm_recorder_read(fd, &head, &slots), GYRE_ERR_FORMAT);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(comm_recorder_read(fd, &head, &slots), GYRE_ERR_FORMAT);
    close(fd);
    unlink(path);

    /* A rank without a launcher makes its own; it stays after an error only. Each attempt to join makes one,
     * and none is in the way of the next. */
    settings(-1, -1);
    base_settings_set(SET_RECORD, dir, "test");
    for (int attempt = 0; attempt < 2; attempt++) {
        gyre_config_t config = GYRE_CONFIG_INITIALIZER;
        gyre_comm_t *comm = NULL;
        config.rank = 1;
        config.nranks = 2;
        config.root = "127.0.0.1:1"; /* where nobody listens */
        config.secret = "0000000000000000000000000000000000000000000000000000000000000000";
        config.init_timeout_s = 0.01;
        assert_int_equal(gyre_init(&config, &comm), GYRE_ERR_BOOTSTRAP);
        assert_int_equal(rmdir(dir), 0);
        assert_int_equal(mkdir(dir, 0700), 0);
    }
    for (int fails = 0; fails < 2; fails++) {
        comm_recorder_slot_t *slot = comm_recorder_open("solo", 0, 1);
        snprintf(path, sizeof(path), "%s", dir);
        if (fails)
            comm_recorder_fail(slot, "it broke");
        comm_recorder_close(slot);
        assert_int_equal(rmdir(dir) == 0, !fails);
        if (!fails)
            assert_int_equal(mkdir(dir, 0700), 0);
    }
    base_settings_set(SET_RECORD, NULL, NULL);
    snprintf(path, sizeof(path), "rm -r %s", dir);
    assert_int_equal(system(path), 0);
    /* A folder that is not there: in memory. */
    assert_int_equal(comm_recorder_create("/nonexistent", "test", "", 1, 1, &made), GYRE_OK);
    assert_null(made.path);
    comm_recorder_destroy(&made, 1);
}

/* Wrong descriptors: the slot is private, the file stays as it was. */
static void wrong_descriptor(void **state)
{
    (void)state;
    static char zeros[65536];
    char seen[65536];
    FILE *file = tmpfile(); /* an ordinary file unless the temporary directory is in memory */
    assert_non_null(file);
    assert_int_equal(fwrite(zeros, 1, sizeof(zeros), file), sizeof(zeros));
    fflush(file);
    int small = memfd_create("small", MFD_CLOEXEC);
    assert_int_equal(ftruncate(small, 100), 0);
    const int cases[][2] = {{small, 0},  {small, 5},       {999, 0},
                            {small, -1}, {small, 1 << 20}, {fileno(file), 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        settings(cases[i][0], cases[i][1]);
        comm_recorder_slot_t *slot = comm_recorder_open("test", 1, 2);
        assert_non_null(slot);
        assert_int_equal(slot->rank, 1);
        comm_call_t call = {.seq = 1};
        comm_recorder_begin(slot, &call, 12345);
        comm_recorder_close(slot);
        assert_int_equal(pread(fileno(file), seen, sizeof(seen), 0), sizeof(seen));
        assert_memory_equal(seen, zeros, sizeof(seen));
    }
    close(small);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout),
        cmocka_unit_test(private_slot),
        cmocka_unit_test(outlives_its_process),
        cmocka_unit_test(unfinished_writes),
        cmocka_unit_test(in_a_file),
        cmocka_unit_test(wrong_descriptor),
    };
    base_settings_load();
    base_log_set_level(BASE_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
