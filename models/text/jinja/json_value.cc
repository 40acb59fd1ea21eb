// See json_value.h.
#include "models/text/jinja/json_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "models/text/unicode.h"

namespace invar::models::jinja {
namespace {

using Json = nlohmann::json;

// Builds a Value from the parser's events, on a stack of open containers.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return Add(Value::OfNone()); }
  bool boolean(const bool value) override { return Add(Value::Of(value)); }
  bool number_integer(const number_integer_t value) override { return Add(Value::Of(int64_t{value})); }
  bool number_unsigned(const number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return Fail("integer " + std::to_string(value) + " exceeds 64 bits");
    return Add(Value::Of(static_cast<int64_t>(value)));
  }
  bool number_float(const number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == string_t::npos) return Fail("integer " + text.substr(0, 40) + " exceeds 64 bits");
    return Add(Value::Of(double{value}));
  }
  bool string(string_t& text) override { return Add(Value::Of(OriginText(text, ControlTokens::kStayText))); }
  bool binary(binary_t&) override { return Fail("binary values"); }
  bool start_object(size_t) override { return Open(true); }
  bool start_array(size_t) override { return Open(false); }
  bool key(string_t& name) override {
    if (!open_.back().keys.insert(name).second) return Fail("duplicate key \"" + name + "\"");
    open_.back().key = Value::Of(OriginText(name, ControlTokens::kStayText));
    return true;
  }
  bool end_object() override {
    Dict dict = std::move(open_.back().dict);
    open_.pop_back();
    return Add(Value::OfDict(std::move(dict)));
  }
  bool end_array() override {
    std::vector<Value> items = std::move(open_.back().items);
    open_.pop_back();
    return Add(Value::OfList(std::move(items)));
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return Fail(error.what());
  }

  const std::string& error() const { return error_; }
  Value Take() { return std::move(result_); }

 private:
  struct Container {
    bool is_object;
    Value key;
    Dict dict;
    std::vector<Value> items;
    std::unordered_set<std::string> keys;
  };

  bool Fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  bool Open(const bool is_object) {
    if (open_.size() >= kMaxValueDepth / 2) return Fail("nested deeper than " + std::to_string(kMaxValueDepth / 2));
    open_.push_back({.is_object = is_object, .key = {}, .dict = {}, .items = {}, .keys = {}});
    return true;
  }
  bool Add(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().dict.entries.emplace_back(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Container> open_;
  Value result_;
  std::string error_;
};

void AppendEscaped(const int32_t c, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[c >> shift & 15];
}

// One character inside a JSON string.
std::string JsonChar(const std::string_view bytes, const int32_t c, const bool ascii) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  std::string out;
  if ((c >= 0 && c < 0x20) || (ascii && c >= 0x7F && c < 0x10000)) {
    AppendEscaped(c, out);
  } else if (ascii && c >= 0x10000) {
    AppendEscaped(0xD800 + ((c - 0x10000) >> 10), out);
    AppendEscaped(0xDC00 + ((c - 0x10000) & 0x3FF), out);
  } else {
    out = bytes;
  }
  return out;
}

void AppendJsonString(const OriginText& text, const bool ascii, OriginText& out) {
  out.Append("\"", ControlTokens::kParse);
  const std::string_view bytes = text.bytes();
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = DecodeUtf8(bytes, i);
    out.Append(JsonChar(bytes.substr(i, c.bytes), c.code_point, ascii), text.OriginAt(i));
    i += c.bytes;
  }
  out.Append("\"", ControlTokens::kParse);
}

std::string Newline(const JsonFormat& format, const int level) {
  if (format.indent < 0) return {};
  std::string out = "\n";
  for (int i = 0; i < level; ++i)
    out += format.indent_text.empty() ? std::string(format.indent, ' ') : format.indent_text;
  return out;
}

// Numbers, bools and None; empty where the value is something else.
std::string JsonScalar(const Value& value) {
  if (value.is_none()) return "null";
  if (value.is_bool()) return IsTrue(value) ? "true" : "false";
  if (value.is_int()) return std::to_string(*value.AsInt());
  if (!value.is_float()) return {};
  const std::string repr = FloatRepr(value.AsDouble());
  return repr == "nan" ? "NaN" : repr == "inf" ? "Infinity" : repr == "-inf" ? "-Infinity" : repr;
}

}  // namespace

StatusOr<Value> ParseJsonValue(const std::string_view json, const std::string& field) {
  Builder builder;
  const bool ok = Json::sax_parse(json.begin(), json.end(), &builder);
  if (!ok) return InvalidArgument(field + ": not usable JSON: " + builder.error(), field);
  return builder.Take();
}

bool AppendJson(const Value& value, const JsonFormat& format, const int level, int64_t& work, const int64_t max_work,
                OriginText& out) {
  const size_t before = out.size();
  const auto separator = [&](bool first, int at) {
    if (!first)
      out.Append(format.indent >= 0 && format.item_separator == ", " ? "," : format.item_separator,
                 ControlTokens::kParse);
    out.Append(Newline(format, at), ControlTokens::kParse);
  };
  const auto spend = [&] {
    work += static_cast<int64_t>(out.size() - before) / 2 + 16;
    return work <= max_work;
  };
  if (value.is_string()) {
    AppendJsonString(*value.text(), format.ascii, out);
  } else if (const List* list = value.list()) {
    out.Append("[", ControlTokens::kParse);
    for (size_t i = 0; i < list->items.size(); ++i) {
      separator(i == 0, level + 1);
      if (!AppendJson(list->items[i], format, level + 1, work, max_work, out)) return false;
    }
    if (!list->items.empty()) out.Append(Newline(format, level), ControlTokens::kParse);
    out.Append("]", ControlTokens::kParse);
  } else if (const Dict* dict = value.dict()) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict->entries) entries.push_back(&entry);
    if (format.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return a->first.bytes() < b->first.bytes(); });
    }
    out.Append("{", ControlTokens::kParse);
    bool first = true;
    for (const auto* entry : entries) {
      separator(std::exchange(first, false), level + 1);
      if (entry->first.is_string()) {
        AppendJsonString(*entry->first.text(), format.ascii, out);
      } else {
        const std::string key = JsonScalar(entry->first);
        if (key.empty()) return false;
        out.Append("\"" + key + "\"", ControlTokens::kParse);
      }
      out.Append(format.key_separator, ControlTokens::kParse);
      if (!AppendJson(entry->second, format, level + 1, work, max_work, out)) return false;
    }
    if (!entries.empty()) out.Append(Newline(format, level), ControlTokens::kParse);
    out.Append("}", ControlTokens::kParse);
  } else {
    const std::string scalar = JsonScalar(value);
    if (scalar.empty()) return false;
    out.Append(scalar, ControlTokens::kParse);
  }
  return spend();
}

}  // namespace invar::models::jinja
