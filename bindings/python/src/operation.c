/* SPDX-License-Identifier: Apache-2.0 */
/* operation.c: operations and element types of the program's own, and how threads of Gyre call Python. */
#include "binding.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_int ending, running;
static _Thread_local int depth; /* of functions of the program in which this thread is */

int python_enter(PyGILState_STATE *state)
{
    running++; /* first: end() sets `ending`, then looks here */
    if (ending) {
        running--;
        return 0;
    }
    *state = PyGILState_Ensure();
    depth++;
    return 1;
}

void python_leave(PyGILState_STATE state)
{
    depth--;
    PyGILState_Release(state);
    running--;
}

typedef struct dropped {
    PyObject *object;
    destructor again;
    struct dropped *next;
} dropped_t;
static dropped_t *dropped;

int put_off(PyObject *object, destructor again)
{
    if (depth == 0)
        return 0;
    dropped_t *one = PyMem_Malloc(sizeof(*one));
    if (one != NULL) { /* else the object stays forever */
        *one = (dropped_t){object, again, dropped};
        dropped = one;
    }
    return 1;
}

static void free_dropped(void)
{
    while (dropped != NULL) {
        const dropped_t one = *dropped;
        PyMem_Free(dropped);
        dropped = one.next;
        one.again(one.object);
    }
}

int inside(const char *call)
{
    static const char *const MAY[] = {"error", "local_rank", "local_size", "hosts"};
    for (size_t i = 0; i < sizeof(MAY) / sizeof(MAY[0]); i++)
        if (strcmp(call, MAY[i]) == 0)
            return 0;
    if (depth > 0)
        PyErr_Format(PyExc_ValueError, "%s: a function that Gyre calls must not call Gyre", call);
    else if (strcmp(call, "abort") != 0) /* buckets would wait for ranks that an abort frees */
        free_dropped();
    return depth > 0;
}

/* At the exit of Python: no thread of Gyre may be in Python, or go there, any more. */
static PyObject *end(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    ending = 1;
    UNLOCKED(while (running > 0) sched_yield());
    Py_RETURN_NONE;
}

/* In a child of fork: the other threads, which may be in Python, are not there. */
static PyObject *forked(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    running = 0;
    Py_RETURN_NONE;
}

PyObject *helper(const char *name)
{
    PyObject *module = PyImport_ImportModule("gyre._operations");
    PyObject *found = module != NULL ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    return found;
}

/* What Gyre knows of an Operation; it lives for as long as Gyre may call the function. */
typedef struct {
    PyObject *function;
    PyObject *raised; /* what the function has raised last, or NULL */
} user_t;

typedef struct {
    PyObject ob_base;
    gyre_redop_t op; /* GYRE_REDOP_NONE: freed */
    user_t *user;
} operation_t;

static PyTypeObject *operation_type;

/* Gyre does not say for which call it calls the function. So the text of the error decides: the exception may
 * be of an earlier call, whose error nobody has seen. */
PyObject *take_raised(PyObject *user)
{
    char text[100];
    user = plan_operation(user);
    if (user == NULL || !PyObject_TypeCheck(user, operation_type))
        return NULL;
    const operation_t *operation = (operation_t *)user;
    if (operation->user == NULL || operation->user->raised == NULL)
        return NULL;
    PyOS_snprintf(text, sizeof(text), "the program's operation %s returned ",
                  gyre_redop_name(operation->op.kind));
    if (strstr(gyre_last_error(), text) == NULL)
        return NULL;
    PyObject *raised = operation->user->raised;
    operation->user->raised = NULL;
    return raised;
}

static gyre_status_t combine(const void *left, void *right, size_t count, gyre_type_t type, void *argument)
{
    user_t *user = argument;
    PyGILState_STATE state;
    Py_ssize_t bytes = (Py_ssize_t)(count * gyre_type_size(type));
    if (!python_enter(&state))
        return GYRE_ERR_ABORTED;
    PyObject *apply = helper("apply");
    PyObject *one = PyMemoryView_FromMemory((char *)(uintptr_t)left, bytes, PyBUF_READ);
    PyObject *two = PyMemoryView_FromMemory(right, bytes, PyBUF_WRITE);
    if (apply != NULL && one != NULL && two != NULL)
        Py_XDECREF(PyObject_CallFunction(apply, "OOOi", user->function, one, two, (int)type));
    Py_XDECREF(one);
    Py_XDECREF(two);
    Py_XDECREF(apply);
    gyre_status_t status = GYRE_OK;
    if (PyErr_Occurred() != NULL) {
        PyObject *class = NULL, *value = NULL, *trace = NULL;
        PyErr_Fetch(&class, &value, &trace);
        PyErr_NormalizeException(&class, &value, &trace);
        if (trace != NULL)
            PyException_SetTraceback(value, trace);
        Py_XDECREF(class);
        Py_XDECREF(trace);
        Py_XDECREF(user->raised);
        user->raised = value;
        status = GYRE_ERR_ABORTED;
    }
    python_leave(state);
    return status;
}

static PyObject *operation_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *function = NULL, *apply = NULL;
    int commutative = 0;
    const parameter_t list[] = {
        {"function", TAKE_OBJECT, &function}, {"commutative", TAKE_TRUTH, &commutative}, {0}};
    if (take_arguments("Operation", args, names, list, 1, 2) != 0)
        return NULL;
    if (!PyCallable_Check(function)) {
        PyErr_SetString(PyExc_TypeError, "Operation: function cannot be called; it must take left and right");
        return NULL;
    }
    apply = helper("apply"); /* an ImportError without NumPy belongs here */
    operation_t *self = apply != NULL ? (operation_t *)PyType_GenericAlloc(type, 0) : NULL;
    Py_XDECREF(apply);
    if (self == NULL)
        return NULL;
    self->op.kind = GYRE_REDOP_NONE;
    self->user = calloc(1, sizeof(*self->user));
    if (self->user == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->user->function = Py_NewRef(function);
    gyre_status_t status =
        gyre_op_create(combine, self->user, commutative ? GYRE_OP_COMMUTATIVE : 0, &self->op);
    if (status == GYRE_OK)
        return (PyObject *)self;
    self->op.kind = GYRE_REDOP_NONE;
    Py_DECREF(self);
    return raise_status(status);
}

static gyre_status_t free_operation(operation_t *operation)
{
    gyre_status_t status;
    UNLOCKED(status = gyre_op_free(&operation->op));
    if (status == GYRE_OK && operation->user != NULL) {
        Py_XDECREF(operation->user->function);
        Py_XDECREF(operation->user->raised);
        free(operation->user);
        operation->user = NULL;
    }
    return status;
}

/* If Gyre still uses it, the function stays. */
static void operation_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free_operation((operation_t *)self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *operation_free(PyObject *self, PyObject *Py_UNUSED(none))
{
    return none_or_raise(free_operation((operation_t *)self));
}

int take_reduction(PyObject *op, PyObject *scale, const char *call, gyre_redop_t *out)
{
    long kind = GYRE_SUM;
    if (op != NULL && PyObject_TypeCheck(op, operation_type)) {
        *out = ((operation_t *)op)->op;
        kind = out->kind;
        if (kind == GYRE_REDOP_NONE) {
            PyErr_Format(PyExc_ValueError, "%s: op is an Operation that was freed", call);
            return -1;
        }
    } else {
        if (op != NULL && !PyLong_Check(op) && !PyIndex_Check(op)) {
            PyErr_Format(PyExc_TypeError, "%s: op is neither one of gyre.Op nor a gyre.Operation", call);
            return -1;
        }
        if (op != NULL)
            kind = PyLong_AsLong(op);
        if (kind == -1 && PyErr_Occurred() != NULL)
            return name_argument(call, "op");
        if (kind < 0 || kind >= GYRE_REDOP_COUNT) {
            PyErr_Format(PyExc_ValueError, "%s: op is %ld; allowed: 0 to %d (gyre.Op)", call, kind,
                         GYRE_REDOP_COUNT - 1);
            return -1;
        }
        *out = GYRE_OP((gyre_redop_kind_t)kind);
    }
    if (scale == NULL)
        return 0;
    double factor = PyFloat_AsDouble(scale);
    if (factor == -1 && PyErr_Occurred() != NULL)
        return name_argument(call, "scale");
    if (kind != GYRE_SUM) {
        PyErr_Format(PyExc_ValueError, "%s: scale is for sums only (op=gyre.SUM)", call);
        return -1;
    }
    *out = GYRE_SCALED_SUM(factor);
    return 0;
}

static PyObject *reduce_local(PyObject *Py_UNUSED(module), PyObject *args, PyObject *names)
{
    static const char CALL[] = "reduce_local";
    PyObject *left = NULL, *right = NULL, *op = NULL, *type = NULL;
    const parameter_t list[] = {{"left", TAKE_OBJECT, &left},
                                {"right", TAKE_OBJECT, &right},
                                {"op", TAKE_OBJECT, &op},
                                {"type", TAKE_OBJECT, &type},
                                {0}};
    gyre_redop_t kind;
    array_t from, to;
    if (take_arguments(CALL, args, names, list, 2, 4) != 0 || take_reduction(op, NULL, CALL, &kind) != 0 ||
        array_get(&from, left, 0, type, CALL, "left") != 0)
        return NULL;
    if (array_get(&to, right, 1, type, CALL, "right") != 0) {
        array_release(&from);
        return NULL;
    }
    gyre_status_t status = GYRE_OK;
    if (from.type != to.type || from.count != to.count)
        PyErr_Format(PyExc_ValueError,
                     "%s: left has %zu elements of type %s, and right %zu of type %s; they must be the same",
                     CALL, from.count, gyre_type_name(from.type), to.count, gyre_type_name(to.type));
    else
        UNLOCKED(status = gyre_reduce_local(from.data, to.data, to.data, from.count, from.type, kind));
    array_release(&from);
    array_release(&to);
    if (PyErr_Occurred() != NULL)
        return NULL;
    return status == GYRE_OK ? Py_NewRef(Py_None) : raise_caused(status, op);
}

static PyObject *type_create(PyObject *Py_UNUSED(module), PyObject *number)
{
    gyre_type_t type;
    size_t bytes = PyLong_AsSize_t(number);
    if (bytes == (size_t)-1 && PyErr_Occurred() != NULL)
        return NULL;
    gyre_status_t status = gyre_type_create(bytes, &type);
    return status == GYRE_OK ? PyLong_FromLong((long)type) : raise_status(status);
}

static PyObject *type_free(PyObject *Py_UNUSED(module), PyObject *number)
{
    long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred() != NULL)
        return NULL;
    gyre_type_t type = (gyre_type_t)value;
    gyre_status_t status;
    UNLOCKED(status = gyre_type_free(&type));
    return none_or_raise(status);
}

PyMethodDef operation_functions[] = {
    {"reduce_local", KEYWORDS(reduce_local),
     "reduce_local(left, right, op=0, type=None)\n--\n\nright = left op right, as one combination of a "
     "collective.\n\n"
     ">>> x = numpy.array([1.0, 5.0])\n>>> gyre.reduce_local(numpy.array([3.0, 3.0]), x, gyre.MAX)\n"
     ">>> x.tolist()\n[3.0, 5.0]"},
    {"type_create", type_create, METH_O, NULL},
    {"type_free", type_free, METH_O, NULL},
    {"end", end, METH_NOARGS, NULL},
    {"forked", forked, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyMethodDef methods[] = {
    {"free", operation_free, METH_NOARGS,
     "free($self)\n--\n\nFrees its number for another operation. So does dropping it. Ranks create and free "
     "their\noperations in the same order. An Error: a request or a plan uses it."},
    {NULL, NULL, 0, NULL}};
static const char OPERATION_DOC[] =
    "Operation(function, commutative=False)\n--\n\nA reduction of the program's own, for the argument op of "
    "all calls that reduce.\n\n"
    "function(left, right) gets NumPy arrays of one dimension and sets right = left op right, in place; "
    "left\n"
    "is read-only. It is called in pieces, on any thread, and must be associative. It must not call Gyre\n"
    "and not keep the arrays. Elements: those of the call; bfloat16 and 8-bit floats as their bits. If it\n"
    "raises, the call fails on all ranks, and the exception is the cause of this rank's gyre.Error.\n"
    "commutative=True lets Gyre swap left and right with order=FAST.\n\n"
    ">>> def hypot(left, right):\n...     numpy.hypot(left, right, out=right)\n"
    ">>> op = gyre.Operation(hypot, commutative=True)\n>>> x = numpy.full(2, 3.0)\n"
    ">>> comm.all_reduce(x, op=op)\n>>> bool(abs(x[0] - 3 * comm.size ** 0.5) < 1e-12)\nTrue";

int operation_add(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_new, SLOT(operation_new)},
                           {Py_tp_dealloc, SLOT(operation_dealloc)},
                           {Py_tp_methods, methods},
                           {Py_tp_doc, SLOT(OPERATION_DOC)},
                           {0, NULL}};
    PyType_Spec spec = {"gyre.Operation", sizeof(operation_t), 0, Py_TPFLAGS_DEFAULT, slots};
    operation_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return operation_type != NULL ? PyModule_AddObjectRef(module, "Operation", (PyObject *)operation_type)
                                  : -1;
}
