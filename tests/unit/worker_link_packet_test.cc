// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

#include "rendezvous/worker_link/packet.h"

namespace regroup::worker_link {
namespace {

class PacketTest : public ::testing::Test {
   public:
    ~PacketTest() override {
        for (const int end : ends) {
            ::close(end);
        }
    }

   protected:
    PacketTest() {
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    }
    /// Returns the bytes that arrived, and the descriptor that came with them or -1.
    std::pair<std::string, int> receive() {
        std::array<char, 100> bytes{};
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
        iovec part{bytes.data(), bytes.size()};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        const ssize_t count = ::recvmsg(ends[1], &header, MSG_CMSG_CLOEXEC);
        int descriptor = -1;
        if (const cmsghdr* rider = CMSG_FIRSTHDR(&header); rider != nullptr) {
            std::memcpy(&descriptor, CMSG_DATA(rider), sizeof descriptor);
        }
        return {std::string(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))),
                descriptor};
    }
    std::array<int, 2> ends{};
};

TEST_F(PacketTest, PacketIsOneMessage) {
    EXPECT_TRUE(send_packet(ends[0], "one", WhenFull::wait));
    EXPECT_TRUE(send_packet(ends[0], "another", WhenFull::fail));
    EXPECT_EQ(receive(), std::pair(std::string("one"), -1));
    EXPECT_EQ(receive(), std::pair(std::string("another"), -1));
}

TEST_F(PacketTest, PacketCarriesADescriptor) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    EXPECT_TRUE(send_packet(ends[0], "write to it", WhenFull::wait, pipe[1]));
    const auto [text, descriptor] = receive();
    EXPECT_EQ(text, "write to it");
    ASSERT_GE(descriptor, 0);
    ::close(pipe[1]);
    EXPECT_EQ(::write(descriptor, "x", 1), 1);
    ::close(descriptor);
    char got = 0;
    EXPECT_EQ(::read(pipe[0], &got, 1), 1);
    EXPECT_EQ(got, 'x');
    ::close(pipe[0]);
}

TEST_F(PacketTest, SendWaitsForASlowReaderOnlyWhenAskedTo) {
    const std::string packet(1000, 'x');
    int sent = 0;
    while (sent < 100'000 && send_packet(ends[0], packet, WhenFull::fail)) {
        ++sent;
    }
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_GT(sent, 0);
}

TEST_F(PacketTest, SendToAClosedSocketRaisesNoSignal) {
    ::close(std::exchange(ends[1], -1));
    EXPECT_FALSE(send_packet(ends[0], "hello", WhenFull::wait));
    EXPECT_EQ(errno, EPIPE);
}

}  // namespace
}  // namespace regroup::worker_link
