// How metrics are described. A part of the daemon has a table of them, a row each, in a file of its own; registry.cc
// has a line a part. The page of a scrape (page.cc) and docs/METRICS.md (docs.cc) are both made of the tables. A row
// has a value, or one for each value of a label, or of two; what it reads is a MetricsSnapshot.
#pragma once

#include <prometheus/client_metric.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/metrics/metrics.h"

namespace invar::server {

enum class MetricKind { kCounter, kGauge };
using enum MetricKind;

struct MetricName {
  std::string own;
  std::string alias = {};  // The vllm:* name that dashboards and autoscalers read it by; empty: there is none.
};

// A label and its values; a series each.
struct Axis {
  std::string label;
  std::vector<std::string_view> values = {};  // All of them.
  // Those of this scrape, where not all of them: what is read is told the index of one of these.
  std::vector<std::string_view> (*now)(const MetricsSnapshot&) = nullptr;
  bool listed = true;  // In the docs; not where they are many.
};
// Whether `name` names each value of an enum from 0 to `count` and none beyond: with a switch over all values, which
// the compiler checks, this holds for a count that is the enum's.
template <typename Enum, typename Name>
constexpr bool NamesAll(const size_t count, const Name& name) {
  for (size_t i = 0; i < count; ++i) {
    if (name(static_cast<Enum>(i)).empty()) return false;
  }
  return name(static_cast<Enum>(count)).empty();
}
// The values of an enum from 0 to `count`, by their names.
template <typename Enum, typename Name>
Axis AxisOf(std::string label, const size_t count, const Name& name) {
  Axis axis{.label = std::move(label)};
  for (size_t i = 0; i < count; ++i) axis.values.push_back(name(static_cast<Enum>(i)));
  return axis;
}

// What a row reads: a function of the snapshot, and of an index for each of its axes, that gives a number, or nullopt
// where there is no such series now.
class Reading {
 public:
  template <typename F>
  Reading(F) : call_(&Call<F>) {}  // NOLINT: implicit, for rows; F is a lambda without captures.

  std::optional<double> operator()(const MetricsSnapshot& s, const size_t i, const size_t j) const {
    return call_(s, i, j);
  }

 private:
  template <typename T>
  static std::optional<double> Number(const T value) {
    if constexpr (std::is_arithmetic_v<T>)
      return static_cast<double>(value);
    else
      return value;
  }
  template <typename F>
  static std::optional<double> Call(const MetricsSnapshot& s, const size_t i, const size_t j) {
    if constexpr (std::invocable<F, const MetricsSnapshot&, size_t, size_t>)
      return Number(F{}(s, i, j));
    else if constexpr (std::invocable<F, const MetricsSnapshot&, size_t>)
      return Number(F{}(s, i));
    else
      return Number(F{}(s));
  }

  std::optional<double> (*call_)(const MetricsSnapshot&, size_t, size_t);
};

struct MetricRow {
  MetricRow(std::string name, const MetricKind kind, std::string help, const Reading read)
      : MetricRow(MetricName{std::move(name)}, kind, {}, std::move(help), read) {}
  MetricRow(MetricName name, const MetricKind kind, std::string help, const Reading read)
      : MetricRow(std::move(name), kind, {}, std::move(help), read) {}
  MetricRow(std::string name, const MetricKind kind, std::vector<Axis> axes, std::string help, const Reading read)
      : MetricRow(MetricName{std::move(name)}, kind, std::move(axes), std::move(help), read) {}
  MetricRow(MetricName name, const MetricKind kind, std::vector<Axis> axes, std::string help, const Reading read)
      : name(std::move(name)), kind(kind), axes(std::move(axes)), help(std::move(help)), read(read) {}

  MetricName name;
  MetricKind kind;
  std::vector<Axis> axes;  // At most two.
  std::string help;
  Reading read;
};

// A histogram.
struct DistributionRow {
  MetricName name;
  std::string help;
  std::vector<double> bounds;  // Upper ones.
  std::function<prometheus::ClientMetric(const MetricsSnapshot&)> read = {};
};

// A metric that is always 1: what it says stands in its labels.
struct InfoRow {
  using Labels = std::vector<std::pair<std::string, std::string>>;
  std::string name;
  std::string labels;  // For the docs.
  std::string help;
  bool is_alias = false;                             // Of the vllm:* set.
  Labels (*read)(const MetricsSnapshot&) = nullptr;  // Empty: there is none now.
};

struct MetricsPart {
  std::string title;
  bool of_model = true;  // Rows and distributions carry the label `model`.
  std::vector<MetricRow> rows = {};
  std::vector<DistributionRow> distributions = {};
  std::vector<InfoRow> infos = {};
};

}  // namespace invar::server
