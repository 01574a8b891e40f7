// Rings that only messages of one another hold: cycles, which counting holds does not end. The manager's alone.
//
// A ring can be reached if a slot holds it (a process, a child being made, a ticket, the dead until they are reclaimed)
// or a message in a ring that can be reached. Messages move while the manager looks, by stores that take no lock of the
// metadata. So it reads the heads and cursors of all rings, then the holds on all of them, then heads and cursors
// again:
//
//   who gets at a ring of the set takes it out of one of the set, or reads it there, and so holds that one until a head
//   or a cursor has moved. If no hold was a slot's and no head or cursor moved, then nobody had a ring of the set at
//   the moment between the last look at the holds and the second at the heads; and what nobody can reach stays so.
//
// But for those who know a ring's numbers (a name, a handle). Each ring is sealed first, with the number of the look;
// who opens a sealed ring makes the look void. What was found is decided by one store (GroupHeader::looks).
#pragma once

#include <cstdint>
#include <span>

#include "heap/group.hpp"
#include "heap/segment_metadata.hpp"
#include "ipc/ring.hpp"

namespace shmtensor {

struct Reached {
    Ring* ring;
    SegmentMetadata* metadata;
};

// End the rings that cannot be reached: nobody opens them any more, and what they hold is to be released. All rings
// that messages may hold must be among those given; what is locked just now counts as reached. Gives how many have
// ended; 0 also when somebody opened one meanwhile, and as long as one that has ended is among them.
std::size_t end_unreached(Group& group, std::span<const Reached> rings);

}  // namespace shmtensor
