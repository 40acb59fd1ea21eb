// When a tier is left alone, when it is asked again, and what counts as its failure.
#include "cache/tiers/tier_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/circuit_breaker.h"

namespace invar::cache {
namespace {

using testing::HasSubstr;
using Pass = CircuitBreaker::Pass;

constexpr CircuitBreaker::Options kBreaker{.failures_max = 3, .pause_min = 10, .pause_max = 35};

TEST(CircuitBreakerTest, OpensAfterFailuresInARowAndProbesWithOneCall) {
  CircuitBreaker breaker(kBreaker);
  for (int i = 0; i < 10; ++i) {  // Never three in a row.
    ASSERT_EQ(breaker.Admit(i), Pass::kCall);
    breaker.Failed(Pass::kCall, i);
    ASSERT_EQ(breaker.Admit(i), Pass::kCall);
    breaker.Failed(Pass::kCall, i);
    ASSERT_EQ(breaker.Admit(i), Pass::kCall);
    breaker.Succeeded();
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(breaker.Admit(100), Pass::kCall);
    breaker.Failed(Pass::kCall, 100);
  }
  EXPECT_TRUE(breaker.is_open());
  EXPECT_EQ(breaker.Admit(109), Pass::kRefused);
  breaker.Failed(Pass::kCall, 109);  // One that was under way: the pause is not prolonged.
  EXPECT_FALSE(breaker.Refuses(110));
  EXPECT_EQ(breaker.Admit(110), Pass::kProbe);
  EXPECT_TRUE(breaker.Refuses(110));
  EXPECT_EQ(breaker.Admit(110), Pass::kRefused) << "one probe at a time";
  breaker.Failed(Pass::kCall, 111);  // Another of those: the probe is still out.
  EXPECT_EQ(breaker.Admit(111), Pass::kRefused);
  breaker.Failed(Pass::kProbe, 112);
  EXPECT_EQ(breaker.Admit(131), Pass::kRefused) << "twice the pause";
  EXPECT_EQ(breaker.Admit(132), Pass::kProbe);
  breaker.Failed(Pass::kProbe, 132);
  EXPECT_EQ(breaker.Admit(166), Pass::kRefused) << "but no more than the longest";
  EXPECT_EQ(breaker.Admit(167), Pass::kProbe);
  breaker.Abandoned(Pass::kProbe);
  EXPECT_EQ(breaker.Admit(167), Pass::kProbe) << "the last said nothing";
  breaker.Succeeded();
  EXPECT_FALSE(breaker.is_open());
  EXPECT_EQ(breaker.Admit(167), Pass::kCall);
}

// A store of which only its name and nature matter.
class NamedStore final : public TierStore {
 public:
  explicit NamedStore(const bool is_server) : is_server_(is_server) {}
  std::string_view name() const override { return "named"; }
  bool is_server() const override { return is_server_; }
  std::vector<TierRecord> Inventory() override { return {}; }
  StatusOr<std::vector<TierRecord>> Find(std::span<const TierKey>, TierTransfer&) override {
    return std::vector<TierRecord>();
  }
  Status Put(const TierRecord&, TierTransfer&) override { return OkStatus(); }
  StatusOr<std::string> Get(const TierKey&, TierTransfer&) override { return std::string(); }
  Status Drop(const TierSpaces&, TierTransfer&) override { return OkStatus(); }
  TierContents Contents() const override { return {}; }

 private:
  const bool is_server_;
};

const Status kLate(StatusCode::kDeadlineExceeded, "not in time");

// One after the other, each with a deadline of its own unless said.
class GuardTest : public testing::Test {
 protected:
  std::string End(const Status& status, const TimeNs deadline) {
    const Pass pass = guard.Admit(now);
    EXPECT_NE(pass, Pass::kRefused);
    return guard.End(pass, status, deadline, now);
  }
  std::string End(const Status& status) { return End(status, ++now); }

  TimeNs now = 100;
  TierGuard guard{kBreaker, NamedStore(/*is_server=*/false)};
  TierGuard server{kBreaker, NamedStore(/*is_server=*/true)};
};

TEST_F(GuardTest, ThreeLateCallsInARowPauseItAndAreSaidOnce) {
  EXPECT_EQ(End(kLate), "");
  EXPECT_EQ(End(kLate), "");
  EXPECT_FALSE(guard.is_paused(now));
  EXPECT_EQ(End(kLate), "the named tier is left alone for a while: not in time");
  EXPECT_TRUE(guard.is_paused(now));
  EXPECT_EQ(guard.pauses(), 1);
  EXPECT_EQ(guard.Admit(now), Pass::kRefused);
  EXPECT_THAT(guard.Refusal().message(), HasSubstr("the named tier"));
  now += 10;
  EXPECT_EQ(End(kLate), "") << "the probe was late too: nothing new";
  now += 20;
  EXPECT_EQ(End(OkStatus()), "the named tier answers again");
  EXPECT_EQ(guard.pauses(), 1);
  EXPECT_FALSE(guard.is_paused(now));
}

TEST_F(GuardTest, ReadsOfOneLoadRunOutTogetherAndAreOneFailure) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(End(kLate, 500), "") << i;
  EXPECT_EQ(End(kLate, 600), "");
  EXPECT_NE(End(kLate, 700), "");
}

TEST_F(GuardTest, CallsWithoutADeadlineAreAFailureEach) {
  EXPECT_EQ(End(kLate, kNever), "");
  EXPECT_EQ(End(kLate, kNever), "");
  EXPECT_NE(End(kLate, kNever), "");
}

TEST_F(GuardTest, AnyAnswerInTimeEndsTheRowAndCancelledCallsSayNothing) {
  for (const StatusCode code : {StatusCode::kNotFound, StatusCode::kDataLoss, StatusCode::kResourceExhausted,
                                StatusCode::kUnavailable, StatusCode::kPermissionDenied}) {
    End(kLate);
    End(kLate);
    EXPECT_EQ(End(Status(code, "an answer")), "");
  }
  End(kLate);
  End(kLate);
  EXPECT_EQ(End(Status(StatusCode::kCancelled, "dropped")), "");
  EXPECT_NE(End(kLate), "");
  EXPECT_EQ(guard.End(Pass::kRefused, Unavailable("was queued"), 1, now), "") << "no answer of the tier's";
  EXPECT_TRUE(guard.is_paused(now));
}

TEST_F(GuardTest, ErrorsOfAServerAreFailures) {
  for (const StatusCode code : {StatusCode::kUnavailable, StatusCode::kPermissionDenied}) {
    TierGuard one{kBreaker, NamedStore(/*is_server=*/true)};
    for (int i = 0; i < 3; ++i) (void)one.End(one.Admit(now), Status(code, "no"), kNever, now);
    EXPECT_TRUE(one.is_paused(now)) << StatusCodeName(code);
  }
  for (const StatusCode code : {StatusCode::kNotFound, StatusCode::kDataLoss, StatusCode::kResourceExhausted}) {
    for (int i = 0; i < 3; ++i) (void)server.End(server.Admit(now), Status(code, "no"), kNever, now);
    EXPECT_FALSE(server.is_paused(now)) << StatusCodeName(code);
  }
}

}  // namespace
}  // namespace invar::cache
