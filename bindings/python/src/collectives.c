/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.c: each collective: what its arrays and lists must be, and the call of Gyre without the GIL. */
#include "call.h"

static int refuse(const call_t *call, enum argument argument, const char *text)
{
    PyErr_Format(PyExc_ValueError, "%s: %s %s", call->of->name, argument_names[argument], text);
    return -1;
}

/* The argument, if it was given, has `have` elements where `want` are needed. */
static int expect(const call_t *call, enum argument argument, size_t have, size_t want, const char *why)
{
    if (call->given[argument] == NULL || have == want)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s: %s has %zu elements; it must have %zu: %s", call->of->name,
                 argument_names[argument], have, want, why);
    return -1;
}

static int take(call_t *call, enum argument argument, int writable)
{
    array_t *array = argument == SEND ? &call->send : &call->recv;
    if (call->given[argument] == NULL)
        return refuse(call, argument, "is missing");
    return array_get(array, call->given[argument], writable, call->given[TYPE], call->of->name,
                     argument_names[argument]);
}

/* send and recv, which have the same type. Without recv, send is written to. */
static int take_both(call_t *call)
{
    int in_place = call->given[RECV] == NULL;
    if (take(call, SEND, in_place) != 0 || (!in_place && take(call, RECV, 1) != 0))
        return -1;
    if (in_place || call->send.type == call->recv.type)
        return 0;
    PyErr_Format(PyExc_TypeError,
                 "%s: send has elements of type %s and recv of type %s; they must be the same",
                 call->of->name, gyre_type_name(call->send.type), gyre_type_name(call->recv.type));
    return -1;
}

static int whole_number(const call_t *call, enum argument argument, long least, long most, int *number)
{
    long value = PyLong_AsLong(call->given[argument]);
    if (value == -1 && PyErr_Occurred() != NULL)
        return name_argument(call->of->name, argument_names[argument]);
    if (value < least || value > most) {
        PyErr_Format(PyExc_ValueError, "%s: %s is %ld; allowed: %ld to %ld", call->of->name,
                     argument_names[argument], value, least, most);
        return -1;
    }
    *number = (int)value;
    return 0;
}

static int take_op(call_t *call)
{
    return take_reduction(call->given[OP], call->given[SCALE], call->of->name, &call->op);
}

static int take_root(call_t *call, enum argument argument)
{
    call->root = 0;
    return call->given[argument] != NULL ? whole_number(call, argument, 0, call->comm->size - 1, &call->root)
                                         : 0;
}

/* A list of n whole numbers, or of any length if n < 0: call->lists[argument]. Returns its length, 0 if it
 * was not given. */
static Py_ssize_t take_list(call_t *call, enum argument argument, Py_ssize_t n)
{
    PyObject *given = call->given[argument];
    if (given == NULL)
        return 0;
    Py_ssize_t length = PySequence_Size(given);
    if (length < 0)
        return name_argument(call->of->name, argument_names[argument]);
    if (n >= 0 && expect(call, argument, (size_t)length, (size_t)n, "one for each block") != 0)
        return -1;
    size_t *list = PyMem_Calloc((size_t)length + 1, sizeof(*list));
    call->lists[argument] = list;
    if (list == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PySequence_GetItem(given, i), *number = item != NULL ? PyNumber_Index(item) : NULL;
        Py_XDECREF(item);
        if (number == NULL)
            return name_argument(call->of->name, argument_names[argument]);
        list[i] = PyLong_AsSize_t(number);
        Py_DECREF(number);
        if (list[i] == (size_t)-1 && PyErr_Occurred() != NULL) {
            PyErr_Clear();
            return refuse(call, argument, "has a negative number, or one that is too large");
        }
    }
    return length;
}

/* Counts and displacements of n blocks of `array`; they are needed, and must lie in the array. */
static int take_blocks(call_t *call, enum argument counts, enum argument displs, size_t n, enum argument of)
{
    const array_t *array = of == SEND ? &call->send : &call->recv;
    if (call->given[counts] == NULL)
        return refuse(call, counts, "is missing");
    if (take_list(call, counts, (Py_ssize_t)n) < 0 || take_list(call, displs, (Py_ssize_t)n) < 0)
        return -1;
    size_t begin = 0, end = 0;
    for (size_t i = 0; i < n; i++) {
        begin = call->lists[displs] != NULL ? call->lists[displs][i] : end;
        if (__builtin_add_overflow(begin, call->lists[counts][i], &end) || end > array->count) {
            PyErr_Format(PyExc_ValueError,
                         "%s: block %zu of %s has %zu elements from number %zu on, but %s has %zu",
                         call->of->name, i, argument_names[counts], call->lists[counts][i], begin,
                         argument_names[of], array->count);
            return -1;
        }
    }
    return 0;
}

/* n blocks of `whole` elements: *each. */
static int divide(call_t *call, enum argument argument, size_t whole, size_t n, size_t *each)
{
    if (n == 0 || whole % n != 0) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %zu elements, which are not %zu equal blocks",
                     call->of->name, argument_names[argument], whole, n);
        return -1;
    }
    *each = whole / n;
    return 0;
}

/* Calls gyre_NAME, gyre_iNAME or gyre_plan_NAME without the GIL. */
#define CALL(name, ...)                                                                       \
    do {                                                                                      \
        if (call->plan != NULL)                                                               \
            UNLOCKED(call->status = gyre_plan_##name(__VA_ARGS__, call->handle, call->plan)); \
        else                                                                                  \
            CALL_MESSAGE(name, __VA_ARGS__);                                                  \
    } while (0)
/* A message has no plan. */
#define CALL_MESSAGE(name, ...)                                                                            \
    UNLOCKED(call->status = call->request != NULL ? gyre_i##name(__VA_ARGS__, call->handle, call->request) \
                                                  : gyre_##name(__VA_ARGS__, call->handle))

static char *result(call_t *call)
{
    return call->given[RECV] == NULL ? call->send.data : call->recv.data;
}

/* The elements of one of this rank's leaves in send. */
static int one_leaf(call_t *call, size_t *count)
{
    size_t leaves = (size_t)call->comm->leaves;
    if (leaves == 1) {
        *count = call->send.count;
        return 0;
    }
    if (call->given[RECV] == NULL)
        return refuse(call, RECV, "is missing: with leaves other than 1 there is no in-place form");
    return leaves == 0 ? 0 : divide(call, SEND, call->send.count, leaves, count);
}

int run_all_reduce(call_t *call)
{
    size_t count = 0;
    if (take_op(call) != 0 || take_both(call) != 0 || one_leaf(call, &count) != 0)
        return -1;
    if (call->comm->leaves == 0)
        count = call->recv.count;
    if (expect(call, RECV, call->recv.count, count, "as many as send") != 0)
        return -1;
    CALL(all_reduce, call->send.data, result(call), count, call->send.type, call->op);
    return 0;
}

int run_reduce(call_t *call)
{
    size_t count = 0, leaves = (size_t)call->comm->leaves;
    if (take_op(call) != 0 || take_root(call, ROOT) != 0)
        return -1;
    int root = call->root == call->comm->rank;
    if (root || leaves == 0) { /* without leaves, only recv shows the count */
        if (take_both(call) != 0 || one_leaf(call, &count) != 0)
            return -1;
        if (leaves == 0)
            count = call->recv.count;
        if (expect(call, RECV, call->recv.count, count, "as many as send") != 0)
            return -1;
    } else if (take(call, SEND, 0) != 0 || divide(call, SEND, call->send.count, leaves, &count) != 0) {
        return -1;
    }
    CALL(reduce, call->send.data, root ? result(call) : NULL, count, call->send.type, call->op, call->root);
    return 0;
}

int run_prefix(call_t *call)
{
    if (take_op(call) != 0 || take_both(call) != 0 ||
        expect(call, RECV, call->recv.count, call->send.count, "as many as send") != 0)
        return -1;
    if (call->of->name[0] == 's')
        CALL(scan, call->send.data, result(call), call->send.count, call->send.type, call->op);
    else
        CALL(exscan, call->send.data, result(call), call->send.count, call->send.type, call->op);
    return 0;
}

/* *at: where this rank's block of `count` elements comes: recv, or in send, from element `offset` on. */
static int take_block(call_t *call, size_t offset, size_t count, const char *why, char **at)
{
    *at = call->given[RECV] == NULL ? call->send.data + offset * gyre_type_size(call->send.type)
                                    : call->recv.data;
    return expect(call, RECV, call->recv.count, count, why);
}

int run_reduce_scatter(call_t *call)
{
    char *recv = NULL;
    size_t whole = 0, count = 0;
    if (take_op(call) != 0 || take_both(call) != 0 || one_leaf(call, &whole) != 0)
        return -1;
    size_t n = (size_t)call->comm->size, rank = (size_t)call->comm->rank;
    if (call->comm->leaves == 0)
        whole = call->recv.count * n;
    if (divide(call, SEND, whole, n, &count) != 0 ||
        take_block(call, rank * count, count, "one block of send", &recv) != 0)
        return -1;
    CALL(reduce_scatter, call->send.data, recv, count, call->send.type, call->op);
    return 0;
}

int run_reduce_scatterv(call_t *call)
{
    char *recv = NULL;
    size_t whole = 0, sum = 0, before = 0, n = (size_t)call->comm->size, rank = (size_t)call->comm->rank;
    if (take_op(call) != 0 || take_both(call) != 0 || one_leaf(call, &whole) != 0)
        return -1;
    if (call->given[COUNTS] == NULL)
        return refuse(call, COUNTS, "is missing");
    if (take_list(call, COUNTS, (Py_ssize_t)n) < 0)
        return -1;
    const size_t *counts = call->lists[COUNTS];
    for (size_t i = 0; i < n; i++) {
        before += i < rank ? counts[i] : 0;
        if (__builtin_add_overflow(sum, counts[i], &sum))
            return refuse(call, COUNTS, "adds up to more than memory can hold");
    }
    if (call->comm->leaves != 0 && expect(call, SEND, whole, sum, "the sum of counts") != 0)
        return -1;
    if (take_block(call, before, counts[rank], "this rank's of counts", &recv) != 0)
        return -1;
    CALL(reduce_scatterv, call->send.data, recv, counts, call->send.type, call->op);
    return 0;
}

int run_broadcast(call_t *call)
{
    if (take_root(call, ROOT) != 0 || take(call, BUFFER, call->root != call->comm->rank) != 0)
        return -1;
    CALL(broadcast, call->recv.data, call->recv.data, call->recv.count, call->recv.type, call->root);
    return 0;
}

/* recv and send. Without send, this rank's block is in recv already. */
static int take_gathered(call_t *call)
{
    if (call->given[SEND] == NULL)
        return take(call, RECV, 1);
    if (call->given[RECV] == NULL)
        return refuse(call, RECV, "is missing");
    return take_both(call);
}

/* send and recv, where there is no in-place form. */
static int take_two(call_t *call)
{
    return call->given[SEND] == NULL ? refuse(call, SEND, "is missing") : take_gathered(call);
}

static char *own_block(call_t *call, size_t offset)
{
    return call->given[SEND] == NULL ? call->recv.data + offset * gyre_type_size(call->recv.type)
                                     : call->send.data;
}

int run_all_gather(call_t *call)
{
    size_t count = 0;
    if (take_gathered(call) != 0 ||
        divide(call, RECV, call->recv.count, (size_t)call->comm->size, &count) != 0 ||
        expect(call, SEND, call->send.count, count, "one block of recv") != 0)
        return -1;
    CALL(all_gather, own_block(call, (size_t)call->comm->rank * count), call->recv.data, count,
         call->recv.type);
    return 0;
}

/* Where this rank's block begins in blocks of `counts`, `displs`. */
static size_t own_offset(const call_t *call)
{
    size_t offset = 0;
    if (call->lists[DISPLS] != NULL)
        return call->lists[DISPLS][call->comm->rank];
    for (int i = 0; i < call->comm->rank; i++)
        offset += call->lists[COUNTS][i];
    return offset;
}

int run_all_gatherv(call_t *call)
{
    if (take_gathered(call) != 0 || take_blocks(call, COUNTS, DISPLS, (size_t)call->comm->size, RECV) != 0)
        return -1;
    size_t mine = call->lists[COUNTS][call->comm->rank];
    if (expect(call, SEND, call->send.count, mine, "this rank's of counts") != 0)
        return -1;
    CALL(all_gatherv, own_block(call, own_offset(call)), call->recv.data, call->lists[COUNTS],
         call->lists[DISPLS], call->recv.type);
    return 0;
}

int run_gather(call_t *call)
{
    if (take_root(call, ROOT) != 0)
        return -1;
    if (call->root != call->comm->rank) {
        if (take(call, SEND, 0) != 0)
            return -1;
        CALL(gather, call->send.data, NULL, call->send.count, call->send.type, call->root);
        return 0;
    }
    size_t count = 0;
    if (take_gathered(call) != 0 ||
        divide(call, RECV, call->recv.count, (size_t)call->comm->size, &count) != 0 ||
        expect(call, SEND, call->send.count, count, "one block of recv") != 0)
        return -1;
    CALL(gather, own_block(call, (size_t)call->root * count), call->recv.data, count, call->recv.type,
         call->root);
    return 0;
}

int run_gatherv(call_t *call)
{
    if (take_root(call, ROOT) != 0)
        return -1;
    if (call->root != call->comm->rank) {
        if (take(call, SEND, 0) != 0)
            return -1;
        CALL(gatherv, call->send.data, call->send.count, NULL, NULL, NULL, call->send.type, call->root);
        return 0;
    }
    if (take_gathered(call) != 0 || take_blocks(call, COUNTS, DISPLS, (size_t)call->comm->size, RECV) != 0)
        return -1;
    size_t mine = call->lists[COUNTS][call->root];
    if (expect(call, SEND, call->send.count, mine, "this rank's of counts") != 0)
        return -1;
    CALL(gatherv, own_block(call, own_offset(call)), mine, call->recv.data, call->lists[COUNTS],
         call->lists[DISPLS], call->recv.type, call->root);
    return 0;
}

int run_scatter(call_t *call)
{
    if (take_root(call, ROOT) != 0)
        return -1;
    if (call->root != call->comm->rank) {
        if (take(call, RECV, 1) != 0)
            return -1;
        CALL(scatter, NULL, call->recv.data, call->recv.count, call->recv.type, call->root);
        return 0;
    }
    char *recv = NULL;
    size_t count = 0;
    if (take_both(call) != 0 || divide(call, SEND, call->send.count, (size_t)call->comm->size, &count) != 0 ||
        take_block(call, (size_t)call->root * count, count, "one block of send", &recv) != 0)
        return -1;
    CALL(scatter, call->send.data, recv, count, call->send.type, call->root);
    return 0;
}

int run_scatterv(call_t *call)
{
    if (take_root(call, ROOT) != 0)
        return -1;
    if (call->root != call->comm->rank) {
        if (take(call, RECV, 1) != 0)
            return -1;
        CALL(scatterv, NULL, NULL, NULL, call->recv.data, call->recv.count, call->recv.type, call->root);
        return 0;
    }
    if (take_both(call) != 0 || take_blocks(call, COUNTS, DISPLS, (size_t)call->comm->size, SEND) != 0)
        return -1;
    char *recv = NULL;
    size_t mine = call->lists[COUNTS][call->root];
    if (take_block(call, own_offset(call), mine, "this rank's of counts", &recv) != 0)
        return -1;
    CALL(scatterv, call->send.data, call->lists[COUNTS], call->lists[DISPLS], recv, mine, call->send.type,
         call->root);
    return 0;
}

int run_all_to_all(call_t *call)
{
    size_t count = 0;
    if (take_both(call) != 0 || divide(call, SEND, call->send.count, (size_t)call->comm->size, &count) != 0 ||
        expect(call, RECV, call->recv.count, call->send.count, "as many as send") != 0)
        return -1;
    CALL(all_to_all, call->send.data, result(call), count, call->send.type);
    return 0;
}

int run_all_to_allv(call_t *call)
{
    size_t n = (size_t)call->comm->size;
    if (take_two(call) != 0 || take_blocks(call, SEND_COUNTS, SEND_DISPLS, n, SEND) != 0 ||
        take_blocks(call, RECV_COUNTS, RECV_DISPLS, n, RECV) != 0)
        return -1;
    CALL(all_to_allv, call->send.data, call->lists[SEND_COUNTS], call->lists[SEND_DISPLS], call->recv.data,
         call->lists[RECV_COUNTS], call->lists[RECV_DISPLS], call->send.type);
    return 0;
}

int run_barrier(call_t *call)
{
    UNLOCKED(call->status = call->plan != NULL      ? gyre_plan_barrier(call->handle, call->plan)
                            : call->request != NULL ? gyre_ibarrier(call->handle, call->request)
                                                    : gyre_barrier(call->handle));
    return 0;
}

int run_send(call_t *call)
{
    array_t *array = &call->recv;
    if (take_root(call, PEER) != 0 || take(call, BUFFER, 0) != 0)
        return -1;
    CALL_MESSAGE(send, array->data, array->count, array->type, call->root);
    return 0;
}

int run_recv(call_t *call)
{
    array_t *array = &call->recv;
    if (take_root(call, PEER) != 0 || take(call, BUFFER, 1) != 0)
        return -1;
    CALL_MESSAGE(recv, array->data, array->count, array->type, call->root);
    return 0;
}

/* The ranks of a list, and the blocks for them; without counts, the array is as many equal blocks. */
static int take_neighbors(call_t *call, enum argument ranks, enum argument counts, enum argument displs,
                          enum argument of, int *n)
{
    Py_ssize_t length = take_list(call, ranks, -1);
    if (length < 0)
        return -1;
    int *list = PyMem_Calloc((size_t)length + 1, sizeof(*list));
    call->ranks[ranks == FROM] = list;
    if (list == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        if (call->lists[ranks][i] >= (size_t)call->comm->size)
            return refuse(call, ranks, "has a number that is not a rank of the communicator");
        list[i] = (int)call->lists[ranks][i];
    }
    *n = (int)length;
    if (call->given[counts] != NULL)
        return take_blocks(call, counts, displs, (size_t)length, of);
    if (call->given[displs] != NULL)
        return refuse(call, counts, "is missing: displacements need it");
    size_t whole = of == SEND ? call->send.count : call->recv.count, each = 0;
    if ((length > 0 || whole > 0) && divide(call, of, whole, (size_t)length, &each) != 0)
        return -1;
    size_t *equal = PyMem_Calloc((size_t)length + 1, sizeof(*equal));
    call->lists[counts] = equal;
    if (equal == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < length; i++)
        equal[i] = each;
    return 0;
}

int run_neighbor_exchange(call_t *call)
{
    int to = 0, from = 0;
    if (take_two(call) != 0 || take_neighbors(call, TO, SEND_COUNTS, SEND_DISPLS, SEND, &to) != 0 ||
        take_neighbors(call, FROM, RECV_COUNTS, RECV_DISPLS, RECV, &from) != 0)
        return -1;
    CALL(neighbor_exchange, call->send.data, call->lists[SEND_COUNTS], call->lists[SEND_DISPLS], to,
         call->ranks[0], call->recv.data, call->lists[RECV_COUNTS], call->lists[RECV_DISPLS], from,
         call->ranks[1], call->send.type);
    return 0;
}
