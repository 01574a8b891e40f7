// The bindings of training.hpp, for arrays of float32 or float64 in C order. For others, a function returns False or
// None, and the caller computes with NumPy.
#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>

#include "python/array.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/operands.hpp"
#include "python/ref.hpp"
#include "python/waits.hpp"
#include "tensor/training.hpp"

namespace shmtensor {
namespace {

constexpr std::uint64_t kWithGil = std::uint64_t{32} * 1024;  // bytes; with more, other threads run meanwhile

// Contiguous arrays of one type of numbers.
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

// sgd_step(p, gradient, buffer, lr, momentum, taken, decay, nesterov, maximize, first): whether it computed
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

// adam_step(p, gradient, m, v, largest, size, root, beta1, beta2, eps, decay, shrink, maximize): whether it computed
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

// The sizes of a matrix with targets, int64, one for each row. False: the arguments are something else.
bool read_targets(PyObject* matrix, PyObject* targets, std::size_t* rows, std::size_t* classes) {
    ElementKind kind{};
    if (Py_TYPE(targets) != array_type_if_loaded() || !kind_of(targets, &kind)) return PyErr_Clear(), false;
    const ArrayView view = view_array(targets), all = view_array(matrix);
    if (kind.kind != 'i' || kind.bytes != 8 || !view.c_order || view.axes != 1 || all.axes != 2) return false;
    *rows = static_cast<std::size_t>(all.sizes[0]);
    *classes = static_cast<std::size_t>(all.sizes[1]);
    return *rows > 0 && *classes > 0 && view.bytes == *rows * 8;
}

enum class Reduction { none, sum, mean };

// "none", "sum"; any other word means "mean".
Reduction reduction_of(const char* word) {
    const std::string_view given(word);
    return given == "none" ? Reduction::none : given == "sum" ? Reduction::sum : Reduction::mean;
}

template <class T>
void reduce(Reduction reduction, std::size_t count, const std::byte* losses, std::byte* into) {
    const T* all = reinterpret_cast<const T*>(losses);
    const double sum = std::accumulate(all, all + count, 0.0);
    *reinterpret_cast<T*>(into) = static_cast<T>(reduction == Reduction::mean ? sum / static_cast<double>(count) : sum);
}

// softmax_entropy(input, targets, reduction): (loss, softmax)
PyObject* softmax_entropy(PyObject*, PyObject* args) {
    PyObject *input, *targets;
    const char* word;
    if (!PyArg_ParseTuple(args, "OOs", &input, &targets, &word)) return nullptr;
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
    if (!ok) Py_RETURN_NONE;
    const Reduction reduction = reduction_of(word);
    if (reduction == Reduction::none) return PyTuple_Pack(2, losses.get(), softmax.get());
    const Ref loss(new_array(input, 0, nullptr));
    if (!loss) return nullptr;
    (all.item == 4 ? reduce<float> : reduce<double>)(reduction, rows, second, view_array(loss.get()).data);
    return PyTuple_Pack(2, loss.get(), softmax.get());
}

// softmax_entropy_back(softmax, targets, output, reduction): the gradient of the input from `output`, that of the loss.
// pre: softmax_entropy has checked the targets
PyObject* softmax_entropy_back(PyObject*, PyObject* args) {
    PyObject *softmax, *targets, *scales;
    const char* word;
    if (!PyArg_ParseTuple(args, "OOOs", &softmax, &targets, &scales, &word)) return nullptr;
    const Arrays<1> all({softmax}, 0, 1), scale({scales}, 0, 1);
    std::size_t rows = 0, classes = 0;
    if (!all.fits || !scale.fits || scale.item != all.item || !read_targets(softmax, targets, &rows, &classes))
        return PyErr_Clear(), Py_NewRef(Py_None);
    const bool one = scale.bytes == static_cast<std::uint64_t>(scale.item);
    const auto* at = reinterpret_cast<const std::int64_t*>(view_array(targets).data);
    for (std::size_t i = 0; i < rows; ++i)  // another process may have changed them since
        if (at[i] < 0 || static_cast<std::size_t>(at[i]) >= classes) Py_RETURN_NONE;
    if (!one && scale.bytes != rows * static_cast<std::uint64_t>(scale.item)) Py_RETURN_NONE;
    Ref made(new_array(softmax, 2, view_array(softmax).sizes));
    if (!made) return nullptr;
    std::byte* into = view_array(made.get()).data;
    const std::size_t divisor = reduction_of(word) == Reduction::mean ? rows : 1;
    compute(all.bytes, [&] {
        if (all.item == 4)
            training::cross_entropy_back(rows, classes, all.at<const float>(0), at, scale.at<const float>(0), one,
                                         static_cast<float>(divisor), reinterpret_cast<float*>(into));
        else
            training::cross_entropy_back(rows, classes, all.at<const double>(0), at, scale.at<const double>(0), one,
                                         static_cast<double>(divisor), reinterpret_cast<double*>(into));
    });
    return made.release();
}

// with_bias(product, bias): a matrix with bias[c] added to each column, in C order: the matrix itself, changed, or a
// new array if it is in Fortran order; `bias` may be None
PyObject* with_bias(PyObject*, PyObject* args) {
    PyObject *product, *bias;
    if (!PyArg_ParseTuple(args, "OO", &product, &bias)) return nullptr;
    ElementKind kind{};
    if (Py_TYPE(product) != array_type_if_loaded() || !kind_of(product, &kind))
        return PyErr_Clear(), Py_NewRef(Py_None);
    const ArrayView view = view_array(product);
    if (kind.kind != 'f' || (kind.bytes != 4 && kind.bytes != 8) || view.axes != 2 || view.bytes == 0) Py_RETURN_NONE;
    if (!(view.c_order ? view.writable : view.fortran_order)) Py_RETURN_NONE;
    const auto rows = static_cast<std::size_t>(view.sizes[0]), columns = static_cast<std::size_t>(view.sizes[1]);
    const Arrays<1> added({bias}, 0, 0);
    if (bias != Py_None && !(added.fits && added.item == kind.bytes && added.bytes == view.bytes / rows))
        return PyErr_Clear(), Py_NewRef(Py_None);
    if (view.c_order && bias == Py_None) return Py_NewRef(product);
    Ref made(view.c_order ? Py_NewRef(product) : new_array(product, 2, view.sizes));
    if (!made) return nullptr;
    const auto work = [&]<class T>(T* into) {
        if (view.c_order)
            training::add_bias(rows, columns, into, added.at<const T>(0));
        else
            training::add_bias_transposed(rows, columns, reinterpret_cast<const T*>(view.data), added.at<const T>(0),
                                          into);
    };
    std::byte* into = view_array(made.get()).data;
    compute(view.bytes,
            [&] { kind.bytes == 4 ? work(reinterpret_cast<float*>(into)) : work(reinterpret_cast<double*>(into)); });
    return made.release();
}

// sum_rows(matrix): the sum of each column
PyObject* sum_rows(PyObject*, PyObject* matrix) {
    const Arrays<1> all({matrix}, 0, 1);
    if (!all.fits || all.bytes == 0 || view_array(matrix).axes != 2) return PyErr_Clear(), Py_NewRef(Py_None);
    const ArrayView view = view_array(matrix);
    const auto rows = static_cast<std::size_t>(view.sizes[0]), columns = static_cast<std::size_t>(view.sizes[1]);
    Ref made(new_array(matrix, 1, view.sizes + 1));
    if (!made) return nullptr;
    std::byte* into = view_array(made.get()).data;
    compute(all.bytes, [&] {
        if (all.item == 4)
            training::sum_rows(rows, columns, all.at<const float>(0), reinterpret_cast<float*>(into));
        else
            training::sum_rows(rows, columns, all.at<const double>(0), reinterpret_cast<double*>(into));
    });
    return made.release();
}

// relu(x): a new array
PyObject* relu(PyObject*, PyObject* x) {
    const Arrays<1> all({x}, 0, 1);
    if (!all.fits) return PyErr_Clear(), Py_NewRef(Py_None);
    const ArrayView view = view_array(x);
    Ref made(new_array(x, view.axes, view.sizes));
    if (!made) return nullptr;
    std::byte* into = view_array(made.get()).data;
    compute(all.bytes, [&] {
        if (all.item == 4)
            training::relu(all.bytes / 4, all.at<const float>(0), reinterpret_cast<float*>(into));
        else
            training::relu(all.bytes / 8, all.at<const double>(0), reinterpret_cast<double*>(into));
    });
    return made.release();
}

// relu_back(gradient, result): a new array
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
    {"relu", relu, METH_O, nullptr},
    {"relu_back", relu_back, METH_VARARGS, nullptr},
    {"with_bias", with_bias, METH_VARARGS, nullptr},
    {"sum_rows", sum_rows, METH_O, nullptr},
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
