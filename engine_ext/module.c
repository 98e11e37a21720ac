// The CPython face of the engine extension (stable ABI, 3.11 on).
#include "pycore.h"

#include <stdlib.h>
#include <string.h>

#include "ggml-backend-impl.h"
#include "llama.h"
#include "probe.h"
#include "speculate.h"
#include "strata_versions.h"

static struct PyModuleDef module;

struct py_state * py_module_state(PyTypeObject * type) {
    return PyModule_GetState(PyType_GetModule(type));
}

static PyObject * runtime_ggml_version(PyObject * self, PyObject * unused) {
    (void) self, (void) unused;
    return PyUnicode_FromString(ggml_version());
}

static PyObject * registry_api_version(PyObject * self, PyObject * unused) {
    (void) self, (void) unused;
    return PyLong_FromLong(ggml_backend_reg_count() > 0 ? ggml_backend_reg_get(0)->api_version : -1);
}

static PyObject * address_of(PyObject * self, PyObject * args) {
    (void) self;
    const char * name;
    if (!PyArg_ParseTuple(args, "s:address_of", &name)) {
        return NULL;
    }
    if (strcmp(name, "llama_decode") == 0) {
        return PyLong_FromVoidPtr((void *) llama_decode);
    }
    if (strcmp(name, "ggml_backend_dev_count") == 0) {
        return PyLong_FromVoidPtr((void *) ggml_backend_dev_count);
    }
    PyErr_Format(PyExc_ValueError, "address_of does not know %s", name);
    return NULL;
}

static PyObject * struct_sizes(PyObject * self, PyObject * unused) {
    (void) self, (void) unused;
    return Py_BuildValue("{s:n,s:n,s:n}", "llama_model_params", (Py_ssize_t) sizeof(struct llama_model_params), "llama_context_params",
                         (Py_ssize_t) sizeof(struct llama_context_params), "llama_batch", (Py_ssize_t) sizeof(struct llama_batch));
}

static PyObject * devices(PyObject * self, PyObject * unused) {
    (void) self, (void) unused;
    static const char * types[] = { "CPU", "GPU", "IGPU", "ACCEL" };
    PyObject * list = PyList_New(0);
    for (size_t i = 0; list && i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        size_t free, total;
        ggml_backend_dev_memory(dev, &free, &total);
        const unsigned type = (unsigned) ggml_backend_dev_type(dev);
        PyObject * item = Py_BuildValue("{s:s,s:s,s:s,s:n,s:n}", "name", ggml_backend_dev_name(dev), "description", ggml_backend_dev_description(dev), "type",
                                        type < 4 ? types[type] : "other", "free", (Py_ssize_t) free, "total", (Py_ssize_t) total);
        if (!item || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject * floats(const double * values, int n) {
    PyObject * list = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject * value = PyFloat_FromDouble(values[i]);
        if (!value || PyList_SetItem(list, i, value) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject * probe_copies(PyObject * self, PyObject * args, PyObject * kwargs) {
    static char * names[] = { "device", "size", "ring", "copies", "pin", "fill", "pooled", "pipelined", "limit", NULL };
    const char * device;
    Py_ssize_t size;
    int pin = 1, fill = 0, pooled = 1, pipelined = 0;
    struct st_probe p = { .ring = 64, .copies = 512 };
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sn|$iippppd:probe_copies", names, &device, &size, &p.ring, &p.copies, &pin, &fill, &pooled, &pipelined, &p.limit)) {
        return NULL;
    }
    ggml_backend_dev_t dev = ggml_backend_dev_by_name(device);
    struct py_state * state = PyModule_GetState(self);
    if (!dev || size < 1 || p.ring < 1 || p.copies < 1) {
        PyErr_SetString(PyExc_ValueError, "no such device, or a size, ring or number of copies below 1");
        return NULL;
    }
    p.size      = (size_t) size;
    p.pin       = pin;
    p.fill      = fill;
    p.pooled    = pooled;
    p.pipelined = pipelined;
    p.host_us   = calloc((size_t) p.copies, sizeof *p.host_us);
    p.device_us = calloc((size_t) p.copies, sizeof *p.device_us);
    int result  = -1;
    if (!p.host_us || !p.device_us) {
        PyErr_NoMemory();
    } else {
        Py_BEGIN_ALLOW_THREADS
        result = st_probe_run(dev, &p);
        Py_END_ALLOW_THREADS
        if (result < 0) {
            PyErr_SetString(state->error, p.error);
        }
    }
    PyObject * out = result < 0 ? NULL
                                : Py_BuildValue("{s:N,s:N,s:d,s:d,s:d,s:N,s:N}", "host_us", floats(p.host_us, p.copies), "device_us", floats(p.device_us, p.copies),
                                                "total_s", p.total_s, "wait_wall_s", p.wait_wall_s, "wait_cpu_s", p.wait_cpu_s, "pinned",
                                                PyBool_FromLong(p.pinned), "equal", PyBool_FromLong(p.equal));
    free(p.host_us);
    free(p.device_us);
    return out;
}

static PyObject * nextn_missing(PyObject * self, PyObject * unused) {
    (void) self, (void) unused;
    const char * name = st_nextn_missing();
    return PyUnicode_FromString(name ? name : "");
}

// A greedy choice's candidates, so that tests can give rows that no model computes.
static PyObject * likeliest(PyObject * self, PyObject * args) {
    (void) self;
    Py_buffer logits;
    int keep;
    if (!PyArg_ParseTuple(args, "y*i:likeliest", &logits, &keep)) {
        return NULL;
    }
    const size_t n = (size_t) logits.len / sizeof(float);
    PyObject * ids = NULL;
    llama_token_data * row = malloc((n + 1) * sizeof *row);
    float * tops           = malloc((n + 1) * sizeof *tops);
    if (n > INT32_MAX || keep < 1) {
        PyErr_SetString(PyExc_ValueError, "too many logits, or none to keep");
    } else if (!row || !tops) {
        PyErr_NoMemory();
    } else {
        const size_t found = st_likeliest(logits.buf, (int32_t) n, keep, row, tops);
        ids = PyList_New((Py_ssize_t) found);
        for (size_t i = 0; ids && i < found; i++) {
            PyObject * id = PyLong_FromLong(row[i].id);
            if (!id || PyList_SetItem(ids, (Py_ssize_t) i, id) < 0) {
                Py_CLEAR(ids);
            }
        }
    }
    free(row);
    free(tops);
    PyBuffer_Release(&logits);
    return ids;
}

static PyMethodDef methods[] = {
    { "likeliest", likeliest, METH_VARARGS, "Of float32 logits, the ids of so many of the likeliest, likeliest first." },
    { "nextn_missing", nextn_missing, METH_NOARGS, "A function of llama.cpp's NextN interface that the loaded library lacks, or nothing." },
    { "probe_copies", (PyCFunction) (void (*)(void)) probe_copies, METH_VARARGS | METH_KEYWORDS, "Measures copies to a CUDA device; see probe.h." },
    { "runtime_ggml_version", runtime_ggml_version, METH_NOARGS, "Version of the ggml library that is loaded." },
    { "registry_api_version", registry_api_version, METH_NOARGS, "Backend API version of the loaded registry's first entry." },
    { "address_of", address_of, METH_VARARGS, "Address at which this module sees a library function." },
    { "struct_sizes", struct_sizes, METH_NOARGS, "sizeof of llama.h's structs as this module was compiled." },
    { "devices", devices, METH_NOARGS, "The devices that ggml knows." },
    { 0 },
};

static int add_type(PyObject * m, PyType_Spec * spec, PyObject ** out) {
    *out = PyType_FromModuleAndSpec(m, spec, NULL);
    return *out ? PyModule_AddType(m, (PyTypeObject *) *out) : -1;
}

static int execute(PyObject * m) {
    struct py_state * state = PyModule_GetState(m);
    state->error = PyErr_NewExceptionWithDoc("strata_tui.engine._core.Error", "The tier cannot do what was asked; the text says why.", PyExc_RuntimeError, NULL);
    if (!state->error || PyModule_AddObjectRef(m, "Error", state->error) < 0) {
        return -1;
    }
    if (add_type(m, &py_stream_spec, &state->stream_type) < 0 || add_type(m, &py_tier_spec, &state->tier_type) < 0 ||
        add_type(m, &py_spec_spec, &state->spec_type) < 0) {
        return -1;
    }
    return PyModule_AddStringConstant(m, "GGML_VERSION", STRATA_GGML_VERSION) < 0 ||
                   PyModule_AddIntConstant(m, "BACKEND_API_VERSION", GGML_BACKEND_API_VERSION) < 0 ||
                   PyModule_AddIntConstant(m, "PHASE_PROMPT", ST_PHASE_PROMPT) < 0 || PyModule_AddIntConstant(m, "PHASE_DECODE", ST_PHASE_DECODE) < 0 ||
                   PyModule_AddIntConstant(m, "PIN_AUTO", ST_PIN_AUTO) < 0 || PyModule_AddIntConstant(m, "PIN_ON", ST_PIN_ON) < 0 ||
                   PyModule_AddIntConstant(m, "PIN_OFF", ST_PIN_OFF) < 0 || PyModule_AddIntConstant(m, "STAGER_AUTO", ST_PROFILE_AUTO) < 0 ||
                   PyModule_AddIntConstant(m, "STAGER_RAM", ST_PROFILE_RAM) < 0 || PyModule_AddIntConstant(m, "STAGER_SSD", ST_PROFILE_SSD) < 0 ||
                   PyModule_AddIntConstant(m, "STAGER_MAX_THREADS", ST_STAGER_MAX_THREADS) < 0 || PyModule_AddIntConstant(m, "DIRECT_AUTO", ST_DIRECT_AUTO) < 0 ||
                   PyModule_AddIntConstant(m, "DIRECT_ON", ST_DIRECT_ON) < 0 || PyModule_AddIntConstant(m, "DIRECT_OFF", ST_DIRECT_OFF) < 0 ||
                   PyModule_AddIntConstant(m, "POLICY_LRU", ST_POLICY_LRU) < 0 || PyModule_AddIntConstant(m, "POLICY_ADAPTIVE", ST_POLICY_ADAPTIVE) < 0 ||
                   PyModule_AddIntConstant(m, "POLICY_FROZEN", ST_POLICY_FROZEN) < 0 || PyModule_AddIntConstant(m, "MAX_DRAFTS", ST_MAX_DRAFTS) < 0 || PyModule_AddIntConstant(m, "STEP_SPOILED", ST_STEP_SPOILED) < 0 ||
                   PyModule_AddIntConstant(m, "STEP_NOT_FINITE", ST_STEP_NOT_FINITE) < 0 ||
                   PyModule_AddIntConstant(m, "FAULT_NONE", ST_FAULT_NONE) < 0 || PyModule_AddIntConstant(m, "FAULT_NEXT_EXPERT", ST_FAULT_NEXT_EXPERT) < 0
               ? -1
               : 0;
}

static int traverse(PyObject * m, visitproc visit, void * arg) {
    struct py_state * state = PyModule_GetState(m);
    Py_VISIT(state->error);
    Py_VISIT(state->stream_type);
    Py_VISIT(state->tier_type);
    Py_VISIT(state->spec_type);
    return 0;
}

static int clear(PyObject * m) {
    struct py_state * state = PyModule_GetState(m);
    Py_CLEAR(state->error);
    Py_CLEAR(state->stream_type);
    Py_CLEAR(state->tier_type);
    Py_CLEAR(state->spec_type);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    { Py_mod_exec, execute },
    { 0 },
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "strata_tui.engine._core",
    .m_doc = "The tiered device under llama.cpp. See strata_tui/engine/_core.pyi for the types.",
    .m_size = sizeof(struct py_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__core(void) {
    return PyModuleDef_Init(&module);
}
