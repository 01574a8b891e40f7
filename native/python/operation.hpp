// Operations on tensors: callables that compute with the arrays of their arguments and return tensors.
#pragma once

#include <Python.h>

namespace shmtensor {

// Adds the class `Operation`. False with an exception set.
bool add_operations(PyObject* module);

}  // namespace shmtensor
