// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel for modules of libtorch, PyTorch's C++ library, release 1.13 and newer.
// Header only, and no part of <regroup/regroup.h>: the program that includes it links libtorch.
#pragma once

#include <regroup/distributed_data_parallel.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <unordered_set>
#include <utility>
#include <vector>

namespace regroup::torch {

/// The view of a contiguous tensor. Throws Error `invalid_argument` naming `what` if the tensor is
/// not contiguous, is neither on the CPU nor on a GPU, or has a type that groups do not know.
[[nodiscard]] inline TensorView view_of(const at::Tensor& tensor, const std::string& what);

namespace detail {

[[noreturn]] inline void refuse(const std::string& detail) {
    throw Error(Errc::invalid_argument, "data parallel: " + detail);
}

inline DType dtype_of(const at::Tensor& tensor, const std::string& what) {
    switch (tensor.scalar_type()) {
        case at::kFloat:
            return DType::float32;
        case at::kDouble:
            return DType::float64;
        case at::kHalf:
            return DType::float16;
        case at::kBFloat16:
            return DType::bfloat16;
        case at::kInt:
            return DType::int32;
        case at::kLong:
            return DType::int64;
        case at::kByte:
        case at::kBool:
            return DType::uint8;
        case at::kChar:
            return DType::int8;
        default:
            refuse(what + " is of type " + at::toString(tensor.scalar_type()) +
                   ", which process groups do not know");
    }
}

/// The state of one wrapped module. The hooks in the graph hold it weakly, since they may live
/// longer.
class State : public std::enable_shared_from_this<State> {
   public:
    State(ProcessGroup& group, std::vector<at::Tensor> parameters,
          const std::vector<at::Tensor>& buffers, const DataParallelOptions& options)
        : parameters_(std::move(parameters)),
          ddp_(group, parameter_views(parameters_), buffer_views(buffers), options) {
        fetch_views();
    }

    /// Installs the hooks that autograd calls when a gradient has been accumulated.
    void install_hooks() {
        for (std::size_t index = 0; index < parameters_.size(); ++index) {
            // A parameter holds its accumulator weakly: this pointer keeps it and its hook alive.
            accumulators_.push_back(::torch::autograd::impl::grad_accumulator(parameters_[index]));
            accumulators_.back()->add_post_hook(std::make_unique<Hook>(weak_from_this(), index));
        }
    }

    [[nodiscard]] regroup::DistributedDataParallel& ddp() noexcept { return ddp_; }

   private:
    /// The kind of pointer depends on the release of libtorch.
    using NodePointer = decltype(::torch::autograd::impl::grad_accumulator(at::Tensor()));

    struct Hook final : ::torch::autograd::FunctionPostHook {
        Hook(std::weak_ptr<State> state_in, std::size_t index_in)
            : state(std::move(state_in)), index(index_in) {}

        ::torch::autograd::variable_list operator()(
            const ::torch::autograd::variable_list& outputs,
            const ::torch::autograd::variable_list& /*inputs*/) override {
            if (const auto alive = state.lock()) {
                alive->gradient_accumulated(index);
            }
            return outputs;
        }

        std::weak_ptr<State> state;
        std::size_t index;
    };

    /// Held by the queued call of backward_ended. A backward pass that ends in an exception drops
    /// the call and this object with it.
    struct Finish {};

    static std::vector<Parameter> parameter_views(const std::vector<at::Tensor>& tensors) {
        std::vector<Parameter> views;
        for (const at::Tensor& tensor : tensors) {
            views.push_back({view_of(tensor, "parameter " + std::to_string(views.size()))});
        }
        return views;
    }

    static std::vector<TensorView> buffer_views(const std::vector<at::Tensor>& tensors) {
        std::vector<TensorView> views;
        for (const at::Tensor& tensor : tensors) {
            views.push_back(view_of(tensor, "buffer " + std::to_string(views.size())));
        }
        return views;
    }

    /// Creates tensors over the places of the gradients, which keep the memory alive.
    void fetch_views() {
        gradients_.clear();
        for (std::size_t index = 0; index < parameters_.size(); ++index) {
            const at::Tensor& parameter = parameters_[index];
            gradients_.push_back(at::from_blob(
                ddp_.gradient(index).data, parameter.sizes(),
                [memory = ddp_.gradient_memory()](void* /*data*/) {},
                at::TensorOptions().dtype(parameter.dtype()).device(parameter.device())));
        }
    }

    void gradient_accumulated(std::size_t index) {
        const at::NoGradGuard no_grad;
        adopt_gradient(index);
        if (finish_.expired()) {
            const auto finish = std::make_shared<Finish>();
            finish_ = finish;
            ::torch::autograd::Engine::get_default_engine().queue_callback(
                [self = weak_from_this(), finish] {
                    if (const auto alive = self.lock()) {
                        alive->backward_ended();
                    }
                });
        }
        ddp_.gradient_ready(index);
    }

    /// Replaces the tensor that autograd has created if `.grad()` was empty.
    void adopt_gradient(std::size_t index) {
        at::Tensor& gradient = parameters_[index].mutable_grad();
        if (gradient.data_ptr() != gradients_[index].data_ptr()) {
            gradients_[index].copy_(gradient);
            gradient = gradients_[index];
        }
    }

    void backward_ended() {
        finish_.reset();
        const std::uint64_t step = ddp_.statistics().step;
        ddp_.finish_step();
        if (ddp_.statistics().step == step) {
            return;  // no_sync
        }
        for (std::size_t index = 0; index < parameters_.size(); ++index) {
            if (ddp_.was_used(index)) {
                parameters_[index].mutable_grad() = gradients_[index];
            }
        }
    }

    std::vector<at::Tensor> parameters_;  // Only those that require a gradient.
    regroup::DistributedDataParallel ddp_;
    std::vector<at::Tensor> gradients_;  // By parameter.
    std::vector<NodePointer> accumulators_;
    std::weak_ptr<Finish> finish_;
};

}  // namespace detail

inline TensorView view_of(const at::Tensor& tensor, const std::string& what) {
    if (!tensor.is_contiguous()) {
        detail::refuse(what + " is not contiguous: call contiguous() on it first");
    }
    if (!tensor.device().is_cpu() && !tensor.device().is_cuda()) {
        detail::refuse(what + " is on " + tensor.device().str() + ", not on the CPU or a GPU");
    }
    Device device;
    if (tensor.device().is_cuda()) {
        device = {DeviceKind::cuda, tensor.device().index()};
    }
    return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
            detail::dtype_of(tensor, what), device};
}

/// The defaults of the SDK, except that each step ends with a broadcast of the buffers of rank 0,
/// as in PyTorch.
[[nodiscard]] inline DataParallelOptions default_options() {
    DataParallelOptions options;
    options.broadcast_buffers_each_step = true;
    return options;
}

/// A module whose replicas stay identical: regroup::DistributedDataParallel connected to autograd.
///
///     torch::nn::Linear net(16, 4);
///     torch::optim::SGD optimizer(net->parameters(), 0.1);
///     regroup::torch::DistributedDataParallel ddp(net, group);
///     for (int step = 0; step < 100; ++step) {
///         const at::Tensor input = at::randn({24, 16});
///         const at::Tensor target = at::randn({24, 4});
///         optimizer.zero_grad();
///         torch::nn::functional::mse_loss(ddp.forward(input), target).backward();
///         optimizer.step();
///     }
///
/// Gradients are reduced while `backward` runs, and are the same on every rank when it returns.
/// `.grad()` of each parameter is then a view into a bucket; zero_grad may be called with or
/// without set_to_none. Every rank calls `backward` equally often. The wrapper sees only
/// `backward()` into `.grad()`, not torch::autograd::grad. After an error of the group `backward`
/// throws a regroup::Error; then destroy the wrapper and leave the round.
///
/// `ModulePointer` is a module holder or a shared pointer to a module; the wrapper shares the
/// module with it. It trains the parameters that require a gradient at construction. They must be
/// contiguous and on the group's device. `group` outlives the wrapper.
template <class ModulePointer>
class DistributedDataParallel {
   public:
    /// Blocks until all ranks have called it; then every rank has the parameters and buffers of
    /// rank 0. Throws as regroup::DistributedDataParallel.
    DistributedDataParallel(ModulePointer module, ProcessGroup& group,
                            const DataParallelOptions& options = default_options())
        : module_(std::move(module)),
          state_(std::make_shared<detail::State>(group, trained_parameters(), module_->buffers(),
                                                 options)) {
        state_->install_hooks();
    }

    DistributedDataParallel(const DistributedDataParallel&) = delete;
    DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

    template <class... Arguments>
    auto forward(Arguments&&... arguments) {
        return module_->forward(std::forward<Arguments>(arguments)...);
    }
    template <class... Arguments>
    auto operator()(Arguments&&... arguments) {
        return forward(std::forward<Arguments>(arguments)...);
    }

    [[nodiscard]] const ModulePointer& module() const noexcept { return module_; }

    /// While the guard lives, `backward` adds to the gradients of this rank alone. See
    /// regroup::DistributedDataParallel::no_sync.
    [[nodiscard]] auto no_sync() { return state_->ddp().no_sync(); }

    /// For statistics, buckets, broadcasts and the comparison of replicas.
    [[nodiscard]] regroup::DistributedDataParallel& data_parallel() noexcept {
        return state_->ddp();
    }

   private:
    /// Each parameter once, even if modules share it.
    [[nodiscard]] std::vector<at::Tensor> trained_parameters() const {
        std::vector<at::Tensor> trained;
        std::unordered_set<const at::TensorImpl*> seen;
        for (const at::Tensor& parameter : module_->parameters()) {
            if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second) {
                trained.push_back(parameter);
            }
        }
        return trained;
    }

    ModulePointer module_;
    std::shared_ptr<detail::State> state_;
};

}  // namespace regroup::torch
