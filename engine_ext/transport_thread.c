#include "transport_thread.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Copies are numbered in the order in which they were queued; an event is the number of the last copy
// before it, so it has completed when that many copies are done.
struct event {
    uint64_t number;
};

struct entry {
    void * dst;
    const void * src;
    size_t size;
};

struct thread_transport {
    struct st_transport base;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct entry * queue;  // ring
    size_t capacity, head, count;
    uint64_t n_queued, n_done;
    bool stop;
    uint32_t delay_us;
    uint64_t random;
};

static uint64_t next_random(uint64_t * x) {  // xorshift64 (Marsaglia, 2003)
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void * run(void * arg) {
    struct thread_transport * t = arg;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->count == 0 && !t->stop) {
            pthread_cond_wait(&t->work, &t->lock);
        }
        if (t->count == 0) {
            break;
        }
        const struct entry e = t->queue[t->head];
        t->head = (t->head + 1) % t->capacity;
        t->count--;
        const uint64_t wait_us = t->delay_us ? next_random(&t->random) % (2 * (uint64_t) t->delay_us + 1) : 0;
        pthread_mutex_unlock(&t->lock);
        if (wait_us) {
            const struct timespec ts = { .tv_sec = (time_t) (wait_us / 1000000), .tv_nsec = (long) (wait_us % 1000000) * 1000 };
            nanosleep(&ts, NULL);
        }
        memcpy(e.dst, e.src, e.size);
        pthread_mutex_lock(&t->lock);
        t->n_done++;
        pthread_cond_broadcast(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static int tt_copy(struct st_transport * base, void * dst, const void * src, size_t size) {
    struct thread_transport * t = (struct thread_transport *) base;
    int result = 0;
    pthread_mutex_lock(&t->lock);
    if (t->count == t->capacity) {
        const size_t capacity = t->capacity * 2;
        struct entry * queue = malloc(capacity * sizeof *queue);
        if (queue) {
            for (size_t i = 0; i < t->count; i++) {
                queue[i] = t->queue[(t->head + i) % t->capacity];
            }
            free(t->queue);
            t->queue    = queue;
            t->capacity = capacity;
            t->head     = 0;
        } else {
            result = -1;
        }
    }
    if (result == 0) {
        t->queue[(t->head + t->count) % t->capacity] = (struct entry) { dst, src, size };
        t->count++;
        t->n_queued++;
        pthread_cond_signal(&t->work);
    }
    pthread_mutex_unlock(&t->lock);
    return result;
}

static void * tt_event_new(struct st_transport * base) {
    (void) base;
    return calloc(1, sizeof(struct event));
}

static void tt_event_free(struct st_transport * base, void * event) {
    (void) base;
    free(event);
}

static int tt_record(struct st_transport * base, void * event) {
    struct thread_transport * t = (struct thread_transport *) base;
    pthread_mutex_lock(&t->lock);
    ((struct event *) event)->number = t->n_queued;
    pthread_mutex_unlock(&t->lock);
    return 0;
}

static int tt_query(struct st_transport * base, void * event) {
    struct thread_transport * t = (struct thread_transport *) base;
    pthread_mutex_lock(&t->lock);
    const int done = t->n_done >= ((struct event *) event)->number;
    pthread_mutex_unlock(&t->lock);
    return done;
}

static int tt_wait(struct st_transport * base, void * event) {
    struct thread_transport * t = (struct thread_transport *) base;
    pthread_mutex_lock(&t->lock);
    while (t->n_done < ((struct event *) event)->number) {
        pthread_cond_wait(&t->done, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return 0;
}

// The CPU backend computes in the calling thread: "later work" begins when the caller goes on.
static int tt_compute_waits(struct st_transport * base, void * compute, void * event) {
    (void) compute;
    return tt_wait(base, event);
}

// ... and for the same reason everything that was queued on it is done.
static int tt_copies_wait(struct st_transport * base, void * compute) {
    (void) base;
    (void) compute;
    return 0;
}

static int tt_memory_new(struct st_transport * base, size_t size, bool pin, struct st_memory * m) {
    (void) base;
    (void) pin;  // nothing to pin for: there is no GPU
    const size_t rounded = (size + 63) & ~(size_t) 63;
    if (rounded < size) {
        return -1;
    }
    void * data = aligned_alloc(64, rounded);
    if (!data) {
        return -1;
    }
    memset(data, 0, rounded);
    *m = (struct st_memory) { .data = data, .size = size };
    return 0;
}

static void tt_memory_free(struct st_transport * base, struct st_memory * m) {
    (void) base;
    free(m->data);
    *m = (struct st_memory) { 0 };
}

static void tt_free(struct st_transport * base) {
    struct thread_transport * t = (struct thread_transport *) base;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t->queue);
    free(t);
}

static const struct st_transport_i thread_iface = {
    .name = "copier thread",
    .can_pin = false,
    .copy = tt_copy,
    .event_new = tt_event_new,
    .event_free = tt_event_free,
    .record = tt_record,
    .query = tt_query,
    .wait = tt_wait,
    .compute_waits = tt_compute_waits,
    .copies_wait = tt_copies_wait,
    .memory_new = tt_memory_new,
    .memory_free = tt_memory_free,
    .free = tt_free,
};

struct st_transport * st_transport_thread_new(uint32_t delay_us, uint64_t seed) {
    struct thread_transport * t = calloc(1, sizeof *t);
    if (!t) {
        return NULL;
    }
    t->base.iface = &thread_iface;
    t->capacity   = 64;
    t->queue      = malloc(t->capacity * sizeof *t->queue);
    t->delay_us   = delay_us;
    t->random     = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    if (t->random == 0) {
        t->random = 1;
    }
    if (!t->queue) {
        free(t);
        return NULL;
    }
    if (pthread_mutex_init(&t->lock, NULL) != 0) {
        goto no_lock;
    }
    if (pthread_cond_init(&t->work, NULL) != 0) {
        goto no_work;
    }
    if (pthread_cond_init(&t->done, NULL) != 0) {
        goto no_done;
    }
    if (pthread_create(&t->thread, NULL, run, t) == 0) {
        return &t->base;
    }
    pthread_cond_destroy(&t->done);
no_done:
    pthread_cond_destroy(&t->work);
no_work:
    pthread_mutex_destroy(&t->lock);
no_lock:
    free(t->queue);
    free(t);
    return NULL;
}
