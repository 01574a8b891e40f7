// Windows that slide over the last three axes of samples: gathered into the columns of a matrix, summed back to their
// places, and the largest element of each. Arrays are in C order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace shmtensor::windows {

// Windows on one axis. Element k of window o lies at o * stride + k * dilation - before, which may be outside.
struct Axis {
    std::ptrdiff_t length;  // of the array
    std::ptrdiff_t count;   // of windows
    std::ptrdiff_t size, stride, dilation, before;

    // Elements from the start of the first window to the end of the last.
    std::ptrdiff_t extent() const { return (count - 1) * stride + (size - 1) * dilation + 1; }
    bool has_edges() const { return before != 0 || extent() > length; }
};

using Axes = std::array<Axis, 3>;

struct Shape {
    std::size_t samples, channels;
};

// Elements of the scratch memory that `gather` and `scatter` need. pre: all axes have windows, and windows have
// elements.
std::size_t scratch_size(const Axes& axes, std::size_t samples);

// From (samples, channels, lengths) to (channels, sizes, samples, counts); 0 where a window reaches outside.
template <class T>
void gather(const Axes& axes, Shape shape, const T* from, T* into, T* scratch);
// The inverse: sums from (channels, sizes, samples, counts) to (samples, channels, lengths).
template <class T>
void scatter(const Axes& axes, Shape shape, const T* from, T* into, T* scratch);

// From (planes, lengths), the largest element of each window to (planes, counts), and its index in its plane: of the
// first of equal ones, or of the last NaN. A window without elements inside gives -inf and 0. Either may be nullptr.
template <class T>
void largest(const Axes& axes, std::size_t planes, const T* from, T* values, std::int64_t* places);
// The sums of gradients (planes, counts) at the largest elements, (planes, lengths).
template <class T>
void to_largest(const Axes& axes, std::size_t planes, const T* from, const T* gradient, T* into);

}  // namespace shmtensor::windows
