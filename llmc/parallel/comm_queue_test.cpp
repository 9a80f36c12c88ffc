// The queue keeps its order, its errors and its accounts.
#include "llmc/parallel/comm_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

TEST(comm_queue, work_is_done_in_order) {
    for (bool overlap : {false, true}) {
        CommQueue queue(overlap);
        std::vector<int> done;  // by one thread at a time; wait() makes it visible
        std::vector<int64_t> tickets;
        for (int i = 0; i < 100; i++)
            tickets.push_back(queue.submit([&, i] { done.push_back(i); }));
        queue.wait(tickets[50]);
        queue.drain();
        ASSERT_EQ(done.size(), 100u);
        for (int i = 0; i < 100; i++) EXPECT_EQ(done[size_t(i)], i);
    }
}

TEST(comm_queue, an_error_reaches_whoever_waits_and_ends_the_queue) {
    CommQueue queue(true);
    bool after = false;
    queue.submit([] { throw std::runtime_error("broken"); });
    queue.submit([&] { after = true; });
    EXPECT_THROW(queue.drain(), std::runtime_error);
    EXPECT_THROW(queue.drain(), std::runtime_error);
    EXPECT_FALSE(after);
}

TEST(comm_queue, hidden_and_exposed_time) {
    const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(60)); };
    CommQueue queue(true);
    queue.submit(nap);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    queue.drain();
    CommQueue::Times hidden = queue.take_times();
    EXPECT_GE(hidden.busy, 0.06);
    EXPECT_LT(hidden.exposed, 0.5 * hidden.busy);

    CommQueue inline_queue(false);
    inline_queue.submit(nap);
    EXPECT_EQ(inline_queue.take_times().hidden(), 0);
}
