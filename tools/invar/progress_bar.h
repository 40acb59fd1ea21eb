// A progress bar on stderr for long work; nothing where stderr is no terminal, so that logs stay clean.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

namespace invar::tools {

class ProgressBar {
 public:
  explicit ProgressBar(std::string title) : title_(std::move(title)), shown_(isatty(STDERR_FILENO) == 1) {}
  ~ProgressBar() {
    if (percent_ >= 0) std::fputs("\r\033[K", stderr);
  }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Show(const int64_t done, const int64_t total) {
    const auto percent = static_cast<int>(total > 0 ? std::min(done, total) * 100 / total : 100);
    if (!shown_ || percent == percent_) return;  // A hundred writes at most.
    percent_ = percent;
    constexpr int kWidth = 40;
    const std::string filled(static_cast<size_t>(percent * kWidth / 100), '#');
    std::fprintf(stderr, "\r%s [%-*s] %3d%%", title_.c_str(), kWidth, filled.c_str(), percent);
    std::fflush(stderr);
  }

 private:
  const std::string title_;
  const bool shown_;
  int percent_ = -1;
};

}  // namespace invar::tools
