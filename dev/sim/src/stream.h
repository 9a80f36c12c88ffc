// Streams as lazy queues: an operation runs when the host waits for it, and not before.
#pragma once
#include <functional>

#include "cusim/runtime.h"

namespace cusim {
// Appends work to a stream (or to the graph that it captures). `peers`: the work waits for other
// processes, so it must get to run even if this host never waits for it.
void stream_enqueue(cudaStream_t stream, const char* what, std::function<void()> work,
                    bool peers = false);
}  // namespace cusim
