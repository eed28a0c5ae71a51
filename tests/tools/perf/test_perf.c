/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/tools/perf/test_perf.c: gyre-perf without its main: the command line, what a size means for each
 * collective, and that the expected results are those that the reduction kernels give, bit for bit, for
 * many n. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/kernels/kernels.h"
#include "tools/gyre-perf/perf.h"

enum { MAX_N = 600, MAX_ARGS = 40 };

/* ---- the command line ---- */
static char why[512];
static perf_options_t parsed;

/* Parses words separated by blanks; the program's name first. */
static int parse(const char *line)
{
    static char copy[256];
    char *argv[MAX_ARGS] = {NULL};
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word && argc < MAX_ARGS - 1; word = strtok(NULL, " "))
        argv[argc++] = word;
    why[0] = '\0';
    FILE *out = tmpfile();
    assert_non_null(out);
    int code = perf_options_parse(argc, argv, &parsed, out, why, sizeof why);
    if (code < 0)
        assert_true(ftell(out) > 0);
    else
        assert_int_equal(ftell(out), 0);
    fclose(out);
    return code;
}

static void test_options(void **state)
{
    (void)state;
    assert_int_equal(parse("gyre-perf all_reduce"), PERF_OK);
    assert_string_equal(parsed.coll->name, "all_reduce");
    assert_true(parsed.min_bytes == 32u << 20 && parsed.max_bytes == 32u << 20 && parsed.iters == 20);
    assert_true(parsed.out_of_place && parsed.in_place && parsed.windows && parsed.check == 1);
    assert_int_equal(
        parse("gyre-perf -b 8 -e 64M -f 4 -d all -o all -r all -n 7 -w 0 -m 3 -N 2 -c 0 -a 3 -T 2.5 "
              "broadcast"),
        PERF_OK);
    assert_true(parsed.min_bytes == 8 && parsed.max_bytes == 64u << 20 && parsed.step_factor == 4);
    assert_true(parsed.first_type == 0 && parsed.last_type == GYRE_TYPE_COUNT - 1 && parsed.root == -1);
    assert_true(parsed.first_op == PERF_SUM && parsed.last_op == PERF_MULSUM && parsed.iters == 7);
    assert_true(parsed.warmup == 0 && parsed.aggregate == 3 && parsed.cycles == 2 && parsed.check == 0);
    assert_true(parsed.average == 3 && parsed.timeout_s > 2.49 && parsed.timeout_s < 2.51);
    assert_int_equal(
        parse("gyre-perf reduce --minbytes 1K --maxbytes=2K --stepbytes 512 --datatype bf16 --op "
              "scaled_sum --root 2 --check 3"),
        PERF_OK);
    assert_true(parsed.min_bytes == 1024 && parsed.max_bytes == 2048 && parsed.step_bytes == 512);
    assert_true(parsed.first_type == GYRE_BFLOAT16 && parsed.last_type == GYRE_BFLOAT16 && parsed.root == 2);
    assert_true(parsed.first_op == PERF_MULSUM && parsed.check == 3);
    assert_int_equal(
        parse("gyre-perf all_reduce --inplace 0 -u 3 -R 0 -S -g 1 -t 1 --transport ucx --order fast"),
        PERF_OK);
    assert_true(parsed.out_of_place && !parsed.in_place && parsed.misalign == 3 && !parsed.windows);
    assert_true(parsed.timestamps);
    assert_string_equal(parsed.transport, "ucx");
    assert_true(parsed.gpus == 1 && !parsed.cuda);
    assert_int_equal(parse("gyre-perf all_reduce --gpus 8"), PERF_OK);
    assert_true(parsed.gpus == 8 && parsed.cuda);
    assert_int_equal(parse("gyre-perf all_reduce -p 1 -z 0 -G 0 -C 0 -y 0 -x 0 -M 0 -I 0 -n 9"), PERF_OK);
    assert_int_equal(parsed.iters, 9);
    assert_int_equal(parse("gyre-perf all_reduce --parallel_init 0 --blocking 0 --cudagraph 0"), PERF_OK);
    assert_int_equal(parse("gyre-perf all_reduce --inplace 1"), PERF_OK);
    assert_true(!parsed.out_of_place && parsed.in_place);
    assert_int_equal(parse("gyre-perf all_reduce -b 4KiB -e 1g -f 2"), PERF_OK);
    assert_true(parsed.min_bytes == 4096 && parsed.max_bytes == 1u << 30);
    assert_int_equal(parse("gyre-perf all_reduce -Sn3 --warm 2 --agg-iters=4"), PERF_OK);
    assert_true(parsed.timestamps && parsed.iters == 3 && parsed.warmup == 2 && parsed.aggregate == 4);
    assert_int_equal(parse("gyre-perf --help"), -1);
    assert_int_equal(parse("gyre-perf --version"), -1);
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(parse("/usr/bin/all_reduce_perf -b 8 -e 8"), PERF_OK);
    assert_string_equal(parsed.coll->name, "all_reduce");
    assert_int_equal(parse("alltoallv_perf -b 8 -e 8"), PERF_OK);
    assert_string_equal(parsed.coll->name, "all_to_allv");
    assert_int_equal(parse("gyre-perf alltoall"), PERF_OK);
    assert_string_equal(parsed.coll->name, "all_to_all");
    for (int i = 0; i < perf_coll_count; i++)
        assert_ptr_equal(perf_coll_find(perf_colls[i].name), &perf_colls[i]);
    assert_null(perf_coll_find("gyre-perf"));
    assert_null(perf_coll_find("_perf"));
    assert_null(perf_coll_find("all"));
}

static void test_bad_options(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"gyre-perf", "which collective"},
        {"gyre-perf all_redduce", "all_redduce"},
        {"gyre-perf all_reduce reduce", "reduce"},
        {"gyre-perf all_reduce -b 8M -e 8", "larger than the last"},
        {"gyre-perf all_reduce -b 8 -e 64 -i 0", "step of 0"},
        {"gyre-perf all_reduce -b x", "--minbytes x: wants a size such as"},
        {"gyre-perf all_reduce -b 16777216T", "--minbytes 16777216T"},
        {"gyre-perf all_reduce --itres 3", "unknown option --itres (did you mean --iters?)"},
        {"gyre-perf all_reduce --st 3", "--st is the beginning of --stepbytes and --stepfactor"},
        {"gyre-perf all_reduce --tune", "--tune comes first"},
        {"gyre-perf all_reduce --order none", "--order none: wants canonical|fast|exact|leaves"},
        {"gyre-perf all_reduce --leaves 3", "--leaves 3: only with --order leaves"},
        {"gyre-perf scan --order leaves", "no leaves of scans"},
        {"gyre-perf all_reduce -o mulsum --order leaves,fast", "no leaves of scans"},
        {"gyre-perf all_reduce --inplace 1 --order leaves", "nor in place"},
        {"gyre-perf all_reduce --leaves 1025 --order leaves", "--leaves 1025"},
        {"gyre-perf all_reduce -r -2", "--root -2: wants a rank, or all"},
        {"gyre-perf all_reduce --memory gpu", "--memory gpu: wants one of host|cuda"},
        {"gyre-perf all_reduce -m 4097", "--agg_iters 4097: wants a whole number from 1 to 4096"},
        {"gyre-perf all_reduce -u 4097", "--unalign 4097"},
        {"gyre-perf all_reduce -n 0", "--iters 0"},
        {"gyre-perf all_reduce -f 0", "--stepfactor 0"},
        {"gyre-perf all_reduce -d float8", "float8"},
        {"gyre-perf all_reduce -o xor", "xor"},
        {"gyre-perf all_reduce -a 4", "--average 4"},
        {"gyre-perf all_reduce -g 65", "--ngpus 65"},
        {"gyre-perf all_reduce -g 8 --memory host", "not with --memory host"},
        {"gyre-perf all_reduce -g 2 --streams 2", "not together with --streams"},
        {"gyre-perf barrier -g 2", "no buffers"},
        {"gyre-perf all_reduce -p 2", "--parallel_init 2"},
        {"gyre-perf all_reduce -z 4", "--blocking 4"},
        {"gyre-perf all_reduce -G 20", "--cudagraph 20"},
        {"gyre-perf all_reduce -C 1", "--report_cputime 1"},
        {"gyre-perf all_reduce -y 1", "--stream_null 1"},
        {"gyre-perf all_reduce -x 1", "--cta_policy 1"},
        {"gyre-perf all_reduce -M 2", "--memory_report 2"},
        {"gyre-perf all_reduce -T nan", "--timeout"},
        {"gyre-perf all_reduce --transport tcp", "--transport tcp"},
        {"gyre-perf all_reduce --inplace 2", "--inplace 2"},
        {"gyre-perf all_reduce --frobnicate", "--frobnicate"},
        {"gyre-perf all_reduce -Q", "-Q"},
        {"gyre-perf all_reduce -b", "needs an argument"},
        {"gyre-perf sendrecv --inplace 1", "no in-place form"},
        {"gyre-perf all_reduce --algo nonesuch", "no such algorithm; all_reduce has: "},
        {"gyre-perf all_reduce --algo bruck", "does not serve this collective; all_reduce has: "},
        {"gyre-perf all_to_allv --algo bruck", "does not serve"}, /* it needs equal blocks */
        {"gyre-perf sendrecv --algo ring", "none to choose from"},
        {"gyre-perf neighbor_exchange --algo ring", "none to choose from"},
        {"gyre-perf neighbor_exchange --inplace 1", "no in-place form"},
        {"gyre-perf neighbor_exchange --explain", "neighbor_exchange has no algorithm"},
        {"gyre-perf all_reduce -d bool -o sum", "there is no sum of bool"},
        {"gyre-perf reduce -d float -o minloc", "there is no minloc of float"},
        {"gyre-perf all_reduce --order exact -o prod",
         "--order exact has no prod of float: use --order canonical"},
        {"gyre-perf reduce --order fast,exact -d double -o all", "--order exact has no prod of double"},
        {"gyre-perf all-reduce", "\"all-reduce\" is no collective (did you mean all_reduce?)"},
        {"gyre-perf allreduce", "(did you mean all_reduce?)"},
        {"gyre-perf mesages", "is no collective (did you mean messages?)"},
        {"gyre-perf pingpong",
         "nor one of init, latency, messages, bucket, overlap, recover; --help lists them"},
        {"gyre-perf scan -o avg", "scan: there is no avg of float"},
        {"gyre-perf exscan --ngpus 2", "exscan: there is no sum of float on a device"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse(bad[i][0]), PERF_USAGE);
        if (!strstr(why, bad[i][1]))
            fail_msg("\"%s\" says \"%s\", without \"%s\"", bad[i][0], why, bad[i][1]);
    }
}

/* ---- sizes and expected results ---- */
static size_t arrays[4][MAX_N];

static perf_case_t case_of(const char *coll, gyre_type_t type, perf_op_t op, int root, int rank, int n,
                           size_t bytes)
{
    perf_case_t c = {.rank = rank,
                     .n = n,
                     .counts = arrays[0],
                     .displs = arrays[1],
                     .rcounts = arrays[2],
                     .rdispls = arrays[3]};
    perf_case_set(&c, perf_coll_find(coll), type, op, root, bytes);
    return c;
}

static void test_counts(void **state)
{
    (void)state;
    perf_case_t c = case_of("all_gather", GYRE_FLOAT32, PERF_SUM, -1, 1, 3, 100);
    assert_true(c.param == 8 && c.send_count == 8 && c.recv_count == 24 && c.bytes == 96);
    assert_true(perf_case_send_offset(&c) == 8 && perf_case_recv_offset(&c) == 0);
    c = case_of("reduce_scatter", GYRE_FLOAT32, PERF_SUM, -1, 2, 3, 100);
    assert_true(c.send_count == 24 && c.recv_count == 8 && perf_case_recv_offset(&c) == 16);
    c = case_of("all_reduce", GYRE_FLOAT32, PERF_SUM, -1, 2, 3, 100);
    assert_true(c.param == 25 && c.send_count == 25 && c.recv_count == 25 && c.bytes == 100);
    c = case_of("gather", GYRE_FLOAT32, PERF_SUM, 0, 1, 8, 4); /* fewer bytes than ranks: nothing */
    assert_true(c.param == 0 && c.bytes == 0 && c.recv_count == 0);
    double algbw, busbw;
    c = case_of("all_reduce", GYRE_INT8, PERF_SUM, -1, 0, 4, 1000000);
    perf_case_bandwidth(&c, 1e-3, &algbw, &busbw);
    assert_true(algbw > 0.999 && algbw < 1.001 && busbw > 1.499 && busbw < 1.501);
    for (int n = 1; n <= 9; n++) { /* uneven blocks never outgrow the size, and pairs agree on theirs */
        for (int rank = 0; rank < n; rank++) {
            c = case_of("all_gatherv", GYRE_INT16, PERF_SUM, -1, rank, n, 1000);
            assert_true(c.bytes <= 1000 && c.send_count == c.counts[rank]);
            size_t received[MAX_N];
            c = case_of("all_to_allv", GYRE_INT16, PERF_SUM, -1, rank, n, 1000);
            assert_true(c.bytes <= 1000);
            memcpy(received, c.rcounts, (size_t)n * sizeof *received);
            for (int p = 0; p < n; p++) {
                perf_case_t peer = case_of("all_to_allv", GYRE_INT16, PERF_SUM, -1, p, n, 1000);
                assert_true(peer.counts[rank] == received[p]);
            }
        }
    }
}

/* What the library's arithmetic makes of the inputs must be what the tool expects: this is where a scheme
 * that is not exact would show. */
static void check_reduction(const char *coll, gyre_type_t type, perf_op_t op, int n)
{
    enum { COUNT = 24 };
    static uint64_t rows[MAX_N][2 * COUNT];
    const void *srcs[MAX_N];
    unsigned char result[COUNT * 16];
    perf_case_t c = case_of(coll, type, op, -1, n / 2, n, COUNT * gyre_type_size(type));
    const int inputs = coll_op_inputs(c.coll->op, n, n / 2);
    if (!inputs || !perf_has(c.coll, type, op, 0))
        return;
    for (int r = 0; r < n; r++) {
        unsigned char *row = (unsigned char *)rows[r];
        for (size_t i = 0; i < COUNT; i++)
            for (size_t at = 0; at < c.elem; at += 8) {
                uint64_t bits = perf_input_word(&c, r, 5, i, at > 0);
                memcpy(row + i * c.elem + at, &bits, c.elem - at < 8 ? c.elem - at : 8);
            }
        if (op == PERF_MULSUM)
            coll_kernel_scale(type, row, row, COUNT, perf_scale(r));
        srcs[r] = row;
    }
    coll_kernel_reduce(op == PERF_MULSUM ? GYRE_SUM : (gyre_redop_kind_t)op, type, result, srcs, inputs,
                       COUNT);
    if (op == PERF_AVG)
        coll_kernel_divide(type, result, COUNT, n);
    for (size_t at = 0; at < COUNT * c.elem; at += c.elem < 8 ? c.elem : 8) {
        const size_t i = at / c.elem;
        uint64_t got = 0, want = 0;
        memcpy(&got, result + at, c.elem < 8 ? c.elem : 8);
        assert_true(perf_expected_word(&c, 5, i, at % c.elem > 0, &want));
        if (got != want)
            fail_msg("%s %s %s n %d element %zu: kernels %llx, expected %llx", coll, perf_op_name(op),
                     gyre_type_name(type), n, i, (unsigned long long)got, (unsigned long long)want);
    }
}

static void test_reductions(void **state)
{
    (void)state;
    for (gyre_type_t type = 0; type < GYRE_TYPE_COUNT; type++) {
        for (perf_op_t op = 0; op < PERF_OPS; op++) {
            for (int n = 1; n <= 17; n++) {
                check_reduction("all_reduce", type, op, n);
                check_reduction("scan", type, op, n);
                check_reduction("exscan", type, op, n);
            }
            check_reduction("scan", type, op, 64);
            check_reduction("all_reduce", type, op, 64);
            check_reduction("all_reduce", type, op, 129);
            check_reduction("all_reduce", type, op, MAX_N);
        }
    }
}

/* Different ranks, elements and runs must differ, or a misplaced block would pass. */
static void test_inputs_differ(void **state)
{
    (void)state;
    perf_case_t c = case_of("all_gather", GYRE_UINT32, PERF_SUM, -1, 0, 8, 4096);
    for (size_t i = 0; i < 100; i++) {
        assert_true(perf_input(&c, 0, 1, i) != perf_input(&c, 1, 1, i));
        assert_true(perf_input(&c, 0, 1, i) != perf_input(&c, 0, 2, i));
        assert_true(perf_input(&c, 0, 1, i) != perf_input(&c, 0, 1, i + 1));
    }
}

/* Moves the blocks by the letter of include/gyre/collectives.h and compares. */
static void test_movements(void **state)
{
    (void)state;
    static const char *const colls[] = {"all_gather", "all_gatherv", "gather",
                                        "gatherv",    "scatter",     "scatterv"};
    for (int n = 1; n <= 7; n++) {
        for (int rank = 0; rank < n; rank++) {
            for (size_t k = 0; k < sizeof colls / sizeof *colls; k++) {
                const int root = n / 2;
                perf_case_t c = case_of(colls[k], GYRE_UINT64, PERF_SUM, root, rank, n, 1000);
                size_t at = 0;
                uint64_t bits;
                for (int r = 0; r < n; r++) {
                    for (size_t i = 0; i < c.counts[r]; i++, at++) {
                        if (c.coll->op == COLL_SCATTER) {
                            if (r == rank) {
                                assert_true(perf_expected(&c, 1, i, &bits));
                                assert_true(bits == perf_input(&c, root, 1, at));
                            }
                        } else if (c.coll->op == COLL_ALL_GATHER || rank == root) {
                            assert_true(perf_expected(&c, 1, at, &bits));
                            assert_true(bits == perf_input(&c, r, 1, i));
                        }
                    }
                }
                if (c.coll->op == COLL_GATHER && rank != root)
                    assert_false(perf_expected(&c, 1, 0, &bits));
                assert_false(perf_expected(&c, 1, c.recv_count, &bits));
            }
        }
    }
}

static void test_all_to_all_expected(void **state)
{
    (void)state;
    static const char *const colls[] = {"all_to_all", "all_to_allv"};
    for (int k = 0; k < 2; k++) {
        for (int n = 1; n <= 7; n++) {
            for (int rank = 0; rank < n; rank++) {
                for (int from = 0; from < n; from++) {
                    perf_case_t sender = case_of(colls[k], GYRE_UINT64, PERF_SUM, -1, from, n, 1000);
                    const size_t start = sender.displs[rank], count = sender.counts[rank];
                    perf_case_t c = case_of(colls[k], GYRE_UINT64, PERF_SUM, -1, rank, n, 1000);
                    assert_true(c.rcounts[from] == count);
                    for (size_t i = 0; i < count; i++) {
                        uint64_t bits;
                        assert_true(perf_expected(&c, 1, c.rdispls[from] + i, &bits));
                        assert_true(bits == perf_input(&c, from, 1, start + i));
                    }
                }
            }
        }
    }
}

/* Plays the messages of all ranks: the first block from a rank to another is the first there, and so on. */
static void test_neighbors_expected(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        for (int rank = 0; rank < n; rank++) {
            perf_case_t c = case_of("neighbor_exchange", GYRE_UINT64, PERF_SUM, -1, rank, n, 1000);
            const perf_neighbors_t here = perf_neighbors(&c);
            assert_true(c.bytes == 1000 && c.send_count == 125 && c.recv_count == 125);
            assert_true(c.counts[0] == 62 && c.counts[1] == 63);
            for (int k = 0, at = 0; k < 2; at += (int)c.counts[k++]) {
                perf_case_t peer =
                    case_of("neighbor_exchange", GYRE_UINT64, PERF_SUM, -1, here.from[k], n, 1000);
                const perf_neighbors_t there = perf_neighbors(&peer);
                const int earlier = k == 1 && here.from[0] == here.from[1];
                int block = there.to[0] == rank && !earlier ? 0 : 1;
                assert_true(there.to[block] == rank);
                c = case_of("neighbor_exchange", GYRE_UINT64, PERF_SUM, -1, rank, n, 1000);
                for (size_t i = 0; i < c.counts[k]; i++) {
                    uint64_t bits;
                    assert_true(perf_expected(&c, 1, (size_t)at + i, &bits));
                    assert_true(bits == perf_input(&c, here.from[k], 1, c.displs[block] + i));
                    assert_true(perf_expected_run(&c, (size_t)at + i) == c.counts[k] - i);
                }
            }
        }
    }
}

/* Plays the collective by hand at one rank, then spoils one thing at a time: each must be counted. */
static void test_check(void **state)
{
    (void)state;
    /* more than two periods of inputs in every block; and a few elements only */
    static const size_t sizes[] = {PERF_PERIOD * 2 * 3 * 3, 600};
    static unsigned char room[PERF_PERIOD * 2 * 3 * 3 + 2 * PERF_GUARD_BYTES];
    unsigned char *base = room + PERF_GUARD_BYTES;
    static const char *const colls[] = {"all_reduce", "all_gather", "reduce_scatter",
                                        "reduce",     "scatter",    "all_to_allv"};
    FILE *saved = stderr; /* what it says is not looked at here */
    FILE *out = tmpfile();
    assert_non_null(out);
    for (size_t k = 0; k < sizeof colls / sizeof *colls * 2; k++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            int told = 0;
            perf_case_t c = case_of(colls[k / 2], GYRE_FLOAT16, PERF_SUM, 0, 1, 3, sizes[k % 2]);
            size_t at = in_place ? perf_case_recv_offset(&c) : 0;
            perf_fill_poison(base, c.bytes);
            if (in_place)
                perf_fill_input(&c, 1, 1, base);
            for (size_t i = 0; i < c.recv_count; i++) {
                uint64_t bits;
                assert_true(perf_expected(&c, 1, i, &bits));
                memcpy(base + (at + i) * c.elem, &bits, c.elem);
            }
            stderr = out;
            uint64_t right = perf_check_range(&c, 1, in_place, 0, base, &told);
            base[-1] ^= 1;
            base[c.bytes] ^= 1;
            uint64_t beside = perf_check_range(&c, 1, in_place, 0, base, &told);
            base[-1] ^= 1;
            base[c.bytes] ^= 1;
            uint64_t result = 0, other_run = 0;
            if (c.recv_count > 0) { /* the last element of the result, by its last bit */
                base[(at + c.recv_count - 1) * c.elem] ^= 1;
                result = perf_check_range(&c, 1, in_place, 0, base, &told);
                base[(at + c.recv_count - 1) * c.elem] ^= 1;
                other_run = perf_check_range(&c, 2, in_place, 0, base, &told);
            } else { /* a rank that receives nothing: nothing may change */
                base[c.bytes - 1] ^= 1;
                result = perf_check_range(&c, 1, in_place, 0, base, &told);
                other_run = c.bytes;
            }
            stderr = saved;
            assert_true(right == 0 && beside == 2 && result == 1 && other_run > c.recv_count / 2);
            if (!in_place) { /* an input that was written to */
                perf_fill_poison(base, c.bytes);
                perf_fill_input(&c, 1, 0, base);
                stderr = out;
                right = perf_check_range(&c, 1, 0, 1, base, &told);
                base[c.bytes / 2] ^= 1;
                result = perf_check_range(&c, 1, 0, 1, base, &told);
                stderr = saved;
                assert_true(right == 0 && result == 1);
            }
        }
    }
    fclose(out);
}

static void test_histogram(void **state)
{
    (void)state;
    static perf_histogram_t h;
    perf_histogram_clear(&h);
    assert_true(perf_histogram_percentile(&h, 50.0) < 1e-9);
    for (int i = 1; i <= 1000; i++)
        perf_histogram_add(&h, i * 1000);
    double p50 = perf_histogram_percentile(&h, 50.0), p99 = perf_histogram_percentile(&h, 99.0);
    assert_true(p50 > 500e3 * 0.98 && p50 < 500e3 * 1.02);
    assert_true(p99 > 990e3 * 0.98 && p99 < 990e3 * 1.02);
    assert_true(perf_histogram_percentile(&h, 100.0) <= 1e6 && h.min == 1000 && h.max == 1000000);
    perf_histogram_clear(&h);
    perf_histogram_add(&h, 7); /* one sample is every percentile, exactly */
    assert_true(perf_histogram_percentile(&h, 1.0) > 6.99 && perf_histogram_percentile(&h, 99.0) < 7.01);
    perf_histogram_add(&h, INT64_MAX);
    assert_true(perf_histogram_percentile(&h, 100.0) > 1e12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_inputs_differ),
        cmocka_unit_test(test_movements),
        cmocka_unit_test(test_all_to_all_expected),
        cmocka_unit_test(test_neighbors_expected),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_histogram),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
