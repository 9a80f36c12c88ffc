// llmc/model/config_testing.h: what the tests of configs share.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "llmc/core/check.h"

// The message of the Error(Usage) that f throws.
inline std::string error_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const Error& e) {
        EXPECT_EQ(e.code, Exit::Usage);
        return e.what();
    }
    return "no error";
}
