// What the codec and tensors need of clients and blocks, in terms of CPython's API: failures are exceptions set.
#pragma once

#include <Python.h>

#include <cstdint>

#include "heap/client.hpp"

namespace shmtensor {

extern PyTypeObject* block_type;  // _native.Block; known from load_block_types() on
extern PyTypeObject* view_type;   // _native.View
void load_block_types();

Client* client_of(PyObject* client);  // nullptr: it is no _native.Client, or may not be used
Block* block_of(PyObject* block);     // pre: exactly a block_type
// Every block that this process makes comes from here. May run any Python. A pointer, so that sampling costs nothing
// while it is off.
extern bool (*allocate_block)(PyObject* client, std::uint64_t bytes, Block** block, int device);
// From now on call note(group id, segment, index, generation) after every n-th block is made; an exception of it fails
// the allocation. 0 ends that.
void sample_blocks(std::uint32_t every, PyObject* note);
// The wrapper of a block, a new reference. One that is made for it takes over the user, and `block` becomes nullptr.
PyObject* take_wrapper(Block*& block);

}  // namespace shmtensor
