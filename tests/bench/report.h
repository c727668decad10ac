// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace regroup::bench {

/// A summary of repeated measurements.
struct Summary {
    double median = 0;
    double min = 0;
    double worst = 0;
    std::size_t count = 0;
};

/// `values` must not be empty.
[[nodiscard]] Summary summarize(std::vector<double> values);

/// `value` with `decimals` decimals: "3.20".
[[nodiscard]] std::string fixed(double value, int decimals);

/// Plain text in columns, the first to the left and the others to the right.
class Table {
   public:
    explicit Table(std::vector<std::string> header);

    void add(std::vector<std::string> row);
    void print() const;

   private:
    std::vector<std::vector<std::string>> rows_;
};

/// The model of this machine's processor.
[[nodiscard]] std::string processor();

/// Prints the title, then the machine: processor, cores, kernel, and its present load by other
/// programs. A busy machine inflates all times, and gets a warning.
void print_head(const std::string& title);

enum class Aim { at_least, at_most };

/// Prints one line: the aim, the result, and whether it meets the aim.
void print_verdict(const std::string& what, double value, Aim aim, double limit);

}  // namespace regroup::bench
