#include "tensor/channels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace shmtensor::channels {

namespace {

constexpr std::size_t kLanes = 8;
constexpr std::size_t kPart = 1024;  // elements that are summed in their own type, before the sum is added in double

// The sum of term(i) for i below count, with several accumulators.
template <class T, class Term>
inline double sum_of(std::size_t count, Term&& term) {
    double whole = 0;
    for (std::size_t start = 0; start < count; start += kPart) {
        const std::size_t end = std::min(count, start + kPart);
        T lanes[kLanes] = {}, rest = 0;
        std::size_t i = start;
        for (; i + kLanes <= end; i += kLanes)
            for (std::size_t j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
        for (; i < end; ++i) rest += term(i);
        for (const T lane : lanes) rest += lane;
        whole += static_cast<double>(rest);
    }
    return whole;
}

// For each sample and channel: work(channel, index of its first element).
template <class Work>
inline void each_row(const Shape& shape, Work&& work) {
    for (std::size_t n = 0, at = 0; n < shape.samples; ++n)
        for (std::size_t c = 0; c < shape.channels; ++c, at += shape.elements) work(c, at);
}

template <class T>
double scale_of(T variance, double eps) {
    return 1 / std::sqrt(static_cast<double>(variance) + eps);
}

}  // namespace

template <class T>
void sum(const Shape& shape, const T* from, double* sums, T* into) {
    std::fill_n(sums, shape.channels, 0.0);
    each_row(shape, [&](std::size_t c, std::size_t at) {
        sums[c] += sum_of<T>(shape.elements, [row = from + at](std::size_t i) { return row[i]; });
    });
    for (std::size_t c = 0; c < shape.channels; ++c) into[c] = static_cast<T>(sums[c]);
}

template <class T>
void exchange(const Shape& shape, const T* from, const T* bias, T* __restrict into) {
    const std::size_t n = shape.elements;
    for (std::size_t a = 0; a < shape.samples; ++a)
        for (std::size_t b = 0; b < shape.channels; ++b, from += n) {
            T* to = into + (b * shape.samples + a) * n;
            if (bias) {
                const T more = bias[a];
                for (std::size_t i = 0; i < n; ++i) to[i] = from[i] + more;
            } else {
                std::memcpy(to, from, n * sizeof(T));
            }
        }
}

template <class T>
void normalize(const Shape& shape, const T* x, const T* weight, const T* bias, double eps, double* scratch,
               T* __restrict into, T* mean, T* variance) {
    double *sums = scratch, *squares = scratch + shape.channels;
    const double count = static_cast<double>(shape.samples * shape.elements);
    sum(shape, x, sums, mean);
    for (std::size_t c = 0; c < shape.channels; ++c) mean[c] = static_cast<T>(sums[c] / count);
    std::fill_n(squares, shape.channels, 0.0);
    each_row(shape, [&](std::size_t c, std::size_t at) {
        squares[c] += sum_of<T>(shape.elements, [row = x + at, m = mean[c]](std::size_t i) {
            const T apart = row[i] - m;
            return apart * apart;
        });
    });
    double* factors = squares;
    for (std::size_t c = 0; c < shape.channels; ++c) {
        variance[c] = static_cast<T>(squares[c] / count);
        factors[c] = scale_of(variance[c], eps) * (weight ? static_cast<double>(weight[c]) : 1);
    }
    each_row(shape, [&](std::size_t c, std::size_t at) {
        const T m = mean[c], factor = static_cast<T>(factors[c]), more = bias ? bias[c] : T{0};
        const T* row = x + at;
        T* to = into + at;
        for (std::size_t i = 0; i < shape.elements; ++i) to[i] = (row[i] - m) * factor + more;
    });
}

template <class T>
void normalize_back(const Shape& shape, const Back<T>& all, double eps, double* scratch) {
    double *sums = scratch, *products = scratch + shape.channels;
    const double count = static_cast<double>(shape.samples * shape.elements);
    sum(shape, all.gradient, sums, all.dbias);
    std::fill_n(products, shape.channels, 0.0);
    each_row(shape, [&](std::size_t c, std::size_t at) {
        products[c] += sum_of<T>(shape.elements, [g = all.gradient + at, row = all.x + at,
                                                  m = all.mean[c]](std::size_t i) { return g[i] * (row[i] - m); });
    });
    double *less = sums, *slopes = products, *factors = scratch + 2 * shape.channels;
    for (std::size_t c = 0; c < shape.channels; ++c) {
        const double scale = scale_of(all.variance[c], eps);
        all.dweight[c] = static_cast<T>(products[c] * scale);
        less[c] = sums[c] / count;
        slopes[c] = products[c] / count * scale * scale;
        factors[c] = scale * (all.weight ? static_cast<double>(all.weight[c]) : 1);
    }
    each_row(shape, [&](std::size_t c, std::size_t at) {
        const T factor = static_cast<T>(factors[c]), m = all.mean[c], mean = static_cast<T>(less[c]),
                slope = static_cast<T>(slopes[c]);
        const T *g = all.gradient + at, *row = all.x + at;
        T* __restrict to = all.dx + at;
        for (std::size_t i = 0; i < shape.elements; ++i) to[i] = (g[i] - mean - (row[i] - m) * slope) * factor;
    });
}

template void sum<float>(const Shape&, const float*, double*, float*);
template void exchange<float>(const Shape&, const float*, const float*, float*);
template void normalize<float>(const Shape&, const float*, const float*, const float*, double, double*, float*, float*,
                               float*);
template void normalize_back<float>(const Shape&, const Back<float>&, double, double*);
template void sum<double>(const Shape&, const double*, double*, double*);
template void exchange<double>(const Shape&, const double*, const double*, double*);
template void normalize<double>(const Shape&, const double*, const double*, const double*, double, double*, double*,
                                double*, double*);
template void normalize_back<double>(const Shape&, const Back<double>&, double, double*);

}  // namespace shmtensor::channels
