// SPDX-License-Identifier: Apache-2.0
// mpi.h: start and end, questions, communicators.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <time.h>
#include <unistd.h>
#include <utility>

#include "worker_sdk/mpi/datatype.h"
#include "worker_sdk/mpi/session.h"

namespace regroup::mpi {
namespace {

constexpr int kExitCodeMost = 255;
constexpr double kTickSeconds = 1e-9;

struct ColorAndKey {
    std::int32_t color = 0;
    std::int32_t key = 0;
};

/// The choices of all ranks of the communicator, by rank.
std::vector<ColorAndKey> exchange(const Communicator& communicator, ColorAndKey own) {
    std::vector<ColorAndKey> all(communicator.group->world_size());
    communicator.group
        ->all_gather({&own, sizeof own, DType::uint8},
                     {all.data(), all.size() * sizeof own, DType::uint8})
        .wait();
    return all;
}

/// Splits a communicator into one part for each colour; this rank is in one part or none. All ranks
/// form all parts together, in the order of the colours.
MPI_Comm split(Communicator& whole, ColorAndKey own) {
    const std::vector<ColorAndKey> all = exchange(whole, own);
    std::map<std::int32_t, std::vector<std::uint32_t>> parts;
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].color != MPI_UNDEFINED) {
            parts[all[rank].color].push_back(rank);
        }
    }
    MPI_Comm mine = MPI_COMM_NULL;
    for (auto& [color, ranks] : parts) {
        std::sort(ranks.begin(), ranks.end(), [&](std::uint32_t left, std::uint32_t right) {
            return std::pair(all[left].key, left) < std::pair(all[right].key, right);
        });
        auto part = std::make_unique<Communicator>();
        part->name = whole.name + "/" + std::to_string(whole.children++);
        part->errors_return = whole.errors_return;
        part->group = whole.group->new_group(ranks, part->name);
        if (color == own.color) {
            mine = session().add(std::move(part));
        }
    }
    return mine;
}

/// Fills a text of MPI, whose length excludes the zero at its end.
void give_text(const std::string& text, std::size_t bytes_max, char* out, int* length) {
    require_pointer(out, "to the text");
    require_pointer(length, "to the length");
    const std::size_t bytes = std::min(text.size(), bytes_max - 1);
    std::memcpy(out, text.data(), bytes);
    out[bytes] = '\0';
    *length = static_cast<int>(bytes);
}

template <class T>
void give(T value, T* out, const char* name) {
    require_pointer(out, name);
    *out = value;
}

const char* describe(int code) {
    switch (code) {
        case MPI_SUCCESS:
            return "no error";
        case MPI_ERR_BUFFER:
            return "invalid buffer";
        case MPI_ERR_COUNT:
            return "invalid count";
        case MPI_ERR_TYPE:
            return "invalid datatype";
        case MPI_ERR_TAG:
            return "invalid tag";
        case MPI_ERR_COMM:
            return "invalid communicator";
        case MPI_ERR_RANK:
            return "invalid rank";
        case MPI_ERR_REQUEST:
            return "invalid request";
        case MPI_ERR_ROOT:
            return "invalid root";
        case MPI_ERR_OP:
            return "invalid operation";
        case MPI_ERR_ARG:
            return "invalid argument";
        case MPI_ERR_OTHER:
            return "communication failed";
        default:
            return "unknown error";
    }
}

}  // namespace
}  // namespace regroup::mpi

using namespace regroup::mpi;

int MPI_Init(int* /*argc*/, char*** /*argv*/) {
    return carry_out(__func__, [] { begin_session(); });
}

int MPI_Init_thread(int* /*argc*/, char*** /*argv*/, int required, int* provided) {
    return carry_out(__func__, [&] {
        begin_session();
        give(std::clamp<int>(required, MPI_THREAD_SINGLE, MPI_THREAD_SERIALIZED), provided,
             "provided");
    });
}

int MPI_Query_thread(int* provided) {
    return carry_out(__func__, [&] { give<int>(MPI_THREAD_SERIALIZED, provided, "provided"); });
}

int MPI_Initialized(int* flag) {
    return carry_out(__func__, [&] { give(stage() == Stage::before ? 0 : 1, flag, "flag"); });
}

int MPI_Finalized(int* flag) {
    return carry_out(__func__, [&] { give(stage() == Stage::after ? 1 : 0, flag, "flag"); });
}

int MPI_Finalize() {
    return carry_out(__func__, [] { end_session(); });
}

int MPI_Abort(MPI_Comm /*comm*/, int code) {
    // A status of 0 would pass for success.
    const int status = code >= 1 && code <= kExitCodeMost ? code : EXIT_FAILURE;
    end_process("MPI_Abort was called with code " + std::to_string(code), status);
}

int MPI_Get_version(int* version, int* subversion) {
    return carry_out(__func__, [&] {
        give<int>(MPI_VERSION, version, "version");
        give<int>(MPI_SUBVERSION, subversion, "subversion");
    });
}

int MPI_Get_library_version(char* version, int* length) {
    return carry_out(__func__, [&] {
        give_text("regroup: the part of MPI that GPU programs start with",
                  MPI_MAX_LIBRARY_VERSION_STRING, version, length);
    });
}

int MPI_Get_processor_name(char* name, int* length) {
    return carry_out(__func__, [&] {
        std::string host(MPI_MAX_PROCESSOR_NAME, '\0');
        (void)::gethostname(host.data(), host.size() - 1);
        give_text(host.c_str(), MPI_MAX_PROCESSOR_NAME, name, length);
    });
}

int MPI_Error_string(int code, char* text, int* length) {
    return carry_out(__func__, [&] {
        const std::string& sentence = last_sentence();
        give_text(code == MPI_SUCCESS || sentence.empty() ? describe(code) : sentence,
                  MPI_MAX_ERROR_STRING, text, length);
    });
}

int MPI_Error_class(int code, int* error_class) {
    return carry_out(__func__, [&] { give(code, error_class, "error_class"); });
}

double MPI_Wtime() {
    timespec now{};
    (void)::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * kTickSeconds;
}

double MPI_Wtick() {
    return kTickSeconds;
}

int MPI_Type_size(MPI_Datatype type, int* bytes) {
    return carry_out(__func__,
                     [&] { give(static_cast<int>(datatype_of(type).bytes), bytes, "bytes"); });
}

int MPI_Comm_rank(MPI_Comm comm, int* rank) {
    return carry_out(__func__, comm, [&] {
        give(static_cast<int>(session().communicator(comm).group->rank()), rank, "rank");
    });
}

int MPI_Comm_size(MPI_Comm comm, int* ranks) {
    return carry_out(__func__, comm, [&] {
        give(static_cast<int>(session().communicator(comm).group->world_size()), ranks, "ranks");
    });
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* copy) {
    return carry_out(__func__, comm, [&] {
        require_pointer(copy, "copy");
        Communicator& whole = session().communicator(comm);
        *copy = split(whole, {0, 0});
    });
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* part) {
    return carry_out(__func__, comm, [&] {
        require_pointer(part, "part");
        if (color < 0 && color != MPI_UNDEFINED) {
            throw CallError(MPI_ERR_ARG, "the color " + std::to_string(color) +
                                             " is neither MPI_UNDEFINED nor at least 0");
        }
        *part = split(session().communicator(comm), {color, key});
    });
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info /*info*/, MPI_Comm* part) {
    return carry_out(__func__, comm, [&] {
        require_pointer(part, "part");
        if (type != MPI_COMM_TYPE_SHARED && type != MPI_UNDEFINED) {
            throw CallError(MPI_ERR_ARG, "only MPI_COMM_TYPE_SHARED is supported");
        }
        const auto node = static_cast<std::int32_t>(session().context().group_rank);
        *part = split(session().communicator(comm),
                      {type == MPI_UNDEFINED ? MPI_UNDEFINED : node, key});
    });
}

int MPI_Comm_free(MPI_Comm* comm) {
    return carry_out(__func__, comm != nullptr ? *comm : MPI_COMM_NULL, [&] {
        require_pointer(comm, "comm");
        session().free(*comm);
        *comm = MPI_COMM_NULL;
    });
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
    return carry_out(__func__, comm, [&] {
        if (handler != MPI_ERRORS_RETURN && handler != MPI_ERRORS_ARE_FATAL) {
            throw CallError(MPI_ERR_ARG,
                            "only MPI_ERRORS_ARE_FATAL and MPI_ERRORS_RETURN are supported");
        }
        session().communicator(comm).errors_return = handler == MPI_ERRORS_RETURN;
    });
}
