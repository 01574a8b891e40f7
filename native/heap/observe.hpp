// Copies of a segment's metadata for a process that only watches. The descriptor need only be readable.
//
// The lock is not taken, so a copy may be torn: a hold that was made or ended meanwhile may be missing, or be paired
// with the record of the block's next use. Every value is checked before use, and no page is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/layout.hpp"

namespace shmtensor {

// A block record as watchers get it; all zeros: no live block.
struct ObservedBlock {
    std::uint32_t offset;  // from the start of the payload, in units of 64 bytes
    std::uint32_t holder;  // owner << 8 | HoldKind of its oldest hold by a process, or else of its oldest hold
    std::uint64_t size;    // bytes
    std::uint32_t since;   // CLOCK_MONOTONIC, seconds: when that hold was made
    std::uint32_t holds;
};
static_assert(sizeof(ObservedBlock) == 24);

// All holds of one owner and kind together.
struct ObservedHolder {
    std::uint32_t owner;
    std::uint32_t kind;
    std::uint64_t blocks;
    std::uint64_t bytes;
    std::uint32_t since;  // of the oldest
};

struct Observation {
    std::uint64_t segment = 0, payload_bytes = 0, live_bytes = 0, reserved_bytes = 0;
    std::uint32_t owner = 0, live_blocks = 0;
    bool dedicated = false;
    std::vector<ObservedBlock> blocks;    // by index, up to the last live one
    std::vector<ObservedHolder> holders;  // by owner and kind
};

// 0 or errno; EINVAL: `fd` is not the metadata of a segment.
int observe(int fd, Observation& found);

}  // namespace shmtensor
