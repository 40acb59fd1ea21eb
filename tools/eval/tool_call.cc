// tool_call: one of three tools is to be called for one of a few users, with arguments that stand in their record.
#include <array>
#include <nlohmann/json.hpp>

#include "tools/eval/kinds.h"
#include "tools/eval/needles.h"
#include "tools/eval/scorers.h"
#include "tools/eval/words.h"

namespace invar::eval {
namespace {

constexpr std::array<std::string_view, 3> kTools = {"open_gate", "send_parcel", "book_table"};
constexpr int64_t kUsers = 4;
constexpr int64_t kExamples = 2;  // Of them, called for already.

nlohmann::ordered_json DrawRecord(Chance& chance, const std::string& user) {
  const std::string badge = chance.Number(3);
  return {{"user", user}, {"badge", badge}, {"city", chance.OneOf(Cities())}};
}

std::string Ask(const std::string_view tool, const nlohmann::ordered_json& record) {
  return "Call " + std::string(tool) + " for " + record["user"].get<std::string>() + ":";
}

std::string CallOf(const std::string_view tool, const nlohmann::ordered_json& record) {
  return nlohmann::ordered_json{{"name", tool}, {"arguments", record}}.dump();
}

}  // namespace

// Records are JSON, anywhere in the noise, and behind it two calls for others stand as examples: a model of a hundred
// million parameters finds and copies, and that is what a view must not lose.
Task ToolCall(const Composition& composition) {
  Chance chance(composition.seed);
  std::vector<nlohmann::ordered_json> records;
  std::vector<std::string> lines;
  for (const std::string& user : DistinctWords(chance, kUsers)) {
    records.push_back(DrawRecord(chance, user));
    lines.push_back(records.back().dump());
  }
  std::string context = "Tools: open_gate, send_parcel, book_table.\n" + Haystack(composition, chance, lines);
  for (int64_t example = 1; example <= kExamples; ++example) {
    const std::string_view tool = chance.OneOf(std::span(kTools));
    context += Ask(tool, records[example]) + "\n" + CallOf(tool, records[example]) + "\n";
  }
  const std::string_view tool = chance.OneOf(std::span(kTools));
  const std::string call = CallOf(tool, records.front());
  const std::string lead = "{\"name\":\"";
  return {.context = std::move(context),
          .question = Ask(tool, records.front()),
          .lead = lead,
          .gold = call.substr(lead.size()),
          .expected = {call},
          .score = SameCall};
}

}  // namespace invar::eval
