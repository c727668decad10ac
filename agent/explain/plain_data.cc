// SPDX-License-Identifier: Apache-2.0
#include "agent/explain/plain_data.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/explain/pickle.h"

namespace regroup::agent {
namespace {

using nlohmann::json;

constexpr std::size_t kNestingMax = 64;
/// Of a row, with all that is no row.
constexpr std::size_t kRowBytesMax = std::size_t{4} << 20U;
/// Of all values together, which bounds the time: a pickle names a value again in a byte or two. So
/// many bytes of a text count as one more.
constexpr std::size_t kPassedMax = 5'000'000;
constexpr std::size_t kBytesOfPassed = 64;
// About what the allocator gives for them.
constexpr std::size_t kBytesOfItem = 32;
constexpr std::size_t kBytesOfMember = 112;

/// Builds the values that a parser passes, and takes the rows out again.
class Builder final : public nlohmann::json_sax<json> {
   public:
    Builder(std::string_view rows, const TakeRow& take) : rows_(rows), take_(take) {}

    bool null() override { return put(nullptr, 0); }
    bool boolean(bool value) override { return put(value, 0); }
    bool number_integer(number_integer_t value) override { return put(value, 0); }
    bool number_unsigned(number_unsigned_t value) override { return put(value, 0); }
    bool number_float(number_float_t value, const string_t& /*text*/) override {
        return put(value, 0);
    }
    bool string(string_t& value) override {
        const std::size_t bytes = value.size();
        return put(std::move(value), bytes);
    }
    bool binary(binary_t& /*value*/) override { return false; }
    bool start_object(std::size_t /*members*/) override { return open(json::object()); }
    bool key(string_t& value) override {
        key_ = std::move(value);
        return true;
    }
    bool end_object() override { return close(); }
    bool start_array(std::size_t /*items*/) override { return open(json::array()); }
    bool end_array() override { return close(); }
    bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                     const nlohmann::detail::exception& /*error*/) override {
        return refuse("it is neither JSON nor a pickle, or is cut off");
    }

    [[nodiscard]] const std::optional<Failure>& failure() const { return failure_; }
    [[nodiscard]] json take_result() { return std::move(result_); }

   private:
    bool refuse(const std::string& why) {
        failure_ = invalid_argument(why);
        return false;
    }

    /// Where the value is then; nullptr if it is refused.
    json* place(json value, std::size_t text_bytes) {
        const bool is_member = !open_.empty() && open_.back()->is_object();
        const std::size_t bytes =
            text_bytes + (is_member ? kBytesOfMember + key_.size() : kBytesOfItem);
        held_ += bytes;
        passed_ += 1 + text_bytes / kBytesOfPassed;
        if (held_ > kRowBytesMax || passed_ > kPassedMax) {
            refuse("it has too many values");
            return nullptr;
        }
        if (open_.empty()) {
            result_ = std::move(value);
            return &result_;
        }
        json& parent = *open_.back();
        return is_member ? &(parent[key_] = std::move(value))
                         : &parent.emplace_back(std::move(value));
    }
    bool put(json value, std::size_t text_bytes) {
        return place(std::move(value), text_bytes) != nullptr && take_row();
    }
    bool open(json container) {
        if (open_.size() == kNestingMax) {
            return refuse("its values are too deep in each other");
        }
        const bool is_list = container.is_array();
        json* const opened = place(std::move(container), 0);
        if (opened == nullptr) {
            return false;
        }
        if (open_.size() == 1 && is_list && open_.back()->is_object() && key_ == rows_) {
            in_rows_ = true;
            held_beside_rows_ = held_;
        }
        open_.push_back(opened);
        return true;
    }
    bool close() {
        open_.pop_back();
        in_rows_ = in_rows_ && open_.size() > 1;
        return take_row();
    }
    /// After each value: if it is a row, it is complete.
    bool take_row() {
        if (!in_rows_ || open_.size() != 2) {
            return true;
        }
        auto& rows = open_.back()->get_ref<json::array_t&>();
        if (const Result<void> taken = take_(rows.back()); !taken) {
            failure_ = taken.error();
            return false;
        }
        rows.pop_back();
        held_ = held_beside_rows_;
        return true;
    }

    const std::string_view rows_;
    const TakeRow& take_;
    json result_;
    std::vector<json*> open_;  ///< The containers that are not complete, outermost first.
    std::string key_;          ///< Of the next value in a dictionary.
    bool in_rows_ = false;
    std::size_t held_ = 0;
    std::size_t held_beside_rows_ = 0;
    std::size_t passed_ = 0;
    std::optional<Failure> failure_;
};

}  // namespace

Result<json> read_plain_data(std::string_view bytes, std::string_view rows, const TakeRow& take) {
    constexpr char kPickle = '\x80';
    if (bytes.size() > kFileBytesMax) {
        return invalid_argument("it has more than 10 MiB");
    }
    Builder builder(rows, take);
    if (!bytes.empty() && bytes.front() == kPickle) {
        const Result<void> read = read_pickle(bytes, builder);
        if (!read && !builder.failure()) {
            return read.error();
        }
    } else {
        json::sax_parse(bytes.begin(), bytes.end(), &builder);
    }
    if (builder.failure()) {
        return *builder.failure();
    }
    return builder.take_result();
}

}  // namespace regroup::agent
