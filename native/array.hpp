// NumPy arrays over memory that a Python object keeps alive. The only file that knows NumPy's C API.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "atomics.hpp"

namespace shmtensor {

// Classes of shmtensor.errors, which atomics raise; set once, when the module is made.
struct ErrorTypes {
    PyObject *dtype, *argument, *range, *layout;
};
extern ErrorTypes error_types;

// ndarray.__new__ without its cost: dtype, shape and optional strides (bytes) over [data, data + bytes), `offset` bytes
// in; `owner` becomes its base. NumPy is imported at the first call. Returns a new reference, or nullptr with an
// exception set.
PyObject* make_array(PyObject* owner, std::byte* data, std::uint64_t bytes, PyObject* dtype, PyObject* shape,
                     Py_ssize_t offset, PyObject* strides, bool writable = true);

// One element of an array, checked: of a type that is allowed, there, aligned, and writable where it is to be written.
struct Place {
    atomics::Element element;
    void* cell;
};
enum class Allowed { integers, floats };
// `index` is an integer, or a tuple of one for each axis; negative ones count from the end. False with an exception
// set.
bool element_at(PyObject* array, PyObject* index, Allowed allowed, bool writes, Place* place);

// out[index[r], ...] += source[r, ...], checked whole before anything is added; alpha is left to the caller. `index` is
// an int64 array of one axis. False with an exception set.
bool plan_index_add(PyObject* out, PyObject* index, PyObject* source, atomics::IndexAdd* work);

}  // namespace shmtensor
