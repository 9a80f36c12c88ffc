// llmc/parallel/comm_testing.h: ranks as forked processes, or as threads, for tests that need no
// mpirun.
#pragma once
#include <gtest/gtest.h>
#include <omp.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "llmc/parallel/comm_shared.h"

inline int failures_so_far() {
    const testing::TestResult& result =
        *testing::UnitTest::GetInstance()->current_test_info()->result();
    int failures = 0;
    for (int i = 0; i < result.total_part_count(); i++)
        failures += result.GetTestPartResult(i).failed();
    return failures;
}

// Runs body(comm) on `ranks` forked processes that share memory; true if every one of them returned
// without failed expectations. A rank that waits for ever is ended after some minutes.
inline bool on_ranks(int ranks, const std::function<void(Comm&)>& body) {
    const size_t bytes = CommShared::bytes(ranks);
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    std::vector<pid_t> children;
    std::fflush(nullptr);  // else every child would print what is buffered once more
    for (int r = 0; r < ranks; r++) {
        const pid_t pid = ::fork();
        if (pid == 0) {
            ::alarm(300);
            const int before = failures_so_far();
            omp_set_num_threads(1);  // libgomp's pool does not survive a fork
            try {
                CommShared comm(memory, r, ranks, nullptr, ranks <= cores_given());
                body(comm);
            } catch (const std::exception& e) {
                ADD_FAILURE() << "rank " << r << ": " << e.what();
            }
            std::fflush(nullptr);
            ::_exit(failures_so_far() > before ? 1 : 0);
        }
        children.push_back(pid);
    }
    bool ok = true;
    for (pid_t pid : children) {
        int status = 0;
        ::waitpid(pid, &status, 0);
        ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    ::munmap(memory, bytes);
    return ok;
}

// Runs body(comm, background) on ranks that are threads of this process: the thread sanitizer sees
// all of them, and the protocol of the shared memory between them. `failure` as CommShared has it.
inline void on_threads(int ranks, const std::function<void(Comm& comm, Comm& background)>& body,
                       const std::atomic<int32_t>* failure = nullptr) {
    struct Pages {
        void operator()(char* p) const { std::free(p); }
    };
    const size_t bytes = CommShared::bytes(ranks);
    const auto zeroed = [&] { return std::unique_ptr<char, Pages>((char*)std::calloc(bytes, 1)); };
    const auto memory = zeroed(), background_memory = zeroed();
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; r++)
        threads.emplace_back([&, r] {
            omp_set_num_threads(1);
            try {
                CommShared comm(memory.get(), r, ranks, failure, ranks <= cores_given());
                CommShared background(background_memory.get(), r, ranks, failure,
                                      ranks <= cores_given());
                body(comm, background);
            } catch (const std::exception& e) {
                ADD_FAILURE() << "rank " << r << ": " << e.what();
            }
        });
    for (std::thread& t : threads) t.join();
}
