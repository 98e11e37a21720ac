// Reading a real file in every way, with interrupted, short and unsupported reads (linked with --wrap), from the page
// cache and, where this file system lets its pages go, from the disk.
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "check.h"
#include "source.h"

#define SIZE ((size_t) 3 * 1024 * 1024 + 1234)
#define PAGE ((size_t) 4096)
#define MOST ((size_t) 300 * 1024)
#define READERS 4

static uint64_t rng;
static uint8_t * content;
static char path[4096];
static void * map;  // of the file, never touched

// ---- the system's calls

static _Atomic bool unsupported;  // RWF_NOWAIT
static _Atomic int trouble;       // one in so many calls is interrupted or short; 0: none
static _Atomic uint64_t n_calls;
static _Atomic int n_reads;       // that may wait

ssize_t __real_pread(int fd, void * dst, size_t size, off_t at);
ssize_t __real_preadv2(int fd, const struct iovec * io, int n, off_t at, int flags);
ssize_t __wrap_pread(int fd, void * dst, size_t size, off_t at);
ssize_t __wrap_preadv2(int fd, const struct iovec * io, int n, off_t at, int flags);

// 0: as it is, 1: interrupted, 2: short
static int chance(void) {
    const int one = atomic_load(&trouble);
    const uint64_t x = mix(++n_calls);
    return one == 0 || x % (uint64_t) one != 0 ? 0 : x & 1024 ? 1 : 2;
}

ssize_t __wrap_pread(int fd, void * dst, size_t size, off_t at) {
    const int what = chance();
    n_reads++;
    if (what == 1) {
        errno = EINTR;
        return -1;
    }
    return __real_pread(fd, dst, what == 2 && size > 2 * PAGE ? size / 2 / PAGE * PAGE : size, at);
}

ssize_t __wrap_preadv2(int fd, const struct iovec * io, int n, off_t at, int flags) {
    CHECK("source-asks with RWF_NOWAIT", flags == RWF_NOWAIT && n == 1);
    if (unsupported) {
        errno = EOPNOTSUPP;
        return -1;
    }
    const int what = chance();
    if (what == 1) {
        errno = EINTR;
        return -1;
    }
    const struct iovec part = { io->iov_base, what == 2 && io->iov_len > 2 ? io->iov_len / 2 : io->iov_len };
    return __real_preadv2(fd, &part, 1, at, flags);
}

// ---- the file

static void make_file(const char * program) {
    char folder[4000];
    snprintf(folder, sizeof folder, "%s", program);
    snprintf(path, sizeof path, "%s/source-%d", dirname(folder), (int) getpid());
    content = malloc(SIZE);
    CHECK("source-world", content);
    for (size_t i = 0; i < SIZE; i++) {
        content[i] = (uint8_t) mix(i / 3);
    }
    const int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    CHECK("source-world", fd >= 0 && write(fd, content, SIZE) == (ssize_t) SIZE && fsync(fd) == 0 && close(fd) == 0);
    const int file = open(path, O_RDONLY);
    map            = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0);
    CHECK("source-world", file >= 0 && map != MAP_FAILED && close(file) == 0);
}

// Pages of a part of the file that are in the page cache. (mincore tells the truth of a file of one's own, and
// asks for nothing.)
static int cached_pages(uint64_t at, size_t size) {
    static unsigned char in[SIZE / PAGE + 1];
    int n = 0;
    CHECK("source-world", mincore(map, SIZE, in) == 0);
    for (uint64_t page = at / PAGE; page <= (at + size - 1) / PAGE; page++) {
        n += in[page] & 1;
    }
    return n;
}

// False where the system keeps pages.
static bool drop(const struct st_source * s) {
    for (int i = 0; i < 100; i++) {  // a page that is being read stays
        CHECK("source-world", posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
        if (cached_pages(0, SIZE) == 0) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

static void check_bytes(const uint8_t * got, uint64_t at, size_t size) {
    CHECK("source-bytes", memcmp(got, content + at, size) == 0);
    CHECK("source-no byte more", got[size] == 0xA5);
}

static struct st_read read_once(struct st_source * s, uint64_t at, size_t size, unsigned how) {
    uint8_t * buffer = malloc(MOST + 1);
    CHECK("source-world", buffer);
    memset(buffer, 0xA5, MOST + 1);
    struct st_read got;
    CHECK("source-reads", st_source_read(s, at, size, buffer, how, &got) == 0);
    check_bytes(buffer, at, size);
    CHECK("source-asked only when told", how & ST_ASK ? got.cached >= 0 : got.cached == -1);
    CHECK("source-direct only when told", got.bytes_direct <= (how & ST_DIRECT ? size : 0));
    CHECK("source-a yes costs nothing", got.cached != 1 || got.ask_ns == 0 || s->silent);
    free(buffer);
    return got;
}

static void any_read(struct st_source * s, uint64_t * random) {
    const size_t size = one_in(random, 4) ? 1 + (size_t) below(random, 20) : 1 + (size_t) below(random, (int) MOST);
    const uint64_t at = one_in(random, 4) ? SIZE - size : draw(random) % (SIZE - size);
    (void) read_once(s, at, size, (unsigned) below(random, 4));
    if (one_in(random, 30)) {
        (void) posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
}

static struct st_source shared;

static void * reader(void * arg) {
    uint64_t random = mix((uint64_t) (uintptr_t) arg + check_args.seed);
    for (uint64_t i = 0; i < check_args.steps / READERS; i++) {
        any_read(&shared, &random);
    }
    return NULL;
}

// ---- where the bytes are

// A read that was interrupted for long counts as one that waited, so not each is.
static bool mostly_cached(struct st_source * s, uint64_t at, size_t size, unsigned how) {
    int yes = 0;
    for (int i = 0; i < 20; i++) {
        const struct st_read got = read_once(s, at, size, how);
        CHECK("source-what is cached is not read past it", got.bytes_direct == 0);
        yes += got.cached == 1;
    }
    return yes >= 10;
}

static void where_bytes_are(void) {
    const size_t size = 256 * 1024;
    const uint64_t at = 12345;
    struct st_source s;
    CHECK("source-opens", st_source_open(&s, path) == 0 && s.size == SIZE);
    (void) read_once(&s, 0, MOST, 0);
    if (!drop(&s)) {
        printf("ok: pages cannot be dropped here, ");
        st_source_close(&s);
        return;
    }
    drop(&s);
    struct st_read got = read_once(&s, at, size, ST_ASK);
    CHECK("source-the disk's bytes are not cached", got.cached == 0 && got.ask_ns > 0);
    n_reads = 0;
    CHECK("source-what was read is cached", mostly_cached(&s, at, size, ST_ASK) && n_reads == 0);
    drop(&s);
    (void) read_once(&s, at, size / 2, 0);
    CHECK("source-half is not all", read_once(&s, at, size, ST_ASK).cached == 0);

    if (s.direct >= 0) {
        for (unsigned how = ST_DIRECT; how <= (ST_DIRECT | ST_ASK); how++) {
            int cached = INT_MAX;
            for (int i = 0; i < 5 && cached >= 12; i++) {  // the system may still read ahead for the read before
                drop(&s);
                got = read_once(&s, at, size, how);
                CHECK("source-past the page cache", got.bytes_direct == size);
                cached = cached_pages(at, size);
            }
            CHECK("source-what is read past the page cache stays out of it", cached < 12);
        }
        drop(&s);
        (void) read_once(&s, at, size, 0);
        CHECK("source-what is cached is taken from there", mostly_cached(&s, at, size, ST_DIRECT | ST_ASK));
    }
    unsupported = true;
    drop(&s);
    got = read_once(&s, at, size, ST_ASK);
    CHECK("source-where nobody says, waiting tells", got.cached == 0 && s.silent);
    CHECK("source-where nobody says, not waiting tells", mostly_cached(&s, at, size, ST_ASK));
    CHECK("source-an answer that is none", st_source_ask(&s, at) == -1);
    unsupported = false;
    st_source_close(&s);
}

static void shorter(void) {
    struct st_source s;
    uint8_t byte[64];
    struct st_read got;
    CHECK("source-opens", st_source_open(&s, path) == 0);
    CHECK("source-world", truncate(path, (off_t) (SIZE / 2)) == 0);
    for (unsigned how = 0; how < 4; how++) {
        CHECK("source-a file that became shorter is an error", st_source_read(&s, SIZE / 2 - 10, 64, byte, how, &got) == -1);
        CHECK("source-reads", st_source_read(&s, SIZE / 2 - 64, 64, byte, how, &got) == 0 && memcmp(byte, content + SIZE / 2 - 64, 64) == 0);
    }
    st_source_close(&s);
    CHECK("source-closed twice", (st_source_close(&s), s.fd == -1 && s.direct == -1));
    CHECK("source-no file is an error", st_source_open(&s, "/no/such/file") == -1 && errno == ENOENT);
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng = check_args.seed;
    make_file(argv[0]);
    where_bytes_are();
    for (int kind = 0; kind < 2; kind++) {
        unsupported = kind == 1;
        trouble     = 5;
        CHECK("source-opens", st_source_open(&shared, path) == 0);
        pthread_t threads[READERS];
        for (int i = 0; i < READERS; i++) {
            CHECK("source-world", pthread_create(&threads[i], NULL, reader, (void *) (uintptr_t) (i + 1 + 10 * kind)) == 0);
        }
        for (int i = 0; i < READERS; i++) {
            pthread_join(threads[i], NULL);
        }
        st_source_close(&shared);
        unsupported = false;
        trouble     = 0;
    }
    shorter();
    unlink(path);
    free(content);
    printf("ok: %llu steps\n", (unsigned long long) check_args.steps);
    return 0;
}
