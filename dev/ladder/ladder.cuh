// dev/ladder/ladder.cuh: what the ladders share. A ladder takes one kernel from naive to shipped in
// small steps; each rung is checked against the CPU and measured the same way:
//   in the simulator's trace mode  bytes requested, bytes moved, sector efficiency, bank conflicts
//   on a GPU                       microseconds (median of 20)
// One line of a Markdown table a rung; scripts/ladder_table.sh puts the tables into README.md.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "llmc/core/launch.cuh"
#include "llmc/core/packed.cuh"
#include "llmc/core/rng.h"
#ifdef CUSIM
#include "cusim/counters.h"
#endif

constexpr CudaStream kCuda{};
constexpr CpuStream kCpu{};

// Memory on the device, filled from the host.
template <class T>
class Device {
  public:
    explicit Device(const std::vector<T>& host) : n_(host.size()), p_(alloc()) {
        memory_from_host(p_, host.data(), n_ * sizeof(T), kCuda);
    }
    explicit Device(size_t n) : n_(n), p_(alloc()) {}
    ~Device() { memory_free(p_, n_ * sizeof(T), kCuda); }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    operator T*() const { return p_; }
    std::vector<T> host() const {
        std::vector<T> h(n_);
        memory_to_host(h.data(), p_, n_ * sizeof(T), kCuda);
        return h;
    }

  private:
    T* alloc() { return static_cast<T*>(memory_alloc(n_ * sizeof(T), "ladder", kCuda)); }
    size_t n_;
    T* p_;
};

inline std::vector<bf16> random_bf16(size_t n, const char* name, float std = 1) {
    std::vector<float> x(n);
    random_normal(x.data(), n, 0, 0.f, std, 1, name_hash(name));
    std::vector<bf16> y(n);
    for (size_t i = 0; i < n; i++) y[i] = to_bf16(x[i]);
    return y;
}
inline std::vector<float> widen(const std::vector<bf16>& x) {
    std::vector<float> y(x.size());
    for (size_t i = 0; i < x.size(); i++) y[i] = to_float(x[i]);
    return y;
}

// Largest |found - expected| / (1 + |expected|); a NaN counts as infinite.
inline double relative_error(const std::vector<bf16>& found, const std::vector<float>& expected) {
    double worst = 0;
    for (size_t i = 0; i < found.size(); i++) {
        const double e =
            std::fabs(double(to_float(found[i])) - expected[i]) / (1 + std::fabs(expected[i]));
        worst = std::max(worst, std::isnan(e) ? INFINITY : e);
    }
    return worst;
}

class Ladder {
  public:
    // `least`: bytes that any kernel for this has to move.
    Ladder(const char* title, double least, double tolerance)
        : least_(least), tolerance_(tolerance) {
        std::printf("\n## %s\n\n", title);
#ifdef CUSIM
        std::printf(
            "| rung | what it buys | requested / least | moved / least | requests of a warp "
            "| sector efficiency | bank conflicts | error |\n|---|---|---|---|---|---|---|---|\n");
#else
        std::printf("| rung | what it buys | us | error |\n|---|---|---|---|\n");
#endif
    }

    // Runs, checks, prints. `clear` makes sure that results of the last rung do not pass for this
    // one's; `error` reads the results back.
    void rung(const char* name, const char* buys, const std::function<void()>& clear,
              const std::function<void()>& run, const std::function<double()>& error) {
        clear();
        stream_sync(kCuda);
#ifdef CUSIM
        cusim::counters_reset();
        run();
        stream_sync(kCuda);
        const cusim::KernelCounters c = cusim::counters_total();
        const double e = error();
        std::printf("| %d %s | %s | %.2f | %.2f | %.0f | %.2f | %.2f | %.1e |\n", ++count_, name,
                    buys, double(c.read_requested + c.written_requested) / least_,
                    double(c.moved()) / least_, double(c.requests), c.sector_efficiency(),
                    c.conflicts_per_access(), e);
#else
        run();
        const double e = error();
        std::printf("| %d %s | %s | %.1f | %.1e |\n", ++count_, name, buys, median_us(run), e);
#endif
        if (!(e <= tolerance_)) {
            std::printf("rung %s: error %g, allowed %g\n", name, e, tolerance_);
            failed = true;
        }
    }
    static inline bool failed = false;

  private:
#ifndef CUSIM
    static double median_us(const std::function<void()>& run) {
        cudaEvent_t begin, end;
        CUDA_CHECK(cudaEventCreate(&begin));
        CUDA_CHECK(cudaEventCreate(&end));
        std::vector<float> us;
        for (int i = 0; i < 20; i++) {
            CUDA_CHECK(cudaEventRecord(begin, cuda_stream(kCuda)));
            run();
            CUDA_CHECK(cudaEventRecord(end, cuda_stream(kCuda)));
            CUDA_CHECK(cudaEventSynchronize(end));
            float ms = 0;
            CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
            us.push_back(1000 * ms);
        }
        CUDA_CHECK(cudaEventDestroy(begin));
        CUDA_CHECK(cudaEventDestroy(end));
        std::nth_element(us.begin(), us.begin() + 10, us.end());
        return us[10];
    }
#endif
    double least_, tolerance_;
    int count_ = 0;
};

void layernorm_ladder();
void classifier_ladder();
void matmul_ladder();
void attention_ladder();
