// Backward passes: gradients are tensors, rules compute them, and leaves accumulate them.
#include <algorithm>
#include <array>
#include <new>
#include <utility>
#include <vector>

#include "python/autograd.hpp"
#include "python/autograd_rules.hpp"
#include "python/operands.hpp"
#include "python/waits.hpp"

namespace shmtensor::autograd {

Tracing tracing = Tracing::off;

namespace {

using graph::Gradient;

PyObject* as_object(void* object) {
    return static_cast<PyObject*>(object);
}
bool is_tensor(PyObject* object) {
    return PyObject_TypeCheck(object, tensors.tensor);
}

// Whether no other object refers to the memory of a gradient, so that it may be written to or kept.
bool is_own(PyObject* gradient) {
    if (Py_REFCNT(gradient) != 1 || Py_TYPE(gradient) != tensors.tensor) return false;
    PyObject *array = slot(gradient, tensors.array), *storage = slot(gradient, tensors.storage_of);
    return array && Py_REFCNT(array) == 1 && storage == Py_None && is_alone(array);
}

class Evaluator final : public graph::Evaluator {
   public:
    Evaluator(bool keep, bool create, std::size_t targets) : captured(targets), keep_(keep), create_(create) {}
    bool prepare(graph::Node& node, Gradient* outputs) override;
    bool run(graph::Node& node, Gradient* outputs, Gradient* inputs) override;
    void capture(std::size_t target, Gradient gradient) override { captured[target] = Ref::to(as_object(gradient)); }
    bool add(Gradient& sum, Gradient more) override;
    void drop(Gradient gradient) override { Py_DECREF(as_object(gradient)); }

    std::vector<Ref> captured;

   private:
    bool accumulate(PyObject* leaf, Ref gradient);
    bool add_to(PyObject* leaf, Meta& meta, Ref gradient);
    bool run_rule(Node& node, const Gradient* outputs, Gradient* inputs);
    bool run_self(Node& node, const Gradient* outputs, Gradient* inputs);
    bool call(const Part& part, Node& node, PyObject* gradient, Gradient* inputs, std::vector<Ref>& unpacked);

    bool keep_, create_;
};

Ref tuple_of(const Gradient* gradients, std::uint32_t count) {
    Ref made(PyTuple_New(count));
    for (std::uint32_t i = 0; made && i < count; ++i)
        PyTuple_SET_ITEM(made.get(), i, Py_NewRef(gradients[i] ? as_object(gradients[i]) : Py_None));
    return made;
}

// Replaces gradients by objects; None: no gradient. False with an exception set.
bool replace(Gradient* gradients, PyObject* by, std::uint32_t count) {
    const Ref held(by ? PySequence_Tuple(by) : nullptr);
    if (!held || PyTuple_GET_SIZE(held.get()) != static_cast<Py_ssize_t>(count)) {
        if (held) PyErr_Format(PyExc_SystemError, "%zd gradients for %u", PyTuple_GET_SIZE(held.get()), count);
        return false;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        PyObject* one = PyTuple_GET_ITEM(held.get(), i);
        PyObject* old = as_object(std::exchange(gradients[i], one == Py_None ? nullptr : Py_NewRef(one)));
        Py_XDECREF(old);
    }
    return true;
}

bool Evaluator::prepare(graph::Node& core, Gradient* outputs) {
    Node& node = node_of(core);
    PyObject* object = object_of(&core);
    if (core.interrupted) return static_cast<bool>(Ref(call_python("refuse_interrupted", object)));
    if (Py_TYPE(object) == types.accumulator) {
        const Meta* meta = meta_of(reinterpret_cast<Accumulator*>(object)->leaf);
        if (meta && meta->hooks && PyDict_GET_SIZE(meta->hooks) != 0) {
            const Ref changed(call_python("apply_hooks", meta->hooks, as_object(outputs[0])));
            const Ref one(changed ? PyTuple_Pack(1, changed.get()) : nullptr);
            if (!replace(outputs, one.get(), 1)) return false;
        }
    }
    if (!node.extras || !PyDict_GetItemString(node.extras, "hooks")) return true;
    const Ref given = tuple_of(outputs, core.output_count);
    const Ref changed(given ? call_python("run_hooks", object, given.get()) : nullptr);
    return replace(outputs, changed.get(), core.output_count);
}

bool Evaluator::add(Gradient& sum, Gradient more) {
    PyObject* first = as_object(sum);
    const Ref second(as_object(more));
    const bool in_place = !create_ && is_own(first);
    PyObject* total = in_place ? PyNumber_InPlaceAdd(first, second.get()) : PyNumber_Add(first, second.get());
    if (!total) return false;
    sum = total;
    Py_DECREF(first);
    return true;
}

// Leaves whose gradients are being accumulated, and the threads that do it. Guarded by the GIL, which NumPy releases
// while it adds.
struct Adding {
    const Meta* leaf;
    unsigned long thread;
};
std::vector<Adding> adding;

// One thread at a time adds to the gradient of a leaf. It may do so recursively, from a hook.
class Turn {
   public:
    explicit Turn(const Meta* leaf) : mine_{leaf, PyThread_get_thread_ident()} {
        const auto is_other = [this](const Adding& one) {
            return one.leaf == mine_.leaf && one.thread != mine_.thread;
        };
        while (std::any_of(adding.begin(), adding.end(), is_other)) {
            const GilRelease released;
            os::sleep(20'000);
        }
        adding.push_back(mine_);
    }
    Turn(const Turn&) = delete;
    ~Turn() {
        const auto is_mine = [this](const Adding& one) { return one.leaf == mine_.leaf && one.thread == mine_.thread; };
        if (const auto at = std::find_if(adding.begin(), adding.end(), is_mine); at != adding.end()) adding.erase(at);
    }

   private:
    Adding mine_;
};

// Adds a gradient to that of a leaf. The first one is kept, or copied if other objects refer to its memory.
bool Evaluator::accumulate(PyObject* leaf, Ref gradient) {
    Meta* meta = need_meta(leaf);
    if (!meta || !add_to(leaf, *meta, std::move(gradient))) return false;
    if (!meta->post_hooks || PyDict_GET_SIZE(meta->post_hooks) == 0) return true;
    return static_cast<bool>(Ref(call_python("apply_post_hooks", meta->post_hooks, leaf)));
}

bool Evaluator::add_to(PyObject* leaf, Meta& meta, Ref gradient) {
    const Turn turn(&meta);
    if (!is_tensor(gradient.get()) || (meta.grad && !is_tensor(meta.grad))) {
        if (!Ref(call_python("accumulate", leaf, gradient.get()))) return false;
    } else if (!meta.grad) {
        if (!is_own(gradient.get())) {
            if (create_) {
                gradient = Ref(PyObject_CallMethod(gradient.get(), "clone", nullptr));
            } else {
                const Ref array(live_array(gradient.get())), copy(array ? copy_of(array.get()) : nullptr);
                gradient = Ref(copy ? make_tensor(copy.get(), Py_None, tensors.unmoved) : nullptr);
            }
        }
        if (!gradient) return false;
        meta.grad = gradient.release();
    } else {
        const Ref old = Ref::to(meta.grad);
        Ref sum(create_ ? PyNumber_Add(old.get(), gradient.get()) : PyNumber_InPlaceAdd(old.get(), gradient.get()));
        if (!sum) return false;
        PyObject* before = std::exchange(meta.grad, sum.release());
        Py_XDECREF(before);
    }
    return true;
}

// A gradient with the shape and type of an edge's input. Steals `owned`; nullptr with an exception set.
PyObject* fitted(PyObject* owned, const graph::Edge& edge, PyObject* name) {
    const Ref gradient(owned);
    auto* form = static_cast<PyObject*>(const_cast<void*>(edge.form));
    if (Py_TYPE(gradient.get()) == tensors.tensor) {
        const Ref array(live_array(gradient.get()));
        if (!array) return nullptr;
        if (!form || has_form(array.get(), form)) return Py_NewRef(gradient.get());
    }
    return call_python("fitted", gradient.get(), form ? form : Py_None, name);
}

// Whether a tuple has a tensor of complex numbers.
bool has_complex(PyObject* values) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); ++i) {
        PyObject* one = PyTuple_GET_ITEM(values, i);
        if (is_tensor(one) && is_complex(slot(one, tensors.array))) return true;
    }
    return false;
}

// The value that hooks unpack, once in a run of a node; kept in `unpacked` by its number.
Ref unpack(const Node& node, std::uint16_t number, std::vector<Ref>& unpacked) {
    if (unpacked.empty()) unpacked.resize(node.saved_count);
    if (!unpacked[number]) {
        const Ref held = Ref::to(node.saved[number].value);
        unpacked[number] = Ref(call_python("unpack_kept", held.get()));
    }
    return Ref::to(unpacked[number].get());
}

// A saved value, as passed to the rule: a new reference, or nullptr with an exception set.
Ref kept_value(Node& node, const Rule& rule, std::uint16_t number, std::vector<Ref>& unpacked) {
    const Saved& saved = node.saved[number];
    if (!saved.value) {
        call_python("refuse_released", rule.name);
        return Ref();
    }
    const bool packed = saved.changes == Saved::packed;
    Ref value = packed ? unpack(node, number, unpacked) : Ref::to(saved.value);
    if (!value) return Ref();
    std::uint64_t changes = 0;
    if (!packed && !changes_of_all(value.get(), &changes)) return Ref();
    if (!packed && changes != saved.changes) {
        const Ref times(PyLong_FromUnsignedLongLong(changes - saved.changes));
        if (times) call_python("refuse_changed", rule.name, value.get(), times.get());
        return Ref();
    }
    const bool result = rule.lists->values[number].kind == Value::result;
    if (is_tensor(value.get())) {
        if (result && modes.enabled) {
            value = Ref(detached(value.get()));
            if (value && !become_output(value.get(), node, 0)) return Ref();
        }
        if (value && is_complex(slot(value.get(), tensors.array))) value = Ref(call_python("conjugate", value.get()));
        return value;
    }
    if (result && (modes.enabled || has_complex(value.get())))
        return Ref(call_python("results", value.get(), object_of(&node.core)));
    return PyComplex_Check(value.get()) ? Ref(call_python("conjugate", value.get())) : std::move(value);
}

// Calls a function of a rule, and stores the gradients that it returns in `inputs`. False with an exception set.
bool Evaluator::call(const Part& part, Node& node, PyObject* gradient, Gradient* inputs, std::vector<Ref>& unpacked) {
    const Rule& rule = *reinterpret_cast<Rule*>(node.rule);
    std::vector<Ref> held;
    std::array<PyObject*, 16> arguments{};
    if (part.values.size() > arguments.size()) return PyErr_BadInternalCall(), false;
    for (std::size_t i = 0; i < part.values.size(); ++i) {
        if (rule.lists->values[part.values[i]].kind == Value::gradient) {
            arguments[i] = gradient;
            continue;
        }
        held.push_back(kept_value(node, rule, part.values[i], unpacked));
        arguments[i] = held.back().get();
        if (!arguments[i]) return false;
    }
    Ref found(PyObject_Vectorcall(part.function, arguments.data(), part.values.size(), nullptr));
    if (!found) return false;
    const auto put = [&](std::uint32_t edge, PyObject* owned) {
        if (!owned) return false;
        if (owned == Py_None || !node.core.edges[edge].to) return Py_DECREF(owned), true;
        PyObject* fits = fitted(owned, node.core.edges[edge], rule.name);
        PyObject* old = as_object(std::exchange(inputs[edge], fits));
        Py_XDECREF(old);
        return fits != nullptr;
    };
    const std::uint16_t only = part.inputs[0];
    if (!part.several && rule.lists->inputs[only] != rule.sequence)
        return put(rule.first_edge(only, node), found.release());
    const Ref list(PySequence_Tuple(found.get()));
    if (!list) return false;
    Py_ssize_t at = 0;
    for (const std::uint16_t input : part.inputs) {
        const bool nested = part.several && rule.lists->inputs[input] == rule.sequence;
        const Ref inner(nested ? PySequence_Tuple(PyTuple_GET_ITEM(list.get(), at++)) : nullptr);
        Py_ssize_t k = 0;
        for (std::uint32_t edge = rule.first_edge(input, node); edge < rule.last_edge(input, node); ++edge) {
            PyObject* from = nested ? inner.get() : list.get();
            Py_ssize_t& next = nested ? k : at;
            if (!from || next >= PyTuple_GET_SIZE(from))
                return PyErr_Occurred() || PyErr_Format(PyExc_SystemError, "%U: a gradient is missing", rule.name),
                       false;
            if (!put(edge, Py_NewRef(PyTuple_GET_ITEM(from, next++)))) return false;
        }
    }
    return true;
}

// A tuple of the gradients of several results, with zeros for missing ones; `forms`: (shape, dtype) or None for each
// result.
Ref fill_with_zeros(PyObject* gradients, PyObject* forms) {
    const Py_ssize_t count = PyTuple_GET_SIZE(gradients);
    Ref made(PyTuple_New(count));
    for (Py_ssize_t i = 0; made && i < count; ++i) {
        PyObject *one = PyTuple_GET_ITEM(gradients, i), *form = PyList_GET_ITEM(forms, i);
        const bool missing = one == Py_None && form != Py_None;
        const Ref zeros(missing ? zeros_of(form) : nullptr);
        if (missing) one = zeros ? make_tensor(zeros.get(), Py_None, tensors.unmoved) : nullptr;
        if (!one) return Ref();
        PyTuple_SET_ITEM(made.get(), i, missing ? one : Py_NewRef(one));
    }
    return made;
}

bool Evaluator::run_rule(Node& node, const Gradient* outputs, Gradient* inputs) {
    const Rule& rule = *reinterpret_cast<Rule*>(node.rule);
    Ref gradient;
    PyObject* forms = node.extras ? PyDict_GetItemString(node.extras, "forms") : nullptr;
    if (forms) {
        const Ref given = tuple_of(outputs, node.core.output_count);
        if (given) gradient = fill_with_zeros(given.get(), forms);
    } else {
        gradient = Ref::to(as_object(outputs[0]));
    }
    if (!gradient) return false;
    if (rule.lists->parts.empty()) return static_cast<bool>(Ref(call_python("refuse_undefined", rule.name)));
    std::vector<Ref> unpacked;
    for (const Part& part : rule.lists->parts) {
        bool needed = false;
        for (const std::uint16_t input : part.inputs)
            for (std::uint32_t i = rule.first_edge(input, node); i < rule.last_edge(input, node); ++i)
                needed = needed || node.core.edges[i].to;
        if (needed && !call(part, node, gradient.get(), inputs, unpacked)) return false;
    }
    return true;
}

// A node of a class that Python defines.
bool Evaluator::run_self(Node& node, const Gradient* outputs, Gradient* inputs) {
    PyObject* object = object_of(&node.core);
    const Ref given = tuple_of(outputs, node.core.output_count), name(PyUnicode_FromString(Py_TYPE(object)->tp_name));
    const Ref found(given && name ? PyObject_CallMethod(object, "_run", "(O)", given.get()) : nullptr);
    if (!found || !replace(inputs, found.get(), node.core.edge_count)) return false;
    for (std::uint32_t i = 0; i < node.core.edge_count; ++i) {
        if (!inputs[i]) continue;
        if (!node.core.edges[i].to) {
            Py_DECREF(as_object(std::exchange(inputs[i], nullptr)));
            continue;
        }
        inputs[i] = fitted(as_object(inputs[i]), node.core.edges[i], name.get());
        if (!inputs[i]) return false;
    }
    if (!keep_) return static_cast<bool>(Ref(PyObject_CallMethod(object, "_release", nullptr)));
    return true;
}

bool Evaluator::run(graph::Node& core, Gradient* outputs, Gradient* inputs) {
    if (std::all_of(outputs, outputs + core.output_count, [](Gradient one) { return !one; })) return true;  // by hooks
    Node& node = node_of(core);
    PyObject* object = object_of(&core);
    const bool hooked = node.extras && PyDict_GetItemString(node.extras, "post_hooks");
    const Ref given = hooked ? tuple_of(outputs, core.output_count) : Ref();
    bool ok = false;
    if (Py_TYPE(object) == types.accumulator)
        ok = accumulate(reinterpret_cast<Accumulator*>(object)->leaf,
                        Ref(as_object(std::exchange(outputs[0], nullptr))));
    else
        ok = node.rule ? run_rule(node, outputs, inputs) : run_self(node, outputs, inputs);
    if (!keep_ && node.rule) release(node);
    for (std::uint32_t i = 0; i < core.output_count; ++i) Py_CLEAR(reinterpret_cast<PyObject*&>(outputs[i]));
    if (ok && hooked) {
        const Ref found = tuple_of(inputs, core.edge_count);
        const Ref changed(found ? call_python("run_post_hooks", object, found.get(), given.get()) : nullptr);
        ok = replace(inputs, changed.get(), core.edge_count);
    }
    if (node.extras && PyDict_GetItemString(node.extras, "trace")) {
        if (ok && tracing == Tracing::numbers) {
            const Ref found = tuple_of(inputs, core.edge_count);
            ok = found && Ref(call_python("require_numbers", object, found.get()));
        } else if (!ok) {
            PyObject *type, *error, *trace;
            PyErr_Fetch(&type, &error, &trace);
            PyErr_NormalizeException(&type, &error, &trace);
            if (!Ref(call_python("explain", object, error))) PyErr_Clear();
            PyErr_Restore(type, error, trace);
        }
    }
    return ok;
}

// ----------------------------------------------------------------------------------- functions for shmtensor.autograd

struct Running {
    graph::Pass* pass;
    unsigned long thread;
};
std::vector<Running> running;  // guarded by the GIL

// backward(roots, keep, create, targets): the gradients of the targets; without targets, leaves accumulate theirs
PyObject* backward(PyObject*, PyObject* args) {
    PyObject *roots, *targets;
    int keep = 0, create = 0;
    if (!PyArg_ParseTuple(args, "O!ppO!", &PyTuple_Type, &roots, &keep, &create, &PyTuple_Type, &targets) ||
        !need_tensors())
        return nullptr;
    const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(targets));
    Evaluator evaluator(keep != 0, create != 0, count);
    std::vector<Ref> held;  // the nodes at both ends
    graph::Pass pass(evaluator);
    const auto end = [&held](PyObject* tensor, graph::Edge* edge) {
        if (!edge_of(tensor, edge)) return false;
        held.emplace_back(object_of(edge->to));
        return true;
    };
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(roots); ++i) {
        PyObject* root = PyTuple_GET_ITEM(roots, i);
        graph::Edge edge{};
        if (!end(PyTuple_GET_ITEM(root, 0), &edge) ||
            !pass.add_root(*edge.to, edge.output, Py_NewRef(PyTuple_GET_ITEM(root, 1))))
            return nullptr;
    }
    for (std::size_t i = 0; i < count; ++i) {
        graph::Edge edge{};
        if (!end(PyTuple_GET_ITEM(targets, static_cast<Py_ssize_t>(i)), &edge)) return nullptr;
        pass.add_target(*edge.to, edge.output);
    }
    running.push_back({&pass, PyThread_get_thread_ident()});
    const Modes before = std::exchange(modes, Modes{create != 0, false});
    bool ok = false;
    try {
        ok = pass.run();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    }
    modes = before;
    std::erase_if(running, [&pass](const Running& one) { return one.pass == &pass; });
    if (!ok) return nullptr;
    Ref found(PyTuple_New(static_cast<Py_ssize_t>(count)));
    for (std::size_t i = 0; found && i < count; ++i)
        PyTuple_SET_ITEM(found.get(), static_cast<Py_ssize_t>(i),
                         evaluator.captured[i] ? evaluator.captured[i].release() : Py_NewRef(Py_None));
    return found.release();
}

// run_node(node, gradients): the gradients of its inputs from those of its outputs; the node keeps its saved values
PyObject* run_one(PyObject*, PyObject* args) {
    PyObject *object, *gradients;
    if (!PyArg_ParseTuple(args, "O!O!", types.node, &object, &PyTuple_Type, &gradients)) return nullptr;
    graph::Node& node = reinterpret_cast<Node*>(object)->core;
    std::vector<Gradient> outputs(node.output_count), inputs(node.edge_count);
    const auto drop = [](std::vector<Gradient>& all) {
        for (Gradient one : all) Py_XDECREF(as_object(one));
    };
    Evaluator evaluator(true, modes.enabled, 0);
    bool ok = replace(outputs.data(), gradients, node.output_count) && evaluator.prepare(node, outputs.data()) &&
              evaluator.run(node, outputs.data(), inputs.data());
    const Ref found = ok ? tuple_of(inputs.data(), node.edge_count) : Ref();
    drop(outputs);
    drop(inputs);
    return Py_XNewRef(found.get());
}

PyObject* release_one(PyObject*, PyObject* object) {
    if (!PyObject_TypeCheck(object, types.node)) return PyErr_BadArgument(), nullptr;
    release(*reinterpret_cast<Node*>(object));
    Py_RETURN_NONE;
}

// In the child of a fork: passes of other threads stopped halfway.
PyObject* interrupt_passes(PyObject*, PyObject*) {
    const unsigned long self = PyThread_get_thread_ident();
    for (const Running& one : running)
        if (one.thread != self) one.pass->interrupt();
    std::erase_if(running, [self](const Running& one) { return one.thread != self; });
    std::erase_if(adding, [self](const Adding& one) { return one.thread != self; });
    Py_RETURN_NONE;
}

// with_zeros(gradients, forms)
PyObject* with_zeros(PyObject*, PyObject* args) {
    PyObject *gradients, *forms;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &gradients, &PyList_Type, &forms)) return nullptr;
    if (PyTuple_GET_SIZE(gradients) != PyList_GET_SIZE(forms)) return PyErr_BadArgument(), nullptr;
    return fill_with_zeros(gradients, forms).release();
}

// set_tracing(mode): returns the former mode
PyObject* set_tracing(PyObject*, PyObject* wanted) {
    const long value = PyLong_AsLong(wanted);
    if (value < 0 || value > 2) return PyErr_Occurred() ? nullptr : (PyErr_BadArgument(), nullptr);
    return PyLong_FromLong(static_cast<long>(std::exchange(tracing, static_cast<Tracing>(value))));
}

PyMethodDef functions[] = {
    {"backward", backward, METH_VARARGS, nullptr},
    {"run_node", run_one, METH_VARARGS, nullptr},
    {"release_node", release_one, METH_O, nullptr},
    {"interrupt_passes", interrupt_passes, METH_NOARGS, nullptr},
    {"set_tracing", set_tracing, METH_O, nullptr},
    {"with_zeros", with_zeros, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_passes(PyObject* module) {
    return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace shmtensor::autograd
