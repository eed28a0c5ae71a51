/* SPDX-License-Identifier: Apache-2.0 */
/* buckets.c: gyre.Buckets: tensors that are reduced while later ones are computed (gyre/bucket.h). */
#include "binding.h"

typedef struct {
    PyObject ob_base;
    PyObject *comm;
    gyre_buckets_t *buckets;
    size_t tensors;
    size_t *counts;
    gyre_type_t type;
    PyObject *operation; /* NULL, or an Operation that is used */
    PyObject *kind;      /* NULL, or a UserType */
    PyObject *landed;    /* NULL, or the program's function */
    PyObject *raised;    /* what it has raised, until a method raises it */
    int ending;          /* it is not called any more */
} buckets_t;

static PyTypeObject *buckets_type;

static PyObject *describe(buckets_t *self, const gyre_bucket_t *bucket)
{
    PyObject *class = of_package("Bucket");
    PyObject *data = array_in((PyObject *)self, bucket->data, bucket->count, self->type);
    PyObject *out =
        class == NULL || data == NULL
            ? NULL
            : PyObject_CallFunction(class, "nOnnnn", (Py_ssize_t)bucket->index, data,
                                    (Py_ssize_t)bucket->first_tensor, (Py_ssize_t)bucket->tensors,
                                    (Py_ssize_t)bucket->shard_offset, (Py_ssize_t)bucket->shard_count);
    Py_XDECREF(class);
    Py_XDECREF(data);
    return out;
}

static void landed(const gyre_bucket_t *bucket, void *user)
{
    buckets_t *self = user;
    PyGILState_STATE state;
    if (!python_enter(&state))
        return;
    if (self->ending) {
        python_leave(state);
        return;
    }
    PyObject *argument = describe(self, bucket);
    PyObject *result = argument != NULL ? PyObject_CallFunctionObjArgs(self->landed, argument, NULL) : NULL;
    if (result == NULL) {
        PyObject *class = NULL, *value = NULL, *trace = NULL;
        PyErr_Fetch(&class, &value, &trace);
        PyErr_NormalizeException(&class, &value, &trace);
        if (trace != NULL)
            PyException_SetTraceback(value, trace);
        Py_XDECREF(class);
        Py_XDECREF(trace);
        if (self->raised == NULL)
            self->raised = Py_NewRef(value);
        Py_XDECREF(value);
    }
    Py_XDECREF(argument);
    Py_XDECREF(result);
    python_leave(state);
}

/* Ends a method: the error of Gyre, else what the function of the program has raised. */
static PyObject *after(buckets_t *self, gyre_status_t status)
{
    if (status != GYRE_OK)
        return raise_caused(status, self->operation);
    if (self->raised == NULL)
        Py_RETURN_NONE;
    PyObject *value = self->raised;
    self->raised = NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(value), value);
    Py_DECREF(value);
    return NULL;
}

/* self->counts of a sequence */
static int take_counts(buckets_t *self, PyObject *counts)
{
    Py_ssize_t n = PySequence_Size(counts);
    if (n < 0)
        return name_argument("Buckets", "counts");
    self->tensors = (size_t)n;
    self->counts = PyMem_Calloc((size_t)n + 1, sizeof(*self->counts));
    if (self->counts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(counts, i), *number = item != NULL ? PyNumber_Index(item) : NULL;
        Py_XDECREF(item);
        if (number == NULL)
            return name_argument("Buckets", "counts");
        self->counts[i] = PyLong_AsSize_t(number);
        Py_DECREF(number);
        if (self->counts[i] == (size_t)-1 && PyErr_Occurred() != NULL) {
            PyErr_Format(PyExc_ValueError, "Buckets: counts[%zd] is negative or too large", i);
            return -1;
        }
    }
    return 0;
}

static PyObject *buckets_new(PyTypeObject *Py_UNUSED(class), PyObject *args, PyObject *names)
{
    PyObject *on = NULL, *counts = NULL, *op = NULL, *scale = NULL, *function = Py_None, *type = NULL;
    int scatter = 0, number = 0;
    gyre_buckets_config_t config = {.size = sizeof(config)};
    const parameter_t list[] = {{"comm", TAKE_OBJECT, &on},
                                {"counts", TAKE_OBJECT, &counts},
                                {"type", TAKE_OBJECT, &type},
                                {"op", TAKE_OBJECT, &op},
                                {"scale", TAKE_OBJECT, &scale},
                                {"scatter", TAKE_TRUTH, &scatter},
                                {"bucket_bytes", TAKE_SIZE, &config.bucket_bytes},
                                {"landed", TAKE_OBJECT, &function},
                                {0}};
    if (take_arguments("Buckets", args, names, list, 3, 8) != 0)
        return NULL;
    comm_t *comm = comm_open(on, "Buckets");
    if (comm == NULL || take_int(type, "Buckets", "type", &number) != 0 ||
        take_reduction(op, scale == Py_None ? NULL : scale, "Buckets", &config.op) != 0)
        return NULL;
    const char *wrong = number < 0 || number >= GYRE_TYPE_NONE               ? "type is not one of gyre.Type"
                        : function != Py_None && !PyCallable_Check(function) ? "landed cannot be called"
                                                                             : NULL;
    if (wrong != NULL) {
        PyErr_Format(PyExc_ValueError, "Buckets: %s", wrong);
        return NULL;
    }
    buckets_t *self = (buckets_t *)PyType_GenericAlloc(buckets_type, 0);
    if (self == NULL)
        return NULL;
    self->comm = Py_NewRef(on);
    self->type = config.type = (gyre_type_t)number;
    self->operation = op != NULL && !PyLong_Check(op) ? Py_NewRef(op) : NULL;
    self->kind = !PyLong_Check(type) ? Py_NewRef(type) : NULL;
    self->landed = function != Py_None ? Py_NewRef(function) : NULL;
    config.mode = scatter ? GYRE_BUCKET_REDUCE_SCATTER : GYRE_BUCKET_ALL_REDUCE;
    config.landed = self->landed != NULL ? landed : NULL;
    config.user = self;
    gyre_status_t status = GYRE_OK;
    if (take_counts(self, counts) == 0)
        WITHOUT_GIL(comm, status = gyre_buckets_create(comm->comm, &config, self->tensors, self->counts,
                                                       &self->buckets));
    if (self->buckets != NULL)
        return (PyObject *)self;
    if (PyErr_Occurred() == NULL)
        raise_status(status);
    Py_DECREF(self);
    return NULL;
}

/* Waits for reductions under way: their memory is freed. */
static void buckets_dealloc(PyObject *object)
{
    buckets_t *self = (buckets_t *)object;
    PyTypeObject *type = Py_TYPE(object);
    self->ending = 1;
    if (put_off(object, buckets_dealloc))
        return;
    if (self->buckets != NULL)
        UNLOCKED(gyre_buckets_destroy(self->buckets));
    PyMem_Free(self->counts);
    Py_XDECREF(self->operation);
    Py_XDECREF(self->kind);
    Py_XDECREF(self->landed);
    Py_XDECREF(self->raised);
    Py_XDECREF(self->comm);
    PyObject_Free(object);
    Py_DECREF(type);
}

static int index_of(PyObject *number, size_t end, const char *call, const char *what, size_t *index)
{
    Py_ssize_t value = PyNumber_AsSsize_t(number, PyExc_IndexError);
    if (value == -1 && PyErr_Occurred() != NULL)
        return name_argument(call, what);
    *index = (size_t)value;
    if (value >= 0 && *index < end)
        return 0;
    PyErr_Format(PyExc_IndexError, "%s: %s %zd is out of range; there are %zu", call, what, value, end);
    return -1;
}

static PyObject *buckets_tensor(PyObject *object, PyObject *number)
{
    buckets_t *self = (buckets_t *)object;
    size_t i;
    if (index_of(number, self->tensors, "tensor", "tensor", &i) != 0)
        return NULL;
    return array_in(object, gyre_buckets_tensor(self->buckets, i), self->counts[i], self->type);
}

static PyObject *buckets_get(PyObject *object, PyObject *number)
{
    buckets_t *self = (buckets_t *)object;
    gyre_bucket_t bucket;
    size_t i;
    if (index_of(number, gyre_buckets_count(self->buckets), "get", "bucket", &i) != 0)
        return NULL;
    gyre_status_t status = gyre_buckets_get(self->buckets, i, &bucket);
    return status == GYRE_OK ? describe(self, &bucket) : raise_status(status);
}

static Py_ssize_t buckets_length(PyObject *object)
{
    return (Py_ssize_t)gyre_buckets_count(((buckets_t *)object)->buckets);
}

static PyObject *buckets_ready(PyObject *object, PyObject *number)
{
    buckets_t *self = (buckets_t *)object;
    comm_t *comm = comm_open(self->comm, "ready");
    size_t i;
    if (comm == NULL || index_of(number, self->tensors, "ready", "tensor", &i) != 0)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_buckets_ready(self->buckets, i));
    return after(self, status);
}

static PyObject *buckets_progress(PyObject *object, PyObject *Py_UNUSED(none))
{
    buckets_t *self = (buckets_t *)object;
    comm_t *comm = comm_open(self->comm, "progress");
    if (comm == NULL)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_buckets_progress(self->buckets));
    return after(self, status);
}

static PyObject *buckets_wait(PyObject *object, PyObject *Py_UNUSED(none))
{
    buckets_t *self = (buckets_t *)object;
    comm_t *comm = comm_open(self->comm, "wait");
    if (comm == NULL)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_buckets_wait(self->buckets));
    return after(self, status);
}

static PyObject *buckets_times(PyObject *object, PyObject *Py_UNUSED(none))
{
    double total = 0, exposed = 0;
    gyre_status_t status = gyre_buckets_times(((buckets_t *)object)->buckets, &total, &exposed);
    return status == GYRE_OK ? Py_BuildValue("dd", total, exposed) : raise_status(status);
}

static PyMethodDef methods[] = {
    {"tensor", buckets_tensor, METH_O,
     "tensor($self, tensor)\n--\n\nThe memory of a tensor: a NumPy array of one dimension."},
    {"get", buckets_get, METH_O, "get($self, index)\n--\n\nA bucket: a gyre.Bucket. len() is their number."},
    {"ready", buckets_ready, METH_O,
     "ready($self, tensor)\n--\n\nMarks a tensor as final on this rank, once per round. Starts the buckets "
     "that are full; does not\nblock."},
    {"progress", buckets_progress, METH_NOARGS, "progress($self)\n--\n\nAdvances them without blocking."},
    {"wait", buckets_wait, METH_NOARGS,
     "wait($self)\n--\n\nWaits until every bucket has landed, and opens the next round."},
    {"times", buckets_times, METH_NOARGS,
     "times($self)\n--\n\nOf the last round, in seconds: (a bucket was under way, the program waited for "
     "it)."},
    {NULL, NULL, 0, NULL}};
static const char BUCKETS_DOC[] =
    "Buckets(comm, counts, type, op=0, scale=None, scatter=False, bucket_bytes=0, landed=None)\n--\n\n"
    "Tensors of counts[i] elements in shared memory, in the order in which they become ready, cut into\n"
    "buckets. Once its last tensor is ready, a bucket is reduced while the program computes the next.\n"
    "scatter=True: each rank gets its shard of each bucket. landed(bucket), with a gyre.Bucket, is called\n"
    "for each bucket, by the thread that makes progress; it must not call Gyre. What it raises is raised by\n"
    "the method that finds it. The memory is freed when neither this nor an array of it is used.\n\n"
    ">>> buckets = gyre.Buckets(comm, [4, 2], gyre.Type.FLOAT32, bucket_bytes=16)\n>>> len(buckets)\n2\n"
    ">>> for i in (0, 1):\n...     buckets.tensor(i)[:] = i + 1\n...     buckets.ready(i)\n"
    ">>> buckets.wait()\n>>> bool(buckets.tensor(1)[0] == 2 * comm.size)\nTrue\n"
    ">>> buckets.get(1).first_tensor, buckets.get(1).tensors\n(1, 1)";

int buckets_add(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_new, SLOT(buckets_new)},       {Py_tp_dealloc, SLOT(buckets_dealloc)},
                           {Py_sq_length, SLOT(buckets_length)}, {Py_tp_methods, methods},
                           {Py_tp_doc, SLOT(BUCKETS_DOC)},       {0, NULL}};
    PyType_Spec spec = {"gyre.Buckets", sizeof(buckets_t), 0, Py_TPFLAGS_DEFAULT, slots};
    buckets_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return buckets_type != NULL ? PyModule_AddObjectRef(module, "Buckets", (PyObject *)buckets_type) : -1;
}
