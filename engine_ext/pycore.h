// Shared by the files of the CPython face. (Python.h comes first, as it asks.)
#ifndef STRATA_PYCORE_H
#define STRATA_PYCORE_H

#include <Python.h>

#include "stream.h"
#include "tier.h"

extern PyType_Spec py_stream_spec;
extern PyType_Spec py_tier_spec;
extern PyType_Spec py_spec_spec;

struct py_state {  // of the module
    PyObject * error;
    PyObject * stream_type;
    PyObject * tier_type;
    PyObject * spec_type;
};
struct py_state * py_module_state(PyTypeObject * type);

extern PyMethodDef py_tier_methods[];
struct st_tier * py_tier_of(PyObject * self);  // NULL with an exception when it is closed
PyObject * py_tier_raise(PyObject * self, struct st_tier * t);  // raises Error with the tier's text; NULL
PyObject * py_tier_set_stream(PyObject * self, PyObject * args);  // pytier_ring.c
PyObject * py_tier_stream_ahead(PyObject * self, PyObject * unused);
PyObject * py_tier_stream(PyObject * self, PyObject * unused);
PyObject * py_tier_close(PyObject * self, PyObject * unused);

PyObject * py_stream_new(PyTypeObject * type, struct st_tier * t, PyObject * segments);

#endif
