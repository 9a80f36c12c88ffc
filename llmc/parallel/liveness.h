// llmc/parallel/liveness.h: signs of life for the watchdog, from whoever achieves something.
//
// A layer computed, a piece of a file read or written, a token sampled. One look at the clock and
// one store, some 30 ns. Collectives need none of it: they are written down anyway (comm_record.h).
#pragma once
#include <cstdint>

void liveness_mark();

// Of the run: the time of its newest sign on comm_clock, and how many there were.
double liveness_last();
int64_t liveness_count();
// The same of the thread that works behind the run (comm_behind.h): while a save goes on behind it,
// a step that hangs still hangs.
double liveness_last_behind();
