// llmc/io/file_runs.h: tensors as runs of elements of a file, which is read where they lie.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "llmc/core/dtype.h"
#include "llmc/core/layout.h"

struct FileRun {
    int64_t first, count;  // elements of the tensor
    int64_t at;            // byte of the file
};
using FileRuns = std::map<std::string, std::vector<FileRun>>;  // by the tensor's name

// Reads `runs` of the file, which are fp32 or bf16, as fp32. Over all runs of a tensor each of its
// elements stands once. Errors while reading: Usage when the file is not there, Damaged when it
// ends early.
TensorSource file_runs_source(const std::string& path, FileRuns runs, Dtype dtype);
