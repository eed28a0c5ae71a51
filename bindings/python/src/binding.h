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
/* The exception that is set becomes one that names the call and the argument. Returns -1. */
int name_argument(const char *call, const char *argument);
/* *out of a whole number that is not negative. */
int take_size(PyObject *given, const char *call, const char *argument, size_t *out);
/* A whole number, within int. Else an exception that names both. */
int take_int(PyObject *given, const char *call, const char *argument, int *out);

/* What an argument must be, and what is set of it: an object (PyObject *, borrowed), a whole number (int),
 * one that is not negative (size_t, uint64_t), a number (double), a str or None (const char *, NULL; valid
 * for as long as the arguments are), whether it is true (int). */
typedef enum { TAKE_OBJECT, TAKE_INT, TAKE_SIZE, TAKE_UINT64, TAKE_DOUBLE, TAKE_TEXT, TAKE_TRUTH } take_t;
typedef struct {
    const char *name;
    take_t how;
    void *out; /* stays as it is if the argument is not given */
} parameter_t;
/* Sets the parameters of `list`, which ends with {0}, of the arguments of a Python call. The first `needed`
 * must be given; the first `placed` may be given by their place. -1: an exception names the call and the
 * argument. */
int take_arguments(const char *call, PyObject *args, PyObject *names, const parameter_t *list, int needed,
                   int placed);

/* An operation under way, and what it uses. It outlives the Request if the program drops that early. */
typedef struct pending {
    gyre_request_t *request; /* NULL: finished */
    array_t send, recv;
    PyObject *keep[2]; /* NULL, or objects that the operation uses: operation, type, plan, sum */
    gyre_comm_t *made; /* by a call that makes a communicator: */
    int makes;         /* 1: such a call */
    int rank;          /* of Memory.put and get */
    struct pending *next;
} pending_t;

typedef struct {
    PyObject ob_base;
    gyre_comm_t *comm; /* NULL: closed */
    int rank, size, leaves;
    int job;            /* 1: ended by gyre_finalize, 0: by gyre_comm_destroy */
    int calls;          /* threads that are in a call */
    PyObject *parent;   /* the Comm that it was made of, or NULL */
    PyObject *failure;  /* the function of on_failure, or NULL */
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

/* The arguments of gyre_options_t, for take_arguments */
/* clang-format off */
#define OPTION_PARAMETERS(o) \
    {"order", TAKE_INT, &(o)->order}, {"leaves", TAKE_INT, &(o)->leaves}, \
    {"algorithm", TAKE_TEXT, &(o)->algorithm}, {"chunk", TAKE_SIZE, &(o)->chunk}, \
    {"timeout", TAKE_DOUBLE, &(o)->timeout_s}, {"tag", TAKE_UINT64, &(o)->tag}
/* clang-format on */

#define SLOT(what) ((void *)(uintptr_t)(what)) /* of a PyType_Slot: a function, or a docstring */

/* Raises gyre.Error with the status and the text of this thread's last error. Returns NULL. */
PyObject *raise_status(gyre_status_t status);
/* The same for a call that has used `user`, an Operation or a Plan with one, or anything else: what the
 * operation's function has raised is the cause of the error. NULL: raise_status. */
PyObject *raise_caused(gyre_status_t status, PyObject *user);
/* The same with this cause, which it takes; NULL: none. */
PyObject *raise_from(gyre_status_t status, PyObject *cause);
PyObject *none_or_raise(gyre_status_t status);
/* gyre.NAME of the Python part of the package: a new reference. */
PyObject *of_package(const char *name);

/* The communicator, if it is one and open; else NULL. */
comm_t *comm_open(PyObject *object, const char *call);
PyObject *comm_wrap(gyre_comm_t *comm, int job, int leaves, PyObject *parent);
/* Frees what finished of the operations whose Request was dropped. wait: waits for all of them, if no group
 * is open. */
void comm_reap(comm_t *comm, int wait);
/* gyre.Error with the text of this thread's last error: a new reference. */
PyObject *error_of(gyre_status_t status);
/* A Request for an operation that was started; takes `pending`. */
PyObject *request_wrap(PyObject *comm, pending_t *pending);
void pending_free(pending_t *pending);

/* For functions of the program that any thread of Gyre calls. 0: Python ends, they must not run. */
int python_enter(PyGILState_STATE *state);
void python_leave(PyGILState_STATE state);
/* 1, and an exception: this thread is in such a function, and the call is not allowed there. Elsewhere it
 * frees what was put off. */
int inside(const char *call);
/* For destructors, whose calls of Gyre could wait forever in such a function. 1: this thread is in one; the
 * object stays until the next call of Gyre outside, which runs `again` on it. */
int put_off(PyObject *object, destructor again);
/* A function of the package, module gyre._operations: a new reference. */
PyObject *helper(const char *name);

/* op: an int or an Operation, NULL for a sum; scale: NULL or a number. -1: an exception. */
int take_reduction(PyObject *op, PyObject *scale, const char *call, gyre_redop_t *out);
/* What an Operation's function has raised, once, if this thread's last error, of a call with the Operation,
 * says that the function has failed: a new reference, or NULL. `user` as in raise_caused. */
PyObject *take_raised(PyObject *user);
PyObject *plan_operation(PyObject *user); /* the Operation of a Plan; else `user`. Borrowed. */

/* A Plan of the arrays and objects of `pending`, which it takes. */
PyObject *plan_wrap(PyObject *comm, gyre_plan_t *plan, pending_t *pending);
/* Memory inside that of `owner`, as a NumPy array of the type: a new reference. */
PyObject *array_in(PyObject *owner, void *ptr, size_t count, gyre_type_t type);
/* A running iall_reduce of an Exact that is kept has ended. */
void exact_ended(PyObject *object);

/* A blocking call within gyre_group_start and _end: what it uses is held until the end. */
int group_open(void);
void group_hold(pending_t *pending);

/* The methods of Comm that are collectives, and that make communicators; each ends with a NULL name. */
extern PyMethodDef collective_methods[], making_methods[];
int comm_add(PyObject *module);
int request_add(PyObject *module);
int exact_add(PyObject *module);
int memory_add(PyObject *module);
int plan_add(PyObject *module);
int operation_add(PyObject *module);
int buckets_add(PyObject *module);
PyObject *comm_alloc_shared(PyObject *self, PyObject *bytes);

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

/* Functions of the module; each list ends with a NULL name. */
extern PyMethodDef create_functions[], operation_functions[], group_functions[], memory_functions[],
    request_functions[];

#endif
