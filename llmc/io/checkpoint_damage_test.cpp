// llmc/io/checkpoint_damage_test.cpp: whatever happens to the newest checkpoint's files, it is
// refused by name and the one before it is used.
#include <fstream>

#include "llmc/core/check.h"
#include "llmc/io/checkpoint_testing.h"

namespace fs = std::filesystem;

static const char* FILES[] = {"manifest.json", "model.h5", "shards/rank-00000.h5",
                              "shards/rank-00001.h5", "shards/rank-00002.h5"};

namespace {
// Checkpoints of steps 1 and 2, written by three ranks.
struct TwoSteps {
    ScratchDir out;
    TwoSteps() {
        const bool ok = on_ranks(3, [&](Comm& comm) {
            Saves saves;
            for (int64_t step : {1, 2}) {
                ToyState state(step);
                const SaveResult r = checkpoint_save(out.path, toy_meta(step),
                                                     state.pieces(comm.rank(), 3), comm, saves);
                EXPECT_TRUE(r.ok) << r.reason;
            }
        });
        if (!ok) throw std::runtime_error("saving failed");
    }
};
struct Copy {
    ScratchDir out;
    std::string one = out.path + "/ckpt/step-0000000001", two = out.path + "/ckpt/step-0000000002";
    Copy() {
        static TwoSteps original;
        fs::copy(original.out.path, out.path, fs::copy_options::recursive);
    }
};
}  // namespace

static std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}
static void set_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

// Step 1 is found, step 2 is set aside, and stderr says why in words that contain `named`.
static void expect_older_is_used(const Copy& copy, const std::string& named,
                                 const std::string& what) {
    auto comm = comm_self();
    testing::internal::CaptureStderr();
    const auto found = checkpoint_find(copy.out.path, *comm);
    const std::string said = testing::internal::GetCapturedStderr();
    ASSERT_TRUE(found.has_value()) << what;
    EXPECT_EQ(found->manifest.meta.step, 1) << what;
    EXPECT_NE(said.find("refused"), std::string::npos) << what;
    EXPECT_NE(said.find(named), std::string::npos) << what << " said: " << said;
    ToyState loaded(0), first(1);
    checkpoint_read(*found, loaded.pieces(), *comm);
    EXPECT_TRUE(loaded == first) << what;
    EXPECT_FALSE(fs::exists(copy.two)) << what;
}

TEST(checkpoint_damage, every_file_damaged_in_every_way) {
    const std::pair<const char*, std::function<void(const std::string&)>> ways[] = {
        {"short by a byte", [](const std::string& f) { fs::resize_file(f, fs::file_size(f) - 1); }},
        {"half", [](const std::string& f) { fs::resize_file(f, fs::file_size(f) / 2); }},
        {"empty", [](const std::string& f) { fs::resize_file(f, 0); }},
        {"zeros", [](const std::string& f) { set_bytes(f, std::string(fs::file_size(f), '\0')); }},
        {"a byte more", [](const std::string& f) { set_bytes(f, bytes_of(f) + "x"); }},
        {"missing", [](const std::string& f) { fs::remove(f); }},
        {"renamed", [](const std::string& f) { fs::rename(f, f + ".old"); }},
        {"a directory", [](const std::string& f) { fs::remove(f), fs::create_directory(f); }},
        {"a link to itself elsewhere",
         [](const std::string& f) {
             fs::rename(f, fs::path(f).parent_path().parent_path() / "elsewhere");
             fs::create_symlink(fs::path(f).parent_path().parent_path() / "elsewhere", f);
         }},
        {"that of another step",
         [](const std::string& f) {
             std::string other = f;
             other.replace(other.find("step-0000000002"), 15, "step-0000000001");
             set_bytes(f, bytes_of(other));
         }},
    };
    for (const char* file : FILES)
        for (const auto& [way, spoil] : ways) {
            // Views of equally cut weights are equal: a name is all they hold.
            if (file == std::string("model.h5") && way == std::string("that of another step"))
                continue;
            Copy copy;
            spoil(copy.two + "/" + file);
            expect_older_is_used(copy, "step-0000000002", str(file, ", ", way));
        }
}

TEST(checkpoint_damage, files_exchanged_added_or_moved) {
    {
        Copy copy;  // the shards of two ranks change places
        const std::string a = copy.two + "/" + FILES[2], b = copy.two + "/" + FILES[3];
        const std::string of_a = bytes_of(a);
        set_bytes(a, bytes_of(b)), set_bytes(b, of_a);
        expect_older_is_used(copy, "rank-0000", "exchanged");
    }
    for (const char* extra : {"notes.txt", "shards/rank-00003.h5", "shards/x", ".hidden"}) {
        Copy copy;
        set_bytes(copy.two + "/" + extra, "x");
        expect_older_is_used(copy, extra, "added");
    }
    {
        Copy copy;  // a whole checkpoint under the name of a later step
        fs::rename(copy.two, copy.out.path + "/ckpt/step-0000000003");
        expect_older_is_used(copy, "step-0000000003", "renamed directory");
    }
    {
        Copy copy;
        fs::remove_all(copy.two);
        set_bytes(copy.two, "a file");
        expect_older_is_used(copy, "step-0000000002", "a file in its place");
    }
    {
        Copy copy;
        fs::remove_all(copy.two + "/shards");
        expect_older_is_used(copy, "shards", "no shards");
    }
}

TEST(checkpoint_damage, a_flipped_bit_anywhere_is_noticed) {
    Copy copy;
    auto comm = comm_self();
    EXPECT_NO_THROW(checkpoint_open(copy.two, *comm));
    int flips = 0;
    for (const char* file : FILES) {
        const std::string path = copy.two + "/" + file, good = bytes_of(path);
        // Every 41st byte, a prime, so that all places within HDF5's records are met.
        for (size_t i = flips % 41; i < good.size(); i += 41, flips++) {
            std::string bad = good;
            bad[i] = char(bad[i] ^ (1 << flips % 8));
            set_bytes(path, bad);
            EXPECT_THROW(checkpoint_open(copy.two, *comm), Error) << file << " byte " << i;
        }
        set_bytes(path, good);
    }
    EXPECT_NO_THROW(checkpoint_open(copy.two, *comm));
    EXPECT_GT(flips, 500);
}

TEST(checkpoint_damage, none_valid_is_an_error_at_every_attempt) {
    Copy copy;
    fs::remove(copy.one + "/" + FILES[2]);
    fs::remove(copy.two + "/" + FILES[2]);
    auto comm = comm_self();
    for (int attempt = 0; attempt < 2; attempt++) {
        testing::internal::CaptureStderr();
        try {
            checkpoint_find(copy.out.path, *comm);
            ADD_FAILURE() << "attempt " << attempt << " started over";
        } catch (const Error& e) {
            EXPECT_EQ(int(e.code), int(Exit::Damaged));
        }
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_EQ(said.find("refused") != std::string::npos, attempt == 0);
    }
    EXPECT_TRUE(fs::exists(copy.one + ".bad") && fs::exists(copy.two + ".bad"));
}

TEST(checkpoint_damage, an_unknown_version_stops_the_run_and_is_left_alone) {
    Copy copy;
    auto body = nlohmann::json::parse(bytes_of(copy.two + "/manifest.json"));
    body.erase("digest");
    body["version"] = 2;
    set_bytes(copy.two + "/manifest.json", manifest_seal(body));
    auto comm = comm_self();
    try {
        checkpoint_find(copy.out.path, *comm);
        ADD_FAILURE() << "an unknown version was passed over";
    } catch (const Error& e) {
        EXPECT_EQ(int(e.code), int(Exit::Usage));
        EXPECT_NE(std::string(e.what()).find("version"), std::string::npos);
    }
    EXPECT_TRUE(fs::exists(copy.two));
}

TEST(checkpoint_damage, what_changes_between_checking_and_reading_is_noticed) {
    Copy copy;
    auto comm = comm_self();
    const OpenCheckpoint c = checkpoint_open(copy.two, *comm);
    const std::string path = copy.two + "/" + FILES[3];
    std::string bytes = bytes_of(path);
    // A value of a tensor that rank 1 wrote, not one of HDF5's own records.
    ToyState state(2);
    const float value = state.tensors[5].values[20];
    const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&value), 4));
    ASSERT_NE(at, std::string::npos);
    bytes[at] = char(bytes[at] ^ 1);
    set_bytes(path, bytes);
    ToyState loaded(0);
    try {
        checkpoint_read(c, loaded.pieces(), *comm);
        ADD_FAILURE() << "a changed value was loaded";
    } catch (const Error& e) {
        EXPECT_EQ(int(e.code), int(Exit::Damaged));
        EXPECT_NE(std::string(e.what()).find("hash"), std::string::npos) << e.what();
    }
}

TEST(checkpoint_damage, a_checkpoint_that_one_rank_cannot_see) {
    Copy copy;
    EXPECT_TRUE(on_ranks(3, [&](Comm& comm) {
        // Rank 2 looks into another directory, as on a machine that lacks the shared file system.
        const std::string path = comm.rank() == 2 ? copy.out.path + "/none" : copy.two;
        try {
            checkpoint_open(path, comm);
            ADD_FAILURE() << "opened";
        } catch (const Error& e) {
            EXPECT_EQ(int(e.code), int(Exit::Usage));
            EXPECT_NE(std::string(e.what()).find("rank 2"), std::string::npos) << e.what();
        }
    }));
    EXPECT_TRUE(fs::exists(copy.two));
}
