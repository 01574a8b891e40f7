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
bool allocate_block(PyObject* client, std::uint64_t bytes, Block** block);  // may run any Python
// The wrapper of a block, a new reference. One that is made for it takes over the user, and `block` becomes nullptr.
PyObject* take_wrapper(Block*& block);

}  // namespace shmtensor
