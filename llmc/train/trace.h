// llmc/train/trace.h: --trace FILE: one timeline of all ranks, in the trace event format of Chrome,
// which https://ui.perfetto.dev opens. A process is a rank; its threads are the one that trains, the
// one that sends and, with --async-save, the one that saves.
#pragma once
#include <string>

#include "llmc/parallel/comm.h"

// Collective. All ranks agree on time 0; on several hosts to within a barrier.
void trace_start(const std::string& path, Comm& comm);
// Collective: rank 0 writes the file. A file that cannot be written is a warning: the run is done.
void trace_write(const std::string& path, Comm& comm);
