#include <cstring>

#include "llmc/parallel/comm.h"

namespace {
class CommSelf final : public Comm {
  public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    void all_reduce(void*, size_t, Dtype, ReduceOp) override {}
    void reduce_scatter(void* mine, const void* all, size_t n, Dtype t, ReduceOp) override {
        if (mine != all) std::memcpy(mine, all, n * dtype_bytes(t));
    }
    void all_gather(void* all, const void* mine, size_t n, Dtype t) override {
        if (mine != all) std::memcpy(all, mine, n * dtype_bytes(t));
    }
    void broadcast(void*, size_t, Dtype, int) override {}
    void barrier() override {}
};
}  // namespace

std::unique_ptr<Comm> comm_self() {
    return std::make_unique<CommSelf>();
}
