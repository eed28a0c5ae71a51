/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: gyre.Memory: memory of gyre_mem_alloc, gyre_mem_alloc_shared and gyre_mem_register as an object
 * with the buffer protocol. It is freed when no array uses it any more. */
#include "binding.h"

typedef struct {
    PyObject ob_base;
    void *ptr;
    size_t bytes;
    PyObject *owner; /* NULL, or the Memory of which this is a peer's part, or the Buckets */
    PyObject *comm;  /* that of alloc_shared, or NULL */
    array_t array;   /* the memory that register() has registered */
    pending_t *held; /* arrays of put and get until flush */
} memory_t;

static PyTypeObject *memory_type;

static PyObject *wrap(void *ptr, size_t bytes, PyObject *owner)
{
    memory_t *memory = (memory_t *)PyType_GenericAlloc(memory_type, 0);
    if (memory == NULL) {
        if (owner == NULL)
            UNLOCKED(gyre_mem_free(ptr));
        return NULL;
    }
    memory->ptr = ptr;
    memory->bytes = bytes;
    memory->owner = Py_XNewRef(owner);
    return (PyObject *)memory;
}

PyObject *array_in(PyObject *owner, void *ptr, size_t count, gyre_type_t type)
{
    PyObject *memory = wrap(ptr, count * gyre_type_size(type), owner), *as_array = helper("as_array");
    PyObject *out =
        memory == NULL || as_array == NULL ? NULL : PyObject_CallFunction(as_array, "Oi", memory, (int)type);
    Py_XDECREF(memory);
    Py_XDECREF(as_array);
    return out;
}

static PyObject *memory_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *names)
{
    size_t bytes = 0;
    void *ptr = NULL;
    const parameter_t list[] = {{"nbytes", TAKE_SIZE, &bytes}, {0}};
    if (take_arguments("Memory", args, names, list, 1, 1) != 0)
        return NULL;
    gyre_status_t status = gyre_mem_alloc(bytes > 0 ? bytes : 1, &ptr);
    return status == GYRE_OK ? wrap(ptr, bytes, NULL) : raise_status(status);
}

PyObject *comm_alloc_shared(PyObject *self, PyObject *number)
{
    size_t bytes = 0;
    void *ptr = NULL;
    comm_t *comm = comm_open(self, "alloc_shared");
    if (comm == NULL || take_size(number, "alloc_shared", "nbytes", &bytes) != 0)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_mem_alloc_shared(comm->comm, bytes, &ptr));
    PyObject *memory = status == GYRE_OK ? wrap(ptr, bytes, NULL) : raise_status(status);
    if (memory != NULL)
        ((memory_t *)memory)->comm = Py_NewRef(self);
    return memory;
}

static PyObject *register_array(PyObject *Py_UNUSED(module), PyObject *object)
{
    array_t array;
    if (array_get(&array, object, 1, NULL, "register", "array") != 0)
        return NULL;
    size_t bytes = array.count * gyre_type_size(array.type);
    gyre_status_t status = gyre_mem_register(array.data, bytes);
    if (status != GYRE_OK) {
        array_release(&array);
        return raise_status(status);
    }
    memory_t *memory = (memory_t *)PyType_GenericAlloc(memory_type, 0);
    if (memory == NULL) {
        UNLOCKED(gyre_mem_deregister(array.data));
        array_release(&array);
        return NULL;
    }
    memory->ptr = array.data;
    memory->bytes = bytes;
    memory->array = array;
    return (PyObject *)memory;
}
PyMethodDef memory_functions[] = {
    {"register", register_array, METH_O,
     "register(array)\n--\n\nMakes the memory of an array as good as a Memory, until the object that it "
     "returns is dropped:\ngyre_mem_register(3). The array keeps its contents and its address. No other "
     "thread may use it\nduring both.\n\n"
     ">>> x = numpy.ones(100000)\n>>> memory = gyre.register(x)\n>>> comm.all_reduce(x)\n"
     ">>> bool(x[-1] == comm.size)\nTrue\n>>> del memory"},
    {NULL, NULL, 0, NULL}};

static void memory_dealloc(PyObject *self)
{
    memory_t *memory = (memory_t *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (put_off(self, memory_dealloc))
        return;
    if (memory->array.data != NULL) {
        gyre_status_t status;
        UNLOCKED(status = gyre_mem_deregister(memory->ptr));
        if (status == GYRE_OK) /* else an operation uses it: the array stays where it is */
            array_release(&memory->array);
    } else if (memory->owner == NULL) {
        UNLOCKED(gyre_mem_free(memory->ptr));
    }
    Py_XDECREF(memory->owner); /* arrays of put and get without a flush stay: Gyre may use them */
    Py_XDECREF(memory->comm);
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
    int rank = 0;
    if (take_int(number, "peer", "rank", &rank) != 0)
        return NULL;
    if (memory->owner != NULL) {
        PyErr_SetString(PyExc_ValueError, "peer: this is a part; ask the Memory of alloc_shared");
        return NULL;
    }
    void *ptr = NULL;
    size_t bytes = 0;
    gyre_status_t status = gyre_mem_peer(memory->ptr, rank, &ptr, &bytes);
    return status == GYRE_OK ? wrap(ptr, bytes, self) : raise_status(status);
}

/* The communicator of alloc_shared, open. */
static comm_t *shared(const memory_t *memory, const char *call)
{
    if (memory->comm != NULL)
        return comm_open(memory->comm, call);
    PyErr_Format(PyExc_ValueError, "%s: this Memory is not one of Comm.alloc_shared", call);
    return NULL;
}

static PyObject *copy(PyObject *self, PyObject *args, PyObject *names, int gets)
{
    const char *call = gets ? "get" : "put";
    memory_t *memory = (memory_t *)self;
    comm_t *comm = shared(memory, call);
    PyObject *object = NULL;
    int rank = 0;
    size_t at = 0;
    const parameter_t list[] = {
        {"array", TAKE_OBJECT, &object}, {"rank", TAKE_INT, &rank}, {"offset", TAKE_SIZE, &at}, {0}};
    if (comm == NULL || take_arguments(call, args, names, list, 2, 3) != 0)
        return NULL;
    pending_t *held = PyMem_Calloc(1, sizeof(*held));
    if (held == NULL)
        return PyErr_NoMemory();
    if (array_get(&held->send, object, gets, NULL, call, "array") != 0) {
        PyMem_Free(held);
        return NULL;
    }
    size_t bytes = held->send.count * gyre_type_size(held->send.type);
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gets ? gyre_get(held->send.data, bytes, memory->ptr, rank, at)
                                    : gyre_put(held->send.data, bytes, memory->ptr, rank, at));
    if (status != GYRE_OK) {
        pending_free(held);
        return raise_status(status);
    }
    held->rank = rank;
    held->next = memory->held;
    memory->held = held;
    Py_RETURN_NONE;
}

static PyObject *memory_put(PyObject *self, PyObject *args, PyObject *names)
{
    return copy(self, args, names, 0);
}

static PyObject *memory_get(PyObject *self, PyObject *args, PyObject *names)
{
    return copy(self, args, names, 1);
}

static PyObject *memory_flush(PyObject *self, PyObject *args, PyObject *names)
{
    memory_t *memory = (memory_t *)self;
    comm_t *comm = shared(memory, "flush");
    int rank = -1;
    const parameter_t list[] = {{"rank", TAKE_INT, &rank}, {0}};
    if (comm == NULL || take_arguments("flush", args, names, list, 0, 1) != 0)
        return NULL;
    pending_t *first = memory->held, **at = &memory->held;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_flush(memory->ptr, rank));
    if (status != GYRE_OK)
        return raise_status(status);
    while (*at != first) /* what another thread has put meanwhile stays */
        at = &(*at)->next;
    while (*at != NULL) {
        pending_t *held = *at;
        if (rank >= 0 && held->rank != rank) {
            at = &held->next;
            continue;
        }
        *at = held->next;
        pending_free(held);
    }
    Py_RETURN_NONE;
}

static PyObject *get_nbytes(PyObject *self, void *Py_UNUSED(none))
{
    return PyLong_FromSize_t(((memory_t *)self)->bytes);
}

static PyMethodDef methods[] = {
    {"peer", memory_peer, METH_O,
     "peer($self, rank)\n--\n\nThe part of a rank, of memory of Comm.alloc_shared: a Memory."},
    {"put", KEYWORDS(memory_put),
     "put($self, array, rank, offset=0)\n--\n\nCopies an array to the part of a rank, `offset` bytes from "
     "its begin, of memory of\nComm.alloc_shared. Done after flush(); until then the array must not change, "
     "and stays alive.\n\n"
     ">>> memory = comm.alloc_shared(8 * comm.size)\n>>> for rank in range(comm.size):\n"
     "...     memory.put(numpy.array([comm.rank + 0.5]), rank, 8 * comm.rank)\n>>> memory.flush()\n"
     ">>> comm.barrier()\n>>> memory.array().tolist() == [rank + 0.5 for rank in range(comm.size)]\nTrue"},
    {"get", KEYWORDS(memory_get),
     "get($self, array, rank, offset=0)\n--\n\nCopies from the part of a rank into an array, likewise.\n\n"
     ">>> memory = comm.alloc_shared(8)\n>>> memory.array()[0] = comm.rank\n>>> comm.barrier()\n"
     ">>> x = numpy.empty(1)\n>>> memory.get(x, comm.size - 1)\n>>> memory.flush()\n"
     ">>> bool(x[0] == comm.size - 1)\nTrue"},
    {"flush", KEYWORDS(memory_flush),
     "flush($self, rank=-1)\n--\n\nWaits until all that was put to the rank, or gotten from there, is there; "
     "-1: all ranks."},
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
