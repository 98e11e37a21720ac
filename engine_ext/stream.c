#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct st_segment * find(const struct st_stream * s, uint64_t position) {
    int low = 0, high = s->n_segments - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (s->segments[middle].start <= position) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return &s->segments[low];
}

// Reads up to `size` bytes of a file segment at `within`, through the cache when the reader goes on where it
// left off. Never crosses the segment's end: behind it may lie bytes that nobody wants.
static ssize_t read_file(struct st_stream * s, const struct st_segment * g, uint64_t within, char * out, size_t size) {
    const uint64_t left = g->length - within;
    size = size < left ? size : (size_t) left;
    if (s->position < s->cache_start || s->position >= s->cache_start + s->cache_size) {
        const bool goes_on = s->position == s->last_end;
        char * into        = goes_on ? s->cache : out;
        size_t n           = goes_on ? (left < ST_STREAM_CACHE ? (size_t) left : ST_STREAM_CACHE) : size;
        ssize_t r;
        do {
            r = pread(g->fd, into, n, (off_t) (g->file_offset + within));
        } while (r < 0 && errno == EINTR);
        if (r <= 0) {
            errno = r == 0 ? EIO : errno;  // 0: the file became shorter
            return -1;
        }
        atomic_fetch_add_explicit(&s->bytes_read, (uint64_t) r, memory_order_relaxed);
        if (!goes_on) {
            return r;
        }
        s->cache_start = s->position;
        s->cache_size  = (size_t) r;
    }
    const size_t at = (size_t) (s->position - s->cache_start);
    size = size < s->cache_size - at ? size : s->cache_size - at;
    memcpy(out, s->cache + at, size);
    return (ssize_t) size;
}

// One piece of one segment per call: progress and cancel act at each.
static ssize_t stream_read(void * cookie, char * out, size_t size) {
    struct st_stream * s = cookie;
    if (atomic_load_explicit(&s->cancelled, memory_order_relaxed)) {
        errno = ECANCELED;
        return -1;
    }
    if (s->position >= s->size || size == 0) {
        return 0;
    }
    const struct st_segment * g = find(s, s->position);
    const uint64_t within = s->position - g->start;
    const uint64_t left   = g->length - within;
    ssize_t n = (ssize_t) (size < left ? size : left);
    if (g->memory) {
        memcpy(out, g->memory + within, (size_t) n);
    } else if (g->fd < 0) {
        atomic_fetch_add_explicit(&s->bytes_skipped, (uint64_t) n, memory_order_relaxed);
    } else {
        n = read_file(s, g, within, out, size);
    }
    if (n > 0) {
        s->position += (uint64_t) n;
        s->last_end = s->position;
    }
    return n;
}

static int stream_seek(void * cookie, off64_t * offset, int whence) {
    struct st_stream * s = cookie;
    int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (int64_t) s->position : (int64_t) s->size;
    if (*offset < -base || (*offset > 0 && *offset > INT64_MAX - base)) {
        errno = EINVAL;
        return -1;
    }
    s->position = (uint64_t) (base + *offset);
    *offset     = (off64_t) s->position;
    return 0;
}

int st_stream_open(struct st_stream * s) {
    for (int i = 0; i < s->n_segments; i++) {
        if (s->segments[i].length > (uint64_t) INT64_MAX - s->size) {
            errno = EOVERFLOW;
            return -1;
        }
        s->segments[i].start = s->size;
        s->size += s->segments[i].length;
        if (s->segments[i].fd >= 0) {
            s->total += s->segments[i].length;
        }
    }
    for (int i = 0; i < s->n_fds; i++) {
        // Read-ahead would read into the experts behind each tensor. (Advice: nothing depends on it.)
        (void) posix_fadvise(s->fds[i], 0, 0, POSIX_FADV_RANDOM);
    }
    const cookie_io_functions_t io = { .read = stream_read, .seek = stream_seek };
    s->file = fopencookie(s, "r", io);
    if (!s->file) {
        return -1;
    }
    // A small buffer: the C library fills it from a rounded-down offset after each seek, and copies through it
    // (without one it would ask for single bytes). Large reads are our cache's business.
    s->cache = malloc(ST_STREAM_CACHE);
    return s->cache && setvbuf(s->file, NULL, _IOFBF, 4096) == 0 ? 0 : -1;
}

void st_stream_close(struct st_stream * s) {
    if (s->file) {
        fclose(s->file);
        s->file = NULL;
    }
    free(s->cache);
    s->cache = NULL;
    for (int i = 0; i < s->n_segments; i++) {
        free((void *) s->segments[i].memory);
    }
    free(s->segments);
    s->segments   = NULL;
    s->n_segments = 0;
    for (int i = 0; i < s->n_fds; i++) {
        close(s->fds[i]);
    }
    free(s->fds);
    s->fds   = NULL;
    s->n_fds = 0;
}
