#include "llmc/parallel/comm_nccl.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "llmc/core/check.h"
#include "llmc/core/host.h"
#include "llmc/core/launch.cuh"
#include "llmc/parallel/comm_shared.h"  // failure_of

std::string nccl_version_text(int code) {
    const int unit = code < 10000 ? 1000 : 10000;
    return str(code / unit, ".", code % unit / 100, ".", code % 100);
}

void nccl_version_check(int code) {
    CHECK(code >= kNcclLeast, Exit::Resource, "this NCCL is too old",
          str("NCCL ", nccl_version_text(code)), str(nccl_version_text(kNcclLeast), " or later"),
          "a newer libnccl.so.2 first in LD_LIBRARY_PATH");
}

#if __has_include(<nccl.h>)
#include <nccl.h>

static int nccl_version() {
    int code = 0;
    return ncclGetVersion(&code) == ncclSuccess ? code : 0;
}

// ---- who is on which GPU
namespace {

struct GpuId {
    char host[64], bus[32];
    std::string text() const { return str("GPU ", bus, " of ", host); }
};
static_assert(sizeof(GpuId) % sizeof(int32_t) == 0, "travels as int32");

GpuId gpu_id() {
    GpuId id{};
    host_name().copy(id.host, sizeof id.host - 1);
    int device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetPCIBusId(id.bus, int(sizeof id.bus), device));
    return id;
}

void check_one_gpu_each(Comm& host) {
    const GpuId mine = gpu_id();
    std::vector<GpuId> all(size_t(host.size()));
    host.all_gather(reinterpret_cast<int32_t*>(all.data()), reinterpret_cast<const int32_t*>(&mine),
                    sizeof(GpuId) / sizeof(int32_t), "GPUs");
    for (size_t a = 0; a < all.size(); a++)
        for (size_t b = 0; b < a; b++)
            CHECK(std::memcmp(&all[a], &all[b], sizeof(GpuId)) != 0, Exit::Usage,
                  str("ranks ", b, " and ", a, " have the same GPU"), all[a].text(),
                  "one process a GPU", "fewer processes a host, or --device cpu");
}

// ---- the communicator
class CommNccl;
std::mutex registry_mutex;
std::vector<CommNccl*> registry;  // for the watchdog's thread

class CommNccl final : public Comm {
  public:
    CommNccl(Comm& host, const std::atomic<int32_t>* failure)
        : rank_(host.rank()), size_(host.size()), failure_(failure) {
        nccl_version_check(nccl_version());
        check_one_gpu_each(host);
        ncclUniqueId id{};
        if (rank_ == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
        host.broadcast(reinterpret_cast<int32_t*>(&id), sizeof id / sizeof(int32_t), 0,
                       "NCCL's id");
        CUDA_CHECK(cudaMalloc(&word_, sizeof(int32_t)));
        CUDA_CHECK(cudaMemsetAsync(word_, 0, sizeof(int32_t), queue()));
        check(ncclCommInitRank(&comm_, size_, id, rank_), "ncclCommInitRank");
        const std::lock_guard lock(registry_mutex);
        registry.push_back(this);
    }
    // Destroying waits for the others; whoever is gone does not come.
    ~CommNccl() override {
        {
            const std::lock_guard lock(registry_mutex);
            std::erase(registry, this);
        }
        if (failure_ && failure_->load()) abort();
        if (!aborted_) ncclCommDestroy(comm_);
        cudaFree(word_);
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    CudaStream stream() const override { return stream_.get(); }
    void check_alive() override {
        const int32_t failed = failure_ ? failure_->load() : 0;
        if (failed) throw failure_of(failed);
        if (aborted_) throw PeerFailed{int(Exit::Resource), rank_};
    }

    ncclResult_t async_error() {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        ncclResult_t error = ncclSuccess;
        if (lock && !aborted_ && ncclCommGetAsyncError(comm_, &error) != ncclSuccess) return error;
        return error == ncclInProgress ? ncclSuccess : error;
    }
    // A thread that is inside of NCCL keeps what is given up here in use: it must be left alone,
    // and the watchdog ends the process.
    void abort() {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        if (!lock || aborted_) return;
        aborted_ = true;
        ncclCommAbort(comm_);
    }

  protected:
    void do_all_reduce(void* data, size_t n, Dtype t, ReduceOp op) override {
        if (n == 0) return;
        call("ncclAllReduce",
             [&] { return ncclAllReduce(data, data, n, type(t), operation(op), comm_, queue()); });
    }
    // NCCL cuts into equal slices; others are a group of reductions, each to the slice's owner.
    void do_reduce_scatter(void* mine, const void* all, Slices s, Dtype t, ReduceOp op) override {
        if (full(s))
            return call("ncclReduceScatter", [&] {
                return ncclReduceScatter(all, mine, s.each, type(t), operation(op), comm_, queue());
            });
        group(
            "ncclReduce",
            [&](int r) {
                return ncclReduce(at(all, s.begin(r), t), mine, s.count(r), type(t), operation(op),
                                  r, comm_, queue());
            },
            s);
    }
    void do_all_gather(void* all, const void* mine, Slices s, Dtype t) override {
        if (full(s))
            return call("ncclAllGather",
                        [&] { return ncclAllGather(mine, all, s.each, type(t), comm_, queue()); });
        group(
            "ncclBroadcast",
            [&](int r) {
                char* place = at(all, s.begin(r), t);
                return ncclBroadcast(r == rank_ ? mine : place, place, s.count(r), type(t), r,
                                     comm_, queue());
            },
            s);
    }
    void do_all_to_all(void* all, Slices s, Dtype t, const Take& take, void* room) override {
        const size_t mine = s.count(rank_);
        const auto place = [&](int r) -> char* {
            if (r == rank_) return at(all, s.begin(r), t);
            return at(room, size_t(r < rank_ ? r : r - 1) * s.each, t);
        };
        call("ncclGroupStart", [] { return ncclGroupStart(); });
        for (int r = 0; r < size_; r++) {
            if (r == rank_) continue;
            if (s.count(r))
                call("ncclSend", [&] {
                    return ncclSend(at(all, s.begin(r), t), s.count(r), type(t), r, comm_, queue());
                });
            if (mine)
                call("ncclRecv",
                     [&] { return ncclRecv(place(r), mine, type(t), r, comm_, queue()); });
        }
        call("ncclGroupEnd", [] { return ncclGroupEnd(); });
        for (int r = 0; r < size_ && mine; r++) take(place(r), 0, mine);
    }
    void do_broadcast(void* data, size_t n, Dtype t, int root) override {
        if (n == 0) return;
        call("ncclBroadcast",
             [&] { return ncclBroadcast(data, data, n, type(t), root, comm_, queue()); });
    }
    void do_send(const void* data, size_t n, Dtype t, int to) override {
        if (n == 0) return;
        call("ncclSend", [&] { return ncclSend(data, n, type(t), to, comm_, queue()); });
    }
    void do_recv(void* data, size_t n, Dtype t, int from) override {
        if (n == 0) return;
        call("ncclRecv", [&] { return ncclRecv(data, n, type(t), from, comm_, queue()); });
    }
    // The one call that the host waits for.
    void do_barrier() override {
        do_all_reduce(word_, 1, Dtype::I32, ReduceOp::Sum);
        CUDA_CHECK(cudaStreamSynchronize(queue()));
    }

  private:
    cudaStream_t queue() const { return cuda_stream(stream_.get()); }
    bool full(Slices s) const { return s.n == s.each * size_t(size_) && s.n > 0; }
    static char* at(const void* base, size_t first, Dtype t) {
        return const_cast<char*>(static_cast<const char*>(base)) + first * dtype_bytes(t);
    }

    void check(ncclResult_t result, const char* what) const {
        CHECK(result == ncclSuccess, Exit::Resource, str("NCCL: ", what),
              str(ncclGetErrorString(result), " ", ncclGetLastError(comm_)), "",
              "NCCL_DEBUG=INFO makes NCCL say more");
    }
    template <class Call>
    void call(const char* what, Call f) {
        const std::lock_guard lock(mutex_);
        check_alive();
        check(f(), what);
    }
    template <class Call>
    void group(const char* what, Call each, Slices s) {
        call("ncclGroupStart", [] { return ncclGroupStart(); });
        for (int r = 0; r < size_; r++)
            if (s.count(r)) call(what, [&] { return each(r); });
        call("ncclGroupEnd", [] { return ncclGroupEnd(); });
    }

    static ncclDataType_t type(Dtype t) {
        switch (t) {
            case Dtype::F32:
                return ncclFloat32;
            case Dtype::F64:
                return ncclFloat64;
            case Dtype::I32:
                return ncclInt32;
            case Dtype::I64:
                return ncclInt64;
            case Dtype::BF16:
                return ncclBfloat16;
            case Dtype::F16:
                return ncclFloat16;
            default:
                fail(Exit::Usage, "no collective of this type", dtype_name(t));
        }
    }
    static ncclRedOp_t operation(ReduceOp op) {
        return op == ReduceOp::Sum ? ncclSum : op == ReduceOp::Max ? ncclMax : ncclMin;
    }

    const int rank_, size_;
    const std::atomic<int32_t>* failure_;
    StreamOwner<CudaStream> stream_;
    std::mutex mutex_;  // around every call: the watchdog's thread must not give up what is in use
    std::atomic<bool> aborted_{false};
    ncclComm_t comm_ = nullptr;
    void* word_ = nullptr;  // (1)  what a barrier adds up
};

}  // namespace

std::unique_ptr<Comm> comm_nccl(Comm& host, const std::atomic<int32_t>* failure) {
    return std::make_unique<CommNccl>(host, failure);
}

std::string nccl_async_error() {
    const std::lock_guard lock(registry_mutex);
    for (CommNccl* comm : registry)
        if (const ncclResult_t error = comm->async_error(); error != ncclSuccess)
            return ncclGetErrorString(error);
    return "";
}

void nccl_abort() {
    const std::lock_guard lock(registry_mutex);
    for (CommNccl* comm : registry) comm->abort();
}

// Native atomics reach over NVLink and not over PCIe, which tells the two apart without NVML.
static std::string links_text() {
    int mine = 0, count = 0, links[3] = {};  // none, PCIe, NVLink
    if (cudaGetDevice(&mine) != cudaSuccess || cudaGetDeviceCount(&count) != cudaSuccess) return "";
    for (int other = 0; other < count; other++) {
        int access = 0, atomics = 0;
        if (other == mine) continue;
        if (cudaDeviceGetP2PAttribute(&access, cudaDevP2PAttrAccessSupported, mine, other) !=
                cudaSuccess ||
            cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, mine, other) !=
                cudaSuccess)
            return "";
        links[access && atomics ? 2 : access ? 1 : 0]++;
    }
    std::string text;
    constexpr const char* names[] = {" through the host", " by PCIe", " by NVLink"};
    for (int kind : {2, 1, 0})
        if (links[kind]) text += str(text.empty() ? "" : ", ", links[kind], names[kind]);
    return text.empty() ? "" : str("; GPU ", mine, " to others of this host: ", text);
}

std::string nccl_text() {
    return str("NCCL ", nccl_version_text(nccl_version()), links_text());
}

#else  // without NCCL

std::unique_ptr<Comm> comm_nccl(Comm&, const std::atomic<int32_t>*) {
    fail(Exit::Usage, "ranks on GPUs talk through NCCL, and this train_gpt was built without it",
         "", "",
         "install NCCL's header, then `make clean` and `make`; or --device cpu, or one process");
}
std::string nccl_text() {
    return "no NCCL";
}
std::string nccl_async_error() {
    return "";
}
void nccl_abort() {}

#endif
