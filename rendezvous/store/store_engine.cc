// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/store_engine.h"

#include <limits>
#include <utility>

#include "rendezvous/store/peer_socket.h"
#include "rendezvous/store/store_dispatch.h"

namespace regroup::store {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
/// As many bytes of a reply as one unit of StoreEngine::turn_work().
constexpr std::size_t kReplyBytesPerWork = 64;

/// The far end of all clients that have left while requests of them still waited.
class Nowhere final : public FarEnd {
   public:
    std::size_t take(std::string_view bytes) override { return bytes.size(); }
    void closed() override {}
    [[nodiscard]] std::string name() const override { return "a client that has left"; }
};
Nowhere nowhere;

}  // namespace

StoreEngine::StoreEngine(Options options)
    : options_(std::move(options)),
      core_(options_.limits),
      read_buffer_(std::make_unique_for_overwrite<char[]>(kReadBytes)) {}

ClientId StoreEngine::attach(FarEnd& far_end) {
    if (!clients_.is_open()) {
        clients_.open();  // If it fails, everything is done at once.
    }
    return clients_.add(far_end, RequestParser(options_.limits, options_.older_dialect));
}

void StoreEngine::receive(ClientId id, std::string_view bytes) {
    ServedClient* client = clients_.find(id);
    if (client == nullptr) {
        return;
    }
    if (client->unread.empty()) {
        execute_all(id, bytes);
    } else {
        client->unread.append(bytes);
    }
    charge(id);
}

void StoreEngine::execute_all(ClientId id, std::string_view bytes) {
    while (!bytes.empty()) {
        // Looked up for each request, since sending may reveal that the client disconnected.
        ServedClient* client = clients_.find(id);
        if (client == nullptr) {
            return;
        }
        if (turn_work_ >= kTurnWork && clients_.want_turn(true)) {
            client->unread.assign(bytes);
            backlog_.push_back(id);
            break;
        }
        auto request = client->parser.next(bytes);
        if (!request) {
            refuse(id, request.error().detail);
            return;
        }
        if (*request) {
            carry_out(id, *client, **request);
        }
    }
    flush(id);
}

void StoreEngine::resume(ClientId id) {
    if (clients_.find(id) != nullptr) {
        clients_.watch_writable(id, false);
        flush(id);
        charge(id);
    }
}

void StoreEngine::detach(ClientId id) {
    if (ServedClient* client = clients_.find(id)) {
        client->far_end = &nowhere;
        drop_if_left(id);
    }
}

/// A client that has left is dropped once its last request is carried out.
void StoreEngine::drop_if_left(ClientId id) {
    const ServedClient* client = clients_.find(id);
    if (client != nullptr && client->far_end == &nowhere && client->unread.empty()) {
        drop(id);
    }
}

Result<void> StoreEngine::set(std::string_view key, std::string_view value) {
    auto released = core_.set(key, value);
    if (!released) {
        return released.error();
    }
    release(*released);
    return {};
}

int StoreEngine::socket_of(ClientId id) noexcept {
    const ServedClient* client = clients_.find(id);
    return client != nullptr ? client->connection.socket.get() : -1;
}

void StoreEngine::reset() {
    for (const ClientId id : clients_.all()) {
        drop(id);
    }
    backlog_.clear();
    if (clients_.want_turn(true)) {
        former_.push_back(std::move(core_));
    }
    core_ = StoreCore(options_.limits);
}

// ---- Accepting.

void StoreEngine::admit(GuardedSocket connection, std::string_view first_bytes) {
    prepare_socket(connection.socket.get());
    const std::string peer = describe_peer(connection.socket.get());
    if (clients_.count() >= options_.limits.clients_max) {
        tell_refusal(peer, "the store has " + std::to_string(clients_.count()) +
                               " clients; that is the limit");
        return;
    }
    if (!clients_.is_open() && !clients_.open()) {
        tell_refusal(peer, "the system has no descriptor left");
        return;
    }
    const auto id =
        clients_.add(std::move(connection), RequestParser(options_.limits, options_.older_dialect));
    if (!id) {
        tell_refusal(peer, "the system has no room for one more connection");
        return;
    }
    receive(*id, first_bytes);
}

// ---- Reading.

void StoreEngine::serve_ready() {
    turn_work_ = 0;
    clean_up();
    // Clients with unread bytes were ready before all others.
    for (std::size_t left = backlog_.size(); left > 0 && turn_work_ < kTurnWork; --left) {
        const ClientId id = backlog_.front();
        backlog_.pop_front();
        if (ServedClient* client = clients_.find(id)) {
            execute_all(id, std::exchange(client->unread, {}));
            charge(id);
            drop_if_left(id);
        }
    }
    if (next_ready_ == ready_.size()) {
        clients_.take_ready(ready_);
        next_ready_ = 0;
    }
    while (next_ready_ < ready_.size() && turn_work_ < kTurnWork) {
        const ServedClients::Ready ready = ready_[next_ready_++];
        if (ready.writable) {
            resume(ready.client);
        }
        if (ready.readable) {
            read_some(ready.client);
        }
    }
    if (core_.is_tidy() && former_.empty() && backlog_.empty()) {
        clients_.want_turn(false);
    }
}

// Takes half of a turn at most, so that requests are answered meanwhile.
void StoreEngine::clean_up() {
    turn_work_ += core_.tidy(kTurnWork / 2);
    while (!former_.empty() && turn_work_ < kTurnWork / 2) {
        const std::size_t left = kTurnWork / 2 - turn_work_;
        const std::size_t removed = former_.front().dismantle(left);
        turn_work_ += removed;
        if (removed < left) {
            former_.pop_front();
        }
    }
}

void StoreEngine::plan_clean_up() {
    if (!core_.is_tidy() && !clients_.want_turn(true)) {
        core_.tidy(std::numeric_limits<std::size_t>::max());
    }
}

void StoreEngine::read_some(ClientId id) {
    const ServedClient* client = clients_.find(id);
    if (client == nullptr || !client->unread.empty()) {
        return;
    }
    ++turn_work_;
    const ssize_t bytes =
        receive_some(client->connection.socket.get(), read_buffer_.get(), kReadBytes);
    if (bytes > 0) {
        receive(id, std::string_view(read_buffer_.get(), static_cast<std::size_t>(bytes)));
    } else if (bytes < 0) {
        drop(id);
    }
}

/// Call after everything that a client makes the engine hold. Disconnects those that hold most if
/// all together hold too much.
void StoreEngine::charge(ClientId id) {
    if (const ServedClient* client = clients_.find(id)) {
        clients_.charge(id, client->parser.held_bytes() + client->unread.capacity() +
                                client->outbox.bytes.capacity() + core_.wait_bytes(id));
    }
    // Those who wait must not pay for what has been left behind.
    while (!core_.is_tidy() &&
           clients_.charged_bytes() + core_.untidy_bytes() > options_.limits.clients_bytes_max) {
        core_.tidy(kTurnWork);
    }
    while (clients_.charged_bytes() > options_.limits.clients_bytes_max) {
        const ClientId most = clients_.most_charged();
        refuse(most, "all clients together hold " + std::to_string(clients_.charged_bytes()) +
                         " bytes, and it holds most of them, " +
                         std::to_string(clients_.find(most)->charged_bytes) + "; the limit is " +
                         std::to_string(options_.limits.clients_bytes_max));
    }
}

void StoreEngine::carry_out(ClientId id, ServedClient& client, Request& request) {
    if (client.parser.dialect() == Dialect::v1_13) {
        // An older client cannot cancel a wait; its next request shows that it stopped waiting.
        core_.cancel_wait(id);
    }
    if (options_.listener != nullptr && !options_.listener->hear(id, request)) {
        return;
    }
    if (options_.listener != nullptr && clients_.find(id) != &client) {
        return;  // The listener's `set` revealed that the client disconnected.
    }
    Released released;
    const std::size_t before = client.outbox.bytes.size();
    const auto done = execute(core_, id, request, client.outbox.bytes, released);
    turn_work_ += 1 + request.texts.size() + released.size() +
                  (client.outbox.bytes.size() - before) / kReplyBytesPerWork;
    plan_clean_up();
    if (!done) {
        refuse(id, done.error().detail);
        return;
    }
    limit_outbox(id);
    release(released);
}

void StoreEngine::release(const Released& released) {
    for (const ClientId id : released) {
        if (ServedClient* client = clients_.find(id)) {
            client->outbox.bytes.push_back(kStopWaiting);
            flush(id);
            charge(id);
        }
    }
}

void StoreEngine::limit_outbox(ClientId id) {
    const std::size_t limit = options_.limits.reply_bytes_max;
    if (clients_.find(id)->outbox.unsent().size() <= limit) {
        return;
    }
    flush(id);
    const ServedClient* client = clients_.find(id);
    if (client != nullptr && client->outbox.unsent().size() > limit) {
        refuse(id, "it does not read its replies; " +
                       std::to_string(client->outbox.unsent().size()) +
                       " bytes are waiting, the limit is " + std::to_string(limit));
    }
}

// ---- Writing.

/// Sends as much as the client takes, and the rest when it takes more.
void StoreEngine::flush(ClientId id) {
    ServedClient* client = clients_.find(id);
    if (client == nullptr || client->awaits_writable || client->outbox.unsent().empty()) {
        return;
    }
    const std::string_view unsent = client->outbox.unsent();
    const ssize_t count = client->far_end != nullptr
                              ? static_cast<ssize_t>(client->far_end->take(unsent))
                              : send_some(client->connection.socket.get(), unsent);
    if (count < 0) {
        drop(id);
        return;
    }
    client->outbox.drop_sent(static_cast<std::size_t>(count));
    clients_.watch_writable(id, !client->outbox.unsent().empty());
}

// ---- Disconnecting.

void StoreEngine::refuse(ClientId id, const std::string& why) {
    const ServedClient& client = *clients_.find(id);
    tell_refusal(client.far_end != nullptr ? client.far_end->name()
                                           : describe_peer(client.connection.socket.get()),
                 why);
    drop(id);
}

void StoreEngine::tell_refusal(const std::string& peer, const std::string& why) const {
    if (options_.on_refusal) {
        options_.on_refusal("the store disconnected " + peer + ": " + why);
    }
}

void StoreEngine::drop(ClientId id) {
    const ServedClient* client = clients_.find(id);
    FarEnd* const far_end = client != nullptr ? client->far_end : nullptr;
    core_.cancel_wait(id);
    plan_clean_up();
    clients_.erase(id);
    if (far_end != nullptr) {
        far_end->closed();
    }
    if (options_.listener != nullptr) {
        options_.listener->part(id);
    }
}

}  // namespace regroup::store
