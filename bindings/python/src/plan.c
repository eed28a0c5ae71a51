/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: gyre.Plan: a collective whose arguments are checked once, to be started often (gyre/plan.h). */
#include "binding.h"

typedef struct {
    PyObject ob_base;
    PyObject *comm;
    gyre_plan_t *plan;  /* NULL: freed */
    pending_t *pending; /* its arrays, operation and type */
} plan_t;

static PyTypeObject *plan_type;

PyObject *plan_operation(PyObject *user)
{
    return user != NULL && PyObject_TypeCheck(user, plan_type) && ((plan_t *)user)->pending != NULL
               ? ((plan_t *)user)->pending->keep[0]
               : user;
}

PyObject *plan_wrap(PyObject *comm, gyre_plan_t *made, pending_t *pending)
{
    plan_t *plan = (plan_t *)PyType_GenericAlloc(plan_type, 0);
    if (plan == NULL) {
        UNLOCKED(gyre_plan_free(&made));
        pending_free(pending);
        return NULL;
    }
    plan->comm = Py_NewRef(comm);
    plan->plan = made;
    plan->pending = pending;
    return (PyObject *)plan;
}

static gyre_status_t end(plan_t *plan)
{
    gyre_status_t status;
    UNLOCKED(status = gyre_plan_free(&plan->plan));
    if (status == GYRE_OK && plan->pending != NULL) {
        pending_free(plan->pending);
        plan->pending = NULL;
    }
    return status;
}

/* A start that is under way holds the Plan, so that none is here. */
static void plan_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (put_off(self, plan_dealloc))
        return;
    end((plan_t *)self);
    Py_XDECREF(((plan_t *)self)->comm);
    PyObject_Free(self);
    Py_DECREF(type);
}

static plan_t *usable(PyObject *self, const char *call)
{
    plan_t *plan = (plan_t *)self;
    if (plan->plan == NULL) {
        PyErr_Format(PyExc_ValueError, "%s: this plan was freed", call);
        return NULL;
    }
    return comm_open(plan->comm, call) != NULL ? plan : NULL;
}

static PyObject *plan_start(PyObject *self, PyObject *Py_UNUSED(none))
{
    plan_t *plan = usable(self, "start");
    if (plan == NULL)
        return NULL;
    comm_reap((comm_t *)plan->comm, 0);
    pending_t *pending = PyMem_Calloc(1, sizeof(*pending));
    if (pending == NULL)
        return PyErr_NoMemory();
    pending->keep[0] = Py_NewRef(self);
    gyre_status_t status;
    WITHOUT_GIL((comm_t *)plan->comm, status = gyre_start(plan->plan, &pending->request));
    if (status == GYRE_OK)
        return request_wrap(plan->comm, pending);
    pending_free(pending);
    return raise_caused(status, self);
}

static PyObject *plan_call(PyObject *self, PyObject *args, PyObject *names)
{
    plan_t *plan = usable(self, "a call of a plan");
    if (plan == NULL)
        return NULL;
    if (PyTuple_Size(args) > 0 || (names != NULL && PyDict_Size(names) > 0)) {
        PyErr_SetString(PyExc_TypeError, "a call of a plan takes no arguments");
        return NULL;
    }
    pending_t *held = group_open() ? PyMem_Calloc(1, sizeof(*held)) : NULL;
    if (held == NULL && group_open())
        return PyErr_NoMemory();
    gyre_status_t status;
    WITHOUT_GIL((comm_t *)plan->comm, status = gyre_start(plan->plan, NULL));
    if (held != NULL) {
        held->keep[0] = Py_NewRef(self);
        group_hold(held);
    }
    return status == GYRE_OK ? Py_NewRef(Py_None) : raise_caused(status, self);
}

static PyObject *plan_set(PyObject *self, PyObject *args, PyObject *names)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    const parameter_t list[] = {{"order", TAKE_INT, &options.order},
                                {"algorithm", TAKE_TEXT, &options.algorithm},
                                {"chunk", TAKE_SIZE, &options.chunk},
                                {"tag", TAKE_UINT64, &options.tag},
                                {0}};
    plan_t *plan = usable(self, "set");
    if (plan == NULL || take_arguments("set", args, names, list, 0, 0) != 0)
        return NULL;
    gyre_status_t status;
    WITHOUT_GIL((comm_t *)plan->comm, status = gyre_plan_set(plan->plan, &options));
    return none_or_raise(status);
}

static PyObject *plan_free(PyObject *self, PyObject *Py_UNUSED(none))
{
    return inside("free") ? NULL : none_or_raise(end((plan_t *)self));
}

static PyMethodDef methods[] = {
    {"start", plan_start, METH_NOARGS,
     "start($self)\n--\n\nStarts the operation and returns its Request at once. Before the next start that "
     "request\nmust have ended.\n\n"
     ">>> x = numpy.ones(2)\n>>> plan = comm.plan_all_reduce(x)\n>>> plan.start().wait()\n"
     ">>> bool(x[0] == comm.size)\nTrue"},
    {"set", KEYWORDS(plan_set),
     "set($self, *, order=0, algorithm=None, chunk=0, tag=0)\n--\n\nSets options of this plan, the same on "
     "all ranks but for tag: gyre_plan_set(3).\n\n"
     ">>> x = numpy.ones(2)\n>>> plan = comm.plan_all_reduce(x)\n>>> plan.set(order=gyre.Order.EXACT)\n"
     ">>> plan()\n>>> bool(x[0] == comm.size)\nTrue"},
    {"free", plan_free, METH_NOARGS,
     "free($self)\n--\n\nFrees the memory of the plan and gives its arrays back. So does dropping it.\n\n"
     ">>> plan = comm.plan_barrier()\n>>> plan()\n>>> plan.free()"},
    {NULL, NULL, 0, NULL}};
static const char PLAN_DOC[] =
    "A collective whose arguments were checked once. A call, plan(), blocks; start() does not. The arrays\n"
    "are the program's between the starts, and must keep their size until free().\n\n"
    ">>> x = numpy.empty(3)\n>>> plan = comm.plan_all_reduce(x, op=gyre.MAX)\n>>> for step in range(3):\n"
    "...     x[:] = comm.rank + step\n...     plan()\n>>> bool(x[0] == comm.size - 1 + 2)\nTrue";

int plan_add(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, SLOT(plan_dealloc)},
                           {Py_tp_call, SLOT(plan_call)},
                           {Py_tp_methods, methods},
                           {Py_tp_doc, SLOT(PLAN_DOC)},
                           {0, NULL}};
    PyType_Spec spec = {"gyre.Plan", sizeof(plan_t), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    plan_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return plan_type != NULL ? PyModule_AddObjectRef(module, "Plan", (PyObject *)plan_type) : -1;
}
