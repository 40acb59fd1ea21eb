// Global functions: namespace, range, dict, raise_exception and strftime_now.
#include <ctime>

#include "models/text/jinja/builtins.h"
#include "models/text/jinja/interpreter.h"

namespace invar::models::jinja {
namespace {

Value Range(Interpreter& interpreter, const Arguments& arguments) {
  int64_t parts[3] = {0, 0, 1};
  const size_t count = arguments.positional.size();
  for (size_t i = 0; i < count && i < 3; ++i) {
    const std::optional<int64_t> part = arguments.positional[i].AsInt();
    if (!part) interpreter.Fail("range wants integers");
    parts[count == 1 ? 1 : i] = part.value_or(0);
  }
  if (count == 0 || count > 3 || parts[2] == 0) interpreter.Fail("range wants one to three integers, the step not 0");
  if (interpreter.failed()) return {};
  std::vector<Value> items;
  for (int64_t i = parts[0]; parts[2] > 0 ? i < parts[1] : i > parts[1];) {
    if (!interpreter.Charge(32)) return {};
    items.push_back(Value::Of(i));
    if (__builtin_add_overflow(i, parts[2], &i)) break;
  }
  return interpreter.MakeList(std::move(items));
}

// The members of namespace(...) and dict(...): an optional dict, then named arguments.
std::vector<std::pair<std::string, Value>> Members(Interpreter& interpreter, const Arguments& arguments) {
  std::vector<std::pair<std::string, Value>> members;
  if (!arguments.positional.empty()) {
    const Dict* dict = arguments.positional[0].dict();
    if (dict == nullptr || arguments.positional.size() > 1) {
      interpreter.Fail("namespace and dict want named arguments or one dict");
      return members;
    }
    for (const auto& [key, value] : dict->entries) members.emplace_back(interpreter.ToText(key).bytes(), value);
  }
  members.insert(members.end(), arguments.named.begin(), arguments.named.end());
  return members;
}

Value MakeDictOf(Interpreter& interpreter, const Arguments& arguments) {
  Dict dict;
  for (auto& [name, value] : Members(interpreter, arguments)) dict.entries.emplace_back(Value::OfTemplate(name), value);
  return interpreter.MakeDict(std::move(dict));
}

Value FormatNow(Interpreter& interpreter, const Arguments& arguments) {
  const Value* format = arguments.Get(0, "format");
  if (format == nullptr || !format->is_string() || format->bytes().size() > 256) {
    interpreter.Fail("strftime_now wants a format of at most 256 bytes");
    return {};
  }
  const std::time_t now = *interpreter.now_unix_seconds();
  std::tm utc{};
  if (gmtime_r(&now, &utc) == nullptr) {
    interpreter.Fail("the time is out of range");
    return {};
  }
  const std::string pattern(format->bytes());
  char buffer[1024];
  const size_t length = std::strftime(buffer, sizeof buffer, pattern.c_str(), &utc);
  return interpreter.MakeText(OriginText(std::string_view(buffer, length), ControlTokens::kParse));
}

}  // namespace

Value CallGlobal(Interpreter& interpreter, const std::string_view name, const Arguments& arguments) {
  if (name == "range") return Range(interpreter, arguments);
  if (name == "dict") return MakeDictOf(interpreter, arguments);
  if (name == "strftime_now") return FormatNow(interpreter, arguments);
  if (name == "namespace") {
    const auto members = Members(interpreter, arguments);
    return interpreter.failed() ? Value() : interpreter.MakeNamespace(members);
  }
  const Value* message = arguments.Get(0, "message");
  const std::string text =
      message == nullptr ? "the chat template refused the messages" : interpreter.ToText(*message).bytes();
  if (!interpreter.failed()) interpreter.FailVerbatim(text);
  return {};
}

}  // namespace invar::models::jinja
