// llmc/io/file_runs.h: tensors in files: numbers of 2 or 4 bytes there, fp32 here.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "llmc/core/dtype.h"
#include "llmc/core/layout.h"

// n numbers of a file from byte `at` on: fp32, bf16, or fp16, which is only read. bf16 is rounded
// to nearest. What is written is asked for once and in order: source(first, n, to).
using FloatSource = std::function<void(int64_t first, int64_t n, float* to)>;
void floats_read(int fd, int64_t at, float* to, int64_t n, Dtype dtype, const std::string& path);
void floats_write(int fd, int64_t at, const FloatSource& source, int64_t n, Dtype dtype,
                  const std::string& path);

// The first bytes of a model file that the user named, fewer where it is shorter; returns the size
// of the file. Usage when there is none: `kind` was expected.
int64_t model_head_read(const std::string& path, const char* kind, void* to, size_t bytes);

struct FileRun {
    int64_t first, count;  // elements of the tensor
    int64_t at;            // byte of the file
};
using FileRuns = std::map<std::string, std::vector<FileRun>>;  // by the tensor's name

// Reads `runs` of the file, which are fp32 or bf16, as fp32. Over all runs of a tensor each of its
// elements stands once. Errors while reading: Usage when the file is not there, Damaged when it
// ends early.
TensorSource file_runs_source(const std::string& path, FileRuns runs, Dtype dtype);
