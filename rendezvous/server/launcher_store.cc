// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/launcher_store.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/net/listen.h"
#include "rendezvous/server/store_probe.h"

namespace regroup::rendezvous {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using store::ClientId;
using store::Opcode;

/// The prefix of the keys of all launchers; the '/' comes from the store's client.
constexpr std::string_view kPrefix = "/torch.rendezvous.";
constexpr std::string_view kAddress = "MASTER_ADDR";
constexpr std::string_view kPort = "MASTER_PORT";
/// The most keys that launchers wait for before it is known which process serves the workers'
/// store.
constexpr std::size_t kAwaitedMax = 1024;
// The most keys that are deleted with a job. Further ones are deleted when no client has been
// connected for a while.
constexpr std::size_t kStoreKeysMax = 65536;
// The most values that are held back during a probe: a few addresses, no data.
constexpr std::size_t kPublishedMax = 64;
constexpr std::size_t kPublishedBytesMax = 256;
// Memory of the keys in this class, for all jobs together. Beyond it the same holds as beyond
// kStoreKeysMax, kAwaitedMax and kPublishedMax.
constexpr std::size_t kHeldBytesMax = std::size_t{128} << 20U;
// An element of a set, without the key.
constexpr std::size_t kElementBytes = 96;
constexpr std::size_t kWorkersBytesMax = std::size_t{1} << 30;

/// A key of one round of a job: "/torch.rendezvous.<job>.<round>/<name>".
struct RoundKey {
    std::uint64_t round = 0;
    std::string_view name;

    [[nodiscard]] bool is_master() const { return name == kAddress || name == kPort; }
};

std::optional<RoundKey> round_key(std::string_view job, std::string_view key) {
    if (!key.starts_with(kPrefix) || !key.substr(kPrefix.size()).starts_with(job)) {
        return std::nullopt;
    }
    key.remove_prefix(kPrefix.size() + job.size());
    if (!key.starts_with('.')) {
        return std::nullopt;
    }
    key.remove_prefix(1);
    RoundKey result;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), result.round);
    if (error != std::errc() || end == key.data() + key.size() || *end != '/') {
        return std::nullopt;
    }
    result.name = key.substr(static_cast<std::size_t>(end - key.data()) + 1);
    return result;
}

std::optional<std::uint16_t> read_port(std::string_view text) {
    const auto port = parse_number<std::uint16_t>(text);
    return port && *port > 0 ? port : std::nullopt;
}

/// An id as one short line, since it comes from an unknown peer.
std::string printable(const std::string& id) {
    constexpr std::size_t kShownMax = 64;
    std::string shown = id.substr(0, kShownMax);
    std::replace_if(
        shown.begin(), shown.end(),
        [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7F'; }, '?');
    return id.size() > kShownMax ? shown + "..." : shown;
}

/// The server of the store through which a job's workers find each other.
enum class Workers : std::uint8_t {
    unknown,     // No address is published yet.
    probing,     // The published address is being probed; clients must not read it meanwhile.
    themselves,  // One of the workers, at the published address.
    here,        // This daemon.
};

struct LauncherJob {
    std::uint64_t serial = 0;  ///< Distinguishes it from an earlier job of the same id.
    std::string name;          ///< The printable id.
    std::size_t clients_count = 0;
    std::set<std::string> keys;  ///< All keys that its launchers have set.
    Workers workers = Workers::unknown;
    std::map<std::string, std::string> published;  ///< Keys and values that are held back.
    std::set<std::string> awaited;                 ///< Address keys requested before publication.
    std::uint64_t round = 0;                       ///< The highest round that a launcher named.
    std::unique_ptr<store::StoreServer> store;     ///< The workers' store, if it is served here.
    std::uint16_t port = 0;
};

bool writes(Opcode opcode) {
    return opcode == Opcode::set || opcode == Opcode::compare_set || opcode == Opcode::add ||
           opcode == Opcode::append || opcode == Opcode::multi_set ||
           opcode == Opcode::queue_push || opcode == Opcode::barrier;
}

}  // namespace

class LauncherStore::Impl : public store::RequestListener {
   public:
    Impl(asio::io_context& io, const Clock& clock, Options options, Log log)
        : io_(io),
          clock_(clock),
          options_(std::move(options)),
          log_(std::move(log)),
          server_(io, server_options(this)) {}

    void adopt(tcp::socket socket, std::string_view first_bytes) {
        is_empty_ = false;
        server_.adopt(std::move(socket), first_bytes);
    }

    [[nodiscard]] std::uint64_t requests_count() const noexcept { return requests_count_; }
    [[nodiscard]] std::size_t clients_count() const {
        std::size_t count = server_.clients_count();
        for (const auto& [id, job] : jobs_) {
            count += job.store ? job.store->clients_count() : 0;
        }
        return count;
    }

    void sweep() {
        const Instant now = clock_.now();
        if (is_empty_ || server_.clients_count() > 0) {
            empty_since_ = now;
        } else if (now >= after(empty_since_, options_.empty_limit)) {
            server_.reset();
            is_empty_ = true;
        }
    }

   private:
    store::StoreServer::Options server_options(store::RequestListener* listener) const {
        store::StoreServer::Options options;
        options.older_dialect = options_.older_dialect;
        options.listener = listener;
        options.on_refusal = log_;
        return options;
    }

    // ---- Requests of launchers.

    bool hear(ClientId client, const store::Request& request) override {
        ++requests_count_;
        if (request.texts.empty() || !request.texts.front().starts_with(kPrefix)) {
            return true;
        }
        auto entry = job_of(client, request);
        if (entry == jobs_.end()) {
            return true;
        }
        const std::size_t step = request.opcode == Opcode::multi_set ? 2 : 1;
        const bool is_write = writes(request.opcode);
        // In a write with one key the other texts are values.
        const std::size_t end = is_write && step == 1 ? 1 : request.texts.size();
        for (std::size_t i = 0; i < end; i += step) {
            const std::string& key = request.texts[i];
            if (request.opcode == Opcode::delete_key) {
                release(entry->second.keys, key);
            } else if (is_write && entry->second.keys.size() < kStoreKeysMax) {
                hold(entry->second.keys, key);
            }
            if (const auto parsed = round_key(entry->first, key)) {
                enter_round(entry->second, parsed->round);
                if (parsed->is_master() &&
                    !hear_of_master(entry->first, entry->second, client, request, key)) {
                    return false;
                }
            }
        }
        return true;
    }

    void part(ClientId client) override {
        const auto found = job_ids_.find(client);
        if (found == job_ids_.end()) {
            return;
        }
        if (const auto job = jobs_.find(found->second); job != jobs_.end()) {
            if (--job->second.clients_count == 0) {
                // Posted, since the server must not be changed from within its own callback.
                asio::post(io_, [this, alive = std::weak_ptr(alive_)] {
                    if (!alive.expired()) {
                        forget_deserted();
                    }
                });
            }
        }
        job_ids_.erase(found);
    }

    // ---- Keys that are held here, within a common limit.

    [[nodiscard]] bool may_hold(const std::string& key) const {
        return held_bytes_ + kElementBytes + key.size() <= kHeldBytesMax;
    }
    void hold(std::set<std::string>& keys, const std::string& key) {
        if (may_hold(key) && keys.insert(key).second) {
            held_bytes_ += kElementBytes + key.size();
        }
    }
    void release(std::set<std::string>& keys, const std::string& key) {
        if (keys.erase(key) > 0) {
            held_bytes_ -= kElementBytes + key.size();
        }
    }
    std::set<std::string> release_all(std::set<std::string>& keys) {
        for (const std::string& key : keys) {
            held_bytes_ -= kElementBytes + key.size();
        }
        return std::exchange(keys, {});
    }
    std::map<std::string, std::string> release_all(std::map<std::string, std::string>& values) {
        for (const auto& [key, value] : values) {
            held_bytes_ -= kElementBytes + key.size();
        }
        return std::exchange(values, {});
    }

    using Jobs = std::map<std::string, LauncherJob>;

    /// Called at once, so that the next torchrun with that id finds no state of the ended job.
    void forget_deserted() {
        for (auto entry = jobs_.begin(); entry != jobs_.end();) {
            entry = entry->second.clients_count > 0 ? std::next(entry) : forget(entry);
        }
    }

    Jobs::iterator forget(Jobs::iterator entry) {
        for (const std::string& key : release_all(entry->second.keys)) {
            server_.delete_key(key);
        }
        release_all(entry->second.awaited);
        release_all(entry->second.published);
        log_("job " + entry->second.name + ": its last torchrun is gone, and its keys with it");
        return jobs_.erase(entry);
    }

    /// A launcher begins by creating the state of its job. Only that key shows the job's id; in
    /// other keys the end of the id is ambiguous.
    Jobs::iterator job_of(ClientId client, const store::Request& request) {
        if (const auto known = job_ids_.find(client); known != job_ids_.end()) {
            return jobs_.find(known->second);
        }
        if (request.opcode != Opcode::compare_set) {
            return jobs_.end();
        }
        const std::string id = request.texts.front().substr(kPrefix.size());
        if (!jobs_.contains(id) && jobs_.size() >= options_.jobs_max) {
            return jobs_.end();
        }
        if (const auto old = jobs_.find(id); old != jobs_.end() && old->second.clients_count == 0) {
            forget(old);  // Its last launcher has just disconnected.
        }
        const auto [entry, is_new] = jobs_.try_emplace(id);
        if (is_new) {
            entry->second.serial = ++last_serial_;
            entry->second.name = printable(id);
        }
        ++entry->second.clients_count;
        job_ids_.emplace(client, id);
        return entry;
    }

    /// Called between the end of the old round's workers and the start of the new round's:
    /// launchers name the new round before they start its workers.
    void enter_round(LauncherJob& job, std::uint64_t round) {
        if (round <= job.round) {
            return;
        }
        job.round = round;
        if (job.store) {
            job.store->reset();
            log_("job " + job.name + ": round " + std::to_string(round) +
                 " of torchrun; the workers' store is empty again");
        }
    }

    /// Handles a request that names a key with the address or the port of the workers' store.
    bool hear_of_master(const std::string& id, LauncherJob& job, ClientId client,
                        const store::Request& request, const std::string& key) {
        if (request.opcode == Opcode::set &&
            (job.workers == Workers::unknown || job.workers == Workers::probing)) {
            return !publish(id, job, client, key, request.texts[1]);
        }
        if (writes(request.opcode)) {
            return true;
        }
        if (job.workers == Workers::here) {
            answer(job, client, key);
        } else if (job.workers != Workers::themselves && job.awaited.size() < kAwaitedMax) {
            hold(job.awaited, key);
        }
        return true;
    }

    /// Sets the value that this client will read next: the address at which this client reached the
    /// daemon, since the workers on its host can reach that too.
    void answer(LauncherJob& job, ClientId client, const std::string& key) {
        const bool is_port = key.ends_with(kPort);
        put(job, key,
            is_port ? std::to_string(job.port)
                    : server_.address_of(client, store::End::ours).to_string());
    }

    void put(LauncherJob& job, const std::string& key, const std::string& value) {
        hold(job.keys, key);
        if (const auto done = server_.set(key, value); !done) {
            log_("job " + job.name + ": " + done.error().detail);
        }
    }

    // ---- The server of the workers' store.

    /// Holds the value back until the probe is complete. False for a value that no launcher would
    /// publish; its key is then stored like any other.
    bool publish(const std::string& id, LauncherJob& job, ClientId client, const std::string& key,
                 const std::string& value) {
        const bool is_new = !job.published.contains(key);
        if (value.size() > kPublishedBytesMax ||
            (is_new && (job.published.size() >= kPublishedMax || !may_hold(key)))) {
            return false;
        }
        held_bytes_ += is_new ? kElementBytes + key.size() : 0;
        job.published[key] = value;
        const std::string round = key.substr(0, key.rfind('/') + 1);
        const auto port = job.published.find(round + std::string(kPort));
        if (job.workers == Workers::probing || port == job.published.end() ||
            !job.published.contains(round + std::string(kAddress))) {
            return true;
        }
        job.workers = Workers::probing;
        const auto number = read_port(port->second);
        if (!number) {
            decide(id, job.serial, false);
            return true;
        }
        // Probes the client's own address, since the daemon may not know the published name.
        const tcp::endpoint endpoint(server_.address_of(client, store::End::theirs), *number);
        probe_store(io_, endpoint, options_.probe_limit,
                    [this, alive = std::weak_ptr(alive_), id, serial = job.serial](bool is_store) {
                        if (!alive.expired()) {
                            decide(id, serial, is_store);
                        }
                    });
        return true;
    }

    void decide(const std::string& id, std::uint64_t serial, bool is_store) {
        const auto entry = jobs_.find(id);
        if (entry == jobs_.end() || entry->second.serial != serial ||
            entry->second.workers != Workers::probing) {
            return;
        }
        LauncherJob& job = entry->second;
        job.workers = is_store && open_store(job) ? Workers::here : Workers::themselves;
        log_("job " + job.name + ": torchrun's round " + std::to_string(job.round) +
             (job.workers == Workers::here
                  ? "; the workers' store is here, on port " + std::to_string(job.port)
                  : "; the workers serve their store themselves"));
        // Any value releases the clients that wait; they then ask for the value.
        for (const auto& [key, value] : release_all(job.published)) {
            put(job, key, value);
        }
        if (job.workers == Workers::here) {
            for (const std::string& key : release_all(job.awaited)) {
                put(job, key, "");
            }
        }
        release_all(job.awaited);
    }

    bool open_store(LauncherJob& job) {
        Result<tcp::acceptor> acceptor = net::listen_on(io_, options_.address, 0);
        if (!acceptor) {
            log_("job " + job.name + ": " + acceptor.error().detail);
            return false;
        }
        boost::system::error_code ignored;
        job.port = acceptor->local_endpoint(ignored).port();
        store::StoreServer::Options options = server_options(nullptr);
        options.limits.total_bytes_max = kWorkersBytesMax;
        options.objection = options_.objection;
        job.store = std::make_unique<store::StoreServer>(io_, std::move(options));
        job.store->serve(*std::move(acceptor));
        return true;
    }

    asio::io_context& io_;
    const Clock& clock_;
    const Options options_;
    const Log log_;
    Jobs jobs_;
    std::uint64_t requests_count_ = 0;
    std::size_t held_bytes_ = 0;  ///< See hold().
    std::uint64_t last_serial_ = 0;
    std::map<ClientId, std::string> job_ids_;  ///< The job of each launcher.
    bool is_empty_ = true;
    Instant empty_since_{};
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
    store::StoreServer server_;
};

LauncherStore::LauncherStore(asio::io_context& io, const Clock& clock, Options options, Log log)
    : impl_(std::make_unique<Impl>(io, clock, std::move(options), std::move(log))) {}

LauncherStore::~LauncherStore() = default;

void LauncherStore::adopt(tcp::socket socket, std::string_view first_bytes) {
    impl_->adopt(std::move(socket), first_bytes);
}

std::uint64_t LauncherStore::requests_count() const {
    return impl_->requests_count();
}

std::size_t LauncherStore::clients_count() const {
    return impl_->clients_count();
}

void LauncherStore::sweep() {
    impl_->sweep();
}

}  // namespace regroup::rendezvous
