// Tensors in C++: their classes, the offsets of their slots, and how one is made.
#pragma once

#include <Python.h>

#include <cstddef>

namespace shmtensor {

// A tensor: core.Tensor documents the first three fields. The others are for the graph of gradients
// (python/autograd.hpp), and nullptr in most tensors.
struct TensorObject {
    PyObject_HEAD PyObject *array, *storage, *epoch;
    PyObject *meta, *base, *counter;
    PyObject* weak;  // weak references to it
};

// Set once shmtensor._tensor.core has been imported.
struct TensorLayout {
    static constexpr Py_ssize_t array = offsetof(TensorObject, array), storage_of = offsetof(TensorObject, storage),
                                epoch = offsetof(TensorObject, epoch), meta = offsetof(TensorObject, meta),
                                base = offsetof(TensorObject, base), counter = offsetof(TensorObject, counter);
    PyTypeObject *tensor, *storage;
    PyTypeObject* usual_storage;  // the class of the last storage that `find_live_array` saw
    Py_ssize_t storage_epoch, storage_counter;
    PyObject *live, *share_memory_, *index, *assign, *not_single;  // names of methods
    PyObject *unmoved, *settled;                                   // epochs: 0, core.SETTLED
};
extern TensorLayout tensors;

bool need_tensors();           // imports them; false with an exception set
PyTypeObject* find_tensors();  // nullptr: not imported
inline PyTypeObject* tensor_type_if_loaded() {
    return tensors.tensor ? tensors.tensor : find_tensors();
}

inline PyObject*& slot(PyObject* object, Py_ssize_t offset) {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
}

// A tensor with the view `array` of `storage` (or None), which has been at its place since `epoch`. nullptr with an
// exception set.
PyObject* make_tensor(PyObject* array, PyObject* storage, PyObject* epoch);
// Makes a tensor a view of another one. Does not fail.
void become_view(PyObject* tensor, PyObject* of);
// The view of a tensor over the present memory of its storage: a new reference, or nullptr with an exception set.
PyObject* find_live_array(PyObject* tensor);  // the general case
inline PyObject* live_array(PyObject* tensor) {
    PyObject *array = slot(tensor, tensors.array), *storage = slot(tensor, tensors.storage_of);
    const bool current = storage == Py_None || (storage && Py_TYPE(storage) == tensors.usual_storage &&
                                                slot(storage, tensors.storage_epoch) == slot(tensor, tensors.epoch));
    return current && array ? Py_NewRef(array) : find_live_array(tensor);
}

// Adds the function `tensor`, and `TensorBase`, the base of Tensor, with the methods for single elements and buffers.
// False with an exception set.
bool add_tensors(PyObject* module);

}  // namespace shmtensor
