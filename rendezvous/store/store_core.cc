// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/store_core.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace regroup::store {
namespace {

/// The approximate cost of an entry beyond its bytes: empty keys take memory too.
constexpr std::size_t kEntryBytes = 96;
/// The same of a queue beyond its items.
constexpr std::size_t kQueueBytes = 768;

/// A printable short form: keys are arbitrary bytes, often long, and may end up on a terminal.
std::string quoted(std::string_view key) {
    constexpr std::size_t kShownMax = 80;
    std::string text = "'";
    for (const char c : key.substr(0, kShownMax)) {
        text += c >= ' ' && c <= '~' ? c : '?';
    }
    return text + (key.size() > kShownMax ? "...'" : "'");
}

/// Replaces `text`. A string keeps its memory, but what is charged is its length.
void assign(std::string& text, std::string_view value) {
    if (value.size() < text.capacity() / 2) {
        std::string(value).swap(text);  // Moving a short string would keep the memory.
    } else {
        text.assign(value);
    }
}

/// Reads as std::stoll, which PyTorch's servers use: blanks and a sign may precede the digits, and
/// further characters are ignored.
std::optional<std::int64_t> read_number(std::string_view text) {
    const std::size_t start = text.find_first_not_of(" \t\n\v\f\r");
    text.remove_prefix(std::min(start, text.size()));
    const bool plus = text.starts_with('+');
    if (plus) {
        text.remove_prefix(1);
    }
    if (plus && text.starts_with('-')) {
        return std::nullopt;
    }
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() ? std::optional(number) : std::nullopt;
}

}  // namespace

Result<void> StoreCore::check_key(std::string_view key) const {
    if (key.size() > limits_.key_bytes_max) {
        return invalid_argument("a key of " + std::to_string(key.size()) + " bytes; the limit is " +
                                std::to_string(limits_.key_bytes_max));
    }
    return {};
}

Result<void> StoreCore::admit(std::string_view key, std::size_t value_bytes,
                              std::size_t more_bytes) const {
    if (auto checked = check_key(key); !checked) {
        return checked;
    }
    if (value_bytes > limits_.stored_value_bytes_max) {
        return invalid_argument("a value of " + std::to_string(value_bytes) + " bytes for key " +
                                quoted(key) + "; the limit is " +
                                std::to_string(limits_.stored_value_bytes_max));
    }
    if (kEntryBytes + more_bytes + key.size() + value_bytes >
        limits_.total_bytes_max - total_bytes_) {
        return invalid_argument("no room for key " + quoted(key) + ": the store may hold " +
                                std::to_string(limits_.total_bytes_max) + " bytes and holds " +
                                std::to_string(total_bytes_));
    }
    return {};
}

void StoreCore::put(std::string_view key, std::string_view value, Released& released) {
    const auto entry = values_.find(key);
    if (entry != values_.end()) {
        total_bytes_ += value.size();
        total_bytes_ -= entry->second.size();
        assign(entry->second, value);
        return;
    }
    values_.emplace(key, value);
    keys_bytes_ += key.size();
    total_bytes_ += kEntryBytes + key.size() + value.size();
    waits_.wake_all(key, released);
}

// ---- Keys.

Result<Released> StoreCore::set(std::string_view key, std::string_view value) {
    if (const auto admitted = admit(key, value.size()); !admitted) {
        return admitted.error();
    }
    Released released;
    put(key, value, released);
    return released;
}

Result<Released> StoreCore::multi_set(std::span<const std::string> keys_and_values) {
    ENSURE(keys_and_values.size() % 2 == 0);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < keys_and_values.size(); i += 2) {
        if (const auto admitted = admit(keys_and_values[i], keys_and_values[i + 1].size());
            !admitted) {
            return admitted.error();
        }
        bytes += kEntryBytes + keys_and_values[i].size() + keys_and_values[i + 1].size();
    }
    if (bytes > limits_.total_bytes_max - total_bytes_) {
        return invalid_argument("no room for " + std::to_string(keys_and_values.size() / 2) +
                                " keys: the store may hold " +
                                std::to_string(limits_.total_bytes_max) + " bytes and holds " +
                                std::to_string(total_bytes_));
    }
    Released released;
    for (std::size_t i = 0; i < keys_and_values.size(); i += 2) {
        put(keys_and_values[i], keys_and_values[i + 1], released);
    }
    return released;
}

Result<Released> StoreCore::append(std::string_view key, std::string_view value) {
    const auto entry = values_.find(key);
    if (entry == values_.end()) {
        return set(key, value);
    }
    if (const auto admitted = admit(key, entry->second.size() + value.size()); !admitted) {
        return admitted.error();
    }
    entry->second.append(value);
    total_bytes_ += value.size();
    return Released();
}

const std::string* StoreCore::find(std::string_view key) const {
    const auto entry = values_.find(key);
    return entry == values_.end() ? nullptr : &entry->second;
}

Result<StoreCore::Sum> StoreCore::add(std::string_view key, std::int64_t amount) {
    Sum sum;
    if (const std::string* value = find(key)) {
        const auto number = read_number(*value);
        if (!number) {
            return invalid_argument("cannot add to key " + quoted(key) + ": its value " +
                                    quoted(*value) + " is no 64-bit number");
        }
        sum.value = *number;
    }
    if (__builtin_add_overflow(sum.value, amount, &sum.value)) {
        return invalid_argument("cannot add " + std::to_string(amount) + " to key " + quoted(key) +
                                ": the sum would not fit 64 bits");
    }
    char text[24];
    const auto [end, error] = std::to_chars(text, text + sizeof text, sum.value);
    ENSURE(error == std::errc());
    auto released = set(key, std::string_view(text, static_cast<std::size_t>(end - text)));
    if (!released) {
        return released.error();
    }
    sum.released = *std::move(released);
    return sum;
}

Result<StoreCore::Exchange> StoreCore::compare_set(std::string_view key, std::string_view expected,
                                                   std::string_view desired) {
    const std::string* value = find(key);
    const bool matches = value != nullptr ? *value == expected : expected.empty();
    if (!matches) {
        return Exchange{std::string(value != nullptr ? *value : expected), {}};
    }
    auto released = set(key, desired);
    if (!released) {
        return released.error();
    }
    return Exchange{std::string(desired), *std::move(released)};
}

bool StoreCore::delete_key(std::string_view key) {
    const auto entry = values_.find(key);
    if (entry == values_.end()) {
        return false;
    }
    total_bytes_ -= kEntryBytes + entry->first.size() + entry->second.size();
    keys_bytes_ -= entry->first.size();
    values_.erase(entry);
    return true;
}

std::vector<std::string> StoreCore::list_keys() const {
    std::vector<std::string> keys;
    keys.reserve(values_.size());
    for (const auto& [key, value] : values_) {
        keys.push_back(key);
    }
    return keys;
}

// ---- Queues.

Result<Released> StoreCore::queue_push(std::string_view key, std::string_view value) {
    auto queue = queues_.find(key);
    const bool is_new = queue == queues_.end();
    if (const auto admitted = admit(key, value.size(), is_new ? kQueueBytes : 0); !admitted) {
        return admitted.error();
    }
    if (is_new) {
        queue = queues_.emplace(std::string(key), std::deque<std::string>()).first;
        total_bytes_ += kQueueBytes + key.size();
    }
    queue->second.emplace_back(value);
    total_bytes_ += kEntryBytes + value.size();
    Released released;
    waits_.wake_one(key, released);
    return released;
}

StoreCore::Popped StoreCore::queue_pop(std::string_view key) {
    const auto queue = queues_.find(key);
    if (queue == queues_.end()) {
        return {};
    }
    Popped popped{queue->second.size(), std::move(queue->second.front())};
    queue->second.pop_front();
    total_bytes_ -= kEntryBytes + popped.value.size();
    if (queue->second.empty()) {
        total_bytes_ -= kQueueBytes + key.size();
        queues_.erase(queue);
    }
    return popped;
}

std::size_t StoreCore::queue_len(std::string_view key) const {
    const auto queue = queues_.find(key);
    return queue == queues_.end() ? 0 : queue->second.size();
}

// ---- Waits.

bool StoreCore::exists(std::string_view name) const {
    return values_.contains(name) || queues_.contains(name);
}

bool StoreCore::check(std::span<const std::string> names) const {
    return std::all_of(names.begin(), names.end(),
                       [this](const std::string& name) { return exists(name); });
}

Result<bool> StoreCore::wait(ClientId client, std::span<const std::string> names) {
    if (names.size() > limits_.keys_max) {
        return invalid_argument("a wait for " + std::to_string(names.size()) +
                                " keys; the limit is " + std::to_string(limits_.keys_max));
    }
    std::vector<std::string> missing;
    for (const std::string& name : names) {
        if (const auto checked = check_key(name); !checked) {
            return checked.error();
        }
        if (!exists(name)) {
            missing.push_back(name);
        }
    }
    const bool is_over = missing.empty();
    waits_.begin(client, std::move(missing));
    return is_over;
}

Result<StoreCore::Arrival> StoreCore::barrier(ClientId client, std::string_view key,
                                              std::int64_t world) {
    waits_.cancel(client);
    auto sum = add(key, 1);
    if (!sum) {
        return sum.error();
    }
    Arrival arrival{sum->value >= world, std::move(sum->released)};
    waits_.arrive(key, sum->value, arrival.released);
    if (!arrival.complete) {
        waits_.begin_at_barrier(client, key, world);
    }
    return arrival;
}

std::size_t StoreCore::dismantle(std::size_t count_max) {
    std::size_t count = 0;
    for (; count < count_max && !values_.empty(); ++count) {
        values_.erase(values_.begin());
    }
    count += take_one_by_one(queues_, count_max - count);
    return count + waits_.dismantle(count_max - count);
}

}  // namespace regroup::store
