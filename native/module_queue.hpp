// What other bindings need of a Ring object and of waiting at one (module_queue.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "module.hpp"
#include "ring.hpp"

namespace shmtensor {

struct RingParts {
    PyClient& client;
    nb::handle client_object;
    Ring& ring;
    std::function<bool(std::uint32_t)>& make_room;
};
RingParts parts_of(nb::handle ring);  // raises TypeError

// What a client has mapped, and what it was told in one call that nobody has any more.
class Look final : public Shelf {
   public:
    Look(PyClient& client, nb::handle object) : client_(client), object_(object) {}
    Books* find(std::uint64_t segment) override { return client_.client.find(segment); }
    bool is_gone(std::uint64_t segment) const override;
    bool misses_some() const { return !gone_.empty(); }
    // After Ringed::need_mapping: have the missing segment mapped, or know from now on that it is gone. A message is
    // lost by that, but not what a dead process left undone: the manager releases a segment only when nothing is left
    // in it. Raises whatever else need_mapping raises.
    void map_missing();
    [[noreturn]] void raise_lost() const;  // of a letter that says kLost

   private:
    PyClient& client_;
    nb::handle object_;
    std::vector<std::uint64_t> gone_;
    std::optional<nb::python_error> why_;  // of the last
};

// The value of a message that others get as well. Takes over its holds; what is in the letter is over.
nb::object read_common(nb::handle ring, Letter& letter);

std::uint64_t left_of(std::uint64_t deadline);  // ns until there

// Waits that go on for long because a lock is taken, not because there is nothing to do.
class Stall {
   public:
    Stall(const Ring& ring, PyClient& client, std::uint64_t deadline)
        : ring_(ring), client_(client), deadline_(deadline) {}
    // After a try that found a lock taken: how long the next may wait for it, in ms; 0: no longer. Warns of a lock that
    // stays taken.
    unsigned patience(bool getting);
    void over() { since_ = 0; }  // the lock was had: the next time that it is taken is another

   private:
    void warn(bool getting) const;

    const Ring& ring_;
    PyClient& client_;
    const std::uint64_t deadline_;
    std::uint64_t since_ = 0, warned_ = 0;
};

[[noreturn]] void raise_damaged();

}  // namespace shmtensor
