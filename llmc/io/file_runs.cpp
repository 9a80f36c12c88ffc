#include "llmc/io/file_runs.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "llmc/core/check.h"
#include "llmc/io/files.h"

// n elements from this byte on.
static void run_read(int fd, const std::string& path, Dtype dtype, int64_t at, int64_t n,
                     float* to) {
    if (dtype == Dtype::F32) return read_exactly(fd, to, size_t(n) * sizeof(float), at, path);
    constexpr int64_t kStep = 1 << 18;
    std::vector<bf16> narrow(size_t(std::min(kStep, n)));
    for (int64_t i = 0; i < n; i += kStep) {
        const int64_t m = std::min(kStep, n - i);
        read_exactly(fd, narrow.data(), size_t(m) * sizeof(bf16), at + i * int64_t(sizeof(bf16)),
                     path);
        for (int64_t k = 0; k < m; k++) to[i + k] = to_float(narrow[size_t(k)]);
    }
}

TensorSource file_runs_source(const std::string& path, FileRuns runs, Dtype dtype) {
    const std::shared_ptr<FILE> file(std::fopen(path.c_str(), "rb"),
                                     [](FILE* f) { return f ? std::fclose(f) : 0; });
    CHECK(file, Exit::Usage, "cannot open the model file " + path, std::strerror(errno));
    return [=, runs = std::move(runs)](const ParamTensor& t, int64_t first, int64_t n, float* to) {
        int64_t done = 0;
        for (const FileRun& run : runs.at(t.name)) {
            const int64_t begin = std::max(first, run.first);
            const int64_t count = std::min(first + n, run.first + run.count) - begin;
            if (count <= 0) continue;
            run_read(fileno(file.get()), path, dtype,
                     run.at + (begin - run.first) * int64_t(dtype_bytes(dtype)), count,
                     to + (begin - first));
            done += count;
        }
        CHECK(done == n, Exit::Damaged, path + ": elements that it does not have",
              str(t.name, ", ", first, " to ", first + n));
    };
}
