/* SPDX-License-Identifier: Apache-2.0 */
/* request.c: gyre.Request: an operation under way. It holds the memory that the operation uses. If the
 * program drops it before the operation has finished, the communicator holds that memory until then. */
#include "binding.h"

typedef struct {
    PyObject ob_base;
    PyObject *comm;
    pending_t *pending; /* NULL: finished */
    int waits;          /* a thread is in wait() */
} request_t;

static PyTypeObject *request_type;

void pending_free(pending_t *pending)
{
    array_release(&pending->send);
    array_release(&pending->recv);
    Py_XDECREF(pending->keep);
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
    PyObject_Free(self);
    Py_DECREF(type);
}

/* After gyre_wait or gyre_test: `more` if it has not finished, else `done` or an exception. */
static PyObject *after(request_t *request, gyre_status_t status, PyObject *done, PyObject *more)
{
    if (status == GYRE_IN_PROGRESS)
        return Py_NewRef(more);
    if (request->pending->request == NULL) {
        pending_free(request->pending);
        request->pending = NULL;
    }
    return status == GYRE_OK ? Py_NewRef(done) : raise_status(status);
}

static int usable(const request_t *request, const char *call)
{
    if (!request->waits)
        return 1;
    PyErr_Format(PyExc_ValueError, "%s: another thread waits for this request", call);
    return 0;
}

static PyObject *request_wait(PyObject *self, PyObject *Py_UNUSED(none))
{
    request_t *request = (request_t *)self;
    if (!usable(request, "wait"))
        return NULL;
    if (request->pending == NULL)
        Py_RETURN_NONE;
    gyre_status_t status;
    request->waits = 1;
    WITHOUT_GIL((comm_t *)request->comm, status = gyre_wait(&request->pending->request));
    request->waits = 0;
    return after(request, status, Py_None, Py_None);
}

static PyObject *request_test(PyObject *self, PyObject *Py_UNUSED(none))
{
    request_t *request = (request_t *)self;
    if (!usable(request, "test"))
        return NULL;
    if (request->pending == NULL)
        Py_RETURN_TRUE;
    return after(request, gyre_test(&request->pending->request), Py_True, Py_False);
}

static PyObject *get_comm(PyObject *self, void *Py_UNUSED(none))
{
    return Py_NewRef(((request_t *)self)->comm);
}

static PyMethodDef methods[] = {
    {"wait", request_wait, METH_NOARGS,
     "wait($self)\n--\n\nBlocks until the operation has finished. Other threads run meanwhile.\n\n"
     ">>> comm.ibarrier().wait()"},
    {"test", request_test, METH_NOARGS,
     "test($self)\n--\n\nTrue if the operation has finished; does not block.\n\n"
     ">>> request = comm.ibarrier()\n>>> while not request.test():\n...     pass"},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef properties[] = {{"comm", get_comm, NULL, "The communicator of the operation.", NULL},
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
