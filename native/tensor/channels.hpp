// Kernels over the channels of arrays (samples, channels, elements) in C order: sums, normalization, transposition.
#pragma once

#include <cstddef>

namespace shmtensor::channels {

struct Shape {
    std::size_t samples, channels, elements;
    std::size_t count() const { return samples * channels * elements; }
};

// The sum of each channel. `sums` is scratch memory, one for each channel.
template <class T>
void sum(const Shape& shape, const T* from, double* sums, T* into);

// (samples, channels, elements) to (channels, samples, elements). For the inverse, exchange the two sizes. `bias`, or
// nullptr, is added: one for each channel, which is then the first axis of `from`.
template <class T>
void exchange(const Shape& shape, const T* from, const T* bias, T* into);

// (x - mean) / sqrt(variance + eps) * weight + bias, and the mean and variance. `weight` and `bias` may be nullptr.
// `scratch`: two for each channel.
template <class T>
void normalize(const Shape& shape, const T* x, const T* weight, const T* bias, double eps, double* scratch, T* into,
               T* mean, T* variance);

// The gradients of x, weight and bias from that of the result. `scratch`: three for each channel.
template <class T>
struct Back {
    const T *gradient, *x, *weight, *mean, *variance;
    T *dx, *dweight, *dbias;
};
template <class T>
void normalize_back(const Shape& shape, const Back<T>& arrays, double eps, double* scratch);

}  // namespace shmtensor::channels
