#include <cstring>

#include "llmc/core/check.h"
#include "llmc/parallel/comm.h"

namespace {
class CommSelf final : public Comm {
  public:
    int rank() const override { return 0; }
    int size() const override { return 1; }

  protected:
    void do_all_reduce(void*, size_t, Dtype, ReduceOp) override {}
    void do_reduce_scatter(void* mine, const void* all, Slices s, Dtype t, ReduceOp) override {
        copy(mine, all, s, t);
    }
    void do_all_gather(void* all, const void* mine, Slices s, Dtype t) override {
        copy(all, mine, s, t);
    }
    void do_all_to_all(void* all, Slices s, Dtype, const Take& take, void*) override {
        if (s.n) take(all, 0, s.n);
    }
    void do_broadcast(void*, size_t, Dtype, int) override {}
    void do_send(const void*, size_t, Dtype, int to) override { nobody(to); }
    void do_recv(void*, size_t, Dtype, int from) override { nobody(from); }
    void do_barrier() override {}

  private:
    static void copy(void* to, const void* from, Slices s, Dtype t) {
        if (to != from && s.n) std::memcpy(to, from, s.n * dtype_bytes(t));
    }
    [[noreturn]] static void nobody(int rank) {
        fail(Exit::Usage, "one rank has nobody to send to", str("rank ", rank), "another rank");
    }
};

class CommAbsent final : public Comm {
  public:
    explicit CommAbsent(int ranks) : ranks_(ranks) {}
    int rank() const override { return 0; }
    int size() const override { return ranks_; }

  protected:
    void do_all_reduce(void*, size_t, Dtype, ReduceOp) override { absent(); }
    void do_reduce_scatter(void*, const void*, Slices, Dtype, ReduceOp) override { absent(); }
    void do_all_gather(void*, const void*, Slices, Dtype) override { absent(); }
    void do_all_to_all(void*, Slices, Dtype, const Take&, void*) override { absent(); }
    void do_broadcast(void*, size_t, Dtype, int) override { absent(); }
    void do_send(const void*, size_t, Dtype, int) override { absent(); }
    void do_recv(void*, size_t, Dtype, int) override { absent(); }
    void do_barrier() override { absent(); }

  private:
    [[noreturn]] static void absent() { throw std::logic_error("ranks that are only planned"); }
    int ranks_;
};
}  // namespace

std::unique_ptr<Comm> comm_absent(int ranks) {
    return std::make_unique<CommAbsent>(ranks);
}

std::unique_ptr<Comm> comm_self() {
    return std::make_unique<CommSelf>();
}
