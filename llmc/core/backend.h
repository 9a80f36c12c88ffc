// llmc/core/backend.h: where work runs. The only header that knows whether this build has CUDA.
//
// Every op takes a stream as its last argument, and the stream's type picks the backend by
// overloading: CpuStream is the definition of every op, CudaStream the fast one. The model is a
// template over (Elem, Stream) and is written once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

// LLMC_CUDA is set by the Makefile for CUDA builds and for the host simulator. FOR_CUDA(text) is
// text there and nothing elsewhere: templates over streams name their CUDA instances with it.
#ifdef LLMC_CUDA
constexpr bool kBuiltWithCuda = true;
#define FOR_CUDA(...) __VA_ARGS__
#else
constexpr bool kBuiltWithCuda = false;
#define FOR_CUDA(...)
#endif

// Work runs at once, on the calling thread and its OpenMP team.
struct CpuStream {};

// Work is queued, in order, on one CUDA stream. The handle is a cudaStream_t; no CUDA header here.
struct CudaStream {
    void* handle = nullptr;
};

// Scratch memory that an op may use during one call. Each op that needs some has a function
// <op>_workspace_bytes(sizes..., stream); the planner adds the largest one to the plan, and nothing
// is allocated inside an op.
struct Workspace {
    void* data = nullptr;
    size_t bytes = 0;
};
// Throws Error(Exit::Resource) where `op` is given less scratch than it has asked for.
void workspace_check(const char* op, Workspace ws, size_t needed);

// ---- memory of a backend; sizes in bytes
// Throws Error(Exit::Resource) naming `what` when the memory is not there. Zeroed, 64-byte aligned.
void* memory_alloc(size_t bytes, const char* what, CpuStream s);
void* memory_alloc(size_t bytes, const char* what, CudaStream s);
void memory_free(void* p, size_t bytes, CpuStream s);
void memory_free(void* p, size_t bytes, CudaStream s);
void memory_zero(void* p, size_t bytes, CpuStream s);
void memory_zero(void* p, size_t bytes, CudaStream s);
// Between host memory and the backend's memory. The host side may be reused on return.
void memory_to_host(void* host, const void* device, size_t bytes, CpuStream s);
void memory_to_host(void* host, const void* device, size_t bytes, CudaStream s);
void memory_from_host(void* device, const void* host, size_t bytes, CpuStream s);
void memory_from_host(void* device, const void* host, size_t bytes, CudaStream s);
// Blocks until everything queued on the stream is done.
void stream_sync(CpuStream s);
void stream_sync(CudaStream s);

// Bytes that memory_alloc has handed out and memory_free has not taken back.
size_t memory_in_use(CpuStream s);
size_t memory_in_use(CudaStream s);

// A stream of its own, for as long as the object lives.
template <class Stream>
class StreamOwner;
template <>
class StreamOwner<CpuStream> {
  public:
    CpuStream get() const { return {}; }
};
template <>
class StreamOwner<CudaStream> {
  public:
    StreamOwner();
    ~StreamOwner();
    StreamOwner(const StreamOwner&) = delete;
    StreamOwner& operator=(const StreamOwner&) = delete;
    CudaStream get() const { return stream_; }

  private:
    CudaStream stream_;
};

// ---- the machine's GPUs; in a CPU build there are none
// Number of usable CUDA devices; 0 in a CPU build, without a driver, or on any error.
int cuda_device_count();
// Why there are none: a CPU build, no driver, a driver older than this build, no GPU, ...
std::string cuda_absence();
std::string cuda_absence(int error, const char* name, int driver, int runtime);
// The calling thread's work goes to this device from now on.
void cuda_device_use(int device);

struct CudaDevice {
    std::string name;
    int arch = 0;  // compute capability 9.0 is 90
    size_t memory = 0;
};
CudaDevice cuda_device();

// Names the training step in the message of a CUDA error. No-op in a CPU build.
void cuda_note_step(int64_t step);
