// A file that experts are read from, and the question where its bytes are: in the page cache or on the disk.
// Pure: it knows files and nothing else.
//
// The bytes themselves are asked: a read that may not wait (RWF_NOWAIT) brings what is in the page cache and stops
// where it would have to wait for the disk. So asking costs nothing where the answer is yes, for the read is done
// then. (mincore calls every page of another user's file resident, and a mapping would end the process when the
// file is cut short.)
#ifndef STRATA_SOURCE_H
#define STRATA_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct st_source {
    int fd;      // without read-ahead: what is read is a piece of an expert, and the next one lies elsewhere
    int direct;  // past the page cache; -1: this file system does not offer it
    size_t size;
    bool rotational;      // what the system says of the disk (it says so of many virtual ones, too)
    _Atomic bool silent;  // this file system does not say what the page cache holds
};

enum st_how {
    ST_ASK    = 1,  // read what is in the page cache first, and tell
    ST_DIRECT = 2,  // read what is not in it past it, so that what is in it stays
};

struct st_read {  // what one read found out
    int cached;   // 1: all of it was in the page cache; 0: not all; -1: not asked
    uint64_t ask_ns;       // spent on asking where the answer was no
    uint64_t bytes_direct; // read past the page cache
};

int st_source_open(struct st_source * s, const char * path);  // 0, or -1 with errno
void st_source_close(struct st_source * s);
// Reads `size` bytes at `at` into `dst`. 0, or -1: an error, or the file became shorter. Any thread.
int st_source_read(struct st_source * s, uint64_t at, size_t size, void * dst, unsigned how, struct st_read * out);
// Whether the page at `at` is in the page cache: 1, 0, or -1 when the system does not tell. (Some kernels begin to
// read the page then, so the same one must not be asked twice.)
int st_source_ask(struct st_source * s, uint64_t at);

#endif
