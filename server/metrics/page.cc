// The page of a scrape, made of all parts' tables: the invar_* names, then what has a vllm:* name once more by that.
#include <fmt/format.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "server/metrics/parts.h"

namespace invar::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Which set of names is written.
enum class Names { kOwn, kAliases };

class Page {
 public:
  Page(const MetricsSnapshot& snapshot, const Names names) : s_(snapshot), names_(names) {}

  void Add(const MetricsPart& part) {
    for (const InfoRow& row : part.infos) AddInfo(row);
    for (const MetricRow& row : part.rows) AddRow(row, part.of_model);
    for (const DistributionRow& row : part.distributions) AddDistribution(row, part.of_model);
  }
  const std::vector<MetricFamily>& families() const { return families_; }

 private:
  // Empty: the row has no such name.
  const std::string& NameOf(const MetricName& name) const { return names_ == Names::kOwn ? name.own : name.alias; }

  Labels CommonLabels(const bool of_model) const {
    if (names_ == Names::kAliases) return {{"model_name", s_.model}, {"engine", "0"}};
    return of_model ? Labels{{"model", s_.model}} : Labels{};
  }

  MetricFamily& Begin(const std::string& name, const MetricType type, const std::string& help) {
    MetricFamily& family = families_.emplace_back();
    family.name = name;
    family.type = type;
    family.help = help;
    return family;
  }

  void AddInfo(const InfoRow& row) {
    if (row.is_alias != (names_ == Names::kAliases)) return;
    ClientMetric metric;
    for (auto& [label, value] : row.read(s_)) metric.label.push_back({std::move(label), std::move(value)});
    if (metric.label.empty()) return;
    metric.gauge.value = 1.0;
    Begin(row.name, MetricType::Gauge, row.help).metric.push_back(std::move(metric));
  }

  void AddRow(const MetricRow& row, const bool of_model) {
    const std::string& name = NameOf(row.name);
    if (name.empty()) return;
    const bool is_counter = row.kind == kCounter;
    MetricFamily& family = Begin(name, is_counter ? MetricType::Counter : MetricType::Gauge, row.help);
    Check(row.axes.size() <= 2, "a row has at most two axes", row.name.own);
    std::vector<std::string_view> values[2] = {{""}, {""}};  // Where there is no axis: one series, without a label.
    for (size_t axis = 0; axis < row.axes.size(); ++axis) {
      values[axis] = row.axes[axis].now != nullptr ? row.axes[axis].now(s_) : row.axes[axis].values;
    }
    for (size_t i = 0; i < values[0].size(); ++i) {
      for (size_t j = 0; j < values[1].size(); ++j) {
        const std::optional<double> value = row.read(s_, i, j);
        if (!value.has_value()) continue;
        ClientMetric& metric = family.metric.emplace_back();
        metric.label = CommonLabels(of_model);
        const size_t at[2] = {i, j};
        for (size_t axis = 0; axis < row.axes.size(); ++axis) {
          const std::string label = names_ == Names::kOwn ? row.axes[axis].label : "finished_reason";
          metric.label.push_back({label, std::string(values[axis][at[axis]])});
        }
        (is_counter ? metric.counter.value : metric.gauge.value) = *value;
      }
    }
    if (family.metric.empty()) families_.pop_back();
  }

  void AddDistribution(const DistributionRow& row, const bool of_model) {
    const std::string& name = NameOf(row.name);
    if (name.empty()) return;
    ClientMetric metric = row.read(s_);
    metric.label = CommonLabels(of_model);
    Begin(name, MetricType::Histogram, row.help).metric.push_back(std::move(metric));
  }

  const MetricsSnapshot& s_;
  const Names names_;
  std::vector<MetricFamily> families_;
};

}  // namespace

std::string MetricsPage(const MetricsSnapshot& snapshot, const bool vllm_aliases) {
  std::ostringstream out;
  for (const Names names : {Names::kOwn, Names::kAliases}) {
    if (names == Names::kAliases && !vllm_aliases) continue;
    Page page(snapshot, names);
    for (const MetricsPart& part : MetricsParts()) page.Add(part);
    prometheus::TextSerializer().Serialize(out, page.families());
  }
  return out.str();
}

}  // namespace invar::server
