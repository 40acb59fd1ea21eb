// Where a forward waits for the device: whatever the pace of what was launched, the host reads the same, and every wait
// that is taken out is missed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated_device.h"
#include "models/state_log_memory.h"
#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

using kernels::cuda::EmulatedDeviceOptions;
using kernels::cuda::Pace;

class Bytes {
 public:
  void Add(const void* from, const int64_t bytes) {
    const auto* begin = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), begin, begin + bytes);
  }
  void Add(const kernels::ConstF32View& rows) {
    for (int64_t r = 0; r < rows.rows; ++r) Add(rows.row(r), rows.cols * int64_t{sizeof(float)});
  }
  void Add(const kernels::Activations& rows) {
    for (int64_t r = 0; r < rows.rows; ++r) Add(rows.row_bytes(r), rows.cols * kernels::BytesOf(rows.dtype));
  }
  bool operator==(const Bytes&) const = default;

 private:
  std::vector<std::byte> bytes_;
};

class Listener final : public QueryObserver, public LayerObserver {
 public:
  explicit Listener(Bytes& heard) : heard_(heard) {}
  void Queries(const int32_t, const kernels::Activations& queries) override { heard_.Add(queries); }
  void Inputs(const int32_t, const kernels::ConstF32View& residual, const kernels::Activations& normed) override {
    heard_.Add(residual);
    heard_.Add(normed);
  }
  void Scanned(const int32_t, const kernels::ConstF32View& qkv) override { heard_.Add(qkv); }

 private:
  Bytes& heard_;
};

// All that the host reads of an observed prefill, of a draft and its verdict, and of a part of a forward.
Bytes RunModel(const EmulatedDeviceOptions& options, int64_t* const waits, int64_t* const waits_of_load) {
  WorkerPool pool(1);
  auto backend = kernels::cuda::MakeCudaBackend(kernels::cuda::MakeEmulatedDevice(options, waits), nullptr,
                                                kernels::DType::kBf16, pool)
                     .value();
  ModelOptions load;
  load.folder = testing::GoldenFolder("qwen3_5");
  load.max_batch_tokens = 16;
  load.max_logits_rows = 16;
  load.pack_to_file = false;
  const std::unique_ptr<Model> model = MakeModel(load, *backend).value();
  if (waits_of_load != nullptr) *waits_of_load = *waits;
  const ModelSpec& spec = model->spec();
  testing::SequenceArena arena(spec, 1, 16, 1);
  arena.Reset(0);
  const std::vector<TokenId> tokens = testing::RandomTokens(9, spec.vocabulary_size, 3);
  Bytes read;
  Listener listener(read);
  ForwardSpan prompt = arena.Span(0, std::span(tokens).first(5), 0, 2);
  prompt.observer = &listener;
  prompt.layer_observer = &listener;
  const StateCopy kept{.after = Position(3), .to = SlotId(1)};
  prompt.checkpoints = {&kept, 1};
  read.Add(model->Forward(arena.memory(), {&prompt, 1}));
  read.Add(arena.Slot(1).data(), spec.state_bytes);

  const StateLogMemory log = MakeStateLogMemory(spec.StateLogBytes(3));
  ForwardSpan draft = arena.Span(0, std::span(tokens).subspan(5, 3), 5, 3);
  draft.state_log = {log.get(), static_cast<size_t>(spec.StateLogBytes(3))};
  read.Add(model->Forward(arena.memory(), {&draft, 1}));
  const StateAdvance right{.state = draft.state, .first = Position(5), .log = draft.state_log, .rows = 2};
  model->Advance(arena.memory(), {&right, 1});
  read.Add(arena.Slot(0).data(), spec.state_bytes);

  const ForwardSpan next = arena.Span(0, std::span(tokens).subspan(7, 2), 7, 0);
  model->ForwardPart(arena.memory(), next, {.begin = 0, .end = spec.recurrent_layers + spec.attention_layers});
  read.Add(arena.Slot(0).data(), spec.state_bytes);
  const std::vector<std::byte> pages = arena.PageBytes(0);
  read.Add(pages.data(), std::ssize(pages));
  return read;
}

// In a process of its own: what was not waited for may be anything.
bool IsMissed(const int64_t wait, const Bytes& want) {
  const pid_t child = fork();
  Check(child >= 0, "a process for a mutation");
  if (child == 0) {
    alarm(60);
    int64_t waits = 0;
    _exit(RunModel({.removed_wait = wait}, &waits, nullptr) == want ? 0 : 1);
  }
  int status = 0;
  Check(waitpid(child, &status, 0) == child, "the mutation ends");
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

TEST(HostWaits, AreWhereTheHostReadsWhateverTheDevicesPace) {
  int64_t waits = 0;
  const Bytes want = RunModel({.pace = Pace::kAtOnce}, &waits, nullptr);
  EXPECT_EQ(waits, 0);
  EXPECT_TRUE(RunModel({.pace = Pace::kAtWaits}, &waits, nullptr) == want);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    EXPECT_TRUE(RunModel({.pace = Pace::kSeeded, .seed = seed}, &waits, nullptr) == want) << seed;
  }
}

TEST(HostWaits, ThatAreTakenOutAreMissed) {
  int64_t waits = 0;
  int64_t of_load = 0;
  const Bytes want = RunModel({}, &waits, &of_load);
  for (int64_t wait = of_load; wait < waits; ++wait) EXPECT_TRUE(IsMissed(wait, want)) << wait - of_load;
  EXPECT_GT(waits, of_load + 10);
}

}  // namespace
}  // namespace invar::models
