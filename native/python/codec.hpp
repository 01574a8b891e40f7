// Encodes Python values as the body of a message, and decodes them. Values of certain exact classes are written here;
// a value that contains any other goes through Python (`shmtensor.ipc.codec`, pickle protocol 5).
//
// A body names shared memory by number: the blocks of a message are listed beside it, and each may be named any number
// of times. The codec does not depend on rings, holds or channels.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heap/client.hpp"

namespace shmtensor {

// A value that is being encoded, or has arrived. Each block in it has one user, which belongs to the encoded value; it
// is nullptr if the user has been taken over.
struct EncodedValue {
    EncodedValue() = default;
    EncodedValue(const EncodedValue&) = delete;
    EncodedValue& operator=(const EncodedValue&) = delete;
    ~EncodedValue() { clear(); }
    void clear();  // keeps the room of its vectors

    std::vector<std::byte> body;
    std::vector<Block*> blocks;
    std::uint64_t bytes = 0;  // of the blocks
};

// Encode `value`. An ndarray on the heap is copied into shared memory of `client`, and a tensor on the heap is moved
// there. `client`: a _native.Client, or None for this process's default one, which is made only when a block is needed.
// May run arbitrary Python code. False with an exception set, and `encoded` empty. pre: `encoded` is empty.
enum Form : unsigned {
    kAnyForm = 0,
    kCopyTensors = 1,   // copy all tensors
    kRefusePickle = 2,  // refuse values that need pickle, with DTypeError
    kPickleByValue = 4  // values that need pickle are copied, as by plain pickle: they name no memory of this group
};
// Why a tensor on a device cannot be put in a form that copies.
constexpr const char* kNotCopied =
    "a tensor on a GPU can neither be put into a store nor sent through a channel; put x.cpu()";
bool encode(PyObject* client, PyObject* value, EncodedValue& encoded, unsigned form = kAnyForm);

bool is_pickled(const std::vector<std::byte>& body);  // it needed pickle

// The value of a body; a new reference, or nullptr with an exception set. Takes over the users of the blocks that it
// needs. May run arbitrary Python code.
enum class Access {
    own,     // no other process gets the message
    common,  // others get it too, so its arrays are read-only
    sealed,  // neither arrays nor tensors can be written: their pages are read-only
};
PyObject* decode(const std::byte* body, std::size_t bytes, std::vector<Block*>& blocks, Access access = Access::own);

}  // namespace shmtensor
