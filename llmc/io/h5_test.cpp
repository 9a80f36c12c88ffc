// HDF5's errors become ours, and nothing else of them is seen.
#include "llmc/io/h5.h"

#include <gtest/gtest.h>

#include <thread>

#include "llmc/core/check.h"

TEST(h5, errors_are_quiet_in_every_thread) {
    testing::internal::CaptureStderr();
    for (int i = 0; i < 2; i++)
        std::thread([] {
            const H5Handle access = h5_properties(H5P_FILE_ACCESS);
            EXPECT_THROW(H5_CHECK(H5Fopen("/no/such/file.h5", H5F_ACC_RDONLY, access)), Error);
        }).join();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}
