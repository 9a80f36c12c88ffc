// llmc/io/checkpoint_testing.h: what the tests of checkpoints share: a scratch directory, a small
// model state cut into pieces, and ranks as forked processes.
#pragma once
#include <gtest/gtest.h>
#include <omp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "llmc/io/checkpoint.h"

// A directory that is there during one test: in memory, where syncs cost nothing, unless the test
// needs room.
struct ScratchDir {
    std::string path;
    explicit ScratchDir(bool in_memory = true) {
        const bool shm = in_memory && std::filesystem::exists("/dev/shm");
        std::string name = shm ? "/dev/shm" : std::filesystem::temp_directory_path().string();
        name += "/llmc-XXXXXX";
        if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
        path = name;
    }
    ~ScratchDir() {
        std::error_code none;
        std::filesystem::remove_all(path, none);
    }
};

// A state of a few tensors with odd sizes, as plain fp32 arrays; every value depends on the tensor,
// the element and the step.
struct ToyState {
    struct Tensor {
        std::string group, name;
        std::vector<int64_t> shape;
        std::vector<float> values;
    };
    std::vector<Tensor> tensors;

    explicit ToyState(int64_t step) {
        const std::pair<const char*, std::vector<int64_t>> shapes[] = {
            {"wte.weight", {13, 7}}, {"h.0.qkv", {3, 5, 7}}, {"h.0.bias", {11}}, {"one", {1}}};
        for (const char* group : {"weights", "m", "v"})
            for (const auto& [name, shape] : shapes) {
                Tensor t{group, name, shape, std::vector<float>(size_t(shape_count(shape)))};
                for (size_t i = 0; i < t.values.size(); i++)
                    t.values[i] = float(i) + 1000.f * float(step) + 0.1f * float(tensors.size());
                tensors.push_back(t);
            }
    }
    // Elements [rank/ranks, (rank+1)/ranks) of each group's tensors laid end to end, as ZeRO cuts.
    std::vector<TensorPiece> pieces(int rank = 0, int ranks = 1) {
        std::map<std::string, int64_t> total, at;
        for (const Tensor& t : tensors) total[t.group] += int64_t(t.values.size());
        std::vector<TensorPiece> cut;
        for (Tensor& t : tensors) {
            const int64_t n = int64_t(t.values.size()), base = at[t.group];
            const int64_t all = total[t.group];
            const int64_t first = std::clamp<int64_t>(all * rank / ranks - base, 0, n);
            const int64_t last = std::clamp<int64_t>(all * (rank + 1) / ranks - base, 0, n);
            cut.push_back({t.group, t.name, Dtype::F32, t.shape, first, last - first,
                           t.values.data() + first});
            at[t.group] += n;
        }
        return cut;
    }
    bool operator==(const ToyState& other) const {
        for (size_t i = 0; i < tensors.size(); i++)
            if (tensors[i].values != other.tensors[i].values) return false;
        return true;
    }
};

inline CheckpointMeta toy_meta(int64_t step) {
    return {"run-1", step, step * 64, {{"layers", 1}}, {{"cursor", step}}, {{"ranks", 1}}};
}

// The communicator of ranks that are forked processes, over shared memory.
class ForkComm final : public Comm {
  public:
    ForkComm(int size) : size_(size) {
        void* memory = ::mmap(nullptr, sizeof(Shared) + size_t(size) * SLOT, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        shared_ = static_cast<Shared*>(memory);
        pthread_barrierattr_t attr;
        pthread_barrierattr_init(&attr);
        pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared_->barrier, &attr, unsigned(size));
    }
    ~ForkComm() override { ::munmap(shared_, sizeof(Shared) + size_t(size_) * SLOT); }
    void set_rank(int rank) { rank_ = rank; }
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    void all_reduce(void* data, size_t n, Dtype t, ReduceOp op) override {
        put(data, n * dtype_bytes(t));
        for (int r = 0; r < size_; r++) {
            if (t == Dtype::I64)
                combine(static_cast<int64_t*>(data), slot(r), n, op, r == 0);
            else if (t == Dtype::I32)
                combine(static_cast<int32_t*>(data), slot(r), n, op, r == 0);
            else
                throw std::logic_error("ForkComm reduces integers only");
        }
        barrier();
    }
    void reduce_scatter(void*, const void*, size_t, Dtype, ReduceOp) override {
        throw std::logic_error("ForkComm has no reduce_scatter");
    }
    void all_gather(void* all, const void* mine, size_t n, Dtype t) override {
        put(mine, n * dtype_bytes(t));
        for (int r = 0; r < size_ && n; r++)
            std::memcpy(static_cast<char*>(all) + size_t(r) * n * dtype_bytes(t), slot(r),
                        n * dtype_bytes(t));
        barrier();
    }
    void broadcast(void* data, size_t n, Dtype t, int root) override {
        put(data, n * dtype_bytes(t));
        if (n) std::memcpy(data, slot(root), n * dtype_bytes(t));
        barrier();
    }
    void barrier() override { pthread_barrier_wait(&shared_->barrier); }

  private:
    struct Shared {
        pthread_barrier_t barrier;
    };
    static constexpr size_t SLOT = 4 << 20;
    void* slot(int r) { return reinterpret_cast<char*>(shared_ + 1) + size_t(r) * SLOT; }
    void put(const void* data, size_t bytes) {
        if (bytes > SLOT) throw std::length_error("ForkComm");
        if (bytes) std::memcpy(slot(rank_), data, bytes);
        barrier();
    }
    template <class Int>
    static void combine(Int* to, const void* from, size_t n, ReduceOp op, bool first) {
        const Int* x = static_cast<const Int*>(from);
        for (size_t i = 0; i < n; i++) {
            if (first)
                to[i] = x[i];
            else if (op == ReduceOp::Sum)
                to[i] = Int(uint64_t(to[i]) + uint64_t(x[i]));
            else
                to[i] = op == ReduceOp::Min ? std::min(to[i], x[i]) : std::max(to[i], x[i]);
        }
    }
    int size_, rank_ = 0;
    Shared* shared_;
};

// Runs body(comm) on `ranks` forked processes; true if every one of them returned without failed
// expectations. A rank that waits for ever is ended after a minute.
inline bool on_ranks(int ranks, const std::function<void(Comm&)>& body) {
    ForkComm comm(ranks);
    std::vector<pid_t> children;
    for (int r = 0; r < ranks; r++) {
        const pid_t pid = ::fork();
        if (pid == 0) {
            ::alarm(60);
            omp_set_num_threads(1);  // libgomp's pool does not survive a fork
            comm.set_rank(r);
            try {
                body(comm);
            } catch (const std::exception& e) {
                ADD_FAILURE() << "rank " << r << ": " << e.what();
            }
            std::fflush(nullptr);
            ::_exit(testing::Test::HasFailure() ? 1 : 0);
        }
        children.push_back(pid);
    }
    bool ok = true;
    for (pid_t pid : children) {
        int status = 0;
        ::waitpid(pid, &status, 0);
        ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return ok;
}
