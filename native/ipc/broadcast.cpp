#include "ipc/broadcast.hpp"

#include <algorithm>

#include "base/failpoint.hpp"

namespace shmtensor {
namespace {

std::atomic<std::uint16_t> last_serial{0};  // of this process's readers

}  // namespace

std::uint32_t Broadcast::rows() const {
    return std::min(ring_.header().readers_high.load(std::memory_order_acquire), kReaders);  // SYNC: rows
}

// False: the slot of the row's owner is free or has another owner.
bool Broadcast::lives(std::uint64_t owner) const {
    const std::uint32_t slot = reader_slot(owner);
    if (slot >= kMaxSlots) return false;
    if (slot == 0) return true;
    const std::uint64_t word = group_.slot(slot).word.load(std::memory_order_acquire);  // SYNC: slot
    const SlotState state = state_of(word);
    return generation_of(word) == static_cast<std::uint32_t>(owner >> 32) &&
           (state == SlotState::client || state == SlotState::embryo);
}

// pre: head.lock. Whether there are readers other than `but`, and whether one of them lacks the message at `head`.
// Clears the rows of dead readers.
Broadcast::Lag Broadcast::find_lagging(std::uint64_t head, std::uint32_t but) {
    Lag lag{but != kNone, false};
    for (std::uint32_t i = 0, all = rows(); i < all && !lag.lacking; ++i) {
        if (i == but) continue;
        ReaderRow& one = row(i);
        std::uint64_t owner = one.owner.load(std::memory_order_acquire);  // SYNC: rows
        if (owner == 0) continue;
        if (!lives(owner)) {
            one.owner.compare_exchange_strong(owner, 0);  // SYNC: rows
            SHMTENSOR_POINT("broadcast.look.cleared");
            continue;
        }
        lag.anybody = true;
        lag.lacking = one.cursor.word.load(std::memory_order_relaxed) == head;
    }
    return lag;
}

RingStatus Broadcast::join(Reader& reader, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms,
                           bool from_oldest) {
    const std::uint64_t me = group_.slot(slot).word.load(std::memory_order_acquire);  // SYNC: slot
    return join_as(reader_word(generation_of(me), ++last_serial, slot), reader, slot, lookup, patience_ms, from_oldest);
}

RingStatus Broadcast::join_kept(Reader& reader, std::uint64_t id, std::uint32_t slot, SegmentLookup& lookup,
                                unsigned patience_ms) {
    const std::uint64_t owner = reader_word(static_cast<std::uint32_t>(id >> 16), static_cast<std::uint16_t>(id), 0);
    for (std::uint32_t i = 0, all = rows(); i < all; ++i) {
        if (row(i).owner.load(std::memory_order_acquire) != owner) continue;  // SYNC: rows
        reader.row = i;
        reader.owner = owner;
        reader.next = count_of(row(i).cursor.word.load(std::memory_order_acquire));  // SYNC: cursor
        reader.missed = reader.skipped = 0;
        return RingStatus::ok;
    }
    return join_as(owner, reader, slot, lookup, patience_ms, false);
}

RingStatus Broadcast::join_as(std::uint64_t owner_word, Reader& reader, std::uint32_t slot, SegmentLookup& lookup,
                              unsigned patience_ms, bool from_oldest) {
    RingHeader& h = ring_.header();
    CachedLookup cached(lookup);
    if (const RingStatus taken = ring_.take(End::head, slot, cached, patience_ms); taken != RingStatus::ok)
        return taken;
    const std::uint32_t high = rows();
    std::uint32_t index = 0;
    while (index < high) {
        const std::uint64_t owner = row(index).owner.load(std::memory_order_acquire);  // SYNC: rows
        if (owner == 0 || !lives(owner)) break;
        ++index;
    }
    if (index < kReaders) {
        ReaderRow& mine = row(index);
        mine.owner.store(0, std::memory_order_relaxed);
        SHMTENSOR_POINT("broadcast.join.found");
        // SYNC: head, tail
        const std::uint64_t from = (from_oldest ? h.head : h.tail).at.word.load(std::memory_order_acquire);
        mine.cursor.word.store(from, std::memory_order_release);                       // SYNC: cursor
        if (index == high) h.readers_high.store(high + 1, std::memory_order_release);  // SYNC: rows
        SHMTENSOR_POINT("broadcast.join.placed");
        reader.row = index;
        reader.owner = owner_word;
        reader.next = count_of(from);
        reader.missed = reader.skipped = 0;
        mine.owner.store(reader.owner, std::memory_order_release);  // SYNC: rows
        SHMTENSOR_POINT("broadcast.join.joined");
    }
    drop_lock(h.head.lock);
    return index < kReaders ? RingStatus::ok : RingStatus::full;
}

bool Broadcast::has(const Reader& reader) const {
    return reader.owner != 0 && row(reader.row).owner.load(std::memory_order_acquire) == reader.owner;  // SYNC: rows
}

void Broadcast::leave(const Reader& reader) {
    std::uint64_t owner = reader.owner;
    row(reader.row).owner.compare_exchange_strong(owner, 0);  // SYNC: rows
    SHMTENSOR_POINT("broadcast.left");
    ring_.say_room();
}

// ---------------------------------------------------------------------------------------------------------------- read

RingStatus Broadcast::read(EncodedMessage& encoded, Reader& reader, Next next, std::uint32_t slot,
                           SegmentLookup& lookup, unsigned patience_ms) {
    encoded.holds.clear();
    if (lag(reader) == 0) return RingStatus::empty;
    RingHeader& h = ring_.header();
    for (;;) {
        CachedLookup cached(lookup);
        if (const RingStatus taken = ring_.take(End::head, slot, cached, patience_ms); taken != RingStatus::ok)
            return taken;
        const std::uint64_t head = h.head.at.word.load(std::memory_order_relaxed);
        EncodedMessage::Room needed;
        const RingStatus result = read_one(encoded, reader, next, slot, cached, patience_ms, needed);
        const bool moved = h.head.at.word.load(std::memory_order_relaxed) != head;
        drop_lock(h.head.lock);
        if (moved) ring_.say_room();
        if (result == RingStatus::full) lookup.missing = cached.missing;
        if (result != RingStatus::no_room) return result;
        encoded.make_room(needed);
    }
}

RingStatus Broadcast::peek(Run& run, const Reader& reader, const Run::Bounds& most, std::uint32_t slot,
                           SegmentLookup& lookup, unsigned patience_ms) {
    run.frames.holds.clear();
    if (lag(reader) == 0) return RingStatus::empty;
    RingHeader& h = ring_.header();
    for (;;) {
        CachedLookup cached(lookup);
        if (const RingStatus taken = ring_.take(End::head, slot, cached, patience_ms); taken != RingStatus::ok)
            return taken;
        EncodedMessage::Room needed;
        RingStatus result = RingStatus::empty;
        if (has(reader)) {
            const std::uint64_t cursor = row(reader.row).cursor.word.load(std::memory_order_relaxed);
            const std::uint64_t tail = h.tail.at.word.load(std::memory_order_acquire);  // SYNC: tail
            result = ring_.gather(run, most, cursor, tail, slot, cached, patience_ms, needed);
        }
        drop_lock(h.head.lock);
        if (cached.missing != 0) lookup.missing = cached.missing;
        if (result != RingStatus::no_room) return result;
        run.frames.make_room(needed);
    }
}

bool Broadcast::is_inside(std::uint64_t at, const Ring::Found& found, std::uint64_t head, std::uint64_t tail) const {
    return found.message && found.next - units_of(at) <= units_of(tail) - units_of(at) &&
           units_of(at) - units_of(head) <= units_of(tail) - units_of(head);
}

// pre: head.lock; a message is at `at`. Moves it to the last one before the tail. False: damaged.
bool Broadcast::newest(std::uint64_t* at, std::uint64_t head, std::uint64_t tail) const {
    while (count_of(*at) + 1 != count_of(tail)) {
        const Ring::Found found = ring_.message_at(units_of(*at));
        if (!is_inside(*at, found, head, tail)) return false;
        *at = position_word(found.next, count_of(*at) + 1);
    }
    return true;
}

// pre: head.lock. no_room: as Ring::get_one.
RingStatus Broadcast::read_one(EncodedMessage& encoded, Reader& reader, Next next, std::uint32_t slot,
                               SegmentLookup& lookup, unsigned patience_ms, EncodedMessage::Room& needed) {
    RingHeader& h = ring_.header();
    ReaderRow& mine = row(reader.row);
    if (mine.owner.load(std::memory_order_relaxed) != reader.owner) return RingStatus::empty;
    const std::uint64_t cursor = mine.cursor.word.load(std::memory_order_relaxed);
    const std::uint64_t head = h.head.at.word.load(std::memory_order_relaxed);
    const std::uint64_t tail = h.tail.at.word.load(std::memory_order_acquire);  // SYNC: tail
    if (count_of(cursor) == count_of(tail)) return RingStatus::empty;
    std::uint64_t at = cursor;
    if (next == Next::newest && !newest(&at, head, tail)) return RingStatus::damaged;
    const Ring::Found found = ring_.message_at(units_of(at));
    if (!is_inside(at, found, head, tail)) return RingStatus::damaged;
    const std::uint32_t before = reader.next.load(std::memory_order_relaxed), number = count_of(at);
    const std::uint64_t beyond = position_word(found.next, number + 1);
    RingStatus result = RingStatus::ok;
    if (at == head && !find_lagging(head, reader.row).lacking) {
        // The cursor moves first, so that it never is behind the head. A process that dies in between no longer needs
        // it.
        reader.next.store(number + 1, std::memory_order_relaxed);
        mine.cursor.word.store(beyond, std::memory_order_release);  // SYNC: cursor
        SHMTENSOR_POINT("broadcast.read.last");
        result = ring_.get_one(encoded, slot, lookup, nullptr, needed);
        if (result != RingStatus::ok) {
            mine.cursor.word.store(cursor, std::memory_order_release);  // SYNC: cursor
            reader.next.store(before, std::memory_order_relaxed);
            return result;
        }
    } else {
        if (const RingStatus copied = Ring::copy(found, encoded, lookup, needed); copied != RingStatus::ok)
            return copied;
        if (const RingStatus held = Ring::hold(encoded, slot, lookup, patience_ms); held != RingStatus::ok) return held;
        SHMTENSOR_POINT("broadcast.read.held");
        reader.next.store(number + 1, std::memory_order_relaxed);
        mine.cursor.word.store(beyond, std::memory_order_release);  // SYNC: cursor
        SHMTENSOR_POINT("broadcast.read.moved");
    }
    const auto add = [](std::atomic<std::uint64_t>& count, std::uint32_t more) {
        count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    };
    add(reader.missed, count_of(cursor) - before);
    add(reader.skipped, number - count_of(cursor));
    return RingStatus::ok;
}

// ---------------------------------------------------------------------------------------------------------------- drop

RingStatus Broadcast::drop(EncodedMessage& encoded, Drop which, std::uint32_t taken, std::uint32_t slot,
                           SegmentLookup& lookup, unsigned patience_ms) {
    encoded.holds.clear();
    if (ring_.size() == 0) return RingStatus::empty;
    RingHeader& h = ring_.header();
    for (;;) {
        CachedLookup cached(lookup);
        if (const RingStatus locked = ring_.take(End::head, slot, cached, patience_ms); locked != RingStatus::ok)
            return locked;
        EncodedMessage::Room needed;
        const RingStatus result = drop_one(encoded, which, taken, slot, cached, needed);
        drop_lock(h.head.lock);
        if (result == RingStatus::ok) ring_.say_room();
        if (result != RingStatus::no_room) return result;
        encoded.make_room(needed);
    }
}

// pre: head.lock.
RingStatus Broadcast::drop_one(EncodedMessage& encoded, Drop which, std::uint32_t taken, std::uint32_t slot,
                               SegmentLookup& lookup, EncodedMessage::Room& needed) {
    RingHeader& h = ring_.header();
    const std::uint64_t head = h.head.at.word.load(std::memory_order_relaxed);
    // SYNC: tail
    if (count_of(head) == count_of(h.tail.at.word.load(std::memory_order_acquire))) return RingStatus::empty;
    const Lag lag = find_lagging(head, kNone);
    // If others have made room in between, no reader has to miss a message yet.
    if (lag.lacking && (which != Drop::oldest || count_of(head) != taken)) return RingStatus::empty;
    if (!lag.anybody && which == Drop::passed) return RingStatus::empty;
    if (lag.lacking) {
        const Ring::Found found = ring_.message_at(units_of(head));
        if (!found.message) return RingStatus::damaged;
        // Before the message is taken out, so that no cursor ever is behind the head. If the message stays because this
        // process dies or has to begin again, these readers miss it all the same.
        for (std::uint32_t i = 0, all = rows(); i < all; ++i) {
            std::atomic<std::uint64_t>& cursor = row(i).cursor.word;
            if (cursor.load(std::memory_order_relaxed) == head)
                // SYNC: cursor
                cursor.store(position_word(found.next, count_of(head) + 1), std::memory_order_release);
            SHMTENSOR_POINT("broadcast.drop.one_moved");
        }
    }
    SHMTENSOR_POINT("broadcast.drop.moved");
    return ring_.get_one(encoded, slot, lookup, nullptr, needed);
}

// --------------------------------------------------------------------------------------------------- waits, inspection

std::uint32_t Broadcast::lag(const Reader& reader) const {
    const std::uint32_t next = count_of(row(reader.row).cursor.word.load(std::memory_order_acquire));  // SYNC: cursor
    return count_of(ring_.header().tail.at.word.load(std::memory_order_acquire)) - next;               // SYNC: tail
}

std::uint32_t Broadcast::next(const Reader& reader) const {
    return count_of(row(reader.row).cursor.word.load(std::memory_order_acquire));  // SYNC: cursor
}

std::uint64_t Broadcast::missed(const Reader& reader) const {
    const std::uint32_t at = count_of(row(reader.row).cursor.word.load(std::memory_order_acquire));  // SYNC: cursor
    const auto since = static_cast<std::int32_t>(at - reader.next.load(std::memory_order_relaxed));
    return reader.missed.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(std::max(since, 0));
}

int Broadcast::await(const Reader& reader, std::uint64_t timeout_ns) {
    const std::uint64_t cursor = row(reader.row).cursor.word.load(std::memory_order_acquire);  // SYNC: cursor
    return ring_.await_beyond(count_of(cursor), timeout_ns);
}

std::vector<Broadcast::Member> Broadcast::members() const {
    std::vector<Member> found;
    for (std::uint32_t i = 0, all = rows(); i < all; ++i) {
        const std::uint64_t owner = row(i).owner.load(std::memory_order_acquire);  // SYNC: rows
        if (owner == 0 || !lives(owner)) continue;
        const std::uint32_t next = count_of(row(i).cursor.word.load(std::memory_order_acquire));  // SYNC: cursor
        found.push_back({reader_slot(owner), count_of(ring_.header().tail.at.word.load()) - next});
    }
    return found;
}

const char* Broadcast::check() const {
    const std::uint64_t head = ring_.header().head.at.word.load(), tail = ring_.header().tail.at.word.load();
    for (std::uint32_t i = 0, all = rows(); i < all; ++i) {
        const std::uint64_t owner = row(i).owner.load(), cursor = row(i).cursor.word.load();
        if (owner == 0 || !lives(owner)) continue;
        std::uint64_t at = head;
        while (at != cursor) {
            if (at == tail) return "C1: the cursor of a reader names no message";
            const Ring::Found found = ring_.message_at(units_of(at));
            if (!found.message) return "R1: an entry inside is not a message";
            at = position_word(found.next, count_of(at) + 1);
        }
    }
    return nullptr;
}

}  // namespace shmtensor
