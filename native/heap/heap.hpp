// The process-private part of the arenas and dedicated segments that one client owns: finding room for a block.
// Only reservations touch shared memory here. The caller holds the client's private lock.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/layout.hpp"
#include "base/limits.hpp"
#include "heap/group.hpp"
#include "heap/ranges.hpp"

namespace shmtensor {

struct Segment;

struct Room {
    Segment* segment = nullptr;
    std::uint32_t node = kNone;
    std::uint64_t offset = 0;
    explicit operator bool() const { return segment != nullptr; }
};

constexpr std::uint64_t kDedicatedFrom = kArenaBytes / 4;  // bytes; larger blocks get a segment of their own
constexpr std::uint64_t kDeviceDedicatedFrom = kDeviceArenaBytes / 4;  // the same on a device
constexpr std::uint64_t kMinStep = 1 << 20, kMaxStep = 64 << 20;       // bytes reserved at a time
constexpr std::uint64_t kKeptWarm = std::uint64_t{2} << 30;            // bytes of free dedicated segments kept reserved

// The bytes to request from the manager when no segment has room: for a block up to kDedicatedFrom its own size, for
// which the manager makes an arena; for a larger one the payload of a dedicated segment.
std::uint64_t payload_for(std::uint64_t bytes);

// How the memory of a heap's segments is reserved: in pages, within quotas; or as a whole, with the segment (devices).
enum class Backing { pages, whole };

class Heap {
   public:
    // Reserved bytes count for `slot` in the group. Both outlive the heap; a fork changes the number in `slot`.
    Heap(Group& group, const std::uint32_t& slot, Backing backing = Backing::pages)
        : group_(group), slot_(slot), backing_(backing) {}
    void adopt(Segment& segment);  // a segment that this process owns from now on
    void forget_all();             // after a fork: they are the parent's

    // Only room with reserved pages; no system call.
    Room quick(std::uint64_t bytes);
    // Any room; reserves pages if needed. Empty with refusal.error == 0: no segment has room.
    Room thorough(std::uint64_t bytes, Refusal& refusal);
    void put_back(const Room& room);
    void put_back(Segment& segment, std::uint32_t node);  // `node` may come from shared memory

    std::uint64_t trim();  // gives pages of free ranges back to the system; bytes
    // Removes the segments of which no block is used from this heap, and returns them. For Backing::whole.
    std::vector<Segment*> give_up_unused();
    std::uint64_t reserved_bytes() const;
    std::uint64_t free_bytes() const;  // of the reserved ones
    const std::vector<Segment*>& segments() const { return owned_; }
    // Whether a segment's descriptor was found to be lost since the last call.
    bool take_lost() { return std::exchange(lost_, false); }
    const char* check() const;

   private:
    std::uint64_t dedicated_from() const { return backing_ == Backing::pages ? kDedicatedFrom : kDeviceDedicatedFrom; }
    enum class Wanted { warm, any };  // with reserved pages only; or with pages still to be reserved, too
    Room quick_dedicated(std::uint64_t bytes, Wanted wanted);
    Room search(std::uint64_t bytes, Refusal& refusal);
    Room grow(Segment& arena, std::uint64_t bytes, Refusal& refusal);
    void note_reserved(Segment& segment, std::uint64_t more, std::uint64_t less);
    bool charge(std::uint64_t bytes, Refusal& refusal);
    void update_charge();
    bool is_refused(std::uint64_t bytes, Refusal& refusal);
    int reserve(Segment& segment, std::uint64_t offset, std::uint64_t bytes, Refusal& refusal);
    bool punch(Segment& segment, std::uint64_t from, std::uint64_t to);
    bool empty_bins();

    Group& group_;
    const std::uint32_t& slot_;
    const Backing backing_;
    bool lost_ = false;
    std::uint64_t charged_ = 0;  // bytes that count for our slot; between calls, the sum of all segments' `reserved`
    std::vector<Segment*> owned_;
    std::vector<Room> bins_[kBins];  // freed blocks by size, newest last; still `taken` in their Ranges
    std::uint64_t binned_ = 0;       // bytes in them
};

}  // namespace shmtensor
