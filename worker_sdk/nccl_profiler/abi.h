// SPDX-License-Identifier: Apache-2.0
//
// The binary interface between NCCL and a profiler plugin, versions 1 to 6, as far as it is used
// here. NCCL takes the table ncclProfiler_vN with the highest N that it knows. Version 1 came with
// NCCL 2.23, 2 with 2.24, 3 with 2.26, 4 with 2.27, 5 with 2.28 and 6 with 2.29.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regroup::nccl_profiler {

/// The kinds of events, one bit each. A plugin says which of them NCCL reports.
enum EventType : std::uint32_t {
    group_event = 1U << 0U,         ///< The operations of one kernel are enqueued.
    collective_event = 1U << 1U,    ///< A collective is enqueued.
    message_event = 1U << 2U,       ///< A send or a receive is enqueued.
    channel_event = 1U << 6U,       ///< Since 3: one channel of a kernel runs.
    group_call_event = 1U << 8U,    ///< Since 5: the program is in a group call.
    call_event = 1U << 9U,          ///< Since 5: the program calls a collective.
    message_call_event = 1U << 10U  ///< Since 5: the program calls a send or a receive.
};

/// NCCL looks at what init returns, and at no other result.
inline constexpr int kSuccess = 0;

/// The first fields of an event. The width of `type` differs.
template <class Type>
struct EventHead {
    Type type;
    void* parent;
    std::int32_t rank;
};

/// Versions 1 to 3. Version 1 has numbers where later ones have texts.
template <class Text>
struct CollectiveOf1 {
    const char* communicator_name;
    std::uint64_t communicator;
    std::uint64_t sequence;
    Text function;
    const void* input;
    void* output;
    std::size_t count;
    std::int32_t root;
    Text type;
};

template <class Text>
struct MessageOf1 {
    const char* communicator_name;
    std::uint64_t communicator;
    Text function;
    void* buffer;
    Text type;
    std::size_t count;
    std::int32_t peer;
};

struct CollectiveOf4 {
    std::uint64_t sequence;
    const char* function;
    const void* input;
    void* output;
    std::size_t count;
    std::int32_t root;
    const char* type;
    std::uint8_t channels;
    std::uint8_t warps;
    const char* algorithm;
    const char* protocol;
};

struct MessageOf4 {
    const char* function;
    void* buffer;
    const char* type;
    std::size_t count;
    std::int32_t peer;
    std::uint8_t channels;
};

/// The parent is the call of the program.
struct CollectiveOf5 {
    CollectiveOf4 common;
    void* group;  ///< The parent in version 4.
};

struct MessageOf5 {
    MessageOf4 common;
    void* group;
};

struct CallOf5 {
    const char* function;
    std::size_t count;
    const char* type;
    std::int32_t root;
    void* stream;
    bool is_captured;
};

struct MessageCallOf5 {
    const char* function;
    std::size_t count;
    const char* type;
    void* stream;
    bool is_captured;
};

template <class Text>
struct EventOf1 {
    EventHead<std::uint8_t> head;
    union {
        CollectiveOf1<Text> collective;
        MessageOf1<Text> message;
    };
};

struct EventOf4 {
    EventHead<std::uint8_t> head;
    union {
        CollectiveOf4 collective;
        MessageOf4 message;
    };
};

/// Versions 5 and 6.
struct EventOf5 {
    EventHead<std::uint64_t> head;
    union {
        CallOf5 call;
        MessageCallOf5 message_call;
        CollectiveOf5 collective;
        MessageOf5 message;
    };
};

template <class Init, class Event>
struct Table {
    const char* name;
    Init* init;
    int (*start_event)(void* context, void** handle, const Event* event);
    int (*stop_event)(void* handle);
    int (*record_state)(void* handle, int state, void* arguments);
    int (*finalize)(void* context);
};

/// The mask gets the events that the plugin wants. NCCL keeps one for all communicators.
using InitOf1 = int(void** context, int* mask);
using InitOf4 = int(void** context, int* mask, const char* name, std::uint64_t communicator,
                    int nodes, int ranks, int rank, void* log);
using InitOf5 = int(void** context, std::uint64_t communicator, int* mask, const char* name,
                    int nodes, int ranks, int rank, void* log);

using Early = EventOf1<std::uint8_t>;
using Textual = EventOf1<const char*>;

static_assert(sizeof(void*) == 8 && sizeof(EventHead<std::uint8_t>) == 24 &&
              sizeof(EventHead<std::uint64_t>) == 24);
static_assert(offsetof(Early, collective.communicator_name) == 24 &&
              offsetof(Early, collective.function) == 48 &&
              offsetof(Early, collective.count) == 72 && offsetof(Early, collective.root) == 80 &&
              offsetof(Early, collective.type) == 84);
static_assert(offsetof(Early, message.function) == 40 && offsetof(Early, message.type) == 56 &&
              offsetof(Early, message.count) == 64 && offsetof(Early, message.peer) == 72);
static_assert(offsetof(Textual, collective.function) == 48 &&
              offsetof(Textual, collective.count) == 72 &&
              offsetof(Textual, collective.type) == 88);
static_assert(offsetof(Textual, message.function) == 40 && offsetof(Textual, message.type) == 56 &&
              offsetof(Textual, message.count) == 64 && offsetof(Textual, message.peer) == 72);
static_assert(offsetof(EventOf4, collective.function) == 32 &&
              offsetof(EventOf4, collective.count) == 56 &&
              offsetof(EventOf4, collective.type) == 72 &&
              offsetof(EventOf4, collective.channels) == 80);
static_assert(offsetof(EventOf4, message.function) == 24 &&
              offsetof(EventOf4, message.type) == 40 && offsetof(EventOf4, message.count) == 48 &&
              offsetof(EventOf4, message.peer) == 56 && offsetof(EventOf4, message.channels) == 60);
static_assert(offsetof(EventOf5, collective.common.channels) == 80 &&
              offsetof(EventOf5, collective.group) == 104 &&
              offsetof(EventOf5, message.common.channels) == 60 &&
              offsetof(EventOf5, message.group) == 64);
static_assert(offsetof(EventOf5, call.function) == 24 && offsetof(EventOf5, call.count) == 32 &&
              offsetof(EventOf5, call.type) == 40 && offsetof(EventOf5, call.is_captured) == 64 &&
              offsetof(EventOf5, message_call.is_captured) == 56);
static_assert(sizeof(Table<InitOf1, Early>) == 48);

}  // namespace regroup::nccl_profiler
