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

/* What the call uses moves to `pending`: arrays, and an operation or a type of the program's own. rc: that of
 * its run. */
static void keep(call_t *call, pending_t *pending, int rc)
{
    pending->send = call->send;
    pending->recv = call->recv;
    for (int i = 0; i < 2 && rc == 0; i++) { /* else the objects may be of any kind */
        PyObject *object = call->given[i == 0 ? OP : TYPE];
        if (object != NULL && !PyLong_Check(object))
            pending->keep[i] = Py_NewRef(object);
    }
}

static PyObject *blocking(call_t *call)
{
    pending_t *held = group_open() ? PyMem_Calloc(1, sizeof(*held)) : NULL;
    if (held == NULL && group_open())
        return PyErr_NoMemory();
    int rc = call->of->run(call);
    if (held != NULL) {
        keep(call, held, rc);
        group_hold(held);
    } else {
        array_release(&call->send);
        array_release(&call->recv);
    }
    if (rc != 0)
        return NULL;
    return call->status == GYRE_OK ? Py_NewRef(Py_None) : raise_caused(call->status, call->given[OP]);
}

static PyObject *starting(call_t *call)
{
    comm_reap(call->comm, 0);
    pending_t *pending = PyMem_Calloc(1, sizeof(*pending));
    if (pending == NULL)
        return PyErr_NoMemory();
    call->request = &pending->request;
    int rc = call->of->run(call);
    keep(call, pending, rc);
    if (rc == 0 && call->status == GYRE_OK)
        return request_wrap((PyObject *)call->comm, pending);
    pending_free(pending);
    return rc != 0 ? NULL : raise_caused(call->status, call->given[OP]);
}

static PyObject *planning(call_t *call)
{
    gyre_plan_t *plan = NULL;
    pending_t *pending = PyMem_Calloc(1, sizeof(*pending));
    if (pending == NULL)
        return PyErr_NoMemory();
    call->plan = &plan;
    int rc = call->of->run(call);
    keep(call, pending, rc);
    if (rc == 0 && call->status == GYRE_OK)
        return plan_wrap((PyObject *)call->comm, plan, pending);
    pending_free(pending);
    return rc != 0 ? NULL : raise_status(call->status);
}

static PyObject *method(PyObject *self, const collective_t *of, PyObject *(*way)(call_t *call),
                        PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    call_t call = {.of = of};
    call.comm = comm_open(self, of->name);
    if (call.comm == NULL || parse(&call, args, nargs, names) != 0)
        return NULL;
    call.handle = call.comm->comm;
    call.comm->calls++;
    PyObject *out = way(&call);
    call.comm->calls--;
    free_lists(&call);
    return out;
}

#define REDUCING OP, SCALE, TYPE, LIST_END
#define WAY(prefix, name, way)                                                                              \
    static PyObject *prefix##name(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names) \
    {                                                                                                       \
        return method(self, &of_##name, way, args, nargs, names);                                           \
    }
#define MESSAGE(name, run, needs, ...)                                              \
    static const collective_t of_##name = {#name, {__VA_ARGS__}, needs, run_##run}; \
    WAY(py_, name, blocking)                                                        \
    WAY(py_i, name, starting)
#define COLLECTIVE(name, run, needs, ...)  \
    MESSAGE(name, run, needs, __VA_ARGS__) \
    WAY(py_plan_, name, planning)
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
MESSAGE(send, send, 2, BUFFER, PEER, TYPE, LIST_END)
MESSAGE(recv, recv, 2, BUFFER, PEER, TYPE, LIST_END)
COLLECTIVE(neighbor_exchange, neighbor_exchange, 4, SEND, TO, RECV, FROM, SEND_COUNTS, RECV_COUNTS,
           SEND_DISPLS, RECV_DISPLS, TYPE, LIST_END)

#define ENTRY(prefix, name, parameters, text)                                                         \
    {                                                                                                 \
#prefix #name, (PyCFunction)(void (*)(void))py_##prefix##name, METH_FASTCALL | METH_KEYWORDS, \
            #prefix #name "($self, " parameters ")\n--\n\n" text                                      \
    }
#define TWO(name, parameters, text)                                        \
    ENTRY(, name, parameters, text),                                       \
        ENTRY(i, name, parameters,                                         \
              "Starts " #name " and returns its gyre.Request at once.\n\n" \
              "The arrays belong to Gyre until the request has finished, and stay alive until then.")
#define METHOD(name, parameters, text)                                  \
    TWO(name, parameters, text), ENTRY(plan_, name, parameters,         \
                                       "Checks the arguments of " #name \
                                       " once and returns a gyre.Plan of it, which starts it often.")
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
    TWO(send, "buffer, peer, type=None", DOC_SEND),
    TWO(recv, "buffer, peer, type=None", DOC_RECV),
    METHOD(neighbor_exchange,
           "send, to, recv, sources, send_counts=None, recv_counts=None, send_displs=None, recv_displs=None, "
           "type=None",
           DOC_NEIGHBOR_EXCHANGE),
    {NULL, NULL, 0, NULL}};
