// strata_tui.engine._core.Stream: a FILE* for llama.cpp's loader.
#include "pycore.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct py_stream {
    PyObject_HEAD
    struct st_stream stream;
};

static void stream_dealloc(PyObject * self) {
    st_stream_close(&((struct py_stream *) self)->stream);
    PyTypeObject * type = Py_TYPE(self);
    freefunc release    = (freefunc) PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static int parse_segment(struct st_tier * t, PyObject * item, struct st_segment * g) {
    PyObject * source;
    unsigned long long length;
    if (!PyArg_ParseTuple(item, "KO;a segment is (length, source)", &length, &source)) {
        return -1;
    }
    *g = (struct st_segment) { .length = length, .fd = -1 };
    if (source == Py_None) {
        return 0;
    }
    if (PyBytes_Check(source)) {
        if ((unsigned long long) PyBytes_Size(source) != length) {
            PyErr_SetString(PyExc_ValueError, "a segment's bytes must have its length");
            return -1;
        }
        uint8_t * copy = malloc(length ? length : 1);
        if (!copy) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(copy, PyBytes_AsString(source), length);
        g->memory = copy;
        return 0;
    }
    int shard;
    unsigned long long offset;
    if (!PyArg_ParseTuple(source, "iK;a file segment's source is (shard, offset)", &shard, &offset)) {
        return -1;
    }
    if (shard < 0 || shard >= t->n_shards || offset > t->shards[shard].size || length > t->shards[shard].size - offset) {
        PyErr_SetString(PyExc_ValueError, "a segment lies outside its file");
        return -1;
    }
    g->fd          = shard;  // replaced by the stream's own descriptor
    g->file_offset = offset;
    return 0;
}

PyObject * py_stream_new(PyTypeObject * type, struct st_tier * t, PyObject * segments) {
    PyObject * list = PySequence_List(segments);
    if (!list) {
        return NULL;
    }
    allocfunc allocate    = (allocfunc) PyType_GetSlot(type, Py_tp_alloc);
    struct py_stream * self = (struct py_stream *) allocate(type, 0);
    if (!self) {
        Py_DECREF(list);
        return NULL;
    }
    struct st_stream * s = &self->stream;
    const Py_ssize_t n   = PyList_Size(list);
    s->segments = calloc((size_t) n + 1, sizeof *s->segments);
    s->fds      = malloc(((size_t) t->n_shards + 1) * sizeof *s->fds);
    if (!s->segments || !s->fds || n == 0 || n > INT32_MAX) {
        PyErr_SetString(n == 0 ? PyExc_ValueError : PyExc_MemoryError, "no segments, or out of memory");
        goto fail;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        s->segments[i].fd = -1;
        s->n_segments     = (int) i + 1;
        if (parse_segment(t, PyList_GetItem(list, i), &s->segments[i]) < 0) {
            s->segments[i].fd = -1;
            goto fail;
        }
    }
    for (int i = 0; i < t->n_shards; i++) {
        // Descriptors of its own: the advice given to them must not reach the stager's reads.
        const int fd = open(t->shards[i].path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            PyErr_SetFromErrnoWithFilename(PyExc_OSError, t->shards[i].path);
            goto fail;
        }
        s->fds[s->n_fds++] = fd;
    }
    for (int i = 0; i < s->n_segments; i++) {
        if (s->segments[i].fd >= 0) {
            s->segments[i].fd = s->fds[s->segments[i].fd];
        }
    }
    if (st_stream_open(s) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        goto fail;
    }
    Py_DECREF(list);
    return (PyObject *) self;
fail:
    Py_DECREF(list);
    Py_DECREF(self);
    return NULL;
}

static struct st_stream * stream_of(PyObject * self) {
    return &((struct py_stream *) self)->stream;
}

static PyObject * stream_file_ptr(PyObject * self, void * closure) {
    (void) closure;
    return PyLong_FromVoidPtr(stream_of(self)->file);
}

static PyObject * stream_bytes_read(PyObject * self, void * closure) {
    (void) closure;
    return PyLong_FromUnsignedLongLong(atomic_load(&stream_of(self)->bytes_read));
}

static PyObject * stream_bytes_skipped(PyObject * self, void * closure) {
    (void) closure;
    return PyLong_FromUnsignedLongLong(atomic_load(&stream_of(self)->bytes_skipped));
}

static PyObject * stream_total(PyObject * self, void * closure) {
    (void) closure;
    return PyLong_FromUnsignedLongLong(stream_of(self)->total);
}

static PyObject * stream_cancel(PyObject * self, PyObject * unused) {
    (void) unused;
    atomic_store(&stream_of(self)->cancelled, true);
    Py_RETURN_NONE;
}

static PyObject * stream_close(PyObject * self, PyObject * unused) {
    (void) unused;
    st_stream_close(stream_of(self));
    Py_RETURN_NONE;
}

static PyGetSetDef stream_getset[] = {
    { "file_ptr", stream_file_ptr, NULL, "the FILE*, as an integer", NULL },
    { "bytes_read", stream_bytes_read, NULL, "bytes truly read from the files so far (any thread)", NULL },
    { "bytes_skipped", stream_bytes_skipped, NULL, "bytes asked for that were skipped", NULL },
    { "total", stream_total, NULL, "bytes of the files that are not skipped", NULL },
    { 0 },
};

static PyMethodDef stream_methods[] = {
    { "cancel", stream_cancel, METH_NOARGS, "Makes every further read fail (any thread)." },
    { "close", stream_close, METH_NOARGS, "Closes the FILE*; its reader must be done." },
    { 0 },
};

static PyType_Slot stream_slots[] = {
    { Py_tp_dealloc, stream_dealloc },
    { Py_tp_getset, stream_getset },
    { Py_tp_methods, stream_methods },
    { Py_tp_doc, "A read-only FILE* over segments, for llama_model_load_from_file_ptr. Made by Tier.open_stream." },
    { 0 },
};

PyType_Spec py_stream_spec = {
    .name = "strata_tui.engine._core.Stream",
    .basicsize = sizeof(struct py_stream),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = stream_slots,
};
