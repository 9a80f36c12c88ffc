// Launches: what is checked when one is issued, and how its blocks run.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "api.h"
#include "block.h"
#include "memory.h"
#include "report.h"
#include "sanitizer.h"
#include "stream.h"
#include "symbols.h"
#include "trace.h"
#include "tsan.h"

namespace cusim {
namespace {

void check_shape(const Launch& l, const KernelInfo& info) {
    const size_t threads = size_t(l.block.x) * l.block.y * l.block.z;
    const bool fits = threads >= 1 && threads <= kMaxThreads && l.block.z <= 64 && l.grid.x >= 1 &&
                      l.grid.x <= 0x7fffffffu && l.grid.y >= 1 && l.grid.y <= 65535 &&
                      l.grid.z >= 1 && l.grid.z <= 65535;
    if (!fits)
        fail("kernel %s: bad launch configuration <<<(%u,%u,%u), (%u,%u,%u)>>>", info.name.c_str(),
             l.grid.x, l.grid.y, l.grid.z, l.block.x, l.block.y, l.block.z);
    if (info.max_threads && threads > info.max_threads)
        fail("kernel %s: launched with %zu threads a block, its __launch_bounds__ allows %u",
             info.name.c_str(), threads, info.max_threads);
}

// 48 KiB without asking; with cudaFuncSetAttribute what the device has, static and dynamic
// together.
void check_shared_memory(const Launch& l, const KernelInfo& info) {
    constexpr size_t kDefault = 48 * 1024;
    const size_t total = info.static_smem + l.smem;
    const size_t device_limit = device_properties().sharedMemPerBlockOptin;
    if (info.static_smem > kDefault)
        fail("kernel %s: %zu bytes of static shared memory, the limit is %zu", info.name.c_str(),
             info.static_smem, kDefault);
    if (total > kDefault && l.smem > size_t(info.max_dynamic_smem))
        fail(
            "kernel %s: %zu bytes of dynamic shared memory and %zu of static, over %zu without "
            "cudaFuncSetAttribute(MaxDynamicSharedMemorySize) (it allows %d now)",
            info.name.c_str(), l.smem, info.static_smem, kDefault, info.max_dynamic_smem);
    if (total > device_limit)
        fail(
            "kernel %s: %zu bytes of dynamic shared memory and %zu of static, the device has %zu "
            "a block",
            info.name.c_str(), l.smem, info.static_smem, device_limit);
}

// The block's dynamic shared memory ends at a guard page, or is the tool's to guard.
char* dynamic_smem_open(size_t bytes) {
    if (kAsan) {
        void* p = nullptr;
        if (posix_memalign(&p, 1024, std::max<size_t>(bytes, 1))) fail("out of host memory");
        return static_cast<char*>(p);
    }
    constexpr size_t kCapacity = 256 * 1024, kPage = 4096, kAlign = 128;
    static char* const low = [] {
        void* p = mmap(nullptr, kCapacity + kPage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) fail("cannot map shared memory");
        mprotect(static_cast<char*>(p) + kCapacity, kPage, PROT_NONE);
        return static_cast<char*>(p);
    }();
    return low + kCapacity - (bytes + kAlign - 1) / kAlign * kAlign;
}
void dynamic_smem_close(char* p) {
    if (kAsan) free(p);
}

// Shared memory holds garbage when a block starts: all ones, which is NaN in every float format.
void poison_shared_memory() {
    auto poison = [](char* p, size_t bytes) {
        if (kMsan)
            __msan_poison(p, bytes);
        else
            fill_bytes(p, 0xff, bytes);
    };
    for (const SharedVariable* v : block.shared) poison(v->p, v->bytes);
    if (block.launch.smem) poison(block.dynamic_smem, block.launch.smem);
}

// Its own, and those of device functions, which any kernel may call. Which are whose shows only
// when kernels run, so unclaimed ones count as everybody's.
std::vector<SharedVariable*> shared_for(const void* kernel) {
    std::vector<SharedVariable*> all = kernel_info(kernel).shared;
    for (SharedVariable* v : shared_variables())
        if (!v->claimed) all.push_back(v);
    return all;
}

std::vector<unsigned> block_order(unsigned count) {
    static const Order order = env_order("CUSIM_SCHED");
    static Random random{order.seed ^ 0x5eed};
    std::vector<unsigned> blocks(count);
    std::iota(blocks.begin(), blocks.end(), 0u);
    if (order.kind == Order::Reverse) std::reverse(blocks.begin(), blocks.end());
    if (order.kind == Order::Random)
        for (unsigned i = count; i > 1; i--) std::swap(blocks[i - 1], blocks[random.below(i)]);
    return blocks;
}

}  // namespace

void* dyn_smem() {
    return block.dynamic_smem;
}

void kernel_run(const Launch& l, const std::function<void()>& body) {
    block.launch = l;
    block.body = &body;
    block.threads = int(l.block.x * l.block.y * l.block.z);
    block.dynamic_smem = dynamic_smem_open(l.smem);
    {
        const Unseen notes;
        block.shared = shared_for(l.kernel);
    }
    gridDim = l.grid;
    blockDim = l.block;
    block.running = true;
    for (unsigned b : block_order(l.grid.x * l.grid.y * l.grid.z)) {
        blockIdx = {b % l.grid.x, b / l.grid.x % l.grid.y, b / l.grid.x / l.grid.y};
        poison_shared_memory();
        if (kTrace) trace_block_begin();
        block_run();
        if (kTrace) trace_block_end();
    }
    if (kTrace) trace_kernel_end();
    if (kTsan) tsan_kernel_end();
    block.running = false;
    dynamic_smem_close(block.dynamic_smem);
}

void check_kernel_argument(const void* p, int index, const void* kernel) {
    if (p && !allocation_at(p, true))
        fail("kernel %s: argument %d (%p) is %s", kernel_info(kernel).name.c_str(), index, p,
             describe_pointer(p).c_str());
}

cudaError_t enqueue_kernel(cudaStream_t stream, const Launch& launch, std::function<void()> body) {
    const ApiLock lock;
    const KernelInfo& info = kernel_info(launch.kernel);
    check_shape(launch, info);
    check_shared_memory(launch, info);
    if (const cudaError_t error = device_error()) return error;
    count_launch(info.name);
    stream_enqueue(stream, info.name.c_str(),
                   [launch, body = std::move(body)] { kernel_run(launch, body); });
    return cudaSuccess;
}

}  // namespace cusim

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    using namespace cusim;
    const ApiLock lock;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    KernelInfo& info = kernel_info(kernel);
    const size_t limit = device_properties().sharedMemPerBlockOptin - info.static_smem;
    if (size_t(value) > limit)
        fail(
            "kernel %s: MaxDynamicSharedMemorySize %d, the device allows %zu beside %zu bytes of "
            "static shared memory",
            info.name.c_str(), value, limit, info.static_smem);
    info.max_dynamic_smem = std::max(info.max_dynamic_smem, value);
    return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
    const cusim::ApiLock lock;
    *name = cusim::kernel_info(kernel).mangled.c_str();
    return cudaSuccess;
}
