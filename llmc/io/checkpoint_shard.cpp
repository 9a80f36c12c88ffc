#include "llmc/io/checkpoint_shard.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <tuple>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/io/h5_file.h"

static_assert(std::endian::native == std::endian::little, "files are little-endian, as memory is");

TensorHash piece_hash(Dtype t, const void* data, int64_t count, int64_t offset) {
    if (t == Dtype::F32)
        return tensor_hash(static_cast<const float*>(data), size_t(count), uint64_t(offset));
    assert(t == Dtype::BF16);
    const bf16* x = static_cast<const bf16*>(data);
    std::vector<float> wide(size_t(std::min<int64_t>(count, 1 << 20)));
    TensorHash sum;
    for (int64_t at = 0; at < count; at += int64_t(wide.size())) {
        const int64_t n = std::min(count - at, int64_t(wide.size()));
        for (int64_t i = 0; i < n; i++) wide[size_t(i)] = to_float(x[at + i]);
        sum.add(tensor_hash(wide.data(), size_t(n), uint64_t(offset + at)));
    }
    return sum;
}

bool piece_before(const ShardPiece& a, const ShardPiece& b) {
    return std::tie(a.group, a.name, a.offset) < std::tie(b.group, b.name, b.offset);
}

bool piece_same(const ShardPiece& a, const ShardPiece& b) {
    return std::tie(a.group, a.name, a.dtype, a.shape, a.offset, a.count) ==
           std::tie(b.group, b.name, b.dtype, b.shape, b.offset, b.count);
}

// visit(first, n, data) for the piece as it lies in memory, or step by step as it is made.
template <class Visit>
static void piece_visit(const TensorPiece& p, Visit visit) {
    if (!p.fill) return visit(p.offset, p.count, static_cast<const void*>(p.data));
    constexpr int64_t kStep = 1 << 20;
    std::vector<char> step(size_t(std::min(kStep, p.count)) * dtype_bytes(p.dtype));
    for (int64_t at = 0; at < p.count; at += kStep) {
        const int64_t n = std::min(kStep, p.count - at);
        p.fill(p.offset + at, n, step.data());
        visit(p.offset + at, n, static_cast<const void*>(step.data()));
    }
}

std::vector<ShardPiece> pieces_to_store(const std::vector<TensorPiece>& pieces, Hashes hashes) {
    std::vector<ShardPiece> stored;
    for (const TensorPiece& p : pieces) {
        if (p.count == 0) continue;
        stored.push_back({p.group, p.name, p.dtype, p.shape, p.offset, p.count, 0, {}});
        if (hashes == Hashes::Take)
            piece_visit(p, [&](int64_t first, int64_t n, const void* data) {
                stored.back().hash.add(piece_hash(p.dtype, data, n, first));
            });
    }
    std::sort(stored.begin(), stored.end(), piece_before);
    return stored;
}

// ---- writing

// Late allocation and a NaN fill: a piece that was never written has no address, and one that was
// written in part shows it.
static H5Handle dataset_properties(hid_t type, Dtype t, bool fills) {
    H5Handle create = h5_properties(H5P_DATASET_CREATE);
    const uint32_t nan32 = 0x7fc00000;
    const uint16_t nan16 = 0x7fc0;
    const void* nan = t == Dtype::F32 ? static_cast<const void*>(&nan32) : &nan16;
    H5_CHECK(H5Pset_layout(create, H5D_CONTIGUOUS));
    H5_CHECK(H5Pset_alloc_time(create, H5D_ALLOC_TIME_LATE));
    H5_CHECK(H5Pset_fill_value(create, type, nan));
    if (!fills) H5_CHECK(H5Pset_fill_time(create, H5D_FILL_TIME_NEVER));
    H5_CHECK(H5Pset_obj_track_times(create, 0));
    return create;
}

static void write_piece(hid_t tensor_group, const TensorPiece& p, bool sizes_only) {
    H5Handle type = h5_type(p.dtype);
    H5Handle space = h5_space({p.count});
    // What is written in steps would first be filled as a whole, and is read back anyway.
    H5Handle create = dataset_properties(type, p.dtype, !sizes_only && !p.fill);
    H5Handle dataset(H5_CHECK(H5Dcreate2(tensor_group, str(p.offset).c_str(), type, space,
                                         H5P_DEFAULT, create, H5P_DEFAULT)),
                     H5Dclose);
    h5_attribute_write(dataset, "shape", p.shape);
    h5_attribute_write(dataset, "offset", {p.offset});
    if (sizes_only) {
        // One element makes HDF5 allocate the whole, as the real write does.
        const hsize_t last = hsize_t(p.count - 1), one = 1;
        const uint64_t zero = 0;
        H5Handle single = h5_space({1});
        H5_CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &last, nullptr, &one, nullptr));
        H5_CHECK(H5Dwrite(dataset, type, single, space, H5P_DEFAULT, &zero));
    } else if (p.fill) {
        piece_visit(p, [&](int64_t first, int64_t n, const void* data) {
            const hsize_t start = hsize_t(first - p.offset), count = hsize_t(n);
            H5Handle part = h5_space({n});
            H5_CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, nullptr, &count, nullptr));
            H5_CHECK(H5Dwrite(dataset, type, part, space, H5P_DEFAULT, data));
        });
    } else {
        // One write for all of it: HDF5 hands our memory to the system as it is, without a copy and
        // without writing fill values first.
        H5_CHECK(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, p.data));
    }
    dataset.close();
}

static std::vector<const TensorPiece*> in_order(const std::vector<TensorPiece>& pieces) {
    std::vector<const TensorPiece*> order;
    for (const TensorPiece& p : pieces)
        if (p.count > 0) order.push_back(&p);
    std::sort(order.begin(), order.end(), [](const TensorPiece* a, const TensorPiece* b) {
        return std::tie(a->group, a->name, a->offset) < std::tie(b->group, b->name, b->offset);
    });
    return order;
}

static void write_pieces(hid_t file, const std::vector<TensorPiece>& pieces, bool sizes_only) {
    std::string group_name, tensor_name;
    H5Handle group, tensor;
    for (const TensorPiece* p : in_order(pieces)) {
        if (p->group != group_name) {
            tensor.close(), group.close();
            group = h5_group_create(file, p->group);
            group_name = p->group, tensor_name.clear();
        }
        if (p->name != tensor_name) {
            tensor.close();
            tensor = h5_group_create(group, p->name);
            tensor_name = p->name;
        }
        write_piece(tensor, *p, sizes_only);
    }
    tensor.close(), group.close();
}

void shard_write(const std::string& path, const std::vector<TensorPiece>& pieces) {
    Fd fd = file_create(path);
    H5File file = H5File::create(fd, path, H5F_LIBVER_V18);
    write_pieces(file, pieces, false);
    file.close();
    sync_file(fd, path);  // HDF5's flush and close never sync
    fd.close(path);
}

int64_t shard_bytes(const std::vector<TensorPiece>& pieces) {
    H5File file = H5File::create(-1, "a shard", H5F_LIBVER_V18);
    write_pieces(file, pieces, true);
    file.close();
    return file.size();
}

int64_t shard_bytes_bound(const std::vector<TensorPiece>& pieces) {
    int64_t bytes = 64 << 10;
    for (const TensorPiece& p : pieces) bytes += p.count * int64_t(dtype_bytes(p.dtype)) + 2048;
    return bytes;
}

// ---- reading

static void check_dataset_form(hid_t dataset, const std::string& what) {
    H5Handle create(H5_CHECK(H5Dget_create_plist(dataset)), H5Pclose);
    CHECK(H5Pget_layout(create) == H5D_CONTIGUOUS, Exit::Damaged, str(what, " has a layout"),
          "chunked, compact or virtual", "contiguous");
    CHECK(H5Pget_external_count(create) == 0, Exit::Damaged,
          str(what, " is stored in another file"));
    CHECK(H5Pget_nfilters(create) == 0, Exit::Damaged, str(what, " is filtered"));
}

static ShardPiece read_piece(hid_t tensor_group, const std::string& link, int64_t file_bytes,
                             const std::string& what) {
    // The link is known to be hard; the object's kind decides what may be asked of it.
    H5Handle object(H5_CHECK(H5Oopen(tensor_group, link.c_str(), H5P_DEFAULT)), H5Oclose);
    CHECK(H5Iget_type(object) == H5I_DATASET, Exit::Damaged, str(what, " is no dataset"));
    check_dataset_form(object, what);

    ShardPiece p;
    H5Handle type(H5_CHECK(H5Dget_type(object)), H5Tclose);
    H5Handle fp32 = h5_type(Dtype::F32), bf16_type = h5_type(Dtype::BF16);
    const bool is_fp32 = H5_CHECK(H5Tequal(type, fp32)) > 0;
    CHECK(is_fp32 || H5_CHECK(H5Tequal(type, bf16_type)) > 0, Exit::Damaged,
          str(what, " has an element type"), "another", "little-endian fp32 or bf16");
    p.dtype = is_fp32 ? Dtype::F32 : Dtype::BF16;

    H5Handle space(H5_CHECK(H5Dget_space(object)), H5Sclose);
    CHECK(H5Sget_simple_extent_type(space) == H5S_SIMPLE && H5Sget_simple_extent_ndims(space) == 1,
          Exit::Damaged, str(what, " is not one-dimensional"));
    hsize_t count = 0, most = 0;
    H5_CHECK(H5Sget_simple_extent_dims(space, &count, &most));

    // Bytes inside the file: division instead of multiplication, so that nothing can wrap.
    const haddr_t address = H5Dget_offset(object);
    const uint64_t width = dtype_bytes(p.dtype), size = uint64_t(file_bytes);
    CHECK(address != HADDR_UNDEF, Exit::Damaged, str(what, " was never written"));
    CHECK(count >= 1 && most == count && address <= size && count <= (size - address) / width,
          Exit::Damaged, str(what, " does not fit its file"),
          str(count, " ", plural(int64_t(count), "element"), " at byte ", address),
          str("an end within ", counted(int64_t(size), "byte")));
    p.count = int64_t(count), p.address = int64_t(address);

    p.shape = h5_attribute_read(object, "shape");
    const std::vector<int64_t> offset = h5_attribute_read(object, "offset");
    const int64_t n = shape_count(p.shape);
    CHECK(offset.size() == 1 && offset[0] >= 0 && p.count <= n && offset[0] <= n - p.count &&
              link == str(offset[0]),
          Exit::Damaged, str(what, " says it starts at an element"), str(offset[0]),
          "its own name, and a range inside the tensor");
    p.offset = offset[0];
    return p;
}

static void check_not_shared(std::vector<ShardPiece> pieces, const std::string& path) {
    std::sort(pieces.begin(), pieces.end(),
              [](const ShardPiece& a, const ShardPiece& b) { return a.address < b.address; });
    int64_t end = 0;
    for (const ShardPiece& p : pieces) {
        CHECK(p.address >= end, Exit::Damaged, str("pieces in ", path, " overlap"),
              str(p.group, "/", p.name, "/", p.offset));
        end = p.address + p.count * int64_t(dtype_bytes(p.dtype));
    }
}

static std::vector<ShardPiece> walk(hid_t file, int64_t bytes, const std::string& path,
                                    size_t limit) {
    std::vector<ShardPiece> pieces;
    for (const std::string& group_name : h5_links(file, 4)) {
        CHECK(group_is_known(group_name), Exit::Damaged, str("an entry of ", path), group_name,
              "weights, master, m or v");
        H5Handle group = h5_group_open(file, group_name);
        for (const std::string& name : h5_links(group, limit)) {
            CHECK(name_is_plain(name), Exit::Damaged, str("a tensor's name in ", path), name,
                  "letters, digits, '.', '_', '-'");
            H5Handle tensor = h5_group_open(group, name);
            for (const std::string& link : h5_links(tensor, limit)) {
                const std::string what = str(path, ": ", group_name, "/", name, "/", link);
                CHECK(pieces.size() < limit, Exit::Damaged, str(what, " is one piece too many"));
                pieces.push_back(read_piece(tensor, link, bytes, what));
                pieces.back().group = group_name, pieces.back().name = name;
            }
        }
    }
    return pieces;
}

std::vector<ShardPiece> shard_pieces(int fd, const std::string& path, size_t limit) {
    H5File file = H5File::open(fd, path);
    std::vector<ShardPiece> pieces;
    try {
        pieces = walk(file, file_size(fd, path), path, limit);
    } catch (const Error&) {
        file.check_reads();  // if the system is behind it, that is the reason to give
        throw;
    }
    file.close();
    check_not_shared(pieces, path);
    std::sort(pieces.begin(), pieces.end(), piece_before);
    return pieces;
}

std::string shard_digest(int fd, const std::string& path, std::vector<ShardPiece>& pieces) {
    std::vector<ShardPiece*> order;
    for (ShardPiece& p : pieces) p.hash = {}, order.push_back(&p);
    std::sort(order.begin(), order.end(),
              [](const ShardPiece* a, const ShardPiece* b) { return a->address < b->address; });
    Digest digest;
    const int64_t size = file_size(fd, path);
    std::vector<char> buffer(size_t(std::clamp<int64_t>(size, 1, 4 << 20)));
    // The file as a sequence of pieces and what lies between them; each run is read in bounded
    // steps that start at an element of the piece.
    const auto pass = [&](int64_t from, int64_t to, ShardPiece* p) {
        for (int64_t at = from; at < to;) {
            const int64_t n = std::min<int64_t>(to - at, int64_t(buffer.size()));
            read_exactly(fd, buffer.data(), size_t(n), at, path);
            digest.update(buffer.data(), size_t(n));
            if (p) {
                const int64_t width = int64_t(dtype_bytes(p->dtype));
                p->hash.add(piece_hash(p->dtype, buffer.data(), n / width,
                                       p->offset + (at - from) / width));
            }
            at += n;
        }
    };
    int64_t end = 0;
    for (ShardPiece* p : order) {
        pass(end, p->address, nullptr);
        end = p->address + p->count * int64_t(dtype_bytes(p->dtype));
        pass(p->address, end, p);
    }
    pass(end, size, nullptr);
    return digest.hex();
}

void shard_read(int fd, const std::string& path, const ShardPiece& p, int64_t first, int64_t count,
                void* to) {
    assert(first >= p.offset && count <= p.count && first - p.offset <= p.count - count);
    const int64_t width = int64_t(dtype_bytes(p.dtype));
    read_exactly(fd, to, size_t(count * width), p.address + (first - p.offset) * width, path);
}
