// Recording of gradients: the parts of tensors, operations and passes that belong to the graph (docs/autograd.md).
#pragma once

#include <Python.h>

#include <cstdint>

#include "python/ref.hpp"
#include "python/tensors.hpp"
#include "tensor/graph.hpp"

namespace shmtensor::autograd {

// Counts in-place changes of memory, for all tensors over it. Made when the first of them needs it.
struct Counter {
    PyObject_HEAD std::uint64_t changes;
};

// A value that a node keeps of an argument or a result.
struct Saved {
    static constexpr std::uint64_t packed = ~std::uint64_t{0};
    PyObject* value;        // nullptr: nothing, or released
    std::uint64_t changes;  // of a tensor: its counter at that time; `packed`: hooks made the value
};

// A node of the graph, `grad_fn` of the results. The node of an operation has a rule. The node of a custom function or
// a view has a class that Python defines, and runs itself.
struct Node {
    PyObject_HEAD graph::Node core;
    PyObject* rule;    // a Rule; nullptr: none
    Saved* saved;      // one for each value that the rule keeps; allocated together with the edges
    PyObject* extras;  // nullptr, or a dict of rare attributes: hooks, forms of several results, a trace
    std::uint16_t saved_count;
};

// The node of a leaf: adds the gradient to `grad`.
struct Accumulator {
    Node node;
    PyObject* leaf;
};

// The part of a tensor that belongs to the graph; most tensors have none.
struct Meta {
    PyObject_HEAD Node* node;  // the node that made it; nullptr: a leaf
    PyObject* grad;            // nullptr: none
    PyObject* hooks;           // of a leaf: nullptr, or a dict of functions of its gradient
    PyObject* post_hooks;      // of a leaf: nullptr, or a dict of functions of the leaf, after accumulation
    Accumulator* accumulator;  // of a leaf: borrowed, nullptr while nothing refers to it
    std::uint64_t changes;     // of a view: its counter when `node` was taken
    std::uint32_t output;      // of `node`
    bool requires_grad, retains_grad;
};

struct Types {
    PyTypeObject *node, *accumulator, *meta, *counter, *rule;
};
extern Types types;

// Modes of this thread. Every view reads them.
struct Modes {
    bool enabled = true, inference = false;
};
extern constinit thread_local Modes modes [[gnu::tls_model("initial-exec")]];
// A pair of functions that recorded operations of this thread apply to the tensors that they keep; nullptr: none.
extern constinit thread_local PyObject* packing [[gnu::tls_model("initial-exec")]];

inline Meta* meta_of(PyObject* tensor) {
    return reinterpret_cast<Meta*>(slot(tensor, tensors.meta));
}
bool needs_gradient(PyObject* tensor);  // pre: the tensor has a Meta, or is a view
inline bool requires_grad(PyObject* tensor) {
    return (slot(tensor, tensors.meta) || slot(tensor, tensors.base)) && needs_gradient(tensor);
}
// The Meta of a tensor, made if there is none: borrowed. nullptr with an exception set.
Meta* need_meta(PyObject* tensor);
// The node and output that made a tensor, with a reference to the node, or no node. False with an exception set.
bool edge_of(PyObject* tensor, graph::Edge* edge);
inline PyObject* object_of(graph::Node* node) {
    return reinterpret_cast<PyObject*>(reinterpret_cast<char*>(node) - offsetof(Node, core));
}
inline Node& node_of(graph::Node& node) {
    return *reinterpret_cast<Node*>(object_of(&node));
}

// The slot of a tensor's counter: its own, or else that of its storage.
inline PyObject*& counter_place(PyObject* tensor) {
    PyObject* storage = slot(tensor, tensors.storage_of);
    const bool own = slot(tensor, tensors.counter) || !storage || storage == Py_None;
    return own ? slot(tensor, tensors.counter) : slot(storage, tensors.storage_counter);
}
// Counts a change of the memory of a tensor.
inline void changed(PyObject* tensor) {
    if (PyObject* counter = counter_place(tensor)) ++reinterpret_cast<Counter*>(counter)->changes;
}
// The counter of a tensor, made if there is none: borrowed. nullptr with an exception set.
Counter* need_counter(PyObject* tensor);

// A node without edges, of a class; a new reference. nullptr with an exception set.
Node* make_node(PyTypeObject* type);
// Allocates empty edges and saved values. False with an exception set.
bool make_room(Node& node, std::uint32_t edges, std::uint16_t saved);
// Releases the values that a node keeps.
void release(Node& node);
// Makes a tensor an output of a node, instead of its former one. False with an exception set.
bool become_output(PyObject* tensor, Node& node, std::uint32_t output);
// A tensor over the same memory, with the same counter, that is not part of the graph. A new reference.
PyObject* detached(PyObject* tensor);
// Releases an object; later, if a node is being dropped, since graphs may be millions of nodes deep.
void drop_later(PyObject* owned);

// A function of shmtensor.autograd.callbacks: borrowed, or nullptr with an exception set.
PyObject* callback(const char* name);
// Calls such a function: a new reference, or nullptr with an exception set.
template <class... Objects>
PyObject* call_python(const char* name, Objects*... objects) {
    PyObject* function = callback(name);
    if (!function) return nullptr;
    PyObject* arguments[] = {objects...};
    return PyObject_Vectorcall(function, arguments, sizeof...(objects), nullptr);
}

// A call of an operation that is recorded. Its node is made before it computes.
class Recording {
   public:
    // The arguments of the call, as the caller gave them.
    struct Arguments {
        PyObject* const* given;
        Py_ssize_t count;
        PyObject* keywords;  // nullptr, or the names of the last ones
        bool reflected;
    };
    explicit operator bool() const { return static_cast<bool>(node_); }
    // False with an exception set. `target`: the tensor that the operation changes, or nullptr.
    bool prepare(PyObject* form, PyObject* rule, const Arguments& arguments, PyObject* target);
    // Makes the results outputs of the node. False with an exception set.
    bool finish(PyObject* results, PyObject* first);

   private:
    bool connect(const struct Rule& rule, const Arguments& arguments);
    bool keep(const struct Rule& rule, const Arguments& arguments);
    Ref node_, target_;
};

// Adds the functions of gradients and modes to shmtensor._native. False with an exception set.
bool add_nodes(PyObject* module);
bool add_rules(PyObject* module);
bool add_passes(PyObject* module);
extern PyGetSetDef tensor_attributes[];

}  // namespace shmtensor::autograd
