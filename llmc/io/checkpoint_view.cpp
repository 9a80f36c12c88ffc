// llmc/io/checkpoint_view.cpp: model.h5, the weights in their own shapes for people with h5py.
#include <algorithm>
#include <cassert>

#include "llmc/core/check.h"
#include "llmc/io/checkpoint_shard.h"
#include "llmc/io/h5_file.h"

// Appends the boxes of [offset, offset + count) in the sub-array that `prefix` leads to.
static void add_boxes(const std::vector<int64_t>& shape, std::vector<int64_t> prefix,
                      int64_t offset, int64_t count, std::vector<Box>& boxes) {
    if (count == 0) return;
    const size_t d = prefix.size(), n = shape.size();
    int64_t row = 1;  // elements of one index step in dimension d
    for (size_t i = d + 1; i < n; i++) row *= shape[i];

    // The rest of a row, if the range starts inside one.
    int64_t first = offset / row;
    const int64_t inside = offset % row;
    if (inside > 0) {
        const int64_t part = std::min(count, row - inside);
        prefix.push_back(first);
        add_boxes(shape, prefix, inside, part, boxes);
        prefix.pop_back();
        count -= part, first++;
    }
    // Whole rows.
    const int64_t whole = count / row;
    if (whole > 0) {
        Box box{std::vector<int64_t>(n, 0), shape};
        for (size_t i = 0; i < d; i++) box.start[i] = prefix[i], box.size[i] = 1;
        box.start[d] = first, box.size[d] = whole;
        boxes.push_back(box);
        count -= whole * row, first += whole;
    }
    // The start of a last row.
    if (count > 0) {
        prefix.push_back(first);
        add_boxes(shape, prefix, 0, count, boxes);
    }
}

std::vector<Box> range_boxes(const std::vector<int64_t>& shape, int64_t offset, int64_t count) {
    std::vector<Box> boxes;
    add_boxes(shape, {}, offset, count, boxes);
    return boxes;
}

static void map_piece(hid_t create, hid_t space, const std::string& file, const ManifestTensor& t,
                      const ManifestPiece& p) {
    const std::string source = str("/", t.group, "/", t.name, "/", p.offset);
    H5Handle from = h5_space({p.count});
    int64_t done = 0;
    for (const Box& box : range_boxes(t.shape, p.offset, p.count)) {
        const std::vector<hsize_t> start(box.start.begin(), box.start.end());
        const std::vector<hsize_t> size(box.size.begin(), box.size.end());
        hsize_t first = hsize_t(done), n = 1;
        for (hsize_t s : size) n *= s;
        H5_CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, size.data(),
                                     nullptr));
        H5_CHECK(H5Sselect_hyperslab(from, H5S_SELECT_SET, &first, nullptr, &n, nullptr));
        H5_CHECK(H5Pset_virtual(create, space, file.c_str(), source.c_str(), from));
        done += int64_t(n);
    }
}

std::string view_image(const std::vector<ManifestFile>& files,
                       const std::vector<ManifestTensor>& tensors) {
    H5File file = H5File::create(-1, VIEW_FILE, H5F_LIBVER_V110);  // virtual datasets need V110
    for (const ManifestTensor& t : tensors) {
        if (t.group != "weights") continue;
        H5Handle type = h5_type(t.dtype);
        H5Handle space = h5_space(t.shape);
        H5Handle create = h5_properties(H5P_DATASET_CREATE);
        const float nan = __builtin_nanf("");
        H5_CHECK(H5Pset_fill_value(create, H5T_NATIVE_FLOAT, &nan));
        H5_CHECK(H5Pset_obj_track_times(create, 0));
        for (const ManifestPiece& p : t.pieces)
            map_piece(create, space, files[size_t(p.file)].name, t, p);
        H5_CHECK(H5Sselect_all(space));
        H5Handle dataset(H5_CHECK(H5Dcreate2(file, t.name.c_str(), type, space, H5P_DEFAULT, create,
                                             H5P_DEFAULT)),
                         H5Dclose);
        dataset.close();
    }
    file.close();
    return file.image();
}
