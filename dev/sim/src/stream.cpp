// Streams as lazy queues, events, flat graphs.
//
// Nothing runs when it is issued. What the host waits for runs, with what that depends on, and no
// more; so work that lacks a dependency runs too late and its reader finds garbage, every time.
// CUSIM_STREAM=rand:SEED lets some operations of random streams run early, eager runs all at once.
#include "stream.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "api.h"
#include "memory.h"
#include "report.h"
#include "sanitizer.h"
#include "trace.h"
#include "tsan.h"

namespace cusim {
namespace {

// How many operations of each stream are known to be over; missing entries are 0.
using Clock = std::vector<uint64_t>;
void merge(Clock& into, const Clock& from) {
    if (into.size() < from.size()) into.resize(from.size());
    for (size_t i = 0; i < from.size(); i++) into[i] = std::max(into[i], from[i]);
}
void advance(Clock& clock, unsigned stream, uint64_t number) {
    if (clock.size() <= stream) clock.resize(stream + 1);
    clock[stream] = std::max(clock[stream], number);
}

struct Dependency {
    cudaStream_t stream;
    uint64_t number;
};
struct QueuedOperation {
    std::function<void()> work;
    const char* what;
    std::vector<Dependency> after;
    Clock issued;                 // what the host knew then
    std::shared_ptr<char> token;  // orders the host's past before it, for the thread sanitizer
    bool peers = false;
};

}  // namespace
}  // namespace cusim

using namespace cusim;

struct CUgraph_st {
    std::vector<QueuedOperation> operations;
};
struct CUgraphExec_st {
    std::vector<QueuedOperation> operations;
};
struct CUstream_st {
    unsigned index = 0;
    std::deque<QueuedOperation> queue;
    uint64_t done = 0;
    bool blocking = true;  // ordered with the default stream
    Clock clock;           // what its last operation knew, itself included
    cudaGraph_t capture = nullptr;
    void* tsan_fiber = nullptr;
    char tsan_sync = 0;
    uint64_t tail() const { return done + queue.size(); }
};
struct CUevent_st {
    struct Record {
        double ms = 0;
        Clock clock;
    };
    cudaStream_t stream = nullptr;  // null: never recorded
    uint64_t number = 0;
    std::shared_ptr<Record> record;
    cudaGraph_t capture = nullptr;
};

namespace cusim {
namespace {

enum class Mode { Lazy, Eager, Random };
struct Streams {
    std::vector<cudaStream_t> all;      // the default stream first
    std::vector<cudaStream_t> retired;  // destroyed, but events may still name them
    Mode mode = Mode::Lazy;
    Random random;
    Clock host;  // what the host knows to be over
    unsigned created = 0;
};

cudaStream_t stream_create(Streams& s, bool blocking) {
    auto* stream = new CUstream_st;
    stream->index = s.created++;
    stream->blocking = blocking;
    if (kTsan) stream->tsan_fiber = __tsan_create_fiber(0);
    s.all.push_back(stream);
    return stream;
}
Streams* streams_create() {
    auto* s = new Streams;
    const char* mode = getenv("CUSIM_STREAM");
    if (!mode || !strcmp(mode, "lazy")) {
        s->mode = Mode::Lazy;
    } else if (!strcmp(mode, "eager")) {
        s->mode = Mode::Eager;
    } else if (!strncmp(mode, "rand:", 5)) {
        s->mode = Mode::Random;
        s->random.state = strtoull(mode + 5, nullptr, 10);
    } else {
        fail("CUSIM_STREAM=%s: expected lazy, eager or rand:SEED", mode);
    }
    stream_create(*s, true);
    return s;
}
Streams& streams() {
    static Streams* const all = streams_create();
    return *all;
}
cudaStream_t resolve(cudaStream_t s) {
    return s ? s : streams().all[0];
}

void run_until(cudaStream_t s, uint64_t number);

void run_work(QueuedOperation& op) {
    if (op.work) op.work();
    op.work = nullptr;  // what it holds dies in this stream's name too
}

void run_front(cudaStream_t s) {
    QueuedOperation op = std::move(s->queue.front());
    s->queue.pop_front();
    for (const Dependency& d : op.after) run_until(d.stream, d.number);
    if (kTrace) {
        merge(s->clock, op.issued);
        for (const Dependency& d : op.after) merge(s->clock, d.stream->clock);
        advance(s->clock, s->index, s->done + 1);
        trace_operation_begin({op.what, s->index, s->done + 1, s->clock});
    }
    if (kTsan) {
        tsan_run_as(s->tsan_fiber, [&] {
            __tsan_acquire(op.token.get());
            for (const Dependency& d : op.after) __tsan_acquire(&d.stream->tsan_sync);
            run_work(op);
            __tsan_release(&s->tsan_sync);
        });
    } else {
        run_work(op);
    }
    s->done++;
}
void run_until(cudaStream_t s, uint64_t number) {
    if (s->done >= number) return;
    const DeviceAccess access;
    fault_reports_enable();
    while (s->done < number) run_front(s);
}

// The legacy default stream waits for all blocking streams, and they wait for it.
std::vector<Dependency> default_stream_rule(cudaStream_t s) {
    std::vector<Dependency> after;
    cudaStream_t legacy = streams().all[0];
    if (s == legacy) {
        for (cudaStream_t other : streams().all)
            if (other != s && other->blocking) after.push_back({other, other->tail()});
    } else if (s->blocking) {
        after.push_back({legacy, legacy->tail()});
    }
    return after;
}

uint64_t enqueue(cudaStream_t s, QueuedOperation op) {
    if (s->capture) {
        s->capture->operations.push_back(std::move(op));
        return 0;
    }
    op.token = std::make_shared<char>();
    op.after = default_stream_rule(s);
    if (kTrace) op.issued = streams().host;
    if (kTsan) __tsan_release(op.token.get());
    s->queue.push_back(std::move(op));
    const uint64_t number = s->tail();
    if (streams().mode == Mode::Eager) run_until(s, number);
    if (streams().mode == Mode::Random) {
        auto& all = streams().all;
        for (uint32_t k = streams().random.below(3); k > 0; k--) {
            cudaStream_t some = all[streams().random.below(uint32_t(all.size()))];
            if (!some->queue.empty()) run_until(some, some->done + 1);
        }
    }
    return number;
}

void host_sync(cudaStream_t s) {
    run_until(s, s->tail());
    if (kTrace) merge(streams().host, s->clock);
    if (kTsan) __tsan_acquire(&s->tsan_sync);
}

// A collective waits for other processes, and they for us, while this host may be busy elsewhere
// and not wait for its stream for long. So a thread of ours runs such operations after a while.
void pump() {
    for (;;) {
        usleep(20'000);
        const ApiLock lock;
        for (cudaStream_t s : std::vector<cudaStream_t>(streams().all)) {
            auto last = std::find_if(s->queue.rbegin(), s->queue.rend(),
                                     [](const QueuedOperation& op) { return op.peers; });
            run_until(s, s->done + uint64_t(s->queue.rend() - last));
        }
    }
}

void copy_bytes(void* dst, const void* src, size_t bytes, bool from_device, bool to_device) {
    if (kTrace && from_device) trace_range(src, bytes, false, "cudaMemcpy");
    if (kTrace && to_device) trace_range(dst, bytes, true, "cudaMemcpy");
    memmove(dst, src, bytes);
}

}  // namespace

void stream_enqueue(cudaStream_t stream, const char* what, std::function<void()> work, bool peers) {
    const ApiLock lock;
    QueuedOperation op{std::move(work), what, {}, {}, {}, peers};
    enqueue(resolve(stream), std::move(op));
    if (peers) {
        static const bool started = (std::thread(pump).detach(), true);
        (void)started;
    }
}
void enqueue_work(cudaStream_t stream, const char* what, std::function<void()> work) {
    stream_enqueue(stream, what, std::move(work));
}
void library_reads(const void* p, size_t bytes, const char* what) {
    if (kTrace) trace_range(p, bytes, false, what);
}
void library_writes(const void* p, size_t bytes, const char* what) {
    if (kTrace) trace_range(p, bytes, true, what);
}

}  // namespace cusim

// ---- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    const ApiLock lock;
    *stream = stream_create(streams(), flags != cudaStreamNonBlocking);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}
// The object stays: events may name it.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const ApiLock lock;
    run_until(stream, stream->tail());
    std::erase(streams().all, stream);
    streams().retired.push_back(stream);
    return device_error();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    const ApiLock lock;
    if (const cudaError_t error = device_error()) return error;
    host_sync(resolve(stream));
    return device_error();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    const ApiLock lock;
    cudaStream_t s = resolve(stream);
    if (s->queue.empty()) return cudaStreamSynchronize(s);
    run_until(s, s->done + 1);
    return cudaErrorNotReady;
}
// Streams run one after another, the latest first: an order that a missing dependency cannot be
// lucky with.
cudaError_t cudaDeviceSynchronize() {
    const ApiLock lock;
    if (const cudaError_t error = device_error()) return error;
    std::vector<cudaStream_t> all = streams().all;
    std::reverse(all.begin(), all.end());
    if (streams().mode == Mode::Random)
        for (size_t i = all.size(); i > 1; i--)
            std::swap(all[i - 1], all[streams().random.below(uint32_t(i))]);
    for (cudaStream_t s : all) host_sync(s);
    return device_error();
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*fn)(void*), void* data) {
    stream_enqueue(stream, "cudaLaunchHostFunc", [=] { fn(data); });
    return cudaSuccess;
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    *event = new CUevent_st;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const ApiLock lock;
    cudaStream_t s = resolve(stream);
    auto record = std::make_shared<CUevent_st::Record>();
    event->stream = s;
    event->capture = s->capture;
    event->record = record;
    auto work = [record, s] {
        using Clock = std::chrono::steady_clock;
        record->ms =
            std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
        record->clock = s->clock;
        if (kTsan) __tsan_release(record.get());
    };
    event->number = enqueue(s, {work, "cudaEventRecord", {}, {}, {}, false});
    return device_error();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    const ApiLock lock;
    cudaStream_t s = resolve(stream);
    if (!event->stream) return cudaSuccess;  // never recorded: no wait, as in CUDA
    if (event->capture) {  // a fork or join of a capture; the order of recording is the order
        s->capture = event->capture;
        return cudaSuccess;
    }
    auto work = [s, from = event->stream, number = event->number, record = event->record] {
        run_until(from, number);
        if (kTrace) merge(s->clock, record->clock);
        if (kTsan) __tsan_acquire(record.get());
    };
    enqueue(s, {work, "cudaStreamWaitEvent", {}, {}, {}, false});
    return device_error();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    const ApiLock lock;
    if (!event->stream) return device_error();
    run_until(event->stream, event->number);
    if (kTrace) merge(streams().host, event->record->clock);
    if (kTsan) __tsan_acquire(event->record.get());
    return device_error();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    const ApiLock lock;
    if (!event->stream || event->stream->done >= event->number) return cudaEventSynchronize(event);
    run_until(event->stream, event->stream->done + 1);
    return cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    cudaEventSynchronize(start);
    cudaEventSynchronize(end);
    *ms = float(end->record->ms - start->record->ms);
    return device_error();
}

// ---- graphs: the captured operations as a list, run in the order of their recording

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    const ApiLock lock;
    if (!stream) fail("cudaStreamBeginCapture: the default stream cannot be captured");
    stream->capture = new CUgraph_st;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    const ApiLock lock;
    *graph = stream->capture;
    for (cudaStream_t s : streams().all)
        if (s->capture == *graph) s->capture = nullptr;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    *exec = new CUgraphExec_st{graph->operations};
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    const ApiLock lock;
    cudaStream_t s = resolve(stream);
    for (const QueuedOperation& op : exec->operations) enqueue(s, op);
    return device_error();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    cudaDeviceSynchronize();
    delete exec;
    return cudaSuccess;
}

// ---- copies and fills

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream, Where at) {
    const ApiLock lock;
    if (const cudaError_t error = device_error()) return error;
    if (bytes == 0) return cudaSuccess;
    const Allocation *to = allocation_at(dst), *from = allocation_at(src);
    if (kind == cudaMemcpyDefault) {
        const bool to_device = to && to->is_device(), from_device = from && from->is_device();
        kind = cudaMemcpyKind((from_device ? 2 : 0) + (to_device ? 1 : 0));
    }
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    auto side = [](bool device) { return device ? Side::Device : Side::Host; };
    check_range(dst, bytes, side(to_device), "cudaMemcpy (destination)", at);
    check_range(src, bytes, side(from_device), "cudaMemcpy (source)", at);
    if (kind == cudaMemcpyHostToDevice &&
        !from) {  // pageable memory is staged before the call returns
        auto staged = std::make_shared<std::vector<char>>(static_cast<const char*>(src),
                                                          static_cast<const char*>(src) + bytes);
        stream_enqueue(stream, "cudaMemcpy",
                       [=] { copy_bytes(dst, staged->data(), bytes, false, true); });
        return cudaSuccess;
    }
    // Pinned memory is the copy's until it is waited for: a target holds garbage, and both are kept
    // from the host.
    const bool pinned_target = kind == cudaMemcpyDeviceToHost && to;
    const bool pinned_source = kind == cudaMemcpyHostToDevice && from;
    if (pinned_target && !kMsan) fill_bytes(dst, 0xff, bytes);
    if (pinned_target) pinned_hold(dst, bytes, true);
    if (pinned_source) pinned_hold(src, bytes, false);
    stream_enqueue(stream, "cudaMemcpy", [=] {
        if (pinned_target) pinned_release(dst, bytes);
        if (pinned_source) pinned_release(src, bytes);
        copy_bytes(dst, src, bytes, from_device, to_device);
    });
    if (kind == cudaMemcpyDeviceToHost && !to) host_sync(resolve(stream));  // pageable: not async
    return device_error();
}
cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind, Where at) {
    if (const cudaError_t error = cudaMemcpyAsync(dst, src, bytes, kind, nullptr, at)) return error;
    return cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream, Where at) {
    const ApiLock lock;
    if (const cudaError_t error = device_error()) return error;
    if (bytes == 0) return cudaSuccess;
    check_range(p, bytes, Side::Device, "cudaMemset", at);
    stream_enqueue(stream, "cudaMemset", [=] {
        if (kTrace) trace_range(p, bytes, true, "cudaMemset");
        memset(p, value, bytes);
    });
    return cudaSuccess;
}
cudaError_t cudaMemset(void* p, int value, size_t bytes, Where at) {
    return cudaMemsetAsync(p, value, bytes, nullptr, at);
}
