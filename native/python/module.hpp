// What the bindings share: clients and blocks as Python objects, errors, and calls of the core that may have to wait.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "base/os.hpp"
#include "heap/client.hpp"

namespace shmtensor {

namespace nb = nanobind;

constexpr unsigned kSlice = 50;                       // ms between two looks at signals
constexpr std::uint64_t kLockBound = 30'000'000'000;  // ns until a lock that stays busy is an error
constexpr int kSegmentTries = 3;                      // need_segment calls for one allocation

constexpr const char* kTruncated =
    "a shared-memory object is shorter than it was made: somebody truncated it, and what lay in it is gone. Use the "
    "strategy file_descriptor, whose memory cannot be truncated";

// Exceptions of the module; made in module.cpp.
struct NativeErrors {
    PyObject *lock_busy, *block_gone, *refused, *not_held, *lost;
};
extern NativeErrors native_errors;

[[noreturn]] void raise_os(int error);
[[noreturn]] void raise(PyObject* type, const std::string& message);
[[noreturn]] void raise_refused(const Refusal& refusal, const char* what = "reserving pages");
void set_not_held(const Client& client);
[[noreturn]] void raise_not_held(const Client& client);

// Without the GIL from here to the end of the scope. A daemon thread that wants it back while the interpreter ends is
// unwound by Python before 3.14, which no frame of C++ on the way lets pass: it stays here instead, as in 3.14.
class Unlocked {
   public:
    Unlocked() : state_(PyEval_SaveThread()) {}
    Unlocked(const Unlocked&) = delete;
    ~Unlocked() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;) ::pause();
        }
    }

   private:
    PyThreadState* state_;
};

// A moment on CLOCK_MONOTONIC in ns, as the standard library reads a timeout: None is for ever, less than nothing is 0:
// at once.
constexpr std::uint64_t kForever = ~std::uint64_t{0};
std::uint64_t deadline_of(bool wait, nb::handle timeout);

// The Python object over a Block: one user of it.
struct PyBlock {
    explicit PyBlock(Block* held) : block(held) {}
    PyBlock(const PyBlock&) = delete;
    ~PyBlock() {
        if (block->wrapper == wrapper) block->wrapper = nullptr;
        block->client->release(block);
    }
    Block* block;
    PyObject* wrapper = nullptr;  // itself
};

struct PyClient {
    PyClient(nb::object group_object, Group& group, std::uint32_t slot, int connection, std::uint32_t epoch,
             nb::object segments, nb::object mappings, nb::object manager)
        : keep(std::move(group_object)),
          need_segment(std::move(segments)),
          need_mapping(std::move(mappings)),
          need_manager(std::move(manager)),
          client(group, slot, connection, epoch) {}
    nb::object keep;
    nb::object need_segment;
    nb::object need_mapping;
    nb::object need_manager;
    std::uint64_t asked = 0;  // when need_manager was last called; ns
    Client client;
};

// The one wrapper of a block; takes over the user that the core gave us.
nb::object wrapper_of(Block* block);

// A block as it is to be used by somebody who came upon its bytes in another way than by handle: itself, or a view with
// the least rights that anything here has to it; `readonly`: one that cannot be written. `data`: its bytes there. May
// raise. (module_view.cpp)
nb::object view_of(nb::handle block, bool readonly, std::byte** data);

// Ends a slice of waiting: has Python's signal handlers run, and somebody see to it that the group has a manager. Both
// may raise.
void look_around(PyClient& client);
// The second part alone, when the manager is gone: at most every 100 ms.
void look_for_manager(PyClient& client);

// Have the program free what it can for an allocation that was refused (shmtensor.hooks); false: it has no way to. May
// run any Python, and raise.
bool relieve(std::uint64_t bytes);

// Make a call of the core until it is through: first at once, then with patience and without the GIL, looking at
// signals in between; what it lacks is asked for in Python.
template <class Call>
Status retry_blocking(PyClient& self, nb::handle self_object, Call&& call, std::uint64_t segment, std::uint64_t bytes) {
    Status status = call(0u);
    if (status == Status::ok) [[likely]]
        return status;
    const std::uint64_t until = os::monotonic_ns() + kLockBound;
    bool relieved = bytes == 0;  // done once, and for allocations alone
    for (int tries = 0;;) {
        switch (status) {
            case Status::ok:
                return status;
            case Status::busy:
                look_around(self);
                if (os::monotonic_ns() > until)
                    raise(native_errors.lock_busy,
                          "the metadata of a segment stayed locked by another process for 30 s");
                break;
            case Status::slow:
                break;
            case Status::need_segment:
                if (++tries > kSegmentTries) raise(PyExc_MemoryError, "new segments have no room for the request");
                try {
                    self.need_segment(self_object, payload_for(bytes));
                } catch (nb::python_error& error) {
                    if (relieved || !error.matches(PyExc_MemoryError) || !relieve(bytes)) throw;
                    relieved = true;
                }
                break;
            case Status::need_mapping:
                if (++tries > kSegmentTries) raise(PyExc_RuntimeError, "need_mapping did not add the segment");
                self.need_mapping(self_object, segment, true);
                break;
            case Status::gone:
                raise(native_errors.block_gone, "no live block of this generation");
            case Status::refused:
            case Status::full:
                if (relieved || !relieve(bytes)) raise_refused(self.client.refusal());
                relieved = true;
                break;
            case Status::lost:
                raise(native_errors.lost, kTruncated);
            case Status::not_held:
                raise_not_held(self.client);
        }
        const Unlocked unlocked;
        status = call(kSlice);
    }
}

}  // namespace shmtensor
