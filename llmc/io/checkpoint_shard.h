// llmc/io/checkpoint_shard.h: the HDF5 file of one rank, and model.h5, the view over all of them.
//
// A shard holds /<group>/<tensor name>/<flat offset>, one contiguous one-dimensional dataset a
// piece, with the attributes `shape` (of the global tensor) and `offset`. Contiguous data without
// filters is bytes at an address, so readers take the address from HDF5 and read and digest the
// bytes themselves: HDF5 keeps no checksum of contiguous data and reads what was never written as
// fill values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/checkpoint.h"
#include "llmc/io/files.h"

// A piece and where its bytes are.
struct ShardPiece {
    std::string group, name;
    Dtype dtype = Dtype::F32;
    std::vector<int64_t> shape;
    int64_t offset = 0, count = 0;
    int64_t address = 0;  // of the first byte in the file
    TensorHash hash;      // of the elements; filled by writing and by reading back
};

// Order by (group, name, offset), and equality of all but address and hash.
bool piece_before(const ShardPiece& a, const ShardPiece& b);
bool piece_same(const ShardPiece& a, const ShardPiece& b);
// What a shard of these pieces will hold, in order; with the hashes of what is in memory, or
// without looking at it.
enum class Hashes { Take, Leave };
std::vector<ShardPiece> pieces_to_store(const std::vector<TensorPiece>& pieces, Hashes hashes);

// The hash of elements in memory, as if widened to fp32 (which loses nothing of bf16).
TensorHash piece_hash(Dtype t, const void* data, int64_t count, int64_t offset);

// Writes a new file and makes it durable (all but its directory entry). `pieces` may come in any
// order and may be empty.
void shard_write(const std::string& path, const std::vector<TensorPiece>& pieces);

// The file's size without writing it: the same calls, to nowhere.
int64_t shard_bytes(const std::vector<TensorPiece>& pieces);
// A size that it will not exceed, by arithmetic alone.
int64_t shard_bytes_bound(const std::vector<TensorPiece>& pieces);

// The pieces in an open shard, ascending by (group, name, offset), after checking all that the file
// says about itself: hard links only, known groups, plain names, contiguous, unfiltered, stored
// inside, expected types, shapes and ranges that fit, bytes inside the file and nowhere shared.
// Nothing is allocated by a size that the file claims. `path` is for messages.
std::vector<ShardPiece> shard_pieces(int fd, const std::string& path, size_t limit);

// One pass over the whole file: its digest, and the hash of each piece, from the same bytes.
std::string shard_digest(int fd, const std::string& path, std::vector<ShardPiece>& pieces);

// `count` elements from `first` (index in the global tensor) of a piece.
void shard_read(int fd, const std::string& path, const ShardPiece& piece, int64_t first,
                int64_t count, void* to);

// A box of an n-dimensional array that is also a run of consecutive elements.
struct Box {
    std::vector<int64_t> start, size;
};
// The boxes, in order, that a flat range of a row-major array falls into: at most 2 n - 1 (the rest
// of a row, whole rows, the start of a row, and so on outward).
std::vector<Box> range_boxes(const std::vector<int64_t>& shape, int64_t offset, int64_t count);

// The bytes of model.h5: a virtual dataset /<tensor name> in its global shape for each tensor of
// group weights, mapped to the pieces in the shards; whatever is missing reads as NaN.
std::string view_image(const std::vector<ManifestFile>& files,
                       const std::vector<ManifestTensor>& tensors);
