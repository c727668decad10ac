// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace regroup::bench {

/// What is told of repeated measurements of one thing.
struct Summary {
    double median = 0;
    double min = 0;
    double worst = 0;
    std::size_t count = 0;
};

/// `values` must not be empty.
[[nodiscard]] Summary summarize(std::vector<double> values);

/// `value` with so many decimals: "3.20".
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

/// The title, then the machine: processor, cores, kernel, and how busy others keep it, which is
/// measured for a moment. A busy machine inflates every time and is warned of.
void print_head(const std::string& title);

enum class Aim { at_least, at_most };

/// One line: what was aimed at, what came out, and whether that is enough.
void print_verdict(const std::string& what, double value, Aim aim, double limit);

}  // namespace regroup::bench
