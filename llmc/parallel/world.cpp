#include "llmc/parallel/world.h"

#include <omp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "llmc/core/check.h"
#include "llmc/core/host.h"
#include "llmc/core/round.h"
#include "llmc/parallel/comm_nccl.h"

constexpr size_t kPage = 4096;
constexpr auto kPatience = std::chrono::milliseconds(2000);  // for the other ranks of the host

template <class There>
static bool wait_until(There there, std::chrono::milliseconds patience = kPatience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!there()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

// How many cores this rank has: those it may run on, each divided by the ranks that may run there.
// Launchers bind ranks to cores of their own, to a socket that several share, or not at all.
double cores_of_rank(const SharedStatus& status, int rank, int ranks) {
    double cores = 0;
    for (size_t word = 0; word < std::tuple_size_v<CoreMask>; word++)
        for (uint64_t bit = 1; bit; bit <<= 1) {
            const auto has = [&](int r) { return (status.ranks[r].cores[word] & bit) != 0; };
            if (!has(rank)) continue;
            int sharing = 0;
            for (int r = 0; r < ranks; r++) sharing += has(r);
            cores += 1.0 / sharing;
        }
    return cores;
}

// The memory that the ranks of a host share: their status, and two communicators.
static void share_memory(World& world) {
    const int n = world.local_size;
    const size_t status = round_up(SharedStatus::bytes(n), kPage),
                 comm = round_up(CommShared::bytes(n), kPage);
    const bool one_host = n == world.size;
    char* memory = static_cast<char*>(world.mpi->shared_memory(status + (one_host ? 2 * comm : 0)));
    world.status = reinterpret_cast<SharedStatus*>(memory);
    RankStatus& mine = world.status->ranks[world.local_rank];
    mine.pid = int(::getpid());
    const CoreMask mask = cores_mask();
    std::copy(mask.begin(), mask.end(), mine.cores);
    world.mpi->host_barrier();
    world.cores = cores_of_rank(*world.status, world.local_rank, n);
    if (world.cores == 0) world.cores = double(cores_online()) / n;  // the system does not say
    if (!std::getenv("OMP_NUM_THREADS")) omp_set_num_threads(std::max(1, int(world.cores + 1e-6)));

    if (one_host) {
        const auto make = [&](char* at) {
            return std::make_unique<CommShared>(at, world.rank, n, &world.status->failure,
                                                world.cores > 1 - 1e-6);
        };
        world.dp = make(memory + status);
        world.background = make(memory + status + comm);
        world.library = world.mpi->comm();
    } else {
        world.dp = world.mpi->comm();
        world.background = world.mpi->comm();
    }
}

namespace {
// Ends the process, which has no rank yet, unless it is destroyed before `limit` seconds are over.
class StartGuard {
  public:
    StartGuard(const std::string& host, double limit)
        : host_(host), thread_([this, limit] { run(limit); }) {}
    ~StartGuard() {
        {
            const std::lock_guard lock(mutex_);
            started_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

  private:
    void run(double limit) {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, std::chrono::duration<double>(std::min(limit, 1e8)),
                              [&] { return started_; }))
            return;
        std::fprintf(
            stderr,
            "[process %d of %s] error: not all processes that were launched came to MPI_Init; "
            "expected within %.1f s; hint: did one end, or hang, before this program "
            "began in it? If machines are that slow, a larger --start-limit\n",
            int(::getpid()), host_.c_str(), limit);
        std::_Exit(int(Exit::Hang));
    }
    const std::string host_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool started_ = false;
    std::thread thread_;  // last: it uses the others
};
}  // namespace

World world_init(double limit) {
    World world;
    world.host = host_name();

    sigset_t signals, before;
    sigemptyset(&signals);
    for (int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, signal);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    const StartGuard guard(world.host, limit);
    world.mpi = MpiSession::start();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);

    if (world.mpi) {
        world.rank = world.mpi->rank, world.size = world.mpi->size;
        world.local_rank = world.mpi->local_rank, world.local_size = world.mpi->local_size;
    }
    // Results are the same on all ranks: one of them shows them.
    if (world.rank > 0 && !std::freopen("/dev/null", "w", stdout)) std::fclose(stdout);
    if (world.size > 1) {
        share_memory(world);
    } else {
        world.dp = comm_self();
        world.background = comm_self();
    }
    world.tp = comm_self();
    world.pp = comm_self();
    return world;
}

Comm& world_dp(World& world, CpuStream) {
    return *world.dp;
}
FOR_CUDA(Comm& world_dp(World& world, CudaStream) {
    if (world.size == 1) return *world.dp;
    if (!world.gpus) world.gpus = comm_nccl(*world.dp, &world.status->failure);
    return *world.gpus;
})

World::~World() {
    gpus.reset(), dp.reset(), background.reset(), library.reset();
    mpi.reset();
}

std::string world_prefix(const World& world) {
    return str("[rank ", world.rank, "/", world.size, " ", world.host, "] ");
}

// Open MPI binds two ranks to one core each, and leaves the others to nobody. Its own process,
// which has started this one, may run on all.
static std::string cores_left_out(const World& world) {
    const CoreMask launcher = cores_mask(::getppid());
    int used = 0, given = 0;
    for (size_t word = 0; word < launcher.size(); word++) {
        uint64_t all = 0;
        for (int r = 0; r < world.local_size; r++) all |= world.status->ranks[r].cores[word];
        used += std::popcount(all);
        given += std::popcount(launcher[word]);
    }
    if (used >= given) return "";
    return str("; bound to ", used, " of ", given,
               " cores: if that was not meant, mpirun --bind-to none");
}

std::string world_text(const World& world) {
    std::string gpus;
    FOR_CUDA(if (world.gpus) gpus = ", " + nccl_text();)
    if (world.size == 1)
        return world.mpi ? str("1, ", world.mpi->library) : "1, not started by mpirun or srun";
    const bool one_host = world.local_size == world.size;
    return str(
        world.size,
        one_host ? str(" on ", world.host, ", through shared memory")
                 : str(" on ", world.mpi->hosts, " hosts, ", world.local_size, " on ", world.host),
        ", ", world.mpi->library, gpus, cores_left_out(world));
}

// A digest of a message that is not 0.
static int32_t error_digest(const std::string& message) {
    return int32_t(std::hash<std::string>()(message) & 0x7fffffff) | 1;
}

// Whether a lower rank has met the same error, or meets it within a moment. Hosts have no memory in
// common: the ranks of all but the first wait a little, and are ended when the first has spoken.
static bool lower_rank_says(const World& world, const std::string& message) {
    const int32_t mine = error_digest(message);
    world.status->ranks[world.local_rank].error = mine;
    const auto said = [&] {
        for (int r = 0; r < world.local_rank; r++)
            if (world.status->ranks[r].error == mine) return true;
        return false;
    };
    if (!world.mpi->first_host) std::this_thread::sleep_for(std::chrono::milliseconds(3000));
    return world.local_rank > 0 && wait_until(said, std::chrono::milliseconds(500));
}

int world_fail(World& world, int code, const std::string& message) {
    const bool alone = world.size == 1;
    if (!alone) {
        failure_tell(*world.status, code, world.rank);
        code = failure_of(world.status->failure).code;
    }
    if (!message.empty() && (alone || !lower_rank_says(world, message)))
        std::fprintf(stderr, "%serror: %s\n", world_prefix(world).c_str(), message.c_str());
    if (alone) return code;

    // Where all ranks have come to an end they part properly; else this one leaves as it stands,
    // since MPI would wait for those that cannot come.
    std::fflush(nullptr);
    world.status->ranks[world.local_rank].done = 1;
    const bool all = wait_until([&] {
        for (int r = 0; r < world.local_size; r++)
            if (!world.status->ranks[r].done) return false;
        return true;
    });
    if (world.local_size < world.size) world.mpi->abort(code);
    if (!all) std::_Exit(code);
    return code;
}
