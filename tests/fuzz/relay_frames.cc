// SPDX-License-Identifier: Apache-2.0
//
// The frames of two agents that carry the store connections of their workers. The pieces do not
// depend on how the bytes arrive, and frames are read as they were written.
#include <algorithm>

#include "rendezvous/store_relay/mux_frame.h"
#include "tests/fuzz/fuzz.h"

namespace regroup::fuzz_relay_frames {
namespace {

using namespace regroup::store;

/// The frames written again, with the bytes of a data frame in one piece. `refused`: the peer broke
/// the protocol.
struct Outcome {
    std::string frames;
    bool refused = false;
};

class Rewriter {
   public:
    void take(std::string_view bytes) {
        while (!outcome_.refused) {
            const Result<std::optional<MuxPiece>> piece = reader_.next(bytes);
            if (!piece) {
                outcome_.refused = true;
                return;
            }
            if (!*piece) {
                fuzz::require(bytes.empty(), "the reader waits for bytes only without any");
                return;
            }
            if ((*piece)->kind != MuxKind::data) {
                append_mux(outcome_.frames, (*piece)->channel, (*piece)->kind);
                continue;
            }
            fuzz::require(!(*piece)->bytes.empty() && (*piece)->bytes.size() <= kMuxBytesMax,
                          "a piece of data has bytes");
            for (const char c : (*piece)->bytes) {  // In any segmentation the same.
                append_mux_data(outcome_.frames, (*piece)->channel, {&c, 1});
            }
        }
    }
    [[nodiscard]] const Outcome& outcome() const { return outcome_; }

   private:
    MuxReader reader_;
    Outcome outcome_;
};

std::vector<std::string> seeds() {
    std::string frames(1, '\3');
    append_mux(frames, 1, MuxKind::open);
    append_mux_data(frames, 1, "a request");
    append_mux(frames, 2, MuxKind::open);
    append_mux_data(frames, 2, "another");
    append_mux(frames, 1, MuxKind::close);
    return {frames};
}

void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    const std::size_t step = 1 + input.below(20);
    const std::string_view all = input.bytes(count);
    Rewriter whole;
    whole.take(all);
    Rewriter parts;
    for (std::size_t at = 0; at < all.size(); at += step) {
        parts.take(all.substr(at, step));
    }
    fuzz::require(whole.outcome().frames == parts.outcome().frames &&
                      whole.outcome().refused == parts.outcome().refused,
                  "the pieces do not depend on how the bytes arrive");
    Rewriter again;
    again.take(whole.outcome().frames);
    fuzz::require(!again.outcome().refused && again.outcome().frames == whole.outcome().frames,
                  "frames are read as they are written");
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_relay_frames
