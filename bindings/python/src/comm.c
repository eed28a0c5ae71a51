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

static PyObject *error_of(gyre_status_t status)
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
    PyObject *error = error_of(status);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

static PyObject *none_or_raise(gyre_status_t status)
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
    pending_t *list = comm->orphans; /* detached: what runs meanwhile may drop further requests */
    comm->orphans = NULL;
    while (list != NULL) {
        pending_t *pending = list;
        gyre_status_t status = GYRE_OK;
        list = pending->next;
        if (wait)
            WITHOUT_GIL(comm, status = gyre_wait(&pending->request));
        else
            status = gyre_test(&pending->request);
        if (status == GYRE_IN_PROGRESS) {
            pending->next = comm->orphans;
            comm->orphans = pending;
        } else {
            pending_free(pending);
        }
    }
}

/* A communicator that is dropped without close() stays in Gyre until the job ends: ending it could wait. */
static void comm_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
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
    if (comm->comm == NULL)
        Py_RETURN_NONE;
    if (comm->calls > 0) {
        PyErr_SetString(PyExc_ValueError, "close: another thread is in a call on this communicator");
        return NULL;
    }
    if (job_ended(comm)) {
        comm->comm = NULL;
        Py_RETURN_NONE;
    }
    gyre_status_t status;
    comm_reap(comm, 1);
    WITHOUT_GIL(comm, status = comm->job ? gyre_finalize(comm->comm) : gyre_comm_destroy(comm->comm));
    if (status != GYRE_ERR_INVALID) /* else nothing has happened */
        comm->comm = NULL;
    return none_or_raise(status);
}

/* Ends a call that made *out of `self`. */
static PyObject *made(PyObject *self, gyre_status_t status, gyre_comm_t *out)
{
    if (status != GYRE_OK)
        return raise_status(status);
    return out != NULL ? comm_wrap(out, 0, 1, self) : Py_NewRef(Py_None);
}

static PyObject *comm_split(PyObject *self, PyObject *args, PyObject *names)
{
    static char *NAMES[] = {"color", "key", NULL};
    int color = 0, key = 0;
    comm_t *comm = comm_open(self, "split");
    if (comm == NULL || !PyArg_ParseTupleAndKeywords(args, names, "i|i:split", NAMES, &color, &key))
        return NULL;
    gyre_comm_t *out = NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_comm_split(comm->comm, color, key, &out));
    return made(self, status, out);
}

static PyObject *comm_split_type(PyObject *self, PyObject *args, PyObject *names)
{
    static char *NAMES[] = {"type", "key", NULL};
    int type = 0, key = 0;
    comm_t *comm = comm_open(self, "split_type");
    if (comm == NULL || !PyArg_ParseTupleAndKeywords(args, names, "i|i:split_type", NAMES, &type, &key))
        return NULL;
    gyre_comm_t *out = NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_comm_split_type(comm->comm, (gyre_split_t)type, key, &out));
    return made(self, status, out);
}

static PyObject *comm_dup(PyObject *self, PyObject *Py_UNUSED(none))
{
    comm_t *comm = comm_open(self, "dup");
    if (comm == NULL)
        return NULL;
    gyre_comm_t *out = NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_comm_dup(comm->comm, &out));
    return made(self, status, out);
}

static PyObject *comm_create_group(PyObject *self, PyObject *args, PyObject *names)
{
    static char *NAMES[] = {"ranks", "tag", NULL};
    PyObject *ranks = NULL;
    unsigned long long tag = 0;
    comm_t *comm = comm_open(self, "create_group");
    if (comm == NULL || !PyArg_ParseTupleAndKeywords(args, names, "O|K:create_group", NAMES, &ranks, &tag))
        return NULL;
    Py_ssize_t n = PySequence_Size(ranks);
    if (n < 0)
        return NULL;
    int *list = PyMem_Calloc((size_t)n + 1, sizeof(*list));
    if (list == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n && PyErr_Occurred() == NULL; i++) {
        PyObject *item = PySequence_GetItem(ranks, i);
        long rank = item != NULL ? PyLong_AsLong(item) : -1;
        Py_XDECREF(item);
        list[i] = rank < 0 || rank > INT32_MAX ? -1 : (int)rank;
    }
    gyre_comm_t *out = NULL;
    gyre_status_t status = GYRE_OK;
    if (PyErr_Occurred() == NULL) {
        WITHOUT_GIL(comm, status = gyre_comm_create_group(comm->comm, list, (int)n, tag, &out));
    }
    PyMem_Free(list);
    return PyErr_Occurred() == NULL ? made(self, status, out) : NULL;
}

static PyObject *comm_shrink(PyObject *self, PyObject *Py_UNUSED(none))
{
    comm_t *comm = comm_open(self, "shrink");
    if (comm == NULL)
        return NULL;
    gyre_comm_t *out = NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_comm_shrink(comm->comm, &out));
    if (status != GYRE_OK)
        return raise_status(status);
    comm->job = 0;
    return comm_wrap(out, 1, 1, NULL);
}

#define OPTION_NAMES                 "order", "leaves", "algorithm", "chunk", "timeout", "tag"
#define OPTION_FORMAT                "iizndK"
#define OPTION_PLACES(o, chunk, tag) &(o)->order, &(o)->leaves, &(o)->algorithm, chunk, &(o)->timeout_s, tag

static PyObject *comm_set(PyObject *self, PyObject *args, PyObject *names)
{
    static char *NAMES[] = {OPTION_NAMES, NULL};
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    Py_ssize_t chunk = 0;
    unsigned long long tag = 0;
    comm_t *comm = comm_open(self, "set");
    if (comm == NULL || !PyArg_ParseTupleAndKeywords(args, names, "|$" OPTION_FORMAT ":set", NAMES,
                                                     OPTION_PLACES(&options, &chunk, &tag)))
        return NULL;
    options.chunk = (size_t)chunk;
    options.tag = tag;
    comm_reap(comm, 1);
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_comm_set(comm->comm, &options));
    if (status == GYRE_OK)
        comm->leaves = options.leaves;
    return none_or_raise(status);
}

static PyObject *comm_abort(PyObject *self, PyObject *args, PyObject *names)
{
    static char *NAMES[] = {"reason", NULL};
    const char *reason = NULL;
    comm_t *comm = comm_open(self, "abort");
    if (comm == NULL || !PyArg_ParseTupleAndKeywords(args, names, "|z:abort", NAMES, &reason))
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
    gyre_status_t status = gyre_comm_error(comm->comm);
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
    gyre_status_t status = gyre_comm_fd(comm->comm, &fd);
    return status == GYRE_OK ? PyLong_FromLong(fd) : raise_status(status);
}

static PyObject *comm_arm(PyObject *self, PyObject *Py_UNUSED(none))
{
    comm_t *comm = comm_open(self, "arm");
    if (comm == NULL)
        return NULL;
    gyre_status_t status = gyre_comm_arm(comm->comm);
    if (status != GYRE_OK && status != GYRE_IN_PROGRESS)
        return raise_status(status);
    return PyBool_FromLong(status == GYRE_OK);
}

static PyObject *comm_place(PyObject *self, PyObject *args, PyObject *names)
{
    static char *NAMES[] = {"rank", NULL};
    comm_t *comm = comm_open(self, "place");
    int rank = -1;
    if (comm == NULL || !PyArg_ParseTupleAndKeywords(args, names, "|i:place", NAMES, &rank))
        return NULL;
    gyre_place_t place = {.size = sizeof(place)};
    gyre_status_t status = gyre_comm_place(comm->comm, rank == -1 ? comm->rank : rank, &place);
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

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS
static PyMethodDef own_methods[] = {
    {"close", comm_close, METH_NOARGS,
     "close($self)\n--\n\nLeaves the job, when all ranks have called it (a job's communicator), or frees a\n"
     "communicator that was made of another one. Operations whose Request was dropped are waited for.\n"
     "`with comm:` calls it at the end; after an exception, abort() before it."},
    {"split", KEYWORDS(comm_split),
     "split($self, color, key=0)\n--\n\nRanks with the same color form a communicator, in the order of (key, "
     "rank).\n"
     "None for a negative color.\n\n"
     ">>> with comm.split(comm.rank % 2) as half:\n...     half.size == (comm.size + 1 - comm.rank % 2) // "
     "2\nTrue"},
    {"split_type", KEYWORDS(comm_split_type),
     "split_type($self, type, key=0)\n--\n\nRanks in the same place form a communicator: gyre.Split.\n\n"
     ">>> with comm.split_type(gyre.Split.HOST) as host:\n...     host.size == comm.local_size\nTrue"},
    {"dup", comm_dup, METH_NOARGS,
     "dup($self)\n--\n\nA communicator of the same ranks with the same options.\n\n"
     ">>> with comm.dup() as own:\n...     own.size == comm.size\nTrue"},
    {"create_group", KEYWORDS(comm_create_group),
     "create_group($self, ranks, tag=0)\n--\n\nA communicator of some ranks, who alone call it.\n\n"
     ">>> with comm.create_group([comm.rank]) as alone:\n...     alone.size\n1"},
    {"shrink", comm_shrink, METH_NOARGS,
     "shrink($self)\n--\n\nThe job's communicator without dead ranks, after an Error with Status.PEER_DEAD. "
     "All ranks\n"
     "that are left call it. close() this one, too."},
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
    int n = 0;
    while (collective_methods[n].ml_name != NULL)
        n++;
    PyMethodDef *all =
        PyMem_Calloc((size_t)(OWN_METHODS + n + 1), sizeof(*all)); /* for as long as the process */
    if (all == NULL)
        return -1;
    memcpy(all, own_methods, sizeof(own_methods));
    memcpy(all + OWN_METHODS, collective_methods, (size_t)n * sizeof(*all));
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

static PyObject *init(PyObject *Py_UNUSED(module), PyObject *args, PyObject *names)
{
    static char *NAMES[] = {"rank",  "nranks", "root",      "secret", "init_timeout", "progress_thread",
                            "order", "leaves", "algorithm", "chunk",  "timeout",      "tag",
                            NULL};
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    Py_ssize_t chunk = 0;
    unsigned long long tag = 0;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|$iizzdi" OPTION_FORMAT ":init", NAMES, &config.rank,
                                     &config.nranks, &config.root, &config.secret, &config.init_timeout_s,
                                     &config.progress_thread, OPTION_PLACES(&options, &chunk, &tag)))
        return NULL;
    options.chunk = (size_t)chunk;
    options.tag = tag;
    config.timeout_s = options.timeout_s;
    config.options = &options;
    gyre_comm_t *world = NULL;
    gyre_status_t status;
    UNLOCKED(status = gyre_init(&config, &world));
    return status == GYRE_OK ? comm_wrap(world, 1, options.leaves, NULL) : raise_status(status);
}

/* The program's all-gather, and the exception that it ended with. */
typedef struct {
    PyObject *function;
    int nranks;
    PyObject *type, *value, *trace;
} gatherer_t;

static gyre_status_t gather_in_python(const void *mine, void *all, size_t bytes, void *user)
{
    gatherer_t *gatherer = user;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *blocks = PyObject_CallFunction(gatherer->function, "y#", mine, (Py_ssize_t)bytes);
    Py_ssize_t n = blocks != NULL ? PySequence_Size(blocks) : -1;
    if (n >= 0 && n != gatherer->nranks)
        PyErr_Format(PyExc_ValueError,
                     "create: all_gather returned %zd blocks; it must return one for each of %d ranks", n,
                     gatherer->nranks);
    for (Py_ssize_t i = 0; i < n && PyErr_Occurred() == NULL; i++) {
        PyObject *block = PySequence_GetItem(blocks, i);
        char *data = NULL;
        Py_ssize_t length = 0;
        if (block != NULL && PyBytes_AsStringAndSize(block, &data, &length) == 0) {
            if ((size_t)length == bytes)
                memcpy((char *)all + (size_t)i * bytes, data, bytes);
            else
                PyErr_Format(PyExc_ValueError,
                             "create: all_gather returned %zd bytes for rank %zd; that rank passed %zu",
                             length, i, bytes);
        }
        Py_XDECREF(block);
    }
    Py_XDECREF(blocks);
    gyre_status_t status = PyErr_Occurred() == NULL ? GYRE_OK : GYRE_ERR_BOOTSTRAP;
    if (status != GYRE_OK)
        PyErr_Fetch(&gatherer->type, &gatherer->value, &gatherer->trace);
    PyGILState_Release(state);
    return status;
}

static PyObject *create_of(PyObject *args, PyObject *names, int by_id)
{
    static char *NAMES[] = {"all_gather",      "rank",  "nranks", "name",      "init_timeout",
                            "progress_thread", "order", "leaves", "algorithm", "chunk",
                            "timeout",         "tag",   NULL};
    static char *ID_NAMES[] = {"id",    "rank",   "nranks",    "name",  "init_timeout", "progress_thread",
                               "order", "leaves", "algorithm", "chunk", "timeout",      "tag",
                               NULL};
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    Py_ssize_t chunk = 0;
    unsigned long long tag = 0;
    PyObject *first = NULL;
    if (!PyArg_ParseTupleAndKeywords(
            args, names, by_id ? "Oii|$zdi" OPTION_FORMAT ":create_id" : "Oii|$zdi" OPTION_FORMAT ":create",
            by_id ? ID_NAMES : NAMES, &first, &config.rank, &config.nranks, &config.name,
            &config.init_timeout_s, &config.progress_thread, OPTION_PLACES(&options, &chunk, &tag)))
        return NULL;
    options.chunk = (size_t)chunk;
    options.tag = tag;
    config.timeout_s = options.timeout_s;
    config.options = &options;
    gatherer_t gatherer = {.function = first, .nranks = config.nranks};
    gyre_unique_id_t id;
    gyre_comm_t *comm = NULL;
    gyre_status_t status;
    if (by_id) {
        char *data = NULL;
        Py_ssize_t length = 0;
        if (PyBytes_AsStringAndSize(first, &data, &length) != 0)
            return NULL;
        if ((size_t)length != sizeof(id.bytes)) {
            PyErr_Format(PyExc_ValueError, "create_id: id has %zd bytes; those of gyre.unique_id() have %zu",
                         length, sizeof(id.bytes));
            return NULL;
        }
        memcpy(id.bytes, data, sizeof(id.bytes));
        UNLOCKED(status = gyre_comm_create_id(&id, config.rank, config.nranks, &config, &comm));
    } else {
        config.all_gather = gather_in_python;
        config.user = &gatherer;
        UNLOCKED(status = gyre_comm_create(&config, &comm));
    }
    if (status == GYRE_OK)
        return comm_wrap(comm, 1, options.leaves, NULL);
    if (gatherer.type == NULL)
        return raise_status(status);
    PyErr_Restore(gatherer.type, gatherer.value, gatherer.trace);
    return NULL;
}

static PyObject *create(PyObject *Py_UNUSED(module), PyObject *args, PyObject *names)
{
    return create_of(args, names, 0);
}

static PyObject *create_id(PyObject *Py_UNUSED(module), PyObject *args, PyObject *names)
{
    return create_of(args, names, 1);
}

static PyObject *unique_id(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    gyre_unique_id_t id;
    gyre_status_t status = gyre_get_unique_id(&id);
    return status == GYRE_OK ? PyBytes_FromStringAndSize((const char *)id.bytes, sizeof(id.bytes))
                             : raise_status(status);
}

static PyObject *version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return PyUnicode_FromString(gyre_version());
}

#define OPTIONS_TEXT "order=0, leaves=1, algorithm=None, chunk=0, timeout=0.0, tag=0"
PyMethodDef create_functions[] = {
    {"init", KEYWORDS(init),
     "init(*, rank=-1, nranks=-1, root=None, secret=None, init_timeout=0.0, progress_thread=-1, " OPTIONS_TEXT
     ")\n--\n\n"
     "Joins the job and returns the communicator of all its ranks. The launcher says which rank this\n"
     "process is; without one it is rank 0 of 1. gyre_init(3) and gyre_comm_set(3) describe the options."},
    {"create", KEYWORDS(create),
     "create(all_gather, rank, nranks, *, name=None, init_timeout=0.0, progress_thread=-1, " OPTIONS_TEXT
     ")\n--\n\n"
     "Makes a job of the ranks that call it. all_gather(mine: bytes) returns the list of what all ranks\n"
     "passed, in the order of ranks. Called twice; what it passes holds the job's secret.\n\n"
     ">>> with gyre.create(lambda mine: [mine], 0, 1) as alone:\n...     alone.size\n1"},
    {"create_id", KEYWORDS(create_id),
     "create_id(id, rank, nranks, *, name=None, init_timeout=0.0, progress_thread=-1, " OPTIONS_TEXT
     ")\n--\n\n"
     "create() by the bytes of unique_id(), which rank 0 has made and passed to all ranks.\n\n"
     ">>> with gyre.create_id(gyre.unique_id(), 0, 1) as alone:\n...     alone.size\n1"},
    {"unique_id", unique_id, METH_NOARGS,
     "unique_id()\n--\n\nBytes by which ranks find each other; who reads them can join.\n\n>>> "
     "len(gyre.unique_id())\n128"},
    {"version", version, METH_NOARGS, "version()\n--\n\nThe version of libgyre."},
    {NULL, NULL, 0, NULL}};
