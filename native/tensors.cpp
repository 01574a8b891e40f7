#include "tensors.hpp"

#include <structmember.h>

#include "ref.hpp"

namespace shmtensor {

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
    l.unmoved = PyLong_FromLong(0);
    l.settled = PyLong_FromLong(-1);
    if (!l.live || !l.share_memory_ || !l.unmoved || !l.settled) return false;
    l.tensor = reinterpret_cast<PyTypeObject*>(Py_NewRef(type.get()));
    l.storage = reinterpret_cast<PyTypeObject*>(Py_NewRef(storage.get()));
    tensors = l;
    return true;
}

// tensor(array, storage=None, epoch=0, requires_grad=False)
PyObject* tensor(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count < 1 || count > 4) {
        PyErr_Format(PyExc_TypeError, "tensor takes 1 to 4 arguments, not %zd", count);
        return nullptr;
    }
    const int requires_grad = count > 3 ? PyObject_IsTrue(given[3]) : 0;
    if (requires_grad < 0 || !need_tensors()) return nullptr;
    return make_tensor(given[0], count > 1 ? given[1] : Py_None, count > 2 ? given[2] : tensors.unmoved, requires_grad);
}

PyMethodDef functions[] = {
    {"tensor", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(tensor)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool need_tensors() {
    if (tensors.tensor) return true;
    const Ref methods(load_module("_tensor")), module(load_module("_core"));
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

PyObject* make_tensor(PyObject* array, PyObject* storage, PyObject* epoch, bool requires_grad) {
    PyObject* made = tensors.tensor->tp_alloc(tensors.tensor, 0);
    if (!made) return nullptr;
    slot(made, tensors.array) = Py_NewRef(array);
    slot(made, tensors.storage_of) = Py_NewRef(storage);
    slot(made, tensors.epoch) = Py_NewRef(epoch);
    slot(made, tensors.requires_grad) = Py_NewRef(requires_grad ? Py_True : Py_False);
    return made;
}

bool add_tensors(PyObject* module) {
    return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace shmtensor
