// NumPy arrays over memory that a Python object keeps alive. The only file that knows NumPy's C API.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>

namespace shmtensor {

// ndarray.__new__ without its cost: dtype, shape and optional strides (bytes) over [data, data + bytes), `offset` bytes
// in; `owner` becomes its base. NumPy is imported at the first call. Returns a new reference, or nullptr with an
// exception set.
PyObject* make_array(PyObject* owner, std::byte* data, std::uint64_t bytes, PyObject* dtype, PyObject* shape,
                     Py_ssize_t offset, PyObject* strides);

}  // namespace shmtensor
