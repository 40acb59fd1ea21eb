// Files: whole reads with a limit, maps, and writes that show the old or the new content, never a part.
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace invar {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("invar_file_test." + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  void Write(const std::string& name, const std::string& text) const { std::ofstream(Path(name)) << text; }

  std::filesystem::path folder_;
};

TEST_F(FileTest, ReadsWholeFilesUpToTheLimit) {
  Write("a", "hello");
  EXPECT_EQ(ReadFile(Path("a"), 5).value(), "hello");
  EXPECT_EQ(ReadFile(Path("a"), 4).status().code(), StatusCode::kResourceExhausted);
  const Status missing = ReadFile(Path("b"), 5).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find(Path("b")), std::string::npos);
}

TEST_F(FileTest, MapsAFileAndRefusesAFolder) {
  Write("a", "hello");
  const FileMap map = FileMap::Open(Path("a")).value();
  ASSERT_EQ(map.bytes().size(), 5U);
  EXPECT_EQ(std::memcmp(map.bytes().data(), "hello", 5), 0);
  EXPECT_EQ(FileMap::Open(folder_.string()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FileMap::Open(Path("b")).status().code(), StatusCode::kNotFound);
}

TEST_F(FileTest, AMapOfAnEmptyFileIsEmpty) {
  Write("a", "");
  EXPECT_EQ(FileMap::Open(Path("a")).value().bytes().size(), 0U);
}

TEST_F(FileTest, AnAtomicFileShowsAtCommit) {
  Write("a", "old");
  {
    AtomicFile file = AtomicFile::Create(Path("a")).value();
    ASSERT_TRUE(file.Append("new content").ok());
    EXPECT_EQ(ReadFile(Path("a"), 100).value(), "old");
    ASSERT_TRUE(file.Commit().ok());
  }
  EXPECT_EQ(ReadFile(Path("a"), 100).value(), "new content");
}

TEST_F(FileTest, AnAtomicFileWithoutCommitLeavesNothing) {
  {
    AtomicFile file = AtomicFile::Create(Path("a")).value();
    ASSERT_TRUE(file.Append("half").ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FileTest, AnAtomicFileCanBeWrittenThroughMemory) {
  AtomicFile file = AtomicFile::Create(Path("a")).value();
  const std::span<std::byte> bytes = file.MapForWriting(3).value();
  std::memcpy(bytes.data(), "abc", 3);
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_EQ(ReadFile(Path("a"), 3).value(), "abc");
}

// A daemon that is killed while it packs, again and again, must not fill the disk.
TEST_F(FileTest, WhatAKilledWriterLeftIsWrittenOver) {
  for (int kill = 0; kill < 3; ++kill) {
    const pid_t child = fork();
    if (child == 0) {
      AtomicFile file = AtomicFile::Create(Path("a")).value();
      (void)file.MapForWriting(1 << 20);
      raise(SIGKILL);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state));
    const std::filesystem::directory_iterator files(folder_);
    EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "after kill " << kill;
  }
  AtomicFile file = AtomicFile::Create(Path("a")).value();
  ASSERT_TRUE(file.Append("whole").ok());
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_EQ(ReadFile(Path("a"), 100).value(), "whole");
  EXPECT_FALSE(std::filesystem::exists(Path("a.partial")));
}

}  // namespace
}  // namespace invar
