// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace regroup::rendezvous {

/// The two text formats that Prometheus reads.
enum class MetricsFormat : std::uint8_t {
    prometheus,   ///< 0.0.4
    openmetrics,  ///< 1.0.0
};
/// The value of the header Content-Type.
[[nodiscard]] std::string_view content_type(MetricsFormat format) noexcept;
/// The format for a client that sends this header Accept: OpenMetrics only if it asks for it.
[[nodiscard]] MetricsFormat metrics_format(std::string_view accept);

/// Writes metrics, one family after the other. A family without samples leaves no trace.
class MetricsWriter {
   public:
    enum class Type : std::uint8_t { counter, gauge, histogram, info };
    using Label = std::pair<std::string_view, std::string_view>;
    using Labels = std::initializer_list<Label>;

    explicit MetricsWriter(MetricsFormat format) : format_(format) {}

    /// Begins a family. `name` has no `_total` or `_info`; its unit is its last word, if that is
    /// "seconds", "bytes" or "ratio". The texts must last until the next family.
    void family(std::string_view name, Type type, std::string_view help);

    /// A sample of the family. `common`: labels that were written by `labels`; may be empty.
    void sample(std::string_view common, Labels labels, double value);
    void sample(std::string_view common, Labels labels, std::uint64_t value);
    /// A histogram with one more element in `counts`, which are not cumulative, than in `limits`.
    void histogram(std::string_view common, Labels labels, std::span<const double> limits,
                   std::span<const std::uint64_t> counts, double sum);

    /// The text of labels: `job_id="a",state="b"`. Values are escaped, and made printable: a zero
    /// byte ends the whole text for Prometheus.
    [[nodiscard]] static std::string labels(Labels labels);

    /// The text, complete.
    [[nodiscard]] std::string take();

   private:
    void head();
    void begin(std::string_view suffix, std::string_view common, Labels labels);
    void add_label(const Label& label);
    void end(double value);
    void end(std::uint64_t value);

    MetricsFormat format_;
    std::string text_;
    std::string_view name_;
    std::string_view help_;
    Type type_ = Type::gauge;
    bool has_head_ = false;
};

}  // namespace regroup::rendezvous
