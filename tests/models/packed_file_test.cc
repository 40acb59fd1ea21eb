// The packed file is a cache: used when it is right, packed again when it is stale, cut or damaged, and done without
// where the folder is read-only. Whatever happens, logits stay the same bits.
#include "models/weights/packed_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>

#include "models/random_model.h"
#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

namespace fs = std::filesystem;

class PackedWeights : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& entry : fs::directory_iterator(testing::GoldenFolder("qwen3_5"))) {
      // What another run packed there is not wanted: it would be right.
      if (!entry.is_regular_file() || entry.path().extension() == ".packed") continue;
      fs::copy_file(entry.path(), fs::path(folder_.path()) / entry.path().filename());
    }
  }

  // Loads, remembers whether anything was packed, and gives one row of logits.
  std::vector<float> Load() {
    packed_ = false;
    WorkerPool pool(1);
    auto backend = kernels::MakeBackend({.name = "cpu", .isa = {}, .activations = kernels::DType::kBf16}, pool);
    EXPECT_TRUE(backend.ok());
    ModelOptions options;
    options.folder = folder_.path();
    options.progress = [this](int64_t, int64_t) { packed_ = true; };
    auto model = MakeModel(options, **backend);
    EXPECT_TRUE(model.ok()) << model.status().message();
    if (!model.ok()) return {};
    fingerprint_ = (*model)->spec().fingerprint;
    testing::SequenceArena arena((*model)->spec(), 1, 64);
    const std::vector<TokenId> tokens = testing::RandomTokens(20, (*model)->spec().vocabulary_size, 1);
    const ForwardSpan span = arena.Span(0, tokens, 0, 1);
    const kernels::ConstF32View logits = (*model)->Forward(arena.memory(), {&span, 1});
    return {logits.row(0), logits.row(0) + logits.cols};
  }

  fs::path PackedPath() const {
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      if (entry.path().extension() == ".packed") return entry.path();
    }
    return {};
  }

  void FlipByte(const int64_t offset) {
    std::fstream file(PackedPath(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(offset);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(offset);
    file.put(byte);
  }

  testing::TemporaryFolder folder_;
  bool packed_ = false;
  std::string fingerprint_;
};

TEST_F(PackedWeights, AreWrittenOnceAndUsedAfterwards) {
  const std::vector<float> cold = Load();
  EXPECT_TRUE(packed_);
  ASSERT_FALSE(PackedPath().empty());
  const std::string fingerprint = fingerprint_;
  EXPECT_EQ(fingerprint.size(), 64U);
  const std::vector<float> warm = Load();
  EXPECT_FALSE(packed_);
  EXPECT_EQ(cold, warm);
  EXPECT_EQ(fingerprint_, fingerprint);
}

TEST_F(PackedWeights, AreTheSameInMemory) {
  const std::vector<float> file = Load();
  const std::string fingerprint = fingerprint_;
  StatusOr<testing::TinyModel> tiny =
      testing::LoadTinyModel(folder_.path(), {.backend = "cpu", .isa = {}, .activations = kernels::DType::kBf16});
  ASSERT_TRUE(tiny.ok());
  EXPECT_EQ(tiny->model->spec().fingerprint, fingerprint);
  testing::SequenceArena arena(tiny->model->spec(), 1, 64);
  const std::vector<TokenId> tokens = testing::RandomTokens(20, tiny->model->spec().vocabulary_size, 1);
  const ForwardSpan span = arena.Span(0, tokens, 0, 1);
  const kernels::ConstF32View logits = tiny->model->Forward(arena.memory(), {&span, 1});
  EXPECT_EQ(file, std::vector<float>(logits.row(0), logits.row(0) + logits.cols));
}

TEST_F(PackedWeights, ArePackedAgainWhenDamagedAnywhere) {
  const std::vector<float> good = Load();
  const auto size = static_cast<int64_t>(fs::file_size(PackedPath()));
  for (const int64_t offset : {int64_t{0}, int64_t{9}, int64_t{20}, int64_t{100}, size / 2, size - 70}) {
    FlipByte(offset);
    EXPECT_EQ(Load(), good) << "byte " << offset;
    EXPECT_TRUE(packed_) << "byte " << offset << " of " << size << " was trusted";
  }
  for (const int64_t bytes : {int64_t{0}, int64_t{7}, int64_t{60}, int64_t{4096}, size - 1}) {
    fs::resize_file(PackedPath(), static_cast<uintmax_t>(bytes));
    EXPECT_EQ(Load(), good) << "cut to " << bytes;
    EXPECT_TRUE(packed_) << "cut to " << bytes << " was trusted";
  }
}

TEST_F(PackedWeights, ArePackedAgainWhenTheWeightsChange) {
  const std::vector<float> before = Load();
  const std::string fingerprint = fingerprint_;
  const fs::path weights = fs::path(folder_.path()) / "model.safetensors";
  {
    std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1000, std::ios::end);
    file.write("\0\0\0\0\0\0\0\0", 8);
  }
  fs::last_write_time(weights, fs::last_write_time(weights) + std::chrono::seconds(2));
  EXPECT_NE(Load(), before);
  EXPECT_TRUE(packed_);
  EXPECT_NE(fingerprint_, fingerprint);
}

// Images and archives give files the time of another day.
TEST_F(PackedWeights, ArePackedAgainWhenTheWeightsChangeBehindTheirOldTime) {
  const std::vector<float> before = Load();
  const fs::path weights = fs::path(folder_.path()) / "model.safetensors";
  const auto time = fs::last_write_time(weights);
  {
    std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(-5000, std::ios::end);
    const auto byte = static_cast<char>(file.get() ^ 0x40);
    file.seekp(-5000, std::ios::end);
    file.put(byte);
  }
  fs::last_write_time(weights, time);
  const std::string fingerprint = fingerprint_;
  EXPECT_NE(Load(), before);
  EXPECT_TRUE(packed_);
  EXPECT_NE(fingerprint_, fingerprint);
}

TEST_F(PackedWeights, OfACopiedFolderAreUsed) {
  const std::vector<float> before = Load();
  const fs::path weights = fs::path(folder_.path()) / "model.safetensors";
  const fs::path copy = fs::path(folder_.path()) / "copy";
  const auto time = fs::last_write_time(weights);
  fs::copy_file(weights, copy);
  fs::rename(copy, weights);
  fs::last_write_time(weights, time);
  EXPECT_EQ(Load(), before);
  EXPECT_FALSE(packed_);
}

TEST_F(PackedWeights, ArePackedAgainWhenTheConfigurationChanges) {
  Load();
  std::ofstream(fs::path(folder_.path()) / "config.json", std::ios::app) << "\n";
  Load();
  EXPECT_TRUE(packed_);
}

TEST_F(PackedWeights, GoToMemoryWhereNoFileCanBeWritten) {
  // A folder in the file's place stands for a read-only folder, which root could write to all the same.
  const std::vector<float> good = Load();
  const fs::path packed = PackedPath();
  fs::remove(packed);
  fs::create_directory(packed);
  std::ofstream(packed / "occupied") << "x";
  EXPECT_EQ(Load(), good);
  EXPECT_TRUE(packed_);
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path().string().find(".packed."), std::string::npos)
        << "a temporary file was left: " << entry.path();
  }
}

// A file so large that its blocks are sampled at start: 66 blocks, of which 64 are read.
class LargePackedFile : public ::testing::Test {
 protected:
  static constexpr int64_t kBlock = 1 << 20;
  static constexpr int64_t kUnread = 32;  // i * 65 / 63 passes it by.

  void SetUp() override {
    const Status written = WritePackedFile(path_, key_, "f", [](const std::span<std::byte> payload) {
      for (size_t i = 0; i < payload.size(); i += 4096) payload[i] = static_cast<std::byte>(i >> 12);
      return OkStatus();
    });
    ASSERT_TRUE(written.ok()) << written.message();
  }
  PackedFile Open() {
    std::string why;
    std::optional<PackedFile> packed = OpenPackedFile(path_, key_, why);
    EXPECT_TRUE(packed.has_value()) << why;
    return *std::move(packed);
  }
  static std::optional<int64_t> CheckToTheEnd(const PackedFile& packed) {
    std::promise<std::optional<int64_t>> end;
    const PackedCheck check(packed.payload, packed.checksums,
                            [&end](const std::optional<int64_t> block) { end.set_value(block); });
    return end.get_future().get();
  }

  const testing::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/m.packed";
  const PackedKey key_{.layout = "l", .sources = {}, .payload_bytes = 66 * kBlock - 7};
};

TEST_F(LargePackedFile, IsCheckedToItsEndWhileItIsInUse) {
  const PackedFile packed = Open();
  EXPECT_FALSE(packed.checked_whole);
  EXPECT_EQ(CheckToTheEnd(packed), std::nullopt);
}

TEST_F(LargePackedFile, DamageWhereTheStartDidNotLookIsFound) {
  {
    const int64_t begin = static_cast<int64_t>(fs::file_size(path_)) - key_.payload_bytes;
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(begin + kUnread * kBlock + 5);
    file.put('\x01');
  }
  const PackedFile packed = Open();
  EXPECT_EQ(CheckToTheEnd(packed), kUnread);
}

TEST_F(LargePackedFile, ACheckThatIsNotWantedAnyMoreStops) {
  const PackedFile packed = Open();
  int ends = 0;
  for (int i = 0; i < 20; ++i) const PackedCheck check(packed.payload, packed.checksums, [&ends](auto) { ++ends; });
  EXPECT_LT(ends, 20);
}

TEST(RandomModel, LoadsAndRunsForEveryFamily) {
  for (const char* golden :
       {"qwen3_5", "qwen3_5-vl", "qwen3_5_moe", "qwen3_next", "qwen3", "qwen2", "llama", "mistral"}) {
    const testing::TemporaryFolder folder;
    const Status made = MakeRandomModel(
        {.shape = testing::GoldenFolder(golden) + "/config.json", .folder = folder.path(), .seed = 3, .progress = {}});
    ASSERT_TRUE(made.ok()) << made.message();
    StatusOr<testing::TinyModel> tiny = testing::LoadTinyModel(folder.path(), {.backend = "cpu", .isa = {}});
    ASSERT_TRUE(tiny.ok()) << tiny.status().message();
    testing::SequenceArena arena(tiny->model->spec(), 1, 64);
    const std::vector<TokenId> tokens = testing::RandomTokens(20, tiny->model->spec().vocabulary_size, 1);
    const ForwardSpan span = arena.Span(0, tokens, 0, 1);
    const kernels::ConstF32View logits = tiny->model->Forward(arena.memory(), {&span, 1});
    for (int64_t c = 0; c < logits.cols; ++c) ASSERT_TRUE(std::isfinite(logits.row(0)[c])) << golden;
  }
}

TEST(RandomModel, IsTheSameForTheSameSeed) {
  const testing::TemporaryFolder a;
  const testing::TemporaryFolder b;
  const testing::TemporaryFolder c;
  const std::string shape = testing::GoldenFolder("llama") + "/config.json";
  for (const auto& [folder, seed] : {std::pair{a.path(), 1}, std::pair{b.path(), 1}, std::pair{c.path(), 2}}) {
    ASSERT_TRUE(
        MakeRandomModel({.shape = shape, .folder = folder, .seed = static_cast<uint64_t>(seed), .progress = {}}).ok());
  }
  const auto read = [](const std::string& folder) {
    std::ifstream in(folder + "/model.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(read(a.path()), read(b.path()));
  EXPECT_NE(read(a.path()), read(c.path()));
}

TEST(RandomModel, RefusesAnUnknownShapeListingTheKnown) {
  const testing::TemporaryFolder folder;
  const Status made = MakeRandomModel({.shape = "qwen9-1t", .folder = folder.path(), .seed = 1, .progress = {}});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.message().find("qwen3.5-0.8b"), std::string::npos);
}

}  // namespace
}  // namespace invar::models
