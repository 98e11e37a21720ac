// The stage pool's memory, its threads, and the two switches over them: pinning and the stager's profile.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier.h"

#define SAMPLES 256
#define CACHED_ENOUGH 0.9   // share of sampled pages from which a file counts as being in RAM
#define SLAB_BYTES ((size_t) 64 << 20)
#define PIN_FLOOR_GIB 3     // automatic pinning leaves at least this much RAM available

static int cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// From the page cache a copy is bound by memory bandwidth, which a few threads reach; from an SSD it is the
// number of reads in flight that counts, and a thread that waits for one costs nothing.
static int threads_for(const struct st_tier * t, enum st_profile profile) {
    if (t->threads_wanted > 0) {
        return t->threads_wanted;
    }
    const int n = cores();
    if (profile == ST_PROFILE_SSD) {
        return 16;
    }
    return n <= 2 ? 1 : n / 2 > 8 ? 8 : n / 2;
}

static void decide_profile(struct st_tier * t, enum st_profile wanted, struct st_modes * m) {
    m->profile_wanted = wanted;
    if (wanted != ST_PROFILE_AUTO) {
        m->profile = wanted;
        snprintf(m->profile_reason, sizeof m->profile_reason, "chosen");
        return;
    }
    const double cached = st_experts_cached(t, SAMPLES);
    if (cached < 0) {
        m->profile = ST_PROFILE_RAM;
        snprintf(m->profile_reason, sizeof m->profile_reason, "auto: ram, page cache unknown here");
        return;
    }
    m->profile = cached >= CACHED_ENOUGH ? ST_PROFILE_RAM : ST_PROFILE_SSD;
    snprintf(m->profile_reason, sizeof m->profile_reason, "auto: %s, %.0f %% of sampled pages cached",
             m->profile == ST_PROFILE_RAM ? "ram" : "ssd", 100 * cached);
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

int st_pool_apply(struct st_tier * t, enum st_pin pin, enum st_profile profile, int64_t available) {
    t->mirror_full = t->mirror_full && t->mirror_refused == 0;  // asked again: the driver may agree this time
    if (t->n_groups == 0) {  // a dense model has nothing to stage
        pthread_mutex_lock(&t->lock);
        t->modes.pin_wanted     = pin;
        t->modes.profile_wanted = profile;
        snprintf(t->modes.pin_reason, sizeof t->modes.pin_reason, "not applicable: no experts");
        snprintf(t->modes.profile_reason, sizeof t->modes.profile_reason, "not applicable: no experts");
        t->modes.generation++;
        pthread_mutex_unlock(&t->lock);
        return 0;
    }
    struct st_modes m = t->modes;  // only this thread writes it
    decide_profile(t, profile, &m);
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
    m.threads      = st_stager_set_threads(&t->stager, threads_for(t, m.profile));
    m.generation++;
    pthread_mutex_lock(&t->lock);
    t->modes = m;
    pthread_mutex_unlock(&t->lock);
    return 0;
}

void st_pool_sample(struct st_tier * t) {
    if (t->n_groups == 0 || t->modes.profile_wanted != ST_PROFILE_AUTO) {
        return;
    }
    struct st_modes m = t->modes;
    decide_profile(t, ST_PROFILE_AUTO, &m);
    if (m.profile != t->modes.profile) {
        m.threads = st_stager_set_threads(&t->stager, threads_for(t, m.profile));
    }
    pthread_mutex_lock(&t->lock);
    t->modes = m;
    pthread_mutex_unlock(&t->lock);
}

void st_pool_free(struct st_tier * t) {
    if (t->pool_built) {
        t->pool_built = false;
        st_stage_free(&t->pool);
    }
}
