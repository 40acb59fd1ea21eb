// Plain SVG by hand, as invar plan draws: rectangles and words need no library.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tools/eval/report.h"

namespace invar::eval {
namespace {

// Pixels.
constexpr int kLeft = 330;         // Room for compressors.
constexpr int kPanelWidth = 150;   // Of a measure's longest bar.
constexpr int kPanelStride = 220;  // And room for its number.
constexpr int kTop = 72;
constexpr int kLine = 22;
constexpr size_t kNameMax = 44;

// One column of bars.
struct Panel {
  std::string title;
  std::vector<double> values = {};  // A candidate each; below 0 is drawn as 0.
  double largest = 1.0;             // At least: what the longest bar stands for.
};

// Measures that there are, as losses against the full KV where that says more.
std::vector<Panel> PanelsOf(const EvalOptions& options, const EvalResults& results) {
  const CandidateResult& full = results.candidates.front();
  std::vector<Panel> panels;
  const auto add = [&](std::string title, const double largest, const auto& value) {
    Panel panel{.title = std::move(title), .largest = largest};
    for (const CandidateResult& candidate : results.candidates) panel.values.push_back(value(candidate));
    panels.push_back(std::move(panel));
  };
  add("share of bytes", 1.0, [](const CandidateResult& c) { return c.bytes_share(); });
  add("score of tasks", 1.0, [&](const CandidateResult& c) { return results.MeanScore(c); });
  add("answers: loss of nll", 0.1,
      [&](const CandidateResult& c) { return results.MeanNll(c, false) - results.MeanNll(full, false); });
  if (full.text.tokens > 0) {
    add("text: perplexity, + %", 1.0,
        [&](const CandidateResult& c) { return 100.0 * (std::exp(c.text.nll() - full.text.nll()) - 1.0); });
  }
  for (size_t i = 0; i < options.draft_tokens.size(); ++i) {
    add(fmt::format("accepted of {} a draft", options.draft_tokens[i]), 1.0,
        [&](const CandidateResult& c) { return c.drafts[i].acceptance.value(); });
  }
  return panels;
}

std::string Escaped(const std::string_view words) {
  std::string out;
  for (const char c : words) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string NameOf(const CandidateResult& candidate) {
  std::string name = candidate.name.size() > kNameMax ? candidate.name.substr(0, kNameMax) + "..." : candidate.name;
  if (candidate.has_budget) name += fmt::format(" at {:g}", candidate.budget);
  return name;
}

}  // namespace

std::string ToPicture(const EvalHeading& heading, const EvalOptions& options, const EvalResults& results) {
  const std::vector<Panel> panels = PanelsOf(options, results);
  const int width = kLeft + static_cast<int>(panels.size()) * kPanelStride;
  const int height = kTop + static_cast<int>(results.candidates.size()) * kLine + 16;
  std::string svg;
  const auto add = [&]<typename... Values>(const fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(svg), format, std::forward<Values>(values)...);
    svg += '\n';
  };
  const auto text = [&](const double x, const double y, const std::string_view anchor, const std::string_view words) {
    add(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor, Escaped(words));
  };
  add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
      R"(font-family="sans-serif" font-size="13">)",
      width, height);
  add(R"(<rect width="100%" height="100%" fill="white"/>)");
  text(16, 24, "start",
       fmt::format("Compressed views of {} tokens: {}, {} samples, seed {}, {}", options.context_tokens, heading.model,
                   options.samples, options.seed, heading.date));
  for (size_t i = 0; i < results.candidates.size(); ++i)
    text(kLeft - 8, kTop + static_cast<double>(i) * kLine + 15, "end", NameOf(results.candidates[i]));
  for (size_t p = 0; p < panels.size(); ++p) {
    const Panel& panel = panels[p];
    const double x = kLeft + static_cast<double>(p) * kPanelStride;
    const double largest = std::max(panel.largest, *std::max_element(panel.values.begin(), panel.values.end()));
    text(x, kTop - 12, "start", panel.title);
    for (size_t i = 0; i < panel.values.size(); ++i) {
      const double y = kTop + static_cast<double>(i) * kLine;
      // The full KV first and the floor last, in grey: the others lie between.
      const bool is_bound = i == 0 || results.candidates[i].name == results.candidates.back().name;
      const double length = std::clamp(panel.values[i] / largest, 0.0, 1.0) * kPanelWidth;
      add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" fill="{}"/>)", x, y + 3, length, kLine - 6,
          is_bound ? "#444444" : "#9db8d2");
      text(x + length + 5, y + 15, "start", fmt::format("{:.3f}", panel.values[i]));
    }
  }
  return svg + "</svg>\n";
}

}  // namespace invar::eval
