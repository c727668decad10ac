// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel and the state of an ElasticLoop for modules of libtorch, PyTorch's C++
// library, release 1.13 and newer.
// Header only, and no part of <regroup/regroup.h>: the program that includes it links libtorch.
#pragma once

#include <regroup/distributed_data_parallel.h>
#include <regroup/elastic_loop.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace regroup::torch {

/// The view of a contiguous tensor. Throws Error `invalid_argument` naming `what` if the tensor is
/// not contiguous, is neither on the CPU nor on a GPU, or has a type that groups do not know.
[[nodiscard]] inline TensorView view_of(const at::Tensor& tensor, const std::string& what);

namespace detail {

[[noreturn]] inline void refuse(const std::string& detail) {
    throw Error(Errc::invalid_argument, "libtorch: " + detail);
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

namespace detail {

/// Names of parameters, by the address at which libtorch knows them.
using ParameterNames = std::unordered_map<const at::TensorImpl*, std::string>;

/// Registers what an optimizer keeps for its parameters, as tensors. libtorch finds that by the
/// address of the parameter, which differs between processes, and creates most of it in the first
/// step. Here all of it exists at once, with the values that it would have before that step.
class OptimizerRegistration {
   public:
    OptimizerRegistration(ElasticLoop& loop, ::torch::optim::Optimizer& optimizer)
        : loop_(loop), optimizer_(optimizer) {}

    void register_all(const ParameterNames& names, const std::string& prefix) {
        std::size_t index = 0;
        for (::torch::optim::OptimizerParamGroup& group : optimizer_.param_groups()) {
            for (const at::Tensor& parameter : group.params()) {
                const auto known = names.find(parameter.unsafeGetTensorImpl());
                name_ = prefix + "optimizer." +
                        (known != names.end() ? known->second : std::to_string(index));
                ++index;
                if (parameter.requires_grad()) {
                    register_parameter(group, parameter);
                }
            }
        }
    }

   private:
    void register_parameter(const ::torch::optim::OptimizerParamGroup& group,
                            const at::Tensor& parameter) {
        namespace optim = ::torch::optim;
        if (dynamic_cast<optim::SGD*>(&optimizer_) != nullptr) {
            register_sgd(static_cast<const optim::SGDOptions&>(group.options()), parameter);
        } else if (dynamic_cast<optim::Adam*>(&optimizer_) != nullptr) {
            register_adam<optim::AdamParamState>(
                static_cast<const optim::AdamOptions&>(group.options()), parameter);
        } else if (dynamic_cast<optim::AdamW*>(&optimizer_) != nullptr) {
            register_adam<optim::AdamWParamState>(
                static_cast<const optim::AdamWOptions&>(group.options()), parameter);
        } else if (dynamic_cast<optim::RMSprop*>(&optimizer_) != nullptr) {
            register_rmsprop(static_cast<const optim::RMSpropOptions&>(group.options()), parameter);
        } else if (dynamic_cast<optim::Adagrad*>(&optimizer_) != nullptr) {
            auto& state = state_of<optim::AdagradParamState>(parameter);
            register_count(state.step());
            register_like(parameter, "sum", state.sum());
        } else {
            refuse(
                "register_state knows the optimizers SGD, Adam, AdamW, RMSprop and Adagrad; "
                "register the state of another one with save and load functions");
        }
    }

    void register_sgd(const ::torch::optim::SGDOptions& options, const at::Tensor& parameter) {
        if (options.momentum() == 0) {
            return;
        }
        if (options.dampening() != 0) {
            refuse(
                "register_state cannot create the momentum of SGD with dampening before its first "
                "step; set dampening to 0, or register it with save and load functions");
        }
        register_like(parameter, "momentum_buffer",
                      state_of<::torch::optim::SGDParamState>(parameter).momentum_buffer());
    }

    template <class ParamState, class Options>
    void register_adam(const Options& options, const at::Tensor& parameter) {
        auto& state = state_of<ParamState>(parameter);
        register_count(state.step());
        register_like(parameter, "exp_avg", state.exp_avg());
        register_like(parameter, "exp_avg_sq", state.exp_avg_sq());
        if (options.amsgrad()) {
            register_like(parameter, "max_exp_avg_sq", state.max_exp_avg_sq());
        }
    }

    void register_rmsprop(const ::torch::optim::RMSpropOptions& options,
                          const at::Tensor& parameter) {
        auto& state = state_of<::torch::optim::RMSpropParamState>(parameter);
        register_count(state.step());
        register_like(parameter, "square_avg", state.square_avg());
        if (options.momentum() > 0) {
            register_like(parameter, "momentum_buffer", state.momentum_buffer());
        }
        if (options.centered()) {
            register_like(parameter, "grad_avg", state.grad_avg());
        }
    }

    template <class Key>
    static Key key_of(const at::Tensor& parameter) {
        if constexpr (std::is_same_v<Key, std::string>) {  // Older releases: the address as text.
            std::ostringstream text;
            text << parameter.unsafeGetTensorImpl();
            return text.str();
        } else {
            return parameter.unsafeGetTensorImpl();
        }
    }

    /// The optimizer's own object, which stays where it is.
    template <class ParamState>
    ParamState& state_of(const at::Tensor& parameter) {
        using Key = typename std::decay_t<decltype(optimizer_.state())>::key_type;
        const Key key = key_of<Key>(parameter);
        auto& state = optimizer_.state()[key];
        if (!state) {
            state = std::make_unique<ParamState>();
        }
        return static_cast<ParamState&>(*state);
    }

    void register_count(std::int64_t& steps) {
        loop_.register_state(name_ + ".step", TensorView(&steps, 1, DType::int64));
    }

    void register_like(const at::Tensor& parameter, const char* what, at::Tensor& tensor) {
        if (!tensor.defined()) {
            const at::NoGradGuard no_grad;
            tensor = at::zeros_like(parameter, at::MemoryFormat::Preserve);
        }
        const std::string name = name_ + "." + what;
        loop_.register_state(name, view_of(tensor, name));
    }

    ElasticLoop& loop_;
    ::torch::optim::Optimizer& optimizer_;
    std::string name_;  // Of the parameter.
};

/// Registers parameters and buffers, each once. Returns the names of the parameters.
inline ParameterNames register_module(ElasticLoop& loop, const ::torch::nn::Module& module,
                                      const std::string& prefix) {
    ParameterNames names;
    for (const auto& parameter : module.named_parameters()) {
        if (names.emplace(parameter.value().unsafeGetTensorImpl(), parameter.key()).second) {
            const std::string name = prefix + parameter.key();
            loop.register_state(name, view_of(parameter.value(), name));
        }
    }
    std::unordered_set<const at::TensorImpl*> seen;
    for (const auto& buffer : module.named_buffers()) {
        if (buffer.value().defined() && seen.insert(buffer.value().unsafeGetTensorImpl()).second) {
            const std::string name = prefix + buffer.key();
            loop.register_buffer(name, view_of(buffer.value(), name));
        }
    }
    return names;
}

}  // namespace detail

/// Registers the parameters and buffers of `module` with the loop, under their names behind
/// `prefix`. Buffers, such as running means, may change in the forward pass: see
/// ElasticLoop::register_buffer. DistributedDataParallel above makes them equal in each step.
///
///     torch::nn::Linear net(16, 4);
///     torch::optim::Adam optimizer(net->parameters());
///     regroup::ElasticLoop loop;
///     regroup::torch::register_state(loop, *net, optimizer);
///
/// Call it before `run`, once module and optimizer have what a checkpoint holds. Their tensors must
/// stay where they are while the loop lives: do not call `to()` or load a checkpoint afterwards.
/// Throws Error `invalid_argument` naming a tensor that has no flat view, as `view_of`, or a name
/// that is registered already.
inline void register_state(ElasticLoop& loop, const ::torch::nn::Module& module,
                           const std::string& prefix = "") {
    detail::register_module(loop, module, prefix);
}

/// The same, and registers the state of `optimizer`: SGD without dampening, Adam, AdamW, RMSprop or
/// Adagrad. Others throw Error `invalid_argument`. Call `optimizer.step()` in the function given to
/// `commit`. Options, such as the learning rate, are not registered: set them from the number of
/// the step.
inline void register_state(ElasticLoop& loop, const ::torch::nn::Module& module,
                           ::torch::optim::Optimizer& optimizer, const std::string& prefix = "") {
    detail::OptimizerRegistration(loop, optimizer)
        .register_all(detail::register_module(loop, module, prefix), prefix);
}

}  // namespace regroup::torch
