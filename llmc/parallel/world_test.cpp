// How many cores a rank has, whatever the launcher has bound ranks to.
#include "llmc/parallel/world.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace {
// The status of ranks that may run on the cores first .. first+count.
struct Bound {
    int first, count;
};
std::vector<double> cores_of(const std::vector<Bound>& ranks) {
    const int n = int(ranks.size());
    auto* status =
        static_cast<SharedStatus*>(std::aligned_alloc(64, (SharedStatus::bytes(n) + 63) / 64 * 64));
    std::memset(static_cast<void*>(status), 0, SharedStatus::bytes(n));
    for (int r = 0; r < n; r++)
        for (int core = ranks[size_t(r)].first;
             core < ranks[size_t(r)].first + ranks[size_t(r)].count; core++)
            status->ranks[r].cores[core / 64] |= uint64_t(1) << core % 64;
    std::vector<double> cores;
    for (int r = 0; r < n; r++) cores.push_back(cores_of_rank(*status, r, n));
    std::free(status);
    return cores;
}
using Cores = std::vector<double>;
}  // namespace

TEST(world, cores_are_divided_among_the_ranks_that_may_run_there) {
    EXPECT_EQ(cores_of({{0, 1}, {1, 1}}), (Cores{1, 1}));      // a core each
    EXPECT_EQ(cores_of({{0, 64}, {0, 64}}), (Cores{32, 32}));  // not bound at all
    EXPECT_EQ(cores_of({{0, 2}, {0, 2}, {0, 2}, {0, 2}}), (Cores{.5, .5, .5, .5}));
    EXPECT_EQ(cores_of({{0, 32}, {0, 32}, {32, 32}, {32, 32}}),
              (Cores{16, 16, 16, 16}));                      // sockets
    EXPECT_EQ(cores_of({{60, 8}, {64, 8}}), (Cores{6, 6}));  // over a word's end
    EXPECT_EQ(cores_of({{1016, 8}}), (Cores{8}));
}
