/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.c: the arguments of Python calls but for arrays: exceptions name the call and the argument, which
 * those of PyArg_ParseTuple do not. (The collectives have a faster way, in methods.c.) */
#include "binding.h"

#include <limits.h>
#include <string.h>

int name_argument(const char *call, const char *argument)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    PyErr_Fetch(&type, &value, &trace);
    if (type != PyExc_TypeError && type != PyExc_ValueError && type != PyExc_OverflowError) {
        PyErr_Restore(type, value, trace); /* one of the program's own */
        return -1;
    }
    PyErr_Format(type, "%s: %s: %S", call, argument, value != NULL ? value : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return -1;
}

int take_size(PyObject *given, const char *call, const char *argument, size_t *out)
{
    Py_ssize_t value = PyNumber_AsSsize_t(given, PyExc_OverflowError);
    if (value == -1 && PyErr_Occurred() != NULL)
        return name_argument(call, argument);
    if (value < 0) {
        PyErr_Format(PyExc_ValueError, "%s: %s is %zd; it must not be negative", call, argument, value);
        return -1;
    }
    *out = (size_t)value;
    return 0;
}

int take_int(PyObject *given, const char *call, const char *argument, int *out)
{
    long value = PyLong_AsLong(given);
    if (value == -1 && PyErr_Occurred() != NULL)
        return name_argument(call, argument);
    if (value < INT_MIN || value > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "%s: %s is %ld, which is out of range", call, argument, value);
        return -1;
    }
    *out = (int)value;
    return 0;
}

static int take_uint64(PyObject *given, const char *call, const char *argument, uint64_t *out)
{
    PyObject *number = PyNumber_Index(given);
    uint64_t value = number != NULL ? PyLong_AsUnsignedLongLong(number) : 0;
    Py_XDECREF(number);
    if (PyErr_Occurred() != NULL)
        return name_argument(call, argument);
    *out = value;
    return 0;
}

static int take_double(PyObject *given, const char *call, const char *argument, double *out)
{
    double value = PyFloat_AsDouble(given);
    if (value == -1 && PyErr_Occurred() != NULL)
        return name_argument(call, argument);
    *out = value;
    return 0;
}

static int take_text(PyObject *given, const char *call, const char *argument, const char **out)
{
    Py_ssize_t length = 0;
    if (given == Py_None) {
        *out = NULL;
        return 0;
    }
    if (!PyUnicode_Check(given)) {
        PyErr_Format(PyExc_TypeError, "%s: %s is neither a str nor None", call, argument);
        return -1;
    }
    const char *text = PyUnicode_AsUTF8AndSize(given, &length);
    if (text == NULL) {
        PyErr_Format(PyExc_ValueError, "%s: %s is not Unicode text", call, argument);
        return -1;
    }
    if (strlen(text) != (size_t)length) {
        PyErr_Format(PyExc_ValueError, "%s: %s has a null character", call, argument);
        return -1;
    }
    *out = text;
    return 0;
}

static int take_one(const char *call, const parameter_t *p, PyObject *given)
{
    switch (p->how) {
    case TAKE_INT:
        return take_int(given, call, p->name, p->out);
    case TAKE_SIZE:
        return take_size(given, call, p->name, p->out);
    case TAKE_UINT64:
        return take_uint64(given, call, p->name, p->out);
    case TAKE_DOUBLE:
        return take_double(given, call, p->name, p->out);
    case TAKE_TEXT:
        return take_text(given, call, p->name, p->out);
    case TAKE_TRUTH: {
        const int truth = PyObject_IsTrue(given);
        *(int *)p->out = truth > 0;
        return truth < 0 ? name_argument(call, p->name) : 0;
    }
    default:
        *(PyObject **)p->out = given;
        return 0;
    }
}

static int is_listed(const parameter_t *list, PyObject *name)
{
    while (list->name != NULL && PyUnicode_CompareWithASCIIString(name, list->name) != 0)
        list++;
    return list->name != NULL;
}

int take_arguments(const char *call, PyObject *args, PyObject *names, const parameter_t *list, int needed,
                   int placed)
{
    const Py_ssize_t given = PyTuple_Size(args);
    PyObject *key = NULL, *value = NULL;
    Py_ssize_t at = 0;
    if (given > placed) {
        PyErr_Format(PyExc_TypeError, "%s: %zd arguments were given by their place; it takes at most %d",
                     call, given, placed);
        return -1;
    }
    while (names != NULL && PyDict_Next(names, &at, &key, &value))
        if (!is_listed(list, key)) {
            PyErr_Format(PyExc_TypeError, "%s: argument %U is not one of its arguments", call, key);
            return -1;
        }
    for (int i = 0; list[i].name != NULL; i++) {
        PyObject *by_place = i < given ? PyTuple_GetItem(args, i) : NULL;
        PyObject *by_name = names != NULL ? PyDict_GetItemString(names, list[i].name) : NULL;
        PyObject *one = by_place != NULL ? by_place : by_name;
        if ((by_place != NULL && by_name != NULL) || (one == NULL && i < needed)) {
            PyErr_Format(PyExc_TypeError, "%s: argument %s %s", call, list[i].name,
                         one == NULL ? "is missing" : "was given twice");
            return -1;
        }
        if (one != NULL && take_one(call, &list[i], one) != 0)
            return -1;
    }
    return 0;
}
