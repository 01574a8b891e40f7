// Results with several fields of calls of shmtensor._native: structs in C++, and in Python tuples with named fields, as
// of os.stat().
//
// Result<Struct> lists the fields of a struct in order, and add_result() adds its Python class when the module is made.
// Functions then return the struct itself.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <tuple>
#include <utility>

namespace shmtensor {

namespace nb = nanobind;

// To be specialised: `name`, and `fields`, a tuple of field().
template <class Struct>
struct Result;
template <class Struct>
concept IsResult = requires { Result<Struct>::fields; };

template <class Struct, class Value>
struct Field {
    const char* name;
    Value Struct::* member;
};
template <class Struct, class Value>
constexpr Field<Struct, Value> field(const char* name, Value Struct::* member) {
    return {name, member};
}

template <IsResult Struct>
PyTypeObject* result_type = nullptr;  // for the life of the process, set by add_result()

template <IsResult Struct>
void add_result(nb::module_& m) {
    static const std::string name = std::string{"shmtensor._native."} + Result<Struct>::name;
    constexpr std::size_t count = std::tuple_size_v<decltype(Result<Struct>::fields)>;
    PyStructSequence_Field fields[count + 1] = {};
    std::size_t at = 0;
    std::apply([&](const auto&... each) { ((fields[at++].name = each.name), ...); }, Result<Struct>::fields);
    PyStructSequence_Desc description{name.c_str(), nullptr, fields, static_cast<int>(count)};
    result_type<Struct> = PyStructSequence_NewType(&description);
    if (!result_type<Struct>) throw nb::python_error();
    m.attr(Result<Struct>::name) = nb::handle(reinterpret_cast<PyObject*>(result_type<Struct>));
}

// A new reference. Throws nanobind's exceptions.
template <IsResult Struct>
nb::object to_python(const Struct& value) {
    nb::object made = nb::steal(PyStructSequence_New(result_type<Struct>));
    if (!made.is_valid()) throw nb::python_error();
    Py_ssize_t at = 0;
    std::apply(
        [&](const auto&... each) {
            (PyStructSequence_SetItem(made.ptr(), at++, nb::cast(value.*each.member).release().ptr()), ...);
        },
        Result<Struct>::fields);
    return made;
}

}  // namespace shmtensor

namespace nanobind::detail {

template <shmtensor::IsResult Struct>
struct type_caster<Struct> {
    static constexpr auto Name = const_name("tuple");
    static handle from_cpp(const Struct& value, rv_policy, cleanup_list*) noexcept {
        try {
            return shmtensor::to_python(value).release();
        } catch (python_error& error) {
            error.restore();
        } catch (const std::bad_alloc&) {
            PyErr_NoMemory();
        } catch (const std::exception& error) {
            PyErr_SetString(PyExc_SystemError, error.what());
        }
        return {};
    }
};

}  // namespace nanobind::detail
