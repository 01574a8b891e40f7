// Gradient rules of operations, and the recording of a call with the values that its rule needs.
#include <utility>
#include <vector>

#include "python/array.hpp"
#include "python/autograd.hpp"
#include "python/autograd_rules.hpp"
#include "python/errors.hpp"
#include "python/operands.hpp"

namespace shmtensor::autograd {

namespace {

PyObject* as_object(void* object) {
    return static_cast<PyObject*>(object);
}

// -------------------------------------------------------------------------------------- a Rule, from _tensor/rules.py

bool read_slots(PyObject* from, std::vector<std::uint16_t>* into) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(from); ++i) {
        const long value = PyLong_AsLong(PyTuple_GET_ITEM(from, i));
        if (value < 0) return false;
        into->push_back(static_cast<std::uint16_t>(value));
    }
    return true;
}

// (function, inputs, several, values): see _tensor/rules.py
bool read_part(PyObject* from, Part* part) {
    PyObject *inputs, *values;
    int several = 0;
    if (!PyArg_ParseTuple(from, "OO!pO!", &part->function, &PyTuple_Type, &inputs, &several, &PyTuple_Type, &values))
        return false;
    Py_INCREF(part->function);
    part->several = several != 0;
    return read_slots(inputs, &part->inputs) && read_slots(values, &part->values);
}

bool read_value(PyObject* from, Value* value) {
    int kind = 0, parameter = 0;
    if (!PyArg_ParseTuple(from, "ii", &kind, &parameter)) return false;
    *value = {static_cast<Value::Kind>(kind), static_cast<std::uint16_t>(parameter)};
    return true;
}

// Rule(name, parameters, defaults, synonyms, positional, rest, inputs, values, parts)
PyObject* new_rule(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject *name, *parameters, *defaults, *synonyms, *inputs, *values, *parts;
    int positional = 0, rest = -1, sequence = -1;
    if (!PyArg_ParseTuple(args, "UO!O!O!iiiO!O!O!", &name, &PyTuple_Type, &parameters, &PyTuple_Type, &defaults,
                          &PyDict_Type, &synonyms, &positional, &rest, &sequence, &PyTuple_Type, &inputs, &PyTuple_Type,
                          &values, &PyTuple_Type, &parts))
        return nullptr;
    const Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    Rule& rule = *reinterpret_cast<Rule*>(made.get());
    rule.name = Py_NewRef(name);
    rule.parameters = Py_NewRef(parameters);
    rule.defaults = Py_NewRef(defaults);
    rule.synonyms = Py_NewRef(synonyms);
    rule.positional = positional;
    rule.rest = rest;
    rule.sequence = sequence;
    rule.lists = new (std::nothrow) Rule::Lists;
    if (!rule.lists) return PyErr_NoMemory();
    if (!read_slots(inputs, &rule.lists->inputs)) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); ++i)
        if (!read_value(PyTuple_GET_ITEM(values, i), &rule.lists->values.emplace_back())) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts); ++i)
        if (!read_part(PyTuple_GET_ITEM(parts, i), &rule.lists->parts.emplace_back())) return nullptr;
    return Py_NewRef(made.get());
}

void drop_rule(PyObject* object) {
    Rule& rule = *reinterpret_cast<Rule*>(object);
    PyTypeObject* type = Py_TYPE(object);
    Py_XDECREF(rule.name);
    Py_XDECREF(rule.parameters);
    Py_XDECREF(rule.defaults);
    Py_XDECREF(rule.synonyms);
    if (rule.lists)
        for (const Part& part : rule.lists->parts) Py_XDECREF(part.function);
    delete rule.lists;
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* get_name(PyObject* object, void*) {
    return Py_NewRef(reinterpret_cast<Rule*>(object)->name);
}
PyGetSetDef rule_attributes[] = {{"name", get_name, nullptr, nullptr, nullptr},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot rule_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_rule)},
    {Py_tp_dealloc, reinterpret_cast<void*>(drop_rule)},
    {Py_tp_getset, rule_attributes},
    {0, nullptr},
};
PyType_Spec rule_spec = {"shmtensor._native.Rule", sizeof(Rule), 0, Py_TPFLAGS_DEFAULT, rule_slots};

// ----------------------------------------------------------------------------------------------------------- recording

// The argument that is passed by the name of a parameter, or by torch's name: borrowed; nullptr: there is none.
PyObject* named_argument(const Rule& rule, const Recording::Arguments& call, int parameter) {
    PyObject* wanted = PyTuple_GET_ITEM(rule.parameters, parameter);
    const Py_ssize_t named = call.keywords ? PyTuple_GET_SIZE(call.keywords) : 0;
    for (Py_ssize_t i = 0; i < named; ++i) {
        PyObject* name = PyTuple_GET_ITEM(call.keywords, i);
        if (PyUnicode_Compare(name, wanted) == 0) return call.given[call.count + i];
        PyObject* own = PyDict_GetItem(rule.synonyms, name);
        if (own && PyUnicode_Compare(own, wanted) == 0) return call.given[call.count + i];
    }
    return nullptr;
}

// The argument for a parameter: borrowed, from the call or from `rest`. nullptr without an exception: it was not
// passed, and has no default.
PyObject* argument_of(const Rule& rule, const Recording::Arguments& call, int parameter, Ref& rest) {
    if (parameter == rule.rest) {
        if (rest) return rest.get();
        if (PyObject* given = call.count > rule.positional ? nullptr : named_argument(rule, call, parameter)) {
            rest = parameter == rule.sequence ? Ref::to(given) : Ref(PyTuple_Pack(1, given));
            return rest.get();
        }
        rest = Ref(PyTuple_New(call.count > rule.positional ? call.count - rule.positional : 0));
        for (Py_ssize_t i = rule.positional; rest && i < call.count; ++i)
            PyTuple_SET_ITEM(rest.get(), i - rule.positional, Py_NewRef(call.given[i]));
        return rest.get();
    }
    if (parameter < rule.positional && parameter < call.count)
        return call.given[call.reflected && parameter < 2 ? 1 - parameter : parameter];
    PyObject* given = named_argument(rule, call, parameter);
    return given ? given : PyTuple_GET_ITEM(rule.defaults, parameter);
}

bool is_tensor(PyObject* object) {
    return PyObject_TypeCheck(object, tensors.tensor);
}

// An edge to a tensor, if the tensor needs a gradient. False with an exception set.
bool connect_input(PyObject* input, graph::Edge* edge) {
    if (!is_tensor(input) || !requires_grad(input)) return true;
    const Ref array(live_array(input));
    if (!array || !edge_of(input, edge)) return false;
    edge->form = form_of(array.get());
    return edge->form != nullptr;
}

// Whether a value is a list, which the program may change later, or a tuple with one. False if it is nested too deeply.
bool may_change(PyObject* value, int levels) {
    if (!PyTuple_CheckExact(value)) return PyList_Check(value);
    for (Py_ssize_t i = 0; levels > 0 && i < PyTuple_GET_SIZE(value); ++i)
        if (may_change(PyTuple_GET_ITEM(value, i), levels - 1)) return true;
    return false;
}

// A value to save: a copy of each list in it. A new reference, or nullptr with an exception set.
PyObject* unchanging(PyObject* value, int levels = kLevels) {
    if (!may_change(value, levels)) return Py_NewRef(value);
    if (levels == 0) {
        PyErr_Format(errors.argument,
                     "an argument is a list that is nested more than %d levels deep, or that contains itself", kLevels);
        return nullptr;
    }
    Ref items(PySequence_List(value));
    for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
        PyObject* made = unchanging(PyList_GET_ITEM(items.get(), i), levels - 1);
        if (!made || PyList_SetItem(items.get(), i, made) != 0) return nullptr;
    }
    return items && PyTuple_CheckExact(value) ? PyList_AsTuple(items.get()) : items.release();
}

// Saves an argument in a node, and counts the changes of its tensors from now on. False with an exception set.
bool save(PyObject* value, Saved* saved) {
    saved->value = unchanging(value);
    return saved->value && changes_of_all(saved->value, &saved->changes);
}

// A tuple of several results, detached, for a node to keep. A new reference, or nullptr with an exception set.
PyObject* detached_each(PyObject* results) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(results);
    Ref made(PyTuple_New(count));
    for (Py_ssize_t i = 0; made && i < count; ++i) {
        PyObject* one = PySequence_Fast_GET_ITEM(results, i);
        PyObject* kept = is_tensor(one) ? detached(one) : Py_NewRef(one);
        if (!kept) return nullptr;
        PyTuple_SET_ITEM(made.get(), i, kept);
    }
    return made.release();
}

bool is_needed(const Rule& rule, const Part& part, const Node& node) {
    for (const std::uint16_t input : part.inputs)
        for (std::uint32_t i = rule.first_edge(input, node); i < rule.last_edge(input, node); ++i)
            if (node.core.edges[i].to) return true;
    return false;
}

// Replaces a saved value by a copy if it is the tensor that the operation is about to change. False with an exception
// set.
bool keep_original(PyObject* target, Saved* saved) {
    if (saved->value != target) return true;
    const Ref array(live_array(target)), copy(array ? copy_of(array.get()) : nullptr);
    if (!copy) return false;
    PyObject* made = make_tensor(copy.get(), Py_None, tensors.unmoved);
    if (!made) return false;
    Py_SETREF(saved->value, made);
    if (const Meta* meta = meta_of(target); meta && meta->node && !become_output(made, *meta->node, meta->output))
        return false;
    const Counter* counter = need_counter(made);
    saved->changes = counter ? counter->changes : 0;
    return counter != nullptr;
}

// Passes the saved tensors of a node to the hooks of this thread. A tensor that the operation has changed since is not
// passed: the backward pass reports it as an error. False with an exception set.
bool pack_all(Node& node) {
    for (std::uint16_t i = 0; i < node.saved_count; ++i) {
        Saved& saved = node.saved[i];
        if (!saved.value || !(is_tensor(saved.value) || PyTuple_Check(saved.value) || PyList_Check(saved.value)))
            continue;
        std::uint64_t changes = 0;
        if (!changes_of_all(saved.value, &changes)) return false;
        if (changes != saved.changes) continue;
        PyObject* made = call_python("pack_kept", saved.value, packing);
        if (!made) return false;
        if (made != saved.value) saved.changes = Saved::packed;
        Py_SETREF(saved.value, made);
    }
    return true;
}

}  // namespace

bool Recording::connect(const Rule& rule, const Arguments& call) {
    Node& node = *reinterpret_cast<Node*>(node_.get());
    Ref rest, list;
    auto count = static_cast<std::uint32_t>(rule.lists->inputs.size());
    if (rule.sequence >= 0) {
        PyObject* given = argument_of(rule, call, rule.sequence, rest);
        list = Ref(given ? PySequence_Tuple(given) : PyTuple_New(0));
        if (!list) return false;
        count += static_cast<std::uint32_t>(PyTuple_GET_SIZE(list.get())) - 1;
    }
    if (!make_room(node, count, static_cast<std::uint16_t>(rule.lists->values.size()))) return false;
    graph::Edge* edge = node.core.edges;
    for (const std::uint16_t parameter : rule.lists->inputs) {
        if (parameter == rule.sequence) {
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list.get()); ++i)
                if (!connect_input(PyTuple_GET_ITEM(list.get(), i), edge++)) return false;
            continue;
        }
        PyObject* input = argument_of(rule, call, parameter, rest);
        if (input ? !connect_input(input, edge) : PyErr_Occurred() != nullptr) return false;
        ++edge;
    }
    return true;
}

bool Recording::keep(const Rule& rule, const Arguments& call) {
    Node& node = *reinterpret_cast<Node*>(node_.get());
    Ref rest;
    for (const Part& part : rule.lists->parts) {
        if (!is_needed(rule, part, node)) continue;
        for (const std::uint16_t number : part.values) {
            const Value& value = rule.lists->values[number];
            Saved& saved = node.saved[number];
            if (saved.value || value.kind == Value::gradient || value.kind == Value::result) continue;
            PyObject* argument = argument_of(rule, call, value.parameter, rest);
            if (!argument) {
                if (!PyErr_Occurred()) PyErr_Format(PyExc_SystemError, "%U: no argument for its rule", rule.name);
                return false;
            }
            if (value.kind == Value::argument) {
                if (!save(argument, &saved) || (target_ && !keep_original(target_.get(), &saved))) return false;
            } else if (value.kind == Value::shape && is_tensor(argument)) {
                const Ref array(live_array(argument)), form(array ? form_of(array.get()) : nullptr);
                if (!form) return false;
                saved.value = Py_NewRef(PyTuple_GET_ITEM(form.get(), 0));
            } else {
                saved.value = call_python(value.kind == Value::shape ? "shape_of" : "type_of", argument);
                if (!saved.value) return false;
            }
        }
    }
    return true;
}

bool Recording::prepare(PyObject* form, PyObject* rule, const Arguments& call, PyObject* target) {
    if (target && !Ref(call_python("require_changeable", target, form))) return false;
    node_ = Ref(as_object(make_node(types.node)));
    target_ = Ref::to(target);
    if (!node_) return false;
    Node& node = *reinterpret_cast<Node*>(node_.get());
    node.rule = Py_NewRef(rule);
    if (!connect(*reinterpret_cast<Rule*>(rule), call) || !keep(*reinterpret_cast<Rule*>(rule), call)) return false;
    return tracing == Tracing::off || Ref(call_python("trace", node_.get()));
}

bool Recording::finish(PyObject* results, PyObject* first) {
    Node& node = *reinterpret_cast<Node*>(node_.get());
    const Rule& rule = *reinterpret_cast<Rule*>(node.rule);
    if (is_tensor(results)) {
        if (results == first && !target_) return true;  // nothing was computed
        if (!makes_gradients(results)) return true;
        if (target_ && slot(results, tensors.base) && !Ref(call_python("change_base", results, node_.get())))
            return false;
        if (!(target_ && slot(results, tensors.base)) && !become_output(results, node, 0)) return false;
    } else if (PyTuple_Check(results) || PyList_Check(results)) {
        const Ref forms(PyList_New(0));
        const Py_ssize_t count = PySequence_Fast_GET_SIZE(results);
        node.core.output_count = static_cast<std::uint32_t>(count);
        for (Py_ssize_t i = 0; forms && i < count; ++i) {
            PyObject* one = PySequence_Fast_GET_ITEM(results, i);
            const Ref array(is_tensor(one) ? live_array(one) : Py_NewRef(Py_None));
            const Ref form(array.get() == Py_None ? Py_NewRef(Py_None) : form_of(array.get()));
            if (!form || PyList_Append(forms.get(), form.get()) < 0) return false;
            if (is_tensor(one) && makes_gradients(one) && !become_output(one, node, static_cast<std::uint32_t>(i)))
                return false;
        }
        if (!node.extras) node.extras = PyDict_New();
        if (!forms || !node.extras || PyDict_SetItemString(node.extras, "forms", forms.get()) < 0) return false;
    } else {
        return true;
    }
    for (const Part& part : rule.lists->parts) {
        if (!is_needed(rule, part, node)) continue;
        for (const std::uint16_t number : part.values) {
            if (rule.lists->values[number].kind != Value::result || node.saved[number].value) continue;
            const Ref kept(is_tensor(results) ? detached(results) : detached_each(results));
            if (!kept || !save(kept.get(), &node.saved[number])) return false;
        }
    }
    return !packing || pack_all(node);
}

bool changes_of_all(PyObject* value, std::uint64_t* changes, int levels) {
    *changes = 0;
    if (is_tensor(value)) {
        const Counter* counter = need_counter(value);
        if (counter) *changes = counter->changes;
        return counter != nullptr;
    }
    if (levels == 0 || (!PyTuple_CheckExact(value) && !PyList_CheckExact(value))) return true;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
        std::uint64_t more = 0;
        if (!changes_of_all(PySequence_Fast_GET_ITEM(value, i), &more, levels - 1)) return false;
        *changes += more;
    }
    return true;
}

bool makes_gradients(PyObject* tensor) {
    const Ref array(live_array(tensor));
    if (!array) return PyErr_Clear(), false;
    ElementKind kind{};
    if (!kind_of(array.get(), &kind)) return PyErr_Clear(), false;
    return kind.kind == 'f' || kind.kind == 'c' || kind.kind == 0;
}

bool add_rules(PyObject* module) {
    types.rule = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&rule_spec));
    return types.rule && PyModule_AddType(module, types.rule) == 0;
}

}  // namespace shmtensor::autograd
