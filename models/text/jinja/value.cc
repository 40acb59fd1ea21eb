// See value.h.
#include "models/text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace invar::models::jinja {

const Value* Dict::Find(const std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.bytes() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::Find(const Value& key) const {
  if (key.is_string()) return Find(key.bytes());
  int64_t work = 0;
  for (const auto& [name, value] : entries) {
    if (Equal(name, key, work)) return &value;
  }
  return nullptr;
}

const Value* Namespace::Find(const std::string_view name) const {
  for (const auto& [member, value] : members) {
    if (member == name) return &value;
  }
  return nullptr;
}

void Namespace::Set(const std::string& name, Value value) {
  depth = std::max(depth, Depth(value) + 1);
  for (auto& [member, old] : members) {
    if (member == name) {
      old = std::move(value);
      return;
    }
  }
  members.emplace_back(name, std::move(value));
}

Value Value::OfList(std::vector<Value> items, const bool is_tuple) {
  int depth = 1;
  for (const Value& item : items) depth = std::max(depth, Depth(item) + 1);
  return Value(Data(std::make_shared<const List>(List{std::move(items), is_tuple, depth})));
}

Value Value::OfDict(Dict dict) {
  for (const auto& [key, value] : dict.entries) dict.depth = std::max({dict.depth, Depth(key) + 1, Depth(value) + 1});
  return Value(Data(std::make_shared<const Dict>(std::move(dict))));
}

std::optional<int64_t> Value::AsInt() const {
  if (is_bool()) return std::get<bool>(data_) ? 1 : 0;
  if (is_int()) return std::get<int64_t>(data_);
  return std::nullopt;
}

double Value::AsDouble() const {
  if (is_float()) return std::get<double>(data_);
  return static_cast<double>(AsInt().value_or(0));
}

int Depth(const Value& value) {
  if (value.list() != nullptr) return value.list()->depth;
  if (value.dict() != nullptr) return value.dict()->depth;
  if (value.name_space() != nullptr) return value.name_space()->depth;
  if (value.callable() != nullptr) return Depth(value.callable()->self) + 1;
  return 0;
}

bool IsTrue(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.AsDouble() != 0;
  if (value.is_string()) return !value.bytes().empty();
  if (const List* list = value.list()) return !list->items.empty();
  if (const Dict* dict = value.dict()) return !dict->entries.empty();
  return true;
}

namespace {

bool EqualLists(const List& a, const List& b, int64_t& work) {
  if (a.is_tuple != b.is_tuple || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!Equal(a.items[i], b.items[i], work)) return false;
  }
  return true;
}

bool EqualDicts(const Dict& a, const Dict& b, int64_t& work) {
  if (a.entries.size() != b.entries.size()) return false;
  work += static_cast<int64_t>(a.entries.size() * b.entries.size());
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equal(value, *other, work)) return false;
  }
  return true;
}

}  // namespace

bool Equal(const Value& a, const Value& b, int64_t& work) {
  if (++work > kMaxComparisonWork) return false;
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_number() && b.is_number()) {
    return a.AsInt() && b.AsInt() ? *a.AsInt() == *b.AsInt() : a.AsDouble() == b.AsDouble();
  }
  if (a.is_string() && b.is_string()) {
    work += static_cast<int64_t>(std::min(a.bytes().size(), b.bytes().size()) / 64);
    return a.bytes() == b.bytes();
  }
  if (a.list() != nullptr && b.list() != nullptr) return EqualLists(*a.list(), *b.list(), work);
  if (a.dict() != nullptr && b.dict() != nullptr) return EqualDicts(*a.dict(), *b.dict(), work);
  if (a.name_space() != nullptr) return a.name_space() == b.name_space();
  return a.callable() != nullptr && a.callable() == b.callable();
}

std::optional<bool> Less(const Value& a, const Value& b, int64_t& work) {
  if (++work > kMaxComparisonWork) return std::nullopt;
  if (a.is_number() && b.is_number()) {
    return a.AsInt() && b.AsInt() ? *a.AsInt() < *b.AsInt() : a.AsDouble() < b.AsDouble();
  }
  // UTF-8 sorts as code points do.
  if (a.is_string() && b.is_string()) return a.bytes() < b.bytes();
  const List *x = a.list(), *y = b.list();
  if (x == nullptr || y == nullptr || x->is_tuple != y->is_tuple) return std::nullopt;
  for (size_t i = 0; i < x->items.size() && i < y->items.size(); ++i) {
    if (!Equal(x->items[i], y->items[i], work)) return Less(x->items[i], y->items[i], work);
  }
  return x->items.size() < y->items.size();
}

std::string TypeName(const Value& value) {
  if (value.is_undefined()) return "undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.is_string()) return "str";
  if (value.list() != nullptr) return value.list()->is_tuple ? "tuple" : "list";
  if (value.dict() != nullptr) return "dict";
  if (value.name_space() != nullptr) return "namespace";
  return value.loop() != nullptr ? "loop" : "function";
}

std::string FloatRepr(const double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  // Shortest digits that read back the same; Python writes exponents below -4 and from 16 on.
  const auto scientific = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string text(buffer, scientific.ptr);
  const int exponent = std::stoi(text.substr(text.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  text.assign(buffer, fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

}  // namespace invar::models::jinja
