// A document built from nlohmann's events: a duplicate key shows when it is inserted, depth when a container opens.
// See strict_json.h.
#include "models/text/strict_json.h"

#include <vector>

namespace invar::models {
namespace {

using Json = nlohmann::json;

// Tokenizer and configuration files nest about six deep.
constexpr size_t kMaxDepth = 64;

class DocumentBuilder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return Add(nullptr) != nullptr; }
  bool boolean(const bool value) override { return Add(value) != nullptr; }
  bool number_integer(const number_integer_t value) override { return Add(value) != nullptr; }
  bool number_unsigned(const number_unsigned_t value) override { return Add(value) != nullptr; }
  bool number_float(const number_float_t value, const string_t&) override { return Add(value) != nullptr; }
  bool string(string_t& value) override { return Add(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return Fail("binary values"); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    Json::object_t& members = open_.back()->get_ref<Json::object_t&>();
    const auto [member, inserted] = members.try_emplace(std::move(name));
    place_ = &member->second;
    return inserted || Fail("duplicate key \"" + member->first + "\"");
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return Fail(std::string("not valid JSON: ") + error.what());
  }

  const std::string& error() const { return error_; }
  Json Take() { return std::move(root_); }

 private:
  bool Fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  Json* Add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) return &open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
    *place_ = std::move(value);
    return place_;
  }
  bool Open(Json container) {
    if (open_.size() >= kMaxDepth) return Fail("nested deeper than " + std::to_string(kMaxDepth));
    // The address holds while the container is open: until it closes, nothing is added to what holds it.
    open_.push_back(Add(std::move(container)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
  Json* place_ = nullptr;  // Where the value of the last key goes.
  std::string error_;
};

}  // namespace

StatusOr<Json> ParseStrictJson(const std::string_view text, const std::string& what) {
  DocumentBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return InvalidArgument(what + ": " + builder.error());
  return builder.Take();
}

}  // namespace invar::models
