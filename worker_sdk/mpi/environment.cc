// SPDX-License-Identifier: Apache-2.0
// mpi.h: start and end, questions.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <time.h>
#include <unistd.h>

#include "worker_sdk/mpi/datatype.h"
#include "worker_sdk/mpi/session.h"

namespace regroup::mpi {
namespace {

constexpr int kExitCodeMost = 255;
constexpr double kTickSeconds = 1e-9;

/// Fills a text of MPI, whose length excludes the zero at its end.
void give_text(const std::string& text, std::size_t bytes_max, char* out, int* length) {
    require_pointer(out, "to the text");
    require_pointer(length, "to the length");
    const std::size_t bytes = std::min(text.size(), bytes_max - 1);
    std::memcpy(out, text.data(), bytes);
    out[bytes] = '\0';
    *length = static_cast<int>(bytes);
}

/// By code.
constexpr std::array kErrors = {
    "no error",     "invalid buffer",       "invalid count",    "invalid datatype",
    "invalid tag",  "invalid communicator", "invalid rank",     "invalid request",
    "invalid root", "invalid operation",    "invalid argument", "communication failed",
};
static_assert(kErrors.size() == MPI_ERR_LASTCODE);

const char* describe(int code) {
    return code >= 0 && code < MPI_ERR_LASTCODE ? kErrors[static_cast<std::size_t>(code)]
                                                : "unknown error";
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
