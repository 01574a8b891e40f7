// What other bindings need of a Ring object and of waiting at one (module_queue.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "ipc/ring.hpp"
#include "python/module.hpp"

namespace shmtensor {

// What a client has mapped, for one call that waits until `deadline`.
class ClientLookup final : public SegmentLookup {
   public:
    ClientLookup(PyClient& client, nb::handle object, std::uint64_t deadline)
        : client_(client), object_(object), deadline_(deadline) {}
    SegmentMetadata* find(std::uint64_t segment) override { return client_.client.find(segment); }
    // After RingStatus::need_mapping: have the missing segment mapped. If nobody has it any more it is `gone`. That
    // loses a message; but what a dead process left undone in it, only the manager can say: it was first, or is waited
    // for. False: the time is up. Raises what need_mapping raises.
    bool map_missing();
    void after(RingStatus answer) {  // any other: what is missing next is another matter
        if (answer != RingStatus::need_mapping && answer != RingStatus::busy) gone = waited_ = 0;
    }
    [[noreturn]] void raise_lost() const;  // of a message that says kLost

   private:
    PyClient& client_;
    nb::handle object_;
    const std::uint64_t deadline_;
    std::uint64_t since_ = 0;
    unsigned waited_ = 0;
    nb::object why_;  // what the manager said of the one that is gone
};

// Asked when a put finds no room, as of Ring::taken(); true: try again.
using MakeRoom = std::function<bool(ClientLookup&, std::uint32_t)>;

struct RingParts {
    PyClient& client;
    nb::handle client_object;
    Ring& ring;
    MakeRoom& make_room;
};
RingParts parts_of(nb::handle ring);  // raises TypeError

using Event = std::shared_ptr<const os::Descriptor>;  // shared with calls that use it without the GIL
Event event_of(nb::handle ring);                      // asks the manager the first time, and raises what that raises

// The value of a message that others get as well. Takes over its holds; what is in the message is over.
nb::object read_common(nb::handle ring, EncodedMessage& message);

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
