// SPDX-License-Identifier: Apache-2.0
// gyre/gyre.hpp: Gyre for C++17 and later, header only. Link as for C: `pkg-config --cflags --libs gyre`.
//
// Relies on gyre/gyre.h, whose comments say what each operation does. Promises:
//  - Communicator, Request, Array, SharedArray, ExactSum and Group own what they stand for, and
//    are move-only.
//  - Buffers are contiguous containers, arrays, spans, or single elements. The element type gives
//    Gyre's type.
//  - The size of each buffer is checked before the call. Errors are exceptions of type gyre::Error.
//  - No destructor throws, and none waits for another rank after an exception: it aborts the communicator
//    first.
// docs/cpp.md has examples. Longer than 600 lines: each collective stands here twice, blocking and not.
#ifndef GYRE_GYRE_HPP
#define GYRE_GYRE_HPP

#include <gyre/gyre.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

namespace gyre
{

// What every failed call throws. what() is Gyre's text, with the name of the call first.
class Error : public std::runtime_error
{
  public:
    Error(gyre_status_t status, const std::string &text) : std::runtime_error(text), status_(status) {}
    gyre_status_t status() const noexcept { return status_; }
    gyre_scope_t scope() const noexcept { return gyre_status_scope(status_); }

  private:
    gyre_status_t status_;
};

enum class Op {
    sum = GYRE_SUM,
    prod = GYRE_PROD,
    min = GYRE_MIN,
    max = GYRE_MAX,
    avg = GYRE_AVG,
    band = GYRE_BAND,
    bor = GYRE_BOR,
    bxor = GYRE_BXOR,
    land = GYRE_LAND,
    lor = GYRE_LOR,
    lxor = GYRE_LXOR,
    minloc = GYRE_MINLOC,
    maxloc = GYRE_MAXLOC
};
enum class Order {
    standard = GYRE_ORDER_DEFAULT,
    canonical = GYRE_ORDER_CANONICAL,
    fast = GYRE_ORDER_FAST,
    exact = GYRE_ORDER_EXACT
};
enum class Split { host = GYRE_SPLIT_HOST, numa = GYRE_SPLIT_NUMA, device = GYRE_SPLIT_DEVICE };

// An Op, a scaled sum, or an operation of gyre_op_create.
class Reduction
{
  public:
    Reduction(Op op) noexcept : op_{static_cast<gyre_redop_kind_t>(op), 0, 1.0} {}
    Reduction(gyre_redop_t op) noexcept : op_(op) {}
    static Reduction scaled_sum(double factor) noexcept { return gyre_redop_t{GYRE_SUM, 1, factor}; }
    const gyre_redop_t &get() const noexcept { return op_; }

  private:
    gyre_redop_t op_;
};

#if __cplusplus >= 202002L
template <class T> using span = std::span<T>;
#else
// The part of std::span (C++20) that is needed here.
template <class T> class span
{
  public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <class C, class P = decltype(std::data(std::declval<C &>())),
              class = decltype(std::size(std::declval<C &>())),
              class = std::enable_if_t<std::is_convertible_v<std::remove_pointer_t<P> (*)[], T (*)[]>>>
    constexpr span(C &&c) : data_(std::data(c)), size_(std::size(c))
    {
    }
    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t i) const { return data_[i]; }
    constexpr span subspan(std::size_t from, std::size_t count) const { return {data_ + from, count}; }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};
#endif

using sizes = span<const std::size_t>;

namespace detail
{

template <class T> constexpr int type_number()
{
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<U, bool>)
        return sizeof(bool) == 1 ? GYRE_BOOL : -1;
    else if constexpr (std::is_same_v<U, std::byte>)
        return GYRE_UINT8;
    else if constexpr (std::is_integral_v<U>)
        return (sizeof(U) == 1   ? GYRE_INT8
                : sizeof(U) == 2 ? GYRE_INT16
                : sizeof(U) == 4 ? GYRE_INT32
                                 : GYRE_INT64) +
               (std::is_signed_v<U> ? 0 : 1);
    else if constexpr (std::is_same_v<U, float>)
        return GYRE_FLOAT32;
    else if constexpr (std::is_same_v<U, double>)
        return GYRE_FLOAT64;
    else if constexpr (std::is_same_v<U, std::complex<float>>)
        return GYRE_COMPLEX64;
    else if constexpr (std::is_same_v<U, std::complex<double>>)
        return GYRE_COMPLEX128;
    else if constexpr (std::is_same_v<U, gyre_float32_int32_t>)
        return GYRE_FLOAT32_INT32;
    else if constexpr (std::is_same_v<U, gyre_float64_int32_t>)
        return GYRE_FLOAT64_INT32;
    else if constexpr (std::is_same_v<U, gyre_int32_int32_t>)
        return GYRE_INT32_INT32;
    else if constexpr (std::is_same_v<U, gyre_int64_int32_t>)
        return GYRE_INT64_INT32;
    else if constexpr (std::is_same_v<U, gyre_int16_int32_t>)
        return GYRE_INT16_INT32;
    else
        return -1;
}

// A view of a container, an array, a span, or a single element.
template <class B> constexpr auto view(B &buffer)
{
    if constexpr (type_number<B>() >= 0) {
        return span<B>(&buffer, 1);
    } else {
        using T = std::remove_pointer_t<decltype(std::data(buffer))>;
        static_assert(type_number<T>() >= 0, "gyre: this element type is not one of Gyre's (gyre/types.h)");
        return span<T>(std::data(buffer), std::size(buffer));
    }
}
template <class B>
using element = typename decltype(view(std::declval<std::remove_reference_t<B> &>()))::element_type;

template <class B> struct is_view : std::false_type {
};
template <class T> struct is_view<span<T>> : std::true_type {
};
// A non-blocking call keeps its buffers until the request has ended: a temporary container would be gone.
template <class... B> constexpr void keeps()
{
    static_assert(((std::is_lvalue_reference_v<B> || is_view<std::remove_cv_t<B>>::value) && ...),
                  "gyre: a buffer of a non-blocking call must outlive it: pass a named container or a span");
}
template <class S, class R> constexpr void alike()
{
    static_assert(std::is_same_v<std::remove_cv_t<element<S>>, std::remove_cv_t<element<R>>>,
                  "gyre: send and recv must have the same element type");
    static_assert(!std::is_const_v<element<R>>, "gyre: recv must not be const");
}
template <class B> constexpr gyre_type_t type()
{
    return static_cast<gyre_type_t>(type_number<element<B>>());
}

inline void check(gyre_status_t status, const char *call)
{
    if (status == GYRE_OK)
        return;
    const std::string last = gyre_last_error(), name = std::string(call) + ": ";
    const std::string text = last.empty() ? gyre_status_string(status) : last;
    throw Error(status, "gyre: " + (text.compare(0, name.size(), name) == 0 ? text : name + text));
}
[[noreturn]] inline void refuse(const char *call, const std::string &why)
{
    throw Error(GYRE_ERR_INVALID, std::string("gyre: ") + call + ": " + why);
}
inline void need(const char *call, const char *what, std::size_t has, std::size_t want)
{
    if (has != want)
        refuse(call, std::string(what) + " has " + std::to_string(has) + " elements, it must have " +
                         std::to_string(want));
}
inline std::size_t product(const char *call, std::size_t a, std::size_t b)
{
    if (b && a > std::numeric_limits<std::size_t>::max() / b)
        throw Error(GYRE_ERR_OVERFLOW, std::string("gyre: ") + call + ": the number of elements overflows");
    return a * b;
}
// The share of each of n ranks in a buffer of `has` elements.
inline std::size_t share(const char *call, const char *what, std::size_t has, std::size_t n)
{
    if (n == 0 || has % n)
        refuse(call, std::string(what) + " has " + std::to_string(has) + " elements, not a multiple of " +
                         std::to_string(n));
    return has / n;
}
// Blocks of counts[i] elements at displs[i] (empty: back to back) lie in a buffer of `has` elements.
inline void blocks(const char *call, const char *what, std::size_t has, sizes counts, sizes displs,
                   std::size_t n)
{
    need(call, "the array of counts", counts.size(), n);
    if (!displs.empty())
        need(call, "the array of displacements", displs.size(), n);
    std::size_t end = 0;
    for (std::size_t i = 0; i < n; i++) {
        const std::size_t from = displs.empty() ? end : displs[i];
        if (counts[i] && (from > has || counts[i] > has - from))
            refuse(call, std::string("block ") + std::to_string(i) + " (" + std::to_string(counts[i]) +
                             " elements at " + std::to_string(from) + ") does not lie in " + what +
                             ", which has " + std::to_string(has));
        end = displs.empty() ? end + counts[i] : end;
    }
}
inline const std::size_t *or_null(sizes s)
{
    return s.empty() ? nullptr : s.data();
}

} // namespace detail

// Options of a communicator: gyre_options_t, gyre_comm_set(3).
struct Options {
    Order order = Order::standard;
    int leaves = 1;
    std::string algorithm; // empty: GYRE_ALGO
    std::size_t chunk = 0;
    double timeout_s = 0;
    std::uint64_t tag = 0;
};

// Options of init: gyre_config_t. Empty strings: from the environment.
struct Config {
    int rank = -1;
    int nranks = -1;
    std::string root;
    std::string secret;
    double init_timeout_s = 0;
    double timeout_s = 0;
    int progress_thread = -1;
    Options options;
};

// An operation under way. It borrows its buffers and its communicator: both must outlive it. The
// destructor waits.
class Request
{
  public:
    Request() noexcept = default;
    Request(Request &&from) noexcept
        : request_(std::exchange(from.request_, nullptr)), comm_(from.comm_), call_(from.call_),
          unwinding_(from.unwinding_)
    {
    }
    Request &operator=(Request &&from) noexcept
    {
        if (this != &from) {
            end();
            request_ = std::exchange(from.request_, nullptr);
            comm_ = from.comm_;
            call_ = from.call_;
            unwinding_ = from.unwinding_;
        }
        return *this;
    }
    Request(const Request &) = delete;
    Request &operator=(const Request &) = delete;
    ~Request() { end(); }

    // Blocks until the operation has finished. Nothing to do if the request has ended or was moved from.
    void wait() { detail::check(gyre_wait(&request_), call_); }
    // Whether the operation has finished. Does not block.
    [[nodiscard]] bool test()
    {
        const gyre_status_t status = gyre_test(&request_);
        if (status == GYRE_IN_PROGRESS)
            return false;
        detail::check(status, call_);
        return true;
    }
    explicit operator bool() const noexcept { return request_ != nullptr; }
    gyre_request_t *get() const noexcept { return request_; }

  private:
    friend class Communicator;
    friend class ExactSum;
    Request(gyre_comm_t *comm, const char *call) noexcept : comm_(comm), call_(call) {}
    void end() noexcept
    {
        if (request_ && gyre_test(&request_) == GYRE_IN_PROGRESS) {
            if (std::uncaught_exceptions() > unwinding_)
                gyre_comm_abort(comm_, "an exception left the scope of a request");
            gyre_wait(&request_);
        }
    }
    gyre_request_t *request_ = nullptr;
    gyre_comm_t *comm_ = nullptr;
    const char *call_ = "wait";
    int unwinding_ = std::uncaught_exceptions();
};

// Waits for all, also after an error; then throws the first error.
template <class C> void wait_all(C &requests)
{
    std::exception_ptr first;
    for (Request &request : requests) {
        try {
            request.wait();
        } catch (const Error &) {
            if (!first)
                first = std::current_exception();
        }
    }
    if (first)
        std::rethrow_exception(first);
}

// Calls in its scope are started together by end(). Without end(), the destructor starts them,
// and an error is lost; after an exception it starts none.
class Group
{
  public:
    Group() { detail::check(gyre_group_start(), "group_start"); }
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;
    ~Group()
    {
        if (!open_)
            return;
        if (std::uncaught_exceptions() > unwinding_)
            gyre_barrier(nullptr); // a call that is refused: gyre_group_end then starts none
        gyre_group_end();
    }
    void end()
    {
        open_ = false;
        detail::check(gyre_group_end(), "group_end");
    }

  private:
    bool open_ = true;
    int unwinding_ = std::uncaught_exceptions();
};

// Ranks that call collectives together.
class Communicator
{
  public:
    Communicator() noexcept = default;
    // Takes what the C interface has made; `job`: it is ended by gyre_finalize.
    Communicator(gyre_comm_t *comm, bool job, int leaves = 1) noexcept
        : comm_(comm), job_(job), leaves_(static_cast<std::size_t>(leaves))
    {
    }
    Communicator(Communicator &&from) noexcept
        : comm_(std::exchange(from.comm_, nullptr)), job_(from.job_), leaves_(from.leaves_),
          unwinding_(from.unwinding_)
    {
    }
    Communicator &operator=(Communicator &&from) noexcept
    {
        if (this != &from) {
            end();
            comm_ = std::exchange(from.comm_, nullptr);
            job_ = from.job_;
            leaves_ = from.leaves_;
            unwinding_ = from.unwinding_;
        }
        return *this;
    }
    Communicator(const Communicator &) = delete;
    Communicator &operator=(const Communicator &) = delete;
    // A job's communicator waits for the other ranks, as gyre_finalize; not after an exception.
    ~Communicator() { end(); }

    // The communicator of all ranks of the job.
    static Communicator init(const Config &from = {})
    {
        gyre_config_t config = GYRE_CONFIG_INITIALIZER;
        const gyre_options_t options = plain(from.options);
        config.rank = from.rank;
        config.nranks = from.nranks;
        config.root = from.root.empty() ? nullptr : from.root.c_str();
        config.secret = from.secret.empty() ? nullptr : from.secret.c_str();
        config.init_timeout_s = from.init_timeout_s;
        config.timeout_s = from.timeout_s;
        config.progress_thread = from.progress_thread;
        config.options = &options;
        gyre_comm_t *comm = nullptr;
        detail::check(gyre_init(&config, &comm), "init");
        return Communicator(comm, true, from.options.leaves);
    }
    // A job of the ranks that have the id, which rank 0 got from gyre_get_unique_id.
    static Communicator create(const gyre_unique_id_t &id, int rank, int nranks)
    {
        gyre_comm_t *comm = nullptr;
        detail::check(gyre_comm_create_id(&id, rank, nranks, nullptr, &comm), "create");
        return Communicator(comm, true);
    }
    // What the destructor does, with errors.
    void finalize()
    {
        detail::check(job_ ? gyre_finalize(comm_) : gyre_comm_destroy(comm_), job_ ? "finalize" : "destroy");
        comm_ = nullptr;
    }

    int rank() const noexcept { return gyre_comm_rank(comm_); }
    int size() const noexcept { return gyre_comm_size(comm_); }
    int local_rank() const noexcept { return gyre_comm_local_rank(comm_); }
    int local_size() const noexcept { return gyre_comm_local_size(comm_); }
    int hosts() const noexcept { return gyre_comm_hosts(comm_); }
    explicit operator bool() const noexcept { return comm_ != nullptr; }
    gyre_comm_t *get() const noexcept { return comm_; }

    // A rank with a negative color gets an empty communicator.
    [[nodiscard]] Communicator split(int color, int key = 0) const
    {
        return made("split", [&](gyre_comm_t **out) { return gyre_comm_split(comm_, color, key, out); });
    }
    [[nodiscard]] Communicator split(Split type, int key = 0) const
    {
        return made("split", [&](gyre_comm_t **out) {
            return gyre_comm_split_type(comm_, static_cast<gyre_split_t>(type), key, out);
        });
    }
    [[nodiscard]] Communicator dup() const
    {
        return made("dup", [&](gyre_comm_t **out) { return gyre_comm_dup(comm_, out); });
    }
    // Only the members call it.
    [[nodiscard]] Communicator create_group(span<const int> ranks, std::uint64_t tag = 0) const
    {
        return made("create_group", [&](gyre_comm_t **out) {
            return gyre_comm_create_group(comm_, ranks.data(), number("create_group", ranks.size()), tag,
                                          out);
        });
    }
    // Replaces a job's communicator in which a rank died by one of those that are left.
    void shrink()
    {
        gyre_comm_t *left = nullptr;
        detail::check(gyre_comm_shrink(comm_, &left), "shrink");
        gyre_comm_destroy(std::exchange(comm_, left));
        leaves_ = 1;
    }
    void set(const Options &options)
    {
        const gyre_options_t c = plain(options);
        detail::check(gyre_comm_set(comm_, &c), "set");
        leaves_ = static_cast<std::size_t>(options.leaves);
    }
    void abort(const std::string &reason) { detail::check(gyre_comm_abort(comm_, reason.c_str()), "abort"); }
    // GYRE_OK, or the error that killed the communicator.
    gyre_status_t error() const noexcept { return gyre_comm_error(comm_); }
    void progress() const { detail::check(gyre_progress(comm_), "progress"); }
    [[nodiscard]] gyre_comm_stats_t stats() const
    {
        gyre_comm_stats_t out{};
        out.size = sizeof out;
        detail::check(gyre_comm_stats(comm_, &out), "stats");
        return out;
    }

    // The collectives: gyre/collectives.h. Each blocks; its sibling i... returns a request at once.
    // send, recv: the same size (with leaves: send has leaves times as much).
    template <class S, class R> void all_reduce(S &&send, R &&recv, Reduction op) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::need("all_reduce", "send", s.size(), detail::product("all_reduce", r.size(), leaves_));
        detail::check(gyre_all_reduce(s.data(), r.data(), r.size(), detail::type<R>(), bare(op), comm_),
                      "all_reduce");
    }
    template <class S, class R> [[nodiscard]] Request iall_reduce(S &&send, R &&recv, Reduction op) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::need("iall_reduce", "send", s.size(), detail::product("iall_reduce", r.size(), leaves_));
        return start("iall_reduce", [&](gyre_request_t **request) {
            return gyre_iall_reduce(s.data(), r.data(), r.size(), detail::type<R>(), bare(op), comm_,
                                    request);
        });
    }
    // In place.
    template <class B> void all_reduce(B &&buffer, Reduction op) const
    {
        const auto b = detail::view(buffer);
        n("all_reduce");
        detail::check(gyre_all_reduce(b.data(), b.data(), b.size(), detail::type<B>(), bare(op), comm_),
                      "all_reduce");
    }
    template <class B> [[nodiscard]] Request iall_reduce(B &&buffer, Reduction op) const
    {
        detail::keeps<B>();
        const auto b = detail::view(buffer);
        n("iall_reduce");
        return start("iall_reduce", [&](gyre_request_t **request) {
            return gyre_iall_reduce(b.data(), b.data(), b.size(), detail::type<B>(), bare(op), comm_,
                                    request);
        });
    }
    // send: size() times as large as recv, which gets block rank() of the reduction.
    template <class S, class R> void reduce_scatter(S &&send, R &&recv, Reduction op) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::need("reduce_scatter", "send", s.size(),
                     detail::product("reduce_scatter", r.size(), leaves_ * n("reduce_scatter")));
        detail::check(gyre_reduce_scatter(s.data(), r.data(), r.size(), detail::type<R>(), bare(op), comm_),
                      "reduce_scatter");
    }
    template <class S, class R> [[nodiscard]] Request ireduce_scatter(S &&send, R &&recv, Reduction op) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::need("ireduce_scatter", "send", s.size(),
                     detail::product("ireduce_scatter", r.size(), leaves_ * n("ireduce_scatter")));
        return start("ireduce_scatter", [&](gyre_request_t **request) {
            return gyre_ireduce_scatter(s.data(), r.data(), r.size(), detail::type<R>(), bare(op), comm_,
                                        request);
        });
    }
    // In place: block rank() of the buffer is the result.
    template <class B> void reduce_scatter(B &&buffer, Reduction op) const
    {
        const auto b = detail::view(buffer);
        const std::size_t count =
            detail::share("reduce_scatter", "the buffer", b.size(), n("reduce_scatter"));
        detail::check(
            gyre_reduce_scatter(b.data(), b.data() + me() * count, count, detail::type<B>(), bare(op), comm_),
            "reduce_scatter");
    }
    template <class B> [[nodiscard]] Request ireduce_scatter(B &&buffer, Reduction op) const
    {
        detail::keeps<B>();
        const auto b = detail::view(buffer);
        const std::size_t count =
            detail::share("ireduce_scatter", "the buffer", b.size(), n("ireduce_scatter"));
        return start("ireduce_scatter", [&](gyre_request_t **request) {
            return gyre_ireduce_scatter(b.data(), b.data() + me() * count, count, detail::type<B>(), bare(op),
                                        comm_, request);
        });
    }
    // counts: one for each rank, the same on all of them.
    template <class S, class R> void reduce_scatterv(S &&send, R &&recv, sizes counts, Reduction op) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n("reduce_scatterv");
        detail::blocks("reduce_scatterv", "send", leaves_ ? s.size() / leaves_ : SIZE_MAX, counts, {}, ranks);
        detail::need("reduce_scatterv", "recv", r.size(), counts[me()]);
        detail::check(
            gyre_reduce_scatterv(s.data(), r.data(), counts.data(), detail::type<R>(), bare(op), comm_),
            "reduce_scatterv");
    }
    template <class S, class R>
    [[nodiscard]] Request ireduce_scatterv(S &&send, R &&recv, sizes counts, Reduction op) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n("ireduce_scatterv");
        detail::blocks("ireduce_scatterv", "send", leaves_ ? s.size() / leaves_ : SIZE_MAX, counts, {},
                       ranks);
        detail::need("ireduce_scatterv", "recv", r.size(), counts[me()]);
        return start("ireduce_scatterv", [&](gyre_request_t **request) {
            return gyre_ireduce_scatterv(s.data(), r.data(), counts.data(), detail::type<R>(), bare(op),
                                         comm_, request);
        });
    }
    // recv: size() times as large as send.
    template <class S, class R> void all_gather(S &&send, R &&recv) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::need("all_gather", "recv", r.size(),
                     detail::product("all_gather", s.size(), n("all_gather")));
        detail::check(gyre_all_gather(s.data(), r.data(), s.size(), detail::type<R>(), comm_), "all_gather");
    }
    template <class S, class R> [[nodiscard]] Request iall_gather(S &&send, R &&recv) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::need("iall_gather", "recv", r.size(),
                     detail::product("iall_gather", s.size(), n("iall_gather")));
        return start("iall_gather", [&](gyre_request_t **request) {
            return gyre_iall_gather(s.data(), r.data(), s.size(), detail::type<R>(), comm_, request);
        });
    }
    // In place: block rank() of the buffer is the input.
    template <class B> void all_gather(B &&buffer) const
    {
        const auto b = detail::view(buffer);
        const std::size_t count = detail::share("all_gather", "the buffer", b.size(), n("all_gather"));
        detail::check(gyre_all_gather(b.data() + me() * count, b.data(), count, detail::type<B>(), comm_),
                      "all_gather");
    }
    template <class B> [[nodiscard]] Request iall_gather(B &&buffer) const
    {
        detail::keeps<B>();
        const auto b = detail::view(buffer);
        const std::size_t count = detail::share("iall_gather", "the buffer", b.size(), n("iall_gather"));
        return start("iall_gather", [&](gyre_request_t **request) {
            return gyre_iall_gather(b.data() + me() * count, b.data(), count, detail::type<B>(), comm_,
                                    request);
        });
    }
    // displs empty: the blocks lie back to back; here and below.
    template <class S, class R> void all_gatherv(S &&send, R &&recv, sizes counts, sizes displs = {}) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::blocks("all_gatherv", "recv", r.size(), counts, displs, n("all_gatherv"));
        detail::need("all_gatherv", "send", s.size(), counts[me()]);
        detail::check(gyre_all_gatherv(s.data(), r.data(), counts.data(), detail::or_null(displs),
                                       detail::type<R>(), comm_),
                      "all_gatherv");
    }
    template <class S, class R>
    [[nodiscard]] Request iall_gatherv(S &&send, R &&recv, sizes counts, sizes displs = {}) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::blocks("iall_gatherv", "recv", r.size(), counts, displs, n("iall_gatherv"));
        detail::need("iall_gatherv", "send", s.size(), counts[me()]);
        return start("iall_gatherv", [&](gyre_request_t **request) {
            return gyre_iall_gatherv(s.data(), r.data(), counts.data(), detail::or_null(displs),
                                     detail::type<R>(), comm_, request);
        });
    }
    // The buffer of `root` goes to all others.
    template <class B> void broadcast(B &&buffer, int root) const
    {
        const auto b = detail::view(buffer);
        n("broadcast");
        detail::check(gyre_broadcast(b.data(), b.data(), b.size(), detail::type<B>(), root, comm_),
                      "broadcast");
    }
    template <class B> [[nodiscard]] Request ibroadcast(B &&buffer, int root) const
    {
        detail::keeps<B>();
        const auto b = detail::view(buffer);
        n("ibroadcast");
        return start("ibroadcast", [&](gyre_request_t **request) {
            return gyre_ibroadcast(b.data(), b.data(), b.size(), detail::type<B>(), root, comm_, request);
        });
    }
    // recv counts at root only; elsewhere it may be empty. In place: the same buffer twice.
    template <class S, class R> void reduce(S &&send, R &&recv, Reduction op, int root) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n("reduce");
        const std::size_t count = leaves_ ? s.size() / leaves_ : r.size();
        detail::need("reduce", "send", s.size(), count * leaves_);
        if (rank() == root)
            detail::need("reduce", "recv", r.size(), count);
        detail::check(gyre_reduce(s.data(), r.data(), count, detail::type<R>(), bare(op), root, comm_),
                      "reduce");
    }
    template <class S, class R>
    [[nodiscard]] Request ireduce(S &&send, R &&recv, Reduction op, int root) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n("ireduce");
        const std::size_t count = leaves_ ? s.size() / leaves_ : r.size();
        detail::need("ireduce", "send", s.size(), count * leaves_);
        if (rank() == root)
            detail::need("ireduce", "recv", r.size(), count);
        return start("ireduce", [&](gyre_request_t **request) {
            return gyre_ireduce(s.data(), r.data(), count, detail::type<R>(), bare(op), root, comm_, request);
        });
    }
    // Prefix over ranks 0 to rank().
    template <class S, class R> void scan(S &&send, R &&recv, Reduction op) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n("scan");
        detail::need("scan", "recv", r.size(), s.size());
        detail::check(gyre_scan(s.data(), r.data(), s.size(), detail::type<R>(), bare(op), comm_), "scan");
    }
    template <class S, class R> [[nodiscard]] Request iscan(S &&send, R &&recv, Reduction op) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n("iscan");
        detail::need("iscan", "recv", r.size(), s.size());
        return start("iscan", [&](gyre_request_t **request) {
            return gyre_iscan(s.data(), r.data(), s.size(), detail::type<R>(), bare(op), comm_, request);
        });
    }
    // Prefix over ranks 0 to rank() - 1. Rank 0 gets nothing.
    template <class S, class R> void exscan(S &&send, R &&recv, Reduction op) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n("exscan");
        detail::need("exscan", "recv", r.size(), s.size());
        detail::check(gyre_exscan(s.data(), r.data(), s.size(), detail::type<R>(), bare(op), comm_),
                      "exscan");
    }
    template <class S, class R> [[nodiscard]] Request iexscan(S &&send, R &&recv, Reduction op) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n("iexscan");
        detail::need("iexscan", "recv", r.size(), s.size());
        return start("iexscan", [&](gyre_request_t **request) {
            return gyre_iexscan(s.data(), r.data(), s.size(), detail::type<R>(), bare(op), comm_, request);
        });
    }
    // recv counts at root only.
    template <class S, class R> void gather(S &&send, R &&recv, int root) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n("gather");
        if (rank() == root)
            detail::need("gather", "recv", r.size(), detail::product("gather", s.size(), ranks));
        detail::check(gyre_gather(s.data(), r.data(), s.size(), detail::type<R>(), root, comm_), "gather");
    }
    template <class S, class R> [[nodiscard]] Request igather(S &&send, R &&recv, int root) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n("igather");
        if (rank() == root)
            detail::need("igather", "recv", r.size(), detail::product("igather", s.size(), ranks));
        return start("igather", [&](gyre_request_t **request) {
            return gyre_igather(s.data(), r.data(), s.size(), detail::type<R>(), root, comm_, request);
        });
    }
    // recv, counts, displs count at root only.
    template <class S, class R>
    void gatherv(S &&send, R &&recv, sizes counts, int root, sizes displs = {}) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n("gatherv");
        if (rank() == root) {
            detail::blocks("gatherv", "recv", r.size(), counts, displs, ranks);
            detail::need("gatherv", "send", s.size(), counts[me()]);
        }
        detail::check(gyre_gatherv(s.data(), s.size(), r.data(), detail::or_null(counts),
                                   detail::or_null(displs), detail::type<R>(), root, comm_),
                      "gatherv");
    }
    template <class S, class R>
    [[nodiscard]] Request igatherv(S &&send, R &&recv, sizes counts, int root, sizes displs = {}) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n("igatherv");
        if (rank() == root) {
            detail::blocks("igatherv", "recv", r.size(), counts, displs, ranks);
            detail::need("igatherv", "send", s.size(), counts[me()]);
        }
        return start("igatherv", [&](gyre_request_t **request) {
            return gyre_igatherv(s.data(), s.size(), r.data(), detail::or_null(counts),
                                 detail::or_null(displs), detail::type<R>(), root, comm_, request);
        });
    }
    // send counts at root only.
    template <class S, class R> void scatter(S &&send, R &&recv, int root) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n("scatter");
        if (rank() == root)
            detail::need("scatter", "send", s.size(), detail::product("scatter", r.size(), ranks));
        detail::check(gyre_scatter(s.data(), r.data(), r.size(), detail::type<R>(), root, comm_), "scatter");
    }
    template <class S, class R> [[nodiscard]] Request iscatter(S &&send, R &&recv, int root) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n("iscatter");
        if (rank() == root)
            detail::need("iscatter", "send", s.size(), detail::product("iscatter", r.size(), ranks));
        return start("iscatter", [&](gyre_request_t **request) {
            return gyre_iscatter(s.data(), r.data(), r.size(), detail::type<R>(), root, comm_, request);
        });
    }
    // send, counts, displs count at root only.
    template <class S, class R>
    void scatterv(S &&send, R &&recv, sizes counts, int root, sizes displs = {}) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n("scatterv");
        if (rank() == root) {
            detail::blocks("scatterv", "send", s.size(), counts, displs, ranks);
            detail::need("scatterv", "recv", r.size(), counts[me()]);
        }
        detail::check(gyre_scatterv(s.data(), detail::or_null(counts), detail::or_null(displs), r.data(),
                                    r.size(), detail::type<R>(), root, comm_),
                      "scatterv");
    }
    template <class S, class R>
    [[nodiscard]] Request iscatterv(S &&send, R &&recv, sizes counts, int root, sizes displs = {}) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n("iscatterv");
        if (rank() == root) {
            detail::blocks("iscatterv", "send", s.size(), counts, displs, ranks);
            detail::need("iscatterv", "recv", r.size(), counts[me()]);
        }
        return start("iscatterv", [&](gyre_request_t **request) {
            return gyre_iscatterv(s.data(), detail::or_null(counts), detail::or_null(displs), r.data(),
                                  r.size(), detail::type<R>(), root, comm_, request);
        });
    }
    // Block p of send goes to block rank() of recv of rank p.
    template <class S, class R> void all_to_all(S &&send, R &&recv) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t count = detail::share("all_to_all", "send", s.size(), n("all_to_all"));
        detail::need("all_to_all", "recv", r.size(), s.size());
        detail::check(gyre_all_to_all(s.data(), r.data(), count, detail::type<R>(), comm_), "all_to_all");
    }
    template <class S, class R> [[nodiscard]] Request iall_to_all(S &&send, R &&recv) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t count = detail::share("iall_to_all", "send", s.size(), n("iall_to_all"));
        detail::need("iall_to_all", "recv", r.size(), s.size());
        return start("iall_to_all", [&](gyre_request_t **request) {
            return gyre_iall_to_all(s.data(), r.data(), count, detail::type<R>(), comm_, request);
        });
    }
    // In place.
    template <class B> void all_to_all(B &&buffer) const
    {
        const auto b = detail::view(buffer);
        const std::size_t count = detail::share("all_to_all", "the buffer", b.size(), n("all_to_all"));
        detail::check(gyre_all_to_all(b.data(), b.data(), count, detail::type<B>(), comm_), "all_to_all");
    }
    template <class B> [[nodiscard]] Request iall_to_all(B &&buffer) const
    {
        detail::keeps<B>();
        const auto b = detail::view(buffer);
        const std::size_t count = detail::share("iall_to_all", "the buffer", b.size(), n("iall_to_all"));
        return start("iall_to_all", [&](gyre_request_t **request) {
            return gyre_iall_to_all(b.data(), b.data(), count, detail::type<B>(), comm_, request);
        });
    }
    template <class S, class R>
    void all_to_allv(S &&send, sizes send_counts, R &&recv, sizes recv_counts, sizes send_displs = {},
                     sizes recv_displs = {}) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::blocks("all_to_allv", "send", s.size(), send_counts, send_displs, n("all_to_allv"));
        detail::blocks("all_to_allv", "recv", r.size(), recv_counts, recv_displs, n("all_to_allv"));
        detail::check(gyre_all_to_allv(s.data(), send_counts.data(), detail::or_null(send_displs), r.data(),
                                       recv_counts.data(), detail::or_null(recv_displs), detail::type<R>(),
                                       comm_),
                      "all_to_allv");
    }
    template <class S, class R>
    [[nodiscard]] Request iall_to_allv(S &&send, sizes send_counts, R &&recv, sizes recv_counts,
                                       sizes send_displs = {}, sizes recv_displs = {}) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::blocks("iall_to_allv", "send", s.size(), send_counts, send_displs, n("iall_to_allv"));
        detail::blocks("iall_to_allv", "recv", r.size(), recv_counts, recv_displs, n("iall_to_allv"));
        return start("iall_to_allv", [&](gyre_request_t **request) {
            return gyre_iall_to_allv(s.data(), send_counts.data(), detail::or_null(send_displs), r.data(),
                                     recv_counts.data(), detail::or_null(recv_displs), detail::type<R>(),
                                     comm_, request);
        });
    }
    void barrier() const
    {
        n("barrier");
        detail::check(gyre_barrier(comm_), "barrier");
    }
    [[nodiscard]] Request ibarrier() const
    {
        n("ibarrier");
        return start("ibarrier", [&](gyre_request_t **request) { return gyre_ibarrier(comm_, request); });
    }
    // Point to point: both sides pass the same size and type.
    template <class B> void send(B &&buffer, int peer) const
    {
        const auto b = detail::view(buffer);
        n("send");
        detail::check(gyre_send(b.data(), b.size(), detail::type<B>(), peer, comm_), "send");
    }
    template <class B> [[nodiscard]] Request isend(B &&buffer, int peer) const
    {
        detail::keeps<B>();
        const auto b = detail::view(buffer);
        n("isend");
        return start("isend", [&](gyre_request_t **request) {
            return gyre_isend(b.data(), b.size(), detail::type<B>(), peer, comm_, request);
        });
    }
    template <class B> void recv(B &&buffer, int peer) const
    {
        const auto b = detail::view(buffer);
        n("recv");
        detail::check(gyre_recv(b.data(), b.size(), detail::type<B>(), peer, comm_), "recv");
    }
    template <class B> [[nodiscard]] Request irecv(B &&buffer, int peer) const
    {
        detail::keeps<B>();
        const auto b = detail::view(buffer);
        n("irecv");
        return start("irecv", [&](gyre_request_t **request) {
            return gyre_irecv(b.data(), b.size(), detail::type<B>(), peer, comm_, request);
        });
    }
    // Block i of send goes to rank to[i], block i of recv comes from rank from[i].
    template <class S, class R>
    void neighbor_exchange(S &&send, sizes send_counts, span<const int> to, R &&recv, sizes recv_counts,
                           span<const int> from) const
    {
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n("neighbor_exchange");
        detail::blocks("neighbor_exchange", "send", s.size(), send_counts, {}, to.size());
        detail::blocks("neighbor_exchange", "recv", r.size(), recv_counts, {}, from.size());
        detail::check(gyre_neighbor_exchange(
                          detail::or_null(send_counts) ? s.data() : nullptr, detail::or_null(send_counts),
                          nullptr, number("neighbor_exchange", to.size()), to.data(), r.data(),
                          detail::or_null(recv_counts), nullptr, number("neighbor_exchange", from.size()),
                          from.data(), detail::type<R>(), comm_),
                      "neighbor_exchange");
    }
    template <class S, class R>
    [[nodiscard]] Request ineighbor_exchange(S &&send, sizes send_counts, span<const int> to, R &&recv,
                                             sizes recv_counts, span<const int> from) const
    {
        detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n("ineighbor_exchange");
        detail::blocks("ineighbor_exchange", "send", s.size(), send_counts, {}, to.size());
        detail::blocks("ineighbor_exchange", "recv", r.size(), recv_counts, {}, from.size());
        return start("ineighbor_exchange", [&](gyre_request_t **request) {
            return gyre_ineighbor_exchange(
                detail::or_null(send_counts) ? s.data() : nullptr, detail::or_null(send_counts), nullptr,
                number("ineighbor_exchange", to.size()), to.data(), r.data(), detail::or_null(recv_counts),
                nullptr, number("ineighbor_exchange", from.size()), from.data(), detail::type<R>(), comm_,
                request);
        });
    }

  private:
    template <class F> static Communicator made(const char *call, F make)
    {
        gyre_comm_t *comm = nullptr;
        detail::check(make(&comm), call);
        return Communicator(comm, false);
    }
    template <class F> Request start(const char *call, F begin) const
    {
        Request request(comm_, call);
        detail::check(begin(&request.request_), call);
        return request;
    }
    static gyre_options_t plain(const Options &from)
    {
        gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
        options.order = static_cast<gyre_order_t>(from.order);
        options.leaves = from.leaves;
        options.algorithm = from.algorithm.empty() ? nullptr : from.algorithm.c_str();
        options.chunk = from.chunk;
        options.timeout_s = from.timeout_s;
        options.tag = from.tag;
        return options;
    }
    static int number(const char *call, std::size_t n)
    {
        if (n > static_cast<std::size_t>(std::numeric_limits<int>::max()))
            detail::refuse(call, "the list of ranks is too long");
        return static_cast<int>(n);
    }
    // Number of ranks, and this rank; refuses a communicator that was moved from.
    std::size_t n(const char *call) const
    {
        if (!comm_)
            detail::refuse(call, "the communicator is empty: it was moved from, or its color was negative");
        return static_cast<std::size_t>(size());
    }
    std::size_t me() const noexcept { return static_cast<std::size_t>(rank()); }
    static gyre_redop_t bare(Reduction op) { return op.get(); }
    void end() noexcept
    {
        if (!comm_)
            return;
        if (std::uncaught_exceptions() > unwinding_ && job_)
            gyre_comm_abort(comm_, "an exception left the scope of the communicator");
        if (job_)
            gyre_finalize(comm_);
        else
            gyre_comm_destroy(comm_);
        comm_ = nullptr;
    }
    gyre_comm_t *comm_ = nullptr;
    bool job_ = false;
    std::size_t leaves_ = 1;
    int unwinding_ = std::uncaught_exceptions();
};

// Zeroed memory that ranks on the same host read and write directly: collectives on it save a copy.
template <class T> class Array
{
    static_assert(std::is_trivially_copyable_v<T>, "gyre: an array holds plain data");

  public:
    explicit Array(std::size_t size) : size_(size)
    {
        void *data = nullptr;
        detail::check(gyre_mem_alloc(detail::product("mem_alloc", size ? size : 1, sizeof(T)), &data),
                      "mem_alloc");
        data_ = static_cast<T *>(data);
    }
    Array(Array &&from) noexcept
        : data_(std::exchange(from.data_, nullptr)), size_(std::exchange(from.size_, 0))
    {
    }
    Array &operator=(Array &&from) noexcept
    {
        std::swap(data_, from.data_);
        std::swap(size_, from.size_);
        return *this;
    }
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;
    ~Array() { gyre_mem_free(data_); }
    T *data() noexcept { return data_; }
    const T *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    T *begin() noexcept { return data_; }
    T *end() noexcept { return data_ + size_; }
    const T *begin() const noexcept { return data_; }
    const T *end() const noexcept { return data_ + size_; }
    T &operator[](std::size_t i) { return data_[i]; }
    const T &operator[](std::size_t i) const { return data_[i]; }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

// Memory of all ranks of a communicator (gyre_mem_alloc_shared). Collective; each rank gives its own
// size. The destructor ends this rank's part and its view of the others. It does not wait for them.
template <class T> class SharedArray
{
    static_assert(std::is_trivially_copyable_v<T>, "gyre: an array holds plain data");

  public:
    SharedArray(const Communicator &comm, std::size_t size) : size_(size)
    {
        void *data = nullptr;
        const std::size_t bytes = detail::product("mem_alloc_shared", size, sizeof(T));
        detail::check(gyre_mem_alloc_shared(comm.get(), bytes, &data), "mem_alloc_shared");
        data_ = static_cast<T *>(data);
    }
    SharedArray(SharedArray &&from) noexcept
        : data_(std::exchange(from.data_, nullptr)), size_(std::exchange(from.size_, 0))
    {
    }
    SharedArray &operator=(SharedArray &&from) noexcept
    {
        std::swap(data_, from.data_);
        std::swap(size_, from.size_);
        return *this;
    }
    SharedArray(const SharedArray &) = delete;
    SharedArray &operator=(const SharedArray &) = delete;
    ~SharedArray() { gyre_mem_free(data_); }
    T *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    T *begin() const noexcept { return data_; }
    T *end() const noexcept { return data_ + size_; }
    T &operator[](std::size_t i) const { return data_[i]; }
    // The part of another rank of this host. gyre::Error with UNSUPPORTED: it is on another host.
    [[nodiscard]] span<T> peer(int rank) const
    {
        void *part = nullptr;
        std::size_t bytes = 0;
        detail::check(gyre_mem_peer(data_, rank, &part, &bytes), "mem_peer");
        return span<T>(static_cast<T *>(part), bytes / sizeof(T));
    }
    // Copy to and from the part of any rank, `offset` elements from its begin; done after flush.
    void put(span<const T> from, int rank, std::size_t offset) const
    {
        const std::size_t at = detail::product("put", offset, sizeof(T));
        detail::check(gyre_put(from.data(), from.size() * sizeof(T), data_, rank, at), "put");
    }
    void get(span<T> to, int rank, std::size_t offset) const
    {
        const std::size_t at = detail::product("get", offset, sizeof(T));
        detail::check(gyre_get(to.data(), to.size() * sizeof(T), data_, rank, at), "get");
    }
    void flush(int rank = -1) const { detail::check(gyre_flush(data_, rank), "flush"); }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

// An exact sum of floats or doubles: gyre/exact.h. Its bits do not depend on how the data are split.
class ExactSum
{
  public:
    ExactSum() { detail::check(gyre_exact_create(&sum_), "exact_create"); }
    ExactSum(ExactSum &&from) noexcept : sum_(std::exchange(from.sum_, nullptr)) {}
    ExactSum &operator=(ExactSum &&from) noexcept
    {
        std::swap(sum_, from.sum_);
        return *this;
    }
    ExactSum(const ExactSum &) = delete;
    ExactSum &operator=(const ExactSum &) = delete;
    ~ExactSum() { gyre_exact_destroy(sum_); }
    void reset() { detail::check(gyre_exact_reset(sum_), "exact_reset"); }
    template <class X> void add(const X &x)
    {
        const auto v = detail::view(x);
        detail::check(gyre_exact_add(sum_, v.data(), v.size(), detail::type<const X>()), "exact_add");
    }
    template <class X, class Y> void add_dot(const X &x, const Y &y)
    {
        static_assert(std::is_same_v<detail::element<const X>, detail::element<const Y>>,
                      "gyre: x and y differ in type");
        const auto v = detail::view(x);
        const auto w = detail::view(y);
        detail::need("exact_add_dot", "y", w.size(), v.size());
        detail::check(gyre_exact_add_dot(sum_, v.data(), w.data(), v.size(), detail::type<const X>()),
                      "exact_add_dot");
    }
    template <class X> void add_norm2(const X &x)
    {
        const auto v = detail::view(x);
        detail::check(gyre_exact_add_norm2(sum_, v.data(), v.size(), detail::type<const X>()),
                      "exact_add_norm2");
    }
    void merge(const ExactSum &from) { detail::check(gyre_exact_merge(sum_, from.sum_), "exact_merge"); }
    // Every rank's sum becomes the total.
    void all_reduce(const Communicator &comm)
    {
        detail::check(gyre_exact_all_reduce(sum_, comm.get()), "exact_all_reduce");
    }
    [[nodiscard]] Request iall_reduce(const Communicator &comm)
    {
        Request request(comm.get(), "exact_iall_reduce");
        detail::check(gyre_exact_iall_reduce(sum_, comm.get(), &request.request_), "exact_iall_reduce");
        return request;
    }
    [[nodiscard]] double value() const
    {
        double out = 0;
        detail::check(gyre_exact_value(sum_, &out), "exact_value");
        return out;
    }

  private:
    gyre_exact_t *sum_ = nullptr;
};

} // namespace gyre
#endif
