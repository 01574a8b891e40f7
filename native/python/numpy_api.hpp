// NumPy's C API, which array.cpp and operands.cpp use. No other file does: the API's table is loaded late, so each use
// needs `load_numpy` before it.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define PY_ARRAY_UNIQUE_SYMBOL shmtensor_numpy_api
#ifndef SHMTENSOR_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_25_API_VERSION
#include <numpy/arrayobject.h>

namespace shmtensor {

// Imports NumPy at the first call. False with an exception set.
bool load_numpy();

// The object as an ndarray (borrowed); nullptr with an exception set.
PyArrayObject* as_array(PyObject* object);

// Reads a tuple of integers into `into`, which holds kMaxAxes. Returns the count, or -1 with an exception set.
int read_sizes(PyObject* from, const char* what, npy_intp* into);

// Whether a type number of NumPy stands for plain numbers, which can lie in shared memory.
inline bool is_number(int type) {
    return (type >= NPY_BOOL && type < NPY_OBJECT) || type == NPY_HALF;
}

// The built-in or loaded type of a number (ArrayView::type): a new reference, which NumPy's constructors steal.
PyArray_Descr* descr_of(int type);

}  // namespace shmtensor
