#include "python/array.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "python/errors.hpp"
#define SHMTENSOR_IMPORTS_NUMPY
#include "python/numpy_api.hpp"
#include "python/ref.hpp"

namespace shmtensor {

bool load_numpy() {
    // Guarded by the GIL, not by a guarded static: the import releases the GIL, and a thread that waited for the guard
    // with the GIL held would deadlock. Importing twice is harmless, and an interrupted import is tried again.
    static bool loaded = false;
    if (!loaded) loaded = _import_array() >= 0;
    if (!loaded && !PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "NumPy could not be loaded");
    return loaded;
}

int read_sizes(PyObject* from, const char* what, npy_intp* into) {
    if (!PyTuple_Check(from)) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple of integers, not %.100s", what, Py_TYPE(from)->tp_name);
        return -1;
    }
    const Py_ssize_t count = PyTuple_GET_SIZE(from);
    if (count > kMaxAxes) {
        PyErr_Format(PyExc_ValueError, "%s has %zd entries; at most %d are possible", what, count, kMaxAxes);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
        into[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(from, i));
        if (into[i] == -1 && PyErr_Occurred()) return -1;
    }
    return static_cast<int>(count);
}

PyArrayObject* as_array(PyObject* object) {
    if (!load_numpy()) return nullptr;
    if (PyArray_Check(object)) return reinterpret_cast<PyArrayObject*>(object);
    PyErr_Format(PyExc_TypeError, "an ndarray is needed, not %.100s", Py_TYPE(object)->tp_name);
    return nullptr;
}

namespace {

constexpr std::uint64_t kWithGil = std::uint64_t{64} * 1024;  // bytes; a longer copy lets other threads run
static_assert(std::is_same_v<npy_intp, Py_ssize_t>);

bool has_type(PyArrayObject* array, char kind, npy_intp bytes) {
    PyArray_Descr* descr = PyArray_DESCR(array);
    return descr->kind == kind && PyDataType_ELSIZE(descr) == bytes && PyArray_ISNOTSWAPPED(array);
}

bool element_of(PyArrayObject* array, const char* allowed, bool integers, bool floats, atomics::Element* element) {
    using atomics::Element;
    if (integers && has_type(array, 'i', 8)) return *element = Element::int64, true;
    if (integers && has_type(array, 'i', 4)) return *element = Element::int32, true;
    if (floats && has_type(array, 'f', 4)) return *element = Element::float32, true;
    if (floats && has_type(array, 'f', 8)) return *element = Element::float64, true;
    PyErr_Format(errors.dtype, "the operation needs elements of %s, but the tensor has %S; use Tensor.to()", allowed,
                 reinterpret_cast<PyObject*>(PyArray_DESCR(array)));
    return false;
}

// Whether every element lies at a multiple of `bytes`, as atomic access requires.
bool aligned(PyArrayObject* array, std::size_t bytes) {
    std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(PyArray_DATA(array));
    for (int i = 0; i < PyArray_NDIM(array); ++i)
        if (PyArray_DIM(array, i) > 1) bits |= static_cast<std::uintptr_t>(PyArray_STRIDE(array, i));
    if (bits % bytes == 0) return true;
    PyErr_Format(errors.layout, "the elements are not aligned to their %zu bytes; use Tensor.clone()", bytes);
    return false;
}

bool writable(PyArrayObject* array) {
    if (PyArray_ISWRITEABLE(array)) return true;
    PyErr_SetString(errors.layout, "the memory is read-only, and the operation writes; use Tensor.clone()");
    return false;
}

// An element type: a built-in one of NumPy, or one of ml_dtypes.
struct Number {
    PyArray_Descr* descr;
    Py_ssize_t bytes;
    std::uintptr_t alignment;

    void set(PyArray_Descr* of) {
        *this = {of, PyDataType_ELSIZE(of), static_cast<std::uintptr_t>(PyDataType_ALIGNMENT(of))};
    }
};
constexpr int kNamedTypes = std::size(dlpack::kNamed);
static_assert(NPY_HALF < kFirstNamed && kFirstNamed + kNamedTypes <= 0x100);
Number named_types[kNamedTypes];  // those that have been loaded

bool is_named(int type) {
    return type >= kFirstNamed && type < kFirstNamed + kNamedTypes;
}
// Load the type of ml_dtypes with index `place`. False with an exception set. pre: NumPy is loaded.
bool named_at(int place) {
    Number& number = named_types[place];
    if (number.descr) return true;
    auto* descr = reinterpret_cast<PyArray_Descr*>(named_dtype(dlpack::kNamed[place]));
    if (!descr) return false;
    number.set(descr);
    // A tensor of this type may have come from another process before this one used the type.
    const Ref table(PyImport_ImportModule("shmtensor.dtypes"));
    const Ref known(table ? PyObject_CallMethod(table.get(), "dtype_of", "O", descr) : nullptr);
    return static_cast<bool>(known);
}
// pre: a number type, or a loaded type of ml_dtypes; NumPy is loaded
const Number& number_of(int type) {
    static Number known[NPY_HALF + 1];
    if (type >= kFirstNamed) return named_types[type - kFirstNamed];
    Number& number = known[type];
    if (!number.descr) [[unlikely]]
        number.set(PyArray_DescrFromType(type));
    return number;
}
bool is_plain(PyArray_Descr* descr) {
    const int type = descr->type_num;
    if (!is_number(type)) return false;
    return descr == number_of(type).descr || (PyArray_ISNBO(descr->byteorder) && !PyDataType_METADATA(descr));
}

// The number of an element type, as in ArrayView::type; no exception is set.
int number_of_type(PyArray_Descr* descr) {
    if (is_plain(descr)) return descr->type_num;
    if (!PyTypeNum_ISUSERDEF(descr->type_num)) return -1;
    for (int place = 0; place < kNamedTypes; ++place) {
        const dlpack::Named& named = dlpack::kNamed[place];
        if (!named_types[place].descr && named.is_class(descr->typeobj->tp_name) && !named_at(place)) PyErr_Clear();
        if (named_types[place].descr == descr) return kFirstNamed + place;
    }
    return -1;
}

bool read_index(PyObject* from, npy_intp* into) {
    if (PyIndex_Check(from) && !PyBool_Check(from)) {
        *into = PyNumber_AsSsize_t(from, nullptr);  // clipped, so out of range too
        if (*into != -1 || !PyErr_Occurred()) return true;
        PyErr_Clear();
    }
    PyErr_Format(errors.argument, "index %R is not an integer; give one integer for each axis", from);
    return false;
}

// Whether several elements may share memory: not if each step is larger than the extent of all smaller ones.
bool overlaps(PyArrayObject* array) {
    std::pair<npy_intp, npy_intp> steps[kMaxAxes];  // stride, size
    int count = 0;
    for (int i = 0; i < PyArray_NDIM(array); ++i) {
        if (PyArray_DIM(array, i) == 0) return false;
        if (PyArray_DIM(array, i) > 1) steps[count++] = {std::abs(PyArray_STRIDE(array, i)), PyArray_DIM(array, i)};
    }
    std::sort(steps, steps + count);
    npy_intp reach = PyArray_ITEMSIZE(array);
    for (int i = 0; i < count; ++i) {
        if (steps[i].first < reach) return true;
        reach += (steps[i].second - 1) * steps[i].first;
    }
    return false;
}

// Sizes and steps (bytes) of an array to be made.
struct Form {
    int axes = 0;
    bool empty = false;
    npy_intp sizes[kMaxAxes], steps[kMaxAxes];
};

// False with an exception set. `strides` None: contiguous, in C order.
bool read_form(PyObject* shape, PyObject* strides, npy_intp item, Form* form) {
    form->axes = read_sizes(shape, "shape", form->sizes);
    if (form->axes < 0) return false;
    for (int i = 0; i < form->axes; ++i) {
        if (form->sizes[i] < 0) {
            PyErr_Format(PyExc_ValueError, "shape %R has a negative size", shape);
            return false;
        }
        form->empty = form->empty || form->sizes[i] == 0;
    }
    if (strides != Py_None) {
        const int given = read_sizes(strides, "strides", form->steps);
        if (given >= 0 && given != form->axes)
            PyErr_Format(PyExc_ValueError, "strides %R and shape %R differ in length", strides, shape);
        return given == form->axes;
    }
    npy_intp step = item;
    for (int i = form->axes - 1; i >= 0; --i) {
        form->steps[i] = step;
        if (__builtin_mul_overflow(step, form->sizes[i] > 0 ? form->sizes[i] : 1, &step)) {
            PyErr_Format(PyExc_ValueError, "shape %R is too large", shape);
            return false;
        }
    }
    return true;
}

// Whether an array of elements of `item` bytes, with its first element at `offset`, stays within [0, bytes).
bool is_within(const Form& form, npy_intp item, Py_ssize_t offset, std::uint64_t bytes) {
    if (offset < 0) return false;
    npy_intp low = 0, high = form.empty ? 0 : item;  // bytes touched, relative to offset
    for (int i = 0; !form.empty && i < form.axes; ++i) {
        npy_intp reach = 0;
        if (__builtin_mul_overflow(form.sizes[i] - 1, form.steps[i], &reach) ||
            __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
            return false;
    }
    npy_intp first = 0, last = 0;
    return !__builtin_add_overflow(offset, low, &first) && !__builtin_add_overflow(offset, high, &last) && first >= 0 &&
           static_cast<std::uint64_t>(last) <= bytes;
}

}  // namespace

PyArray_Descr* descr_of(int type) {
    PyArray_Descr* descr = number_of(type).descr;
    Py_INCREF(descr);
    return descr;
}

PyObject* make_array(PyObject* owner, std::byte* data, std::uint64_t bytes, PyObject* dtype, PyObject* shape,
                     Py_ssize_t offset, PyObject* strides, bool writable) {
    if (!load_numpy()) return nullptr;
    if (!PyArray_DescrCheck(dtype)) {
        PyErr_Format(PyExc_TypeError, "dtype must be a numpy.dtype, not %.100s", Py_TYPE(dtype)->tp_name);
        return nullptr;
    }
    auto* descr = reinterpret_cast<PyArray_Descr*>(dtype);
    if (PyDataType_REFCHK(descr)) {
        PyErr_Format(PyExc_TypeError, "dtype %R holds Python objects, which cannot lie in shared memory", dtype);
        return nullptr;
    }
    const npy_intp item = PyDataType_ELSIZE(descr);
    Form form;
    if (!read_form(shape, strides, item, &form)) return nullptr;
    if (!is_within(form, item, offset, bytes)) {
        PyErr_Format(PyExc_ValueError,
                     "an array of shape %R and dtype %R at byte %zd does not fit in a block of %llu bytes", shape,
                     dtype, offset, static_cast<unsigned long long>(bytes));
        return nullptr;
    }
    Py_INCREF(descr);  // NewFromDescr steals it
    PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, form.axes, form.sizes, form.steps, data + offset,
                                           writable ? NPY_ARRAY_WRITEABLE : 0, nullptr);
    if (!array) return nullptr;
    PyArray_UpdateFlags(reinterpret_cast<PyArrayObject*>(array), NPY_ARRAY_UPDATE_ALL);
    Py_INCREF(owner);  // and SetBaseObject this
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), owner) < 0) {
        Py_DECREF(array);
        return nullptr;
    }
    return array;
}

// ------------------------------------------------------------------------------------------------------- for the codec

PyTypeObject* array_type_if_loaded() {
    static PyTypeObject* type = nullptr;
    if (type) return type;
    PyObject* name = PyUnicode_InternFromString("numpy");
    PyObject* numpy = name ? PyImport_GetModule(name) : nullptr;
    Py_XDECREF(name);
    // While NumPy is being imported, there are no arrays yet.
    if (numpy && PyObject_HasAttrString(numpy, "ndarray") && load_numpy()) type = &PyArray_Type;
    Py_XDECREF(numpy);
    PyErr_Clear();
    return type;
}

PyObject* strided_view(PyObject* object, PyObject* shape, PyObject* strides, Py_ssize_t offset) {
    PyArrayObject* array = as_array(object);
    if (!array) return nullptr;
    npy_intp low = 0, high = PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); ++i) {
        if (PyArray_DIM(array, i) == 0) high = 0;
    }
    for (int i = 0; high > 0 && i < PyArray_NDIM(array); ++i) {
        const npy_intp reach = (PyArray_DIM(array, i) - 1) * PyArray_STRIDE(array, i);
        (reach < 0 ? low : high) += reach;
    }
    auto* first = static_cast<std::byte*>(PyArray_DATA(array)) + low;
    PyObject* view = make_array(object, first, static_cast<std::uint64_t>(high - low),
                                reinterpret_cast<PyObject*>(PyArray_DESCR(array)), shape, offset - low, strides,
                                PyArray_ISWRITEABLE(array));
    if (view && overlaps(reinterpret_cast<PyArrayObject*>(view)))
        PyArray_CLEARFLAGS(reinterpret_cast<PyArrayObject*>(view), NPY_ARRAY_WRITEABLE);
    return view;
}

PyObject* element_view(PyObject* object, Py_ssize_t index) {
    if (!object || Py_TYPE(object) != array_type_if_loaded()) return nullptr;
    auto* array = reinterpret_cast<PyArrayObject*>(object);
    const int axes = PyArray_NDIM(array);
    if (axes == 0) return nullptr;
    const npy_intp size = PyArray_DIM(array, 0);
    if (index < 0) index += size;
    if (index < 0 || index >= size) return nullptr;
    PyArray_Descr* descr = PyArray_DESCR(array);
    Py_INCREF(descr);
    PyObject* view = PyArray_NewFromDescr(
        &PyArray_Type, descr, axes - 1, PyArray_DIMS(array) + 1, PyArray_STRIDES(array) + 1,
        PyArray_BYTES(array) + index * PyArray_STRIDE(array, 0), PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE, nullptr);
    if (view && PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(view), Py_NewRef(object)) < 0) Py_CLEAR(view);
    return view;
}

PyObject* only_element(PyObject* object) {
    auto* array = as_array(object);
    if (!array || PyArray_SIZE(array) != 1) return nullptr;
    return PyArray_GETITEM(array, PyArray_BYTES(array));
}

PyObject* whole_view(PyObject* object) {
    PyArrayObject* array = as_array(object);
    return array ? PyArray_View(array, nullptr, nullptr) : nullptr;
}

ArrayView view_array(PyObject* object) {
    auto* array = reinterpret_cast<PyArrayObject*>(object);
    PyArray_Descr* descr = PyArray_DESCR(array);
    const int axes = PyArray_NDIM(array), flags = PyArray_FLAGS(array);
    const npy_intp* sizes = PyArray_DIMS(array);
    const int type = number_of_type(descr);
    npy_intp bytes = type >= 0 ? number_of(type).bytes : 0;
    for (int i = 0; i < axes; ++i) bytes *= sizes[i];
    return {static_cast<std::byte*>(PyArray_DATA(array)),
            PyArray_BASE(array),
            sizes,
            PyArray_STRIDES(array),
            static_cast<std::uint64_t>(bytes),
            axes,
            type,
            (flags & NPY_ARRAY_C_CONTIGUOUS) != 0,
            (flags & NPY_ARRAY_F_CONTIGUOUS) != 0,
            (flags & NPY_ARRAY_WRITEABLE) != 0};
}

PyObject* base_of(PyObject* array) {
    return PyArray_BASE(reinterpret_cast<PyArrayObject*>(array));
}

bool copy_elements(PyObject* array, const ArrayView& view, std::byte* into) {
    if (view.bytes == 0) return true;
    if (view.c_order || view.fortran_order) {
        if (view.bytes < kWithGil) {
            std::memcpy(into, view.data, view.bytes);
        } else {
            Py_BEGIN_ALLOW_THREADS;
            std::memcpy(into, view.data, view.bytes);
            Py_END_ALLOW_THREADS;
        }
        return true;
    }
    PyObject* copy = PyArray_NewFromDescr(&PyArray_Type, descr_of(view.type), view.axes, view.sizes, nullptr, into,
                                          NPY_ARRAY_WRITEABLE, nullptr);
    if (!copy) return false;
    PyArray_UpdateFlags(reinterpret_cast<PyArrayObject*>(copy), NPY_ARRAY_ALIGNED);
    const int result =
        PyArray_CopyInto(reinterpret_cast<PyArrayObject*>(copy), reinterpret_cast<PyArrayObject*>(array));
    Py_DECREF(copy);
    return result == 0;
}

std::uint64_t array_bytes(int type, int axes, const Py_ssize_t* sizes) {
    constexpr std::uint64_t none = ~std::uint64_t{0};
    const bool is_known = is_number(type) || (is_named(type) && named_types[type - kFirstNamed].descr);
    if (!is_known || axes > kMaxAxes || !load_numpy()) return none;
    Py_ssize_t bytes = number_of(type).bytes;
    bool empty = false;
    for (int i = 0; i < axes; ++i) {
        if (sizes[i] < 0) return none;
        if (sizes[i] == 0) empty = true;
        if (__builtin_mul_overflow(bytes, sizes[i] > 0 ? sizes[i] : 1, &bytes)) return none;
    }
    return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

bool array_fits(int type, int axes, const Py_ssize_t* sizes, const Py_ssize_t* strides, std::uint64_t offset,
                std::uint64_t bytes) {
    const std::uint64_t own = array_bytes(type, axes, sizes);
    if (own == ~std::uint64_t{0} || offset > bytes) return false;
    if (own == 0 || !strides) return own <= bytes - offset;
    Py_ssize_t low = 0, high = number_of(type).bytes;
    for (int i = 0; i < axes; ++i) {
        Py_ssize_t reach = 0;
        if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
            __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
            return false;
    }
    return static_cast<std::uint64_t>(-(low + 1)) + 1 <= offset && static_cast<std::uint64_t>(high) <= bytes - offset;
}

PyObject* array_at(PyObject* owner, const std::byte* data, int type, int axes, const Py_ssize_t* sizes,
                   const Py_ssize_t* strides, bool fortran_order, bool writable) {
    if (!load_numpy()) return nullptr;
    const int order = fortran_order ? NPY_ARRAY_F_CONTIGUOUS : NPY_ARRAY_C_CONTIGUOUS;
    const Number& number = number_of(type);
    if (!owner) {
        PyObject* made = PyArray_NewFromDescr(&PyArray_Type, descr_of(type), axes, sizes, nullptr, nullptr,
                                              fortran_order ? NPY_ARRAY_F_CONTIGUOUS : 0, nullptr);
        if (!made) return nullptr;
        std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(made)), data, array_bytes(type, axes, sizes));
        if (!writable) PyArray_CLEARFLAGS(reinterpret_cast<PyArrayObject*>(made), NPY_ARRAY_WRITEABLE);
        return made;
    }
    const bool aligned = reinterpret_cast<std::uintptr_t>(data) % number.alignment == 0;
    // With strides, NumPy computes the flags; without, it uses these.
    PyObject* array =
        PyArray_NewFromDescr(&PyArray_Type, descr_of(type), axes, sizes, strides, const_cast<std::byte*>(data),
                             order | (writable ? NPY_ARRAY_WRITEABLE : 0) | (aligned ? NPY_ARRAY_ALIGNED : 0), nullptr);
    if (!array) return nullptr;
    Py_INCREF(owner);
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), owner) < 0) {
        Py_DECREF(array);
        return nullptr;
    }
    return array;
}

bool overlaps(PyObject* object, bool* result) {
    PyArrayObject* array = as_array(object);
    if (array) *result = overlaps(array);
    return array != nullptr;
}

PyObject* dtype_of(char kind, int bytes) {
    if (!load_numpy()) return nullptr;
    constexpr int numbers[] = {NPY_BOOL,    NPY_INT8,    NPY_INT16,     NPY_INT32,     NPY_INT64,
                               NPY_UINT8,   NPY_UINT16,  NPY_UINT32,    NPY_UINT64,    NPY_FLOAT16,
                               NPY_FLOAT32, NPY_FLOAT64, NPY_COMPLEX64, NPY_COMPLEX128};
    for (const int number : numbers)
        if (number_of(number).descr->kind == kind && number_of(number).bytes == bytes)
            return reinterpret_cast<PyObject*>(descr_of(number));
    PyErr_Format(errors.dtype, "NumPy has no number of kind '%c' with %d bytes", kind, bytes);
    return nullptr;
}

PyObject* named_dtype(const dlpack::Named& type) {
    if (!load_numpy()) return nullptr;
    const Ref package(PyImport_ImportModule("ml_dtypes"));
    const Ref scalars(package ? PyObject_GetAttrString(package.get(), type.name) : nullptr);
    PyArray_Descr* descr = nullptr;
    return scalars && PyArray_DescrConverter(scalars.get(), &descr) ? reinterpret_cast<PyObject*>(descr) : nullptr;
}

bool load_named(int type) {
    return !is_named(type) || (load_numpy() && named_at(type - kFirstNamed));
}

int type_of(PyObject* dtype) {
    if (!load_numpy()) return PyErr_Clear(), -1;
    auto* descr = reinterpret_cast<PyArray_Descr*>(dtype);
    return PyArray_DescrCheck(dtype) && is_plain(descr) ? descr->type_num : -1;
}

Item item_of(PyObject* dtype) {
    auto* descr = reinterpret_cast<PyArray_Descr*>(dtype);
    return {static_cast<int>(PyDataType_ELSIZE(descr)), static_cast<int>(PyDataType_ALIGNMENT(descr))};
}

PyObject* array_over(PyObject* owner, std::byte* data, PyObject* dtype, int axes, const Py_ssize_t* sizes,
                     const Py_ssize_t* strides, bool writable) {
    if (!load_numpy()) return nullptr;
    Py_INCREF(dtype);  // NewFromDescr steals it
    PyObject* array = PyArray_NewFromDescr(&PyArray_Type, reinterpret_cast<PyArray_Descr*>(dtype), axes, sizes,
                                           data ? strides : nullptr, data, writable ? NPY_ARRAY_WRITEABLE : 0, nullptr);
    if (!array) return nullptr;
    auto* made = reinterpret_cast<PyArrayObject*>(array);
    if (!data) {  // NumPy allocated a byte
        if (!writable) PyArray_CLEARFLAGS(made, NPY_ARRAY_WRITEABLE);
        return array;
    }
    Py_INCREF(owner);
    if (PyArray_SetBaseObject(made, owner) < 0) {
        Py_DECREF(array);
        return nullptr;
    }
    return array;
}

bool element_at(PyObject* object, PyObject* index, Allowed allowed, bool writes, Place* place) {
    PyArrayObject* array = as_array(object);
    if (!array) return false;
    npy_intp indices[kMaxAxes];
    const Py_ssize_t count = PyTuple_Check(index) ? PyTuple_GET_SIZE(index) : 1;
    if (count == PyArray_NDIM(array))
        for (Py_ssize_t i = 0; i < count; ++i)
            if (!read_index(PyTuple_Check(index) ? PyTuple_GET_ITEM(index, i) : index, &indices[i])) return false;
    // No Python code runs from here on, so that the checks stay valid.
    if (count != PyArray_NDIM(array)) {
        PyErr_Format(errors.argument, "index %R for a tensor of %d axes; give one integer for each axis", index,
                     PyArray_NDIM(array));
        return false;
    }
    const bool integers = allowed == Allowed::integers;
    if (!element_of(array, integers ? "int32 or int64" : "float32 or float64", integers, !integers, &place->element))
        return false;
    if ((writes && !writable(array)) || !aligned(array, atomics::size_of(place->element))) return false;
    auto* cell = static_cast<std::byte*>(PyArray_DATA(array));
    for (int i = 0; i < PyArray_NDIM(array); ++i) {
        const npy_intp size = PyArray_DIM(array, i);
        if (indices[i] < -size || indices[i] >= size) {
            PyErr_Format(errors.index, "index %R: axis %d has %zd elements", index, i, size);
            return false;
        }
        cell += (indices[i] < 0 ? indices[i] + size : indices[i]) * PyArray_STRIDE(array, i);
    }
    place->cell = cell;
    return true;
}

bool plan_index_add(PyObject* out_object, PyObject* index_object, PyObject* source_object, atomics::IndexAdd* work) {
    PyArrayObject *out = as_array(out_object), *index = out ? as_array(index_object) : nullptr;
    PyArrayObject* source = index ? as_array(source_object) : nullptr;
    if (!source || !element_of(out, "int32, int64, float32 or float64", true, true, &work->element)) return false;
    const std::size_t item = atomics::size_of(work->element);
    if (!has_type(source, PyArray_DESCR(out)->kind, static_cast<npy_intp>(item))) {
        PyErr_Format(errors.dtype, "a source of %S for a tensor of %S; convert it with Tensor.to()",
                     reinterpret_cast<PyObject*>(PyArray_DESCR(source)),
                     reinterpret_cast<PyObject*>(PyArray_DESCR(out)));
        return false;
    }
    if (!has_type(index, 'i', 8) || PyArray_NDIM(index) != 1) {
        PyErr_SetString(errors.argument, "the index must have one axis of integers");
        return false;
    }
    if (!writable(out) || !aligned(out, item) || !aligned(source, item)) return false;
    const int axes = PyArray_NDIM(out);
    const npy_intp rows = PyArray_DIM(index, 0);
    bool matches = axes > 0 && PyArray_NDIM(source) == axes && PyArray_DIM(source, 0) == rows;
    for (int i = 1; matches && i < axes; ++i) matches = PyArray_DIM(source, i) == PyArray_DIM(out, i);
    if (!matches) {
        PyErr_Format(errors.argument,
                     "the sizes of the source must be those of the tensor, with %zd along the axis for the %zd indices",
                     rows, rows);
        return false;
    }
    work->out = static_cast<std::byte*>(PyArray_DATA(out));
    work->source = static_cast<const std::byte*>(PyArray_DATA(source));
    work->out_step = PyArray_STRIDE(out, 0);
    work->source_step = PyArray_STRIDE(source, 0);
    for (int i = 1; i < axes; ++i)
        if (PyArray_DIM(out, i) != 1)
            work->axes.push_back({PyArray_DIM(out, i), PyArray_STRIDE(out, i), PyArray_STRIDE(source, i)});
    // Copied, then checked: the index may be a shared tensor that another process is writing to.
    work->index.resize(static_cast<std::size_t>(rows));
    const auto* from = static_cast<const std::byte*>(PyArray_DATA(index));
    for (npy_intp r = 0; r < rows; ++r)
        std::memcpy(&work->index[static_cast<std::size_t>(r)], from + r * PyArray_STRIDE(index, 0),
                    sizeof(std::int64_t));
    const npy_intp size = PyArray_DIM(out, 0);
    for (npy_intp r = 0; r < rows; ++r) {
        const std::int64_t row = work->index[static_cast<std::size_t>(r)];
        if (row >= 0 && row < size) continue;
        PyErr_Format(errors.index, "entry %zd of the index is %lld; the axis has %zd elements, use 0 to %zd", r,
                     static_cast<long long>(row), size, size - 1);
        return false;
    }
    return true;
}

}  // namespace shmtensor
