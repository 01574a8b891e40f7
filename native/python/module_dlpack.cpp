// Export of arrays as DLPack capsules, and import from them. dlpack.hpp describes their layout and ownership.
#include <nanobind/nanobind.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/os.hpp"
#include "python/array.hpp"
#include "python/errors.hpp"
#include "python/foreign_threads.hpp"
#include "python/module.hpp"
#include "python/objects.hpp"
#include "python/operands.hpp"
#include "python/views.hpp"
#include "python/waits.hpp"
#include "tensor/dlpack.hpp"

namespace shmtensor {
namespace {

using dlpack::DataType;
using dlpack::Layout;
using dlpack::Managed;
using dlpack::ManagedVersioned;

constexpr const char* kOwner = "shmtensor.dlpack";  // capsule that owns a consumed tensor; base of the arrays over it

template <class M>
constexpr bool is_versioned = std::is_same_v<M, ManagedVersioned>;
template <class M>
constexpr const char* name_of = is_versioned<M> ? dlpack::kVersionedName : dlpack::kName;
template <class M>
constexpr const char* used_name_of = is_versioned<M> ? dlpack::kUsedVersionedName : dlpack::kUsedName;

[[noreturn]] void malformed(const std::string& what) {
    raise(errors.argument, "cannot use this DLPack tensor: " + what);
}
[[noreturn]] void refuse(const std::string& what) {
    raise(PyExc_BufferError, what);
}

// Keeps an exception that is set, since capsules may be dropped at any time.
template <class M>
void end(M* managed) {
    if (!managed->deleter) return;
    const nb::error_scope kept;
    managed->deleter(managed);
}

// -------------------------------------------------------------------------------------------------------------- export

// An exported tensor, followed in memory by the sizes and the strides of its axes.
template <class M>
struct Export {
    M managed;
    PyObject* array;  // keeps the memory alive
};

// Called from any thread. After Python has ended, the reference leaks: the process is about to end.
void let_go(PyObject* object) {
    if (!PyGILState_GetThisThreadState()) {  // first: without a thread state, PyGILState_Check returns true after
                                             // Python has ended
        drop_soon(object);
    } else if (PyGILState_Check()) {
        const nb::error_scope kept;
        Py_DECREF(object);
    } else if (!is_python_ending()) {
        try {
            const PyGILState_STATE state = PyGILState_Ensure();
            Py_DECREF(object);
            PyGILState_Release(state);
        } catch (...) {  // the interpreter is ending, and unwinds threads that want the GIL: see GilRelease
            os::sleep_forever();
        }
    }
}

template <class M>
void delete_export(M* managed) {
    auto* given = static_cast<Export<M>*>(managed->context);
    let_go(given->array);
    std::free(given);
}

// The destructor of a capsule: calls the deleter if the capsule was not consumed.
template <class M>
void drop_capsule(PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, name_of<M>)) return;
    end(static_cast<M*>(PyCapsule_GetPointer(capsule, name_of<M>)));
}

DataType type_of(const ElementKind& element) {
    const int bits = 8 * element.bytes;
    for (const auto& kind : dlpack::kKinds)
        if (kind.letter == element.kind && bits <= (kind.letter == 'c' ? dlpack::kMaxComplexBits : dlpack::kMaxBits))
            return {kind.code, static_cast<std::uint8_t>(bits), 1};
    if (element.kind == 0)
        for (const auto& known : dlpack::kNamed)
            if (known.bits == bits && known.is_class(element.name)) return {known.code, known.bits, 1};
    refuse(std::string{"elements of "} + element.name + " have no type in DLPack; convert the tensor with to()");
}

template <class M>
nb::object export_array(PyObject* array, bool copied) {
    ElementKind element;
    if (!kind_of(array, &element)) throw nb::python_error();
    const DataType type = type_of(element);
    const ArrayView view = view_array(array);
    if (!is_versioned<M> && !view.writable)
        refuse(
            "the memory is read-only, which a DLPack capsule before version 1 cannot express; pass max_version=(1, 0) "
            "or newer, or export a clone()");
    const auto axes = static_cast<std::size_t>(view.axes);
    auto* given = static_cast<Export<M>*>(std::malloc(sizeof(Export<M>) + 2 * axes * sizeof(std::int64_t)));
    if (!given) throw std::bad_alloc();
    auto* sizes = reinterpret_cast<std::int64_t*>(given + 1);
    M& managed = given->managed;
    managed.tensor = {view.data, {dlpack::kCpu, 0}, view.axes, type, sizes, sizes + axes, 0};
    for (std::size_t i = 0; i < axes; ++i) {
        sizes[i] = view.sizes[i];
        sizes[axes + i] = view.strides[i] / element.bytes;
        if (view.strides[i] % element.bytes != 0) {
            std::free(given);
            refuse("the strides of the array are not multiples of its item size; export a clone()");
        }
    }
    managed.context = given;
    managed.deleter = delete_export<M>;
    if constexpr (is_versioned<M>) {
        managed.version = {dlpack::kMajor, dlpack::kMinor};
        managed.flags = (view.writable ? 0 : dlpack::kReadOnly) | (copied ? dlpack::kCopied : 0);
    }
    PyObject* capsule = PyCapsule_New(&managed, name_of<M>, drop_capsule<M>);
    if (!capsule) {
        std::free(given);
        throw nb::python_error();
    }
    given->array = Py_NewRef(array);
    return nb::steal(capsule);
}

// -------------------------------------------------------------------------------------------------------------- import

nb::object dtype_of_type(const DataType& type) {
    const auto described = [&] {
        return "its elements are of DLPack's type code " + std::to_string(type.code) + " with " +
               std::to_string(type.bits) + " bits in " + std::to_string(type.lanes) + " lanes";
    };
    if (type.lanes != 1) refuse(described() + "; the elements of a tensor must have one lane");
    for (const auto& kind : dlpack::kKinds) {
        const bool is_complex = kind.letter == 'c', is_bool = kind.letter == 'b';
        const int min_bits = is_complex ? 64 : kind.letter == 'f' ? 16 : 8;
        const int max_bits = is_complex ? dlpack::kMaxComplexBits : is_bool ? 8 : dlpack::kMaxBits;
        if (kind.code != type.code || type.bits < min_bits || type.bits > max_bits || (type.bits & (type.bits - 1)))
            continue;
        PyObject* dtype = dtype_of(kind.letter, type.bits / 8);
        if (!dtype) throw nb::python_error();
        return nb::steal(dtype);
    }
    for (const auto& known : dlpack::kNamed) {
        if (known.code != type.code || known.bits != type.bits) continue;
        if (PyObject* dtype = named_dtype(known)) return nb::steal(dtype);
        const bool is_missing = PyErr_ExceptionMatches(PyExc_ImportError);
        if (!is_missing && !PyErr_ExceptionMatches(PyExc_AttributeError)) throw nb::python_error();
        PyErr_Clear();
        refuse(std::string{"its elements are of "} + known.name +
               (is_missing ? ", which needs the package ml_dtypes; install it, or convert them first"
                           : ", which this ml_dtypes lacks; install a newer one"));
    }
    refuse(described() + ", which tensors do not support; convert them first");
}

template <class M>
void drop_owner(PyObject* owner) {
    end(static_cast<M*>(PyCapsule_GetPointer(owner, kOwner)));
}

// The block, or a view of it, that contains [low, low + bytes), if the memory is ours; else invalid. `shift`: the
// distance from `low` to the address at which to use the bytes. `readonly`: set if they cannot be written.
nb::object recognise(const std::byte* low, std::uint64_t bytes, bool* readonly, std::ptrdiff_t* shift) {
    Block* block = nullptr;
    bool unwritable = false;
    if (Client::locate(low, bytes, 0, &block, &unwritable) == Status::busy) {
        const GilRelease released;
        Client::locate(low, bytes, kSlice, &block, &unwritable);
    }
    if (!block) return {};
    if (block->segment->on_device()) {
        block->client->release(block);
        return {};
    }
    const std::byte* const from = (unwritable ? block->segment->readonly : block->segment->payload) + block->offset;
    std::byte* data = nullptr;
    *readonly = *readonly || unwritable;
    nb::object keeper = view_of(wrapper_of(block), *readonly, &data);
    *shift = data - from;
    return keeper;
}

template <class M>
nb::object import_capsule(PyObject* capsule, nb::handle copy, bool copies) {
    auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, name_of<M>));
    bool readonly = false;
    if constexpr (is_versioned<M>) {
        if (managed->version.major != dlpack::kMajor) {
            const std::string found =
                std::to_string(managed->version.major) + "." + std::to_string(managed->version.minor);
            PyCapsule_SetName(capsule, used_name_of<M>);
            end(managed);
            refuse("the capsule is of DLPack " + found + "; this shmtensor supports version 1 and older ones");
        }
        readonly = (managed->flags & dlpack::kReadOnly) != 0;
        if (copy.is(nb::handle(Py_False)) && (managed->flags & dlpack::kCopied))
            refuse("copy=False was passed, but the other library has made a copy");
    }
    const dlpack::Tensor& tensor = managed->tensor;
    if (!dlpack::is_memory(tensor.device))
        refuse(std::string{"the data lies on "} + dlpack::name_of(tensor.device) + " (DLPack's device type " +
               std::to_string(tensor.device.type) + "), number " + std::to_string(tensor.device.number) +
               "; tensors must be in host memory: copy it there first, or pass device=\"cpu\"");
    const nb::object dtype = dtype_of_type(tensor.type);
    const Item item = item_of(dtype.ptr());
    Layout layout;
    if (const std::string wrong = dlpack::read_layout(tensor, item.bytes, &layout); !wrong.empty()) malformed(wrong);
    if (!layout.empty && reinterpret_cast<std::uintptr_t>(layout.data) % static_cast<unsigned>(item.alignment) != 0)
        refuse("its elements are not aligned to their " + std::to_string(item.alignment) +
               " bytes; copy it in the other library");

    // From here on we own the tensor.
    const nb::object owner = nb::steal(PyCapsule_New(managed, kOwner, nullptr));
    if (!owner.is_valid() || PyCapsule_SetName(capsule, used_name_of<M>) != 0) throw nb::python_error();
    PyCapsule_SetDestructor(owner.ptr(), drop_owner<M>);

    nb::object keeper = owner;
    std::ptrdiff_t shift = 0;
    if (layout.data && !copies)
        if (nb::object known = recognise(layout.low, layout.span, &readonly, &shift); known.is_valid())
            keeper = std::move(known);
    PyObject* array = array_over(keeper.ptr(), layout.data ? layout.data + shift : nullptr, dtype.ptr(), layout.axes,
                                 layout.sizes, layout.steps, !readonly);
    if (array && copies) {
        const nb::object over = nb::steal(array);
        array = PyObject_CallMethod(array, "copy", nullptr);
    }
    if (!array) throw nb::python_error();
    return nb::steal(array);
}

nb::object import_any(nb::handle capsule, nb::handle copy, bool copies) {
    if (!PyCapsule_CheckExact(capsule.ptr()))
        raise(PyExc_TypeError, std::string{"__dlpack__ returned an object of type "} + Py_TYPE(capsule.ptr())->tp_name +
                                   "; it must return a capsule");
    const char* name = PyCapsule_GetName(capsule.ptr());
    if (!name) name = "";
    if (std::strcmp(name, dlpack::kVersionedName) == 0)
        return import_capsule<ManagedVersioned>(capsule.ptr(), copy, copies);
    if (std::strcmp(name, dlpack::kName) == 0) return import_capsule<Managed>(capsule.ptr(), copy, copies);
    if (std::strcmp(name, dlpack::kUsedName) == 0 || std::strcmp(name, dlpack::kUsedVersionedName) == 0)
        malformed("the capsule was already consumed; each can be consumed once");
    malformed(std::string{"the name of the capsule is \""} + name +
              "\"; it must be \"dltensor\" or \"dltensor_versioned\"");
}

struct Words {
    PyObject* method = PyUnicode_InternFromString("__dlpack__");
    PyObject* newest = Py_BuildValue("(II)", dlpack::kMajor, dlpack::kMinor);
    PyObject* plain = Py_BuildValue("(s)", "max_version");
    PyObject* all = Py_BuildValue("(sss)", "max_version", "dl_device", "copy");
};

nb::object import_object(nb::handle object, nb::handle device, nb::handle copy) {
    static Words* words = nullptr;  // not a guarded static: its initialisation may release the GIL
    if (!words) words = new Words;
    if (PyCapsule_CheckExact(object.ptr())) return import_any(object, copy, copy.is(nb::handle(Py_True)));
    PyObject* arguments[] = {object.ptr(), words->newest, device.ptr(), copy.ptr()};
    const bool plain = device.is_none() && copy.is_none();
    nb::object capsule =
        nb::steal(PyObject_VectorcallMethod(words->method, arguments, 1, plain ? words->plain : words->all));
    if (capsule.is_valid()) return import_any(capsule, copy, false);
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
        nb::python_error theirs;
        if (nb::hasattr(object, "__dlpack__")) {
            theirs.restore();
            throw nb::python_error();
        }
        raise(PyExc_AttributeError, std::string{"an object with __dlpack__ or a DLPack capsule was expected, not a "} +
                                        Py_TYPE(object.ptr())->tp_name + "; use shmtensor.tensor(values)");
    }
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    // The library is older than these arguments: call it without them, and convert the result here.
    PyErr_Clear();
    capsule = nb::steal(PyObject_CallMethodNoArgs(object.ptr(), words->method));
    if (!capsule.is_valid()) throw nb::python_error();
    return import_any(capsule, copy, copy.is(nb::handle(Py_True)));
}

}  // namespace

void add_dlpack(nb::module_& m) {
    m.def(
        "dlpack_export",
        [](nb::handle array, bool versioned, bool copied) {
            return versioned ? export_array<ManagedVersioned>(array.ptr(), copied)
                             : export_array<Managed>(array.ptr(), copied);
        },
        nb::arg("array"), nb::arg("versioned"), nb::arg("copied"));
    m.def("dlpack_import", &import_object, nb::arg("object").none(), nb::arg("device").none(), nb::arg("copy").none());
}

}  // namespace shmtensor
