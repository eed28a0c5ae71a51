/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_rooms.c: rooms of the backing file (comm/memory/rooms.h) serve one group after the other:
 * only after all ranks have left, all zeros, and mapped all the while. Two ranks are two views of a file. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/memory_file.h"
#include "comm/memory/rooms.h"

enum { FIRST = 5000, BUDGET = 256 << 10, RANKS = 2 };

static comm_backing_t *view[RANKS];
static int file;

static int open_views(void **state)
{
    (void)state;
    const unsigned char reads[RANKS] = {1, 1};
    file = base_memory_file("test", FIRST, comm_backing_length(FIRST, RANKS));
    assert_true(file >= 0);
    for (int r = 0; r < RANKS; r++)
        assert_non_null(view[r] = comm_backing_open(file, FIRST, 7, RANKS, r, reads));
    return 0;
}

static int close_views(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++)
        comm_backing_close(view[r]);
    close(file);
    return 0;
}

static blkcnt_t blocks(void)
{
    struct stat now;
    return fstat(file, &now) == 0 ? now.st_blocks : -1;
}

static uint64_t reserve(int keep)
{
    return comm_room_reserve(view[0], comm_segment_room(BUDGET, RANKS), keep);
}

/* Reading through a mapping would make pages. */
static int is_zeros(const comm_segment_t *seg)
{
    static unsigned char now[BUDGET], zeros[BUDGET];
    assert_true(seg->bytes <= BUDGET && pread(file, now, seg->bytes, (off_t)seg->at) == (ssize_t)seg->bytes);
    return memcmp(now, zeros, seg->bytes) == 0;
}

/* Both ranks enter; all is zeros. */
static void enter(uint64_t room, comm_segment_t seg[RANKS])
{
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(comm_segment_enter(view[r], room, BUDGET, RANKS, &seg[r]), GYRE_OK);
        seg[r].local = r;
        assert_true(seg[r].bytes == seg[0].bytes && seg[r].bytes <= comm_segment_room(BUDGET, RANKS));
    }
    assert_true(is_zeros(&seg[0]));
}

/* All that a group writes that has used `lines` lines; `more`: and a slot. */
static void use(comm_segment_t seg[RANKS], uint32_t lines, int more)
{
    for (int r = 0; r < RANKS; r++) {
        unsigned char *outbox = comm_segment_outbox(&seg[r], r);
        const uint32_t all = seg[r].outbox.lines;
        memset(comm_segment_bell(&seg[r], r), 0xff, seg[r].local_stride);
        if (lines > 0)
            memset(outbox, 0xff, COMM_LINE);
        for (uint32_t k = 1; k <= lines; k++)
            memset(outbox + COMM_LINE + (size_t)(k % all) * COMM_LINE, 0xff, COMM_LINE);
        if (more)
            memset(outbox + (size_t)(1 + all) * COMM_LINE, 0xff, 1000);
        seg[r].lines = lines;
    }
    seg[1].soiled = more;
}

static void test_again(void **state)
{
    (void)state;
    static const uint32_t lines[] = {0, 1, 3, 31, 32, 33, 1000, 2};
    comm_segment_t seg[RANKS];
    unsigned char *base[RANKS] = {NULL};
    uint64_t first = 0;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        for (int more = 0; more < 2; more++) {
            const uint64_t room = reserve(1);
            first = first ? first : room;
            assert_true(room == first && (room & COMM_ROOM_KEPT));
            enter(room, seg);
            for (int r = 0; r < RANKS; r++) {
                assert_true(!base[r] || base[r] == seg[r].base); /* still mapped */
                base[r] = seg[r].base;
            }
            use(seg, lines[i], more);
            comm_segment_close(&seg[i % 2]);
            comm_segment_close(&seg[(i + 1) % 2]);
        }
}

/* Without `keep` its pages go back to the system. */
static void test_pages(void **state)
{
    (void)state;
    comm_segment_t seg[RANKS];
    const blkcnt_t before = blocks();
    for (int i = 0; i < 2; i++) {
        enter(reserve(0), seg);
        use(seg, 1, 0);
        assert_true(blocks() > before);
        for (int r = 0; r < RANKS; r++)
            comm_segment_close(&seg[r]);
        const uint64_t room = reserve(0);
        assert_true(blocks() == before);
        comm_room_return(view[0], room, comm_segment_room(BUDGET, RANKS));
    }
}

/* What took much memory goes back once the last rank has left, whichever that is, and not only when its owner
 * needs a room again. */
static void test_much(void **state)
{
    (void)state;
    comm_segment_t seg[RANKS];
    const blkcnt_t before = blocks(), page = sysconf(_SC_PAGESIZE) / 512;
    for (int last = 0; last < RANKS; last++) {
        enter(reserve(1), seg);
        use(seg, 40, 1);
        assert_true(blocks() > before + page);
        comm_segment_close(&seg[!last]);
        assert_true(blocks() > before + page);
        comm_segment_close(&seg[last]);
        assert_true(blocks() <= before + page);
    }
    enter(reserve(1), seg);
    for (int r = 0; r < RANKS; r++)
        comm_segment_close(&seg[r]);
}

/* A room that somebody has not left is not given out. */
static void test_late(void **state)
{
    (void)state;
    comm_segment_t seg[RANKS], other[RANKS];
    const uint64_t room = reserve(1);
    enter(room, seg);
    use(seg, 2, 0);
    comm_segment_close(&seg[0]);
    const uint64_t second = reserve(1);
    assert_true(second != room);
    enter(second, other);
    memset(seg[1].base, 0xff, 8192); /* it is late */
    memset(seg[1].base, 0, 8192);
    assert_true(is_zeros(&other[0]));
    comm_segment_close(&seg[1]);
    for (int r = 0; r < RANKS; r++)
        comm_segment_close(&other[r]);
    const uint64_t third = reserve(1);
    assert_true(third == room || third == second);
    comm_room_return(view[0], third, comm_segment_room(BUDGET, RANKS));
}

static void *close_first(void *segs)
{
    comm_segment_close((comm_segment_t *)segs);
    return NULL;
}

/* A room is given out only once the last rank has done all with it: another thread of that rank may be the
 * next one to enter it, and then has it. Here the last rank is kept in the middle of leaving. */
static void test_leaving(void **state)
{
    (void)state;
    comm_segment_t seg[RANKS];
    pthread_t thread;
    pthread_mutex_t *lock = &comm_backing_rooms(view[1])->lock;
    const uint64_t room = reserve(1);
    enter(room, seg);
    comm_segment_close(&seg[0]);
    pthread_mutex_lock(lock);
    assert_int_equal(pthread_create(&thread, NULL, close_first, &seg[1]), 0);
    for (int ms = 0; ms < 50; ms++) {
        const uint64_t now = reserve(1);
        assert_true(now != room);
        comm_room_return(view[0], now, comm_segment_room(BUDGET, RANKS));
        usleep(1000);
    }
    pthread_mutex_unlock(lock);
    pthread_join(thread, NULL);
    enter(reserve(1), seg);
    for (int r = 0; r < RANKS; r++)
        comm_segment_close(&seg[r]);
}

/* Rooms of small groups make way for those of larger ones, also if their owner has not looked at them since
 * all have left. */
static void test_larger(void **state)
{
    (void)state;
    enum { LARGER = 2 * BUDGET };
    comm_segment_t seg[COMM_ROOMS_OWN][RANKS];
    uint64_t room[COMM_ROOMS_OWN];
    for (int i = 0; i < COMM_ROOMS_OWN; i++)
        enter(room[i] = reserve(1), seg[i]);
    for (int i = 0; i < COMM_ROOMS_OWN; i++)
        for (int r = 0; r < RANKS; r++)
            comm_segment_close(&seg[i][r]);
    for (int i = 0; i < COMM_ROOMS_OWN; i++) {
        const uint64_t now = comm_room_reserve(view[0], LARGER, 1);
        assert_true(now & COMM_ROOM_KEPT);
        for (int k = 0; k < COMM_ROOMS_OWN; k++)
            assert_true(now != room[k]);
    }
}

/* What was reserved and returned is given out again, and so are addresses beyond the rooms that are kept. */
static void test_returned(void **state)
{
    (void)state;
    const size_t bytes = comm_segment_room(BUDGET, RANKS);
    uint64_t room[COMM_ROOMS_OWN + 2];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COMM_ROOMS_OWN + 2; i++) {
            const uint64_t now = reserve(1);
            assert_true(now && (now & COMM_ROOM_KEPT) == (i < COMM_ROOMS_OWN));
            assert_true(round == 0 || now == room[i]);
            for (int k = 0; k < i; k++)
                assert_true(now / bytes != room[k] / bytes);
            room[i] = now;
        }
        for (int i = COMM_ROOMS_OWN + 2; i-- > 0;)
            comm_room_return(view[0], room[i], bytes);
    }
}

/* With more groups at once than there are rooms to keep: the others' memory goes back at once. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = COMM_ROOMS + 10 };
    static comm_segment_t seg[MANY][RANKS];
    const blkcnt_t before = blocks();
    for (int i = 0; i < MANY; i++) {
        enter(reserve(1), seg[i]);
        assert_int_equal(seg[i][0].kept, i < COMM_ROOMS_OWN);
        use(seg[i], 1, 0);
    }
    for (int i = 0; i < MANY; i++)
        for (int r = 0; r < RANKS; r++)
            comm_segment_close(&seg[i][r]);
    assert_true((blocks() - before) * 512 <= (blkcnt_t)COMM_ROOMS_OWN * 16384);
}

/* A rank keeps only so many of others' rooms mapped, and finds each of them again. */
static void test_others(void **state)
{
    (void)state;
    enum { ROOMS = COMM_ROOMS_OWN };
    static comm_segment_t seg[3][ROOMS];
    comm_backing_t *far[4];
    const unsigned char reads[RANKS] = {1, 1};
    uint64_t room[ROOMS];
    for (int i = 0; i < ROOMS; i++)
        assert_true((room[i] = reserve(1)) & COMM_ROOM_KEPT);
    for (int v = 0; v < 3; v++)
        assert_non_null(far[v] = comm_backing_open(file, FIRST, 7, RANKS, 1, reads));
    for (int round = 0; round < 2; round++)
        for (int v = 0; v < 3; v++) {
            for (int i = 0; i < ROOMS; i++) {
                assert_int_equal(comm_segment_enter(far[v], room[i], BUDGET, RANKS, &seg[v][i]), GYRE_OK);
                assert_non_null(seg[v][i].room);
                seg[v][i].base[COMM_LINE + i] = (unsigned char)(1 + i);
            }
            for (int i = 0; i < ROOMS; i++) {
                assert_int_equal(seg[v][i].base[COMM_LINE + i], 1 + i);
                comm_segment_close(&seg[v][i]);
            }
        }
    for (int v = 0; v < 3; v++)
        comm_backing_close(far[v]);
}

/* A process that may have no more addresses gives up those of rooms that it has left. */
static void test_addresses(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* it needs addresses of its own */
#endif
    comm_segment_t seg[RANKS], more;
    uint64_t room[COMM_ROOMS_OWN];
    struct rlimit before, limit;
    long pages = 0;
    for (int i = 0; i < COMM_ROOMS_OWN; i++)
        room[i] = reserve(1);
    for (int i = 0; i < COMM_ROOMS_OWN - 1; i++) {
        enter(room[i], seg);
        for (int r = 0; r < RANKS; r++)
            comm_segment_close(&seg[r]);
    }
    FILE *f = fopen("/proc/self/statm", "r");
    assert_true(f && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    const gyre_status_t status = comm_segment_enter(view[1], room[COMM_ROOMS_OWN - 1], BUDGET, RANKS, &more);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(status, GYRE_OK);
    comm_segment_close(&more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_again, open_views, close_views),
        cmocka_unit_test_setup_teardown(test_pages, open_views, close_views),
        cmocka_unit_test_setup_teardown(test_much, open_views, close_views),
        cmocka_unit_test_setup_teardown(test_late, open_views, close_views),
        cmocka_unit_test_setup_teardown(test_leaving, open_views, close_views),
        cmocka_unit_test_setup_teardown(test_larger, open_views, close_views),
        cmocka_unit_test_setup_teardown(test_returned, open_views, close_views),
        cmocka_unit_test_setup_teardown(test_many, open_views, close_views),
        cmocka_unit_test_setup_teardown(test_others, open_views, close_views),
        cmocka_unit_test_setup_teardown(test_addresses, open_views, close_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
