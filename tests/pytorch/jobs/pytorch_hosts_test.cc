// SPDX-License-Identifier: Apache-2.0
//
// PyTorch scripts on two hosts that share a token.
#include "tests/e2e/cable.h"
#include "tests/pytorch/jobs/pytorch.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class PyTorchHosts : public PyTorchOfEach {
   protected:
    void SetUp() override {
        if (const auto missing = cable_.lay()) {
            GTEST_SKIP() << *missing;
        }
        Program token(
            {{regroup_program(), "token", "--generate", "--token-file=" + token_file()}, {}, ""});
        ASSERT_EQ(token.wait(), 0) << token.output();
    }

    [[nodiscard]] std::string token_file() const { return folder() + "/token"; }

    [[nodiscard]] ProgramSpec on_host(std::size_t index, const std::string& name) const {
        ProgramSpec spec = job(GetParam(),
                               {"--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d",
                                "--rdzv-endpoint=10.77.0.1:29400", "--token-file=" + token_file()},
                               name);
        spec.command = cable_.inside(index, index == 0 ? "node-a" : "node-b", spec.command);
        // The launcher chooses the interface between the hosts.
        std::erase_if(spec.environment,
                      [](const std::string& entry) { return entry.starts_with("GLOO_"); });
        return spec;
    }

    Cable cable_;
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PyTorchHosts);
INSTANTIATE_TEST_SUITE_P(With, PyTorchHosts, ::testing::ValuesIn(interpreters()), name_of);

TEST_P(PyTorchHosts, CollectivesMeetThroughTheAgents) {
    Program first(on_host(0, "collectives.py"));
    Program second(on_host(1, "collectives.py"));
    ASSERT_EQ(first.wait(kPyTorchLimit), 0) << first.output() << second.output();
    ASSERT_EQ(second.wait(kPyTorchLimit), 0) << second.output();
    for (const Program* host : {&first, &second}) {
        const auto lines = worker_lines(*host);
        ASSERT_THAT(lines, SizeIs(2)) << host->output();
        for (const auto& [rank, all] : lines) {
            EXPECT_THAT(
                all, Contains("rank " + std::to_string(rank) + ": all_reduce sum [10.0, 100.0]"));
        }
    }
}

}  // namespace
}  // namespace regroup::testing
