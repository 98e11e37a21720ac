// A transport for slots in RAM: one copier thread stands for the copy engine, so that the states, the
// events and their waits are as real on the CPU device as on a GPU. A seeded random delay before each copy
// makes a missing wait show.
//
// The CPU computes in the calling thread, so what was queued on its stream is always done. With `compute_delay_us`
// a second thread stands for the compute stream: posted work runs there, in order, after a random delay of its
// own, and orders both ways are real, too. That is for tests: it is what a GPU does, and slower here.
#ifndef STRATA_TRANSPORT_THREAD_H
#define STRATA_TRANSPORT_THREAD_H

#include <stdint.h>

#include "transport.h"

// The delays are means (0: none; of compute: no compute thread). NULL when memory or threads are short.
struct st_transport * st_transport_thread_new(uint32_t delay_us, uint32_t compute_delay_us, uint64_t seed);

#endif
