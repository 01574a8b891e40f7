// NumPy arrays over memory that a Python object keeps alive. Only array.cpp uses NumPy's C API.
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

// Arrays on devices are CuPy's: objects of a class that is unknown until a program uses a GPU. A function below accepts
// them only if its comment says so.
void set_device_arrays(PyObject* type, PyObject* module);
bool is_device_array(PyObject* object);
extern PyObject* device_module;  // CuPy; nullptr: not loaded
// Settles the operands of one operation, each an owned reference. If one of them, or an element of a list among them,
// is on a device, host arrays of one element become numbers, and other host arrays are refused (`form`: of the
// operation). `first`: the first operand on a device, borrowed; nullptr: none. False with an exception set.
bool settle_devices(PyObject** operands, Py_ssize_t count, PyObject* form, PyObject** first);

// For results and operands of NumPy, which must have been imported. No exception is set.
bool is_array(PyObject* object);
bool is_known_array(PyObject* object);           // an exact ndarray of a type that NumPy and tensors have
bool is_part_of(PyObject* array, PyObject* of);  // according to their bases; both ndarrays
bool is_alone(PyObject* array);                  // not a view; an ndarray, or on a device
bool is_operand(PyObject* object);               // an operand of a tensor: core.OPERANDS
PyObject* array_of_scalar(PyObject* object);     // nullptr without an exception: not a scalar of a known type
PyObject* copy_of(PyObject* array);              // also on a device
// A new array of the type of an ndarray, in C order, uninitialised. nullptr with an exception set.
PyObject* new_array(PyObject* like, int axes, const Py_ssize_t* sizes);
bool is_complex(PyObject* array);  // its elements are complex numbers; also on a device
// (shape, dtype) of an ndarray; of an array on a device, its class as a third. Recent tuples are reused. A new
// reference, or nullptr with an exception set.
PyObject* form_of(PyObject* array);
// Zeros of a form: a new reference, or nullptr with an exception set.
PyObject* zeros_of(PyObject* form);
// Whether an ndarray has a form.
bool has_form(PyObject* array, PyObject* form);

// Which operands an operation converts before NumPy promotes the others (docs/tensors.md, "Promotion").
enum class Promotion : int {
    none = 0,
    mixed = 1,   // integers take the type of an inexact operand
    floats = 2,  // and where all operands are integers, the default floating-point type
};
// Converts operands in place: new references replace the old ones. False with an exception set.
bool promote(Promotion rule, PyObject** operands, Py_ssize_t count);
// Sets the type that integers get when they become inexact: a floating-point numpy.dtype. False with an exception set.
bool set_default_type(PyObject* dtype);

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

// The element type of an array: a kind and bytes if NumPy has such a number itself (in native byte order), else kind 0;
// and the name of the class of its scalars.
struct ElementKind {
    char kind;  // 'b', 'i', 'u', 'f', 'c'
    int bytes;
    const char* name;
};
// Also on a device. False with an exception set; TypeError: not an array.
bool kind_of(PyObject* array, ElementKind* kind);
// The dtype of such a number, or of a type of ml_dtypes: a new reference, or nullptr with an exception set
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
