#include <gtest/gtest.h>
#include <zlib.h>

TEST(Compressor, IsThere) { EXPECT_NE(zlibVersion(), nullptr); }
