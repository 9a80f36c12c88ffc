// llmc/io/checkpoint_test.cpp: saving and loading by one rank and by several, in any layout.
#include "llmc/io/checkpoint.h"

#include <fstream>
#include <thread>

#include "llmc/core/check.h"
#include "llmc/io/checkpoint_shard.h"
#include "llmc/io/checkpoint_testing.h"

namespace fs = std::filesystem;

// Saves the toy state of `step` by `ranks` ranks; returns what all of them return.
static void save_by(int ranks, const std::string& out, int64_t step) {
    ASSERT_TRUE(on_ranks(ranks, [&](Comm& comm) {
        Saves saves;
        ToyState state(step);
        const SaveResult r =
            checkpoint_save(out, toy_meta(step), state.pieces(comm.rank(), ranks), comm, saves);
        EXPECT_TRUE(r.ok && r.reason.empty()) << r.reason;
    }));
}

static SaveResult save_alone(const std::string& out, int64_t step, Saves& saves) {
    auto comm = comm_self();
    ToyState state(step);
    return checkpoint_save(out, toy_meta(step), state.pieces(), *comm, saves);
}

static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(checkpoint, comes_back_as_it_was) {
    ScratchDir out;
    auto comm = comm_self();
    Saves saves;
    const SaveResult r = save_alone(out.path, 7, saves);
    ASSERT_TRUE(r.ok) << r.reason;
    EXPECT_EQ(r.reason, "");
    EXPECT_EQ(r.path, out.path + "/ckpt/step-0000000007");
    EXPECT_EQ(saves.verified, std::vector<int64_t>{7});

    auto found = checkpoint_find(out.path, *comm);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->path, r.path);
    EXPECT_EQ(found->manifest.state, r.state);
    EXPECT_EQ(found->manifest.meta.run_id, "run-1");
    EXPECT_EQ(found->manifest.meta.step, 7);
    EXPECT_EQ(found->manifest.meta.tokens, 7 * 64);
    EXPECT_EQ(found->manifest.meta.train, toy_meta(7).train);
    ToyState loaded(0), state(7);
    checkpoint_read(*found, loaded.pieces(), *comm);
    EXPECT_TRUE(loaded == state);
    EXPECT_EQ(checkpoint_verify(r.path, *comm), r.state);
    EXPECT_EQ(checkpoint_verify(out.path, *comm), r.state);  // the newest one in it
    EXPECT_EQ(checkpoint_state_hash(loaded.pieces(), *comm), r.state);
    EXPECT_NE(checkpoint_state_hash(ToyState(8).pieces(), *comm), r.state);
}

TEST(checkpoint, nothing_is_not_an_error_but_a_path_to_nothing_is) {
    ScratchDir out;
    auto comm = comm_self();
    EXPECT_FALSE(checkpoint_find(out.path, *comm).has_value());
    EXPECT_THROW(checkpoint_open(out.path + "/nowhere", *comm), Error);
    EXPECT_THROW(checkpoint_open(out.path, *comm), Error);
}

TEST(checkpoint, any_number_of_ranks_loads_what_any_number_saved) {
    auto self = comm_self();
    ToyState state(3);
    const std::string hash = checkpoint_state_hash(state.pieces(), *self);
    for (const int writers : {1, 2, 3, 7}) {
        ScratchDir out;
        save_by(writers, out.path, 3);
        EXPECT_EQ(checkpoint_verify(out.path, *self), hash) << writers << " writers";
        for (const int readers : {1, 3, 4, 8})
            EXPECT_TRUE(on_ranks(
                readers,
                [&](Comm& comm) {
                    const auto found = checkpoint_find(out.path, comm);
                    // Slices, as ZeRO holds them, then whole copies on every rank.
                    ToyState slices(0), whole(0);
                    checkpoint_read(*found, slices.pieces(comm.rank(), readers), comm);
                    checkpoint_read(*found, whole.pieces(), comm);
                    EXPECT_TRUE(whole == state);
                    EXPECT_EQ(checkpoint_state_hash(slices.pieces(comm.rank(), readers), comm),
                              hash);
                    EXPECT_EQ(checkpoint_verify(out.path, comm), hash);
                }))
                << writers << " writers, " << readers << " readers";
    }
}

// A network file system shows rank 1 what rank 0's machine has written only after a second.
TEST(checkpoint, ranks_wait_until_all_see_the_same) {
    ScratchDir out;
    for (const char* dir : {"/0", "/0/run", "/1"}) fs::create_directory(out.path + dir);
    save_by(2, out.path + "/0/run", 3);
    EXPECT_TRUE(on_ranks(2, [&](Comm& comm) {
        ASSERT_EQ(::chdir(str(out.path, "/", comm.rank()).c_str()), 0);
        std::jthread later([&] {
            if (comm.rank() == 0) return;
            fs::copy("../0/run", "../later", fs::copy_options::recursive);
            ::usleep(1'000'000);
            fs::rename("../later", "run");
        });
        const auto found = checkpoint_find("run", comm);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->manifest.meta.step, 3);
    }));
}

TEST(checkpoint, one_rank_reads_the_weights_piece_by_piece) {
    ScratchDir out;
    auto comm = comm_self();
    save_by(3, out.path, 5);
    OpenCheckpoint c = checkpoint_open(out.path, *comm);
    ToyState state(5);
    // The weights from their end, in pieces of n; true if each arrives as it was.
    const auto arrives = [&](int64_t n) {
        const TensorSource source = checkpoint_source(c);
        bool right = true;
        for (const ToyState::Tensor& t : state.tensors) {
            if (t.group != "weights") continue;
            ParamTensor wanted{};
            wanted.name = t.name, wanted.shape = t.shape;
            std::vector<float> values(t.values.size(), -1.f);
            for (int64_t end = wanted.count(); end > 0; end -= n) {
                const int64_t first = std::max<int64_t>(end - n, 0);
                source(wanted, first, end - first, values.data() + first);
            }
            right = right && values == t.values;
        }
        return right;
    };
    for (int64_t n : {1, 7, 1000}) EXPECT_TRUE(arrives(n)) << n;
    ParamTensor other{};
    other.name = "lm_head", other.shape = {2};
    float two[2];
    EXPECT_THROW(checkpoint_source(c)(other, 0, 2, two), Error);
    // What arrives must be what was saved.
    for (ManifestTensor& t : c.manifest.tensors) t.hash.a ^= t.name == "h.0.bias";
    EXPECT_THROW(arrives(4), Error);
}

TEST(checkpoint, bf16_weights_beside_fp32_masters) {
    ScratchDir out;
    auto comm = comm_self();
    std::vector<float> master(1001);
    std::vector<bf16> weights(1001), loaded(1001);
    for (size_t i = 0; i < master.size(); i++) {
        master[i] = 0.37f * float(i) - 100.f;
        weights[i] = to_bf16(master[i]);
    }
    const auto pieces = [&](std::vector<bf16>& w) {
        return std::vector<TensorPiece>{
            {"weights", "a", Dtype::BF16, {7, 143}, 0, 1001, w.data()},
            {"master", "a", Dtype::F32, {7, 143}, 0, 1001, master.data()}};
    };
    Saves saves;
    const SaveResult r = checkpoint_save(out.path, toy_meta(1), pieces(weights), *comm, saves);
    ASSERT_TRUE(r.ok) << r.reason;
    EXPECT_EQ(checkpoint_verify(r.path, *comm), r.state);
    checkpoint_read(checkpoint_open(r.path, *comm), pieces(loaded), *comm);
    EXPECT_EQ(std::memcmp(loaded.data(), weights.data(), 2 * weights.size()), 0);
}

TEST(checkpoint, another_model_is_refused_by_name) {
    ScratchDir out;
    auto comm = comm_self();
    Saves saves;
    ASSERT_TRUE(save_alone(out.path, 1, saves).ok);
    const OpenCheckpoint c = checkpoint_open(out.path, *comm);
    const auto message = [&](std::vector<TensorPiece> wanted, Want want) -> std::string {
        try {
            checkpoint_read(c, wanted, *comm, want);
            return "";
        } catch (const Error& e) {
            EXPECT_EQ(int(e.code), int(Exit::Usage));
            return e.what();
        }
    };
    ToyState state(0);
    auto pieces = state.pieces();
    pieces[1].shape = {15, 7};
    EXPECT_TRUE(contains(message(pieces, Want::All), "weights/h.0.qkv"));
    pieces = state.pieces(), pieces[0].name = "lm_head";
    EXPECT_TRUE(contains(message(pieces, Want::All), "weights/lm_head"));
    // Leaving out the optimizer is an error in a resume, and fine in an evaluation.
    pieces = state.pieces(), pieces.resize(4);
    EXPECT_TRUE(contains(message(pieces, Want::All), "m/"));
    EXPECT_EQ(message(pieces, Want::Some), "");
    // Elements that nobody asked for.
    pieces[0].count -= 1;
    EXPECT_TRUE(contains(message(pieces, Want::Some), "weights/wte.weight"));
}

TEST(checkpoint, an_error_on_one_rank_fails_the_save_on_all_and_leaves_nothing) {
    ScratchDir out;
    save_by(3, out.path, 1);
    EXPECT_TRUE(on_ranks(3, [&](Comm& comm) {
        const auto failing = [&](const std::function<void(std::vector<TensorPiece>&)>& spoil) {
            Saves saves;
            ToyState state(2);
            auto pieces = state.pieces(comm.rank(), 3);
            if (comm.rank() == 1) spoil(pieces);
            const SaveResult r = checkpoint_save(out.path, toy_meta(2), pieces, comm, saves);
            EXPECT_FALSE(r.ok);
            EXPECT_TRUE(saves.verified.empty());
            return r.reason;
        };
        // A name that is none, a hole, an overlap, another shape than the other ranks have.
        EXPECT_TRUE(contains(failing([](auto& p) { p[0].name = "../x"; }), "rank 1: "));
        EXPECT_TRUE(contains(failing([](auto& p) { p[1].count -= 1; }), "tile"));
        EXPECT_TRUE(contains(failing([](auto& p) { p.push_back(p[1]); }), "HDF5"));
        EXPECT_TRUE(contains(failing([](auto& p) { p[1].shape = {105}; }), "disagree"));
        // Ranks that mean different steps.
        Saves saves;
        const SaveResult r = checkpoint_save(out.path, toy_meta(2 + comm.rank()), {}, comm, saves);
        EXPECT_TRUE(contains(r.reason, "different steps"));
    }));
    auto comm = comm_self();
    EXPECT_EQ(checkpoint_find(out.path, *comm)->manifest.meta.step, 1);
    EXPECT_EQ(std::distance(fs::directory_iterator(out.path + "/ckpt"), fs::directory_iterator()),
              2);
}

TEST(checkpoint, retention_keeps_two_verified_ones_and_the_one_resumed_from) {
    ScratchDir out;
    const auto there = [&] {
        std::vector<int64_t> steps;
        for (int64_t s = 0; s < 20; s++)
            if (fs::exists(out.path + str("/ckpt/step-00000000", s < 10 ? "0" : "", s)))
                steps.push_back(s);
        return steps;
    };
    using Steps = std::vector<int64_t>;
    Saves first;
    first.keep = 0;  // means 2
    for (int64_t s : {1, 2, 3}) ASSERT_TRUE(save_alone(out.path, s, first).ok);
    EXPECT_EQ(there(), (Steps{2, 3}));
    // Another process knows nothing of 2 and 3 but that it resumed from 2.
    Saves second;
    second.resumed_from = out.path + "/ckpt/step-0000000002";
    ASSERT_TRUE(save_alone(out.path, 4, second).ok);
    EXPECT_EQ(there(), (Steps{2, 3, 4}));
    ASSERT_TRUE(save_alone(out.path, 5, second).ok);
    EXPECT_EQ(there(), (Steps{2, 4, 5}));
    ASSERT_TRUE(save_alone(out.path, 6, second).ok);
    EXPECT_EQ(there(), (Steps{2, 5, 6}));
    // One that starts from elsewhere deletes nothing until it has two of its own.
    Saves third;
    third.resumed_from = "/somewhere/else";
    ASSERT_TRUE(save_alone(out.path, 7, third).ok);
    EXPECT_EQ(there(), (Steps{2, 5, 6, 7}));
    third.keep = 3;
    for (int64_t s : {8, 9}) ASSERT_TRUE(save_alone(out.path, s, third).ok);
    EXPECT_EQ(there(), (Steps{2, 5, 6, 7, 8, 9}));
    ASSERT_TRUE(save_alone(out.path, 10, third).ok);
    EXPECT_EQ(there(), (Steps{8, 9, 10}));
}

TEST(checkpoint, the_same_step_twice) {
    ScratchDir out;
    auto comm = comm_self();
    Saves saves;
    const SaveResult once = save_alone(out.path, 1, saves), twice = save_alone(out.path, 1, saves);
    EXPECT_TRUE(twice.ok) << twice.reason;
    EXPECT_EQ(twice.state, once.state);
    ToyState other(2);
    const SaveResult r = checkpoint_save(out.path, toy_meta(1), other.pieces(), *comm, saves);
    EXPECT_FALSE(r.ok);
    EXPECT_TRUE(contains(r.reason, "another state")) << r.reason;
    EXPECT_EQ(checkpoint_verify(out.path, *comm), once.state);
}

TEST(checkpoint, an_abandoned_branch_is_set_aside) {
    ScratchDir out;
    auto comm = comm_self();
    Saves saves;
    saves.keep = 9;
    for (int64_t s : {1, 2, 3}) ASSERT_TRUE(save_alone(out.path, s, saves).ok);
    testing::internal::CaptureStderr();
    checkpoint_set_aside(out.path, 1, *comm);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(contains(said, "step-0000000002") && contains(said, "step-0000000003")) << said;
    EXPECT_EQ(checkpoint_find(out.path, *comm)->manifest.meta.step, 1);
    checkpoint_set_aside(out.path, -1, *comm);
    EXPECT_FALSE(checkpoint_find(out.path, *comm).has_value());
}

// ---- sizes and memory

TEST(checkpoint, its_size_is_known_before) {
    std::vector<float> big(100003);
    std::vector<bf16> half(5000);
    for (const int ranks : {1, 3}) {
        ScratchDir out;
        const auto pieces_of = [&](int rank) {
            ToyState state(1);
            auto pieces = state.pieces(rank, ranks);
            // Many tensors (groups change their form when they are large) and one of some size.
            for (int i = 0; i < 150; i++)
                if (i % ranks == rank)
                    pieces.push_back(
                        {"weights", str("layer.", i), Dtype::F32, {31, 3}, 0, 93, big.data()});
            if (rank == 0)
                pieces.push_back({"v", "big", Dtype::F32, {100003}, 0, 100003, big.data()});
            if (rank == 0)
                pieces.push_back({"m", "half", Dtype::BF16, {5000}, 0, 5000, half.data()});
            return pieces;
        };
        std::vector<std::vector<TensorPiece>> all;
        for (int r = 0; r < ranks; r++) all.push_back(pieces_of(r));
        std::vector<std::vector<TensorPiece>> no_data = all;
        for (auto& list : no_data)
            for (TensorPiece& p : list) p.data = nullptr;
        CheckpointMeta meta = toy_meta(1);
        meta.train["tokenizer"] = std::string(300000, '"');  // two bytes each in the manifest
        const CheckpointBytes expected = checkpoint_bytes(no_data, meta);
        EXPECT_TRUE(on_ranks(ranks, [&](Comm& comm) {
            // The toy state's own values are gone by now; what lies here does not matter.
            auto pieces = all[size_t(comm.rank())];
            for (TensorPiece& p : pieces) p.data = big.data();
            Saves saves;
            const SaveResult r = checkpoint_save(out.path, meta, pieces, comm, saves);
            EXPECT_TRUE(r.ok) << r.reason;
            EXPECT_EQ(r.bytes, expected.shards + expected.view);
        }));
        const std::string dir = out.path + "/ckpt/step-0000000001/";
        int64_t shards = 0;
        for (const auto& entry : fs::directory_iterator(dir + "shards"))
            shards += entry.file_size();
        EXPECT_EQ(shards, expected.shards);
        EXPECT_EQ(int64_t(fs::file_size(dir + "model.h5")), expected.view);
        EXPECT_LE(int64_t(fs::file_size(dir + "manifest.json")), expected.manifest);
        for (int r = 0; r < ranks; r++)
            EXPECT_LE(int64_t(fs::file_size(dir + shard_name(r))),
                      shard_bytes_bound(no_data[size_t(r)]));
    }
}

static int64_t peak_resident_kib() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.compare(0, 6, "VmHWM:") == 0) return std::stoll(line.substr(6));
    return -1;
}

TEST(checkpoint, a_save_and_a_load_need_no_second_copy) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the address sanitizer keeps freed memory for a while";
#endif
    ScratchDir out(false);
    EXPECT_TRUE(on_ranks(1, [&](Comm& comm) {
        const int64_t n = 24 << 20;  // 96 MiB
        std::vector<float> x(size_t(n), 1.5f);
        const std::vector<TensorPiece> pieces = {{"weights", "x", Dtype::F32, {n}, 0, n, x.data()}};
        if (!(std::ofstream("/proc/self/clear_refs") << 5).flush()) return;
        const int64_t before = peak_resident_kib();
        Saves saves;
        const SaveResult r = checkpoint_save(out.path, toy_meta(1), pieces, comm, saves);
        EXPECT_TRUE(r.ok) << r.reason;
        checkpoint_read(*checkpoint_find(out.path, comm), pieces, comm);
        checkpoint_verify(out.path, comm);
        // Buffers of 4 MiB, the library, its caches; a copy would be 96 MiB.
        EXPECT_LT(peak_resident_kib() - before, 24 << 10);
    }));
}

TEST(checkpoint, equal_states_make_equal_files) {
    ScratchDir a, b;
    Saves in_a, in_b;
    ASSERT_TRUE(save_alone(a.path, 5, in_a).ok);
    ::sleep(1);  // a time stamp would show
    ASSERT_TRUE(save_alone(b.path, 5, in_b).ok);
    for (const char* file : {"manifest.json", "model.h5", "shards/rank-00000.h5"}) {
        std::ifstream x(a.path + "/ckpt/step-0000000005/" + file, std::ios::binary);
        std::ifstream y(b.path + "/ckpt/step-0000000005/" + file, std::ios::binary);
        const std::string in_x{std::istreambuf_iterator<char>(x), {}};
        const std::string in_y{std::istreambuf_iterator<char>(y), {}};
        EXPECT_FALSE(in_x.empty());
        EXPECT_EQ(in_x, in_y) << file;
    }
}

// ---- the view

TEST(checkpoint_view, ranges_become_boxes_that_cover_them_in_order) {
    const std::vector<std::vector<int64_t>> shapes = {{13}, {4, 5}, {3, 4, 5}, {2, 1, 3, 2}};
    for (const auto& shape : shapes) {
        const int64_t n = shape_count(shape);
        for (int64_t first = 0; first < n; first++)
            for (int64_t last = first + 1; last <= n; last++) {
                int64_t at = first;
                const auto boxes = range_boxes(shape, first, last - first);
                EXPECT_LE(boxes.size(), 2 * shape.size() - 1);
                for (const Box& box : boxes) {
                    // Walk the box in row-major order: it must be the next elements of the range.
                    std::vector<int64_t> index(shape.size());
                    for (int64_t k = 0; k < shape_count(box.size); k++) {
                        int64_t rest = k, flat = 0, stride = 1;
                        for (size_t d = shape.size(); d-- > 0;) {
                            flat += (box.start[d] + rest % box.size[d]) * stride;
                            rest /= box.size[d], stride *= shape[d];
                        }
                        ASSERT_EQ(flat, at++);
                    }
                }
                ASSERT_EQ(at, last);
            }
    }
}

// Runs Python with h5py; false if there is none.
static bool python(const std::string& code, std::string& output) {
    if (std::system("/usr/bin/python3 -c 'import h5py' 2>/dev/null") != 0) return false;
    FILE* p = ::popen(("/usr/bin/python3 -c \"" + code + "\" 2>&1").c_str(), "r");
    char text[4096];
    while (std::fgets(text, sizeof text, p)) output += text;
    ::pclose(p);
    return true;
}

TEST(checkpoint_view, h5py_sees_the_weights_in_their_shapes) {
    for (const int ranks : {1, 5}) {
        ScratchDir out;
        save_by(ranks, out.path, 9);
        ToyState state(9);
        std::string code = "import h5py, numpy as np\n", output;
        code += "f = h5py.File('" + out.path + "/ckpt/step-0000000009/model.h5', 'r')\n";
        code += "print(sorted(f.keys()))\n";
        for (const auto& t : state.tensors) {
            if (t.group != "weights") continue;
            const std::string raw = out.path + "/" + t.name + ".raw";
            std::ofstream(raw, std::ios::binary)
                .write(reinterpret_cast<const char*>(t.values.data()), 4 * t.values.size());
            code += "print(f['" + t.name + "'].shape, np.array_equal(f['" + t.name +
                    "'][...].ravel(), np.fromfile('" + raw + "', 'f4')))\n";
        }
        if (!python(code, output)) GTEST_SKIP() << "no h5py for /usr/bin/python3";
        EXPECT_EQ(output,
                  "['h.0.bias', 'h.0.qkv', 'one', 'wte.weight']\n(13, 7) True\n(3, 5, 7) True\n"
                  "(11,) True\n(1,) True\n");
    }
}

TEST(checkpoint_view, bf16_is_read_as_float32) {
    ScratchDir out;
    auto comm = comm_self();
    std::vector<bf16> x(6);
    for (int i = 0; i < 6; i++) x[size_t(i)] = to_bf16(1.5f * float(i) - 2);
    Saves saves;
    ASSERT_TRUE(checkpoint_save(out.path, toy_meta(1),
                                {{"weights", "x", Dtype::BF16, {2, 3}, 0, 6, x.data()}}, *comm,
                                saves)
                    .ok);
    std::string output;
    if (!python("import h5py\nprint(h5py.File('" + out.path +
                    "/ckpt/step-0000000001/model.h5','r')['x'][...].tolist())",
                output))
        GTEST_SKIP() << "no h5py for /usr/bin/python3";
    EXPECT_EQ(output, "[[-2.0, -0.5, 1.0], [2.5, 4.0, 5.5]]\n");
}
