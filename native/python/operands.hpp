// Operands and results of operations: arrays of NumPy or of a device, Python numbers, and which element types they are
// converted to.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace shmtensor {

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

// The element type of an array: a kind and bytes if NumPy has such a number itself (in native byte order), else kind 0;
// and the name of the class of its scalars.
struct ElementKind {
    char kind;  // 'b', 'i', 'u', 'f', 'c'
    int bytes;
    const char* name;
};
// Also on a device. False with an exception set; TypeError: not an array.
bool kind_of(PyObject* array, ElementKind* kind);

}  // namespace shmtensor
