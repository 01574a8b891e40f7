#include "python/codec_body.hpp"

namespace shmtensor::codec {

PyObject* python_part(PyObject** known, const char* name) {
    if (*known) return *known;
    const Ref module(load_module("ipc.codec"));
    return module ? *known = PyObject_GetAttrString(module.get(), name) : nullptr;
}

}  // namespace shmtensor::codec
