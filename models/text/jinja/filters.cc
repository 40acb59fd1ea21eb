// Filters. Each is a function of the interpreter, the input and the arguments; the table at the end names them.
// map, select and their kin give lists where jinja2 gives generators. `safe` changes nothing, since nothing is escaped.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "models/text/jinja/builtins.h"
#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/json_value.h"
#include "models/text/jinja/strings.h"

namespace invar::models::jinja {
namespace {

using Filter = Value (*)(Interpreter&, const Value&, const Arguments&);

bool BoolArgument(const Arguments& arguments, const size_t index, const std::string_view name, const bool fallback) {
  const Value* value = arguments.Get(index, name);
  return value == nullptr ? fallback : IsTrue(*value);
}

std::string BytesArgument(Interpreter& interpreter, const Arguments& arguments, const size_t index,
                          const std::string_view name) {
  const Value* value = arguments.Get(index, name);
  return value == nullptr || value->is_none() ? std::string() : interpreter.ToText(*value).bytes();
}

// `value.a.b.0`, the way map(attribute="a.b.0") reads members.
Value ReadPath(Interpreter& interpreter, Value value, const std::string& path) {
  for (size_t begin = 0; begin <= path.size() && !interpreter.failed();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const bool number = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    value = number ? interpreter.GetItem(value, Value::Of(int64_t{std::stol(part)}))
                   : interpreter.GetItem(value, Value::OfTemplate(part));
    begin = end + 1;
  }
  return value;
}

Value Trim(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const std::string chars = BytesArgument(interpreter, arguments, 0, "chars");
  return interpreter.MakeText(Strip(interpreter.ToText(input), chars, Side::kBoth));
}

Value String(Interpreter& interpreter, const Value& input, const Arguments&) {
  return input.is_string() ? input : interpreter.MakeText(interpreter.ToText(input));
}

template <Case to>
Value Recase(Interpreter& interpreter, const Value& input, const Arguments&) {
  return interpreter.MakeText(ChangeCase(interpreter.ToText(input), to));
}

Value LengthOf(Interpreter& interpreter, const Value& input, const Arguments&) {
  return Value::Of(interpreter.Length(input).value_or(0));
}

Value ToJson(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  JsonFormat format;
  if (const Value* indent = arguments.Get(1, "indent"); indent != nullptr && !indent->is_none()) {
    format.indent = static_cast<int>(std::clamp<int64_t>(indent->AsInt().value_or(0), 0, 64));
    format.indent_text = indent->bytes();
  }
  if (const Value* separators = arguments.Get(2, "separators"); separators != nullptr && !separators->is_none()) {
    const List* pair = separators->list();
    if (pair == nullptr || pair->items.size() != 2) {
      interpreter.Fail("tojson wants two separators");
      return {};
    }
    format.item_separator = interpreter.ToText(pair->items[0]).bytes();
    format.key_separator = interpreter.ToText(pair->items[1]).bytes();
  }
  format.ascii = BoolArgument(arguments, 0, "ensure_ascii", false);
  format.sort_keys = BoolArgument(arguments, 3, "sort_keys", false);
  OriginText out;
  int64_t work = 0;
  if (!AppendJson(input, format, 0, work, interpreter.work_left(), out) && work <= interpreter.work_left()) {
    interpreter.Fail("a value of type '" + TypeName(input) + "' or inside it has no JSON form");
    return {};
  }
  return interpreter.Charge(work) ? Value::Of(std::move(out)) : Value();
}

Value Items(Interpreter& interpreter, const Value& input, const Arguments&) {
  std::vector<Value> items;
  if (const Dict* dict = input.dict()) {
    for (const auto& [key, value] : dict->entries) items.push_back(interpreter.MakeList({key, value}, true));
  } else if (!input.is_undefined()) {
    interpreter.Fail("items wants a mapping, found '" + TypeName(input) + "'");
  }
  return interpreter.MakeList(std::move(items));
}

Value Safe(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  return String(interpreter, input, arguments);
}

Value Join(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Value* separator = arguments.Get(0, "d");
  const OriginText between = separator == nullptr ? OriginText() : interpreter.ToText(*separator);
  const std::string path = BytesArgument(interpreter, arguments, 1, "attribute");
  OriginText out;
  bool first = true;
  for (const Value& item : interpreter.Iterate(input)) {
    if (interpreter.failed()) return {};
    if (!std::exchange(first, false)) out.Append(between);
    const OriginText text = interpreter.ToText(path.empty() ? item : ReadPath(interpreter, item, path));
    if (!interpreter.ChargeBytes(text.size() + between.size())) return {};
    out.Append(text);
  }
  return interpreter.MakeText(std::move(out));
}

Value First(Interpreter& interpreter, const Value& input, const Arguments&) {
  const std::vector<Value> items = interpreter.Iterate(input);
  return items.empty() ? Value::Missing("No first item, sequence was empty.") : items.front();
}

Value Last(Interpreter& interpreter, const Value& input, const Arguments&) {
  const std::vector<Value> items = interpreter.Iterate(input);
  return items.empty() ? Value::Missing("No last item, sequence was empty.") : items.back();
}

Value ToList(Interpreter& interpreter, const Value& input, const Arguments&) {
  return interpreter.MakeList(interpreter.Iterate(input));
}

Value Reverse(Interpreter& interpreter, const Value& input, const Arguments&) {
  std::vector<Value> items = interpreter.Iterate(input);
  std::reverse(items.begin(), items.end());
  if (!input.is_string()) return interpreter.MakeList(std::move(items));
  OriginText out;
  for (const Value& item : items) out.Append(*item.text());
  return interpreter.MakeText(std::move(out));
}

// Arguments from `count` on: what map and select pass to the filter or test they name.
Arguments Rest(const Arguments& arguments, const size_t count) {
  Arguments rest;
  if (arguments.positional.size() > count)
    rest.positional.assign(arguments.positional.begin() + count, arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

Value Map(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  std::vector<Value> out;
  const Value* attribute = arguments.positional.empty() ? arguments.Get(0, "attribute") : nullptr;
  const std::string path = attribute == nullptr ? std::string() : interpreter.ToText(*attribute).bytes();
  const std::string filter =
      arguments.positional.empty() ? std::string() : std::string(arguments.positional[0].bytes());
  if (attribute == nullptr && !IsFilter(filter)) {
    interpreter.Fail("map wants an attribute or a known filter, found '" + filter + "'");
    return {};
  }
  const Value* fallback = attribute == nullptr ? nullptr : arguments.Get(1, "default");
  if (!IsTrue(input)) return interpreter.MakeList({});  // As jinja2, which lets None pass.
  for (const Value& item : interpreter.Iterate(input)) {
    if (interpreter.failed() || !interpreter.Charge(32)) return {};
    Value mapped = attribute != nullptr ? ReadPath(interpreter, item, path)
                                        : ApplyFilter(interpreter, filter, item, Rest(arguments, 1));
    out.push_back(mapped.is_undefined() && fallback != nullptr ? *fallback : std::move(mapped));
  }
  return interpreter.MakeList(std::move(out));
}

// select, reject, selectattr and rejectattr.
template <bool keep, bool by_attribute>
Value Select(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const std::string path = by_attribute ? BytesArgument(interpreter, arguments, 0, "attribute") : std::string();
  constexpr size_t kTestAt = by_attribute ? 1 : 0;
  const bool has_test = arguments.positional.size() > kTestAt;
  const std::string test = has_test ? std::string(arguments.positional[kTestAt].bytes()) : std::string();
  if (has_test && !IsTest(test)) {
    interpreter.Fail("test '" + test + "' is not supported");
    return {};
  }
  std::vector<Value> out;
  if (!IsTrue(input)) return interpreter.MakeList({});  // As jinja2, which lets None pass.
  for (const Value& item : interpreter.Iterate(input)) {
    if (interpreter.failed() || !interpreter.Charge(32)) return {};
    const Value subject = by_attribute ? ReadPath(interpreter, item, path) : item;
    const bool holds = has_test ? ApplyTest(interpreter, test, subject, Rest(arguments, kTestAt + 1)) : IsTrue(subject);
    if (holds == keep) out.push_back(item);
  }
  return interpreter.MakeList(std::move(out));
}

Value Default(Interpreter&, const Value& input, const Arguments& arguments) {
  const Value* value = arguments.Get(0, "default_value");
  const bool use_default = input.is_undefined() || (BoolArgument(arguments, 1, "boolean", false) && !IsTrue(input));
  if (!use_default) return input;
  return value == nullptr ? Value::OfTemplate("") : *value;
}

Value ReplaceText(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Value *from = arguments.Get(0, "old"), *to = arguments.Get(1, "new"), *count = arguments.Get(2, "count");
  if (from == nullptr || to == nullptr) {
    interpreter.Fail("replace wants two strings");
    return {};
  }
  const OriginText text = interpreter.ToText(input), wanted = interpreter.ToText(*from), with = interpreter.ToText(*to);
  const int64_t limit = count == nullptr || count->is_none() ? -1 : count->AsInt().value_or(-1);
  // The result holds at most one copy of `with` for every byte of the text, so charge before making it.
  const int64_t copies = static_cast<int64_t>(text.size() / std::max<size_t>(1, wanted.size())) + 1;
  if (static_cast<int64_t>(with.size()) > 2 * interpreter.work_left() / copies) {
    interpreter.Charge(interpreter.work_left() + 1);
    return {};
  }
  return interpreter.MakeText(Replace(text, wanted.bytes(), with, limit));
}

Value ToInt(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Value* fallback = arguments.Get(0, "default");
  if (input.AsInt()) return Value::Of(*input.AsInt());
  if (input.is_float() && std::abs(input.AsDouble()) < 9.2e18) return Value::Of(static_cast<int64_t>(input.AsDouble()));
  if (input.is_string()) {
    std::string text = Strip(*input.text(), "", Side::kBoth).bytes();
    if (text.starts_with('+')) text.erase(0, 1);
    int64_t value = 0;
    const auto whole = std::from_chars(text.data(), text.data() + text.size(), value);
    if (whole.ec == std::errc() && whole.ptr == text.data() + text.size()) return Value::Of(value);
    double real = 0;
    const auto fraction = std::from_chars(text.data(), text.data() + text.size(), real);
    if (fraction.ec == std::errc() && fraction.ptr == text.data() + text.size() && std::abs(real) < 9.2e18) {
      return Value::Of(static_cast<int64_t>(real));
    }
  } else if (input.is_undefined()) {
    interpreter.Fail(input.undefined()->what);
  }
  return fallback == nullptr ? Value::Of(int64_t{0}) : *fallback;
}

Value ToFloat(Interpreter&, const Value& input, const Arguments& arguments) {
  const Value* fallback = arguments.Get(0, "default");
  if (input.is_number()) return Value::Of(input.AsDouble());
  if (input.is_string()) {
    const std::string text = Strip(*input.text(), "", Side::kBoth).bytes();
    double real = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), real);
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) return Value::Of(real);
  }
  return fallback == nullptr ? Value::Of(0.0) : *fallback;
}

Value Abs(Interpreter& interpreter, const Value& input, const Arguments&) {
  if (input.is_float()) return Value::Of(std::abs(input.AsDouble()));
  if (!input.AsInt() || *input.AsInt() == INT64_MIN) {
    interpreter.Fail("abs wants a number, found '" + TypeName(input) + "'");
    return {};
  }
  return Value::Of(std::abs(*input.AsInt()));
}

Value Round(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Value* precision = arguments.Get(0, "precision");
  const std::string method = BytesArgument(interpreter, arguments, 1, "method");
  if (!input.is_number() || (!method.empty() && method != "common" && method != "ceil" && method != "floor")) {
    interpreter.Fail("round wants a number and common, ceil or floor");
    return {};
  }
  const int64_t digits = precision == nullptr ? 0 : precision->AsInt().value_or(0);
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (method == "ceil") return Value::Of(std::ceil(input.AsDouble() * scale) / scale);
  if (method == "floor") return Value::Of(std::floor(input.AsDouble() * scale) / scale);
  if (digits < 0) return Value::Of(std::nearbyint(input.AsDouble() * scale) / scale);
  // By the exact value, as Python does: 2.675 lies below its middle, though 267.5 does not. A double has no more
  // digits.
  constexpr int64_t kDigitsMax = 1074;
  return Value::Of(std::stod(fmt::format("{:.{}f}", input.AsDouble(), std::min(digits, kDigitsMax))));
}

// The value that sorting and uniqueness compare: strings without case unless asked for.
Value SortKey(Interpreter& interpreter, const Value& item, const std::string& path, const bool case_sensitive) {
  Value key = path.empty() ? item : ReadPath(interpreter, item, path);
  if (!case_sensitive && key.is_string()) return interpreter.MakeText(ChangeCase(*key.text(), Case::kLower));
  return key;
}

// Items in the order of their keys; stable.
std::vector<Value> SortBy(Interpreter& interpreter, const std::vector<Value>& items, const std::vector<Value>& keys,
                          const bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Types without an order would break the sort's contract, so they are looked for first.
  for (size_t i = 0; i + 1 < keys.size() && !interpreter.failed(); ++i) interpreter.IsLess(keys[i], keys[i + 1]);
  if (interpreter.failed()) return {};
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (interpreter.failed()) return false;
    return reverse ? interpreter.IsLess(keys[b], keys[a]) : interpreter.IsLess(keys[a], keys[b]);
  });
  std::vector<Value> out;
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

Value Sort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const std::vector<Value> items = interpreter.Iterate(input);
  const bool case_sensitive = BoolArgument(arguments, 1, "case_sensitive", false);
  const std::string path = BytesArgument(interpreter, arguments, 2, "attribute");
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(SortKey(interpreter, item, path, case_sensitive));
  return interpreter.MakeList(SortBy(interpreter, items, keys, BoolArgument(arguments, 0, "reverse", false)));
}

Value DictSort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Value items = Items(interpreter, input, {});
  if (interpreter.failed()) return {};
  const bool case_sensitive = BoolArgument(arguments, 0, "case_sensitive", false);
  const std::string path = BytesArgument(interpreter, arguments, 1, "by") == "value" ? "1" : "0";
  std::vector<Value> keys;
  for (const Value& item : items.list()->items) keys.push_back(SortKey(interpreter, item, path, case_sensitive));
  return interpreter.MakeList(
      SortBy(interpreter, items.list()->items, keys, BoolArgument(arguments, 2, "reverse", false)));
}

Value Unique(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const bool case_sensitive = BoolArgument(arguments, 0, "case_sensitive", false);
  const std::string path = BytesArgument(interpreter, arguments, 1, "attribute");
  std::vector<Value> out, seen;
  for (const Value& item : interpreter.Iterate(input)) {
    if (interpreter.failed()) return {};
    const Value key = SortKey(interpreter, item, path, case_sensitive);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& v) { return interpreter.AreEqual(v, key); })) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return interpreter.MakeList(std::move(out));
}

template <bool greatest>
Value Extreme(Interpreter& interpreter, const Value& input, const Arguments&) {
  Value best = Value::Missing("No aggregated item, sequence was empty.");
  for (const Value& item : interpreter.Iterate(input)) {
    if (interpreter.failed()) return {};
    if (best.is_undefined() || (greatest ? interpreter.IsLess(best, item) : interpreter.IsLess(item, best)))
      best = item;
  }
  return best;
}

Value Indent(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Value* width = arguments.Get(0, "width");
  const bool first = BoolArgument(arguments, 1, "first", false), blank = BoolArgument(arguments, 2, "blank", false);
  const std::string margin =
      width != nullptr && width->is_string()
          ? std::string(width->bytes())
          : std::string(std::clamp<int64_t>(width == nullptr ? 4 : width->AsInt().value_or(4), 0, 256), ' ');
  OriginText text = interpreter.ToText(input);
  text.Append("\n", ControlTokens::kParse);  // As jinja2 does, so that a last empty line is seen.
  if (!interpreter.ChargeBytes(text.size() * (margin.size() + 1))) return {};
  OriginText out;
  bool at_first = true;
  for (const OriginText& line : SplitLines(text, false)) {
    if (!at_first) out.Append("\n", ControlTokens::kParse);
    if (at_first ? first : blank || !line.empty()) out.Append(margin, ControlTokens::kParse);
    out.Append(line);
    at_first = false;
  }
  return interpreter.MakeText(std::move(out));
}

// Members only: unlike a dot, it does not look at keys.
Value Attribute(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const std::string name = BytesArgument(interpreter, arguments, 0, "name");
  if (input.dict() == nullptr) return interpreter.GetAttribute(input, name);
  return FindMethod(input, name).value_or(Value::Missing("'dict' has no attribute '" + name + "'"));
}

Value Sum(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const std::string path = BytesArgument(interpreter, arguments, 0, "attribute");
  const Value* start = arguments.Get(1, "start");
  Value total = start == nullptr ? Value::Of(int64_t{0}) : *start;
  for (const Value& item : interpreter.Iterate(input)) {
    if (interpreter.failed()) return {};
    total = interpreter.Add(total, path.empty() ? item : ReadPath(interpreter, item, path));
  }
  return total;
}

struct Entry {
  std::string_view name;
  Filter filter;
};

constexpr std::array<Entry, 36> kFilters = {{{"abs", Abs},
                                             {"attr", Attribute},
                                             {"capitalize", Recase<Case::kCapitalize>},
                                             {"count", LengthOf},
                                             {"d", Default},
                                             {"default", Default},
                                             {"dictsort", DictSort},
                                             {"first", First},
                                             {"float", ToFloat},
                                             {"indent", Indent},
                                             {"int", ToInt},
                                             {"items", Items},
                                             {"join", Join},
                                             {"last", Last},
                                             {"length", LengthOf},
                                             {"list", ToList},
                                             {"lower", Recase<Case::kLower>},
                                             {"map", Map},
                                             {"max", Extreme<true>},
                                             {"min", Extreme<false>},
                                             {"reject", Select<false, false>},
                                             {"rejectattr", Select<false, true>},
                                             {"replace", ReplaceText},
                                             {"reverse", Reverse},
                                             {"round", Round},
                                             {"safe", Safe},
                                             {"select", Select<true, false>},
                                             {"selectattr", Select<true, true>},
                                             {"sort", Sort},
                                             {"string", String},
                                             {"sum", Sum},
                                             {"title", Recase<Case::kTitleWords>},
                                             {"tojson", ToJson},
                                             {"trim", Trim},
                                             {"unique", Unique},
                                             {"upper", Recase<Case::kUpper>}}};

}  // namespace

bool IsFilter(const std::string_view name) {
  return !name.empty() &&
         std::any_of(kFilters.begin(), kFilters.end(), [name](const Entry& e) { return e.name == name; });
}

Value ApplyFilter(Interpreter& interpreter, const std::string_view name, const Value& input,
                  const Arguments& arguments) {
  const auto entry = std::find_if(kFilters.begin(), kFilters.end(), [name](const Entry& e) { return e.name == name; });
  Check(entry != kFilters.end(), "the parser lets known filters pass only", name);
  return entry->filter(interpreter, input, arguments);
}

}  // namespace invar::models::jinja
