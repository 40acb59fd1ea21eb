// Plain SVG by hand, as invar eval draws: circles, lines and words need no library.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tools/calibrate/report.h"

namespace invar::calibrate {
namespace {

// Pixels.
constexpr double kWidth = 980;
constexpr double kHeight = 420;
constexpr double kPlot = 340;  // Width of either plot.
constexpr double kTop = 60;
constexpr double kBottom = 360;
constexpr double kLeft = 70;
constexpr double kRight = 560;  // Left edge of the second plot.

class Svg {
 public:
  template <typename... Values>
  void Add(const fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    text_ += '\n';
  }
  void Words(const double x, const double y, const std::string_view anchor, const std::string_view words) {
    Add(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor, words);
  }
  void Frame(const double left, const std::string_view title, const std::string_view below) {
    Words(left, kTop - 16, "start", title);
    Add(R"(<path d="M{0:.1f} {1:.1f} V{2:.1f} H{3:.1f}" fill="none" stroke="#444444"/>)", left, kTop, kBottom,
        left + kPlot);
    Words(left + kPlot / 2, kBottom + 36, "middle", below);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// KL spans decades, so its axis is one of powers of ten.
void DrawPoints(const Calibration& calibration, Svg& svg) {
  double low = 0.0;
  double high = -6.0;
  double most_bytes = 1.0;
  for (const MeasuredPoint& point : calibration.points) {
    const double log_kl = std::log10(std::max(point.quality.kl, 1e-6));
    low = std::min(low, std::floor(log_kl));
    high = std::max(high, std::ceil(log_kl));
    most_bytes = std::max(most_bytes, point.payload_bytes_per_token);
  }
  high = std::max(high, low + 1.0);
  svg.Frame(kLeft, "KL to the consumer's own prefill, nats a token", "payload, share of raw bytes");
  for (double decade = low; decade <= high; decade += 1.0) {
    const double y = kBottom - (decade - low) / (high - low) * (kBottom - kTop);
    svg.Add(R"(<path d="M{:.1f} {:.1f} h{:.1f}" stroke="#dddddd"/>)", kLeft, y, kPlot);
    svg.Words(kLeft - 6, y + 4, "end", fmt::format("{:g}", std::pow(10.0, decade)));
  }
  for (const MeasuredPoint& point : calibration.points) {
    const double x = kLeft + point.payload_bytes_per_token / most_bytes * (kPlot - 10);
    const double y = kBottom - (std::log10(std::max(point.quality.kl, 1e-6)) - low) / (high - low) * (kBottom - kTop);
    const bool ours = point.point.name.starts_with("scd");
    svg.Add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}"/>)", x, y, ours ? "#2a6fb0" : "#888888");
    svg.Words(x + 7, y + 4, "start", point.point.name);
  }
  for (const double share : {0.0, 0.5, 1.0}) {
    const double x = kLeft + share * calibration.raw_bytes_per_token / most_bytes * (kPlot - 10);
    svg.Words(x, kBottom + 18, "middle", fmt::format("{:g}", share));
  }
}

void DrawDepth(const Calibration& calibration, Svg& svg) {
  svg.Frame(kRight, "error of each layer's cache, relative", "layer");
  const MeasuredPoint* const drawn[] = {&calibration.points[calibration.raw], &calibration.points[calibration.main]};
  double largest = 1e-3;
  for (const MeasuredPoint* point : drawn) largest = std::max(largest, *std::ranges::max_element(point->layer_errors));
  for (const double share : {0.0, 0.5, 1.0}) {
    svg.Words(kRight - 6, kBottom - share * (kBottom - kTop) + 4, "end", fmt::format("{:.2f}", share * largest));
  }
  for (const MeasuredPoint* point : drawn) {
    const auto count = static_cast<double>(std::max<size_t>(2, point->layer_errors.size()));
    std::string path;
    double x = kRight;
    double y = kBottom;
    for (size_t i = 0; i < point->layer_errors.size(); ++i) {
      x = kRight + static_cast<double>(i) / (count - 1.0) * (kPlot - 60);
      y = kBottom - point->layer_errors[i] / largest * (kBottom - kTop);
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f} ", i == 0 ? 'M' : 'L', x, y);
    }
    const bool ours = point != drawn[0];
    svg.Add(R"(<path d="{}" fill="none" stroke="{}" stroke-width="2"/>)", path, ours ? "#2a6fb0" : "#888888");
    svg.Words(x + 6, y + 4, "start", point->point.name);
  }
}

}  // namespace

std::string ToPicture(const Calibration& calibration) {
  Svg svg;
  svg.Add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
          R"(font-family="sans-serif" font-size="13">)",
          kWidth, kHeight);
  svg.Add(R"(<rect width="100%" height="100%" fill="white"/>)");
  DrawPoints(calibration, svg);
  DrawDepth(calibration, svg);
  svg.Add("</svg>");
  return svg.Take();
}

}  // namespace invar::calibrate
