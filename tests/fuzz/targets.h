// SPDX-License-Identifier: Apache-2.0
//
// Every fuzz target.
#pragma once

#include "tests/fuzz/fuzz.h"

// clang-format off
namespace regroup::fuzz_agent_core { fuzz::Target target(); }
namespace regroup::fuzz_checkpoint { fuzz::Target target(); }
namespace regroup::fuzz_control_protocol { fuzz::Target target(); }
namespace regroup::fuzz_daemon { fuzz::Target target(); }
namespace regroup::fuzz_etcd_replies { fuzz::Target target(); }
namespace regroup::fuzz_explain { fuzz::Target target(); }
namespace regroup::fuzz_first_bytes { fuzz::Target target(); }
namespace regroup::fuzz_flag_values { fuzz::Target target(); }
namespace regroup::fuzz_hello { fuzz::Target target(); }
namespace regroup::fuzz_host_list { fuzz::Target target(); }
namespace regroup::fuzz_http { fuzz::Target target(); }
namespace regroup::fuzz_job_table { fuzz::Target target(); }
namespace regroup::fuzz_journal { fuzz::Target target(); }
namespace regroup::fuzz_relay_frames { fuzz::Target target(); }
namespace regroup::fuzz_rendezvous_core { fuzz::Target target(); }
namespace regroup::fuzz_snapshot { fuzz::Target target(); }
namespace regroup::fuzz_ssh_launch { fuzz::Target target(); }
namespace regroup::fuzz_store { fuzz::Target target(); }
namespace regroup::fuzz_worker_link { fuzz::Target target(); }
namespace regroup::fuzz_worker_wire { fuzz::Target target(); }
// clang-format on
