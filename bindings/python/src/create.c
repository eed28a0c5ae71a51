/* SPDX-License-Identifier: Apache-2.0 */
/* create.c: how a job is joined or made: gyre.init, gyre.create, gyre.create_id. */
#include "binding.h"

#include <string.h>

static PyObject *init(PyObject *Py_UNUSED(module), PyObject *args, PyObject *names)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    const parameter_t list[] = {{"rank", TAKE_INT, &config.rank},
                                {"nranks", TAKE_INT, &config.nranks},
                                {"root", TAKE_TEXT, &config.root},
                                {"secret", TAKE_TEXT, &config.secret},
                                {"init_timeout", TAKE_DOUBLE, &config.init_timeout_s},
                                {"progress_thread", TAKE_INT, &config.progress_thread},
                                OPTION_PARAMETERS(&options),
                                {0}};
    if (take_arguments("init", args, names, list, 0, 0) != 0)
        return NULL;
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
    if (blocks != NULL && n < 0)
        name_argument("create", "the result of all_gather");
    if (n >= 0 && n != gatherer->nranks)
        PyErr_Format(PyExc_ValueError,
                     "create: all_gather returned %zd blocks; it must return one for each of %d ranks", n,
                     gatherer->nranks);
    for (Py_ssize_t i = 0; i < n && PyErr_Occurred() == NULL; i++) {
        PyObject *block = PySequence_GetItem(blocks, i);
        char *data = NULL;
        Py_ssize_t length = 0;
        if (block != NULL && PyBytes_AsStringAndSize(block, &data, &length) != 0)
            name_argument("create", "a block that all_gather returned");
        else if (block != NULL && (size_t)length != bytes)
            PyErr_Format(PyExc_ValueError,
                         "create: all_gather returned %zd bytes for rank %zd; that rank passed %zu", length,
                         i, bytes);
        else if (block != NULL)
            memcpy((char *)all + (size_t)i * bytes, data, bytes);
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
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    PyObject *first = NULL;
    const parameter_t list[] = {{by_id ? "id" : "all_gather", TAKE_OBJECT, &first},
                                {"rank", TAKE_INT, &config.rank},
                                {"nranks", TAKE_INT, &config.nranks},
                                {"name", TAKE_TEXT, &config.name},
                                {"init_timeout", TAKE_DOUBLE, &config.init_timeout_s},
                                {"progress_thread", TAKE_INT, &config.progress_thread},
                                OPTION_PARAMETERS(&options),
                                {0}};
    if (take_arguments(by_id ? "create_id" : "create", args, names, list, 3, 3) != 0)
        return NULL;
    config.timeout_s = options.timeout_s;
    config.options = &options;
    gatherer_t gatherer = {.function = first, .nranks = config.nranks};
    gyre_unique_id_t id;
    gyre_comm_t *comm = NULL;
    gyre_status_t status;
    if (by_id) {
        char *data = NULL;
        Py_ssize_t length = 0;
        if (PyBytes_AsStringAndSize(first, &data, &length) != 0) {
            name_argument("create_id", "id");
            return NULL;
        }
        if ((size_t)length != sizeof(id.bytes)) {
            PyErr_Format(PyExc_ValueError, "create_id: id has %zd bytes; those of gyre.unique_id() have %zu",
                         length, sizeof(id.bytes));
            return NULL;
        }
        memcpy(id.bytes, data, sizeof(id.bytes));
        UNLOCKED(status = gyre_comm_create_id(&id, config.rank, config.nranks, &config, &comm));
    } else if (!PyCallable_Check(first)) {
        PyErr_SetString(PyExc_TypeError, "create: all_gather cannot be called; it must take bytes");
        return NULL;
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
