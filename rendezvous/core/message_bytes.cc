// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/message_bytes.h"

#include <algorithm>
#include <variant>

namespace regroup::rendezvous {

namespace {

// An allocation, or a part of few numbers.
constexpr std::size_t kPart = 64;
// The numbers of a policy, an offer or a report.
constexpr std::size_t kFixed = 256;
// A sentence of a report without details.
constexpr std::size_t kShortBytes = 256;

std::size_t bytes_of(const std::string& text) noexcept {
    return text.empty() ? 0 : text.size() + kPart / 2;
}

template <class... Texts>
std::size_t bytes_of_all(const Texts&... texts) noexcept {
    return (std::size_t{0} + ... + bytes_of(texts));
}

std::size_t bytes_of(const WorkerFailure& failure) noexcept {
    return kFixed + bytes_of_all(failure.node, failure.host, failure.start_error, failure.time,
                                 failure.last_output, failure.log_file, failure.evidence,
                                 failure.error_message, failure.error_file);
}

std::size_t bytes_of(const Telemetry& telemetry) noexcept {
    return kFixed + kPart * telemetry.values.size();
}

void shorten(std::string& text) {
    if (text.size() <= kShortBytes) {
        return;
    }
    std::size_t size = kShortBytes;
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) {
        --size;  // Not within a UTF-8 character.
    }
    text.resize(size);
    text.shrink_to_fit();
}

}  // namespace

std::size_t bytes_of(const JobPolicy& policy) noexcept {
    return kFixed + kPart * policy.on_exit.size() + bytes_of(policy.program);
}

std::size_t bytes_of(const Offer& offer) noexcept {
    std::size_t bytes = kFixed + bytes_of_all(offer.name, offer.role, offer.rank_key, offer.address,
                                              offer.secret, offer.store_key, offer.command);
    for (const std::string& address : offer.other_addresses) {
        bytes += kPart + bytes_of(address);
    }
    return bytes;
}

std::size_t bytes_of(const NodeReport& report) noexcept {
    std::size_t bytes = kFixed + bytes_of(report.draining);
    bytes += report.failure ? bytes_of(*report.failure) : 0;
    bytes += report.hang ? kPart + bytes_of(report.hang->text) : 0;
    for (const RankPosition& position : report.positions) {
        bytes += kPart + bytes_of_all(position.doing, position.activity);
        for (const GroupPosition& group : position.groups) {
            bytes += 3 * kPart + bytes_of(group.name);
            for (const CalledCollective& called : group.called) {
                bytes += kPart + bytes_of_all(called.kind, called.arguments);
            }
        }
    }
    bytes += kPart * report.finished.ranges().size();
    for (const BrokenLink& link : report.broken_links) {
        bytes += kPart + bytes_of(link.text);
    }
    return bytes;
}

std::size_t bytes_of(const Join& join) noexcept {
    return bytes_of_all(join.job, join.node) + bytes_of(join.policy) + bytes_of(join.offer) +
           bytes_of(join.report);
}

std::size_t bytes_of(const Operate& operate) noexcept {
    return kFixed + bytes_of_all(operate.job, operate.node, operate.author, operate.reason,
                                 operate.log.node, operate.log.file);
}

std::size_t bytes_of(const FromAgent& message) noexcept {
    struct Bytes {
        std::size_t operator()(const Join& join) const noexcept { return bytes_of(join); }
        std::size_t operator()(const Operate& operate) const noexcept { return bytes_of(operate); }
        std::size_t operator()(const Report& report) const noexcept {
            return bytes_of(report.report) + (report.telemetry ? bytes_of(*report.telemetry) : 0) +
                   (report.snapshots ? kFixed : 0);
        }
        std::size_t operator()(const Leave& leave) const noexcept {
            return kFixed + bytes_of(leave.reason);
        }
        std::size_t operator()(const Resumed& /*resumed*/) const noexcept { return kFixed; }
        std::size_t operator()(const LogPart& part) const noexcept {
            return kFixed + bytes_of_all(part.file, part.text, part.trouble);
        }
    };
    return std::visit(Bytes{}, message);
}

void remove_details(NodeReport& report) {
    report.positions.clear();
    report.positions.shrink_to_fit();
    report.broken_links.clear();
    report.broken_links.shrink_to_fit();
    report.finished.shorten(1);
    shorten(report.draining);
    if (report.hang) {
        shorten(report.hang->text);
    }
    if (report.failure) {
        WorkerFailure& failure = *report.failure;
        for (std::string* text : {&failure.start_error, &failure.last_output, &failure.log_file,
                                  &failure.evidence, &failure.error_message, &failure.error_file}) {
            shorten(*text);
        }
    }
}

}  // namespace regroup::rendezvous
