// Methods of str, dict, list and loop that read only, as transformers' sandbox allows them.
#include <algorithm>
#include <array>

#include "models/text/jinja/builtins.h"
#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/strings.h"
#include "models/text/unicode.h"

namespace invar::models::jinja {
namespace {

constexpr std::array<std::string_view, 28> kStringMethods = {
    "capitalize",   "count",        "endswith",   "find",    "index",  "isalnum", "isalpha",
    "isdigit",      "islower",      "isspace",    "isupper", "join",   "lower",   "lstrip",
    "removeprefix", "removesuffix", "replace",    "rfind",   "rindex", "rsplit",  "rstrip",
    "split",        "splitlines",   "startswith", "strip",   "title",  "upper",   "isnumeric"};
constexpr std::array<std::string_view, 5> kDictMethods = {"copy", "get", "items", "keys", "values"};
constexpr std::array<std::string_view, 2> kListMethods = {"count", "index"};
// Methods of str that Python has and the subset has not: they fail when called, instead of being undefined.
constexpr std::array<std::string_view, 12> kUnsupported = {"casefold",  "center",     "encode",    "expandtabs",
                                                           "format",    "format_map", "ljust",     "rjust",
                                                           "partition", "rpartition", "translate", "zfill"};
// What transformers' sandbox hides: methods that change their object.
constexpr std::array<std::string_view, 12> kUnsafe = {"append",     "clear",   "extend", "insert",
                                                      "pop",        "popitem", "remove", "reverse",
                                                      "setdefault", "sort",    "update", "fromkeys"};

template <size_t n>
bool IsOneOf(const std::string_view name, const std::array<std::string_view, n>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A string argument; empty and false in `ok` where it is something else.
const OriginText* TextArgument(Interpreter& interpreter, const Arguments& arguments, const size_t index,
                               const std::string_view name) {
  const Value* value = arguments.Get(index, name);
  if (value == nullptr || !value->is_string()) {
    interpreter.Fail("argument '" + std::string(name) + "' must be a string");
    return nullptr;
  }
  return value->text();
}

int64_t IntArgument(const Arguments& arguments, const size_t index, const std::string_view name,
                    const int64_t fallback) {
  const Value* value = arguments.Get(index, name);
  return value == nullptr ? fallback : value->AsInt().value_or(fallback);
}

// startswith and endswith, of a string or any string of a tuple.
Value Affix(Interpreter& interpreter, const std::string_view text, const Arguments& arguments, const bool at_start) {
  const Value* affix = arguments.Get(0, "prefix");
  std::vector<Value> options;
  if (affix != nullptr && affix->is_string()) options = {*affix};
  if (affix != nullptr && affix->list() != nullptr && affix->list()->is_tuple) options = affix->list()->items;
  if (affix == nullptr || (options.empty() && affix->list() == nullptr)) {
    interpreter.Fail("startswith and endswith want a string or a tuple of strings");
    return {};
  }
  return Value::Of(std::any_of(options.begin(), options.end(), [&](const Value& option) {
    return option.is_string() && (at_start ? text.starts_with(option.bytes()) : text.ends_with(option.bytes()));
  }));
}

Value TextsToList(Interpreter& interpreter, std::vector<OriginText> parts) {
  std::vector<Value> items;
  for (OriginText& part : parts) items.push_back(interpreter.MakeText(std::move(part)));
  return interpreter.MakeList(std::move(items));
}

Value SplitText(Interpreter& interpreter, const OriginText& text, const Arguments& arguments, const bool from_right) {
  const Value* separator = arguments.Get(0, "sep");
  const bool given = separator != nullptr && !separator->is_none();
  if (given && separator->bytes().empty()) {
    interpreter.Fail("split wants a separator that is a string and not empty");
    return {};
  }
  // Each part costs a value; the text has at most one a byte.
  if (!interpreter.Charge(static_cast<int64_t>(text.size()))) return {};
  return TextsToList(
      interpreter, Split(text, given ? separator->bytes() : "", IntArgument(arguments, 1, "maxsplit", -1), from_right));
}

Value FindText(Interpreter& interpreter, const std::string& name, const std::string_view text,
               const Arguments& arguments) {
  const OriginText* wanted = TextArgument(interpreter, arguments, 0, "sub");
  if (wanted == nullptr) return {};
  if (arguments.positional.size() > 1) {
    interpreter.Fail("'" + name + "' with a range is not supported");
    return {};
  }
  if (name == "count") {
    int64_t count = wanted->empty() ? CharCount(text) + 1 : 0;
    for (size_t at = FindFirst(text, wanted->bytes()); !wanted->empty() && at != std::string_view::npos;
         at = FindFirst(text, wanted->bytes(), at + wanted->size())) {
      ++count;
    }
    return Value::Of(count);
  }
  const size_t at = name[0] == 'r' ? FindLast(text, wanted->bytes()) : FindFirst(text, wanted->bytes());
  if (at != std::string_view::npos) return Value::Of(CharCount(text.substr(0, at)));
  if (name == "index" || name == "rindex") interpreter.Fail("substring not found");
  return Value::Of(int64_t{-1});
}

bool HasClass(const std::string_view name, const int32_t c) {
  if (name == "isspace") return IsWhiteSpace(c) || (c >= 0x1C && c <= 0x1F);
  if (name == "isalpha") return IsLetter(c);
  if (name == "isalnum") return IsLetter(c) || IsNumber(c);
  return IsNumber(c);
}

Value ClassTest(const std::string_view name, const OriginText& text) {
  if (name == "islower" || name == "isupper") {
    const bool lower = name == "islower";
    const bool same = ChangeCase(text, lower ? Case::kLower : Case::kUpper).bytes() == text.bytes();
    return Value::Of(same && ChangeCase(text, lower ? Case::kUpper : Case::kLower).bytes() != text.bytes());
  }
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.bytes(), i);
    if (c.code_point < 0 || !HasClass(name, c.code_point)) return Value::Of(false);
    i += c.bytes;
  }
  return Value::Of(!text.empty());
}

Value StripText(Interpreter& interpreter, const std::string_view name, const OriginText& text,
                const Arguments& arguments) {
  const Value* chars = arguments.Get(0, "chars");
  const Side side = name == "strip" ? Side::kBoth : name == "lstrip" ? Side::kLeft : Side::kRight;
  const bool given = chars != nullptr && !chars->is_none();
  if (given && (!chars->is_string() || chars->bytes().empty())) {
    if (!chars->is_string()) interpreter.Fail("strip wants a string");
    return interpreter.MakeText(text);
  }
  return interpreter.MakeText(Strip(text, given ? chars->bytes() : "", side));
}

Value RemoveAffix(Interpreter& interpreter, const std::string_view name, const OriginText& text,
                  const Arguments& arguments) {
  const OriginText* affix = TextArgument(interpreter, arguments, 0, "prefix");
  if (affix == nullptr) return {};
  if (name == "removeprefix" && text.bytes().starts_with(affix->bytes()))
    return interpreter.MakeText(text.Slice(affix->size(), text.size()));
  if (name == "removesuffix" && text.bytes().ends_with(affix->bytes()))
    return interpreter.MakeText(text.Slice(0, text.size() - affix->size()));
  return interpreter.MakeText(text);
}

Value StringMethod(Interpreter& interpreter, const Value& self, const std::string& name, const Arguments& arguments) {
  const OriginText& text = *self.text();
  if (!interpreter.ChargeBytes(text.size())) return {};
  if (name == "strip" || name == "lstrip" || name == "rstrip") return StripText(interpreter, name, text, arguments);
  if (name == "split" || name == "rsplit") return SplitText(interpreter, text, arguments, name == "rsplit");
  if (name == "startswith" || name == "endswith")
    return Affix(interpreter, text.bytes(), arguments, name == "startswith");
  if (name == "upper") return interpreter.MakeText(ChangeCase(text, Case::kUpper));
  if (name == "lower") return interpreter.MakeText(ChangeCase(text, Case::kLower));
  if (name == "title") return interpreter.MakeText(ChangeCase(text, Case::kTitle));
  if (name == "capitalize") return interpreter.MakeText(ChangeCase(text, Case::kCapitalize));
  if (name == "replace") return ApplyFilter(interpreter, "replace", self, arguments);
  if (name == "removeprefix" || name == "removesuffix") return RemoveAffix(interpreter, name, text, arguments);
  if (name == "splitlines") {
    const Value* keep = arguments.Get(0, "keepends");
    return TextsToList(interpreter, SplitLines(text, keep != nullptr && IsTrue(*keep)));
  }
  if (name == "join") {
    const Value* items = arguments.Get(0, "iterable");
    if (items == nullptr) interpreter.Fail("join wants a list");
    return items == nullptr ? Value() : ApplyFilter(interpreter, "join", *items, Arguments{{self}, {}});
  }
  if (name.starts_with("is")) return ClassTest(name, text);
  return FindText(interpreter, name, text.bytes(), arguments);
}

Value DictMethod(Interpreter& interpreter, const Value& self, const std::string& name, const Arguments& arguments) {
  if (name == "items") return ApplyFilter(interpreter, "items", self, {});
  if (name == "copy") return self;
  if (name == "keys") return interpreter.MakeList(interpreter.Iterate(self));
  if (name == "values") {
    std::vector<Value> values;
    for (const auto& entry : self.dict()->entries) values.push_back(entry.second);
    return interpreter.MakeList(std::move(values));
  }
  const Value *key = arguments.Get(0, "key"), *fallback = arguments.Get(1, "default");
  if (key == nullptr) {
    interpreter.Fail("get wants a key");
    return {};
  }
  if (!interpreter.Charge(static_cast<int64_t>(self.dict()->entries.size()))) return {};
  const Value* value = self.dict()->Find(*key);
  return value != nullptr ? *value : fallback != nullptr ? *fallback : Value::OfNone();
}

Value ListMethod(Interpreter& interpreter, const Value& self, const std::string& name, const Arguments& arguments) {
  const Value* wanted = arguments.Get(0, "value");
  if (wanted == nullptr) {
    interpreter.Fail(name + " wants a value");
    return {};
  }
  int64_t count = 0;
  const std::vector<Value>& items = self.list()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!interpreter.AreEqual(items[i], *wanted)) continue;
    if (name == "index") return Value::Of(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") interpreter.Fail("value is not in list");
  return Value::Of(count);
}

Value Cycle(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    interpreter.Fail("no items for cycling given");
    return {};
  }
  return arguments.positional[self.loop()->index0 % arguments.positional.size()];
}

}  // namespace

std::optional<Value> FindMethod(const Value& object, const std::string& name) {
  const bool container = object.dict() != nullptr || (object.list() != nullptr && !object.list()->is_tuple);
  if (container && IsOneOf(name, kUnsafe)) {
    return Value::Missing("access to attribute '" + name + "' of '" + TypeName(object) + "' object is unsafe");
  }
  const bool known = (object.is_string() && (IsOneOf(name, kStringMethods) || IsOneOf(name, kUnsupported))) ||
                     (object.dict() != nullptr && IsOneOf(name, kDictMethods)) ||
                     (object.list() != nullptr && IsOneOf(name, kListMethods));
  if (!known) return std::nullopt;
  return Value(Value::Data(std::make_shared<const Callable>(Callable{Callable::Kind::kMethod, name, object, nullptr})));
}

Value CallMethod(Interpreter& interpreter, const Value& object, const std::string& name, const Arguments& arguments) {
  if (object.is_string() && IsOneOf(name, kStringMethods)) return StringMethod(interpreter, object, name, arguments);
  if (object.dict() != nullptr && IsOneOf(name, kDictMethods)) return DictMethod(interpreter, object, name, arguments);
  if (object.list() != nullptr && IsOneOf(name, kListMethods)) return ListMethod(interpreter, object, name, arguments);
  if (object.loop() != nullptr) return Cycle(interpreter, object, arguments);
  interpreter.Fail("method '" + name + "' of '" + TypeName(object) + "' is not supported");
  return {};
}

}  // namespace invar::models::jinja
