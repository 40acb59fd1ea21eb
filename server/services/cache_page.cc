// See cache_page.h. The tree is drawn as icicles: depth downwards, a node as wide as its subtree is heavy.
#include "server/services/cache_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace invar::server {
namespace {

using cache::TreeNodeReport;
using cache::TreeReport;

constexpr int kRefreshSeconds = 5;
constexpr size_t kTenantRowsMax = 100;
constexpr size_t kNodeRowsMax = 64;
constexpr size_t kDrawnNodesMax = 512;
constexpr double kPictureWidth = 1000;
constexpr double kRowHeight = 18;
constexpr int kRowsMax = 40;
// Thinner ones could not be seen.
constexpr double kWidthMin = 0.5;

const char* ColourOf(const cache::CheckpointKind kind) {
  switch (kind) {
    case cache::CheckpointKind::kPromptEnd:
      return "#1b7837";
    case cache::CheckpointKind::kEnd:
      return "#762a83";
    case cache::CheckpointKind::kBranch:
      return "#d95f02";
    case cache::CheckpointKind::kHint:
      return "#1f78b4";
    case cache::CheckpointKind::kPlanned:
      return "#b2182b";
    case cache::CheckpointKind::kPreempted:
      return "#666666";
    case cache::CheckpointKind::kBrought:
      return "#a6761d";
  }
  return "#222";
}

constexpr char kHead[] = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="{0}"><title>invard: cache</title>
<style>body{{font:14px sans-serif;margin:1.5em;color:#222}}table{{border-collapse:collapse;margin:.5em 0 1.5em}}
td,th{{padding:.15em .8em;border-bottom:1px solid #ddd;text-align:right}}td:first-child,th:first-child{{text-align:left}}
h1{{font-size:1.3em}}h2{{font-size:1.05em}}svg{{border:1px solid #ddd;width:100%;height:auto}}
.bar{{background:#eee;width:100%;height:14px}}.bar i{{display:inline-block;height:14px}}</style></head><body>
<h1>Prefix cache of {1}</h1>
)";

std::string Bytes(const int64_t bytes) {
  if (bytes < 0) return "not known";
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} KB", static_cast<double>(bytes) / 1e3);
  if (bytes < int64_t{10'000'000'000}) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}
std::string Percent(const int64_t part, const int64_t whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole)) : "-";
}

// Appends formatted text.
template <typename... Args>
void Add(std::string& out, const fmt::format_string<Args...> form, const Args&... args) {
  fmt::vformat_to(std::back_inserter(out), fmt::string_view(form), fmt::make_format_args(args...));
}
void AddRow(std::string& out, const std::string_view name, const std::string& value) {
  Add(out, "<tr><td>{}</td><td>{}</td></tr>\n", name, value);
}

void AddBudget(std::string& out, const cache::PlacementReport& report) {
  const auto share = [&](const int64_t bytes) {
    return report.budget_bytes > 0 ? 100.0 * static_cast<double>(bytes) / static_cast<double>(report.budget_bytes)
                                   : 0.0;
  };
  out += "<h2>Budget</h2>\n";
  Add(out,
      "<div class=\"bar\"><i style=\"width:{:.2f}%;background:#d95f02\"></i><i "
      "style=\"width:{:.2f}%;background:#1f78b4\"></i></div>\n<table>\n",
      share(report.live_bytes), share(report.cached_bytes));
  AddRow(out, "budget", Bytes(report.budget_bytes));
  AddRow(out, "live (orange)", Bytes(report.live_bytes));
  AddRow(out, "cached (blue)", Bytes(report.cached_bytes));
  AddRow(out, "price of a checkpoint", fmt::format("{:.1f} tokens", report.checkpoint_price_tokens));
  AddRow(out, "eviction order", EscapeHtml(report.eviction_order));
  AddRow(out, "passes, pages given up", fmt::format("{}, {}", report.eviction_passes, report.pages_evicted));
  AddRow(out, "tokens looked up", fmt::format("{}", report.queried_tokens));
  AddRow(out, "KV there", Percent(report.kv_match_tokens, report.queried_tokens));
  AddRow(out, "not run again", Percent(report.state_match_tokens, report.queried_tokens));
  AddRow(out, "plans, seconds", fmt::format("{}, {:.4f}", report.plans, ToSeconds(report.plan_ns)));
  AddRow(out, "classes of prefixes", fmt::format("{}", report.classes));
  out += "</table>\n";
}

void AddCheckpoints(std::string& out, const engine::CacheSnapshot& snapshot) {
  out += "<h2>Checkpoints</h2>\n<table>\n<tr><th>kind</th><th>made</th><th>held</th><th>evicted</th></tr>\n";
  for (int k = 0; k < cache::kCheckpointKinds; ++k) {
    Add(out, "<tr><td style=\"color:{}\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        ColourOf(static_cast<cache::CheckpointKind>(k)),
        cache::CheckpointKindName(static_cast<cache::CheckpointKind>(k)), snapshot.report.checkpoints_made[k],
        snapshot.tree.all.checkpoints[k], snapshot.report.checkpoints_evicted_by_kind[k]);
  }
  Add(out, "</table>\n<p>{} were wanted for which no memory was to be had.</p>\n", snapshot.report.checkpoints_skipped);
}

void AddTiers(std::string& out, const std::vector<cache::TierReport>& tiers) {
  if (tiers.empty()) return;
  out +=
      "<h2>Tiers</h2>\n<table>\n<tr><th>tier</th><th>records</th><th>size</th><th>hits</th><th>misses</th>"
      "<th>stored</th><th>not stored</th><th>read</th><th>written</th></tr>\n";
  for (const cache::TierReport& tier : tiers) {
    const cache::TierStats& stats = tier.stats;
    Add(out,
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></"
        "tr>\n",
        EscapeHtml(tier.name), stats.records < 0 ? std::string("not known") : fmt::format("{}", stats.records),
        Bytes(stats.bytes), stats.hits, stats.all_get_misses(), stats.stored, stats.all_put_misses(),
        Bytes(stats.bytes_read), Bytes(stats.bytes_written));
  }
  out += "</table>\n";
}

void AddTenants(std::string& out, const std::vector<TreeReport::Tenant>& tenants) {
  out +=
      "<h2>Tenants</h2>\n<table>\n<tr><th>tenant</th><th>salts</th><th>nodes</th><th>tokens</th><th>hits</th>"
      "<th>checkpoints</th></tr>\n";
  for (size_t i = 0; i < std::min(tenants.size(), kTenantRowsMax); ++i) {
    const cache::TreeTotals& totals = tenants[i].totals;
    int64_t checkpoints = 0;
    for (const int64_t count : totals.checkpoints) checkpoints += count;
    Add(out, "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        EscapeHtml(tenants[i].name.empty() ? std::string("(none)") : tenants[i].name), totals.scopes, totals.nodes,
        totals.kv_tokens, totals.hits, checkpoints);
  }
  out += "</table>\n";
  if (tenants.size() > kTenantRowsMax) Add(out, "<p>{} more.</p>\n", tenants.size() - kTenantRowsMax);
}

struct Box {
  double x = 0;
  double width = 0;
  double free_x = 0;  // Where its next child begins.
  int row = 0;
};

// A child is as wide as its share of what hangs below its parent.
std::vector<Box> Layout(const std::vector<TreeNodeReport>& nodes) {
  int64_t all = 0;
  for (const TreeNodeReport& node : nodes) all += node.parent < 0 ? node.tokens_below : 0;
  const double scale = kPictureWidth / static_cast<double>(std::max<int64_t>(1, all));
  std::vector<Box> boxes;
  double free_x = 0;
  for (const TreeNodeReport& node : nodes) {
    double& begin = node.parent < 0 ? free_x : boxes[node.parent].free_x;
    const Box box{.x = begin,
                  .width = scale * static_cast<double>(node.tokens_below),
                  .free_x = begin,
                  .row = node.parent < 0 ? 0 : boxes[node.parent].row + 1};
    begin += box.width;
    boxes.push_back(box);
  }
  return boxes;
}

std::string Words(const TreeNodeReport& node, const std::string& tenant) {
  return fmt::format("{} #{}: [{}, {}), {} tokens below, {} hits, idle {:.0f} s{}{}{}", tenant, node.scope, node.begin,
                     node.end, node.tokens_below, node.hits, ToSeconds(node.idle_ns), node.has_kv ? "" : ", no KV",
                     node.checkpoint.has_value() ? ", checkpoint: " : "",
                     node.checkpoint.has_value() ? cache::CheckpointKindName(*node.checkpoint) : std::string_view());
}

void AddPicture(std::string& out, const TreeReport& tree) {
  const std::vector<Box> boxes = Layout(tree.nodes);
  int rows = 0;
  for (const Box& box : boxes) rows = std::max(rows, std::min(box.row + 1, kRowsMax));
  Add(out,
      "<h2>Tree</h2>\n<p>{} nodes, {} tokens of KV; the heaviest {} are here. A node is as wide as what hangs below "
      "it; a stripe at its end is a checkpoint.</p>\n",
      tree.all.nodes, tree.all.kv_tokens, tree.nodes.size());
  if (tree.nodes.empty()) return;
  Add(out, "<svg viewBox=\"0 0 {:.0f} {:.0f}\" xmlns=\"http://www.w3.org/2000/svg\">\n", kPictureWidth,
      rows * kRowHeight);
  size_t drawn = 0;
  for (size_t i = 0; i < boxes.size() && drawn < kDrawnNodesMax; ++i) {
    const Box& box = boxes[i];
    const TreeNodeReport& node = tree.nodes[i];
    if (box.width < kWidthMin || box.row >= kRowsMax) continue;
    ++drawn;
    const double y = box.row * kRowHeight;
    Add(out,
        "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\" fill=\"{}\" "
        "stroke=\"#fff\"/>",
        EscapeHtml(Words(node, tree.tenants[node.tenant].name)), box.x, y, box.width, kRowHeight,
        node.hits > 0 ? "#9ecae1"
        : node.has_kv ? "#deebf7"
                      : "#f0f0f0");
    if (node.checkpoint.has_value()) {
      Add(out, "<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"4\" fill=\"{}\"/>", box.x, y + kRowHeight - 4,
          box.width, ColourOf(*node.checkpoint));
    }
    out += "</g>\n";
  }
  out += "</svg>\n";
}

void AddNodes(std::string& out, const TreeReport& tree) {
  if (tree.nodes.empty()) return;
  std::vector<const TreeNodeReport*> nodes;
  for (const TreeNodeReport& node : tree.nodes) nodes.push_back(&node);
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const TreeNodeReport* a, const TreeNodeReport* b) { return a->hits > b->hits; });
  if (nodes.size() > kNodeRowsMax) nodes.resize(kNodeRowsMax);
  out +=
      "<h2>Most used nodes</h2>\n<table>\n<tr><th>tenant</th><th>tree</th><th>positions</th><th>hits</th>"
      "<th>idle</th><th>below</th><th>checkpoint</th></tr>\n";
  for (const TreeNodeReport* const node : nodes) {
    Add(out, "<tr><td>{}</td><td>{}</td><td>{} - {}</td><td>{}</td><td>{:.0f} s</td><td>{}</td><td>{}</td></tr>\n",
        EscapeHtml(tree.tenants[node->tenant].name), node->scope, node->begin, node->end, node->hits,
        ToSeconds(node->idle_ns), node->tokens_below,
        node->checkpoint.has_value() ? cache::CheckpointKindName(*node->checkpoint) : std::string_view("-"));
  }
  out += "</table>\n";
}

}  // namespace

std::string EscapeHtml(const std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string CachePage(const std::string_view model, const engine::CacheSnapshot* const snapshot,
                      const double age_seconds) {
  std::string out;
  Add(out, kHead, snapshot == nullptr ? 1 : kRefreshSeconds, EscapeHtml(model));
  if (snapshot == nullptr) {
    out += "<p>The first picture is being made.</p>\n</body></html>\n";
    return out;
  }
  Add(out, "<p>As it was {:.1f} s ago.</p>\n", std::max(0.0, age_seconds));
  AddBudget(out, snapshot->report);
  AddCheckpoints(out, *snapshot);
  AddTiers(out, snapshot->report.tiers);
  AddPicture(out, snapshot->tree);
  AddTenants(out, snapshot->tree.tenants);
  AddNodes(out, snapshot->tree);
  out += "</body></html>\n";
  return out;
}

}  // namespace invar::server
