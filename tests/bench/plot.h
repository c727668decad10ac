// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace regroup::bench {

struct Series {
    enum class Style { measured, formula };  ///< Points; a dashed line.

    std::string name;
    std::string color;  ///< In SVG notation: "#1f6fb5".
    Style style = Style::measured;
    std::vector<std::pair<double, double>> points;  ///< x ascends.
};

/// One diagram with linear axes; y begins at 0.
struct Plot {
    std::string title;
    std::string subtitle;
    std::string x_label;
    std::string y_label;
    std::vector<double> x_ticks;  ///< At least two, ascending; all points lie between them.
    std::vector<Series> series;   ///< In the order of the legend.
};

/// A complete SVG file: 720 x 450, on white.
[[nodiscard]] std::string to_svg(const Plot& plot);

}  // namespace regroup::bench
