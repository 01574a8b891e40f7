#include "tensor/atomics.hpp"

#include <atomic>
#include <type_traits>

namespace shmtensor::atomics {
namespace {

// Only lock-free operations are atomic between processes: a lock of the C++ library would lie in private memory.
static_assert(std::atomic_ref<std::int32_t>::is_always_lock_free && std::atomic_ref<std::int64_t>::is_always_lock_free);
static_assert(std::atomic_ref<float>::is_always_lock_free && std::atomic_ref<double>::is_always_lock_free);
static_assert(std::atomic_ref<std::int64_t>::required_alignment <= size_of(Element::int64));
static_assert(std::atomic_ref<double>::required_alignment <= size_of(Element::float64));

template <std::memory_order order>
using Constant = std::integral_constant<std::memory_order, order>;

// Call with the order as a constant: the compiler treats an order that it does not know as seq_cst.
template <class Call>
auto with(Order order, Call&& call) {
    switch (order) {
        case Order::relaxed:
            return call(Constant<std::memory_order_relaxed>{});
        case Order::acquire:
            return call(Constant<std::memory_order_acquire>{});
        case Order::release:
            return call(Constant<std::memory_order_release>{});
        case Order::acq_rel:
            return call(Constant<std::memory_order_acq_rel>{});
        case Order::seq_cst:
            break;
    }
    return call(Constant<std::memory_order_seq_cst>{});
}

template <class T>
void add_relaxed(T* cell, T value) {
    if constexpr (std::is_integral_v<T>) {
        std::atomic_ref<T>(*cell).fetch_add(value, std::memory_order_relaxed);
    } else {
        add(cell, value, Order::relaxed);
    }
}

// In unsigned arithmetic, where overflow is defined: integers wrap around, as in NumPy.
template <class T>
T scaled(T alpha, T value) {
    if constexpr (std::is_integral_v<T>) {
        using U = std::make_unsigned_t<T>;
        return static_cast<T>(static_cast<U>(alpha) * static_cast<U>(value));
    } else {
        return alpha * value;
    }
}

template <class T>
void add_line(std::byte* out, std::ptrdiff_t out_step, const std::byte* source, std::ptrdiff_t source_step,
              std::ptrdiff_t count, T alpha) {
    for (std::ptrdiff_t i = 0; i < count; ++i, out += out_step, source += source_step) {
        // Another process may be writing to the source; a relaxed load reads one of its values.
        const T value = load(const_cast<T*>(reinterpret_cast<const T*>(source)), Order::relaxed);
        add_relaxed(reinterpret_cast<T*>(out), scaled(alpha, value));
    }
}

template <class T>
void add_row(const IndexAdd& work, std::size_t axis, std::byte* out, const std::byte* source, T alpha) {
    if (work.axes.empty()) return add_line<T>(out, 0, source, 0, 1, alpha);
    const IndexAdd::Axis& a = work.axes[axis];
    if (axis + 1 == work.axes.size()) return add_line<T>(out, a.out, source, a.source, a.size, alpha);
    for (std::ptrdiff_t i = 0; i < a.size; ++i) add_row(work, axis + 1, out + i * a.out, source + i * a.source, alpha);
}

template <class T>
void add_rows(const IndexAdd& work, T alpha) {
    const std::byte* source = work.source;
    for (const std::int64_t row : work.index) {
        add_row(work, 0, work.out + row * work.out_step, source, alpha);
        source += work.source_step;
    }
}

}  // namespace

template <class T>
T load(T* cell, Order order) {
    switch (order) {  // not with(): it would compile a load with the orders of a store
        case Order::relaxed:
            return std::atomic_ref<T>(*cell).load(std::memory_order_relaxed);
        case Order::acquire:
            return std::atomic_ref<T>(*cell).load(std::memory_order_acquire);
        default:
            return std::atomic_ref<T>(*cell).load(std::memory_order_seq_cst);
    }
}

template <class T>
void store(T* cell, T value, Order order) {
    switch (order) {
        case Order::relaxed:
            return std::atomic_ref<T>(*cell).store(value, std::memory_order_relaxed);
        case Order::release:
            return std::atomic_ref<T>(*cell).store(value, std::memory_order_release);
        default:
            return std::atomic_ref<T>(*cell).store(value, std::memory_order_seq_cst);
    }
}

template <class T>
T exchange(T* cell, T value, Order order) {
    return with(order, [&](auto o) { return std::atomic_ref<T>(*cell).exchange(value, o()); });
}

template <class T>
T fetch_add(T* cell, T value, Order order) {
    return with(order, [&](auto o) { return std::atomic_ref<T>(*cell).fetch_add(value, o()); });
}

template <class T>
bool compare_exchange(T* cell, T* expected, T desired, Order order) {
    return with(order,
                [&](auto o) { return std::atomic_ref<T>(*cell).compare_exchange_strong(*expected, desired, o()); });
}

template <class T>
T add(T* cell, T value, Order order) {
    return with(order, [&](auto o) {
        const std::atomic_ref<T> element(*cell);
        T found = element.load(std::memory_order_relaxed);  // a guess; the exchange compares bits, so NaN ends, too
        while (!element.compare_exchange_weak(found, found + value, o(), std::memory_order_relaxed)) {
        }
        return found;
    });
}

template std::int32_t load(std::int32_t*, Order);
template std::int64_t load(std::int64_t*, Order);
template void store(std::int32_t*, std::int32_t, Order);
template void store(std::int64_t*, std::int64_t, Order);
template std::int32_t exchange(std::int32_t*, std::int32_t, Order);
template std::int64_t exchange(std::int64_t*, std::int64_t, Order);
template std::int32_t fetch_add(std::int32_t*, std::int32_t, Order);
template std::int64_t fetch_add(std::int64_t*, std::int64_t, Order);
template bool compare_exchange(std::int32_t*, std::int32_t*, std::int32_t, Order);
template bool compare_exchange(std::int64_t*, std::int64_t*, std::int64_t, Order);
template float add(float*, float, Order);
template double add(double*, double, Order);

std::size_t IndexAdd::additions() const {
    std::size_t count = index.size();
    for (const Axis& axis : axes) count *= static_cast<std::size_t>(axis.size);
    return count;
}

void index_add(const IndexAdd& work) {
    switch (work.element) {
        case Element::int32:
            return add_rows(work, static_cast<std::int32_t>(work.whole));
        case Element::int64:
            return add_rows(work, work.whole);
        case Element::float32:
            return add_rows(work, static_cast<float>(work.real));
        case Element::float64:
            return add_rows(work, work.real);
    }
}

}  // namespace shmtensor::atomics
