// SPDX-License-Identifier: Apache-2.0
//
// The plans of `regroup run` in the environments of Kubernetes, of JobSet, and of Kubeflow.
#include <map>
#include <memory>

#include "launcher/run_flags.h"
#include "launcher/run_plan.h"
#include "launcher_variables.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"

namespace regroup::launcher {
namespace {

using testing::environment_of;
using testing::ScopedVariable;
using Variables = std::map<std::string, std::string>;
using Arguments = std::vector<std::string>;

const Variables kPod = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                        {"JOB_COMPLETION_INDEX", "2"},
                        {"HOSTNAME", "train-2"}};

Variables with(Variables variables, const Variables& more) {
    for (const auto& [name, value] : more) {
        variables.insert_or_assign(name, value);
    }
    return variables;
}

std::optional<Allocation> pod_of(const Variables& variables) {
    Result<std::optional<Allocation>> found = find_kubernetes_allocation(environment_of(variables));
    if (!found) {
        ADD_FAILURE() << found.error().detail;
        return std::nullopt;
    }
    return *found;
}

TEST(LauncherKubernetes, PodOfAnIndexedJobKnowsItsPlaceAndTheHead) {
    const auto pod = pod_of(with(kPod, {{"POD_IP", "10.1.2.3"}}));
    ASSERT_TRUE(pod.has_value());
    EXPECT_EQ(pod->job, "train");
    EXPECT_EQ(pod->index, 2U);
    EXPECT_EQ(pod->node_name, "train-2");
    EXPECT_EQ(pod->address, "10.1.2.3");
    EXPECT_EQ(pod->head, "train-0.train");
    EXPECT_EQ(pod->port, 29400);
    EXPECT_FALSE(pod->is_head);
    EXPECT_EQ(pod->nodes, 0U) << "Kubernetes does not say how many pods a Job has";
}

TEST(LauncherKubernetes, FirstPodIsTheHead) {
    const auto pod = pod_of(with(kPod, {{"JOB_COMPLETION_INDEX", "0"}, {"HOSTNAME", "a-b-0"}}));
    ASSERT_TRUE(pod.has_value());
    EXPECT_TRUE(pod->is_head);
    EXPECT_EQ(pod->head, "a-b-0.a-b");
}

TEST(LauncherKubernetes, ManifestNamesTheHeadAndItsPort) {
    const auto pod = pod_of(with(kPod, {{"REGROUP_HEAD", "train-0.gpu-jobs:29411"}}));
    ASSERT_TRUE(pod.has_value());
    EXPECT_EQ(pod->head, "train-0.gpu-jobs");
    EXPECT_EQ(pod->port, 29411);
}

TEST(LauncherKubernetes, PodsOfSeveralJobsOfAJobSetShareOneHead) {
    // Two Jobs of two pods. Each Job has a pod 0, and only one of them is the head.
    const Variables set = with(kPod, {{"REGROUP_HEAD", "llm-node-0-0.llm"}});
    const auto head =
        pod_of(with(set, {{"HOSTNAME", "llm-node-0-0"}, {"JOB_COMPLETION_INDEX", "0"}}));
    const auto other =
        pod_of(with(set, {{"HOSTNAME", "llm-node-1-0"}, {"JOB_COMPLETION_INDEX", "0"}}));
    ASSERT_TRUE(head && other);
    EXPECT_TRUE(head->is_head);
    EXPECT_FALSE(other->is_head);
    EXPECT_EQ(head->job, "llm-node-0");
    EXPECT_EQ(other->job, head->job);
    EXPECT_EQ(other->head, head->head);
    EXPECT_EQ(other->node_name, "llm-node-1-0");
    const auto last =
        pod_of(with(set, {{"HOSTNAME", "llm-node-0-12"}, {"JOB_COMPLETION_INDEX", "12"}}));
    ASSERT_TRUE(last);
    EXPECT_LT(head->index, last->index);
    EXPECT_LT(last->index, other->index) << "the pods of one Job stand together";
}

TEST(LauncherKubernetes, PodInTheNetworkOfItsHostIsKnownByTheNameOfThePod) {
    // The host's name may end in the index by chance.
    const auto pod = pod_of(with(kPod, {{"HOSTNAME", "gpu-2"}, {"POD_NAME", "train-2-x7k2p"}}));
    ASSERT_TRUE(pod.has_value());
    EXPECT_EQ(pod->node_name, "train-2");
    EXPECT_EQ(pod->head, "train-0.train");
}

TEST(LauncherKubernetes, LongNameOfAJobIsCutInTheNameOfThePodOnly) {
    const std::string job(60, 'j');
    const auto pod = pod_of(
        with(kPod, {{"HOSTNAME", job + "-2"}, {"POD_NAME", job.substr(0, 56) + "-2-x7k2p"}}));
    ASSERT_TRUE(pod.has_value());
    EXPECT_EQ(pod->job, job);
}

TEST(LauncherKubernetes, PodWithoutAKnownNameSaysWhatToSet) {
    const auto pod = pod_of(with(kPod, {{"HOSTNAME", "gpu-node"}}));
    ASSERT_TRUE(pod.has_value());
    EXPECT_EQ(pod->head, "");
    EXPECT_THAT(pod->head_is_unknown_because, AllOf(HasSubstr("POD_NAME"), HasSubstr("HOSTNAME")));
}

TEST(LauncherKubernetes, EmptyHeadOfAJobSetSaysWhatToSet) {
    const auto pod = pod_of(with(kPod, {{"REGROUP_HEAD", ""}}));
    ASSERT_TRUE(pod.has_value());
    EXPECT_EQ(pod->head, "");
    EXPECT_THAT(pod->head_is_unknown_because, HasSubstr("spec.coordinator"));
}

TEST(LauncherKubernetes, ProcessOutsideOfAnIndexedJobIsNone) {
    for (const char* missing : {"KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"}) {
        Variables variables = kPod;
        variables.erase(missing);
        EXPECT_FALSE(pod_of(variables).has_value()) << missing;
        variables[missing] = "";
        EXPECT_FALSE(pod_of(variables).has_value()) << missing;
    }
    EXPECT_FALSE(pod_of({{"HOSTNAME", "train-0"}, {"POD_IP", "10.0.0.1"}}).has_value());
}

std::string pod_error_of(const Variables& variables) {
    const auto found = find_kubernetes_allocation(environment_of(with(kPod, variables)));
    return found ? "" : found.error().detail;
}

TEST(LauncherKubernetes, WrongVariablesAreNamed) {
    for (const char* index : {"two", "-1", "1x", "99999999999"}) {
        EXPECT_THAT(pod_error_of({{"JOB_COMPLETION_INDEX", index}}),
                    HasSubstr("JOB_COMPLETION_INDEX"));
    }
    for (const char* address : {"$(POD_IP)", "train-0", "10.0.0.1 "}) {
        EXPECT_THAT(pod_error_of({{"POD_IP", address}}), HasSubstr("POD_IP")) << address;
    }
    for (const char* head : {"a:b", "a:0", ":29400", "a:70000", "a:"}) {
        EXPECT_THAT(pod_error_of({{"REGROUP_HEAD", head}}), HasSubstr("REGROUP_HEAD")) << head;
    }
}

TEST(LauncherKubernetes, JobsThatNameADaemonAsTheirHeadAreNotMadeOneJob) {
    for (const char* head : {"regroup", "regroup:29400", "regroup.ml.svc", "10.0.0.5:29400"}) {
        const std::string error = pod_error_of({{"REGROUP_HEAD", head}});
        EXPECT_THAT(error, saying(head, "--rdzv-id"));
    }
}

// ---- With the command line.

class LauncherInAPod : public ::testing::Test {
   protected:
    void set(const Variables& variables) {
        for (const auto& [name, value] : variables) {
            variables_.push_back(std::make_unique<ScopedVariable>(name, value.c_str()));
        }
    }

    static Result<RunFlags> options(const Arguments& flags, Front front = Front::run) {
        Arguments arguments = flags;
        arguments.insert(arguments.end(), {"--log-dir=/dev/null", "/bin/true"});
        Result<std::variant<RunFlags, ShowText>> parsed = parse_run_flags(front, arguments);
        if (!parsed) {
            return parsed.error();
        }
        return std::get<RunFlags>(*parsed);
    }

    static Result<RunPlan> plan(const Arguments& flags, Front front = Front::run) {
        const Result<RunFlags> parsed = options(flags, front);
        if (!parsed) {
            return parsed.error();
        }
        return make_run_plan(*parsed);
    }

   private:
    const ScopedVariable no_slurm_{"SLURM_JOB_ID", nullptr};
    const ScopedVariable insecure_{"REGROUP_INSECURE", "1"};
    std::vector<std::unique_ptr<ScopedVariable>> variables_;
};

TEST_F(LauncherInAPod, PodNeedsOnlyTheNumberOfNodes) {
    set(with(kPod, {{"POD_IP", "10.1.2.3"}}));
    const Result<RunPlan> planned = plan({"--nnodes=2:4"});
    ASSERT_TRUE(planned) << planned.error().detail;
    EXPECT_EQ(planned->daemon.endpoint.text(), "train-0.train:29400");
    EXPECT_EQ(planned->daemon.hosting, Hosting::never);
    EXPECT_EQ(planned->agent.core.job, "train");
    EXPECT_EQ(planned->agent.core.offer.name, "train-2");
    EXPECT_EQ(planned->agent.core.offer.address, "10.1.2.3");
    EXPECT_EQ(planned->agent.core.policy.nodes_min, 2U);
    EXPECT_EQ(planned->agent.core.policy.nodes_max, 4U);
}

TEST_F(LauncherInAPod, HeadServesAtOnceAndAsksNoNameServer) {
    set(with(kPod,
             {{"JOB_COMPLETION_INDEX", "0"}, {"HOSTNAME", "train-0"}, {"POD_IP", "10.1.2.1"}}));
    const Result<RunPlan> planned = plan({"--nnodes=4"});
    ASSERT_TRUE(planned) << planned.error().detail;
    EXPECT_EQ(planned->daemon.endpoint.text(), "10.1.2.1:29400");
    EXPECT_EQ(planned->daemon.hosting, Hosting::always);
    EXPECT_EQ(planned->daemon.bind_address, "") << "the other pods must reach it";
}

TEST_F(LauncherInAPod, HeadWithAnIpv6Address) {
    set(with(kPod,
             {{"JOB_COMPLETION_INDEX", "0"}, {"HOSTNAME", "train-0"}, {"POD_IP", "fd00::7"}}));
    const Result<RunPlan> planned = plan({"--nnodes=4"});
    ASSERT_TRUE(planned) << planned.error().detail;
    EXPECT_EQ(planned->daemon.endpoint.text(), "[fd00::7]:29400");
}

TEST_F(LauncherInAPod, VariableGivesTheNumberOfNodes) {
    set(with(kPod, {{"PET_NNODES", "3"}}));
    const Result<RunPlan> planned = plan({});
    ASSERT_TRUE(planned) << planned.error().detail;
    EXPECT_EQ(planned->daemon.endpoint.text(), "train-0.train:29400");
    EXPECT_EQ(planned->agent.core.policy.nodes_max, 3U);
}

TEST_F(LauncherInAPod, PodThatAsksForNoNodesIsAJobOfItsOwn) {
    // Each pod of a sweep.
    set(kPod);
    const Result<RunPlan> planned = plan({"--nproc-per-node=2"});
    ASSERT_TRUE(planned) << planned.error().detail;
    EXPECT_TRUE(planned->agent.core.offer.alone);
    EXPECT_EQ(planned->daemon.endpoint.host, "127.0.0.1");
}

TEST_F(LauncherInAPod, PodThatDoesNotKnowItsNameMayStillBeAJobOfItsOwn) {
    set(with(kPod, {{"HOSTNAME", "gpu-node"}}));
    EXPECT_TRUE(plan({}));
    EXPECT_THAT(plan({"--nnodes=4"}), fails("POD_NAME", "--rdzv-endpoint", "Kubernetes"));
    EXPECT_TRUE(plan({"--nnodes=4", "--rdzv-backend=c10d", "--rdzv-endpoint=a:1"}));
}

TEST_F(LauncherInAPod, CommandLineThatSaysWhereNodesMeetIsLeftAlone) {
    set(with(kPod, {{"POD_IP", "10.1.2.3"}}));
    const Result<RunPlan> planned =
        plan({"--nnodes=4", "--rdzv-backend=c10d", "--rdzv-endpoint=regroup:29400"});
    ASSERT_TRUE(planned) << planned.error().detail;
    EXPECT_EQ(planned->daemon.endpoint.text(), "regroup:29400");
    EXPECT_EQ(planned->agent.core.job, kUsualJob);
}

TEST_F(LauncherInAPod, LinksToAServiceCalledRegroupChangeNothing) {
    // Kubernetes puts them into all pods of a namespace that has such a Service.
    set({{"REGROUP_SERVICE_HOST", "10.96.7.7"},
         {"REGROUP_SERVICE_PORT", "29400"},
         {"REGROUP_PORT", "tcp://10.96.7.7:29400"},
         {"REGROUP_PORT_29400_TCP", "tcp://10.96.7.7:29400"},
         {"REGROUP_PORT_29400_TCP_PROTO", "tcp"},
         {"REGROUP_PORT_29400_TCP_PORT", "29400"},
         {"REGROUP_PORT_29400_TCP_ADDR", "10.96.7.7"}});
    set(kPod);
    const Result<RunPlan> planned = plan({"--nnodes=4"});
    ASSERT_TRUE(planned) << planned.error().detail;
    EXPECT_EQ(planned->daemon.endpoint.text(), "train-0.train:29400");
}

// ---- Kubeflow.

const Variables kTrainer = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                            {"JOB_COMPLETION_INDEX", "1"},
                            {"HOSTNAME", "llm-node-0-1"},
                            {"PET_NNODES", "4"},
                            {"PET_NPROC_PER_NODE", "8"},
                            {"PET_NODE_RANK", "1"},
                            {"PET_MASTER_ADDR", "llm-node-0-0.llm"},
                            {"PET_MASTER_PORT", "29500"}};

TEST_F(LauncherInAPod, TrainerOfKubeflowGivesFixedRanks) {
    set(kTrainer);
    for (const Front front : {Front::run, Front::torchrun}) {
        const Result<RunPlan> planned = plan({}, front);
        ASSERT_TRUE(planned) << planned.error().detail;
        EXPECT_EQ(planned->daemon.endpoint.text(), "llm-node-0-0.llm:29500");
        EXPECT_TRUE(planned->daemon.fixed_master);
        EXPECT_EQ(planned->agent.core.offer.slot, 1U);
        EXPECT_EQ(planned->agent.core.offer.workers, 8U);
        EXPECT_EQ(planned->agent.core.policy.nodes_min, 4U);
        EXPECT_EQ(planned->agent.core.policy.nodes_max, 4U);
        EXPECT_EQ(planned->daemon.hosting, Hosting::never);
    }
}

TEST_F(LauncherInAPod, TrainerOfKubeflowMayBeToldOfAnotherRendezvous) {
    set(with(kTrainer, {{"PET_NPROC_PER_NODE", "auto"},
                        {"PET_RDZV_BACKEND", "c10d"},
                        {"PET_RDZV_ENDPOINT", "regroup.default:29400"}}));
    const Result<RunPlan> planned = plan({});
    ASSERT_TRUE(planned) << planned.error().detail;
    EXPECT_EQ(planned->daemon.endpoint.text(), "regroup.default:29400");
    EXPECT_FALSE(planned->daemon.fixed_master);
    EXPECT_EQ(planned->agent.core.offer.slot, 1U) << "the place that the pod asks for";
}

TEST_F(LauncherInAPod, OperatorOfPyTorchJobsWithFixedNodes) {
    set({{"PYTHONUNBUFFERED", "1"},
         {"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
         {"HOSTNAME", "llm-worker-0"},
         {"MASTER_ADDR", "llm-master-0"},
         {"MASTER_PORT", "23456"},
         {"PET_MASTER_ADDR", "llm-master-0"},
         {"PET_MASTER_PORT", "23456"},
         {"WORLD_SIZE", "3"},
         {"RANK", "1"},
         {"PET_NODE_RANK", "1"},
         {"PET_NNODES", "3"}});
    const Result<RunPlan> planned = plan({});
    ASSERT_TRUE(planned) << planned.error().detail;
    EXPECT_EQ(planned->daemon.endpoint.text(), "llm-master-0:23456");
    EXPECT_EQ(planned->agent.core.offer.slot, 1U);
    EXPECT_EQ(planned->agent.core.policy.nodes_max, 3U);
}

TEST_F(LauncherInAPod, OperatorOfPyTorchJobsWithAnElasticPolicy) {
    set({{"PYTHONUNBUFFERED", "1"},
         {"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
         {"HOSTNAME", "llm-worker-1"},
         {"PET_RDZV_ENDPOINT", "llm-worker-0:23456"},
         {"PET_RDZV_BACKEND", "c10d"},
         {"PET_NNODES", "1:3"},
         {"PET_MAX_RESTARTS", "100"},
         {"PET_NPROC_PER_NODE", "2"},
         {"PET_RDZV_ID", "llm"},
         {"PET_RDZV_CONF", "last_call_timeout=10,timeout=900"},
         {"PET_STANDALONE", ""}});
    for (const Front front : {Front::run, Front::torchrun}) {
        const Result<RunFlags> parsed = options({}, front);
        ASSERT_TRUE(parsed) << parsed.error().detail;
        EXPECT_EQ(parsed->agent.core.policy.last_call, std::chrono::seconds(10));
        EXPECT_EQ(parsed->agent.core.policy.restarts_max, 100U);
        const Result<RunPlan> planned = make_run_plan(*parsed);
        ASSERT_TRUE(planned) << planned.error().detail;
        EXPECT_EQ(planned->daemon.endpoint.text(), "llm-worker-0:23456");
        EXPECT_EQ(planned->agent.core.job, "llm");
        EXPECT_EQ(planned->agent.core.policy.nodes_min, 1U);
        EXPECT_EQ(planned->agent.core.policy.nodes_max, 3U);
        EXPECT_FALSE(parsed->rendezvous.standalone) << "an empty PET_STANDALONE asks for nothing";
    }
}

}  // namespace
}  // namespace regroup::launcher
