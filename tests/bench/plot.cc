// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/plot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "rendezvous/base/ensure.h"
#include "tests/bench/report.h"

namespace regroup::bench {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 450;
constexpr double kLeft = 64;
constexpr double kRight = 24;
constexpr double kTop = 74;
constexpr double kBottom = 56;
constexpr double kLegendLine = 20;
constexpr double kLegendDash = 30;

std::string escape(const std::string& text) {
    std::string result;
    for (const char c : text) {
        result += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
    }
    return result;
}

/// The distance of ticks: 1, 2 or 5 times a power of ten, so that there are at most six.
double tick_step(double most) {
    const double power = std::pow(10, std::floor(std::log10(most / 6)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (most / (factor * power) <= 6) {
            return factor * power;
        }
    }
    return 10 * power;
}

class Drawing {
   public:
    explicit Drawing(const Plot& plot) : plot_(plot) {
        double most = 0;
        for (const Series& series : plot.series) {
            for (const auto& [x, y] : series.points) {
                most = std::max(most, y);
            }
        }
        step_ = tick_step(std::max(most, 1e-9));
        top_ = step_ * std::ceil(most / step_);
    }

    std::string draw() {
        svg_ =
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"450\" "
            "viewBox=\"0 0 720 450\" font-family=\"Helvetica, Arial, sans-serif\">\n"
            "<rect width=\"720\" height=\"450\" fill=\"#ffffff\"/>\n";
        text(kLeft, 28, 17, "start", "#1a1a1a", plot_.title, "font-weight=\"bold\"");
        text(kLeft, 48, 12.5, "start", "#555555", plot_.subtitle);
        axes();
        for (const Series& series : plot_.series) {
            curve(series);
        }
        legend();
        return svg_ + "</svg>\n";
    }

   private:
    [[nodiscard]] double at_x(double x) const {
        const double span = plot_.x_ticks.back() - plot_.x_ticks.front();
        return kLeft + 20 + (x - plot_.x_ticks.front()) / span * (kWidth - kLeft - kRight - 40);
    }
    [[nodiscard]] double at_y(double y) const {
        return kHeight - kBottom - y / top_ * (kHeight - kTop - kBottom);
    }

    void text(double x, double y, double size, const char* anchor, const char* color,
              const std::string& words, const std::string& more = "") {
        svg_ += "<text x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" font-size=\"" +
                fixed(size, 1) + "\" text-anchor=\"" + anchor + "\" fill=\"" + color + "\"" +
                (more.empty() ? "" : " " + more) + ">" + escape(words) + "</text>\n";
    }

    void line(double x1, double y1, double x2, double y2, const std::string& look) {
        svg_ += "<line x1=\"" + fixed(x1, 1) + "\" y1=\"" + fixed(y1, 1) + "\" x2=\"" +
                fixed(x2, 1) + "\" y2=\"" + fixed(y2, 1) + "\" " + look + "/>\n";
    }

    void axes() {
        const int decimals = step_ >= 1 ? 0 : static_cast<int>(std::ceil(-std::log10(step_)));
        for (int tick = 0; step_ * tick <= top_ * 1.0001; ++tick) {
            const double y = at_y(step_ * tick);
            line(kLeft, y, kWidth - kRight, y,
                 tick == 0 ? "stroke=\"#333333\"" : "stroke=\"#e6e6e6\"");
            text(kLeft - 8, y + 4, 12, "end", "#333333", fixed(step_ * tick, decimals));
        }
        for (const double tick : plot_.x_ticks) {
            line(at_x(tick), at_y(0), at_x(tick), at_y(0) + 5, "stroke=\"#333333\"");
            text(at_x(tick), at_y(0) + 20, 12, "middle", "#333333", fixed(tick, 0));
        }
        text((kLeft + kWidth - kRight) / 2, kHeight - 12, 13, "middle", "#333333", plot_.x_label);
        const double middle = (kTop + kHeight - kBottom) / 2;
        text(18, middle, 13, "middle", "#333333", plot_.y_label,
             "transform=\"rotate(-90 18 " + fixed(middle, 1) + ")\"");
    }

    void dashes(const Series& series, const std::string& points) {
        if (series.style == Series::Style::formula) {
            svg_ += "<polyline points=\"" + points + "\" fill=\"none\" stroke=\"" + series.color +
                    "\" stroke-width=\"1.8\" stroke-dasharray=\"6 4\"/>\n";
        }
    }

    void dot(const Series& series, double x, double y) {
        if (series.style == Series::Style::measured) {
            svg_ += "<circle cx=\"" + fixed(x, 1) + "\" cy=\"" + fixed(y, 1) +
                    "\" r=\"5\" fill=\"" + series.color +
                    "\" stroke=\"#ffffff\" stroke-width=\"1.5\"/>\n";
        }
    }

    static std::string pair(double x, double y) { return fixed(x, 1) + "," + fixed(y, 1) + " "; }

    void curve(const Series& series) {
        std::string points;
        for (const auto& [x, y] : series.points) {
            points += pair(at_x(x), at_y(y));
            dot(series, at_x(x), at_y(y));
        }
        dashes(series, points);
    }

    void legend() {
        double y = kTop + 12;
        for (const Series& series : plot_.series) {
            const double x = kLeft + 18;
            dashes(series, pair(x, y) + pair(x + kLegendDash, y));
            dot(series, x + kLegendDash / 2, y);
            text(x + kLegendDash + 10, y + 4, 12.5, "start", "#1a1a1a", series.name);
            y += kLegendLine;
        }
    }

    const Plot& plot_;
    double step_ = 1;
    double top_ = 1;
    std::string svg_;
};

}  // namespace

std::string to_svg(const Plot& plot) {
    ENSURE(plot.x_ticks.size() >= 2);
    return Drawing(plot).draw();
}

}  // namespace regroup::bench
