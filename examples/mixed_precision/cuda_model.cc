// SPDX-License-Identifier: Apache-2.0
// The model with cuBLAS, in CUDA's default stream, which process groups wait for. Products of
// 16-bit operands run on the tensor cores.
#include <regroup/cuda.h>

#include "cuda_handles.h"
#include "kernels.h"
#include "model.h"

namespace mixed_precision {
namespace {

using example::Blas;
using example::check;
using example::DeviceBuffer;

cudaDataType_t cuda_type(DType dtype) {
    switch (dtype) {
        case DType::float16:
            return CUDA_R_16F;
        case DType::bfloat16:
            return CUDA_R_16BF;
        default:
            return CUDA_R_32F;
    }
}

void check_launch(int status, const char* operation) {
    check(static_cast<cudaError_t>(status), operation);
}

class CudaModel : public Model {
   public:
    CudaModel(const Sizes& model_sizes, const Level& model_level, const regroup::Device& device)
        : Model(model_sizes, model_level),
          device_(device),
          count_(offset_of(kTensorCount)),
          masters_(count_),
          weights_(is_low() ? bytes_of(count_) : 0),
          gradients_(count_ * regroup::item_bytes(model_level.gradients)) {}

    void forward(const Batch& batch) override {
        const std::size_t n = batch.count();
        if (n == 0) {
            return;
        }
        resize(n);
        read_inputs_.fill(batch.inputs.data(), batch.inputs.size());
        labels_.fill(batch.labels.data(), batch.labels.size());
        check_launch(
            launch_round(read_inputs_.data(), inputs_.data(), compute(), n * sizes().inputs),
            "rounding the inputs");
        multiply({false, inputs_.data()}, {false, weight(hidden_weight)}, hidden_.data(), compute(),
                 {n, sizes().hidden, sizes().inputs});
        check_launch(
            launch_bias(hidden_.data(), weight(hidden_bias), compute(), n, sizes().hidden, true),
            "bias and relu");
        multiply({false, hidden_.data()}, {false, weight(output_weight)}, scores_.data(), compute(),
                 {n, sizes().classes, sizes().hidden});
        check_launch(
            launch_bias(scores_.data(), weight(output_bias), compute(), n, sizes().classes, false),
            "bias");
        check_launch(launch_loss(loss_input(n), totals_.data()), "the loss");
    }

    void backward(const Batch& batch, float weight_of_sample, const TensorView& scale,
                  const Ready& ready) override {
        const std::size_t n = batch.count();
        if (n == 0) {
            check(::cudaMemset(gradients_.data(), 0, gradients_.bytes()), "cudaMemset");
            for (std::size_t index = kTensorCount; index-- > 0;) {
                ready(index);
            }
            return;
        }
        check_launch(launch_loss_backward(loss_input(n), weight_of_sample,
                                          static_cast<const float*>(scale.data), scores_.data()),
                     "the loss's gradient");
        layer_backward(output_bias, output_weight, hidden_.data(), scores_.data(), n, ready);
        multiply({false, scores_.data()}, {true, weight(output_weight)}, by_hidden_.data(),
                 compute(), {n, sizes().hidden, sizes().classes});
        check_launch(
            launch_relu_backward(hidden_.data(), by_hidden_.data(), compute(), n * sizes().hidden),
            "relu's gradient");
        layer_backward(hidden_bias, hidden_weight, inputs_.data(), by_hidden_.data(), n, ready);
    }

    void forget_master() override {
        check_launch(launch_widen(weights_.data(), compute(), masters_.data(), count_),
                     "widening the weights");
    }

    TensorView masters() override { return {masters_.data(), count_, DType::float32, device_}; }
    TensorView weights() override {
        return is_low() ? TensorView(weights_.data(), count_, compute(), device_) : masters();
    }
    TensorView gradients() override {
        return {gradients_.data(), count_, level().gradients, device_};
    }
    TensorView totals() override {
        return {totals_.data(), sizeof(Totals) / sizeof(double), DType::float64, device_};
    }
    void read(void* host, const TensorView& from) override {
        check(::cudaMemcpy(host, from.data, from.bytes(), cudaMemcpyDeviceToHost),
              "copying from the GPU (cudaMemcpy)");
    }
    void write(const TensorView& to, const void* host) override {
        check(::cudaMemcpy(to.data, host, to.bytes(), cudaMemcpyHostToDevice),
              "copying to the GPU (cudaMemcpy)");
    }

   private:
    struct Operand {
        bool transposed;
        const void* data;
    };
    struct Shape {
        std::size_t rows;
        std::size_t columns;
        std::size_t inner;
    };

    [[nodiscard]] DType compute() const { return level().compute; }
    [[nodiscard]] bool is_low() const { return compute() != DType::float32; }
    [[nodiscard]] std::size_t bytes_of(std::size_t count) const {
        return count * regroup::item_bytes(compute());
    }

    void resize(std::size_t n) {
        inputs_.reserve(bytes_of(n * sizes().inputs));
        hidden_.reserve(bytes_of(n * sizes().hidden));
        by_hidden_.reserve(bytes_of(n * sizes().hidden));
        scores_.reserve(bytes_of(n * sizes().classes));
    }
    [[nodiscard]] LossInput loss_input(std::size_t n) const {
        return {scores_.data(), compute(), labels_.data(), n, sizes().classes};
    }

    // Row-major matrices: c [rows, columns] = a b, where a is [rows, inner], or [inner, rows] if it
    // is transposed, and likewise b. Rows of cuBLAS are columns of ours, so the two change places.
    void multiply(const Operand& a, const Operand& b, void* c, DType c_dtype,
                  const Shape& shape) const {
        const auto m = static_cast<int>(shape.columns);
        const auto n = static_cast<int>(shape.rows);
        const auto k = static_cast<int>(shape.inner);
        const float one = 1.0F;
        const float zero = 0.0F;
        const cudaDataType_t type = cuda_type(compute());
        check(::cublasGemmEx(blas_, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                             a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, &one, b.data, type,
                             b.transposed ? k : m, a.data, type, a.transposed ? n : k, &zero, c,
                             cuda_type(c_dtype), m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "a matrix product (cublasGemmEx)");
    }

    // The gradients of a linear layer, from those of its output and from its input.
    void layer_backward(std::size_t bias, std::size_t weight_index, const void* input,
                        const void* by_output, std::size_t n, const Ready& ready) {
        const std::size_t columns = count_of(bias);
        check_launch(launch_bias_backward(by_output, compute(), n, columns, gradient(bias),
                                          level().gradients),
                     "a bias's gradient");
        ready(bias);
        multiply({true, input}, {false, by_output}, gradient(weight_index), level().gradients,
                 {count_of(weight_index) / columns, columns, n});
        ready(weight_index);
    }

    const void* weight(std::size_t index) { return weights().part(offset_of(index), 0).data; }
    void* gradient(std::size_t index) { return gradients().part(offset_of(index), 0).data; }

    regroup::Device device_;
    std::size_t count_;
    Blas blas_;
    DeviceBuffer<float> masters_;
    DeviceBuffer<std::byte> weights_;    // in level().compute; empty on O0
    DeviceBuffer<std::byte> gradients_;  // in level().gradients
    DeviceBuffer<Totals> totals_{1};
    DeviceBuffer<float> read_inputs_;    // [n, inputs], as they came
    DeviceBuffer<std::int32_t> labels_;  // [n]
    DeviceBuffer<std::byte> inputs_;     // [n, inputs], this and the next in level().compute
    DeviceBuffer<std::byte> hidden_;     // [n, hidden]
    DeviceBuffer<std::byte> by_hidden_;  // [n, hidden]
    DeviceBuffer<std::byte> scores_;     // [n, classes]
};

}  // namespace

std::unique_ptr<Model> make_cuda_model(const Sizes& sizes, const Level& level,
                                       const regroup::Context& context) {
    const regroup::Device device = regroup::cuda::device_of(context);
    regroup::cuda::set_device(device);
    return std::make_unique<CudaModel>(sizes, level, device);
}

}  // namespace mixed_precision
