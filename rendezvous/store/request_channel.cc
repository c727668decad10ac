// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/request_channel.h"

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
/// The limit of one attempt to connect and greet: a host that drops packets must not use up the
/// whole timeout.
constexpr seconds kAttemptLimit{10};
/// The time for a server to answer a request that does not wait, once the caller's time is over.
constexpr seconds kAnswerLimit{5};
/// The longest text accepted from a server: other servers have higher limits than StoreServer.
constexpr std::int64_t kReplyTextBytesMax = std::int64_t{1} << 30U;
constexpr std::size_t kReplyPartBytes = std::size_t{1} << 20U;

}  // namespace

Instant RequestChannel::at_least_an_answer(Instant deadline) {
    return std::max(deadline, now() + kAnswerLimit);
}

// ---- Connecting.

Result<void> RequestChannel::connect(const std::string& host, std::uint16_t port,
                                     Duration timeout) {
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

Result<void> RequestChannel::greet(Instant deadline) {
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
                                                   "greeting correctly");
    }
    return {};
}

// ---- Requests and replies.

Result<void> RequestChannel::send(const Request& request, Instant deadline) {
    if (auto within = check_limits(request, Limits()); !within) {
        return within;
    }
    std::string bytes;
    encode(request, bytes);
    if (auto sent = socket_.send(bytes, deadline); !sent) {
        return give_up(sent.error());
    }
    return {};
}

Result<void> RequestChannel::receive(char* bytes, std::size_t count, Instant deadline) {
    if (auto received = socket_.receive(bytes, count, deadline); !received) {
        return give_up(received.error());
    }
    return {};
}

Result<char> RequestChannel::receive_byte(Instant deadline) {
    char byte = 0;
    if (auto received = receive(&byte, 1, deadline); !received) {
        return received.error();
    }
    return byte;
}

Result<std::int64_t> RequestChannel::receive_i64(Instant deadline) {
    char bytes[8];
    if (auto received = receive(bytes, sizeof bytes, deadline); !received) {
        return received.error();
    }
    return read_i64(bytes);
}

Result<std::string> RequestChannel::receive_text(Instant deadline) {
    const auto count = receive_i64(deadline);
    if (!count) {
        return count.error();
    }
    if (*count < 0 || *count > kReplyTextBytesMax) {
        return break_protocol("a text of " + std::to_string(*count) + " bytes");
    }
    // Memory grows only with the bytes received, not with the announced length.
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

Failure RequestChannel::give_up(Failure failure) {
    socket_.close();
    return failure;
}

Failure RequestChannel::break_protocol(const std::string& what) {
    return give_up({Errc::disconnected,
                    "the store at " + socket_.peer() + " broke the protocol: it answered " + what});
}

Result<bool> RequestChannel::ask_and_wait(const Request& request, Instant deadline) {
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
    auto reply = ask_byte(Request{Opcode::cancel_wait, {}}, cancel_deadline);
    // The release may have been sent already. Then it is the answer.
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

Result<void> RequestChannel::pause_until(Instant instant) {
    if (auto paused = socket_.pause_until(instant); !paused) {
        return give_up(paused.error());
    }
    return {};
}

}  // namespace regroup::store
