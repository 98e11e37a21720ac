// The stage pool's memory, its threads, and the two switches over them: pinning and the stager's profile.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier.h"

#define SLAB_BYTES ((size_t) 64 << 20)
#define PIN_FLOOR_GIB 3     // automatic pinning leaves at least this much RAM available

static int cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// From the page cache a copy is bound by memory bandwidth, which a few threads reach; from an SSD it is the
// number of reads in flight that counts, and a thread that waits for one costs nothing. A disk that turns serves
// few at once. These are where the pace begins; what it measures decides.
static struct st_pace_options pace_options(const struct st_tier * t, enum st_profile profile) {
    const int n     = cores();
    bool rotational = false;
    for (int i = 0; i < t->n_shards; i++) {
        rotational = rotational || t->shards[i].source.rotational;
    }
    struct st_pace_options o = { .wanted = profile, .threads = t->threads_wanted };
    o.first[ST_PROFILE_RAM] = n <= 2 ? 1 : n * 3 / 4 > 16 ? 16 : n * 3 / 4;
    o.most[ST_PROFILE_RAM]  = n < 4 ? 4 : n > 16 ? 16 : n;
    o.first[ST_PROFILE_SSD] = rotational ? 4 : 16;
    o.most[ST_PROFILE_SSD]  = ST_STAGER_MAX_THREADS;
    return o;
}

int st_pool_start(struct st_tier * t) {
    const struct st_pace_options options = pace_options(t, ST_PROFILE_AUTO);
    t->sample_seed = st_now_ns();  // pages that an earlier start asked for may be cached by that
    if (st_stager_init(&t->stager, st_fill_piece, t, &options) < 0) {
        return st_fail(t, "out of memory");
    }
    t->stager_built = true;
    return 0;
}

// Where the experts do not fit into the page cache, reading through it would throw out one expert for another,
// and the next prompt would find none; past it, what it holds stays, and the processor copies less.
static void decide_direct(struct st_tier * t, struct st_modes * m) {
    const size_t in_mirror = t->mirror.bytes < t->blob_bytes_all ? t->mirror.bytes : t->blob_bytes_all;
    const double need      = (double) (t->blob_bytes_all - in_mirror), available = (double) t->available;
    bool offered = true;  // by the file systems that hold the model
    for (int i = 0; i < t->n_shards; i++) {
        offered = offered && t->shards[i].source.direct >= 0;
    }
    bool on = offered && t->direct_wanted == ST_DIRECT_ON;
    m->direct_reason[0] = '\0';
    if (t->direct_wanted == ST_DIRECT_ON) {
        snprintf(m->direct_reason, sizeof m->direct_reason, "past the page cache: %s", on ? "chosen" : "not offered by this file system");
    } else if (offered && t->direct_wanted == ST_DIRECT_AUTO && t->available >= 0) {
        const bool before = atomic_load_explicit(&t->direct, memory_order_relaxed);
        on = available < (before ? 1.05 : 1.0) * need;  // not to and fro
        if (on) {
            snprintf(m->direct_reason, sizeof m->direct_reason, "past the page cache: %.1f GiB of experts, %.1f GiB of RAM", need / (1 << 30), available / (1 << 30));
        }
    }
    atomic_store_explicit(&t->direct, on, memory_order_relaxed);
}

static bool decide_pin(struct st_tier * t, enum st_pin wanted, struct st_modes * m, size_t bytes, int64_t available) {
    m->pin_wanted = wanted;
    if (!t->transport->iface->can_pin) {
        snprintf(m->pin_reason, sizeof m->pin_reason, "not applicable: no GPU");
        return false;
    }
    if (wanted == ST_PIN_OFF) {
        snprintf(m->pin_reason, sizeof m->pin_reason, "chosen");
        return false;
    }
    if (wanted == ST_PIN_AUTO && available >= 0 && (uint64_t) available < bytes + ((uint64_t) PIN_FLOOR_GIB << 30)) {
        snprintf(m->pin_reason, sizeof m->pin_reason, "auto: off, only %.1f GiB of RAM available (the floor is %d)", (double) available / (1 << 30), PIN_FLOOR_GIB);
        return false;
    }
    snprintf(m->pin_reason, sizeof m->pin_reason, wanted == ST_PIN_ON ? "chosen" : "auto: on");
    return true;
}

int st_pool_apply(struct st_tier * t, enum st_pin pin, enum st_profile profile, int64_t available, int threads) {
    t->available   = available;
    t->mirror_full = t->mirror_full && t->mirror_refused == 0;  // asked again: the driver may agree this time
    if (t->n_groups == 0) {  // a dense model has nothing to stage
        pthread_mutex_lock(&t->lock);
        t->modes.pin_wanted     = pin;
        t->modes.profile_wanted = profile;
        snprintf(t->modes.pin_reason, sizeof t->modes.pin_reason, "not applicable: no experts");
        t->modes.generation++;
        pthread_mutex_unlock(&t->lock);
        return 0;
    }
    struct st_modes m = t->modes;  // only this thread writes it
    m.profile_wanted   = profile;
    const int n        = t->pool_buffers;
    const size_t bytes = t->max_stride * (size_t) n;
    const bool try_pin = decide_pin(t, pin, &m, bytes, available);

    if (t->pool_built) {
        if (st_stage_drain(&t->pool) < 0) {
            return st_fail(t, "a copy to the slots failed");
        }
        t->pool_built = false;
        st_stage_free(&t->pool);
    }
    if (st_stage_init(&t->pool, t->transport, n, t->max_stride, SLAB_BYTES, try_pin) < 0) {
        return st_fail(t, "no memory for %d stage buffers of %zu KiB", n, t->max_stride >> 10);
    }
    t->pool_built   = true;
    m.pinned         = t->pool.pinned > 0;
    m.pinned_bytes   = t->pool.pinned;
    m.pageable_bytes = t->pool.pageable;
    m.refused_bytes  = t->pool.refused;
    if (m.refused_bytes) {
        snprintf(m.pin_reason, sizeof m.pin_reason, "the driver refused a slab: %.1f MiB pinned, %.1f MiB pageable", (double) m.pinned_bytes / (1 << 20),
                 (double) m.pageable_bytes / (1 << 20));
    }
    m.pool_buffers = n;
    m.generation++;
    decide_direct(t, &m);
    t->threads_wanted = threads;
    const struct st_pace_options options = pace_options(t, profile);
    atomic_store_explicit(&t->asking, profile == ST_PROFILE_AUTO, memory_order_relaxed);
    (void) st_stager_set(&t->stager, &options);  // fewer threads than wanted are shown, and fill as well
    if (profile == ST_PROFILE_AUTO) {
        st_fill_sample(t, false);
    }
    pthread_mutex_lock(&t->lock);
    t->modes = m;
    pthread_mutex_unlock(&t->lock);
    return 0;
}

void st_pool_sample(struct st_tier * t, int64_t available) {
    t->available = available;
    if (t->n_groups == 0) {
        return;
    }
    struct st_modes m = t->modes;
    decide_direct(t, &m);
    if (m.profile_wanted == ST_PROFILE_AUTO) {
        st_fill_sample(t, true);
    }
    pthread_mutex_lock(&t->lock);
    t->modes = m;
    pthread_mutex_unlock(&t->lock);
}

void st_pool_state(struct st_tier * t, struct st_stager_state * state) {
    struct st_stager_report r;
    st_stager_report(&t->stager, &r);
    pthread_mutex_lock(&t->lock);
    const struct st_modes m = t->modes;
    pthread_mutex_unlock(&t->lock);
    *state = (struct st_stager_state) { .profile = r.pace.profile, .threads = r.n_active, .changes = r.pace.changes,
                                        .bytes = r.bytes, .fill_ns = r.fill_ns, .waited_ns = r.waited_ns };
    if (t->n_groups == 0) {
        snprintf(state->reason, sizeof state->reason, "not applicable: no experts");
        return;
    }
    bool silent = false;
    for (int i = 0; i < t->n_shards; i++) {
        silent = silent || atomic_load_explicit(&t->shards[i].source.silent, memory_order_relaxed);
    }
    char why[96] = "chosen";
    if (m.profile_wanted == ST_PROFILE_AUTO && r.pace.n_answers == 0) {
        snprintf(why, sizeof why, "auto: %s, nothing was read yet", r.pace.profile == ST_PROFILE_RAM ? "ram" : "ssd");
    } else if (m.profile_wanted == ST_PROFILE_AUTO) {
        snprintf(why, sizeof why, "auto: %s, %d of %d reads %s", r.pace.profile == ST_PROFILE_RAM ? "ram" : "ssd", st_pace_cached(&r.pace),
                 r.pace.n_answers, silent ? "did not wait" : "cached");
    }
    snprintf(state->reason, sizeof state->reason, "%s; %d thread%s, ring %d%s%s", why, r.n_active, r.n_active == 1 ? "" : "s", m.pool_buffers,
             m.direct_reason[0] ? "; " : "", m.direct_reason);
}

void st_pool_free(struct st_tier * t) {
    if (t->pool_built) {
        t->pool_built = false;
        st_stage_free(&t->pool);
    }
}
