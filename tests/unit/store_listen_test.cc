// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <gtest/gtest.h>

#include "rendezvous/net/listen.h"
#include "rendezvous/net/port_holder.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::net {
namespace {

using boost::asio::ip::tcp;

bool can_connect(boost::asio::io_context& io, const char* address, std::uint16_t port) {
    tcp::socket socket(io);
    boost::system::error_code error;
    socket.connect({boost::asio::ip::make_address(address), port}, error);
    return !error;
}

TEST(Listen, PortZeroChoosesAPortThatAnswersOnTheGivenAddressOnly) {
    boost::asio::io_context io;
    const auto acceptor = listen_on(io, "127.0.0.1", 0);
    ASSERT_TRUE(acceptor) << acceptor.error().detail;
    const std::uint16_t port = acceptor->local_endpoint().port();
    EXPECT_NE(port, 0);
    EXPECT_TRUE(can_connect(io, "127.0.0.1", port));
    EXPECT_FALSE(can_connect(io, "127.0.0.2", port));
}

TEST(Listen, EmptyAddressMeansEveryAddress) {
    boost::asio::io_context io;
    const auto acceptor = listen_on(io, "", 0);
    ASSERT_TRUE(acceptor) << acceptor.error().detail;
    const std::uint16_t port = acceptor->local_endpoint().port();
    EXPECT_TRUE(can_connect(io, "127.0.0.1", port));
    EXPECT_TRUE(can_connect(io, "127.0.0.2", port));
    if (acceptor->local_endpoint().address().is_v6()) {
        EXPECT_TRUE(can_connect(io, "::1", port));
    }
}

TEST(Listen, ListeningSocketIsNotInherited) {
    boost::asio::io_context io;
    auto acceptor = listen_on(io, "127.0.0.1", 0);
    ASSERT_TRUE(acceptor);
    EXPECT_NE(::fcntl(acceptor->native_handle(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Listen, TakenPortIsReportedWithItsHolder) {
    boost::asio::io_context io;
    for (const char* address : {"127.0.0.1", ""}) {
        const auto holder = listen_on(io, address, 0);
        ASSERT_TRUE(holder);
        const std::uint16_t port = holder->local_endpoint().port();
        EXPECT_THAT(listen_on(io, address, port),
                    fails(Errc::system, "port " + std::to_string(port), address,
                          "is taken by pid " + std::to_string(::getpid()) + " (",
                          ::program_invocation_short_name));
    }
}

TEST(Listen, PortOfAnEndedConnectionIsReportedAsSuch) {
    boost::asio::io_context io;
    const auto server = listen_on(io, "127.0.0.1", 0);
    ASSERT_TRUE(server);
    tcp::socket client(io);
    client.open(tcp::v4());
    client.bind({boost::asio::ip::make_address("127.0.0.1"), 0});
    const std::uint16_t port = client.local_endpoint().port();
    client.connect(server->local_endpoint());
    client.close();
    EXPECT_THAT(listen_on(io, "127.0.0.1", port),
                fails(" is still held, for up to a minute, by a connection that has ended"));
}

TEST(Listen, PortIsFreeAtOnceAfterItsOwnerAndAClientHaveEnded) {
    boost::asio::io_context io;
    const std::uint16_t port = testing::unused_port();
    {
        auto acceptor = listen_on(io, "127.0.0.1", port);
        ASSERT_TRUE(acceptor);
        tcp::socket client(io);
        client.connect({boost::asio::ip::make_address("127.0.0.1"), port});
        tcp::socket accepted = acceptor->accept();
        accepted.close();  // First, so that the port's side of the connection lingers.
    }
    EXPECT_TRUE(listen_on(io, "127.0.0.1", port));
}

TEST(Listen, InvalidOrForeignAddressIsReported) {
    boost::asio::io_context io;
    EXPECT_THAT(listen_on(io, "not an address", 0),
                fails(Errc::invalid_argument, "'not an address'"));
    const auto foreign = listen_on(io, "192.0.2.1", 0);  // Reserved for documentation.
    EXPECT_THAT(foreign, fails(Errc::system, "192.0.2.1"));
}

TEST(PortHolder, HolderIsFoundByAddress) {
    boost::asio::io_context io;
    const auto acceptor = listen_on(io, "127.0.0.1", 0);
    ASSERT_TRUE(acceptor);
    const std::uint16_t port = acceptor->local_endpoint().port();
    const auto holder = find_port_holder("127.0.0.1", port);
    ASSERT_TRUE(holder);
    EXPECT_EQ(holder->pid, ::getpid());
    EXPECT_EQ(holder->user, ::geteuid());
    EXPECT_TRUE(find_port_holder("", port)) << "all addresses include this one";
    EXPECT_TRUE(find_port_holder("0.0.0.0", port));
    EXPECT_FALSE(find_port_holder("127.0.0.2", port));
}

}  // namespace
}  // namespace regroup::net
