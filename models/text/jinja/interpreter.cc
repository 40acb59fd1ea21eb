// Statements, scopes, calls and budgets of the interpreter; expressions are in evaluate.cc, string forms and access to
// members in access.cc. See interpreter.h.
#include "models/text/jinja/interpreter.h"

#include <algorithm>

#include "models/text/jinja/json_value.h"

namespace invar::models::jinja {
namespace {

// 4 million nodes, or 256 MiB of strings made: a conversation of 10,000 messages takes about a tenth.
constexpr int64_t kMaxWork = int64_t{1} << 27;
static_assert(kMaxWork / kNodeWork == 4 << 20);
// Between two questions whether to go on: below 10 ms on a slow core.
constexpr int64_t kWorkBetweenQuestions = kMaxWork / 256;

}  // namespace

Interpreter::Interpreter(Bindings bindings, const std::optional<int64_t> now_unix_seconds,
                         std::function<Status()> interrupted)
    : now_unix_seconds_(now_unix_seconds),
      interrupted_(std::move(interrupted)),
      work_left_(kMaxWork),
      ask_below_(kMaxWork) {
  globals_.variables = std::move(bindings);
}

Interpreter::~Interpreter() {
  for (const std::weak_ptr<Namespace>& weak : namespaces_) {
    if (const std::shared_ptr<Namespace> space = weak.lock()) space->members.clear();
  }
}

void Interpreter::Scope::Set(const std::string& name, Value value) { variables[name] = std::move(value); }

void Interpreter::Fail(const std::string& message) {
  FailVerbatim("chat template line " + std::to_string(line_) + ": " + message);
}

void Interpreter::FailVerbatim(const std::string& message) {
  if (status_.ok()) status_ = InvalidArgument(message, "messages");
}

bool Interpreter::Charge(const int64_t work) {
  work_left_ -= std::min(work, work_left_ + 1);
  if (work_left_ < 0) Fail("the template needs more work than a request may cost");
  if (work_left_ < ask_below_ && interrupted_ && status_.ok()) {
    ask_below_ = work_left_ - kWorkBetweenQuestions;
    status_ = interrupted_();
  }
  return work_left_ >= 0 && status_.ok();
}

Value Interpreter::MakeText(OriginText text) {
  if (text.size() > kTextBytesMax) Fail("a string exceeds " + std::to_string(kTextBytesMax) + " bytes");
  if (failed() || !ChargeBytes(text.size())) return {};
  return Value::Of(std::move(text));
}

Value Interpreter::MakeList(std::vector<Value> items, const bool is_tuple) {
  if (!Charge(kNodeWork * (static_cast<int64_t>(items.size()) + 1))) return {};
  Value list = Value::OfList(std::move(items), is_tuple);
  if (Depth(list) > kMaxValueDepth) Fail("lists nested deeper than " + std::to_string(kMaxValueDepth));
  return list;
}

Value Interpreter::MakeDict(Dict dict) {
  if (!Charge(kNodeWork * (static_cast<int64_t>(dict.entries.size()) + 1))) return {};
  Value value = Value::OfDict(std::move(dict));
  if (Depth(value) > kMaxValueDepth) Fail("dicts nested deeper than " + std::to_string(kMaxValueDepth));
  return value;
}

Value Interpreter::MakeNamespace(const std::vector<std::pair<std::string, Value>>& members) {
  if (!Charge(kNodeWork * (static_cast<int64_t>(members.size()) + 1))) return {};
  auto space = std::make_shared<Namespace>();
  for (const auto& [name, value] : members) space->Set(name, value);
  namespaces_.push_back(space);
  if (space->depth > kMaxValueDepth) Fail("namespaces nested deeper than " + std::to_string(kMaxValueDepth));
  return Value(Value::Data(std::move(space)));
}

StatusOr<OriginText> Interpreter::Render(const Body& body) {
  OriginText out;
  RunBody(body, globals_, out);
  if (failed()) return status_;
  return out;
}

Interpreter::Flow Interpreter::RunBody(const Body& body, Scope& scope, OriginText& out) {
  if (++depth_ > kMaxDepth) Fail("calls nested too deeply");
  Flow flow = Flow::kNext;
  for (const auto& stmt : body) {
    if (failed() || flow != Flow::kNext) break;
    flow = RunStatement(*stmt, scope, out);
    if (out.size() > kTextBytesMax) Fail("the rendered prompt exceeds " + std::to_string(kTextBytesMax) + " bytes");
  }
  --depth_;
  return flow;
}

Interpreter::Flow Interpreter::RunStatement(const Stmt& stmt, Scope& scope, OriginText& out) {
  line_ = stmt.line;
  if (!Charge(kNodeWork)) return Flow::kNext;
  switch (stmt.kind) {
    case Stmt::Kind::kData:
      if (ChargeBytes(stmt.text.size())) out.Append(stmt.text, ControlTokens::kParse);
      return Flow::kNext;
    case Stmt::Kind::kOutput: {
      const OriginText text = ToText(Evaluate(*stmt.expr, scope));
      if (ChargeBytes(text.size())) out.Append(text);
      return Flow::kNext;
    }
    case Stmt::Kind::kIf:
      return RunIf(stmt, scope, out);
    case Stmt::Kind::kFor:
      RunFor(stmt, scope, out);
      return Flow::kNext;
    case Stmt::Kind::kSet:
      Assign(stmt.target, Evaluate(*stmt.expr, scope), scope);
      return Flow::kNext;
    case Stmt::Kind::kSetBlock: {
      Scope inner{&scope, {}};
      OriginText text;
      const Flow flow = RunBody(stmt.body, inner, text);
      if (flow == Flow::kNext) Assign(stmt.target, MakeText(std::move(text)), scope);
      return flow;
    }
    case Stmt::Kind::kMacro: {
      auto macro = std::make_shared<const Callable>(Callable{Callable::Kind::kMacro, stmt.name, {}, &stmt});
      scope.Set(stmt.name, Value(Value::Data(std::move(macro))));
      return Flow::kNext;
    }
    case Stmt::Kind::kScope: {
      Scope inner{&scope, {}};
      for (const auto& [name, expr] : stmt.named) inner.Set(name, Evaluate(*expr, scope));
      return RunBody(stmt.body, inner, out);
    }
    case Stmt::Kind::kGroup:
      return RunBody(stmt.body, scope, out);
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunIf(const Stmt& stmt, Scope& scope, OriginText& out) {
  for (const auto& [condition, body] : stmt.branches) {
    if (IsTrue(Evaluate(*condition, scope))) return RunBody(body, scope, out);
    if (failed()) return Flow::kNext;
  }
  return RunBody(stmt.else_body, scope, out);
}

void Interpreter::RunFor(const Stmt& stmt, Scope& scope, OriginText& out) {
  std::vector<Value> items = Iterate(Evaluate(*stmt.expr, scope));
  if (stmt.condition != nullptr) {
    std::vector<Value> kept;
    for (const Value& item : items) {
      if (failed()) return;
      Scope inner{&scope, {}};
      Assign(stmt.target, item, inner);
      if (IsTrue(Evaluate(*stmt.condition, inner))) kept.push_back(item);
    }
    items = std::move(kept);
  }
  if (items.empty() && !failed()) {
    Scope inner{&scope, {}};
    RunBody(stmt.else_body, inner, out);
    return;
  }
  const auto shared = std::make_shared<const std::vector<Value>>(std::move(items));
  for (size_t i = 0; i < shared->size() && !failed(); ++i) {
    Scope inner{&scope, {}};
    inner.Set("loop", Value(Value::Data(std::make_shared<const Loop>(Loop{shared, i}))));
    Assign(stmt.target, (*shared)[i], inner);
    if (RunBody(stmt.body, inner, out) == Flow::kBreak) return;
  }
}

void Interpreter::Assign(const Target& target, const Value& value, Scope& scope) {
  if (failed()) return;
  if (target.unpack) {
    const std::vector<Value> parts = Iterate(value);
    if (!failed() && parts.size() != target.names.size()) {
      return Fail("wanted " + std::to_string(target.names.size()) + " values to unpack, found " +
                  std::to_string(parts.size()));
    }
    for (size_t i = 0; i < parts.size(); ++i) scope.Set(target.names[i], parts[i]);
    return;
  }
  if (target.attribute.empty()) return scope.Set(target.names[0], value);
  for (const Scope* s = &scope; s != nullptr; s = s->parent) {
    if (!Charge(kScopeWork)) return;
    const auto found = s->variables.find(target.names[0]);
    if (found == s->variables.end()) continue;
    Namespace* space = found->second.name_space();
    if (space == nullptr) return Fail("cannot assign attribute on non-namespace object '" + found->first + "'");
    if (Depth(value) >= kMaxValueDepth) return Fail("values nested deeper than " + std::to_string(kMaxValueDepth));
    return space->Set(target.attribute, value);
  }
  Fail("'" + target.names[0] + "' is undefined");
}

Value Interpreter::Call(const Value& callee, const Arguments& arguments) {
  const Callable* callable = callee.callable();
  if (callable == nullptr) {
    if (callee.is_undefined()) {
      FailUndefined(callee);
    } else {
      Fail("'" + TypeName(callee) + "' object is not callable");
    }
    return {};
  }
  switch (callable->kind) {
    case Callable::Kind::kMacro:
      return CallMacro(*callable, arguments);
    case Callable::Kind::kMethod:
      return CallMethod(*this, callable->self, callable->name, arguments);
    case Callable::Kind::kGlobal:
      return CallGlobal(*this, callable->name, arguments);
  }
  return {};
}

Value Interpreter::CallMacro(const Callable& callable, const Arguments& arguments) {
  const Stmt& macro = *callable.macro;
  if (arguments.positional.size() > macro.parameters.size()) {
    Fail("macro '" + macro.name + "' takes not more than " + std::to_string(macro.parameters.size()) + " arguments");
    return {};
  }
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(macro.parameters.begin(), macro.parameters.end(), name);
    const size_t index = static_cast<size_t>(it - macro.parameters.begin());
    if (it == macro.parameters.end() || index < arguments.positional.size()) {
      Fail("macro '" + macro.name + "' takes no keyword argument '" + name + "'");
      return {};
    }
  }
  // Macros are defined in the outermost scope only (the parser sees to it), so that is what they see.
  Scope scope{&globals_, {}};
  const size_t first_default = macro.parameters.size() - macro.defaults.size();
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const std::string& name = macro.parameters[i];
    Value value = Value::Missing("parameter '" + name + "' was not provided");
    if (const Value* given = arguments.Get(i, name)) {
      value = *given;
    } else if (i >= first_default) {
      value = Evaluate(*macro.defaults[i - first_default], scope);
    }
    scope.Set(name, std::move(value));
  }
  const int line = line_;
  OriginText out;
  RunBody(macro.body, scope, out);
  line_ = line;
  return MakeText(std::move(out));
}

}  // namespace invar::models::jinja
