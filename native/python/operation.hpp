// Operations on tensors: callables that compute with the arrays of their arguments and give tensors.
#pragma once

#include <Python.h>

namespace shmtensor {

// The class `Operation`. False with an exception set.
bool add_operations(PyObject* module);

}  // namespace shmtensor
