// llmc/parallel/comm.h: collectives over the ranks of one axis of the grid (dp, later tp and pp).
//
// Counts are elements of the given type, never bytes. Every rank of the axis calls the same
// collectives in the same order, one at a time. On an axis of size 1 every call is a no-op (or a
// copy where input and output differ), so callers need no special case.
//
//   comm_self    the world of one rank                                          comm_self.cpp
//   CommShared   ranks of one host, through memory they share                   comm_shared.h
//   CommMpi      ranks anywhere, by the collectives of the MPI library          comm_mpi.h
//   CommNccl     GPUs anywhere, by NCCL                                         comm_nccl.h
//
// The first three work on host memory, and a call returns when its work is done. CommNccl works on
// memory of GPUs: a call is queued on stream(), in order, and returns at once; comm_queue.h puts it
// in order with the stream that computes.
//
// Each collective is written down before it starts and when it has ended (comm_record.h): the
// watchdog names the last one, the timeline draws them all, tests count the bytes.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"
#include "llmc/parallel/comm_record.h"

enum class ReduceOp { Sum, Max, Min };

// n elements cut over ranks: rank r has elements r*each .. (r+1)*each, as far as there are any.
struct Slices {
    size_t n, each;
    size_t begin(int rank) const { return std::min(n, size_t(rank) * each); }
    size_t count(int rank) const { return begin(rank + 1) - begin(rank); }
};

// Thrown out of a collective when another rank has failed and nobody will answer any more. That
// rank says why; this one has nothing to add.
struct PeerFailed {
    int code, rank;
};

class Comm {
  public:
    virtual ~Comm() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual CudaStream stream() const { return {}; }  // of a communicator of GPUs
    // Throws PeerFailed where what has been received since may be garbage, because a rank is gone.
    virtual void check_alive() {}

    // `what` says in records and messages what is being sent; a literal, since it is kept.

    // Lets collectives reach this memory of all ranks where it lies, without copies on the way
    // (NCCL calls it registering a user buffer). Collective, before the memory is used: `data` is
    // what memory_alloc gave, still zero, and `bytes` are equal on all ranks. Collectives are then
    // called with pointers to the same offset on every rank. It ends with the handle, which goes
    // before the memory does, and with no collective under way. Null, on all ranks alike, where
    // this communicator gains nothing or the system forbids it: all works without.
    [[nodiscard]] std::shared_ptr<void> memory_register(void* data, size_t bytes,
                                                        const char* what = "");

    // data (n) = reduction over ranks of data (n).
    void all_reduce(void* data, size_t n, Dtype t, ReduceOp op, const char* what = "");
    // mine (this rank's slice) = reduction over ranks of that slice of all (s.n); mine may lie in
    // its place inside all.
    void reduce_scatter(void* mine, const void* all, Slices s, Dtype t, ReduceOp op,
                        const char* what = "");
    // all (s.n) = every rank's slice; mine may lie in its place inside all.
    void all_gather(void* all, const void* mine, Slices s, Dtype t, const char* what = "");
    // An all-to-all whose results are handed over, not stored: every rank is shown all ranks'
    // values of its own slice, piece by piece, in the order of ranks for each piece:
    // take(values, first, count), first counted from the slice's start. Take may change what it is
    // shown: a copy, or a rank's `all` itself, which then holds what take left there. A
    // communicator of GPUs puts the copies into `room`, (size() - 1) * s.each elements,
    // and take queues its work on stream(); others bring their own.
    using Take = std::function<void(void* values, size_t first, size_t count)>;
    void all_to_all(void* all, Slices s, Dtype t, const Take& take, const char* what = "",
                    void* room = nullptr);
    // data (n) = root's data (n).
    void broadcast(void* data, size_t n, Dtype t, int root, const char* what = "");
    // From one rank to another; a send may wait until the receiver takes the data.
    void send(const void* data, size_t n, Dtype t, int to, const char* what = "");
    void recv(void* data, size_t n, Dtype t, int from, const char* what = "");
    void barrier(const char* what = "");

    // Typed fronts: comm.all_reduce(values, n, ReduceOp::Sum).
    template <class Elem>
    void all_reduce(Elem* data, size_t n, ReduceOp op = ReduceOp::Sum, const char* what = "") {
        all_reduce(static_cast<void*>(data), n, comm_dtype<Elem>(), op, what);
    }
    template <class Elem>
    void reduce_scatter(Elem* mine, const Elem* all, Slices s, ReduceOp op = ReduceOp::Sum,
                        const char* what = "") {
        reduce_scatter(static_cast<void*>(mine), all, s, comm_dtype<Elem>(), op, what);
    }
    template <class Elem>
    void all_gather(Elem* all, const Elem* mine, Slices s, const char* what = "") {
        all_gather(static_cast<void*>(all), mine, s, comm_dtype<Elem>(), what);
    }
    // Every rank's mine (n), in rank order: all (size*n).
    template <class Elem>
    void all_gather(Elem* all, const Elem* mine, size_t n, const char* what = "") {
        all_gather(all, mine, Slices{n * size_t(size()), n}, what);
    }
    template <class Elem>
    void all_to_all(Elem* all, Slices s, std::function<void(Elem*, size_t, size_t)> take,
                    const char* what = "", void* room = nullptr) {
        all_to_all(
            static_cast<void*>(all), s, comm_dtype<Elem>(),
            [&](void* x, size_t first, size_t n) { take(static_cast<Elem*>(x), first, n); }, what,
            room);
    }
    template <class Elem>
    void broadcast(Elem* data, size_t n, int root, const char* what = "") {
        broadcast(static_cast<void*>(data), n, comm_dtype<Elem>(), root, what);
    }
    template <class Elem>
    void send(const Elem* data, size_t n, int to, const char* what = "") {
        send(static_cast<const void*>(data), n, comm_dtype<Elem>(), to, what);
    }
    template <class Elem>
    void recv(Elem* data, size_t n, int from, const char* what = "") {
        recv(static_cast<void*>(data), n, comm_dtype<Elem>(), from, what);
    }

    // Bytes that this rank has sent so far, as the textbook counts: an all-reduce is a
    // reduce-scatter and an all-gather, each of which sends (N-1)/N of the data; a broadcast's
    // bytes are the root's. Exact when the slices are full.
    int64_t bytes_sent() const { return bytes_sent_; }

  protected:
    virtual void do_all_reduce(void* data, size_t n, Dtype t, ReduceOp op) = 0;
    virtual void do_reduce_scatter(void* mine, const void* all, Slices s, Dtype t, ReduceOp op) = 0;
    virtual void do_all_gather(void* all, const void* mine, Slices s, Dtype t) = 0;
    virtual void do_all_to_all(void* all, Slices s, Dtype t, const Take& take, void* room) = 0;
    virtual void do_broadcast(void* data, size_t n, Dtype t, int root) = 0;
    virtual void do_send(const void* data, size_t n, Dtype t, int to) = 0;
    virtual void do_recv(void* data, size_t n, Dtype t, int from) = 0;
    virtual void do_barrier() = 0;
    virtual std::shared_ptr<void> do_register(void*, size_t) { return nullptr; }

  private:
    template <class Elem>
    static constexpr Dtype comm_dtype();
    CommRecording record(const char* kind, const char* what, Dtype t, size_t n, size_t sent);
    int64_t bytes_sent_ = 0;
};
template <>
constexpr Dtype Comm::comm_dtype<float>() {
    return Dtype::F32;
}
template <>
constexpr Dtype Comm::comm_dtype<bf16>() {
    return Dtype::BF16;
}
template <>
constexpr Dtype Comm::comm_dtype<double>() {
    return Dtype::F64;
}
template <>
constexpr Dtype Comm::comm_dtype<int32_t>() {
    return Dtype::I32;
}
template <>
constexpr Dtype Comm::comm_dtype<int64_t>() {
    return Dtype::I64;
}

// The world of one rank.
std::unique_ptr<Comm> comm_self();
// Rank 0 of ranks that are not there: sizes can be asked for, nothing can be sent (the planner).
std::unique_ptr<Comm> comm_absent(int ranks);
