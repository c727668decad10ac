// SPDX-License-Identifier: Apache-2.0
#include <regroup/context.h>
#include <regroup/error.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "worker_sdk/src/store_service.h"

namespace regroup {
namespace {

/// A variable that is set to nothing counts as not set.
std::optional<std::string> variable(const char* name) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') {
        return std::nullopt;
    }
    return value;
}

[[noreturn]] void refuse(const std::string& detail) {
    throw Error(Errc::invalid_argument, detail);
}

template <class Number>
Number number(const char* name, const std::string& text, Number least, Number most) {
    Number value{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end || value < least || value > most) {
        refuse(std::string(name) + "=\"" + text + "\" is not a number from " +
               std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
}

template <class Number>
Number number_or(const char* name, Number fallback, Number least = 0,
                 Number most = std::numeric_limits<Number>::max()) {
    const auto text = variable(name);
    return text ? number<Number>(name, *text, least, most) : fallback;
}

bool flag_or(const char* name, bool fallback) {
    const std::string text = variable(name).value_or(fallback ? "True" : "False");
    for (const std::string_view yes : {"True", "true", "1"}) {
        if (text == yes) {
            return true;
        }
    }
    for (const std::string_view no : {"False", "false", "0"}) {
        if (text == no) {
            return false;
        }
    }
    refuse(std::string(name) + "=\"" + text + "\" is neither True nor False");
}

/// A rank and the size of what it is a rank of.
void require_below(const char* rank_name, std::uint32_t rank, const char* size_name,
                   std::uint32_t size) {
    if (rank >= size) {
        refuse(std::string(rank_name) + "=" + std::to_string(rank) + " is not below " + size_name +
               "=" + std::to_string(size));
    }
}

/// True if the job's variables are there, false if none of them is.
bool in_a_job() {
    std::string present;
    std::string missing;
    for (const char* const name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
        std::string& names = variable(name) ? present : missing;
        names += (names.empty() ? "" : ", ") + std::string(name);
    }
    if (!present.empty() && !missing.empty()) {
        refuse("the environment has " + present + " but not " + missing +
               "; set all of them, or none for a world of one");
    }
    return missing.empty();
}

/// Rank 0's store together with the service behind it. Members go in reverse order: first the
/// connection, then the service.
struct ServedStore {
    ServedStore(const std::string& host, std::uint16_t port, Store::Duration timeout)
        : service(port), store(connect_store(host, service.port(), timeout)) {}

    StoreService service;
    std::shared_ptr<Store> store;
};

}  // namespace

struct Context::StoreSlot {
    std::mutex mutex;
    std::shared_ptr<Store> store;  // guarded by mutex
};

std::shared_ptr<Context::StoreSlot> Context::make_store_slot() {
    return std::make_shared<StoreSlot>();
}

std::shared_ptr<Store> Context::store() const {
    const std::lock_guard lock(store_slot_->mutex);
    std::shared_ptr<Store>& store = store_slot_->store;
    if (!store) {
        if (agent_store) {
            store = connect_store(master_addr, master_port, store_timeout);
        } else if (world_size == 1) {
            store = make_local_store(store_timeout);
        } else if (rank == 0) {
            const auto served =
                std::make_shared<ServedStore>(master_addr, master_port, store_timeout);
            store = std::shared_ptr<Store>(served, served->store.get());
        } else {
            store = connect_store(master_addr, master_port, store_timeout);
        }
    }
    return store;
}

void Context::use_store(std::shared_ptr<Store> store) {
    store_slot_ = make_store_slot();
    store_slot_->store = std::move(store);
}

Context Context::from_environment() {
    Context context;
    if (in_a_job()) {
        constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
        context.world_size = number<std::uint32_t>("WORLD_SIZE", *variable("WORLD_SIZE"), 1, kMost);
        context.rank = number<std::uint32_t>("RANK", *variable("RANK"), 0, kMost);
        context.master_addr = *variable("MASTER_ADDR");
        context.master_port = number<std::uint16_t>("MASTER_PORT", *variable("MASTER_PORT"), 1,
                                                    std::numeric_limits<std::uint16_t>::max());
    }
    require_below("RANK", context.rank, "WORLD_SIZE", context.world_size);
    context.job = variable("TORCHELASTIC_RUN_ID").value_or(context.job);
    context.local_rank = number_or("LOCAL_RANK", context.rank);
    context.local_world_size = number_or("LOCAL_WORLD_SIZE", context.world_size, 1U);
    require_below("LOCAL_RANK", context.local_rank, "LOCAL_WORLD_SIZE", context.local_world_size);
    context.group_rank = number_or("GROUP_RANK", context.group_rank);
    context.group_world_size = number_or("GROUP_WORLD_SIZE", context.group_world_size, 1U);
    require_below("GROUP_RANK", context.group_rank, "GROUP_WORLD_SIZE", context.group_world_size);
    context.restart_count = number_or("TORCHELASTIC_RESTART_COUNT", context.restart_count);
    context.max_restarts = number_or("TORCHELASTIC_MAX_RESTARTS", context.max_restarts);
    context.round = number_or("REGROUP_ROUND", context.round);
    context.cpu_transport = variable("REGROUP_CPU_TRANSPORT").value_or(context.cpu_transport);
    if (context.cpu_transport != "auto" && context.cpu_transport != "tcp" &&
        context.cpu_transport != "shm") {
        refuse("REGROUP_CPU_TRANSPORT=\"" + context.cpu_transport + "\" is none of auto, tcp, shm");
    }
    context.agent_store = flag_or("TORCHELASTIC_USE_AGENT_STORE", context.agent_store);
    return context;
}

}  // namespace regroup
