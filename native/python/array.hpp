// NumPy arrays over memory that a Python object keeps alive, and what other processes need to know of an array.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "tensor/atomics.hpp"
#include "tensor/dlpack.hpp"

namespace shmtensor {

// A faster ndarray.__new__: an array of dtype, shape and optional strides (bytes) over [data, data + bytes), `offset`
// bytes in; `owner` becomes its base. NumPy is imported at the first call. Returns a new reference, or nullptr with an
// exception set.
PyObject* make_array(PyObject* owner, std::byte* data, std::uint64_t bytes, PyObject* dtype, PyObject* shape,
                     Py_ssize_t offset, PyObject* strides, bool writable = true);

// A view of an exact ndarray with other sizes and strides (bytes), `offset` bytes from its first element, that stays
// within the bytes of the array. It is read-only if several of its elements may share memory. Returns a new reference,
// or nullptr with an exception set.
PyObject* strided_view(PyObject* array, PyObject* shape, PyObject* strides, Py_ssize_t offset);

// The view of an exact ndarray at `index` (negative: from the end) of its first axis, without that axis. A new
// reference. nullptr without an exception: not an ndarray, no axis, or the index is out of range; nullptr with an
// exception: no memory.
PyObject* element_view(PyObject* array, Py_ssize_t index);
// The only element of an exact ndarray, as a Python value: a new reference. nullptr without an exception: there is not
// exactly one.
PyObject* only_element(PyObject* array);

// A new view of all of an ndarray, as its method `view` makes: a new reference, or nullptr with an exception set.
PyObject* whole_view(PyObject* array);

// Whether several elements of an exact ndarray may share memory, so that writing to it is undefined. False with an
// exception set: not an exact ndarray.
bool overlaps(PyObject* array, bool* result);

// The description of an ndarray that is needed to send its memory. `type` is NumPy's number of the element type, or
// kFirstNamed + the index of a type of ml_dtypes in dlpack::kNamed; -1 for anything but plain numbers in native byte
// order.
struct ArrayView {
    std::byte* data;
    PyObject* base;             // borrowed
    const Py_ssize_t* sizes;    // these two become invalid when the array is reshaped in place
    const Py_ssize_t* strides;  // bytes
    std::uint64_t bytes;        // of the elements, without gaps
    int axes;
    int type;
    bool c_order, fortran_order, writable;
};
constexpr int kFirstNamed = 0x80;
constexpr int kMaxAxes = 64;  // of an array in any version of NumPy
// Loads a type of ArrayView in this process. False with an exception set: ml_dtypes is missing, or lacks it.
bool load_named(int type);
inline bool load_type(int type) {
    return type < kFirstNamed || load_named(type);
}

// The class ndarray; nullptr, without an exception, if NumPy has not been imported.
PyTypeObject* array_type_if_loaded();
// pre: an exact ndarray, for both.
ArrayView view_array(PyObject* array);
PyObject* base_of(PyObject* array);  // borrowed, may be nullptr

// Copies the elements to `into`, in C order unless the array is in Fortran order; releases the GIL if there are many.
// False with an exception set.
bool copy_elements(PyObject* array, const ArrayView& view, std::byte* into);

// Bytes of an array; ~0 if that overflows or there is no such number type.
std::uint64_t array_bytes(int type, int axes, const Py_ssize_t* sizes);
// Whether an array of this form stays within [0, bytes). `strides` may be nullptr: contiguous.
bool array_fits(int type, int axes, const Py_ssize_t* sizes, const Py_ssize_t* strides, std::uint64_t offset,
                std::uint64_t bytes);
// An array at `data` that keeps `owner` alive, or (owner nullptr) one on the heap with a copy of the elements at
// `data`; read-only unless `writable`. A new reference, or nullptr with an exception set. pre: it fits; types as in
// ArrayView.
PyObject* array_at(PyObject* owner, const std::byte* data, int type, int axes, const Py_ssize_t* sizes,
                   const Py_ssize_t* strides, bool fortran_order, bool writable = true);

// The dtype of a number that NumPy has (as in ElementKind), or of a type of ml_dtypes: a new reference, or nullptr with
// an exception set
// (ImportError: ml_dtypes is missing; AttributeError: it lacks the type).
PyObject* dtype_of(char kind, int bytes);
PyObject* named_dtype(const dlpack::Named& type);
// NumPy's number of a dtype; -1 for other objects, without an exception.
int type_of(PyObject* dtype);
struct Item {
    int bytes, alignment;
};
Item item_of(PyObject* dtype);
// An array of this form over memory that `owner` keeps alive; `data` nullptr: no elements, no memory and no owner. A
// new reference, or nullptr with an exception set. pre: the elements lie within the memory, aligned.
PyObject* array_over(PyObject* owner, std::byte* data, PyObject* dtype, int axes, const Py_ssize_t* sizes,
                     const Py_ssize_t* strides, bool writable);

// One element of an array, checked: of an allowed type, in range, aligned, and writable if it is to be written.
struct Place {
    atomics::Element element;
    void* cell;
};
enum class Allowed { integers, floats };
// `index` is an integer, or a tuple of one for each axis; negative ones count from the end. False with an exception
// set.
bool element_at(PyObject* array, PyObject* index, Allowed allowed, bool writes, Place* place);

// Plans out[index[r], ...] += alpha * source[r, ...], and checks everything before anything is added; the caller sets
// alpha. `index` is an int64 array of one axis. False with an exception set.
bool plan_index_add(PyObject* out, PyObject* index, PyObject* source, atomics::IndexAdd* work);

}  // namespace shmtensor
