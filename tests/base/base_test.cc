// The small things everything stands on: statuses, checks, ids, clocks, digests.
#include <gtest/gtest.h>

#include <sstream>
#include <unordered_set>

#include "base/check.h"
#include "base/clock.h"
#include "base/fingerprint.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/noise.h"
#include "base/status.h"

namespace invar {
namespace {

TEST(Status, CarriesCodeMessageAndField) {
  const Status status = InvalidArgument("wanted 1, found 2", "sampling.top_k");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "sampling.top_k");
  EXPECT_NE(status.ToString().find("INVALID_ARGUMENT"), std::string::npos);
  EXPECT_NE(status.ToString().find("wanted 1, found 2"), std::string::npos);
  EXPECT_TRUE(OkStatus().ok());
}

TEST(Status, EveryCodeHasItsCanonicalName) {
  EXPECT_EQ(StatusCodeName(StatusCode::kOk), "OK");
  EXPECT_EQ(StatusCodeName(StatusCode::kDeadlineExceeded), "DEADLINE_EXCEEDED");
  EXPECT_EQ(StatusCodeName(StatusCode::kUnauthenticated), "UNAUTHENTICATED");
}

TEST(StatusOr, HoldsAValueOrAReason) {
  const StatusOr<std::string> value = std::string("x");
  EXPECT_EQ(*value, "x");
  const StatusOr<std::string> failed = NotFound("no such file");
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kNotFound);
}

TEST(StatusOrDeathTest, ReadingAMissingValueStopsWithTheReason) {
  const StatusOr<int> failed = NotFound("no such file");
  EXPECT_DEATH(static_cast<void>(failed.value()), "no such file");
}

TEST(CheckDeathTest, StopsWithPlaceSentenceAndValues) {
  const int pages = 3;
  EXPECT_DEATH(Check(pages == 4, "a sequence has four pages", pages), "base_test.cc.*a sequence has four pages.*3");
  Check(pages == 3, "nothing happens where it holds");
}

TEST(Ids, CompareHashAndPrint) {
  const std::unordered_set<TokenId> ids = {TokenId(1), TokenId(2), TokenId(1)};
  EXPECT_EQ(ids.size(), 2U);
  EXPECT_LT(TokenId(1), TokenId(2));
  EXPECT_EQ(Position(3) + 2, Position(5));
  EXPECT_EQ(Position(5) - Position(3), 2);
  std::ostringstream out;
  out << TokenId(7);
  EXPECT_EQ(out.str(), "7");
}

TEST(Status, CarriesAReasonBesideTheCode) {
  EXPECT_EQ(InvalidArgument("too long").reason(), "");
  const Status status = InvalidArgument("too long", "text").WithReason("PROMPT_TOO_LONG");
  EXPECT_EQ(status.reason(), "PROMPT_TOO_LONG");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "text");
}

TEST(SimulatedClock, MovesOnlyWhenTold) {
  SimulatedClock clock;
  EXPECT_EQ(clock.Now(), 0);
  clock.Advance(5);
  EXPECT_EQ(clock.Now(), 5);
}

TEST(RealClock, NeverGoesBack) {
  const RealClock clock;
  const TimeNs before = clock.Now();
  EXPECT_GE(clock.Now(), before);
}

TEST(Fingerprint, IsSha256) {
  EXPECT_EQ(ToHex(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Fingerprint, FramesKeepPartsApart) {
  FingerprintBuilder a;
  FingerprintBuilder b;
  EXPECT_NE(a.AddFramed("ab").AddFramed("c").Finish(), b.AddFramed("a").AddFramed("bc").Finish());
}

TEST(Fingerprint, ComparesDigests) {
  EXPECT_TRUE(EqualConstantTime(Sha256("a"), Sha256("a")));
  EXPECT_FALSE(EqualConstantTime(Sha256("a"), Sha256("b")));
}

std::string Logged(const LogFormat format, const std::string& message, const LogFields& fields) {
  testing::internal::CaptureStderr();
  ConfigureLogs(format, "info");
  LogWithFields(*Logger("base_test"), spdlog::level::info, message, fields);
  Logger("base_test")->info("plain");
  return testing::internal::GetCapturedStderr();
}

TEST(Log, PutsFieldsBesideAnEscapedMessageAndOnlyOnTheirLine) {
  LogFields fields;
  fields.Add("name", "a \"b\"\n").Add("count", int64_t{-7}).Add("seconds", 0.25).Add("nothing", 1.0 / 0.0);
  const std::string json = Logged(LogFormat::kJson, "say \"x\"", fields);
  EXPECT_NE(json.find(R"("msg":"say \"x\"","name":"a \"b\"\u000a","count":-7,"seconds":0.250000,"nothing":null})"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("msg":"plain"})"), std::string::npos) << json;
  const std::string text = Logged(LogFormat::kText, "done", fields);
  EXPECT_NE(text.find(R"(done name="a \"b\"\u000a" count=-7 seconds=0.250000 nothing=null)"), std::string::npos)
      << text;
}

TEST(Log, ChangesItsLevel) {
  testing::internal::CaptureStderr();
  ConfigureLogs(LogFormat::kText, "error");
  Logger("base_test")->info("first");
  SetLogLevel("info");
  Logger("base_test")->info("second");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("first"), std::string::npos);
  EXPECT_NE(text.find("second"), std::string::npos);
}

// First vector of the Random123 distribution's known answers: counter and key zero.
TEST(Noise, IsPhilox) {
  const PhiloxWords words = Philox4x32({0, 0, 0, 0}, {0, 0});
  EXPECT_EQ(words, (PhiloxWords{0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U}));
}

}  // namespace
}  // namespace invar
