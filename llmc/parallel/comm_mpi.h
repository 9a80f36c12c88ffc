// llmc/parallel/comm_mpi.h: this process as one of many that mpirun or srun has started.
//
// A build without MPI has the same functions: a process started alone is the world of one rank, and
// one of many is refused.
#pragma once
#include <memory>
#include <string>

#include "llmc/parallel/comm.h"

// How many processes the launcher says it has started, by its environment variables; 0: there was
// no launcher. `get` is std::getenv, or a test's own.
int launched_processes(const std::function<const char*(const char*)>& get);

class MpiSession {
  public:
    // Null when no launcher has started this process: MPI is then left alone, since to start it
    // takes a while and can fail on machines that have it but do not use it.
    static std::unique_ptr<MpiSession> start();
    ~MpiSession();  // collective

    int rank = 0, size = 1;
    int local_rank = 0, local_size = 1;  // among the ranks that share memory with this one
    int hosts = 1;
    bool first_host = true;     // that of rank 0
    std::string library;        // "Open MPI v4.1.4"
    bool many_threads = false;  // several may call MPI at the same time

    // Zeroed memory of all ranks of this host, at an address of each one's own. Collective there.
    void* shared_memory(size_t bytes);
    void host_barrier();
    // All ranks, by the library's collectives.
    std::unique_ptr<Comm> comm();
    // Among the first ranks of several hosts, called again and again by one thread of each: the age
    // of this host's progress in seconds goes out, and the least age of all hosts comes back, or -1
    // as long as not all have answered. Always -1 where MPI may not be called by several threads.
    double beat(double age);
    // Ends all ranks everywhere.
    [[noreturn]] void abort(int code);

  private:
    MpiSession() = default;
    bool beats_end();
    struct Handles;
    std::unique_ptr<Handles> handles_;
};
