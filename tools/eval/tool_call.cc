// tool_call: one of three tools is to be called for one of many people, with arguments that stand in their record.
#include <array>
#include <nlohmann/json.hpp>

#include "tools/eval/kinds.h"
#include "tools/eval/scorers.h"
#include "tools/eval/words.h"

namespace invar::eval {
namespace {

constexpr std::array<std::string_view, 3> kTools = {"open_gate", "send_parcel", "book_table"};

struct Person {
  std::string name;
  std::string badge;
  std::string city;
};

std::string Ask(const std::string_view tool, const Person& person) {
  return "Call the tool " + std::string(tool) + " for " + person.name + ".";
}

std::string CallOf(const std::string_view tool, const Person& person) {
  const nlohmann::ordered_json call = {
      {"name", tool}, {"arguments", {{"person", person.name}, {"badge", person.badge}, {"city", person.city}}}};
  return call.dump();
}

}  // namespace

// Behind the records two calls for others stand as examples, so that a small model knows the form.
Task ToolCall(const Composition& composition) {
  Chance chance(composition.seed);
  const int64_t count = composition.units + 3;
  const std::vector<std::string> family = DistinctPairs(chance, count);
  std::string context = "Tools, all with the arguments \"person\", \"badge\" and \"city\":";
  for (const std::string_view tool : kTools) context += " " + std::string(tool);
  context += ". Answer with JSON alone.\nRecords:\n";
  std::vector<Person> people;
  for (int64_t i = 0; i < count; ++i) {
    Person person;
    person.name = std::string(chance.OneOf(Names())) + " " + family[i];
    person.badge = chance.Number(4);
    person.city = chance.OneOf(Cities());
    context += person.name + ", badge " + person.badge + ", city " + person.city + "\n";
    people.push_back(std::move(person));
  }
  const int64_t asked = Chance(composition.seed, 1).Below(1024) * count / 1024;
  for (int64_t example = 1; example <= 2; ++example) {
    const Person& other = people[(asked + example * (count / 3)) % count];
    const std::string_view tool = chance.OneOf(std::span(kTools));
    context += Ask(tool, other) + "\n" + CallOf(tool, other) + "\n";
  }
  const std::string_view tool = kTools[Chance(composition.seed, 2).Below(std::ssize(kTools))];
  const std::string call = CallOf(tool, people[asked]);
  const std::string lead = "{\"name\":\"";
  return {.context = std::move(context),
          .question = Ask(tool, people[asked]),
          .lead = lead,
          .gold = call.substr(lead.size()),
          .expected = {call},
          .score = SameCall};
}

}  // namespace invar::eval
