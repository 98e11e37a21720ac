// Opening and closing a tier, and its error text.
#include "tier.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "transport_ggml.h"
#include "transport_thread.h"

#define MIN_JOBS 512  // so that filling the slots at the start does not stop and go

int st_fail(struct st_tier * t, const char * format, ...) {
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&t->lock);
    if (t->error[0] == '\0') {
        vsnprintf(t->error, sizeof t->error, format, args);
    }
    pthread_mutex_unlock(&t->lock);
    va_end(args);
    return -1;
}

void st_error_clear(struct st_tier * t) {
    pthread_mutex_lock(&t->lock);
    t->error[0] = '\0';
    pthread_mutex_unlock(&t->lock);
}

int st_tier_open(struct st_tier * t, uint32_t copy_delay_us, uint32_t compute_delay_us, uint64_t copy_seed) {
    t->on_gpu = ggml_backend_dev_type(t->inner) == GGML_BACKEND_DEVICE_TYPE_GPU;
    t->keeps_pieces = strcmp(ggml_backend_reg_name(ggml_backend_dev_backend_reg(t->inner)), "CUDA") == 0;
    if (st_experts_init(t) < 0) {
        return -1;
    }
    char why[256] = "out of memory";
    t->transport = t->on_gpu ? st_transport_ggml_new(t->inner, why, sizeof why) : st_transport_thread_new(copy_delay_us, compute_delay_us, copy_seed);
    if (!t->transport) {
        return st_fail(t, "%s", why);
    }
    t->group_event = t->transport->iface->event_new(t->transport);
    t->n_jobs      = t->max_experts > MIN_JOBS ? t->max_experts : MIN_JOBS;
    t->jobs        = calloc((size_t) t->n_jobs, sizeof *t->jobs);
    t->swap_event  = t->transport->iface->event_new(t->transport);
    t->ring_built  = true;
    if (st_ring_init(&t->ring, t->transport) < 0 || !t->group_event || !t->swap_event || !t->jobs) {
        return st_fail(t, "out of memory");
    }
    if (st_pool_start(t) < 0) {
        return -1;
    }
    st_device_init(t);
    return st_pool_apply(t, ST_PIN_OFF, ST_PROFILE_AUTO, -1, t->threads_wanted);
}

void st_tier_close(struct st_tier * t) {
    if (t->stager_built) {
        st_stager_free(&t->stager);
        t->stager_built = false;
    }
    if (t->transport) {
        if (t->group_event && t->transport->iface->record(t->transport, t->group_event) == 0) {
            (void) t->transport->iface->wait(t->transport, t->group_event);  // swaps nobody waited for still read the mirror
        }
        st_pool_free(t);
        st_mirror_free(t);
        st_batch_free(t);
        if (t->ring_built) {
            st_ring_free(&t->ring);
            t->ring_built = false;
        }
        if (t->group_event) {
            t->transport->iface->event_free(t->transport, t->group_event);
            t->group_event = NULL;
        }
        if (t->swap_event) {
            t->transport->iface->event_free(t->transport, t->swap_event);
            t->swap_event = NULL;
        }
        t->transport->iface->free(t->transport);  // drains: no copy is under way when the arena goes
        t->transport = NULL;
    }
    if (t->ring_own) {
        ggml_backend_buffer_free(t->ring_own);
        t->ring_own = NULL;
    }
    st_arena_free(t);
    st_window_free(&t->window);
    free(t->jobs);
    t->jobs = NULL;
    st_experts_free(t);
}
