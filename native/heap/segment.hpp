// One segment as mapped by this process.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/os.hpp"
#include "heap/ranges.hpp"
#include "heap/segment_metadata.hpp"

namespace shmtensor {

struct Block;

constexpr int kHost = -1;  // in the place of a device's number in this process

struct Segment {
    std::uint64_t id = 0;
    SegmentMetadata metadata;
    std::byte* payload = nullptr;   // nullptr: truncated by somebody, so that only what the metadata says can be used
    std::byte* readonly = nullptr;  // the payload once more, in pages that cannot be written; once a view asked for it
    os::Descriptor file;            // of the payload
    bool lost = false;              // it was not ours any more when an owner looked last
    std::uint64_t payload_bytes = 0;
    SegmentKind kind = SegmentKind::arena;
    int device = kHost;  // whose memory the payload is: nobody but that device may touch it

    std::vector<Block*> held;  // by block index: what this process holds
    std::uint32_t held_count = 0;

    // Of an owned segment:
    bool owned = false;
    std::unique_ptr<Ranges> ranges;     // an arena's
    bool free = true;                   // a dedicated segment's only block is home
    std::uint64_t reserved = 0;         // payload bytes whose pages are reserved
    std::uint32_t blocks_reserved = 0;  // block records whose pages are reserved

    bool is_dedicated() const { return kind != SegmentKind::arena; }  // of a single block
    bool is_ring() const { return kind == SegmentKind::ring; }
    bool on_device() const { return device != kHost; }

    Segment() = default;
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;
    ~Segment() {
        if (on_device()) return;  // its mapping is the driver's
        if (payload) os::unmap(payload, payload_bytes);
        if (readonly) os::unmap(readonly, payload_bytes);
    }
};

}  // namespace shmtensor
