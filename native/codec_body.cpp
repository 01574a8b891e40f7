#include "codec_body.hpp"

#include <structmember.h>

namespace shmtensor::codec {

TensorLayout tensors;

namespace {

bool slot_offset(PyObject* type, const char* name, Py_ssize_t* offset) {
    const Ref member(PyObject_GetAttrString(type, name));
    if (!member) return false;
    if (Py_TYPE(member.get()) != &PyMemberDescr_Type) {
        PyErr_Format(PyExc_SystemError, "%R.%s is no slot", type, name);
        return false;
    }
    *offset = reinterpret_cast<PyMemberDescrObject*>(member.get())->d_member->offset;
    return true;
}

bool learn_tensors(PyObject* module) {
    const Ref type(PyObject_GetAttrString(module, "Tensor")), storage(PyObject_GetAttrString(module, "Storage"));
    TensorLayout l{};
    if (!type || !storage || !slot_offset(type.get(), "_array", &l.array) ||
        !slot_offset(type.get(), "_storage", &l.storage_of) || !slot_offset(type.get(), "_epoch", &l.epoch) ||
        !slot_offset(type.get(), "requires_grad", &l.requires_grad) ||
        !slot_offset(storage.get(), "_epoch", &l.storage_epoch))
        return false;
    l.live = PyUnicode_InternFromString("_live");
    l.share_memory_ = PyUnicode_InternFromString("share_memory_");
    l.settled = PyLong_FromLong(-1);
    if (!l.live || !l.share_memory_ || !l.settled) return false;
    l.tensor = reinterpret_cast<PyTypeObject*>(Py_NewRef(type.get()));
    l.storage = reinterpret_cast<PyTypeObject*>(Py_NewRef(storage.get()));
    tensors = l;
    return true;
}

}  // namespace

bool need_tensors() {
    if (tensors.tensor) return true;
    const Ref methods(PyImport_ImportModule("shmtensor._tensor")), module(PyImport_ImportModule("shmtensor._core"));
    return methods && module && learn_tensors(module.get());
}

PyTypeObject* find_tensors() {
    const Ref name(PyUnicode_FromString("shmtensor._core"));
    const Ref module(name ? PyImport_GetModule(name.get()) : nullptr);
    // One that is being imported just now has made no tensors yet.
    if (!module || !PyObject_HasAttrString(module.get(), "TENSOR_CLASSES") || !learn_tensors(module.get()))
        PyErr_Clear();
    return tensors.tensor;
}

PyObject* python_part(PyObject** known, const char* name) {
    if (*known) return *known;
    const Ref module(PyImport_ImportModule("shmtensor.codec"));
    return module ? *known = PyObject_GetAttrString(module.get(), name) : nullptr;
}

}  // namespace shmtensor::codec
