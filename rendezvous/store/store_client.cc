// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/store_client.h"

#include <algorithm>
#include <chrono>
#include <unistd.h>
#include <utility>

#include "rendezvous/base/random.h"

namespace regroup::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kPauseMin{20};
constexpr milliseconds kPauseMax{5000};
constexpr double kPauseGrowth = 1.5;
/// One attempt to connect and greet; a host that swallows packets must not use up all the time.
constexpr seconds kAttemptLimit{10};
/// What a server is given to answer a request that needs no waiting, once the caller's time is up.
constexpr seconds kAnswerLimit{5};
/// Before another try at an item that somebody else has taken.
constexpr milliseconds kEmptyQueuePause{5};
/// Longest text that is accepted from a server: other servers' limits are wider than ours.
constexpr std::int64_t kReplyTextBytesMax = std::int64_t{1} << 30U;
constexpr std::size_t kReplyPartBytes = std::size_t{1} << 20U;
constexpr std::int64_t kReplyTextsMax = std::int64_t{1} << 26U;

Instant now() {
    return SteadyClock().now();
}

/// For the quick end of a call that has waited: what is left of its time, but enough for an answer.
Instant at_least_an_answer(Instant deadline) {
    return std::max(deadline, now() + kAnswerLimit);
}

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

/// In PyTorch's words, which programs look for.
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

// ---- Connecting.

Result<void> StoreClient::connect(const std::string& host, std::uint16_t port, Duration timeout) {
    const Instant start = now();
    const Instant deadline = after(start, timeout);
    Random random(static_cast<std::uint64_t>(start.time_since_epoch().count()) ^
                  static_cast<std::uint64_t>(::getpid()));
    Duration pause = kPauseMin;
    while (true) {
        const Instant attempt_deadline = std::min(deadline, after(now(), kAttemptLimit));
        Result<void> attempt = socket_.connect(host, port, attempt_deadline);
        if (attempt) {
            attempt = greet(attempt_deadline);
        }
        if (attempt) {
            return attempt;
        }
        const bool may_change = attempt.error().code == Errc::disconnected ||
                                attempt.error().code == Errc::deadline_exceeded;
        if (!may_change) {
            return give_up(attempt.error());
        }
        const auto jittered = std::chrono::duration_cast<Duration>(pause * (0.5 + random.unit()));
        const Instant next_attempt = after(now(), jittered);
        if (next_attempt >= deadline) {
            return give_up({Errc::deadline_exceeded, "gave up after " + format_duration(timeout) +
                                                         ": " + attempt.error().detail});
        }
        if (auto paused = socket_.pause_until(next_attempt); !paused) {
            return give_up(paused.error());
        }
        pause = std::min<Duration>(std::chrono::duration_cast<Duration>(pause * kPauseGrowth),
                                   kPauseMax);
    }
}

Result<void> StoreClient::greet(Instant deadline) {
    const auto nonce = static_cast<std::uint32_t>(::getpid());
    std::string bytes;
    encode(Request{Opcode::validate, {}, kMagic}, bytes);
    encode(Request{Opcode::ping, {}, nonce}, bytes);
    if (auto sent = socket_.send(bytes, deadline); !sent) {
        return sent;
    }
    char reply[4];
    if (auto received = socket_.receive(reply, sizeof reply, deadline); !received) {
        return received;
    }
    if (read_u32(reply) != nonce) {
        return Failure(Errc::invalid_argument, "the server at " + socket_.peer() +
                                                   " is no TCPStore: it did not answer the "
                                                   "greeting as one does");
    }
    return {};
}

// ---- Keys.

Result<void> StoreClient::set(std::string_view key, std::string_view value, Duration timeout) {
    return send(Request{Opcode::set, {on_wire(key), std::string(value)}}, after(now(), timeout));
}

Result<std::string> StoreClient::get(std::string_view key, Duration timeout) {
    const Instant deadline = after(now(), timeout);
    if (auto there = wait_for(Request{Opcode::wait, {on_wire(key)}}, deadline, timeout); !there) {
        return there.error();
    }
    return ask_text(Request{Opcode::get, {on_wire(key)}}, at_least_an_answer(deadline));
}

Result<std::int64_t> StoreClient::add(std::string_view key, std::int64_t amount, Duration timeout) {
    return ask_i64(Request{Opcode::add, {on_wire(key)}, amount}, after(now(), timeout));
}

Result<bool> StoreClient::check(const std::vector<std::string>& keys, Duration timeout) {
    const Instant deadline = after(now(), timeout);
    if (auto sent = send(Request{Opcode::check, on_wire(keys)}, deadline); !sent) {
        return sent.error();
    }
    const auto answer = receive_byte(deadline);
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
    return ask_text(
        Request{Opcode::compare_set, {on_wire(key), std::string(expected), std::string(desired)}},
        after(now(), timeout));
}

Result<bool> StoreClient::delete_key(std::string_view key, Duration timeout) {
    const auto count = ask_i64(Request{Opcode::delete_key, {on_wire(key)}}, after(now(), timeout));
    if (!count) {
        return count.error();
    }
    return *count > 0;
}

Result<void> StoreClient::append(std::string_view key, std::string_view value, Duration timeout) {
    return send(Request{Opcode::append, {on_wire(key), std::string(value)}}, after(now(), timeout));
}

Result<std::vector<std::string>> StoreClient::multi_get(const std::vector<std::string>& keys,
                                                        Duration timeout) {
    const Instant deadline = after(now(), timeout);
    Request request{Opcode::wait, on_wire(keys)};
    if (auto there = wait_for(request, deadline, timeout); !there) {
        return there.error();
    }
    const Instant answer_deadline = at_least_an_answer(deadline);
    request.opcode = Opcode::multi_get;
    if (auto sent = send(request, answer_deadline); !sent) {
        return sent.error();
    }
    std::vector<std::string> values;
    values.reserve(keys.size());
    while (values.size() < keys.size()) {
        auto value = receive_text(answer_deadline);
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
    return send(request, after(now(), timeout));
}

Result<std::int64_t> StoreClient::num_keys(Duration timeout) {
    return ask_i64(Request{Opcode::num_keys, {}}, after(now(), timeout));
}

Result<std::vector<std::string>> StoreClient::list_keys(Duration timeout) {
    const Instant deadline = after(now(), timeout);
    const auto count = ask_i64(Request{Opcode::list_keys, {}}, deadline);
    if (!count) {
        return count.error();
    }
    if (*count < 0 || *count > kReplyTextsMax) {
        return break_protocol("a list of " + std::to_string(*count) + " keys");
    }
    std::vector<std::string> keys;
    for (std::int64_t i = 0; i < *count; ++i) {
        const auto key = receive_text(deadline);
        if (!key) {
            return key.error();
        }
        if (key->starts_with('/')) {
            keys.push_back(key->substr(1));
        }
    }
    std::sort(keys.begin(), keys.end());  // Other servers list them as they come.
    return keys;
}

// ---- Queues.

Result<void> StoreClient::queue_push(std::string_view key, std::string_view value,
                                     Duration timeout) {
    return send(Request{Opcode::queue_push, {on_wire(key), std::string(value)}},
                after(now(), timeout));
}

Result<std::string> StoreClient::queue_pop(std::string_view key, Duration timeout) {
    const Instant deadline = after(now(), timeout);
    const Request request{Opcode::wait, {on_wire(key)}};
    while (true) {
        if (auto there = wait_for(request, deadline, timeout); !there) {
            return there.error();
        }
        auto item = queue_try_pop(key, at_least_an_answer(deadline) - now());
        if (!item) {
            return item.error();
        }
        if (*item) {
            return **std::move(item);
        }
        // Somebody else was quicker; or the name is that of a key too, and waiting ends at once.
        if (now() >= deadline) {
            return Failure(Errc::deadline_exceeded, timeout_sentence(request, timeout));
        }
        if (auto paused = socket_.pause_until(std::min(deadline, now() + kEmptyQueuePause));
            !paused) {
            return give_up(paused.error());
        }
    }
}

Result<std::optional<std::string>> StoreClient::queue_try_pop(std::string_view key,
                                                              Duration timeout) {
    const Instant deadline = after(now(), timeout);
    const auto count = ask_i64(Request{Opcode::queue_pop, {on_wire(key)}}, deadline);
    if (!count) {
        return count.error();
    }
    if (*count <= 0) {
        return std::optional<std::string>();
    }
    auto item = receive_text(deadline);
    if (!item) {
        return item.error();
    }
    return std::optional<std::string>(*std::move(item));
}

Result<std::int64_t> StoreClient::queue_len(std::string_view key, Duration timeout) {
    return ask_i64(Request{Opcode::queue_len, {on_wire(key)}}, after(now(), timeout));
}

// ---- Waits.

Result<void> StoreClient::barrier(std::string_view key, std::int64_t world, Duration timeout) {
    return wait_for(Request{Opcode::barrier, {on_wire(key)}, world}, after(now(), timeout),
                    timeout);
}

Result<void> StoreClient::wait_for(const Request& request, Instant deadline, Duration timeout) {
    const auto released = send_and_wait(request, deadline);
    if (!released) {
        return released.error();
    }
    if (!*released) {
        return Failure(Errc::deadline_exceeded, timeout_sentence(request, timeout));
    }
    return {};
}

Result<bool> StoreClient::send_and_wait(const Request& request, Instant deadline) {
    if (auto sent = send(request, at_least_an_answer(deadline)); !sent) {
        return sent.error();
    }
    char answer = 0;
    const auto received = socket_.receive(&answer, 1, deadline);
    if (!received && received.error().code != Errc::deadline_exceeded) {
        return give_up(received.error());
    }
    if (received) {
        return answer == kStopWaiting
                   ? Result<bool>(true)
                   : break_protocol("byte " + std::to_string(answer) + " to a wait");
    }
    const Instant cancel_deadline = now() + kAnswerLimit;
    if (auto sent = send(Request{Opcode::cancel_wait, {}}, cancel_deadline); !sent) {
        return sent.error();
    }
    auto reply = receive_byte(cancel_deadline);
    // The release may have been on its way already. Then it is the answer after all.
    const bool released = reply && *reply == kStopWaiting;
    if (released) {
        reply = receive_byte(cancel_deadline);
    }
    if (!reply) {
        return reply.error();
    }
    if (*reply != kWaitCancelled) {
        return break_protocol("byte " + std::to_string(*reply) + " to a cancelled wait");
    }
    return released;
}

// ---- Bytes.

Result<void> StoreClient::send(const Request& request, Instant deadline) {
    if (auto within = check_limits(request, Limits()); !within) {
        return within;
    }
    if (!socket_.is_open()) {
        return Failure(Errc::disconnected, "not connected to the store at " + socket_.peer());
    }
    std::string bytes;
    encode(request, bytes);
    if (auto sent = socket_.send(bytes, deadline); !sent) {
        return give_up(sent.error());
    }
    return {};
}

Result<void> StoreClient::receive(char* bytes, std::size_t count, Instant deadline) {
    if (auto received = socket_.receive(bytes, count, deadline); !received) {
        return give_up(received.error());
    }
    return {};
}

Result<std::int64_t> StoreClient::ask_i64(const Request& request, Instant deadline) {
    if (auto sent = send(request, deadline); !sent) {
        return sent.error();
    }
    return receive_i64(deadline);
}

Result<std::string> StoreClient::ask_text(const Request& request, Instant deadline) {
    if (auto sent = send(request, deadline); !sent) {
        return sent.error();
    }
    return receive_text(deadline);
}

Result<char> StoreClient::receive_byte(Instant deadline) {
    char byte = 0;
    if (auto received = receive(&byte, 1, deadline); !received) {
        return received.error();
    }
    return byte;
}

Result<std::int64_t> StoreClient::receive_i64(Instant deadline) {
    char bytes[8];
    if (auto received = receive(bytes, sizeof bytes, deadline); !received) {
        return received.error();
    }
    return read_i64(bytes);
}

Result<std::string> StoreClient::receive_text(Instant deadline) {
    const auto count = receive_i64(deadline);
    if (!count) {
        return count.error();
    }
    if (*count < 0 || *count > kReplyTextBytesMax) {
        return break_protocol("a text of " + std::to_string(*count) + " bytes");
    }
    // Space is taken as the bytes come: a length alone buys none.
    std::string text;
    for (std::size_t left = static_cast<std::size_t>(*count); left > 0;) {
        const std::size_t part = std::min(left, std::max(text.size(), kReplyPartBytes));
        const std::size_t start = text.size();
        text.resize(start + part);
        if (auto received = receive(text.data() + start, part, deadline); !received) {
            return received.error();
        }
        left -= part;
    }
    return text;
}

Failure StoreClient::give_up(Failure failure) {
    socket_.close();
    return failure;
}

Failure StoreClient::break_protocol(const std::string& what) {
    return give_up({Errc::disconnected,
                    "the store at " + socket_.peer() + " broke the protocol: it answered " + what});
}

}  // namespace regroup::store
