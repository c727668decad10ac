#include "tests/chaos/worker.h"
namespace regroup::chaos {
int train_in_place(Job&) {
    return 9;
}
}  // namespace regroup::chaos
