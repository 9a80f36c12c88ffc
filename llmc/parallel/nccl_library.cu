// NCCL, found at run time: the functions that comm_nccl.cu calls, each handing its call on to the
// library. In the simulator these functions are the simulator's; without NCCL's header there are
// none.
#if !defined(CUSIM) && __has_include(<nccl.h>)
#include <dlfcn.h>
#include <nccl.h>

#include <string>

#include "llmc/core/check.h"

static void* open_library() {
    std::string reason;
    for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"}) {
        const std::string name = str(folder, "libnccl.so.2");
        if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
        const char* error = dlerror();
        if (reason.empty()) reason = error ? error : "unknown";
    }
    fail(Exit::Resource, "cannot load NCCL, through which GPUs talk", reason, "libnccl.so.2",
         "install NCCL, or name its folder in LD_LIBRARY_PATH");
}

static void* symbol(const char* name) {
    static void* const library = open_library();
    void* found = dlsym(library, name);
    CHECK(found, Exit::Resource, "NCCL lacks a function", name);
    return found;
}

#define FORWARD(result, name, parameters, arguments)                                  \
    result name parameters {                                                          \
        static auto* const theirs = reinterpret_cast<decltype(&name)>(symbol(#name)); \
        return theirs arguments;                                                      \
    }
#define FORWARD_CALL(name, parameters, arguments) FORWARD(ncclResult_t, name, parameters, arguments)

extern "C" {
FORWARD(const char*, ncclGetErrorString, (ncclResult_t result), (result))
FORWARD(const char*, ncclGetLastError, (ncclComm_t comm), (comm))
FORWARD_CALL(ncclGetVersion, (int* version), (version))
FORWARD_CALL(ncclGetUniqueId, (ncclUniqueId * id), (id))
FORWARD_CALL(ncclCommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank),
             (comm, ranks, id, rank))
FORWARD_CALL(ncclCommDestroy, (ncclComm_t comm), (comm))
FORWARD_CALL(ncclCommAbort, (ncclComm_t comm), (comm))
FORWARD_CALL(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error), (comm, error))
FORWARD_CALL(ncclGroupStart, (), ())
FORWARD_CALL(ncclGroupEnd, (), ())
FORWARD_CALL(ncclAllReduce,
             (const void* in, void* out, size_t n, ncclDataType_t type, ncclRedOp_t op,
              ncclComm_t comm, cudaStream_t stream),
             (in, out, n, type, op, comm, stream))
FORWARD_CALL(ncclReduce,
             (const void* in, void* out, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
              ncclComm_t comm, cudaStream_t stream),
             (in, out, n, type, op, root, comm, stream))
FORWARD_CALL(ncclReduceScatter,
             (const void* in, void* out, size_t each, ncclDataType_t type, ncclRedOp_t op,
              ncclComm_t comm, cudaStream_t stream),
             (in, out, each, type, op, comm, stream))
FORWARD_CALL(ncclAllGather,
             (const void* in, void* out, size_t each, ncclDataType_t type, ncclComm_t comm,
              cudaStream_t stream),
             (in, out, each, type, comm, stream))
FORWARD_CALL(ncclBroadcast,
             (const void* in, void* out, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
              cudaStream_t stream),
             (in, out, n, type, root, comm, stream))
FORWARD_CALL(ncclSend,
             (const void* in, size_t n, ncclDataType_t type, int to, ncclComm_t comm,
              cudaStream_t stream),
             (in, n, type, to, comm, stream))
FORWARD_CALL(ncclRecv,
             (void* out, size_t n, ncclDataType_t type, int from, ncclComm_t comm,
              cudaStream_t stream),
             (out, n, type, from, comm, stream))
}
#endif
