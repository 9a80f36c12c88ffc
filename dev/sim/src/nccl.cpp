// NCCL between processes of one host: a shared memory file with one slot a rank for collectives and
// one mailbox a pair for sends. Reductions run in rank order, 16-bit floats sum in fp32 and round
// once; mismatched collectives and silent ranks are errors, not hangs.
#include "nccl.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "report.h"
#include "stream.h"

namespace {
using cusim::fail;
using cusim::library_reads;
using cusim::library_writes;

constexpr int kMaxRanks = 64;
constexpr size_t kSlot = 1 << 20, kMailbox = 64 << 10, kHeader = 16 << 10;

enum class Kind { AllReduce, Reduce, ReduceScatter, AllGather, Broadcast, Send, Recv };
const char* kind_name(Kind kind) {
    static const char* const names[] = {"ncclAllReduce", "ncclReduce",    "ncclReduceScatter",
                                        "ncclAllGather", "ncclBroadcast", "ncclSend",
                                        "ncclRecv"};
    return names[int(kind)];
}

// What a rank says that it is about to do; all must say the same.
struct Call {
    Kind kind;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;  // or peer
    size_t count;
    bool operator==(const Call&) const = default;
};
struct Header {
    unsigned arrived[2], phase;
    Call calls[kMaxRanks];
};
struct Mailbox {
    unsigned full;  // bytes, 0: empty
    char data[kMailbox];
};
static_assert(sizeof(Header) <= kHeader, "the header has its own pages");

long timeout_seconds() {
    static const long seconds = cusim::env_number("CUSIM_NCCL_TIMEOUT", 30);
    return seconds;
}

size_t type_bytes(ncclDataType_t t) {
    switch (t) {
        case ncclInt8:
        case ncclUint8:
            return 1;
        case ncclFloat16:
        case ncclBfloat16:
            return 2;
        case ncclInt64:
        case ncclUint64:
        case ncclFloat64:
            return 8;
        default:
            return 4;
    }
}

// Sums in the type itself; bf16 in float.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, __nv_bfloat16>, float, T>;

template <class T>
void reduce_typed(char* out, const std::vector<const char*>& in, size_t n, ncclRedOp_t op) {
    using Acc = Accumulator<T>;
    auto value = [](const char* p, size_t i) { return Acc(reinterpret_cast<const T*>(p)[i]); };
    for (size_t i = 0; i < n; i++) {
        Acc v = value(in[0], i);
        for (size_t r = 1; r < in.size(); r++) {
            const Acc w = value(in[r], i);
            switch (op) {
                case ncclProd:
                    v = v * w;
                    break;
                case ncclMax:
                    v = v > w ? v : w;
                    break;
                case ncclMin:
                    v = v < w ? v : w;
                    break;
                default:
                    v = v + w;
            }
        }
        if (op == ncclAvg) v = v / Acc(in.size());
        reinterpret_cast<T*>(out)[i] = T(v);
    }
}
void reduce(char* out, const std::vector<const char*>& in, size_t n, ncclDataType_t t,
            ncclRedOp_t op) {
    switch (t) {
        case ncclInt8:
            return reduce_typed<int8_t>(out, in, n, op);
        case ncclUint8:
            return reduce_typed<uint8_t>(out, in, n, op);
        case ncclInt32:
            return reduce_typed<int32_t>(out, in, n, op);
        case ncclUint32:
            return reduce_typed<uint32_t>(out, in, n, op);
        case ncclInt64:
            return reduce_typed<int64_t>(out, in, n, op);
        case ncclUint64:
            return reduce_typed<uint64_t>(out, in, n, op);
        case ncclFloat32:
            return reduce_typed<float>(out, in, n, op);
        case ncclFloat64:
            return reduce_typed<double>(out, in, n, op);
        case ncclBfloat16:
            return reduce_typed<__nv_bfloat16>(out, in, n, op);
        case ncclFloat16:
            fail("nccl: fp16 reductions are not simulated");
    }
}

struct Aborted {};
struct Request {
    Call call;
    const char* in;
    char* out;
    ncclComm_t comm;
    cudaStream_t stream;
};

}  // namespace

struct ncclComm {
    int rank, ranks;
    Header* header;
    char *slots, *mailboxes;
    unsigned phase = 0;
    std::atomic<bool> aborted{false};  // by any thread: what waits gives up

    char* slot(int r) { return slots + size_t(r) * kSlot; }
    Mailbox& mailbox(int from, int to) {
        return reinterpret_cast<Mailbox*>(mailboxes)[from * ranks + to];
    }

    template <class Done>
    void wait(const char* what, Done done) {
        for (const time_t start = time(nullptr); !done(); sched_yield()) {
            if (aborted) throw Aborted{};
            if (time(nullptr) - start > timeout_seconds())
                fail("%s: rank %d waited %ld s for the other ranks (CUSIM_NCCL_TIMEOUT)", what,
                     rank, timeout_seconds());
        }
    }
    // A counter that the last rank resets; two alternate, so that a fast rank cannot lap it.
    void barrier(const char* what) {
        const unsigned now = phase++;
        unsigned* arrived = &header->arrived[now & 1];
        if (__atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL) == unsigned(ranks)) {
            __atomic_store_n(arrived, 0, __ATOMIC_RELAXED);
            __atomic_store_n(&header->phase, now + 1, __ATOMIC_RELEASE);
            return;
        }
        wait(what, [&] {
            return int(__atomic_load_n(&header->phase, __ATOMIC_ACQUIRE) - (now + 1)) >= 0;
        });
    }
    void agree(const Call& call) {
        const char* what = kind_name(call.kind);
        header->calls[rank] = call;
        barrier(what);
        for (int r = 0; r < ranks; r++) {
            const Call& other = header->calls[r];
            if (!(other == call))
                fail(
                    "%s: rank %d passes count %zu, type %d, op %d, root %d; rank %d is in %s with "
                    "count %zu, type %d, op %d, root %d",
                    what, rank, call.count, call.type, call.op, call.root, r, kind_name(other.kind),
                    other.count, other.type, other.op, other.root);
        }
        barrier(what);
    }

    void collective(const Request& q);
    void transfers(std::vector<Request>& requests);
};

// Piece by piece: everybody fills its slot, a barrier, everybody reads what it needs, a barrier.
void ncclComm::collective(const Request& q) {
    const Call& c = q.call;
    const char* what = kind_name(c.kind);
    const size_t element = type_bytes(c.type), n = size_t(ranks);
    const bool scatter = c.kind == Kind::ReduceScatter, gather = c.kind == Kind::AllGather;
    const bool is_root = rank == c.root;
    const bool sends = c.kind != Kind::Broadcast || is_root;
    const bool receives = c.kind != Kind::Reduce || is_root;
    agree(c);
    if (sends) library_reads(q.in, c.count * element * (scatter ? n : 1), what);
    if (receives) library_writes(q.out, c.count * element * (gather ? n : 1), what);
    const size_t piece = kSlot / element / (scatter ? n : 1);
    for (size_t first = 0; first < c.count; first += piece) {
        const size_t m = std::min(piece, c.count - first), bytes = m * element;
        if (scatter)
            for (size_t r = 0; r < n; r++)
                memcpy(slot(rank) + r * bytes, q.in + (r * c.count + first) * element, bytes);
        else if (sends)
            memcpy(slot(rank), q.in + first * element, bytes);
        barrier(what);
        char* out = q.out + first * element;
        if (gather) {
            for (int r = 0; r < ranks; r++)
                memcpy(out + size_t(r) * c.count * element, slot(r), bytes);
        } else if (c.kind == Kind::Broadcast) {
            memcpy(out, slot(c.root), bytes);
        } else if (receives) {
            std::vector<const char*> in;
            for (int r = 0; r < ranks; r++)
                in.push_back(slot(r) + (scatter ? size_t(rank) * bytes : 0));
            reduce(out, in, m, c.type, c.op);
        }
        barrier(what);
    }
}

// Sends and receives of one group progress together, each pair's in order.
void ncclComm::transfers(std::vector<Request>& requests) {
    std::vector<size_t> done(requests.size(), 0);
    auto bytes = [](const Request& q) { return q.call.count * type_bytes(q.call.type); };
    for (const Request& q : requests) {
        if (q.call.kind == Kind::Send)
            library_reads(q.in, bytes(q), "ncclSend");
        else
            library_writes(q.out, bytes(q), "ncclRecv");
    }
    auto step = [&](size_t i) {  // one mailbox full, if it can go
        const Request& q = requests[i];
        const bool send = q.call.kind == Kind::Send;
        Mailbox& box = send ? mailbox(rank, q.call.root) : mailbox(q.call.root, rank);
        const unsigned full = __atomic_load_n(&box.full, __ATOMIC_ACQUIRE);
        if (send == (full != 0)) return;
        if (send) {
            const size_t m = std::min(kMailbox, bytes(q) - done[i]);
            memcpy(box.data, q.in + done[i], m);
            done[i] += m;
            __atomic_store_n(&box.full, unsigned(m), __ATOMIC_RELEASE);
        } else {
            if (full > bytes(q) - done[i])
                fail("ncclRecv: rank %d sends more than the %zu bytes that rank %d expects",
                     q.call.root, bytes(q), rank);
            memcpy(q.out + done[i], box.data, full);
            done[i] += full;
            __atomic_store_n(&box.full, 0, __ATOMIC_RELEASE);
        }
    };
    wait("ncclSend/ncclRecv", [&] {
        bool all = true;
        for (size_t i = 0; i < requests.size(); i++) {
            if (done[i] == bytes(requests[i])) continue;
            all = false;
            bool first = true;  // of its pair and direction
            for (size_t k = 0; k < i; k++)
                first &= done[k] == bytes(requests[k]) ||
                         requests[k].call.kind != requests[i].call.kind ||
                         requests[k].call.root != requests[i].call.root;
            if (first) step(i);
        }
        return all;
    });
}

// ---- groups: calls between ncclGroupStart and ncclGroupEnd are issued together

namespace {

int group_depth = 0;
std::vector<Request> group;

void issue(std::vector<Request> requests) {
    while (!requests.empty()) {
        // One operation for each stream and communicator of the group.
        std::vector<Request> mine, rest;
        for (Request& q : requests) {
            const bool same = q.stream == requests[0].stream && q.comm == requests[0].comm;
            (same ? mine : rest).push_back(q);
        }
        ncclComm_t comm = mine[0].comm;
        const char* what = kind_name(mine[0].call.kind);
        auto work = [comm, mine] {
            if (comm->aborted) return;
            std::vector<Request> transfers;
            try {
                for (const Request& q : mine) {
                    if (q.call.kind == Kind::Send || q.call.kind == Kind::Recv)
                        transfers.push_back(q);
                    else
                        comm->collective(q);
                }
                if (!transfers.empty()) comm->transfers(transfers);
            } catch (const Aborted&) {
            }  // the results are garbage, as on a GPU
        };
        cusim::stream_enqueue(mine[0].stream, what, work, comm->ranks > 1);
        requests = rest;
    }
}
ncclResult_t submit(const Request& q) {
    if (!q.comm) return ncclInvalidArgument;
    if (q.call.root < 0 || q.call.root >= q.comm->ranks) return ncclInvalidArgument;
    if (group_depth > 0)
        group.push_back(q);
    else
        issue({q});
    return ncclSuccess;
}
ncclResult_t submit(Kind kind, const void* in, void* out, size_t count, ncclDataType_t type,
                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return submit({{kind, type, op, root, count},
                   static_cast<const char*>(in),
                   static_cast<char*>(out),
                   comm,
                   stream});
}

}  // namespace

ncclResult_t ncclGroupStart() {
    group_depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    if (group_depth == 0) return ncclInvalidUsage;
    if (--group_depth == 0) {
        std::vector<Request> requests;
        requests.swap(group);
        issue(std::move(requests));
    }
    return ncclSuccess;
}

// ---- communicators

ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclInvalidArgument:
            return "invalid argument";
        case ncclInvalidUsage:
            return "invalid usage";
        case ncclSystemError:
            return "unhandled system error";
        default:
            return "nccl error";
    }
}
const char* ncclGetLastError(ncclComm_t) {
    return "";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static int count = 0;
    snprintf(id->internal, sizeof id->internal, "/dev/shm/cusim_nccl_%d_%d", getpid(), count++);
    return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks) return ncclInvalidArgument;
    const size_t n = size_t(ranks), bytes = kHeader + n * kSlot + n * n * sizeof(Mailbox);
    const int file = open(id.internal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, off_t(bytes)) != 0) return ncclSystemError;
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (p == MAP_FAILED) return ncclSystemError;
    char* base = static_cast<char*>(p);
    *comm = new ncclComm;
    (*comm)->rank = rank, (*comm)->ranks = ranks;
    (*comm)->header = static_cast<Header*>(p);
    (*comm)->slots = base + kHeader, (*comm)->mailboxes = base + kHeader + n * kSlot;
    (*comm)->barrier("ncclCommInitRank");
    if (rank == 0) unlink(id.internal);  // all have it open
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    cudaDeviceSynchronize();
    const size_t n = size_t(comm->ranks);
    munmap(comm->header, kHeader + n * kSlot + n * n * sizeof(Mailbox));
    delete comm;
    return ncclSuccess;
}
// What is queued still looks at the communicator: it is given up, not taken away.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->aborted = true;
    return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
    *error = ncclSuccess;  // an error aborts the process, with a report
    return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* ranks) {
    *ranks = comm->ranks;
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
    *rank = comm->rank;
    return ncclSuccess;
}

// ---- what can be issued

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return submit(Kind::AllReduce, in, out, count, type, op, 0, comm, stream);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return submit(Kind::Reduce, in, out, count, type, op, root, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count_each, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return submit(Kind::ReduceScatter, in, out, count_each, type, op, 0, comm, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count_each, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return submit(Kind::AllGather, in, out, count_each, type, ncclSum, 0, comm, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return submit(Kind::Broadcast, in, out, count, type, ncclSum, root, comm, stream);
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return submit(Kind::Send, in, nullptr, count, type, ncclSum, peer, comm, stream);
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return submit(Kind::Recv, nullptr, out, count, type, ncclSum, peer, comm, stream);
}
