#include "heap/heap.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/failpoint.hpp"
#include "heap/segment.hpp"

namespace shmtensor {
namespace {

constexpr std::uint32_t kRecordStep = 16384;  // block records reserved at a time: 512 KiB

std::uint64_t page_up(std::uint64_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}
std::uint64_t page_down(std::uint64_t bytes) {
    return bytes / kPage * kPage;
}

}  // namespace

// The sizes of dedicated segments have eight steps per doubling. Otherwise a program whose blocks grow a little each
// time would own a segment of each size, with its descriptors. The unused part of a segment stays unreserved.
std::uint64_t payload_for(std::uint64_t bytes) {
    if (bytes <= kDedicatedFrom) return bytes;
    const std::uint64_t step = std::bit_floor(bytes - 1) / 8;
    return (bytes + step - 1) / step * step;
}

void Heap::adopt(Segment& segment) {
    segment.owned = true;
    if (!segment.is_dedicated()) segment.ranges = std::make_unique<Ranges>(segment.payload_bytes, kArenaBlocks);
    if (backing_ == Backing::whole) {
        segment.reserved = segment.payload_bytes;
        segment.metadata.header().reserved_bytes.store(segment.reserved, std::memory_order_relaxed);
        if (segment.ranges) {
            const std::uint32_t all = segment.ranges->take(segment.payload_bytes, Ranges::State::cold);
            segment.ranges->give(all, Ranges::State::warm);
        }
    }
    owned_.push_back(&segment);
}

void Heap::forget_all() {
    for (Segment* s : owned_) {
        s->owned = false;
        s->ranges.reset();
    }
    owned_.clear();
    for (auto& bin : bins_) bin.clear();
    binned_ = 0;
    charged_ = 0;
}

Room Heap::quick(std::uint64_t bytes) {
    const std::uint64_t size = rounded(bytes);
    if (bytes > dedicated_from()) return quick_dedicated(bytes, Wanted::warm);
    if (size <= kBinnedUpTo) {
        auto& bin = bins_[bin_of(size)];
        if (!bin.empty()) {
            const Room room = bin.back();
            bin.pop_back();
            binned_ -= size;
            return room;
        }
    }
    for (Segment* s : owned_) {
        if (s->is_dedicated()) continue;
        const std::uint32_t node = s->ranges->take(size, Ranges::State::warm);
        if (node == kNone) continue;
        if (node >= s->blocks_reserved) {  // its record has no page yet: thorough() reserves it
            s->ranges->give(node, Ranges::State::warm);
            continue;
        }
        return {s, node, (*s->ranges)[node].offset};
    }
    return {};
}

Room Heap::quick_dedicated(std::uint64_t bytes, Wanted wanted) {
    Segment* best = nullptr;
    for (Segment* s : owned_) {
        if (!s->is_dedicated() || !s->free || s->payload_bytes < bytes) continue;
        if (s->payload_bytes - bytes > s->payload_bytes / 4) continue;  // would waste too much
        if (wanted == Wanted::warm && (s->reserved < bytes || s->blocks_reserved == 0)) continue;
        if (!best || s->payload_bytes < best->payload_bytes) best = s;
    }
    if (!best) return {};
    best->free = false;
    return {best, 0, 0};
}

// Count bytes for this process before they are reserved. False: a quota would be exceeded.
bool Heap::charge(std::uint64_t bytes, Refusal& refusal) {
    refusal = {0, bytes, "", 0};
    const char* limit = group_.charge(slot_, bytes, Group::Checked::group_and_client, &refusal.room);
    if (!limit) {
        charged_ += bytes;
        return true;
    }
    refusal.error = EDQUOT;
    refusal.limit = limit;
    return false;
}

// After reserving and giving back, make the charge equal to what is reserved. Parts of a range may have had pages
// before.
void Heap::update_charge() {
    const std::uint64_t reserved = reserved_bytes();
    group_.discharge(slot_, charged_ - reserved);  // below 0 it wraps, as the sum does
    charged_ = reserved;
}

int Heap::reserve(Segment& segment, std::uint64_t offset, std::uint64_t bytes, Refusal& refusal) {
    const std::uint64_t from = page_down(offset), to = page_up(offset + bytes);
    os::Facts facts;
    if (segment.file.facts(&facts) == 0 && facts.bytes < segment.payload_bytes) {
        refusal = {ESTALE, to - from, "", 0};  // truncated: reserving would extend it, and hide the lost content
        return refusal.error;
    }
    if (!charge(to - from, refusal)) return refusal.error;
    SHMTENSOR_POINT("heap.reserve.charged");
    // The first and the last page of a range may be shared with its neighbours.
    const std::uint64_t inner_from = page_up(offset), inner_to = std::max(inner_from, page_down(offset + bytes));
    if (limits::reserve(segment.file, segment.payload, from, to - from, refusal) == 0) {
        SHMTENSOR_POINT("heap.reserve.done");
        note_reserved(segment, inner_to - inner_from, 0);
    } else if (inner_to > inner_from) {
        punch(segment, inner_from, inner_to);  // a part may have got pages
    }
    update_charge();
    return refusal.error;
}

bool Heap::punch(Segment& segment, std::uint64_t from, std::uint64_t to) {
    return os::punch(segment.file, segment.payload, from, to - from) == 0;
}

// Checked before a segment is requested: if the memory were then refused, the segment would remain, with its
// descriptors.
bool Heap::is_refused(std::uint64_t bytes, Refusal& refusal) {
    if (!charge(bytes, refusal)) return true;
    update_charge();
    return limits::ask(bytes, refusal) != 0;
}

// The reserved pages of a dedicated segment are a prefix, and are counted. Those of an arena lie anywhere, so the file
// is asked; without its descriptor they are counted, which may give a few pages too many.
void Heap::note_reserved(Segment& segment, std::uint64_t more, std::uint64_t less) {
    segment.reserved = std::min(segment.reserved + more - std::min(segment.reserved, less), segment.payload_bytes);
    os::Facts facts;
    const bool known = segment.file.facts(&facts) == 0;
    if (!segment.is_dedicated() && known) segment.reserved = facts.reserved;
    if (!known && !segment.lost) lost_ = true;
    segment.lost = !known;
    segment.metadata.header().reserved_bytes.store(segment.reserved, std::memory_order_relaxed);
}

Room Heap::grow(Segment& arena, std::uint64_t bytes, Refusal& refusal) {
    const std::uint64_t size = rounded(bytes);
    const std::uint64_t step = page_up(std::clamp(arena.reserved / 4, kMinStep, kMaxStep));
    for (const std::uint64_t want : {std::max(size, step), size}) {
        const std::uint32_t node = arena.ranges->take(want, Ranges::State::cold);
        if (node == kNone) continue;
        const auto& range = (*arena.ranges)[node];
        if (reserve(arena, range.offset, range.bytes, refusal) != 0) {
            arena.ranges->give(node, Ranges::State::cold);
            continue;
        }
        arena.ranges->cut(node, size, Ranges::State::warm);
        return {&arena, node, (*arena.ranges)[node].offset};
    }
    return {};
}

Room Heap::thorough(std::uint64_t bytes, Refusal& refusal) {
    Room room = search(bytes, refusal);
    // Our own free ranges may hold enough memory. A request that even they could not satisfy must not cool them.
    if (!room && refusal.error && bytes <= refusal.room + free_bytes()) {
        trim();
        room = search(bytes, refusal);
    }
    return room;
}

Room Heap::search(std::uint64_t bytes, Refusal& refusal) {
    refusal = {};
    for (Segment* s : owned_) {  // pages for more records, where the last step is used up
        const std::uint32_t nodes = s->is_dedicated() ? 1 : s->ranges->node_count() + 2;
        if (nodes <= s->blocks_reserved) continue;
        const std::uint32_t want = std::min(s->metadata.shape().blocks, nodes + kRecordStep);
        if (want == s->blocks_reserved) continue;
        if (const int error = s->metadata.reserve_blocks(want, refusal)) {
            if (error == EBADF) continue;  // its descriptor is lost, and the kernel is old
            return {};
        }
        s->blocks_reserved = want;
    }
    if (bytes > dedicated_from()) {
        const Room room = quick_dedicated(bytes, Wanted::any);
        if (!room) {
            if (backing_ == Backing::whole || !is_refused(page_up(bytes), refusal)) refusal = {};
            return {};
        }
        if (room.segment->reserved < bytes &&
            reserve(*room.segment, room.segment->reserved, page_up(bytes) - room.segment->reserved, refusal) != 0) {
            put_back(room);
            return {};
        }
        return room;
    }
    if (const Room room = quick(bytes)) return room;
    if (binned_ >= bytes && binned_ >= reserved_bytes() / 8 && empty_bins())
        if (const Room room = quick(bytes)) return room;
    Refusal first;
    for (Segment* s : owned_) {
        if (s->is_dedicated()) continue;
        Room room = grow(*s, bytes, refusal);
        if (refusal.error && !first.error) first = refusal;
        if (!room && !refusal.error && s->ranges->join_all()) room = grow(*s, bytes, refusal);
        if (!room) continue;
        if (room.node >= s->blocks_reserved) {
            put_back(room);
            continue;
        }
        return room;
    }
    refusal = first;
    return {};
}

void Heap::put_back(Segment& segment, std::uint32_t node) {
    const bool known = segment.is_dedicated() ? node == 0 && !segment.free
                                              : node < segment.ranges->node_count() &&
                                                    (*segment.ranges)[node].state == Ranges::State::taken;
    if (known) put_back(Room{&segment, node, 0});
}

void Heap::put_back(const Room& room) {
    Segment& s = *room.segment;
    if (s.is_dedicated()) {
        s.free = true;
        if (backing_ == Backing::whole) return;
        std::uint64_t warm = 0;
        for (const Segment* other : owned_)
            if (other->is_dedicated() && other->free) warm += other->reserved;
        const bool excess = warm > kKeptWarm && s.reserved > 0 && punch(s, 0, s.payload_bytes);
        note_reserved(s, 0, excess ? s.reserved : 0);
        update_charge();
        return;
    }
    const auto& range = (*s.ranges)[room.node];
    if (range.bytes <= kBinnedUpTo && rounded(range.bytes) == range.bytes) {
        bins_[bin_of(range.bytes)].push_back({&s, room.node, range.offset});
        binned_ += range.bytes;
    } else {
        s.ranges->give(room.node, Ranges::State::warm);
    }
}

bool Heap::empty_bins() {
    bool any = false;
    for (auto& bin : bins_) {
        for (const Room& room : bin) room.segment->ranges->give(room.node, Ranges::State::warm);
        any = any || !bin.empty();
        bin.clear();
    }
    binned_ = 0;
    return any;
}

std::uint64_t Heap::trim() {
    if (backing_ == Backing::whole) return 0;
    empty_bins();
    std::uint64_t given = 0;
    for (Segment* s : owned_) {
        const std::uint64_t before = s->reserved;
        std::uint64_t less = 0;
        if (s->is_dedicated()) {
            if (s->free && s->reserved > 0 && punch(*s, 0, s->payload_bytes)) less = s->reserved;
        } else {
            for (std::uint32_t node = 0; node < s->ranges->node_count(); ++node) {
                const auto range = (*s->ranges)[node];
                const std::uint64_t from = page_up(range.offset), to = page_down(range.offset + range.bytes);
                if (to <= from || !s->ranges->take_whole(node)) continue;
                const bool punched = punch(*s, from, to);
                if (punched && range.state == Ranges::State::warm) less += to - from;
                s->ranges->give(node, punched ? Ranges::State::cold : range.state);
            }
        }
        note_reserved(*s, 0, less);
        given += before - std::min(before, s->reserved);
    }
    update_charge();
    return given;
}

std::vector<Segment*> Heap::give_up_unused() {
    empty_bins();
    std::vector<Segment*> unused;
    std::erase_if(owned_, [&](Segment* s) {
        if (s->is_dedicated() ? !s->free : s->ranges->taken_bytes() != 0) return false;
        s->owned = false;
        s->ranges.reset();
        unused.push_back(s);
        return true;
    });
    return unused;
}

std::uint64_t Heap::reserved_bytes() const {
    std::uint64_t bytes = 0;
    for (const Segment* s : owned_) bytes += s->reserved;
    return bytes;
}

std::uint64_t Heap::free_bytes() const {
    std::uint64_t bytes = binned_;
    for (const Segment* s : owned_) {
        const std::uint64_t used = s->is_dedicated() ? (s->free ? 0 : s->reserved) : s->ranges->taken_bytes();
        bytes += s->reserved - std::min(s->reserved, used);
    }
    return bytes;
}

const char* Heap::check() const {
    for (const Segment* s : owned_) {
        if (!s->ranges) continue;
        if (const char* wrong = s->ranges->check()) return wrong;
        for (std::uint32_t b = 0; b < s->metadata.header().blocks_high.load(); ++b)
            if (s->metadata.block(b).count > 0 && (*s->ranges)[b].state != Ranges::State::taken)
                return "a live block lies in a free range";
    }
    return nullptr;
}

}  // namespace shmtensor
