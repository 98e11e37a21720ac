// The ring: device memory through which a long batch streams experts, one unit after the other, each once.
// Pure: it sees the world through transport.h alone.
//
// A unit is what one operation reads (a slice of every expert of a layer, laid out as the file has it). Units are
// used in the order in which they were placed:
//
//   place (room, ordered behind the unit that lay there) -> copies -> arrived (event) -> use (the compute stream
//   waits for it) -> release (an event on the compute stream behind the operation that reads it)
//
// Room is given out as soon as the reader of what lies there is *queued*; that the reader has ended is waited for
// by the copy stream (WAR), not by the host. The host runs ahead of both streams by ST_RING_AHEAD units at most, so
// that a cancel ends soon.
#ifndef STRATA_RING_H
#define STRATA_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport.h"

#define ST_RING_AHEAD 6  // units that the host may be ahead of the last one that was read to its end
#define ST_RING_UNITS 8
#define ST_RING_ALIGN 128

enum st_unit_state { ST_UNIT_NONE = 0, ST_UNIT_PLACED, ST_UNIT_ARRIVED, ST_UNIT_USED, ST_UNIT_RELEASED };

struct st_unit {
    size_t at, size;
    enum st_unit_state state;
    void * arrived;  // recorded behind its copies
    void * read;     // marked behind its reader
};

struct st_ring {
    struct st_transport * transport;
    uint8_t * base;
    size_t size;
    struct st_unit units[ST_RING_UNITS];  // unit number n is units[n % ST_RING_UNITS]
    uint64_t n_placed, n_used, n_released;
    uint64_t n_ended;  // units whose reader is known to have ended
};

// 0, or -1: no events. Then st_ring_free all the same.
int st_ring_init(struct st_ring * r, struct st_transport * t);
void st_ring_free(struct st_ring * r);
// Begins a stream of units in this memory. Nothing may be under way in it.
void st_ring_begin(struct st_ring * r, void * base, size_t size);
// Room for a unit of `size` bytes (0: it lies elsewhere and only keeps its place in the order), the next in order.
// Copies queued from now on may go there. Returns 1, 0 when units that were not released are in the way (or it is
// too large), -1 when the transport failed. May wait for the reader of an earlier unit.
int st_ring_place(struct st_ring * r, size_t size);
uint8_t * st_ring_placed(const struct st_ring * r);  // where the last placed unit lies
// All copies of the last placed unit are queued. 0 or -1.
int st_ring_arrived(struct st_ring * r);
// The compute stream waits for the next unit; `*data` is where it lies. 0 or -1.
int st_ring_use(struct st_ring * r, void * compute, uint8_t ** data);
// What reads the unit used last is queued. 0 or -1.
int st_ring_release(struct st_ring * r, void * compute);

#endif
