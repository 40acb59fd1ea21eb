// The tests of `is`. See builtins.h.
#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "models/text/jinja/builtins.h"
#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/strings.h"

namespace invar::models::jinja {
namespace {

constexpr std::array<std::string_view, 30> kTests = {
    "defined", "undefined", "none",    "string",      "number",   "integer",    "float", "boolean",
    "true",    "false",     "mapping", "sequence",    "iterable", "callable",   "even",  "odd",
    "eq",      "equalto",   "ne",      "gt",          "lt",       "ge",         "le",    "in",
    "lower",   "upper",     "sameas",  "greaterthan", "lessthan", "divisibleby"};

bool SameAs(const Value& a, const Value& b, Interpreter& interpreter) {
  if (a.is_number() || b.is_number()) return TypeName(a) == TypeName(b) && interpreter.AreEqual(a, b);
  if (a.list() != nullptr || a.dict() != nullptr) return a.list() == b.list() && a.dict() == b.dict();
  return interpreter.AreEqual(a, b);
}

// Tests of one number.
bool NumberTest(Interpreter& interpreter, const std::string_view name, const Value& input, const int64_t divisor) {
  const std::optional<int64_t> number = input.AsInt();
  if (!number || divisor == 0) {
    interpreter.Fail("test '" + std::string(name) + "' wants integers, found '" + TypeName(input) + "'");
    return false;
  }
  if (divisor == -1) return true;
  return name == "odd" ? *number % divisor != 0 : *number % divisor == 0;
}

bool CompareTest(Interpreter& interpreter, const std::string_view name, const Value& a, const Value& b) {
  if (name == "eq" || name == "equalto") return interpreter.AreEqual(a, b);
  if (name == "ne") return !interpreter.AreEqual(a, b);
  if (name == "gt" || name == "greaterthan") return interpreter.IsLess(b, a);
  if (name == "lt" || name == "lessthan") return interpreter.IsLess(a, b);
  if (name == "ge") return !interpreter.IsLess(a, b);
  if (name == "le") return !interpreter.IsLess(b, a);
  if (name == "in") return interpreter.Contains(b, a);
  return SameAs(a, b, interpreter);
}

// str.islower() and str.isupper() of the text form.
bool CaseTest(Interpreter& interpreter, const Value& input, const Case to) {
  const OriginText text = interpreter.ToText(input);
  return ChangeCase(text, to).bytes() == text.bytes() &&
         ChangeCase(text, to == Case::kLower ? Case::kUpper : Case::kLower).bytes() != text.bytes();
}

}  // namespace

bool IsTest(const std::string_view name) { return std::find(kTests.begin(), kTests.end(), name) != kTests.end(); }

bool ApplyTest(Interpreter& interpreter, const std::string_view name, const Value& input, const Arguments& arguments) {
  if (name == "defined") return !input.is_undefined();
  if (name == "undefined") return input.is_undefined();
  if (name == "none") return input.is_none();
  if (name == "string") return input.is_string();
  if (name == "number") return input.is_number();
  if (name == "integer") return input.is_int();
  if (name == "float") return input.is_float();
  if (name == "boolean") return input.is_bool();
  if (name == "true" || name == "false") return input.is_bool() && IsTrue(input) == (name == "true");
  if (name == "mapping") return input.dict() != nullptr;
  // Jinja's undefined has a length and items, so it counts.
  if (name == "sequence") return input.is_string() || input.list() || input.dict() || input.is_undefined();
  if (name == "iterable")
    return input.is_string() || input.list() || input.dict() || input.loop() || input.is_undefined();
  if (name == "callable") return input.callable() != nullptr;
  if (name == "even" || name == "odd") return NumberTest(interpreter, name, input, 2);
  if (name == "lower") return CaseTest(interpreter, input, Case::kLower);
  if (name == "upper") return CaseTest(interpreter, input, Case::kUpper);
  const Value* other = arguments.Get(0, "other");
  if (other == nullptr) {
    interpreter.Fail("test '" + std::string(name) + "' wants an argument");
    return false;
  }
  if (name == "divisibleby") return NumberTest(interpreter, name, input, other->AsInt().value_or(0));
  return CompareTest(interpreter, name, input, *other);
}

}  // namespace invar::models::jinja
