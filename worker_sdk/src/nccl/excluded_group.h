// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <string>

namespace regroup::nccl {

/// What `new_group` gives a rank that is not in the new group.
class ExcludedGroup final : public ProcessGroup {
   public:
    /// `refusal` says who is in the group, and who this is.
    ExcludedGroup(std::uint32_t world_size, Device device, std::string refusal)
        : world_size_(world_size), device_(device), refusal_(std::move(refusal)) {}

    [[nodiscard]] std::uint32_t rank() const noexcept override { return kNotAMember; }
    [[nodiscard]] std::uint32_t world_size() const noexcept override { return world_size_; }
    [[nodiscard]] std::string_view backend() const noexcept override { return "nccl"; }
    [[nodiscard]] Device device() const noexcept override { return device_; }

    [[nodiscard]] Work all_reduce(TensorView, Reduction) override { refuse("all_reduce"); }
    [[nodiscard]] Work reduce(TensorView, Reduction, std::uint32_t) override { refuse("reduce"); }
    [[nodiscard]] Work reduce_scatter(ConstTensorView, TensorView, Reduction) override {
        refuse("reduce_scatter");
    }
    [[nodiscard]] Work broadcast(TensorView, std::uint32_t) override { refuse("broadcast"); }
    [[nodiscard]] Work all_gather(ConstTensorView, TensorView) override { refuse("all_gather"); }
    [[nodiscard]] Work gather(ConstTensorView, TensorView, std::uint32_t) override {
        refuse("gather");
    }
    [[nodiscard]] Work scatter(ConstTensorView, TensorView, std::uint32_t) override {
        refuse("scatter");
    }
    [[nodiscard]] Work all_to_all(ConstTensorView, TensorView) override { refuse("all_to_all"); }
    [[nodiscard]] Work barrier() override { refuse("barrier"); }
    [[nodiscard]] Work send(ConstTensorView, std::uint32_t, std::uint32_t) override {
        refuse("send");
    }
    [[nodiscard]] Work recv(TensorView, std::uint32_t, std::uint32_t) override { refuse("recv"); }
    [[nodiscard]] std::unique_ptr<ProcessGroup> new_group(const std::vector<std::uint32_t>&,
                                                          std::string_view) override {
        refuse("new_group");
    }
    [[nodiscard]] Buffer allocate(std::size_t) override { refuse("allocate"); }
    void abort(std::string_view) noexcept override {}

   private:
    [[noreturn]] void refuse(const char* operation) const {
        throw Error(Errc::invalid_argument, std::string(operation) + ": " + refusal_);
    }

    const std::uint32_t world_size_;
    const Device device_;
    const std::string refusal_;
};

}  // namespace regroup::nccl
