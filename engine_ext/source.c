#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"

#define SLOW_NS 1000000u      // a read from the page cache takes some microseconds, even with a thread for each core ...
#define SLOW_NS_PER_BYTE 4u   // ... and this a byte at the very most
#define DIRECT_ALIGN ((size_t) 4096)  // offset, length and memory of direct reads: enough for any disk

// A partition has no queue of its own, its disk has. What has neither (a file system over several disks, or over
// the network) counts as not rotational.
static bool is_rotational(dev_t device) {
    static const char * const places[] = { "/sys/dev/block/%u:%u/queue/rotational", "/sys/dev/block/%u:%u/../queue/rotational" };
    for (int i = 0; i < 2; i++) {
        char path[96];
        snprintf(path, sizeof path, i ? places[1] : places[0], major(device), minor(device));
        FILE * f = fopen(path, "re");
        if (f) {
            const int c = fgetc(f);
            fclose(f);
            return c == '1';
        }
    }
    return false;
}

int st_source_open(struct st_source * s, const char * path) {
    *s = (struct st_source) { .fd = open(path, O_RDONLY | O_CLOEXEC), .direct = -1 };
    if (s->fd < 0) {
        return -1;
    }
    struct stat st;
    if (fstat(s->fd, &st) != 0) {
        const int why = errno;
        st_source_close(s);
        errno = why;
        return -1;
    }
    s->size       = st.st_size > 0 ? (size_t) st.st_size : 0;
    s->rotational = is_rotational(st.st_dev);
    (void) posix_fadvise(s->fd, 0, 0, POSIX_FADV_RANDOM);  // only advice
    s->direct = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    return 0;
}

void st_source_close(struct st_source * s) {
    if (s->fd >= 0) {
        close(s->fd);
    }
    if (s->direct >= 0) {
        close(s->direct);
    }
    s->fd = s->direct = -1;
}

// Up to `size` bytes that can be had without waiting. Their number; -1 and the source silent where nobody knows.
static ssize_t read_cached(struct st_source * s, uint64_t at, void * dst, size_t size) {
    struct iovec io = { dst, size };
    ssize_t n;
    do {
        n = preadv2(s->fd, &io, 1, (off_t) at, RWF_NOWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN) {
        atomic_store_explicit(&s->silent, true, memory_order_relaxed);  // a real error shows when the bytes are read
        return -1;
    }
    return n < 0 ? 0 : n;
}

static int read_plain(const struct st_source * s, uint64_t at, size_t size, uint8_t * dst) {
    while (size > 0) {
        const ssize_t n = pread(s->fd, dst, size, (off_t) at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {  // an error, or the file became shorter
            return -1;
        }
        dst += n;
        at += (uint64_t) n;
        size -= (size_t) n;
    }
    return 0;
}

// An expert lies at any offset in the file and at another one in a buffer, so the whole blocks around it are read
// beside and copied. 0, or -1 when it has to be read another way.
static int read_direct(const struct st_source * s, uint64_t at, size_t size, uint8_t * dst) {
    const uint64_t start = at / DIRECT_ALIGN * DIRECT_ALIGN;
    const size_t head    = (size_t) (at - start);
    if (s->direct < 0 || size > SIZE_MAX - head - DIRECT_ALIGN) {
        return -1;
    }
    const size_t length = (head + size + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN;
    void * blocks;
    if (posix_memalign(&blocks, DIRECT_ALIGN, length) != 0) {
        return -1;
    }
    size_t done = 0;
    while (done < head + size) {
        const ssize_t n = pread(s->direct, (uint8_t *) blocks + done, length - done, (off_t) (start + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        done += (size_t) n;
    }
    const bool whole = done >= head + size;
    if (whole) {
        memcpy(dst, (uint8_t *) blocks + head, size);
    }
    free(blocks);
    return whole ? 0 : -1;
}

static long waits(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
}

// Reads what is in the page cache, up to `size` bytes, and says whether that was all. The bytes read.
static size_t ask_and_read(struct st_source * s, uint64_t at, size_t size, uint8_t * dst, unsigned how, struct st_read * out) {
    const uint64_t begun = st_now_ns();
    ssize_t n = 1;
    if (how & ST_DIRECT) {  // what is to be read past the page cache must not be begun through it, as some kernels do when asked
        uint8_t page;
        n = read_cached(s, at + begun % size, &page, 1);
    }
    n = n == 1 ? read_cached(s, at, dst, size) : n;
    const uint64_t took = st_now_ns() - begun;
    if (n >= 0) {
        // The fill time has the last word: what took that long has waited, whatever was said.
        out->cached = (size_t) n == size && took < SLOW_NS + size * SLOW_NS_PER_BYTE;
        out->ask_ns = (size_t) n == size ? 0 : took;
    }
    return n > 0 ? (size_t) n : 0;
}

int st_source_read(struct st_source * s, uint64_t at, size_t size, void * dst, unsigned how, struct st_read * out) {
    *out = (struct st_read) { .cached = -1 };
    uint8_t * to = dst;
    if (size == 0) {
        return 0;
    }
    if (how & ST_ASK && !atomic_load_explicit(&s->silent, memory_order_relaxed)) {
        const size_t n = ask_and_read(s, at, size, to, how, out);
        to += n;
        at += n;
        size -= n;
        if (size == 0) {
            return 0;
        }
    }
    if (how & ST_ASK && out->cached < 0) {  // nobody says: whether the thread had to wait does
        const long before = waits();
        const int result  = read_plain(s, at, size, to);
        out->cached = waits() == before;
        return result;
    }
    if (how & ST_DIRECT && read_direct(s, at, size, to) == 0) {
        out->bytes_direct = size;
        return 0;
    }
    return read_plain(s, at, size, to);
}

int st_source_ask(struct st_source * s, uint64_t at) {
    char byte;
    const ssize_t n = read_cached(s, at, &byte, 1);
    return n < 0 ? -1 : n == 1;
}
