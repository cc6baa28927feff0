#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "triton/core/tritonserver.h"

TEST(Query, TypesHaveNames) { EXPECT_STREQ(TRITONSERVER_DataTypeString(TRITONSERVER_TYPE_FP32), "FP32"); }

int
main(int argc, char** argv)
{
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
