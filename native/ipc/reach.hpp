// Finds cycles: rings that are held only by messages in one another, which counting holds never frees. Used by the
// manager alone.
//
// A ring can be reached if a slot holds it (a process, a child being made, a ticket, a dead client until it is
// reclaimed), or a message in a ring that can be reached. Messages move while the manager looks, by stores that need no
// lock of the metadata. So it reads the heads and cursors of all rings, then the holds on all of them, then the heads
// and cursors again:
//
//   A process gets a ring of the set only by taking or reading a message of another ring of the set, which it holds
//   until a head or a cursor has moved. If no slot had a hold and no head or cursor moved, then no process had a ring
//   of the set between the reading of the holds and the second reading of the heads. A set that no process can reach
//   stays unreachable.
//
// The exception is a process that knows a ring's numbers (from a name or a handle). Therefore each ring is first sealed
// with the number of the look, and a process that opens a sealed ring voids the look. One store (GroupHeader::looks)
// decides the result.
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

// End the rings that cannot be reached: no process opens them again, and the caller releases what they hold. `rings`
// must contain all rings that messages may hold; locked ones count as reached. Returns how many have ended. 0 also
// if a process opened one meanwhile, and as long as `rings` contains one that has ended.
std::size_t end_unreached(Group& group, std::span<const Reached> rings);

}  // namespace shmtensor
