// SPDX-License-Identifier: Apache-2.0
//
// A client of the daemon, and name servers that are slow, silent, or say too much.
#include <algorithm>
#include <arpa/inet.h>
#include <condition_variable>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <string>
#include <vector>

#include "daemon_harness.h"
#include "rendezvous/client/control_client.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::unused_port;

/// The answers of getaddrinfo() in this program for names of the top-level domain "test".
class NameServer {
   public:
    struct Entry {
        std::vector<std::string> addresses;  ///< Empty: there is no such name.
        bool is_silent = false;              ///< No answer until speak().
        int asked = 0;
    };

    static NameServer& instance() {
        static auto* const server = new NameServer;  // A thread of a failed test may still wait.
        return *server;
    }

    void set(const std::string& name, Entry entry) {
        const std::scoped_lock lock(mutex_);
        entries_[name] = std::move(entry);
    }
    void speak(const std::string& name) {
        const std::scoped_lock lock(mutex_);
        entries_[name].is_silent = false;
        spoken_.notify_all();
    }
    int asked(const std::string& name) {
        const std::scoped_lock lock(mutex_);
        return entries_[name].asked;
    }
    std::vector<std::string> answer(const std::string& name) {
        std::unique_lock lock(mutex_);
        ++entries_[name].asked;
        spoken_.wait(lock, [&] { return !entries_[name].is_silent; });
        return entries_[name].addresses;
    }

   private:
    std::mutex mutex_;
    std::condition_variable spoken_;
    std::map<std::string, Entry> entries_;
};

struct Names : ::testing::Test {
    ControlClient::Handlers handlers() {
        return {{[this] { ++ups; }, [] {},
                 [this](const std::string& reason, bool) { troubles.push_back(reason); }},
                [](const FromDaemon&) {}};
    }
    bool is_told(const std::string& text) const {
        return std::any_of(troubles.begin(), troubles.end(), [&](const std::string& trouble) {
            return trouble.find(text) != trouble.npos;
        });
    }

    Loop loop;
    int ups = 0;
    std::vector<std::string> troubles;
};

TEST_F(Names, AnswerThatComesAfterTheAttemptIsUsedByALaterOne) {
    NameServer& names = NameServer::instance();
    names.set("slow.test", {{"127.0.0.1"}, true});
    names.set("gone.test", {});
    DaemonHost host(loop);
    ControlClient client(loop.io(), {{"slow.test", host.port()}, {"gone.test", 29400}}, handlers(),
                         milliseconds(200));
    client.start();
    ASSERT_TRUE(loop.until([&] { return is_told("cannot resolve slow.test: no answer within"); }));
    ASSERT_TRUE(loop.until([&] { return is_told("cannot resolve gone.test: "); }));
    names.speak("slow.test");
    EXPECT_TRUE(loop.until([&] { return ups == 1; }));
    EXPECT_EQ(names.asked("slow.test"), 1);
}

TEST_F(Names, SilentServerHasOneThreadPerNameHoweverOftenItIsTried) {
    NameServer& names = NameServer::instance();
    names.set("mute.test", {{}, true});
    names.set("dumb.test", {{}, true});
    ControlClient client(loop.io(), {{"mute.test", 29400}, {"dumb.test", 29400}}, handlers(),
                         milliseconds(40));
    client.start();
    EXPECT_TRUE(loop.until([&] { return troubles.size() >= 8; }));
    EXPECT_EQ(names.asked("mute.test"), 1);
    EXPECT_EQ(names.asked("dumb.test"), 1);
    names.speak("mute.test");
    names.speak("dumb.test");
}

TEST_F(Names, OfManyAddressesTheFirstAreTriedAndTheNameIsAskedAgain) {
    NameServer& names = NameServer::instance();
    names.set("many.test", {std::vector<std::string>(2000, "127.0.0.1")});
    const std::uint16_t nobody = unused_port();
    ControlClient client(loop.io(), Endpoint{"many.test", nobody}, handlers());
    client.start();
    ASSERT_TRUE(loop.until([&] { return names.asked("many.test") >= 2; }));
    const std::string& told = troubles.front();
    EXPECT_LE(std::count(told.begin(), told.end(), ';'), 15) << told.substr(0, 400);
    EXPECT_THAT(told, HasSubstr("cannot connect to many.test:"));
}

TEST_F(Names, ClientStopsAtOnceWhileNoServerAnswers) {
    NameServer& names = NameServer::instance();
    names.set("silent.test", {{}, true});
    ControlClient client(loop.io(), Endpoint{"silent.test", 29400}, handlers());
    client.start();
    ASSERT_TRUE(loop.until([&] { return names.asked("silent.test") == 1; }));
    bool is_stopped = false;
    client.stop(std::chrono::seconds(60), [&] { is_stopped = true; });
    EXPECT_TRUE(loop.until([&] { return is_stopped; }));
    EXPECT_TRUE(troubles.empty());
    names.speak("silent.test");
}

using GetAddrInfo = int(const char*, const char*, const addrinfo*, addrinfo**);

int real_getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                     addrinfo** list) {
    static auto* const real = reinterpret_cast<GetAddrInfo*>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    return real(name, service, hints, list);
}

}  // namespace
}  // namespace regroup::rendezvous

/// In place of the C library's in this program.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** list) {
    using regroup::rendezvous::NameServer;
    using regroup::rendezvous::real_getaddrinfo;
    if (name == nullptr || !std::string(name).ends_with(".test")) {
        return real_getaddrinfo(name, service, hints, list);
    }
    addrinfo* last = nullptr;
    *list = nullptr;
    for (const std::string& address : NameServer::instance().answer(name)) {
        addrinfo* found = nullptr;
        if (const int code = real_getaddrinfo(address.c_str(), service, hints, &found); code != 0) {
            return code;
        }
        (last == nullptr ? *list : last->ai_next) = found;
        last = found;
    }
    return last == nullptr ? EAI_NONAME : 0;
}
