// Python values as the body of a message, and back. Values of the exact classes that need no pickle are written here;
// what holds any other goes through Python (`shmtensor.ipc.codec`, pickle protocol 5).
//
// A body names shared memory by number: the blocks of a message are listed beside it, and each may be named any number
// of times. Nothing in here knows rings, holds or channels.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heap/client.hpp"

namespace shmtensor {

// A value in the making, or one that has arrived. Each block in it has one user, which goes with the encoded value;
// where the user has been taken over there is a nullptr.
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

// Encode `value`. pre: `encoded` is empty. Its blocks are such as other processes need: what lies on the heap is copied
// (an ndarray) or moved (a tensor) into shared memory of `client`, a _native.Client; None: of this process's default
// manager, which is looked for only when a block is needed. May run any Python. False with an exception set, and
// `encoded` empty.
enum Form : unsigned {
    kAnyForm = 0,
    kCopyTensors = 1,   // wherever they lie
    kRefusePickle = 2,  // what would need pickle is refused, with DTypeError
    kPickleByValue = 4  // what needs pickle arrives as a copy, as by plain pickle: it names no memory of this group
};
// Why a tensor on a device cannot be put in a form that copies.
constexpr const char* kNotCopied = "a tensor on a GPU goes neither into a store nor through a channel; put x.cpu()";
bool encode(PyObject* client, PyObject* value, EncodedValue& encoded, unsigned form = kAnyForm);

bool is_pickled(const std::vector<std::byte>& body);  // it needed pickle

// The value of a body; a new reference, or nullptr with an exception set. Takes over the users of blocks that it needs.
// May run any Python.
enum class Access {
    own,     // nobody else gets the message
    common,  // others get it, so that the arrays in it may not be written
    sealed,  // neither arrays nor tensors may be written, whatever is done to them: their pages cannot
};
PyObject* decode(const std::byte* body, std::size_t bytes, std::vector<Block*>& blocks, Access access = Access::own);

}  // namespace shmtensor
