// Uses GoogleTest with its own main: assertions, fixtures, parameters, types and death tests.
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

TEST(Assertions, Compare) {
  EXPECT_EQ(6 * 7, 42);
  EXPECT_NEAR(1.0 / 3, 0.3333, 1e-3);
  EXPECT_STREQ("a", std::string("a").c_str());
  EXPECT_THROW(throw std::runtime_error("x"), std::runtime_error);
}

TEST(Assertions, DISABLED_Wrong) { EXPECT_EQ(1, 2); }

class Numbers : public testing::Test {
 protected:
  void SetUp() override { numbers_ = {1, 2, 3}; }
  std::vector<int> numbers_;
};

TEST_F(Numbers, AreThere) { ASSERT_EQ(numbers_.size(), 3U); }

class Squares : public testing::TestWithParam<int> {};

TEST_P(Squares, AreNotNegative) { EXPECT_GE(GetParam() * GetParam(), 0); }

INSTANTIATE_TEST_SUITE_P(Some, Squares, testing::Range(-3, 4));

template <typename Type>
class Widths : public testing::Test {};

using Types = testing::Types<std::int8_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(Widths, Types);

TYPED_TEST(Widths, ArePowersOfTwo) { EXPECT_EQ(sizeof(TypeParam) & (sizeof(TypeParam) - 1), 0U); }

TEST(DeathTest, ExitStatus) { EXPECT_EXIT(std::exit(3), testing::ExitedWithCode(3), ""); }

}  // namespace
