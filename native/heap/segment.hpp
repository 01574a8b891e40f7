// One segment in this process: its mappings and the blocks held of it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/os.hpp"
#include "heap/ranges.hpp"
#include "heap/segment_metadata.hpp"

namespace shmtensor {

struct Block;

constexpr int kHost = -1;  // the device number of host memory

struct Segment {
    std::uint64_t id = 0;
    SegmentMetadata metadata;
    std::byte* payload = nullptr;   // nullptr: the file was truncated, so that only the metadata can be used
    std::byte* readonly = nullptr;  // a read-only mapping of the payload; made for the first view that needs it
    os::Descriptor file;            // of the payload
    bool lost = false;              // at the owner's last check, `file` stood for another file
    std::uint64_t payload_bytes = 0;
    SegmentKind kind = SegmentKind::arena;
    int device = kHost;  // the device whose memory the payload is: only that device may touch it

    std::vector<Block*> held;  // by block index: what this process holds
    std::uint32_t held_count = 0;

    // Of an owned segment:
    bool owned = false;
    std::unique_ptr<Ranges> ranges;     // of an arena
    bool free = true;                   // of a dedicated segment: its only block is home
    std::uint64_t reserved = 0;         // payload bytes whose pages are reserved
    std::uint32_t blocks_reserved = 0;  // block records whose pages are reserved

    bool is_dedicated() const { return kind != SegmentKind::arena; }  // of a single block
    bool is_ring() const { return kind == SegmentKind::ring; }
    bool on_device() const { return device != kHost; }

    Segment() = default;
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;
    ~Segment() {
        if (on_device()) return;  // the driver owns its mapping
        if (payload) os::unmap(payload, payload_bytes);
        if (readonly) os::unmap(readonly, payload_bytes);
    }
};

}  // namespace shmtensor
