// The bindings of random.hpp: numbers and arrays from Python objects.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <memory>

#include "python/module.hpp"
#include "python/waits.hpp"
#include "tensor/random.hpp"

namespace shmtensor {
namespace {

using random::Twister;

constexpr std::size_t kWithoutGil = 512;  // values; fewer take less time than releasing the GIL

// A writable contiguous array of one axis with elements of type T.
template <class T>
class Target {
   public:
    Target(nb::handle array, const char* codes) {
        if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_CONTIG | PyBUF_FORMAT) != 0) throw nb::python_error();
        if (view_.itemsize == sizeof(T) && std::strlen(view_.format) == 1 && std::strchr(codes, *view_.format)) return;
        PyBuffer_Release(&view_);
        throw nb::type_error("a contiguous array of float64 (values) or int64 (integers) is needed");
    }
    Target(const Target&) = delete;
    ~Target() { PyBuffer_Release(&view_); }

    template <class Fill>
    void fill(Fill&& values) {
        T* const out = static_cast<T*>(view_.buf);
        const std::size_t count = static_cast<std::size_t>(view_.len) / sizeof(T);
        if (count < kWithoutGil) {
            values(out, count);
            return;
        }
        const GilRelease released;
        values(out, count);
    }

   private:
    Py_buffer view_;
};

using Distribution = void (Twister::*)(double*, std::size_t, double, double);

// twister.NAME(a, b) returns one value; twister.NAME(a, b, array) fills the array.
template <Distribution distribution>
void bind(nb::class_<Twister>& type, const char* name) {
    type.def(
            name,
            [](Twister& self, double a, double b) {
                double value;
                (self.*distribution)(&value, 1, a, b);
                return value;
            },
            nb::arg(), nb::arg())
        .def(
            name,
            [](Twister& self, double a, double b, nb::handle array) {
                Target<double>(array, "d").fill([&](double* out, std::size_t count) {
                    (self.*distribution)(out, count, a, b);
                });
            },
            nb::arg(), nb::arg(), nb::arg());
}

}  // namespace

void add_random(nb::module_& m) {
    nb::class_<Twister> type(m, "Twister", nb::is_final());
    type.def(nb::init<std::uint64_t>(), nb::arg("seed"))
        .def("seed", &Twister::seed, nb::arg("seed"))
        .def_prop_ro("initial_seed", &Twister::initial_seed)
        .def("draw", &Twister::draw)
        .def("save",
             [](const Twister& self) {
                 random::State state;
                 self.save(&state);
                 return nb::bytes(reinterpret_cast<const char*>(&state), sizeof state);
             })
        .def(
            "restore",
            [](Twister& self, const nb::bytes& saved) {
                random::State state;
                if (saved.size() != sizeof state) return false;
                std::memcpy(&state, saved.c_str(), sizeof state);
                return self.restore(state);
            },
            nb::arg("state"))
        .def(
            "integers",
            [](Twister& self, std::uint64_t range, std::uint64_t low, nb::handle array) {
                Target<std::int64_t>(array, "lq").fill([&](std::int64_t* out, std::size_t count) {
                    self.integers(out, count, range, low);
                });
            },
            nb::arg("range"), nb::arg("low"), nb::arg("array"))
        .def(
            "permutation",
            [](Twister& self, nb::handle array) {
                Target<std::int64_t>(array, "lq").fill([&](std::int64_t* out, std::size_t count) {
                    self.permutation(out, count);
                });
            },
            nb::arg("array"));
    bind<&Twister::uniform>(type, "uniform");
    bind<&Twister::normal>(type, "normal");
    bind<&Twister::log_normal>(type, "log_normal");
    bind<&Twister::exponential>(type, "exponential");
    bind<&Twister::cauchy>(type, "cauchy");
    bind<&Twister::geometric>(type, "geometric");
    bind<&Twister::bernoulli>(type, "bernoulli");
    m.attr("RANDOM_STATE_BYTES") = sizeof(random::State);
}

}  // namespace shmtensor
