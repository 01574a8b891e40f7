#include "tensor/training.hpp"

#include <algorithm>
#include <cmath>

namespace shmtensor::training {

template <class T>
void step(const Sgd& how, std::size_t count, T* __restrict p, const T* __restrict gradient, T* __restrict buffer) {
    const T lr = static_cast<T>(how.lr), momentum = static_cast<T>(how.momentum), taken = static_cast<T>(how.taken),
            decay = static_cast<T>(how.decay), sign = how.maximize ? T{-1} : T{1};
    if (!buffer) {
        for (std::size_t i = 0; i < count; ++i)
            p[i] -= lr * (how.decay != 0 ? sign * gradient[i] + decay * p[i] : sign * gradient[i]);
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const T g = how.decay != 0 ? sign * gradient[i] + decay * p[i] : sign * gradient[i];
        const T v = how.first ? g : momentum * buffer[i] + taken * g;
        buffer[i] = v;
        p[i] -= lr * (how.nesterov ? g + momentum * v : v);
    }
}

// `square_of(index, square)` returns the running square that divides, given the new one.
template <class T, class SquareOf>
void adam(const Adam& how, std::size_t count, T* __restrict p, const T* __restrict gradient, T* __restrict m,
          T* __restrict v, SquareOf&& square_of) {
    const T size = static_cast<T>(how.size), root = static_cast<T>(1 / how.root), eps = static_cast<T>(how.eps),
            first = static_cast<T>(1 - how.beta1), beta2 = static_cast<T>(how.beta2),
            second = static_cast<T>(1 - how.beta2), decay = static_cast<T>(how.decay),
            shrink = static_cast<T>(how.shrink), sign = how.maximize ? T{-1} : T{1};
    for (std::size_t i = 0; i < count; ++i) {
        const T x = p[i] * shrink, g = how.decay != 0 ? sign * gradient[i] + decay * x : sign * gradient[i];
        const T mean = m[i] + first * (g - m[i]), square = beta2 * v[i] + second * g * g;
        m[i] = mean;
        v[i] = square;
        p[i] = x - size * mean / (std::sqrt(square_of(i, square)) * root + eps);
    }
}

template <class T>
void step(const Adam& how, std::size_t count, T* p, const T* gradient, T* m, T* v, T* largest) {
    if (largest)
        adam(how, count, p, gradient, m, v, [largest](std::size_t i, T square) {
            return largest[i] = largest[i] >= square ? largest[i] : square;  // NaN if the square is
        });
    else
        adam(how, count, p, gradient, m, v, [](std::size_t, T square) { return square; });
}

template <class T>
void add_bias(std::size_t rows, std::size_t columns, T* __restrict matrix, const T* __restrict bias) {
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < columns; ++c) matrix[r * columns + c] += bias[c];
}

template <class T>
void add_bias_transposed(std::size_t rows, std::size_t columns, const T* __restrict from, const T* __restrict bias,
                         T* __restrict into) {
    constexpr std::size_t kStrip = 16;  // rows of `from`, whose cache lines are read repeatedly
    for (std::size_t first = 0; first < columns; first += kStrip) {
        const std::size_t last = std::min(columns, first + kStrip);
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t c = first; c < last; ++c)
                into[r * columns + c] = bias ? from[c * rows + r] + bias[c] : from[c * rows + r];
    }
}

template <class T>
void sum_rows(std::size_t rows, std::size_t columns, const T* __restrict matrix, T* __restrict into) {
    std::copy_n(matrix, columns, into);
    for (std::size_t r = 1; r < rows; ++r)
        for (std::size_t c = 0; c < columns; ++c) into[c] += matrix[r * columns + c];
}

template <class T>
bool cross_entropy(std::size_t rows, std::size_t classes, const T* input, const std::int64_t* targets, T* softmax,
                   T* losses) {
    for (std::size_t row = 0; row < rows; ++row) {
        const std::int64_t target = targets[row];
        if (target < 0 || static_cast<std::size_t>(target) >= classes) return false;
        const T* x = input + row * classes;
        T* into = softmax + row * classes;
        const T top = *std::max_element(x, x + classes);
        T sum = 0;
        for (std::size_t i = 0; i < classes; ++i) sum += into[i] = std::exp(x[i] - top);
        losses[row] = std::log(sum) - (x[target] - top);
        for (std::size_t i = 0; i < classes; ++i) into[i] /= sum;
    }
    return true;
}

template <class T>
void cross_entropy_back(std::size_t rows, std::size_t classes, const T* softmax, const std::int64_t* targets,
                        const T* scales, bool one_scale, T divisor, T* into) {
    for (std::size_t row = 0; row < rows; ++row) {
        const T scale = scales[one_scale ? 0 : row] / divisor;
        for (std::size_t i = 0; i < classes; ++i) into[row * classes + i] = softmax[row * classes + i] * scale;
        into[row * classes + static_cast<std::size_t>(targets[row])] -= scale;
    }
}

template <class T>
void relu(std::size_t count, const T* __restrict x, T* __restrict into) {
    for (std::size_t i = 0; i < count; ++i) into[i] = x[i] <= 0 ? T{0} : x[i];
}

template <class T>
void relu_back(std::size_t count, const T* gradient, const T* result, T* __restrict into) {
    for (std::size_t i = 0; i < count; ++i) {
        const T g = gradient[i], y = result[i];
        into[i] = y <= 0 ? T{0} : g;
    }
}

template void step<float>(const Sgd&, std::size_t, float*, const float*, float*);
template void step<float>(const Adam&, std::size_t, float*, const float*, float*, float*, float*);
template void add_bias<float>(std::size_t, std::size_t, float*, const float*);
template void add_bias_transposed<float>(std::size_t, std::size_t, const float*, const float*, float*);
template void sum_rows<float>(std::size_t, std::size_t, const float*, float*);
template void relu<float>(std::size_t, const float*, float*);
template void relu_back<float>(std::size_t, const float*, const float*, float*);
template bool cross_entropy<float>(std::size_t, std::size_t, const float*, const std::int64_t*, float*, float*);
template void cross_entropy_back<float>(std::size_t, std::size_t, const float*, const std::int64_t*, const float*, bool,
                                        float, float*);
template void step<double>(const Sgd&, std::size_t, double*, const double*, double*);
template void step<double>(const Adam&, std::size_t, double*, const double*, double*, double*, double*);
template void add_bias<double>(std::size_t, std::size_t, double*, const double*);
template void add_bias_transposed<double>(std::size_t, std::size_t, const double*, const double*, double*);
template void sum_rows<double>(std::size_t, std::size_t, const double*, double*);
template void relu<double>(std::size_t, const double*, double*);
template void relu_back<double>(std::size_t, const double*, const double*, double*);
template bool cross_entropy<double>(std::size_t, std::size_t, const double*, const std::int64_t*, double*, double*);
template void cross_entropy_back<double>(std::size_t, std::size_t, const double*, const std::int64_t*, const double*,
                                         bool, double, double*);

}  // namespace shmtensor::training
