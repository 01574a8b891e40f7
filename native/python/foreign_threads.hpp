// Releases references in threads that Python does not know, such as those of XLA and of torch's backward pass.
#pragma once

#include <nanobind/nanobind.h>

namespace shmtensor {

// Whether the interpreter has ended or is ending: threads that want the GIL then never get it.
bool is_python_ending() noexcept;

// Drops a reference soon, in a thread of our own. May be called from any thread, without the GIL. A thread of another
// library must not wait for the GIL: if the interpreter ends meanwhile, it never gets it, and the library may wait for
// its thread. The reference leaks if the interpreter is ending or there is no memory.
void drop_soon(PyObject* object) noexcept;

}  // namespace shmtensor
