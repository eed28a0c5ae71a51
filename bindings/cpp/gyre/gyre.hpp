// SPDX-License-Identifier: Apache-2.0
// gyre/gyre.hpp: Gyre for C++17 and later, header only. Link as for C: `pkg-config --cflags --libs gyre`.
//
// Relies on gyre/gyre.h, whose comments say what each operation does. Promises:
//  - Communicator, Request, Plan, Array, SharedArray, Buckets, ExactSum and Group own what they stand for,
//    and are move-only.
//  - Buffers are contiguous containers, arrays, spans, or single elements. The element type gives
//    Gyre's type.
//  - The size of each buffer is checked before the call. Errors are exceptions of type gyre::Error.
//  - No destructor throws, and none waits for another rank after an exception: it aborts the communicator
//    first.
// docs/cpp.md has examples. Longer than 600 lines: each collective stands here in three forms.
#ifndef GYRE_GYRE_HPP
#define GYRE_GYRE_HPP

#include <gyre/gyre.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
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
    span(std::nullptr_t, std::size_t) = delete; // the list {0, 2} would be this: no data, two elements
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
    else if constexpr (std::is_integral_v<U> && sizeof(U) <= 8) // __int128 is one, too, in GNU's C++
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

template <class B, class = void> struct is_contiguous : std::false_type {
};
template <class B>
struct is_contiguous<B, std::enable_if_t<std::is_pointer_v<decltype(std::data(std::declval<B &>()))>>>
    : std::true_type {
};
// A view of a container, an array, a span, or a single element.
template <class B> constexpr auto view(B &buffer)
{
    if constexpr (type_number<B>() >= 0) {
        return span<B>(&buffer, 1);
    } else if constexpr (!is_contiguous<B>::value) {
        static_assert(is_contiguous<B>::value,
                      "gyre: a buffer is a contiguous container, an array, a span, or an element of one of "
                      "Gyre's types (gyre/types.h)");
        return span<std::byte>();
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
// The buffer of a call with one, which it writes to.
template <class B> constexpr void written()
{
    static_assert(!std::is_const_v<element<B>>, "gyre: the call writes to the buffer: it must not be const");
    static_assert(std::is_lvalue_reference_v<B> || type_number<B>() < 0,
                  "gyre: the call writes to the buffer: pass a variable, not a value");
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

namespace detail
{
inline gyre_options_t plain(const Options &from)
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
} // namespace detail

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
    friend class Plan;
    Request(gyre_comm_t *comm, const char *call) noexcept : comm_(comm), call_(call) {}
    gyre_request_t **place() noexcept { return &request_; }
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

// A persistent operation: gyre/plan.h. It borrows its buffers and its communicator, as a request does, and a
// request of start() must end before it.
class Plan
{
  public:
    Plan() noexcept = default;
    Plan(Plan &&from) noexcept
        : plan_(std::exchange(from.plan_, nullptr)), comm_(from.comm_), call_(from.call_)
    {
    }
    Plan &operator=(Plan &&from) noexcept
    {
        std::swap(plan_, from.plan_);
        std::swap(comm_, from.comm_);
        std::swap(call_, from.call_);
        return *this;
    }
    Plan(const Plan &) = delete;
    Plan &operator=(const Plan &) = delete;
    ~Plan() { gyre_plan_free(&plan_); }

    // Makes the operation; blocks.
    void operator()() const { detail::check(gyre_start(plan_, nullptr), call_); }
    [[nodiscard]] Request start() const
    {
        Request request(comm_, call_);
        detail::check(gyre_start(plan_, &request.request_), call_);
        return request;
    }
    // Order, algorithm, chunk and tag; the same on all ranks but for the tag.
    void set(const Options &options) const
    {
        const gyre_options_t c = detail::plain(options);
        detail::check(gyre_plan_set(plan_, &c), "plan_set");
    }
    explicit operator bool() const noexcept { return plan_ != nullptr; }
    gyre_plan_t *get() const noexcept { return plan_; }

  private:
    friend class Communicator;
    Plan(gyre_comm_t *comm, const char *call) noexcept : comm_(comm), call_(call) {}
    gyre_plan_t **place() noexcept { return &plan_; }
    gyre_plan_t *plan_ = nullptr;
    gyre_comm_t *comm_ = nullptr;
    const char *call_ = "plan";
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
        const gyre_options_t options = detail::plain(from.options);
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
    // What the destructor does, with errors. After one the communicator has ended, too, but for INVALID, after
    // which nothing has happened.
    void finalize()
    {
        const gyre_status_t status = job_ ? gyre_finalize(comm_) : gyre_comm_destroy(comm_);
        if (status != GYRE_ERR_INVALID)
            comm_ = nullptr;
        detail::check(status, job_ ? "finalize" : "destroy");
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
        const gyre_options_t c = detail::plain(options);
        detail::check(gyre_comm_set(comm_, &c), "set");
        leaves_ = static_cast<std::size_t>(options.leaves);
    }
    void abort(const std::string &reason) { detail::check(gyre_comm_abort(comm_, reason.c_str()), "abort"); }
    // GYRE_OK, or the error that killed the communicator.
    gyre_status_t error() const noexcept { return gyre_comm_error(comm_); }
    void progress() const { detail::check(gyre_progress(comm_), "progress"); }
    [[nodiscard]] gyre_place_t place(int rank) const
    {
        gyre_place_t out{};
        out.size = sizeof out;
        detail::check(gyre_comm_place(comm_, rank, &out), "place");
        return out;
    }
    [[nodiscard]] gyre_comm_stats_t stats() const
    {
        gyre_comm_stats_t out{};
        out.size = sizeof out;
        detail::check(gyre_comm_stats(comm_, &out), "stats");
        return out;
    }

    // The collectives: gyre/collectives.h. Each blocks; its sibling i... returns a request at once, and plan_...
    // a Plan, whose buffers must outlive it, too.
    // send, recv: the same size (with leaves: send has leaves times as much).
    template <class S, class R> void all_reduce(S &&send, R &&recv, Reduction op) const
    {
        return all_reduce_as<void>("all_reduce", gyre_all_reduce, std::forward<S>(send),
                                   std::forward<R>(recv), op);
    }
    template <class S, class R> [[nodiscard]] Request iall_reduce(S &&send, R &&recv, Reduction op) const
    {
        return all_reduce_as<Request>("iall_reduce", gyre_iall_reduce, std::forward<S>(send),
                                      std::forward<R>(recv), op);
    }
    template <class S, class R> [[nodiscard]] Plan plan_all_reduce(S &&send, R &&recv, Reduction op) const
    {
        return all_reduce_as<Plan>("plan_all_reduce", gyre_plan_all_reduce, std::forward<S>(send),
                                   std::forward<R>(recv), op);
    }
    // In place.
    template <class B> void all_reduce(B &&buffer, Reduction op) const
    {
        return all_reduce_as<void>("all_reduce", gyre_all_reduce, std::forward<B>(buffer), op);
    }
    template <class B> [[nodiscard]] Request iall_reduce(B &&buffer, Reduction op) const
    {
        return all_reduce_as<Request>("iall_reduce", gyre_iall_reduce, std::forward<B>(buffer), op);
    }
    template <class B> [[nodiscard]] Plan plan_all_reduce(B &&buffer, Reduction op) const
    {
        return all_reduce_as<Plan>("plan_all_reduce", gyre_plan_all_reduce, std::forward<B>(buffer), op);
    }
    // send: size() times as large as recv, which gets block rank() of the reduction.
    template <class S, class R> void reduce_scatter(S &&send, R &&recv, Reduction op) const
    {
        return reduce_scatter_as<void>("reduce_scatter", gyre_reduce_scatter, std::forward<S>(send),
                                       std::forward<R>(recv), op);
    }
    template <class S, class R> [[nodiscard]] Request ireduce_scatter(S &&send, R &&recv, Reduction op) const
    {
        return reduce_scatter_as<Request>("ireduce_scatter", gyre_ireduce_scatter, std::forward<S>(send),
                                          std::forward<R>(recv), op);
    }
    template <class S, class R> [[nodiscard]] Plan plan_reduce_scatter(S &&send, R &&recv, Reduction op) const
    {
        return reduce_scatter_as<Plan>("plan_reduce_scatter", gyre_plan_reduce_scatter, std::forward<S>(send),
                                       std::forward<R>(recv), op);
    }
    // In place: block rank() of the buffer is the result.
    template <class B> void reduce_scatter(B &&buffer, Reduction op) const
    {
        return reduce_scatter_as<void>("reduce_scatter", gyre_reduce_scatter, std::forward<B>(buffer), op);
    }
    template <class B> [[nodiscard]] Request ireduce_scatter(B &&buffer, Reduction op) const
    {
        return reduce_scatter_as<Request>("ireduce_scatter", gyre_ireduce_scatter, std::forward<B>(buffer),
                                          op);
    }
    template <class B> [[nodiscard]] Plan plan_reduce_scatter(B &&buffer, Reduction op) const
    {
        return reduce_scatter_as<Plan>("plan_reduce_scatter", gyre_plan_reduce_scatter,
                                       std::forward<B>(buffer), op);
    }
    // counts: one for each rank, the same on all of them.
    template <class S, class R> void reduce_scatterv(S &&send, R &&recv, sizes counts, Reduction op) const
    {
        return reduce_scatterv_as<void>("reduce_scatterv", gyre_reduce_scatterv, std::forward<S>(send),
                                        std::forward<R>(recv), counts, op);
    }
    template <class S, class R>
    [[nodiscard]] Request ireduce_scatterv(S &&send, R &&recv, sizes counts, Reduction op) const
    {
        return reduce_scatterv_as<Request>("ireduce_scatterv", gyre_ireduce_scatterv, std::forward<S>(send),
                                           std::forward<R>(recv), counts, op);
    }
    template <class S, class R>
    [[nodiscard]] Plan plan_reduce_scatterv(S &&send, R &&recv, sizes counts, Reduction op) const
    {
        return reduce_scatterv_as<Plan>("plan_reduce_scatterv", gyre_plan_reduce_scatterv,
                                        std::forward<S>(send), std::forward<R>(recv), counts, op);
    }
    // recv: size() times as large as send.
    template <class S, class R> void all_gather(S &&send, R &&recv) const
    {
        return all_gather_as<void>("all_gather", gyre_all_gather, std::forward<S>(send),
                                   std::forward<R>(recv));
    }
    template <class S, class R> [[nodiscard]] Request iall_gather(S &&send, R &&recv) const
    {
        return all_gather_as<Request>("iall_gather", gyre_iall_gather, std::forward<S>(send),
                                      std::forward<R>(recv));
    }
    template <class S, class R> [[nodiscard]] Plan plan_all_gather(S &&send, R &&recv) const
    {
        return all_gather_as<Plan>("plan_all_gather", gyre_plan_all_gather, std::forward<S>(send),
                                   std::forward<R>(recv));
    }
    // In place: block rank() of the buffer is the input.
    template <class B> void all_gather(B &&buffer) const
    {
        return all_gather_as<void>("all_gather", gyre_all_gather, std::forward<B>(buffer));
    }
    template <class B> [[nodiscard]] Request iall_gather(B &&buffer) const
    {
        return all_gather_as<Request>("iall_gather", gyre_iall_gather, std::forward<B>(buffer));
    }
    template <class B> [[nodiscard]] Plan plan_all_gather(B &&buffer) const
    {
        return all_gather_as<Plan>("plan_all_gather", gyre_plan_all_gather, std::forward<B>(buffer));
    }
    // displs empty: the blocks lie back to back; here and below.
    template <class S, class R> void all_gatherv(S &&send, R &&recv, sizes counts, sizes displs = {}) const
    {
        return all_gatherv_as<void>("all_gatherv", gyre_all_gatherv, std::forward<S>(send),
                                    std::forward<R>(recv), counts, displs);
    }
    template <class S, class R>
    [[nodiscard]] Request iall_gatherv(S &&send, R &&recv, sizes counts, sizes displs = {}) const
    {
        return all_gatherv_as<Request>("iall_gatherv", gyre_iall_gatherv, std::forward<S>(send),
                                       std::forward<R>(recv), counts, displs);
    }
    template <class S, class R>
    [[nodiscard]] Plan plan_all_gatherv(S &&send, R &&recv, sizes counts, sizes displs = {}) const
    {
        return all_gatherv_as<Plan>("plan_all_gatherv", gyre_plan_all_gatherv, std::forward<S>(send),
                                    std::forward<R>(recv), counts, displs);
    }
    // The buffer of `root` goes to all others.
    template <class B> void broadcast(B &&buffer, int root) const
    {
        return broadcast_as<void>("broadcast", gyre_broadcast, std::forward<B>(buffer), root);
    }
    template <class B> [[nodiscard]] Request ibroadcast(B &&buffer, int root) const
    {
        return broadcast_as<Request>("ibroadcast", gyre_ibroadcast, std::forward<B>(buffer), root);
    }
    template <class B> [[nodiscard]] Plan plan_broadcast(B &&buffer, int root) const
    {
        return broadcast_as<Plan>("plan_broadcast", gyre_plan_broadcast, std::forward<B>(buffer), root);
    }
    // recv counts at root only; elsewhere it may be empty. In place: the same buffer twice.
    template <class S, class R> void reduce(S &&send, R &&recv, Reduction op, int root) const
    {
        return reduce_as<void>("reduce", gyre_reduce, std::forward<S>(send), std::forward<R>(recv), op, root);
    }
    template <class S, class R>
    [[nodiscard]] Request ireduce(S &&send, R &&recv, Reduction op, int root) const
    {
        return reduce_as<Request>("ireduce", gyre_ireduce, std::forward<S>(send), std::forward<R>(recv), op,
                                  root);
    }
    template <class S, class R>
    [[nodiscard]] Plan plan_reduce(S &&send, R &&recv, Reduction op, int root) const
    {
        return reduce_as<Plan>("plan_reduce", gyre_plan_reduce, std::forward<S>(send), std::forward<R>(recv),
                               op, root);
    }
    // Prefix over ranks 0 to rank().
    template <class S, class R> void scan(S &&send, R &&recv, Reduction op) const
    {
        return scan_as<void>("scan", gyre_scan, std::forward<S>(send), std::forward<R>(recv), op);
    }
    template <class S, class R> [[nodiscard]] Request iscan(S &&send, R &&recv, Reduction op) const
    {
        return scan_as<Request>("iscan", gyre_iscan, std::forward<S>(send), std::forward<R>(recv), op);
    }
    template <class S, class R> [[nodiscard]] Plan plan_scan(S &&send, R &&recv, Reduction op) const
    {
        return scan_as<Plan>("plan_scan", gyre_plan_scan, std::forward<S>(send), std::forward<R>(recv), op);
    }
    // Prefix over ranks 0 to rank() - 1. Rank 0 gets nothing.
    template <class S, class R> void exscan(S &&send, R &&recv, Reduction op) const
    {
        return exscan_as<void>("exscan", gyre_exscan, std::forward<S>(send), std::forward<R>(recv), op);
    }
    template <class S, class R> [[nodiscard]] Request iexscan(S &&send, R &&recv, Reduction op) const
    {
        return exscan_as<Request>("iexscan", gyre_iexscan, std::forward<S>(send), std::forward<R>(recv), op);
    }
    template <class S, class R> [[nodiscard]] Plan plan_exscan(S &&send, R &&recv, Reduction op) const
    {
        return exscan_as<Plan>("plan_exscan", gyre_plan_exscan, std::forward<S>(send), std::forward<R>(recv),
                               op);
    }
    // recv counts at root only.
    template <class S, class R> void gather(S &&send, R &&recv, int root) const
    {
        return gather_as<void>("gather", gyre_gather, std::forward<S>(send), std::forward<R>(recv), root);
    }
    template <class S, class R> [[nodiscard]] Request igather(S &&send, R &&recv, int root) const
    {
        return gather_as<Request>("igather", gyre_igather, std::forward<S>(send), std::forward<R>(recv),
                                  root);
    }
    template <class S, class R> [[nodiscard]] Plan plan_gather(S &&send, R &&recv, int root) const
    {
        return gather_as<Plan>("plan_gather", gyre_plan_gather, std::forward<S>(send), std::forward<R>(recv),
                               root);
    }
    // recv, counts, displs count at root only.
    template <class S, class R>
    void gatherv(S &&send, R &&recv, sizes counts, int root, sizes displs = {}) const
    {
        return gatherv_as<void>("gatherv", gyre_gatherv, std::forward<S>(send), std::forward<R>(recv), counts,
                                root, displs);
    }
    template <class S, class R>
    [[nodiscard]] Request igatherv(S &&send, R &&recv, sizes counts, int root, sizes displs = {}) const
    {
        return gatherv_as<Request>("igatherv", gyre_igatherv, std::forward<S>(send), std::forward<R>(recv),
                                   counts, root, displs);
    }
    template <class S, class R>
    [[nodiscard]] Plan plan_gatherv(S &&send, R &&recv, sizes counts, int root, sizes displs = {}) const
    {
        return gatherv_as<Plan>("plan_gatherv", gyre_plan_gatherv, std::forward<S>(send),
                                std::forward<R>(recv), counts, root, displs);
    }
    // send counts at root only.
    template <class S, class R> void scatter(S &&send, R &&recv, int root) const
    {
        return scatter_as<void>("scatter", gyre_scatter, std::forward<S>(send), std::forward<R>(recv), root);
    }
    template <class S, class R> [[nodiscard]] Request iscatter(S &&send, R &&recv, int root) const
    {
        return scatter_as<Request>("iscatter", gyre_iscatter, std::forward<S>(send), std::forward<R>(recv),
                                   root);
    }
    template <class S, class R> [[nodiscard]] Plan plan_scatter(S &&send, R &&recv, int root) const
    {
        return scatter_as<Plan>("plan_scatter", gyre_plan_scatter, std::forward<S>(send),
                                std::forward<R>(recv), root);
    }
    // send, counts, displs count at root only.
    template <class S, class R>
    void scatterv(S &&send, R &&recv, sizes counts, int root, sizes displs = {}) const
    {
        return scatterv_as<void>("scatterv", gyre_scatterv, std::forward<S>(send), std::forward<R>(recv),
                                 counts, root, displs);
    }
    template <class S, class R>
    [[nodiscard]] Request iscatterv(S &&send, R &&recv, sizes counts, int root, sizes displs = {}) const
    {
        return scatterv_as<Request>("iscatterv", gyre_iscatterv, std::forward<S>(send), std::forward<R>(recv),
                                    counts, root, displs);
    }
    template <class S, class R>
    [[nodiscard]] Plan plan_scatterv(S &&send, R &&recv, sizes counts, int root, sizes displs = {}) const
    {
        return scatterv_as<Plan>("plan_scatterv", gyre_plan_scatterv, std::forward<S>(send),
                                 std::forward<R>(recv), counts, root, displs);
    }
    // Block p of send goes to block rank() of recv of rank p.
    template <class S, class R> void all_to_all(S &&send, R &&recv) const
    {
        return all_to_all_as<void>("all_to_all", gyre_all_to_all, std::forward<S>(send),
                                   std::forward<R>(recv));
    }
    template <class S, class R> [[nodiscard]] Request iall_to_all(S &&send, R &&recv) const
    {
        return all_to_all_as<Request>("iall_to_all", gyre_iall_to_all, std::forward<S>(send),
                                      std::forward<R>(recv));
    }
    template <class S, class R> [[nodiscard]] Plan plan_all_to_all(S &&send, R &&recv) const
    {
        return all_to_all_as<Plan>("plan_all_to_all", gyre_plan_all_to_all, std::forward<S>(send),
                                   std::forward<R>(recv));
    }
    // In place.
    template <class B> void all_to_all(B &&buffer) const
    {
        return all_to_all_as<void>("all_to_all", gyre_all_to_all, std::forward<B>(buffer));
    }
    template <class B> [[nodiscard]] Request iall_to_all(B &&buffer) const
    {
        return all_to_all_as<Request>("iall_to_all", gyre_iall_to_all, std::forward<B>(buffer));
    }
    template <class B> [[nodiscard]] Plan plan_all_to_all(B &&buffer) const
    {
        return all_to_all_as<Plan>("plan_all_to_all", gyre_plan_all_to_all, std::forward<B>(buffer));
    }
    template <class S, class R>
    void all_to_allv(S &&send, sizes send_counts, R &&recv, sizes recv_counts, sizes send_displs = {},
                     sizes recv_displs = {}) const
    {
        return all_to_allv_as<void>("all_to_allv", gyre_all_to_allv, std::forward<S>(send), send_counts,
                                    std::forward<R>(recv), recv_counts, send_displs, recv_displs);
    }
    template <class S, class R>
    [[nodiscard]] Request iall_to_allv(S &&send, sizes send_counts, R &&recv, sizes recv_counts,
                                       sizes send_displs = {}, sizes recv_displs = {}) const
    {
        return all_to_allv_as<Request>("iall_to_allv", gyre_iall_to_allv, std::forward<S>(send), send_counts,
                                       std::forward<R>(recv), recv_counts, send_displs, recv_displs);
    }
    template <class S, class R>
    [[nodiscard]] Plan plan_all_to_allv(S &&send, sizes send_counts, R &&recv, sizes recv_counts,
                                        sizes send_displs = {}, sizes recv_displs = {}) const
    {
        return all_to_allv_as<Plan>("plan_all_to_allv", gyre_plan_all_to_allv, std::forward<S>(send),
                                    send_counts, std::forward<R>(recv), recv_counts, send_displs,
                                    recv_displs);
    }
    void barrier() const { return barrier_as<void>("barrier", gyre_barrier); }
    [[nodiscard]] Request ibarrier() const { return barrier_as<Request>("ibarrier", gyre_ibarrier); }
    [[nodiscard]] Plan plan_barrier() const { return barrier_as<Plan>("plan_barrier", gyre_plan_barrier); }
    // Point to point: both sides pass the same size and type.
    template <class B> void send(B &&buffer, int peer) const
    {
        return send_as<void>("send", gyre_send, std::forward<B>(buffer), peer);
    }
    template <class B> [[nodiscard]] Request isend(B &&buffer, int peer) const
    {
        return send_as<Request>("isend", gyre_isend, std::forward<B>(buffer), peer);
    }
    template <class B> void recv(B &&buffer, int peer) const
    {
        return recv_as<void>("recv", gyre_recv, std::forward<B>(buffer), peer);
    }
    template <class B> [[nodiscard]] Request irecv(B &&buffer, int peer) const
    {
        return recv_as<Request>("irecv", gyre_irecv, std::forward<B>(buffer), peer);
    }
    // Block i of send goes to rank to[i], block i of recv comes from rank from[i].
    template <class S, class R>
    void neighbor_exchange(S &&send, sizes send_counts, span<const int> to, R &&recv, sizes recv_counts,
                           span<const int> from) const
    {
        return neighbor_exchange_as<void>("neighbor_exchange", gyre_neighbor_exchange, std::forward<S>(send),
                                          send_counts, to, std::forward<R>(recv), recv_counts, from);
    }
    template <class S, class R>
    [[nodiscard]] Request ineighbor_exchange(S &&send, sizes send_counts, span<const int> to, R &&recv,
                                             sizes recv_counts, span<const int> from) const
    {
        return neighbor_exchange_as<Request>("ineighbor_exchange", gyre_ineighbor_exchange,
                                             std::forward<S>(send), send_counts, to, std::forward<R>(recv),
                                             recv_counts, from);
    }
    template <class S, class R>
    [[nodiscard]] Plan plan_neighbor_exchange(S &&send, sizes send_counts, span<const int> to, R &&recv,
                                              sizes recv_counts, span<const int> from) const
    {
        return neighbor_exchange_as<Plan>("plan_neighbor_exchange", gyre_plan_neighbor_exchange,
                                          std::forward<S>(send), send_counts, to, std::forward<R>(recv),
                                          recv_counts, from);
    }

  private:
    template <class Out, class F, class S, class R>
    Out all_reduce_as(const char *call, F function, S &&send, R &&recv, Reduction op) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::need(call, "send", s.size(), detail::product(call, r.size(), leaves_));
        return make<Out>(call, function, s.data(), r.data(), r.size(), detail::type<R>(), bare(op));
    }

    template <class Out, class F, class B>
    Out all_reduce_as(const char *call, F function, B &&buffer, Reduction op) const
    {
        detail::written<B>();
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<B>();
        const auto b = detail::view(buffer);
        n(call);
        return make<Out>(call, function, b.data(), b.data(), b.size(), detail::type<B>(), bare(op));
    }

    template <class Out, class F, class S, class R>
    Out reduce_scatter_as(const char *call, F function, S &&send, R &&recv, Reduction op) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::need(call, "send", s.size(), detail::product(call, r.size(), leaves_ * n(call)));
        return make<Out>(call, function, s.data(), r.data(), r.size(), detail::type<R>(), bare(op));
    }

    template <class Out, class F, class B>
    Out reduce_scatter_as(const char *call, F function, B &&buffer, Reduction op) const
    {
        detail::written<B>();
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<B>();
        const auto b = detail::view(buffer);
        const std::size_t count = detail::share(call, "the buffer", b.size(), n(call));
        return make<Out>(call, function, b.data(), b.data() + me() * count, count, detail::type<B>(),
                         bare(op));
    }

    template <class Out, class F, class S, class R>
    Out reduce_scatterv_as(const char *call, F function, S &&send, R &&recv, sizes counts, Reduction op) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n(call);
        detail::blocks(call, "send", leaves_ ? s.size() / leaves_ : SIZE_MAX, counts, {}, ranks);
        detail::need(call, "recv", r.size(), counts[me()]);
        return make<Out>(call, function, s.data(), r.data(), counts.data(), detail::type<R>(), bare(op));
    }

    template <class Out, class F, class S, class R>
    Out all_gather_as(const char *call, F function, S &&send, R &&recv) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::need(call, "recv", r.size(), detail::product(call, s.size(), n(call)));
        return make<Out>(call, function, s.data(), r.data(), s.size(), detail::type<R>());
    }

    template <class Out, class F, class B> Out all_gather_as(const char *call, F function, B &&buffer) const
    {
        detail::written<B>();
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<B>();
        const auto b = detail::view(buffer);
        const std::size_t count = detail::share(call, "the buffer", b.size(), n(call));
        return make<Out>(call, function, b.data() + me() * count, b.data(), count, detail::type<B>());
    }

    template <class Out, class F, class S, class R>
    Out all_gatherv_as(const char *call, F function, S &&send, R &&recv, sizes counts, sizes displs) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::blocks(call, "recv", r.size(), counts, displs, n(call));
        detail::need(call, "send", s.size(), counts[me()]);
        return make<Out>(call, function, s.data(), r.data(), counts.data(), detail::or_null(displs),
                         detail::type<R>());
    }

    template <class Out, class F, class B>
    Out broadcast_as(const char *call, F function, B &&buffer, int root) const
    {
        detail::written<B>();
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<B>();
        const auto b = detail::view(buffer);
        n(call);
        return make<Out>(call, function, b.data(), b.data(), b.size(), detail::type<B>(), root);
    }

    template <class Out, class F, class S, class R>
    Out reduce_as(const char *call, F function, S &&send, R &&recv, Reduction op, int root) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n(call);
        const std::size_t count = leaves_ ? s.size() / leaves_ : r.size();
        detail::need(call, "send", s.size(), count * leaves_);
        if (rank() == root)
            detail::need(call, "recv", r.size(), count);
        return make<Out>(call, function, s.data(), r.data(), count, detail::type<R>(), bare(op), root);
    }

    template <class Out, class F, class S, class R>
    Out scan_as(const char *call, F function, S &&send, R &&recv, Reduction op) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n(call);
        detail::need(call, "recv", r.size(), s.size());
        return make<Out>(call, function, s.data(), r.data(), s.size(), detail::type<R>(), bare(op));
    }

    template <class Out, class F, class S, class R>
    Out exscan_as(const char *call, F function, S &&send, R &&recv, Reduction op) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n(call);
        detail::need(call, "recv", r.size(), s.size());
        return make<Out>(call, function, s.data(), r.data(), s.size(), detail::type<R>(), bare(op));
    }

    template <class Out, class F, class S, class R>
    Out gather_as(const char *call, F function, S &&send, R &&recv, int root) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n(call);
        if (rank() == root)
            detail::need(call, "recv", r.size(), detail::product(call, s.size(), ranks));
        return make<Out>(call, function, s.data(), r.data(), s.size(), detail::type<R>(), root);
    }

    template <class Out, class F, class S, class R>
    Out gatherv_as(const char *call, F function, S &&send, R &&recv, sizes counts, int root,
                   sizes displs) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n(call);
        if (rank() == root) {
            detail::blocks(call, "recv", r.size(), counts, displs, ranks);
            detail::need(call, "send", s.size(), counts[me()]);
        }
        return make<Out>(call, function, s.data(), s.size(), r.data(), detail::or_null(counts),
                         detail::or_null(displs), detail::type<R>(), root);
    }

    template <class Out, class F, class S, class R>
    Out scatter_as(const char *call, F function, S &&send, R &&recv, int root) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n(call);
        if (rank() == root)
            detail::need(call, "send", s.size(), detail::product(call, r.size(), ranks));
        return make<Out>(call, function, s.data(), r.data(), r.size(), detail::type<R>(), root);
    }

    template <class Out, class F, class S, class R>
    Out scatterv_as(const char *call, F function, S &&send, R &&recv, sizes counts, int root,
                    sizes displs) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t ranks = n(call);
        if (rank() == root) {
            detail::blocks(call, "send", s.size(), counts, displs, ranks);
            detail::need(call, "recv", r.size(), counts[me()]);
        }
        return make<Out>(call, function, s.data(), detail::or_null(counts), detail::or_null(displs), r.data(),
                         r.size(), detail::type<R>(), root);
    }

    template <class Out, class F, class S, class R>
    Out all_to_all_as(const char *call, F function, S &&send, R &&recv) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        const std::size_t count = detail::share(call, "send", s.size(), n(call));
        detail::need(call, "recv", r.size(), s.size());
        return make<Out>(call, function, s.data(), r.data(), count, detail::type<R>());
    }

    template <class Out, class F, class B> Out all_to_all_as(const char *call, F function, B &&buffer) const
    {
        detail::written<B>();
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<B>();
        const auto b = detail::view(buffer);
        const std::size_t count = detail::share(call, "the buffer", b.size(), n(call));
        return make<Out>(call, function, b.data(), b.data(), count, detail::type<B>());
    }

    template <class Out, class F, class S, class R>
    Out all_to_allv_as(const char *call, F function, S &&send, sizes send_counts, R &&recv, sizes recv_counts,
                       sizes send_displs, sizes recv_displs) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        detail::blocks(call, "send", s.size(), send_counts, send_displs, n(call));
        detail::blocks(call, "recv", r.size(), recv_counts, recv_displs, n(call));
        return make<Out>(call, function, s.data(), send_counts.data(), detail::or_null(send_displs), r.data(),
                         recv_counts.data(), detail::or_null(recv_displs), detail::type<R>());
    }

    template <class Out, class F> Out barrier_as(const char *call, F function) const
    {
        n(call);
        return make<Out>(call, function);
    }

    template <class Out, class F, class B>
    Out send_as(const char *call, F function, B &&buffer, int peer) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<B>();
        const auto b = detail::view(buffer);
        n(call);
        return make<Out>(call, function, b.data(), b.size(), detail::type<B>(), peer);
    }

    template <class Out, class F, class B>
    Out recv_as(const char *call, F function, B &&buffer, int peer) const
    {
        detail::written<B>();
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<B>();
        const auto b = detail::view(buffer);
        n(call);
        return make<Out>(call, function, b.data(), b.size(), detail::type<B>(), peer);
    }

    template <class Out, class F, class S, class R>
    Out neighbor_exchange_as(const char *call, F function, S &&send, sizes send_counts, span<const int> to,
                             R &&recv, sizes recv_counts, span<const int> from) const
    {
        if constexpr (!std::is_void_v<Out>)
            detail::keeps<S, R>();
        detail::alike<S, R>();
        const auto s = detail::view(send);
        const auto r = detail::view(recv);
        n(call);
        detail::blocks(call, "send", s.size(), send_counts, {}, to.size());
        detail::blocks(call, "recv", r.size(), recv_counts, {}, from.size());
        return make<Out>(call, function, detail::or_null(send_counts) ? s.data() : nullptr,
                         detail::or_null(send_counts), nullptr, number(call, to.size()), to.data(), r.data(),
                         detail::or_null(recv_counts), nullptr, number(call, from.size()), from.data(),
                         detail::type<R>());
    }
    // The call itself: with nothing to return, or with the Request or Plan that it makes.
    template <class Out, class F, class... A> Out make(const char *call, F function, A... arguments) const
    {
        if constexpr (std::is_void_v<Out>) {
            detail::check(function(arguments..., comm_), call);
        } else {
            Out made(comm_, call);
            detail::check(function(arguments..., comm_, made.place()), call);
            return made;
        }
    }
    template <class F> static Communicator made(const char *call, F make)
    {
        gyre_comm_t *comm = nullptr;
        detail::check(make(&comm), call);
        return Communicator(comm, false);
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
        else if (gyre_comm_hosts(comm_) > 0) // else the job has ended, and with it this one
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

// Tensors that are reduced, bucket by bucket, while the program computes the next ones: gyre/bucket.h. It borrows
// its communicator.
template <class T> class Buckets
{
    static_assert(detail::type_number<T>() >= 0,
                  "gyre: this element type is not one of Gyre's (gyre/types.h)");

  public:
    // A bucket that has landed; `shard` is this rank's part of the result.
    struct Bucket {
        std::size_t index;
        span<T> data;
        std::size_t first_tensor, tensors;
        span<T> shard;
    };
    // Runs on the thread that makes progress, and must not call Gyre. An exception that leaves it is thrown by
    // the next ready, progress or wait that has no error of its own.
    using Landed = std::function<void(const Bucket &)>;

    // counts: elements of each tensor, in order of readiness. scatter: every rank gets its shard only.
    Buckets(const Communicator &comm, sizes counts, Reduction op, bool scatter = false,
            std::size_t bucket_bytes = 0, Landed landed = {})
        : comm_(comm.get()), counts_(counts.begin(), counts.end()),
          landed_(new Callback{std::move(landed), {}, nullptr})
    {
        gyre_buckets_config_t config{};
        config.size = sizeof config;
        config.type = static_cast<gyre_type_t>(detail::type_number<T>());
        config.op = op.get();
        config.mode = scatter ? GYRE_BUCKET_REDUCE_SCATTER : GYRE_BUCKET_ALL_REDUCE;
        config.bucket_bytes = bucket_bytes;
        config.landed = landed_->function ? call : nullptr;
        config.user = landed_.get();
        detail::check(gyre_buckets_create(comm.get(), &config, counts.size(), counts.data(), &buckets_),
                      "buckets_create");
    }
    Buckets(Buckets &&from) noexcept
        : buckets_(std::exchange(from.buckets_, nullptr)), comm_(from.comm_),
          counts_(std::move(from.counts_)), landed_(std::move(from.landed_)), open_(from.open_),
          unwinding_(from.unwinding_)
    {
    }
    Buckets &operator=(Buckets &&from) noexcept
    {
        std::swap(buckets_, from.buckets_);
        std::swap(comm_, from.comm_);
        std::swap(counts_, from.counts_);
        std::swap(landed_, from.landed_);
        std::swap(open_, from.open_);
        std::swap(unwinding_, from.unwinding_);
        return *this;
    }
    Buckets(const Buckets &) = delete;
    Buckets &operator=(const Buckets &) = delete;
    // Waits for reductions under way. After an exception in an open round it aborts the communicator first.
    ~Buckets()
    {
        if (buckets_ && open_ && std::uncaught_exceptions() > unwinding_)
            gyre_comm_abort(comm_, "an exception left the scope of buckets");
        gyre_buckets_destroy(buckets_);
    }

    [[nodiscard]] span<T> tensor(std::size_t i) const
    {
        T *data = static_cast<T *>(gyre_buckets_tensor(buckets_, i));
        if (!data)
            detail::refuse("buckets_tensor", "there is no tensor " + std::to_string(i));
        return span<T>(data, counts_[i]);
    }
    std::size_t size() const noexcept { return gyre_buckets_count(buckets_); }
    [[nodiscard]] Bucket get(std::size_t index) const
    {
        gyre_bucket_t bucket{};
        detail::check(gyre_buckets_get(buckets_, index, &bucket), "buckets_get");
        return described(bucket);
    }
    void ready(std::size_t tensor)
    {
        const gyre_status_t status = gyre_buckets_ready(buckets_, tensor);
        open_ = open_ || status == GYRE_OK;
        after(status, "buckets_ready");
    }
    void progress() { after(gyre_buckets_progress(buckets_), "buckets_progress"); }
    // Waits until every bucket has landed, and opens the next round.
    void wait()
    {
        const gyre_status_t status = gyre_buckets_wait(buckets_);
        open_ = open_ && status == GYRE_ERR_INVALID; // then the round goes on
        after(status, "buckets_wait");
    }
    struct Times {
        double total_s, exposed_s;
    };
    [[nodiscard]] Times times() const
    {
        Times out{};
        detail::check(gyre_buckets_times(buckets_, &out.total_s, &out.exposed_s), "buckets_times");
        return out;
    }

  private:
    struct Callback {
        Landed function;
        std::mutex lock; // Gyre's own thread may call the function
        std::exception_ptr thrown;
    };
    static Bucket described(const gyre_bucket_t &b)
    {
        T *data = static_cast<T *>(b.data);
        return {b.index, span<T>(data, b.count), b.first_tensor, b.tensors,
                span<T>(data + b.shard_offset, b.shard_count)};
    }
    static void call(const gyre_bucket_t *bucket, void *user) noexcept
    {
        Callback *callback = static_cast<Callback *>(user);
        try {
            callback->function(described(*bucket));
        } catch (...) {
            const std::lock_guard<std::mutex> guard(callback->lock);
            if (!callback->thrown)
                callback->thrown = std::current_exception();
        }
    }
    void after(gyre_status_t status, const char *name)
    {
        detail::check(status, name);
        const std::lock_guard<std::mutex> guard(landed_->lock);
        if (std::exception_ptr thrown = std::exchange(landed_->thrown, nullptr))
            std::rethrow_exception(thrown);
    }
    gyre_buckets_t *buckets_ = nullptr;
    gyre_comm_t *comm_;
    std::vector<std::size_t> counts_;
    std::unique_ptr<Callback> landed_;
    bool open_ = false; // a tensor of this round is ready: its reduction may be under way
    int unwinding_ = std::uncaught_exceptions();
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
