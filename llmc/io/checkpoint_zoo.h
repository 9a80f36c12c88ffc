// llmc/io/checkpoint_zoo.h: a checkpoint made to mislead, for tests: its digests are right, so that
// only what it says is wrong.
#pragma once
#include <sys/inotify.h>

#include <fstream>

#include "llmc/core/check.h"
#include "llmc/io/checkpoint_testing.h"
#include "llmc/io/h5.h"

inline std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}
inline void set_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// A checkpoint with one tensor, weights/x (2, 3), to be tampered with; and a file beside it that
// nobody may open.
struct Zoo {
    ScratchDir scratch;
    std::string outside = scratch.path + "/outside.h5";
    std::string path = scratch.path + "/ckpt/step-0000000001";
    std::string shard = path + "/shards/rank-00000.h5";
    int watch = -1;

    Zoo() {
        auto comm = comm_self();
        float x[6] = {1, 2, 3, 4, 5, 6};
        Saves saves;
        const SaveResult r =
            checkpoint_save(scratch.path, toy_meta(1),
                            {{"weights", "x", Dtype::F32, {2, 3}, 0, 6, x}}, *comm, saves);
        if (!r.ok) throw std::runtime_error(r.reason);
        std::filesystem::copy(shard, outside);
    }
    ~Zoo() {
        if (watch >= 0) ::close(watch);
    }
    void guard_outside() {
        watch = ::inotify_init1(IN_NONBLOCK);
        if (::inotify_add_watch(watch, outside.c_str(), IN_OPEN | IN_ACCESS) < 0)
            throw std::runtime_error("inotify");
    }
    bool outside_was_opened() const {
        char events[4096];
        return ::read(watch, events, sizeof events) > 0;
    }
    // Makes the manifest fit the files again, then applies an edit and seals it.
    void seal(const std::function<void(nlohmann::json&)>& edit = [](nlohmann::json&) {}) {
        nlohmann::json body = nlohmann::json::parse(bytes_of(path + "/manifest.json"));
        body.erase("digest");
        for (nlohmann::json& f : body["files"]) {
            const std::string file = path + "/" + f["name"].get<std::string>();
            if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(file))) continue;
            const std::string bytes = bytes_of(file);
            f["bytes"] = bytes.size(), f["digest"] = digest_bytes(bytes.data(), bytes.size());
        }
        edit(body);
        set_bytes(path + "/manifest.json", manifest_seal(body));
    }
    // The reason for which it is refused, or "".
    std::string refusal() const {
        auto comm = comm_self();
        try {
            checkpoint_verify(path, *comm);
            return "";
        } catch (const Error& e) {
            return e.what();
        }
    }
};

// A file that looks as a shard should, with every part open to change.
struct Forger {
    hid_t file, weights = -1, x = -1;
    H5Handle open_file, open_weights, open_x;
    explicit Forger(const std::string& path) {
        std::filesystem::remove(path);
        H5Handle access = h5_properties(H5P_FILE_ACCESS);
        H5_CHECK(H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110));
        open_file = {H5_CHECK(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access)),
                     H5Fclose};
        file = open_file;
    }
    void groups() {
        open_weights = h5_group_create(file, "weights");
        open_x = h5_group_create(open_weights, "x");
        weights = open_weights, x = open_x;
    }
    // The dataset "0" of what the arguments say, with its attributes.
    void dataset(hid_t where, hid_t create = H5P_DEFAULT, hid_t type = H5T_IEEE_F32LE,
                 std::vector<int64_t> dims = {6}, bool write = true, bool attributes = true,
                 const char* name = "0") {
        H5Handle space = dims.empty() ? H5Handle(H5Screate(H5S_SCALAR), H5Sclose) : h5_space(dims);
        H5Handle d(H5_CHECK(H5Dcreate2(where, name, type, space, H5P_DEFAULT, create, H5P_DEFAULT)),
                   H5Dclose);
        const float values[6] = {1, 2, 3, 4, 5, 6};
        if (write) H5_CHECK(H5Dwrite(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
        if (attributes) h5_attribute_write(d, "shape", {2, 3});
        if (attributes) h5_attribute_write(d, "offset", {0});
    }
};
using Create = H5Handle;
inline Create properties() {
    return h5_properties(H5P_DATASET_CREATE);
}
