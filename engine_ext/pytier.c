// strata_tui.engine._core.Tier: making and ending one, and its values. Its methods: pytier_calls.c.
#include "pycore.h"

#include <stdlib.h>
#include <string.h>

struct py_tier {
    PyObject_HEAD
    struct st_tier * tier;  // NULL when closed
};

struct st_tier * py_tier_of(PyObject * self) {
    struct st_tier * t = ((struct py_tier *) self)->tier;
    if (!t) {
        PyErr_SetString(py_module_state(Py_TYPE(self))->error, "the tier is closed");
    }
    return t;
}

PyObject * py_tier_raise(PyObject * self, struct st_tier * t) {
    char text[sizeof t->error];
    pthread_mutex_lock(&t->lock);
    memcpy(text, t->error, sizeof text);
    t->error[0] = '\0';
    pthread_mutex_unlock(&t->lock);
    PyErr_SetString(py_module_state(Py_TYPE(self))->error, text[0] ? text : "unknown error in the tier");
    return NULL;
}

static void destroy(struct st_tier * t) {
    st_tier_close(t);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

// (tensor name, shard, file offset, type, ne0, ne1)
static int parse_slice(PyObject * item, struct st_slice * s) {
    const char * name;
    unsigned long long offset;
    long long ne0, ne1;
    int type;
    if (!PyArg_ParseTuple(item, "siKiLL;a slice is (name, shard, offset, type, ne0, ne1)", &name, &s->shard, &offset, &type, &ne0, &ne1)) {
        return -1;
    }
    if (strlen(name) >= sizeof s->name) {
        PyErr_Format(PyExc_ValueError, "the tensor name %s is too long", name);
        return -1;
    }
    strcpy(s->name, name);
    s->file_offset = offset;
    s->type = (enum ggml_type) type;
    s->ne0  = ne0;
    s->ne1  = ne1;
    return 0;
}

// (layer, experts, used, slices)
static int parse_group(PyObject * item, struct st_group * g) {
    PyObject * slices;
    if (!PyArg_ParseTuple(item, "iiiO;a group is (layer, experts, used, slices)", &g->layer, &g->n_experts, &g->n_used, &slices)) {
        return -1;
    }
    PyObject * list = PySequence_List(slices);
    if (!list) {
        return -1;
    }
    int result = 0;
    const Py_ssize_t n = PyList_Size(list);
    if (n < 1 || n > ST_MAX_SLICES) {
        PyErr_Format(PyExc_ValueError, "layer %d: a blob of %zd slices is not supported", g->layer, n);
        result = -1;
    }
    for (Py_ssize_t i = 0; i < n && result == 0; i++) {
        result = parse_slice(PyList_GetItem(list, i), &g->slices[i]);
    }
    g->n_slices = (int) n;
    Py_DECREF(list);
    return result;
}

static int parse_table(struct st_tier * t, PyObject * shards, PyObject * groups) {
    int result = -1;
    PyObject * shard_list = PySequence_List(shards), * group_list = PySequence_List(groups);
    if (!shard_list || !group_list) {
        goto done;
    }
    const Py_ssize_t ns = PyList_Size(shard_list), ng = PyList_Size(group_list);
    if (ns < 1 || ns > INT16_MAX || ng > INT16_MAX) {
        PyErr_SetString(PyExc_ValueError, "no shard, or too many shards or layers");
        goto done;
    }
    t->shards = calloc((size_t) ns, sizeof *t->shards);
    t->groups = calloc((size_t) ng + 1, sizeof *t->groups);
    if (!t->shards || !t->groups) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < ns; i++) {
        PyObject * bytes;
        if (!PyUnicode_FSConverter(PyList_GetItem(shard_list, i), &bytes)) {
            goto done;
        }
        t->shards[i].source = (struct st_source) { .fd = -1, .direct = -1 };
        t->shards[i].path   = strdup(PyBytes_AsString(bytes));
        t->n_shards         = (int) i + 1;
        Py_DECREF(bytes);
        if (!t->shards[i].path) {
            PyErr_NoMemory();
            goto done;
        }
    }
    for (Py_ssize_t i = 0; i < ng; i++) {
        if (parse_group(PyList_GetItem(group_list, i), &t->groups[i]) < 0) {
            goto done;
        }
        t->n_groups = (int) i + 1;
    }
    result = 0;
done:
    Py_XDECREF(shard_list);
    Py_XDECREF(group_list);
    return result;
}

static int tier_init(PyObject * self, PyObject * args, PyObject * kwargs) {
    static char * names[] = { "device", "shards", "groups", "pool_buffers", "stager_threads", "direct", "copy_delay_us", "copy_seed", "fault", "compute_delay_us", NULL };
    const char * device;
    PyObject * shards, * groups;
    int pool_buffers = 16, stager_threads = 0, direct = ST_DIRECT_AUTO, fault = ST_FAULT_NONE;
    unsigned int delay = 0, compute_delay = 0;
    unsigned long long seed = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOO|$iiiIKiI:Tier", names, &device, &shards, &groups, &pool_buffers, &stager_threads, &direct, &delay, &seed, &fault,
                                     &compute_delay)) {
        return -1;
    }
    if (pool_buffers < 1 || pool_buffers > 4096 || stager_threads < 0 || stager_threads > ST_STAGER_MAX_THREADS) {
        PyErr_Format(PyExc_ValueError, "pool_buffers must be 1 to 4096 and stager_threads 0 to %d", ST_STAGER_MAX_THREADS);
        return -1;
    }
    if (direct < ST_DIRECT_AUTO || direct > ST_DIRECT_OFF) {
        PyErr_SetString(PyExc_ValueError, "no such way to read");
        return -1;
    }
    if (((struct py_tier *) self)->tier) {
        PyErr_SetString(PyExc_RuntimeError, "Tier.__init__ was called twice");
        return -1;
    }
    struct st_tier * t = calloc(1, sizeof *t);
    if (!t || pthread_mutex_init(&t->lock, NULL) != 0) {
        free(t);
        PyErr_NoMemory();
        return -1;
    }
    t->inner          = ggml_backend_dev_by_name(device);
    t->pool_buffers   = pool_buffers;
    t->threads_wanted = stager_threads;
    t->direct_wanted  = (enum st_direct) direct;
    t->fault          = (enum st_fault) fault;
    if (!t->inner) {
        PyErr_Format(py_module_state(Py_TYPE(self))->error, "there is no device named %s", device);
    } else if (parse_table(t, shards, groups) == 0) {
        int result;
        Py_BEGIN_ALLOW_THREADS
        result = st_tier_open(t, delay, compute_delay, seed);
        Py_END_ALLOW_THREADS
        if (result == 0) {
            ((struct py_tier *) self)->tier = t;
            return 0;
        }
        py_tier_raise(self, t);
    }
    destroy(t);
    return -1;
}

PyObject * py_tier_close(PyObject * self, PyObject * unused) {
    (void) unused;
    struct py_tier * p = (struct py_tier *) self;
    if (p->tier) {
        if (atomic_load(&p->tier->backends) > 0) {
            PyErr_SetString(py_module_state(Py_TYPE(self))->error, "a context still uses the tier: free it first");
            return NULL;
        }
        struct st_tier * t = p->tier;
        p->tier = NULL;
        Py_BEGIN_ALLOW_THREADS
        destroy(t);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static void tier_dealloc(PyObject * self) {
    struct py_tier * p = (struct py_tier *) self;
    // A context that outlives its tier would call into freed memory: then the tier is left in place.
    if (p->tier && atomic_load(&p->tier->backends) == 0) {
        destroy(p->tier);
    }
    PyTypeObject * type = Py_TYPE(self);
    freefunc release    = (freefunc) PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

// ---- values

static bool abort_callback(void * data) {
    return atomic_load_explicit(&((struct st_tier *) data)->cancel, memory_order_relaxed);
}

#define GETTER(name, expression)                                \
    static PyObject * get_##name(PyObject * self, void * unused) { \
        (void) unused;                                          \
        struct st_tier * t = py_tier_of(self);                     \
        return t ? (expression) : NULL;                         \
    }
GETTER(device_ptr, PyLong_FromVoidPtr(&t->dev))
GETTER(buft_ptr, PyLong_FromVoidPtr(&t->buft))
GETTER(abort_callback, PyLong_FromVoidPtr((void *) abort_callback))
GETTER(abort_data, PyLong_FromVoidPtr(t))
GETTER(blob_bytes, PyLong_FromSize_t(t->blob_bytes_all))
GETTER(slot_bytes, PyLong_FromSize_t(t->max_stride))
GETTER(stream_unit, PyLong_FromSize_t(st_ring_unit(t)))
GETTER(stream_layer, PyLong_FromSize_t(st_ring_layer(t)))
GETTER(n_experts, PyLong_FromLongLong(t->n_experts_all))
GETTER(on_gpu, PyBool_FromLong(t->on_gpu))

static PyGetSetDef tier_getset[] = {
    { "device_ptr", get_device_ptr, NULL, "ggml_backend_dev_t of the device that stands in", NULL },
    { "buft_ptr", get_buft_ptr, NULL, "ggml_backend_buffer_type_t of expert tensors", NULL },
    { "abort_callback", get_abort_callback, NULL, "for llama_context_params.abort_callback", NULL },
    { "abort_data", get_abort_data, NULL, "for llama_context_params.abort_callback_data", NULL },
    { "blob_bytes", get_blob_bytes, NULL, "bytes of all experts", NULL },
    { "slot_bytes", get_slot_bytes, NULL, "bytes of the largest slot, pads included", NULL },
    { "stream_unit", get_stream_unit, NULL, "bytes of the largest unit that streams: a slice of every expert of a layer", NULL },
    { "stream_layer", get_stream_layer, NULL, "bytes of the largest layer that streams: a ring of two of them streams layers, not slices", NULL },
    { "n_experts", get_n_experts, NULL, "experts of all layers", NULL },
    { "on_gpu", get_on_gpu, NULL, "whether slots are in VRAM", NULL },
    { 0 },
};

static PyType_Slot tier_slots[] = {
    { Py_tp_init, tier_init },
    { Py_tp_new, PyType_GenericNew },
    { Py_tp_dealloc, tier_dealloc },
    { Py_tp_getset, tier_getset },
    { Py_tp_methods, py_tier_methods },
    { Py_tp_doc, "The device that stands in for the real one, with its arena, stage pool, mirror and counters." },
    { 0 },
};

PyType_Spec py_tier_spec = {
    .name = "strata_tui.engine._core.Tier",
    .basicsize = sizeof(struct py_tier),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = tier_slots,
};
