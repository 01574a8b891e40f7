// Tensors as C++ sees them: their classes, where the slots lie, and how one is made.
#pragma once

#include <Python.h>

namespace shmtensor {

// Known once shmtensor._tensor.core has been imported by whoever.
struct TensorLayout {
    PyTypeObject *tensor, *storage;
    Py_ssize_t array, storage_of, epoch, storage_epoch;
    PyObject *live, *share_memory_, *index, *not_single;  // names of methods
    PyObject *unmoved, *settled;                          // epochs: 0, core.SETTLED
};
extern TensorLayout tensors;

bool need_tensors();           // imports them; false with an exception set
PyTypeObject* find_tensors();  // nullptr: nobody has imported them
inline PyTypeObject* tensor_type_if_loaded() {
    return tensors.tensor ? tensors.tensor : find_tensors();
}

inline PyObject*& slot(PyObject* object, Py_ssize_t offset) {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
}

// A tensor with the view `array` of `storage` (or None) as it lies since `epoch`. nullptr with an exception set.
PyObject* make_tensor(PyObject* array, PyObject* storage, PyObject* epoch);
// The view of a tensor over the memory where its storage is now: a new reference, or nullptr with an exception set.
PyObject* live_array(PyObject* tensor);

// Its function `tensor`, and `TensorBase`, under Tensor: what is called for single elements, and buffers. False with an
// exception set.
bool add_tensors(PyObject* module);

}  // namespace shmtensor
