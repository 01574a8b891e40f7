// The exceptions that native code raises. This file alone maps results of the core to exceptions.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/limits.hpp"
#include "heap/client.hpp"

namespace shmtensor {

// Classes, for the life of the process. load_errors() sets them, except queue_full.
struct Errors {
    // of shmtensor._native
    PyObject *block_gone, *lock_busy, *not_held, *refused, *spilled;
    // of shmtensor.errors
    PyObject *argument, *dtype, *foreign_reader, *index, *layout, *message_damaged, *message_too_large, *not_supported,
        *queue_damaged, *quota, *segment_lost, *stall;
    // of the module queue
    PyObject *queue_empty, *queue_full;
};
extern Errors errors;

// Creates the exceptions of `module` and finds the others. False with an exception set.
bool load_errors(PyObject* module);
// Finds queue.Full. Called when the first ring is made, since importing queue takes time. False with an exception set.
bool load_queue_full();

// The following functions throw nanobind's python_error, with an exception set.
[[noreturn]] void raise(PyObject* type, const std::string& message);
[[noreturn]] void raise_os(int error);
// Raises AssertionError if a check() of the core found an error.
inline void require_sound(const char* wrong) {
    if (wrong) raise(PyExc_AssertionError, wrong);
}
[[noreturn]] void raise_refused(const Refusal& refusal, const char* what);

// Sets NotHeld, with the reason why this process may not touch shared memory.
void set_not_held(const Client& client);
[[noreturn]] void raise_not_held(const Client& client);

// Raises the error of a call of a client. pre: `status` is not ok.
[[noreturn]] void raise_status(Status status, const Client& client);

// Raise the errors of calls on a ring.
[[noreturn]] void raise_queue_empty();
[[noreturn]] void raise_queue_full();
[[noreturn]] void raise_queue_damaged();
[[noreturn]] void raise_too_large(std::uint64_t bytes, std::size_t blocks, std::uint64_t max_bytes);
[[noreturn]] void raise_message_lost(const std::string& why);  // `why`: how its memory was lost; "": truncated

}  // namespace shmtensor
