/* SPDX-License-Identifier: Apache-2.0 */
/* module.c: the extension module gyre._gyre; README.md lists its parts. */
#include "binding.h"

static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                 "gyre._gyre",
                                 "libgyre for the package gyre.",
                                 -1,
                                 create_functions,
                                 NULL,
                                 NULL,
                                 NULL,
                                 NULL};

PyMODINIT_FUNC PyInit__gyre(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (comm_add(module) != 0 || request_add(module) != 0 || exact_add(module) != 0 ||
        memory_add(module) != 0 || plan_add(module) != 0 || operation_add(module) != 0 ||
        buckets_add(module) != 0 || PyModule_AddFunctions(module, operation_functions) != 0 ||
        PyModule_AddFunctions(module, group_functions) != 0 ||
        PyModule_AddFunctions(module, memory_functions) != 0 ||
        PyModule_AddFunctions(module, request_functions) != 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
