// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace regroup::rendezvous {

/// Appends JSON to a text as it goes, without a tree of values: the status of a large job is
/// written while all jobs wait. The caller keeps to the grammar; commas are added. Pure.
class JsonWriter {
   public:
    /// `out` outlives the writer.
    explicit JsonWriter(std::string& out) : out_(out) {}

    void begin_object() { open('{'); }
    void end_object() { out_ += '}'; }
    void begin_array() { open('['); }
    void end_array() { out_ += ']'; }
    /// The name of the next value of an object: printable ASCII without quotes.
    void key(std::string_view name);

    /// Bytes that are no UTF-8 are replaced; see also printable_json().
    void value(std::string_view text);
    void value(const char* text) { value(std::string_view(text)); }
    void value(bool flag);
    /// null, if it is not finite.
    void value(double number);
    void value(std::unsigned_integral auto number) { integer(std::uint64_t{number}); }
    void value(std::signed_integral auto number) { integer(std::int64_t{number}); }
    /// A value that is JSON already.
    void json(std::string_view text);

    template <class Value>
    void field(std::string_view name, const Value& its) {
        key(name);
        value(its);
    }

   private:
    void open(char bracket);
    void separate();
    void integer(std::uint64_t number);
    void integer(std::int64_t number);

    std::string& out_;
};

}  // namespace regroup::rendezvous
