// SPDX-License-Identifier: Apache-2.0
#include <regroup/context.h>
#include <regroup/error.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "rendezvous/security/secret_file.h"
#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/base/process_mark.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/context/mpi_environment.h"
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
    Number value{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end || value < least || value > most) {
        refuse(setting(name, text) + " is not a number from " + std::to_string(least) + " to " +
               std::to_string(most));
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
void publish(const worker_link::AssignWorker& place) {
    const std::pair<const char*, std::string> variables[] = {
        {"RANK", std::to_string(place.rank)},
        {"WORLD_SIZE", std::to_string(place.world_size)},
        {"GROUP_RANK", std::to_string(place.group_rank)},
        {"GROUP_WORLD_SIZE", std::to_string(place.group_world_size)},
        {"ROLE_RANK", std::to_string(place.role_rank)},
        {"ROLE_WORLD_SIZE", std::to_string(place.role_world_size)},
        {"MASTER_ADDR", place.master_addr},
        {"MASTER_PORT", std::to_string(place.master_port)},
        {worker_link::kMasterNodeVariable, place.master_node_addr},
        {"TORCHELASTIC_RESTART_COUNT", std::to_string(place.restart_count)},
        {"REGROUP_ROUND", std::to_string(place.round)}};
    for (const auto& [name, value] : variables) {
        ::setenv(name, value.c_str(), 1);
    }
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

Context link::context_of(const Context& base, const worker_link::AssignWorker& place) {
    Context context;
    context.job = place.job;
    context.rank = place.rank;
    context.world_size = place.world_size;
    context.local_rank = place.local_rank;
    context.local_world_size = place.local_world_size;
    context.group_rank = place.group_rank;
    context.group_world_size = place.group_world_size;
    context.restart_count = place.restart_count;
    context.max_restarts = place.max_restarts;
    context.round = place.round;
    context.master_addr = place.master_addr;
    context.master_port = place.master_port;
    context.master_node_addr = place.master_node_addr;
    context.agent_store = base.agent_store;
    context.cpu_transport = base.cpu_transport;
    context.group_secret = place.round_key.empty() ? base.group_secret : place.round_key;
    context.group_encryption = base.group_encryption;
    context.store_timeout = base.store_timeout;
    set_flight_record_place(place.rank, place.round);
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
        publish(*place);
    }
    Context context;
    if (place) {
        context.agent_store = true;
        context = link::context_of(context, *place);
    }
    const bool ranked = variable("RANK") || variable("WORLD_SIZE");
    const auto mpi = ranked ? std::nullopt : find_mpi_process(variable);
    if (place) {
        read_transport(context);
        read_protection(context);
        return context;
    }
    set_flight_record_place(mpi ? mpi->rank : number_or("RANK", 0U),
                            number_or("REGROUP_ROUND", std::uint64_t{0}));
    if (mpi) {
        if (mpi->world_size > 1) {
            take(*mpi, context);
        }
    } else if (in_a_job()) {
        constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
        context.world_size = number<std::uint32_t>("WORLD_SIZE", *variable("WORLD_SIZE"), 1, kMost);
        context.rank = number<std::uint32_t>("RANK", *variable("RANK"), 0, kMost);
        context.master_addr = *variable("MASTER_ADDR");
        context.master_port =
            number<std::uint16_t>("MASTER_PORT", *variable("MASTER_PORT"), 1, kPortMost);
        context.local_rank = context.rank;
        context.local_world_size = context.world_size;
    }
    require_below("RANK", context.rank, "WORLD_SIZE", context.world_size);
    context.master_node_addr = master_node_of(context.master_addr);
    context.job = variable("TORCHELASTIC_RUN_ID").value_or(context.job);
    context.local_rank = number_or("LOCAL_RANK", context.local_rank);
    context.local_world_size = number_or("LOCAL_WORLD_SIZE", context.local_world_size, 1U);
    require_below("LOCAL_RANK", context.local_rank, "LOCAL_WORLD_SIZE", context.local_world_size);
    context.group_rank = number_or("GROUP_RANK", context.group_rank);
    context.group_world_size = number_or("GROUP_WORLD_SIZE", context.group_world_size, 1U);
    require_below("GROUP_RANK", context.group_rank, "GROUP_WORLD_SIZE", context.group_world_size);
    context.restart_count = number_or("TORCHELASTIC_RESTART_COUNT", context.restart_count);
    context.max_restarts = number_or("TORCHELASTIC_MAX_RESTARTS", context.max_restarts);
    context.round = number_or("REGROUP_ROUND", context.round);
    if (const auto link = link::process_link()) {
        context.group_secret = link->round_key(context.round);
    }
    read_transport(context);
    read_protection(context);
    return context;
}

}  // namespace regroup
