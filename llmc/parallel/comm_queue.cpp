#include "llmc/parallel/comm_queue.h"

#include <omp.h>

#include "llmc/parallel/comm_record.h"  // comm_clock
#include "llmc/parallel/timeline.h"

CommQueue::CommQueue(bool overlap) {
    if (overlap) thread_ = std::thread([this] { serve(); });
}

CommQueue::~CommQueue() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        work_.clear();
    }
    changed_.notify_all();
    thread_.join();
}

void CommQueue::serve() {
    timeline_thread(Row::Communication);
    omp_set_num_threads(1);  // of this thread: the cores belong to the one that computes
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return ending_ || !work_.empty(); });
        if (ending_) return;
        const std::function<void()> work = std::move(work_.front());
        work_.pop_front();
        const bool skip = error_ != nullptr;
        lock.unlock();
        const double begin = comm_clock();
        std::exception_ptr error;
        try {
            if (!skip) work();
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        times_.busy += comm_clock() - begin;
        if (error) error_ = error;
        done_++;
        changed_.notify_all();
    }
}

int64_t CommQueue::submit(std::function<void()> work) {
    if (!thread_.joinable()) {
        run(work);
        return 0;
    }
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
    return ++submitted_;
}

void CommQueue::wait(int64_t ticket) {
    if (!thread_.joinable()) return;
    std::unique_lock lock(mutex_);
    const double begin = comm_clock();
    changed_.wait(lock, [&] { return done_ >= ticket; });
    const double end = comm_clock();
    times_.exposed += end - begin;
    if (end - begin > 1e-6) timeline_add("wait for communication", "", -1, begin, end);
    if (error_) std::rethrow_exception(error_);
}

void CommQueue::drain() {
    wait(submitted_);
}

void CommQueue::run(const std::function<void()>& work) {
    drain();
    const double begin = comm_clock();
    work();
    const double seconds = comm_clock() - begin;
    const std::lock_guard lock(mutex_);
    times_.busy += seconds, times_.exposed += seconds;
}

CommQueue::Times CommQueue::take_times() {
    const std::lock_guard lock(mutex_);
    const Times times = times_;
    times_ = {};
    return times;
}
