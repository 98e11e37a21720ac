#include "transport_thread.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Operations of a lane are numbered in the order in which they were queued; an event is the number of the last
// one before it, so it has completed when that many are done.
enum { COPIES = 0, COMPUTE = 1, LANES = 2 };

struct event {
    int lane;
    uint64_t number;
};

enum op_kind { OP_COPY, OP_SET, OP_WORK, OP_WAIT };

struct op {
    enum op_kind kind;
    void * dst;
    const void * src;
    size_t size;
    unsigned char value;
    void (*work)(void * arg);
    void * arg;
    struct event until;  // OP_WAIT
};

struct lane {
    pthread_t thread;
    bool running;
    struct op * queue;  // ring
    size_t capacity, head, count;
    uint64_t n_queued, n_done;
    uint32_t delay_us;
    uint64_t random;
};

struct thread_transport {
    struct st_transport base;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct lane lanes[LANES];
    bool stop;
};

#define TT(base) ((struct thread_transport *) (base))

static uint64_t next_random(uint64_t * x) {  // xorshift64 (Marsaglia, 2003)
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

// One operation, without the lock.
static void perform(struct lane * lane, const struct op * op) {
    const uint64_t wait_us = lane->delay_us ? next_random(&lane->random) % (2 * (uint64_t) lane->delay_us + 1) : 0;
    if (wait_us) {
        const struct timespec ts = { .tv_sec = (time_t) (wait_us / 1000000), .tv_nsec = (long) (wait_us % 1000000) * 1000 };
        nanosleep(&ts, NULL);
    }
    if (op->kind == OP_COPY) {
        memcpy(op->dst, op->src, op->size);
    } else if (op->kind == OP_SET) {
        memset(op->dst, op->value, op->size);
    } else if (op->kind == OP_WORK) {
        op->work(op->arg);
    }
}

// Takes operations off a lane until the end; what is queued by then still runs.
static void run(struct thread_transport * t, struct lane * lane) {
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (lane->count == 0 && !t->stop) {
            pthread_cond_wait(&t->work, &t->lock);
        }
        if (lane->count == 0) {
            break;
        }
        const struct op op = lane->queue[lane->head];
        lane->head = (lane->head + 1) % lane->capacity;
        lane->count--;
        if (op.kind == OP_WAIT) {
            while (t->lanes[op.until.lane].n_done < op.until.number) {
                pthread_cond_wait(&t->done, &t->lock);
            }
        } else {
            pthread_mutex_unlock(&t->lock);
            perform(lane, &op);
            pthread_mutex_lock(&t->lock);
        }
        lane->n_done++;
        pthread_cond_broadcast(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
}

static void * run_copies(void * arg) {
    run(arg, &TT(arg)->lanes[COPIES]);
    return NULL;
}

static void * run_compute(void * arg) {
    run(arg, &TT(arg)->lanes[COMPUTE]);
    return NULL;
}

static int push(struct thread_transport * t, int which, struct op op) {
    struct lane * lane = &t->lanes[which];
    int result = 0;
    pthread_mutex_lock(&t->lock);
    if (lane->count == lane->capacity) {
        const size_t capacity = lane->capacity * 2;
        struct op * queue = malloc(capacity * sizeof *queue);
        if (queue) {
            for (size_t i = 0; i < lane->count; i++) {
                queue[i] = lane->queue[(lane->head + i) % lane->capacity];
            }
            free(lane->queue);
            lane->queue    = queue;
            lane->capacity = capacity;
            lane->head     = 0;
        } else {
            result = -1;
        }
    }
    if (result == 0) {
        lane->queue[(lane->head + lane->count) % lane->capacity] = op;
        lane->count++;
        lane->n_queued++;
        pthread_cond_broadcast(&t->work);
    }
    pthread_mutex_unlock(&t->lock);
    return result;
}

static int tt_copy(struct st_transport * base, void * dst, const void * src, size_t size) {
    return push(TT(base), COPIES, (struct op) { .kind = OP_COPY, .dst = dst, .src = src, .size = size });
}

static int tt_set(struct st_transport * base, void * dst, unsigned char value, size_t size) {
    return push(TT(base), COPIES, (struct op) { .kind = OP_SET, .dst = dst, .value = value, .size = size });
}

static void * tt_event_new(struct st_transport * base) {
    (void) base;
    return calloc(1, sizeof(struct event));
}

static void tt_event_free(struct st_transport * base, void * event) {
    (void) base;
    free(event);
}

static struct event now(struct thread_transport * t, int lane) {
    pthread_mutex_lock(&t->lock);
    const struct event e = { lane, t->lanes[lane].n_queued };
    pthread_mutex_unlock(&t->lock);
    return e;
}

static int tt_record(struct st_transport * base, void * event) {
    *(struct event *) event = now(TT(base), COPIES);
    return 0;
}

static int tt_mark(struct st_transport * base, void * compute, void * event) {
    (void) compute;
    *(struct event *) event = now(TT(base), COMPUTE);
    return 0;
}

static int tt_query(struct st_transport * base, void * event) {
    struct thread_transport * t = TT(base);
    const struct event * e = event;
    pthread_mutex_lock(&t->lock);
    const int done = t->lanes[e->lane].n_done >= e->number;
    pthread_mutex_unlock(&t->lock);
    return done;
}

static int tt_wait(struct st_transport * base, void * event) {
    struct thread_transport * t = TT(base);
    const struct event * e = event;
    pthread_mutex_lock(&t->lock);
    while (t->lanes[e->lane].n_done < e->number) {
        pthread_cond_wait(&t->done, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return 0;
}

// Without a compute thread "later work" begins when the caller goes on.
static int tt_compute_waits(struct st_transport * base, void * compute, void * event) {
    (void) compute;
    if (!TT(base)->lanes[COMPUTE].running) {
        return tt_wait(base, event);
    }
    return push(TT(base), COMPUTE, (struct op) { .kind = OP_WAIT, .until = *(struct event *) event });
}

// ... and for the same reason everything that was queued on it is done.
static int tt_copies_after(struct st_transport * base, void * event) {
    const struct event until = *(struct event *) event;
    if (until.lane == COMPUTE && !TT(base)->lanes[COMPUTE].running) {
        return 0;
    }
    return push(TT(base), COPIES, (struct op) { .kind = OP_WAIT, .until = until });
}

static int tt_copies_wait(struct st_transport * base, void * compute) {
    struct event e;
    (void) tt_mark(base, compute, &e);
    return tt_copies_after(base, &e);
}

static int tt_post(struct st_transport * base, void (*work)(void * arg), void * arg) {
    return push(TT(base), COMPUTE, (struct op) { .kind = OP_WORK, .work = work, .arg = arg });
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
    struct thread_transport * t = TT(base);
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < LANES; i++) {
        if (t->lanes[i].running) {
            pthread_join(t->lanes[i].thread, NULL);
        }
        free(t->lanes[i].queue);
    }
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

#define CALLS                                                                                                                       \
    .name = "copier thread", .can_pin = false, .copy = tt_copy, .move = tt_copy, .set = tt_set, .event_new = tt_event_new,           \
    .event_free = tt_event_free, .record = tt_record, .query = tt_query, .wait = tt_wait, .compute_waits = tt_compute_waits,         \
    .copies_wait = tt_copies_wait, .mark = tt_mark, .copies_after = tt_copies_after, .memory_new = tt_memory_new,                    \
    .memory_free = tt_memory_free, .free = tt_free

static const struct st_transport_i thread_iface  = { CALLS };
static const struct st_transport_i posting_iface = { CALLS, .post = tt_post };

struct st_transport * st_transport_thread_new(uint32_t delay_us, uint32_t compute_delay_us, uint64_t seed) {
    struct thread_transport * t = calloc(1, sizeof *t);
    if (!t) {
        return NULL;
    }
    t->base.iface = compute_delay_us ? &posting_iface : &thread_iface;
    if (pthread_mutex_init(&t->lock, NULL) != 0) {
        free(t);
        return NULL;
    }
    if (pthread_cond_init(&t->work, NULL) != 0) {
        pthread_mutex_destroy(&t->lock);
        free(t);
        return NULL;
    }
    if (pthread_cond_init(&t->done, NULL) != 0) {
        pthread_cond_destroy(&t->work);
        pthread_mutex_destroy(&t->lock);
        free(t);
        return NULL;
    }
    for (int i = 0; i < LANES; i++) {
        struct lane * lane = &t->lanes[i];
        lane->delay_us = i == COPIES ? delay_us : compute_delay_us;
        lane->random   = (seed + (uint64_t) i) * UINT64_C(0x9E3779B97F4A7C15) + 1;
        lane->random   = lane->random ? lane->random : 1;
        if (i == COMPUTE && !compute_delay_us) {
            continue;
        }
        lane->capacity = 64;
        lane->queue    = malloc(lane->capacity * sizeof *lane->queue);
        lane->running  = lane->queue && pthread_create(&lane->thread, NULL, i == COPIES ? run_copies : run_compute, t) == 0;
        if (!lane->running) {
            tt_free(&t->base);
            return NULL;
        }
    }
    return &t->base;
}
