// SPDX-License-Identifier: Apache-2.0
//
// Three connections to a real Daemon on loopback, whose bytes arrive interleaved and in pieces: of
// the control protocol, of the store's, and of neither. The clock stands still. Afterwards the
// daemon still answers an honest client.
#include "rendezvous/server/daemon.h"

#include <array>
#include <csignal>
#include <fcntl.h>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"
#include "rendezvous/store/store_wire.h"
#include "tests/fuzz/values.h"

namespace regroup::fuzz_daemon {
namespace {

using namespace regroup::rendezvous;

constexpr std::size_t kConnections = 3;
constexpr int kEventsMax = 100;
constexpr Duration kAnswerLimit = std::chrono::seconds(10);

class FrozenClock final : public Clock {
   public:
    [[nodiscard]] Instant now() const noexcept override { return now_; }

   private:
    // Ahead of the real one, by which timers expire: none does, however slow the machine is.
    const Instant now_ = SteadyClock().now() + std::chrono::hours(1000);
};

/// A client's socket that does not block.
class Connection {
   public:
    explicit Connection(std::uint16_t port)
        : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        // Closed by a reset, so that the port is free again at once.
        const linger now{.l_onoff = 1, .l_linger = 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        (void)::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    }
    ~Connection() { ::close(fd_); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void send(std::string_view bytes) const {
        (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    void end_sending() const { ::shutdown(fd_, SHUT_WR); }
    [[nodiscard]] std::string receive() const {
        std::string bytes(std::size_t{64} << 10U, '\0');
        const ssize_t count = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
        bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
        return bytes;
    }

   private:
    int fd_;
};

class Story {
   public:
    explicit Story(fuzz::Input& input) : input_(input) {
        DaemonSetup setup;
        setup.address = "127.0.0.1";
        auto opened = open_daemon(io_, clock_, std::move(setup));
        if (!opened) {
            fuzz::fail("the daemon cannot listen: " + opened.error().detail);
        }
        daemon_ = *std::move(opened);
        port_ = daemon_->port();
    }

    void run() {
        for (int events = 0; events < kEventsMax && !input_.empty(); ++events) {
            one_event();
            io_.poll();
        }
        ask_honestly();
    }

   private:
    void one_event() {
        const std::uint8_t kind = input_.byte();
        std::optional<Connection>& connection = connections_[kind % kConnections];
        if (!connection) {
            connection.emplace(port_);
            io_.poll();
        }
        const std::string name = fuzz::node_name(kind);
        switch (kind / kConnections % 12) {
            case 0:
                connection.reset();
                break;
            case 1:
                connection->end_sending();
                break;
            case 2:
            case 3:
                connection->send(input_.bytes(input_.byte()));
                break;
            case 4:
                send(*connection, fuzz::received(Join{"job", name, fuzz::make_policy(input_),
                                                      fuzz::make_offer(input_, name),
                                                      fuzz::make_report(input_, {}, {})}));
                break;
            case 5:
                send(*connection, Join{"job", name, {}, honest_offer(name), {}});
                break;
            case 6:
                send(*connection,
                     fuzz::received(Report{fuzz::make_report(input_, {RoundId{1}, 0, 0}, {})}));
                break;
            case 7:
                send(*connection, Leave{input_.chance(128) ? "done" : "", input_.chance(64)});
                break;
            case 8: {
                Operate request;
                request.action = input_.one_of({Operate::Action::drain, Operate::Action::release,
                                                Operate::Action::logs, Operate::Action::stop});
                request.node = name;
                request.wait = input_.chance(128);
                send(*connection, request);
                break;
            }
            case 9: {
                std::string bytes;
                store::encode({store::Opcode::validate, {}, store::kMagic}, bytes);
                store::encode({store::Opcode::set, {"/k", input_.text(8)}}, bytes);
                store::encode({store::Opcode::get, {"/k"}}, bytes);
                connection->send(bytes);
                break;
            }
            case 10: {
                std::string bytes;
                store::encode({store::Opcode::add, {"/k"}, 1}, bytes, store::Dialect::v1_13);
                connection->send(bytes);
                break;
            }
            default:
                (void)connection->receive();
        }
    }

    static Offer honest_offer(const std::string& name) {
        Offer offer;
        offer.name = name;
        return offer;
    }

    void send(const Connection& connection, const std::optional<FromAgent>& message) {
        if (!message) {
            return;
        }
        const std::string frame = protocol::make_frame(protocol::encode(*message));
        const std::size_t cut = input_.chance(32) ? input_.below(frame.size()) : frame.size();
        connection.send(std::string_view(frame).substr(0, cut));
        if (cut < frame.size() && input_.chance(128)) {
            io_.poll();
            connection.send(std::string_view(frame).substr(cut));
        }
    }

    void ask_honestly() {
        const Connection client(port_);
        io_.poll();
        client.send("GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n");
        std::string answer;
        const SteadyClock clock;
        for (const Instant end = after(clock.now(), kAnswerLimit); clock.now() < end;) {
            io_.run_one_for(std::chrono::milliseconds(1));
            answer += client.receive();
            if (answer.find("\"jobs\":") != answer.npos) {
                fuzz::require(answer.starts_with("HTTP/1.1 200 "), "an honest client is served");
                return;
            }
        }
        fuzz::fail("the daemon does not answer an honest client");
    }

    fuzz::Input& input_;
    boost::asio::io_context io_{1};
    FrozenClock clock_;
    std::unique_ptr<Daemon> daemon_;
    std::uint16_t port_ = 0;
    std::array<std::optional<Connection>, kConnections> connections_{};
};

std::vector<std::string> seeds() {
    return fuzz::random_seeds();
}

void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    Story(input).run();
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_daemon
