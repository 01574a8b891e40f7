// NumPy arrays over memory that a Python object keeps alive. The only file that knows NumPy's C API.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "tensor/atomics.hpp"
#include "tensor/dlpack.hpp"

namespace shmtensor {

// ndarray.__new__ without its cost: dtype, shape and optional strides (bytes) over [data, data + bytes), `offset` bytes
// in; `owner` becomes its base. NumPy is imported at the first call. Returns a new reference, or nullptr with an
// exception set.
PyObject* make_array(PyObject* owner, std::byte* data, std::uint64_t bytes, PyObject* dtype, PyObject* shape,
                     Py_ssize_t offset, PyObject* strides, bool writable = true);

// A view of an exact ndarray with other sizes and strides (bytes), `offset` bytes from its first element on, that
// touches nothing beyond the bytes from its lowest to its highest. It may not be written where several of its elements
// may be the same memory. Returns a new reference, or nullptr with an exception set.
PyObject* strided_view(PyObject* array, PyObject* shape, PyObject* strides, Py_ssize_t offset);

// The view of the elements of an exact ndarray at `index` (negative: from the end) of its first axis, without that
// axis. A new reference; nullptr without an exception: not an ndarray, no axis, or an index beyond it; nullptr with
// one: no memory.
PyObject* element_view(PyObject* array, Py_ssize_t index);
// The element of an exact ndarray that has only one, as a Python value: a new reference. nullptr without an exception:
// there is not exactly one.
PyObject* only_element(PyObject* array);

// A new view of all of an ndarray, as its method `view` makes: a new reference, or nullptr with an exception set.
PyObject* whole_view(PyObject* array);

// Arrays on devices are CuPy's: objects of a class that is unknown until a program uses a GPU. What is said here of
// arrays is true of them where it says so; all else refuses them, or must not be given them.
void set_device_arrays(PyObject* type, PyObject* module);
bool is_device_array(PyObject* object);
extern PyObject* device_module;  // CuPy; nullptr: not loaded
// Operands of one operation, each a reference of its own: where one of them, or of a list among them, is on a device,
// the others' arrays of one element become numbers, and arrays of the host are refused (`form`: of the operation).
// Gives (borrowed) the first that is on a device, nullptr: there is none. False with an exception set.
bool settle_devices(PyObject** operands, Py_ssize_t count, PyObject* form, PyObject** first);

// For results of NumPy and what tensors compute with; NumPy must have been imported. No exception is set.
bool is_array(PyObject* object);
bool is_known_array(PyObject* object);           // an exact ndarray of a type that NumPy has and tensors have
bool is_part_of(PyObject* array, PyObject* of);  // as far as their bases tell; both ndarrays
bool is_alone(PyObject* array);                  // a view of nothing; an ndarray, or on a device
bool is_operand(PyObject* object);               // what a tensor computes with: core.OPERANDS
PyObject* array_of_scalar(PyObject* object);     // nullptr without an exception: no scalar of a known type
PyObject* copy_of(PyObject* array);              // also on a device
// A new array of the type of an ndarray, in C order, of arbitrary content. nullptr with an exception set.
PyObject* new_array(PyObject* like, int axes, const Py_ssize_t* sizes);
bool is_complex(PyObject* array);  // its elements are complex numbers; also on a device
// (shape, dtype) of an ndarray, and of one on a device the class as a third; those which recent forms share: a new
// reference, or nullptr with an exception set.
PyObject* form_of(PyObject* array);
// Zeros of a form: a new reference, or nullptr with an exception set.
PyObject* zeros_of(PyObject* form);
// Whether an ndarray has a form.
bool has_form(PyObject* array, PyObject* form);

// Which operands an operation converts before NumPy promotes the rest (docs/tensors.md, "Promotion").
enum class Promotion : int {
    none = 0,
    mixed = 1,   // integers take the type of an inexact operand
    floats = 2,  // and where all operands are integers, the default floating-point type
};
// Converts operands in their places: new references for the old ones. False with an exception set.
bool promote(Promotion rule, PyObject** operands, Py_ssize_t count);
// The type of integers that become inexact: a floating-point numpy.dtype. False with an exception set: no dtype.
bool set_default_type(PyObject* dtype);

// Whether several elements of an exact ndarray may be the same memory, so that writing to it means nothing. False with
// an exception set: it is none.
bool overlaps(PyObject* array, bool* result);

// What an ndarray is, as its memory can be shipped. `type` is NumPy's number of the element type, or kFirstNamed and
// the place of a type of ml_dtypes in dlpack::kNamed; -1 for all that is not plain numbers in this machine's byte
// order.
struct ArrayView {
    std::byte* data;
    PyObject* base;             // borrowed
    const Py_ssize_t* sizes;    // these two die when somebody reshapes the array in place
    const Py_ssize_t* strides;  // bytes
    std::uint64_t bytes;        // of the elements, wherever they lie
    int axes;
    int type;
    bool c_order, fortran_order, writable;
};
constexpr int kFirstNamed = 0x80;
constexpr int kMaxAxes = 64;  // of an array in any version of NumPy
// Makes a type of ArrayView known to this process. False with an exception set: ml_dtypes is missing, or lacks it.
bool load_named(int type);
inline bool load_type(int type) {
    return type < kFirstNamed || load_named(type);
}

// The class ndarray; nullptr, without an exception, where NumPy has not been imported by anybody.
PyTypeObject* array_type_if_loaded();
// pre: an exact ndarray, for both.
ArrayView view_array(PyObject* array);
PyObject* base_of(PyObject* array);  // borrowed, may be nullptr

// The elements, in C order unless the array is in Fortran order, to `into`; lets go of the GIL when there are many.
// False with an exception set.
bool copy_elements(PyObject* array, const ArrayView& view, std::byte* into);

// Bytes of an array; ~0 when that overflows or there is no such number type.
std::uint64_t array_bytes(int type, int axes, const Py_ssize_t* sizes);
// Whether an array of this form reaches no byte outside of [0, bytes). `strides` may be nullptr: without gaps.
bool array_fits(int type, int axes, const Py_ssize_t* sizes, const Py_ssize_t* strides, std::uint64_t offset,
                std::uint64_t bytes);
// pre: it fits; types as in ArrayView. An array at `data` that keeps `owner`, or (owner nullptr) one on the heap with a
// copy of the elements at `data`; one that may not be written unless `writable`. A new reference, or nullptr with an
// exception set.
PyObject* array_at(PyObject* owner, const std::byte* data, int type, int axes, const Py_ssize_t* sizes,
                   const Py_ssize_t* strides, bool fortran_order, bool writable = true);

// What the elements of an array are: a kind and bytes where NumPy has such a number itself (in this machine's byte
// order), else kind 0, and the name of the class of its scalars.
struct ElementKind {
    char kind;  // 'b', 'i', 'u', 'f', 'c'
    int bytes;
    const char* name;
};
// Also on a device. TypeError when it is no array. False with an exception set.
bool kind_of(PyObject* array, ElementKind* kind);
// The dtype of such a number, or of a type of ml_dtypes (else ImportError, or AttributeError where that is older): a
// new reference, or nullptr with an exception set.
PyObject* dtype_of(char kind, int bytes);
PyObject* named_dtype(const dlpack::Named& type);
// NumPy's number of a dtype; -1 for all else, without an exception.
int type_of(PyObject* dtype);
struct Item {
    int bytes, alignment;
};
Item item_of(PyObject* dtype);
// An array of this form over memory that `owner` keeps; nullptr for `data`: of no elements, without memory or owner.
// pre: the elements lie there, aligned. A new reference, or nullptr with an exception set.
PyObject* array_over(PyObject* owner, std::byte* data, PyObject* dtype, int axes, const Py_ssize_t* sizes,
                     const Py_ssize_t* strides, bool writable);

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
