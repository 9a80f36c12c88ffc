// llmc/io/checkpoint_hostile_test.cpp: a zoo of checkpoints made to mislead. Their digests are
// right, so that only what they say is wrong; each must be refused for its own reason, and nothing
// outside may be opened on the way.
#include <sys/stat.h>

#include "llmc/io/checkpoint_zoo.h"

namespace fs = std::filesystem;
using nlohmann::json;

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

namespace {
// What is wrong with a shard, and the reason that is given.
struct ShardCase {
    const char* reason;
    std::function<void(Forger&, const Zoo&)> make;
};
void expect_refused(const std::vector<ShardCase>& cases) {
    for (const ShardCase& c : cases) {
        Zoo zoo;
        {
            Forger f(zoo.shard);
            c.make(f, zoo);
        }
        zoo.seal();
        zoo.guard_outside();
        const std::string refusal = zoo.refusal();
        EXPECT_NE(refusal.find(c.reason), std::string::npos)
            << "case " << &c - cases.data() << ": '" << refusal << "' lacks '" << c.reason << "'";
        EXPECT_FALSE(zoo.outside_was_opened()) << "case " << &c - cases.data();
    }
}
}  // namespace

TEST(checkpoint_hostile, shards_that_lead_elsewhere) {
    expect_refused({
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
    });
}

TEST(checkpoint_hostile, shards_stored_in_another_way) {
    const hsize_t chunk = 3;
    expect_refused({
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
    });
}

TEST(checkpoint_hostile, shards_with_other_contents) {
    expect_refused({
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
    });
}

TEST(checkpoint_hostile, shards_with_other_attributes) {
    expect_refused({
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
    });
}

TEST(checkpoint_hostile, shards_of_other_objects) {
    expect_refused({
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
    });
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

namespace {
// What is wrong with a manifest, and the reason that is given.
struct ManifestCase {
    const char* reason;
    std::function<void(json&)> edit;
};
json& tensor(json& j) {
    return j["tensors"][0];
}
json& piece(json& j) {
    return j["tensors"][0]["pieces"][0];
}
void expect_refused(const std::vector<ManifestCase>& cases) {
    for (const ManifestCase& c : cases) {
        Zoo zoo;
        zoo.guard_outside();
        zoo.seal(c.edit);
        const std::string refusal = zoo.refusal();
        EXPECT_NE(refusal.find(c.reason), std::string::npos)
            << "case " << &c - cases.data() << ": '" << refusal << "' lacks '" << c.reason << "'";
        EXPECT_FALSE(zoo.outside_was_opened());
    }
}
}  // namespace

TEST(checkpoint_hostile, manifests_with_other_files) {
    expect_refused({
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
    });
}

TEST(checkpoint_hostile, manifests_with_other_pieces) {
    expect_refused({
        {"file number", [](json& j) { piece(j)["file"] = 1; }},
        {"file number", [](json& j) { piece(j)["file"] = -1; }},
        {"file number", [](json& j) { piece(j)["file"] = int64_t(1) << 32; }},
        {"tile", [](json& j) { piece(j)["offset"] = 1; }},
        {"tile", [](json& j) { piece(j)["offset"] = -1; }},
        {"tile", [](json& j) { piece(j)["count"] = 5; }},
        {"tile", [](json& j) { piece(j)["count"] = 7; }},
        {"tile", [](json& j) { piece(j)["count"] = 0; }},
        {"tile", [](json& j) { piece(j)["count"] = INT64_MAX; }},
        {"tile", [](json& j) { tensor(j)["pieces"].push_back(piece(j)); }},
        {"tile", [](json& j) { tensor(j)["pieces"] = json::array(); }},
        {"unknown field",
         [](json& j) {
             piece(j)["box"] = {0, 6};
         }},
    });
}

TEST(checkpoint_hostile, manifests_with_other_tensors) {
    expect_refused({
        {"2^60",
         [](json& j) {
             tensor(j)["shape"] = {int64_t(1) << 32, int64_t(1) << 32};
         }},
        {"2^60",
         [](json& j) {
             tensor(j)["shape"] = {INT64_MAX, 2};
         }},
        {"dimension",
         [](json& j) {
             tensor(j)["shape"] = {-2, -3};
         }},
        {"dimension", [](json& j) { tensor(j)["shape"] = {0}; }},
        {"dimensions", [](json& j) { tensor(j)["shape"] = {1, 1, 1, 1, 1, 1, 1, 2, 3}; }},
        {"dimensions", [](json& j) { tensor(j)["shape"] = json::array(); }},
        {"array", [](json& j) { tensor(j)["shape"] = 6; }},
        {"tensor's name", [](json& j) { tensor(j)["name"] = "../x"; }},
        {"tensor's name", [](json& j) { tensor(j)["name"] = "a/b"; }},
        {"tensor's name", [](json& j) { tensor(j)["name"] = ""; }},
        {"tensor's name", [](json& j) { tensor(j)["group"] = "weights2"; }},
        {"element type", [](json& j) { tensor(j)["dtype"] = "fp64"; }},
        {"string", [](json& j) { tensor(j)["name"] = 7; }},
    });
}

TEST(checkpoint_hostile, manifests_that_contradict_themselves) {
    expect_refused({
        {"order", [](json& j) { j["tensors"].push_back(tensor(j)); }},
        {"state hash", [](json& j) { j["state"] = std::string(32, '0'); }},
        {"state hash", [](json& j) { tensor(j)["hash"] = std::string(32, '0'); }},
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
    });
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
