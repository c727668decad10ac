// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/step_log.h"

#include <span>

namespace regroup::chaos {

namespace {

constexpr const char* kStepExtension = ".steps";

}  // namespace

StepLog::StepLog(const std::string& directory) : file_(directory, kStepExtension) {}

void StepLog::write(Record record) {
    record.at = monotonic_ns();
    file_.append(std::as_bytes(std::span(&record, 1)));
}

std::vector<ProcessLog> read_step_logs(const std::string& directory) {
    return read_records<Record>(directory, kStepExtension);
}

}  // namespace regroup::chaos
