// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/story.h"

#include <csignal>
#include <sstream>
#include <utility>

#include "agent/text/cause_text.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/text/describe.h"
#include "tests/support/transcript.h"

namespace regroup::simulation {

using namespace rendezvous;

namespace {

int signal_of(const std::string& name) {
    for (const int signal : {SIGTERM, SIGINT, SIGKILL, SIGSEGV, SIGABRT}) {
        if (signal_name(signal) == name) {
            return signal;
        }
    }
    return 0;
}

// "5s", "250ms", "2m".
Duration duration_of(const std::string& text) {
    std::size_t unit = 0;
    const auto number = static_cast<std::int64_t>(std::stoul(text, &unit));
    const std::string suffix = text.substr(unit);
    if (suffix == "ms") {
        return std::chrono::milliseconds(number);
    }
    return suffix == "m" ? Duration(std::chrono::minutes(number)) : std::chrono::seconds(number);
}

std::uint32_t number_of(const std::string& text) {
    return static_cast<std::uint32_t>(std::stoul(text));
}

std::string text_of(const std::map<std::string, std::string>& words, const std::string& key) {
    const auto found = words.find(key);
    return found == words.end() ? std::string() : found->second;
}

}  // namespace

std::vector<std::string> Story::tell(const std::string& command) {
    Words words;
    std::istringstream stream(command);
    std::string word;
    for (int position = 0; stream >> word;) {
        const std::size_t equals = word.find('=');
        if (equals == std::string::npos) {
            words[std::to_string(position++)] = word;
        } else {
            words[word.substr(0, equals)] = word.substr(equals + 1);
        }
    }
    lines_.clear();
    carry_out(words);
    advance(Duration::zero());
    if (daemon_) {
        const std::string explained = "= " + describe(daemon_->situation(now_));
        if (explained != explained_) {
            say(explained);
            explained_ = explained;
        }
    }
    return std::exchange(lines_, {});
}

void Story::carry_out(const Words& words) {
    const std::string verb = text_of(words, "0");
    if (verb == "job") {
        begin_job(words);
    } else if (verb == "join") {
        join(words);
    } else if (verb == "advance") {
        advance(duration_of(text_of(words, "1")));
    } else if (verb == "lose") {
        to_lose_.emplace(text_of(words, "1"), text_of(words, "2"));
    } else if (verb == "stop") {
        feed_daemon(StopRequested{text_of(words, "author"), text_of(words, "reason")});
    } else if (verb == "restart-daemon") {
        daemon_.reset();
        for (auto& [name, node] : nodes_) {
            disconnect(node);
        }
    } else if (Node* node = find(text_of(words, "1")); node == nullptr) {
        say("? unknown command or node: " + verb + " " + text_of(words, "1"));
    } else if (verb == "exit" || verb == "kill" || verb == "finish") {
        exit_workers(*node, words);
    } else if (verb == "signal") {
        const int signal = signal_of(text_of(words, "2"));
        feed_agent(*node,
                   agent::QuitRequested{signal, agent::text_of(agent::AskedBySignal{signal})});
    } else if (verb == "crash" || verb == "power-off") {
        node->powered = verb == "crash";
        gone(*node);
    } else if (verb == "break") {
        disconnect(*node);
    } else if (verb == "connect") {
        connect(*node);
    } else if (verb == "cut" || verb == "heal") {
        node->cut = verb == "cut";
    } else {
        say("? unknown command: " + verb);
    }
}

void Story::begin_job(const Words& words) {
    const std::string nodes = text_of(words, "nodes");
    const std::size_t colon = nodes.find(':');
    policy_.nodes_min = number_of(nodes.substr(0, colon));
    policy_.nodes_max =
        colon == std::string::npos ? policy_.nodes_min : number_of(nodes.substr(colon + 1));
    policy_.program = "train";
    policy_.restarts_max = 0;
    if (words.contains("max-restarts")) {
        policy_.restarts_max = number_of(words.at("max-restarts"));
    }
    if (words.contains("last-call")) {
        policy_.last_call = duration_of(words.at("last-call"));
    }
}

void Story::join(const Words& words) {
    const std::string name = text_of(words, "1");
    Node& node = nodes_[name];
    node.name = name;
    node.id = name + (++node.lives == 1 ? "" : "#" + std::to_string(node.lives));
    node.powered = true;
    node.cut = false;
    node.workers = words.contains("workers") ? number_of(words.at("workers")) : node.workers;
    node.grace = words.contains("grace") ? duration_of(words.at("grace")) : Duration::zero();
    node.slot.reset();
    agent::AgentConfig config;
    if (words.contains("slot")) {
        node.slot = number_of(words.at("slot"));
    }
    config.node = node.id;
    config.policy = policy_;
    if (words.contains("program")) {
        config.policy.program = words.at("program");
    }
    config.offer.name = name;
    config.offer.workers = node.workers;
    config.offer.slot = node.slot;
    config.offer.address = "10.0.0." + std::to_string(1 + name[0] - 'a');
    node.core.emplace(std::move(config), now_);
    feed_agent(node, agent::StoreOffered{node.port = ++next_port_});
    connect(node);
}

void Story::exit_workers(Node& node, const Words& words) {
    const std::string verb = text_of(words, "0");
    const std::set<std::uint32_t> alive = node.alive;
    const std::string which = text_of(words, "rank");
    for (const std::uint32_t local_rank : alive) {
        if (!which.empty() && number_of(which) != node.first_rank + local_rank) {
            continue;
        }
        const int code = words.contains("code") ? static_cast<int>(number_of(words.at("code"))) : 0;
        end_worker(node, local_rank, code, signal_of(text_of(words, "2")));
        if (verb != "finish") {
            return;
        }
    }
}

// ---- Time.

void Story::advance(Duration span) {
    const Instant end = now_ + span;
    while (true) {
        deliver();
        Instant next = daemon_ ? daemon_->next_deadline() : Instant::max();
        for (const auto& [name, node] : nodes_) {
            next = std::min(
                {next, node.end_at, node.core ? node.core->next_deadline() : Instant::max()});
        }
        if (next > end) {
            break;
        }
        now_ = std::max(now_, next);
        for (auto& [name, node] : nodes_) {
            if (node.core && node.core->next_deadline() <= now_) {
                apply(node, node.core->advance(now_));
            }
            if (now_ >= node.end_at) {
                node.end_at = Instant::max();
                for (const std::uint32_t local_rank : std::set<std::uint32_t>(node.alive)) {
                    end_worker(node, local_rank, 0, SIGTERM);
                }
            }
        }
        deliver();
        if (daemon_ && daemon_->next_deadline() <= now_) {
            apply(daemon_->advance(now_));
        }
    }
    now_ = end;
}

// ---- The agents.

Story::Node* Story::find(const std::string& name) {
    const auto found = nodes_.find(name);
    return found == nodes_.end() ? nullptr : &found->second;
}

Story::Node* Story::find_id(const NodeId& id) {
    for (auto& [name, node] : nodes_) {
        if (node.id == id) {
            return &node;
        }
    }
    return nullptr;
}

void Story::feed_agent(Node& node, const agent::AgentEvent& event) {
    if (node.core) {
        apply(node, node.core->step(now_, event));
    }
}

void Story::apply(Node& node, const agent::AgentEffects& effects) {
    for (const agent::AgentEffect& effect : effects) {
        std::visit([&](const auto& e) { act(node, e); }, effect);
    }
}

void Story::act(Node& node, const agent::SendToDaemon& effect) {
    if (node.connected) {
        letters_.push_back({node.name, effect.message, std::nullopt});
    }
}

void Story::act(Node& node, const agent::SendLeave& effect) {
    act(node, agent::SendToDaemon{rendezvous::Leave{agent::text_of(effect.reason)}});
}

void Story::act(Node& node, const agent::DropLink& /*effect*/) {
    say(node.id + " gives its silent connection up");
    node.connected = false;
    feed_daemon(NodeDisconnected{node.id});
}

void Story::act(Node& node, const agent::LaunchWorkers& effect) {
    node.round = effect.assignment.round;
    node.first_rank = effect.assignment.first_rank;
    say(node.id + " launches ranks " + std::to_string(node.first_rank) + " to " +
        std::to_string(node.first_rank + node.workers - 1) + " of round " +
        std::to_string(number(node.round)));
    for (std::uint32_t local_rank = 0; local_rank < node.workers; ++local_rank) {
        node.alive.insert(local_rank);
    }
    if (effect.assignment.group_rank == 0) {
        feed_agent(node, agent::StoreOffered{node.port = ++next_port_});
    }
}

void Story::act(Node& node, const agent::SignalWorkers& effect) {
    say(node.id + (effect.force() ? " kills" : " stops") + " its workers of round " +
        std::to_string(number(effect.round)));
    node.end_at = effect.force() ? now_ : now_ + node.grace;
}

void Story::act(Node& node, const agent::Quit& effect) {
    const std::string why = agent::text_of(effect.reason);
    say(node.id + " ends with exit code " + std::to_string(effect.exit_code) +
        (why.empty() ? "" : ": " + why));
    node.core.reset();
    node.end_at = Instant::max();
    disconnect(node);
}

void Story::end_worker(Node& node, std::uint32_t local_rank, int exit_code, int signal) {
    if (node.alive.erase(local_rank) == 0) {
        return;
    }
    agent::WorkerExited exited{node.round, local_rank, std::nullopt};
    if (exit_code != 0 || signal != 0) {
        exited.failure.emplace();
        exited.failure->rank = node.first_rank + local_rank;
        exited.failure->local_rank = local_rank;
        exited.failure->node = node.name;
        exited.failure->exit_code = signal == 0 ? exit_code : -1;
        exited.failure->signal = signal;
    }
    feed_agent(node, exited);
}

void Story::connect(Node& node) {
    node.connected = true;
    feed_agent(node, agent::LinkUp{});
}

void Story::disconnect(Node& node) {
    if (std::exchange(node.connected, false)) {
        feed_agent(node, agent::LinkDown{});
        feed_daemon(NodeDisconnected{node.id});
    }
}

void Story::gone(Node& node) {
    node.alive.clear();
    node.core.reset();
    node.end_at = Instant::max();
    if (node.powered) {
        disconnect(node);
    }
    node.connected = false;
}

// ---- The daemon, and the messages.

void Story::feed_daemon(const Event& event) {
    if (daemon_) {
        apply(daemon_->step(now_, event));
    }
}

void Story::apply(const Effects& effects) {
    for (const Send& send : effects) {
        if (const Node* node = find_id(send.node)) {
            letters_.push_back({node->name, std::nullopt, send.message});
        }
    }
}

bool Story::is_lost(const std::string& node, const std::string& kind) {
    const auto [first, last] = to_lose_.equal_range(node);
    for (auto it = first; it != last; ++it) {
        if (it->second == kind) {
            to_lose_.erase(it);
            return true;
        }
    }
    return false;
}

void Story::deliver() {
    while (!letters_.empty()) {
        const Letter letter = std::move(letters_.front());
        letters_.pop_front();
        Node& node = nodes_.at(letter.node);
        const std::string kind(letter.to_daemon ? test::kind_of(*letter.to_daemon)
                                                : test::kind_of(*letter.to_agent));
        const std::string line =
            letter.to_daemon ? node.id + " -> daemon: " + test::to_line(*letter.to_daemon)
                             : "daemon -> " + node.id + ": " + test::to_line(*letter.to_agent);
        // Heartbeats and their answers are not shown.
        const auto* report = letter.to_daemon ? std::get_if<Report>(&*letter.to_daemon) : nullptr;
        const std::string state = report == nullptr ? "" : test::to_line(*letter.to_daemon);
        const auto* waiting = letter.to_agent ? std::get_if<Waiting>(&*letter.to_agent) : nullptr;
        const bool is_breath = kind == "alive" || (report != nullptr && said_[node.id] == state) ||
                               (waiting != nullptr && waits_for_[node.id] == waiting->detail.kind);
        if (waiting != nullptr) {
            waits_for_[node.id] = waiting->detail.kind;
        }
        if (report != nullptr) {
            said_[node.id] = state;
        }
        const bool lost = node.cut || is_lost(node.name, kind);
        if (lost && !node.cut) {
            say(line + "  (lost)");
        } else if (!lost && !is_breath) {
            say(line);
        }
        if (lost) {
            continue;
        }
        if (letter.to_agent) {
            if (node.connected) {
                feed_agent(node, agent::Received{*letter.to_agent});
            }
            if (kind == "refused") {
                node.connected = false;
            }
            continue;
        }
        if (const auto* hello = std::get_if<Join>(&*letter.to_daemon)) {
            if (!daemon_) {
                daemon_.emplace(hello->policy);
            }
            feed_daemon(NodeJoined{hello->node, hello->policy, hello->offer, hello->report});
        } else if (report != nullptr) {
            feed_daemon(NodeReported{node.id, report->report});
        } else if (const auto* leave = std::get_if<Leave>(&*letter.to_daemon)) {
            feed_daemon(NodeLeft{node.id, leave->reason, leave->killed});
            node.connected = false;
            feed_agent(node, agent::LinkDown{});
        }
    }
}

}  // namespace regroup::simulation
