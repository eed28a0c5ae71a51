/* SPDX-License-Identifier: Apache-2.0 */
/* group.c: groups: gyre.group. What blocking calls of a group use is held until it has ended. */
#include "binding.h"

static _Thread_local int depth;
static _Thread_local pending_t *held;

int group_open(void)
{
    return depth > 0;
}

void group_hold(pending_t *pending)
{
    pending->next = held;
    held = pending;
}

static PyObject *group_start(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    gyre_status_t status = gyre_group_start();
    depth += status == GYRE_OK;
    return none_or_raise(status);
}

/* discards: true: the calls of the group are not made. */
static PyObject *group_end(PyObject *Py_UNUSED(module), PyObject *discards)
{
    gyre_status_t status;
    int discard = PyObject_IsTrue(discards);
    if (discard < 0)
        return NULL;
    if (discard)
        gyre_barrier(NULL); /* a call that is refused: then gyre_group_end starts none */
    UNLOCKED(status = gyre_group_end());
    depth -= depth > 0;
    pending_t *list = depth == 0 ? held : NULL;
    PyObject *cause = NULL;
    if (depth == 0)
        held = NULL;
    while (list != NULL) {
        pending_t *next = list->next;
        if (status != GYRE_OK && cause == NULL)
            cause = take_raised(list->keep[0]);
        pending_free(list);
        list = next;
    }
    if (status != GYRE_OK && !discard)
        return raise_from(status, cause);
    Py_XDECREF(cause);
    Py_RETURN_NONE;
}

PyMethodDef group_functions[] = {{"group_start", group_start, METH_NOARGS, NULL},
                                 {"group_end", group_end, METH_O, NULL},
                                 {NULL, NULL, 0, NULL}};
