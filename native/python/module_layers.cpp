// The bindings of windows.hpp, channels.hpp and recurrent.hpp, for arrays of float32 or float64 in C order. Each
// function returns whether it computed; if not, the caller computes with NumPy.
#include <algorithm>
#include <array>
#include <cstdint>

#include "python/array.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/operands.hpp"
#include "python/waits.hpp"
#include "tensor/channels.hpp"
#include "tensor/recurrent.hpp"
#include "tensor/windows.hpp"

namespace shmtensor {
namespace {

constexpr std::uint64_t kWithGil = std::uint64_t{32} * 1024;  // bytes; with more, other threads run meanwhile

// ----------------------------------------------------------------------------------------------------------- arguments

// Contiguous arrays of one type of numbers.
class Arrays {
   public:
    bool read(PyObject* given, ArrayView* view) {
        if (!read_as(given, 'f', view)) return false;
        if (item == 0) item = kind_.bytes;
        return kind_.bytes == item && (item == 4 || item == 8);
    }
    bool read_written(PyObject* given, ArrayView* view) { return read(given, view) && view->writable; }
    bool read_optional(PyObject* given, ArrayView* view) { return given == Py_None || read(given, view); }
    bool read_places(PyObject* given, ArrayView* view) {
        return read_as(given, 'i', view) && kind_.bytes == 8 && view->writable;
    }

    int item = 0;

   private:
    bool read_as(PyObject* given, char kind, ArrayView* view) {
        if (Py_TYPE(given) != array_type_if_loaded() || !kind_of(given, &kind_)) return PyErr_Clear(), false;
        *view = view_array(given);
        return kind_.kind == kind && view->c_order;
    }
    ElementKind kind_{};
};

template <class T>
T* data_of(const ArrayView& view) {
    return reinterpret_cast<T*>(view.data);
}

std::size_t product(const Py_ssize_t* sizes, int count) {
    std::size_t made = 1;
    for (int i = 0; i < count; ++i) made *= static_cast<std::size_t>(sizes[i]);
    return made;
}

// A parameter of windows, at least `least`. False: so large that products of them may overflow.
bool read_number(PyObject* tuple, Py_ssize_t i, std::ptrdiff_t least, std::ptrdiff_t* number) {
    constexpr std::ptrdiff_t kMost = 1 << 30;
    if (!PyTuple_Check(tuple) || i >= PyTuple_GET_SIZE(tuple)) return false;
    *number = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
    if (*number == -1 && PyErr_Occurred()) return PyErr_Clear(), false;
    return *number >= least && *number <= kMost;
}

struct Windows {
    // Reads (sizes, strides, dilations, edges). False: another form.
    bool read(PyObject* given) {
        if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != 4) return false;
        PyObject* const edges = PyTuple_GET_ITEM(given, 3);
        if (!PyTuple_Check(edges) || PyTuple_GET_SIZE(edges) < 1 || PyTuple_GET_SIZE(edges) > 3) return false;
        for (Py_ssize_t i = 0; i < 3; ++i)
            if (!PyTuple_Check(PyTuple_GET_ITEM(given, i)) ||
                PyTuple_GET_SIZE(PyTuple_GET_ITEM(given, i)) != PyTuple_GET_SIZE(edges))
                return false;
        rank = static_cast<int>(PyTuple_GET_SIZE(edges));
        for (int i = 0; i < rank; ++i) {
            windows::Axis& axis = at(i);
            if (!read_number(PyTuple_GET_ITEM(given, 0), i, 1, &axis.size) ||
                !read_number(PyTuple_GET_ITEM(given, 1), i, 1, &axis.stride) ||
                !read_number(PyTuple_GET_ITEM(given, 2), i, 1, &axis.dilation) ||
                !read_number(PyTuple_GET_ITEM(edges, i), 0, -(1 << 30), &axis.before))
                return false;
        }
        return true;
    }
    // Sets the sizes of the last axes. False: an axis has no elements or no windows, or their extent is too large.
    bool fit(const Py_ssize_t* lengths, const Py_ssize_t* counts) {
        double extent = 1;
        for (int i = 0; i < rank; ++i) {
            windows::Axis& axis = at(i);
            axis.length = lengths[i];
            axis.count = counts[i];
            if (axis.length < 1 || axis.count < 1) return false;
            extent *= static_cast<double>(axis.count) * static_cast<double>(axis.stride) +
                      static_cast<double>(axis.size) * static_cast<double>(axis.dilation);
        }
        return extent < 1e12;
    }

    windows::Axis& at(int i) { return axes[static_cast<std::size_t>(3 + i) - static_cast<std::size_t>(rank)]; }

    int rank = 0;
    windows::Axes axes{{{1, 1, 1, 1, 1, 0}, {1, 1, 1, 1, 1, 0}, {1, 1, 1, 1, 1, 0}}};
};

template <class Work>
void without_gil(std::uint64_t bytes, Work&& work) {
    if (bytes <= kWithGil) return work();
    const GilRelease released;
    work();
}

// Memory that is freed at the end of the scope; nullptr with an exception set.
template <class T>
class Scratch {
   public:
    explicit Scratch(std::size_t count) : memory_(PyMem_Malloc(std::max<std::size_t>(count, 1) * sizeof(T))) {
        if (!memory_) PyErr_NoMemory();
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() { PyMem_Free(memory_); }
    T* get() const { return static_cast<T*>(memory_); }

   private:
    void* memory_;
};

// ------------------------------------------------------------------------------------------------------------- windows

// Columns (channels, sizes, samples, counts) and planes (samples, channels, lengths).
bool fit_columns(Windows* windows, const ArrayView& planes, const ArrayView& columns) {
    const int rank = windows->rank;
    if (planes.axes != rank + 2 || columns.axes != 2 * rank + 2 || planes.sizes[0] < 1 || planes.sizes[1] < 1)
        return false;
    for (int i = 0; i < rank; ++i)
        if (columns.sizes[1 + i] != windows->at(i).size) return false;
    return columns.sizes[0] == planes.sizes[1] && columns.sizes[1 + rank] == planes.sizes[0] &&
           windows->fit(planes.sizes + 2, columns.sizes + 2 + rank);
}

template <class T>
bool gather_or_scatter(bool gathers, const Windows& windows, const ArrayView& from, const ArrayView& into,
                       windows::Shape shape) {
    const Scratch<T> scratch(windows::scratch_size(windows.axes, shape.samples));
    if (!scratch.get()) return false;
    without_gil(std::max(from.bytes, into.bytes), [&] {
        if (gathers)
            windows::gather(windows.axes, shape, data_of<const T>(from), data_of<T>(into), scratch.get());
        else
            windows::scatter(windows.axes, shape, data_of<const T>(from), data_of<T>(into), scratch.get());
    });
    return true;
}

PyObject* move_windows(PyObject* args, bool gathers) {
    PyObject *array, *made, *numbers;
    if (!PyArg_ParseTuple(args, "OOO", &array, &made, &numbers)) return nullptr;
    Arrays all;
    ArrayView from, into;
    Windows windows;
    if (!all.read(array, &from) || !all.read_written(made, &into) || !windows.read(numbers)) Py_RETURN_FALSE;
    const ArrayView& planes = gathers ? from : into;
    if (!fit_columns(&windows, planes, gathers ? into : from)) Py_RETURN_FALSE;
    const windows::Shape shape{static_cast<std::size_t>(planes.sizes[0]), static_cast<std::size_t>(planes.sizes[1])};
    const bool done = all.item == 4 ? gather_or_scatter<float>(gathers, windows, from, into, shape)
                                    : gather_or_scatter<double>(gathers, windows, from, into, shape);
    return done ? Py_NewRef(Py_True) : nullptr;
}

// gather_windows(array, into, windows)
PyObject* gather_windows(PyObject*, PyObject* args) {
    return move_windows(args, true);
}

// scatter_windows(array, into, windows)
PyObject* scatter_windows(PyObject*, PyObject* args) {
    return move_windows(args, false);
}

// Planes (..., lengths) and results (..., counts).
bool fit_results(Windows* windows, const ArrayView& planes, const ArrayView& results, std::size_t* count) {
    const int lead = planes.axes - windows->rank;
    if (lead < 0 || results.axes != planes.axes || !std::equal(planes.sizes, planes.sizes + lead, results.sizes))
        return false;
    *count = product(planes.sizes, lead);
    return windows->fit(planes.sizes + lead, results.sizes + lead);
}

// max_pool(array, into, windows), max_pool_places(array, into, windows)
PyObject* find_largest(PyObject* args, bool places) {
    PyObject *array, *made, *numbers;
    if (!PyArg_ParseTuple(args, "OOO", &array, &made, &numbers)) return nullptr;
    Arrays all;
    ArrayView from, into;
    Windows windows;
    std::size_t planes = 0;
    if (!all.read(array, &from) || !(places ? all.read_places(made, &into) : all.read_written(made, &into)) ||
        !windows.read(numbers) || !fit_results(&windows, from, into, &planes))
        Py_RETURN_FALSE;
    without_gil(from.bytes, [&] {
        auto* const at = places ? data_of<std::int64_t>(into) : nullptr;
        if (all.item == 4)
            windows::largest(windows.axes, planes, data_of<const float>(from), places ? nullptr : data_of<float>(into),
                             at);
        else
            windows::largest(windows.axes, planes, data_of<const double>(from),
                             places ? nullptr : data_of<double>(into), at);
    });
    Py_RETURN_TRUE;
}

PyObject* max_pool(PyObject*, PyObject* args) {
    return find_largest(args, false);
}

PyObject* max_pool_places(PyObject*, PyObject* args) {
    return find_largest(args, true);
}

// max_pool_back(array, gradient, into, windows)
PyObject* max_pool_back(PyObject*, PyObject* args) {
    PyObject *array, *given, *made, *numbers;
    if (!PyArg_ParseTuple(args, "OOOO", &array, &given, &made, &numbers)) return nullptr;
    Arrays all;
    ArrayView from, gradient, into;
    Windows windows;
    std::size_t planes = 0;
    if (!all.read(array, &from) || !all.read(given, &gradient) || !all.read_written(made, &into) ||
        !windows.read(numbers) || !fit_results(&windows, from, gradient, &planes) || into.axes != from.axes ||
        !std::equal(from.sizes, from.sizes + from.axes, into.sizes))
        Py_RETURN_FALSE;
    without_gil(from.bytes, [&] {
        if (all.item == 4)
            windows::to_largest(windows.axes, planes, data_of<const float>(from), data_of<const float>(gradient),
                                data_of<float>(into));
        else
            windows::to_largest(windows.axes, planes, data_of<const double>(from), data_of<const double>(gradient),
                                data_of<double>(into));
    });
    Py_RETURN_TRUE;
}

// ------------------------------------------------------------------------------------------------------------ channels

// False: fewer than two axes, or no elements.
bool read_shape(const ArrayView& view, channels::Shape* shape) {
    if (view.axes < 2) return false;
    *shape = {static_cast<std::size_t>(view.sizes[0]), static_cast<std::size_t>(view.sizes[1]),
              product(view.sizes + 2, view.axes - 2)};
    return shape->count() > 0;
}

bool has_bytes(const ArrayView& view, std::size_t count, int item) {
    return view.data == nullptr || view.bytes == count * static_cast<std::uint64_t>(item);
}

// channel_sums(array, into)
PyObject* channel_sums(PyObject*, PyObject* args) {
    PyObject *array, *made;
    if (!PyArg_ParseTuple(args, "OO", &array, &made)) return nullptr;
    Arrays all;
    ArrayView from, into;
    channels::Shape shape{};
    if (!all.read(array, &from) || !all.read_written(made, &into) || !read_shape(from, &shape) ||
        !has_bytes(into, shape.channels, all.item))
        Py_RETURN_FALSE;
    const Scratch<double> scratch(shape.channels);
    if (!scratch.get()) return nullptr;
    without_gil(from.bytes, [&] {
        if (all.item == 4)
            channels::sum(shape, data_of<const float>(from), scratch.get(), data_of<float>(into));
        else
            channels::sum(shape, data_of<const double>(from), scratch.get(), data_of<double>(into));
    });
    Py_RETURN_TRUE;
}

// exchange_channels(array, bias, into)
PyObject* exchange_channels(PyObject*, PyObject* args) {
    PyObject *array, *given, *made;
    if (!PyArg_ParseTuple(args, "OOO", &array, &given, &made)) return nullptr;
    Arrays all;
    ArrayView from, bias{}, into;
    channels::Shape shape{};
    if (!all.read(array, &from) || !all.read_optional(given, &bias) || !all.read_written(made, &into) ||
        !read_shape(from, &shape) || !has_bytes(bias, shape.samples, all.item) ||
        !has_bytes(into, shape.count(), all.item))
        Py_RETURN_FALSE;
    without_gil(from.bytes, [&] {
        if (all.item == 4)
            channels::exchange(shape, data_of<const float>(from), data_of<const float>(bias), data_of<float>(into));
        else
            channels::exchange(shape, data_of<const double>(from), data_of<const double>(bias), data_of<double>(into));
    });
    Py_RETURN_TRUE;
}

// batch_norm(x, weight, bias, eps, into, mean, variance)
PyObject* batch_norm(PyObject*, PyObject* args) {
    std::array<PyObject*, 6> given{};
    double eps = 0;
    if (!PyArg_ParseTuple(args, "OOOdOOO", given.data(), &given[1], &given[2], &eps, &given[3], &given[4], &given[5]))
        return nullptr;
    Arrays all;
    ArrayView x, weight{}, bias{}, into, mean, variance;
    channels::Shape shape{};
    if (!all.read(given[0], &x) || !all.read_optional(given[1], &weight) || !all.read_optional(given[2], &bias) ||
        !all.read_written(given[3], &into) || !all.read_written(given[4], &mean) ||
        !all.read_written(given[5], &variance) || !read_shape(x, &shape) || into.bytes != x.bytes)
        Py_RETURN_FALSE;
    for (const ArrayView* one : {&weight, &bias, &mean, &variance})
        if (!has_bytes(*one, shape.channels, all.item)) Py_RETURN_FALSE;
    const Scratch<double> scratch(2 * shape.channels);
    if (!scratch.get()) return nullptr;
    const auto work = [&]<class T>(T*) {
        channels::normalize(shape, data_of<const T>(x), data_of<const T>(weight), data_of<const T>(bias), eps,
                            scratch.get(), data_of<T>(into), data_of<T>(mean), data_of<T>(variance));
    };
    without_gil(x.bytes,
                [&] { all.item == 4 ? work(static_cast<float*>(nullptr)) : work(static_cast<double*>(nullptr)); });
    Py_RETURN_TRUE;
}

// batch_norm_back(gradient, x, weight, mean, variance, eps, dx, dweight, dbias)
PyObject* batch_norm_back(PyObject*, PyObject* args) {
    std::array<PyObject*, 8> given{};
    double eps = 0;
    if (!PyArg_ParseTuple(args, "OOOOOdOOO", given.data(), &given[1], &given[2], &given[3], &given[4], &eps, &given[5],
                          &given[6], &given[7]))
        return nullptr;
    Arrays all;
    ArrayView gradient, x, weight{}, mean, variance, dx, dweight, dbias;
    channels::Shape shape{};
    if (!all.read(given[0], &gradient) || !all.read(given[1], &x) || !all.read_optional(given[2], &weight) ||
        !all.read(given[3], &mean) || !all.read(given[4], &variance) || !all.read_written(given[5], &dx) ||
        !all.read_written(given[6], &dweight) || !all.read_written(given[7], &dbias) || !read_shape(x, &shape) ||
        gradient.bytes != x.bytes || dx.bytes != x.bytes)
        Py_RETURN_FALSE;
    for (const ArrayView* one : {&weight, &mean, &variance, &dweight, &dbias})
        if (!has_bytes(*one, shape.channels, all.item)) Py_RETURN_FALSE;
    const Scratch<double> scratch(3 * shape.channels);
    if (!scratch.get()) return nullptr;
    const auto work = [&]<class T>(T*) {
        channels::normalize_back<T>(
            shape,
            {data_of<const T>(gradient), data_of<const T>(x), data_of<const T>(weight), data_of<const T>(mean),
             data_of<const T>(variance), data_of<T>(dx), data_of<T>(dweight), data_of<T>(dbias)},
            eps, scratch.get());
    };
    without_gil(x.bytes,
                [&] { all.item == 4 ? work(static_cast<float*>(nullptr)) : work(static_cast<double*>(nullptr)); });
    Py_RETURN_TRUE;
}

// ---------------------------------------------------------------------------------------------------- recurrent layers

// Gates (rows, 4 * hidden) beside states (rows, hidden).
bool fit_steps(const ArrayView& gates, const ArrayView& states, recurrent::Shape* shape) {
    if (gates.axes != 2 || states.axes != 2 || gates.sizes[0] != states.sizes[0] ||
        gates.sizes[1] != 4 * states.sizes[1])
        return false;
    *shape = {static_cast<std::size_t>(states.sizes[0]), static_cast<std::size_t>(states.sizes[1])};
    return true;
}

// lstm_step(gates, state, copy)
PyObject* lstm_step(PyObject*, PyObject* args) {
    PyObject *first, *second, *third;
    if (!PyArg_ParseTuple(args, "OOO", &first, &second, &third)) return nullptr;
    Arrays all;
    ArrayView gates, state, copy;
    recurrent::Shape shape{};
    if (!all.read_written(first, &gates) || !all.read_written(second, &state) || !all.read_written(third, &copy) ||
        !fit_steps(gates, state, &shape) || copy.bytes != state.bytes)
        Py_RETURN_FALSE;
    without_gil(gates.bytes, [&] {
        if (all.item == 4)
            recurrent::lstm_step(shape, data_of<float>(gates), data_of<float>(state), data_of<float>(copy));
        else
            recurrent::lstm_step(shape, data_of<double>(gates), data_of<double>(state), data_of<double>(copy));
    });
    Py_RETURN_TRUE;
}

// lstm_step_back(whole, gates, tanh, before, state, into)
PyObject* lstm_step_back(PyObject*, PyObject* args) {
    std::array<PyObject*, 6> given{};
    if (!PyArg_ParseTuple(args, "OOOOOO", given.data(), &given[1], &given[2], &given[3], &given[4], &given[5]))
        return nullptr;
    Arrays all;
    ArrayView whole, gates, tanh, before, state, into;
    recurrent::Shape shape{};
    if (!all.read(given[0], &whole) || !all.read(given[1], &gates) || !all.read(given[2], &tanh) ||
        !all.read(given[3], &before) || !all.read_written(given[4], &state) || !all.read_written(given[5], &into) ||
        !fit_steps(gates, state, &shape) || into.bytes != gates.bytes)
        Py_RETURN_FALSE;
    for (const ArrayView* one : {&whole, &tanh, &before})
        if (one->bytes != state.bytes) Py_RETURN_FALSE;
    const auto work = [&]<class T>(T*) {
        recurrent::lstm_step_back<T>(shape, {data_of<const T>(whole), data_of<const T>(gates), data_of<const T>(tanh),
                                             data_of<const T>(before), data_of<T>(state), data_of<T>(into)});
    };
    without_gil(gates.bytes,
                [&] { all.item == 4 ? work(static_cast<float*>(nullptr)) : work(static_cast<double*>(nullptr)); });
    Py_RETURN_TRUE;
}

PyMethodDef functions[] = {
    {"lstm_step", lstm_step, METH_VARARGS, nullptr},
    {"lstm_step_back", lstm_step_back, METH_VARARGS, nullptr},
    {"gather_windows", gather_windows, METH_VARARGS, nullptr},
    {"scatter_windows", scatter_windows, METH_VARARGS, nullptr},
    {"max_pool", max_pool, METH_VARARGS, nullptr},
    {"max_pool_places", max_pool_places, METH_VARARGS, nullptr},
    {"max_pool_back", max_pool_back, METH_VARARGS, nullptr},
    {"channel_sums", channel_sums, METH_VARARGS, nullptr},
    {"exchange_channels", exchange_channels, METH_VARARGS, nullptr},
    {"batch_norm", batch_norm, METH_VARARGS, nullptr},
    {"batch_norm_back", batch_norm_back, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_layers(nb::module_& m) {
    if (PyModule_AddFunctions(m.ptr(), functions) != 0) throw nb::python_error();
}

}  // namespace shmtensor
