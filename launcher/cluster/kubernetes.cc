// SPDX-License-Identifier: Apache-2.0
// The allocation of a Kubernetes Indexed Job, or of a JobSet, which is made of them.

#include "launcher/cluster/allocation.h"
#include "rendezvous/base/text.h"

namespace regroup::launcher {

namespace {

// The port of `regroup serve`. Each pod has an address of its own, so jobs need no ports of their
// own, and probes and network policies need one that is known.
constexpr std::uint16_t kPort = 29400;
constexpr std::uint32_t kPodsOfAJobMax = 100000;
constexpr std::uint32_t kJobsMax = 10000;

std::string value(const Environment& environment, const char* name) {
    return environment(name).value_or("");
}

struct Numbered {
    std::string name;
    std::uint32_t number = 0;
};

/// "llm-node" and 1 for "llm-node-1"; nothing if there is no number.
std::optional<Numbered> numbered(const std::string& text) {
    const std::size_t dash = text.rfind('-');
    const auto parsed =
        dash == text.npos ? std::nullopt : parse_number<std::uint32_t>(text.substr(dash + 1));
    return parsed ? std::optional(Numbered{text.substr(0, dash), *parsed}) : std::nullopt;
}

/// "train" for the pod "train-3"; nothing if `pod` does not end in `suffix`.
std::optional<std::string> job_of(const std::string& pod, const std::string& suffix) {
    return pod.size() > suffix.size() && pod.ends_with(suffix)
               ? std::optional(pod.substr(0, pod.size() - suffix.size()))
               : std::nullopt;
}

/// JOB-INDEX, the host name that the Job gives to its pod. Empty if the environment does not say.
std::string pod_of(const Environment& environment, const std::string& suffix) {
    std::string host = value(environment, "HOSTNAME");
    const std::string name = value(environment, "POD_NAME");  // JOB-INDEX-RANDOM
    const std::string pod = name.substr(0, std::min(name.rfind('-'), name.size()));
    const std::optional<std::string> by_host = job_of(host, suffix);
    const std::optional<std::string> by_name = job_of(pod, suffix);
    // In the host's network HOSTNAME is that of the machine, which may have a number, too. The name
    // of a pod has only the beginning of a long name of a Job.
    if (by_host && (!by_name || by_host->starts_with(*by_name))) {
        return host;
    }
    return by_name ? pod : "";
}

}  // namespace

Result<std::optional<Allocation>> find_kubernetes_allocation(const Environment& environment) {
    const std::string index = value(environment, "JOB_COMPLETION_INDEX");
    if (index.empty() || value(environment, "KUBERNETES_SERVICE_HOST").empty()) {
        return std::optional<Allocation>();
    }
    Allocation found;
    found.scheduler = "Kubernetes";
    found.nodes = 0;
    const std::optional<std::uint32_t> parsed = parse_number<std::uint32_t>(index);
    if (!parsed) {
        return Failure(Errc::invalid_argument,
                       "JOB_COMPLETION_INDEX must be a number, not '" + index +
                           "'; Kubernetes sets it in the pods of an Indexed Job");
    }
    found.index = *parsed;
    found.address = value(environment, "POD_IP");
    if (found.address.find_first_not_of("0123456789ABCDEFabcdef.:") != found.address.npos) {
        return Failure(Errc::invalid_argument, "POD_IP must be the address of the pod, not '" +
                                                   found.address +
                                                   "'; set it to status.podIP by the downward API");
    }
    found.port = kPort;

    const std::string suffix = "-" + index;
    found.node_name = pod_of(environment, suffix);
    if (found.node_name.empty()) {
        found.head_is_unknown_because =
            "HOSTNAME does not end in " + suffix +
            " (JOB_COMPLETION_INDEX), as in a pod with hostNetwork; set POD_NAME to metadata.name "
            "by the downward API";
        return std::optional(found);
    }
    std::string head = value(environment, "REGROUP_HEAD");
    if (environment("REGROUP_HEAD") && head.empty()) {
        found.head_is_unknown_because =
            "REGROUP_HEAD is empty; a JobSet sets the label jobset.sigs.k8s.io/coordinator only if "
            "it has a spec.coordinator";
        return std::optional(found);
    }
    if (head.empty()) {
        const std::string job = *job_of(found.node_name, suffix);
        head = job + "-0." + job;
    }
    if (const std::size_t colon = head.find(':'); colon != head.npos) {
        const std::optional<std::uint16_t> port =
            parse_number<std::uint16_t>(head.substr(colon + 1));
        if (!port || *port == 0 || colon == 0) {
            return Failure(Errc::invalid_argument,
                           "REGROUP_HEAD must be HOST or HOST:PORT, not '" + head + "'");
        }
        found.port = *port;
        head.resize(colon);
    }
    found.head = head;
    const std::string head_pod = head.substr(0, std::min(head.find('.'), head.size()));
    found.is_head = head_pod == found.node_name;
    const std::optional<Numbered> head_parts = numbered(head_pod);
    if (!head_parts) {
        // All Jobs that name one Service would be one job.
        return Failure(Errc::invalid_argument,
                       "REGROUP_HEAD must name a pod of the Job, as in JOB-0.SERVICE, not '" +
                           value(environment, "REGROUP_HEAD") +
                           "'; for daemons outside of the Job give --rdzv-backend=c10d, "
                           "--rdzv-endpoint and --rdzv-id");
    }
    found.job = head_parts->name;
    // The pods of one Job of a JobSet stand together.
    const std::optional<Numbered> own_job = numbered(*job_of(found.node_name, suffix));
    const std::optional<Numbered> head_job = numbered(found.job);
    if (own_job && head_job && own_job->name == head_job->name && own_job->number < kJobsMax) {
        found.index += own_job->number * kPodsOfAJobMax;
    }
    return std::optional(found);
}

}  // namespace regroup::launcher
