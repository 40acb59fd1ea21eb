// The table of fields, put together of its sections, and what is found in it by name.
#include "config/fields.h"

#include <algorithm>
#include <numeric>

#include "config/fields/sections.h"

namespace invar::config {
namespace {

std::vector<Field> MakeFields() {
  std::vector<Field> fields;
  for (const auto section : {ServerFields, EngineFields, CacheFields, TransferFields, LimitFields, OperationFields}) {
    for (Field& field : section()) fields.push_back(std::move(field));
  }
  return fields;
}

const std::vector<Field>& Table() {
  static const std::vector<Field> table = MakeFields();
  return table;
}

size_t EditDistance(const std::string_view a, const std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Field> Fields() { return Table(); }

const Field* FindField(const std::string_view path) {
  const auto found = std::ranges::find(Table(), path, &Field::path);
  return found == Table().end() ? nullptr : &*found;
}

std::string Nearest(const std::string_view word, const std::span<const std::string_view> candidates) {
  constexpr size_t kWordBytesMax = 128;
  if (word.size() > kWordBytesMax) return {};
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return std::string(best);
}

std::string NearestPath(const std::string_view path) {
  std::vector<std::string_view> paths;
  for (const Field& field : Table()) paths.push_back(field.path);
  return Nearest(path, paths);
}

StatusOr<ReloadPlan> PlanReload(const Config& running, const Config& wanted) {
  ReloadPlan plan{.config = running};
  Config source = wanted;  // The accessors of the table want a mutable one.
  for (const Field& field : Table()) {
    if (PrintValue(field, running, /*mask_secrets=*/false) == PrintValue(field, wanted, /*mask_secrets=*/false)) {
      continue;
    }
    if (field.takes == Takes::kAtStart) {
      plan.needs_restart.push_back(field.path);
      continue;
    }
    std::visit([&](const auto& kind) { kind.member(plan.config) = kind.member(source); }, field.kind);
    plan.changed.push_back(field.path);
  }
  if (Status s = ValidateTogether(plan.config); !s.ok()) return s;
  return plan;
}

}  // namespace invar::config
