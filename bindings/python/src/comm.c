/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c: gyre.Comm but for its collectives (methods.c): how communicators are made, asked and ended. */
#include "binding.h"

#include <string.h>

static PyTypeObject *comm_type;

PyObject *of_package(const char *name)
{
    PyObject *package = PyImport_ImportModule("gyre");
    PyObject *found = package != NULL ? PyObject_GetAttrString(package, name) : NULL;
    Py_XDECREF(package);
    return found;
}

PyObject *error_of(gyre_status_t status)
{
    const char *text = gyre_last_error();
    PyObject *class = of_package("Error");
    if (class == NULL)
        return NULL;
    PyObject *error =
        PyObject_CallFunction(class, "is", (int)status, *text != '\0' ? text : gyre_status_string(status));
    Py_DECREF(class);
    return error;
}

PyObject *raise_status(gyre_status_t status)
{
    return raise_from(status, NULL);
}

PyObject *raise_caused(gyre_status_t status, PyObject *user)
{
    return raise_from(status, take_raised(user));
}

PyObject *raise_from(gyre_status_t status, PyObject *cause)
{
    PyObject *error = error_of(status);
    if (error != NULL) {
        if (cause != NULL)
            PyException_SetCause(error, Py_NewRef(cause)); /* takes the reference */
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    Py_XDECREF(cause);
    return NULL;
}

PyObject *none_or_raise(gyre_status_t status)
{
    return status == GYRE_OK ? Py_NewRef(Py_None) : raise_status(status);
}

comm_t *comm_open(PyObject *object, const char *call)
{
    if (!PyObject_TypeCheck(object, comm_type)) {
        PyErr_Format(PyExc_TypeError, "%s: comm is not a gyre.Comm", call);
        return NULL;
    }
    comm_t *comm = (comm_t *)object;
    if (inside(call))
        return NULL;
    if (comm->comm != NULL)
        return comm;
    PyErr_Format(PyExc_ValueError, "%s: this communicator is closed", call);
    return NULL;
}

PyObject *comm_wrap(gyre_comm_t *handle, int job, int leaves, PyObject *parent)
{
    comm_t *comm = (comm_t *)PyType_GenericAlloc(comm_type, 0);
    if (comm == NULL)
        return NULL;
    comm->comm = handle;
    comm->rank = gyre_comm_rank(handle);
    comm->size = gyre_comm_size(handle);
    comm->leaves = leaves;
    comm->job = job;
    comm->parent = Py_XNewRef(parent);
    return (PyObject *)comm;
}

void comm_reap(comm_t *comm, int wait)
{
    if (wait && group_open()) /* Gyre waits for nothing of the group, and refuses the call that follows */
        return;
    pending_t *list = comm->orphans; /* detached: what runs meanwhile may drop further requests */
    comm->orphans = NULL;
    while (list != NULL) {
        pending_t *pending = list;
        list = pending->next;
        gyre_status_t status;
        if (wait)
            WITHOUT_GIL(comm, status = gyre_wait(&pending->request));
        else
            UNLOCKED(status = gyre_test(&pending->request));
        if (status != GYRE_OK && status != GYRE_IN_PROGRESS)
            Py_XDECREF(take_raised(pending->keep[0]));
        if (pending->request != NULL) { /* under way, or of an open group */
            pending->next = comm->orphans;
            comm->orphans = pending;
        } else {
            pending_free(pending);
        }
    }
}

/* Takes back the function of on_failure; when this returns, it does not run any more. */
static gyre_status_t forget_failure(comm_t *comm)
{
    gyre_status_t status = GYRE_OK;
    PyObject *function = comm->failure;
    comm->failure = NULL;
    if (function != NULL && comm->comm != NULL)
        UNLOCKED(status = gyre_comm_on_failure(comm->comm, NULL, NULL));
    Py_XDECREF(function);
    return status;
}

/* A communicator that is dropped without close() stays in Gyre until the job ends: ending it could wait. */
static void comm_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (put_off(self, comm_dealloc))
        return;
    forget_failure((comm_t *)self);
    Py_XDECREF(((comm_t *)self)->parent);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Whether the job of the communicator has ended, and this one with it. */
static int job_ended(const comm_t *comm)
{
    while (comm->parent != NULL)
        comm = (const comm_t *)comm->parent;
    return comm->job && comm->comm == NULL;
}

static PyObject *comm_close(PyObject *self, PyObject *Py_UNUSED(none))
{
    comm_t *comm = (comm_t *)self;
    if (inside("close"))
        return NULL;
    if (comm->comm == NULL)
        Py_RETURN_NONE;
    if (comm->calls > 0) {
        PyErr_SetString(PyExc_ValueError, "close: another thread is in a call on this communicator");
        return NULL;
    }
    if (job_ended(comm)) {
        comm->comm = NULL;
        Py_CLEAR(comm->failure);
        Py_RETURN_NONE;
    }
    gyre_status_t status;
    comm_reap(comm, 1);
    WITHOUT_GIL(comm, status = comm->job ? gyre_finalize(comm->comm) : gyre_comm_destroy(comm->comm));
    if (status != GYRE_ERR_INVALID) { /* else nothing has happened */
        comm->comm = NULL;
        Py_CLEAR(comm->failure);
    }
    return none_or_raise(status);
}

static PyObject *comm_set(PyObject *self, PyObject *args, PyObject *names)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    const parameter_t list[] = {OPTION_PARAMETERS(&options), {0}};
    comm_t *comm = comm_open(self, "set");
    if (comm == NULL || take_arguments("set", args, names, list, 0, 0) != 0)
        return NULL;
    comm_reap(comm, 1);
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_comm_set(comm->comm, &options));
    if (status == GYRE_OK)
        comm->leaves = options.leaves;
    return none_or_raise(status);
}

static PyObject *comm_abort(PyObject *self, PyObject *args, PyObject *names)
{
    const char *reason = NULL;
    const parameter_t list[] = {{"reason", TAKE_TEXT, &reason}, {0}};
    comm_t *comm = comm_open(self, "abort");
    if (comm == NULL || take_arguments("abort", args, names, list, 0, 1) != 0)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_comm_abort(comm->comm, reason));
    return none_or_raise(status);
}

static PyObject *comm_error(PyObject *self, PyObject *Py_UNUSED(none))
{
    comm_t *comm = comm_open(self, "error");
    if (comm == NULL)
        return NULL;
    gyre_status_t status;
    UNLOCKED(status = gyre_comm_error(comm->comm));
    return status == GYRE_OK ? Py_NewRef(Py_None) : error_of(status);
}

static PyObject *comm_progress(PyObject *self, PyObject *Py_UNUSED(none))
{
    comm_t *comm = comm_open(self, "progress");
    if (comm == NULL)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_progress(comm->comm));
    return none_or_raise(status);
}

static PyObject *comm_fileno(PyObject *self, PyObject *Py_UNUSED(none))
{
    int fd = -1;
    comm_t *comm = comm_open(self, "fileno");
    if (comm == NULL)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_comm_fd(comm->comm, &fd));
    return status == GYRE_OK ? PyLong_FromLong(fd) : raise_status(status);
}

static PyObject *comm_arm(PyObject *self, PyObject *Py_UNUSED(none))
{
    comm_t *comm = comm_open(self, "arm");
    if (comm == NULL)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_comm_arm(comm->comm));
    if (status != GYRE_OK && status != GYRE_IN_PROGRESS)
        return raise_status(status);
    return PyBool_FromLong(status == GYRE_OK);
}

static void call_failure(gyre_comm_t *Py_UNUSED(comm), gyre_status_t status, void *function)
{
    PyGILState_STATE state;
    if (!python_enter(&state))
        return;
    PyObject *type = NULL, *value = NULL, *trace = NULL; /* of the call in which this may run */
    PyErr_Fetch(&type, &value, &trace);
    PyObject *error = error_of(status);
    PyObject *result = error != NULL ? PyObject_CallFunctionObjArgs(function, error, NULL) : NULL;
    if (result == NULL)
        PyErr_WriteUnraisable(function);
    Py_XDECREF(result);
    Py_XDECREF(error);
    PyErr_Restore(type, value, trace);
    python_leave(state);
}

static PyObject *comm_on_failure(PyObject *self, PyObject *function)
{
    comm_t *comm = comm_open(self, "on_failure");
    if (comm == NULL)
        return NULL;
    if (function != Py_None && !PyCallable_Check(function)) {
        PyErr_SetString(PyExc_TypeError, "on_failure: function cannot be called; it must take a gyre.Error");
        return NULL;
    }
    gyre_status_t status = forget_failure(comm);
    if (status != GYRE_OK || function == Py_None)
        return none_or_raise(status);
    comm->failure = Py_NewRef(function);
    UNLOCKED(status = gyre_comm_on_failure(comm->comm, call_failure, function));
    if (status != GYRE_OK)
        Py_CLEAR(comm->failure);
    return none_or_raise(status);
}

static PyObject *comm_stats(PyObject *self, PyObject *Py_UNUSED(none))
{
    comm_t *comm = comm_open(self, "stats");
    gyre_comm_stats_t s = {.size = sizeof(s)};
    gyre_status_t status = GYRE_OK;
    if (comm == NULL)
        return NULL;
    UNLOCKED(status = gyre_comm_stats(comm->comm, &s));
    PyObject *class = status == GYRE_OK ? of_package("Stats") : raise_status(status);
    if (class == NULL)
        return NULL;
    PyObject *out = PyObject_CallFunction(class, "KKKKKKKKKKdKdd", s.operations, s.bytes_sent,
                                          s.bytes_received, s.messages_sent, s.plans_built, s.allocations,
                                          s.sleeps, s.shared_bytes, s.private_bytes, s.connections,
                                          s.wait_seconds, s.yields, s.yield_seconds, s.sleep_seconds);
    Py_DECREF(class);
    return out;
}

static PyObject *comm_address(PyObject *self, PyObject *Py_UNUSED(none))
{
    char text[128];
    comm_t *comm = comm_open(self, "address");
    if (comm == NULL)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_comm_address(comm->comm, text, sizeof(text)));
    return status == GYRE_OK ? PyUnicode_FromString(text) : raise_status(status);
}

static PyObject *comm_place(PyObject *self, PyObject *args, PyObject *names)
{
    int rank = -1;
    const parameter_t list[] = {{"rank", TAKE_INT, &rank}, {0}};
    comm_t *comm = comm_open(self, "place");
    if (comm == NULL || take_arguments("place", args, names, list, 0, 1) != 0)
        return NULL;
    gyre_place_t place = {.size = sizeof(place)};
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_comm_place(comm->comm, rank == -1 ? comm->rank : rank, &place));
    if (status != GYRE_OK)
        return raise_status(status);
    PyObject *class = of_package("Place");
    PyObject *out = class == NULL ? NULL
                                  : PyObject_CallFunction(class, "iiiiiiss", place.host, place.host_rank,
                                                          place.host_size, place.numa, place.device,
                                                          place.job_rank, place.device_bus, place.host_name);
    Py_XDECREF(class);
    return out;
}

static PyObject *get_rank(PyObject *self, void *Py_UNUSED(none))
{
    return PyLong_FromLong(((comm_t *)self)->rank);
}
static PyObject *get_size(PyObject *self, void *Py_UNUSED(none))
{
    return PyLong_FromLong(((comm_t *)self)->size);
}
static PyObject *get_closed(PyObject *self, void *Py_UNUSED(none))
{
    return PyBool_FromLong(((comm_t *)self)->comm == NULL);
}
/* which: "local_rank", "local_size" or "hosts" */
static PyObject *get_local(PyObject *self, void *which)
{
    comm_t *comm = comm_open(self, which);
    if (comm == NULL)
        return NULL;
    if (strcmp(which, "hosts") == 0)
        return PyLong_FromLong(gyre_comm_hosts(comm->comm));
    return PyLong_FromLong(strcmp(which, "local_rank") == 0 ? gyre_comm_local_rank(comm->comm)
                                                            : gyre_comm_local_size(comm->comm));
}

static PyGetSetDef properties[] = {
    {"rank", get_rank, NULL, "This rank's number, 0 to size - 1.", NULL},
    {"size", get_size, NULL, "The number of ranks.", NULL},
    {"closed", get_closed, NULL, "Whether close() has ended it.", NULL},
    {"local_rank", get_local, NULL, "This rank's number among those on its host.", "local_rank"},
    {"local_size", get_local, NULL, "The number of ranks on this rank's host.", "local_size"},
    {"hosts", get_local, NULL, "The number of hosts that the ranks are on.", "hosts"},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef own_methods[] = {
    {"close", comm_close, METH_NOARGS,
     "close($self)\n--\n\nLeaves the job, when all ranks have called it (a job's communicator), or frees a\n"
     "communicator that was made of another one. Operations whose Request was dropped are waited for.\n"
     "`with comm:` calls it at the end; after an exception, abort() before it."},
    {"set", KEYWORDS(comm_set),
     "set($self, *, order=0, leaves=1, algorithm=None, chunk=0, timeout=0.0, tag=0)\n--\n\n"
     "Sets the options of the operations from here on; those that are not named get their defaults.\n"
     "All ranks call it. gyre_comm_set(3) describes them.\n\n"
     ">>> comm.set(order=gyre.Order.EXACT)\n>>> comm.set(leaves=2)\n>>> total = numpy.empty(3)\n"
     ">>> comm.all_reduce(numpy.ones((2, 3)), total)\n>>> bool(total[0] == 2 * comm.size)\nTrue\n>>> "
     "comm.set()"},
    {"abort", KEYWORDS(comm_abort),
     "abort($self, reason=None)\n--\n\nEnds the communicator on all ranks. Any thread may call it at any "
     "time."},
    {"error", comm_error, METH_NOARGS,
     "error($self)\n--\n\nThe Error that killed the communicator, or None.\n\n>>> comm.error() is "
     "None\nTrue"},
    {"progress", comm_progress, METH_NOARGS, "progress($self)\n--\n\nAdvances operations without blocking."},
    {"fileno", comm_fileno, METH_NOARGS,
     "fileno($self)\n--\n\nA descriptor for event loops, readable when progress is possible. `await request` "
     "uses it."},
    {"arm", comm_arm, METH_NOARGS,
     "arm($self)\n--\n\nBefore a loop sleeps on fileno(): True: it may. False: test the requests, then arm "
     "again."},
    {"place", KEYWORDS(comm_place),
     "place($self, rank=-1)\n--\n\nWhere a rank is: a gyre.Place. Default: this rank.\n\n"
     ">>> comm.place(0).host\n0"},
    {"stats", comm_stats, METH_NOARGS,
     "stats($self)\n--\n\nWhat was counted so far: a gyre.Stats. Any thread may call it.\n\n"
     ">>> before = comm.stats().operations\n>>> comm.barrier()\n>>> comm.stats().operations - "
     "before\n1"},
    {"on_failure", comm_on_failure, METH_O,
     "on_failure($self, function)\n--\n\nfunction(error), with a gyre.Error, is called once when the "
     "communicator fails, also while no\n"
     "thread is in a call. It runs on any thread, must return soon and calls of Gyre only comm.error(),\n"
     "rank, size. None takes it back.\n\n"
     ">>> failed = []\n>>> own = comm.dup()\n>>> own.on_failure(failed.append)\n>>> own.abort()\n"
     ">>> failed[0].status.name\n'ABORTED'"},
    {"address", comm_address, METH_NOARGS,
     "address($self)\n--\n\nWhere newcomers join, the value of their GYRE_JOIN: see grow."},
    {"alloc_shared", comm_alloc_shared, METH_O,
     "alloc_shared($self, nbytes)\n--\n\nMemory in which the ranks of a host load and store: a gyre.Memory, "
     "zeroed. All\n"
     "ranks call it, each with the bytes of its own part.\n\n"
     ">>> memory = comm.alloc_shared(8)\n>>> memory.array()[0] = comm.rank\n>>> comm.barrier()\n"
     ">>> [float(memory.peer(rank).array()[0]) for rank in range(comm.size)] == "
     "list(range(comm.size))\nTrue\n"
     ">>> comm.barrier()"},
};
enum { OWN_METHODS = sizeof(own_methods) / sizeof(own_methods[0]) };

static const char COMM_DOC[] =
    "A communicator: a group of ranks that call collectives together. gyre.init(), gyre.create(),\n"
    "gyre.create_id() and methods of a Comm make one. One thread at a time makes calls on it.";

int comm_add(PyObject *module)
{
    size_t n = 0, m = 0;
    while (collective_methods[n].ml_name != NULL)
        n++;
    while (making_methods[m].ml_name != NULL)
        m++;
    PyMethodDef *all = PyMem_Calloc(OWN_METHODS + n + m + 1, sizeof(*all)); /* for as long as the process */
    if (all == NULL)
        return -1;
    memcpy(all, own_methods, sizeof(own_methods));
    memcpy(all + OWN_METHODS, collective_methods, n * sizeof(*all));
    memcpy(all + OWN_METHODS + n, making_methods, m * sizeof(*all));
    PyType_Slot slots[] = {{Py_tp_dealloc, SLOT(comm_dealloc)},
                           {Py_tp_methods, all},
                           {Py_tp_getset, properties},
                           {Py_tp_doc, SLOT(COMM_DOC)},
                           {0, NULL}};
    PyType_Spec spec = {"gyre.Comm", sizeof(comm_t), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    comm_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return comm_type != NULL ? PyModule_AddObjectRef(module, "Comm", (PyObject *)comm_type) : -1;
}
