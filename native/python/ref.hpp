// References to Python objects, and modules of the package.
#pragma once

#include <Python.h>

#include <utility>

namespace shmtensor {

// An owned reference, released at the end of its scope.
class Ref {
   public:
    Ref() = default;
    explicit Ref(PyObject* owned) : object_(owned) {}
    Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Ref& operator=(Ref&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Ref() { Py_XDECREF(object_); }
    static Ref to(PyObject* borrowed) { return Ref(Py_XNewRef(borrowed)); }
    PyObject* get() const { return object_; }
    PyObject* release() { return std::exchange(object_, nullptr); }
    explicit operator bool() const { return object_ != nullptr; }

   private:
    PyObject* object_ = nullptr;
};

// A module of the package, by its name below it (shmtensor._loading); nullptr with an exception set.
inline PyObject* load_module(const char* name) {
    const Ref loading(PyImport_ImportModule("shmtensor._loading"));
    return loading ? PyObject_CallMethod(loading.get(), "load", "s", name) : nullptr;
}

}  // namespace shmtensor
