// The bindings of atomics.hpp: values and orders from Python objects, elements of arrays (array.hpp).
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <iterator>
#include <tuple>

#include "python/array.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/waits.hpp"
#include "tensor/atomics.hpp"

namespace shmtensor {
namespace {

constexpr std::size_t kWithoutGil = 512;  // additions; fewer take less time than releasing the GIL
constexpr const char* kOrders[] = {"relaxed", "acquire", "release", "acq_rel", "seq_cst"};

atomics::Order order_of(nb::handle name, bool (*fits)(atomics::Order) = nullptr) {
    if (PyUnicode_Check(name.ptr()))
        for (int i = std::size(kOrders) - 1; i >= 0; --i)
            if (PyUnicode_CompareWithASCIIString(name.ptr(), kOrders[i]) == 0) {
                const auto order = static_cast<atomics::Order>(i);
                if (!fits || fits(order)) return order;
                break;
            }
    PyErr_Format(errors.argument, "unknown order %R; use \"relaxed\", %s or \"seq_cst\"", name.ptr(),
                 !fits                           ? "\"acquire\", \"release\", \"acq_rel\""
                 : fits(atomics::Order::acquire) ? "\"acquire\""
                                                 : "\"release\"");
    throw nb::python_error();
}

std::int64_t whole_number(nb::handle value) {
    if (!PyIndex_Check(value.ptr())) {
        PyErr_Format(errors.dtype, "value %R is not an integer, but the elements are integers", value.ptr());
        throw nb::python_error();
    }
    const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
    if (!number.is_valid()) throw nb::python_error();
    int over = 0;
    const std::int64_t whole = PyLong_AsLongLongAndOverflow(number.ptr(), &over);
    if (over) {
        PyErr_Format(errors.argument, "value %R is outside the range of int64", value.ptr());
        throw nb::python_error();
    }
    return whole;
}

double real_number(nb::handle value) {
    const double real = PyFloat_AsDouble(value.ptr());
    if (real == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(errors.dtype, "value %R is not a real number", value.ptr());
        throw nb::python_error();
    }
    return real;
}

template <class T>
T narrowed(std::int64_t value) {
    if (static_cast<std::int64_t>(static_cast<T>(value)) == value) return static_cast<T>(value);
    PyErr_Format(errors.argument, "value %lld is outside the range of int32", static_cast<long long>(value));
    throw nb::python_error();
}

Place place_of(nb::handle array, nb::handle index, Allowed allowed, bool writes) {
    Place place;
    if (!element_at(array.ptr(), index.ptr(), allowed, writes, &place)) throw nb::python_error();
    return place;
}

// op on the integer element. Values are read first, because that may run Python code.
template <class Op>
auto on_integer(nb::handle array, nb::handle index, bool writes, Op&& op) {
    const Place place = place_of(array, index, Allowed::integers, writes);
    return place.element == atomics::Element::int64 ? op(static_cast<std::int64_t*>(place.cell))
                                                    : op(static_cast<std::int32_t*>(place.cell));
}

std::int64_t load(nb::handle array, nb::handle index, nb::handle order) {
    const atomics::Order o = order_of(order, atomics::fits_load);
    return on_integer(array, index, false, [&](auto* cell) -> std::int64_t { return atomics::load(cell, o); });
}

void store(nb::handle array, nb::handle index, nb::handle value, nb::handle order) {
    const atomics::Order o = order_of(order, atomics::fits_store);
    const std::int64_t v = whole_number(value);
    on_integer(array, index, true, [&]<class T>(T* cell) { atomics::store(cell, narrowed<T>(v), o); });
}

std::int64_t exchange(nb::handle array, nb::handle index, nb::handle value, nb::handle order) {
    const atomics::Order o = order_of(order);
    const std::int64_t v = whole_number(value);
    return on_integer(array, index, true,
                      [&]<class T>(T* cell) -> std::int64_t { return atomics::exchange(cell, narrowed<T>(v), o); });
}

std::int64_t fetch_add(nb::handle array, nb::handle index, nb::handle value, nb::handle order) {
    const atomics::Order o = order_of(order);
    const std::int64_t v = whole_number(value);
    return on_integer(array, index, true,
                      [&]<class T>(T* cell) -> std::int64_t { return atomics::fetch_add(cell, narrowed<T>(v), o); });
}

std::tuple<bool, std::int64_t> compare_exchange(nb::handle array, nb::handle index, nb::handle expected,
                                                nb::handle desired, nb::handle order) {
    const atomics::Order o = order_of(order);
    const std::int64_t e = whole_number(expected), d = whole_number(desired);
    return on_integer(array, index, true, [&]<class T>(T* cell) {
        T found = narrowed<T>(e);
        const bool done = atomics::compare_exchange(cell, &found, narrowed<T>(d), o);
        return std::tuple<bool, std::int64_t>{done, found};
    });
}

void add(nb::handle array, nb::handle index, nb::handle value) {
    const double v = real_number(value);
    const Place place = place_of(array, index, Allowed::floats, true);
    if (place.element == atomics::Element::float64)
        atomics::add(static_cast<double*>(place.cell), v, atomics::Order::seq_cst);
    else
        atomics::add(static_cast<float*>(place.cell), static_cast<float>(v), atomics::Order::seq_cst);
}

void index_add(nb::handle out, nb::handle index, nb::handle source, nb::handle alpha) {
    atomics::IndexAdd work;
    work.real = real_number(alpha);
    const bool is_whole = PyIndex_Check(alpha.ptr());
    const std::int64_t whole = is_whole ? whole_number(alpha) : 0;
    if (!plan_index_add(out.ptr(), index.ptr(), source.ptr(), &work)) throw nb::python_error();
    // No Python code may run between the plan and the work, which relies on the checks of the plan.
    if (work.element == atomics::Element::int64 || work.element == atomics::Element::int32) {
        if (!is_whole) {
            PyErr_Format(errors.dtype, "alpha %R is not an integer, but the elements are integers", alpha.ptr());
            throw nb::python_error();
        }
        work.whole = work.element == atomics::Element::int32 ? narrowed<std::int32_t>(whole) : whole;
    }
    if (work.additions() < kWithoutGil) {
        atomics::index_add(work);
        return;
    }
    const GilRelease released;
    atomics::index_add(work);
}

}  // namespace

void add_atomics(nb::module_& m) {
    const auto any = nb::arg().none();  // lets None through, to be refused like any other wrong value
    m.def("atomic_load", &load, any, any, any);
    m.def("atomic_store", &store, any, any, any, any);
    m.def("atomic_exchange", &exchange, any, any, any, any);
    m.def("atomic_fetch_add", &fetch_add, any, any, any, any);
    m.def("atomic_compare_exchange", &compare_exchange, any, any, any, any, any);
    m.def("atomic_add", &add, any, any, any);
    m.def("atomic_index_add", &index_add, any, any, any, any);
}

}  // namespace shmtensor
