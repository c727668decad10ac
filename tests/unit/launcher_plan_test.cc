// SPDX-License-Identifier: Apache-2.0

#include "launcher/host.h"
#include "launcher/run_plan.h"
#include "tests/support/matchers.h"
#include "tests/unit/launcher_variables.h"

namespace regroup::launcher {
namespace {

// An address that is nobody's: reserved for documents.
constexpr const char* kElsewhere = "192.0.2.77";

RunPlan planned(const RunFlags& options) {
    Result<RunPlan> plan = make_run_plan(options);
    if (!plan) {
        ADD_FAILURE() << plan.error().detail;
        return {};
    }
    return std::move(*plan);
}

std::string error_of(const RunFlags& options) {
    const Result<RunPlan> plan = make_run_plan(options);
    return plan ? "no error" : plan.error().detail;
}

RunFlags program() {
    RunFlags options;
    options.program.program = "/bin/true";
    options.log_dir = "/dev/null";
    options.trust.insecure = true;  // The endpoints of most tests are on other hosts.
    return options;
}

// ---- Which rendezvous: torchrun's rules, in their order.

TEST(LauncherPlan, NodeWithoutFlagsIsAlone) {
    const RunPlan plan = planned(program());
    EXPECT_EQ(plan.daemon.endpoint.text(), "127.0.0.1:0");
    EXPECT_EQ(plan.daemon.bind_address, "127.0.0.1");
    EXPECT_EQ(plan.daemon.hosting, Hosting::always);
    EXPECT_FALSE(plan.daemon.fixed_master);
    EXPECT_EQ(plan.agent.core.offer.slot, std::nullopt);
    EXPECT_THAT(plan.agent.core.offer.other_addresses, IsEmpty());
    EXPECT_THAT(plan.notes, IsEmpty());
}

TEST(LauncherPlan, JobsOfOneMachineHaveDifferentIds) {
    const std::string first = planned(program()).agent.core.job;
    EXPECT_THAT(first, MatchesRegex("[0-9]+-[0-9]+-[0-9a-f]+"));
    EXPECT_NE(first, planned(program()).agent.core.job);
    RunFlags named = program();
    named.agent.core.job = "mine";
    EXPECT_EQ(planned(named).agent.core.job, "mine");
}

TEST(LauncherPlan, EnvironmentLimitsTheWaitForGpuMemory) {
    const auto limit_of = [](const char* text) {
        const testing::ScopedVariable variable("REGROUP_GPU_MEMORY_TIMEOUT", text);
        return planned(program()).agent.group.gpus.limit;
    };
    EXPECT_EQ(limit_of(nullptr), std::chrono::seconds(10));
    EXPECT_EQ(limit_of("0"), Duration::zero());
    EXPECT_EQ(limit_of("90"), std::chrono::seconds(90));
    const testing::ScopedVariable variable("REGROUP_GPU_MEMORY_TIMEOUT", "1.5");
    EXPECT_THAT(error_of(program()), StartsWith("REGROUP_GPU_MEMORY_TIMEOUT='1.5'"));
}

TEST(LauncherPlan, StandaloneOverridesBackendAndEndpointWithANotice) {
    RunFlags options = program();
    options.rendezvous.standalone = true;
    options.rendezvous.backend = "c10d";
    options.rendezvous.endpoint = std::string(kElsewhere) + ":1234";
    const RunPlan plan = planned(options);
    EXPECT_EQ(plan.daemon.endpoint.text(), "127.0.0.1:0");
    EXPECT_EQ(plan.daemon.hosting, Hosting::always);
    EXPECT_TRUE(plan.agent.core.offer.alone);
    ASSERT_THAT(plan.notes, SizeIs(1));
    EXPECT_THAT(plan.notes[0], HasSubstr(kElsewhere));
    options.rendezvous.standalone = false;
    EXPECT_FALSE(planned(options).agent.core.offer.alone);
}

TEST(LauncherPlan, StandaloneIsOneNode) {
    RunFlags options = program();
    options.rendezvous.standalone = true;
    options.agent.core.policy.nodes_min = options.agent.core.policy.nodes_max = 2;
    EXPECT_THAT(error_of(options), AllOf(HasSubstr("--standalone"), HasSubstr("--nnodes")));
}

TEST(LauncherPlan, MasterPortMakesASingleNodeStatic) {
    RunFlags options = program();
    options.rendezvous.master_port = 29501;
    const RunPlan plan = planned(options);
    EXPECT_TRUE(plan.daemon.fixed_master);
    EXPECT_EQ(plan.daemon.endpoint.text(), "127.0.0.1:29501");
    EXPECT_EQ(plan.daemon.hosting, Hosting::always);
    EXPECT_EQ(plan.agent.core.offer.address, "127.0.0.1");
    EXPECT_TRUE(plan.agent.core.offer.address_is_explicit);
    EXPECT_EQ(plan.agent.core.job, "none");
}

TEST(LauncherPlan, StaticNodesMeetAtTheMaster) {
    RunFlags options = program();
    options.agent.core.policy.nodes_min = options.agent.core.policy.nodes_max = 2;
    options.rendezvous.master_addr = "host0";
    RunPlan plan = planned(options);
    EXPECT_EQ(plan.daemon.endpoint.text(), "host0:29500");
    EXPECT_EQ(plan.agent.core.offer.slot, 0U);
    EXPECT_EQ(plan.daemon.hosting, Hosting::always);
    EXPECT_EQ(plan.agent.core.offer.address, "host0");
    EXPECT_EQ(plan.daemon.bind_address, "");

    options.agent.core.offer.slot = 1;
    plan = planned(options);
    EXPECT_EQ(plan.agent.core.offer.slot, 1U);
    EXPECT_EQ(plan.daemon.hosting, Hosting::never);
    EXPECT_TRUE(plan.daemon.fixed_master);
    EXPECT_EQ(plan.agent.core.offer.address, "");
    EXPECT_FALSE(plan.agent.core.offer.address_is_explicit);
}

TEST(LauncherPlan, StaticEndpointIsTheMaster) {
    RunFlags options = program();
    options.agent.core.policy.nodes_min = options.agent.core.policy.nodes_max = 2;
    options.rendezvous.endpoint = "host0:1234";
    const RunPlan plan = planned(options);
    EXPECT_TRUE(plan.daemon.fixed_master);
    EXPECT_EQ(plan.daemon.endpoint.text(), "host0:1234");
    EXPECT_THAT(plan.notes, IsEmpty());
}

TEST(LauncherPlan, EndpointOverridesMasterAddressWithANotice) {
    for (const char* backend : {"static", "c10d"}) {
        RunFlags options = program();
        options.rendezvous.backend = backend;
        options.agent.core.policy.nodes_min = options.agent.core.policy.nodes_max = 2;
        options.rendezvous.endpoint = std::string(kElsewhere) + ":1234";
        options.rendezvous.master_addr = "host9";
        options.rendezvous.master_port = 1;
        const RunPlan plan = planned(options);
        EXPECT_EQ(plan.daemon.endpoint.text(), std::string(kElsewhere) + ":1234");
        EXPECT_THAT(plan.notes,
                    ElementsAre(HasSubstr("--master-addr and --master-port are not used")));
    }
}

TEST(LauncherPlan, NodeRankOutsideTheJobIsRefusedAtOnce) {
    RunFlags options = program();
    options.agent.core.policy.nodes_min = options.agent.core.policy.nodes_max = 2;
    options.rendezvous.master_addr = "host0";
    options.agent.core.offer.slot = 2;
    EXPECT_THAT(error_of(options), HasSubstr("--node-rank 2 is outside --nnodes"));
    options.agent.core.offer.slot = 1;
    EXPECT_EQ(error_of(options), "no error");
}

TEST(LauncherPlan, DynamicEndpointOfThisHostIsServedHereIfItIsFree) {
    RunFlags options = program();
    options.rendezvous.backend = "c10d";
    for (const std::string& host : {std::string("localhost"), std::string("127.0.0.1"),
                                    std::string("[::1]"), short_host_name()}) {
        options.rendezvous.endpoint = host + ":1234";
        const RunPlan plan = planned(options);
        EXPECT_EQ(plan.daemon.hosting, Hosting::if_port_free) << host;
        EXPECT_FALSE(plan.daemon.fixed_master);
        EXPECT_EQ(plan.agent.core.offer.slot, std::nullopt);
        EXPECT_EQ(plan.agent.core.job, "none");
    }
}

TEST(LauncherPlan, DynamicEndpointElsewhereIsNotServedHere) {
    RunFlags options = program();
    options.rendezvous.backend = "c10d";
    options.rendezvous.endpoint = kElsewhere;
    const RunPlan plan = planned(options);
    EXPECT_EQ(plan.daemon.hosting, Hosting::never);
    EXPECT_EQ(plan.daemon.endpoint.text(), std::string(kElsewhere) + ":29400");
    options.rendezvous.endpoint = std::string(kElsewhere) + ":0";
    EXPECT_THAT(error_of(options), HasSubstr("port 0"));
}

TEST(LauncherPlan, DynamicWithoutEndpointIsLocalhost) {
    RunFlags options = program();
    options.rendezvous.backend = "c10d";
    const RunPlan plan = planned(options);
    EXPECT_EQ(plan.daemon.endpoint.text(), "localhost:29400");
    EXPECT_EQ(plan.daemon.hosting, Hosting::if_port_free);
}

TEST(LauncherPlan, EtcdBackendGivesANotice) {
    RunFlags options = program();
    options.rendezvous.endpoint = kElsewhere;
    for (const char* backend : {"etcd", "etcd-v2"}) {
        options.rendezvous.backend = backend;
        EXPECT_THAT(planned(options).notes, ElementsAre(HasSubstr("no etcd is asked")));
    }
    options.rendezvous.backend = "regroup";
    EXPECT_THAT(planned(options).notes, IsEmpty());
}

// ---- What the node brings.

TEST(LauncherPlan, PolicyAndOfferFollowTheOptions) {
    RunFlags options = program();
    options.rendezvous.backend = "c10d";
    options.agent.core.policy.nodes_min = 2;
    options.agent.core.policy.nodes_max = 4;
    options.agent.core.policy.restarts_max = 3;
    options.workers = "8";
    options.agent.core.offer.role = "trainer";
    options.rendezvous.endpoint = "10.0.0.1";
    options.agent.core.offer.address = "10.0.0.7";
    options.agent.core.policy.last_call = std::chrono::seconds(1);
    options.agent.core.policy.heartbeat_timeout = std::chrono::seconds(2);
    options.agent.core.policy.shutdown_timeout = std::chrono::seconds(4);
    options.agent.core.policy.grow_after = std::chrono::seconds(5);
    options.agent.core.join_timeout = std::chrono::seconds(6);
    const agent::AgentConfig agent = planned(options).agent.core;
    EXPECT_EQ(agent.policy.nodes_min, 2U);
    EXPECT_EQ(agent.policy.nodes_max, 4U);
    EXPECT_EQ(agent.policy.restarts_max, 3U);
    EXPECT_EQ(agent.policy.last_call, std::chrono::seconds(1));
    EXPECT_EQ(agent.policy.heartbeat_timeout, std::chrono::seconds(2));
    EXPECT_EQ(agent.policy.shutdown_timeout, std::chrono::seconds(4));
    EXPECT_EQ(agent.policy.grow_after, std::chrono::seconds(5));
    EXPECT_EQ(agent.join_timeout, std::chrono::seconds(6));
    EXPECT_EQ(agent.policy.program, "true");
    EXPECT_EQ(agent.offer.workers, 8U);
    EXPECT_EQ(agent.offer.role, "trainer");
    EXPECT_EQ(agent.offer.name, "10.0.0.7");
    EXPECT_EQ(agent.offer.address, "10.0.0.7");
    EXPECT_TRUE(agent.offer.address_is_explicit);
    EXPECT_THAT(agent.offer.other_addresses, IsEmpty());
    EXPECT_THAT(agent.node, StartsWith("10.0.0.7-"));
}

TEST(LauncherPlan, NodeIsNamedAfterItsHostAndOffersItsAddresses) {
    RunFlags options = program();
    options.rendezvous.backend = "c10d";
    options.rendezvous.endpoint = "10.0.0.1";
    options.agent.core.policy.nodes_max = 2;
    const agent::AgentConfig agent = planned(options).agent.core;
    EXPECT_EQ(agent.offer.name, short_host_name());
    EXPECT_EQ(agent.offer.address, "");
    EXPECT_LE(agent.offer.other_addresses.size(), 4U);
    EXPECT_EQ(agent.offer.other_addresses.empty(), own_addresses().empty());
    EXPECT_NE(agent.node, planned(options).agent.core.node);
}

TEST(LauncherPlan, HeartbeatTimeoutThatIsTooShortIsRefused) {
    RunFlags options = program();
    options.agent.core.policy.heartbeat_timeout = std::chrono::milliseconds(50);
    EXPECT_THAT(error_of(options), HasSubstr("heartbeat timeout"));
}

TEST(LauncherPlan, WorkersPerCpuAreCounted) {
    RunFlags options = program();
    options.workers = "cpu";
    EXPECT_EQ(planned(options).agent.core.offer.workers, count_cpus());
}

// ---- Trust.

RunFlags without_credentials(const std::string& endpoint) {
    RunFlags options = program();
    options.trust.insecure = false;
    options.trust.token_file.clear();
    options.rendezvous.backend = "c10d";
    options.rendezvous.endpoint = endpoint;
    options.agent.core.policy.nodes_min = options.agent.core.policy.nodes_max = 2;
    return options;
}

class LauncherPlanTrust : public ::testing::Test {
   protected:
    void SetUp() override {
        ::setenv("XDG_STATE_HOME", ::testing::TempDir().c_str(), 1);  // Without a token.
    }
};

TEST_F(LauncherPlanTrust, OtherHostsTakeCredentials) {
    EXPECT_THAT(error_of(without_credentials(kElsewhere)),
                saying("--insecure", "regroup token --generate", "--tls-cert"));
    RunFlags host = without_credentials(short_host_name());
    EXPECT_THAT(error_of(host), HasSubstr("--insecure"));
    host.agent.core.policy.nodes_min = host.agent.core.policy.nodes_max = 1;
    EXPECT_EQ(planned(host).daemon.hosting, Hosting::if_port_free);
}

// ---- A scheduler's name of the first node.

RunFlags in_a_step(bool is_head, const std::string& head) {
    RunFlags options = program();
    options.rendezvous.allocation = Allocation();
    options.rendezvous.allocation->is_head = is_head;
    options.rendezvous.allocation->head = head;
    options.rendezvous.allocation->head_advice = "give its address";
    options.rendezvous.is_host = is_head;
    options.agent.core.policy.nodes_max = 2;
    options.rendezvous.backend = "regroup";
    options.rendezvous.endpoint = head + ":29400";
    return options;
}

TEST(LauncherPlan, HeadWhoseNameLeadsElsewhereReachesItselfByAnAddressOfItsOwn) {
    const RunPlan plan = planned(in_a_step(true, kElsewhere));
    const std::vector<std::string> own = own_addresses();
    EXPECT_EQ(plan.daemon.endpoint.host, own.empty() ? "127.0.0.1" : own.front());
    EXPECT_EQ(plan.daemon.endpoint.port, 29400);
    EXPECT_THAT(plan.notes, Contains(AllOf(HasSubstr("192.0.2.77 does not lead to this host"),
                                           HasSubstr("give its address"))));
    EXPECT_EQ(plan.daemon.endpoint_hint, "");
}

TEST(LauncherPlan, HeadWhoseNameIsKnownUsesIt) {
    const RunPlan plan = planned(in_a_step(true, "127.0.0.1"));
    EXPECT_EQ(plan.daemon.endpoint.host, "127.0.0.1");
    EXPECT_THAT(plan.notes, IsEmpty());
}

TEST(LauncherPlan, OtherNodesSayAtTheEndOfTheirWaitWhatToGive) {
    const RunPlan plan = planned(in_a_step(false, kElsewhere));
    EXPECT_EQ(plan.daemon.endpoint.host, kElsewhere);
    EXPECT_EQ(plan.daemon.endpoint_hint, "; give its address");
    EXPECT_THAT(plan.notes, IsEmpty());
}

TEST_F(LauncherPlanTrust, JobOnOneHostNeedsNoneAndListensOnLoopback) {
    const RunPlan plan = planned(without_credentials("127.0.0.1:29400"));
    EXPECT_EQ(plan.daemon.bind_address, "127.0.0.1");
    EXPECT_EQ(plan.agent.store.mode, agent::StoreMode::local);
    EXPECT_FALSE(plan.agent.daemon.credentials.can_prove());
}

TEST_F(LauncherPlanTrust, CredentialsDecideHowTheStoreIsReached) {
    RunFlags options = without_credentials(kElsewhere);
    options.trust.insecure = true;
    EXPECT_EQ(planned(options).agent.store.mode, agent::StoreMode::direct);
    options.trust.insecure = false;
    options.trust.certificates = {"cert.pem", "key.pem", "ca.pem"};
    EXPECT_EQ(planned(options).agent.store.mode, agent::StoreMode::relay);
}

TEST_F(LauncherPlanTrust, EachNodeHasSecretsOfItsOwn) {
    const RunPlan one = planned(program());
    const RunPlan two = planned(program());
    EXPECT_EQ(one.agent.core.offer.secret.size(), 22U);
    EXPECT_EQ(one.agent.core.offer.store_key.size(), 22U);
    EXPECT_NE(one.agent.core.offer.secret, two.agent.core.offer.secret);
    EXPECT_NE(one.agent.core.offer.store_key, two.agent.core.offer.store_key);
}

}  // namespace
}  // namespace regroup::launcher
