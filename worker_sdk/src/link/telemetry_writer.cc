// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/link/telemetry_writer.h"

#include <algorithm>
#include <string_view>

namespace regroup::link {
namespace {

// This thread is the only writer, so no read-modify-write instruction is needed.
template <class Number>
void add(std::atomic<Number>& sum, Number more, std::memory_order order) noexcept {
    sum.store(sum.load(std::memory_order_relaxed) + more, order);
}

void add(std::atomic<std::int64_t>& sum, Duration more) noexcept {
    add<std::int64_t>(sum, more.count(), std::memory_order_relaxed);
}

}  // namespace

void TelemetryWriter::count_step(const StepTimes& times, std::uint64_t samples) noexcept {
    add(block_.data, times.data);
    add(block_.compute, times.compute);
    add(block_.communication, times.communication);
    add(block_.waiting, times.waiting);
    add<std::uint64_t>(block_.samples, samples, std::memory_order_relaxed);
    add<std::uint64_t>(block_.steps, 1, std::memory_order_release);
}

bool TelemetryWriter::set_value(std::string_view name, double value) noexcept {
    const std::uint32_t count = block_.values_count.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < count; ++i) {
        if (name == block_.values[i].name.data()) {
            block_.values[i].value.store(value, std::memory_order_relaxed);
            return true;
        }
    }
    if (count == block_.values.size()) {
        return false;
    }
    auto& added = block_.values[count];
    std::copy(name.begin(), name.end(), added.name.begin());
    added.value.store(value, std::memory_order_relaxed);
    block_.values_count.store(count + 1, std::memory_order_release);
    return true;
}

}  // namespace regroup::link
