// llmc/io/checkpoint_hostile_test.cpp: a zoo of checkpoints made to mislead. Their digests are
// right, so that only what they say is wrong; each must be refused for its own reason, and nothing
// outside may be opened on the way.
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <fstream>

#include "llmc/core/check.h"
#include "llmc/io/checkpoint_testing.h"
#include "llmc/io/h5.h"

namespace fs = std::filesystem;
using nlohmann::json;

static std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}
static void set_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

namespace {
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
        fs::copy(shard, outside);
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
    void seal(const std::function<void(json&)>& edit = [](json&) {}) {
        json body = json::parse(bytes_of(path + "/manifest.json"));
        body.erase("digest");
        for (json& f : body["files"]) {
            const std::string file = path + "/" + f["name"].get<std::string>();
            if (!fs::is_regular_file(fs::symlink_status(file))) continue;
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
        fs::remove(path);
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
Create properties() {
    return h5_properties(H5P_DATASET_CREATE);
}
}  // namespace

TEST(checkpoint_hostile, the_tools_of_this_test_make_valid_checkpoints) {
    Zoo plain;
    plain.seal();
    EXPECT_EQ(plain.refusal(), "");
    Zoo forged;
    {
        Forger f(forged.shard);
        f.groups(), f.dataset(f.x);
    }
    forged.seal();
    EXPECT_EQ(forged.refusal(), "");
}

TEST(checkpoint_hostile, shards) {
    struct Case {
        const char* reason;
        std::function<void(Forger&, const Zoo&)> make;
    };
    const hsize_t chunk = 3;
    const Case cases[] = {
        {"soft link",
         [](Forger& f, const Zoo&) {
             H5Handle v = h5_group_create(f.file, "v"), y = h5_group_create(v, "y");
             H5Handle w = h5_group_create(f.file, "weights");
             f.dataset(y);
             H5_CHECK(H5Lcreate_soft("/v/y", w, "x", H5P_DEFAULT, H5P_DEFAULT));
         }},
        {"external or user-defined link",
         [](Forger& f, const Zoo& z) {
             f.groups();
             H5_CHECK(H5Lcreate_external(z.outside.c_str(), "/weights/x/0", f.x, "0", H5P_DEFAULT,
                                         H5P_DEFAULT));
         }},
        {"external or user-defined link",
         [](Forger& f, const Zoo& z) {
             H5_CHECK(H5Lcreate_external(z.outside.c_str(), "/weights", f.file, "weights",
                                         H5P_DEFAULT, H5P_DEFAULT));
         }},
        {"stored in another file",
         [](Forger& f, const Zoo& z) {
             f.groups();
             Create p = properties();
             H5_CHECK(H5Pset_external(p, z.outside.c_str(), 0, 24));
             f.dataset(f.x, p, H5T_IEEE_F32LE, {6}, false);
         }},
        {"layout",
         [](Forger& f, const Zoo& z) {
             f.groups();
             Create p = properties();
             H5Handle space = h5_space({6});
             H5_CHECK(H5Pset_virtual(p, space, z.outside.c_str(), "/weights/x/0", space));
             f.dataset(f.x, p, H5T_IEEE_F32LE, {6}, false);
         }},
        {"layout",
         [&](Forger& f, const Zoo&) {
             f.groups();
             Create p = properties();
             H5_CHECK(H5Pset_chunk(p, 1, &chunk));
             f.dataset(f.x, p);
         }},
        {"layout",
         [&](Forger& f, const Zoo&) {
             f.groups();
             Create p = properties();
             H5_CHECK(H5Pset_chunk(p, 1, &chunk));
             H5_CHECK(H5Pset_deflate(p, 9));
             f.dataset(f.x, p);
         }},
        {"layout",
         [](Forger& f, const Zoo&) {
             f.groups();
             Create p = properties();
             H5_CHECK(H5Pset_layout(p, H5D_COMPACT));
             f.dataset(f.x, p);
         }},
        {"element type",
         [](Forger& f, const Zoo&) { f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F64LE); }},
        {"element type",
         [](Forger& f, const Zoo&) { f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32BE); }},
        {"element type",
         [](Forger& f, const Zoo&) { f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_STD_I32LE); }},
        {"one-dimensional",
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32LE, {2, 3});
         }},
        {"one-dimensional",
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32LE, {});
         }},
        {"never written",
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32LE, {6}, false);
         }},
        {"never written",  // a small file that would inflate to 4 TiB
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32LE, {int64_t(1) << 40}, false);
         }},
        {"other pieces",
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32LE, {5});
         }},
        {"other pieces", [](Forger&, const Zoo&) {}},
        {"too many entries",
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x);
             f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32LE, {6}, true, true, "1");
         }},
        {"too many entries",
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x);
             H5Handle y = h5_group_create(f.weights, "y");
         }},
        {"weights, master, m or v",
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x);
             H5Handle y = h5_group_create(f.file, "w");
         }},
        {"H5Aopen",
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32LE, {6}, true, false);
         }},
        {"attribute 'shape'",
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32LE, {6}, true, false);
             H5Handle d(H5Dopen2(f.x, "0", H5P_DEFAULT), H5Dclose);
             h5_attribute_write(d, "shape", std::vector<int64_t>(1000, 1));
         }},
        {"attribute 'shape'",
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32LE, {6}, true, false);
             H5Handle d(H5Dopen2(f.x, "0", H5P_DEFAULT), H5Dclose);
             H5Handle text(H5Tcopy(H5T_C_S1), H5Tclose), space = h5_space({2});
             H5_CHECK(H5Tset_size(text, H5T_VARIABLE));
             H5Handle a(H5_CHECK(H5Acreate2(d, "shape", text, space, H5P_DEFAULT, H5P_DEFAULT)),
                        H5Aclose);
         }},
        {"2^60",
         [](Forger& f, const Zoo&) {  // a product that wraps to 0
             f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32LE, {6}, true, false);
             H5Handle d(H5Dopen2(f.x, "0", H5P_DEFAULT), H5Dclose);
             h5_attribute_write(d, "shape", {int64_t(1) << 32, int64_t(1) << 32});
             h5_attribute_write(d, "offset", {0});
         }},
        {"starts at an element",
         [](Forger& f, const Zoo&) {
             f.groups(), f.dataset(f.x, H5P_DEFAULT, H5T_IEEE_F32LE, {6}, true, false);
             H5Handle d(H5Dopen2(f.x, "0", H5P_DEFAULT), H5Dclose);
             h5_attribute_write(d, "shape", {2, 3});
             h5_attribute_write(d, "offset", {5});
         }},
        {"no dataset",
         [](Forger& f, const Zoo&) {
             f.groups();
             H5Handle y = h5_group_create(f.x, "0");
         }},
        {"no dataset",
         [](Forger& f, const Zoo&) {
             f.groups();
             H5Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
             H5_CHECK(H5Tcommit2(f.x, "0", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
         }},
        {"no dataset",  // a group that contains itself
         [](Forger& f, const Zoo&) {
             f.groups();
             H5_CHECK(H5Lcreate_hard(f.file, "/", f.x, "0", H5P_DEFAULT, H5P_DEFAULT));
         }},
        {"H5Gopen2",
         [](Forger& f, const Zoo&) {
             H5Handle w = h5_group_create(f.file, "weights");
             f.dataset(w, H5P_DEFAULT, H5T_IEEE_F32LE, {6}, true, true, "x");
         }},
        {"tensor's name",
         [](Forger& f, const Zoo&) {
             H5Handle w = h5_group_create(f.file, "weights"), x = h5_group_create(w, "..x");
             f.dataset(x);
         }},
        {"too long",
         [](Forger& f, const Zoo&) {
             H5Handle w = h5_group_create(f.file, "weights");
             H5Handle x = h5_group_create(w, std::string(300, 'x'));
         }},
    };
    for (const Case& c : cases) {
        Zoo zoo;
        {
            Forger f(zoo.shard);
            c.make(f, zoo);
        }
        zoo.seal();
        zoo.guard_outside();
        const std::string refusal = zoo.refusal();
        EXPECT_NE(refusal.find(c.reason), std::string::npos)
            << "case " << &c - cases << ": '" << refusal << "' lacks '" << c.reason << "'";
        EXPECT_FALSE(zoo.outside_was_opened()) << "case " << &c - cases;
    }
}

TEST(checkpoint_hostile, shards_that_are_no_whole_hdf5_files) {
    Zoo zoo;
    const std::string good = bytes_of(zoo.shard);
    for (const std::string& bytes :
         {std::string("\x89HDF\r\n\x1a\n"), std::string(4096, '\xff'), std::string("{}"),
          good.substr(0, 100), good.substr(0, good.size() - 1)}) {
        set_bytes(zoo.shard, bytes);
        zoo.seal();
        const std::string refusal = zoo.refusal();
        EXPECT_TRUE(refusal.find("H5Fopen") != std::string::npos ||
                    refusal.find("too short") != std::string::npos)
            << refusal;
    }
    // Claims 256 MiB in a file of some kB.
    {
        Forger f(zoo.shard);
        f.groups();
        Create p = properties();
        H5_CHECK(H5Pset_alloc_time(p, H5D_ALLOC_TIME_EARLY));
        H5_CHECK(H5Pset_fill_time(p, H5D_FILL_TIME_NEVER));
        f.dataset(f.x, p, H5T_IEEE_F32LE, {64 << 20}, false);
    }
    fs::resize_file(zoo.shard, 4096);
    zoo.seal();
    EXPECT_NE(zoo.refusal().find("H5Fopen"), std::string::npos) << zoo.refusal();
    EXPECT_NE(zoo.refusal().find("truncated"), std::string::npos) << zoo.refusal();
}

TEST(checkpoint_hostile, two_tensors_that_share_their_bytes) {
    Zoo zoo;
    {
        Forger f(zoo.shard);
        f.groups(), f.dataset(f.x);
        H5_CHECK(H5Lcreate_hard(f.weights, "x", f.weights, "y", H5P_DEFAULT, H5P_DEFAULT));
    }
    zoo.seal([](json& j) {
        json y = j["tensors"][0];
        y["name"] = "y";
        j["tensors"].push_back(y);
    });
    EXPECT_NE(zoo.refusal().find("state hash"), std::string::npos) << zoo.refusal();
    // With the right state hash the shard itself has to be refused.
    Manifest m;
    zoo.seal([&](json& j) {
        TensorHash h;
        h.a = std::stoull(j["tensors"][0]["hash"].get<std::string>().substr(0, 16), nullptr, 16);
        h.b = std::stoull(j["tensors"][0]["hash"].get<std::string>().substr(16), nullptr, 16);
        for (const char* name : {"x", "y"})
            m.tensors.push_back({"weights", name, Dtype::F32, {2, 3}, h, {}});
        j["state"] = manifest_state(m.tensors);
    });
    EXPECT_NE(zoo.refusal().find("overlap"), std::string::npos) << zoo.refusal();
}

TEST(checkpoint_hostile, manifests) {
    struct Case {
        const char* reason;
        std::function<void(json&)> edit;
    };
    const auto tensor = [](json& j) -> json& { return j["tensors"][0]; };
    const auto piece = [](json& j) -> json& { return j["tensors"][0]["pieces"][0]; };
    const Case cases[] = {
        {"file name", [](json& j) { j["files"][0]["name"] = "../../outside.h5"; }},
        {"file name", [](json& j) { j["files"][0]["name"] = "/etc/passwd"; }},
        {"file name", [](json& j) { j["files"][0]["name"] = "shards/../shards/rank-00000.h5"; }},
        {"file name",
         [](json& j) { j["files"][0]["name"] = std::string("shards/rank-00000.h5\0", 21); }},
        {"file name", [](json& j) { j["files"][1]["name"] = "shards/rank-00001.h5"; }},
        {"list of files", [](json& j) { j["files"] = json::array(); }},
        {"list of files", [](json& j) { j["files"].erase(0); }},
        {"integer", [](json& j) { j["files"][0]["bytes"] = 1.5; }},
        {"integer", [](json& j) { j["files"][0]["bytes"] = UINT64_MAX; }},
        {"size of", [](json& j) { j["files"][0]["bytes"] = -1; }},
        {"size of", [](json& j) { j["files"][0]["bytes"] = INT64_MAX; }},
        {"hexadecimal", [](json& j) { j["files"][0]["digest"] = "zz"; }},
        {"file number", [&](json& j) { piece(j)["file"] = 1; }},
        {"file number", [&](json& j) { piece(j)["file"] = -1; }},
        {"file number", [&](json& j) { piece(j)["file"] = int64_t(1) << 32; }},
        {"tile", [&](json& j) { piece(j)["offset"] = 1; }},
        {"tile", [&](json& j) { piece(j)["offset"] = -1; }},
        {"tile", [&](json& j) { piece(j)["count"] = 5; }},
        {"tile", [&](json& j) { piece(j)["count"] = 7; }},
        {"tile", [&](json& j) { piece(j)["count"] = 0; }},
        {"tile", [&](json& j) { piece(j)["count"] = INT64_MAX; }},
        {"tile", [&](json& j) { tensor(j)["pieces"].push_back(piece(j)); }},
        {"tile", [&](json& j) { tensor(j)["pieces"] = json::array(); }},
        {"unknown field",
         [&](json& j) {
             piece(j)["box"] = {0, 6};
         }},
        {"2^60",
         [&](json& j) {
             tensor(j)["shape"] = {int64_t(1) << 32, int64_t(1) << 32};
         }},
        {"2^60",
         [&](json& j) {
             tensor(j)["shape"] = {INT64_MAX, 2};
         }},
        {"dimension",
         [&](json& j) {
             tensor(j)["shape"] = {-2, -3};
         }},
        {"dimension", [&](json& j) { tensor(j)["shape"] = {0}; }},
        {"dimensions", [&](json& j) { tensor(j)["shape"] = {1, 1, 1, 1, 1, 1, 1, 2, 3}; }},
        {"dimensions", [&](json& j) { tensor(j)["shape"] = json::array(); }},
        {"array", [&](json& j) { tensor(j)["shape"] = 6; }},
        {"tensor's name", [&](json& j) { tensor(j)["name"] = "../x"; }},
        {"tensor's name", [&](json& j) { tensor(j)["name"] = "a/b"; }},
        {"tensor's name", [&](json& j) { tensor(j)["name"] = ""; }},
        {"tensor's name", [&](json& j) { tensor(j)["group"] = "weights2"; }},
        {"element type", [&](json& j) { tensor(j)["dtype"] = "fp64"; }},
        {"string", [&](json& j) { tensor(j)["name"] = 7; }},
        {"order", [&](json& j) { j["tensors"].push_back(tensor(j)); }},
        {"state hash", [](json& j) { j["state"] = std::string(32, '0'); }},
        {"state hash", [&](json& j) { tensor(j)["hash"] = std::string(32, '0'); }},
        {"version", [](json& j) { j["version"] = 2; }},
        {"no manifest", [](json& j) { j["version"] = "1"; }},
        {"no manifest", [](json& j) { j["format"] = "other"; }},
        {"no such field", [](json& j) { j.erase("tokens"); }},
        {"unknown field", [](json& j) { j["more"] = 1; }},
        {"integer", [](json& j) { j["step"] = 1e300; }},
        {"step", [](json& j) { j["step"] = -1; }},
        {"another step", [](json& j) { j["step"] = 2; }},
        {"nested",
         [](json& j) {
             json deep = 1;
             for (int i = 0; i < 500; i++) deep = json::array({std::move(deep)});
             j["model"] = std::move(deep);
         }},
    };
    for (const Case& c : cases) {
        Zoo zoo;
        zoo.guard_outside();
        zoo.seal(c.edit);
        const std::string refusal = zoo.refusal();
        EXPECT_NE(refusal.find(c.reason), std::string::npos)
            << "case " << &c - cases << ": '" << refusal << "' lacks '" << c.reason << "'";
        EXPECT_FALSE(zoo.outside_was_opened());
    }
}

TEST(checkpoint_hostile, manifests_that_are_none) {
    for (const std::string& text : {std::string(), std::string("{}"), std::string("\0\0\0", 3),
                                    std::string(100, '['), std::string("{\"digest\":\"")}) {
        Zoo zoo;
        set_bytes(zoo.path + "/manifest.json", text);
        EXPECT_NE(zoo.refusal().find("no manifest"), std::string::npos) << zoo.refusal();
    }
    // Larger than we are ready to read, sparse on the disk: refused before it is read.
    Zoo zoo;
    fs::resize_file(zoo.path + "/manifest.json", int64_t(1) << 40);
    EXPECT_NE(zoo.refusal().find("too large"), std::string::npos) << zoo.refusal();
}

TEST(checkpoint_hostile, files_that_are_something_else) {
    struct Case {
        const char* reason;
        std::function<void(Zoo&)> make;
    };
    const Case cases[] = {
        {"symbolic links",
         [](Zoo& z) { fs::remove(z.shard), fs::create_symlink(z.outside, z.shard); }},
        {"symbolic links",
         [](Zoo& z) {
             fs::remove(z.path + "/model.h5");
             fs::create_symlink(z.outside, z.path + "/model.h5");
         }},
        {"symbolic links",
         [](Zoo& z) {
             fs::remove(z.path + "/manifest.json");
             fs::create_symlink(z.outside, z.path + "/manifest.json");
         }},
        {"shards",
         [](Zoo& z) {
             fs::rename(z.path + "/shards", z.scratch.path + "/elsewhere");
             fs::create_directory_symlink(z.scratch.path + "/elsewhere", z.path + "/shards");
         }},
        {"regular file",
         [](Zoo& z) {
             fs::remove(z.shard);
             EXPECT_EQ(::mkfifo(z.shard.c_str(), 0666), 0);
         }},
        {"regular file",
         [](Zoo& z) {
             fs::remove(z.path + "/manifest.json");
             EXPECT_EQ(::mkfifo((z.path + "/manifest.json").c_str(), 0666), 0);
         }},
        {"should not",
         [](Zoo& z) { fs::create_symlink(z.outside, z.path + "/shards/rank-00001.h5"); }},
    };
    for (const Case& c : cases) {
        Zoo zoo;
        c.make(zoo);
        zoo.guard_outside();
        const std::string refusal = zoo.refusal();
        EXPECT_NE(refusal.find(c.reason), std::string::npos)
            << "case " << &c - cases << ": '" << refusal << "' lacks '" << c.reason << "'";
        EXPECT_FALSE(zoo.outside_was_opened()) << "case " << &c - cases;
    }
}
