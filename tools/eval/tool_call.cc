// tool_call: one of three tools is to be called for one of many people, with arguments that stand in their record.
#include <array>
#include <nlohmann/json.hpp>

#include "tools/eval/kinds.h"
#include "tools/eval/scorers.h"
#include "tools/eval/words.h"

namespace invar::eval {
namespace {

constexpr std::array<std::string_view, 3> kTools = {"open_gate", "send_parcel", "book_table"};

}  // namespace

Task ToolCall(const Composition& composition) {
  Chance chance(composition.seed);
  const int64_t people = composition.units + 2;
  const std::vector<std::string> family = DistinctPairs(chance, people);
  const int64_t asked = Chance(composition.seed, 1).Below(1024) * people / 1024;
  std::string context = "Tools, all with the arguments \"person\", \"badge\" and \"city\":";
  for (const std::string_view tool : kTools) context += " " + std::string(tool);
  context += ".\nRecords:\n";
  nlohmann::ordered_json call = {{"name", kTools[Chance(composition.seed, 2).Below(std::ssize(kTools))]}};
  std::string person;
  for (int64_t i = 0; i < people; ++i) {
    const std::string name = std::string(chance.OneOf(Names())) + " " + family[i];
    const std::string badge = chance.Number(4);
    const auto city = std::string(chance.OneOf(Cities()));
    context += name + ", badge " + badge + ", city " + city + "\n";
    if (i != asked) continue;
    person = name;
    call["arguments"] = {{"person", name}, {"badge", badge}, {"city", city}};
  }
  const std::string text = call.dump();
  const std::string lead = "{\"name\":\"";
  return {.context = std::move(context),
          .question = "Call the tool " + call["name"].get<std::string>() + " for " + person +
                      ". Answer with JSON alone: {\"name\":...,\"arguments\":{...}}",
          .lead = lead,
          .gold = text.substr(lead.size()),
          .expected = {text},
          .score = SameCall};
}

}  // namespace invar::eval
