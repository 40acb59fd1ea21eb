// Plain SVG by hand: a few rectangles, lines and words need no library.
#include "tools/invar/plan_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace invar::tools {
namespace {

// Pixels.
constexpr int kLeft = 150;   // Room for policy names.
constexpr int kRight = 130;  // Room for costs.
constexpr int kWidth = 800;  // Of the axis.
constexpr int kTop = 48;
constexpr int kHistogramHeight = 220;
constexpr int kStripHeight = 24;
constexpr int kBins = 128;

class Picture {
 public:
  Picture(const int32_t length, const size_t strips)
      : length_(length), height_(kTop + kHistogramHeight + 48 + static_cast<int>(strips) * kStripHeight + 16) {
    Add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
        R"(font-family="sans-serif" font-size="13">)"
        "\n"
        R"(<rect width="100%" height="100%" fill="white"/>)"
        "\n",
        kLeft + kWidth + kRight, height_);
  }

  double X(const double depth) const { return kLeft + depth * kWidth / length_; }

  void Text(const double x, const double y, const std::string_view anchor, const std::string_view words) {
    Add(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)"
        "\n",
        x, y, anchor, words);
  }
  void Line(const double x, const double y1, const double y2, const std::string_view colour, const double width) {
    Add(R"(<line x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}" stroke="{3}" stroke-width="{4}"/>)"
        "\n",
        x, y1, y2, colour, width);
  }
  void Bar(const double x, const double width, const double bottom, const double height,
           const std::string_view colour) {
    Add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>)"
        "\n",
        x, bottom - height, width, height, colour);
  }

  std::string Finish() && { return svg_ + "</svg>\n"; }

 private:
  template <typename... Values>
  void Add(const fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Values>(values)...);
  }

  const int32_t length_;
  const int height_;
  std::string svg_;
};

constexpr double kAxis = kTop + kHistogramHeight;

void DrawHistogram(Picture& picture, const cache::DemandView demand, const int32_t length) {
  std::vector<int64_t> bins(kBins, 0);
  for (const cache::DepthWeight& point : demand) {
    bins[std::min<int64_t>(kBins - 1, int64_t{point.depth} * kBins / length)] += point.weight;
  }
  const int64_t total = cache::TotalWeight(demand);
  const int64_t tallest = std::max<int64_t>(1, *std::max_element(bins.begin(), bins.end()));
  for (int bin = 0; bin < kBins; ++bin) {
    const double height =
        static_cast<double>(kHistogramHeight) * static_cast<double>(bins[bin]) / static_cast<double>(tallest);
    const double width = static_cast<double>(kWidth) / kBins;
    picture.Bar(kLeft + bin * width, width - 0.5, kAxis, height, "#9db8d2");
  }
  if (total > 0) {
    picture.Text(kLeft - 8, kTop + 10, "end",
                 fmt::format("{:.1f} %", 100.0 * static_cast<double>(tallest) / static_cast<double>(total)));
  }
  picture.Text(kLeft - 8, kAxis, "end", "share of requests");
  for (int tick = 0; tick <= 4; ++tick) {
    const double depth = static_cast<double>(length) * tick / 4;
    picture.Line(picture.X(depth), kAxis, kAxis + 5, "black", 1);
    picture.Text(picture.X(depth), kAxis + 19, "middle", fmt::format("{:.0f}", depth));
  }
}

}  // namespace

std::string DrawPlan(const cache::DemandView demand, const int32_t length, const std::vector<PlacedPolicy>& policies) {
  Picture picture(length, policies.size());
  picture.Text(kLeft, 24, "start",
               fmt::format("Overlap depths and {} checkpoints of {} in a prefix of {} tokens",
                           policies[0].positions.size(), policies[0].name, length));
  DrawHistogram(picture, demand, length);
  for (const int32_t position : policies[0].positions) picture.Line(picture.X(position), kTop, kAxis, "#c0392b", 1.5);
  double y = kAxis + 44;
  picture.Text(kLeft + kWidth + 8, y - 8, "start", "recomputed");
  for (size_t i = 0; i < policies.size(); ++i, y += kStripHeight) {
    const PlacedPolicy& policy = policies[i];
    picture.Text(kLeft - 8, y + 15, "end", policy.name);
    picture.Bar(kLeft, kWidth, y + kStripHeight - 4, kStripHeight - 6, "#f0f0f0");
    for (const int32_t position : policy.positions) {
      picture.Line(picture.X(position), y + 2, y + kStripHeight - 4, i == 0 ? "#c0392b" : "#444444", 1.5);
    }
    picture.Text(kLeft + kWidth + 8, y + 15, "start", fmt::format("{:.1f} tokens", policy.expected_recompute_tokens));
  }
  return std::move(picture).Finish();
}

}  // namespace invar::tools
