// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "rendezvous/base/clock.h"

namespace regroup::cpu {

/// Sleeps while a word in memory that processes share has `value`, for `limit` at most; may wake
/// earlier without a reason.
void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t value, Duration limit) noexcept;

/// Wakes all threads of all processes that sleep on the word.
void wake_all(const std::atomic<std::uint32_t>& word) noexcept;

}  // namespace regroup::cpu
