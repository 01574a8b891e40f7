#include "tensor/windows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace shmtensor::windows {

namespace {

std::size_t product(std::ptrdiff_t a, std::ptrdiff_t b, std::ptrdiff_t c) {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c);
}

std::size_t plane_of(const Axes& axes) {
    return product(axes[0].length, axes[1].length, axes[2].length);
}
std::size_t extent_of(const Axes& axes) {
    return product(axes[0].extent(), axes[1].extent(), axes[2].extent());
}
std::size_t count_of(const Axes& axes) {
    return product(axes[0].count, axes[1].count, axes[2].count);
}

bool has_edges(const Axes& axes) {
    return axes[0].has_edges() || axes[1].has_edges() || axes[2].has_edges();
}

// ---------------------------------------------------------------------------------------------------------------- rows

// Rows are usually too short for a call of memcpy to pay.
template <class T>
inline void copy_row(T* __restrict to, const T* __restrict from, std::size_t count) {
    constexpr std::size_t kBlock = 16 / sizeof(T);
    if (count >= 32 * kBlock) {
        std::memcpy(to, from, count * sizeof(T));
    } else if (count >= kBlock) {
        for (std::size_t i = 0; i + kBlock <= count; i += kBlock) std::memcpy(to + i, from + i, 16);
        std::memcpy(to + count - kBlock, from + count - kBlock, 16);
    } else {
        for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
    }
}

template <class T>
inline void add_row(T* __restrict to, const T* __restrict from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
}

// Sums of blocks, each of which compiles to one instruction.
template <class T>
inline void add_short_row(T* __restrict to, const T* __restrict from, std::size_t count) {
    constexpr std::size_t kBlock = 16 / sizeof(T);
    std::size_t i = 0;
    for (; i + kBlock <= count; i += kBlock) {
        T block[kBlock];
        for (std::size_t j = 0; j < kBlock; ++j) block[j] = to[i + j] + from[i + j];
        std::memcpy(to + i, block, sizeof block);
    }
    for (; i < count; ++i) to[i] += from[i];
}

// --------------------------------------------------------------------------------------------------------------- edges

// The part [first, last) of a padded axis that comes from the array.
struct Inner {
    explicit Inner(const Axis& axis)
        : first(std::clamp<std::ptrdiff_t>(axis.before, 0, axis.extent())),
          last(std::clamp<std::ptrdiff_t>(axis.length + axis.before, first, axis.extent())) {}
    std::ptrdiff_t first, last;
};

// For each row of an array: work(row in the array, row in the padded array, elements).
template <class Work>
void each_inner_row(const Axes& axes, Work&& work) {
    const Inner a(axes[0]), b(axes[1]), c(axes[2]);
    if (c.first == c.last) return;
    for (std::ptrdiff_t i = a.first; i < a.last; ++i)
        for (std::ptrdiff_t j = b.first; j < b.last; ++j)
            work(((i - axes[0].before) * axes[1].length + j - axes[1].before) * axes[2].length + c.first -
                     axes[2].before,
                 (i * axes[1].extent() + j) * axes[2].extent() + c.first, static_cast<std::size_t>(c.last - c.first));
}

// ------------------------------------------------------------------------------------------------------------- columns

// Planes that contain all windows: those of all samples, for one channel.
template <class T>
struct Planes {
    T* first;
    std::size_t apart;         // elements from one sample to the next
    std::ptrdiff_t rows, row;  // elements from one element to the next on the first two axes
};

// For one position in the windows, for each row of the windows of all samples, in order: work(its first element).
template <class T, class Work>
inline void each_row(const Axes& axes, std::size_t samples, const Planes<T>& planes,
                     const std::array<std::ptrdiff_t, 3>& at, Work&& work) {
    const std::ptrdiff_t start =
        at[0] * axes[0].dilation * planes.rows + at[1] * axes[1].dilation * planes.row + at[2] * axes[2].dilation;
    for (std::size_t n = 0; n < samples; ++n) {
        T* plane = planes.first + n * planes.apart + start;
        for (std::ptrdiff_t i = 0; i < axes[0].count; ++i)
            for (std::ptrdiff_t j = 0; j < axes[1].count; ++j)
                work(plane + i * axes[0].stride * planes.rows + j * axes[1].stride * planes.row);
    }
}

template <class Work>
inline void each_position(const Axes& axes, Work&& work) {
    for (std::ptrdiff_t i = 0; i < axes[0].size; ++i)
        for (std::ptrdiff_t j = 0; j < axes[1].size; ++j)
            for (std::ptrdiff_t k = 0; k < axes[2].size; ++k) work(std::array<std::ptrdiff_t, 3>{i, j, k});
}

// Rows of `blocks` blocks of 16 bytes.
template <std::size_t blocks, class T>
T* gather_blocks(const Axes& axes, std::size_t samples, const Planes<const T>& planes, T* into) {
    constexpr std::size_t kCount = 16 * blocks / sizeof(T);
    each_position(axes, [&](const auto& at) {
        each_row(axes, samples, planes, at, [&](const T* row) {
            std::memcpy(into, row, 16 * blocks);
            into += kCount;
        });
    });
    return into;
}

// The columns of one channel.
template <class T>
T* gather_planes(const Axes& axes, std::size_t samples, const Planes<const T>& planes, T* into) {
    const auto count = static_cast<std::size_t>(axes[2].count);
    const std::ptrdiff_t stride = axes[2].stride;
    if (stride == 1 && count * sizeof(T) == 16) return gather_blocks<1>(axes, samples, planes, into);
    if (stride == 1 && count * sizeof(T) == 32) return gather_blocks<2>(axes, samples, planes, into);
    if (stride == 1 && count * sizeof(T) == 64) return gather_blocks<4>(axes, samples, planes, into);
    each_position(axes, [&](const auto& at) {
        if (stride == 1)
            each_row(axes, samples, planes, at, [&](const T* row) { copy_row(into, row, count), into += count; });
        else
            each_row(axes, samples, planes, at, [&](const T* row) {
                for (std::size_t i = 0; i < count; ++i, row += stride) *into++ = *row;
            });
    });
    return into;
}

template <std::size_t blocks, class T>
const T* scatter_blocks(const Axes& axes, std::size_t samples, const Planes<T>& planes, const T* from) {
    constexpr std::size_t kCount = 16 * blocks / sizeof(T);
    each_position(axes, [&](const auto& at) {
        each_row(axes, samples, planes, at, [&](T* row) {
            T sums[kCount];
            for (std::size_t i = 0; i < kCount; ++i) sums[i] = row[i] + from[i];
            std::memcpy(row, sums, sizeof sums);
            from += kCount;
        });
    });
    return from;
}

template <class T>
const T* scatter_planes(const Axes& axes, std::size_t samples, const Planes<T>& planes, const T* from) {
    const auto count = static_cast<std::size_t>(axes[2].count);
    const std::ptrdiff_t stride = axes[2].stride;
    if (stride == 1 && count * sizeof(T) == 16) return scatter_blocks<1>(axes, samples, planes, from);
    if (stride == 1 && count * sizeof(T) == 32) return scatter_blocks<2>(axes, samples, planes, from);
    if (stride == 1 && count * sizeof(T) == 64) return scatter_blocks<4>(axes, samples, planes, from);
    each_position(axes, [&](const auto& at) {
        if (stride == 1 && count >= 64)
            each_row(axes, samples, planes, at, [&](T* row) { add_row(row, from, count), from += count; });
        else if (stride == 1)
            each_row(axes, samples, planes, at, [&](T* row) { add_short_row(row, from, count), from += count; });
        else
            each_row(axes, samples, planes, at, [&](T* row) {
                for (std::size_t i = 0; i < count; ++i, row += stride) *row += *from++;
            });
    });
    return from;
}

}  // namespace

std::size_t scratch_size(const Axes& axes, std::size_t samples) {
    return has_edges(axes) ? samples * extent_of(axes) : 0;
}

template <class T>
void gather(const Axes& axes, Shape shape, const T* from, T* into, T* scratch) {
    const std::size_t plane = plane_of(axes), extent = extent_of(axes);
    const bool edges = has_edges(axes);
    if (edges) std::fill_n(scratch, shape.samples * extent, T{0});
    for (std::size_t c = 0; c < shape.channels; ++c) {
        const T* channel = from + c * plane;
        if (!edges) {
            into = gather_planes<T>(axes, shape.samples,
                                    {channel, shape.channels * plane, axes[1].length * axes[2].length, axes[2].length},
                                    into);
            continue;
        }
        for (std::size_t n = 0; n < shape.samples; ++n)
            each_inner_row(axes, [&, source = channel + n * shape.channels * plane, to = scratch + n * extent](
                                     std::ptrdiff_t row, std::ptrdiff_t with_edges, std::size_t count) {
                copy_row(to + with_edges, source + row, count);
            });
        into = gather_planes<T>(axes, shape.samples,
                                {scratch, extent, axes[1].extent() * axes[2].extent(), axes[2].extent()}, into);
    }
}

template <class T>
void scatter(const Axes& axes, Shape shape, const T* from, T* into, T* scratch) {
    const std::size_t plane = plane_of(axes), extent = extent_of(axes);
    const bool edges = has_edges(axes);
    std::fill_n(into, shape.samples * shape.channels * plane, T{0});
    for (std::size_t c = 0; c < shape.channels; ++c) {
        T* channel = into + c * plane;
        if (!edges) {
            from = scatter_planes<T>(axes, shape.samples,
                                     {channel, shape.channels * plane, axes[1].length * axes[2].length, axes[2].length},
                                     from);
            continue;
        }
        std::fill_n(scratch, shape.samples * extent, T{0});
        from = scatter_planes<T>(axes, shape.samples,
                                 {scratch, extent, axes[1].extent() * axes[2].extent(), axes[2].extent()}, from);
        for (std::size_t n = 0; n < shape.samples; ++n)
            each_inner_row(axes, [&, to = channel + n * shape.channels * plane, source = scratch + n * extent](
                                     std::ptrdiff_t row, std::ptrdiff_t with_edges, std::size_t count) {
                copy_row(to + row, source + with_edges, count);
            });
    }
}

// --------------------------------------------------------------------------------------------------------- the largest

namespace {

// The elements of a window that lie inside the array: k from first to last.
struct Span {
    Span(const Axis& axis, std::ptrdiff_t o) : start(o * axis.stride - axis.before), last(axis.size) {
        if (start < 0) first = (-start + axis.dilation - 1) / axis.dilation;
        if (start + (axis.size - 1) * axis.dilation >= axis.length)
            last = start >= axis.length ? 0 : (axis.length - start + axis.dilation - 1) / axis.dilation;
    }
    std::ptrdiff_t start, first = 0, last;
};

template <class T>
struct Found {
    T value;
    std::ptrdiff_t place;  // in the plane; -1: no element lies inside
};

template <class T>
inline void take_larger(Found<T>* best, T value, std::ptrdiff_t place) {
    if (best->place < 0 || value > best->value || std::isnan(value)) *best = {value, place};
}

// For each window of a plane, in order: work(the largest element).
template <class T, class Work>
void each_largest(const Axes& axes, const T* plane, Work&& work) {
    const std::ptrdiff_t row = axes[2].length, rows = axes[1].length * row;
    for (std::ptrdiff_t x = 0; x < axes[0].count; ++x) {
        const Span a(axes[0], x);
        for (std::ptrdiff_t y = 0; y < axes[1].count; ++y) {
            const Span b(axes[1], y);
            for (std::ptrdiff_t z = 0; z < axes[2].count; ++z) {
                const Span c(axes[2], z);
                Found<T> best{-std::numeric_limits<T>::infinity(), -1};
                for (std::ptrdiff_t i = a.first; i < a.last; ++i)
                    for (std::ptrdiff_t j = b.first; j < b.last; ++j)
                        for (std::ptrdiff_t k = c.first; k < c.last; ++k) {
                            const std::ptrdiff_t place = (a.start + i * axes[0].dilation) * rows +
                                                         (b.start + j * axes[1].dilation) * row + c.start +
                                                         k * axes[2].dilation;
                            take_larger(&best, plane[place], place);
                        }
                work(best);
            }
        }
    }
}

// Whether windows are squares of four elements that do not overlap.
bool are_quads(const Axes& axes) {
    const auto is_pair = [](const Axis& axis) { return axis.size == 2 && axis.stride == 2 && axis.dilation == 1; };
    return axes[0].length == 1 && axes[0].size == 1 && is_pair(axes[1]) && is_pair(axes[2]) && !has_edges(axes);
}

template <class T>
inline T larger(T a, T b) {
    return b > a || std::isnan(b) ? b : a;
}

template <class T>
void largest_of_quads(const Axes& axes, const T* __restrict plane, T* __restrict into) {
    for (std::ptrdiff_t y = 0; y < axes[1].count; ++y, into += axes[2].count) {
        const T *upper = plane + 2 * y * axes[2].length, *lower = upper + axes[2].length;
        for (std::ptrdiff_t z = 0; z < axes[2].count; ++z)
            into[z] = larger(larger(upper[2 * z], upper[2 * z + 1]), larger(lower[2 * z], lower[2 * z + 1]));
    }
}

// Choices without branches, which could not be predicted: masks of all bits or none.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
inline Bits<T> takes_second(T a, T b) {
    const bool is_larger = b > a, is_nan = std::isnan(b);
    return Bits<T>{0} - (static_cast<Bits<T>>(is_larger) | static_cast<Bits<T>>(is_nan));
}
template <class T>
inline T chosen(Bits<T> second, T a, T b) {
    return std::bit_cast<T>((std::bit_cast<Bits<T>>(b) & second) | (std::bit_cast<Bits<T>>(a) & ~second));
}
template <class T>
inline T where(Bits<T> mask, T x) {
    return std::bit_cast<T>(std::bit_cast<Bits<T>>(x) & mask);
}

template <class T>
inline void to_largest_of_row(std::size_t count, const T* __restrict upper, const T* __restrict lower,
                              const T* __restrict gradient, T* __restrict up, T* __restrict low) {
    for (std::size_t z = 0; z < count; ++z) {
        const T a = upper[2 * z], b = upper[2 * z + 1], c = lower[2 * z], d = lower[2 * z + 1], g = gradient[z];
        const Bits<T> right = takes_second(a, b), low_right = takes_second(c, d);
        const Bits<T> below = takes_second(chosen(right, a, b), chosen(low_right, c, d));
        up[2 * z] = where<T>(~below & ~right, g);
        up[2 * z + 1] = where<T>(~below & right, g);
        low[2 * z] = where<T>(below & ~low_right, g);
        low[2 * z + 1] = where<T>(below & low_right, g);
    }
}

template <class T>
void to_largest_of_quads(const Axes& axes, const T* plane, const T* gradient, T* into) {
    const std::ptrdiff_t length = axes[2].length, count = axes[2].count;
    for (std::ptrdiff_t y = 0; y < axes[1].count; ++y, gradient += count, plane += 2 * length, into += 2 * length) {
        to_largest_of_row(static_cast<std::size_t>(count), plane, plane + length, gradient, into, into + length);
        // the last elements of an odd length
        for (std::ptrdiff_t z = 2 * count; z < length; ++z) into[z] = into[length + z] = T{0};
    }
    std::fill_n(into, (axes[1].length - 2 * axes[1].count) * length, T{0});
}

}  // namespace

template <class T>
void largest(const Axes& axes, std::size_t planes, const T* from, T* values, std::int64_t* places) {
    const std::size_t plane = plane_of(axes), count = count_of(axes);
    const bool quads = !places && are_quads(axes);
    for (std::size_t p = 0; p < planes; ++p, from += plane) {
        if (quads) {
            largest_of_quads(axes, from, values + p * count);
            continue;
        }
        each_largest(axes, from, [&](const Found<T>& best) {
            if (values) *values++ = best.value;
            if (places) *places++ = std::max<std::ptrdiff_t>(best.place, 0);
        });
    }
}

template <class T>
void to_largest(const Axes& axes, std::size_t planes, const T* from, const T* gradient, T* into) {
    const std::size_t plane = plane_of(axes), count = count_of(axes);
    const bool quads = are_quads(axes);
    for (std::size_t p = 0; p < planes; ++p, from += plane, into += plane, gradient += count) {
        if (quads) {
            to_largest_of_quads(axes, from, gradient, into);
            continue;
        }
        std::fill_n(into, plane, T{0});
        each_largest(axes, from, [&, g = gradient](const Found<T>& best) mutable {
            if (best.place >= 0) into[best.place] += *g;
            ++g;
        });
    }
}

template void gather<float>(const Axes&, Shape, const float*, float*, float*);
template void scatter<float>(const Axes&, Shape, const float*, float*, float*);
template void largest<float>(const Axes&, std::size_t, const float*, float*, std::int64_t*);
template void to_largest<float>(const Axes&, std::size_t, const float*, const float*, float*);
template void gather<double>(const Axes&, Shape, const double*, double*, double*);
template void scatter<double>(const Axes&, Shape, const double*, double*, double*);
template void largest<double>(const Axes&, std::size_t, const double*, double*, std::int64_t*);
template void to_largest<double>(const Axes&, std::size_t, const double*, const double*, double*);

}  // namespace shmtensor::windows
