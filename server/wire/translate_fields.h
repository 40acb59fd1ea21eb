// What translations of single fields have in common. Errors name the field by its path in the proto ("sampling.top_p"),
// so that a client can map them back.
#pragma once

#include <fmt/format.h>
#include <google/protobuf/repeated_field.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/field_value.h"
#include "base/ids.h"
#include "base/status.h"
#include "server/wire/translate.h"

namespace invar::server {

inline Status CheckCount(const std::string_view field, const int64_t count, const int64_t max) {
  if (count > max) {
    return InvalidArgument(fmt::format("{}: at most {} entries, found {}", field, max, count), std::string(field));
  }
  return OkStatus();
}

inline Status CheckBytes(const std::string_view field, const size_t bytes, const int64_t max) {
  if (bytes > static_cast<size_t>(max)) {
    return InvalidArgument(fmt::format("{}: at most {} bytes, found {}", field, max, bytes), std::string(field));
  }
  return OkStatus();
}

inline Status NotYet(const std::string& field) {
  return Unimplemented(fmt::format("{}: this build does not implement it; leave it out", field), field);
}

inline std::vector<TokenId> ToTokenIds(const google::protobuf::RepeatedField<int32_t>& ids) {
  std::vector<TokenId> out;
  out.reserve(ids.size());
  for (const int32_t id : ids) out.emplace_back(id);
  return out;
}

inline Status CheckModel(const std::string& model, const TranslateContext& context) {
  if (!model.empty() && model != context.model_name) {
    return Status(StatusCode::kNotFound, fmt::format("model: this daemon serves '{}' only", context.model_name),
                  "model");
  }
  return OkStatus();
}

}  // namespace invar::server
