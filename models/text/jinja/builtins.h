// Filters, tests, methods and global functions of the subset. Each gets the interpreter for budgets, calls and errors.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja/value.h"

namespace invar::models::jinja {

class Interpreter;

// Arguments of one call, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at `index` or called `name`, or null.
  const Value* Get(size_t index, std::string_view name) const;
};

bool IsFilter(std::string_view name);
bool IsTest(std::string_view name);

// Errors go to the interpreter; the value is then undefined. Requires: IsFilter / IsTest of the name.
Value ApplyFilter(Interpreter& interpreter, std::string_view name, const Value& input, const Arguments& arguments);
bool ApplyTest(Interpreter& interpreter, std::string_view name, const Value& input, const Arguments& arguments);

// The method `name` of `object`, or nothing where Python's type has none. A method that changes its object is an
// undefined value, as in transformers' sandbox.
std::optional<Value> FindMethod(const Value& object, const std::string& name);
Value CallMethod(Interpreter& interpreter, const Value& object, const std::string& name, const Arguments& arguments);

// namespace, range, dict, raise_exception, strftime_now.
Value CallGlobal(Interpreter& interpreter, std::string_view name, const Arguments& arguments);

}  // namespace invar::models::jinja
