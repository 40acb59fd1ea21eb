// JSON in and out of template values: requests come in (all their text counts as a user's), `tojson` goes out.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "models/text/jinja/value.h"

namespace invar::models::jinja {

// Objects keep their order of keys. Errors: INVALID_ARGUMENT with `field`: syntax, duplicate keys, integers beyond
// 64 bits, nesting deeper than kMaxValueDepth / 2.
StatusOr<Value> ParseJsonValue(std::string_view json, const std::string& field);

// Levels of nesting a value may have.
inline constexpr int kMaxValueDepth = 128;

struct JsonFormat {
  int indent = -1;  // Negative: one line.
  std::string indent_text;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;
};

// Appends json.dumps(value, ensure_ascii=format.ascii) to `out`; structure is the template's, strings keep their
// origins. False where a value has no JSON form. `work` counts bytes and stops the output beyond `max_work`.
bool AppendJson(const Value& value, const JsonFormat& format, int level, int64_t& work, int64_t max_work,
                OriginText& out);

}  // namespace invar::models::jinja
