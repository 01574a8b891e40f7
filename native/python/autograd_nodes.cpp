// Nodes of the graph, and the attributes of tensors that belong to it.
#include <cstddef>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "python/autograd.hpp"
#include "python/autograd_rules.hpp"
#include "python/operands.hpp"

#include <structmember.h>

namespace shmtensor::autograd {

Types types;
constinit thread_local Modes modes;
constinit thread_local PyObject* packing = nullptr;

namespace {

constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max();
std::uint64_t next_sequence = 0;  // guarded by the GIL

// Objects to drop after the node that is being dropped.
thread_local std::vector<PyObject*> later;
thread_local bool dropping = false;

Node& as_node(PyObject* object) {
    return *reinterpret_cast<Node*>(object);
}
PyObject* as_object(void* object) {
    return static_cast<PyObject*>(object);
}

// -------------------------------------------------------------------------------------------------------------- nodes

void drop_edges(Node& node) {
    graph::Edge* edges = std::exchange(node.core.edges, nullptr);
    const std::uint32_t count = std::exchange(node.core.edge_count, 0);
    const std::uint16_t saved = std::exchange(node.saved_count, std::uint16_t{0});
    for (std::uint32_t i = 0; i < count; ++i) {
        if (edges[i].to) drop_later(object_of(edges[i].to));
        Py_XDECREF(static_cast<PyObject*>(const_cast<void*>(edges[i].form)));
    }
    for (std::uint16_t i = 0; i < saved; ++i) drop_later(node.saved[i].value);
    node.saved = nullptr;
    PyMem_Free(edges);
}

int clear_node(PyObject* object) {
    Node& node = as_node(object);
    drop_edges(node);
    Py_CLEAR(node.rule);
    drop_later(std::exchange(node.extras, nullptr));
    return 0;
}

int visit_node(PyObject* object, visitproc visit, void* arg) {
    Node& node = as_node(object);
    Py_VISIT(Py_TYPE(object));
    for (std::uint32_t i = 0; i < node.core.edge_count; ++i)
        if (node.core.edges[i].to) Py_VISIT(object_of(node.core.edges[i].to));
    for (std::uint16_t i = 0; i < node.saved_count; ++i) Py_VISIT(node.saved[i].value);
    Py_VISIT(node.rule);
    Py_VISIT(node.extras);
    return 0;
}

void free_object(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

void drop_node(PyObject* object) {
    PyObject_GC_UnTrack(object);
    clear_node(object);
    free_object(object);
}

PyObject* new_node(PyTypeObject* type, PyObject*, PyObject*) {
    return reinterpret_cast<PyObject*>(make_node(type));
}

// (node, output) of each edge, (None, 0) of one without a gradient.
PyObject* next_functions(PyObject* object, void*) {
    const graph::Node& node = as_node(object).core;
    Ref made(PyTuple_New(node.edge_count));
    for (std::uint32_t i = 0; made && i < node.edge_count; ++i) {
        const graph::Edge& edge = node.edges[i];
        PyObject* pair = Py_BuildValue("OI", edge.to ? object_of(edge.to) : Py_None, edge.output);
        if (!pair) return nullptr;
        PyTuple_SET_ITEM(made.get(), i, pair);
    }
    return made.release();
}
PyObject* get_extras(PyObject* object, void*) {
    Node& node = as_node(object);
    if (!node.extras) node.extras = PyDict_New();
    return Py_XNewRef(node.extras);
}
PyObject* get_rule(PyObject* object, void*) {
    return Py_NewRef(as_node(object).rule ? as_node(object).rule : Py_None);
}
PyObject* get_sequence(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(as_node(object).core.sequence);
}

PyObject* node_name(PyObject* object, PyObject*) {
    return call_python("name_of", object);
}
PyObject* node_text(PyObject* object) {
    const Ref name(node_name(object, nullptr));
    return name ? PyUnicode_FromFormat("<%U at %p>", name.get(), object) : nullptr;
}
PyObject* register_hook(PyObject* object, PyObject* hook) {
    return call_python("hook_after", object, hook);
}
PyObject* register_prehook(PyObject* object, PyObject* hook) {
    return call_python("hook_before", object, hook);
}
PyObject* get_metadata(PyObject* object, void*) {
    return call_python("metadata_of", object);
}

PyMethodDef node_methods[] = {
    {"name", node_name, METH_NOARGS, "Name of the operation, such as MultiplyBackward."},
    {"register_hook", register_hook, METH_O,
     "Call hook(gradients of inputs, gradients of outputs) after the node has run; its result replaces the former."},
    {"register_prehook", register_prehook, METH_O,
     "Call hook(gradients of outputs) before the node runs; its result replaces them."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef node_attributes[] = {
    {"metadata", get_metadata, nullptr, "A dict for the user's own data.", nullptr},
    {"previous_functions", next_functions, nullptr, "The old name of next_functions.", nullptr},
    {"next_functions", next_functions, nullptr,
     "(node, output) that made each input; (None, 0) where no gradient is needed.", nullptr},
    {"_extras", get_extras, nullptr, nullptr, nullptr},
    {"_rule", get_rule, nullptr, nullptr, nullptr},
    {"_sequence_nr", get_sequence, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot node_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_node)},
    {Py_tp_dealloc, reinterpret_cast<void*>(drop_node)},
    {Py_tp_traverse, reinterpret_cast<void*>(visit_node)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_node)},
    {Py_tp_getset, node_attributes},
    {Py_tp_methods, node_methods},
    {Py_tp_repr, reinterpret_cast<void*>(node_text)},
    {0, nullptr},
};
PyType_Spec node_spec = {"shmtensor._native.Node", sizeof(Node), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, node_slots};

// Whether a saved value takes little memory, such as a number, shape or type: it stays after a pass.
bool is_small(PyObject* value) {
    if (PyUnicode_Check(value)) return true;
    if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value))
        return !PyObject_TypeCheck(value, tensors.tensor) && !PyObject_CheckBuffer(value) && !PySequence_Check(value);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
        if (!is_small(PySequence_Fast_GET_ITEM(value, i))) return false;
    return true;
}

// -------------------------------------------------------------------------------------------------------------- leaves

Accumulator& as_accumulator(PyObject* object) {
    return *reinterpret_cast<Accumulator*>(object);
}

int clear_accumulator(PyObject* object) {
    Accumulator& self = as_accumulator(object);
    if (PyObject* leaf = std::exchange(self.leaf, nullptr)) {
        if (Meta* meta = meta_of(leaf); meta && meta->accumulator == &self) meta->accumulator = nullptr;
        Py_DECREF(leaf);
    }
    return clear_node(object);
}
int visit_accumulator(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(as_accumulator(object).leaf);
    return visit_node(object, visit, arg);
}
void drop_accumulator(PyObject* object) {
    PyObject_GC_UnTrack(object);
    clear_accumulator(object);
    free_object(object);
}

PyMemberDef accumulator_members[] = {
    {"variable", T_OBJECT, offsetof(Accumulator, leaf), READONLY, "The leaf that gets the gradient."},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot accumulator_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(drop_accumulator)},
    {Py_tp_traverse, reinterpret_cast<void*>(visit_accumulator)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_accumulator)},
    {Py_tp_members, accumulator_members},
    {0, nullptr},
};
PyType_Spec accumulator_spec = {"shmtensor._native.AccumulateGrad", sizeof(Accumulator), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, accumulator_slots};

// ------------------------------------------------------------------------------------------------- Meta and Counter

Meta& as_meta(PyObject* object) {
    return *reinterpret_cast<Meta*>(object);
}
int clear_meta(PyObject* object) {
    Meta& meta = as_meta(object);
    drop_later(as_object(std::exchange(meta.node, nullptr)));
    drop_later(std::exchange(meta.grad, nullptr));
    Py_CLEAR(meta.hooks);
    Py_CLEAR(meta.post_hooks);
    return 0;
}
int visit_meta(PyObject* object, visitproc visit, void* arg) {
    Meta& meta = as_meta(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(as_object(meta.node));
    Py_VISIT(meta.grad);
    Py_VISIT(meta.hooks);
    Py_VISIT(meta.post_hooks);
    return 0;
}
void drop_meta(PyObject* object) {
    PyObject_GC_UnTrack(object);
    clear_meta(object);
    free_object(object);
}
PyType_Slot meta_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(drop_meta)},
    {Py_tp_traverse, reinterpret_cast<void*>(visit_meta)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_meta)},
    {0, nullptr},
};
PyType_Spec meta_spec = {"shmtensor._native.AutogradMeta", sizeof(Meta), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                         meta_slots};

void drop_counter(PyObject* object) {
    free_object(object);
}
PyType_Slot counter_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(drop_counter)}, {0, nullptr}};
PyType_Spec counter_spec = {"shmtensor._native.ChangeCounter", sizeof(Counter), 0, Py_TPFLAGS_DEFAULT, counter_slots};

std::uint64_t changes_of(PyObject* tensor) {
    PyObject* counter = counter_place(tensor);
    return counter ? reinterpret_cast<Counter*>(counter)->changes : 0;
}

// Renews the node of a view if it is older than the last change of its memory. False with an exception set.
bool follow_base(PyObject* tensor) {
    PyObject* base = slot(tensor, tensors.base);
    if (!base || base == Py_None || !requires_grad(base)) return true;
    const Meta* meta = meta_of(tensor);
    if (meta && meta->node && meta->changes == changes_of(tensor)) return true;
    return static_cast<bool>(Ref(call_python("refresh_view", tensor)));
}

// ------------------------------------------------------------------------------------------- attributes of tensors

PyObject* get_requires_grad(PyObject* self, void*) {
    return need_tensors() ? PyBool_FromLong(requires_grad(self)) : nullptr;
}
int set_requires_grad(PyObject* self, PyObject* value, void*) {
    const int wanted = value ? PyObject_IsTrue(value) : 0;
    if (wanted < 0) return -1;
    if (wanted == requires_grad(self)) return 0;
    if (!Ref(call_python("require_settable", self, value ? value : Py_False))) return -1;
    Meta* meta = need_meta(self);
    if (!meta) return -1;
    meta->requires_grad = wanted != 0;
    // A leaf is the base of its own views, whose changes would change the leaf.
    PyObject* base = wanted ? std::exchange(slot(self, tensors.base), nullptr) : nullptr;
    Py_XDECREF(base);
    return 0;
}
PyObject* get_grad(PyObject* self, void*) {
    const Meta* meta = meta_of(self);
    return Py_NewRef(meta && meta->grad ? meta->grad : Py_None);
}
int set_grad(PyObject* self, PyObject* value, void*) {
    if (value == Py_None) value = nullptr;
    if (!value && !meta_of(self)) return 0;
    if (value && !Ref(call_python("require_gradient_of", self, value))) return -1;
    Meta* meta = need_meta(self);
    if (!meta) return -1;
    PyObject* old = std::exchange(meta->grad, Py_XNewRef(value));
    Py_XDECREF(old);
    return 0;
}
PyObject* get_node(PyObject* self, void*) {
    if (!follow_base(self)) return nullptr;
    const Meta* meta = meta_of(self);
    return Py_NewRef(meta && meta->node ? as_object(meta->node) : Py_None);
}
PyObject* get_is_leaf(PyObject* self, void*) {
    const Ref node(get_node(self, nullptr));
    return node ? PyBool_FromLong(node.get() == Py_None) : nullptr;
}
PyObject* get_output(PyObject* self, void*) {
    const Meta* meta = meta_of(self);
    return PyLong_FromUnsignedLong(meta ? meta->output : 0);
}
PyObject* get_retains(PyObject* self, void*) {
    const Meta* meta = meta_of(self);
    return PyBool_FromLong(meta && meta->retains_grad);
}
PyObject* get_version(PyObject* self, void*) {
    const Counter* counter = need_tensors() ? need_counter(self) : nullptr;
    return counter ? PyLong_FromUnsignedLongLong(counter->changes) : nullptr;
}

// ------------------------------------------------------------------------------- functions for shmtensor.autograd

bool require_tensor(PyObject* object) {
    if (!need_tensors()) return false;
    if (PyObject_TypeCheck(object, tensors.tensor)) return true;
    PyErr_Format(PyExc_TypeError, "a shmtensor.Tensor is needed, not %.100s", Py_TYPE(object)->tp_name);
    return false;
}
bool require_node(PyObject* object) {
    if (PyObject_TypeCheck(object, types.node)) return true;
    PyErr_Format(PyExc_TypeError, "a node is needed, not %.100s", Py_TYPE(object)->tp_name);
    return false;
}

PyObject* grad_modes(PyObject*, PyObject*) {
    return Py_BuildValue("NN", PyBool_FromLong(modes.enabled), PyBool_FromLong(modes.inference));
}
PyObject* set_grad_modes(PyObject*, PyObject* args) {
    int enabled = 0, inference = 0;
    if (!PyArg_ParseTuple(args, "pp", &enabled, &inference)) return nullptr;
    modes = {enabled != 0, inference != 0};
    Py_RETURN_NONE;
}
// The hooks of saved tensors, or None.
PyObject* saving_hooks(PyObject*, PyObject*) {
    return Py_NewRef(packing ? packing : Py_None);
}
PyObject* set_saving_hooks(PyObject*, PyObject* hooks) {
    PyObject* old = std::exchange(packing, hooks == Py_None ? nullptr : Py_NewRef(hooks));
    Py_XDECREF(old);
    Py_RETURN_NONE;
}
PyObject* count_change(PyObject*, PyObject* object) {
    if (!require_tensor(object)) return nullptr;
    changed(object);
    Py_RETURN_NONE;
}
// Makes the storage of a tensor use the tensor's counter.
PyObject* share_counter(PyObject*, PyObject* object) {
    if (!require_tensor(object)) return nullptr;
    PyObject *counter = slot(object, tensors.counter), *storage = slot(object, tensors.storage_of);
    if (counter && storage && storage != Py_None && !slot(storage, tensors.storage_counter))
        slot(storage, tensors.storage_counter) = Py_NewRef(counter);
    Py_RETURN_NONE;
}
// Gives a tensor its own counter, separate from that of other tensors over the same memory.
PyObject* own_counter(PyObject*, PyObject* object) {
    if (!require_tensor(object)) return nullptr;
    PyObject* old = std::exchange(slot(object, tensors.counter), types.counter->tp_alloc(types.counter, 0));
    Py_XDECREF(old);
    return slot(object, tensors.counter) ? Py_NewRef(Py_None) : nullptr;
}
PyObject* detach(PyObject*, PyObject* object) {
    return require_tensor(object) ? detached(object) : nullptr;
}
// is_recorded(objects): whether a gradient is recorded for an operation on them
PyObject* is_recorded(PyObject*, PyObject* objects) {
    if (!modes.enabled || !need_tensors()) Py_RETURN_FALSE;
    const Ref held(PySequence_Tuple(objects));
    if (!held) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(held.get()); ++i) {
        PyObject* one = PyTuple_GET_ITEM(held.get(), i);
        if (PyObject_TypeCheck(one, tensors.tensor) && requires_grad(one)) Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
}
// connect(node, inputs, outputs): sets the edges of a node, to the nodes that made the tensors among its inputs
PyObject* connect(PyObject*, PyObject* args) {
    PyObject *node, *inputs;
    unsigned int outputs = 1;
    if (!PyArg_ParseTuple(args, "OO!I", &node, &PyTuple_Type, &inputs, &outputs) || !require_node(node)) return nullptr;
    const auto count = static_cast<std::uint32_t>(PyTuple_GET_SIZE(inputs));
    Node& self = as_node(node);
    if (self.core.edges) return PyErr_SetString(PyExc_ValueError, "the node already has edges"), nullptr;
    if (!need_tensors() || !make_room(self, count, 0)) return nullptr;
    self.core.output_count = outputs;
    for (std::uint32_t i = 0; i < count; ++i) {
        PyObject* one = PyTuple_GET_ITEM(inputs, i);
        graph::Edge& edge = self.core.edges[i];
        if (!PyObject_TypeCheck(one, tensors.tensor) || !requires_grad(one)) continue;
        if (!edge_of(one, &edge)) return nullptr;
        const Ref array(live_array(one));
        edge.form = array ? form_of(array.get()) : nullptr;
        if (!edge.form) return nullptr;
    }
    if (tracing != Tracing::off && !Ref(call_python("trace", node))) return nullptr;
    Py_RETURN_NONE;
}
// connect_as(node, other, first, tensor): gives a node the edges of another one, except that the first leads to the
// node that made `tensor`
PyObject* connect_as(PyObject*, PyObject* args) {
    PyObject *node, *other, *tensor;
    if (!PyArg_ParseTuple(args, "OOO", &node, &other, &tensor) || !require_node(node) || !require_node(other) ||
        !require_tensor(tensor))
        return nullptr;
    Node &self = as_node(node), &from = as_node(other);
    if (self.core.edges || !make_room(self, from.core.edge_count, 0)) return nullptr;
    self.core.output_count = 1;
    for (std::uint32_t i = 0; i < from.core.edge_count; ++i) {
        graph::Edge& edge = self.core.edges[i];
        if (i == 0) {
            if (requires_grad(tensor) && !edge_of(tensor, &edge)) return nullptr;
            continue;
        }
        edge = from.core.edges[i];
        if (edge.to) Py_INCREF(object_of(edge.to));
        Py_XINCREF(static_cast<PyObject*>(const_cast<void*>(edge.form)));
    }
    Py_RETURN_NONE;
}
// set_output(tensor, node, output)
PyObject* set_output(PyObject*, PyObject* args) {
    PyObject *tensor, *node;
    unsigned int output = 0;
    if (!PyArg_ParseTuple(args, "OOI", &tensor, &node, &output) || !require_tensor(tensor)) return nullptr;
    if (node == Py_None) {  // it becomes a leaf
        slot(tensor, tensors.base) = (Py_XDECREF(slot(tensor, tensors.base)), nullptr);
        if (Meta* meta = meta_of(tensor)) {
            drop_later(as_object(std::exchange(meta->node, nullptr)));
            meta->output = 0;
            meta->requires_grad = meta->retains_grad = false;
        }
        Py_RETURN_NONE;
    }
    if (!require_node(node) || !become_output(tensor, as_node(node), output)) return nullptr;
    Py_RETURN_NONE;
}
// hooks_of(tensor, after): the dict of a leaf's hooks, before or after accumulation
PyObject* hooks_of(PyObject*, PyObject* args) {
    PyObject* tensor;
    int after = 0;
    if (!PyArg_ParseTuple(args, "Op", &tensor, &after) || !require_tensor(tensor)) return nullptr;
    Meta* meta = need_meta(tensor);
    if (!meta) return nullptr;
    PyObject*& hooks = after ? meta->post_hooks : meta->hooks;
    if (!hooks) hooks = PyDict_New();
    return Py_XNewRef(hooks);
}
PyObject* set_retains(PyObject*, PyObject* tensor) {
    Meta* meta = require_tensor(tensor) ? need_meta(tensor) : nullptr;
    if (!meta) return nullptr;
    meta->retains_grad = true;
    Py_RETURN_NONE;
}
// put_grad(tensor, gradient): `grad` without the checks
PyObject* put_grad(PyObject*, PyObject* args) {
    PyObject *tensor, *gradient;
    if (!PyArg_ParseTuple(args, "OO", &tensor, &gradient) || !require_tensor(tensor)) return nullptr;
    Meta* meta = need_meta(tensor);
    if (!meta) return nullptr;
    PyObject* old = std::exchange(meta->grad, gradient == Py_None ? nullptr : Py_NewRef(gradient));
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"grad_modes", grad_modes, METH_NOARGS, nullptr},     {"set_grad_modes", set_grad_modes, METH_VARARGS, nullptr},
    {"saving_hooks", saving_hooks, METH_NOARGS, nullptr}, {"set_saving_hooks", set_saving_hooks, METH_O, nullptr},
    {"count_change", count_change, METH_O, nullptr},      {"share_counter", share_counter, METH_O, nullptr},
    {"own_counter", own_counter, METH_O, nullptr},        {"detach", detach, METH_O, nullptr},
    {"is_recorded", is_recorded, METH_O, nullptr},        {"connect", connect, METH_VARARGS, nullptr},
    {"connect_as", connect_as, METH_VARARGS, nullptr},    {"set_output", set_output, METH_VARARGS, nullptr},
    {"hooks_of", hooks_of, METH_VARARGS, nullptr},        {"set_retains_grad", set_retains, METH_O, nullptr},
    {"put_grad", put_grad, METH_VARARGS, nullptr},        {nullptr, nullptr, 0, nullptr},
};

bool add_type(PyObject* module, PyType_Spec* spec, PyTypeObject* base, PyTypeObject** type) {
    *type = reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(spec, reinterpret_cast<PyObject*>(base)));
    return *type && PyModule_AddType(module, *type) == 0;
}

}  // namespace

PyGetSetDef tensor_attributes[] = {
    {"requires_grad", get_requires_grad, set_requires_grad,
     "Whether operations on the tensor are recorded for gradients. It can be set for a leaf.\n\n"
     "Raises DTypeError: set for integers; GradientError: unset for the result of an operation.",
     nullptr},
    {"grad", get_grad, set_grad,
     "The gradient that backward() has accumulated, a tensor of the same shape and type, or None.\n\n"
     "Raises InvalidArgument: set to one of another shape or type.",
     nullptr},
    {"grad_fn", get_node, nullptr, "The node of the operation that made the tensor; None for a leaf.", nullptr},
    {"creator", get_node, nullptr, "The old name of grad_fn.", nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Whether the tensor is not the result of a recorded operation.", nullptr},
    {"output_nr", get_output, nullptr, "The index of the tensor among the outputs of grad_fn.", nullptr},
    {"retains_grad", get_retains, nullptr, "Whether the tensor keeps its gradient although it is not a leaf.", nullptr},
    {"_version", get_version, nullptr, "Number of in-place changes of its memory since this was first read.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyObject* callback(const char* name) {
    static PyObject* functions = nullptr;  // of the module; guarded by the GIL
    if (!functions) {
        const Ref module(load_module("autograd.callbacks"));
        if (!module) return nullptr;
        functions = Py_XNewRef(PyModule_GetDict(module.get()));
    }
    PyObject* function = functions ? PyDict_GetItemString(functions, name) : nullptr;
    if (!function) PyErr_Format(PyExc_SystemError, "shmtensor.autograd.callbacks has no %s", name);
    return function;
}

void drop_later(PyObject* owned) {
    if (!owned) return;
    if (dropping && Py_REFCNT(owned) == 1) {
        later.push_back(owned);
        return;
    }
    if (dropping || Py_REFCNT(owned) > 1) return Py_DECREF(owned);
    dropping = true;
    Py_DECREF(owned);
    while (!later.empty()) {
        PyObject* next = later.back();
        later.pop_back();
        Py_DECREF(next);
    }
    dropping = false;
}

bool needs_gradient(PyObject* tensor) {
    if (const Meta* meta = meta_of(tensor); meta && (meta->node || meta->requires_grad)) return true;
    PyObject* base = slot(tensor, tensors.base);
    return base && base != Py_None && slot(base, tensors.meta) && needs_gradient(base);
}

Meta* need_meta(PyObject* tensor) {
    PyObject*& place = slot(tensor, tensors.meta);
    if (!place) place = types.meta->tp_alloc(types.meta, 0);
    return reinterpret_cast<Meta*>(place);
}

Counter* need_counter(PyObject* tensor) {
    PyObject*& place = counter_place(tensor);
    if (!place) place = types.counter->tp_alloc(types.counter, 0);
    return reinterpret_cast<Counter*>(place);
}

bool edge_of(PyObject* tensor, graph::Edge* edge) {
    if (!follow_base(tensor)) return false;
    Meta* meta = need_meta(tensor);
    if (!meta) return false;
    if (meta->node) {
        Py_INCREF(as_object(meta->node));
        edge->to = &meta->node->core;
        edge->output = meta->output;
        return true;
    }
    if (meta->accumulator) {
        Py_INCREF(as_object(meta->accumulator));
    } else {
        auto* made = reinterpret_cast<Accumulator*>(make_node(types.accumulator));
        if (!made) return false;
        made->node.core.sequence = kLast;
        made->leaf = Py_NewRef(tensor);
        meta->accumulator = made;
    }
    edge->to = &meta->accumulator->node.core;
    edge->output = 0;
    return true;
}

Node* make_node(PyTypeObject* type) {
    auto* made = reinterpret_cast<Node*>(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    made->core.sequence = next_sequence++;
    made->core.output_count = 1;
    return made;
}

bool make_room(Node& node, std::uint32_t edges, std::uint16_t saved) {
    const std::size_t bytes = edges * sizeof(graph::Edge) + saved * sizeof(Saved);
    void* block = PyMem_Calloc(1, bytes ? bytes : 1);
    if (!block) return PyErr_NoMemory(), false;
    node.core.edges = static_cast<graph::Edge*>(block);
    node.saved = reinterpret_cast<Saved*>(node.core.edges + edges);
    node.core.edge_count = edges;
    node.saved_count = saved;
    return true;
}

void release(Node& node) {
    for (std::uint16_t i = 0; i < node.saved_count; ++i) {
        const Saved& one = node.saved[i];
        if (!one.value || (one.changes != Saved::packed && is_small(one.value))) continue;
        drop_later(std::exchange(node.saved[i].value, nullptr));
    }
}

bool become_output(PyObject* tensor, Node& node, std::uint32_t output) {
    Meta* meta = need_meta(tensor);
    if (!meta) return false;
    Py_INCREF(as_object(&node));
    PyObject* old = as_object(std::exchange(meta->node, &node));
    meta->output = output;
    meta->accumulator = nullptr;
    drop_later(old);
    PyObject* base = slot(tensor, tensors.base);
    if (base && base != Py_None) {
        const Counter* counter = need_counter(tensor);
        if (!counter) return false;
        meta->changes = counter->changes;
    }
    return !meta->retains_grad || Ref(call_python("retain_again", tensor));
}

PyObject* detached(PyObject* tensor) {
    const Ref array(live_array(tensor));
    if (!array) return nullptr;
    PyObject* made = make_tensor(array.get(), slot(tensor, tensors.storage_of), slot(tensor, tensors.epoch));
    if (!made || !need_counter(tensor)) return Py_XDECREF(made), nullptr;
    slot(made, tensors.counter) = Py_XNewRef(slot(tensor, tensors.counter));
    return made;
}

bool add_nodes(PyObject* module) {
    return add_type(module, &node_spec, nullptr, &types.node) &&
           add_type(module, &accumulator_spec, types.node, &types.accumulator) &&
           add_type(module, &meta_spec, nullptr, &types.meta) &&
           add_type(module, &counter_spec, nullptr, &types.counter) && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace shmtensor::autograd
