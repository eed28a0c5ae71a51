/* SPDX-License-Identifier: Apache-2.0 */
/* arrays.c: the memory of Python objects without copies: the buffer protocol (NumPy, array, bytes, ctypes),
 * NumPy arrays of ml_dtypes, which have no format there, and DLPack (PyTorch). */
#include "binding.h"

#include <string.h>

/* DLPack's structs, versions 0.x and 1.x (github.com/dmlc/dlpack, include/dlpack/dlpack.h). */
typedef struct {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* in elements; strides NULL: contiguous */
    uint64_t byte_offset;
} dl_tensor_t;
typedef struct {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(void *);
    uint64_t flags; /* bit 0: read-only */
    dl_tensor_t tensor;
} dl_versioned_t;
enum { DL_CPU = 1, DL_CUDA_HOST = 3 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6 };

static gyre_type_t number_type(int kind, size_t bytes)
{
    static const gyre_type_t INTEGERS[] = {GYRE_INT8, GYRE_INT16, GYRE_INT32, GYRE_INT64};
    static const gyre_type_t FLOATS[] = {GYRE_TYPE_NONE, GYRE_FLOAT16, GYRE_FLOAT32, GYRE_FLOAT64};
    int power = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : -1;
    if (kind == DL_COMPLEX)
        return bytes == 8 ? GYRE_COMPLEX64 : bytes == 16 ? GYRE_COMPLEX128 : GYRE_TYPE_NONE;
    if (power < 0)
        return GYRE_TYPE_NONE;
    switch (kind) {
    case DL_INT:
        return INTEGERS[power];
    case DL_UINT:
        return (gyre_type_t)(INTEGERS[power] + 1);
    case DL_FLOAT:
        return FLOATS[power];
    case DL_BFLOAT:
        return bytes == 2 ? GYRE_BFLOAT16 : GYRE_TYPE_NONE;
    case DL_BOOL:
        return bytes == 1 ? GYRE_BOOL : GYRE_TYPE_NONE;
    default:
        return GYRE_TYPE_NONE;
    }
}

/* The character of a format after the name of a field, which stands between colons. */
static const char *after_name(const char *c)
{
    const char *end = *c == ':' ? strchr(c + 1, ':') : NULL;
    return end != NULL ? end + 1 : c;
}

/* A struct of a value and an index where gyre/types.h has them: "T{d:value:i:index:4x}". After "=" fields
 * follow each other; ctypes has "<", and may leave out the bytes before an aligned one. */
static gyre_type_t pair_type(const char *format, size_t bytes)
{
    char kinds[3] = "";
    size_t n = 0, at = 0, places[2] = {0, 0}, times = 0, value = 0;
    char mode = '@';
    for (const char *c = after_name(format + 2); *c != '\0' && *c != '}'; c = after_name(c + 1)) {
        const size_t size = *c == 'h' ? 2 : *c == 'd' || *c == 'q' || (*c == 'l' && mode == '@') ? 8 : 4;
        if (*c >= '0' && *c <= '9') {
            times = 10 * times + (size_t)(*c - '0');
        } else if (*c == 'x') {
            at += times > 0 ? times : 1;
            times = 0;
        } else if (strchr("@=<", *c) != NULL) {
            mode = *c;
        } else if (strchr("fdilqh", *c) != NULL && n < 2 && times <= 1) {
            at = mode != '=' ? (at + size - 1) / size * size : at;
            value = n == 0 ? size : value;
            places[n] = at;
            kinds[n++] = strchr("ilq", *c) == NULL ? *c : size == 8 ? 'l' : 'i';
            at += size;
            times = 0;
        } else {
            return GYRE_TYPE_NONE;
        }
    }
    if (places[0] != 0 || places[1] != (value < 4 ? 4 : value))
        return GYRE_TYPE_NONE;
    static const struct {
        const char *kinds;
        gyre_type_t type;
    } PAIRS[] = {{"fi", GYRE_FLOAT32_INT32},
                 {"di", GYRE_FLOAT64_INT32},
                 {"ii", GYRE_INT32_INT32},
                 {"li", GYRE_INT64_INT32},
                 {"hi", GYRE_INT16_INT32}};
    for (size_t i = 0; i < sizeof(PAIRS) / sizeof(PAIRS[0]); i++)
        if (strcmp(kinds, PAIRS[i].kinds) == 0 && bytes == gyre_type_size(PAIRS[i].type))
            return PAIRS[i].type;
    return GYRE_TYPE_NONE;
}

/* format: as of the module struct, with NumPy's additions; NULL: bytes. */
static gyre_type_t format_type(const char *format, size_t bytes)
{
    if (format == NULL)
        return bytes == 1 ? GYRE_UINT8 : GYRE_TYPE_NONE;
    if (*format == '@' || *format == '=' || *format == (PY_LITTLE_ENDIAN ? '<' : '>'))
        format++;
    if (strncmp(format, "T{", 2) == 0)
        return pair_type(format, bytes);
    if (format[0] == 'Z' && format[1] != '\0' && format[2] == '\0')
        return number_type(DL_COMPLEX, bytes);
    if (format[0] == '\0' || format[1] != '\0')
        return GYRE_TYPE_NONE;
    if (strchr("bhilqn", *format) != NULL)
        return number_type(DL_INT, bytes);
    if (strchr("BHILQN", *format) != NULL)
        return number_type(DL_UINT, bytes);
    if (strchr("efd", *format) != NULL)
        return number_type(DL_FLOAT, bytes);
    return *format == '?' ? number_type(DL_BOOL, bytes) : GYRE_TYPE_NONE;
}

/* Whether its elements hold addresses of Python objects. */
static int holds_objects(const char *format)
{
    const char *c = after_name(format);
    while (*c != '\0' && *c != 'O')
        c = after_name(c + 1);
    return *c == 'O';
}

/* "call: argument" and what is wrong with it. */
static int refuse(PyObject *exception, const char *call, const char *argument, const char *text)
{
    PyErr_Format(exception, "%s: %s %s", call, argument, text);
    return -1;
}

/* Sets the type and the count of `bytes` bytes whose own type is `type`. */
static int finish(array_t *array, size_t bytes, gyre_type_t type, PyObject *asked, const char *call,
                  const char *argument, const char *format)
{
    if (asked != NULL && asked != Py_None) {
        long number = PyLong_AsLong(asked);
        if (number == -1 && PyErr_Occurred() != NULL)
            return name_argument(call, "type");
        type = number < 0 || number > GYRE_TYPE_NONE ? GYRE_TYPE_NONE : (gyre_type_t)number;
        if (gyre_type_size(type) == 0)
            return refuse(PyExc_ValueError, call, "type", "is not one of gyre.Type");
    }
    if (type == GYRE_TYPE_NONE) {
        PyErr_Format(
            PyExc_TypeError,
            "%s: %s has elements of the format '%s', which Gyre does not have; allowed: integers of 8 to "
            "64 bits, floats of 16 to 64 bits, complex64, complex128, bool, pairs of a value and an "
            "int32, in this machine's byte order; type=gyre.BFLOAT16 and the like take bytes as "
            "another type",
            call, argument, format != NULL ? format : "B");
        return -1;
    }
    if (bytes % gyre_type_size(type) != 0) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %zu bytes, which are not a number of elements of type %s",
                     call, argument, bytes, gyre_type_name(type));
        return -1;
    }
    array->type = type;
    array->count = bytes / gyre_type_size(type);
    return 0;
}

static int by_dlpack(array_t *array, PyObject *object, int writable, PyObject *asked, const char *call,
                     const char *argument)
{
    PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    int kind = 0, id = 0;
    if (device == NULL || !PyArg_ParseTuple(device, "ii", &kind, &id)) {
        Py_XDECREF(device);
        return name_argument(call, argument);
    }
    Py_DECREF(device);
    if (kind != DL_CPU && kind != DL_CUDA_HOST) {
        PyErr_Format(
            PyExc_ValueError,
            "%s: %s is on a device (DLPack's type %d, number %d); this package takes host memory: copy it "
            "there",
            call, argument, kind, id);
        return -1;
    }
    PyObject *function = PyObject_GetAttrString(object, "__dlpack__");
    PyObject *none = PyTuple_New(0), *newest = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
    if (function != NULL && none != NULL && newest != NULL) {
        array->capsule = PyObject_Call(function, none, newest);
        if (array->capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) { /* it knows version 0 only */
            PyErr_Clear();
            array->capsule = PyObject_Call(function, none, NULL);
        }
    }
    Py_XDECREF(function);
    Py_XDECREF(none);
    Py_XDECREF(newest);
    if (array->capsule == NULL)
        return name_argument(call, argument);
    const dl_tensor_t *tensor = NULL;
    int read_only = 0;
    if (PyCapsule_IsValid(array->capsule, "dltensor_versioned")) {
        const dl_versioned_t *versioned = PyCapsule_GetPointer(array->capsule, "dltensor_versioned");
        if (versioned->version.major == 1)
            tensor = &versioned->tensor;
        read_only = (versioned->flags & 1) != 0;
    } else if (PyCapsule_IsValid(array->capsule, "dltensor")) {
        tensor = PyCapsule_GetPointer(array->capsule, "dltensor"); /* the first field of the managed one */
    }
    if (tensor == NULL)
        return refuse(PyExc_TypeError, call, argument, "has a DLPack of an unknown version; known: 0 and 1");
    if (writable && read_only)
        return refuse(PyExc_ValueError, call, argument, "is read-only, and the call writes to it");
    int64_t count = 1;
    int contiguous = 1;
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->strides != NULL && tensor->shape[i] > 1 && tensor->strides[i] != count)
            contiguous = 0;
        count *= tensor->shape[i];
    }
    if (!contiguous && count > 0)
        return refuse(PyExc_ValueError, call, argument,
                      "is not contiguous; a contiguous copy is (tensor.contiguous())");
    size_t bytes = tensor->dtype.bits / 8u;
    gyre_type_t type = tensor->dtype.lanes == 1 && tensor->dtype.bits % 8 == 0
                           ? number_type(tensor->dtype.code, bytes)
                           : GYRE_TYPE_NONE;
    array->data = (char *)tensor->data + tensor->byte_offset;
    return finish(array, (size_t)count * bytes, type, asked, call, argument, "of DLPack");
}

/* A NumPy array of a type of ml_dtypes: its bytes as integers. NULL and no exception: it is not one. */
static PyObject *as_integers(PyObject *object, gyre_type_t *type)
{
    static const struct {
        const char *name, *integer;
        gyre_type_t type;
    } NAMES[] = {{"bfloat16", "u2", GYRE_BFLOAT16},
                 {"float8_e4m3fn", "u1", GYRE_FLOAT8_E4M3},
                 {"float8_e5m2", "u1", GYRE_FLOAT8_E5M2}};
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *name = dtype != NULL ? PyObject_GetAttrString(dtype, "name") : NULL;
    PyObject *view = NULL;
    PyErr_Clear();
    for (size_t i = 0; name != NULL && PyUnicode_Check(name) && i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        if (PyUnicode_CompareWithASCIIString(name, NAMES[i].name) == 0) {
            view = PyObject_CallMethod(object, "view", "s", NAMES[i].integer);
            *type = NAMES[i].type;
        }
    Py_XDECREF(dtype);
    Py_XDECREF(name);
    return view;
}

static int by_buffer(array_t *array, int writable, gyre_type_t type, PyObject *asked, const char *call,
                     const char *argument)
{
    const Py_buffer *view = &array->view;
    if (writable && view->readonly)
        return refuse(PyExc_ValueError, call, argument, "is read-only, and the call writes to it");
    if (!PyBuffer_IsContiguous(view, 'C'))
        return refuse(PyExc_ValueError, call, argument,
                      "is not contiguous in C's order; a copy of numpy.ascontiguousarray is");
    if (view->format != NULL && holds_objects(view->format))
        return refuse(PyExc_TypeError, call, argument,
                      "holds Python objects, whose addresses mean nothing to other ranks");
    array->data = view->buf;
    if (type == GYRE_TYPE_NONE)
        type = format_type(view->format, (size_t)view->itemsize);
    return finish(array, (size_t)view->len, type, asked, call, argument, view->format);
}

/* NumPy's masked arrays, of which the buffer has all elements. */
static int is_masked(PyObject *object)
{
    static PyObject *unmasked; /* the type of the last one that was not, mostly numpy.ndarray */
    PyObject *type = (PyObject *)Py_TYPE(object);
    if (type == unmasked)
        return 0;
    if (PyObject_HasAttrString(type, "mask") && PyObject_HasAttrString(type, "filled"))
        return 1;
    Py_XDECREF(unmasked);
    unmasked = Py_NewRef(type);
    return 0;
}

int array_get(array_t *array, PyObject *object, int writable, PyObject *type, const char *call,
              const char *argument)
{
    gyre_type_t own = GYRE_TYPE_NONE;
    memset(array, 0, sizeof(*array));
    int rc = -1;
    if (is_masked(object)) {
        refuse(PyExc_TypeError, call, argument,
               "is a masked array, and a call would take what is masked, too: pass its .filled(VALUE), or "
               ".data");
    } else if (PyObject_CheckBuffer(object)) {
        if (PyObject_GetBuffer(object, &array->view, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
            rc = by_buffer(array, writable, own, type, call, argument);
        } else {
            PyObject *error = NULL, *value = NULL, *trace = NULL;
            PyErr_Fetch(&error, &value, &trace);
            PyObject *view = as_integers(object, &own);
            if (view != NULL && PyObject_GetBuffer(view, &array->view, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
                rc = by_buffer(array, writable, own, type, call, argument);
            } else {
                PyErr_Clear();
                PyErr_Restore(error, value, trace);
                error = value = trace = NULL;
                rc = name_argument(call, argument);
            }
            Py_XDECREF(view);
            Py_XDECREF(error);
            Py_XDECREF(value);
            Py_XDECREF(trace);
        }
    } else if (PyObject_HasAttrString(object, "__dlpack_device__")) {
        rc = by_dlpack(array, object, writable, type, call, argument);
    } else {
        refuse(PyExc_TypeError, call, argument,
               "has neither the buffer protocol (NumPy) nor DLPack (PyTorch)");
    }
    if (rc != 0)
        array_release(array);
    return rc;
}

void array_release(array_t *array)
{
    if (array->view.obj != NULL)
        PyBuffer_Release(&array->view);
    Py_CLEAR(array->capsule);
    array->data = NULL;
}
