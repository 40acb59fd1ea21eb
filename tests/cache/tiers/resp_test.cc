// The remote store against a real server: tampered entries, other instances, and every way a server can fail.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "base/circuit_breaker.h"
#include "base/log.h"
#include "base/split_mix64.h"
#include "cache/tiers/stores.h"
#include "cache/tiers/threaded_tier.h"
#include "tests/cache/tiers/redis_server.h"
#include "tests/cache/tiers/tier_kinds.h"
#include "tests/e2e/certificates.h"

namespace invar::cache {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr TimeNs kMs = 1'000'000;
constexpr ThreadedTierOptions kOneThread{.threads = 1,
                                         .breaker = {.failures_max = 3, .pause_min = 20 * kMs, .pause_max = 100 * kMs}};

// For tests that start their own server.
class OwnServerPlace final : public TierPlace {
 public:
  OwnServerPlace() { Logger("cache")->set_level(spdlog::level::off); }
  std::unique_ptr<Tier> Open(int64_t) override { return nullptr; }
  std::unique_ptr<Tier> Open(const RemoteOptions& options) {
    StatusOr<std::unique_ptr<TierStore>> store = MakeRespStore(options, clock_);
    Check(store.ok(), "the store is made", store.status().message());
    return MakeThreadedTier(*std::move(store), clock_, kOneThread);
  }
  TimeNs Now() const override { return clock_.Now(); }

 private:
  RealClock clock_;
};

RemoteOptions OptionsFor(const std::string& address) {
  return {.address = address, .secret = std::string(32, 's'), .store_id = "model aaaa numerics 1"};
}

class RespTest : public testing::Test, public TierPlace {
 protected:
  // Warnings about what is broken on purpose.
  RespTest() { Logger("cache")->set_level(spdlog::level::off); }

  std::unique_ptr<Tier> Open(int64_t) override { return Open(OptionsFor(server.address())); }
  std::unique_ptr<Tier> Open(const RemoteOptions& options) {
    StatusOr<std::unique_ptr<TierStore>> store = MakeRespStore(options, clock);
    Check(store.ok(), "the store is made", store.status().message());
    return MakeThreadedTier(*std::move(store), clock, kOneThread);
  }
  TimeNs Now() const override { return clock.Now(); }
  Status GetWithin(Tier& tier, const uint64_t seed, const int64_t bytes, const TimeNs time) {
    std::vector<std::byte> filled(static_cast<size_t>(bytes));
    Awaited<StatusOr<std::string>> get;
    const Status accepted = tier.Get(MadeKey(seed), {{filled}, nullptr}, clock.Now() + time, get.Done());
    return accepted.ok() ? get.Wait(*this, tier).status() : accepted;
  }
  // Until the breaker lets calls through again.
  Status EventuallyPut(Tier& tier, const uint64_t seed, const int64_t bytes) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (;;) {
      Status status = PutMade(*this, tier, seed, bytes);
      if (status.ok() || std::chrono::steady_clock::now() > give_up) return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  int64_t GetMisses(const Tier& tier, const TierMiss miss) const {
    return tier.Stats().get_misses[static_cast<size_t>(miss)];
  }

  RealClock clock;
  RedisServer server;
};

constexpr int64_t kMiB = int64_t{1} << 20;

TEST_F(RespTest, KeepsALargeRecordInChunksThatExpire) {
  const auto tier = Open(0);
  ASSERT_EQ(PutMade(*this, *tier, 1, 19 * kMiB + 7).ToString(), "OK");
  EXPECT_EQ(GetMade(*this, *tier, 1, 19 * kMiB + 7).ToString(), "OK");
  EXPECT_EQ(server.Names("invar:r:*").size(), 1u);
  EXPECT_EQ(server.Names("invar:c:*").size(), 20u);
  for (const std::string& name : server.Names("*")) {
    const int64_t left_ms = std::stoll(server.Command({"PTTL", name}));
    const int64_t days = name.starts_with("invar:e:") ? 2 : 1;  // Eras outlive what was put in them.
    EXPECT_GT(left_ms, days * 23 * 3600 * 1000) << name;
    EXPECT_LE(left_ms, days * 24 * 3600 * 1000) << name;
  }
}

TEST_F(RespTest, InstancesOfOneDeploymentShareAndOthersNeverMeet) {
  const auto tier = Open(0);
  ASSERT_TRUE(PutMade(*this, *tier, 1, 5000).ok());
  EXPECT_EQ(GetMade(*this, *Open(0), 1, 5000).ToString(), "OK");
  RemoteOptions other_secret = OptionsFor(server.address());
  other_secret.secret = std::string(32, 't');
  RemoteOptions other_model = OptionsFor(server.address());
  other_model.store_id = "model bbbb numerics 1";
  RemoteOptions other_prefix = OptionsFor(server.address());
  other_prefix.key_prefix = "elsewhere";
  for (const RemoteOptions& options : {other_secret, other_model, other_prefix}) {
    const auto other = Open(options);
    EXPECT_EQ(GetMade(*this, *other, 1, 5000).code(), StatusCode::kNotFound);
    EXPECT_EQ(FindNow(*this, *other, {MadeKey(1)})->size(), 0u);
    ASSERT_TRUE(PutMade(*this, *other, 1, 5000).ok());
    ASSERT_TRUE(DropNow(*this, *other, OnlyOf(1)).ok());
  }
  EXPECT_EQ(GetMade(*this, *tier, 1, 5000).ToString(), "OK");
}

TEST_F(RespTest, TwoInstancesThatWriteTheSameRecordWriteTheSameEntries) {
  ASSERT_TRUE(PutMade(*this, *Open(0), 1, 3 * kMiB).ok());
  const auto names = server.Names("*");
  ASSERT_TRUE(PutMade(*this, *Open(0), 1, 3 * kMiB).ok());
  EXPECT_EQ(server.Names("*"), names);
}

TEST_F(RespTest, WhatOthersChangedIsRefusedCountedAndDeleted) {
  constexpr int64_t kBytes = 2 * kMiB + 100;
  const auto tier = Open(0);
  SplitMix64 random(5);
  int64_t damaged = 0;
  const auto expect_refused = [&](const std::string& how) {
    EXPECT_EQ(GetMade(*this, *tier, 1, kBytes).code(), StatusCode::kDataLoss) << how;
    EXPECT_EQ(tier->Stats().damaged, ++damaged) << how;
    EXPECT_EQ(GetMade(*this, *tier, 1, kBytes).code(), StatusCode::kNotFound) << how << ": it is deleted";
    ASSERT_TRUE(PutMade(*this, *tier, 1, kBytes).ok()) << how;
    ASSERT_EQ(GetMade(*this, *tier, 1, kBytes).ToString(), "OK") << how;
  };
  ASSERT_TRUE(PutMade(*this, *tier, 1, kBytes).ok());
  const std::string head = server.Names("invar:r:*").at(0);
  const auto chunks = server.Names("invar:c:*");
  ASSERT_EQ(chunks.size(), 3u);
  for (int round = 0; round < 60; ++round) {
    const std::string& name = round % 2 == 0 ? head : chunks[random.Next() % chunks.size()];
    std::string value = server.Command({"GET", name});
    const size_t at = random.Next() % value.size();
    value[at] = static_cast<char>(value[at] ^ (1 << (random.Next() % 8)));
    server.Command({"SET", name, value});
    expect_refused("bit of byte " + std::to_string(at) + " of " + name);
  }
  for (const std::string& name : {head, chunks[0], chunks[2]}) {
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{50}, size_t{99}}) {
      server.Command({"SET", name, server.Command({"GET", name}).substr(0, bytes)});
      expect_refused("cut to " + std::to_string(bytes) + ": " + name);
    }
    server.Command({"APPEND", name, "x"});
    expect_refused("longer: " + name);
    server.Command({"DEL", name});
    server.Command({"RPUSH", name, "x"});
    if (name == head) {
      expect_refused("a list: " + name);
    } else {
      EXPECT_EQ(GetMade(*this, *tier, 1, kBytes).code(), StatusCode::kDataLoss);
      ++damaged;
      ASSERT_TRUE(PutMade(*this, *tier, 1, kBytes).ok());
    }
  }
  // Two sound chunks in each other's place.
  const std::string first = server.Command({"GET", chunks[0]});
  server.Command({"SET", chunks[0], server.Command({"GET", chunks[1]})});
  server.Command({"SET", chunks[1], first});
  expect_refused("chunks swapped");
  // A sound record of this deployment under another's name.
  ASSERT_TRUE(PutMade(*this, *tier, 2, kBytes).ok());
  for (const std::string& name : server.Names("invar:r:*")) {
    if (name != head) server.Command({"COPY", name, head, "REPLACE"});
  }
  expect_refused("another record's head");
  EXPECT_EQ(GetMisses(*tier, TierMiss::kCorrupt), damaged);
}

TEST_F(RespTest, FindCountsAndDeletesWhatOthersChanged) {
  const auto tier = Open(0);
  for (uint64_t seed = 0; seed < 9; ++seed) ASSERT_TRUE(PutMade(*this, *tier, seed, 100).ok());
  const std::string name = server.Names("invar:r:*").at(4);
  server.Command({"APPEND", name, "x"});
  std::vector<TierKey> keys;
  for (uint64_t seed = 0; seed < 12; ++seed) keys.push_back(MadeKey(seed));
  const auto found = FindNow(*this, *tier, keys);
  ASSERT_EQ(found.status().ToString(), "OK");
  EXPECT_EQ(found->size(), 8u);
  EXPECT_EQ(tier->Stats().damaged, 1);
  EXPECT_EQ(server.Names("invar:r:*").size(), 8u);
}

TEST_F(RespTest, ARecordThatLostAChunkIsAbsentAsAWhole) {
  const auto tier = Open(0);
  ASSERT_TRUE(PutMade(*this, *tier, 1, 6 * kMiB).ok());
  server.Command({"DEL", server.Names("invar:c:*").at(2)});
  EXPECT_EQ(GetMade(*this, *tier, 1, 6 * kMiB).code(), StatusCode::kNotFound);
  EXPECT_EQ(server.Names("invar:r:*").size(), 0u);
  EXPECT_EQ(tier->Stats().damaged, 0);
}

TEST_F(RespTest, EntriesExpire) {
  RemoteOptions options = OptionsFor(server.address());
  options.ttl_ms = 30;
  const auto tier = Open(options);
  ASSERT_TRUE(PutMade(*this, *tier, 1, 100).ok());
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  Status status;
  do {
    status = GetMade(*this, *tier, 1, 100);
  } while (status.ok() && std::chrono::steady_clock::now() < give_up);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
}

TEST_F(RespTest, AKilledServerCostsMissesAndComesBack) {
  const auto tier = Open(0);
  SplitMix64 random(9);
  for (int round = 0; round < 10; ++round) {
    std::vector<Awaited<Status>> puts(30);
    std::vector<std::vector<std::byte>> payloads;
    payloads.reserve(puts.size());
    for (size_t i = 0; i < puts.size(); ++i) {
      payloads.push_back(MadeBytes(i, kMiB));
      ASSERT_TRUE(tier->Put({.key = MadeKey(i), .header = "", .payload_bytes = kMiB}, {{payloads[i]}, nullptr}, kNever,
                            puts[i].Done())
                      .ok());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.Next() % 30'000));
    server.Kill();
    for (Awaited<Status>& put : puts) {
      const Status status = put.Wait(*this, *tier);
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnavailable) << status.ToString();
    }
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(GetMade(*this, *tier, 1, kMiB).code(), StatusCode::kUnavailable);
    }
    server.Start();
    ASSERT_EQ(EventuallyPut(*tier, 1000, 5000).ToString(), "OK");
    EXPECT_EQ(GetMade(*this, *tier, 1000, 5000).ToString(), "OK");
  }
}

TEST_F(RespTest, AFrozenServerIsALateMissThenLeftAloneThenProbed) {
  const auto tier = Open(0);
  ASSERT_TRUE(PutMade(*this, *tier, 1, 5000).ok());
  server.Freeze();
  for (int i = 0; i < 3; ++i) {
    const TimeNs begin = clock.Now();
    EXPECT_EQ(GetWithin(*tier, 1, 5000, 50 * kMs).code(), StatusCode::kDeadlineExceeded);
    EXPECT_LT(clock.Now() - begin, 5'000 * kMs) << "by the deadline, not by the patience of the system";
  }
  EXPECT_EQ(GetMisses(*tier, TierMiss::kLate), 3);
  // The last of the three may still be closing its connection; then calls are refused without asking the server.
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  StatusCode code = StatusCode::kOk;
  while (code != StatusCode::kUnavailable && std::chrono::steady_clock::now() < give_up) {
    code = GetWithin(*tier, 1, 5000, 20 * kMs).code();
  }
  EXPECT_EQ(code, StatusCode::kUnavailable);
  server.Thaw();
  ASSERT_EQ(EventuallyPut(*tier, 2, 100).ToString(), "OK");
  EXPECT_EQ(GetMade(*this, *tier, 1, 5000).ToString(), "OK") << "what it held is still good";
}

TEST_F(RespTest, AServerThatIsDownAtStartCostsMissesOnly) {
  const auto tier = Open(OptionsFor("unix:/nonexistent/socket"));
  EXPECT_EQ(GetMade(*this, *tier, 1, 10).code(), StatusCode::kUnavailable);
  const auto nobody = Open(OptionsFor("127.0.0.1:" + std::to_string(FreePort())));
  EXPECT_EQ(PutMade(*this, *nobody, 1, 10).code(), StatusCode::kUnavailable);
  EXPECT_EQ(nobody->Stats().put_misses[static_cast<size_t>(TierMiss::kUnavailable)], 1);
}

TEST(RespFullServer, RefusesWithAReasonAndKeepsServing) {
  OwnServerPlace place;
  {
    const RedisServer server({"--maxmemory", "8mb", "--maxmemory-policy", "noeviction"});
    const auto tier = place.Open(OptionsFor(server.address()));
    ASSERT_EQ(PutMade(place, *tier, 1, kMiB).ToString(), "OK");
    Status status;
    for (uint64_t seed = 2; seed < 20 && status.ok(); ++seed) status = PutMade(place, *tier, seed, kMiB);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    for (int i = 0; i < 5; ++i) {  // No reason to leave the server alone.
      EXPECT_EQ(PutMade(place, *tier, 50, 3 * kMiB).code(), StatusCode::kResourceExhausted);
    }
    EXPECT_EQ(tier->Stats().put_misses[static_cast<size_t>(TierMiss::kFull)], 6);
    EXPECT_EQ(GetMade(place, *tier, 1, kMiB).ToString(), "OK");
  }
  {
    const RedisServer server({"--maxmemory", "8mb", "--maxmemory-policy", "allkeys-random"});
    const auto tier = place.Open(OptionsFor(server.address()));
    int hits = 0;
    int misses = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      ASSERT_EQ(PutMade(place, *tier, seed, 3 * kMiB / 2).ToString(), "OK");
      for (uint64_t earlier = seed > 5 ? seed - 5 : 0; earlier <= seed; ++earlier) {
        const Status status = GetMade(place, *tier, earlier, 3 * kMiB / 2);
        ASSERT_TRUE(status.ok() || status.code() == StatusCode::kNotFound) << status.ToString();
        ++(status.ok() ? hits : misses);
      }
    }
    EXPECT_GT(hits, 10);
    EXPECT_GT(misses, 10);
  }
}

TEST(RespAccess, WrongCredentialsAreDeniedAndNeverShown) {
  OwnServerPlace place;
  const RedisServer server({"--requirepass", "sesame", "--user", "cache", "on", ">opensesame", "~invar:*", "+@all"});
  const auto attempt = [&](const std::string& username, const std::string& password) {
    RemoteOptions options = OptionsFor(server.address());
    options.username = username;
    options.password = password;
    const auto tier = place.Open(options);
    Status status = PutMade(place, *tier, 1, 10);
    if (status.code() == StatusCode::kPermissionDenied) {
      EXPECT_EQ(tier->Stats().put_misses[static_cast<size_t>(TierMiss::kDenied)], 1);
    }
    return status;
  };
  EXPECT_EQ(attempt("", "sesame").ToString(), "OK");
  EXPECT_EQ(attempt("cache", "opensesame").ToString(), "OK");
  for (const auto& [username, password] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {"", "wr0ng-pass"}, {"cache", "wr0ng-pass"}, {"nobody", "wr0ng-pass"}, {"cache", "sesame"}}) {
    const Status status = attempt(username, password);
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << username << "/" << password << ": " << status.ToString();
    EXPECT_THAT(status.message(), Not(HasSubstr("wr0ng-pass")));
  }
}

TEST(RespTls, ServesOnlyWhoseCertificateIsKnown) {
  OwnServerPlace place;
  const TempFolder folder;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path() + "/" + name) << text;
    return folder.path() + "/" + name;
  };
  const e2e::CertificateSet set = e2e::MakeCertificates();
  const std::string ca = write("ca.pem", set.ca.certificate);
  const std::string stranger = write("stranger.pem", e2e::MakeCertificates().ca.certificate);
  const std::string client_certificate = write("client.pem", set.client.certificate);
  const std::string client_key = write("client.key", set.client.key);
  const std::string port = std::to_string(FreePort());
  const RedisServer server({"--tls-port", port, "--tls-cert-file", write("server.pem", set.server.certificate),
                            "--tls-key-file", write("server.key", set.server.key), "--tls-ca-cert-file", ca,
                            "--tls-auth-clients", "yes"});
  const auto put = [&](const std::optional<TlsOptions>& tls) {
    RemoteOptions options = OptionsFor("localhost:" + port);
    options.tls = tls;
    const auto tier = place.Open(options);
    Status status = PutMade(place, *tier, 1, 5 * kMiB);
    if (status.ok()) status = GetMade(place, *tier, 1, 5 * kMiB);
    return status;
  };
  EXPECT_EQ(put(TlsOptions{ca, client_certificate, client_key}).ToString(), "OK");
  const Status unknown = put(TlsOptions{stranger, client_certificate, client_key});
  EXPECT_EQ(unknown.code(), StatusCode::kUnavailable);
  EXPECT_THAT(unknown.message(), HasSubstr("certificate"));
  EXPECT_EQ(put(TlsOptions{ca, "", ""}).code(), StatusCode::kUnavailable) << "the server wants a certificate";
  EXPECT_EQ(put(std::nullopt).code(), StatusCode::kUnavailable) << "plain text to a TLS port";
  const auto bad_file = TlsContext::Make({.ca = folder.path() + "/none.pem", .certificate = "", .key = ""});
  EXPECT_EQ(bad_file.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(bad_file.status().message(), HasSubstr("none.pem"));
}

TEST(RespHostileServer, AnswersThatAreNoneEndTheConnectionAndNothingElse) {
  OwnServerPlace place;
  const std::string answers[] = {"HTTP/1.0 200 OK\r\n\r\n", "*3\r\n", "*2147483647\r\n", "*1\r\n*1\r\n*1\r\n",
                                 "$-2\r\n", "$abc\r\n", ":\r\n",
                                 // The whole of a bulk that never ends.
                                 "$999999999999\r\n" + std::string(size_t{6} << 20, 'x'), "$5\r\nhelloXX",
                                 std::string("\0\0\0\0", 4), "$10\r\nshort", "-\r\n", "+OK\r\n", ":5\r\n"};
  for (const std::string& answer : answers) {
    SCOPED_TRACE(answer.substr(0, 20));
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    ASSERT_EQ(listen(listener, 4), 0);
    ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    std::thread server([&] {
      const int fd = accept(listener, nullptr, nullptr);
      char question[4096];
      (void)!recv(fd, question, sizeof(question), 0);
      (void)!send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
      shutdown(fd, SHUT_WR);
      while (recv(fd, question, sizeof(question), 0) > 0) {
      }
      close(fd);
    });
    auto tier = place.Open(OptionsFor("127.0.0.1:" + std::to_string(ntohs(address.sin_port))));
    const Status status = GetMade(place, *tier, 1, 10);
    EXPECT_TRUE(status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kDataLoss)
        << status.ToString();
    tier.reset();  // An answer that is one, if not to the question, leaves the connection open.
    server.join();
    close(listener);
  }
}

TEST(RespOptions, ASecretMustBeLong) {
  const RealClock clock;
  RemoteOptions options = OptionsFor("unix:/nonexistent");
  options.secret = "short";
  const auto store = MakeRespStore(options, clock);
  EXPECT_EQ(store.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(store.status().message(), Not(HasSubstr("short")));
}

// Four instances add to one record at once: nobody overwrites another.
TEST(RespShared, WhatManyAddToOneRecordAllCounts) {
  const RedisServer server;
  OwnServerPlace place;
  constexpr int kInstances = 4;
  constexpr int kItems = 20;
  std::vector<std::unique_ptr<Tier>> tiers;
  for (int i = 0; i < kInstances; ++i) tiers.push_back(place.Open(OptionsFor(server.address())));
  const TierMerge add = [](const std::string_view there, const std::string_view ours) {
    return std::string(there) + std::string(ours);
  };
  std::vector<Awaited<Status>> puts(kInstances * kItems);
  for (int item = 0; item < kItems; ++item) {
    for (int i = 0; i < kInstances; ++i) {
      const int at = i * kItems + item;
      const TierRecord record{.key = MadeKey(1),
                              .space = MadeSpace(1),
                              .header = fmt::format("<{}>", at),
                              .payload_bytes = 0,
                              .merge = add};
      ASSERT_TRUE(tiers[static_cast<size_t>(i)]->Put(record, {}, kNever, puts[static_cast<size_t>(at)].Done()).ok());
    }
  }
  for (size_t at = 0; at < puts.size(); ++at) {
    EXPECT_EQ(puts[at].Wait(place, *tiers[0]).ToString(), "OK") << at;
  }
  const auto found = FindNow(place, *tiers[0], {MadeKey(1)});
  ASSERT_EQ(found.status().ToString(), "OK");
  ASSERT_EQ(found->size(), 1u);
  for (size_t at = 0; at < puts.size(); ++at) {
    EXPECT_THAT(found->front().header, HasSubstr(fmt::format("<{}>", at)));
  }
}

// Eras that the server has evicted void what they were of: it may have been dropped.
TEST(RespShared, WithoutItsErasARecordIsNotThere) {
  const RedisServer server;
  OwnServerPlace place;
  const auto tier = place.Open(OptionsFor(server.address()));
  ASSERT_TRUE(PutMade(place, *tier, 1, 1000).ok());
  const std::vector<std::string> eras = server.Names("invar:e:*");
  ASSERT_EQ(eras.size(), 3u);
  server.Command({"DEL", eras[1]});
  EXPECT_EQ(GetMade(place, *tier, 1, 1000).code(), StatusCode::kNotFound);
  ASSERT_TRUE(PutMade(place, *tier, 1, 1000).ok());
  EXPECT_EQ(GetMade(place, *tier, 1, 1000).ToString(), "OK");
}

}  // namespace
}  // namespace invar::cache
