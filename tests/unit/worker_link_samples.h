// SPDX-License-Identifier: Apache-2.0
// One of each message between an agent and a worker.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/worker_link/messages.h"

namespace regroup::worker_link {

inline AssignWorker sample_assign() {
    AssignWorker assign;
    assign.place.round = 7;
    assign.place.job = "nightly=1";
    assign.place.rank = 13;
    assign.place.world_size = 16;
    assign.place.local_rank = 5;
    assign.place.local_world_size = 8;
    assign.place.group_rank = 1;
    assign.place.group_world_size = 2;
    assign.place.role_rank = 3;
    assign.place.role_world_size = 6;
    assign.place.restart_count = 3;
    assign.place.max_restarts = 4;
    assign.place.master_addr = "10.0.0.4";
    assign.place.master_port = 40117;
    assign.round_key = std::string(64, 'a');
    assign.place.master_node_addr = "10.0.0.4";
    assign.reason = "rank 5 on b ended by SIGKILL;\nstandby \\d took slot 1";
    return assign;
}

inline std::vector<FromWorker> samples_from_worker() {
    return {Hello{"9f3c01aa", 2, true, true},  Suspended{6, 812, true},
            Resumed{7, 813, 1.25, 0.5, 12.75}, Fatal{FatalKind::bad_node, "ECC error on GPU 3"},
            Remark{"rank 3 is slow\n"},        PeerLost{7, 12, "closed the connection"},
            RecordsSaved{2, "disk full"},      Imports{"torch,torch._dynamo,numpy"}};
}

inline std::vector<ToWorker> samples_to_worker() {
    return {Welcome{},
            Welcome{7, std::string(64, 'f')},
            sample_assign(),
            EndRound{7, "node c is lost"},
            Pause{7, true, 30000, "drain"},
            SaveRecords{"/runs/a b/rank3"}};
}

}  // namespace regroup::worker_link
