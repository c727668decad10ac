// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/metrics_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>

#include "rendezvous/base/printable.h"
#include "rendezvous/base/text.h"

namespace regroup::rendezvous {

namespace {

constexpr std::array<std::string_view, 3> kUnits{"seconds", "bytes", "ratio"};

std::string_view word(MetricsWriter::Type type, MetricsFormat format) noexcept {
    switch (type) {
        case MetricsWriter::Type::counter:
            return "counter";
        case MetricsWriter::Type::gauge:
            return "gauge";
        case MetricsWriter::Type::histogram:
            return "histogram";
        case MetricsWriter::Type::info:
            return format == MetricsFormat::openmetrics ? "info" : "gauge";
    }
    return "unknown";
}

std::string_view suffix(MetricsWriter::Type type) noexcept {
    switch (type) {
        case MetricsWriter::Type::counter:
            return "_total";
        case MetricsWriter::Type::info:
            return "_info";
        case MetricsWriter::Type::gauge:
        case MetricsWriter::Type::histogram:
            break;
    }
    return "";
}

void append_escaped(std::string& text, std::string_view value, std::string_view escaped) {
    for (std::size_t begin = 0;;) {
        const std::size_t next = value.find_first_of(escaped, begin);
        text += value.substr(begin, next - begin);
        if (next == value.npos) {
            return;
        }
        text += '\\';
        text += value[next] == '\n' ? 'n' : value[next];
        begin = next + 1;
    }
}

/// `text` without characters that a terminal obeys. Different texts stay different: a backslash is
/// doubled, so that it does not look like an escape of printable().
std::string label_value(std::string_view text) {
    std::string whole;
    append_escaped(whole, text, "\\");
    return printable(whole);
}

void append(std::string& text, std::uint64_t value) {
    std::array<char, 24> digits{};
    text.append(digits.data(),
                std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

void append(std::string& text, double value) {
    if (!std::isfinite(value)) {
        text += std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
        return;
    }
    std::array<char, 40> digits{};
    text.append(digits.data(),
                std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

// OpenMetrics wants limits to be floats. The other format takes them too, and a series must not
// have another name in each.
std::string limit_text(double limit) {
    std::string text;
    append(text, limit);
    return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

/// Takes the part up to `separator` from `text`.
std::string_view take_part(std::string_view& text, char separator) noexcept {
    const std::size_t end = text.find(separator);
    const std::string_view part = text.substr(0, end);
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
    return trimmed(part);
}

struct Offer {
    MetricsFormat format;
    double quality;
};

/// Nothing if it is for another format.
std::optional<Offer> offer_of(std::string_view element) {
    const std::string type = lower(take_part(element, ';'));
    Offer offer{MetricsFormat::prometheus, 1};
    std::string version;
    while (!element.empty()) {
        std::string_view parameter = take_part(element, ';');
        const std::string name = lower(take_part(parameter, '='));
        if (name == "q") {
            double quality = 0;
            std::from_chars(parameter.data(), parameter.data() + parameter.size(), quality);
            offer.quality = quality;
        } else if (name == "version") {
            version = parameter;
            std::erase(version, '"');
        }
    }
    if (type == "application/openmetrics-text" && (version.empty() || version == "1.0.0")) {
        offer.format = MetricsFormat::openmetrics;
        return offer;
    }
    const bool is_text = type == "text/plain" || type == "text/*" || type == "*/*";
    return is_text ? std::optional(offer) : std::nullopt;
}

}  // namespace

std::string_view content_type(MetricsFormat format) noexcept {
    return format == MetricsFormat::openmetrics
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

MetricsFormat metrics_format(std::string_view accept) {
    std::array<double, 2> quality{};
    while (!accept.empty()) {
        if (const auto offer = offer_of(take_part(accept, ','))) {
            double& best = quality[static_cast<std::size_t>(offer->format)];
            best = std::max(best, offer->quality);
        }
    }
    const double openmetrics = quality[static_cast<std::size_t>(MetricsFormat::openmetrics)];
    const double prometheus = quality[static_cast<std::size_t>(MetricsFormat::prometheus)];
    return openmetrics > 0 && openmetrics >= prometheus ? MetricsFormat::openmetrics
                                                        : MetricsFormat::prometheus;
}

void MetricsWriter::family(std::string_view name, Type type, std::string_view help) {
    name_ = name;
    type_ = type;
    help_ = help;
    has_head_ = false;
}

void MetricsWriter::head() {
    if (std::exchange(has_head_, true)) {
        return;
    }
    const bool is_open = format_ == MetricsFormat::openmetrics;
    std::string name(name_);
    if (!is_open) {
        name += suffix(type_);
    }
    text_ += "# HELP " + name + ' ';
    append_escaped(text_, help_, is_open ? "\\\"\n" : "\\\n");
    text_ += "\n# TYPE " + name + ' ';
    text_ += word(type_, format_);
    text_ += '\n';
    const std::string_view unit = name_.substr(name_.rfind('_') + 1);
    if (is_open && std::ranges::find(kUnits, unit) != kUnits.end()) {
        text_ += "# UNIT " + name + ' ';
        text_ += unit;
        text_ += '\n';
    }
}

void MetricsWriter::add_label(const Label& label) {
    text_ += label.first;
    text_ += "=\"";
    append_escaped(text_, label_value(label.second), "\\\"\n");
    text_ += '"';
}

std::string MetricsWriter::labels(Labels labels) {
    MetricsWriter writer(MetricsFormat::prometheus);
    for (const Label& label : labels) {
        if (!writer.text_.empty()) {
            writer.text_ += ',';
        }
        writer.add_label(label);
    }
    return writer.text_;
}

void MetricsWriter::begin(std::string_view suffix, std::string_view common, Labels labels) {
    text_ += name_;
    text_ += suffix;
    if (common.empty() && labels.size() == 0) {
        return;
    }
    text_ += '{';
    text_ += common;
    bool is_first = common.empty();
    for (const Label& label : labels) {
        if (!std::exchange(is_first, false)) {
            text_ += ',';
        }
        add_label(label);
    }
    text_ += '}';
}

void MetricsWriter::end(double value) {
    text_ += ' ';
    append(text_, value);
    text_ += '\n';
}

void MetricsWriter::end(std::uint64_t value) {
    text_ += ' ';
    append(text_, value);
    text_ += '\n';
}

void MetricsWriter::sample(std::string_view common, Labels labels, double value) {
    head();
    begin(suffix(type_), common, labels);
    end(value);
}

void MetricsWriter::sample(std::string_view common, Labels labels, std::uint64_t value) {
    head();
    begin(suffix(type_), common, labels);
    end(value);
}

void MetricsWriter::histogram(std::string_view common, Labels labels,
                              std::span<const double> limits, std::span<const std::uint64_t> counts,
                              double sum) {
    head();
    std::string all(common);
    for (const Label& label : labels) {
        all += (all.empty() ? "" : ",") + MetricsWriter::labels({label});
    }
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        count += counts[i];
        begin("_bucket", all, {{"le", i < limits.size() ? limit_text(limits[i]) : "+Inf"}});
        end(count);
    }
    begin("_sum", all, {});
    end(sum);
    begin("_count", all, {});
    end(count);
}

std::string MetricsWriter::take() {
    if (format_ == MetricsFormat::openmetrics) {
        text_ += "# EOF\n";
    }
    return std::move(text_);
}

}  // namespace regroup::rendezvous
