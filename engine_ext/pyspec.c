// strata_tui.engine._core.Speculator: draft, verify, accept. See speculate.h.
#include "pycore.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "speculate.h"

struct py_spec {
    PyObject_HEAD
    struct st_speculator s;  // target NULL when closed
    PyObject * tier;         // whose experts the windows pick, or NULL
    uint64_t took_ns;        // of the last draft or step, without the wait for the GIL behind it
};

static struct st_speculator * spec_of(PyObject * self) {
    struct st_speculator * s = &((struct py_spec *) self)->s;
    if (!s->target) {
        PyErr_SetString(py_module_state(Py_TYPE(self))->error, "the speculator is closed");
        return NULL;
    }
    return s;
}

static struct st_speculator * begun(PyObject * self) {
    struct st_speculator * s = spec_of(self);
    if (s && !s->filters) {
        PyErr_SetString(py_module_state(Py_TYPE(self))->error, "no reply was begun");
        return NULL;
    }
    return s;
}

static int spec_init(PyObject * self, PyObject * args, PyObject * kwargs) {
    static char * names[] = { "target", "draft", "outputs", "tier", NULL };
    PyObject * tier = Py_None;
    struct st_speculator * s = &((struct py_spec *) self)->s;
    unsigned long long target, draft = 0;
    int outputs = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|KiO:Speculator", names, &target, &draft, &outputs, &tier)) {
        return -1;
    }
    if (tier != Py_None && PyObject_IsInstance(tier, py_module_state(Py_TYPE(self))->tier_type) != 1) {
        PyErr_SetString(PyExc_TypeError, "the tier is a Tier or None");
        return -1;
    }
    if (s->target) {
        PyErr_SetString(PyExc_RuntimeError, "Speculator.__init__ was called twice");
        return -1;
    }
    if (st_speculator_init(s, (struct llama_context *) (uintptr_t) target, (struct llama_context *) (uintptr_t) draft, outputs) < 0) {
        PyErr_SetString(py_module_state(Py_TYPE(self))->error, s->error);
        st_speculator_free(s);
        return -1;
    }
    if (tier != Py_None) {
        Py_INCREF(tier);
        ((struct py_spec *) self)->tier = tier;
    }
    return 0;
}

static PyObject * spec_close(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_speculator * s = &((struct py_spec *) self)->s;
    if (s->target) {
        st_speculator_free(s);
    }
    Py_CLEAR(((struct py_spec *) self)->tier);
    Py_RETURN_NONE;
}

static void spec_dealloc(PyObject * self) {
    st_speculator_free(&((struct py_spec *) self)->s);
    Py_CLEAR(((struct py_spec *) self)->tier);
    PyTypeObject * type = Py_TYPE(self);
    freefunc release    = (freefunc) PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject * spec_begin(PyObject * self, PyObject * args) {
    struct st_speculator * s = spec_of(self);
    unsigned long long filters, seed;
    int greedy, keep;
    if (!s || !PyArg_ParseTuple(args, "KpiK:begin", &filters, &greedy, &keep, &seed)) {
        return NULL;
    }
    if (keep < 0) {
        PyErr_Format(PyExc_ValueError, "%d tokens cannot be kept", keep);
        return NULL;
    }
    st_speculator_begin(s, (struct llama_sampler *) (uintptr_t) filters, greedy, keep, seed);
    Py_RETURN_NONE;
}

static PyObject * spec_end(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_speculator * s = spec_of(self);
    if (!s) {
        return NULL;
    }
    s->filters = NULL;
    Py_RETURN_NONE;
}

static PyObject * spec_sample(PyObject * self, PyObject * args) {
    struct st_speculator * s = begun(self);
    int row = -1, status;
    llama_token token = -1;
    if (!s || !PyArg_ParseTuple(args, "|i:sample", &row)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = st_speculator_sample(s, row, &token);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("(ii)", status, (int) token);
}

// Tokens of a sequence into a new array, or NULL with an exception.
static llama_token * tokens_of(const struct st_speculator * s, PyObject * sequence, Py_ssize_t * n) {
    PyObject * list = PySequence_List(sequence);
    if (!list) {
        return NULL;
    }
    *n = PyList_Size(list);
    llama_token * tokens = malloc(((size_t) *n + 1) * sizeof *tokens);
    if (!tokens) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; tokens && i < *n; i++) {
        const long t = PyLong_AsLong(PyList_GetItem(list, i));
        if (t < 0 || t >= s->n_vocab) {
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_ValueError, "%ld is no token", t);
            }
            free(tokens);
            tokens = NULL;
            break;
        }
        tokens[i] = (llama_token) t;
    }
    Py_DECREF(list);
    return tokens;
}

static PyObject * spec_observe(PyObject * self, PyObject * args) {
    struct st_speculator * s = spec_of(self);
    PyObject * sequence;
    int position, status = 0;
    Py_ssize_t n;
    if (!s || !PyArg_ParseTuple(args, "Oi:observe", &sequence, &position)) {
        return NULL;
    }
    llama_token * tokens = tokens_of(s, sequence, &n);
    if (!tokens) {
        return NULL;
    }
    if (n > 0) {
        Py_BEGIN_ALLOW_THREADS
        status = st_speculator_observe(s, tokens, (int32_t) n, position);
        Py_END_ALLOW_THREADS
    }
    free(tokens);
    return PyLong_FromLong(status);
}

static PyObject * spec_cut(PyObject * self, PyObject * args) {
    struct st_speculator * s = spec_of(self);
    int position;
    if (!s || !PyArg_ParseTuple(args, "i:cut", &position)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    st_speculator_cut(s, position);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject * spec_settle(PyObject * self, PyObject * args) {
    struct st_speculator * s = spec_of(self);
    int position;
    bool settled;
    if (!s || !PyArg_ParseTuple(args, "i:settle", &position)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    settled = st_speculator_settle(s, position);
    Py_END_ALLOW_THREADS
    if (!settled) {
        Py_RETURN_NONE;
    }
    return PyBytes_FromStringAndSize((const char *) s->carry, (Py_ssize_t) ((size_t) s->n_embd * sizeof *s->carry));
}

static PyObject * spec_resume(PyObject * self, PyObject * args) {
    struct st_speculator * s = spec_of(self);
    int position;
    PyObject * bytes;
    char * carry;
    Py_ssize_t size;
    if (!s || !PyArg_ParseTuple(args, "iS:resume", &position, &bytes) || PyBytes_AsStringAndSize(bytes, &carry, &size) < 0) {
        return NULL;
    }
    if (!s->draft || position < 1 || (size_t) size != (size_t) s->n_embd * sizeof(float)) {
        PyErr_SetString(PyExc_ValueError, "no heads, no position, or a hidden row of another size");
        return NULL;
    }
    st_speculator_resume(s, position, carry);
    Py_RETURN_NONE;
}

static PyObject * spec_draft(PyObject * self, PyObject * args) {
    struct st_speculator * s = begun(self);
    int pending, position, first, status;
    llama_token token = -1;
    float p = 0;
    if (!s || !PyArg_ParseTuple(args, "iip:draft", &pending, &position, &first)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    const uint64_t begun = st_now_ns();
    status = st_speculator_draft(s, pending, position, first, &token, &p);
    ((struct py_spec *) self)->took_ns = st_now_ns() - begun;
    Py_END_ALLOW_THREADS
    if (status < 0) {
        PyErr_Format(py_module_state(Py_TYPE(self))->error, "drafting failed (%d) %s", status, s->error);
        return NULL;
    }
    if (status == 0) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(id)", (int) token, (double) p);
}

// [(token, probability), ...] into q; an empty one, or None: the draft was not drawn.
static int proposal_of(const struct st_speculator * s, PyObject * item, struct st_proposal * q) {
    if (item == Py_None) {
        return 0;
    }
    PyObject * list = PySequence_List(item);
    if (!list) {
        return -1;
    }
    const Py_ssize_t n = PyList_Size(list);
    int result = st_proposal_reserve(q, (size_t) n + 1);
    if (result < 0) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < n && result == 0; i++) {
        int token;
        double p;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "id;a proposal is a list of (token, probability)", &token, &p)) {
            result = -1;
        } else if (token < 0 || token >= s->n_vocab || !(p >= 0 && p <= 1)) {
            PyErr_SetString(PyExc_ValueError, "a proposal holds tokens and probabilities");
            result = -1;
        } else {
            q->ids[i]   = token;
            q->probs[i] = (float) p;
            q->n        = (size_t) i + 1;
        }
    }
    Py_DECREF(list);
    return result;
}

static int proposals_of(const struct st_speculator * s, PyObject * sequence, Py_ssize_t n, struct st_proposal * out) {
    PyObject * list = PySequence_List(sequence);
    if (!list) {
        return -1;
    }
    int result = 0;
    if (PyList_Size(list) != n) {
        PyErr_SetString(PyExc_ValueError, "each draft has one proposal");
        result = -1;
    }
    for (Py_ssize_t i = 0; i < n && result == 0; i++) {
        result = proposal_of(s, PyList_GetItem(list, i), &out[i]);
    }
    Py_DECREF(list);
    return result;
}

static PyObject * spec_step(PyObject * self, PyObject * args, PyObject * kwargs) {
    static char * names[] = { "pending", "position", "drafts", "proposals", "own", NULL };
    struct st_speculator * s = begun(self);
    PyObject * drafts = NULL, * proposals = Py_None, * result = NULL;
    int pending, position, own = 0, status, n_out = 0;
    Py_ssize_t n = 0;
    struct st_proposal given[ST_MAX_DRAFTS] = { 0 };
    llama_token out[ST_MAX_DRAFTS + 1];
    if (!s || !PyArg_ParseTupleAndKeywords(args, kwargs, "iiO|Op:step", names, &pending, &position, &drafts, &proposals, &own)) {
        return NULL;
    }
    PyObject * tier    = ((struct py_spec *) self)->tier;
    struct st_tier * t = tier ? py_tier_of(tier) : NULL;
    if (tier && !t) {
        return NULL;
    }
    s->window            = t ? &t->window : NULL;
    llama_token * tokens = tokens_of(s, drafts, &n);
    if (!tokens) {
        return NULL;
    }
    if (n > ST_MAX_DRAFTS || pending < 0 || pending >= s->n_vocab || (own && n > s->n_drafts)) {
        PyErr_SetString(PyExc_ValueError, "too many drafts, or a pending token that is none");
    } else if (proposals == Py_None || proposals_of(s, proposals, n, given) == 0) {
        Py_BEGIN_ALLOW_THREADS
        const uint64_t at = st_now_ns();
        status = st_speculator_step(s, pending, position, tokens, (int) n, own ? s->proposals : proposals == Py_None ? NULL : given, out, &n_out);
        ((struct py_spec *) self)->took_ns = st_now_ns() - at;
        Py_END_ALLOW_THREADS
        PyObject * list = PyList_New(n_out);
        for (int i = 0; list && i < n_out; i++) {
            PyObject * token = PyLong_FromLong(out[i]);
            if (!token || PyList_SetItem(list, i, token) < 0) {
                Py_CLEAR(list);
            }
        }
        result = list ? Py_BuildValue("(iN)", status, list) : NULL;
    }
    for (int i = 0; i < ST_MAX_DRAFTS; i++) {
        free(given[i].ids);
        free(given[i].probs);
    }
    free(tokens);
    return result;
}

static PyMethodDef methods[] = {
    { "begin", spec_begin, METH_VARARGS, "A new reply: the chain's address without its choice, greedy, of how many of the likeliest tokens it leaves the right one (0: all), seed." },
    { "end", spec_end, METH_NOARGS, "The reply is over: the chain is not used any more." },
    { "sample", spec_sample, METH_VARARGS, "(status, token) from a row of the last decode." },
    { "observe", spec_observe, METH_VARARGS, "Prompt tokens were decoded from a position on. Returns llama_decode's code." },
    { "cut", spec_cut, METH_VARARGS, "The target's memory was cut to so many tokens." },
    { "settle", spec_settle, METH_VARARGS, "The hidden row behind so many tokens, where the draft context holds exactly these now; else None." },
    { "resume", spec_resume, METH_VARARGS, "The draft context was given back what it held with so many tokens, and the row behind them." },
    { "draft", spec_draft, METH_VARARGS, "(token, probability) behind a pending token, or behind the last draft; None when there is none." },
    { "step", (PyCFunction) (void (*)(void)) spec_step, METH_VARARGS | METH_KEYWORDS, "Decodes and verifies one window: (status, tokens)." },
    { "close", spec_close, METH_NOARGS, "Frees it; before its contexts." },
    { 0 },
};

static PyObject * get_took_ns(PyObject * self, void * unused) {
    (void) unused;
    return PyLong_FromUnsignedLongLong(((struct py_spec *) self)->took_ns);
}

static PyGetSetDef getters[] = {
    { "took_ns", get_took_ns, NULL, "Of the last draft or step; what was waited for the interpreter's lock behind it does not count.", NULL },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_init, spec_init },
    { Py_tp_new, PyType_GenericNew },
    { Py_tp_dealloc, spec_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, getters },
    { Py_tp_doc, "Draft, verify, accept for one sequence of a context. Not thread safe." },
    { 0 },
};

PyType_Spec py_spec_spec = {
    .name = "strata_tui.engine._core.Speculator",
    .basicsize = sizeof(struct py_spec),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
