// llmc/parallel/comm_queue.h: communication behind the back of backward.
//
// One thread runs what is submitted, in order; so all ranks issue their collectives in the same
// order, whatever their speed. While the queue is not empty nobody else may use its communicator:
// drain() first. Without overlap the work is done at once, by the caller.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

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

    // Seconds since the last call: spent on the work, and by the caller waiting for it. What was
    // not waited for was hidden behind other work.
    struct Times {
        double busy = 0, exposed = 0;
        double hidden() const { return busy > exposed ? busy - exposed : 0; }
    };
    Times take_times();

  private:
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> work_;
    int64_t submitted_ = 0, done_ = 0;
    bool ending_ = false;
    std::exception_ptr error_;
    Times times_;
    std::thread thread_;  // last: it uses the others
};
