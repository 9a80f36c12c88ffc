#include "llmc/io/file_runs.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "llmc/core/check.h"
#include "llmc/io/files.h"

static constexpr int64_t kPiece = 1 << 20;  // elements converted at a time

void floats_read(int fd, int64_t at, float* to, int64_t n, Dtype dtype, const std::string& path) {
    if (dtype == Dtype::F32) return read_exactly(fd, to, size_t(n) * sizeof(float), at, path);
    std::vector<uint16_t> narrow(size_t(std::min(kPiece, n)));
    for (int64_t i = 0; i < n; i += kPiece) {
        const int64_t m = std::min(kPiece, n - i);
        read_exactly(fd, narrow.data(), size_t(m) * 2, at + i * 2, path);
        for (int64_t k = 0; k < m; k++)
            to[i + k] = dtype == Dtype::BF16 ? to_float(bf16{narrow[size_t(k)]})
                                             : from_fp16(narrow[size_t(k)]);
    }
}

void floats_write(int fd, int64_t at, const FloatSource& source, int64_t n, Dtype dtype,
                  const std::string& path) {
    std::vector<float> wide;
    std::vector<bf16> narrow;
    for (int64_t i = 0; i < n; i += kPiece) {
        const size_t m = size_t(std::min(kPiece, n - i)), bytes = m * dtype_bytes(dtype);
        wide.resize(m);
        source(i, int64_t(m), wide.data());
        if (dtype == Dtype::F32) {
            write_exactly(fd, wide.data(), bytes, at, path);
        } else {
            narrow.resize(m);
            for (size_t k = 0; k < m; k++) narrow[k] = to_bf16(wide[k]);
            write_exactly(fd, narrow.data(), bytes, at, path);
        }
        at += int64_t(bytes);
    }
}

static Fd model_open(const std::string& path) {
    Fd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    CHECK(fd >= 0, Exit::Usage, "cannot open the model file " + path, std::strerror(errno));
    return fd;
}

int64_t model_head_read(const std::string& path, const char* kind, void* to, size_t bytes) {
    struct stat info {};
    CHECK(stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode), Exit::Usage,
          "cannot read the model file", path, kind);
    read_exactly(model_open(path), to, std::min(bytes, size_t(info.st_size)), 0, path);
    return info.st_size;
}

TensorSource file_runs_source(const std::string& path, FileRuns runs, Dtype dtype) {
    const auto file = std::make_shared<const Fd>(model_open(path));
    return [=, runs = std::move(runs)](const ParamTensor& t, int64_t first, int64_t n, float* to) {
        int64_t done = 0;
        for (const FileRun& run : runs.at(t.name)) {
            const int64_t begin = std::max(first, run.first);
            const int64_t count = std::min(first + n, run.first + run.count) - begin;
            if (count <= 0) continue;
            floats_read(*file, run.at + (begin - run.first) * int64_t(dtype_bytes(dtype)),
                        to + (begin - first), count, dtype, path);
            done += count;
        }
        CHECK(done == n, Exit::Damaged, path + ": elements that it does not have",
              str(t.name, ", ", first, " to ", first + n));
    };
}
