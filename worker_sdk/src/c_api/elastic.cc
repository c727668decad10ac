// SPDX-License-Identifier: Apache-2.0
// regroup/c_api_elastic.h, and the failure that ends the process.
#include <regroup/c_api_elastic.h>
#include <regroup/elastic_loop.h>
#include <regroup/failure.h>
#include <regroup/helper_process.h>

#include <algorithm>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/c_api/call.h"

using regroup::Errc;
using regroup::Error;
using regroup::c_api::Call;
using regroup::c_api::failures;
using regroup::c_api::guarded;
using regroup::c_api::require_ok;

namespace {

static_assert(REGROUP_FATAL_USER_ERROR == static_cast<int>(regroup::FatalKind::user_error) &&
              REGROUP_FATAL_RETRY == static_cast<int>(regroup::FatalKind::retry) &&
              REGROUP_FATAL_BAD_NODE == static_cast<int>(regroup::FatalKind::bad_node));

/// The handles of one round. An object that is made from `group` shares `token`, and so keeps the
/// loop, whose group it uses.
struct RoundHandles {
    using Token = std::shared_ptr<regroup::ElasticLoop>;

    RoundHandles(Token loop, const regroup::ElasticRound& round)
        : token(std::make_shared<Token>(std::move(loop))),
          context{*round.context},
          group{nullptr, std::shared_ptr<regroup::ProcessGroup>(token, round.group),
                std::string(round.group->backend())} {}

    std::shared_ptr<Token> token;
    regroup_context context;
    regroup_group group;
};

}  // namespace

struct regroup_step {
    regroup::ElasticStep& value;
    RoundHandles& round;
    std::optional<regroup::ElasticStep::Section> section{};
    /// The failure of a call that the loop must learn of, even if the program ignores it.
    std::optional<Error> failure{};
};

struct regroup_elastic {
    std::shared_ptr<regroup::ElasticLoop> value;
    std::unique_ptr<RoundHandles> round{};

    // Of regroup_elastic_next.
    std::unique_ptr<RoundHandles> earlier{};  ///< Until the program has seen the new round.
    std::optional<regroup_step> step{};
};

namespace {

regroup::ElasticOptions read_options(const Call& call, const regroup_elastic_options& options) {
    call.require_size(options, "options");
    regroup::ElasticOptions result;
    if (options.backend != nullptr) {
        result.backend = options.backend;
    }
    result.timeout = call.timeout(options.timeout_ms, result.timeout);
    result.compare_every = options.compare_every;
    result.snapshot_every = options.snapshot_every;
    return result;
}

regroup_round_info describe(RoundHandles& handles, const regroup::ElasticRound& round) {
    return {.context = &handles.context,
            .group = &handles.group,
            .step = round.step,
            .rank = round.context->rank,
            .world_size = round.context->world_size,
            .first = round.first ? 1 : 0};
}

regroup_leave_info describe(const regroup::ElasticLeave& leave) {
    const auto left = leave.deadline - regroup::SteadyClock().now();
    return {.step = leave.step,
            .reason = leave.reason.c_str(),
            .time_left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count()};
}

/// The program has replaced what it made from the group of the earlier round.
void drop(std::unique_ptr<RoundHandles> earlier) {
    if (earlier) {
        const std::weak_ptr<RoundHandles::Token> token = earlier->token;
        earlier.reset();
        if (!token.expired()) {  // The loop destroys that group next.
            throw Error(Errc::invalid_argument,
                        "an object that was made from the group of an earlier round still exists; "
                        "free such objects (regroup_ddp, sub-groups, batches) in on_round");
        }
    }
}

void begin_round(regroup_elastic& loop, const regroup_elastic_callbacks& callbacks,
                 const regroup::ElasticRound& round) {
    auto earlier = std::exchange(loop.round, std::make_unique<RoundHandles>(loop.value, round));
    if (callbacks.on_round != nullptr) {
        const regroup_round_info info = describe(*loop.round, round);
        const auto before = failures();
        require_ok(callbacks.on_round(callbacks.user, &info), "on_round", before);
    }
    drop(std::move(earlier));
}

void carry_out_step(regroup_elastic& loop, const regroup_elastic_callbacks& callbacks,
                    regroup::ElasticStep& value) {
    regroup_step step{.value = value, .round = *loop.round};
    const auto before = failures();
    require_ok(callbacks.on_step(callbacks.user, &step), "on_step", before);
    if (step.failure) {
        throw Error(*step.failure);
    }
}

void leave(const regroup_elastic_callbacks& callbacks, const regroup::ElasticLeave& leave) {
    const regroup_leave_info info = describe(leave);
    const auto before = failures();
    require_ok(callbacks.on_leave(callbacks.user, &info), "on_leave", before);
}

/// Before the loop goes on: reports what went wrong with the last event although the program did
/// not say so.
void close_event(regroup_elastic& loop) {
    std::optional<Error> failure;
    if (loop.step) {
        failure = std::move(loop.step->failure);
        loop.step.reset();
    }
    try {
        drop(std::move(loop.earlier));
    } catch (const Error& error) {
        failure = error;
    }
    if (failure && !loop.value->repairs(*failure)) {
        throw Error(*failure);
    }
}

regroup_elastic_event open_event(regroup_elastic& loop) {
    switch (loop.value->next()) {
        case regroup::ElasticEvent::round:
            loop.earlier = std::exchange(
                loop.round, std::make_unique<RoundHandles>(loop.value, loop.value->round()));
            return REGROUP_EVENT_ROUND;
        case regroup::ElasticEvent::step:
            loop.step.emplace(loop.value->step(), *loop.round);
            return REGROUP_EVENT_STEP;
        case regroup::ElasticEvent::leave:
            return REGROUP_EVENT_LEAVE;
        case regroup::ElasticEvent::finished:
            return REGROUP_EVENT_FINISHED;
        case regroup::ElasticEvent::left:
            break;
    }
    return REGROUP_EVENT_LEFT;
}

/// Carries out a part of a step whose failure ends the step.
regroup_errc end_step(const char* function, regroup_step* step, const auto& action) {
    return guarded(function, [&](const Call& call) {
        regroup_step& opened = call(step, "step");
        try {
            action(opened.value);
        } catch (const Error& error) {
            opened.failure = error;
            throw;
        }
    });
}

}  // namespace

regroup_errc regroup_elastic_create(const regroup_elastic_options* options,
                                    regroup_elastic** loop) {
    return guarded(__func__, [&](const Call& call) {
        regroup_elastic*& result = call.result(loop, "loop");
        auto chosen = options == nullptr ? regroup::ElasticOptions() : read_options(call, *options);
        result = new regroup_elastic{std::make_shared<regroup::ElasticLoop>(std::move(chosen))};
    });
}

void regroup_elastic_free(regroup_elastic* loop) {
    delete loop;
}

regroup_errc regroup_elastic_register_tensor(regroup_elastic* loop, const char* name,
                                             regroup_tensor tensor) {
    return guarded(__func__, [&](const Call& call) {
        call(loop, "loop")
            .value->register_state(call.text(name, "name"), call.tensor(tensor, "tensor"));
    });
}

regroup_errc regroup_elastic_register_buffer(regroup_elastic* loop, const char* name,
                                             regroup_tensor tensor) {
    return guarded(__func__, [&](const Call& call) {
        call(loop, "loop")
            .value->register_buffer(call.text(name, "name"), call.tensor(tensor, "tensor"));
    });
}

regroup_errc regroup_elastic_register_value(regroup_elastic* loop, const char* name,
                                            regroup_save_value save, regroup_load_value load,
                                            void* user) {
    return guarded(__func__, [&](const Call& call) {
        call(save, "save");
        call(load, "load");
        call(loop, "loop")
            .value->register_state(
                call.text(name, "name"),
                [save, user, call] {
                    const void* data = nullptr;
                    std::size_t bytes = 0;
                    const auto before = failures();
                    require_ok(save(user, &data, &bytes), "save", before);
                    return std::string(call.bytes(data, bytes, "the data of save"));
                },
                [load, user](std::string_view saved) {
                    const auto before = failures();
                    require_ok(load(user, saved.data(), saved.size()), "load", before);
                });
    });
}

regroup_errc regroup_elastic_will_import(regroup_elastic* loop, const char* modules) {
    return guarded(__func__, [&](const Call& call) {
        call(loop, "loop").value->will_import(call.text(modules, "modules"));
    });
}

regroup_errc regroup_elastic_resume_at(regroup_elastic* loop, uint64_t step, uint64_t samples) {
    return guarded(__func__,
                   [&](const Call& call) { call(loop, "loop").value->resume_at(step, samples); });
}

regroup_errc regroup_elastic_run(regroup_elastic* loop, const regroup_elastic_callbacks* callbacks,
                                 regroup_ending* ending) {
    return guarded(__func__, [&](const Call& call) {
        regroup_elastic& opened = call(loop, "loop");
        const regroup_elastic_callbacks given = call(callbacks, "callbacks");
        call.require_size(given, "callbacks");
        call(given.on_step, "on_step");
        regroup::ElasticCallbacks calls;
        calls.on_round = [&](const auto& round) { begin_round(opened, given, round); };
        calls.on_step = [&](regroup::ElasticStep& step) { carry_out_step(opened, given, step); };
        if (given.on_leave != nullptr) {
            calls.on_leave = [&](const auto& reasons) { leave(given, reasons); };
        }
        const regroup::Ending result = opened.value->run(calls);
        if (ending != nullptr) {
            *ending = result == regroup::Ending::finished ? REGROUP_FINISHED : REGROUP_LEFT;
        }
    });
}

regroup_errc regroup_elastic_next(regroup_elastic* loop, regroup_elastic_event* event) {
    return guarded(__func__, [&](const Call& call) {
        regroup_elastic& opened = call(loop, "loop");
        regroup_elastic_event& result = call(event, "event");
        close_event(opened);
        result = open_event(opened);
    });
}

regroup_errc regroup_elastic_failed(regroup_elastic* loop, regroup_errc code, const char* text) {
    return guarded(__func__, [&](const Call& call) {
        regroup_elastic& opened = call(loop, "loop");
        const std::optional<Errc> known = regroup::c_api::to_errc(code);
        if (!known) {
            call.refuse("code is " + std::to_string(code) + ", which is no failure");
        }
        const Error failure(*known, text == nullptr ? "" : text);
        opened.step.reset();
        if (!opened.value->repairs(failure)) {
            throw Error(failure);
        }
    });
}

regroup_errc regroup_elastic_round(const regroup_elastic* loop, regroup_round_info* round) {
    return guarded(__func__, [&](const Call& call) {
        const regroup_elastic& opened = call(loop, "loop");
        regroup_round_info& result = call(round, "round");
        if (!opened.round) {
            call.refuse("no round has begun");
        }
        result = describe(*opened.round, opened.value->round());
    });
}

regroup_errc regroup_elastic_step(regroup_elastic* loop, regroup_step** step) {
    return guarded(__func__, [&](const Call& call) {
        regroup_step*& result = call.result(step, "step");
        regroup_elastic& opened = call(loop, "loop");
        if (!opened.step) {
            call.refuse("no step is open");
        }
        result = &*opened.step;
    });
}

regroup_errc regroup_elastic_leave(const regroup_elastic* loop, regroup_leave_info* leave) {
    return guarded(__func__, [&](const Call& call) {
        const regroup_elastic& opened = call(loop, "loop");
        call(leave, "leave") = describe(opened.value->leave());
    });
}

regroup_errc regroup_step_get(const regroup_step* step, regroup_step_info* info) {
    return guarded(__func__, [&](const Call& call) {
        const regroup_step& opened = call(step, "step");
        call(info, "info") = {.context = &opened.round.context,
                              .group = &opened.round.group,
                              .number = opened.value.number(),
                              .samples_begin = opened.value.samples_begin(),
                              .rank = opened.value.context().rank,
                              .world_size = opened.value.context().world_size};
    });
}

regroup_errc regroup_step_take(regroup_step* step, uint64_t count, uint64_t* first) {
    return guarded(__func__, [&](const Call& call) {
        regroup_step& opened = call(step, "step");
        std::uint64_t& result = call(first, "first");
        result = opened.value.take(count).first;
    });
}

regroup_errc regroup_step_commit(regroup_step* step, regroup_errc (*apply)(void* user),
                                 void* user) {
    return end_step(__func__, step, [&](regroup::ElasticStep& opened) {
        opened.commit([&] {
            if (apply != nullptr) {
                const auto before = failures();
                require_ok(apply(user), "apply", before);
            }
        });
    });
}

regroup_errc regroup_step_commit_begin(regroup_step* step) {
    return end_step(__func__, step, [](regroup::ElasticStep& opened) { opened.begin_commit(); });
}

regroup_errc regroup_step_commit_end(regroup_step* step) {
    return end_step(__func__, step, [](regroup::ElasticStep& opened) { opened.end_commit(); });
}

regroup_errc regroup_step_pauses(const regroup_step* step, int32_t* pauses) {
    return guarded(__func__, [&](const Call& call) {
        call(pauses, "pauses") = call(step, "step").value.pauses() ? 1 : 0;
    });
}

regroup_errc regroup_step_finish(regroup_step* step) {
    return end_step(__func__, step, [](regroup::ElasticStep& opened) { opened.finish(); });
}

regroup_errc regroup_step_report(regroup_step* step, const char* name, double value) {
    return guarded(__func__, [&](const Call& call) {
        call(step, "step").value.report(call.text(name, "name"), value);
    });
}

regroup_errc regroup_step_section_begin(regroup_step* step, const char* name) {
    return guarded(__func__, [&](const Call& call) {
        regroup_step& opened = call(step, "step");
        if (opened.section) {
            call.refuse("a section has begun and has not ended; sections cannot be nested");
        }
        opened.section.emplace(opened.value, call.text(name, "name"));
    });
}

regroup_errc regroup_step_section_end(regroup_step* step) {
    return guarded(__func__, [&](const Call& call) {
        regroup_step& opened = call(step, "step");
        if (!opened.section) {
            call.refuse("no section has begun");
        }
        opened.section.reset();
    });
}

regroup_errc regroup_report_fatal(regroup_fatal_kind kind, const char* text) {
    return guarded(__func__, [&](const Call& call) {
        if (kind < REGROUP_FATAL_USER_ERROR || kind > REGROUP_FATAL_BAD_NODE) {
            call.refuse("kind is " + std::to_string(kind) +
                        ", which is none of REGROUP_FATAL_USER_ERROR (0) to "
                        "REGROUP_FATAL_BAD_NODE (2)");
        }
        regroup::report_fatal(static_cast<regroup::FatalKind>(kind), text == nullptr ? "" : text);
    });
}

regroup_errc regroup_obey_only_parent(int32_t signal) {
    return guarded(__func__, [&](const Call& /*call*/) { regroup::obey_only_parent(signal); });
}
