// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/answer_parts.h"

#include <utility>

namespace regroup::rendezvous {

std::optional<Operated> AnswerParts::take(Operated part) {
    if (text_.size() + part.text.size() <= kBytesMax) {
        text_ += part.text;
    }
    if (part.more) {
        return std::nullopt;
    }
    part.text = std::exchange(text_, "");
    return part;
}

}  // namespace regroup::rendezvous
