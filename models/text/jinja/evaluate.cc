// Expressions of the interpreter. See interpreter.h.
#include <algorithm>
#include <cmath>

#include "models/text/jinja/interpreter.h"
#include "models/text/jinja/slice.h"

namespace invar::models::jinja {
namespace {

bool IsGlobalFunction(const std::string& name, const bool has_clock) {
  return name == "namespace" || name == "range" || name == "dict" || name == "raise_exception" ||
         (name == "strftime_now" && has_clock);
}

}  // namespace

Value Interpreter::Evaluate(const Expr& expr, const Scope& scope) {
  if (failed() || !Charge(kNodeWork)) return {};
  if (depth_ >= kMaxDepth) {
    Fail("calls nested too deeply");
    return {};
  }
  ++depth_;
  line_ = expr.line;
  Value value = EvaluateNode(expr, scope);
  --depth_;
  return failed() ? Value() : std::move(value);
}

Value Interpreter::EvaluateNode(const Expr& expr, const Scope& scope) {
  const auto arg = [&](size_t i) { return Evaluate(*expr.args[i], scope); };
  switch (expr.kind) {
    case Expr::Kind::kConstant:
      return expr.constant;
    case Expr::Kind::kName:
      return EvaluateName(expr, scope);
    case Expr::Kind::kList:
    case Expr::Kind::kTuple: {
      std::vector<Value> items;
      for (size_t i = 0; i < expr.args.size(); ++i) items.push_back(arg(i));
      return MakeList(std::move(items), expr.kind == Expr::Kind::kTuple);
    }
    case Expr::Kind::kDict:
      return EvaluateDict(expr, scope);
    case Expr::Kind::kAttribute:
      return GetAttribute(arg(0), expr.name);
    case Expr::Kind::kSubscript: {
      const Value object = arg(0);
      return GetItem(object, arg(1));
    }
    case Expr::Kind::kSlice:
      return EvaluateSlice(expr, scope);
    case Expr::Kind::kCall:
      return EvaluateCall(expr, scope);
    case Expr::Kind::kFilter: {
      const Value input = arg(0);
      const Arguments arguments = EvaluateArguments(expr, scope);
      return failed() ? Value() : ApplyFilter(*this, expr.name, input, arguments);
    }
    case Expr::Kind::kTest: {
      const Value input = arg(0);
      const Arguments arguments = EvaluateArguments(expr, scope);
      return failed() ? Value() : Value::Of(ApplyTest(*this, expr.name, input, arguments));
    }
    case Expr::Kind::kNegate:
    case Expr::Kind::kPlus: {
      const Value value = arg(0);
      const std::string op = expr.kind == Expr::Kind::kNegate ? "-" : "+";
      return failed() ? Value() : Arithmetic(op, Value::Of(int64_t{0}), value);
    }
    case Expr::Kind::kNot:
      return Value::Of(!IsTrue(arg(0)));
    case Expr::Kind::kBinary:
      return EvaluateBinary(expr, scope);
    case Expr::Kind::kCompare:
      return EvaluateCompare(expr, scope);
    case Expr::Kind::kAnd: {
      Value left = arg(0);
      return IsTrue(left) ? arg(1) : left;
    }
    case Expr::Kind::kOr: {
      Value left = arg(0);
      return IsTrue(left) ? left : arg(1);
    }
    case Expr::Kind::kConditional:
      if (IsTrue(arg(1))) return arg(0);
      return expr.args[2] != nullptr
                 ? arg(2)
                 : Value::Missing("the inline if-expression has no else and its condition is false");
  }
  return {};
}

Value Interpreter::EvaluateName(const Expr& expr, const Scope& scope) {
  for (const Scope* s = &scope; s != nullptr; s = s->parent) {
    if (!Charge(kScopeWork)) return {};
    if (const auto found = s->variables.find(expr.name); found != s->variables.end()) return found->second;
  }
  if (IsGlobalFunction(expr.name, now_unix_seconds_.has_value())) {
    return Value(
        Value::Data(std::make_shared<const Callable>(Callable{Callable::Kind::kGlobal, expr.name, {}, nullptr})));
  }
  return Value::Missing("'" + expr.name + "' is undefined");
}

Value Interpreter::EvaluateDict(const Expr& expr, const Scope& scope) {
  Dict dict;
  for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    Value key = Evaluate(*expr.args[i], scope);
    Value value = Evaluate(*expr.args[i + 1], scope);
    if (key.list() != nullptr || key.dict() != nullptr || key.is_undefined()) {
      if (!failed()) Fail("'" + TypeName(key) + "' cannot be the key of a dict");
      return {};
    }
    const auto same =
        std::find_if(dict.entries.begin(), dict.entries.end(), [&](const auto& e) { return AreEqual(e.first, key); });
    if (same != dict.entries.end()) {
      same->second = std::move(value);
    } else {
      dict.entries.emplace_back(std::move(key), std::move(value));
    }
  }
  return MakeDict(std::move(dict));
}

Value Interpreter::EvaluateSlice(const Expr& expr, const Scope& scope) {
  const Value object = Evaluate(*expr.args[0], scope);
  std::optional<int64_t> parts[3];
  for (int i = 0; i < 3; ++i) {
    if (expr.args[i + 1] == nullptr) continue;
    const Value part = Evaluate(*expr.args[i + 1], scope);
    parts[i] = part.AsInt();
    if (!parts[i] && !part.is_none()) {
      if (!failed()) Fail("slice indices must be integers or None, found " + TypeName(part));
      return {};
    }
  }
  if (failed()) return {};
  if (parts[2] == 0) {
    Fail("slice step cannot be zero");
    return {};
  }
  if (object.is_undefined()) {
    FailUndefined(object);
    return {};
  }
  if (const List* list = object.list()) {
    std::vector<Value> items;
    for (const int64_t i : SliceIndices(parts, static_cast<int64_t>(list->items.size())))
      items.push_back(list->items[i]);
    return MakeList(std::move(items), list->is_tuple);
  }
  if (const OriginText* text = object.text()) {
    if (!ChargeBytes(text->size() * 8)) return {};
    return MakeText(SliceText(*text, parts));
  }
  return Value::Missing("'" + TypeName(object) + "' object cannot be sliced");
}

Arguments Interpreter::EvaluateArguments(const Expr& expr, const Scope& scope) {
  Arguments arguments;
  for (size_t i = 1; i < expr.args.size(); ++i) arguments.positional.push_back(Evaluate(*expr.args[i], scope));
  for (const auto& [name, value] : expr.named) arguments.named.emplace_back(name, Evaluate(*value, scope));
  return arguments;
}

Value Interpreter::EvaluateCall(const Expr& expr, const Scope& scope) {
  const Value callee = Evaluate(*expr.args[0], scope);
  const Arguments arguments = EvaluateArguments(expr, scope);
  if (failed()) return {};
  line_ = expr.line;
  return Call(callee, arguments);
}

bool Interpreter::CompareOnce(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return AreEqual(a, b);
  if (op == "!=") return !AreEqual(a, b);
  if (op == "in") return Contains(b, a);
  if (op == "not in") return !Contains(b, a);
  if (op == "<") return IsLess(a, b);
  if (op == ">") return IsLess(b, a);
  if (op == "<=") return !IsLess(b, a);
  return !IsLess(a, b);
}

Value Interpreter::EvaluateCompare(const Expr& expr, const Scope& scope) {
  Value left = Evaluate(*expr.args[0], scope);
  for (size_t i = 0; i < expr.names.size(); ++i) {
    Value right = Evaluate(*expr.args[i + 1], scope);
    if (failed()) return {};
    line_ = expr.line;
    if (!CompareOnce(expr.names[i], left, right)) return Value::Of(false);
    left = std::move(right);
  }
  return Value::Of(true);
}

Value Interpreter::EvaluateBinary(const Expr& expr, const Scope& scope) {
  const Value a = Evaluate(*expr.args[0], scope);
  const Value b = Evaluate(*expr.args[1], scope);
  if (failed()) return {};
  line_ = expr.line;
  if (expr.name == "~") {
    OriginText text = ToText(a);
    text.Append(ToText(b));
    return MakeText(std::move(text));
  }
  if (expr.name == "+") return Add(a, b);
  if (expr.name == "*") {
    if (b.AsInt() && (a.is_string() || a.list() != nullptr)) return Repeat(a, *b.AsInt());
    if (a.AsInt() && (b.is_string() || b.list() != nullptr)) return Repeat(b, *a.AsInt());
  }
  return Arithmetic(expr.name, a, b);
}

Value Interpreter::Add(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return Arithmetic("+", a, b);
  if (a.is_undefined() || b.is_undefined()) {
    FailUndefined(a.is_undefined() ? a : b);
    return {};
  }
  if (a.is_string() && b.is_string()) {
    OriginText text = *a.text();
    text.Append(*b.text());
    return MakeText(std::move(text));
  }
  if (a.list() != nullptr && b.list() != nullptr && a.list()->is_tuple == b.list()->is_tuple) {
    std::vector<Value> items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    return MakeList(std::move(items), a.list()->is_tuple);
  }
  Fail("cannot add '" + TypeName(a) + "' and '" + TypeName(b) + "'");
  return {};
}

Value Interpreter::Repeat(const Value& sequence, const int64_t count) {
  const int64_t times = std::max<int64_t>(count, 0);
  const int64_t unit = sequence.is_string() ? static_cast<int64_t>(sequence.bytes().size()) / 2 + 1
                                            : kNodeWork * (static_cast<int64_t>(sequence.list()->items.size()) + 1);
  if (times > work_left_ / unit) {
    Charge(work_left_ + 1);
    return {};
  }
  if (sequence.is_string() && times * sequence.bytes().size() > kTextBytesMax) {
    Fail("a string exceeds " + std::to_string(kTextBytesMax) + " bytes");
    return {};
  }
  if (const OriginText* text = sequence.text()) {
    OriginText out;
    for (int64_t i = 0; i < times; ++i) out.Append(*text);
    return MakeText(std::move(out));
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), sequence.list()->items.begin(), sequence.list()->items.end());
  }
  return MakeList(std::move(items), sequence.list()->is_tuple);
}

Value Interpreter::Arithmetic(const std::string& op, const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined()) {
    FailUndefined(a.is_undefined() ? a : b);
    return {};
  }
  if (!a.is_number() || !b.is_number()) {
    Fail("unsupported operand types for " + op + ": '" + TypeName(a) + "' and '" + TypeName(b) + "'");
    return {};
  }
  const double x = a.AsDouble(), y = b.AsDouble();
  if ((op == "/" || op == "//" || op == "%") && y == 0) {
    Fail("division by zero");
    return {};
  }
  if (op == "/") return Value::Of(x / y);
  const bool integers = a.AsInt() && b.AsInt();
  if (integers && !(op == "**" && *b.AsInt() < 0)) return IntegerArithmetic(op, *a.AsInt(), *b.AsInt());
  if (op == "+") return Value::Of(x + y);
  if (op == "-") return Value::Of(x - y);
  if (op == "*") return Value::Of(x * y);
  if (op == "//") return Value::Of(std::floor(x / y));
  if (op == "**") return Value::Of(std::pow(x, y));
  const double remainder = std::fmod(x, y);  // Python's takes the sign of the divisor.
  return Value::Of(remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder);
}

Value Interpreter::IntegerArithmetic(const std::string& op, const int64_t a, const int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    result = 1;
    for (int64_t i = 0; i < b && !overflow && result != 0 && (a != 1 || i == 0); ++i) {
      overflow = __builtin_mul_overflow(result, a, &result);
      if (a == -1 && i >= 1) {
        result = b % 2 == 0 ? 1 : -1;
        break;
      }
    }
  } else if (b == -1) {  // INT64_MIN / -1 would trap.
    overflow = op == "//" && __builtin_sub_overflow(int64_t{0}, a, &result);
  } else if (op == "//") {
    result = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  } else {
    result = a % b;
    if (result != 0 && (result < 0) != (b < 0)) result += b;
  }
  if (overflow) Fail("integer beyond 64 bits");
  return Value::Of(result);
}

}  // namespace invar::models::jinja
