// Addresses of names: they come and go with what a resolver says, and stay where it says nothing.
#include "server/peers/name_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace invar::server {
namespace {

using Addresses = std::vector<std::string>;

class Names final : public HostResolver {
 public:
  explicit Names(std::map<std::string, StatusOr<Addresses>>& known) : known_(known) {}
  StatusOr<Addresses> Resolve(const std::string& host) override {
    const auto found = known_.find(host);
    return found == known_.end() ? StatusOr<Addresses>(Addresses()) : found->second;
  }

 private:
  std::map<std::string, StatusOr<Addresses>>& known_;
};

class NameWatchTest : public testing::Test {
 protected:
  void Watch(const std::string& producers) {
    watch_.emplace(config::ParseProducers(producers).value(), std::make_unique<Names>(known_),
                   [this](const std::vector<config::Producer>& now) {
                     ++told_;
                     now_.clear();
                     for (const config::Producer& one : now) now_.push_back(one.name + "=" + one.address);
                   });
  }
  Addresses LookUp() {
    watch_->LookUp();
    return now_;
  }

  std::map<std::string, StatusOr<Addresses>> known_;
  Addresses now_;
  int told_ = 0;
  std::optional<NameWatch> watch_;
};

TEST_F(NameWatchTest, AHostIsAsManyProducersAsItHasAddresses) {
  known_.emplace("prefill", Addresses{"10.0.0.2", "10.0.0.1", "fd00::7", "10.0.0.2"});
  Watch("a=here:1, b=dns:prefill:50051");
  EXPECT_EQ(LookUp(), (Addresses{"a=here:1", "b=10.0.0.1:50051", "b=10.0.0.2:50051", "b=[fd00::7]:50051"}));
}

TEST_F(NameWatchTest, ComeAndGoWithWhatTheNameHas) {
  known_.emplace("prefill", Addresses{"10.0.0.1"});
  Watch("b=dns:prefill:1");
  EXPECT_EQ(LookUp(), (Addresses{"b=10.0.0.1:1"}));
  known_.at("prefill") = Addresses{"10.0.0.2", "10.0.0.1"};
  EXPECT_EQ(LookUp(), (Addresses{"b=10.0.0.1:1", "b=10.0.0.2:1"}));
  known_.at("prefill") = Addresses{"10.0.0.2"};
  EXPECT_EQ(LookUp(), (Addresses{"b=10.0.0.2:1"}));
  EXPECT_EQ(told_, 3);
  LookUp();
  EXPECT_EQ(told_, 3) << "nothing has changed";
  known_.at("prefill") = Addresses{};
  EXPECT_EQ(LookUp(), Addresses{}) << "a service that has no pod";
}

TEST_F(NameWatchTest, StayWhereNobodyCanTell) {
  known_.emplace("prefill", Addresses{"10.0.0.1"});
  Watch("b=dns:prefill:1");
  LookUp();
  known_.at("prefill") = Unavailable("no name server answers");
  EXPECT_EQ(LookUp(), (Addresses{"b=10.0.0.1:1"}));
  EXPECT_EQ(told_, 1);
}

TEST_F(NameWatchTest, OneHostHasSixtyFourAtMost) {
  Addresses many;
  for (int i = 0; i < 200; ++i) many.push_back("10.0.0." + std::to_string(i));
  known_.emplace("prefill", many);
  Watch("b=dns:prefill:1");
  EXPECT_EQ(LookUp().size(), 64U);
}

TEST_F(NameWatchTest, WhatNeedsNoLookupIsThereAtOnce) {
  Watch("a=here:1, b=there:2");
  watch_->Start();
  EXPECT_EQ(now_, (Addresses{"a=here:1", "b=there:2"}));
}

TEST(SystemResolver, KnowsThisMachine) {
  const auto addresses = MakeSystemResolver()->Resolve("localhost").value();
  EXPECT_NE(std::ranges::find(addresses, "127.0.0.1"), addresses.end());
  EXPECT_EQ(MakeSystemResolver()->Resolve("127.0.0.1").value(), Addresses{"127.0.0.1"});
}

}  // namespace
}  // namespace invar::server
