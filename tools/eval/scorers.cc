// See scorers.h.
#include "tools/eval/scorers.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string>

namespace invar::eval {
namespace {

std::string Lower(const std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](const unsigned char c) { return std::tolower(c); });
  return lower;
}

// From the first brace to the one that closes it, strings passed over; empty where none does.
std::string_view FirstObject(const std::string_view text) {
  const size_t begin = text.find('{');
  if (begin == std::string_view::npos) return {};
  int depth = 0;
  bool in_string = false;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return text.substr(begin, i + 1 - begin);
    }
  }
  return {};
}

}  // namespace

double ShareFound(const Task& task, const std::string_view answer) {
  const std::string lower = Lower(answer);
  int64_t found = 0;
  for (const std::string& one : task.expected) found += lower.find(Lower(one)) != std::string::npos ? 1 : 0;
  return static_cast<double>(found) / static_cast<double>(task.expected.size());
}

double SameNumber(const Task& task, const std::string_view answer) {
  constexpr std::string_view kDigits = "0123456789";
  const size_t begin = answer.find_first_of(kDigits, task.lead.size());
  if (begin == std::string_view::npos) return 0.0;
  const std::string_view number = answer.substr(begin, answer.find_first_not_of(kDigits, begin) - begin);
  return number == task.expected.front() ? 1.0 : 0.0;
}

double SameCall(const Task& task, const std::string_view answer) {
  const std::string_view object = FirstObject(answer);
  const nlohmann::json call = nlohmann::json::parse(object, nullptr, /*allow_exceptions=*/false);
  return !call.is_discarded() && call == nlohmann::json::parse(task.expected.front()) ? 1.0 : 0.0;
}

}  // namespace invar::eval
