// SPDX-License-Identifier: Apache-2.0
// The network with cuDNN and cuBLAS, in CUDA's default stream, which process groups wait for. It
// uses float32 without TF32, and algorithms with a fixed order of summation. So its results equal
// the CPU's up to rounding, and are the same in every run.
#include <regroup/cuda.h>

#include "dnn_handles.h"
#include "loss.h"
#include "network.h"

namespace mnist {
namespace {

constexpr float kOne = 1.0F;
constexpr float kZero = 0.0F;

/// State that the layers share.
struct Engine {
    Blas blas;
    Dnn dnn;
    ActivationDescriptor relu;
    DeviceBuffer<std::byte> workspace;

    Engine() {
        check(::cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0.0),
              "cudnnSetActivationDescriptor");
    }
    // In place.
    void add_bias(const TensorDescriptor& bias_shape, const float* bias,
                  const TensorDescriptor& shape, float* values) const {
        check(::cudnnAddTensor(dnn, &kOne, bias_shape, bias, &kOne, shape, values),
              "adding a bias (cudnnAddTensor)");
    }
    void sum_to_bias(const TensorDescriptor& shape, const float* by_values,
                     const TensorDescriptor& bias_shape, float* by_bias) const {
        check(::cudnnConvolutionBackwardBias(dnn, &kOne, shape, by_values, &kZero, bias_shape,
                                             by_bias),
              "a bias's gradient (cudnnConvolutionBackwardBias)");
    }
    void activate(const TensorDescriptor& shape, float* values) const {
        check(::cudnnActivationForward(dnn, relu, &kOne, shape, values, &kZero, shape, values),
              "relu (cudnnActivationForward)");
    }
    void activate_backward(const TensorDescriptor& shape, const float* values,
                           float* by_values) const {
        check(::cudnnActivationBackward(dnn, relu, &kOne, shape, values, shape, by_values, shape,
                                        values, &kZero, shape, by_values),
              "relu's gradient (cudnnActivationBackward)");
    }
    // Row-major matrices: c [rows, columns] = a b, where a is [rows, inner], or [inner, rows] if it
    // is to be transposed, and likewise b. Rows of cuBLAS are columns of ours, so the two change
    // places.
    // NOLINTNEXTLINE(readability-function-size): BLAS has even more.
    void multiply(bool transpose_a, const float* a, bool transpose_b, const float* b, float* c,
                  std::size_t rows, std::size_t columns, std::size_t inner) const {
        const auto m = static_cast<int>(columns);
        const auto n = static_cast<int>(rows);
        const auto k = static_cast<int>(inner);
        check(::cublasSgemm_v2(blas, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                               transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, &kOne, b,
                               transpose_b ? k : m, a, transpose_a ? n : k, &kZero, c, m),
              "a matrix product (cublasSgemm)");
    }
};

/// Convolution, bias, relu and max-pooling. (Relu and maximum may be swapped; relu first saves a
/// buffer.)
class ConvolutionBlock {
   public:
    ConvolutionBlock(Engine& engine, std::size_t channels_in, std::size_t channels_out,
                     std::size_t side_in)
        : engine_(engine),
          channels_in_(channels_in),
          channels_out_(channels_out),
          side_in_(side_in),
          side_out_(side_in - kKernel + 1) {
        constexpr auto kSide = static_cast<int>(kKernel);
        check(::cudnnSetFilter4dDescriptor(filter_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
                                           static_cast<int>(channels_out),
                                           static_cast<int>(channels_in), kSide, kSide),
              "cudnnSetFilter4dDescriptor");
        check(::cudnnSetConvolution2dDescriptor(convolution_, 0, 0, 1, 1, 1, 1,
                                                CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
              "cudnnSetConvolution2dDescriptor");
        check(::cudnnSetConvolutionMathType(convolution_, CUDNN_FMA_MATH),
              "cudnnSetConvolutionMathType");
        check(::cudnnSetPooling2dDescriptor(pooling_, CUDNN_POOLING_MAX_DETERMINISTIC,
                                            CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2),
              "cudnnSetPooling2dDescriptor");
        bias_shape_.set(1, channels_out);
    }

    void resize(std::size_t count) {
        const auto n = static_cast<int>(count);
        const std::size_t side_pooled = side_out_ / 2;
        input_shape_.set(n, channels_in_, side_in_, side_in_);
        shape_.set(n, channels_out_, side_out_, side_out_);
        pooled_shape_.set(n, channels_out_, side_pooled, side_pooled);
        values_.reserve(count * channels_out_ * side_out_ * side_out_);
        by_values_.reserve(count * channels_out_ * side_out_ * side_out_);
        pooled_.reserve(count * channels_out_ * side_pooled * side_pooled);
        by_pooled_.reserve(count * channels_out_ * side_pooled * side_pooled);

        std::size_t bytes = 0;
        check(::cudnnGetConvolutionForwardWorkspaceSize(engine_.dnn, input_shape_, filter_,
                                                        convolution_, shape_, kForward, &bytes),
              "cudnnGetConvolutionForwardWorkspaceSize");
        engine_.workspace.reserve(bytes);
        check(
            ::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                engine_.dnn, input_shape_, shape_, convolution_, filter_, kBackwardFilter, &bytes),
            "cudnnGetConvolutionBackwardFilterWorkspaceSize");
        engine_.workspace.reserve(bytes);
        check(::cudnnGetConvolutionBackwardDataWorkspaceSize(
                  engine_.dnn, filter_, shape_, convolution_, input_shape_, kBackwardData, &bytes),
              "cudnnGetConvolutionBackwardDataWorkspaceSize");
        engine_.workspace.reserve(bytes);
    }

    void forward(const float* input, const float* weight, const float* bias) {
        check(::cudnnConvolutionForward(engine_.dnn, &kOne, input_shape_, input, filter_, weight,
                                        convolution_, kForward, engine_.workspace.data(),
                                        engine_.workspace.bytes(), &kZero, shape_, values_.data()),
              "a convolution (cudnnConvolutionForward)");
        engine_.add_bias(bias_shape_, bias, shape_, values_.data());
        engine_.activate(shape_, values_.data());
        check(::cudnnPoolingForward(engine_.dnn, pooling_, &kOne, shape_, values_.data(), &kZero,
                                    pooled_shape_, pooled_.data()),
              "max-pooling (cudnnPoolingForward)");
    }

    /// From by_output(), to the gradients and, if wanted, `by_input`.
    void backward(const float* input, const float* weight, float* by_weight, float* by_bias,
                  float* by_input) {
        check(::cudnnPoolingBackward(engine_.dnn, pooling_, &kOne, pooled_shape_, pooled_.data(),
                                     pooled_shape_, by_pooled_.data(), shape_, values_.data(),
                                     &kZero, shape_, by_values_.data()),
              "max-pooling's gradient (cudnnPoolingBackward)");
        engine_.activate_backward(shape_, values_.data(), by_values_.data());
        engine_.sum_to_bias(shape_, by_values_.data(), bias_shape_, by_bias);
        check(::cudnnConvolutionBackwardFilter(engine_.dnn, &kOne, input_shape_, input, shape_,
                                               by_values_.data(), convolution_, kBackwardFilter,
                                               engine_.workspace.data(), engine_.workspace.bytes(),
                                               &kZero, filter_, by_weight),
              "a kernel's gradient (cudnnConvolutionBackwardFilter)");
        if (by_input != nullptr) {
            check(::cudnnConvolutionBackwardData(
                      engine_.dnn, &kOne, filter_, weight, shape_, by_values_.data(), convolution_,
                      kBackwardData, engine_.workspace.data(), engine_.workspace.bytes(), &kZero,
                      input_shape_, by_input),
                  "an input's gradient (cudnnConvolutionBackwardData)");
        }
    }

    [[nodiscard]] const float* output() const { return pooled_.data(); }
    [[nodiscard]] float* by_output() const { return by_pooled_.data(); }

   private:
    static constexpr auto kForward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    static constexpr auto kBackwardFilter = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
    static constexpr auto kBackwardData = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;

    Engine& engine_;
    std::size_t channels_in_;
    std::size_t channels_out_;
    std::size_t side_in_;
    std::size_t side_out_;
    FilterDescriptor filter_;
    ConvolutionDescriptor convolution_;
    PoolingDescriptor pooling_;
    TensorDescriptor input_shape_;
    TensorDescriptor shape_;
    TensorDescriptor pooled_shape_;
    TensorDescriptor bias_shape_;
    DeviceBuffer<float> values_;
    DeviceBuffer<float> by_values_;
    DeviceBuffer<float> pooled_;
    DeviceBuffer<float> by_pooled_;
};

class CudaNetwork : public Network {
   public:
    explicit CudaNetwork(const regroup::Device& device) : device_(device) {
        hidden_bias_shape_.set(1, kHidden);
        outputs_bias_shape_.set(1, kClasses);
        check(::cudnnSetOpTensorDescriptor(product_, CUDNN_OP_TENSOR_MUL, CUDNN_DATA_FLOAT,
                                           CUDNN_PROPAGATE_NAN),
              "cudnnSetOpTensorDescriptor");
    }

    void forward(const Batch& batch) override {
        scored_ = batch.count();
        if (batch.count() == 0) {
            return;
        }
        resize(batch.count());
        pixels_.fill(batch.pixels.data(), batch.pixels.size());
        labels_.fill(batch.labels.data(), batch.labels.size());
        conv1_.forward(pixels_.data(), value(conv1_weight), value(conv1_bias));
        conv2_.forward(conv1_.output(), value(conv2_weight), value(conv2_bias));

        engine_.multiply(false, conv2_.output(), true, value(fc1_weight), hidden_.data(),
                         batch.count(), kHidden, kFeatures);
        engine_.add_bias(hidden_bias_shape_, value(fc1_bias), hidden_shape_, hidden_.data());
        engine_.activate(hidden_shape_, hidden_.data());
        if (!batch.dropout.empty()) {
            dropout_.fill(batch.dropout.data(), batch.dropout.size());
            drop_out(hidden_.data());
        }
        engine_.multiply(false, hidden_.data(), true, value(fc2_weight), outputs_.data(),
                         batch.count(), kClasses, kHidden);
        engine_.add_bias(outputs_bias_shape_, value(fc2_bias), outputs_shape_, outputs_.data());
        check(
            static_cast<cudaError_t>(launch_cross_entropy(
                outputs_.data(), labels_.data(), static_cast<int>(batch.count()), scores_.data())),
            "the loss");
    }

    void backward(const Batch& batch, float weight,
                  regroup::DistributedDataParallel& gradients) override {
        if (batch.count() == 0) {
            return report_all(gradients);
        }
        const auto gradient = [&](std::size_t index) { return place_of(gradients, index); };
        check(static_cast<cudaError_t>(launch_cross_entropy_backward(
                  outputs_.data(), labels_.data(), static_cast<int>(batch.count()), weight)),
              "the loss's gradient");
        engine_.sum_to_bias(outputs_shape_, outputs_.data(), outputs_bias_shape_,
                            gradient(fc2_bias));
        gradients.gradient_ready(fc2_bias);
        engine_.multiply(true, outputs_.data(), false, hidden_.data(), gradient(fc2_weight),
                         kClasses, kHidden, batch.count());
        gradients.gradient_ready(fc2_weight);

        engine_.multiply(false, outputs_.data(), false, value(fc2_weight), by_hidden_.data(),
                         batch.count(), kHidden, kClasses);
        engine_.activate_backward(hidden_shape_, hidden_.data(), by_hidden_.data());
        if (!batch.dropout.empty()) {
            drop_out(by_hidden_.data());
        }
        engine_.sum_to_bias(hidden_shape_, by_hidden_.data(), hidden_bias_shape_,
                            gradient(fc1_bias));
        gradients.gradient_ready(fc1_bias);
        engine_.multiply(true, by_hidden_.data(), false, conv2_.output(), gradient(fc1_weight),
                         kHidden, kFeatures, batch.count());
        gradients.gradient_ready(fc1_weight);

        engine_.multiply(false, by_hidden_.data(), false, value(fc1_weight), conv2_.by_output(),
                         batch.count(), kFeatures, kHidden);
        conv2_.backward(conv1_.output(), value(conv2_weight), gradient(conv2_weight),
                        gradient(conv2_bias), conv1_.by_output());
        gradients.gradient_ready(conv2_bias);
        gradients.gradient_ready(conv2_weight);
        conv1_.backward(pixels_.data(), value(conv1_weight), gradient(conv1_weight),
                        gradient(conv1_bias), nullptr);
        gradients.gradient_ready(conv1_bias);
        gradients.gradient_ready(conv1_weight);
    }

    regroup::TensorView values() override {
        return {values_.data(), kParameterCount, regroup::DType::float32, device_};
    }
    std::vector<Score> scores() override {
        std::vector<Score> scores(scored_);
        check(::cudaMemcpy(scores.data(), scores_.data(), scored_ * sizeof(Score),
                           cudaMemcpyDeviceToHost),
              "copying from the GPU (cudaMemcpy)");
        return scores;
    }

   private:
    void resize(std::size_t count) {
        if (count != count_) {
            conv1_.resize(count);
            conv2_.resize(count);
            hidden_shape_.set(static_cast<int>(count), kHidden);
            outputs_shape_.set(static_cast<int>(count), kClasses);
            hidden_.reserve(count * kHidden);
            by_hidden_.reserve(count * kHidden);
            outputs_.reserve(count * kClasses);
            scores_.reserve(count);
            count_ = count;
        }
    }
    void drop_out(float* values) const {
        check(::cudnnOpTensor(engine_.dnn, product_, &kOne, hidden_shape_, values, &kOne,
                              hidden_shape_, dropout_.data(), &kZero, hidden_shape_, values),
              "dropout (cudnnOpTensor)");
    }
    const float* value(std::size_t index) const { return values_.data() + offset_of(index); }

    regroup::Device device_;
    Engine engine_;
    ConvolutionBlock conv1_{engine_, 1, kChannels1, kImageSide};
    ConvolutionBlock conv2_{engine_, kChannels1, kChannels2, 12};
    OpDescriptor product_;
    TensorDescriptor hidden_shape_;
    TensorDescriptor hidden_bias_shape_;
    TensorDescriptor outputs_shape_;
    TensorDescriptor outputs_bias_shape_;
    std::size_t count_ = 0;   // samples that the buffers are sized for
    std::size_t scored_ = 0;  // samples of the last forward
    DeviceBuffer<float> values_{kParameterCount};
    DeviceBuffer<float> pixels_;         // [n, 28, 28]
    DeviceBuffer<std::int32_t> labels_;  // [n]
    DeviceBuffer<float> dropout_;        // [n, 50]
    DeviceBuffer<float> hidden_;         // [n, 50], after relu and dropout
    DeviceBuffer<float> by_hidden_;      // [n, 50]
    DeviceBuffer<float> outputs_;        // [n, 10]
    DeviceBuffer<Score> scores_;         // [n]
};

}  // namespace

std::unique_ptr<Network> make_cuda_network(const regroup::Context& context) {
    const regroup::Device device = regroup::cuda::device_of(context);
    regroup::cuda::set_device(device);
    return std::make_unique<CudaNetwork>(device);
}

}  // namespace mnist
