#include "python/operation.hpp"

#include <structmember.h>

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "python/autograd.hpp"
#include "python/operands.hpp"
#include "python/ref.hpp"
#include "python/tensors.hpp"

// A call replaces the tensors among its arguments by their arrays, calls `compute` with them, and turns the result into
// tensors. Rare cases (errors, an `out` that is copied to, element types that NumPy lacks) are left to methods of the
// form (shmtensor/_tensor/dispatch.py), which also has the name and the documentation.

namespace shmtensor {
namespace {

// How the result is returned. The numbers are those of dispatch.Result.
enum class Result : int {
    created = 0,  // arrays become new tensors
    view = 1,     // arrays become tensors on the storage of the first tensor, if they lie in it
    same = 2,     // the first argument was written to, and is the result
    value = 3,    // the result is returned as it is
};
// How `out` is used. The numbers are those of dispatch.Out.
enum class Out : int {
    none = 0,    // there is none
    passed = 1,  // passed to `compute`, which writes into it and returns it
    copied = 2,  // the result is copied to it
    place = 3,   // as `passed`, with the first tensor as `out`: an in-place form
    placed = 4,  // as `copied`, with the first tensor as `out`
};

struct Operation {
    PyObject_HEAD vectorcallfunc call;
    PyObject* form;     // the dispatch.Form
    PyObject* compute;  // computes with arrays
    PyObject* into;     // computes with arrays if there is an `out`
    PyObject* named;    // nullptr, or a tuple of names of keyword arguments that must be tensors or None
    PyObject* results;  // nullptr, or the class of named results
    // One bit for each positional argument; the last bit stands for all that follow.
    std::uint64_t tensors, optional, operands;
    Result result;
    Out out;
    bool module;     // compute takes the array module first
    bool sequence;   // the first argument is a list or tuple of tensors
    bool reflected;  // the first two arguments are exchanged
    bool symbol;     // a Python operator: returns NotImplemented for unknown operands
    // The number of positional arguments, if `compute` does not check it, as NumPy's ufuncs do not; else `most` is -1.
    int least, most;
    Promotion promotion;  // of the operands, or of the only argument
    PyObject* wider;      // nullptr, or the callable for calls with other parameters than `out` (add(x, y, alpha=2))
    PyObject* rule;       // nullptr, or the Rule for its gradients, set by the first recorded call
    PyObject* weak;       // weak references to it
};

// Interned names; made once.
struct Names {
    PyObject *out, *only_out, *storage, *reject, *reject_sequence, *recover, *place, *put, *wrap, *module_of, *numpy;
    PyObject *require, *rule;
} names;

// The arguments for `compute`, each an owned reference, with room for the module before them and for `out`.
class Arguments {
   public:
    explicit Arguments(Py_ssize_t most) {
        if (most + 2 > static_cast<Py_ssize_t>(inline_.size())) {
            heap_.reset(new (std::nothrow) PyObject*[static_cast<std::size_t>(most) + 2]);
            begin_ = heap_.get();
        }
    }
    // False: no memory.
    explicit operator bool() const { return begin_ != nullptr; }
    Arguments(const Arguments&) = delete;
    ~Arguments() {
        for (Py_ssize_t i = 0; i < count; ++i) Py_DECREF(at()[i]);
    }
    PyObject** at() { return begin_ + 1; }
    PyObject*& before() { return begin_[0]; }
    void add(PyObject* owned) { at()[count++] = owned; }

    Py_ssize_t count = 0;

   private:
    std::array<PyObject*, 10> inline_;
    std::unique_ptr<PyObject*[]> heap_;
    PyObject** begin_ = inline_.data();
};

[[gnu::always_inline]] inline bool is_tensor(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    if (type == tensors.tensor) return true;
    return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && PyType_IsSubtype(type, tensors.tensor);
}

bool is_out(PyObject* name) {
    return name == names.out || PyUnicode_Compare(name, names.out) == 0;
}

struct Origin {
    Ref storage, epoch;
};

struct Call {
    Operation& op;
    PyObject* first = nullptr;        // the first tensor; borrowed, as the next two
    PyObject* first_array = nullptr;  // its array
    PyObject* out = nullptr;          // the tensor for the result
    PyObject* out_array = nullptr;
    PyObject* keywords = nullptr;                 // a tuple of the names of the last arguments, or nullptr
    Ref names_held{}, out_held{}, module_held{};  // references to objects that the call made itself
    bool records = false;                         // a tensor needs a gradient
    std::optional<Origin> origin{};               // of `first` when its array was taken, if the result is a view
};

// Refuses an argument: raises the error of the form. For an operator, returns NotImplemented.
PyObject* reject(const Operation& op, PyObject* argument, PyObject* method = names.reject) {
    if (op.symbol) Py_RETURN_NOTIMPLEMENTED;
    const Ref result(PyObject_CallMethodOneArg(op.form, method, argument));
    if (result) PyErr_SetString(PyExc_SystemError, "a form refused an argument without an exception");
    return nullptr;
}

// The arrays of a list or tuple of tensors; nullptr with an exception set.
PyObject* arrays_of(Call& call, PyObject* given) {
    if (!(PyList_Check(given) || PyTuple_Check(given)) || PySequence_Fast_GET_SIZE(given) == 0)
        return reject(call.op, given, names.reject_sequence);
    const Ref held(PySequence_Tuple(given));  // other threads can change a list
    if (!held) return nullptr;
    const Py_ssize_t count = PyTuple_GET_SIZE(held.get());
    Ref arrays(PyList_New(count));
    for (Py_ssize_t i = 0; arrays && i < count; ++i) {
        PyObject* one = PyTuple_GET_ITEM(held.get(), i);
        if (!is_tensor(one)) return reject(call.op, one);
        call.records = call.records || autograd::requires_grad(one);
        PyObject* array = live_array(one);
        if (!array) return nullptr;
        PyList_SET_ITEM(arrays.get(), i, array);
        if (!call.first_array) call.first_array = array;
    }
    return arrays.release();
}

// The argument for `compute`: a new reference. nullptr with an exception set; NotImplemented is set as `out`.
PyObject* unwrap(Call& call, PyObject* argument, std::uint64_t bit) {
    if (is_tensor(argument)) {
        call.records = call.records || autograd::requires_grad(argument);
        PyObject* array = live_array(argument);
        if (!array || call.first) return array;
        if (call.op.result == Result::view) {
            // Another thread may move the storage at any time: the array and its epoch must match.
            while (slot(argument, tensors.array) != array) {
                Py_DECREF(array);
                array = live_array(argument);
                if (!array) return nullptr;
            }
            call.origin.emplace(Ref::to(slot(argument, tensors.storage_of)), Ref::to(slot(argument, tensors.epoch)));
        }
        call.first = argument;
        call.first_array = array;
        return array;
    }
    const Operation& op = call.op;
    const bool refused = (op.tensors & bit) != 0 || ((op.operands & bit) != 0 && !is_operand(argument));
    if (refused && !(argument == Py_None && (op.optional & bit) != 0)) return reject(op, argument);
    return Py_NewRef(argument);
}

// A tensor on the first tensor's storage, from an array that is a view of its array. nullptr with an exception set.
PyObject* wrap_view(Call& call, PyObject* result) {
    if (!call.origin) return PyErr_BadInternalCall(), nullptr;  // the first tensor sets it
    const Ref &storage = call.origin->storage, &epoch = call.origin->epoch;
    if (storage.get() != Py_None) return make_tensor(result, storage.get(), epoch.get());
    const Ref made(PyObject_CallMethodNoArgs(call.first, names.storage));
    // If the storage was made and moved meanwhile, the array still refers to the old memory.
    const bool same = slot(call.first, tensors.array) == call.first_array;
    return made ? make_tensor(result, made.get(), same ? slot(call.first, tensors.epoch) : tensors.unmoved) : nullptr;
}

// A tensor from an array that may be a view of the first one, as the form determines. nullptr with an exception set.
PyObject* place(Call& call, PyObject* result) {
    PyObject* made = PyObject_CallMethodObjArgs(call.op.form, names.place, result, call.first, nullptr);
    if (made && is_tensor(made) && slot(made, tensors.storage_of) != Py_None) become_view(made, call.first);
    return made;
}

// A tensor of a result. nullptr with an exception set.
PyObject* wrap(Call& call, PyObject* result) {
    const Operation& op = call.op;
    if (is_known_array(result)) {
        if (op.result == Result::view && call.first) {
            if (result == call.first_array) return Py_NewRef(call.first);
            if (is_alone(result)) return make_tensor(result, Py_None, tensors.unmoved);
            if (!is_part_of(result, call.first_array)) return place(call, result);
            PyObject* made = wrap_view(call, result);
            if (made) become_view(made, call.first);
            return made;
        }
        if (result == call.first_array) {
            const Ref copy(copy_of(result));
            return copy ? make_tensor(copy.get(), Py_None, tensors.unmoved) : nullptr;
        }
        return make_tensor(result, Py_None, tensors.unmoved);
    }
    if (is_device_array(result)) {
        if (op.result == Result::view && call.first) return place(call, result);
        const bool same = result == call.first_array;
        const Ref copy(same ? copy_of(result) : Py_NewRef(result));
        return copy ? make_tensor(copy.get(), Py_None, tensors.unmoved) : nullptr;
    }
    if (PyTuple_Check(result) || PyList_Check(result)) {
        const Py_ssize_t count = PySequence_Fast_GET_SIZE(result);
        Ref made(PyList_Check(result) ? PyList_New(count) : PyTuple_New(count));
        for (Py_ssize_t i = 0; made && i < count; ++i) {
            PyObject* one = wrap(call, PySequence_Fast_GET_ITEM(result, i));
            if (!one) return nullptr;
            if (PyList_Check(result))
                PyList_SET_ITEM(made.get(), i, one);
            else
                PyTuple_SET_ITEM(made.get(), i, one);
        }
        if (!made || !op.results || !PyTuple_Check(made.get())) return made.release();
        return PyObject_CallObject(op.results, made.get());
    }
    if (const Ref array(array_of_scalar(result)); array)
        return make_tensor(array.get(), Py_None, tensors.unmoved);
    else if (PyErr_Occurred())
        return nullptr;
    if (op.result == Result::view && call.first && is_array(result)) return place(call, result);
    return PyObject_CallMethodOneArg(op.form, names.wrap, result);
}

PyObject* finish(Call& call, PyObject* self, PyObject* result) {
    if (result == Py_NotImplemented && call.op.symbol) return Py_NewRef(result);
    if (call.out) {
        if (result == call.out_array) return Py_NewRef(call.out);
        return PyObject_CallMethodObjArgs(call.op.form, names.put, result, call.out, nullptr);
    }
    switch (call.op.result) {
        case Result::same:
            return Py_NewRef(self);
        case Result::value:
            return Py_NewRef(result);
        default:
            return wrap(call, result);
    }
}

// Computes again after an error, or raises shmtensor's error for it.
[[gnu::noinline, gnu::cold]] PyObject* recover(const Call& call, PyObject* compute, Arguments& arguments) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace) PyException_SetTraceback(error, trace);
    Ref types(type), errors(error), traces(trace);
    const Py_ssize_t shift = call.op.module ? 1 : 0;
    const Py_ssize_t named = call.keywords ? PyTuple_GET_SIZE(call.keywords) : 0, count = arguments.count - named;
    const Ref given(PyTuple_New(count + shift)), how(PyDict_New());
    if (!given || !how) return nullptr;
    if (shift) PyTuple_SET_ITEM(given.get(), 0, Py_NewRef(arguments.before()));
    for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(given.get(), i + shift, Py_NewRef(arguments.at()[i]));
    for (Py_ssize_t i = 0; i < named; ++i)
        if (PyDict_SetItem(how.get(), PyTuple_GET_ITEM(call.keywords, i), arguments.at()[count + i]) < 0)
            return nullptr;
    Ref result(PyObject_CallMethodObjArgs(call.op.form, names.recover, error, compute, given.get(), how.get(),
                                          call.out_array ? call.out_array : Py_None, nullptr));
    if (result.get() != Py_NotImplemented) return result.release();
    // The error is raised unchanged. Raised here and not in Python: there, its traceback would refer to a frame that
    // refers to the error, a cycle that keeps the arrays of the call until the garbage collector runs.
    PyErr_Restore(types.release(), errors.release(), traces.release());
    return nullptr;
}

// False, after an argument was refused: with an exception set, or without one, which means NotImplemented.
bool refuse(const Operation& op, PyObject* argument) {
    const Ref refusal(reject(op, argument));
    return false;
}

// If an argument is on a device, the operation is computed there. False with an exception set.
[[gnu::noinline]] bool settle(Call& call, Arguments& arguments) {
    PyObject* first = nullptr;
    if (!settle_devices(arguments.at(), arguments.count, call.op.form, &first)) return false;
    if (first) call.first_array = first;
    return true;
}

// Adds the positional arguments for `compute`. False: as `refuse`.
bool take_positional(Call& call, Arguments& arguments, PyObject* const* args, Py_ssize_t count) {
    const Operation& op = call.op;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* one = i == 0 && op.sequence ? arrays_of(call, args[0])
                                              : unwrap(call, args[i], std::uint64_t{1} << (i < 63 ? i : 63));
        if (!one) return false;
        arguments.add(one);
        if (op.symbol && one == Py_NotImplemented) return false;
    }
    if (op.reflected && count > 1) std::swap(arguments.at()[0], arguments.at()[1]);
    if (device_module && !settle(call, arguments)) return false;
    return op.promotion == Promotion::none || promote(op.promotion, arguments.at(), count);
}

// A tuple without its element `left_out`. nullptr with an exception set.
Ref tuple_without(PyObject* tuple, Py_ssize_t left_out) {
    const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    Ref made(PyTuple_New(count - 1));
    for (Py_ssize_t i = 0, k = 0; made && i < count; ++i)
        if (i != left_out) PyTuple_SET_ITEM(made.get(), k++, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
    return made;
}

// A tuple with one more element. nullptr with an exception set.
Ref tuple_with(PyObject* tuple, PyObject* last) {
    const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    Ref made(PyTuple_New(count + 1));
    for (Py_ssize_t i = 0; made && i < count; ++i)
        PyTuple_SET_ITEM(made.get(), i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
    if (made) PyTuple_SET_ITEM(made.get(), count, Py_NewRef(last));
    return made;
}

// Whether a value is a list of tensors, at least one of which needs a gradient.
bool needs_gradients(PyObject* value) {
    if (!(PyList_Check(value) || PyTuple_Check(value))) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
        PyObject* one = PySequence_Fast_GET_ITEM(value, i);
        if (is_tensor(one) && autograd::requires_grad(one)) return true;
    }
    return false;
}

// Adds the keyword arguments, and finds `out` among them. False: as `refuse`.
[[gnu::noinline]] bool take_named(Call& call, Arguments& arguments, PyObject* const* args) {
    const Operation& op = call.op;
    PyObject* const all = call.keywords;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all); ++i) {
        PyObject *name = PyTuple_GET_ITEM(all, i), *given = args[i];
        if ((op.out == Out::passed || op.out == Out::copied) && is_out(name)) {
            if (given != Py_None && !is_tensor(given)) return refuse(op, given);
            if (given != Py_None) call.out = given;
            if (op.out == Out::copied) {
                call.names_held = tuple_without(all, i);
                if (!call.names_held) return false;
                call.keywords = PyTuple_GET_SIZE(call.names_held.get()) ? call.names_held.get() : nullptr;
                continue;
            }
        }
        if (op.named && !is_tensor(given) && given != Py_None && PySequence_Contains(op.named, name) == 1)
            return refuse(op, given);
        if (op.sequence && !call.records) call.records = needs_gradients(given);
        PyObject* one = unwrap(call, given, 0);
        if (!one) return false;
        if (given == call.out) call.out_array = one;
        arguments.add(one);
    }
    return !device_module || settle(call, arguments);
}

// Finds the array of `out`; in an in-place form, that of the first tensor, which is passed by name. False with an
// exception set.
bool choose_out(Call& call, Arguments& arguments) {
    if (call.out && !call.out_array) {
        call.out_held = Ref(live_array(call.out));
        call.out_array = call.out_held.get();
        if (!call.out_array) return false;
    }
    const Out out = call.op.out;
    if ((out != Out::place && out != Out::placed) || !call.first) return true;
    call.out = call.first;
    call.out_array = call.first_array;
    if (out == Out::placed) return true;
    if (call.keywords) {
        call.names_held = tuple_with(call.keywords, names.out);
        if (!call.names_held) return false;
    }
    call.keywords = call.keywords ? call.names_held.get() : names.only_out;
    arguments.add(Py_NewRef(call.first_array));
    return true;
}

// Puts the array module before the arguments. False with an exception set.
bool choose_module(Call& call, Arguments& arguments) {
    arguments.before() = names.numpy;
    if (!call.first_array || is_array(call.first_array)) return true;
    if (is_device_array(call.first_array)) {
        arguments.before() = device_module;
        return true;
    }
    call.module_held = Ref(PyObject_CallMethodOneArg(call.op.form, names.module_of, call.first_array));
    arguments.before() = call.module_held.get();  // of another device
    return static_cast<bool>(call.module_held);
}

// Calls `compute` with the arguments. nullptr with an exception set.
[[gnu::always_inline]] inline PyObject* compute(Call& call, Arguments& arguments) {
    const Operation& op = call.op;
    PyObject* function = call.out && op.into ? op.into : op.compute;
    const Py_ssize_t named = call.keywords ? PyTuple_GET_SIZE(call.keywords) : 0;
    const auto positional = static_cast<std::size_t>(arguments.count - named);
    PyObject* result = op.module ? PyObject_Vectorcall(function, &arguments.before(), positional + 1, call.keywords)
                                 : PyObject_Vectorcall(function, arguments.at(),
                                                       positional | PY_VECTORCALL_ARGUMENTS_OFFSET, call.keywords);
    return result ? result : recover(call, function, arguments);
}

// Whether the form has these parameters. False with an exception set; without one, `wider` takes the call.
bool are_parameters(const Operation& op, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
    const bool known = !keywords || (PyTuple_GET_SIZE(keywords) == 1 && is_out(PyTuple_GET_ITEM(keywords, 0)) &&
                                     (op.out == Out::passed || op.out == Out::copied));
    if (known && count >= op.least && count <= op.most) return true;
    if (op.wider) return false;
    const Ref require(PyObject_GetAttr(op.form, names.require));
    return require && Ref(PyObject_Vectorcall(require.get(), args, static_cast<std::size_t>(count), keywords));
}

// Whether the first argument, which the operation changes, is a tensor passed by position. False: as `refuse`.
bool has_target(const Operation& op, PyObject* const* args, Py_ssize_t count) {
    if (op.result != Result::same && op.out != Out::place && op.out != Out::placed) return true;
    if (count > 0) return op.sequence || is_tensor(args[0]) || refuse(op, args[0]);
    PyErr_SetString(PyExc_TypeError, "the tensor that is changed must be the first positional argument");
    return false;
}

// As `operate` from `compute` on, for a call whose gradient is recorded.
[[gnu::noinline, gnu::cold]] PyObject* record(Call& call, Arguments& arguments,
                                              const autograd::Recording::Arguments& given) {
    Operation& op = call.op;
    if (!op.rule) op.rule = PyObject_GetAttr(op.form, names.rule);
    if (!op.rule) return nullptr;
    PyObject* self = given.count ? given.given[0] : Py_None;
    const bool in_place = op.result == Result::same || op.out == Out::place || op.out == Out::placed;
    autograd::Recording recording;
    if (!recording.prepare(op.form, op.rule, given, in_place && is_tensor(self) ? self : nullptr)) return nullptr;
    const Ref result(compute(call, arguments));
    if (!result) return nullptr;
    if (in_place && is_tensor(self)) autograd::changed(self);
    Ref made(finish(call, self, result.get()));
    return made && recording.finish(made.get(), self) ? made.release() : nullptr;
}

PyObject* operate(PyObject* object, PyObject* const* args, std::size_t flags, PyObject* keywords) {
    auto& op = *reinterpret_cast<Operation*>(object);
    if (!tensors.tensor && !need_tensors()) return nullptr;
    const Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (op.most >= 0 && !are_parameters(op, args, count, keywords))
        return PyErr_Occurred() ? nullptr
                                : PyObject_Vectorcall(op.wider, args, static_cast<std::size_t>(count), keywords);
    if (!has_target(op, args, count)) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_NotImplemented);
    Call call{op};
    call.keywords = keywords;
    Arguments arguments(count + (keywords ? PyTuple_GET_SIZE(keywords) : 0) + 1);
    if (!arguments) return PyErr_NoMemory();
    if (!take_positional(call, arguments, args, count) || (keywords && !take_named(call, arguments, args + count)))
        return PyErr_Occurred() ? nullptr : Py_NewRef(Py_NotImplemented);
    const bool records = call.records && autograd::modes.enabled && op.result != Result::value;
    if (records && call.out) return autograd::call_python("refuse_out", op.form);
    if (!choose_out(call, arguments)) return nullptr;
    if (op.module && !choose_module(call, arguments)) return nullptr;
    if (records) return record(call, arguments, {args, count, keywords, op.reflected});
    const Ref result(compute(call, arguments));
    if (!result) return nullptr;
    if (call.out)
        autograd::changed(call.out);
    else if (op.result == Result::same && count && is_tensor(args[0]))
        autograd::changed(args[0]);
    return finish(call, count ? args[0] : Py_None, result.get());
}

// ------------------------------------------------------------------------------------------------ the Python class

int init(PyObject* object, PyObject* args, PyObject* keywords) {
    static const char* parameters[] = {
        "form",   "compute",  "into",      "result", "out",   "tensors", "optional",  "operands", "named", "results",
        "module", "sequence", "reflected", "symbol", "least", "most",    "promotion", "wider",    nullptr};
    auto& op = *reinterpret_cast<Operation*>(object);
    PyObject *form, *compute, *into = Py_None, *named = Py_None, *results = Py_None, *wider = Py_None;
    unsigned long long bits[3] = {};
    int result = 0, out = 0, module = 0, sequence = 0, reflected = 0, symbol = 0, least = 0, most = -1, promotion = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|OiiKKKOOppppiiiO", const_cast<char**>(parameters), &form,
                                     &compute, &into, &result, &out, &bits[0], &bits[1], &bits[2], &named, &results,
                                     &module, &sequence, &reflected, &symbol, &least, &most, &promotion, &wider))
        return -1;
    if (form == Py_None || !PyCallable_Check(compute)) {
        PyErr_SetString(PyExc_TypeError, "an operation needs a form and a function that computes");
        return -1;
    }
    const auto keep = [](PyObject*& field, PyObject* value) {
        PyObject* old = field;
        field = value == Py_None ? nullptr : Py_NewRef(value);
        Py_XDECREF(old);
    };
    keep(op.form, form);
    keep(op.compute, compute);
    keep(op.into, into);
    keep(op.named, named);
    keep(op.results, results);
    keep(op.wider, wider);
    op.tensors = bits[0];
    op.optional = bits[1];
    op.operands = bits[2];
    op.result = static_cast<Result>(result);
    op.out = static_cast<Out>(out);
    op.module = module != 0;
    op.sequence = sequence != 0;
    op.reflected = reflected != 0;
    op.symbol = symbol != 0;
    op.least = least;
    op.most = most;
    op.promotion = static_cast<Promotion>(promotion);
    op.call = operate;
    if (!names.numpy) names.numpy = PyImport_ImportModule("numpy");
    return names.numpy ? 0 : -1;
}

PyObject* make(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* made = type->tp_alloc(type, 0);
    if (made)
        reinterpret_cast<Operation*>(made)->call = [](PyObject*, PyObject* const*, std::size_t, PyObject*) {
            PyErr_SetString(PyExc_SystemError, "the operation was not initialised");
            return static_cast<PyObject*>(nullptr);
        };
    return made;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
    auto& op = *reinterpret_cast<Operation*>(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(op.form);
    Py_VISIT(op.compute);
    Py_VISIT(op.into);
    Py_VISIT(op.named);
    Py_VISIT(op.results);
    Py_VISIT(op.wider);
    Py_VISIT(op.rule);
    return 0;
}

int clear(PyObject* object) {
    auto& op = *reinterpret_cast<Operation*>(object);
    Py_CLEAR(op.form);
    Py_CLEAR(op.compute);
    Py_CLEAR(op.into);
    Py_CLEAR(op.named);
    Py_CLEAR(op.results);
    Py_CLEAR(op.wider);
    Py_CLEAR(op.rule);
    return 0;
}

void drop(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (reinterpret_cast<Operation*>(object)->weak) PyObject_ClearWeakRefs(object);
    clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

// As for functions: x.operation is bound to x.
PyObject* bind(PyObject* self, PyObject* object, PyObject*) {
    return !object || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

// `__name__` and similar attributes are those of the form.
PyObject* of_form(PyObject* object, void* name) {
    auto& op = *reinterpret_cast<Operation*>(object);
    if (!op.form) return PyErr_SetString(PyExc_AttributeError, static_cast<const char*>(name)), nullptr;
    return PyObject_GetAttrString(op.form, static_cast<const char*>(name));
}

PyObject* to_string(PyObject* object) {
    const Ref name(PyObject_GetAttrString(object, "__qualname__"));
    return name ? PyUnicode_FromFormat("<operation %U>", name.get()) : nullptr;
}

// By name, as functions are pickled.
PyObject* reduce(PyObject* object, PyObject*) {
    return PyObject_GetAttrString(object, "__qualname__");
}

PyGetSetDef attributes[] = {
    {"__name__", of_form, nullptr, nullptr, const_cast<char*>("name")},
    {"__qualname__", of_form, nullptr, nullptr, const_cast<char*>("qualname")},
    {"__module__", of_form, nullptr, nullptr, const_cast<char*>("module")},
    {"__doc__", of_form, nullptr, nullptr, const_cast<char*>("doc")},
    {"__signature__", of_form, nullptr, nullptr, const_cast<char*>("signature")},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Operation, call), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Operation, weak), READONLY, nullptr},
    {"form", T_OBJECT_EX, offsetof(Operation, form), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyMethodDef methods[] = {
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_init, reinterpret_cast<void*>(init)},
    {Py_tp_dealloc, reinterpret_cast<void*>(drop)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
    {Py_tp_repr, reinterpret_cast<void*>(to_string)},
    {Py_tp_getset, attributes},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {0, nullptr},
};
PyType_Spec spec = {"shmtensor._native.Operation", sizeof(Operation), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                    slots};

}  // namespace

// set_default_type(dtype)
PyObject* set_default(PyObject*, PyObject* dtype) {
    return set_default_type(dtype) ? Py_NewRef(Py_None) : nullptr;
}

PyMethodDef functions[] = {
    {"set_default_type", set_default, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

bool add_operations(PyObject* module) {
    const std::pair<PyObject**, const char*> made[] = {{&names.require, "require_arguments"},
                                                       {&names.out, "out"},
                                                       {&names.rule, "rule"},
                                                       {&names.storage, "storage"},
                                                       {&names.reject, "reject"},
                                                       {&names.recover, "recover"},
                                                       {&names.place, "place"},
                                                       {&names.put, "put"},
                                                       {&names.wrap, "wrap"},
                                                       {&names.module_of, "module_of"},
                                                       {&names.reject_sequence, "reject_sequence"}};
    for (const auto& [name, text] : made) {
        if (!*name) *name = PyUnicode_InternFromString(text);
        if (!*name) return false;
    }
    names.only_out = PyTuple_Pack(1, names.out);
    const Ref type(PyType_FromSpec(&spec));
    return names.only_out && type && PyModule_AddObjectRef(module, "Operation", type.get()) == 0 &&
           PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace shmtensor
