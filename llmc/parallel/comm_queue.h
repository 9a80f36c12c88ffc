// llmc/parallel/comm_queue.h: communication behind the back of backward.
//
// One thread runs what is submitted, in order; so all ranks issue their collectives in the same
// order, whatever their speed. While the queue is not empty nobody else may use its communicator:
// drain() first. Without overlap the work is done at once, by the caller.
//
// Two of a kind: CommQueue for host memory, StreamQueue for GPUs.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "llmc/core/backend.h"

class CommQueue {
  public:
    explicit CommQueue(bool overlap);
    ~CommQueue();
    CommQueue(const CommQueue&) = delete;
    CommQueue& operator=(const CommQueue&) = delete;

    // Returns a ticket for wait(). Work that throws ends the queue: what comes after it is dropped,
    // and wait() and drain() throw the same.
    int64_t submit(std::function<void()> work);
    void wait(int64_t ticket);  // until this work is done; 0: nothing to wait for
    void drain();               // until all is done
    // At once, after all that was submitted; returns when it is done.
    void run(const std::function<void()>& work);
    CpuStream stream() const { return {}; }  // of what the work computes

    // Seconds since the last call: spent on the work, and by the caller waiting for it. What was
    // not waited for was hidden behind other work.
    struct Times {
        double busy = 0, exposed = 0;
        double hidden() const { return busy > exposed ? busy - exposed : 0; }
    };
    Times take_times();

  private:
    void serve();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> work_;
    int64_t submitted_ = 0, done_ = 0;
    bool ending_ = false;
    std::exception_ptr error_;
    Times times_;
    std::thread thread_;  // last: it uses the others
};

// On a GPU nothing needs a thread: work is queued on the stream of its communicator, behind what
// the computing stream has been told before. wait() makes the computing stream wait, not the host.
// The times are those of the GPU, as far as they are known when they are asked for.
class StreamQueue {
  public:
    // Without a communication stream, on one rank, there is nothing to put in order.
    StreamQueue(bool overlap, CudaStream compute, CudaStream communication);
    ~StreamQueue();
    StreamQueue(const StreamQueue&) = delete;
    StreamQueue& operator=(const StreamQueue&) = delete;

    int64_t submit(const std::function<void()>& work);
    void wait(int64_t ticket);
    void drain() { wait(submitted_); }
    void run(const std::function<void()>& work) { wait(submit(work)); }
    CudaStream stream() const { return communication_; }
    CommQueue::Times take_times();

  private:
    struct Span {
        void *begin, *end;  // cudaEvent_t
    };
    void* event_record(CudaStream s);
    void collect(std::deque<Span>& spans, double& seconds, size_t keep);

    bool overlap_;
    CudaStream compute_, communication_;
    std::deque<Span> work_, waits_;       // not known to be over
    int64_t submitted_ = 0, waited_ = 0;  // tickets
    std::vector<void*> free_;             // events
    CommQueue::Times times_;
};
