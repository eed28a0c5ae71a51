/* SPDX-License-Identifier: Apache-2.0 */
/* exact.c: gyre.Exact: sums without rounding (gyre/exact.h). */
#include "binding.h"

typedef struct {
    PyObject ob_base;
    gyre_exact_t *exact;
    int calls; /* an all_reduce is in another thread */
} exact_t;

static PyTypeObject *exact_type;

static PyObject *exact_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    if (PyTuple_Size(args) > 0 || (names != NULL && PyDict_Size(names) > 0)) {
        PyErr_SetString(PyExc_TypeError, "Exact: takes no arguments");
        return NULL;
    }
    exact_t *self = (exact_t *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    gyre_status_t status = gyre_exact_create(&self->exact);
    if (status == GYRE_OK)
        return (PyObject *)self;
    Py_DECREF(self);
    return raise_status(status);
}

static void exact_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    gyre_exact_destroy(((exact_t *)self)->exact);
    PyObject_Free(self);
    Py_DECREF(type);
}

static gyre_exact_t *idle(PyObject *self, const char *call)
{
    if (((exact_t *)self)->calls == 0)
        return ((exact_t *)self)->exact;
    PyErr_Format(PyExc_ValueError, "%s: an all_reduce of this sum is under way", call);
    return NULL;
}

/* Both methods of two arrays and of one; y NULL: add, or add_norm2 */
static PyObject *add(PyObject *self, PyObject *x, PyObject *y, const char *call)
{
    gyre_exact_t *exact = idle(self, call);
    array_t first, second = {.data = NULL};
    if (exact == NULL || array_get(&first, x, 0, NULL, call, "x") != 0)
        return NULL;
    if (y != NULL && array_get(&second, y, 0, NULL, call, "y") != 0) {
        array_release(&first);
        return NULL;
    }
    gyre_status_t status = GYRE_OK;
    if (y != NULL && (first.type != second.type || first.count != second.count))
        PyErr_Format(PyExc_ValueError,
                     "%s: x has %zu elements of type %s, and y %zu of type %s; they must be the same", call,
                     first.count, gyre_type_name(first.type), second.count, gyre_type_name(second.type));
    else if (y != NULL)
        status = gyre_exact_add_dot(exact, first.data, second.data, first.count, first.type);
    else if (call[3] == '\0')
        status = gyre_exact_add(exact, first.data, first.count, first.type);
    else
        status = gyre_exact_add_norm2(exact, first.data, first.count, first.type);
    array_release(&first);
    array_release(&second);
    if (PyErr_Occurred() != NULL)
        return NULL;
    return status == GYRE_OK ? Py_NewRef(Py_None) : raise_status(status);
}

static PyObject *exact_add_all(PyObject *self, PyObject *x)
{
    return add(self, x, NULL, "add");
}
static PyObject *exact_add_norm2(PyObject *self, PyObject *x)
{
    return add(self, x, NULL, "add_norm2");
}

static PyObject *exact_add_dot(PyObject *self, PyObject *args)
{
    PyObject *x = NULL, *y = NULL;
    return PyArg_ParseTuple(args, "OO:add_dot", &x, &y) ? add(self, x, y, "add_dot") : NULL;
}

static PyObject *exact_merge(PyObject *self, PyObject *other)
{
    if (!PyObject_TypeCheck(other, exact_type)) {
        PyErr_SetString(PyExc_TypeError, "merge: other is not a gyre.Exact");
        return NULL;
    }
    gyre_exact_t *exact = idle(self, "merge"), *from = exact != NULL ? idle(other, "merge") : NULL;
    if (from == NULL)
        return NULL;
    gyre_status_t status = gyre_exact_merge(exact, from);
    return status == GYRE_OK ? Py_NewRef(Py_None) : raise_status(status);
}

static PyObject *exact_reset(PyObject *self, PyObject *Py_UNUSED(none))
{
    gyre_exact_t *exact = idle(self, "reset");
    if (exact == NULL)
        return NULL;
    gyre_exact_reset(exact);
    Py_RETURN_NONE;
}

void exact_ended(PyObject *object)
{
    if (PyObject_TypeCheck(object, exact_type))
        ((exact_t *)object)->calls--;
}

/* The operation that uses the sum holds it, until exact_ended. */
static pending_t *holding(PyObject *self)
{
    pending_t *pending = PyMem_Calloc(1, sizeof(*pending));
    if (pending == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    pending->keep[0] = Py_NewRef(self);
    ((exact_t *)self)->calls++;
    return pending;
}

static PyObject *exact_iall_reduce(PyObject *self, PyObject *object)
{
    comm_t *comm = comm_open(object, "Exact.iall_reduce");
    gyre_exact_t *exact = comm != NULL ? idle(self, "iall_reduce") : NULL;
    if (exact == NULL)
        return NULL;
    comm_reap(comm, 0);
    pending_t *pending = holding(self);
    if (pending == NULL)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL(comm, status = gyre_exact_iall_reduce(exact, comm->comm, &pending->request));
    if (status == GYRE_OK)
        return request_wrap(object, pending);
    pending_free(pending);
    return raise_status(status);
}

static PyObject *exact_all_reduce(PyObject *self, PyObject *object)
{
    comm_t *comm = comm_open(object, "Exact.all_reduce");
    gyre_exact_t *exact = comm != NULL ? idle(self, "all_reduce") : NULL;
    if (exact == NULL)
        return NULL;
    gyre_status_t status;
    pending_t *pending = holding(self);
    if (pending == NULL)
        return NULL;
    WITHOUT_GIL(comm, status = gyre_exact_all_reduce(exact, comm->comm));
    if (group_open())
        group_hold(pending);
    else
        pending_free(pending);
    return status == GYRE_OK ? Py_NewRef(Py_None) : raise_status(status);
}

static PyObject *exact_value(PyObject *self, PyObject *Py_UNUSED(none))
{
    double value = 0;
    gyre_exact_t *exact = idle(self, "value");
    if (exact == NULL)
        return NULL;
    gyre_status_t status = gyre_exact_value(exact, &value);
    return status == GYRE_OK ? PyFloat_FromDouble(value) : raise_status(status);
}

static PyMethodDef methods[] = {
    {"add", exact_add_all, METH_O, "add($self, x)\n--\n\nAdds the elements of x, of float32 or float64."},
    {"add_dot", exact_add_dot, METH_VARARGS,
     "add_dot($self, x, y)\n--\n\nAdds the products of x and y, each exact."},
    {"add_norm2", exact_add_norm2, METH_O, "add_norm2($self, x)\n--\n\nAdds the squares of x."},
    {"merge", exact_merge, METH_O, "merge($self, other)\n--\n\nAdds another sum, which stays as it is."},
    {"reset", exact_reset, METH_NOARGS, "reset($self)\n--\n\nMakes it a sum of nothing again."},
    {"all_reduce", exact_all_reduce, METH_O, "all_reduce($self, comm)\n--\n\nAdds up the sums of all ranks."},
    {"iall_reduce", exact_iall_reduce, METH_O,
     "iall_reduce($self, comm)\n--\n\nStarts all_reduce and returns its gyre.Request at once.\n\n"
     ">>> total = gyre.Exact()\n>>> total.add(numpy.ones(3))\n>>> total.iall_reduce(comm).wait()\n"
     ">>> total.value() == 3 * comm.size\nTrue"},
    {"value", exact_value, METH_NOARGS, "value($self)\n--\n\nThe float that is nearest to the sum."},
    {NULL, NULL, 0, NULL}};
static const char EXACT_DOC[] = "Exact()\n--\n\nA sum without rounding: the same bits however the data are "
                                "split among calls and ranks.\n\n"
                                ">>> total = gyre.Exact()\n>>> total.add(numpy.array([1e100, comm.rank, "
                                "-1e100]))\n>>> total.all_reduce(comm)\n"
                                ">>> total.value() == sum(range(comm.size))\nTrue";

int exact_add(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_new, SLOT(exact_new)},
                           {Py_tp_dealloc, SLOT(exact_dealloc)},
                           {Py_tp_methods, methods},
                           {Py_tp_doc, SLOT(EXACT_DOC)},
                           {0, NULL}};
    PyType_Spec spec = {"gyre.Exact", sizeof(exact_t), 0, Py_TPFLAGS_DEFAULT, slots};
    exact_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return exact_type != NULL ? PyModule_AddObjectRef(module, "Exact", (PyObject *)exact_type) : -1;
}
