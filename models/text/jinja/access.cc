// Members, items, iteration, comparison and string forms of values. See interpreter.h.
#include <utf8proc.h>

#include <algorithm>

#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/strings.h"
#include "models/text/unicode.h"

namespace invar::models::jinja {
namespace {

// Python's type names as jinja2 puts them into messages.
std::string Describe(const Value& value) { return value.is_none() ? "None" : "'" + TypeName(value) + " object'"; }

Value LoopAttribute(const Value& object, const std::string& name) {
  const Loop& loop = *object.loop();
  const int64_t index = static_cast<int64_t>(loop.index0), count = static_cast<int64_t>(loop.items->size());
  if (name == "index") return Value::Of(index + 1);
  if (name == "index0") return Value::Of(index);
  if (name == "revindex") return Value::Of(count - index);
  if (name == "revindex0") return Value::Of(count - index - 1);
  if (name == "first") return Value::Of(index == 0);
  if (name == "last") return Value::Of(index + 1 == count);
  if (name == "length") return Value::Of(count);
  // Only recursive loops, which are not supported, go deeper.
  if (name == "depth") return Value::Of(int64_t{1});
  if (name == "depth0") return Value::Of(int64_t{0});
  if (name == "previtem") return index > 0 ? (*loop.items)[index - 1] : Value::Missing("there is no previous item");
  if (name == "nextitem") return index + 1 < count ? (*loop.items)[index + 1] : Value::Missing("there is no next item");
  return Value::Missing("'loop' has no attribute '" + name + "'");
}

// Whether repr() of a string shows `c` as it is.
bool IsPrintable(const int32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string HexEscape(const int32_t c) {
  const char letter = c < 0x100 ? 'x' : c < 0x10000 ? 'u' : 'U';
  std::string out = {'\\', letter};
  for (int shift = c < 0x100 ? 4 : c < 0x10000 ? 12 : 28; shift >= 0; shift -= 4)
    out += "0123456789abcdef"[c >> shift & 15];
  return out;
}

}  // namespace

const Value* Arguments::Get(const size_t index, const std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Interpreter::FailUndefined(const Value& value) {
  if (failed()) return;
  const std::string& what = value.undefined()->what;
  Fail(what.empty() ? "a value is undefined" : what);
}

Value Interpreter::GetAttribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) {
    FailUndefined(object);
    return {};
  }
  if (object.loop() != nullptr) {
    if (name != "cycle") return LoopAttribute(object, name);
    return Value(
        Value::Data(std::make_shared<const Callable>(Callable{Callable::Kind::kMethod, name, object, nullptr})));
  }
  if (Namespace* space = object.name_space()) {
    const Value* value = space->Find(name);
    return value != nullptr ? *value : Value::Missing("'namespace' has no attribute '" + name + "'");
  }
  // As in Python, a method hides a key of the same name.
  if (std::optional<Value> method = FindMethod(object, name)) return *std::move(method);
  if (const Dict* dict = object.dict()) {
    if (!Charge(static_cast<int64_t>(dict->entries.size()))) return {};
    if (const Value* value = dict->Find(name)) return *value;
  }
  return Value::Missing(Describe(object) + " has no attribute '" + name + "'");
}

Value Interpreter::GetItem(const Value& object, const Value& index) {
  if (failed()) return {};
  if (object.is_undefined()) {
    FailUndefined(object);
    return {};
  }
  if (const Dict* dict = object.dict()) {
    if (!Charge(static_cast<int64_t>(dict->entries.size()))) return {};
    if (const Value* value = dict->Find(index)) return *value;
  }
  const std::optional<int64_t> number = index.AsInt();
  if (const List* list = object.list(); list != nullptr && number) {
    const int64_t size = static_cast<int64_t>(list->items.size()), i = *number < 0 ? *number + size : *number;
    return i >= 0 && i < size ? list->items[i]
                              : Value::Missing("list index " + std::to_string(*number) + " out of range");
  }
  if (const OriginText* text = object.text(); text != nullptr && number) {
    if (!ChargeBytes(text->size() * 8)) return {};
    const std::vector<size_t> offsets = CharOffsets(text->bytes());
    const int64_t size = static_cast<int64_t>(offsets.size()) - 1, i = *number < 0 ? *number + size : *number;
    if (i < 0 || i >= size) return Value::Missing("string index " + std::to_string(*number) + " out of range");
    return MakeText(text->Slice(offsets[i], offsets[i + 1]));
  }
  if (index.is_string()) {
    if (object.dict() == nullptr) return GetAttribute(object, std::string(index.bytes()));
    if (std::optional<Value> method = FindMethod(object, std::string(index.bytes()))) return *std::move(method);
    return Value::Missing(Describe(object) + " has no attribute '" + std::string(index.bytes()) + "'");
  }
  return Value::Missing(Describe(object) + " has no such item");
}

std::vector<Value> Interpreter::Iterate(const Value& value) {
  std::vector<Value> items;
  if (failed() || value.is_undefined()) return items;
  if (const List* list = value.list()) {
    if (Charge(static_cast<int64_t>(list->items.size()) * 8)) items = list->items;
  } else if (const Dict* dict = value.dict()) {
    if (Charge(static_cast<int64_t>(dict->entries.size()) * 8)) {
      for (const auto& entry : dict->entries) items.push_back(entry.first);
    }
  } else if (const OriginText* text = value.text()) {
    if (!Charge(static_cast<int64_t>(text->size()) * 32)) return items;
    const std::vector<size_t> offsets = CharOffsets(text->bytes());
    for (size_t i = 0; i + 1 < offsets.size(); ++i) items.push_back(Value::Of(text->Slice(offsets[i], offsets[i + 1])));
  } else {
    Fail("'" + TypeName(value) + "' object is not iterable");
  }
  return items;
}

std::optional<int64_t> Interpreter::Length(const Value& value) {
  if (failed()) return std::nullopt;
  if (value.is_undefined()) return 0;
  if (value.list() != nullptr) return static_cast<int64_t>(value.list()->items.size());
  if (value.dict() != nullptr) return static_cast<int64_t>(value.dict()->entries.size());
  if (value.is_string()) return ChargeBytes(value.bytes().size()) ? CharCount(value.bytes()) : 0;
  Fail("object of type '" + TypeName(value) + "' has no length");
  return std::nullopt;
}

bool Interpreter::Contains(const Value& container, const Value& item) {
  if (failed() || container.is_undefined()) return false;
  if (container.is_string()) {
    if (!item.is_string()) {
      if (item.is_undefined()) {
        FailUndefined(item);
      } else {
        Fail("'in <string>' wants a string on its left, found '" + TypeName(item) + "'");
      }
      return false;
    }
    return ChargeBytes(container.bytes().size()) &&
           FindFirst(container.bytes(), item.bytes()) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) {
    return Charge(static_cast<int64_t>(dict->entries.size())) && dict->Find(item) != nullptr;
  }
  if (const List* list = container.list()) {
    return std::any_of(list->items.begin(), list->items.end(), [&](const Value& v) { return AreEqual(v, item); });
  }
  Fail("argument of type '" + TypeName(container) + "' is not iterable");
  return false;
}

bool Interpreter::AreEqual(const Value& a, const Value& b) {
  int64_t work = 0;
  const bool equal = Equal(a, b, work);
  return Charge(work > kMaxComparisonWork ? work_left_ + 1 : work * 8) && equal;
}

bool Interpreter::IsLess(const Value& a, const Value& b) {
  if (failed()) return false;
  if (a.is_undefined() || b.is_undefined()) {
    FailUndefined(a.is_undefined() ? a : b);
    return false;
  }
  int64_t work = 0;
  const std::optional<bool> less = Less(a, b, work);
  if (work > kMaxComparisonWork) Charge(work_left_ + 1);
  if (!less) Fail("'" + TypeName(a) + "' and '" + TypeName(b) + "' have no order");
  return Charge(work * 8) && less.value_or(false);
}

OriginText Interpreter::ToText(const Value& value) {
  if (value.is_string()) return *value.text();
  OriginText out;
  AppendText(value, false, out);
  return out;
}

void Interpreter::AppendText(const Value& value, const bool repr, OriginText& out) {
  if (failed() || !Charge(16)) return;
  const auto append = [&](std::string_view text) { out.Append(text, ControlTokens::kParse); };
  if (value.is_undefined()) {
    if (repr) append("Undefined");
  } else if (value.is_none()) {
    append("None");
  } else if (value.is_bool()) {
    append(IsTrue(value) ? "True" : "False");
  } else if (value.is_int()) {
    append(std::to_string(*value.AsInt()));
  } else if (value.is_float()) {
    append(FloatRepr(value.AsDouble()));
  } else if (const OriginText* text = value.text()) {
    if (!ChargeBytes(text->size())) return;
    repr ? AppendRepr(*text, out) : out.Append(*text);
  } else if (const List* list = value.list()) {
    append(list->is_tuple ? "(" : "[");
    for (size_t i = 0; i < list->items.size() && !failed(); ++i) {
      if (i > 0) append(", ");
      AppendText(list->items[i], true, out);
    }
    append(list->is_tuple ? list->items.size() == 1 ? ",)" : ")" : "]");
  } else if (const Dict* dict = value.dict()) {
    append("{");
    for (size_t i = 0; i < dict->entries.size() && !failed(); ++i) {
      if (i > 0) append(", ");
      AppendText(dict->entries[i].first, true, out);
      append(": ");
      AppendText(dict->entries[i].second, true, out);
    }
    append("}");
  } else {
    Fail("a " + TypeName(value) + " cannot be printed");
  }
}

void Interpreter::AppendRepr(const OriginText& text, OriginText& out) {
  const std::string_view bytes = text.bytes();
  const char quote =
      bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos ? '"' : '\'';
  out.Append(std::string_view(&quote, 1), ControlTokens::kParse);
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = DecodeUtf8(bytes, i);
    std::string shown(bytes.substr(i, c.bytes));
    if (c.code_point == quote || c.code_point == '\\') {
      shown.insert(0, 1, '\\');
    } else if (c.code_point == '\n' || c.code_point == '\r' || c.code_point == '\t') {
      shown = c.code_point == '\n' ? "\\n" : c.code_point == '\r' ? "\\r" : "\\t";
    } else if (c.code_point >= 0 && !IsPrintable(c.code_point)) {
      shown = HexEscape(c.code_point);
    }
    out.Append(shown, text.OriginAt(i));
    i += c.bytes;
  }
  out.Append(std::string_view(&quote, 1), ControlTokens::kParse);
}

}  // namespace invar::models::jinja
