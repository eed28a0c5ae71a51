/* SPDX-License-Identifier: Apache-2.0 */
/* methods.c: the collectives as methods of gyre.Comm, blocking and non-blocking: a table says which arguments
 * each takes. */
#include "call.h"
#include "docs.h"

const char *const argument_names[ARGUMENTS] = {
    "send",        "recv",        "buffer",      "op",          "root", "peer",    "counts", "displs",
    "send_counts", "send_displs", "recv_counts", "recv_displs", "to",   "sources", "scale",  "type"};

/* Sorts the arguments of a Python call into call->given. */
static int parse(call_t *call, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    const collective_t *of = call->of;
    int takes = 0;
    while (of->takes[takes] != LIST_END)
        takes++;
    if (nargs > takes) {
        PyErr_Format(PyExc_TypeError, "%s: %zd arguments were given; it takes at most %d", of->name, nargs,
                     takes);
        return -1;
    }
    for (Py_ssize_t i = 0; i < nargs; i++)
        call->given[of->takes[i]] = args[i];
    Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int k = 0;
        while (k < takes && PyUnicode_CompareWithASCIIString(name, argument_names[of->takes[k]]) != 0)
            k++;
        if (k == takes || k < nargs) {
            PyErr_Format(PyExc_TypeError, "%s: argument %U %s", of->name, name,
                         k == takes ? "is not one of its arguments" : "was given twice");
            return -1;
        }
        call->given[of->takes[k]] = args[nargs + i];
    }
    for (int k = 0; k < takes; k++) {
        PyObject **given = &call->given[of->takes[k]];
        if (*given == NULL && k < of->needs) {
            PyErr_Format(PyExc_TypeError, "%s: argument %s is missing", of->name,
                         argument_names[of->takes[k]]);
            return -1;
        }
        if (*given == Py_None)
            *given = NULL;
    }
    return 0;
}

static void free_lists(call_t *call)
{
    for (int i = 0; i < ARGUMENTS; i++)
        if (call->lists[i] != NULL)
            PyMem_Free(call->lists[i]);
    PyMem_Free(call->ranks[0]);
    PyMem_Free(call->ranks[1]);
}

static PyObject *blocking(call_t *call)
{
    int rc = call->of->run(call);
    array_release(&call->send);
    array_release(&call->recv);
    if (rc != 0)
        return NULL;
    return call->status == GYRE_OK ? Py_NewRef(Py_None) : raise_status(call->status);
}

static PyObject *starting(call_t *call)
{
    comm_reap(call->comm, 0);
    pending_t *pending = PyMem_Calloc(1, sizeof(*pending));
    if (pending == NULL)
        return PyErr_NoMemory();
    call->request = &pending->request;
    int rc = call->of->run(call);
    pending->send = call->send;
    pending->recv = call->recv;
    if (rc == 0 && call->status == GYRE_OK)
        return request_wrap((PyObject *)call->comm, pending);
    pending_free(pending);
    return rc != 0 ? NULL : raise_status(call->status);
}

static PyObject *method(PyObject *self, const collective_t *of, int blocks, PyObject *const *args,
                        Py_ssize_t nargs, PyObject *names)
{
    call_t call = {.of = of};
    call.comm = comm_open(self, of->name);
    if (call.comm == NULL || parse(&call, args, nargs, names) != 0)
        return NULL;
    call.handle = call.comm->comm;
    call.comm->calls++;
    PyObject *out = blocks ? blocking(&call) : starting(&call);
    call.comm->calls--;
    free_lists(&call);
    return out;
}

#define REDUCING OP, SCALE, TYPE, LIST_END
#define COLLECTIVE(name, run, needs, ...)                                                                 \
    static const collective_t of_##name = {#name, {__VA_ARGS__}, needs, run_##run};                       \
    static PyObject *py_##name(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)  \
    {                                                                                                     \
        return method(self, &of_##name, 1, args, nargs, names);                                           \
    }                                                                                                     \
    static PyObject *py_i##name(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names) \
    {                                                                                                     \
        return method(self, &of_##name, 0, args, nargs, names);                                           \
    }
COLLECTIVE(all_reduce, all_reduce, 1, SEND, RECV, REDUCING)
COLLECTIVE(reduce_scatter, reduce_scatter, 1, SEND, RECV, REDUCING)
COLLECTIVE(reduce_scatterv, reduce_scatterv, 3, SEND, RECV, COUNTS, REDUCING)
COLLECTIVE(reduce, reduce, 1, SEND, RECV, OP, ROOT, SCALE, TYPE, LIST_END)
COLLECTIVE(scan, prefix, 1, SEND, RECV, REDUCING)
COLLECTIVE(exscan, prefix, 1, SEND, RECV, REDUCING)
COLLECTIVE(broadcast, broadcast, 1, BUFFER, ROOT, TYPE, LIST_END)
COLLECTIVE(all_gather, all_gather, 2, SEND, RECV, TYPE, LIST_END)
COLLECTIVE(all_gatherv, all_gatherv, 3, SEND, RECV, COUNTS, DISPLS, TYPE, LIST_END)
COLLECTIVE(gather, gather, 1, SEND, RECV, ROOT, TYPE, LIST_END)
COLLECTIVE(gatherv, gatherv, 1, SEND, RECV, COUNTS, DISPLS, ROOT, TYPE, LIST_END)
COLLECTIVE(scatter, scatter, 2, SEND, RECV, ROOT, TYPE, LIST_END)
COLLECTIVE(scatterv, scatterv, 2, SEND, RECV, COUNTS, DISPLS, ROOT, TYPE, LIST_END)
COLLECTIVE(all_to_all, all_to_all, 1, SEND, RECV, TYPE, LIST_END)
COLLECTIVE(all_to_allv, all_to_allv, 4, SEND, SEND_COUNTS, RECV, RECV_COUNTS, SEND_DISPLS, RECV_DISPLS, TYPE,
           LIST_END)
COLLECTIVE(barrier, barrier, 0, LIST_END)
COLLECTIVE(send, send, 2, BUFFER, PEER, TYPE, LIST_END)
COLLECTIVE(recv, recv, 2, BUFFER, PEER, TYPE, LIST_END)
COLLECTIVE(neighbor_exchange, neighbor_exchange, 4, SEND, TO, RECV, FROM, SEND_COUNTS, RECV_COUNTS,
           SEND_DISPLS, RECV_DISPLS, TYPE, LIST_END)

#define METHOD(name, parameters, text)                                                             \
    {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL | METH_KEYWORDS,                 \
     #name "($self, " parameters ")\n--\n\n" text},                                                \
    {                                                                                              \
        "i" #name, (PyCFunction)(void (*)(void))py_i##name, METH_FASTCALL | METH_KEYWORDS,         \
            "i" #name "($self, " parameters ")\n--\n\nStarts " #name                               \
            " and returns its gyre.Request at once.\n\n"                                           \
            "The arrays belong to Gyre until the request has finished, and stay alive until then." \
    }
PyMethodDef collective_methods[] = {
    METHOD(all_reduce, "send, recv=None, op=0, scale=None, type=None", DOC_ALL_REDUCE),
    METHOD(reduce_scatter, "send, recv=None, op=0, scale=None, type=None", DOC_REDUCE_SCATTER),
    METHOD(reduce_scatterv, "send, recv, counts, op=0, scale=None, type=None", DOC_REDUCE_SCATTERV),
    METHOD(reduce, "send, recv=None, op=0, root=0, scale=None, type=None", DOC_REDUCE),
    METHOD(scan, "send, recv=None, op=0, scale=None, type=None", DOC_SCAN),
    METHOD(exscan, "send, recv=None, op=0, scale=None, type=None", DOC_EXSCAN),
    METHOD(broadcast, "buffer, root=0, type=None", DOC_BROADCAST),
    METHOD(all_gather, "send, recv, type=None", DOC_ALL_GATHER),
    METHOD(all_gatherv, "send, recv, counts, displs=None, type=None", DOC_ALL_GATHERV),
    METHOD(gather, "send, recv=None, root=0, type=None", DOC_GATHER),
    METHOD(gatherv, "send, recv=None, counts=None, displs=None, root=0, type=None", DOC_GATHERV),
    METHOD(scatter, "send, recv, root=0, type=None", DOC_SCATTER),
    METHOD(scatterv, "send, recv, counts=None, displs=None, root=0, type=None", DOC_SCATTERV),
    METHOD(all_to_all, "send, recv=None, type=None", DOC_ALL_TO_ALL),
    METHOD(all_to_allv, "send, send_counts, recv, recv_counts, send_displs=None, recv_displs=None, type=None",
           DOC_ALL_TO_ALLV),
    METHOD(barrier, "", DOC_BARRIER),
    METHOD(send, "buffer, peer, type=None", DOC_SEND),
    METHOD(recv, "buffer, peer, type=None", DOC_RECV),
    METHOD(neighbor_exchange,
           "send, to, recv, sources, send_counts=None, recv_counts=None, send_displs=None, recv_displs=None, "
           "type=None",
           DOC_NEIGHBOR_EXCHANGE),
    {NULL, NULL, 0, NULL}};
