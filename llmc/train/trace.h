// llmc/train/trace.h: --trace FILE: one timeline of all ranks, in the trace event format of Chrome,
// which https://ui.perfetto.dev opens. A process is a rank; its threads are the one that trains,
// the one that sends, with --async-save the one that saves, and on a GPU the two streams, with the
// times at which the GPU did what the first thread had queued.
//
// A run that ends with an error ends without collectives: then each rank that still can writes its
// own part, rank 0 to FILE and rank N to FILE.N. So does one that hangs, by its watchdog.
#pragma once
#include <string>

#include "llmc/parallel/comm.h"
#include "llmc/parallel/watchdog.h"

class Trace {
  public:
    // Collective. All ranks agree on time 0; on several hosts to within a barrier. A file that
    // cannot be written is refused. An empty path: no timeline.
    Trace(const std::string& path, Comm& comm, Watchdog& watchdog);
    ~Trace();  // without write() before: this rank's part
    Trace(const Trace&) = delete;
    Trace& operator=(const Trace&) = delete;
    // Collective: rank 0 writes the file, one rank's part after the other as they come. If it
    // cannot any more, that is a warning: the run is done.
    void write();

  private:
    const std::string path_;
    Comm& comm_;
};
