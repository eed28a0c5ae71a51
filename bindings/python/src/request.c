/* SPDX-License-Identifier: Apache-2.0 */
/* request.c: gyre.Request: an operation under way. It holds the memory that the operation uses. If the
 * program drops it before the operation has finished, the communicator holds that memory until then. */
#include "binding.h"

typedef struct {
    PyObject ob_base;
    PyObject *comm;
    PyObject *result;   /* the communicator that the operation has made, or NULL */
    pending_t *pending; /* NULL: finished */
    int waits;          /* a thread is in a call on it */
} request_t;

static PyTypeObject *request_type;

void pending_free(pending_t *pending)
{
    array_release(&pending->send);
    array_release(&pending->recv);
    for (int i = 0; i < 2; i++)
        if (pending->keep[i] != NULL) {
            exact_ended(pending->keep[i]);
            Py_DECREF(pending->keep[i]);
        }
    PyMem_Free(pending);
}

PyObject *request_wrap(PyObject *comm, pending_t *pending)
{
    request_t *request = (request_t *)PyType_GenericAlloc(request_type, 0);
    if (request == NULL) { /* the operation is under way */
        pending->next = ((comm_t *)comm)->orphans;
        ((comm_t *)comm)->orphans = pending;
        return NULL;
    }
    request->comm = Py_NewRef(comm);
    request->pending = pending;
    return (PyObject *)request;
}

static void request_dealloc(PyObject *self)
{
    request_t *request = (request_t *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (request->pending != NULL) {
        comm_t *comm = (comm_t *)request->comm;
        request->pending->next = comm->orphans;
        comm->orphans = request->pending;
    }
    Py_XDECREF(request->comm);
    Py_XDECREF(request->result);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *result(const request_t *request)
{
    return Py_NewRef(request->result != NULL ? request->result : Py_None);
}

/* After gyre_wait or gyre_test: 0: it has not finished; 1: it has; -1: it has failed, an exception is set. */
static int after(request_t *request, gyre_status_t status)
{
    pending_t *pending = request->pending;
    if (status == GYRE_IN_PROGRESS)
        return 0;
    if (status != GYRE_OK)
        raise_caused(status, pending->keep[0]);
    else if (pending->made != NULL)
        request->result = comm_wrap(pending->made, 0, 1, request->comm);
    if (pending->request == NULL) {
        request->pending = NULL;
        pending_free(pending);
    }
    return status != GYRE_OK || PyErr_Occurred() != NULL ? -1 : 1;
}

static int usable(const request_t *request, const char *call)
{
    if (inside(call))
        return 0;
    if (!request->waits)
        return 1;
    PyErr_Format(PyExc_ValueError, "%s: another thread waits for this request", call);
    return 0;
}

static gyre_status_t unlocked(request_t *request, gyre_status_t (*call)(gyre_request_t **))
{
    gyre_status_t status;
    request->waits = 1;
    WITHOUT_GIL((comm_t *)request->comm, status = call(&request->pending->request));
    request->waits = 0;
    return status;
}

static PyObject *request_wait(PyObject *self, PyObject *Py_UNUSED(none))
{
    request_t *request = (request_t *)self;
    if (!usable(request, "wait"))
        return NULL;
    if (request->pending != NULL && after(request, unlocked(request, gyre_wait)) < 0)
        return NULL;
    return result(request);
}

static PyObject *request_test(PyObject *self, PyObject *Py_UNUSED(none))
{
    request_t *request = (request_t *)self;
    if (!usable(request, "test"))
        return NULL;
    int done = request->pending == NULL ? 1 : after(request, unlocked(request, gyre_test));
    return done < 0 ? NULL : PyBool_FromLong(done);
}

/* requests[i] of a list, if they are requests that no other thread uses */
static request_t *item(PyObject *requests, Py_ssize_t i)
{
    PyObject *object = PyList_GetItem(requests, i);
    if (object == NULL || !PyObject_TypeCheck(object, request_type)) {
        PyErr_Format(PyExc_TypeError, "wait_any: requests[%zd] is not a gyre.Request", i);
        return NULL;
    }
    return usable((request_t *)object, "wait_any") ? (request_t *)object : NULL;
}

static PyObject *wait_any(PyObject *Py_UNUSED(module), PyObject *sequence)
{
    PyObject *requests = PySequence_List(sequence), *out = NULL;
    if (requests == NULL)
        name_argument("wait_any", "requests");
    Py_ssize_t n = requests != NULL ? PyList_Size(requests) : -1;
    gyre_request_t **list = n >= 0 ? PyMem_Calloc((size_t)n + 1, sizeof(gyre_request_t *)) : NULL;
    Py_ssize_t taken = 0;
    if (n >= 0 && list == NULL)
        PyErr_NoMemory();
    for (; list != NULL && taken < n; taken++) {
        request_t *request = item(requests, taken);
        if (request == NULL)
            break;
        list[taken] = request->pending != NULL ? request->pending->request : NULL;
        request->waits = 1; /* one that is in the list twice is refused, too */
        ((comm_t *)request->comm)->calls++;
    }
    ptrdiff_t index = -1;
    gyre_status_t status = GYRE_OK;
    if (taken == n)
        UNLOCKED(status = gyre_wait_any((size_t)n, list, &index));
    for (Py_ssize_t i = 0; i < taken; i++) {
        request_t *request = (request_t *)PyList_GetItem(requests, i);
        request->waits = 0;
        ((comm_t *)request->comm)->calls--;
        if (i == index)
            request->pending->request = list[i];
    }
    if (taken == n && index < 0)
        out = none_or_raise(status);
    else if (taken == n && after((request_t *)PyList_GetItem(requests, index), status) > 0)
        out = PyLong_FromSsize_t(index);
    PyMem_Free(list);
    Py_XDECREF(requests);
    return out;
}
PyMethodDef request_functions[] = {
    {"wait_any", wait_any, METH_O,
     "wait_any(requests)\n--\n\nBlocks until one of the requests that are under way has finished; returns "
     "its place in the list. None:\nall had finished before. An error is that of the request.\n\n"
     ">>> requests = [comm.ibarrier(), comm.ibarrier()]\n"
     ">>> sorted([gyre.wait_any(requests), gyre.wait_any(requests)])\n[0, 1]\n"
     ">>> gyre.wait_any(requests) is None\nTrue"},
    {NULL, NULL, 0, NULL}};

static PyObject *get_comm(PyObject *self, void *Py_UNUSED(none))
{
    return Py_NewRef(((request_t *)self)->comm);
}

static PyObject *get_makes(PyObject *self, void *Py_UNUSED(none))
{
    const request_t *request = (request_t *)self;
    return PyBool_FromLong(request->result != NULL || (request->pending != NULL && request->pending->makes));
}

static PyMethodDef methods[] = {
    {"wait", request_wait, METH_NOARGS,
     "wait($self)\n--\n\nBlocks until the operation has finished. Other threads run meanwhile. Returns the "
     "communicator,\nif the operation makes one, else None.\n\n"
     ">>> comm.ibarrier().wait()"},
    {"test", request_test, METH_NOARGS,
     "test($self)\n--\n\nTrue if the operation has finished; does not block.\n\n"
     ">>> request = comm.ibarrier()\n>>> while not request.test():\n...     pass"},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef properties[] = {{"comm", get_comm, NULL, "The communicator of the operation.", NULL},
                                   {"makes", get_makes, NULL, "Whether it makes a communicator.", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};
static const char REQUEST_DOC[] =
    "An operation under way. wait(), test(), or `await request` in asyncio. An error of the operation is\n"
    "raised once, by the call that finds it.";

int request_add(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, SLOT(request_dealloc)},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, properties},
                           {Py_tp_doc, SLOT(REQUEST_DOC)},
                           {0, NULL}};
    PyType_Spec spec = {"gyre.Request", sizeof(request_t), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    request_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return request_type != NULL ? PyModule_AddObjectRef(module, "Request", (PyObject *)request_type) : -1;
}
