// The methods of strata_tui.engine._core.Tier. Every call that can take long releases the GIL.
#include "pycore.h"

#include <stdlib.h>
#include <string.h>

#include "transport_ggml.h"

static PyObject * tier_open_stream(PyObject * self, PyObject * segments) {
    struct st_tier * t = py_tier_of(self);
    return t ? py_stream_new((PyTypeObject *) py_module_state(Py_TYPE(self))->stream_type, t, segments) : NULL;
}

static PyObject * tier_min_slots(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    if (!t) {
        return NULL;
    }
    long long n = 0;
    for (int k = 0; k < t->n_classes; k++) {
        n += t->classes[k].min_slots;
    }
    return PyLong_FromLongLong(n);
}

static PyObject * tier_arena_bytes(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    long long slots;
    if (!t || !PyArg_ParseTuple(args, "L:arena_bytes", &slots)) {
        return NULL;
    }
    return PyLong_FromSize_t(st_arena_bytes(t, slots));
}

static PyObject * tier_allocate(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    long long slots;
    if (!t || !PyArg_ParseTuple(args, "L:allocate", &slots)) {
        return NULL;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = st_arena_allocate(t, slots);
    Py_END_ALLOW_THREADS
    return result < 0 ? py_tier_raise(self, t) : PyLong_FromLong(t->slots_total);
}

static PyObject * tier_fill_mirror(PyObject * self, PyObject * args, PyObject * kwargs) {
    static char * names[] = { "limit", "progress", NULL };
    struct st_tier * t = py_tier_of(self);
    unsigned long long limit;
    PyObject * progress = Py_None;
    if (!t || !PyArg_ParseTupleAndKeywords(args, kwargs, "K|O:fill_mirror", names, &limit, &progress)) {
        return NULL;
    }
    for (;;) {
        int64_t left;
        Py_BEGIN_ALLOW_THREADS
        left = st_mirror_fill(t, (size_t) limit, 128);
        Py_END_ALLOW_THREADS
        if (left < 0) {
            return py_tier_raise(self, t);
        }
        if (progress != Py_None) {
            PyObject * go = PyObject_CallFunction(progress, "KK", (unsigned long long) t->mirror.bytes,
                                                  (unsigned long long) (limit < t->blob_bytes_all ? limit : t->blob_bytes_all));
            const int on = go ? PyObject_IsTrue(go) : -1;
            Py_XDECREF(go);
            if (on < 0) {
                return NULL;
            }
            if (!on) {
                break;
            }
        }
        if (left == 0) {
            break;
        }
    }
    return PyLong_FromSize_t(t->mirror.bytes);
}

static PyObject * tier_cancel(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    int on;
    if (!t || !PyArg_ParseTuple(args, "p:cancel", &on)) {
        return NULL;
    }
    atomic_store(&t->cancel, on != 0);
    Py_RETURN_NONE;
}

static PyObject * tier_set_phase(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    int phase;
    long long available = -1;
    if (!t || !PyArg_ParseTuple(args, "i|L:set_phase", &phase, &available)) {
        return NULL;
    }
    if (phase < 0 || phase >= ST_PHASES) {
        PyErr_SetString(PyExc_ValueError, "no such phase");
        return NULL;
    }
    atomic_store(&t->phase, phase);
    if (phase == ST_PHASE_PROMPT) {
        Py_BEGIN_ALLOW_THREADS
        st_pool_sample(t, available);  // the page cache may have changed since the last prompt
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static PyObject * tier_set_modes(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    int pin, profile, threads = -1;
    long long available = -1;
    if (!t || !PyArg_ParseTuple(args, "ii|Li:set_modes", &pin, &profile, &available, &threads)) {
        return NULL;
    }
    if (pin < ST_PIN_AUTO || pin > ST_PIN_OFF || profile < ST_PROFILE_AUTO || profile > ST_PROFILE_SSD || threads < -1 || threads > ST_STAGER_MAX_THREADS) {
        PyErr_SetString(PyExc_ValueError, "no such mode");
        return NULL;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = st_pool_apply(t, (enum st_pin) pin, (enum st_profile) profile, available, threads < 0 ? t->threads_wanted : threads);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return py_tier_raise(self, t);
    }
    Py_RETURN_NONE;
}

static PyObject * tier_modes(PyObject * self, PyObject * unused) {
    (void) unused;
    static const char * pin_names[] = { "auto", "on", "off" }, * profile_names[] = { "auto", "ram", "ssd" };
    struct st_tier * t = py_tier_of(self);
    if (!t) {
        return NULL;
    }
    pthread_mutex_lock(&t->lock);
    const struct st_modes m = t->modes;
    pthread_mutex_unlock(&t->lock);
    struct st_stager_state stager;
    st_pool_state(t, &stager);
    const bool none = t->n_groups == 0, can_pin = t->transport->iface->can_pin;
    static const char * policy_names[] = { "lru", "adaptive", "frozen" };
    return Py_BuildValue("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:K,s:K,s:i,s:K,s:K,s:K,s:K}", "policy", policy_names[t->policy], "pinning_wanted", pin_names[m.pin_wanted], "pinning",
                         none || !t->transport->iface->can_pin ? "not applicable" : m.pinned ? "on" : "off", "pinning_reason", m.pin_reason,
                         "stager_wanted", profile_names[m.profile_wanted], "stager", none ? "not applicable" : profile_names[stager.profile], "stager_reason",
                         stager.reason, "stager_threads", stager.threads, "stager_changes", (unsigned long long) stager.changes, "generation", (unsigned long long) m.generation, "pool_buffers", m.pool_buffers,
                         "pinned", (unsigned long long) (m.pinned_bytes + (can_pin ? t->mirror.bytes : 0)), "pageable",
                         (unsigned long long) (m.pageable_bytes + (can_pin ? 0 : t->mirror.bytes)), "refused",
                         (unsigned long long) (m.refused_bytes + t->mirror_refused), "mirror", (unsigned long long) t->mirror.bytes);
}

static PyObject * tier_stager(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    if (!t) {
        return NULL;
    }
    struct st_stager_state s;
    st_pool_state(t, &s);
    return Py_BuildValue("{s:i,s:i,s:K,s:K,s:K,s:K,s:s}", "profile", (int) s.profile, "threads", s.threads, "changes", (unsigned long long) s.changes,
                         "bytes", (unsigned long long) s.bytes, "fill_ns", (unsigned long long) s.fill_ns, "waited_ns", (unsigned long long) s.waited_ns,
                         "reason", s.reason);
}

static PyObject * phase_counters(struct st_phase_counters * c) {
    PyObject * dict = PyDict_New();
    int failed = dict == NULL;
#define ADD(name)                                                                                                        \
    if (!failed) {                                                                                                       \
        PyObject * value = PyLong_FromUnsignedLongLong(atomic_load_explicit(&c->name, memory_order_relaxed));            \
        failed = !value || PyDict_SetItemString(dict, #name, value) < 0;                                                 \
        Py_XDECREF(value);                                                                                               \
    }
    ST_COUNTERS(ADD)
#undef ADD
    if (failed) {
        Py_XDECREF(dict);
        return NULL;
    }
    return dict;
}

static PyObject * tier_counters(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    if (!t) {
        return NULL;
    }
    PyObject * prompt = phase_counters(&t->counters[ST_PHASE_PROMPT]), * decode = phase_counters(&t->counters[ST_PHASE_DECODE]);
    return prompt && decode ? Py_BuildValue("{s:N,s:N}", "prompt", prompt, "decode", decode) : NULL;
}

static PyObject * tier_layers(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    PyObject * list = t ? PyList_New(0) : NULL;
    for (int i = 0; list && i < t->n_groups; i++) {
        struct st_group * g = &t->groups[i];
        unsigned long long n[ST_PHASES][2];
        for (int phase = 0; phase < ST_PHASES; phase++) {
            n[phase][0] = atomic_load_explicit(&g->counters[phase].picks, memory_order_relaxed);
            n[phase][1] = atomic_load_explicit(&g->counters[phase].hits, memory_order_relaxed);
        }
        const int prompt = ST_PHASE_PROMPT, decode = ST_PHASE_DECODE;
        PyObject * item = Py_BuildValue("(i(KK)(KK))", g->layer, n[prompt][0], n[prompt][1], n[decode][0], n[decode][1]);
        if (!item || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject * tier_arena(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    if (!t) {
        return NULL;
    }
    unsigned long long bytes = 0;
    for (int k = 0; k < t->n_classes; k++) {
        bytes += (unsigned long long) t->classes[k].stride * (unsigned) t->classes[k].n_slots;
    }
    return Py_BuildValue("{s:K,s:i,s:L}", "bytes", bytes, "slots_total", t->slots_total, "slots_used", (long long) atomic_load(&t->slots_used));
}

static PyObject * tier_residents(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    PyObject * list = t ? PyList_New(0) : NULL;
    for (int k = 0; list && k < t->n_classes; k++) {
        const struct st_class * c = &t->classes[k];
        for (int32_t s = 0; list && s < c->n_slots; s++) {
            if (c->residency.state[s] != ST_SLOT_RESIDENT) {
                continue;
            }
            const int32_t key = c->residency.key_of[s];
            const struct st_group * g = &t->groups[c->key_group[key]];
            PyObject * item = Py_BuildValue("(iii)", g->layer, key - g->first_key, s);
            if (!item || PyList_Append(list, item) < 0) {
                Py_CLEAR(list);
            }
            Py_XDECREF(item);
        }
    }
    return list;
}

static PyObject * tier_verify(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    int count;
    unsigned long long seed;
    if (!t || !PyArg_ParseTuple(args, "iK:verify", &count, &seed)) {
        return NULL;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = st_verify(t, count, seed);
    Py_END_ALLOW_THREADS
    return result < 0 ? py_tier_raise(self, t) : PyLong_FromLong(count);
}

static PyObject * tier_last_error(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    if (!t) {
        return NULL;
    }
    char text[sizeof t->error];
    pthread_mutex_lock(&t->lock);
    memcpy(text, t->error, sizeof text);
    t->error[0] = '\0';
    pthread_mutex_unlock(&t->lock);
    return PyUnicode_FromString(text);
}

static PyObject * tier_set_policy(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    int policy;
    if (!t || !PyArg_ParseTuple(args, "i:set_policy", &policy)) {
        return NULL;
    }
    if (policy < ST_POLICY_LRU || policy > ST_POLICY_FROZEN) {
        PyErr_SetString(PyExc_ValueError, "no such policy");
        return NULL;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = st_policy_set(t, (enum st_policy) policy);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return py_tier_raise(self, t);
    }
    Py_RETURN_NONE;
}

static PyObject * tier_swaps(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    return t ? Py_BuildValue("{s:K,s:K,s:K}", "swaps", (unsigned long long) atomic_load(&t->swaps), "rounds", (unsigned long long) atomic_load(&t->swap_rounds),
                             "ns", (unsigned long long) atomic_load(&t->swap_ns))
             : NULL;
}

static PyObject * tier_usage(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    if (!t) {
        return NULL;
    }
    float * all = calloc((size_t) t->n_experts_all + 1, sizeof *all);
    if (!all) {
        return PyErr_NoMemory();
    }
    size_t at = 0;
    for (int i = 0; i < t->n_groups; i++) {
        const struct st_group * g = &t->groups[i];
        const float * usage       = t->classes[g->class_index].usage;
        if (usage) {
            memcpy(all + at, usage + g->first_key, (size_t) g->n_experts * sizeof *all);
        }
        at += (size_t) g->n_experts;
    }
    PyObject * bytes = PyBytes_FromStringAndSize((const char *) all, (Py_ssize_t) (at * sizeof *all));
    free(all);
    return bytes;
}

struct step {
    PyObject * progress;
    PyThreadState * saved;
    bool failed;
};

static bool prefill_step(void * ctx, int64_t done, int64_t total) {
    struct step * s = ctx;
    if (s->progress == Py_None) {
        return true;
    }
    PyEval_RestoreThread(s->saved);
    PyObject * go = PyObject_CallFunction(s->progress, "LL", (long long) done, (long long) total);
    const int on  = go ? PyObject_IsTrue(go) : -1;
    Py_XDECREF(go);
    s->failed = on < 0;
    s->saved  = PyEval_SaveThread();
    return on > 0;
}

static PyObject * tier_prefill(PyObject * self, PyObject * args, PyObject * kwargs) {
    static char * names[] = { "usage", "progress", NULL };
    struct st_tier * t = py_tier_of(self);
    PyObject * usage = Py_None, * progress = Py_None;
    if (!t || !PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:prefill", names, &usage, &progress)) {
        return NULL;
    }
    const float * values = NULL;
    if (usage != Py_None) {
        char * data;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(usage, &data, &size) < 0) {
            return NULL;
        }
        if ((size_t) size != (size_t) t->n_experts_all * sizeof(float)) {
            PyErr_SetString(PyExc_ValueError, "a usage profile has one float32 for each expert");
            return NULL;
        }
        values = (const float *) data;
    }
    struct step s = { .progress = progress };
    s.saved = PyEval_SaveThread();
    const int64_t done = st_prefill(t, values, prefill_step, &s);
    PyEval_RestoreThread(s.saved);
    return s.failed ? NULL : done < 0 ? py_tier_raise(self, t) : PyLong_FromLongLong(done);
}

static PyObject * tier_selftest(PyObject * self, PyObject * unused) {
    (void) unused;
    struct st_tier * t = py_tier_of(self);
    char line[256];
    int result;
    if (!t) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    result = st_selftest(t, line, sizeof line);
    Py_END_ALLOW_THREADS
    return result < 0 ? py_tier_raise(self, t) : PyUnicode_FromString(line);
}

static PyObject * tier_refuse_pins(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    int after;
    if (!t || !PyArg_ParseTuple(args, "i:refuse_pins", &after)) {
        return NULL;
    }
    if (t->on_gpu) {
        st_transport_ggml_refuse(t->transport, after);
    }
    Py_RETURN_NONE;
}

static PyObject * tier_limit_link(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    double limit;
    if (!t || !PyArg_ParseTuple(args, "d:limit_link", &limit)) {
        return NULL;
    }
    if (!t->on_gpu) {
        PyErr_SetString(py_module_state(Py_TYPE(self))->error, "there is no link to limit: no GPU");
        return NULL;
    }
    st_transport_ggml_limit(t->transport, limit);
    Py_RETURN_NONE;
}

static PyObject * tier_refill(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    long long n;
    if (!t || !PyArg_ParseTuple(args, "L:refill", &n)) {
        return NULL;
    }
    int64_t done;
    Py_BEGIN_ALLOW_THREADS
    done = st_refill(t, n);
    Py_END_ALLOW_THREADS
    return done < 0 ? py_tier_raise(self, t) : PyLong_FromLongLong(done);
}

static PyObject * tier_fill_rate(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    int n;
    if (!t || !PyArg_ParseTuple(args, "i:fill_rate", &n)) {
        return NULL;
    }
    double rate;
    Py_BEGIN_ALLOW_THREADS
    rate = st_fill_rate(t, n);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(rate);
}

static PyObject * tier_keep_pieces(PyObject * self, PyObject * args) {
    struct st_tier * t = py_tier_of(self);
    int on;
    if (!t || !PyArg_ParseTuple(args, "p:keep_pieces", &on)) {
        return NULL;
    }
    t->keeps_pieces = on;
    Py_RETURN_NONE;
}

PyMethodDef py_tier_methods[] = {
    { "refill", tier_refill, METH_VARARGS, "Copies up to n residents into their slots again and waits; between rounds. Returns their number." },
    { "fill_rate", tier_fill_rate, METH_VARARGS, "Bytes a second at which the stager fills n blobs, without copies; between rounds." },
    { "set_stream", py_tier_set_stream, METH_VARARGS, "From how many tokens a batch streams (0: never), the ring's bytes, and whether it has memory of its own; between rounds." },
    { "stream_ahead", py_tier_stream_ahead, METH_NOARGS, "Begins to bring what the next streamed batch reads first; right before it, from the thread that decodes." },
    { "stream", py_tier_stream, METH_NOARGS, "The running batch's units, and the ring (any thread)." },
    { "set_policy", tier_set_policy, METH_VARARGS, "POLICY_LRU, POLICY_ADAPTIVE or POLICY_FROZEN; between rounds, from the thread that decodes." },
    { "swaps", tier_swaps, METH_NOARGS, "Swaps of the adaptive tier, its rounds and their host time in ns (any thread)." },
    { "usage", tier_usage, METH_NOARGS, "Picks of each expert, decayed: float32, in the order of the groups; between rounds." },
    { "prefill", (PyCFunction) (void (*)(void)) tier_prefill, METH_VARARGS | METH_KEYWORDS, "Fills empty slots by a usage profile (or evenly); progress(done, total) returns false to stop." },
    { "selftest", tier_selftest, METH_NOARGS, "Copies patterns through the stage pool and compares; before the first round. Returns one line." },
    { "refuse_pins", tier_refuse_pins, METH_VARARGS, "For tests on a GPU: after so many more pinned allocations the next are refused; -1: none." },
    { "limit_link", tier_limit_link, METH_VARARGS, "For benches: copies no faster than so many GB/s; 0: no limit." },
    { "keep_pieces", tier_keep_pieces, METH_VARARGS, "For tests and benches: whether pieces of short graphs are made to be known again (on a GPU they are); between rounds." },
    { "open_stream", tier_open_stream, METH_O, "A Stream over segments of the shards." },
    { "min_slots", tier_min_slots, METH_NOARGS, "Fewest slots with which every layer can run." },
    { "arena_bytes", tier_arena_bytes, METH_VARARGS, "Bytes of an arena with that many slots." },
    { "allocate", tier_allocate, METH_VARARGS, "Allocates the arena once; returns its slots." },
    { "fill_mirror", (PyCFunction) (void (*)(void)) tier_fill_mirror, METH_VARARGS | METH_KEYWORDS,
      "Copies experts into pinned RAM up to `limit` bytes; progress(done, total) returns false to stop. Returns the bytes pinned." },
    { "cancel", tier_cancel, METH_VARARGS, "Sets or clears the cancel flag (any thread)." },
    { "set_phase", tier_set_phase, METH_VARARGS, "PHASE_PROMPT or PHASE_DECODE: where the counters count. A prompt also asks where the experts' bytes are." },
    { "set_modes", tier_set_modes, METH_VARARGS, "set_modes(pin, profile, available=-1, threads=as before; 0: automatic): drains and rebuilds the stage pool; between rounds, from the thread that decodes." },
    { "modes", tier_modes, METH_NOARGS, "The switches as they are, with reasons (any thread)." },
    { "stager", tier_stager, METH_NOARGS, "The stager as it is: profile, threads, how often the profile changed, bytes filled and the time that took (any thread)." },
    { "counters", tier_counters, METH_NOARGS, "Counters per phase (any thread)." },
    { "layers", tier_layers, METH_NOARGS, "(layer, (picks, hits) of prompts, (picks, hits) of decoding) of each layer with experts (any thread)." },
    { "arena", tier_arena, METH_NOARGS, "Bytes and slots (any thread)." },
    { "residents", tier_residents, METH_NOARGS, "(layer, expert, slot) of each resident; between rounds." },
    { "verify", tier_verify, METH_VARARGS, "Compares random residents with the file; between rounds." },
    { "last_error", tier_last_error, METH_NOARGS, "Why the last round failed; reading clears it." },
    { "close", py_tier_close, METH_NOARGS, "Frees everything; contexts and model must be freed before." },
    { 0 },
};
