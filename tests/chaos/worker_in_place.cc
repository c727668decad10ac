// SPDX-License-Identifier: Apache-2.0
//
// The elastic form of the chaos job.
#include <regroup/elastic_loop.h>

#include <cstdio>
#include <span>

#include "tests/chaos/worker.h"

namespace regroup::chaos {

int train_in_place(Job& job) {
    ElasticLoop loop({.timeout = kGroupTimeout});
    loop.register_state("weights", TensorView(job.model().weights()));
    loop.register_state("momentum", TensorView(job.model().momentum()));
    if (!job.floats().empty()) {
        loop.register_state("floats", TensorView(job.floats().values()));
    }
    Context last;
    std::uint64_t steps = 0;
    const Ending ending = loop.run({
        .on_round =
            [&](const ElasticRound& round) {
                job.log(RecordKind::round, *round.context, round.step);
                std::printf("rank %u of %u in round %llu, from step %llu\n", round.context->rank,
                            round.context->world_size,
                            static_cast<unsigned long long>(round.context->round),
                            static_cast<unsigned long long>(round.step));
                std::fflush(stdout);
            },
        .on_step =
            [&](ElasticStep& step) {
                last = step.context();
                steps = step.number();
                const SampleRange samples = step.take(kBatch);
                if (!job.compute(step.context(), step.group(), step.number(), samples)) {
                    return step.finish();
                }
                step.commit([&] {
                    job.apply(step.number());
                    job.log(RecordKind::step, step.context(), step.number(), samples);
                    ++steps;
                });
            },
        .on_leave = [&](const ElasticLeave& leave) { steps = leave.step; },
    });
    const bool finished = ending == Ending::finished;
    job.end(finished ? RecordKind::finished : RecordKind::left, last, steps);
    return 0;
}

}  // namespace regroup::chaos
