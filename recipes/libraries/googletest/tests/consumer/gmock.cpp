// Uses GoogleMock with its own main: expectations, actions, sequences and matchers.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::InSequence;
using testing::Return;

class Store {
 public:
  virtual ~Store() = default;
  virtual bool Has(const std::string& name) const = 0;
  virtual void Put(const std::string& name, int value) = 0;
};

class MockStore : public Store {
 public:
  MOCK_METHOD(bool, Has, (const std::string& name), (const, override));
  MOCK_METHOD(void, Put, (const std::string& name, int value), (override));
};

int PutOnce(Store& store, const std::vector<std::string>& names) {
  int put = 0;
  for (const std::string& name : names) {
    if (!store.Has(name)) {
      store.Put(name, ++put);
    }
  }
  return put;
}

TEST(Mocks, AreCalledInOrder) {
  MockStore store;
  const InSequence sequence;
  EXPECT_CALL(store, Has("a")).WillOnce(Return(true));
  EXPECT_CALL(store, Has(HasSubstr("b"))).WillOnce(Return(false));
  EXPECT_CALL(store, Put("b", 1)).Times(1);
  EXPECT_EQ(PutOnce(store, {"a", "b"}), 1);
}

TEST(Mocks, DISABLED_AreMissed) {
  MockStore store;
  EXPECT_CALL(store, Put(_, _)).Times(1);
}

TEST(Matchers, LookIntoContainers) {
  EXPECT_THAT((std::vector<std::string>{"one", "two"}), ElementsAre("one", HasSubstr("w")));
}

}  // namespace
