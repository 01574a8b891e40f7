// Access to clients and blocks for the codec and tensors, in terms of CPython's API: a failure sets an exception.
#pragma once

#include <Python.h>

#include <cstdint>

#include "heap/client.hpp"

namespace shmtensor {

extern PyTypeObject* block_type;  // _native.Block; set by load_block_types()
extern PyTypeObject* view_type;   // _native.View
void load_block_types();

Client* client_of(PyObject* client);  // nullptr: it is not a _native.Client, or may not be used
Block* block_of(PyObject* block);     // pre: exactly a block_type
// Allocates every block of this process. May run arbitrary Python code. A pointer, so that sampling costs nothing while
// it is off.
extern bool (*allocate_block)(PyObject* client, std::uint64_t bytes, Block** block, int device);
// From now on, call note(group id, segment, index, generation) after every n-th allocation; if it raises, the
// allocation fails. 0 ends this.
void sample_blocks(std::uint32_t every, PyObject* note);
// The wrapper of a block, a new reference. A wrapper that is made here takes over the user, and `block` becomes
// nullptr.
PyObject* take_wrapper(Block*& block);

}  // namespace shmtensor
