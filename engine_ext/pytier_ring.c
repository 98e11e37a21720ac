// The methods of strata_tui.engine._core.Tier about long batches, which stream through the ring.
#include "pycore.h"

PyObject * py_tier_set_stream(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    long long from;
    unsigned long long bytes = 0;
    int own = 0;
    if (!t || !PyArg_ParseTuple(args, "L|Kp:set_stream", &from, &bytes, &own)) {
        return NULL;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = st_ring_set(t, from, (size_t) bytes, own != 0);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return py_tier_raise(self, t);
    }
    Py_RETURN_NONE;
}

PyObject * py_tier_stream(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    if (!t) {
        return NULL;
    }
    return Py_BuildValue("{s:i,s:i,s:O,s:L,s:K,s:O,s:l}", "done", atomic_load(&t->stream_done), "total", atomic_load(&t->stream_total), "filling",
                         atomic_load(&t->filling) ? Py_True : Py_False, "from", (long long) t->stream_from, "ring", (unsigned long long) t->ring_bytes, "own",
                         t->ring_own ? Py_True : Py_False, "lent", (long) t->n_lent);
}

PyObject * py_tier_stream_ahead(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    if (!t) {
        return NULL;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = st_batch_ahead(t);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return py_tier_raise(self, t);
    }
    Py_RETURN_NONE;
}
