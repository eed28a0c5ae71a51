/* SPDX-License-Identifier: Apache-2.0 */
/* making.c: the methods of gyre.Comm that make a communicator of it, blocking and not. */
#include "binding.h"

#include <limits.h>

/* The arguments of one call */
typedef struct {
    int color, key, type, n;
    int *ranks;
    uint64_t tag;
} wanted_t;

/* One kind of call. request NULL: it blocks. */
typedef struct {
    const char *name;
    int (*parse)(wanted_t *wanted, PyObject *args, PyObject *names);
    gyre_status_t (*make)(gyre_comm_t *comm, const wanted_t *wanted, gyre_comm_t **out,
                          gyre_request_t **request);
} making_t;

static int parse_split(wanted_t *w, PyObject *args, PyObject *names)
{
    const parameter_t list[] = {{"color", TAKE_INT, &w->color}, {"key", TAKE_INT, &w->key}, {0}};
    return take_arguments("split", args, names, list, 1, 2);
}
static gyre_status_t make_split(gyre_comm_t *comm, const wanted_t *w, gyre_comm_t **out,
                                gyre_request_t **request)
{
    return request != NULL ? gyre_comm_isplit(comm, w->color, w->key, out, request)
                           : gyre_comm_split(comm, w->color, w->key, out);
}

static int parse_split_type(wanted_t *w, PyObject *args, PyObject *names)
{
    const parameter_t list[] = {{"type", TAKE_INT, &w->type}, {"key", TAKE_INT, &w->key}, {0}};
    return take_arguments("split_type", args, names, list, 1, 2);
}
static gyre_status_t make_split_type(gyre_comm_t *comm, const wanted_t *w, gyre_comm_t **out,
                                     gyre_request_t **request)
{
    return request != NULL ? gyre_comm_isplit_type(comm, (gyre_split_t)w->type, w->key, out, request)
                           : gyre_comm_split_type(comm, (gyre_split_t)w->type, w->key, out);
}

static int parse_dup(wanted_t *Py_UNUSED(w), PyObject *args, PyObject *names)
{
    const parameter_t list[] = {{0}};
    return take_arguments("dup", args, names, list, 0, 0);
}
static gyre_status_t make_dup(gyre_comm_t *comm, const wanted_t *Py_UNUSED(w), gyre_comm_t **out,
                              gyre_request_t **request)
{
    return request != NULL ? gyre_comm_idup(comm, out, request) : gyre_comm_dup(comm, out);
}

static int parse_group(wanted_t *w, PyObject *args, PyObject *names)
{
    PyObject *ranks = NULL;
    const parameter_t list[] = {{"ranks", TAKE_OBJECT, &ranks}, {"tag", TAKE_UINT64, &w->tag}, {0}};
    if (take_arguments("create_group", args, names, list, 1, 2) != 0)
        return -1;
    Py_ssize_t n = PySequence_Size(ranks);
    if (n < 0)
        return name_argument("create_group", "ranks");
    if (n > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "create_group: ranks has %zd numbers, more than there are ranks", n);
        return -1;
    }
    w->n = (int)n;
    w->ranks = PyMem_Calloc((size_t)n + 1, sizeof(*w->ranks));
    if (w->ranks == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n && PyErr_Occurred() == NULL; i++) {
        PyObject *item = PySequence_GetItem(ranks, i);
        long rank = item != NULL ? PyLong_AsLong(item) : -1;
        Py_XDECREF(item);
        w->ranks[i] = rank < 0 || rank > INT_MAX ? -1 : (int)rank;
    }
    return PyErr_Occurred() == NULL ? 0 : name_argument("create_group", "ranks");
}
static gyre_status_t make_group(gyre_comm_t *comm, const wanted_t *w, gyre_comm_t **out,
                                gyre_request_t **request)
{
    return request != NULL ? gyre_comm_icreate_group(comm, w->ranks, w->n, w->tag, out, request)
                           : gyre_comm_create_group(comm, w->ranks, w->n, w->tag, out);
}

static PyObject *making(PyObject *self, PyObject *args, PyObject *names, const making_t *of, int blocks)
{
    wanted_t wanted = {.n = 0};
    gyre_comm_t *out = NULL;
    PyObject *result = NULL;
    gyre_status_t status;
    comm_t *comm = comm_open(self, of->name);
    if (comm == NULL || of->parse(&wanted, args, names) != 0) {
        PyMem_Free(wanted.ranks);
        return NULL;
    }
    if (blocks) {
        WITHOUT_GIL(comm, status = of->make(comm->comm, &wanted, &out, NULL));
        result = status != GYRE_OK ? raise_status(status)
                 : out != NULL     ? comm_wrap(out, 0, 1, self)
                                   : Py_NewRef(Py_None);
    } else {
        comm_reap(comm, 0);
        pending_t *pending = PyMem_Calloc(1, sizeof(*pending));
        if (pending == NULL) {
            PyErr_NoMemory();
        } else {
            pending->makes = 1;
            WITHOUT_GIL(comm, status = of->make(comm->comm, &wanted, &pending->made, &pending->request));
            if (status == GYRE_OK) {
                result = request_wrap(self, pending);
            } else {
                pending_free(pending);
                raise_status(status);
            }
        }
    }
    PyMem_Free(wanted.ranks);
    return result;
}

/* Both successors of a job's communicator: that is then ended by gyre_comm_destroy, or with its successor. */
static PyObject *replace(comm_t *comm, gyre_status_t status, gyre_comm_t *out)
{
    if (status != GYRE_OK)
        return raise_status(status);
    PyObject *made = comm_wrap(out, 1, 1, NULL);
    comm->job = 0;
    comm->parent = Py_XNewRef(made); /* whose close() ends this one, too, and what was made of it */
    return made;
}

static PyObject *comm_shrink(PyObject *self, PyObject *Py_UNUSED(none))
{
    comm_t *comm = comm_open(self, "shrink");
    gyre_comm_t *out = NULL;
    gyre_status_t status;
    if (comm == NULL)
        return NULL;
    WITHOUT_GIL(comm, status = gyre_comm_shrink(comm->comm, &out));
    return replace(comm, status, out);
}

static PyObject *comm_grow(PyObject *self, PyObject *number)
{
    comm_t *comm = comm_open(self, "grow");
    int newcomers = 0;
    gyre_comm_t *out = NULL;
    gyre_status_t status;
    if (comm == NULL || take_int(number, "grow", "newcomers", &newcomers) != 0)
        return NULL;
    WITHOUT_GIL(comm, status = gyre_comm_grow(comm->comm, newcomers, &out));
    return replace(comm, status, out);
}

#define NAME_split      "split"
#define NAME_split_type "split_type"
#define NAME_dup        "dup"
#define NAME_group      "create_group"
#define MAKING(name)                                                             \
    static const making_t of_##name = {NAME_##name, parse_##name, make_##name};  \
    static PyObject *py_##name(PyObject *self, PyObject *args, PyObject *names)  \
    {                                                                            \
        return making(self, args, names, &of_##name, 1);                         \
    }                                                                            \
    static PyObject *py_i##name(PyObject *self, PyObject *args, PyObject *names) \
    {                                                                            \
        return making(self, args, names, &of_##name, 0);                         \
    }
MAKING(split)
MAKING(split_type)
MAKING(dup)
MAKING(group)

#define STARTS "Starts it and returns a gyre.Request, whose wait() returns the communicator."
PyMethodDef making_methods[] = {
    {"split", KEYWORDS(py_split),
     "split($self, color, key=0)\n--\n\nRanks with the same color form a communicator, in the order of (key, "
     "rank).\nNone for a negative color.\n\n"
     ">>> with comm.split(comm.rank % 2) as half:\n...     half.size == (comm.size + 1 - comm.rank % 2) // "
     "2\nTrue"},
    {"isplit", KEYWORDS(py_isplit), "isplit($self, color, key=0)\n--\n\n" STARTS},
    {"split_type", KEYWORDS(py_split_type),
     "split_type($self, type, key=0)\n--\n\nRanks in the same place form a communicator: gyre.Split.\n\n"
     ">>> with comm.split_type(gyre.Split.HOST) as host:\n...     host.size == comm.local_size\nTrue"},
    {"isplit_type", KEYWORDS(py_isplit_type), "isplit_type($self, type, key=0)\n--\n\n" STARTS},
    {"dup", KEYWORDS(py_dup),
     "dup($self)\n--\n\nA communicator of the same ranks with the same options, but one leaf per rank.\n\n"
     ">>> with comm.dup() as own:\n...     own.size == comm.size\nTrue"},
    {"idup", KEYWORDS(py_idup),
     "idup($self)\n--\n\n" STARTS
     "\n\n>>> request = comm.idup()\n>>> with request.wait() as own:\n...     own.size == comm.size\nTrue"},
    {"create_group", KEYWORDS(py_group),
     "create_group($self, ranks, tag=0)\n--\n\nA communicator of some ranks, who alone call it.\n\n"
     ">>> with comm.create_group([comm.rank]) as alone:\n...     alone.size\n1"},
    {"icreate_group", KEYWORDS(py_igroup), "icreate_group($self, ranks, tag=0)\n--\n\n" STARTS},
    {"shrink", comm_shrink, METH_NOARGS,
     "shrink($self)\n--\n\nThe job's communicator without dead ranks, after an Error with Status.PEER_DEAD. "
     "All ranks\nthat are left call it. close() this one, too."},
    {"grow", comm_grow, METH_O,
     "grow($self, newcomers)\n--\n\nThe job's communicator with so many new processes, which were started "
     "with GYRE_JOIN set to\naddress(): their gyre.init() returns it, too. All ranks call it. close() this "
     "one, too."},
    {NULL, NULL, 0, NULL}};
