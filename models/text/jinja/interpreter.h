// Runs a parsed template. Semantics are jinja2's: scopes, undefined values, Python's operators and string forms.
// The first error is kept, after which everything evaluates to undefined until the statements have unwound; nothing
// throws. Work, output and nesting are budgeted, so that no template and no request can run away.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/text/jinja/ast.h"
#include "models/text/jinja/builtins.h"
#include "models/text/jinja/value.h"

namespace invar::models::jinja {

// Nested statements, expressions and macro calls together; each costs below 2 KiB of stack.
inline constexpr int kMaxDepth = 500;
// Units of Interpreter::Charge.
inline constexpr int64_t kNodeWork = 32;  // One node of the tree.
inline constexpr int64_t kScopeWork = 8;  // Looking for a name in one scope.

// One rendering. Belongs to one thread.
class Interpreter {
 public:
  using Bindings = std::map<std::string, Value>;

  // `bindings`: the template's variables. `now_unix_seconds`: see ChatRequest. `interrupted`: see RenderLimits.
  Interpreter(Bindings bindings, std::optional<int64_t> now_unix_seconds, std::function<Status()> interrupted);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Errors: INVALID_ARGUMENT: raise_exception's text, misuse of a value (naming the line), a budget; what `interrupted`
  // gave.
  // Requires: `body` outlives this.
  StatusOr<OriginText> Render(const Body& body);

  // For builtins from here on.
  void Fail(const std::string& message);
  void FailVerbatim(const std::string& message);  // raise_exception.
  bool failed() const { return !status_.ok(); }
  // Spends `work` units (32 = one node of the tree, 1/2 = a byte of text) and asks `interrupted` now and then; false
  // where none are left, or the rendering is to end.
  bool Charge(int64_t work);
  int64_t work_left() const { return work_left_; }
  bool ChargeBytes(size_t bytes) { return Charge(static_cast<int64_t>(bytes / 2) + 1); }

  // Values with their budgets: undefined and failed where those are exceeded.
  Value MakeText(OriginText text);
  Value MakeList(std::vector<Value> items, bool is_tuple = false);
  Value MakeDict(Dict dict);
  Value MakeNamespace(const std::vector<std::pair<std::string, Value>>& members);

  OriginText ToText(const Value& value);  // str(value)
  Value GetAttribute(const Value& object, const std::string& name);
  Value GetItem(const Value& object, const Value& index);
  // Items of a list, keys of a dict, characters of a string; fails where the value cannot be iterated.
  std::vector<Value> Iterate(const Value& value);
  std::optional<int64_t> Length(const Value& value);  // len()
  bool Contains(const Value& container, const Value& item);
  bool AreEqual(const Value& a, const Value& b);
  bool IsLess(const Value& a, const Value& b);  // Fails where the types have no order.
  Value Add(const Value& a, const Value& b);    // a + b
  Value Call(const Value& callee, const Arguments& arguments);
  std::optional<int64_t> now_unix_seconds() const { return now_unix_seconds_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // Variables of one block; inner ones hide outer ones. Lives on the stack of the statement that opened it.
  struct Scope {
    const Scope* parent = nullptr;
    Bindings variables;
    void Set(const std::string& name, Value value);
  };

  Flow RunBody(const Body& body, Scope& scope, OriginText& out);
  Flow RunStatement(const Stmt& stmt, Scope& scope, OriginText& out);
  Flow RunIf(const Stmt& stmt, Scope& scope, OriginText& out);
  void RunFor(const Stmt& stmt, Scope& scope, OriginText& out);
  void Assign(const Target& target, const Value& value, Scope& scope);
  Value CallMacro(const Callable& callable, const Arguments& arguments);

  Value Evaluate(const Expr& expr, const Scope& scope);
  Value EvaluateNode(const Expr& expr, const Scope& scope);
  Value EvaluateName(const Expr& expr, const Scope& scope);
  Value EvaluateDict(const Expr& expr, const Scope& scope);
  Value EvaluateSlice(const Expr& expr, const Scope& scope);
  Value EvaluateCall(const Expr& expr, const Scope& scope);
  Value EvaluateCompare(const Expr& expr, const Scope& scope);
  Value EvaluateBinary(const Expr& expr, const Scope& scope);
  Value Repeat(const Value& sequence, int64_t count);
  Value Arithmetic(const std::string& op, const Value& a, const Value& b);
  Value IntegerArithmetic(const std::string& op, int64_t a, int64_t b);
  Arguments EvaluateArguments(const Expr& expr, const Scope& scope);
  bool CompareOnce(const std::string& op, const Value& a, const Value& b);
  void AppendText(const Value& value, bool repr, OriginText& out);
  void AppendRepr(const OriginText& text, OriginText& out);
  void FailUndefined(const Value& value);

  const std::optional<int64_t> now_unix_seconds_;
  const std::function<Status()> interrupted_;
  Scope globals_;
  int64_t work_left_;
  int64_t ask_below_;  // `interrupted` is asked when less than this is left.
  int depth_ = 0;
  int line_ = 0;  // Of the expression or statement that runs.
  Status status_;
  std::vector<std::weak_ptr<Namespace>> namespaces_;  // Emptied at the end: they may hold each other.
};

}  // namespace invar::models::jinja
