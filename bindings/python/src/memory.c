/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: gyre.Memory: memory of gyre_mem_alloc and gyre_mem_alloc_shared as an object with the buffer
 * protocol. It is freed when no array uses it any more. */
#include "binding.h"

typedef struct {
    PyObject ob_base;
    void *ptr;
    size_t bytes;
    PyObject *owner; /* NULL, or the Memory of which this is a peer's part */
} memory_t;

static PyTypeObject *memory_type;

static PyObject *wrap(void *ptr, size_t bytes, PyObject *owner)
{
    memory_t *memory = (memory_t *)PyType_GenericAlloc(memory_type, 0);
    if (memory == NULL) {
        if (owner == NULL)
            gyre_mem_free(ptr);
        return NULL;
    }
    memory->ptr = ptr;
    memory->bytes = bytes;
    memory->owner = Py_XNewRef(owner);
    return (PyObject *)memory;
}

/* *bytes of a Python number that is not negative */
static int take_bytes(PyObject *object, const char *call, size_t *bytes)
{
    Py_ssize_t number = PyNumber_AsSsize_t(object, PyExc_OverflowError);
    if (number == -1 && PyErr_Occurred() != NULL)
        return -1;
    *bytes = (size_t)number;
    if (number >= 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s: nbytes is %zd; it must not be negative", call, number);
    return -1;
}

static PyObject *memory_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *names)
{
    static char *NAMES[] = {"nbytes", NULL};
    PyObject *number = NULL;
    size_t bytes = 0;
    void *ptr = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O:Memory", NAMES, &number) ||
        take_bytes(number, "Memory", &bytes) != 0)
        return NULL;
    gyre_status_t status = gyre_mem_alloc(bytes > 0 ? bytes : 1, &ptr);
    return status == GYRE_OK ? wrap(ptr, bytes, NULL) : raise_status(status);
}

PyObject *comm_alloc_shared(PyObject *self, PyObject *number)
{
    size_t bytes = 0;
    void *ptr = NULL;
    comm_t *comm = comm_open(self, "alloc_shared");
    if (comm == NULL || take_bytes(number, "alloc_shared", &bytes) != 0)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_mem_alloc_shared(comm->comm, bytes, &ptr));
    return status == GYRE_OK ? wrap(ptr, bytes, NULL) : raise_status(status);
}

static void memory_dealloc(PyObject *self)
{
    memory_t *memory = (memory_t *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (memory->owner == NULL)
        gyre_mem_free(memory->ptr);
    Py_XDECREF(memory->owner);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int memory_buffer(PyObject *self, Py_buffer *view, int flags)
{
    memory_t *memory = (memory_t *)self;
    return PyBuffer_FillInfo(view, self, memory->ptr, (Py_ssize_t)memory->bytes, 0, flags);
}

static PyObject *memory_peer(PyObject *self, PyObject *number)
{
    memory_t *memory = (memory_t *)self;
    long rank = PyLong_AsLong(number);
    if (rank == -1 && PyErr_Occurred() != NULL)
        return NULL;
    if (memory->owner != NULL) {
        PyErr_SetString(PyExc_ValueError, "peer: this is a peer's part; ask the Memory of alloc_shared");
        return NULL;
    }
    void *ptr = NULL;
    size_t bytes = 0;
    gyre_status_t status =
        gyre_mem_peer(memory->ptr, rank < 0 || rank > INT32_MAX ? -1 : (int)rank, &ptr, &bytes);
    return status == GYRE_OK ? wrap(ptr, bytes, self) : raise_status(status);
}

static PyObject *get_nbytes(PyObject *self, void *Py_UNUSED(none))
{
    return PyLong_FromSize_t(((memory_t *)self)->bytes);
}

static PyMethodDef methods[] = {
    {"peer", memory_peer, METH_O,
     "peer($self, rank)\n--\n\nThe part of a rank, of memory of Comm.alloc_shared: a Memory."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef properties[] = {{"nbytes", get_nbytes, NULL, "The number of bytes.", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};
static const char MEMORY_DOC[] =
    "Memory(nbytes)\n--\n\nMemory that ranks of the same host read and write directly, so that collectives "
    "on it save a\n"
    "copy: zeroed bytes with the buffer protocol. It is freed when no array uses it any more.\n\n"
    ">>> x = gyre.Memory(32).array('d')\n>>> x[:] = 1\n>>> comm.all_reduce(x)\n>>> bool(x[3] == "
    "comm.size)\nTrue";

int memory_add(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_new, SLOT(memory_new)},
                           {Py_tp_dealloc, SLOT(memory_dealloc)},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, properties},
                           {Py_bf_getbuffer, SLOT(memory_buffer)},
                           {Py_tp_doc, SLOT(MEMORY_DOC)},
                           {0, NULL}};
    PyType_Spec spec = {"gyre.Memory", sizeof(memory_t), 0, Py_TPFLAGS_DEFAULT, slots};
    memory_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return memory_type != NULL ? PyModule_AddObjectRef(module, "Memory", (PyObject *)memory_type) : -1;
}
