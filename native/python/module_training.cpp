// The bindings of training.hpp: arrays of float32 or float64 in C order. For all else the callers compute with NumPy.
#include <array>
#include <cstdint>

#include "python/array.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/ref.hpp"
#include "python/waits.hpp"
#include "tensor/training.hpp"

namespace shmtensor {
namespace {

constexpr std::uint64_t kWithGil = std::uint64_t{32} * 1024;  // bytes; with more, other threads run meanwhile

// Arrays of one type of numbers, without gaps.
template <std::size_t count>
class Arrays {
   public:
    // nullptr and None are allowed from `optional` on. All have as many elements as the first.
    Arrays(const std::array<PyObject*, count>& given, std::size_t written, std::size_t optional) {
        ElementKind kind{};
        for (std::size_t i = 0; i < count; ++i) {
            if (i >= optional && given[i] == Py_None) continue;
            if (Py_TYPE(given[i]) != array_type_if_loaded() || !kind_of(given[i], &kind)) return;
            const ArrayView view = view_array(given[i]);
            if (i == 0) bytes = view.bytes, item = kind.bytes;
            if (kind.kind != 'f' || kind.bytes != item || !view.c_order || view.bytes != bytes) return;
            if (i < written && !view.writable) return;
            data_[i] = view.data;
        }
        fits = item == 4 || item == 8;
    }
    template <class T>
    T* at(std::size_t i) const {
        return reinterpret_cast<T*>(data_[i]);
    }

    std::uint64_t bytes = 0;
    int item = 0;
    bool fits = false;

   private:
    std::array<std::byte*, count> data_{};
};

template <class Work>
void compute(std::uint64_t bytes, Work&& work) {
    if (bytes <= kWithGil) return work();
    const GilRelease released;
    work();
}

// sgd_step(p, gradient, buffer, lr, momentum, taken, decay, nesterov, maximize, first): whether it was done
PyObject* sgd_step(PyObject*, PyObject* args) {
    PyObject *p, *gradient, *buffer;
    training::Sgd how{};
    int nesterov = 0, maximize = 0, first = 0;
    if (!PyArg_ParseTuple(args, "OOOddddppp", &p, &gradient, &buffer, &how.lr, &how.momentum, &how.taken, &how.decay,
                          &nesterov, &maximize, &first))
        return nullptr;
    how.nesterov = nesterov != 0;
    how.maximize = maximize != 0;
    how.first = first != 0;
    const Arrays<3> all({p, buffer, gradient}, buffer == Py_None ? 1 : 2, buffer == Py_None ? 1 : 3);
    if (!all.fits || gradient == Py_None) return PyErr_Clear(), Py_NewRef(Py_False);
    compute(all.bytes, [&] {
        if (all.item == 4)
            training::step(how, all.bytes / 4, all.at<float>(0), all.at<const float>(2), all.at<float>(1));
        else
            training::step(how, all.bytes / 8, all.at<double>(0), all.at<const double>(2), all.at<double>(1));
    });
    Py_RETURN_TRUE;
}

// adam_step(p, gradient, m, v, largest, size, root, beta1, beta2, eps, decay, shrink, maximize): whether it was done
PyObject* adam_step(PyObject*, PyObject* args) {
    PyObject *p, *gradient, *m, *v, *largest;
    training::Adam how{};
    int maximize = 0;
    if (!PyArg_ParseTuple(args, "OOOOOdddddddp", &p, &gradient, &m, &v, &largest, &how.size, &how.root, &how.beta1,
                          &how.beta2, &how.eps, &how.decay, &how.shrink, &maximize))
        return nullptr;
    how.maximize = maximize != 0;
    const Arrays<5> all({p, m, v, gradient, largest}, 3, 4);
    if (!all.fits) return PyErr_Clear(), Py_NewRef(Py_False);
    compute(all.bytes, [&] {
        if (all.item == 4)
            training::step(how, all.bytes / 4, all.at<float>(0), all.at<const float>(3), all.at<float>(1),
                           all.at<float>(2), all.at<float>(4));
        else
            training::step(how, all.bytes / 8, all.at<double>(0), all.at<const double>(3), all.at<double>(1),
                           all.at<double>(2), all.at<double>(4));
    });
    Py_RETURN_TRUE;
}

// Sizes of a matrix and its targets, which are int64, one for each row. False: not these.
bool read_targets(PyObject* matrix, PyObject* targets, std::size_t* rows, std::size_t* classes) {
    ElementKind kind{};
    if (Py_TYPE(targets) != array_type_if_loaded() || !kind_of(targets, &kind)) return PyErr_Clear(), false;
    const ArrayView view = view_array(targets), all = view_array(matrix);
    if (kind.kind != 'i' || kind.bytes != 8 || !view.c_order || view.axes != 1 || all.axes != 2) return false;
    *rows = static_cast<std::size_t>(all.sizes[0]);
    *classes = static_cast<std::size_t>(all.sizes[1]);
    return *rows > 0 && *classes > 0 && view.bytes == *rows * 8;
}

// softmax_entropy(input, targets): (softmax, losses), or None where it does not compute
PyObject* softmax_entropy(PyObject*, PyObject* args) {
    PyObject *input, *targets;
    if (!PyArg_ParseTuple(args, "OO", &input, &targets)) return nullptr;
    const Arrays<1> all({input}, 0, 1);
    std::size_t rows = 0, classes = 0;
    if (!all.fits || !read_targets(input, targets, &rows, &classes)) return PyErr_Clear(), Py_NewRef(Py_None);
    const auto* at = reinterpret_cast<const std::int64_t*>(view_array(targets).data);
    const auto count = static_cast<Py_ssize_t>(rows);
    const Ref softmax(new_array(input, 2, view_array(input).sizes)), losses(new_array(input, 1, &count));
    if (!softmax || !losses) return nullptr;
    std::byte *first = view_array(softmax.get()).data, *second = view_array(losses.get()).data;
    bool ok = true;
    compute(all.bytes, [&] {
        ok = all.item == 4
                 ? training::cross_entropy(rows, classes, all.at<const float>(0), at, reinterpret_cast<float*>(first),
                                           reinterpret_cast<float*>(second))
                 : training::cross_entropy(rows, classes, all.at<const double>(0), at, reinterpret_cast<double*>(first),
                                           reinterpret_cast<double*>(second));
    });
    return ok ? PyTuple_Pack(2, softmax.get(), losses.get()) : Py_NewRef(Py_None);
}

// softmax_entropy_back(softmax, targets, scales): the gradient of the input, or None where it does not compute.
// pre: the targets are classes, as softmax_entropy has found
PyObject* softmax_entropy_back(PyObject*, PyObject* args) {
    PyObject *softmax, *targets, *scales;
    if (!PyArg_ParseTuple(args, "OOO", &softmax, &targets, &scales)) return nullptr;
    const Arrays<1> all({softmax}, 0, 1), scale({scales}, 0, 1);
    std::size_t rows = 0, classes = 0;
    if (!all.fits || !scale.fits || scale.item != all.item || !read_targets(softmax, targets, &rows, &classes))
        return PyErr_Clear(), Py_NewRef(Py_None);
    const bool one = scale.bytes == static_cast<std::uint64_t>(scale.item);
    const auto* at = reinterpret_cast<const std::int64_t*>(view_array(targets).data);
    for (std::size_t i = 0; i < rows; ++i)  // others may have changed them since
        if (at[i] < 0 || static_cast<std::size_t>(at[i]) >= classes) Py_RETURN_NONE;
    if (!one && scale.bytes != rows * static_cast<std::uint64_t>(scale.item)) Py_RETURN_NONE;
    Ref made(new_array(softmax, 2, view_array(softmax).sizes));
    if (!made) return nullptr;
    std::byte* into = view_array(made.get()).data;
    compute(all.bytes, [&] {
        if (all.item == 4)
            training::cross_entropy_back(rows, classes, all.at<const float>(0), at, scale.at<const float>(0), one,
                                         reinterpret_cast<float*>(into));
        else
            training::cross_entropy_back(rows, classes, all.at<const double>(0), at, scale.at<const double>(0), one,
                                         reinterpret_cast<double*>(into));
    });
    return made.release();
}

// relu_back(gradient, result): an array, or None where it does not compute
PyObject* relu_back(PyObject*, PyObject* args) {
    PyObject *gradient, *result;
    if (!PyArg_ParseTuple(args, "OO", &gradient, &result)) return nullptr;
    const Arrays<2> all({gradient, result}, 0, 2);
    if (!all.fits) return PyErr_Clear(), Py_NewRef(Py_None);
    const ArrayView view = view_array(result);
    Ref made(new_array(result, view.axes, view.sizes));
    if (!made) return nullptr;
    std::byte* into = view_array(made.get()).data;
    compute(all.bytes, [&] {
        if (all.item == 4)
            training::relu_back(all.bytes / 4, all.at<const float>(0), all.at<const float>(1),
                                reinterpret_cast<float*>(into));
        else
            training::relu_back(all.bytes / 8, all.at<const double>(0), all.at<const double>(1),
                                reinterpret_cast<double*>(into));
    });
    return made.release();
}

PyMethodDef functions[] = {
    {"relu_back", relu_back, METH_VARARGS, nullptr},
    {"sgd_step", sgd_step, METH_VARARGS, nullptr},
    {"adam_step", adam_step, METH_VARARGS, nullptr},
    {"softmax_entropy", softmax_entropy, METH_VARARGS, nullptr},
    {"softmax_entropy_back", softmax_entropy_back, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_training(nb::module_& m) {
    if (PyModule_AddFunctions(m.ptr(), functions) != 0) throw nb::python_error();
}

}  // namespace shmtensor
