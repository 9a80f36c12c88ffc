#include "llmc/parallel/selftest.h"

#include <cstdio>
#include <string>
#include <vector>

#include "llmc/core/check.h"

namespace {

// Values small enough for every type to add them exactly over 128 ranks: -1, 0 or 1, by rank and
// index.
template <class T>
T value(int rank, size_t i) {
    const uint32_t mixed = (uint32_t(rank) * 0x9e3779b9u + uint32_t(i)) * 0x85ebca6bu;
    const float x = float(int((mixed >> 16) % 3) - 1);
    if constexpr (std::is_same_v<T, bf16>)
        return to_bf16(x);
    else
        return T(x);
}
template <class T>
double plain(T x) {
    if constexpr (std::is_same_v<T, bf16>)
        return to_float(x);
    else
        return double(x);
}
double expected(int ranks, size_t i, ReduceOp op) {
    double sum = 0, most = -2, least = 2;
    for (int r = 0; r < ranks; r++) {
        const double x = value<double>(r, i);
        sum += x, most = std::max(most, x), least = std::min(least, x);
    }
    return op == ReduceOp::Sum ? sum : op == ReduceOp::Max ? most : least;
}

// The stream on which a communicator's memory is worked on.
template <class Stream>
Stream stream_of(Comm& comm) {
    if constexpr (std::is_same_v<Stream, CudaStream>)
        return comm.stream();
    else
        return {};
}

// What every test of a collective needs: n values of each rank, between guards that must not
// change, in memory of the communicator's backend, registered or not; then n is equal on all ranks.
enum class Register { No, Yes };
template <class T, class Stream>
class Field {
  public:
    Field(Comm& comm, int rank, size_t n, Register reg = Register::No)
        : s_(stream_of<Stream>(comm)),
          n_(n),
          base_(static_cast<T*>(memory_alloc(bytes(), "selftest", s_))) {
        if (reg == Register::Yes) handle_ = comm.memory_register(base_, bytes());
        std::vector<T> all(n_ + 2 * kGuard);
        for (size_t i = 0; i < all.size(); i++) all[i] = value<T>(kNobody, i);
        for (size_t i = 0; i < n; i++) all[kGuard + i] = value<T>(rank, i);
        memory_from_host(base_, all.data(), bytes(), s_);
    }
    ~Field() {
        handle_.reset();
        memory_free(base_, bytes(), s_);
    }
    Field(const Field&) = delete;
    Field& operator=(const Field&) = delete;

    T* data() { return base_ + kGuard; }
    bool registered() const { return handle_ != nullptr; }
    // Are the values from `first` on those of expected(i), i = 0 .. count, and the guards
    // untouched?
    template <class Expected>
    bool holds(size_t first, size_t count, Expected expected) const {
        std::vector<T> all(n_ + 2 * kGuard);
        memory_to_host(all.data(), base_, bytes(), s_);
        for (size_t i = 0; i < count; i++)
            if (plain(all[kGuard + first + i]) != expected(i)) return false;
        for (size_t i = 0; i < kGuard; i++)
            for (size_t at : {i, all.size() - 1 - i})
                if (plain(all[at]) != plain(value<T>(kNobody, at))) return false;
        return true;
    }

  private:
    static constexpr size_t kGuard = 16;
    static constexpr int kNobody = 1000;
    size_t bytes() const { return (n_ + 2 * kGuard) * sizeof(T); }
    Stream s_;
    size_t n_;
    T* base_;
    std::shared_ptr<void> handle_;
};

template <class T>
auto values_of(int rank, size_t first = 0) {
    return [=](size_t i) { return plain(value<T>(rank, first + i)); };
}

template <class T, class Stream>
bool check_all_reduce(Comm& comm, size_t n, ReduceOp op, Register reg) {
    Field<T, Stream> f(comm, comm.rank(), n, reg);
    comm.all_reduce(f.data(), n, op);
    return f.holds(0, n, [&](size_t i) { return expected(comm.size(), i, op); });
}

template <class T, class Stream>
bool check_reduce_scatter(Comm& comm, Slices s, Register reg) {
    const int rank = comm.rank();
    const size_t first = s.begin(rank), mine = s.count(rank);
    const auto sums = [&](size_t i) { return expected(comm.size(), first + i, ReduceOp::Sum); };
    // To another place and in place.
    Field<T, Stream> all(comm, rank, s.n, reg), part(comm, rank, mine);
    comm.reduce_scatter(part.data(), all.data(), s);
    const bool apart = part.holds(0, mine, sums);
    comm.reduce_scatter(all.data() + first, all.data(), s);
    return apart && all.holds(first, mine, sums);
}

// Every rank's values, in the order of ranks.
template <class T, class Stream>
bool check_all_to_all(Comm& comm, Slices s, Register reg) {
    const int rank = comm.rank();
    const size_t mine = s.count(rank);
    Field<T, Stream> from(comm, rank, s.n, reg), room(comm, rank, s.each * size_t(comm.size()));
    std::vector<int> next(mine, 0);
    bool ok = true;
    const auto take = [&](T* values, size_t at, size_t count) {
        std::vector<T> seen(count);
        memory_to_host(seen.data(), values, count * sizeof(T), stream_of<Stream>(comm));
        for (size_t i = 0; i < count; i++) {
            const int r = next[at + i]++;
            ok = ok && plain(seen[i]) == plain(value<T>(r, s.begin(rank) + at + i));
        }
    };
    comm.all_to_all<T>(from.data(), s, take, "", room.data());
    for (int seen : next) ok = ok && seen == comm.size();
    return ok && from.holds(0, s.n, values_of<T>(rank)) && room.holds(0, 0, values_of<T>(0));
}

// From a place of its own and in place.
template <class T, class Stream>
bool check_all_gather(Comm& comm, Slices s, Register reg) {
    const int rank = comm.rank();
    const size_t mine = s.count(rank);
    bool ok = true;
    for (bool in_place : {false, true}) {
        Field<T, Stream> part(comm, rank, s.each, reg), to(comm, 1000 + rank, s.n, reg);
        std::vector<T> own(mine);
        for (size_t i = 0; i < mine; i++) own[i] = value<T>(rank, i);
        T* from = in_place ? to.data() + s.begin(rank) : part.data();
        memory_from_host(from, own.data(), mine * sizeof(T), stream_of<Stream>(comm));
        comm.all_gather(to.data(), from, s);
        for (int r = 0; r < comm.size(); r++)
            ok = ok && to.holds(s.begin(r), s.count(r), values_of<T>(r));
    }
    return ok;
}

template <class T, class Stream>
bool check_broadcast(Comm& comm, size_t n, int root, Register reg) {
    Field<T, Stream> f(comm, comm.rank(), n, reg);
    comm.broadcast(f.data(), n, root);
    return f.holds(0, n, values_of<T>(root));
}

// Around a ring: even ranks send first.
template <class T, class Stream>
bool check_send(Comm& comm, size_t n) {
    const int ranks = comm.size(), next = (comm.rank() + 1) % ranks;
    const int before = (comm.rank() + ranks - 1) % ranks;
    if (ranks == 1) return true;
    Field<T, Stream> mine(comm, comm.rank(), n), got(comm, 1000, n);
    if (comm.rank() % 2 == 0) comm.send(mine.data(), n, next);
    comm.recv(got.data(), n, before);
    if (comm.rank() % 2 == 1) comm.send(mine.data(), n, next);
    return got.holds(0, n, values_of<T>(before));
}

// `host` works on host memory and has the same ranks.
void agree_ok(Comm& host, bool ok, const char* what, const char* type, size_t n) {
    int32_t all = ok;
    host.all_reduce(&all, 1, ReduceOp::Min);
    CHECK(all, Exit::Damaged, str("selftest: wrong values from ", what), str(type, ", ", n));
}

template <class T, class Stream>
void check_type(Comm& comm, Comm& host, const char* type, Register reg) {
    const size_t ranks = size_t(comm.size()), piece = CommShared::kPiece / sizeof(T);
    for (size_t n : {size_t(1), size_t(63), size_t(5000), piece + 1, 3 * piece + 77}) {
        const auto agree = [&](bool ok, const char* what) { agree_ok(host, ok, what, type, n); };
        agree(check_all_reduce<T, Stream>(comm, n, ReduceOp::Sum, reg), "all-reduce");
        if constexpr (!std::is_same_v<T, bf16>) {
            agree(check_all_reduce<T, Stream>(comm, n, ReduceOp::Max, reg), "all-reduce");
            agree(check_all_reduce<T, Stream>(comm, n, ReduceOp::Min, reg), "all-reduce");
        }
        // Full slices, a short last one, and ranks without any.
        for (size_t each : {(n + ranks - 1) / ranks, n, n / ranks + 1}) {
            const Slices s{n, each};
            if (each * ranks < n) continue;
            agree(check_reduce_scatter<T, Stream>(comm, s, reg), "reduce-scatter");
            agree(check_all_to_all<T, Stream>(comm, s, reg), "all-to-all");
            agree(check_all_gather<T, Stream>(comm, s, reg), "all-gather");
        }
        for (int root = 0; root < comm.size(); root += std::max(1, comm.size() - 1))
            agree(check_broadcast<T, Stream>(comm, n, root, reg), "broadcast");
        if (reg == Register::No) agree(check_send<T, Stream>(comm, n), "send and receive");
    }
}

template <class Stream>
bool registers(Comm& comm) {
    return Field<float, Stream>(comm, comm.rank(), 1, Register::Yes).registered();
}

template <class Stream>
void check_types(Comm& comm, Comm& host) {
    for (Register reg : {Register::No, Register::Yes}) {
        if (reg == Register::Yes && !registers<Stream>(comm)) continue;
        check_type<float, Stream>(comm, host, "fp32", reg);
        check_type<bf16, Stream>(comm, host, "bf16", reg);
        check_type<double, Stream>(comm, host, "fp64", reg);
        check_type<int32_t, Stream>(comm, host, "int32", reg);
        check_type<int64_t, Stream>(comm, host, "int64", reg);
    }
}

// The best of a few times, on the slowest rank.
template <class Stream, class Work>
double best_time(Comm& comm, Comm& host, size_t bytes, Work work) {
    const int repeats = bytes > (4 << 20) ? 3 : bytes > (64 << 10) ? 20 : 200;
    double best = 1e9;
    for (int trial = 0; trial < 5; trial++) {
        comm.barrier();
        const double begin = comm_clock();
        for (int i = 0; i < repeats; i++) work();
        stream_sync(stream_of<Stream>(comm));
        double seconds = (comm_clock() - begin) / repeats;
        host.all_reduce(&seconds, 1, ReduceOp::Max);
        best = std::min(best, seconds);
    }
    return best;
}

template <class Stream>
std::vector<CommSpeed> speeds(Comm& comm, Comm& host, size_t bytes) {
    const size_t n = std::max<size_t>(bytes / sizeof(float), 1), ranks = size_t(comm.size());
    const Slices s{n, (n + ranks - 1) / ranks};
    Field<float, Stream> x(comm, comm.rank(), n, Register::Yes), part(comm, comm.rank(), s.each);
    Field<float, Stream> any(comm, comm.rank(), n);
    const double share = double(ranks - 1) / double(ranks);
    const auto row = [&](const char* kind, double factor, auto work) {
        return CommSpeed{kind, n * sizeof(float), best_time<Stream>(comm, host, bytes, work),
                         factor};
    };
    float* place = x.data() + s.begin(comm.rank());
    std::vector<CommSpeed> rows = {
        row("all-reduce", 2 * share, [&] { comm.all_reduce(x.data(), n); }),
        row("reduce-scatter", share, [&] { comm.reduce_scatter(part.data(), x.data(), s); }),
        row("all-gather", share, [&] { comm.all_gather(x.data(), place, s); }),
        row("broadcast", 1, [&] { comm.broadcast(x.data(), n, 0); })};
    if (x.registered())
        rows.push_back(
            row("all-reduce, unregistered", 2 * share, [&] { comm.all_reduce(any.data(), n); }));
    return rows;
}

}  // namespace

void comm_check(Comm& comm) {
    check_types<CpuStream>(comm, comm);
}
std::vector<CommSpeed> comm_speed(Comm& comm, size_t bytes) {
    return speeds<CpuStream>(comm, comm, bytes);
}

static void speeds_print(World& world, size_t max_bytes, bool gpus) {
    if (world.rank == 0)
        std::printf("%-30s %12s %12s %11s %11s\n", "collective", "bytes", "us", "alg GB/s",
                    "bus GB/s");
    for (size_t bytes = 4; bytes <= max_bytes; bytes *= 16) {
        std::vector<CommSpeed> rows;
        FOR_CUDA(if (gpus) rows = speeds<CudaStream>(*world.gpus, *world.dp, bytes);)
        if (!gpus) rows = comm_speed(*world.dp, bytes);
        if (world.library && !gpus) {
            for (CommSpeed& r : comm_speed(*world.library, bytes)) {
                r.of_library = true;
                rows.push_back(r);
            }
        }
        for (const CommSpeed& r : rows)
            if (world.rank == 0)
                std::printf("%-30s %12zu %12.1f %11.3f %11.3f\n",
                            str(r.kind, r.of_library ? ", the library's" : "").c_str(), r.bytes,
                            1e6 * r.seconds, 1e-9 * double(r.bytes) / r.seconds,
                            1e-9 * double(r.bytes) * r.bus_factor / r.seconds);
    }
}

void selftest_comm(World& world, size_t max_bytes, [[maybe_unused]] bool gpus) {
    gpus = gpus && world.size > 1;
    comm_check(*world.dp);
    if (world.library) comm_check(*world.library);
    FOR_CUDA(if (gpus) check_types<CudaStream>(world_dp(world, CudaStream{}), *world.dp);)
    if (world.rank == 0)
        std::printf("ranks: %s\nvalues: right, for every collective and type%s\n\n",
                    world_text(world).c_str(), gpus ? ", in host memory and between GPUs" : "");
    if (world.size > 1 && max_bytes > 0) speeds_print(world, max_bytes, gpus);
}
