// SPDX-License-Identifier: Apache-2.0
// tests/bindings/operations.cpp: every call of gyre/gyre.hpp against reference values; cpp.sh runs it.
#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <string>
#include <thread>

#include <gyre/gyre.hpp>

namespace
{

int failed = 0, checked = 0;

#define CHECK(what)                                                         \
    do {                                                                    \
        checked++;                                                          \
        if (!(what)) {                                                      \
            failed++;                                                       \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
        }                                                                   \
    } while (0)

// The call must fail with `status`, and its text must hold `part`.
template <class F> void refuses(gyre_status_t status, const char *part, F call)
{
    checked++;
    try {
        call();
        std::fprintf(stderr, "no error, expected: %s\n", part);
        failed++;
    } catch (const gyre::Error &error) {
        if (error.status() != status || std::string(error.what()).find(part) == std::string::npos) {
            std::fprintf(stderr, "status %d, expected %d: '%s' lacks '%s'\n",
                         static_cast<int>(error.status()), static_cast<int>(status), error.what(), part);
            failed++;
        }
    }
}

template <class T> std::vector<T> filled(std::size_t count, T value)
{
    return std::vector<T>(count, value);
}

template <class T> T of(int x)
{
    if constexpr (std::is_arithmetic_v<T>)
        return static_cast<T>(x);
    else // complex
        return T(static_cast<typename T::value_type>(x));
}

// Sums of 1 on rank 0, 2 on rank 1, ... in type T, in all forms.
template <class T> void sums(const gyre::Communicator &c)
{
    const int n = c.size(), me = c.rank();
    const T mine = of<T>(me + 1), all = of<T>(n * (n + 1) / 2);
    const auto send = filled<T>(5, mine);
    auto recv = filled<T>(5, T{});
    c.all_reduce(send, recv, gyre::Op::sum);
    CHECK(recv == filled<T>(5, all));
    recv = send;
    gyre::Request r = c.iall_reduce(recv, gyre::Op::sum);
    r.wait();
    CHECK(!r && recv == filled<T>(5, all));
    recv = filled<T>(5, T{});
    c.iall_reduce(send, recv, gyre::Op::sum).wait();
    CHECK(recv == filled<T>(5, all));
    c.scan(send, recv, gyre::Op::sum);
    CHECK(recv == filled<T>(5, of<T>((me + 1) * (me + 2) / 2)));
    c.iexscan(send, recv, gyre::Op::sum).wait();
    CHECK(me == 0 || recv == filled<T>(5, of<T>(me * (me + 1) / 2)));
    c.iscan(send, recv, gyre::Op::sum).wait();
    CHECK(recv == filled<T>(5, of<T>((me + 1) * (me + 2) / 2)));
    c.exscan(send, recv, gyre::Op::sum);
    CHECK(me == 0 || recv == filled<T>(5, of<T>(me * (me + 1) / 2)));
    for (int root = 0; root < n; root++) {
        recv = filled<T>(5, T{});
        c.reduce(send, recv, gyre::Op::sum, root);
        CHECK(me != root || recv == filled<T>(5, all));
        c.ireduce(send, recv, gyre::Op::sum, root).wait();
        CHECK(me != root || recv == filled<T>(5, all));
        recv = filled<T>(5, mine);
        c.broadcast(recv, root);
        CHECK(recv == filled<T>(5, of<T>(root + 1)));
        recv = filled<T>(5, mine);
        c.ibroadcast(recv, root).wait();
        CHECK(recv == filled<T>(5, of<T>(root + 1)));
    }
    const std::size_t un = static_cast<std::size_t>(n);
    auto wide = filled<T>(2 * un, mine);
    auto two = filled<T>(2, T{});
    c.reduce_scatter(wide, two, gyre::Op::sum);
    CHECK(two == filled<T>(2, all));
    c.ireduce_scatter(wide, two, gyre::Op::sum).wait();
    CHECK(two == filled<T>(2, all));
    c.reduce_scatter(wide, gyre::Op::sum);
    CHECK(wide[2 * static_cast<std::size_t>(me) + 1] == all);
    wide = filled<T>(2 * un, mine);
    c.ireduce_scatter(wide, gyre::Op::sum).wait();
    CHECK(wide[2 * static_cast<std::size_t>(me)] == all);
}

// Value k of the array that rank r sends.
int value(std::size_t r, std::size_t k)
{
    return static_cast<int>(100 * r + k);
}
std::vector<int> numbered(std::size_t r, std::size_t count)
{
    std::vector<int> v(count);
    for (std::size_t k = 0; k < count; k++)
        v[k] = value(r, k);
    return v;
}

void moves(const gyre::Communicator &c)
{
    const std::size_t n = static_cast<std::size_t>(c.size()), me = static_cast<std::size_t>(c.rank());
    std::vector<int> all;
    for (std::size_t r = 0; r < n; r++)
        for (int x : numbered(r, 3))
            all.push_back(x);
    const auto mine = numbered(me, 3);
    std::vector<int> recv(3 * n);
    c.all_gather(mine, recv);
    CHECK(recv == all);
    recv.assign(3 * n, 0);
    c.iall_gather(mine, recv).wait();
    CHECK(recv == all);
    for (int way = 0; way < 2; way++) {
        recv.assign(3 * n, 0);
        std::copy(mine.begin(), mine.end(), recv.begin() + static_cast<std::ptrdiff_t>(3 * me));
        if (way)
            c.all_gather(recv);
        else
            c.iall_gather(recv).wait();
        CHECK(recv == all);
    }

    // Rank r has r + 1 elements; blocks lie back to back, or with a hole of one element after each.
    std::vector<std::size_t> counts(n), holes(n);
    std::size_t total = 0;
    for (std::size_t r = 0; r < n; r++) {
        counts[r] = r + 1;
        holes[r] = total + r;
        total += r + 1;
    }
    std::vector<int> close, apart(total + n, -1);
    for (std::size_t r = 0; r < n; r++)
        for (std::size_t k = 0; k <= r; k++) {
            close.push_back(value(r, k));
            apart[holes[r] + k] = value(r, k);
        }
    const auto own = numbered(me, me + 1);
    std::vector<int> v(total), h(total + n, -1);
    c.all_gatherv(own, v, counts);
    CHECK(v == close);
    c.iall_gatherv(own, h, counts, holes).wait();
    CHECK(h == apart);
    std::vector<int> ones(total, 1), part(me + 1);
    c.reduce_scatterv(ones, part, counts, gyre::Op::sum);
    CHECK(part == std::vector<int>(me + 1, c.size()));
    c.ireduce_scatterv(ones, part, counts, gyre::Op::max).wait();
    CHECK(part == std::vector<int>(me + 1, 1));

    for (int root = 0; root < c.size(); root++) {
        const bool here = c.rank() == root;
        std::vector<int> at(here ? 3 * n : 0), three(3);
        c.gather(mine, at, root);
        CHECK(!here || at == all);
        at.assign(at.size(), 0);
        c.igather(mine, at, root).wait();
        CHECK(!here || at == all);
        c.scatter(at, three, root);
        CHECK(three == mine);
        three.assign(3, 0);
        c.iscatter(at, three, root).wait();
        CHECK(three == mine);
        std::vector<int> atv(here ? total : 0), ath(here ? total + n : 0, -1), ownv(me + 1);
        c.gatherv(own, atv, counts, root);
        CHECK(!here || atv == close);
        c.igatherv(own, ath, counts, root, holes).wait();
        CHECK(!here || ath == apart);
        c.scatterv(atv, ownv, counts, root);
        CHECK(ownv == own);
        ownv.assign(me + 1, 0);
        c.iscatterv(ath, ownv, counts, root, holes).wait();
        CHECK(ownv == own);
    }

    // Block p of rank r: value(r, p)
    std::vector<int> to = numbered(me, n), got(n), expected(n);
    for (std::size_t p = 0; p < n; p++)
        expected[p] = value(p, me);
    c.all_to_all(to, got);
    CHECK(got == expected);
    got.assign(n, 0);
    c.iall_to_all(to, got).wait();
    CHECK(got == expected);
    got = to;
    c.all_to_all(got);
    CHECK(got == expected);
    got = to;
    c.iall_to_all(got).wait();
    CHECK(got == expected);
    const std::vector<std::size_t> single(n, 1);
    got.assign(n, 0);
    c.all_to_allv(to, single, got, single);
    CHECK(got == expected);
    got.assign(n, 0);
    c.iall_to_allv(to, single, got, single).wait();
    CHECK(got == expected);
    std::vector<int> everyone(n);
    std::iota(everyone.begin(), everyone.end(), 0);
    got.assign(n, 0);
    c.neighbor_exchange(to, single, everyone, got, single, everyone);
    CHECK(got == expected);
    got.assign(n, 0);
    c.ineighbor_exchange(to, single, everyone, got, single, everyone).wait();
    CHECK(got == expected);

    // Around the ring, by a group, by requests, and one by one.
    const int next = (c.rank() + 1) % c.size(), before = (c.rank() + c.size() - 1) % c.size();
    int out = c.rank(), in = -1;
    gyre::Group group;
    c.send(out, next);
    c.recv(in, before);
    group.end();
    CHECK(in == before);
    in = -1;
    std::vector<gyre::Request> two;
    two.push_back(c.irecv(in, before));
    two.push_back(c.isend(out, next));
    gyre::wait_all(two);
    CHECK(in == before);
    gyre::Request barrier = c.ibarrier();
    while (!barrier.test())
        c.progress();
    c.barrier();
    {
        std::array<float, 4> dropped{1, 1, 1, 1};
        gyre::Request request = c.iall_reduce(dropped, gyre::Op::sum); // its destructor waits
        gyre::Request moved = std::move(request);
        CHECK(!request && moved);
    }
}

void others(gyre::Communicator &c)
{
    const int n = c.size(), me = c.rank();
    // Further operations and types.
    bool yes = me == 0, flag = yes;
    c.all_reduce(flag, gyre::Op::lor);
    CHECK(flag);
    flag = yes;
    c.all_reduce(flag, gyre::Op::land);
    CHECK(flag == (n == 1));
    gyre_float64_int32_t pair{static_cast<double>(-me), me};
    c.all_reduce(pair, gyre::Op::minloc);
    CHECK(pair.index == n - 1);
    double scaled = 1;
    c.all_reduce(scaled, gyre::Reduction::scaled_sum(0.5));
    CHECK(scaled >= 0.5 * n && scaled <= 0.5 * n);
    int raw[2] = {me, -me};
    c.all_reduce(raw, gyre::Op::max);
    CHECK(raw[0] == n - 1 && raw[1] == 0);
    unsigned mask = 1u << me;
    c.all_reduce(gyre::span<unsigned>(&mask, 1), gyre::Op::bor);
    CHECK(mask == (1u << n) - 1);

    gyre::Communicator twin = c.dup();
    CHECK(twin.size() == n && twin.rank() == me && twin.error() == GYRE_OK);
    gyre::Communicator half = c.split(me % 2, -me);
    CHECK(half.size() == (n + 1 - me % 2) / 2);
    CHECK(!c.split(-1));
    gyre::Communicator host = c.split(gyre::Split::host);
    CHECK(host.size() == n && host.hosts() == 1 && host.local_size() == n && host.local_rank() == me);
    const std::array<int, 1> alone{me};
    gyre::Communicator self = c.create_group(alone, static_cast<std::uint64_t>(me));
    CHECK(self.size() == 1);
    half = std::move(self); // destroys what half was
    CHECK(half.size() == 1 && !self);

    gyre::Options options;
    options.order = gyre::Order::exact;
    options.leaves = 2;
    options.tag = 7;
    twin.set(options);
    const std::array<double, 2> leaves{1e300, me ? -1e300 : 1};
    std::array<double, 1> total{};
    twin.all_reduce(leaves, total, gyre::Op::sum);
    CHECK(n != 2 || (total[0] >= 1e300 && total[0] <= 1e300));
    twin.finalize();
    CHECK(!twin);

    gyre::ExactSum sum, more;
    const std::vector<double> x{1e100, 1, -1e100}, y{1, 1, 1};
    sum.add(x);
    more.add_dot(x, y);
    sum.merge(more);
    sum.add_norm2(y);
    sum.all_reduce(c);
    CHECK(sum.value() >= 5.0 * n && sum.value() <= 5.0 * n);
    sum.reset();
    sum.add(y);
    sum.iall_reduce(c).wait();
    CHECK(sum.value() >= 3.0 * n && sum.value() <= 3.0 * n);

    gyre::SharedArray<int> shared(c, 4);
    shared[0] = me + 1;
    c.barrier();
    for (int r = 0; r < n; r++) {
        int seen = 0;
        CHECK(shared.peer(r).size() == 4 && shared.peer(r)[0] == r + 1);
        shared.get(gyre::span<int>(&seen, 1), r, 0);
        shared.flush(r);
        CHECK(seen == r + 1);
    }
    const int next = (me + 1) % n;
    shared.put(gyre::span<const int>(&me, 1), next, 2);
    shared.flush();
    c.barrier();
    CHECK(shared[2] == (me + n - 1) % n);
    CHECK(c.stats().operations > 0);
}

// The plan, made with `got` as its result, gives what the blocking call has given in `want`.
template <class V> void gives(const gyre::Plan &plan, V &got, const V &want)
{
    for (int form = 0; form < 2; form++) {
        std::fill(got.begin(), got.end(), -1);
        form ? plan.start().wait() : plan();
        CHECK(got == want);
    }
}

void plans(const gyre::Communicator &c)
{
    const std::size_t n = static_cast<std::size_t>(c.size()), me = static_cast<std::size_t>(c.rank());
    const gyre::Op sum = gyre::Op::sum;
    std::vector<int> one(1, c.rank() + 1), odd(n * n + 1), wide(n), want1(1, -1), got1(1), want(n, -1),
        got(n);
    std::iota(wide.begin(), wide.end(), 10 * c.rank());
    const std::vector<std::size_t> counts(n, 1);
    const int right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
    c.all_reduce(wide, want, sum);
    gives(c.plan_all_reduce(wide, got, sum), got, want);
    c.scan(wide, want, sum);
    gives(c.plan_scan(wide, got, sum), got, want);
    c.reduce(wide, want, sum, 0);
    if (me == 0)
        gives(c.plan_reduce(wide, got, sum, 0), got, want);
    else
        gives(c.plan_reduce(wide, got, sum, 0), got, filled<int>(n, -1));
    c.reduce_scatter(wide, want1, sum);
    gives(c.plan_reduce_scatter(wide, got1, sum), got1, want1);
    gives(c.plan_reduce_scatterv(wide, got1, counts, sum), got1, want1);
    c.all_gather(one, want);
    gives(c.plan_all_gather(one, got), got, want);
    gives(c.plan_all_gatherv(one, got, counts), got, want);
    want = me == 0 ? want : filled<int>(n, -1);
    gives(c.plan_gather(one, got, 0), got, want);
    gives(c.plan_gatherv(one, got, counts, 0), got, want);
    c.scatter(wide, want1, 0);
    gives(c.plan_scatter(wide, got1, 0), got1, want1);
    gives(c.plan_scatterv(wide, got1, counts, 0), got1, want1);
    c.all_to_all(wide, want);
    gives(c.plan_all_to_all(wide, got), got, want);
    gives(c.plan_all_to_allv(wide, counts, got, counts), got, want);
    const std::array<std::size_t, 1> single{1};
    const std::array<int, 1> to{right}, from{left};
    want1[0] = left + 1;
    gives(c.plan_neighbor_exchange(one, single, to, got1, single, from), got1, want1);
    want1[0] = -1;
    c.exscan(one, want1, sum);
    gives(c.plan_exscan(one, got1, sum), got1, want1);
    c.plan_barrier()();
    int root = c.rank() + 5;
    const gyre::Plan broadcast = c.plan_broadcast(root, c.size() - 1);
    broadcast();
    CHECK(root == c.size() - 1 + 5);
    double x = 1e16 * (c.rank() == 0) + 1;
    gyre::Plan plan = c.plan_all_reduce(x, sum);
    gyre::Options exact;
    exact.order = gyre::Order::exact;
    exact.tag = 3;
    plan.set(exact);
    plan();
    CHECK(x >= 1e16);
    gyre::Request under_way = plan.start();
    refuses(GYRE_ERR_INVALID, "gyre: plan_all_reduce: ", [&] { plan(); });
    under_way.wait();
    plan = gyre::Plan();
    CHECK(!plan);
    refuses(GYRE_ERR_INVALID, "gyre: plan", [&] { plan(); });
    refuses(GYRE_ERR_INVALID, "gyre: plan_all_gather: recv has", [&] { (void)c.plan_all_gather(wide, odd); });
}

void buckets(const gyre::Communicator &c)
{
    const std::vector<std::size_t> counts{3, 5, 7};
    double landed = 0;
    std::size_t seen = 0;
    gyre::Buckets<double> b(c, counts, gyre::Op::max, true, 8,
                            [&](const gyre::Buckets<double>::Bucket &bucket) {
                                landed = std::accumulate(bucket.shard.begin(), bucket.shard.end(), landed);
                                seen++;
                            });
    for (std::size_t i : {2u, 0u, 1u}) {
        for (double &x : b.tensor(i))
            x = c.rank() + 1;
        b.ready(i);
    }
    refuses(GYRE_ERR_INVALID, "gyre: buckets_ready: ", [&] { b.ready(0); });
    b.wait();
    c.all_reduce(landed, gyre::Op::sum);
    CHECK(landed == 15 * c.size() && seen == b.size() && b.get(0).first_tensor == 0);
    CHECK(b.times().total_s >= 0);
    refuses(GYRE_ERR_INVALID, "gyre: buckets_wait: ", [&] { b.wait(); });
    refuses(GYRE_ERR_INVALID, "gyre: buckets_tensor: there is no tensor 3", [&] { (void)b.tensor(3); });
    gyre::Buckets<int> throws(
        c, gyre::sizes(counts.data(), 1), gyre::Op::sum, false, 0,
        [](const gyre::Buckets<int>::Bucket &) { throw gyre::Error(GYRE_ERR_IO, "of the program"); });
    refuses(GYRE_ERR_IO, "of the program", [&] {
        throws.ready(0);
        throws.wait();
    });
    const gyre::Buckets<int> moved(std::move(throws));
    refuses(GYRE_ERR_INVALID, "buckets_ready: buckets is NULL", [&] { throws.ready(0); });
    refuses(GYRE_ERR_INVALID, "buckets_wait: buckets is NULL", [&] { throws.wait(); });
    refuses(GYRE_ERR_INVALID, "gyre: buckets_tensor: ", [&] { (void)throws.tensor(0); });
    CHECK(moved.size() == 1 && throws.size() == 0);
    CHECK(c.place(c.rank()).host == 0);
}

// Rank 0 marks its tensor before the others do.
void failing_buckets(const gyre::Communicator &c)
{
    const std::array<std::size_t, 1> one{1};
    const gyre::Communicator twin = c.dup();
    refuses(GYRE_ERR_IO, "thrown", [&] { // nothing is under way: the communicator lives
        const gyre::Buckets<int> idle(c, one, gyre::Op::sum);
        throw gyre::Error(GYRE_ERR_IO, "thrown");
    });
    gyre::Buckets<int> throws(c, one, gyre::Op::sum, false, 0, [](const gyre::Buckets<int>::Bucket &) {
        throw gyre::Error(GYRE_ERR_IO, "of the program");
    });
    if (c.rank() == 0) {
        throws.ready(0);
        twin.barrier();
        c.barrier(); // the bucket has landed
        refuses(GYRE_ERR_INVALID, "marked ready before", [&] { throws.ready(0); });
        refuses(GYRE_ERR_IO, "of the program", [&] { throws.wait(); });
        refuses(GYRE_ERR_IO, "thrown", [&] {
            gyre::Buckets<int> waits(twin, one, gyre::Op::sum);
            waits.ready(0);
            throw gyre::Error(GYRE_ERR_IO, "thrown");
        });
        c.barrier();
    } else {
        twin.barrier();
        refuses(GYRE_ERR_IO, "of the program", [&] {
            throws.ready(0);
            throws.wait();
        });
        c.barrier();
        c.barrier(); // rank 0 has ended its buckets, and waited for nobody
        while (twin.error() == GYRE_OK) // the news goes another way than the barrier
            std::this_thread::yield();
        refuses(GYRE_ERR_ABORTED, "an exception left the scope of buckets", [&] {
            gyre::Buckets<int> waits(twin, one, gyre::Op::sum);
            waits.ready(0);
            waits.wait();
        });
    }
}

void errors(gyre::Communicator &c)
{
    const std::size_t n = static_cast<std::size_t>(c.size());
    std::vector<double> two(2), odd(2 * n + 1), three(3);
    const std::vector<std::size_t> counts(n, 1), few(n + 1, 1), far(n, 1000);
    const gyre_status_t invalid = GYRE_ERR_INVALID;
    refuses(invalid, "gyre: all_reduce: send has 3 elements, it must have 2",
            [&] { c.all_reduce(three, two, gyre::Op::sum); });
    refuses(invalid, "gyre: iall_reduce: send has 3",
            [&] { (void)c.iall_reduce(three, two, gyre::Op::sum); });
    refuses(invalid, "gyre: reduce_scatter: send has", [&] { c.reduce_scatter(odd, two, gyre::Op::sum); });
    refuses(invalid, "gyre: all_gather: recv has", [&] { c.all_gather(two, odd); });
    refuses(invalid, "gyre: scan: recv has", [&] { c.scan(two, three, gyre::Op::sum); });
    refuses(invalid, "gyre: exscan: recv has", [&] { c.exscan(two, three, gyre::Op::sum); });
    refuses(invalid, "gyre: all_to_all: recv has",
            [&] { c.all_to_all(gyre::span<double>(two.data(), 0), three); });
    refuses(invalid, "gyre: all_gatherv: the array of counts has", [&] { c.all_gatherv(two, odd, few); });
    refuses(invalid, "gyre: all_gatherv: block 0 (1000 elements at 0)",
            [&] { c.all_gatherv(two, odd, far); });
    refuses(invalid, "gyre: all_to_allv: block 0", [&] { c.all_to_allv(odd, counts, odd, far); });
    refuses(invalid, "gyre: reduce_scatterv: recv has",
            [&] { c.reduce_scatterv(odd, three, counts, gyre::Op::sum); });
    refuses(invalid, "gyre: gather: recv has", [&] { c.gather(two, odd, c.rank()); });
    refuses(invalid, "gyre: scatter: send has", [&] { c.scatter(odd, two, c.rank()); });
    refuses(invalid, "gyre: gatherv: block 0", [&] { c.gatherv(two, odd, far, c.rank()); });
    refuses(invalid, "gyre: scatterv: block 0", [&] { c.scatterv(odd, two, far, c.rank()); });
    refuses(invalid, "gyre: broadcast: ", [&] { c.broadcast(two, 99); });
    refuses(invalid, "gyre: send: ", [&] { c.send(two, 99); });
    refuses(GYRE_ERR_TYPE, "gyre: all_reduce: ", [&] { c.all_reduce(two, gyre::Op::band); });
    refuses(invalid, "gyre: split: ", [&] { (void)gyre::Communicator().split(0); });
    refuses(invalid, "gyre: barrier: the communicator is empty", [] { gyre::Communicator().barrier(); });
    refuses(invalid, "gyre: init: ", [] { (void)gyre::Communicator::init(); });
    refuses(invalid, "gyre: mem_peer: ", [&] { (void)gyre::SharedArray<int>(c, 1).peer(99); });
    gyre::Communicator dead = c.dup();
    dead.abort("as the test wants");
    refuses(GYRE_ERR_ABORTED, "as the test wants", [&] { dead.barrier(); });
    CHECK(dead.error() == GYRE_ERR_ABORTED);
    // One that leaves the scope of a group starts none of its calls.
    int never_sent = -1;
    refuses(invalid, "gyre: scan: recv has", [&] {
        gyre::Group group;
        c.recv(never_sent, (c.rank() + 1) % c.size());
        c.scan(two, three, gyre::Op::sum);
    });
    c.barrier();
    // An exception that leaves the scope of a request does not wait for the other ranks.
    if (n > 1)
        refuses(invalid, "thrown", [&] {
            const gyre::Communicator twin = c.dup();
            std::array<int, 1> never{};
            gyre::Request request = twin.irecv(never, (c.rank() + 1) % c.size());
            c.barrier(); // all have their request before one aborts
            throw gyre::Error(GYRE_ERR_INVALID, "thrown");
        });
}

} // namespace

int main()
{
    try {
        gyre::Communicator world = gyre::Communicator::init();
        sums<float>(world);
        sums<double>(world);
        sums<std::complex<float>>(world);
        sums<std::complex<double>>(world);
        sums<std::int8_t>(world);
        sums<std::uint16_t>(world);
        sums<int>(world);
        sums<std::int64_t>(world);
        sums<unsigned long>(world);
        moves(world);
        others(world);
        plans(world);
        buckets(world);
        if (world.size() > 1)
            failing_buckets(world);
        errors(world);
        world.all_reduce(failed, gyre::Op::sum);
        if (world.rank() == 0)
            std::printf("%d checks, %d failed\n", checked, failed);
        world.finalize();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "operations: %s\n", error.what());
        return 1;
    }
    return failed != 0;
}
