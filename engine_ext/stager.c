#include "stager.h"

#include <assert.h>

// Takes a piece off the queue; the lock is held.
static struct st_job * take(struct st_stager * s, int * piece) {
    struct st_job * job = s->todo_head;
    if (!job) {
        return NULL;
    }
    *piece = job->next_piece++;
    if (job->next_piece == job->n_pieces) {
        s->todo_head = job->next;
        if (!s->todo_head) {
            s->todo_tail = NULL;
        }
        job->next = NULL;
    }
    return job;
}

// Accounts for a filled piece; the lock is held.
static void finish(struct st_stager * s, struct st_job * job, int result) {
    if (result < 0) {
        job->failed = true;
    }
    if (--job->left > 0) {
        return;
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
        struct st_job * job = index < s->n_active ? take(s, &piece) : NULL;
        if (!job) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        const int result = s->fill(s->fill_ctx, job, piece);
        pthread_mutex_lock(&s->lock);
        finish(s, job, result);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int st_stager_init(struct st_stager * s, st_fill_fn fill, void * ctx) {
    *s = (struct st_stager) { .fill = fill, .fill_ctx = ctx };
    if (pthread_mutex_init(&s->lock, NULL) != 0) {
        return -1;
    }
    if (pthread_cond_init(&s->work, NULL) != 0) {
        pthread_mutex_destroy(&s->lock);
        return -1;
    }
    if (pthread_cond_init(&s->done, NULL) != 0) {
        pthread_cond_destroy(&s->work);
        pthread_mutex_destroy(&s->lock);
        return -1;
    }
    return 0;
}

void st_stager_free(struct st_stager * s) {
    pthread_mutex_lock(&s->lock);
    assert(s->n_open == 0);
    s->stop = true;
    const int n = s->n_threads;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < n; i++) {
        pthread_join(s->threads[i], NULL);
    }
    pthread_cond_destroy(&s->done);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
}

int st_stager_set_threads(struct st_stager * s, int n) {
    n = n < 0 ? 0 : n > ST_STAGER_MAX_THREADS ? ST_STAGER_MAX_THREADS : n;
    pthread_mutex_lock(&s->lock);
    while (s->n_threads < n) {
        const int before = s->n_threads;
        if (pthread_create(&s->threads[before], NULL, run, s) != 0) {
            break;
        }
        while (s->n_threads == before) {  // the thread numbers itself, so that it knows whether it takes part
            pthread_cond_wait(&s->done, &s->lock);
        }
    }
    s->n_active = n < s->n_threads ? n : s->n_threads;
    const int active = s->n_active;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    return active;
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
    if (job->n_pieces > 1 || s->n_open > 1) {
        pthread_cond_broadcast(&s->work);
    }  // a single piece is filled by the collecting thread itself: waking another costs more than the fill
    pthread_mutex_unlock(&s->lock);
}

struct st_job * st_stager_collect(struct st_stager * s) {
    pthread_mutex_lock(&s->lock);
    if (s->n_open == 0) {
        pthread_mutex_unlock(&s->lock);
        return NULL;
    }
    while (!s->done_head) {
        int piece;
        struct st_job * job = take(s, &piece);
        if (!job) {
            pthread_cond_wait(&s->done, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        const int result = s->fill(s->fill_ctx, job, piece);
        pthread_mutex_lock(&s->lock);
        finish(s, job, result);
    }
    struct st_job * job = s->done_head;
    s->done_head = job->next;
    if (!s->done_head) {
        s->done_tail = NULL;
    }
    job->next = NULL;
    s->n_open--;
    pthread_mutex_unlock(&s->lock);
    return job;
}

int st_stager_open(struct st_stager * s) {
    pthread_mutex_lock(&s->lock);
    const int n = s->n_open;
    pthread_mutex_unlock(&s->lock);
    return n;
}
