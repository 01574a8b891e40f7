// Training kernels that make one pass over memory: steps of optimizers, and softmax with cross-entropy.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shmtensor::training {

// p -= lr * v, where v = momentum * v + taken * (gradient + decay * p). `buffer` is v, or nullptr without momentum.
struct Sgd {
    double lr, momentum, taken, decay;
    bool nesterov, maximize;
    bool first;  // the buffer is not initialised yet
};
template <class T>
void step(const Sgd& how, std::size_t count, T* p, const T* gradient, T* buffer);

// m and v approach the gradient and its square; p -= size * m / (sqrt(v) / root + eps).
struct Adam {
    double size;  // learning rate by the bias of m
    double root;  // of the bias of v
    double beta1, beta2, eps;
    double decay;   // added to the gradient: decay * p
    double shrink;  // p is first multiplied by this: decoupled decay
    bool maximize;
};
template <class T>
void step(const Adam& how, std::size_t count, T* p, const T* gradient, T* m, T* v, T* largest);

// matrix[r][c] += bias[c]
template <class T>
void add_bias(std::size_t rows, std::size_t columns, T* matrix, const T* bias);
// into[r][c] = from[c][r] + bias[c]; `bias` may be nullptr
template <class T>
void add_bias_transposed(std::size_t rows, std::size_t columns, const T* from, const T* bias, T* into);
// into[c] = the sum of column c, row by row, as NumPy adds them
template <class T>
void sum_rows(std::size_t rows, std::size_t columns, const T* matrix, T* into);

// The softmax of each row, and its -log at the target. False: a target is out of range; its row and later ones are not
// computed.
template <class T>
bool cross_entropy(std::size_t rows, std::size_t classes, const T* input, const std::int64_t* targets, T* softmax,
                   T* losses);
// The gradient of the input: (softmax - 1 at the target) * scale / divisor; `scales` has one for each row, or one for
// all rows.
template <class T>
void cross_entropy_back(std::size_t rows, std::size_t classes, const T* softmax, const std::int64_t* targets,
                        const T* scales, bool one_scale, T divisor, T* into);

// The larger of x and 0; NaN remains NaN.
template <class T>
void relu(std::size_t count, const T* x, T* into);
// The gradient where the result is above 0 or NaN, and 0 elsewhere.
template <class T>
void relu_back(std::size_t count, const T* gradient, const T* result, T* into);

}  // namespace shmtensor::training
