// A read-only FILE* over segments of files and memory, for llama_model_load_from_file_ptr.
//
// It shows a model's shards as one file without the experts: no byte of theirs is read, and nobody asks for
// one (device.c makes the loader pass over them). A skipped range reads as whatever is in the buffer.
#ifndef STRATA_STREAM_H
#define STRATA_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ST_STREAM_CACHE ((size_t) 1 << 20)

// A read never crosses a segment's end, so one segment per tensor keeps what is read to what is wanted.
struct st_segment {
    uint64_t length;
    uint64_t start;          // in the stream; set by st_stream_open
    const uint8_t * memory;  // owned by the stream, or NULL
    int fd;                  // -1: memory or skipped
    uint64_t file_offset;
};

struct st_stream {
    FILE * file;
    struct st_segment * segments;
    int n_segments;
    uint64_t size, position, total;  // total: without skipped ranges
    char * cache;  // ST_STREAM_CACHE bytes, holding [cache_start, cache_start + cache_size) of the stream
    uint64_t cache_start, last_end;
    size_t cache_size;
    _Atomic uint64_t bytes_read, bytes_skipped;
    _Atomic bool cancelled;
    int * fds;  // owned
    int n_fds;
};

// Takes over `s->segments` and `s->fds`. Returns 0, or -1 with errno set.
int st_stream_open(struct st_stream * s);
void st_stream_close(struct st_stream * s);

#endif
