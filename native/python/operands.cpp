#include "python/operands.hpp"

#include <cstdint>
#include <utility>

#include "python/array.hpp"
#include "python/errors.hpp"
#include "python/numpy_api.hpp"
#include "python/ref.hpp"

namespace shmtensor {

PyObject* device_module = nullptr;

namespace {

PyTypeObject* device_type = nullptr;

}  // namespace

bool is_array(PyObject* object) {
    return load_numpy() && PyArray_Check(object);
}

namespace {

// Types of dtypes.TABLE with a unique number: not NPY_LONGLONG, nor types of other packages.
bool is_known(const PyArray_Descr* descr) {
    const int type = descr->type_num;
    return ((type >= NPY_BOOL && type <= NPY_DOUBLE && type != NPY_LONGLONG && type != NPY_ULONGLONG) ||
            type == NPY_CFLOAT || type == NPY_CDOUBLE || type == NPY_HALF) &&
           PyArray_ISNBO(descr->byteorder);
}

}  // namespace

bool is_known_array(PyObject* object) {
    return load_numpy() && PyArray_CheckExact(object) &&
           is_known(PyArray_DESCR(reinterpret_cast<PyArrayObject*>(object)));
}

bool is_part_of(PyObject* array, PyObject* of) {
    PyObject* base = PyArray_BASE(reinterpret_cast<PyArrayObject*>(array));
    return base && (base == of || base == PyArray_BASE(reinterpret_cast<PyArrayObject*>(of)));
}

void set_device_arrays(PyObject* type, PyObject* module) {
    device_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type));
    device_module = Py_NewRef(module);
}

bool is_device_array(PyObject* object) {
    return device_type && PyObject_TypeCheck(object, device_type);
}

namespace {

// The dtype of an array on a device; nullptr with an exception set. CuPy uses NumPy's dtypes.
Ref device_dtype(PyObject* array) {
    Ref found(PyObject_GetAttrString(array, "dtype"));
    if (found && !PyArray_DescrCheck(found.get())) {
        PyErr_SetString(PyExc_TypeError, "an array on a device has a dtype that is not NumPy's");
        return Ref();
    }
    return found;
}

bool refuse_mixture(PyObject* on_device, PyObject* other, PyObject* form) {
    const Ref name(PyObject_GetAttrString(form, "name"));
    const Ref device(PyObject_GetAttrString(on_device, "device"));
    const Ref number(device ? PyObject_GetAttrString(device.get(), "id") : nullptr);
    if (number && name)
        PyErr_Format(errors.argument,
                     "%S of tensors on cpu (%zd axes) and on cuda:%S; all must be on one device: move the others with "
                     "x.to('cuda:%S')",
                     name.get(), static_cast<Py_ssize_t>(PyArray_NDIM(reinterpret_cast<PyArrayObject*>(other))),
                     number.get(), number.get());
    return false;
}

PyObject* first_on_device(PyObject* const* operands, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (is_device_array(operands[i])) return operands[i];
        if (!PyList_CheckExact(operands[i])) continue;
        for (Py_ssize_t k = 0; k < PyList_GET_SIZE(operands[i]); ++k)
            if (is_device_array(PyList_GET_ITEM(operands[i], k))) return PyList_GET_ITEM(operands[i], k);
    }
    return nullptr;
}

}  // namespace

bool settle_devices(PyObject** operands, Py_ssize_t count, PyObject* form, PyObject** first) {
    *first = device_type ? first_on_device(operands, count) : nullptr;
    if (!*first) return true;
    if (!load_numpy()) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (PyList_CheckExact(operands[i])) {
            for (Py_ssize_t k = 0; k < PyList_GET_SIZE(operands[i]); ++k)
                if (PyArray_Check(PyList_GET_ITEM(operands[i], k)))
                    return refuse_mixture(*first, PyList_GET_ITEM(operands[i], k), form);
        }
        if (!PyArray_Check(operands[i])) continue;
        auto* array = reinterpret_cast<PyArrayObject*>(operands[i]);
        if (PyArray_NDIM(array) > 0) return refuse_mixture(*first, operands[i], form);
        PyObject* number = PyArray_GETITEM(array, PyArray_BYTES(array));  // as in torch: it does not affect the type
        if (!number) return false;
        Py_SETREF(operands[i], number);
    }
    return true;
}

bool is_alone(PyObject* array) {
    if (is_device_array(array)) {
        const Ref base(PyObject_GetAttrString(array, "base"));
        if (!base) PyErr_Clear();
        return base.get() == Py_None;
    }
    return !PyArray_BASE(reinterpret_cast<PyArrayObject*>(array));
}

bool is_operand(PyObject* object) {
    return PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object) || PyList_Check(object) ||
           (load_numpy() && (PyArray_Check(object) || PyArray_IsScalar(object, Generic)));
}

PyObject* array_of_scalar(PyObject* object) {
    if (!load_numpy() || !PyArray_IsScalar(object, Generic)) return nullptr;
    PyArray_Descr* descr = PyArray_DescrFromScalar(object);
    const bool known = descr && is_known(descr);
    Py_XDECREF(descr);
    return known ? PyArray_FromScalar(object, nullptr) : nullptr;
}

PyObject* new_array(PyObject* like, int axes, const Py_ssize_t* sizes) {
    PyArrayObject* array = as_array(like);
    if (!array) return nullptr;
    PyArray_Descr* descr = PyArray_DESCR(array);
    Py_INCREF(descr);
    return PyArray_NewFromDescr(&PyArray_Type, descr, axes, sizes, nullptr, nullptr, 0, nullptr);
}

bool is_complex(PyObject* array) {
    if (is_device_array(array)) {
        const Ref dtype = device_dtype(array);
        if (!dtype) PyErr_Clear();
        return dtype && reinterpret_cast<PyArray_Descr*>(dtype.get())->kind == 'c';
    }
    return PyArray_Check(array) && PyArray_ISCOMPLEX(reinterpret_cast<PyArrayObject*>(array));
}

bool has_form(PyObject* object, PyObject* form) {
    if (is_device_array(object)) {
        if (PyTuple_GET_SIZE(form) != 3) return false;
        const Ref own(form_of(object));
        const int same = own ? PyObject_RichCompareBool(own.get(), form, Py_EQ) : -1;
        if (same < 0) PyErr_Clear();
        return same == 1;
    }
    if (!PyArray_Check(object) || PyTuple_GET_SIZE(form) != 2) return false;
    auto* array = reinterpret_cast<PyArrayObject*>(object);
    PyObject* shape = PyTuple_GET_ITEM(form, 0);
    if (reinterpret_cast<PyObject*>(PyArray_DESCR(array)) != PyTuple_GET_ITEM(form, 1)) return false;
    if (PyArray_NDIM(array) != PyTuple_GET_SIZE(shape)) return false;
    for (int i = 0; i < PyArray_NDIM(array); ++i)
        if (PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i)) != PyArray_DIM(array, i)) return false;
    return true;
}

PyObject* form_of(PyObject* object) {
    constexpr std::size_t kRecent = 64;
    static PyObject* recent[kRecent];  // guarded by the GIL
    if (is_device_array(object)) {
        const Ref shape(PyObject_GetAttrString(object, "shape"));
        const Ref dtype = shape ? device_dtype(object) : Ref();
        return dtype ? PyTuple_Pack(3, shape.get(), dtype.get(), device_type) : nullptr;
    }
    PyArrayObject* array = as_array(object);
    if (!array) return nullptr;
    std::size_t hash = reinterpret_cast<std::uintptr_t>(PyArray_DESCR(array)) / 16;
    for (int i = 0; i < PyArray_NDIM(array); ++i) hash = hash * 31 + static_cast<std::size_t>(PyArray_DIM(array, i));
    PyObject*& place = recent[hash % kRecent];
    if (place && has_form(object, place)) return Py_NewRef(place);
    PyObject* shape = PyArray_IntTupleFromIntp(PyArray_NDIM(array), PyArray_DIMS(array));
    if (!shape) return nullptr;
    PyObject* form = PyTuple_Pack(2, shape, PyArray_DESCR(array));
    Py_DECREF(shape);
    if (!form) return nullptr;
    PyObject* old = std::exchange(place, Py_NewRef(form));
    Py_XDECREF(old);
    return form;
}

PyObject* zeros_of(PyObject* form) {
    if (PyTuple_GET_SIZE(form) == 3)
        return PyObject_CallMethod(device_module, "zeros", "OO", PyTuple_GET_ITEM(form, 0), PyTuple_GET_ITEM(form, 1));
    npy_intp sizes[kMaxAxes];
    const int axes = load_numpy() ? read_sizes(PyTuple_GET_ITEM(form, 0), "shape", sizes) : -1;
    if (axes < 0) return nullptr;
    PyObject* dtype = Py_NewRef(PyTuple_GET_ITEM(form, 1));  // PyArray_Zeros steals it
    return PyArray_Zeros(axes, sizes, reinterpret_cast<PyArray_Descr*>(dtype), 0);
}

PyObject* copy_of(PyObject* array) {
    if (is_device_array(array)) return PyObject_CallMethod(array, "copy", nullptr);
    return PyArray_NewCopy(reinterpret_cast<PyArrayObject*>(array), NPY_CORDER);
}

namespace {

PyArray_Descr* default_float = nullptr;  // nullptr: float32

// The type that integers get beside Python floats or complex numbers: a new reference.
PyArray_Descr* default_type(bool is_complex) {
    if (is_complex) return descr_of(default_float && default_float->type_num == NPY_DOUBLE ? NPY_CDOUBLE : NPY_CFLOAT);
    if (!default_float) return descr_of(NPY_FLOAT);
    Py_INCREF(default_float);
    return default_float;
}

bool is_of_package(PyArray_Descr* descr) {
    return descr && PyTypeNum_ISUSERDEF(descr->type_num);
}

// Convert Python numbers to a package's element type, which NumPy would not keep. False with an exception set.
bool convert_numbers(PyObject** operands, Py_ssize_t count, PyArray_Descr* descr) {
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (PyArray_Check(operands[i]) || !(PyFloat_Check(operands[i]) || PyLong_Check(operands[i]))) continue;
        Py_INCREF(descr);
        PyObject* made = PyArray_FromAny(operands[i], descr, 0, 0, NPY_ARRAY_FORCECAST, nullptr);
        if (!made) return false;
        Py_SETREF(operands[i], made);
    }
    return true;
}

bool is_integer_kind(const PyArray_Descr* descr) {
    return descr->kind == 'i' || descr->kind == 'u' || descr->kind == 'b';
}
bool is_integer_kind(PyObject* array) {
    return is_integer_kind(PyArray_DESCR(reinterpret_cast<PyArrayObject*>(array)));
}

// Convert the operand to an array of type `descr`, whose reference is stolen. False with an exception set.
bool convert(PyObject** operand, PyArray_Descr* descr) {
    PyObject* made = PyArray_FromArray(reinterpret_cast<PyArrayObject*>(*operand), descr, NPY_ARRAY_FORCECAST);
    if (!made) return false;
    Py_SETREF(*operand, made);
    return true;
}

// As `promote`, if some operands are on a device.
[[gnu::noinline]] bool promote_on_device(Promotion rule, PyObject** operands, Py_ssize_t count) {
    Ref inexact;
    bool integers = false, has_float = rule == Promotion::floats, has_complex = false;
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (is_device_array(operands[i])) {
            Ref dtype = device_dtype(operands[i]);
            if (!dtype) return false;
            if (is_integer_kind(reinterpret_cast<PyArray_Descr*>(dtype.get())))
                integers = true;
            else
                inexact = std::move(dtype);
        } else {
            has_float = has_float || PyFloat_Check(operands[i]);
            has_complex = has_complex || PyComplex_Check(operands[i]);
        }
    }
    if (!integers || (!inexact && !has_float && !has_complex)) return true;
    if (!inexact) inexact = Ref(reinterpret_cast<PyObject*>(default_type(has_complex)));
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (!is_device_array(operands[i])) continue;
        const Ref dtype = device_dtype(operands[i]);
        if (!dtype) return false;
        if (!is_integer_kind(reinterpret_cast<PyArray_Descr*>(dtype.get()))) continue;
        PyObject* made = PyObject_CallMethod(operands[i], "astype", "O", inexact.get());
        if (!made) return false;
        Py_SETREF(operands[i], made);
    }
    return true;
}

// Whether two operands are arrays of one type that torch promotes as NumPy does.
bool are_of_one_type(PyObject* const* operands) {
    if (!PyArray_Check(operands[0]) || !PyArray_Check(operands[1])) return false;
    PyArray_Descr* descr = PyArray_DESCR(reinterpret_cast<PyArrayObject*>(operands[0]));
    return descr == PyArray_DESCR(reinterpret_cast<PyArrayObject*>(operands[1])) && !is_integer_kind(operands[0]);
}

// As `promote`, for operands that may need a conversion.
[[gnu::noinline]] bool promote_each(Promotion rule, PyObject** operands, Py_ssize_t count) {
    PyArray_Descr *inexact = nullptr, *same = nullptr;
    bool integers = false, has_float = rule == Promotion::floats, has_complex = false, equal = true;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* one = operands[i];
        if (PyArray_Check(one)) {
            PyArray_Descr* descr = PyArray_DESCR(reinterpret_cast<PyArrayObject*>(one));
            equal = equal && (!same || same == descr);
            same = descr;
            if (is_integer_kind(one))
                integers = true;
            else
                inexact = descr;
        } else {
            has_float = has_float || PyFloat_Check(one);
            has_complex = has_complex || PyComplex_Check(one);
        }
    }
    if (!has_complex && is_of_package(inexact) && !convert_numbers(operands, count, inexact)) return false;
    if (!integers || (equal && !has_float && !has_complex)) return true;
    if (!inexact && !has_float && !has_complex) return true;
    if (!inexact && !has_complex && is_of_package(default_float) && !convert_numbers(operands, count, default_float))
        return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (!PyArray_Check(operands[i]) || !is_integer_kind(operands[i])) continue;
        PyArray_Descr* wanted = inexact;
        if (inexact)
            Py_INCREF(inexact);
        else
            wanted = default_type(has_complex);
        if (!convert(&operands[i], wanted)) return false;
    }
    return true;
}

}  // namespace

bool promote(Promotion rule, PyObject** operands, Py_ssize_t count) {
    if (!load_numpy()) return false;
    if (count == 2 && are_of_one_type(operands)) return true;
    return device_type && first_on_device(operands, count) ? promote_on_device(rule, operands, count)
                                                           : promote_each(rule, operands, count);
}

bool set_default_type(PyObject* dtype) {
    if (!load_numpy()) return false;
    if (!PyArray_DescrCheck(dtype)) {
        PyErr_Format(PyExc_TypeError, "the default type must be a numpy.dtype, not %.100s", Py_TYPE(dtype)->tp_name);
        return false;
    }
    Py_INCREF(dtype);
    Py_XSETREF(default_float, reinterpret_cast<PyArray_Descr*>(dtype));
    return true;
}

bool kind_of(PyObject* object, ElementKind* kind) {
    const Ref dtype = is_device_array(object) ? device_dtype(object) : Ref();
    PyArrayObject* array = dtype ? nullptr : as_array(object);
    if (!dtype && !array) return false;
    PyArray_Descr* descr = dtype ? reinterpret_cast<PyArray_Descr*>(dtype.get()) : PyArray_DESCR(array);
    const bool own = is_number(descr->type_num) && PyArray_ISNBO(descr->byteorder);
    *kind = {own ? descr->kind : '\0', static_cast<int>(PyDataType_ELSIZE(descr)), descr->typeobj->tp_name};
    return true;
}

}  // namespace shmtensor
