// llmc/io/manifest.h: manifest.json, the one file that says what a checkpoint is made of.
//
// It lists every file with size and digest, and every tensor with its pieces and its hash, and it
// carries its own digest. What it does not list does not belong to the checkpoint.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "llmc/core/dtype.h"
#include "llmc/core/hash.h"

// What a checkpoint says about its run; model, train and layout are the trainer's and opaque here.
// JSON keeps a finite double exactly, but turns NaN and infinity into null.
struct CheckpointMeta {
    std::string run_id;
    int64_t step = 0;
    int64_t tokens = 0;     // consumed so far
    nlohmann::json model;   // the model's configuration
    nlohmann::json train;   // run_state.h's fields, the options that count samples, the tokenizer
    nlohmann::json layout;  // ranks, ZeRO stage
};

struct ManifestFile {
    std::string name;  // "shards/rank-00000.h5" ... in rank order, then "model.h5"
    int64_t bytes = 0;
    std::string digest;
};

// A flat range of the row-major global tensor. Pieces of a tensor-parallel run, whose slices are
// boxes, will carry the box beside the range in a later version of the manifest.
struct ManifestPiece {
    int file = 0;  // index into Manifest::files
    int64_t offset = 0, count = 0;
};

struct ManifestTensor {
    std::string group, name;
    Dtype dtype = Dtype::F32;
    std::vector<int64_t> shape;
    TensorHash hash;
    std::vector<ManifestPiece> pieces;  // ascending, without gap or overlap
};

struct Manifest {
    CheckpointMeta meta;
    std::string state;  // manifest_state(tensors)
    std::vector<ManifestFile> files;
    std::vector<ManifestTensor> tensors;  // ascending by (group, name)
};

constexpr const char* VIEW_FILE = "model.h5";
constexpr const char* MANIFEST_FILE = "manifest.json";
std::string shard_name(int rank);  // "shards/rank-00000.h5"

// The number of elements; refuses non-positive dimensions, more than 8 of them, and products beyond
// 2^60.
int64_t shape_count(const std::vector<int64_t>& shape);
// Letters, digits, '.', '_', '-', not starting with '.', at most 128: safe as a file, HDF5 or JSON
// name.
bool name_is_plain(const std::string& name);
// weights, m, v; and master, which is reserved: masters in fp32 beside weights of 16 bits.
bool group_is_known(const std::string& group);

// The hash of a state: over group, name, dtype, shape and hash of every tensor, in name order.
// Independent of the layout, because tensor hashes are.
std::string manifest_state(const std::vector<ManifestTensor>& tensors);

// Throws Exit::Damaged unless the pieces of every tensor tile it exactly and all names, shapes and
// files are as this header says.
void manifest_check(const Manifest& m);

std::string manifest_text(const Manifest& m);
// The text of a JSON object with its digest in front.
std::string manifest_seal(const nlohmann::json& body);
// Reads what manifest_text wrote and nothing else: size, nesting, digest, version, every field and
// every number are checked. `where` names the file in errors.
Manifest manifest_parse(const std::string& text, const std::string& where);
constexpr int64_t MANIFEST_LIMIT = 256 << 20;  // bytes
