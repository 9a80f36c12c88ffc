// Collectives through shared memory between forked ranks: values, guards, records, failure.
#include "llmc/parallel/comm.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "llmc/core/memory.h"
#include "llmc/parallel/comm_mpi.h"
#include "llmc/parallel/comm_testing.h"
#include "llmc/parallel/selftest.h"

TEST(comm, every_collective_on_any_number_of_ranks) {
    comm_check(*comm_self());
    for (int ranks : {2, 3, 5, 8})
        EXPECT_TRUE(on_ranks(ranks, [](Comm& comm) { comm_check(comm); })) << ranks << " ranks";
}

TEST(comm, sums_are_in_the_order_of_ranks) {
    // ((1 + 2^-24) + 2^-24) rounds to 1 in fp32, in any other order to 1 + 2^-23.
    for (bool registered : {false, true})
        for (size_t n : {size_t(5), size_t(100'000)})
            EXPECT_TRUE(on_ranks(3, [=](Comm& comm) {
                Memory<CpuStream> memory{CpuStream{}};
                float* x = memory.get<float>("test", "", int64_t(n));
                const auto handle =
                    registered ? comm.memory_register(x, n * sizeof(float)) : nullptr;
                std::fill(x, x + n, comm.rank() == 0 ? 1.f : 0x1p-24f);
                comm.all_reduce(x, n);
                for (size_t i = 0; i < n; i++) ASSERT_EQ(x[i], 1.f);
            }));
}

// What a rank writes while another is in a collective, before or after, is not mixed up with it:
// values change from one collective to the next, and one rank comes late.
TEST(comm, registered_memory_belongs_to_its_rank_between_collectives) {
    EXPECT_TRUE(on_ranks(3, [](Comm& comm) {
        constexpr size_t each = 5000, n = 3 * each;
        const Slices s{n, each};
        const size_t mine = s.begin(comm.rank());
        Memory<CpuStream> memory{CpuStream{}};
        int64_t* x = memory.get<int64_t>("test", "", n);
        const auto handle = comm.memory_register(x, n * sizeof *x);
        ASSERT_TRUE(handle);
        for (int64_t round = 0; round < 12; round++) {
            const auto set = [&] { std::fill(x, x + n, round + comm.rank()); };
            const int64_t sum = 3 * round + 3;
            if (round % 3 == comm.rank()) ::usleep(2000);
            set();
            comm.all_reduce(x, n);
            EXPECT_EQ(std::count(x, x + n, sum), int64_t(n));
            set();
            comm.reduce_scatter(x + mine, x, s);
            EXPECT_EQ(std::count(x + mine, x + mine + each, sum), int64_t(each));
            set();
            EXPECT_EQ(std::count(x, x + n, round + comm.rank()), int64_t(n));
            comm.all_gather(x, x + mine, s);
            for (int r = 0; r < 3; r++)
                EXPECT_EQ(std::count(x + s.begin(r), x + s.begin(r) + each, round + r),
                          int64_t(each));
            set();
            std::vector<int64_t> got(each, 0);
            comm.all_to_all<int64_t>(x, s, [&](int64_t* from, size_t first, size_t count) {
                for (size_t i = 0; i < count; i++) got[first + i] += from[i];
            });
            EXPECT_EQ(std::count(got.begin(), got.end(), sum), int64_t(each));
        }
    }));
}

// Where it cannot be done on one rank, it is done on none, and the memory serves all the same.
TEST(comm, memory_is_registered_on_all_ranks_or_none) {
    EXPECT_TRUE(on_ranks(3, [](Comm& comm) {
        Memory<CpuStream> memory{CpuStream{}};
        const size_t n = 10'000;
        float* x = memory.get<float>("test", "", int64_t(n));
        const auto sum = [&] {
            std::fill(x, x + n, 1.f);
            comm.all_reduce(x, n);
            return std::count(x, x + n, 3.f) == int64_t(n);
        };
        // Rank 1 can open no file, then its own but not those of others.
        rlimit limit{};
        getrlimit(RLIMIT_NOFILE, &limit);
        const int next = ::dup(0);
        ::close(next);
        for (rlim_t files : {rlim_t(next), rlim_t(next) + 1}) {
            const rlimit few{files, limit.rlim_max};
            if (comm.rank() == 1) setrlimit(RLIMIT_NOFILE, &few);
            EXPECT_FALSE(comm.memory_register(x, n * sizeof *x));
            EXPECT_TRUE(sum());
            setrlimit(RLIMIT_NOFILE, &limit);
        }
        EXPECT_FALSE(comm.memory_register(x, n * sizeof *x - size_t(comm.rank())));
        EXPECT_TRUE(sum());
        for (int times = 0; times < 2; times++) {
            const auto handle = comm.memory_register(x, n * sizeof *x);
            EXPECT_TRUE(handle);
            EXPECT_TRUE(sum());
        }
        EXPECT_TRUE(sum());
    }));
}

TEST(comm, a_sum_of_bf16_is_rounded_once) {
    // 256 + 1 + 1: bf16 has 8 bits, so adding one by one would stay at 256.
    EXPECT_TRUE(on_ranks(3, [](Comm& comm) {
        bf16 x = to_bf16(comm.rank() == 0 ? 256.f : 1.f);
        comm.all_reduce(&x, 1);
        EXPECT_EQ(to_float(x), 258.f);
    }));
}

TEST(comm, no_rank_loses_sight_of_a_nan) {
    for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min})
        for (int bad : {0, 1, 2})
            EXPECT_TRUE(on_ranks(3, [&](Comm& comm) {
                float x = comm.rank() == bad ? std::nanf("") : 1.f;
                comm.all_reduce(&x, 1, op);
                EXPECT_TRUE(std::isnan(x));
            }));
}

TEST(comm, integers_wrap) {
    EXPECT_TRUE(on_ranks(2, [](Comm& comm) {
        int64_t x = INT64_MAX;
        comm.all_reduce(&x, 1);
        EXPECT_EQ(x, -2);
    }));
}

TEST(comm, bytes_sent_are_those_of_the_formulas) {
    for (int ranks : {2, 3, 4})
        EXPECT_TRUE(on_ranks(ranks, [&](Comm& comm) {
            const size_t each = 50, n = each * size_t(ranks);
            const Slices s{n, each};
            std::vector<float> x(n);
            std::vector<int64_t> sent = {0};
            const auto step = [&] {
                const int64_t before = sent.back();
                sent.push_back(comm.bytes_sent());
                return sent.back() - before;
            };
            comm.all_reduce(x.data(), n);
            EXPECT_EQ(step(), int64_t(2 * 4 * n * size_t(ranks - 1) / size_t(ranks)));
            comm.reduce_scatter(x.data(), x.data(), s);
            EXPECT_EQ(step(), int64_t(4 * each) * (ranks - 1));
            comm.all_gather(x.data(), x.data() + s.begin(comm.rank()), s);
            EXPECT_EQ(step(), int64_t(4 * each) * (ranks - 1));
            comm.broadcast(x.data(), n, 1);
            EXPECT_EQ(step(), comm.rank() == 1 ? int64_t(4 * n) : 0);
        }));
}

TEST(comm, records_say_what_was_last) {
    EXPECT_TRUE(on_ranks(2, [](Comm& comm) {
        const int64_t before = comm_last().seq;
        std::vector<int64_t> x(21);
        comm.all_reduce(x.data(), x.size(), ReduceOp::Sum, "loss");
        const CommRecord r = comm_last();
        EXPECT_EQ(r.seq, before + 1);
        EXPECT_EQ(r.sent, 2 * 21 * 8 / 2);
        EXPECT_GE(r.end, r.begin);
        const std::string text = comm_text(r);
        EXPECT_NE(text.find("all-reduce of 21 int64 (loss), done"), std::string::npos) << text;
        for (int i = 0; i < 3; i++) comm.barrier();
        EXPECT_EQ(comm_last().seq, before + 4);
        EXPECT_STREQ(comm_last().kind, "barrier");
    }));
}

TEST(comm, who_waits_for_a_failed_rank_is_told) {
    const size_t status = 4096;
    void* memory = ::mmap(nullptr, status + CommShared::bytes(2), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto* failure = static_cast<std::atomic<int32_t>*>(memory);
    CommShared comm(static_cast<char*>(memory) + status, 0, 2, failure, true);
    failure->store(failure_word(3, 1));
    try {
        comm.barrier();
        FAIL() << "returned without the other rank";
    } catch (const PeerFailed& e) {
        EXPECT_EQ(e.code, 3);
        EXPECT_EQ(e.rank, 1);
    }
    ::munmap(memory, status + CommShared::bytes(2));
}

TEST(comm, launchers_are_recognised_by_their_variables) {
    using Variables = std::map<std::string, const char*>;
    const auto launched = [](const Variables& v) {
        return launched_processes(
            [&](const char* name) { return v.count(name) ? v.at(name) : nullptr; });
    };
    EXPECT_EQ(launched({}), 0);
    EXPECT_EQ(launched({{"OMPI_COMM_WORLD_SIZE", "4"}}), 4);
    EXPECT_EQ(launched({{"PMI_SIZE", "3"}}), 3);
    // srun: with a process manager that MPI understands, and without (then MPI will see one
    // process, and MpiSession::start says so).
    EXPECT_EQ(launched({{"SLURM_STEP_NUM_TASKS", "16"}, {"PMIX_RANK", "2"}}), 16);
    EXPECT_EQ(launched({{"SLURM_STEP_NUM_TASKS", "16"}}), 16);
    // An interactive shell inside an allocation is no launcher.
    EXPECT_EQ(launched({{"SLURM_NTASKS", "16"}, {"SLURM_STEP_NUM_TASKS", "1"}}), 0);
}
