// SPDX-License-Identifier: Apache-2.0
#include "tests/tidy/layers.h"

#include <algorithm>
#include <map>

#include "tests/tidy/source_text.h"

namespace regroup::tidy {
namespace {

const std::map<std::string, std::string>& libraries() {
    static const std::map<std::string, std::string> table = {
        {"C", "<((sys|net|netinet|arpa|linux)/)?[a-z_]+\\.h>"},
        {"Asio", "<boost/asio.*>"},
        {"Boost", "<boost/.*>"},
        {"JSON", "<nlohmann/.*>"},
        {"SQLite", "<sqlite3.h>"},
        {"libsodium", "<sodium.h>"},
        {"OpenSSL", "<openssl/.*>"},
        {"cuBLAS", "<cublas_v2.h>"},
        {"Eigen", "<Eigen/.*>"},
        {"libtorch", "<torch/.*>"},
        {"public headers", "<regroup/.*>"},
        {"headers of C", "<std(def|int)\\.h>|<regroup/(c_api|version)\\.h>"},
        {"own folder", "\"[a-z_]+\\.h\""},
        {"unordered_map", "<unordered_map>"},
        {"anything", ".*"},
    };
    return table;
}

bool is_in(const std::string& path, const std::string& place) {
    return path.starts_with(place + "/") || path.starts_with(place + ".");
}

bool is_in(const std::string& path, const std::vector<std::string>& places) {
    return std::ranges::any_of(places,
                               [&](const std::string& place) { return is_in(path, place); });
}

std::string list(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) {
        const std::string shown = libraries().contains(name) ? name : "`" + name + "`";
        text += (text.empty() ? "" : ", ") + shown;
    }
    return text;
}

Layer sdk(const std::string& folder, const std::string& content, std::vector<std::string> uses) {
    for (std::string& use : uses) {
        const bool is_sibling = use.find('/') == use.npos && !libraries().contains(use);
        use = is_sibling ? "worker_sdk/src/" + use : use;
    }
    uses.insert(uses.end(), {"public headers", "C"});
    return Layer{{"worker_sdk/src/" + folder}, content, uses};
}

std::vector<Layer> layers_of_rendezvous() {
    return {
        {{"rendezvous/base"},
         "results, clocks, invariants, random numbers, words and numbers in texts",
         {}},
        {{"rendezvous/cgroup"}, "what the control groups of this process allow", {}},
        {{"rendezvous/files"},
         "files in folders that others can write to",
         {"C"},
         false,
         "know what they are for"},
        {{"rendezvous/security/key", "rendezvous/security/base64"},
         "secret keys; Base64",
         {"libsodium"}},
        {{"rendezvous/security"},
         "who a peer is: tokens, certificates, TLS, the user at the other end",
         {"rendezvous/files", "rendezvous/net", "C", "Asio", "OpenSSL"},
         false,
         "know of a job"},
        {{"rendezvous/core"},
         "a job's membership as a state machine; the messages as values",
         {},
         true},
        {{"rendezvous/text"},
         "sentences for people, made of the core's values",
         {"rendezvous/core"},
         true,
         "decide"},
        {{"rendezvous/json"},
         "JSON to text and back, and its fields",
         {"JSON"},
         true,
         "know of a job"},
        {{"rendezvous/snapshot"},
         "saved states of a training: the format in memory and in files, and which of them is the "
         "newest whole one",
         {"rendezvous/files", "rendezvous/json", "C", "JSON"},
         false,
         "know of a job or a daemon"},
        {{"rendezvous/protocol"},
         "messages to frames and back",
         {"rendezvous/core/messages", "rendezvous/text", "rendezvous/json", "JSON"},
         false,
         "decide"},
        {{"rendezvous/store/store_core", "rendezvous/store/store_dispatch",
          "rendezvous/store/store_limits", "rendezvous/store/store_wire", "rendezvous/store/waits"},
         "the key-value store as a state machine; the wire format of PyTorch's TCPStore",
         {"unordered_map"},
         true,
         "know of a job or a round"},
        {{"rendezvous/store"},
         "the store's client, and the store for clients that are connected",
         {"rendezvous/files/unique_fd", "C"},
         false,
         "know of a job or a round"},
        {{"rendezvous/store_server"},
         "the store's server with the event loop of Asio",
         {"rendezvous/store", "rendezvous/net", "C", "Asio"},
         false,
         "know of a job or a round"},
        {{"rendezvous/store_relay/mux_frame"},
         "the store connections of many workers on one connection, as frames",
         {"rendezvous/store/store_wire"},
         true,
         "know of a job or a round"},
        {{"rendezvous/store_relay"},
         "the store for the workers of other nodes, over TLS",
         {"rendezvous/store", "rendezvous/store_server", "rendezvous/net", "rendezvous/security",
          "C", "Asio"},
         false,
         "know of a job or a round"},
        {{"rendezvous/net"}, "sockets, addresses, routes", {"C", "Asio"}, false, "decide"},
        {{"rendezvous/client"},
         "connections to the daemon: the control protocol of an agent, HTTP of those who look",
         {"rendezvous/core/messages", "rendezvous/protocol", "rendezvous/net",
          "rendezvous/security", "C", "Boost"},
         false,
         "decide"},
        {{"rendezvous/journal"},
         "every event of a job, in SQLite or etcd, and its replay",
         {"rendezvous/core", "rendezvous/text", "rendezvous/protocol", "rendezvous/client",
          "rendezvous/files", "rendezvous/net", "rendezvous/security", "C", "Boost", "OpenSSL",
          "rendezvous/json", "JSON", "SQLite"},
         false,
         "decide"},
        {{"rendezvous/view"},
         "what people and their tools see of a job: JSON, event lines, metrics, traces",
         {"rendezvous/core", "rendezvous/protocol", "rendezvous/text", "rendezvous/json", "JSON"},
         true,
         "decide"},
        {{"rendezvous/http"},
         "HTTP: which requests may pass, and the files of the page",
         {"rendezvous/security", "C", "Boost"},
         false,
         "know of a job"},
        {{"rendezvous/server"}, "the daemon", {"rendezvous", "C", "Asio", "JSON"}, false, "decide"},
        {{"rendezvous/worker_link/packet"},
         "messages on a socket",
         {"rendezvous/worker_link", "C"}},
        {{"rendezvous/worker_link/collectives_writer"},
         "writes which collectives a worker is in",
         {"rendezvous/worker_link", "C"}},
        {{"rendezvous/worker_link"},
         "the page and the messages that an agent and its workers share",
         {}},
    };
}

std::vector<Layer> layers_of_nodes() {
    return {
        {{"agent/core"}, "one node as a state machine", {"rendezvous/core"}, true},
        {{"agent/text"},
         "sentences for people, made of values, and their times",
         {"rendezvous/core", "rendezvous/text", "rendezvous/client/endpoint", "agent/core",
          "agent/process/console", "agent/watch/progress_watch"},
         true,
         "decide"},
        {{"agent/explain"},
         "what saved stacks and flight records say about a hang",
         {"rendezvous/json", "JSON"},
         true,
         "read a file"},
        {{"agent/process"},
         "starts, watches, ends and reads processes",
         {"rendezvous/cgroup", "rendezvous/files", "rendezvous/net", "C", "Boost"},
         false,
         "know of a round"},
        {{"agent/placement"},
         "which CPUs and NUMA nodes each worker gets",
         {"agent/process/affinity", "C"},
         false,
         "start or bind anything"},
        {{"agent/health/facts", "agent/health/findings", "agent/health/gpu_findings"},
         "what is wrong with a node",
         {},
         true,
         "know of a round"},
        {{"agent/health"},
         "looks at GPUs, limits, space and links",
         {"agent/process", "rendezvous/cgroup", "rendezvous/core/messages", "rendezvous/files",
          "rendezvous/net", "C", "Asio", "rendezvous/json", "JSON"},
         false,
         "know of a round"},
        {{"agent/link", "agent/watch"},
         "the workers' links; hangs and stacks",
         {"agent", "rendezvous", "C", "Asio", "JSON"},
         false,
         "decide about rounds"},
        {{"agent"},
         "`Agent`, which gives the agent core hands",
         {"rendezvous", "C", "Asio", "JSON"},
         false,
         "know of the command line"},
        {{"launcher/top/job_rows", "launcher/top/lists", "launcher/top/plain_lines",
          "launcher/top/status", "launcher/top/status_table", "launcher/top/table",
          "launcher/top/text_width", "launcher/top/view"},
         "what `regroup top` shows, and what its keys do",
         {"launcher/json_fields", "rendezvous/json", "JSON"},
         true,
         "know of a terminal"},
        {{"launcher/cluster"},
         "what a scheduler's variables, a host list or a host file say",
         {"rendezvous/base"},
         true,
         "ask a scheduler or a name server"},
        {{"launcher"},
         "the command line: flags to a plan, a plan to objects, a verdict to words",
         {"agent", "rendezvous", "C", "Asio", "JSON"}},
    };
}

std::vector<Layer> layers_of_worker_sdk() {
    return {
        {{"worker_sdk/include/regroup/c_api", "worker_sdk/include/regroup/c_api_elastic",
          "worker_sdk/include/regroup/c_api_snapshot", "worker_sdk/include/regroup/c_api_training"},
         "the public headers for C",
         {"headers of C"}},
        {{"worker_sdk/include/regroup/torch"},
         "the bridge to libtorch",
         {"public headers", "libtorch"}},
        {{"worker_sdk/include"}, "the public headers", {"public headers"}},
        {{"worker_sdk/mpi"}, "MPI's names", {"public headers", "C"}},
        {{"worker_sdk/nccl_profiler"},
         "the profiler plugin for NCCL",
         {"rendezvous/worker_link", "C"},
         false,
         "need CUDA, NCCL or a C++ library at run time"},
        sdk("base", "threads, rounds, views, arrays, limits of memory", {"rendezvous/cgroup"}),
        sdk("net", "sockets and polling; how ranks greet each other",
            {"rendezvous/files/unique_fd", "rendezvous/security/key", "libsodium"}),
        sdk("store", "the job's key-value store",
            {"base", "net", "rendezvous/files/unique_fd", "rendezvous/store",
             "rendezvous/security/key"}),
        sdk("group", "what all process groups share",
            {"base", "rendezvous/worker_link/collectives_writer"}),
        sdk("link", "the line to the agent; what the agent sees of this worker",
            {"base", "net", "group", "rendezvous/worker_link"}),
        sdk("cpu", "the CPU back end", {"base", "net", "store", "group"}),
        sdk("cuda", "GPUs", {"base"}),
        sdk("nccl", "the NCCL back end", {"base", "net", "store", "group", "cuda"}),
        sdk("context", "the way into a round: `Context`, and the choice of a back end",
            {"base", "store", "group", "link", "cpu", "nccl", "rendezvous/security/secret_file"}),
        sdk("optim", "optimizers, loss scaling, schedules", {"base", "cuda"}),
        sdk("ddp", "DistributedDataParallel, SyncBatchNorm", {"base", "cuda"}),
        sdk("data", "which rank handles which data", {}),
        sdk("checkpoint", "checkpoints in files", {"base", "link", "rendezvous/files"}),
        sdk("snapshot", "snapshots of the training's state",
            {"base", "net", "store", "link", "context", "ddp", "rendezvous/snapshot",
             "rendezvous/worker_link", "rendezvous/files/unique_fd"}),
        sdk("stop", "the agreed stop of plain loops", {"base", "net", "store", "link"}),
        sdk("spawn", "worker processes that a program starts itself",
            {"base", "store", "link", "rendezvous/files/unique_fd"}),
        sdk("elastic", "the loop that survives",
            {"base", "group", "link", "ddp", "snapshot", "rendezvous/worker_link/page"}),
        sdk("c_api", "the interface for C", {"snapshot", "rendezvous/worker_link/worker_place"}),
    };
}

std::vector<Layer> layers_of_programs() {
    return {
        {{"examples/torch_ddp"},
         "a program that uses libtorch",
         {"public headers", "libtorch", "own folder"}},
        {{"examples"},
         "programs that use the SDK",
         {"public headers", "own folder", "C", "cuBLAS", "Eigen"},
         false,
         "reach behind the public headers"},
        {{"tests"}, "", {"anything"}},
    };
}

}  // namespace

const std::vector<Layer>& layers() {
    static const std::vector<Layer> table = [] {
        std::vector<Layer> all;
        for (const auto& part : {layers_of_rendezvous(), layers_of_nodes(), layers_of_worker_sdk(),
                                 layers_of_programs()}) {
            all.insert(all.end(), part.begin(), part.end());
        }
        return all;
    }();
    return table;
}

const Layer* layer_of(const std::string& path) {
    const auto found = std::ranges::find_if(
        layers(), [&](const Layer& layer) { return is_in(path, layer.places); });
    return found == layers().end() ? nullptr : &*found;
}

bool may_include(const Layer& layer, const std::string& include) {
    const std::string standard = "<[a-z_0-9]+>";
    const std::string pure =
        "<(?!thread|mutex|shared_mutex|condition_variable|future|random|unordered_|ctime|"
        "iostream|fstream|filesystem)[a-z_0-9]+>";
    const bool for_c = std::ranges::count(layer.uses, "headers of C") > 0;
    if (!for_c &&
        (matches(include, layer.pure ? pure : standard) || include == "<regroup/errc.h>")) {
        return true;
    }
    const bool is_public = layer.places.front().starts_with("worker_sdk/include");
    const std::string file = include.substr(1, include.size() - 2);
    if (include.starts_with('"') && !is_public &&
        (is_in(file, layer.places) || is_in(file, "rendezvous/base"))) {
        return true;
    }
    return std::ranges::any_of(layer.uses, [&](const std::string& use) {
        const auto library = libraries().find(use);
        return library != libraries().end() ? matches(include, library->second)
                                            : include.starts_with('"') && is_in(file, use);
    });
}

std::string layer_table() {
    std::string text =
        "| place | content | may also include | never |\n"
        "|---|---|---|---|\n";
    for (const Layer& layer : layers()) {
        if (!layer.content.empty()) {
            text += "| " + list(layer.places) + " | " + layer.content +
                    (layer.pure ? "; pure" : "") + " | " + list(layer.uses) + " | " + layer.never +
                    " |\n";
        }
    }
    return text;
}

}  // namespace regroup::tidy
