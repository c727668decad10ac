// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/worker_link/messages.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <map>
#include <utility>

#include "rendezvous/base/names.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/utf8.h"

namespace regroup::worker_link {

namespace {

// Escapes may double a text, and no message has more than one sentence and two names, so any
// message fits kMessageLimit.
constexpr std::size_t kSentenceBytesMax = 4096;
constexpr std::size_t kNameBytesMax = 512;
constexpr std::size_t kSecretDigits = 64;

bool are_modules(std::string_view text) {
    return std::ranges::all_of(split(text, ','), [](std::string_view word) {
        return !word.empty() && word.front() != '.' && word.back() != '.' &&
               std::ranges::all_of(word, [](unsigned char c) {
                   return std::isalnum(c) != 0 || c == '_' || c == '.';
               });
    });
}

Failure malformed(const std::string& what) {
    return {Errc::invalid_argument, "malformed message on the worker's socket: " + what};
}

/// Writes a message: its name, then one line for each field.
class Writer {
   public:
    explicit Writer(std::string_view name) : packet_(name) {}

    template <class Number>
        requires std::integral<Number> || std::floating_point<Number>
    void number(std::string_view key, Number value, bool /*required*/ = false) {
        char digits[64];
        const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), value);
        line(key, error == std::errc{} ? std::string_view(digits, end) : std::string_view("0"));
    }
    void flag(std::string_view key, bool value) { line(key, value ? "1" : "0"); }
    void name(std::string_view key, const std::string& value, bool /*required*/ = true) {
        line(key, beginning_of(value, kNameBytesMax));
    }
    void sentence(std::string_view key, const std::string& value) {
        line(key, beginning_of(value, kSentenceBytesMax));
    }
    void modules(std::string_view key, const std::string& value) {
        line(key, value.size() <= kModulesBytesMax
                      ? value
                      : value.substr(0, value.find_last_of(',', kModulesBytesMax)));
    }
    void kind(std::string_view key, FatalKind value) { line(key, to_string(value)); }
    void secret(std::string_view key, const std::string& value) {
        if (!value.empty()) {
            line(key, value);
        }
    }

    [[nodiscard]] std::string take() { return std::move(packet_); }

   private:
    void line(std::string_view key, std::string_view value) {
        packet_.append("\n").append(key).append("=");
        for (const char c : value) {
            if (c == '\n' || c == '\\') {
                packet_ += '\\';
            }
            packet_ += c == '\n' ? 'n' : c;
        }
    }

    std::string packet_;
};

/// Reads the fields of a packet and remembers the first malformed one.
class Reader {
   public:
    explicit Reader(std::string_view packet) {
        const std::size_t head = std::min(packet.find('\n'), packet.size());
        name_ = packet.substr(0, head);
        for (std::size_t at = head; at < packet.size();) {
            const std::size_t begin = at + 1;
            at = std::min(packet.find('\n', begin), packet.size());
            const std::string_view line = packet.substr(begin, at - begin);
            if (const std::size_t equals = line.find('='); equals != line.npos) {
                fields_[line.substr(0, equals)] = line.substr(equals + 1);
            }
        }
    }

    template <class Number>
        requires std::integral<Number> || std::floating_point<Number>
    void number(std::string_view key, Number& out, bool required = false) {
        const std::string_view* text = find(key, required);
        if (text == nullptr) {
            return;
        }
        Number value{};
        const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
        bool good = error == std::errc{} && end == text->data() + text->size();
        if constexpr (std::floating_point<Number>) {
            good = good && std::isfinite(value) && value >= 0;
        }
        if (!good) {
            complain(key, "is no number that fits");
            return;
        }
        out = value;
    }
    void flag(std::string_view key, bool& out) {
        if (const std::string_view* text = find(key, false)) {
            if (*text != "0" && *text != "1") {
                complain(key, "must be 0 or 1");
            }
            out = *text == "1";
        }
    }
    void name(std::string_view key, std::string& out, bool required = true) {
        if (const std::string_view* text = find(key, required)) {
            out = unescaped(*text);
            if ((out.empty() && required) || out.size() > kNameBytesMax) {
                complain(key, "must have 1 to " + std::to_string(kNameBytesMax) + " bytes");
            }
        }
    }
    void sentence(std::string_view key, std::string& out) {
        if (const std::string_view* text = find(key, false)) {
            out = beginning_of(unescaped(*text), kSentenceBytesMax);
        }
    }
    void modules(std::string_view key, std::string& out) {
        const std::string_view* text = find(key, true);
        if (text == nullptr) {
            return;
        }
        if (text->size() > kModulesBytesMax || !are_modules(*text)) {
            complain(key, "must be names of Python modules with commas between");
            return;
        }
        out = *text;
    }
    void kind(std::string_view key, FatalKind& out) {
        const std::string_view* text = find(key, true);
        const auto kind = text == nullptr ? std::nullopt : value_named<FatalKind>(*text);
        if (!kind) {
            complain(key, "has an unknown value");
        }
        out = kind.value_or(out);
    }
    void secret(std::string_view key, std::string& out) {
        const std::string_view* text = find(key, false);
        if (text == nullptr) {
            return;
        }
        if (text->size() != kSecretDigits ||
            text->find_first_not_of("0123456789abcdef") != text->npos) {
            complain(key, "must be " + std::to_string(kSecretDigits) + " hexadecimal digits");
            return;
        }
        out = *text;
    }
    void complain(std::string_view key, const std::string& what) {
        if (complaint_.empty()) {
            complaint_ = "field '" + std::string(key) + "' of " + std::string(name_) + " " + what;
        }
    }

    [[nodiscard]] std::string_view message_name() const { return name_; }
    [[nodiscard]] const std::string& complaint() const { return complaint_; }

   private:
    const std::string_view* find(std::string_view key, bool required) {
        const auto found = fields_.find(key);
        if (found == fields_.end()) {
            if (required) {
                complain(key, "is missing");
            }
            return nullptr;
        }
        return &found->second;
    }

    static std::string unescaped(std::string_view text) {
        std::string out;
        out.reserve(text.size());
        for (std::size_t i = 0; i < text.size(); ++i) {
            const bool escape = text[i] == '\\' && i + 1 < text.size();
            const char c = escape ? text[++i] : text[i];
            out += escape && c == 'n' ? '\n' : c;
        }
        return out;
    }

    std::string_view name_;
    std::map<std::string_view, std::string_view> fields_;
    std::string complaint_;
};

// ---- One definition of each message for reading and writing: `M` is const for writing.

template <class M, class T>
concept Is = std::same_as<std::remove_const_t<M>, T>;

template <class Visitor, class M>
void visit_fields(Visitor& fields, M& m) {
    if constexpr (Is<M, Hello>) {
        fields.name("worker_id", m.worker_id);
        fields.number("version", m.version, true);
        fields.flag("elastic", m.elastic);
        fields.flag("stops", m.stops);
    } else if constexpr (Is<M, Suspended>) {
        fields.number("round", m.round, true);
        fields.number("step", m.step);
        fields.flag("at_boundary", m.at_boundary);
    } else if constexpr (Is<M, Resumed>) {
        fields.number("round", m.round, true);
        fields.number("step", m.step, true);
        fields.number("communicator_ms", m.communicator_ms);
        fields.number("state_ms", m.state_ms);
        fields.number("first_step_ms", m.first_step_ms);
    } else if constexpr (Is<M, Fatal>) {
        fields.kind("kind", m.kind);
        fields.sentence("text", m.text);
    } else if constexpr (Is<M, Remark>) {
        fields.sentence("text", m.text);
    } else if constexpr (Is<M, PeerLost>) {
        fields.number("round", m.round, true);
        fields.number("peer", m.peer, true);
        fields.sentence("text", m.text);
    } else if constexpr (Is<M, RecordsSaved>) {
        fields.number("files", m.files);
        fields.sentence("complaint", m.complaint);
    } else if constexpr (Is<M, Imports>) {
        fields.modules("modules", m.modules);
    } else if constexpr (Is<M, OpenSnapshots>) {
        static_cast<void>(fields);
    } else if constexpr (Is<M, SnapshotsOpened>) {
        fields.sentence("error", m.error);
    } else if constexpr (Is<M, SaveRecords>) {
        fields.sentence("prefix", m.prefix);
    } else if constexpr (Is<M, AssignWorker>) {
        visit_place(
            [&](const PlaceFact& fact, auto& value) {
                if constexpr (std::integral<std::remove_cvref_t<decltype(value)>>) {
                    fields.number(fact.field, value, !fact.is(PlaceFact::kOptional));
                } else {
                    fields.name(fact.field, value, !fact.is(PlaceFact::kOptional));
                }
            },
            m.place);
        fields.secret("round_key", m.round_key);
        fields.sentence("reason", m.reason);
    } else if constexpr (Is<M, EndRound>) {
        fields.number("round", m.round, true);
        fields.sentence("reason", m.reason);
    } else if constexpr (Is<M, Pause>) {
        fields.number("round", m.round, true);
        fields.flag("leave", m.leave);
        fields.number("limit_ms", m.limit_ms);
        fields.sentence("reason", m.reason);
    } else {
        static_assert(Is<M, Welcome>);
        fields.number("round", m.round);
        fields.secret("round_key", m.key);
    }
}

void check_relations(Reader& reader, const AssignWorker& m) {
    const auto below = [&](const char* rank, std::uint32_t value, const char* size,
                           std::uint32_t bound) {
        if (value >= bound) {
            reader.complain(rank, std::string("must be below ") + size);
        }
    };
    below("rank", m.place.rank, "world_size", m.place.world_size);
    below("local_rank", m.place.local_rank, "local_world_size", m.place.local_world_size);
    below("group_rank", m.place.group_rank, "group_world_size", m.place.group_world_size);
}
template <class M>
void check_relations(Reader& /*reader*/, const M& /*message*/) {}

template <class Variant>
std::string encode_any(const Variant& message) {
    return std::visit(
        [](const auto& m) {
            Writer writer(m.kName);
            visit_fields(writer, m);
            return writer.take();
        },
        message);
}

template <class Variant, std::size_t I = 0>
Result<Variant> decode_any(std::string_view packet) {
    if (packet.size() > kMessageLimit) {
        return malformed("longer than " + std::to_string(kMessageLimit) + " bytes");
    }
    if constexpr (I == std::variant_size_v<Variant>) {
        // The text may end up on a terminal, so only its size is reported.
        return malformed("unknown name, in a message of " + std::to_string(packet.size()) +
                         " bytes");
    } else {
        using Message = std::variant_alternative_t<I, Variant>;
        Reader reader(packet);
        if (reader.message_name() != Message::kName) {
            return decode_any<Variant, I + 1>(packet);
        }
        Message message;
        visit_fields(reader, message);
        check_relations(reader, message);
        if (!reader.complaint().empty()) {
            return malformed(reader.complaint());
        }
        return Variant(std::move(message));
    }
}

}  // namespace

std::string_view to_string(FatalKind kind) noexcept {
    return name_in({"user_error", "retry", "bad_node", "error"}, kind);
}

std::string encode(const FromWorker& message) {
    return encode_any(message);
}

std::string encode(const ToWorker& message) {
    return encode_any(message);
}

Result<FromWorker> decode_from_worker(std::string_view packet) {
    return decode_any<FromWorker>(packet);
}

Result<ToWorker> decode_to_worker(std::string_view packet) {
    return decode_any<ToWorker>(packet);
}

}  // namespace regroup::worker_link
