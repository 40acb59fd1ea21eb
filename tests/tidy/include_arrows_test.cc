// Reads the whole tree and checks the rules of the house on it; beside each, a planted offence that the rule must see.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/tidy/rules.h"

namespace invar::tidy {
namespace {

const std::vector<SourceFile>& Tree() {
  static const std::vector<SourceFile> tree = ReadTree(INVAR_SOURCE_DIR);
  return tree;
}

// Offences of a file at `path` that includes `include` and nothing else.
template <typename Rule>
size_t Offences(const Rule& rule, const std::string& path, const std::string& include) {
  return rule(SourceFile{path, fmt::format("#include \"{}\"\n", include)}).size();
}

template <typename Rule>
void ExpectKept(const Rule& rule) {
  ASSERT_GT(Tree().size(), 100u) << "the tree was not found";
  for (const SourceFile& file : Tree()) {
    for (const std::string& offence : rule(file)) ADD_FAILURE() << offence;
  }
}

TEST(Arrows, PointDownwards) { ExpectKept(CheckArrows); }
TEST(Arrows, SeeAnUpwardInclude) {
  EXPECT_EQ(CheckArrows({"kernels/a.cc", "#include \"engine/engine.h\"\n"}).size(), 1u);
  EXPECT_EQ(CheckArrows({"models/a.h", "#include \"cache/lease.h\"\n"}).size(), 1u);
  EXPECT_EQ(CheckArrows({"cache/a.h", "#include \"models/model.h\"\n"}).size(), 1u);
  EXPECT_EQ(CheckArrows({"server/a.cc", "#include \"tools/invar/command.h\"\n"}).size(), 1u);
  EXPECT_TRUE(CheckArrows({"engine/a.cc", "#include \"cache/lease.h\"\n#include <vector>\n"}).empty());
}

TEST(Faces, HideTheInside) { ExpectKept(CheckFaces); }
TEST(Faces, SeeAnIncludeOfAnothersInside) {
  EXPECT_EQ(CheckFaces({"engine/a.cc", "#include \"kernels/cpu/isa.h\"\n"}).size(), 1u);
  EXPECT_TRUE(CheckFaces({"engine/a.cc", "#include \"engine/sample/sampler.h\"\n"}).empty());
  EXPECT_TRUE(CheckFaces({"tests/kernels/a_test.cc", "#include \"kernels/cpu/isa.h\"\n"}).empty());
}

TEST(InsideArrows, HaveADirection) { ExpectKept(CheckInsideArrows); }
TEST(InsideArrows, SeeACircle) {
  const auto offences = [](const char* path, const char* include) {
    return Offences(CheckInsideArrows, path, include);
  };
  EXPECT_EQ(offences("models/stack/a.h", "models/mixers/a.h"), 1u);
  EXPECT_EQ(offences("models/a.h", "models/stack/stack_plan.h"), 1u) << "every folder could reach it by the face";
  EXPECT_EQ(offences("cache/tree/a.h", "cache/evict/evictor.h"), 1u);
  EXPECT_EQ(offences("cache/evict/a.cc", "cache/checkpoint/planner.h"), 1u);
  EXPECT_EQ(offences("cache/checkpoint/a.cc", "cache/prefix/prefix_cache.h"), 1u);
  EXPECT_EQ(offences("cache/tiers/a.cc", "cache/prefix/prefix_cache.h"), 1u);
  EXPECT_EQ(offences("cache/a.h", "cache/prefix/prefix_cache.h"), 1u) << "every folder could reach it by the face";
  EXPECT_EQ(offences("cache/new_folder/a.h", "cache/lease.h"), 1u) << "a folder without a rule";
  EXPECT_EQ(offences("engine/speculate/a.h", "engine/loop/sequence.h"), 1u);
  EXPECT_EQ(offences("engine/slow/a.h", "engine/speculate/mode.h"), 1u);
  EXPECT_EQ(offences("engine/transfer/a.cc", "engine/loop/sequence.h"), 1u);
  EXPECT_EQ(offences("engine/a.h", "engine/loop/inbox.h"), 1u) << "every folder could reach it by the face";
  EXPECT_EQ(offences("engine/new_folder/a.h", "engine/request.h"), 1u) << "a folder without a rule";
  EXPECT_EQ(offences("server/wire/a.cc", "server/calls/call_gate.h"), 1u);
  EXPECT_EQ(offences("server/calls/a.h", "server/services/cache_view.h"), 1u);
  EXPECT_EQ(offences("server/new_folder/a.h", "server/daemon.h"), 1u) << "a folder without a rule";
}
TEST(InsideArrows, AllowTheOtherWay) {
  const auto offences = [](const char* path, const char* include) {
    return Offences(CheckInsideArrows, path, include);
  };
  EXPECT_EQ(offences("models/mixers/a.cc", "models/stack/layer.h"), 0u);
  EXPECT_EQ(offences("cache/evict/a.h", "cache/tree/radix_tree.h"), 0u);
  EXPECT_EQ(offences("cache/prefix/a.h", "cache/tiers/tier.h"), 0u);
  EXPECT_EQ(offences("cache/tree/a.h", "cache/lease.h"), 0u);
  EXPECT_EQ(offences("cache/a.cc", "cache/prefix/prefix_cache.h"), 0u) << "sources at the top put folders together";
  EXPECT_EQ(offences("engine/loop/a.h", "engine/speculate/speculator.h"), 0u);
  EXPECT_EQ(offences("engine/speculate/a.h", "engine/slow/away_kv.h"), 0u);
  EXPECT_EQ(offences("engine/a.cc", "engine/loop/step_loop.h"), 0u);
  EXPECT_EQ(offences("server/services/a.h", "server/calls/call_gate.h"), 0u);
  EXPECT_EQ(offences("server/daemon.h", "server/services/admin_service.h"), 0u);
}

TEST(Rpc, StaysInServerAndTools) { ExpectKept(CheckRpcStaysOutside); }
TEST(Rpc, IsSeenInTheEngine) {
  EXPECT_EQ(CheckRpcStaysOutside({"engine/a.h", "#include <grpcpp/grpcpp.h>\n"}).size(), 1u);
  EXPECT_EQ(CheckRpcStaysOutside({"engine/a.h", "#include \"invar/v1/generation.pb.h\"\n"}).size(), 1u);
}

TEST(Heads, SayWhatTheFileIs) { ExpectKept(CheckHead); }
TEST(Heads, AreMissedWhereThereIsNone) {
  EXPECT_EQ(CheckHead({"base/a.h", "#pragma once\n"}).size(), 2u) << "no comment; and the guard is the first line";
  EXPECT_EQ(CheckHead({"base/a.cc", "int a;\n"}).size(), 1u);
  EXPECT_TRUE(CheckHead({"base/a.h", "// What.\n#pragma once\n"}).empty());
}

TEST(Length, OneIdeaAFile) { ExpectKept(CheckLength); }
TEST(Length, SeesAnEndlessFile) {
  EXPECT_EQ(CheckLength({"base/a.cc", std::string(2000, '\n')}).size(), 1u);
  EXPECT_TRUE(CheckLength({"docs/a.md", std::string(2000, '\n')}).empty());
}

TEST(Paths, NameNobodysMachine) { ExpectKept(CheckNoMachinePaths); }
TEST(Paths, SeeAnAbsolutePath) {
  EXPECT_EQ(CheckNoMachinePaths({"docs/a.md", fmt::format("look in {}x\n",
                                                          "/ho"
                                                          "me/")})
                .size(),
            1u);
  EXPECT_TRUE(CheckNoMachinePaths({"docs/a.md", fmt::format("look in my.site{}x\n",
                                                            "/ho"
                                                            "me/")})
                  .empty());
}

TEST(NamedFiles, Exist) {
  ExpectKept([](const SourceFile& file) { return CheckNamedFilesExist(file, INVAR_SOURCE_DIR); });
}
TEST(NamedFiles, AreMissed) {
  const auto offences = [](const std::string& text) {
    return CheckNamedFilesExist({"docs/a.md", text}, INVAR_SOURCE_DIR).size();
  };
  EXPECT_EQ(offences("see `engine/nothing.cc`\n"), 1u);
  EXPECT_EQ(offences("see `engine/engine.cc`, `CONFIG.md`, `kernels/cpu/<op>_inl.h` and `bench/serve`\n"), 0u);
  EXPECT_EQ(offences("## Planned\n`engine/nothing.cc`\n## Here\n`engine/nothing.cc`\n"), 1u);
}

TEST(NamedTests, Exist) {
  std::vector<SourceFile> tests;
  for (const SourceFile& file : Tree()) {
    if (file.path.starts_with("tests/") && file.path.ends_with("_test.cc")) tests.push_back(file);
  }
  ExpectKept([&](const SourceFile& file) { return CheckNamedTestsExist(file, tests); });
}
TEST(NamedTests, AreMissed) {
  const std::vector<SourceFile> tests = {{"tests/a_test.cc", "TEST_P(Cases, Hit) {}\n"}};
  EXPECT_EQ(CheckNamedTestsExist({"docs/a.md", "| a | `Cases.Miss` |\n"}, tests).size(), 1u);
  EXPECT_TRUE(CheckNamedTestsExist({"docs/a.md", "| a | `Cases.Hit` |\n`Cases.Miss`\n"}, tests).empty());
}

TEST(DeadFiles, EverySourceIsBuilt) {
  std::vector<SourceFile> lists;
  for (const SourceFile& file : Tree()) {
    if (file.path.ends_with("CMakeLists.txt")) lists.push_back(file);
  }
  ExpectKept([&](const SourceFile& file) { return CheckIsBuilt(file, lists); });
}
TEST(DeadFiles, AreSeen) {
  const std::vector<SourceFile> lists = {{"engine/CMakeLists.txt", "SOURCES ground.cc sample/sampler.cc"}};
  EXPECT_EQ(CheckIsBuilt({"engine/round.cc", ""}, lists).size(), 1u);
  EXPECT_TRUE(CheckIsBuilt({"engine/ground.cc", ""}, lists).empty());
  EXPECT_TRUE(CheckIsBuilt({"engine/sample/sampler.cc", ""}, lists).empty());
  EXPECT_EQ(CheckIsBuilt({"models/ground.cc", ""}, lists).size(), 1u);
  const std::vector<SourceFile> elsewhere = {{"tests/law/CMakeLists.txt", "SOURCES ../support/tiny_model.cc"}};
  EXPECT_TRUE(CheckIsBuilt({"tests/support/tiny_model.cc", ""}, elsewhere).empty());
}

}  // namespace
}  // namespace invar::tidy
