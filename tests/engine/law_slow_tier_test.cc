// The law where full KV lies in the slow tier: a sequence that drafts on compressed KV and is verified on layers that
// stream from a file gives the tokens, the raw bits of logits, the states and the KV of plain decoding: whichever
// compressor drafts, in place in the page cache, copied out of it (where faults are planted) and around it, with
// cancellations, preemptions and a store that fails in every way, its bytes damaged included. The suite takes a sample;
// all of it: tests/soak/slow_tier.sh.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "engine/slow/slow_tier.h"
#include "tests/engine/speculation_rig.h"

namespace invar::engine {
namespace {

constexpr int32_t kOutputTokens = 90;
constexpr int32_t kDrafts[] = {1, 4, 16, 64};
constexpr int32_t kCompany[] = {1, 3, 17};

struct Compression {
  const char* compressor;
  std::optional<float> kv_budget;
};
constexpr Compression kCompressions[] = {{"noop", {}},           {"random_drop:recent=8", 0.3F},
                                         {"int8:recent=8", {}},  {"k8v4:recent=8", {}},
                                         {"kivi2:recent=8", {}}, {"centroid:recent=8", 0.5F}};

// The system's files, but for what a test lets fail: every so many reads or writes of the store.
class FaultyFiles final : public cache::FileLayer {
 public:
  enum class Fault { kNone, kReadFails, kReadIsShort, kReadIsDamaged, kWriteFails, kDiskIsFull };

  void Plant(const Fault fault, const int64_t every) {
    fault_ = fault;
    every_ = every;
  }
  int64_t planted() const { return planted_; }

  int Open(const std::string& path, const int flags) override { return system_->Open(path, flags); }
  int Close(const int fd) override { return system_->Close(fd); }
  int64_t ReadAt(const int fd, const std::span<std::byte> to, const int64_t offset) override {
    const bool due =
        (fault_ == Fault::kReadFails || fault_ == Fault::kReadIsShort || fault_ == Fault::kReadIsDamaged) &&
        ++calls_ % every_ == 0;
    if (!due) return system_->ReadAt(fd, to, offset);
    ++planted_;
    if (fault_ == Fault::kReadFails) return -EIO;
    if (fault_ == Fault::kReadIsShort) return system_->ReadAt(fd, to.first(std::min<size_t>(to.size(), 100)), offset);
    const int64_t read = system_->ReadAt(fd, to, offset);
    to[77] ^= std::byte{1};
    return read;
  }
  int64_t WriteAt(const int fd, const std::span<const std::byte> from, const int64_t offset) override {
    const bool due = (fault_ == Fault::kWriteFails || fault_ == Fault::kDiskIsFull) && ++calls_ % every_ == 0;
    if (!due) return system_->WriteAt(fd, from, offset);
    ++planted_;
    return fault_ == Fault::kWriteFails ? -EIO : -ENOSPC;
  }
  int Sync(const int fd) override { return system_->Sync(fd); }
  int64_t BytesOf(const int fd) override { return system_->BytesOf(fd); }
  int LockExclusive(const int fd) override { return system_->LockExclusive(fd); }
  int Rename(const std::string& from, const std::string& to) override { return system_->Rename(from, to); }
  int Remove(const std::string& path) override { return system_->Remove(path); }
  int64_t NowNs() override { return system_->NowNs(); }
  int SetModified(const std::string& path, const int64_t at_ns) override { return system_->SetModified(path, at_ns); }
  int MakeFolder(const std::string& path) override { return system_->MakeFolder(path); }
  int List(const std::string& path, std::vector<FolderEntry>& entries) override { return system_->List(path, entries); }

 private:
  const std::unique_ptr<cache::FileLayer> system_ = cache::MakeSystemFiles();
  std::atomic<Fault> fault_ = Fault::kNone;  // The reader's thread and the engine's count together.
  std::atomic<int64_t> every_ = 1;
  std::atomic<int64_t> calls_ = 0;
  std::atomic<int64_t> planted_ = 0;
};
using Fault = FaultyFiles::Fault;

// Prompts of up to five pages, and of up to fourteen.
constexpr std::array<size_t, 6> kShort = {130, 200, 64, 270, 192, 20};
constexpr std::array<size_t, 6> kLong = {700, 410, 900, 512, 640, 130};

std::vector<Request> MakeRequests(const int32_t first, const int32_t count, const Sampling& sampling,
                                  const int32_t vocabulary, const std::array<size_t, 6>& lengths = kShort) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(first + i);
    requests.push_back(
        RepetitiveRequest(index, lengths[index % lengths.size()], kOutputTokens, 60, sampling, vocabulary));
  }
  return requests;
}

// Counts spans of prompts that read what is away.
class PromptsNotingModel final : public NotingModel {
 public:
  using NotingModel::NotingModel;
  kernels::ConstF32View Forward(const models::SequenceMemory& memory,
                                const std::span<const models::ForwardSpan> spans) override {
    for (const models::ForwardSpan& span : spans) {
      if (span.away != nullptr && span.logits_rows < static_cast<int32_t>(span.tokens.size())) ++streamed_;
    }
    return NotingModel::Forward(memory, spans);
  }
  static int64_t TakeStreamed() { return std::exchange(streamed_, 0); }

 private:
  static inline int64_t streamed_ = 0;
};

struct Setting {
  int32_t draft = 16;
  int32_t count = 3;
  bool long_prompts = false;  // Longer than what is free of the fast tier, run in spans of a page.
  bool eager = false;         // Else only for want of pages.
  bool direct = false;
  bool synchronous = false;
  int64_t staging_bytes = int64_t{64} << 20;
  const Compression* compression = nullptr;  // Null: another one each.
  Fault fault = Fault::kNone;
  int64_t fault_every = 5;
  TimeNs tick_ns = 0;  // Time passes: the engine learns what rounds take, and whether they pay.

  std::string Text() const {
    return "drafts of " + std::to_string(draft) + ", " + std::to_string(count) + " together" +
           (long_prompts ? ", long" : "") + (eager ? ", all out" : ", for want of pages") + (direct ? ", direct" : "") +
           (synchronous ? ", synchronous" : "") + ", staging " + std::to_string(staging_bytes) + ", on " +
           (compression == nullptr ? "one each" : compression->compressor) + ", fault " +
           std::to_string(static_cast<int>(fault));
  }
};

class SlowTierLaw : public ::testing::TestWithParam<Subject> {
 protected:
  // Requests first, first + 1, ... run together, with one that is cancelled and a neighbour that is EXACT.
  void Compare(const Plain& plain, const Sampling& sampling, const Setting& setting, const int32_t first) {
    SCOPED_TRACE(std::string(sampling.name) + ", " + setting.Text() + ", from request " + std::to_string(first));
    FaultyFiles files;
    EngineOptions options;
    options.max_running = setting.count + 2;
    options.max_pages = setting.count == 1 ? 16 : setting.count * 3;  // Up to six pages each at the end.
    if (setting.long_prompts) {
      options.max_pages = 16;
      options.prefill_chunk_tokens = kernels::kPageTokens;
    }
    options.slow_tier = {.path = ::testing::TempDir(),
                         .direct = setting.direct,
                         .staging_bytes = setting.staging_bytes,
                         .synchronous = setting.synchronous,
                         .eager = setting.eager,
                         .files = setting.fault == Fault::kNone ? nullptr : &files};
    // What views leave of their memory is full KV's.
    // Where prompts are to find no room as a whole, so little that it does not hold all of them without views either.
    const bool is_short = setting.long_prompts && !setting.eager;
    const int32_t draft_sequences = is_short ? setting.count - 2 : setting.count + 1;
    const auto rig = Rig::Make<PromptsNotingModel>(GetParam(), options, draft_sequences);
    files.Plant(setting.fault, setting.fault_every);
    rig->clock.SetTick(setting.tick_ns);
    const std::vector<Request> requests =
        MakeRequests(first, setting.count, sampling, rig->vocabulary(), setting.long_prompts ? kLong : kShort);
    std::vector<std::shared_ptr<Collector>> events;
    const auto submit = [&](Request request, const int32_t i, const bool exact = false) {
      const auto kind = static_cast<size_t>(first + i) % std::size(kCompressions);
      const Compression& compression = setting.compression == nullptr ? kCompressions[kind] : *setting.compression;
      if (!exact) {
        request.speculation = {.drafter = i % 3 == 1 ? "ngram+compressed_kv" : "compressed_kv",
                               .draft_tokens = setting.draft,
                               .compressor = compression.compressor,
                               .kv_budget = compression.kv_budget};
      }
      events.push_back(std::make_shared<Collector>());
      return rig->engine->Submit(request, events.back()).value();
    };
    for (int32_t i = 0; i < setting.count; ++i) submit(requests[static_cast<size_t>(i)], i, i == 2);
    const SequenceId gone = submit(requests[0], 1);
    for (int32_t step = 0; step < 12; ++step) Step(*rig);
    rig->engine->Cancel(gone);
    if (setting.long_prompts) {  // Takes what others hold, prompts on their way among them.
      Request urgent = requests[1];
      urgent.priority = 1;
      submit(urgent, 1, /*exact=*/true);
    }
    while (Step(*rig)) {
      const SlowTierStats now = rig->engine->Stats().slow_tier;
      if (now.away > 0) ++(now.staggered != 0 ? steps_with_rounds_ : steps_without_);
    }
    const EngineStats stats = rig->engine->Stats();
    EXPECT_EQ(stats.slow_tier.used_bytes, 0) << "whoever has ended gave everything back";
    EXPECT_EQ(stats.slow_tier.away, 0);
    for (int32_t i = 0; i < setting.count; ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_EQ(BitsOf(*events[at]), plain.bits[at]) << "request " << first + i;
      ++answers_;
      if (i % 4 != 0) continue;
      submit(NextTurn(requests[at], plain.tokens[at]), i);
      while (Step(*rig)) {
      }
      ASSERT_EQ(BitsOf(*events.back()), plain.next_bits[at]) << "next turn of request " << first + i;
      ++answers_;
    }
    for (const uint64_t hash : rig->seen) {
      ASSERT_TRUE(plain.seen.contains(hash)) << "a state or a page that plain decoding does not pass through";
    }
    if (setting.fault != Fault::kNone) {
      EXPECT_GT(files.planted(), 0);
      EXPECT_GT(rig->engine->Stats().slow_tier.failures, 0);
    }
    if (setting.synchronous) {
      EXPECT_EQ(stats.slow_tier.drafted_beside_streams, 0);
    }
    if (setting.long_prompts) {
      ASSERT_EQ(BitsOf(*events[static_cast<size_t>(setting.count) + 1]), plain.bits[1]) << "urgent";
    }
    notes_ += static_cast<int64_t>(rig->seen.size());
    streamed_prompts_ += PromptsNotingModel::TakeStreamed();
    Add(stats);
  }

  void Print() const {
    std::printf(
        "%s: %lld answers and %lld states equal; %lld moved out, %lld came back, %lld streams of %.1f MB, %lld of them "
        "into prompts, %lld failures, %lld preemptions\n",
        GetParam().name, static_cast<long long>(answers_), static_cast<long long>(notes_),
        static_cast<long long>(tier_.moved_out), static_cast<long long>(tier_.brought_back),
        static_cast<long long>(tier_.streams), static_cast<double>(tier_.streamed_bytes) * 1e-6,
        static_cast<long long>(streamed_prompts_), static_cast<long long>(tier_.failures),
        static_cast<long long>(preemptions_));
  }
  void ExpectMoves() const {
    EXPECT_GT(tier_.moved_out, 20);
    EXPECT_GT(tier_.brought_back, 5);
    EXPECT_GT(tier_.streams, 200);
    EXPECT_GT(tier_.drafted_beside_streams, 0) << "some draft while others' KV is on its way";
  }

  // Steps while somebody is away: rounds are taken to pay, or not any more.
  int64_t steps_with_rounds_ = 0;
  int64_t steps_without_ = 0;
  int64_t streamed_prompts_ = 0;  // Streams into spans of prompts.
  int64_t preemptions_ = 0;

 private:
  // Past the pauses after failures now and then.
  static bool Step(Rig& rig) {
    rig.clock.Advance(SlowTier::kPauseNs / 20);
    return rig.engine->RunOneStep();
  }
  void Add(const EngineStats& stats) {
    tier_.moved_out += stats.slow_tier.moved_out;
    tier_.brought_back += stats.slow_tier.brought_back;
    tier_.streams += stats.slow_tier.streams;
    tier_.streamed_bytes += stats.slow_tier.streamed_bytes;
    tier_.drafted_beside_streams += stats.slow_tier.drafted_beside_streams;
    tier_.failures += stats.slow_tier.failures;
    preemptions_ += stats.preemptions;
  }

  int64_t answers_ = 0;
  int64_t notes_ = 0;
  SlowTierStats tier_;
};

TEST_P(SlowTierLaw, BitsAreThoseOfPlainDecoding) {
  const int32_t vocabulary = Rig::Make(GetParam(), {})->vocabulary();
  int32_t first = 0;
  for (const Sampling& sampling : {kSamplings[0], kSamplings[2]}) {
    first += 100;
    const Plain plain = RunPlain(GetParam(), MakeRequests(first, 9, sampling, vocabulary));
    Compare(plain, sampling, {.draft = 16, .count = 9}, first);
    Compare(plain, sampling, {.draft = 4, .count = 9, .eager = true, .direct = true, .staging_bytes = 1}, first);
    Compare(plain, sampling, {.draft = 64, .count = 3, .eager = true, .direct = true, .synchronous = true}, first);
    Compare(plain, sampling, {.draft = 1, .count = 1, .eager = true}, first);
    // Drafts that are mostly wrong, and such that are right: rounds are given up while some are away, or go on.
    Compare(plain, sampling, {.draft = 4, .count = 9, .compression = &kCompressions[1], .tick_ns = 20'000}, first);
    Compare(plain, sampling, {.draft = 16, .count = 9, .compression = &kCompressions[3], .tick_ns = 20'000}, first);
    for (const Fault fault :
         {Fault::kReadFails, Fault::kReadIsShort, Fault::kReadIsDamaged, Fault::kWriteFails, Fault::kDiskIsFull}) {
      Compare(plain, sampling, {.count = 5, .eager = true, .fault = fault}, first);
    }
  }
  EXPECT_GT(steps_with_rounds_, 50);
  // Whether rounds are ever given up depends on what reads really take here, so it is told and not asked for.
  std::printf("%lld steps with rounds, %lld without while somebody is away\n",
              static_cast<long long>(steps_with_rounds_), static_cast<long long>(steps_without_));
  Print();
  ExpectMoves();
}

// What has no room as a whole is run on what has moved out before, whichever view it then stands on.
TEST_P(SlowTierLaw, PromptsMoveOutAsTheyAreRun) {
  const int32_t vocabulary = Rig::Make(GetParam(), {})->vocabulary();
  const int32_t first = 200;
  const Sampling& sampling = kSamplings[2];
  const Plain plain = RunPlain(GetParam(), MakeRequests(first, 7, sampling, vocabulary, kLong));
  for (const Compression& compression : {kCompressions[3], kCompressions[5]}) {
    Setting setting{.draft = 8, .count = 7, .long_prompts = true, .compression = &compression};
    Compare(plain, sampling, setting, first);
    EXPECT_GT(std::exchange(streamed_prompts_, 0), 10) << setting.Text();
    setting.eager = true;
    setting.direct = true;
    setting.staging_bytes = 1;
    Compare(plain, sampling, setting, first);
    EXPECT_GT(std::exchange(streamed_prompts_, 0), 20) << setting.Text();
  }
  EXPECT_GT(preemptions_, 0);
  for (const Fault fault :
       {Fault::kReadFails, Fault::kReadIsShort, Fault::kReadIsDamaged, Fault::kWriteFails, Fault::kDiskIsFull}) {
    Compare(plain, sampling,
            {.count = 4,
             .long_prompts = true,
             .eager = true,
             .compression = &kCompressions[3],
             .fault = fault,
             .fault_every = 23},
            first);
  }
  Print();
}

// By hand: tests/soak/slow_tier.sh.
TEST_P(SlowTierLaw, DISABLED_AllOfIt) {
  const int32_t vocabulary = Rig::Make(GetParam(), {})->vocabulary();
  int32_t first = 1000;
  for (const Compression& compression : kCompressions) {
    for (const Sampling& sampling : kSamplings) {
      for (const int32_t draft : kDrafts) {
        for (const int32_t count : kCompany) {
          const Plain plain = RunPlain(GetParam(), MakeRequests(first, count, sampling, vocabulary));
          for (const bool direct : {false, true}) {
            Compare(plain, sampling, {.draft = draft, .count = count, .direct = direct, .compression = &compression},
                    first);
            Compare(plain, sampling,
                    {.draft = draft,
                     .count = count,
                     .eager = true,
                     .direct = direct,
                     .staging_bytes = direct ? 1 : int64_t{64} << 20,
                     .compression = &compression},
                    first);
          }
          if (HasFatalFailure()) return;
          first += count;
        }
      }
    }
  }
  std::printf("%d prompts\n", first - 1000);
  Print();
  ExpectMoves();
}

INSTANTIATE_TEST_SUITE_P(Models, SlowTierLaw, ::testing::ValuesIn(SpeculationSubjects()),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace invar::engine
