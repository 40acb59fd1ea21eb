// Values of the template language, with Python's semantics: undefined, None, bool, int, float, str, list, tuple, dict,
// and the objects that templates meet (namespace, loop, callables). Values are immutable and shared, but for
// namespaces.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/text/jinja/origin_text.h"

namespace invar::models::jinja {

class Value;
struct Stmt;

// A name, attribute or item that is not there. Printing it gives nothing, using it is an error that shows `what`.
struct Undefined {
  std::string what;
};
struct None {
  bool operator==(const None&) const = default;
};
struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;  // Of nesting; see Depth().
};
// Keys keep the order they were given in; they are strings, numbers, bools or None.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  const Value* Find(std::string_view key) const;
  const Value* Find(const Value& key) const;
};
struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
  int depth = 1;
  const Value* Find(std::string_view name) const;
  void Set(const std::string& name, Value value);
};
// `loop` inside a for: a snapshot at one iteration, sharing the items.
struct Loop {
  std::shared_ptr<const std::vector<Value>> items;
  size_t index0;
};
struct Callable;

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const OriginText>,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                            std::shared_ptr<const Loop>, std::shared_ptr<const Callable>>;

  Value() = default;  // Undefined.
  explicit Value(Data data) : data_(std::move(data)) {}

  static Value Missing(std::string what) { return Value(Data(Undefined{std::move(what)})); }
  static Value OfNone() { return Value(Data(None{})); }
  static Value Of(bool value) { return Value(Data(value)); }
  static Value Of(int64_t value) { return Value(Data(value)); }
  static Value Of(double value) { return Value(Data(value)); }
  static Value Of(OriginText text) { return Value(Data(std::make_shared<const OriginText>(std::move(text)))); }
  static Value OfTemplate(std::string_view text) { return Of(OriginText(text, ControlTokens::kParse)); }
  static Value OfList(std::vector<Value> items, bool is_tuple = false);
  static Value OfDict(Dict dict);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  // As Python: a bool is a number.
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return text() != nullptr; }

  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  const OriginText* text() const { return Pointee<OriginText>(); }
  const List* list() const { return Pointee<List>(); }
  const Dict* dict() const { return Pointee<Dict>(); }
  const Loop* loop() const { return Pointee<Loop>(); }
  const Callable* callable() const { return Pointee<Callable>(); }
  Namespace* name_space() const {
    const auto* pointer = std::get_if<std::shared_ptr<Namespace>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }
  // Bytes of a string, else an empty view.
  std::string_view bytes() const { return is_string() ? std::string_view(text()->bytes()) : std::string_view(); }
  // Integer value of an int or bool.
  std::optional<int64_t> AsInt() const;
  // Requires: is_number().
  double AsDouble() const;

 private:
  template <typename T>
  const T* Pointee() const {
    const auto* pointer = std::get_if<std::shared_ptr<const T>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Data data_;
};

// Something that can be called.
struct Callable {
  enum class Kind { kMacro, kMethod, kGlobal };
  Kind kind;
  std::string name;
  Value self;                   // kMethod: the object.
  const Stmt* macro = nullptr;  // kMacro. Lives in the template.
};

// Levels of lists, dicts and namespaces in `value`: what recursion over it costs in stack.
int Depth(const Value& value);
bool IsTrue(const Value& value);
// Work that one comparison may take: a structure that shares its parts could otherwise take exponential time. Beyond it
// the answer means nothing and the caller fails.
inline constexpr int64_t kMaxComparisonWork = int64_t{1} << 22;
// Python's `==`. `work` grows with the values compared.
bool Equal(const Value& a, const Value& b, int64_t& work);
// Python's `<` for numbers, strings, lists and tuples; nothing where the types have no order.
std::optional<bool> Less(const Value& a, const Value& b, int64_t& work);
// "str", "int" and so on, for messages.
std::string TypeName(const Value& value);
// repr() of a float.
std::string FloatRepr(double value);

}  // namespace invar::models::jinja
