// Atomic operations on int32, int64, float32 and float64 elements that other threads and processes change too.
//
// Independent of Python. Every operation is lock-free. A process that is killed during one leaves the element as it was
// before or after it. The orders have the meaning of std::memory_order, between processes as between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shmtensor::atomics {

enum class Element : std::uint8_t { int32, int64, float32, float64 };
enum class Order : std::uint8_t { relaxed, acquire, release, acq_rel, seq_cst };

constexpr bool fits_load(Order order) {
    return order != Order::release && order != Order::acq_rel;
}
constexpr bool fits_store(Order order) {
    return order != Order::acquire && order != Order::acq_rel;
}
constexpr std::size_t size_of(Element element) {  // bytes; the alignment too
    return element == Element::int32 || element == Element::float32 ? 4 : 8;
}

// T is std::int32_t or std::int64_t. pre: the cell is aligned to its size.
template <class T>
T load(T* cell, Order order);  // pre: fits_load(order)
template <class T>
void store(T* cell, T value, Order order);  // pre: fits_store(order)
template <class T>
T exchange(T* cell, T value, Order order);  // returns the old value, as fetch_add does
template <class T>
T fetch_add(T* cell, T value, Order order);  // wraps around
// Never fails spuriously. `*expected` becomes the value found. A failure has the order of its load.
template <class T>
bool compare_exchange(T* cell, T* expected, T desired, Order order);

// T is float or double, added by a loop of compare-and-swap; returns the old value.
template <class T>
T add(T* cell, T value, Order order);

// out[index[r], ...] += alpha * source[r, ...] for every row r. Each element is added by one relaxed operation.
struct IndexAdd {
    struct Axis {
        std::ptrdiff_t size;         // elements
        std::ptrdiff_t out, source;  // steps in bytes
    };
    Element element;
    std::byte* out;
    const std::byte* source;
    std::ptrdiff_t out_step, source_step;  // bytes between rows
    std::vector<std::int64_t> index;       // pre: checked rows of out; a private copy
    std::vector<Axis> axes;                // of a row, the last one fastest; none for single elements
    std::int64_t whole = 1;                // alpha, for integers
    double real = 1;                       // alpha, for floats

    std::size_t additions() const;  // elements that change, with repetitions
};
void index_add(const IndexAdd& work);  // pre: strides and addresses are multiples of the element's size

}  // namespace shmtensor::atomics
