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

// What every test of a collective needs: n values of each rank, between guards that must not
// change.
template <class T>
struct Field {
    static constexpr size_t kGuard = 16;
    std::vector<T> all;
    size_t n;
    explicit Field(int rank, size_t n) : all(n + 2 * kGuard), n(n) {
        for (size_t i = 0; i < all.size(); i++) all[i] = value<T>(1000, i);
        for (size_t i = 0; i < n; i++) data()[i] = value<T>(rank, i);
    }
    T* data() { return all.data() + kGuard; }
    bool guarded() const {
        for (size_t i = 0; i < kGuard; i++) {
            const size_t j = all.size() - 1 - i;
            if (plain(all[i]) != plain(value<T>(1000, i)) ||
                plain(all[j]) != plain(value<T>(1000, j)))
                return false;
        }
        return true;
    }
};

template <class T>
bool check_all_reduce(Comm& comm, size_t n, ReduceOp op) {
    Field<T> f(comm.rank(), n);
    comm.all_reduce(f.data(), n, op);
    for (size_t i = 0; i < n; i++)
        if (plain(f.data()[i]) != expected(comm.size(), i, op)) return false;
    return f.guarded();
}

template <class T>
bool check_slices(Comm& comm, Slices s) {
    const int rank = comm.rank();
    const size_t first = s.begin(rank), mine = s.count(rank);
    const auto sums_right = [&](const T* x) {
        for (size_t i = 0; i < mine; i++)
            if (plain(x[i]) != expected(comm.size(), first + i, ReduceOp::Sum)) return false;
        return true;
    };
    // Reduce-scatter, to another place and in place.
    Field<T> all(rank, s.n), part(rank, mine);
    comm.reduce_scatter(part.data(), all.data(), s);
    bool ok = sums_right(part.data()) && part.guarded();
    comm.reduce_scatter(all.data() + first, all.data(), s);
    ok = ok && sums_right(all.data() + first) && all.guarded();

    // Scatter: every rank's values, in the order of ranks.
    Field<T> from(rank, s.n);
    std::vector<int> next(mine, 0);
    comm.scatter<T>(from.data(), s, [&](T* values, size_t at, size_t count) {
        for (size_t i = 0; i < count; i++) {
            const int r = next[at + i]++;
            ok = ok && plain(values[i]) == plain(value<T>(r, first + at + i));
        }
    });
    for (int r : next) ok = ok && r == comm.size();

    // All-gather, from another place and in place: slice r holds rank r's values.
    for (bool in_place : {false, true}) {
        Field<T> to(1000, s.n), own(rank, s.n);
        T* place = in_place ? to.data() + first : own.data() + first;
        if (in_place) std::copy_n(own.data() + first, mine, place);
        comm.all_gather(to.data(), place, s);
        for (int r = 0; r < comm.size(); r++)
            for (size_t i = s.begin(r); i < s.begin(r) + s.count(r); i++)
                ok = ok && plain(to.data()[i]) == plain(value<T>(r, i));
        ok = ok && to.guarded();
    }
    return ok;
}

template <class T>
bool check_broadcast(Comm& comm, size_t n, int root) {
    Field<T> f(comm.rank(), n);
    comm.broadcast(f.data(), n, root);
    for (size_t i = 0; i < n; i++)
        if (plain(f.data()[i]) != plain(value<T>(root, i))) return false;
    return f.guarded();
}

// Around a ring: even ranks send first.
template <class T>
bool check_send(Comm& comm, size_t n) {
    const int ranks = comm.size(), next = (comm.rank() + 1) % ranks;
    const int before = (comm.rank() + ranks - 1) % ranks;
    if (ranks == 1) return true;
    Field<T> mine(comm.rank(), n), got(1000, n);
    if (comm.rank() % 2 == 0) comm.send(mine.data(), n, next);
    comm.recv(got.data(), n, before);
    if (comm.rank() % 2 == 1) comm.send(mine.data(), n, next);
    for (size_t i = 0; i < n; i++)
        if (plain(got.data()[i]) != plain(value<T>(before, i))) return false;
    return got.guarded();
}

void agree_ok(Comm& comm, bool ok, const char* what, const char* type, size_t n) {
    int32_t all = ok;
    comm.all_reduce(&all, 1, ReduceOp::Min);
    CHECK(all, Exit::Damaged, str("selftest: wrong values from ", what), str(type, ", ", n));
}

template <class T>
void check_type(Comm& comm, const char* type) {
    const size_t ranks = size_t(comm.size()), piece = CommShared::kPiece / sizeof(T);
    for (size_t n : {size_t(1), size_t(63), size_t(5000), piece + 1, 3 * piece + 77}) {
        agree_ok(comm, check_all_reduce<T>(comm, n, ReduceOp::Sum), "all-reduce", type, n);
        if constexpr (!std::is_same_v<T, bf16>) {
            agree_ok(comm, check_all_reduce<T>(comm, n, ReduceOp::Max), "all-reduce", type, n);
            agree_ok(comm, check_all_reduce<T>(comm, n, ReduceOp::Min), "all-reduce", type, n);
        }
        // Full slices, a short last one, and ranks without any.
        for (size_t each : {(n + ranks - 1) / ranks, n, n / ranks + 1})
            if (each * ranks >= n)
                agree_ok(comm, check_slices<T>(comm, {n, each}), "slices", type, n);
        for (int root = 0; root < comm.size(); root += std::max(1, comm.size() - 1))
            agree_ok(comm, check_broadcast<T>(comm, n, root), "broadcast", type, n);
        agree_ok(comm, check_send<T>(comm, n), "send and receive", type, n);
    }
}

// The best of a few times, on the slowest rank.
template <class Work>
double best_time(Comm& comm, size_t bytes, Work work) {
    const int repeats = bytes > (4 << 20) ? 3 : bytes > (64 << 10) ? 20 : 200;
    double best = 1e9;
    for (int trial = 0; trial < 5; trial++) {
        comm.barrier();
        const double begin = comm_clock();
        for (int i = 0; i < repeats; i++) work();
        double seconds = (comm_clock() - begin) / repeats;
        comm.all_reduce(&seconds, 1, ReduceOp::Max);
        best = std::min(best, seconds);
    }
    return best;
}

}  // namespace

void comm_check(Comm& comm) {
    check_type<float>(comm, "fp32");
    check_type<bf16>(comm, "bf16");
    check_type<double>(comm, "fp64");
    check_type<int32_t>(comm, "int32");
    check_type<int64_t>(comm, "int64");
}

std::vector<CommSpeed> comm_speed(Comm& comm, size_t bytes) {
    const size_t n = std::max<size_t>(bytes / sizeof(float), 1), ranks = size_t(comm.size());
    const Slices s{n, (n + ranks - 1) / ranks};
    std::vector<float> x(n), part(s.each);
    const double share = double(ranks - 1) / double(ranks);
    const auto row = [&](const char* kind, double factor, auto work) {
        return CommSpeed{kind, n * sizeof(float), best_time(comm, bytes, work), factor};
    };
    return {row("all-reduce", 2 * share, [&] { comm.all_reduce(x.data(), n); }),
            row("reduce-scatter", share, [&] { comm.reduce_scatter(part.data(), x.data(), s); }),
            row("all-gather", share, [&] { comm.all_gather(x.data(), part.data(), s); }),
            row("broadcast", 1, [&] { comm.broadcast(x.data(), n, 0); })};
}

void selftest_comm(World& world, size_t max_bytes) {
    Comm& comm = *world.dp;
    comm_check(comm);
    if (world.library) comm_check(*world.library);
    const bool speaks = world.rank == 0;
    if (speaks)
        std::printf("ranks: %s\nvalues: right, for every collective and type\n\n",
                    world_text(world).c_str());
    if (world.size == 1 || max_bytes == 0) return;
    if (speaks)
        std::printf("%-24s %12s %12s %11s %11s\n", "collective", "bytes", "us", "alg GB/s",
                    "bus GB/s");
    for (size_t bytes = 4; bytes <= max_bytes; bytes *= 16) {
        std::vector<CommSpeed> rows = comm_speed(comm, bytes);
        if (world.library) {
            rows.push_back(comm_speed(*world.library, bytes)[0]);
            rows.back().kind = "all-reduce, the library's";
        }
        for (const CommSpeed& r : rows)
            if (speaks)
                std::printf("%-24s %12zu %12.1f %11.3f %11.3f\n", r.kind, r.bytes, 1e6 * r.seconds,
                            1e-9 * double(r.bytes) / r.seconds,
                            1e-9 * double(r.bytes) * r.bus_factor / r.seconds);
    }
}
