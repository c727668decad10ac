// SPDX-License-Identifier: Apache-2.0
#include <regroup/elastic_loop.h>
#include <regroup/error.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "worker_sdk/src/base/process_mark.h"
#include "worker_sdk/src/elastic/loop.h"
#include "worker_sdk/src/link/process_link.h"

namespace regroup {
namespace {

/// The process whose program has a loop, by ProcessMark::current(); 0: none. A forked child may
/// make one of its own.
std::atomic<std::uint64_t> loops_process = 0;

/// The place of the only loop of a process.
class LoopPlace {
   public:
    LoopPlace() {
        if (loops_process.exchange(ProcessMark::current()) == ProcessMark::current()) {
            throw Error(Errc::invalid_argument,
                        "ElasticLoop: another loop of this process has not ended; a process takes "
                        "part in one training at a time, so let that loop finish, or destroy it, "
                        "before you make this one");
        }
    }
    ~LoopPlace() {
        if (mark_.is_here()) {
            loops_process = 0;
        }
    }
    LoopPlace(const LoopPlace&) = delete;
    LoopPlace& operator=(const LoopPlace&) = delete;

   private:
    const ProcessMark mark_;
};

/// Gives the place up when training is over, however it ends.
struct LeaveAtEnd {
    const elastic::Loop& loop;
    std::shared_ptr<void>& place;

    ~LeaveAtEnd() {
        if (loop.is_over()) {
            place.reset();
        }
    }
};

}  // namespace

std::uint64_t ElasticStep::number() const noexcept {
    return loop_->step().number();
}

const Context& ElasticStep::context() const noexcept {
    return loop_->round().context;
}

ProcessGroup& ElasticStep::group() const noexcept {
    return *loop_->round().steps;
}

std::uint64_t ElasticStep::samples_begin() const noexcept {
    return loop_->step().samples_begin();
}

SampleRange ElasticStep::take(std::uint64_t count) {
    return loop_->step().take(count);
}

void ElasticStep::commit(const std::function<void()>& apply) {
    begin_commit();
    if (apply) {
        apply();
    }
    end_commit();
}

void ElasticStep::begin_commit() {
    loop_->step().begin_commit();
}

void ElasticStep::end_commit() {
    loop_->step().end_commit();
}

bool ElasticStep::pauses() const noexcept {
    return loop_->step().pauses();
}

void ElasticStep::finish() {
    loop_->step().finish();
}

void ElasticStep::report(std::string_view name, double value) {
    loop_->step().report(name, value);
}

bool ElasticDeparture::leaves(std::uint32_t rank) const noexcept {
    return std::ranges::find(ranks, rank) != ranks.end();
}

bool ElasticDeparture::all_leave() const noexcept {
    return ranks.size() == context->world_size;
}

ElasticStep::Section::Section(const ElasticStep& step, std::string_view name) noexcept
    : loop_(step.loop_) {
    loop_->step().begin_section(name);
}

ElasticStep::Section::~Section() {
    loop_->step().end_section();
}

ElasticLoop::ElasticLoop(ElasticOptions options) : place_(std::make_shared<LoopPlace>()) {
    // Must be first, since it attaches this process to its agent.
    Context context = Context::from_environment();
    loop_ = {new elastic::Loop(std::move(options), std::move(context), link::process_link()),
             OwnerDeleter()};
}

ElasticLoop::ElasticLoop(std::shared_ptr<elastic::Loop> loop) : loop_(std::move(loop)) {}

ElasticLoop::~ElasticLoop() = default;

std::unique_ptr<ElasticLoop> elastic::Loop::make(ElasticOptions options, Context first,
                                                 std::shared_ptr<link::AgentLink> link) {
    return std::unique_ptr<ElasticLoop>(new ElasticLoop(
        {new Loop(std::move(options), std::move(first), std::move(link)), OwnerDeleter()}));
}

void ElasticLoop::register_state(std::string name, TensorView tensor) {
    loop_->replica().registered().add(std::move(name), tensor);
}

void ElasticLoop::register_state(std::string name, std::function<std::string()> save,
                                 std::function<void(std::string_view)> load) {
    loop_->replica().registered().add(std::move(name), std::move(save), std::move(load));
}

void ElasticLoop::register_buffer(std::string name, TensorView tensor) {
    loop_->replica().registered().add_buffer(std::move(name), tensor);
}

void ElasticLoop::resume_at(std::uint64_t step, std::uint64_t samples) {
    loop_->resume_at(step, samples);
}

void ElasticLoop::will_import(const std::string& modules) {
    if (const auto link = link::process_link()) {
        link->send(worker_link::Imports{.modules = modules});
    }
}

Ending ElasticLoop::run(const ElasticCallbacks& callbacks) {
    const LeaveAtEnd leave{*loop_, place_};
    return loop_->run(callbacks);
}

ElasticEvent ElasticLoop::next() {
    const LeaveAtEnd leave{*loop_, place_};
    return loop_->next();
}

bool ElasticLoop::repairs(const std::exception& error) {
    const LeaveAtEnd leave{*loop_, place_};
    return loop_->repairs(error);
}

const ElasticRound& ElasticLoop::round() const noexcept {
    return loop_->shown_round();
}

ElasticStep& ElasticLoop::step() noexcept {
    return loop_->shown_step();
}

const ElasticLeave& ElasticLoop::leave() const noexcept {
    return loop_->shown_leave();
}

}  // namespace regroup
