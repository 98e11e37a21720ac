// A transport for slots in RAM: one copier thread stands for the copy engine, so that the states, the
// events and their waits are as real on the CPU device as on a GPU. A seeded random delay before each copy
// makes a missing wait show.
#ifndef STRATA_TRANSPORT_THREAD_H
#define STRATA_TRANSPORT_THREAD_H

#include <stdint.h>

#include "transport.h"

// `delay_us` is the mean of the random delay (0: none). NULL when memory or threads are short.
struct st_transport * st_transport_thread_new(uint32_t delay_us, uint64_t seed);

#endif
