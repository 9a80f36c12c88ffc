// llmc/io/safetensors.h: tensors by name in files of Hugging Face's format.
//
//   uint64 n, n bytes of JSON {name: {dtype, shape, data_offsets}, ...}, then the tensors' bytes;
//   data_offsets count from the end of the JSON
// A large model is a folder of such files with model.safetensors.index.json, whose weight_map says
// which file has which tensor.
//
// Files come from anywhere. Before anything is allocated by what a file says: the JSON is at most
// 100 MB, offsets lie inside the file and are the shape's size, and the tensors fill the file
// without holes or overlaps, as the format demands; an index names files beside itself only. These
// may be links, as all files are in the snapshots of Hugging Face's cache.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "llmc/core/dtype.h"
#include "llmc/core/layout.h"
#include "llmc/io/file_runs.h"
#include "llmc/io/files.h"

struct SafeTensor {
    int file;  // of SafeTensors::paths
    std::string dtype;
    std::vector<int64_t> shape;
    int64_t offset, bytes;  // in the file
    int64_t count() const { return shape_elements(shape); }
};

// F32, BF16 or F16: what SafeTensors::read takes.
bool safetensor_is_float(const SafeTensor& t);

class SafeTensors {
  public:
    // A .safetensors file, an index, or a folder with either. Errors: Usage when there is none,
    // Damaged for what breaks the format (file, tensor, found and expected).
    explicit SafeTensors(const std::string& path);

    const std::map<std::string, SafeTensor>& tensors() const { return tensors_; }
    // to (n) = elements first .. first + n of the tensor, as fp32. Errors: Damaged when its dtype
    // is none of F32, BF16, F16.
    void read(const std::string& name, int64_t first, int64_t n, float* to) const;

  private:
    void add_file(const std::string& path);

    std::vector<std::string> paths_;
    std::vector<Fd> files_;
    std::map<std::string, SafeTensor> tensors_;
};

// A tensor to be written: fill(first, n, to) gives elements first .. first + n.
struct SafeTensorSource {
    std::string name;
    std::vector<int64_t> shape;
    FloatSource fill;
    int64_t count() const { return shape_elements(shape); }
};

// Writes folder/model.safetensors, or several files and their index where one would be larger than
// file_bytes. dtype: F32, or BF16 rounded to nearest. A file gets its name when all of it is on
// disk.
void safetensors_write(const std::string& folder, const std::vector<SafeTensorSource>& tensors,
                       Dtype dtype, int64_t file_bytes = int64_t(5) << 30);
