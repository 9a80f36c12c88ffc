// llmc/parallel/world.h: my place among the ranks, and how ranks end together.
//
// The grid has three axes: dp (data parallel: the same model, other micro-batches), tp and pp
// (tensor and pipeline parallel: reserved, of size 1). mpirun or srun starts one process a GPU or a
// part of the cores; started without them, or built without MPI, the world is one rank.
#pragma once
#include <memory>
#include <string>

#include "llmc/parallel/comm.h"
#include "llmc/parallel/comm_mpi.h"
#include "llmc/parallel/comm_shared.h"

struct World {
    int rank = 0, size = 1;              // of all
    int local_rank = 0, local_size = 1;  // on this host; a rank's GPU is that of its local rank
    double cores = 0;  // of this rank; those that several ranks may run on are divided among them
    std::string host = "localhost";
    std::unique_ptr<MpiSession> mpi;   // null: one process
    std::unique_ptr<Comm> dp, tp, pp;  // the axes
    std::unique_ptr<Comm> background;  // dp once more, for one thread besides the main one
    SharedStatus* status = nullptr;    // of the ranks on this host
    std::unique_ptr<Comm> library;     // dp by the library's collectives, where dp is not that
    std::unique_ptr<Comm> gpus;        // dp once more, between GPUs; by world_dp

    World() = default;
    World(World&&) = default;
    World& operator=(World&&) = default;
    ~World();
};

// Collective over all processes that the launcher has started. Threads that MPI starts leave
// SIGTERM, SIGINT and SIGUSR1 to the main thread. Divides the cores among the ranks of a host, as
// far as the launcher lets them share cores, unless OMP_NUM_THREADS says otherwise. MPI waits for
// processes that ended before they came to it; after `limit` seconds this process says so and ends
// with code 6.
World world_init(double limit);

// dp for memory that this stream works on; for GPUs, which must be in use, they are introduced to
// each other at the first call, a collective one.
Comm& world_dp(World& world, CpuStream s);
Comm& world_dp(World& world, CudaStream s);

// "[rank 3/8 host] ", what every message on stderr starts with.
std::string world_prefix(const World& world);

double cores_of_rank(const SharedStatus& status, int rank, int ranks);

// For the table of what will run: ranks, hosts, library, and how ranks of a host talk.
std::string world_text(const World& world);

// Says why this rank has failed, unless a lower one says the same (an error that all ranks met),
// and lets the others know, so that nobody waits for it: whoever waits in a collective gets
// PeerFailed, whoever computes is ended by its watchdog. Returns the code to exit with: that of the
// host's first failure. An empty message: another rank failed and has told.
int world_fail(World& world, int code, const std::string& message);
