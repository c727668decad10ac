// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/formation.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "worker_sdk/src/nccl/bootstrap.h"
#include "worker_sdk/src/nccl/control_ring.h"
#include "worker_sdk/src/nccl/nccl_process_group.h"
#include "worker_sdk/src/nccl/watchdog.h"

namespace regroup::nccl {
namespace {

/// More names than this help nobody.
constexpr std::size_t kNamedMax = 16;

/// One attempt of one rank to get into its group. Every rank first says in the store that it is
/// there; only when all have is an id made and NCCL asked to connect them. So NCCL waits for
/// nobody who never comes, and who that is can be told.
///
///     <rank>/here     the door of its ControlRing, and its GPU
///     arrivals        how many are there; the last one sets `all`
///     id/<root>       NCCL's version and the root's unique id
///     <rank>/begun    it has asked NCCL to connect
///     given_up        a rank could not go on, and why
class Formation {
   public:
    Formation(const Backend& backend, const Context& context, const ProcessGroupOptions& options,
              Device device)
        : backend_(backend),
          context_(context),
          options_(options),
          device_(device),
          deadline_(after(SteadyClock().now(), options.timeout)) {}

    std::unique_ptr<ProcessGroup> form(const FormationOptions& formation);

   private:
    void enter_store();
    void arrive();
    [[nodiscard]] std::unique_ptr<ProcessGroup> meet(const FormationOptions& formation);
    void await(const std::vector<std::string>& keys, const char* what, const char* per_rank);
    void look_around();
    void hear_why();
    void give_up(const std::string& reason);
    [[nodiscard]] std::string missing_ranks(const char* per_rank) const;
    [[nodiscard]] std::string text_of(std::uint32_t rank, std::size_t field) const;
    void refuse_shared_gpus() const;
    [[nodiscard]] std::vector<ncclUniqueId> exchange_ids();
    [[nodiscard]] std::unique_ptr<ControlRing> join_ring();
    void connect(Lane& lane, std::vector<ncclUniqueId> ids);
    [[nodiscard]] Duration time_left() const { return deadline_ - SteadyClock().now(); }
    [[noreturn]] void fail(Errc code, const std::string& detail) const {
        throw Error(code,
                    "group \"" + options_.name + "\" on " + to_string(device_) + ": " + detail);
    }

    const Backend backend_;
    const Context& context_;
    const ProcessGroupOptions& options_;
    const Device device_;
    const Instant deadline_;
    std::shared_ptr<Store> store_;  // of this round and attempt
    std::optional<ControlRing::Door> door_;
    bool door_opened_ = false;  // the others know of this rank
    bool heard_ = false;        // that another rank has given up
};

std::string key(std::uint32_t rank, const char* name) {
    return std::to_string(rank) + "/" + name;
}

void Formation::enter_store() {
    const std::shared_ptr<Store> store = context_.store();
    const std::string place = "pg-nccl/" + options_.name + "/" + std::to_string(context_.round) +
                              "." + std::to_string(context_.restart_count);
    const std::string attempt =
        std::to_string(store->add(place + "/attempt/" + std::to_string(context_.rank), 1));
    store_ = prefix_store(place + "/" + attempt, store);
}

void Formation::arrive() {
    door_ = ControlRing::open_door(context_.master_addr, context_.master_port);
    store_->set(key(context_.rank, "here"),
                door_->text() + " " + backend_.runtime.identity(device_.index));
    door_opened_ = true;
    if (store_->add("arrivals", 1) == context_.world_size) {
        store_->set("all", "1");
    }
}

/// The ranks whose `per_rank` key is not there: "3, 5 and 2 more".
std::string Formation::missing_ranks(const char* per_rank) const {
    std::string names;
    std::size_t missing_count = 0;
    for (std::uint32_t rank = 0; rank < context_.world_size; ++rank) {
        if (!store_->check({key(rank, per_rank)}) && ++missing_count <= kNamedMax) {
            names += (names.empty() ? "" : ", ") + std::to_string(rank);
        }
    }
    if (missing_count > kNamedMax) {
        names += " and " + std::to_string(missing_count - kNamedMax) + " more";
    }
    return names;
}

/// Waits for `keys`, and notices every second if another rank has given this attempt up.
void Formation::await(const std::vector<std::string>& keys, const char* what,
                      const char* per_rank) {
    constexpr Duration kTurn = std::chrono::seconds(1);
    while (true) {
        const Duration left = time_left();
        try {
            store_->wait(keys, std::clamp(left, Duration(1), kTurn));
            return;
        } catch (const Error& error) {
            if (error.code() != Errc::deadline_exceeded) {
                throw;
            }
        }
        if (left > kTurn) {
            look_around();
            continue;
        }
        const std::string missing = missing_ranks(per_rank);
        fail(Errc::deadline_exceeded,
             "of " + std::to_string(context_.world_size) + " ranks these have not " + what +
                 " within " + format_duration(options_.timeout) + ": " +
                 (missing.empty() ? "none, the last one has come just now" : missing));
    }
}

void Formation::look_around() {
    if (store_->check({"given_up"})) {
        heard_ = true;
        fail(Errc::disconnected, store_->get("given_up"));
    }
}

/// After a neighbour has closed its door: its reason may be about to come.
void Formation::hear_why() {
    try {
        store_->wait({"given_up"}, std::chrono::seconds(1));
    } catch (const Error&) {
        return;  // It died without a word.
    }
    look_around();
}

/// So that the others need not wait for this rank until the deadline.
void Formation::give_up(const std::string& reason) {
    if (heard_ || !door_opened_) {
        return;
    }
    try {
        store_->set("given_up", "rank " + std::to_string(context_.rank) +
                                    " has given up forming the group: " + reason);
    } catch (const Error&) {
        // The store is gone, and the others notice that themselves.
    }
}

/// Field 0 is the address of the door, 1 its token, 2 the GPU.
std::string Formation::text_of(std::uint32_t rank, std::size_t field) const {
    std::string text = store_->get(key(rank, "here"));
    for (; field > 0; --field) {
        text.erase(0, text.find(' ') + 1);
    }
    return text.substr(0, text.find(' '));
}

/// Ranks that the launcher left one GPU each may still have been left the same one.
void Formation::refuse_shared_gpus() const {
    const std::string own = text_of(context_.rank, 2);
    const std::uint32_t first = context_.rank - std::min(context_.rank, context_.local_rank);
    for (std::uint32_t rank = first; rank < context_.rank; ++rank) {
        if (text_of(rank, 2) == own) {
            fail(Errc::invalid_argument,
                 "ranks " + std::to_string(rank) + " and " + std::to_string(context_.rank) +
                     " of this node are on the same GPU " + own +
                     ", which NCCL does not allow; give each process its own by "
                     "CUDA_VISIBLE_DEVICES, or for a test set REGROUP_SHARE_GPUS=1");
        }
    }
}

std::vector<ncclUniqueId> Formation::exchange_ids() {
    const bool scalable = backend_.api.comm_init_rank_scalable != nullptr;
    const RootPlan plan = plan_roots(context_.rank, context_.world_size, context_.local_rank,
                                     context_.group_rank, context_.group_world_size, scalable);
    const std::string version = std::to_string(backend_.api.version);
    if (plan.hosted < plan.roots) {
        store_->set("id/" + std::to_string(plan.hosted),
                    version + " " + to_text(make_unique_id(backend_.api)));
    }
    std::vector<std::string> keys;
    for (std::uint32_t root = 0; root < plan.roots; ++root) {
        keys.push_back("id/" + std::to_string(root));
    }
    await(keys, "received NCCL's ids", "begun");
    std::vector<ncclUniqueId> ids;
    for (const std::string& text : store_->multi_get(keys)) {
        const std::size_t space = text.find(' ');
        if (text.substr(0, space) != version) {
            fail(Errc::invalid_argument, "NCCL is " + version_text(backend_.api.version) +
                                             " here (" + backend_.api.path + ") and " +
                                             version_text(std::atoi(text.c_str())) +
                                             " elsewhere; all ranks need the same");
        }
        ids.push_back(parse_unique_id(std::string_view(text).substr(space + 1)));
    }
    return ids;
}

std::unique_ptr<ControlRing> Formation::join_ring() {
    if (context_.world_size == 1) {
        return nullptr;
    }
    const std::uint32_t next = (context_.rank + 1) % context_.world_size;
    return std::make_unique<ControlRing>(std::move(*door_), context_.rank, context_.world_size,
                                         text_of(next, 0) + " " + text_of(next, 1), deadline_,
                                         [this] { look_around(); });
}

void Formation::connect(Lane& lane, std::vector<ncclUniqueId> ids) {
    store_->set(key(context_.rank, "begun"), "1");
    CommReport report = lane.communicator().begin(ids, static_cast<int>(context_.world_size),
                                                  static_cast<int>(context_.rank));
    if (report.state == CommState::in_progress) {
        report = lane.await_ready(deadline_);
    }
    if (report.state == CommState::ready) {
        return;
    }
    if (report.state == CommState::failed) {
        fail(errc_of(report.result), "NCCL could not connect the ranks: " + report.text);
    }
    if (const auto failure = lane.failure()) {
        fail(failure->code, "while NCCL connected the ranks: " + failure->cause);
    }
    const std::string missing = missing_ranks("begun");
    fail(Errc::deadline_exceeded,
         "NCCL has not connected the ranks within " + format_duration(options_.timeout) +
             (missing.empty() ? "; all " + std::to_string(context_.world_size) +
                                    " have begun: look at the network between them "
                                    "(NCCL_SOCKET_IFNAME, NCCL_DEBUG=INFO)"
                              : "; these have not begun: " + missing));
}

std::unique_ptr<ProcessGroup> Formation::form(const FormationOptions& formation) {
    try {
        return meet(formation);
    } catch (const Error& error) {
        give_up(error.what());
        throw;
    }
}

std::unique_ptr<ProcessGroup> Formation::meet(const FormationOptions& formation) {
    enter_store();
    arrive();
    // Takes a fraction of a second the first time, in which the others come.
    const cuda::DeviceScope scope(backend_.runtime, device_.index);
    auto wakeup = std::make_shared<Wakeup>();
    GroupIdentity identity{.name = options_.name,
                           .rank = context_.rank,
                           .members = std::vector<std::uint32_t>(context_.world_size),
                           .device = device_,
                           .timeout = options_.timeout};
    std::iota(identity.members.begin(), identity.members.end(), 0U);
    auto lane = std::make_shared<Lane>(backend_, std::move(identity), wakeup);
    await({"all"}, "come", "here");
    if (!formation.share_gpus) {
        refuse_shared_gpus();
    }
    std::vector<ncclUniqueId> ids = exchange_ids();
    std::unique_ptr<ControlRing> ring;
    try {
        ring = join_ring();
    } catch (const Error& error) {
        if (heard_) {
            throw;
        }
        hear_why();
        fail(error.code(), error.what());
    }
    auto watchdog = std::make_shared<Watchdog>(backend_, device_, context_.rank, std::move(ring),
                                               std::move(wakeup));
    watchdog->add(lane);
    try {
        connect(*lane, std::move(ids));
    } catch (const Error& error) {
        lane->post({error.code(), error.what(), {}});
        throw;
    }
    return std::make_unique<NcclProcessGroup>(backend_, std::move(watchdog), std::move(lane));
}

}  // namespace

std::unique_ptr<ProcessGroup> form_group_on(const Backend& backend, const Context& context,
                                            const ProcessGroupOptions& options, Device device,
                                            const FormationOptions& formation) {
    return Formation(backend, context, options, device).form(formation);
}

}  // namespace regroup::nccl
