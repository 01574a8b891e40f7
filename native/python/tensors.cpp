#include "python/tensors.hpp"

#include <structmember.h>

#include "python/array.hpp"
#include "python/autograd.hpp"
#include "python/codec_memory.hpp"
#include "python/operands.hpp"
#include "python/ref.hpp"

namespace shmtensor {

TensorLayout tensors;

namespace {

bool slot_offset(PyObject* type, const char* name, Py_ssize_t* offset) {
    const Ref member(PyObject_GetAttrString(type, name));
    if (!member) return false;
    if (Py_TYPE(member.get()) != &PyMemberDescr_Type) {
        PyErr_Format(PyExc_SystemError, "%R.%s is not a slot", type, name);
        return false;
    }
    *offset = reinterpret_cast<PyMemberDescrObject*>(member.get())->d_member->offset;
    return true;
}

bool learn_tensors(PyObject* module) {
    const Ref type(PyObject_GetAttrString(module, "Tensor"));
    const Ref storage(type ? PyObject_GetAttrString(module, "Storage") : nullptr);
    TensorLayout l{};
    if (!storage || !slot_offset(storage.get(), "_epoch", &l.storage_epoch) ||
        !slot_offset(storage.get(), "_counter", &l.storage_counter))
        return false;
    l.live = PyUnicode_InternFromString("_live");
    l.share_memory_ = PyUnicode_InternFromString("share_memory_");
    l.index = PyUnicode_InternFromString("_index");
    l.assign = PyUnicode_InternFromString("_assign");
    l.not_single = PyUnicode_InternFromString("_not_single");
    l.unmoved = PyLong_FromLong(0);
    l.settled = PyLong_FromLong(-1);
    if (!l.live || !l.share_memory_ || !l.index || !l.assign || !l.not_single || !l.unmoved || !l.settled) return false;
    l.tensor = reinterpret_cast<PyTypeObject*>(Py_NewRef(type.get()));
    l.storage = reinterpret_cast<PyTypeObject*>(Py_NewRef(storage.get()));
    // A Python class gets a tp_dealloc that looks for slots, a dict and __del__. Tensor adds none of these to its base.
    l.tensor->tp_dealloc = l.tensor->tp_base->tp_dealloc;
    tensors = l;
    return true;
}

// Whether an array that was taken in `epoch` lies where its storage is now. pre: a Storage.
bool is_current(PyObject* storage, PyObject* epoch) {
    PyObject* now = slot(storage, tensors.storage_epoch);
    return now == epoch || (now && epoch && PyObject_RichCompareBool(now, epoch, Py_EQ) == 1);
}

// tensor(array, storage=None, epoch=0)
PyObject* tensor(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count < 1 || count > 3) {
        PyErr_Format(PyExc_TypeError, "tensor takes 1 to 3 arguments, not %zd", count);
        return nullptr;
    }
    if (!need_tensors()) return nullptr;
    return make_tensor(given[0], count > 1 ? given[1] : Py_None, count > 2 ? given[2] : tensors.unmoved);
}

// Sizes that are plain integers: one, or a tuple of them. Returns the count; -1, without an exception, for other
// objects.
int plain_sizes(PyObject* shape, Py_ssize_t* sizes) {
    const bool several = PyTuple_CheckExact(shape);
    const Py_ssize_t count = several ? PyTuple_GET_SIZE(shape) : 1;
    if (count > kMaxAxes) return -1;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* size = several ? PyTuple_GET_ITEM(shape, i) : shape;
        if (!PyLong_CheckExact(size)) return -1;
        sizes[i] = PyLong_AsSsize_t(size);
        if (sizes[i] < 0) return PyErr_Clear(), -1;
    }
    return static_cast<int>(count);
}

// allocate_tensor(client, dtype, shape)
PyObject* allocate_tensor(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count != 3) {
        PyErr_Format(PyExc_TypeError, "allocate_tensor takes 3 arguments, not %zd", count);
        return nullptr;
    }
    if (!need_tensors() || !client_of(given[0])) return nullptr;
    Py_ssize_t sizes[kMaxAxes];
    const int type = type_of(given[1]), axes = plain_sizes(given[2], sizes);
    const std::uint64_t bytes = type < 0 || axes < 0 ? 0 : array_bytes(type, axes, sizes);
    if (bytes == 0 || bytes > kMaxSegmentBytes) Py_RETURN_NONE;
    Block* block = nullptr;
    if (!allocate_block(given[0], bytes, &block, kHost)) return nullptr;
    const std::byte* data = block->data();
    const Ref base(take_wrapper(block));
    const Ref array(base ? array_at(base.get(), data, type, axes, sizes, nullptr, false) : nullptr);
    return array ? make_tensor(array.get(), Py_None, tensors.settled) : nullptr;
}

// ----------------------------------------------- TensorBase: the methods of Tensor that programs call for each element

// The live array of a Tensor; TensorBase itself is refused. A new reference, or nullptr with an exception set.
PyObject* array_of(PyObject* self) {
    if (!need_tensors()) return nullptr;
    if (PyObject_TypeCheck(self, tensors.tensor)) return live_array(self);
    PyErr_Format(PyExc_TypeError, "a shmtensor.Tensor is needed, not %.100s", Py_TYPE(self)->tp_name);
    return nullptr;
}

// x[key] for a slice, or an integer within the first axis. nullptr without an exception for other keys, which
// Tensor._index handles.
PyObject* view_at(PyObject* self, PyObject* key) {
    const bool slice = PySlice_Check(key);
    if (!(slice || PyLong_CheckExact(key)) || !tensors.tensor || !PyObject_TypeCheck(self, tensors.tensor))
        return nullptr;
    PyObject *storage = slot(self, tensors.storage_of), *epoch = slot(self, tensors.epoch);
    // Tensor._index first makes a storage for a tensor without one, and updates a tensor whose storage has moved.
    if (!storage || !epoch) return nullptr;
    if (storage == Py_None ? epoch != tensors.settled : !is_current(storage, epoch)) return nullptr;
    const Ref array = Ref::to(slot(self, tensors.array)), kept = Ref::to(storage), since = Ref::to(epoch);
    if (!array) return nullptr;
    const Py_ssize_t index = slice ? 0 : PyLong_AsSsize_t(key);
    if (index == -1 && PyErr_Occurred()) return PyErr_Clear(), nullptr;
    const Ref view(slice ? PyObject_GetItem(array.get(), key) : element_view(array.get(), index));
    if (!view && slice) PyErr_Clear();  // _index raises the error
    PyObject* made = view ? make_tensor(view.get(), storage, epoch) : nullptr;
    if (made) become_view(made, self);
    return made;
}

// Whether gradients are recorded for a tensor. pre: tensors have been imported
bool is_recorded(PyObject* tensor) {
    return autograd::modes.enabled && autograd::requires_grad(tensor);
}

PyObject* subscript(PyObject* self, PyObject* key) {
    if (!need_tensors()) return nullptr;
    const bool whole = PyObject_TypeCheck(self, tensors.tensor);
    if (whole && is_recorded(self)) return autograd::call_python("getitem", self, key);
    PyObject* view = view_at(self, key);
    if (view || PyErr_Occurred()) return view;
    PyObject* arguments[] = {self, key};
    PyObject* made = PyObject_VectorcallMethod(tensors.index, arguments, 2, nullptr);
    const bool shares = made && whole && slot(made, tensors.storage_of) != Py_None &&
                        slot(made, tensors.storage_of) == slot(self, tensors.storage_of);
    if (shares) become_view(made, self);
    return made;
}

// x[key] = value
int assign(PyObject* self, PyObject* key, PyObject* value) {
    if (!value) return PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted"), -1;
    if (!need_tensors()) return -1;
    if (PyObject_TypeCheck(self, tensors.tensor)) {
        const bool from_tensor = PyObject_TypeCheck(value, tensors.tensor);
        if (is_recorded(self) || (from_tensor && is_recorded(value)))
            return Ref(autograd::call_python("setitem", self, key, value)) ? 0 : -1;
        autograd::changed(self);
    }
    PyObject* arguments[] = {self, key, value};
    return Ref(PyObject_VectorcallMethod(tensors.assign, arguments, 3, nullptr)) ? 0 : -1;
}

// The only element as a Python value; `doing` is for the error if there is not exactly one.
PyObject* element(PyObject* self, const char* doing) {
    const Ref array(array_of(self));
    if (!array) return nullptr;
    if (is_device_array(array.get())) return PyObject_CallMethod(self, "_device_item", "s", doing);
    if (PyObject* value = only_element(array.get()); value || PyErr_Occurred()) return value;
    const Ref what(PyUnicode_FromString(doing));
    return what ? PyObject_CallMethodOneArg(self, tensors.not_single, what.get()) : nullptr;
}

PyObject* item(PyObject* self, PyObject*) {
    return element(self, "item() of");
}
PyObject* numpy(PyObject* self, PyObject*) {
    const Ref array(array_of(self));
    if (array && autograd::requires_grad(self)) return autograd::call_python("refuse_numpy", self);
    if (array && is_device_array(array.get())) return PyObject_CallMethod(self, "_refuse_host", nullptr);
    return array ? whole_view(array.get()) : nullptr;
}
PyObject* to_float(PyObject* self) {
    const Ref value(element(self, "item() of"));
    return value ? PyNumber_Float(value.get()) : nullptr;
}
PyObject* to_int(PyObject* self) {
    const Ref value(element(self, "item() of"));
    return value ? PyNumber_Long(value.get()) : nullptr;
}
int to_bool(PyObject* self) {
    const Ref value(element(self, "truth of"));
    return value ? PyObject_IsTrue(value.get()) : -1;
}

// NumPy exports the buffer of a fresh view, so that a caller who gets the object of a memoryview and reshapes it does
// not change the tensor.
int export_buffer(PyObject* self, Py_buffer* buffer, int flags) {
    buffer->obj = nullptr;
    const Ref array(array_of(self));
    if (array && is_device_array(array.get())) {
        PyErr_SetString(PyExc_BufferError, "a tensor on a GPU has no buffer; copy it with x.cpu()");
        return -1;
    }
    const Ref view(array ? whole_view(array.get()) : nullptr);
    return view ? PyObject_GetBuffer(view.get(), buffer, flags) : -1;
}

int clear(PyObject* self) {
    auto* tensor = reinterpret_cast<TensorObject*>(self);
    Py_CLEAR(tensor->array);
    Py_CLEAR(tensor->storage);
    Py_CLEAR(tensor->epoch);
    Py_CLEAR(tensor->meta);
    Py_CLEAR(tensor->base);
    Py_CLEAR(tensor->counter);
    return 0;
}
int visit(PyObject* self, visitproc visit, void* arg) {
    auto* tensor = reinterpret_cast<TensorObject*>(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(tensor->array);
    Py_VISIT(tensor->storage);
    Py_VISIT(tensor->meta);
    Py_VISIT(tensor->base);
    return 0;
}
void drop(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (reinterpret_cast<TensorObject*>(self)->weak) PyObject_ClearWeakRefs(self);
    clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMemberDef base_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weak), READONLY, nullptr},
    {"_array", T_OBJECT_EX, offsetof(TensorObject, array), 0, nullptr},
    {"_storage", T_OBJECT_EX, offsetof(TensorObject, storage), 0, nullptr},
    {"_epoch", T_OBJECT_EX, offsetof(TensorObject, epoch), 0, nullptr},
    {"_base", T_OBJECT_EX, offsetof(TensorObject, base), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyMethodDef base_methods[] = {
    {"item", item, METH_NOARGS,
     "item($self, /)\n--\n\nThe only element as a Python value. Does not block.\n\n"
     "Raises InvalidArgument: there is not exactly one."},
    {"numpy", numpy, METH_NOARGS,
     "numpy($self, /)\n--\n\nAn ndarray over the same memory, which it keeps alive.\n\n"
     "It does not follow the storage when that moves (`share_memory_`, `resize_`): call numpy() after that."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot base_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(drop)},
    {Py_tp_traverse, reinterpret_cast<void*>(visit)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_members, base_members},
    {Py_mp_subscript, reinterpret_cast<void*>(subscript)},
    {Py_mp_ass_subscript, reinterpret_cast<void*>(assign)},
    {Py_tp_getset, autograd::tensor_attributes},
    {Py_nb_float, reinterpret_cast<void*>(to_float)},
    {Py_nb_int, reinterpret_cast<void*>(to_int)},
    {Py_nb_bool, reinterpret_cast<void*>(to_bool)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(export_buffer)},
    {Py_tp_methods, base_methods},
    {0, nullptr},
};
PyType_Spec base_spec = {"shmtensor._native.TensorBase", sizeof(TensorObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, base_slots};

PyMethodDef functions[] = {
    {"tensor", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(tensor)), METH_FASTCALL, nullptr},
    {"allocate_tensor", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(allocate_tensor)), METH_FASTCALL,
     nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool need_tensors() {
    if (tensors.tensor) return true;
    const Ref methods(load_module("_tensor.methods"));
    if (!methods) return false;
    const Ref module(load_module("_tensor.core"));
    return module && learn_tensors(module.get());
}

PyTypeObject* find_tensors() {
    const Ref name(PyUnicode_FromString("shmtensor._tensor.core"));
    const Ref module(name ? PyImport_GetModule(name.get()) : nullptr);
    // While the module is being imported, there are no tensors yet.
    if (!module || !PyObject_HasAttrString(module.get(), "TENSOR_CLASSES") || !learn_tensors(module.get()))
        PyErr_Clear();
    return tensors.tensor;
}

PyObject* make_tensor(PyObject* array, PyObject* storage, PyObject* epoch) {
    PyObject* made = tensors.tensor->tp_alloc(tensors.tensor, 0);
    if (!made) return nullptr;
    slot(made, tensors.array) = Py_NewRef(array);
    slot(made, tensors.storage_of) = Py_NewRef(storage);
    slot(made, tensors.epoch) = Py_NewRef(epoch);
    return made;
}

void become_view(PyObject* tensor, PyObject* of) {
    PyObject* base = slot(of, tensors.base);
    if (!base) base = autograd::modes.enabled ? of : Py_None;
    slot(tensor, tensors.base) = Py_NewRef(base);
    if (PyObject* counter = slot(of, tensors.counter)) slot(tensor, tensors.counter) = Py_NewRef(counter);
}

PyObject* find_live_array(PyObject* t) {
    PyObject *array = slot(t, tensors.array), *storage = slot(t, tensors.storage_of), *epoch = slot(t, tensors.epoch);
    if (storage && PyObject_TypeCheck(storage, tensors.storage)) {
        Py_XSETREF(tensors.usual_storage, reinterpret_cast<PyTypeObject*>(Py_NewRef(Py_TYPE(storage))));
        if (!is_current(storage, epoch)) return PyObject_CallMethodNoArgs(t, tensors.live);
    } else if (storage != Py_None) {
        array = nullptr;
    }
    if (!array) PyErr_SetString(PyExc_AttributeError, "the tensor was not initialised");
    return Py_XNewRef(array);
}

bool add_tensors(PyObject* module) {
    const Ref base(PyType_FromSpec(&base_spec));
    return base && PyModule_AddObjectRef(module, "TensorBase", base.get()) == 0 &&
           PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace shmtensor
