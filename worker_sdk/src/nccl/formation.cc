// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/formation.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/nccl/bootstrap.h"
#include "worker_sdk/src/nccl/control_ring.h"
#include "worker_sdk/src/nccl/meeting.h"
#include "worker_sdk/src/nccl/nccl_process_group.h"
#include "worker_sdk/src/nccl/reaper.h"
#include "worker_sdk/src/nccl/watchdog.h"
#include "worker_sdk/src/net/protection.h"

namespace regroup::nccl {
namespace {

/// Waits until the resources of a failed attempt are freed, before the exception leaves the
/// attempt.
struct AwaitAll {
    Reaper& reaper;
    ~AwaitAll() { reaper.await_all(); }
};

/// One attempt of one rank to get into its group. Every rank first registers in the store. Only
/// when all ranks have registered, the roots create their ids and NCCL connects the ranks. So NCCL
/// does not wait for a rank that never comes, and errors can name that rank.
///
///     <rank>/here     the door of its ControlRing, and its GPU
///     arrivals        how many are there; the last one sets `all`
///     id/<root>       NCCL's version and the root's unique id
///     <rank>/begun    it has asked NCCL to connect
///     given_up        a rank could not go on, and why
class Formation {
   public:
    Formation(const Backend& backend, const Context& context, const ProcessGroupOptions& options,
              Device device, const FormationOptions& formation)
        : backend_(backend),
          context_(context),
          options_(options),
          device_(device),
          formation_(formation),
          meeting_(context, options.name, "group \"" + options.name + "\" on " + to_string(device),
                   formation.meeting_limit.value_or(options.timeout)) {}

    std::unique_ptr<ProcessGroup> form();

   private:
    void arrive();
    [[nodiscard]] std::unique_ptr<ProcessGroup> meet();
    [[nodiscard]] std::string text_of(std::uint32_t rank, std::size_t field);
    void refuse_shared_gpus();
    [[nodiscard]] std::vector<ncclUniqueId> exchange_ids();
    [[nodiscard]] net::Protection ring_protection(const std::vector<ncclUniqueId>& ids) const;
    [[nodiscard]] std::unique_ptr<ControlRing> join_ring(const std::vector<ncclUniqueId>& ids);
    [[nodiscard]] std::unique_ptr<ControlRing> join_ring_or_say_why(
        const std::vector<ncclUniqueId>& ids);
    [[nodiscard]] Instant connecting_deadline() const;
    void connect(Lane& lane, std::vector<ncclUniqueId> ids);

    const Backend backend_;
    const Context& context_;
    const ProcessGroupOptions& options_;
    const Device device_;
    const FormationOptions formation_;
    Meeting meeting_;
    std::optional<ControlRing::Door> door_;
};

void Formation::arrive() {
    door_ = ControlRing::open_door(net::own_address(context_));
    meeting_.store().set(Meeting::key(context_.rank, "here"),
                         door_->text() + " " + backend_.runtime.identity(device_.index));
    if (meeting_.store().add("arrivals", 1) == context_.world_size) {
        meeting_.store().set("all", "1");
    }
}

/// Field 0 is the address of the door, 1 its token, 2 the GPU.
std::string Formation::text_of(std::uint32_t rank, std::size_t field) {
    std::string text = meeting_.store().get(Meeting::key(rank, "here"));
    for (; field > 0; --field) {
        text.erase(0, text.find(' ') + 1);
    }
    return text.substr(0, text.find(' '));
}

/// Several ranks may see the same GPU even if the launcher made one GPU visible to each.
void Formation::refuse_shared_gpus() {
    const std::string own = text_of(context_.rank, 2);
    const std::uint32_t first = context_.rank - std::min(context_.rank, context_.local_rank);
    for (std::uint32_t rank = first; rank < context_.rank; ++rank) {
        if (text_of(rank, 2) == own) {
            meeting_.fail(Errc::invalid_argument,
                          "ranks " + std::to_string(rank) + " and " +
                              std::to_string(context_.rank) + " of this node are on the same GPU " +
                              own +
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
    std::optional<ncclUniqueId> own;
    if (plan.hosted < plan.roots) {
        own = make_unique_id(backend_.api);
        meeting_.store().set("id/" + std::to_string(plan.hosted), version + " " + to_text(*own));
    }
    std::vector<std::string> keys;
    for (std::uint32_t root = 0; root < plan.roots; ++root) {
        keys.push_back("id/" + std::to_string(root));
    }
    meeting_.await(keys, "received NCCL's ids", "begun");
    std::vector<ncclUniqueId> ids;
    for (const std::string& text : meeting_.store().multi_get(keys)) {
        const std::size_t space = text.find(' ');
        if (text.substr(0, space) != version) {
            meeting_.fail(Errc::invalid_argument, "NCCL is " + version_text(backend_.api.version) +
                                                      " here (" + backend_.api.path + ") and " +
                                                      version_text(std::atoi(text.c_str())) +
                                                      " elsewhere; all ranks need the same");
        }
        ids.push_back(parse_unique_id(std::string_view(text).substr(space + 1)));
    }
    if (own) {
        ids[plan.hosted] = *own;  // The ring finds out whether the others have this one.
    }
    return ids;
}

/// The key of the ring depends on the ids: neighbours that have received different ones, such as an
/// old one that somebody has put into the store again, do not connect.
net::Protection Formation::ring_protection(const std::vector<ncclUniqueId>& ids) const {
    std::string purpose = "regroup NCCL ring of";
    for (const ncclUniqueId& id : ids) {
        purpose += " " + to_text(id);
    }
    return net::protection_of(context_, purpose);
}

std::unique_ptr<ControlRing> Formation::join_ring(const std::vector<ncclUniqueId>& ids) {
    if (context_.world_size == 1) {
        return nullptr;
    }
    const std::uint32_t next = (context_.rank + 1) % context_.world_size;
    return std::make_unique<ControlRing>(
        std::move(*door_),
        ControlRing::Member{.rank = context_.rank,
                            .world_size = context_.world_size,
                            .round = context_.round,
                            .group = checksum(context_.job + "/" + options_.name),
                            .protection = ring_protection(ids)},
        text_of(next, 0) + " " + text_of(next, 1), meeting_.deadline(),
        [this] { meeting_.look_around(); });
}

Instant Formation::connecting_deadline() const {
    return formation_.meeting_limit ? after(SteadyClock().now(), options_.timeout)
                                    : meeting_.deadline();
}

void Formation::connect(Lane& lane, std::vector<ncclUniqueId> ids) {
    meeting_.store().set(Meeting::key(context_.rank, "begun"), "1");
    const CommReport report = lane.complete(
        [ids = std::move(ids), size = static_cast<int>(context_.world_size),
         rank = static_cast<int>(context_.rank)](Communicator& communicator) mutable {
            return communicator.begin(ids, size, rank);
        },
        connecting_deadline());
    if (report.state == CommState::ready) {
        return;
    }
    if (report.state == CommState::failed) {
        meeting_.fail(errc_of(report.result), "NCCL could not connect the ranks: " + report.text);
    }
    if (const auto failure = lane.in_flight().failure()) {
        meeting_.fail(failure->code, "while NCCL connected the ranks: " + failure->cause);
    }
    const std::string missing = meeting_.missing_ranks("begun");
    meeting_.fail(Errc::deadline_exceeded,
                  "NCCL has not connected the ranks within " + format_duration(options_.timeout) +
                      (missing.empty() ? "; all " + std::to_string(context_.world_size) +
                                             " have begun: look at the network between them "
                                             "(NCCL_SOCKET_IFNAME, NCCL_DEBUG=INFO)"
                                       : "; these have not begun: " + missing));
}

std::unique_ptr<ControlRing> Formation::join_ring_or_say_why(const std::vector<ncclUniqueId>& ids) {
    try {
        return join_ring(ids);
    } catch (const Error& error) {
        if (!meeting_.has_heard()) {
            meeting_.hear_why();
            meeting_.fail(error.code(), error.what());
        }
        throw;
    }
}

std::unique_ptr<ProcessGroup> Formation::form() {
    try {
        return meet();
    } catch (const std::exception& error) {
        meeting_.give_up(error.what());
        throw;
    }
}

std::unique_ptr<ProcessGroup> Formation::meet() {
    arrive();
    const cuda::DeviceScope scope(backend_.runtime, device_.index);
    auto wakeup = std::make_shared<net::Wakeup>();
    const auto reaper = std::make_shared<Reaper>(backend_, device_.index);
    const AwaitAll freed{*reaper};
    GroupIdentity identity{.name = options_.name,
                           .rank = context_.rank,
                           .members = std::vector<std::uint32_t>(context_.world_size),
                           .device = device_,
                           .timeout = options_.timeout,
                           .round = ContextScope::of(context_)};
    std::iota(identity.members.begin(), identity.members.end(), 0U);
    const std::shared_ptr<Lane> lane = Lane::make(backend_, std::move(identity), wakeup, reaper);
    const RoundScope::Registration forming(
        ContextScope::of(context_), [&lane](const std::string& reason) {
            lane->in_flight().post({Errc::fenced, "aborted: " + reason, {}});
        });
    meeting_.await({"all"}, "come", "here");
    if (!formation_.share_gpus) {
        refuse_shared_gpus();
    }
    std::vector<ncclUniqueId> ids = exchange_ids();
    auto watchdog = std::make_shared<Watchdog>(
        backend_, device_, context_.rank, join_ring_or_say_why(ids), std::move(wakeup), reaper);
    watchdog->add(lane);
    try {
        connect(*lane, std::move(ids));
    } catch (const Error& error) {
        lane->in_flight().post({error.code(), error.what(), {}});
        throw;
    }
    return std::make_unique<NcclProcessGroup>(backend_, std::move(watchdog), lane);
}

}  // namespace

std::unique_ptr<ProcessGroup> form_group_on(const Backend& backend, const Context& context,
                                            const ProcessGroupOptions& options, Device device,
                                            const FormationOptions& formation) {
    return Formation(backend, context, options, device, formation).form();
}

void say_given_up(const Context& context, const ProcessGroupOptions& options,
                  const std::string& reason) noexcept {
    if (context.world_size == 1) {
        return;
    }
    try {
        Meeting(context, options.name, "group \"" + options.name + "\"", options.timeout)
            .give_up(reason);
    } catch (const std::exception&) {
        // Without the store this rank cannot tell the others.
    }
}

}  // namespace regroup::nccl
