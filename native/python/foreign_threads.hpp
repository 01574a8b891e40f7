// References that are given back in threads that Python does not know, such as those of XLA and of torch's backward
// pass.
#pragma once

#include <nanobind/nanobind.h>

namespace shmtensor {

// Whether the interpreter has ended or is ending: threads that want the GIL do not get it any more.
bool is_python_ending() noexcept;

// Drops a reference soon, in a thread of our own. From any thread, without the GIL. A thread of another library must
// not wait for the GIL: if the interpreter ends meanwhile it never gets it, and the library may wait for its thread.
// What comes when the interpreter ends, or without memory, stays.
void drop_soon(PyObject* object) noexcept;

}  // namespace shmtensor
