#include "stager.h"

#include <assert.h>

#include "clock.h"

// A window is long enough to tell a rate, and short enough that a prompt has many.
#define WINDOW_NS 20000000u
#define WINDOW_PIECES 64u

// Takes a piece off the queue; the lock is held.
static struct st_job * take(struct st_stager * s, int * piece) {
    struct st_job * job = s->todo_head;
    if (!job) {
        return NULL;
    }
    *piece = job->next_piece++;
    s->n_todo--;
    if (job->next_piece == job->n_pieces) {
        s->todo_head = job->next;
        if (!s->todo_head) {
            s->todo_tail = NULL;
        }
        job->next = NULL;
    }
    return job;
}

// The lock is held.
static void answer(struct st_stager * s, bool cached) {
    st_pace_answer(&s->pace, cached);
    atomic_store_explicit(&s->profile, s->pace.profile, memory_order_relaxed);
}

// Fills a piece that was taken and accounts for it; the lock is held before and after, not in between.
static void fill(struct st_stager * s, struct st_job * job, int piece) {
    pthread_mutex_unlock(&s->lock);
    struct st_filled filled = { .cached = -1 };
    const uint64_t begun = st_now_ns();
    const int result     = s->fill(s->fill_ctx, job, piece, &filled);
    const uint64_t ended = st_now_ns();
    pthread_mutex_lock(&s->lock);
    s->bytes += filled.bytes;
    s->pieces++;
    s->fill_ns += ended - begun;
    if (filled.cached >= 0) {
        answer(s, filled.cached > 0);
    }
    if (result < 0) {
        job->failed = true;
    }
    if (--job->left > 0) {
        return;
    }
    if (--s->n_unfinished == 0) {
        s->busy_ns += ended > s->busy_since ? ended - s->busy_since : 0;
    }
    job->next = NULL;
    if (s->done_tail) {
        s->done_tail->next = job;
    } else {
        s->done_head = job;
    }
    s->done_tail = job;
    pthread_cond_signal(&s->done);
}

static void * run(void * arg) {
    struct st_stager * s = arg;
    pthread_mutex_lock(&s->lock);
    const int index = s->n_threads++;  // under the lock that the creator released by waiting
    pthread_cond_broadcast(&s->done);
    while (!s->stop) {
        int piece;
        if (index >= s->n_active) {
            pthread_cond_wait(&s->parked, &s->lock);
            continue;
        }
        struct st_job * job = take(s, &piece);
        if (job) {
            fill(s, job, piece);
        } else {
            s->n_idle++;
            pthread_cond_wait(&s->work, &s->lock);
            s->n_idle--;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int st_stager_init(struct st_stager * s, st_fill_fn fill_piece, void * ctx, const struct st_pace_options * options) {
    *s = (struct st_stager) { .fill = fill_piece, .fill_ctx = ctx, .granted = ST_STAGER_MAX_THREADS, .window.at = st_now_ns() };
    st_pace_init(&s->pace, options);
    atomic_store_explicit(&s->profile, s->pace.profile, memory_order_relaxed);
    pthread_cond_t * conditions[] = { &s->work, &s->parked, &s->done };
    int n = 0;
    while (n < 3 && pthread_cond_init(conditions[n], NULL) == 0) {
        n++;
    }
    if (n == 3 && pthread_mutex_init(&s->lock, NULL) == 0) {
        return 0;
    }
    while (n > 0) {
        pthread_cond_destroy(conditions[--n]);
    }
    return -1;
}

void st_stager_free(struct st_stager * s) {
    pthread_mutex_lock(&s->lock);
    assert(s->n_open == 0);
    s->stop = true;
    const int n = s->n_threads;
    pthread_cond_broadcast(&s->work);
    pthread_cond_broadcast(&s->parked);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < n; i++) {
        pthread_join(s->threads[i], NULL);
    }
    pthread_cond_destroy(&s->done);
    pthread_cond_destroy(&s->parked);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
}

// The lock is held (and released while a thread starts).
static int change_threads(struct st_stager * s, int n) {
    n = n < 0 ? 0 : n > ST_STAGER_MAX_THREADS ? ST_STAGER_MAX_THREADS : n;
    while (s->n_threads < n) {
        const int before = s->n_threads;
        if (pthread_create(&s->threads[before], NULL, run, s) != 0) {
            break;
        }
        while (s->n_threads == before) {  // the thread numbers itself, so that it knows whether it takes part
            pthread_cond_wait(&s->done, &s->lock);
        }
    }
    const int active = n < s->n_threads ? n : s->n_threads;
    if (active != s->n_active) {
        s->n_active = active;
        pthread_cond_broadcast(&s->work);  // those that are not to take part any more go to park
        pthread_cond_broadcast(&s->parked);
    }
    return active;
}

// What was filled since the last window, or NULL while that is too little; the lock is held.
static bool window(struct st_stager * s, struct st_pace_window * w) {
    const uint64_t now = st_now_ns();
    if (s->n_unfinished > 0) {
        s->busy_ns += now - s->busy_since;
        s->busy_since = now;
    }
    *w = (struct st_pace_window) { s->bytes - s->window.bytes, s->busy_ns - s->window.busy_ns, s->waited_ns - s->window.waited_ns, now - s->window.at };
    return w->busy_ns >= WINDOW_NS && s->pieces - s->window.pieces >= WINDOW_PIECES;
}

static void begin_window(struct st_stager * s) {
    s->window.bytes     = s->bytes;
    s->window.pieces    = s->pieces;
    s->window.busy_ns   = s->busy_ns;
    s->window.waited_ns = s->waited_ns;
    s->window.at        = st_now_ns();
}

// Brings the number of threads to what the pace says; the lock is held. A window is of one number of threads.
static void follow(struct st_stager * s) {
    const int wanted = st_pace_threads(&s->pace), n = wanted < s->granted ? wanted : s->granted;
    if (n != s->n_active) {
        const int got = change_threads(s, n);
        s->granted    = got < n ? got : s->granted;
        begin_window(s);
    }
}

// The lock is held.
static void keep_pace(struct st_stager * s) {
    struct st_pace_window w;
    if (s->pace.options.wanted != ST_PROFILE_AUTO) {
        return;
    }
    if (window(s, &w)) {
        st_pace_seen(&s->pace, &w);
        begin_window(s);
    }
    follow(s);
}

int st_stager_set(struct st_stager * s, const struct st_pace_options * options) {
    pthread_mutex_lock(&s->lock);
    st_pace_set(&s->pace, options);
    atomic_store_explicit(&s->profile, s->pace.profile, memory_order_relaxed);
    s->granted       = ST_STAGER_MAX_THREADS;  // the system may have changed its mind
    const int active = change_threads(s, st_pace_threads(&s->pace));
    begin_window(s);
    pthread_mutex_unlock(&s->lock);
    return active;
}

void st_stager_sampled(struct st_stager * s, int n, int cached) {
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < n; i++) {
        answer(s, i < cached);
    }
    follow(s);
    begin_window(s);  // nobody waited in the pause before
    pthread_mutex_unlock(&s->lock);
}

void st_stager_submit(struct st_stager * s, struct st_job * job) {
    assert(job->n_pieces > 0);
    pthread_mutex_lock(&s->lock);
    job->next_piece = 0;
    job->left       = job->n_pieces;
    job->failed     = false;
    job->next       = NULL;
    if (s->todo_tail) {
        s->todo_tail->next = job;
    } else {
        s->todo_head = job;
    }
    s->todo_tail = job;
    s->n_open++;
    if (s->n_unfinished++ == 0) {
        s->busy_since = st_now_ns();
    }
    s->n_todo += job->n_pieces;
    // A thread for each piece, but for one where only this job is open: the collecting thread fills that itself,
    // and waking another one costs more than a single fill.
    int n = s->n_todo - (s->n_open == 1);
    n     = n < s->n_idle ? n : s->n_idle;
    for (; n > 0; n--) {
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
}

// The lock is held, and a job is done.
static struct st_job * take_done(struct st_stager * s) {
    struct st_job * job = s->done_head;
    s->done_head = job->next;
    if (!s->done_head) {
        s->done_tail = NULL;
    }
    job->next = NULL;
    s->n_open--;
    return job;
}

struct st_job * st_stager_collect(struct st_stager * s) {
    pthread_mutex_lock(&s->lock);
    if (s->n_open == 0) {
        pthread_mutex_unlock(&s->lock);
        return NULL;
    }
    const uint64_t begun = s->done_head ? 0 : st_now_ns();
    while (!s->done_head) {
        int piece;
        struct st_job * job = take(s, &piece);
        if (job) {
            fill(s, job, piece);
        } else {
            pthread_cond_wait(&s->done, &s->lock);
        }
    }
    s->waited_ns += begun ? st_now_ns() - begun : 0;
    struct st_job * job = take_done(s);
    keep_pace(s);
    pthread_mutex_unlock(&s->lock);
    return job;
}

struct st_job * st_stager_poll(struct st_stager * s) {
    pthread_mutex_lock(&s->lock);
    struct st_job * job = s->done_head ? take_done(s) : NULL;
    if (job) {
        keep_pace(s);
    }
    pthread_mutex_unlock(&s->lock);
    return job;
}

int st_stager_open(struct st_stager * s) {
    pthread_mutex_lock(&s->lock);
    const int n = s->n_open;
    pthread_mutex_unlock(&s->lock);
    return n;
}

enum st_profile st_stager_profile(struct st_stager * s) {
    return (enum st_profile) atomic_load_explicit(&s->profile, memory_order_relaxed);
}

void st_stager_report(struct st_stager * s, struct st_stager_report * report) {
    pthread_mutex_lock(&s->lock);
    *report = (struct st_stager_report) { s->pace, s->n_active, s->bytes, s->pieces, s->fill_ns, s->waited_ns };
    pthread_mutex_unlock(&s->lock);
}
