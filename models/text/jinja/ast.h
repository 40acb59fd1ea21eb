// What a template means: expressions and statements, as the parser builds and the evaluator walks them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/text/jinja/value.h"

namespace invar::models::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind {
    kConstant,     // constant
    kName,         // name
    kList,         // args
    kTuple,        // args
    kDict,         // args: key, value, key, value, ...
    kAttribute,    // args[0].name
    kSubscript,    // args[0][args[1]]
    kSlice,        // args[0][args[1]:args[2]:args[3]], absent ones null
    kCall,         // args[0](args[1:], named)
    kFilter,       // args[0]|name(args[1:], named)
    kTest,         // args[0] is name(args[1:])
    kNegate,       // -args[0]
    kPlus,         // +args[0]
    kNot,          // not args[0]
    kBinary,       // args[0] name args[1], name one of + - * / // % ** ~
    kCompare,      // args[0] names[0] args[1] names[1] args[2] ...
    kAnd,          // args[0] and args[1]
    kOr,           // args[0] or args[1]
    kConditional,  // args[0] if args[1] else args[2], which may be null
  };
  Kind kind;
  int line;
  int height = 1;  // Of the tree below: bounds the evaluator's recursion.
  std::string name;
  Value constant;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
  std::vector<std::string> names;
};

// What `set` and `for` assign to: a name, several names (unpacking), or an attribute of a namespace.
struct Target {
  std::vector<std::string> names;
  bool unpack = false;
  std::string attribute;  // With one name: name.attribute.
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Stmt {
  enum class Kind {
    kData,      // text
    kOutput,    // {{ expr }}
    kIf,        // branches, then else_body
    kFor,       // for target in expr if condition: body, else_body
    kSet,       // target = expr
    kSetBlock,  // target = rendered body
    kMacro,     // name(parameters with defaults): body
    kScope,     // with: assignments of `named`, then body in its own scope
    kGroup,     // body alone (generation)
    kBreak,
    kContinue,
  };
  Kind kind;
  int line;
  std::string text;
  ExprPtr expr;
  ExprPtr condition;
  Target target;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // Of the last parameters.
  std::vector<std::pair<std::string, ExprPtr>> named;
  Body body;
  Body else_body;
};

}  // namespace invar::models::jinja
