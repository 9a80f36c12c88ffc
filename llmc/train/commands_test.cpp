// llmc/train/commands_test.cpp: whatever a command throws ends as one error and an exit code.
#include "llmc/train/commands.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>

#include "llmc/core/check.h"

namespace {

// In a process of its own: what a signal does is changed for good.
void ends(const std::function<Exit()>& command, Exit code, const std::string& said) {
    const auto all = [&] {
        World world;
        std::exit(report_errors(world, command));
    };
    EXPECT_EXIT(all(), testing::ExitedWithCode(int(code)), said);
}

TEST(commands, every_exception_is_reported) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ends([] { return Exit::Done; }, Exit::Done, "");
    ends([]() -> Exit { throw Error(Exit::Damaged, "a bad byte"); }, Exit::Damaged,
         "error: a bad byte");
    ends([]() -> Exit { throw std::bad_alloc(); }, Exit::Resource, "error: out of memory");
    const auto filesystem = []() -> Exit {
        std::filesystem::rename("/none", "/neither");
        return Exit::Done;
    };
    ends(filesystem, Exit::Resource, "error: filesystem error: .*No such file");
}

}  // namespace
