// Memory of the CPU backend: zeroed pages straight from the kernel, huge pages where it has them.
#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "llmc/core/backend.h"
#include "llmc/core/check.h"

static std::atomic<size_t> in_use{0};
size_t memory_in_use(CpuStream) {
    return in_use;
}

void* memory_alloc(size_t bytes, const char* what, CpuStream) {
    if (bytes == 0) return nullptr;
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED, Exit::Resource, str("cannot allocate memory for ", what),
          str("no room for ", bytes, " bytes"), "",
          "a smaller --micro-batch, --seq-len or --model, or --recompute block");
    madvise(p, bytes, MADV_HUGEPAGE);  // only advice: 4 KiB pages work too, slower
    in_use += bytes;
    return p;
}
void memory_free(void* p, size_t bytes, CpuStream) {
    if (!p) return;
    munmap(p, bytes);
    in_use -= bytes;
}
void memory_zero(void* p, size_t bytes, CpuStream) {
    std::memset(p, 0, bytes);
}
void memory_to_host(void* host, const void* device, size_t bytes, CpuStream) {
    std::memcpy(host, device, bytes);
}
void memory_from_host(void* device, const void* host, size_t bytes, CpuStream) {
    std::memcpy(device, host, bytes);
}
void stream_sync(CpuStream) {}

void workspace_check(const char* op, Workspace ws, size_t needed) {
    CHECK(ws.bytes >= needed, Exit::Resource, str(op, ": the workspace is too small"),
          str(ws.bytes, " bytes"), str("at least ", needed));
}

#ifndef LLMC_CUDA
int cuda_device_count() {
    return 0;
}
std::string cuda_absence() {
    return "this train_gpt was built without CUDA";
}
void cuda_device_use(int) {}
CudaDevice cuda_device() {
    return {};
}
void cuda_note_step(int64_t) {}
#endif
