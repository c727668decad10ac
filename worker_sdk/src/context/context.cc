// SPDX-License-Identifier: Apache-2.0
#include <regroup/context.h>
#include <regroup/error.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/security/secret_file.h"
#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/base/process_mark.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/context/mpi_environment.h"
#include "worker_sdk/src/context/snapshot_folder.h"
#include "worker_sdk/src/link/assigned_context.h"
#include "worker_sdk/src/link/process_link.h"
#include "worker_sdk/src/store/interruptible_store.h"
#include "worker_sdk/src/store/store_service.h"

namespace regroup {
namespace {

/// An empty variable counts as not set.
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

/// NAME="TEXT"
std::string setting(const char* name, const std::string& text) {
    std::string shown = name;
    shown.append("=\"").append(text).append("\"");
    return shown;
}

template <class Number>
Number number(const char* name, const std::string& text, Number least, Number most) {
    const auto value = parse_number<Number>(text);
    if (!value || *value < least || *value > most) {
        refuse(setting(name, text) + " is not a number from " + std::to_string(least) + " to " +
               std::to_string(most));
    }
    return *value;
}

/// Reads a fact about the place, if its variable is set.
template <class Value>
void read_fact(const worker_link::PlaceFact& fact, Value& value) {
    const auto text = variable(fact.variable);
    if constexpr (std::integral<Value>) {
        value = text ? number<Value>(fact.variable, *text,
                                     static_cast<Value>(fact.is(fact.kPositive) ? 1 : 0),
                                     std::numeric_limits<Value>::max())
                     : value;
    } else {
        value = text.value_or(value);
    }
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
    refuse(setting(name, text) + " is neither True nor False");
}

/// A rank and the size of its world, node or group.
void require_below(const char* rank_name, std::uint32_t rank, const char* size_name,
                   std::uint32_t size) {
    if (rank >= size) {
        refuse(std::string(rank_name) + "=" + std::to_string(rank) + " is not below " + size_name +
               "=" + std::to_string(size));
    }
}

constexpr std::array<const char*, 4> kJobVariables = {"RANK", "WORLD_SIZE", "MASTER_ADDR",
                                                      "MASTER_PORT"};

/// True if the job's variables are there, false if none of them is.
bool in_a_job() {
    std::string present;
    std::string missing;
    for (const char* name : kJobVariables) {
        std::string& names = variable(name) ? present : missing;
        names += std::string(names.empty() ? "" : ", ") + name;
    }
    if (!present.empty() && !missing.empty()) {
        refuse("the environment has " + present + " but not " + missing +
               "; set all of them, or none for a world of one");
    }
    return missing.empty();
}

/// Where the flight record goes, and at which signal.
void read_flight_record() {
    const std::string signal = variable("REGROUP_FLIGHT_RECORD_SIGNAL").value_or("");
    int number = 0;
    if (signal == "USR1" || signal == "SIGUSR1") {
        number = SIGUSR1;
    } else if (signal == "USR2" || signal == "SIGUSR2") {
        number = SIGUSR2;
    } else if (!signal.empty()) {
        refuse("REGROUP_FLIGHT_RECORD_SIGNAL=\"" + signal + "\" is neither USR1 nor USR2");
    }
    configure_flight_record(variable("REGROUP_FLIGHT_RECORD").value_or(""), number);
}

constexpr std::uint16_t kPortMost = std::numeric_limits<std::uint16_t>::max();

/// Sets the address where the ranks of an MPI launcher's job meet: MASTER_ADDR and MASTER_PORT if
/// they are set, else values derived from the job.
void find_master(const MpiProcess& process, Context& context) {
    const std::string started = "started by " + process.launcher + " as rank " +
                                std::to_string(process.rank) + " of " +
                                std::to_string(process.world_size);
    if (const auto address = variable("MASTER_ADDR")) {
        context.master_addr = *address;
    } else if (process.on_one_node()) {
        context.master_addr = "127.0.0.1";
    } else if (!process.first_host.empty()) {
        context.master_addr = process.first_host;
    } else {
        refuse(started +
               " on several nodes: set MASTER_ADDR, for all ranks, to an address of the host of "
               "rank 0 (mpirun -x MASTER_ADDR=HOST, mpiexec -genv MASTER_ADDR HOST)");
    }
    if (const auto port = variable("MASTER_PORT")) {
        context.master_port =
            number<std::uint16_t>("MASTER_PORT", *port, std::uint16_t{1}, kPortMost);
    } else if (!process.job.empty()) {
        context.master_port = port_of_job(process.job);
    } else {
        refuse(started +
               ", which does not name its job: set MASTER_PORT, for all ranks, to a "
               "port that is free on the host of rank 0");
    }
}

/// Takes ranks and sizes from an MPI launcher. `found` has a world of more than one.
void take(const MpiProcess& found, Context& context) {
    if (!found.group_rank && !variable("GROUP_RANK")) {
        refuse("started by " + found.launcher + " as rank " + std::to_string(found.rank) +
               ": its ranks are not numbered node by node, or its nodes differ; start it with "
               "ranks by node and equally many on each (mpirun --map-by slot), or set GROUP_RANK "
               "and GROUP_WORLD_SIZE");
    }
    context.rank = found.rank;
    context.world_size = found.world_size;
    context.local_rank = found.local_rank;
    context.local_world_size = found.local_world_size;
    context.group_rank = found.group_rank.value_or(0);
    context.group_world_size = found.group_world_size;
    context.job = found.job.empty() ? context.job : found.job;
    find_master(found, context);
}

/// The store of rank 0 with its service. The order of the members matters: the connection is
/// destroyed before the service.
struct ServedStore {
    ServedStore(const Context& context, std::shared_ptr<RoundScope> scope)
        : service(context.master_addr, context.master_port,
                  StoreService::limits_of(context.world_size)),
          store(connect_interruptible_store(context.master_addr, service.port(),
                                            context.store_timeout, std::move(scope))) {}

    StoreService service;
    std::shared_ptr<Store> store;
};

void read_transport(Context& context) {
    context.cpu_transport = variable("REGROUP_CPU_TRANSPORT").value_or(context.cpu_transport);
    if (context.cpu_transport != "auto" && context.cpu_transport != "tcp" &&
        context.cpu_transport != "shm") {
        refuse("REGROUP_CPU_TRANSPORT=\"" + context.cpu_transport + "\" is none of auto, tcp, shm");
    }
    context.agent_store = flag_or("TORCHELASTIC_USE_AGENT_STORE", context.agent_store);
}

/// Reads the secret of the ranks of a job whose launcher gives them none.
std::string read_group_secret() {
    const auto path = variable("REGROUP_GROUP_SECRET_FILE");
    if (!path) {
        return {};
    }
    constexpr std::size_t kBytesMax = 4096;
    const Result<std::string> secret = security::read_secret_line(
        *path, "the secret file of REGROUP_GROUP_SECRET_FILE,", kBytesMax);
    if (!secret) {
        throw Error(secret.error().code, secret.error().detail);
    }
    if (secret->size() < Context::kGroupSecretBytesMin) {
        refuse("REGROUP_GROUP_SECRET_FILE=\"" + *path + "\": the secret needs " +
               std::to_string(Context::kGroupSecretBytesMin) +
               " bytes at least, from a random generator (openssl rand -hex 32)");
    }
    return *secret;
}

void read_protection(Context& context) {
    if (context.group_secret.empty()) {
        context.group_secret = read_group_secret();
    }
    if (const auto encryption = variable("REGROUP_GROUP_ENCRYPTION")) {
        if (*encryption != "0" && *encryption != "1") {
            refuse("REGROUP_GROUP_ENCRYPTION=\"" + *encryption + "\" is neither 0 nor 1");
        }
        context.group_encryption = *encryption == "1";
    }
}

/// The place that the agent has assigned to this process after its start.
std::optional<worker_link::AssignWorker> assigned_place(bool prestarted) {
    const auto link = link::process_link();
    if (!link) {
        return std::nullopt;
    }
    auto place = link->place();
    if (place || !prestarted) {
        return place;
    }
    link->page().phase.store(worker_link::Phase::suspended);
    link->send(worker_link::Suspended{});
    const auto found = link->await_place(0);
    if (const auto* const assigned = std::get_if<worker_link::AssignWorker>(&found)) {
        return *assigned;
    }
    throw Error(Errc::disconnected,
                "started ahead of its round, but its agent is gone or leaves the job");
}

/// Sets the environment for the rest of the program and its children, as a launcher does at the
/// start.
void publish(const worker_link::WorkerPlace& place) {
    worker_link::visit_variables(
        [](const worker_link::PlaceFact& fact, const std::string& value) {
            if (!fact.is(fact.kFixed)) {
                ::setenv(fact.variable, value.c_str(), 1);
            }
        },
        place);
    ::unsetenv(worker_link::kPrestartedVariable);
}

}  // namespace

Result<void> link::attach_from_environment() {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    const auto socket = variable(worker_link::kSocketVariable);
    const auto worker_id = variable(worker_link::kWorkerIdVariable);
    if (link::process_link() || !socket || !worker_id) {
        return {};
    }
    // For this process alone: its children are not the agent's workers.
    ::unsetenv(worker_link::kSocketVariable);
    ::unsetenv(worker_link::kWorkerIdVariable);
    return link::attach_process(*socket, *worker_id);
}

std::string snapshot_folder() {
    return variable("REGROUP_SNAPSHOT_DIR").value_or("");
}

Context link::context_of(const Context& base, const worker_link::AssignWorker& assigned) {
    Context context;
    worker_link::visit_place(
        [](const auto& /*fact*/, const auto& value, auto& taken) { taken = value; }, assigned.place,
        context);
    context.agent_store = base.agent_store;
    context.cpu_transport = base.cpu_transport;
    context.group_secret = assigned.round_key.empty() ? base.group_secret : assigned.round_key;
    context.group_encryption = base.group_encryption;
    context.store_timeout = base.store_timeout;
    set_flight_record_place(context.rank, context.round);
    return context;
}

struct Context::StoreSlot {
    std::mutex mutex;
    std::shared_ptr<Store> store;  // guarded by mutex
};

std::shared_ptr<Context::StoreSlot> Context::make_store_slot() {
    return std::make_shared<StoreSlot>();
}

std::shared_ptr<RoundScope> Context::make_scope() {
    auto scope = std::make_shared<RoundScope>();
    if (const auto link = link::process_link()) {
        scope->tell_peer_faults(link->page().peer_error);  // The link lasts as long as the process.
    }
    return scope;
}

Context Context::of_ranks(const std::vector<std::uint32_t>& ranks) const {
    const auto place = std::find(ranks.begin(), ranks.end(), rank);
    if (place == ranks.end()) {
        refuse("rank " + std::to_string(rank) + ", this one, is not among the ranks");
    }
    for (const std::uint32_t member : ranks) {
        if (member >= world_size) {
            refuse("there is no rank " + std::to_string(member) + " in a world of " +
                   std::to_string(world_size));
        }
        if (std::count(ranks.begin(), ranks.end(), member) > 1) {
            refuse("rank " + std::to_string(member) + " is listed twice");
        }
    }
    if (ranks.size() > 1) {
        static_cast<void>(store());  // Shared by copies, and interrupted with this one.
    }
    Context part = *this;
    part.rank = static_cast<std::uint32_t>(place - ranks.begin());
    part.world_size = static_cast<std::uint32_t>(ranks.size());
    // A scope of its own: that of the world reports broken connections by the ranks of the world.
    part.scope_ = make_scope();
    const auto interrupt_part = [scope = part.scope_, whole = tie_](const std::string& reason) {
        scope->interrupt(reason);
    };
    part.tie_ = {new RoundScope::Registration(scope_, interrupt_part), OwnerDeleter()};
    return part;
}

void Context::interrupt(std::string_view reason) const noexcept {
    scope_->interrupt(reason);
}

bool Context::await_end(std::chrono::nanoseconds limit) const {
    const std::shared_ptr<RoundScope> scope = scope_;  // Outlives the Context.
    return scope->await_end(limit);
}

std::shared_ptr<Store> Context::store() const {
    const std::lock_guard lock(store_slot_->mutex);
    std::shared_ptr<Store>& store = store_slot_->store;
    if (!store) {
        if (agent_store) {
            store = connect_interruptible_store(master_addr, master_port, store_timeout, scope_);
        } else if (world_size == 1) {
            store = make_local_store(store_timeout);
        } else if (rank == 0) {
            const std::shared_ptr<ServedStore> served(new ServedStore(*this, scope_),
                                                      OwnerDeleter());
            store = std::shared_ptr<Store>(served, served->store.get());
        } else {
            store = connect_interruptible_store(master_addr, master_port, store_timeout, scope_);
        }
    }
    return store;
}

void Context::use_store(std::shared_ptr<Store> store) {
    store_slot_ = make_store_slot();
    store_slot_->store = std::move(store);
}

std::string Context::master_node_of(std::string_view master_addr) {
    return variable("MASTER_ADDR") == master_addr
               ? variable(worker_link::kMasterNodeVariable).value_or("")
               : "";
}

Context Context::from_environment() {
    read_flight_record();
    const bool prestarted = variable(worker_link::kPrestartedVariable) == "1";
    // Without an agent the program works as under any other launcher, unless it needs a place.
    const Result<void> attached = link::attach_from_environment();
    if (!attached && prestarted) {
        throw Error(attached.error().code,
                    "started ahead of its round, but " + attached.error().detail);
    }
    const auto place = assigned_place(prestarted);
    if (place && prestarted) {
        publish(place->place);
    }
    Context context;
    if (place) {
        context.agent_store = true;
        context = link::context_of(context, *place);
        read_transport(context);
        read_protection(context);
        return context;
    }
    const bool ranked = variable("RANK") || variable("WORLD_SIZE");
    const auto mpi = ranked ? std::nullopt : find_mpi_process(variable);
    if (mpi && mpi->world_size > 1) {
        take(*mpi, context);
    }
    const bool in_job = !mpi && in_a_job();
    worker_link::visit_place(
        [&](const worker_link::PlaceFact& fact, auto& value) {
            if (in_job || std::ranges::find(kJobVariables, fact.variable) == kJobVariables.end()) {
                read_fact(fact, value);
            }
        },
        context);
    if (in_job && !variable("LOCAL_RANK")) {
        context.local_rank = context.rank;
    }
    if (in_job && !variable("LOCAL_WORLD_SIZE")) {
        context.local_world_size = context.world_size;
    }
    context.master_node_addr = master_node_of(context.master_addr);
    require_below("RANK", context.rank, "WORLD_SIZE", context.world_size);
    require_below("LOCAL_RANK", context.local_rank, "LOCAL_WORLD_SIZE", context.local_world_size);
    require_below("GROUP_RANK", context.group_rank, "GROUP_WORLD_SIZE", context.group_world_size);
    set_flight_record_place(context.rank, context.round);
    if (const auto link = link::process_link()) {
        context.group_secret = link->round_key(context.round);
    }
    read_transport(context);
    read_protection(context);
    return context;
}

}  // namespace regroup
