// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/store_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace regroup::store {
namespace {

using std::chrono::milliseconds;

/// The pause before another attempt, after another client has taken the item.
constexpr milliseconds kEmptyQueuePause{5};
constexpr std::int64_t kListedKeysMax = std::int64_t{1} << 26U;

std::string on_wire(std::string_view key) {
    return "/" + std::string(key);
}

std::vector<std::string> on_wire(const std::vector<std::string>& keys) {
    std::vector<std::string> texts;
    texts.reserve(keys.size());
    for (const std::string& key : keys) {
        texts.push_back(on_wire(key));
    }
    return texts;
}

/// PyTorch's wording, which programs look for.
std::string timeout_sentence(const Request& request, Duration timeout) {
    constexpr std::size_t kShownMax = 32;
    const auto count = std::chrono::duration_cast<milliseconds>(timeout).count();
    const std::string after_ms = " timeout after " + std::to_string(count) + "ms, ";
    if (request.opcode == Opcode::barrier) {
        return "barrier" + after_ms + "key: " + request.texts.front();
    }
    std::string sentence = "wait" + after_ms + "keys: ";
    for (std::size_t i = 0; i < std::min(request.texts.size(), kShownMax); ++i) {
        sentence += (i == 0 ? "" : ", ") + request.texts[i];
    }
    if (request.texts.size() > kShownMax) {
        sentence += " and " + std::to_string(request.texts.size() - kShownMax) + " more";
    }
    return sentence;
}

}  // namespace

Result<void> StoreClient::connect(const std::string& host, std::uint16_t port, Duration timeout) {
    return channel_.connect(host, port, timeout);
}

// ---- Keys.

Result<void> StoreClient::set(std::string_view key, std::string_view value, Duration timeout) {
    return channel_.send(Request{Opcode::set, {on_wire(key), std::string(value)}},
                         after(now(), timeout));
}

Result<std::string> StoreClient::get(std::string_view key, Duration timeout) {
    const Instant deadline = after(now(), timeout);
    if (auto there = wait_for(Request{Opcode::wait, {on_wire(key)}}, deadline, timeout); !there) {
        return there.error();
    }
    return channel_.ask_text(Request{Opcode::get, {on_wire(key)}},
                             RequestChannel::at_least_an_answer(deadline));
}

Result<std::int64_t> StoreClient::add(std::string_view key, std::int64_t amount, Duration timeout) {
    return channel_.ask_i64(Request{Opcode::add, {on_wire(key)}, amount}, after(now(), timeout));
}

Result<bool> StoreClient::check(const std::vector<std::string>& keys, Duration timeout) {
    const auto answer =
        channel_.ask_byte(Request{Opcode::check, on_wire(keys)}, after(now(), timeout));
    if (!answer) {
        return answer.error();
    }
    return *answer == kReady;
}

Result<void> StoreClient::wait(const std::vector<std::string>& keys, Duration timeout) {
    return wait_for(Request{Opcode::wait, on_wire(keys)}, after(now(), timeout), timeout);
}

Result<std::string> StoreClient::compare_set(std::string_view key, std::string_view expected,
                                             std::string_view desired, Duration timeout) {
    return channel_.ask_text(
        Request{Opcode::compare_set, {on_wire(key), std::string(expected), std::string(desired)}},
        after(now(), timeout));
}

Result<bool> StoreClient::delete_key(std::string_view key, Duration timeout) {
    const auto count =
        channel_.ask_i64(Request{Opcode::delete_key, {on_wire(key)}}, after(now(), timeout));
    if (!count) {
        return count.error();
    }
    return *count > 0;
}

Result<void> StoreClient::append(std::string_view key, std::string_view value, Duration timeout) {
    return channel_.send(Request{Opcode::append, {on_wire(key), std::string(value)}},
                         after(now(), timeout));
}

Result<std::vector<std::string>> StoreClient::multi_get(const std::vector<std::string>& keys,
                                                        Duration timeout) {
    const Instant deadline = after(now(), timeout);
    Request request{Opcode::wait, on_wire(keys)};
    if (auto there = wait_for(request, deadline, timeout); !there) {
        return there.error();
    }
    const Instant answer_deadline = RequestChannel::at_least_an_answer(deadline);
    request.opcode = Opcode::multi_get;
    if (auto sent = channel_.send(request, answer_deadline); !sent) {
        return sent.error();
    }
    std::vector<std::string> values;
    values.reserve(keys.size());
    while (values.size() < keys.size()) {
        auto value = channel_.receive_text(answer_deadline);
        if (!value) {
            return value.error();
        }
        values.push_back(*std::move(value));
    }
    return values;
}

Result<void> StoreClient::multi_set(const std::vector<std::string>& keys,
                                    const std::vector<std::string>& values, Duration timeout) {
    if (keys.size() != values.size()) {
        return Failure(Errc::invalid_argument,
                       "multi_set needs a value for each key: it was given " +
                           std::to_string(keys.size()) + " keys and " +
                           std::to_string(values.size()) + " values");
    }
    Request request{Opcode::multi_set, {}};
    request.texts.reserve(2 * keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        request.texts.push_back(on_wire(keys[i]));
        request.texts.push_back(values[i]);
    }
    return channel_.send(request, after(now(), timeout));
}

Result<std::int64_t> StoreClient::num_keys(Duration timeout) {
    return channel_.ask_i64(Request{Opcode::num_keys, {}}, after(now(), timeout));
}

Result<std::vector<std::string>> StoreClient::list_keys(Duration timeout) {
    const Instant deadline = after(now(), timeout);
    const auto count = channel_.ask_i64(Request{Opcode::list_keys, {}}, deadline);
    if (!count) {
        return count.error();
    }
    if (*count < 0 || *count > kListedKeysMax) {
        return channel_.break_protocol("a list of " + std::to_string(*count) + " keys");
    }
    std::vector<std::string> keys;
    for (std::int64_t i = 0; i < *count; ++i) {
        const auto key = channel_.receive_text(deadline);
        if (!key) {
            return key.error();
        }
        if (key->starts_with('/')) {
            keys.push_back(key->substr(1));
        }
    }
    std::sort(keys.begin(), keys.end());  // Other servers list them in no order.
    return keys;
}

// ---- Queues.

Result<void> StoreClient::queue_push(std::string_view key, std::string_view value,
                                     Duration timeout) {
    return channel_.send(Request{Opcode::queue_push, {on_wire(key), std::string(value)}},
                         after(now(), timeout));
}

Result<std::string> StoreClient::queue_pop(std::string_view key, Duration timeout) {
    const Instant deadline = after(now(), timeout);
    const Request request{Opcode::wait, {on_wire(key)}};
    while (true) {
        if (auto there = wait_for(request, deadline, timeout); !there) {
            return there.error();
        }
        auto item = queue_try_pop(key, RequestChannel::at_least_an_answer(deadline) - now());
        if (!item) {
            return item.error();
        }
        if (*item) {
            return **std::move(item);
        }
        // Another client took the item; or a key of this name exists too, so that waiting ends at
        // once.
        if (now() >= deadline) {
            return Failure(Errc::deadline_exceeded, timeout_sentence(request, timeout));
        }
        if (auto paused = channel_.pause_until(std::min(deadline, now() + kEmptyQueuePause));
            !paused) {
            return paused.error();
        }
    }
}

Result<std::optional<std::string>> StoreClient::queue_try_pop(std::string_view key,
                                                              Duration timeout) {
    const Instant deadline = after(now(), timeout);
    const auto count = channel_.ask_i64(Request{Opcode::queue_pop, {on_wire(key)}}, deadline);
    if (!count) {
        return count.error();
    }
    if (*count <= 0) {
        return std::optional<std::string>();
    }
    auto item = channel_.receive_text(deadline);
    if (!item) {
        return item.error();
    }
    return std::optional<std::string>(*std::move(item));
}

Result<std::int64_t> StoreClient::queue_len(std::string_view key, Duration timeout) {
    return channel_.ask_i64(Request{Opcode::queue_len, {on_wire(key)}}, after(now(), timeout));
}

// ---- Waits.

Result<void> StoreClient::barrier(std::string_view key, std::int64_t world, Duration timeout) {
    return wait_for(Request{Opcode::barrier, {on_wire(key)}, world}, after(now(), timeout),
                    timeout);
}

Result<void> StoreClient::wait_for(const Request& request, Instant deadline, Duration timeout) {
    const auto released = channel_.ask_and_wait(request, deadline);
    if (!released) {
        return released.error();
    }
    if (!*released) {
        return Failure(Errc::deadline_exceeded, timeout_sentence(request, timeout));
    }
    return {};
}

}  // namespace regroup::store
