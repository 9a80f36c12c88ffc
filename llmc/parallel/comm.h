// llmc/parallel/comm.h: collectives over the ranks of one axis of the grid (dp, later tp and pp).
//
// Counts are elements of the given type, never bytes. Every rank of the axis calls the same
// collectives in the same order from one thread. On an axis of size 1 every call is a no-op (or a
// copy where input and output differ), so callers need no special case.
// CommSelf is the one-rank world; CommMpi and CommNccl share this interface.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "llmc/core/dtype.h"

enum class ReduceOp { Sum, Max, Min };

class Comm {
  public:
    virtual ~Comm() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;

    // data (n) = reduction over ranks of data (n).
    virtual void all_reduce(void* data, size_t n, Dtype t, ReduceOp op) = 0;
    // mine (n) = reduction over ranks of all[rank*n .. rank*n+n); all (size*n).
    virtual void reduce_scatter(void* mine, const void* all, size_t n, Dtype t, ReduceOp op) = 0;
    // all (size*n) = every rank's mine (n), in rank order; mine may lie in its place inside all.
    virtual void all_gather(void* all, const void* mine, size_t n, Dtype t) = 0;
    // data (n) = root's data (n).
    virtual void broadcast(void* data, size_t n, Dtype t, int root) = 0;
    virtual void barrier() = 0;

    // Typed fronts: comm.all_reduce(values, n, ReduceOp::Sum).
    template <class Elem>
    void all_reduce(Elem* data, size_t n, ReduceOp op = ReduceOp::Sum) {
        all_reduce(static_cast<void*>(data), n, comm_dtype<Elem>(), op);
    }
    template <class Elem>
    void reduce_scatter(Elem* mine, const Elem* all, size_t n, ReduceOp op = ReduceOp::Sum) {
        reduce_scatter(static_cast<void*>(mine), all, n, comm_dtype<Elem>(), op);
    }
    template <class Elem>
    void all_gather(Elem* all, const Elem* mine, size_t n) {
        all_gather(static_cast<void*>(all), mine, n, comm_dtype<Elem>());
    }
    template <class Elem>
    void broadcast(Elem* data, size_t n, int root) {
        broadcast(static_cast<void*>(data), n, comm_dtype<Elem>(), root);
    }

  private:
    template <class Elem>
    static constexpr Dtype comm_dtype();
};
template <>
constexpr Dtype Comm::comm_dtype<float>() { return Dtype::F32; }
template <>
constexpr Dtype Comm::comm_dtype<bf16>() { return Dtype::BF16; }
template <>
constexpr Dtype Comm::comm_dtype<double>() { return Dtype::F64; }
template <>
constexpr Dtype Comm::comm_dtype<int32_t>() { return Dtype::I32; }
template <>
constexpr Dtype Comm::comm_dtype<int64_t>() { return Dtype::I64; }

// The world of one rank.
std::unique_ptr<Comm> comm_self();
