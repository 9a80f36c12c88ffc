#include "llmc/io/h5.h"

#include <cstring>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"

static bool started(bool ok) {
    CHECK(ok, Exit::Resource, "the HDF5 library does not start", "");
    return true;
}

void h5_init() {
    static const bool once = started(H5open() >= 0 && H5PLset_loading_state(0) >= 0);
    // A library that is built for threads has an error stack in each.
    static thread_local const bool here = started(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0);
    (void)once, (void)here;
}

void h5_fail(const char* call) {
    // Walking upward starts at the innermost function, where the system's own message is.
    std::string inner;
    const auto take_first = [](unsigned n, const H5E_error2_t* e, void* text) -> herr_t {
        if (n == 0 && e->desc) *static_cast<std::string*>(text) = e->desc;
        return 0;
    };
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &inner);
    H5Eclear2(H5E_DEFAULT);
    const char* paren = std::strchr(call, '(');
    const std::string name = paren ? std::string(call, paren) : call;
    fail(Exit::Damaged, str("HDF5: ", name, " failed", inner.empty() ? "" : ": ", inner));
}

void H5Handle::close() {
    const hid_t id = std::exchange(id_, -1);
    if (id >= 0 && closer_(id) < 0) h5_fail("close()");
}

H5Handle h5_properties(hid_t property_class) {
    h5_init();
    return {H5_CHECK(H5Pcreate(property_class)), H5Pclose};
}

H5Handle h5_space(const std::vector<int64_t>& dims) {
    const std::vector<hsize_t> d(dims.begin(), dims.end());
    return {H5_CHECK(H5Screate_simple(int(d.size()), d.data(), nullptr)), H5Sclose};
}

H5Handle h5_type(Dtype t) {
    h5_init();
    if (t == Dtype::F32) return {H5_CHECK(H5Tcopy(H5T_IEEE_F32LE)), H5Tclose};
    CHECK(t == Dtype::BF16, Exit::Usage, "an element type that checkpoints do not hold",
          dtype_name(t), "fp32 or bf16");
    // HDF5 1.10 has no bfloat16 of its own: sign 15, exponent 7..14 (bias 127), fraction 0..6.
    H5Handle type(H5_CHECK(H5Tcopy(H5T_IEEE_F32LE)), H5Tclose);
    H5_CHECK(H5Tset_fields(type, 15, 7, 8, 0, 7));
    H5_CHECK(H5Tset_precision(type, 16));
    H5_CHECK(H5Tset_size(type, 2));
    H5_CHECK(H5Tset_ebias(type, 127));
    return type;
}

H5Handle h5_group_create(hid_t where, const std::string& name) {
    // No time stamps: equal states make equal files.
    H5Handle create = h5_properties(H5P_GROUP_CREATE);
    H5_CHECK(H5Pset_obj_track_times(create, 0));
    return {H5_CHECK(H5Gcreate2(where, name.c_str(), H5P_DEFAULT, create, H5P_DEFAULT)), H5Gclose};
}

static void require_hard_link(hid_t where, const std::string& name) {
    H5L_info_t info;
    H5_CHECK(H5Lget_info(where, name.c_str(), &info, H5P_DEFAULT));
    CHECK(info.type == H5L_TYPE_HARD, Exit::Damaged, str("'", name, "' in an HDF5 file is a link"),
          info.type == H5L_TYPE_SOFT ? "a soft link" : "an external or user-defined link",
          "a hard link");
}

H5Handle h5_group_open(hid_t where, const std::string& name) {
    require_hard_link(where, name);
    return {H5_CHECK(H5Gopen2(where, name.c_str(), H5P_DEFAULT)), H5Gclose};
}

void h5_attribute_write(hid_t object, const std::string& name, const std::vector<int64_t>& values) {
    H5Handle space = h5_space({int64_t(values.size())});
    H5Handle attribute(
        H5_CHECK(H5Acreate2(object, name.c_str(), H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT)),
        H5Aclose);
    H5_CHECK(H5Awrite(attribute, H5T_STD_I64LE, values.data()));
    attribute.close();
}

std::vector<int64_t> h5_attribute_read(hid_t object, const std::string& name) {
    H5Handle attribute(H5_CHECK(H5Aopen(object, name.c_str(), H5P_DEFAULT)), H5Aclose);
    H5Handle type(H5_CHECK(H5Aget_type(attribute)), H5Tclose);
    H5Handle space(H5_CHECK(H5Aget_space(attribute)), H5Sclose);
    const hssize_t n = H5_CHECK(H5Sget_simple_extent_npoints(space));
    CHECK(H5Tequal(type, H5T_STD_I64LE) > 0 && n >= 1 && n <= 32, Exit::Damaged,
          str("attribute '", name, "' of an HDF5 object"), counted(n, "value"), "1 to 32 int64");
    std::vector<int64_t> values(n);
    H5_CHECK(H5Aread(attribute, H5T_STD_I64LE, values.data()));
    return values;
}

std::vector<std::string> h5_links(hid_t group, size_t limit) {
    H5G_info_t info;
    H5_CHECK(H5Gget_info(group, &info));
    CHECK(info.nlinks <= limit, Exit::Damaged, "an HDF5 group with too many entries",
          str(info.nlinks), str("at most ", limit));
    std::vector<std::string> names;
    for (hsize_t i = 0; i < info.nlinks; i++) {
        char name[256];
        const ssize_t length = H5_CHECK(H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC,
                                                           i, name, sizeof name, H5P_DEFAULT));
        CHECK(size_t(length) < sizeof name, Exit::Damaged, "a name in an HDF5 file is too long",
              counted(length, "byte"), "at most 255");
        require_hard_link(group, name);
        names.push_back(name);
    }
    return names;
}
