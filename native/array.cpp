#include "array.hpp"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_25_API_VERSION
#include <numpy/arrayobject.h>

namespace shmtensor {
namespace {

constexpr int kMostDimensions = 32;

bool load_numpy() {
    // Guarded by the GIL alone: the import lets go of it, and a thread that waited for the guard of a local static with
    // the GIL held would wait for ever. Importing twice is harmless; an import that was interrupted is tried again.
    static bool loaded = false;
    if (!loaded) loaded = _import_array() >= 0;
    if (!loaded && !PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "NumPy could not be loaded");
    return loaded;
}

// A tuple of integers, or a single one; gives the count, -1 with an exception set.
int read_sizes(PyObject* from, const char* what, npy_intp* into) {
    if (!PyTuple_Check(from)) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple of integers, not %.100s", what, Py_TYPE(from)->tp_name);
        return -1;
    }
    const Py_ssize_t count = PyTuple_GET_SIZE(from);
    if (count > kMostDimensions) {
        PyErr_Format(PyExc_ValueError, "%s has %zd entries, at most %d are possible", what, count, kMostDimensions);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
        into[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(from, i));
        if (into[i] == -1 && PyErr_Occurred()) return -1;
    }
    return static_cast<int>(count);
}

}  // namespace

PyObject* make_array(PyObject* owner, std::byte* data, std::uint64_t bytes, PyObject* dtype, PyObject* shape,
                     Py_ssize_t offset, PyObject* strides) {
    if (!load_numpy()) return nullptr;
    if (!PyArray_DescrCheck(dtype)) {
        PyErr_Format(PyExc_TypeError, "dtype must be a numpy.dtype, not %.100s", Py_TYPE(dtype)->tp_name);
        return nullptr;
    }
    auto* descr = reinterpret_cast<PyArray_Descr*>(dtype);
    if (PyDataType_REFCHK(descr)) {
        PyErr_Format(PyExc_TypeError, "dtype %R holds Python objects, which cannot lie in shared memory", dtype);
        return nullptr;
    }
    npy_intp sizes[kMostDimensions], steps[kMostDimensions];
    const int dimensions = read_sizes(shape, "shape", sizes);
    if (dimensions < 0) return nullptr;
    const npy_intp item = PyDataType_ELSIZE(descr);
    npy_intp low = 0, high = item;  // bytes touched, relative to offset
    npy_intp step = item;
    bool empty = false;
    for (int i = 0; i < dimensions; ++i) {
        if (sizes[i] < 0) {
            PyErr_Format(PyExc_ValueError, "shape %R has a negative size", shape);
            return nullptr;
        }
        empty = empty || sizes[i] == 0;
    }
    if (strides != Py_None) {
        const int given = read_sizes(strides, "strides", steps);
        if (given < 0) return nullptr;
        if (given != dimensions) {
            PyErr_Format(PyExc_ValueError, "strides %R and shape %R differ in length", strides, shape);
            return nullptr;
        }
    } else {
        for (int i = dimensions - 1; i >= 0; --i) {
            steps[i] = step;
            if (__builtin_mul_overflow(step, sizes[i] > 0 ? sizes[i] : 1, &step)) {
                PyErr_Format(PyExc_ValueError, "shape %R is too large", shape);
                return nullptr;
            }
        }
    }
    bool fits = offset >= 0;
    for (int i = 0; fits && !empty && i < dimensions; ++i) {
        npy_intp reach = 0;
        fits = !__builtin_mul_overflow(sizes[i] - 1, steps[i], &reach) &&
               !__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high);
    }
    npy_intp first = 0, last = 0;
    fits = fits && !__builtin_add_overflow(offset, empty ? 0 : low, &first) &&
           !__builtin_add_overflow(offset, empty ? 0 : high, &last) && first >= 0 &&
           static_cast<std::uint64_t>(last) <= bytes;
    if (!fits) {
        PyErr_Format(PyExc_ValueError,
                     "an array of shape %R and dtype %R at byte %zd does not fit in a block of %llu bytes", shape,
                     dtype, offset, static_cast<unsigned long long>(bytes));
        return nullptr;
    }
    Py_INCREF(descr);  // NewFromDescr steals it
    PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, dimensions, sizes, steps, data + offset,
                                           NPY_ARRAY_WRITEABLE, nullptr);
    if (!array) return nullptr;
    PyArray_UpdateFlags(reinterpret_cast<PyArrayObject*>(array), NPY_ARRAY_UPDATE_ALL);
    Py_INCREF(owner);  // and SetBaseObject this
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), owner) < 0) {
        Py_DECREF(array);
        return nullptr;
    }
    return array;
}

}  // namespace shmtensor
