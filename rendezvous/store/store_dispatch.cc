// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/store_dispatch.h"

#include <span>

namespace regroup::store {
namespace {

void join(Released& all, const Released& more) {
    all.insert(all.end(), more.begin(), more.end());
}

Result<void> join(Released& all, const Result<Released>& more) {
    if (!more) {
        return more.error();
    }
    join(all, *more);
    return {};
}

void append_count(std::string& reply, std::size_t count) {
    append_i64(reply, static_cast<std::int64_t>(count));
}

/// A small request can ask for a large reply, for example one value many times, so the reply is
/// measured before the first byte is copied.
Result<void> check_reply(const StoreCore& core, std::size_t texts_count, std::size_t texts_bytes) {
    const std::size_t bytes = 8 * texts_count + texts_bytes;
    const std::size_t limit = core.limits().reply_bytes_max;
    return bytes <= limit ? Result<void>()
                          : invalid_argument("a reply of " + std::to_string(bytes) +
                                             " bytes; the limit is " + std::to_string(limit));
}

Result<void> multi_get(const StoreCore& core, std::span<const std::string> keys,
                       std::string& reply) {
    static const std::string kAbsent;
    std::size_t bytes = 0;
    std::vector<const std::string*> values;
    values.reserve(keys.size());
    for (const std::string& key : keys) {
        const std::string* value = core.find(key);
        values.push_back(value != nullptr ? value : &kAbsent);
        bytes += values.back()->size();
    }
    if (auto checked = check_reply(core, keys.size(), bytes); !checked) {
        return checked;
    }
    for (const std::string* value : values) {
        append_text(reply, *value);
    }
    return {};
}

Result<void> list_keys(const StoreCore& core, std::string& reply) {
    if (auto checked = check_reply(core, core.num_keys(), core.keys_bytes()); !checked) {
        return checked;
    }
    append_count(reply, core.num_keys());
    for (const std::string& key : core.list_keys()) {
        append_text(reply, key);
    }
    return {};
}

}  // namespace

Result<void> execute(StoreCore& core, ClientId client, const Request& request, std::string& reply,
                     Released& released) {
    const std::vector<std::string>& texts = request.texts;
    switch (request.opcode) {
        case Opcode::validate:
            return {};
        case Opcode::set:
            return join(released, core.set(texts[0], texts[1]));
        case Opcode::compare_set: {
            const auto exchange = core.compare_set(texts[0], texts[1], texts[2]);
            if (!exchange) {
                return exchange.error();
            }
            append_text(reply, exchange->value);
            join(released, exchange->released);
            return {};
        }
        case Opcode::get: {
            const std::string* value = core.find(texts[0]);
            append_text(reply, value != nullptr ? *value : std::string_view());
            return {};
        }
        case Opcode::add: {
            const auto sum = core.add(texts[0], request.number);
            if (!sum) {
                return sum.error();
            }
            append_i64(reply, sum->value);
            join(released, sum->released);
            return {};
        }
        case Opcode::check:
            reply.push_back(core.check(texts) ? kReady : kNotReady);
            return {};
        case Opcode::wait: {
            const auto satisfied = core.wait(client, texts);
            if (!satisfied) {
                return satisfied.error();
            }
            if (*satisfied) {
                reply.push_back(kStopWaiting);
            }
            return {};
        }
        case Opcode::num_keys:
            append_count(reply, core.num_keys());
            return {};
        case Opcode::delete_key:
            append_i64(reply, core.delete_key(texts[0]) ? 1 : 0);
            return {};
        case Opcode::append:
            return join(released, core.append(texts[0], texts[1]));
        case Opcode::multi_get:
            return multi_get(core, texts, reply);
        case Opcode::multi_set:
            return join(released, core.multi_set(texts));
        case Opcode::cancel_wait:
            core.cancel_wait(client);
            reply.push_back(kWaitCancelled);
            return {};
        case Opcode::ping:
            append_u32(reply, static_cast<std::uint32_t>(request.number));
            return {};
        case Opcode::queue_push:
            return join(released, core.queue_push(texts[0], texts[1]));
        case Opcode::queue_pop: {
            const StoreCore::Popped popped = core.queue_pop(texts[0]);
            append_count(reply, popped.count_before);
            if (popped.count_before > 0) {
                append_text(reply, popped.value);
            }
            return {};
        }
        case Opcode::queue_len:
            append_count(reply, core.queue_len(texts[0]));
            return {};
        case Opcode::list_keys:
            return list_keys(core, reply);
        case Opcode::barrier: {
            const auto arrival = core.barrier(client, texts[0], request.number);
            if (!arrival) {
                return arrival.error();
            }
            if (arrival->complete) {
                reply.push_back(kStopWaiting);
            }
            join(released, arrival->released);
            return {};
        }
        case Opcode::watch_key:
            reply.push_back(kKeyWatched);
            return {};
    }
    return {};
}

}  // namespace regroup::store
