/* SPDX-License-Identifier: Apache-2.0 */
/* binding.h: what the sources of the extension module gyre._gyre share. Python's limited API of 3.11: one
 * build serves every later Python. All functions need the GIL. NULL or -1: a Python exception is set. */
#ifndef GYRE_PYTHON_BINDING_H
#define GYRE_PYTHON_BINDING_H

#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <gyre/gyre.h>

/* The memory of a Python object, which stays where it is until array_release. Zeroed: no memory. */
typedef struct {
    char *data;
    size_t count;
    gyre_type_t type;
    Py_buffer view;    /* view.obj NULL: not by the buffer protocol */
    PyObject *capsule; /* of DLPack, which holds the memory; or NULL */
} array_t;

/* Takes the memory of `object`: contiguous, in host memory and, if `writable`, not read-only. type: a number
 * of gyre_type_t as which the bytes are taken; NULL or None: that of the object. Exceptions begin with
 * "call: argument". */
int array_get(array_t *array, PyObject *object, int writable, PyObject *type, const char *call,
              const char *argument);
void array_release(array_t *array);

/* An operation under way, and what it uses. It outlives the Request if the program drops that early. */
typedef struct pending {
    gyre_request_t *request; /* NULL: finished */
    array_t send, recv;
    PyObject *keep; /* NULL, or an object that the operation uses */
    struct pending *next;
} pending_t;

typedef struct {
    PyObject ob_base;
    gyre_comm_t *comm; /* NULL: closed */
    int rank, size, leaves;
    int job;            /* 1: ended by gyre_finalize, 0: by gyre_comm_destroy */
    int calls;          /* threads that are in a call */
    PyObject *parent;   /* the Comm that it was made of, or NULL */
    pending_t *orphans; /* operations whose Request was dropped */
} comm_t;

/* Runs a statement while other threads run Python; WITHOUT_GIL: one that is a call on a comm_t. */
#define UNLOCKED(statement)                         \
    do {                                            \
        PyThreadState *saved = PyEval_SaveThread(); \
        statement;                                  \
        PyEval_RestoreThread(saved);                \
    } while (0)
#define WITHOUT_GIL(on, statement) \
    do {                           \
        (on)->calls++;             \
        UNLOCKED(statement);       \
        (on)->calls--;             \
    } while (0)

#define SLOT(what) ((void *)(uintptr_t)(what)) /* of a PyType_Slot: a function, or a docstring */

/* Raises gyre.Error with the status and the text of this thread's last error. Returns NULL. */
PyObject *raise_status(gyre_status_t status);
/* gyre.NAME of the Python part of the package: a new reference. */
PyObject *of_package(const char *name);

/* The communicator, if it is one and open; else NULL. */
comm_t *comm_open(PyObject *object, const char *call);
PyObject *comm_wrap(gyre_comm_t *comm, int job, int leaves, PyObject *parent);
/* Frees what finished of the operations whose Request was dropped; wait: waits for all of them. */
void comm_reap(comm_t *comm, int wait);
/* A Request for an operation that was started; takes `pending`. */
PyObject *request_wrap(PyObject *comm, pending_t *pending);
void pending_free(pending_t *pending);

/* The methods of Comm that are collectives; ends with a NULL name. */
extern PyMethodDef collective_methods[];
int comm_add(PyObject *module);
int request_add(PyObject *module);
int exact_add(PyObject *module);
int memory_add(PyObject *module);
PyObject *comm_alloc_shared(PyObject *self, PyObject *bytes);

extern PyMethodDef create_functions[];

#endif
