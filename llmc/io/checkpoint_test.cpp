// llmc/io/checkpoint_test.cpp: saving and loading by one rank and by several, in any layout.
#include "llmc/io/checkpoint.h"

#include "llmc/core/check.h"
#include "llmc/io/checkpoint_testing.h"

namespace fs = std::filesystem;

TEST(checkpoint, comes_back_as_it_was) {
    ScratchDir out;
    auto comm = comm_self();
    Saves saves;
    ToyState state(7);
    const SaveResult r = checkpoint_save(out.path, toy_meta(7), state.pieces(), *comm, saves);
    ASSERT_TRUE(r.ok) << r.reason;
    EXPECT_EQ(r.reason, "");
    EXPECT_EQ(r.path, out.path + "/ckpt/step-0000000007");

    auto found = checkpoint_find(out.path, *comm);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->path, r.path);
    EXPECT_EQ(found->manifest.state, r.state);
    EXPECT_EQ(found->manifest.meta.run_id, "run-1");
    EXPECT_EQ(found->manifest.meta.step, 7);
    EXPECT_EQ(found->manifest.meta.tokens, 7 * 64);
    EXPECT_EQ(found->manifest.meta.train, toy_meta(7).train);
    ToyState loaded(0);
    checkpoint_read(*found, loaded.pieces(), *comm);
    EXPECT_TRUE(loaded == state);
    EXPECT_EQ(checkpoint_verify(r.path, *comm), r.state);
    EXPECT_EQ(checkpoint_state_hash(loaded.pieces(), *comm), r.state);
}
