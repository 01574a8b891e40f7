// Python values as the body of a message, and back. Values of the exact classes that need no pickle are written here;
// what holds any other goes through Python (`shmtensor.codec`, pickle protocol 5).
//
// A body names shared memory by number: the blocks of a message are listed beside it, and each may be named any number
// of times. Nothing in here knows rings, holds or channels.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client.hpp"

namespace shmtensor {

struct PyClient;

// A value in the making, or one that has arrived. Each block in it has one user, which goes with the parcel.
struct Parcel {
    Parcel() = default;
    Parcel(const Parcel&) = delete;
    Parcel& operator=(const Parcel&) = delete;
    ~Parcel() { clear(); }
    void clear();  // keeps the room of its vectors

    std::vector<std::byte> body;
    std::vector<Block*> blocks;
    std::uint64_t bytes = 0;  // of the blocks
};

// Write `value` into an empty parcel. Blocks as other processes need them: what lies on the heap is copied (an ndarray)
// or moved (a tensor) into shared memory of `client`. May run any Python. False with an exception set.
bool encode(PyObject* client, PyObject* value, Parcel& parcel);

// The value of a body; a new reference, or nullptr with an exception set. May run any Python.
PyObject* decode(PyObject* client, const std::byte* body, std::size_t bytes, const std::vector<Block*>& blocks);

}  // namespace shmtensor
