#include "ipc/ring.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/failpoint.hpp"
#include "base/os.hpp"
#include "heap/client.hpp"

namespace shmtensor {
namespace {

constexpr int kAll = 0x7fffffff;         // sleepers
constexpr std::size_t kAlike = 1024;     // holds of a message; with more, room is made in one encoded message only
constexpr unsigned kGetterMoment = 1;    // ms that a producer that grows the ring waits for a consumer
constexpr unsigned kMetadataMoment = 1;  // ms that a reader with the lock waits for metadata

// The low half of a position changes with every message, and is the futex. If several threads sleep, one is woken. It
// wakes the next if there is something for that one too.
void wake(RingEnd& end, int max_woken = 1) {
    // SYNC: asleep
    if (end.asleep.load(std::memory_order_seq_cst) != 0 && end.asleep.exchange(0) != 0)
        os::futex_wake(end.at.word, max_woken);
}

std::uint32_t units_for(const EncodedMessage& encoded) {
    const std::uint64_t bytes = sizeof(Message) + encoded.holds.size() * sizeof(MessageHold) + encoded.body.size();
    const std::uint64_t units = (bytes + kRingUnit - 1) / kRingUnit;
    return units > kRingUnits ? kRingUnits + 1 : static_cast<std::uint32_t>(units);
}

const MessageHold* holds_of(const Message& message) {
    return reinterpret_cast<const MessageHold*>(&message + 1);
}

std::size_t keep_different(std::vector<std::uint64_t>& numbers) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    return numbers.size();
}

// The entry of a listed hold, or nullptr when its number is out of range.
Hold* entry_of(const MessageHold& hold, SegmentLookup& lookup, bool* found) {
    SegmentMetadata* metadata = lookup.find(hold.segment);
    *found = metadata != nullptr;
    if (!metadata) {
        lookup.missing = hold.segment;
        return nullptr;
    }
    return hold.hold < metadata->shape().holds ? &metadata->hold(hold.hold) : nullptr;
}

}  // namespace

void Ring::make(std::byte* at, std::uint32_t number) {
    auto* h = new (at) RingHeader{};
    h->magic = kRingMagic;
    h->version = kLayoutVersion;
    h->number = number;
    h->capacity.store(kFirstRingUnits);
    h->reserved_bytes.store(kFirstRingBytes);
    init_lock(h->tail.lock);
    init_lock(h->head.lock);
}

bool Ring::open(std::byte* at, std::uint64_t bytes, const os::Descriptor& file) {
    at_ = at;
    bytes_ = bytes;
    file_ = &file;
    if (bytes != kRingBytes) return false;
    const RingHeader& h = header();
    number_ = h.number;
    return h.magic == kRingMagic && h.version == kLayoutVersion && number_ >= kFirstRing && number_ <= kLastRing &&
           capacity() != 0;
}

// 0: damaged.
std::uint32_t Ring::capacity() const {
    const std::uint32_t units = header().capacity.load(std::memory_order_acquire);  // SYNC: capacity
    return units >= kFirstRingUnits && units <= kRingUnits && (units & (units - 1)) == 0 ? units : 0;
}

std::uint32_t Ring::size() const {
    // Head first: it never exceeds a tail that is read later.
    const std::uint32_t got = count_of(header().head.at.word.load(std::memory_order_acquire));  // SYNC: head
    return count_of(header().tail.at.word.load(std::memory_order_acquire)) - got;               // SYNC: tail
}

bool Ring::is_full() const {
    const RingHeader& h = header();
    const std::uint32_t max_messages = h.max_messages.load(std::memory_order_relaxed);
    const std::uint64_t bytes = h.max_bytes.load(std::memory_order_relaxed);
    const std::uint64_t got = h.head.bytes.load(std::memory_order_acquire);  // SYNC: bytes
    return (max_messages != 0 && size() >= max_messages) ||
           (bytes != 0 && h.tail.bytes.load(std::memory_order_relaxed) - got >= bytes && size() > 0);
}

Ring::Found Ring::message_at(std::uint32_t position) const {
    const std::uint32_t all = capacity();
    if (all == 0) return {nullptr, position, 0};
    // Read each field that bounds depend on once: the manager reads messages that others may be overwriting.
    const auto read = [](const auto& field) { return __atomic_load_n(&field, __ATOMIC_RELAXED); };
    for (int fillers = 0; fillers < 2; ++fillers) {
        const std::uint32_t at = position & (all - 1);
        const auto* message = reinterpret_cast<const Message*>(unit(position, all));
        const std::uint32_t units = read(message->units);
        if (units == 0 || units > all - at) return {nullptr, position, 0};
        position += units;
        if (message->flags & kFiller) continue;
        const std::uint32_t holds = read(message->holds);
        const std::uint64_t list = sizeof(Message) + std::uint64_t{holds} * sizeof(MessageHold);
        const std::uint64_t room = std::uint64_t{units} * kRingUnit;
        if (list > room || message->body_bytes > room - list) return {nullptr, position, 0};
        return {message, position, holds};
    }
    return {nullptr, position, 0};
}

// --------------------------------------------------------------------------------------------------------------- locks

// pre: we hold the lock, unless `locked` is busy.
RingStatus Ring::taken_over(End end, Locked locked, SegmentLookup& lookup, void (*drop)(Lock&)) {
    if (locked == Locked::busy) return RingStatus::busy;
    // The undo record, which stays until it is followed, has all that a dead holder can have left unfinished.
    if (locked == Locked::after_death) made_consistent(at(end).lock);
    SHMTENSOR_POINT("ring.locked");
    if (at(end).undo.word.load(std::memory_order_relaxed) == 0) [[likely]]
        return RingStatus::ok;
    const RingStatus undone = undo(end, lookup);
    if (undone != RingStatus::ok) drop(at(end).lock);
    return undone;
}

RingStatus Ring::take(End end, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms) {
    if (header().magic != kRingMagic) return RingStatus::damaged;  // its locks are not valid either
    return taken_over(end, take_lock(at(end).lock, slot, patience_ms), lookup, drop_lock);
}

RingStatus Ring::take_untrusted(End end, SegmentLookup& lookup) {
    if (header().magic != kRingMagic) return RingStatus::damaged;
    return taken_over(end, try_lock_untrusted(at(end).lock), lookup, drop_lock_untrusted);
}

// Take back what a dead holder of the lock did before its commit. Each store is idempotent: if this process dies too,
// the next one undoes again.
RingStatus Ring::undo(End end, SegmentLookup& lookup) {
    RingEnd& one = at(end);
    const std::uint64_t word = one.undo.word.load(std::memory_order_relaxed);
    if (units_of(one.at.word.load(std::memory_order_relaxed)) == units_of(word)) {  // not committed
        Found found = message_at(units_of(word));
        if (found.message && !is_written(found)) found = {nullptr, units_of(word), 0};
        for (std::uint32_t i = 0; i < found.holds; ++i) {
            const MessageHold hold = holds_of(*found.message)[i];
            bool known = false;
            Hold* held = entry_of(hold, lookup, &known);
            if (!known) return RingStatus::need_mapping;
            const std::uint64_t of_ring = hold_word(hold.block, number_, HoldKind::message);
            const bool got = end == End::head;
            const std::uint64_t from = got ? hold_word(hold.block, undo_slot(word), HoldKind::client) : of_ring;
            const std::uint64_t back = got ? of_ring : hold_word(hold.block, undo_slot(word), HoldKind::message);
            if (held && held->word.load(std::memory_order_relaxed) == from)
                held->word.store(back, std::memory_order_release);  // SYNC: hold
            SHMTENSOR_POINT("ring.undo.one");
        }
        if (found.message) one.bytes.store(found.message->bytes_before, std::memory_order_release);    // SYNC: bytes
        if (is_numbered(word)) one.commit_number.store(one.commit_before, std::memory_order_release);  // SYNC: commit
    }
    SHMTENSOR_POINT("ring.undo.done");
    one.undo.word.store(0, std::memory_order_release);  // SYNC: undo
    return RingStatus::ok;
}

bool Ring::has_transfer_of(std::uint32_t slot) const {
    const RingHeader& h = header();
    for (const Undo* record : {&h.tail.undo, &h.head.undo}) {
        const std::uint64_t word = record->word.load(std::memory_order_acquire);  // SYNC: undo
        if (word != 0 && undo_slot(word) == slot) return true;
    }
    return false;
}

std::vector<std::uint64_t> Ring::segments_to_undo(std::uint32_t slot) const {
    std::vector<std::uint64_t> segments;
    std::size_t bound = 4096;  // when to remove duplicates; a long list may name few segments
    const RingHeader& h = header();
    for (const Undo* record : {&h.tail.undo, &h.head.undo}) {
        const std::uint64_t word = record->word.load(std::memory_order_acquire);  // SYNC: undo
        if (word == 0 || undo_slot(word) != slot) continue;
        const Found found = message_at(units_of(word));
        if (!found.message || !is_written(found)) continue;
        for (std::uint32_t i = 0; i < found.holds; ++i) {
            const std::uint64_t segment = holds_of(*found.message)[i].segment;
            if (!segments.empty() && segments.back() == segment) continue;
            segments.push_back(segment);
            if (segments.size() == bound) bound = std::max(bound, 2 * keep_different(segments));
        }
    }
    keep_different(segments);
    return segments;
}

bool Ring::is_written(const Found& found) const {
    const auto* list = reinterpret_cast<const std::byte*>(holds_of(*found.message));
    const auto begin = static_cast<std::uint64_t>(list - at_);
    const std::uint64_t end = begin + std::uint64_t{found.holds} * sizeof(MessageHold);
    std::uint64_t from = 0, to = 0;
    if (found.holds == 0) return true;
    const os::Descriptor own = file_->duplicate();
    if (own.number() < 0) return true;  // of a client: it may read pages that were never written, as zeros
    return os::next_written(own.number(), begin, end, &from, &to) && from == begin && to == end;
}

std::vector<std::uint64_t> Ring::version() const {
    const RingHeader& h = header();
    std::vector<std::uint64_t> words;
    const std::uint32_t rows = std::min(h.readers_high.load(std::memory_order_acquire), kReaders);  // SYNC: rows
    words.reserve(4 + 2 * rows);
    for (const auto* word : {&h.head.at.word, &h.tail.at.word, &h.head.undo.word, &h.tail.undo.word})
        words.push_back(word->load(std::memory_order_acquire));  // SYNC: head, tail, undo
    const auto* readers = reinterpret_cast<const ReaderRow*>(at_ + kReadersAt);
    for (std::uint32_t i = 0; i < rows; ++i) {
        words.push_back(readers[i].owner.load(std::memory_order_acquire));        // SYNC: rows
        words.push_back(readers[i].cursor.word.load(std::memory_order_acquire));  // SYNC: cursor
    }
    return words;
}

RingStatus Ring::undo_transfers(std::uint32_t slot, SegmentLookup& lookup) {
    for (const End end : {End::tail, End::head}) {
        std::atomic<std::uint64_t>& record = at(end).undo.word;
        const std::uint64_t word = record.load(std::memory_order_acquire);  // SYNC: undo
        if (word == 0 || undo_slot(word) != slot) continue;
        const RingStatus taken = take_untrusted(end, lookup);
        if (taken == RingStatus::damaged) {              // no process can use it, so there is nothing to undo
            record.store(0, std::memory_order_release);  // SYNC: undo
            continue;
        }
        if (taken != RingStatus::ok) return taken;
        drop_lock_untrusted(at(end).lock);
    }
    return RingStatus::ok;
}

// ----------------------------------------------------------------------------------------------------------------- put

void Ring::note(RingEnd& end, std::uint32_t units, std::uint32_t slot, std::uint64_t commit) {
    if (commit != 0) end.commit_before = end.commit_number.load(std::memory_order_relaxed);
    end.undo.word.store(undo_word(units, slot, commit != 0), std::memory_order_release);  // SYNC: undo
    if (commit != 0) {
        SHMTENSOR_POINT("ring.note.noted");
        end.commit_number.store(commit, std::memory_order_release);  // SYNC: commit
        SHMTENSOR_POINT("ring.note.numbered");
    }
}

RingStatus Ring::put(std::span<const EncodedMessage> messages, std::uint32_t slot, SegmentLookup& lookup,
                     unsigned patience_ms, std::size_t* done, std::uint64_t commit) {
    RingHeader& h = header();
    *done = 0;
    CachedLookup cached(lookup);
    RingStatus result = take(End::tail, slot, lookup, patience_ms);
    if (result != RingStatus::ok) return result;
    while (*done < messages.size() && result == RingStatus::ok) {
        result = put_one(messages[*done], slot, cached, patience_ms, commit == 0 ? 0 : commit + *done);
        if (result == RingStatus::ok) ++*done;
    }
    const bool more_room = !is_full();
    drop_lock(h.tail.lock);
    if (*done > 0) {
        wake(h.tail, to_all_ ? kAll : 1);
        if (more_room) wake(h.head);
    }
    return result;
}

RingStatus Ring::put_one(const EncodedMessage& encoded, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms,
                         std::uint64_t commit) {
    RingHeader& h = header();
    const std::uint32_t units = units_for(encoded);
    const std::uint64_t max_bytes = h.max_bytes.load(std::memory_order_relaxed);
    if (units > kRingUnits / 2 || (max_bytes != 0 && encoded.bytes > max_bytes)) return RingStatus::too_large;
    const std::uint64_t tail = h.tail.at.word.load(std::memory_order_relaxed);
    const std::uint64_t head = h.head.at.word.load(std::memory_order_acquire);  // SYNC: head
    const std::uint32_t inside = count_of(tail) - count_of(head);
    const std::uint32_t max_messages = h.max_messages.load(std::memory_order_relaxed);
    const std::uint64_t before = h.tail.bytes.load(std::memory_order_relaxed);
    if (max_messages != 0 && inside >= max_messages) return RingStatus::full;
    if (max_bytes != 0 && inside > 0 &&
        before - h.head.bytes.load(std::memory_order_relaxed) + encoded.bytes > max_bytes)
        return RingStatus::full;
    std::uint32_t all = 0, filler = 0;
    for (;;) {
        all = capacity();
        if (all == 0) return RingStatus::damaged;
        const std::uint32_t at = units_of(tail) & (all - 1);
        filler = units > all - at ? all - at : 0;
        const std::uint32_t used = units_of(tail) - units_of(head);
        if (used > all) return RingStatus::damaged;
        if (units <= all && filler + units <= all - used) break;
        if (all == kRingUnits) return RingStatus::full;
        if (const RingStatus grown = grow(slot, lookup, patience_ms); grown != RingStatus::ok) return grown;
    }
    if (filler > 0) {
        auto* gap = reinterpret_cast<Message*>(unit(units_of(tail), all));
        gap->units = filler;
        gap->flags = kFiller;
    }
    std::byte* at = unit(units_of(tail) + filler, all);
    const auto holds = static_cast<std::uint32_t>(encoded.holds.size());
    *reinterpret_cast<Message*>(at) = {units,  encoded.flags, holds, encoded.mark, encoded.body.size(),
                                       before, encoded.bytes};
    at += sizeof(Message);
    if (holds > 0) std::memcpy(at, encoded.holds.data(), holds * sizeof(MessageHold));
    if (!encoded.body.empty()) std::memcpy(at + holds * sizeof(MessageHold), encoded.body.data(), encoded.body.size());
    SHMTENSOR_POINT("ring.put.written");
    note(h.tail, units_of(tail), slot, commit);
    SHMTENSOR_POINT("ring.put.noted");
    for (const MessageHold& hold : encoded.holds) {
        bool known = false;
        Hold* held = entry_of(hold, lookup, &known);
        // SYNC: hold
        if (held) held->word.store(hold_word(hold.block, number_, HoldKind::message), std::memory_order_release);
        SHMTENSOR_POINT("ring.put.one_moved");
    }
    h.tail.bytes.store(before + encoded.bytes, std::memory_order_release);  // not before the undo record; SYNC: bytes
    SHMTENSOR_POINT("ring.put.moved");
    h.tail.at.word.store(position_word(units_of(tail) + filler + units, count_of(tail) + 1));  // SYNC: tail
    SHMTENSOR_POINT("ring.put.published");
    h.tail.undo.word.store(0, std::memory_order_release);  // SYNC: undo
    SHMTENSOR_POINT("ring.put.cleared");
    if (inside + 1 > h.peak_messages.load(std::memory_order_relaxed))
        h.peak_messages.store(inside + 1, std::memory_order_relaxed);
    return RingStatus::ok;
}

// pre: tail.lock. Doubles the capacity. The messages that belong in the second half of the new ring are first copied
// there, and also stay where they are; the one store of `capacity` commits.
RingStatus Ring::grow(std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms) {
    RingHeader& h = header();
    const std::uint32_t all = capacity();
    // SYNC: reserved
    if (h.reserved_bytes.load(std::memory_order_acquire) < kMessagesAt + std::uint64_t{all} * 2 * kRingUnit)
        return RingStatus::no_room;
    if (patience_ms == 0) return RingStatus::busy;  // a caller without patience may hold the GIL
    if (const RingStatus taken = take(End::head, slot, lookup, kGetterMoment); taken != RingStatus::ok) return taken;
    const std::uint32_t head = units_of(h.head.at.word.load(std::memory_order_relaxed));
    const std::uint32_t tail = units_of(h.tail.at.word.load(std::memory_order_relaxed));
    for (std::uint32_t left = tail - head; left > 0;) {
        const std::uint32_t from = tail - left;
        const std::uint32_t part = std::min(left, all - (from & (all - 1)));
        if (from & all) std::memcpy(unit(from, all * 2), unit(from, all), std::size_t{part} * kRingUnit);
        left -= part;
    }
    SHMTENSOR_POINT("ring.grow.copied");
    h.capacity.store(all * 2, std::memory_order_release);  // SYNC: capacity
    SHMTENSOR_POINT("ring.grow.done");
    drop_lock(h.head.lock);
    return RingStatus::ok;
}

// A ring has no owner, and outlives the process that grew it. So its pages count for the caller while they are being
// reserved, and for the group once the header counts them: if the caller is killed in between, one of the two has
// counted them.
int Ring::reserve(std::uint64_t want, Group& group, std::uint32_t slot, Refusal& refusal) {
    refusal = {};
    RingHeader& h = header();
    const std::uint64_t have = h.reserved_bytes.load(std::memory_order_acquire);  // SYNC: reserved
    if (want == 0 || want > kRingBytes) return refusal.error = EINVAL;
    if (have >= want) return 0;
    refusal = {0, want - have, "", 0};
    if (const char* limit = group.charge(slot, want - have, Group::Checked::group, &refusal.room)) {
        refusal.error = EDQUOT;
        refusal.limit = limit;
    } else {
        SHMTENSOR_POINT("ring.reserve.charged");
        if (limits::reserve(*file_, at_, have, want - have, refusal) == 0) {
            SHMTENSOR_POINT("ring.reserve.done");
            std::uint64_t now = have;
            if (h.reserved_bytes.compare_exchange_strong(now, want)) {  // SYNC: reserved
                SHMTENSOR_POINT("ring.reserve.published");
                if (group.max_bytes() != 0) group.slot(0).reserved.fetch_add(want - have);
            }
        }
        SHMTENSOR_POINT("ring.reserve.counted");
        group.discharge(slot, want - have);
    }
    // Another producer may have used the room to grow the same ring.
    if (h.reserved_bytes.load(std::memory_order_acquire) >= want) refusal.error = 0;  // SYNC: reserved
    return refusal.error;
}

std::uint64_t Ring::doubled() const {
    const std::uint32_t all = capacity();
    return all == 0 ? 0 : kMessagesAt + std::uint64_t{std::min(all * 2, kRingUnits)} * kRingUnit;
}

void reserve(Ring& ring, std::uint64_t want, Client& client, Refusal& refusal) {
    if (ring.reserve(want, client.group(), client.slot(), refusal) == 0) return;
    std::uint64_t given = 0;
    const bool again = client.trim(&given) == Status::ok && given > 0;
    if (again && ring.reserve(want, client.group(), client.slot(), refusal) == 0) return;
    client.press_others(refusal);
}

// ----------------------------------------------------------------------------------------------------------------- get

RingStatus Ring::get(std::span<EncodedMessage> messages, std::uint32_t slot, SegmentLookup& lookup,
                     unsigned patience_ms, std::size_t* done, std::atomic<std::uint64_t>* receipt) {
    RingHeader& h = header();
    *done = 0;
    if (size() == 0) return h.magic == kRingMagic ? RingStatus::empty : RingStatus::damaged;
    CachedLookup cached(lookup);
    for (;;) {
        RingStatus result = take(End::head, slot, lookup, patience_ms);
        if (result != RingStatus::ok) return result;
        EncodedMessage::Room needed;
        while (*done < messages.size()) {
            result = get_one(messages[*done], slot, cached, receipt, needed);
            if (result != RingStatus::ok) break;
            ++*done;
        }
        const bool more = size() > 0;
        drop_lock(h.head.lock);
        if (*done > 0) {
            wake(h.head);
            if (more) wake(h.tail);
            return RingStatus::ok;
        }
        if (result != RingStatus::no_room) return result;
        // An encoded message keeps its room for the next message, and consecutive messages are usually alike.
        for (EncodedMessage& encoded : needed.holds < kAlike ? messages : messages.first(1)) encoded.make_room(needed);
    }
}

// The content of a message. need_mapping: one of its segments is not in the lookup.
RingStatus Ring::copy(const Found& found, EncodedMessage& into, SegmentLookup& lookup, EncodedMessage::Room& needed) {
    const Message& message = *found.message;
    const MessageHold* holds = holds_of(message);
    if (into.body.capacity() < message.body_bytes || into.holds.capacity() < message.holds) {
        needed = {message.body_bytes, message.holds};
        return RingStatus::no_room;
    }
    into.lost = false;
    for (std::uint32_t i = 0; i < found.holds && !into.lost; ++i) {
        if (lookup.find(holds[i].segment)) continue;
        if (!lookup.is_gone(holds[i].segment)) return RingStatus::need_mapping;
        into.lost = true;
    }
    const auto* body = reinterpret_cast<const std::byte*>(holds + message.holds);
    into.body.assign(body, body + message.body_bytes);
    into.holds.assign(holds, holds + (into.lost ? 0 : message.holds));
    into.flags = message.flags;
    into.mark = message.mark;
    into.bytes = message.bytes;
    return RingStatus::ok;
}

RingStatus Ring::hold(EncodedMessage& encoded, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms) {
    SegmentMetadata* metadata = nullptr;
    std::uint64_t segment = 0;
    std::size_t held = 0;
    RingStatus result = RingStatus::ok;
    for (; held < encoded.holds.size(); ++held) {
        MessageHold& hold = encoded.holds[held];
        if (!metadata || hold.segment != segment) {
            if (metadata) metadata->unlock();
            segment = hold.segment;
            metadata = lookup.find(segment);
            if (!metadata->lock(slot, patience_ms > 0 ? kMetadataMoment : 0)) {
                metadata = nullptr;
                result = RingStatus::busy;
                break;
            }
        }
        if (!metadata->is_live(hold.block, hold.generation)) {
            result = RingStatus::damaged;
            break;
        }
        hold.hold = metadata->add_hold(hold.block, slot, HoldKind::client, 0);
        if (hold.hold == kNone) {
            lookup.missing = segment;
            result = RingStatus::full;
            break;
        }
        SHMTENSOR_POINT("broadcast.read.one_held");
    }
    if (metadata) metadata->unlock();
    encoded.holds.resize(held);
    return result;
}

RingStatus Ring::get_one(EncodedMessage& encoded, std::uint32_t slot, SegmentLookup& lookup,
                         std::atomic<std::uint64_t>* receipt, EncodedMessage::Room& needed, std::uint64_t commit) {
    RingHeader& h = header();
    const std::uint64_t head = h.head.at.word.load(std::memory_order_relaxed);
    const std::uint64_t tail = h.tail.at.word.load(std::memory_order_acquire);  // SYNC: tail
    if (count_of(head) == count_of(tail)) return RingStatus::empty;
    const Found found = message_at(units_of(head));
    if (!found.message || found.next - units_of(head) > units_of(tail) - units_of(head)) return RingStatus::damaged;
    if (const RingStatus copied = copy(found, encoded, lookup, needed); copied != RingStatus::ok) return copied;
    const Message& message = *found.message;
    const auto of_ring = [&](const MessageHold& hold) { return hold_word(hold.block, number_, HoldKind::message); };
    // No hold of a lost message moves, and following an undo record would need segments that cannot be mapped.
    if (!encoded.lost) note(h.head, units_of(head), slot, commit);
    SHMTENSOR_POINT("ring.get.noted");
    for (const MessageHold& hold : encoded.holds) {
        bool known = false;
        Hold* held = entry_of(hold, lookup, &known);
        // Only holds of the ring (R3): an overwritten list must not change other entries.
        if (held && held->word.load(std::memory_order_relaxed) == of_ring(hold))
            held->word.store(hold_word(hold.block, slot, HoldKind::client), std::memory_order_release);  // SYNC: hold
        SHMTENSOR_POINT("ring.get.one_moved");
    }
    h.head.bytes.store(message.bytes_before + message.bytes, std::memory_order_release);  // SYNC: bytes
    // SYNC: receipt
    if (receipt) receipt->store(std::uint64_t{count_of(head)} + 1, std::memory_order_release);
    SHMTENSOR_POINT("ring.get.moved");
    h.head.at.word.store(position_word(found.next, count_of(head) + 1));  // SYNC: head
    SHMTENSOR_POINT("ring.get.taken");
    h.head.undo.word.store(0, std::memory_order_release);  // SYNC: undo
    SHMTENSOR_POINT("ring.get.cleared");
    return RingStatus::ok;
}

// --------------------------------------------------------------------------------------------------------------- moves

RingStatus Ring::gather(Run& run, const Run::Bounds& most, std::uint64_t at, std::uint64_t tail, std::uint32_t slot,
                        SegmentLookup& lookup, unsigned patience_ms, EncodedMessage::Room& needed) const {
    EncodedMessage& frames = run.frames;
    frames.body.clear();
    frames.lost = false;
    run.number = count_of(at);
    run.messages = 0;
    run.bytes = 0;
    for (std::uint32_t position = units_of(at);
         run.messages < most.messages && run.number + run.messages != count_of(tail);) {
        const Found found = message_at(position);
        if (!found.message || found.next - units_of(at) > units_of(tail) - units_of(at)) return RingStatus::damaged;
        const Message& message = *found.message;
        if (found.holds > 0 && run.messages > 0) break;
        const FrameHeader header{static_cast<std::uint32_t>(message.body_bytes), message.flags};
        const std::size_t size = frames.body.size() + sizeof header + message.body_bytes;
        if (run.messages > 0 && size > most.bytes) break;
        if (frames.body.capacity() < size || frames.holds.capacity() < found.holds) {
            needed = {std::max(size, most.bytes), found.holds};
            return RingStatus::no_room;
        }
        const MessageHold* holds = holds_of(message);
        for (std::uint32_t i = 0; i < found.holds && !frames.lost; ++i) {
            if (lookup.find(holds[i].segment)) continue;
            if (!lookup.is_gone(holds[i].segment)) return RingStatus::need_mapping;
            frames.lost = true;
        }
        const auto* head = reinterpret_cast<const std::byte*>(&header);
        const auto* body = reinterpret_cast<const std::byte*>(holds + found.holds);
        frames.body.insert(frames.body.end(), head, head + sizeof header);
        frames.body.insert(frames.body.end(), body, body + message.body_bytes);
        run.bytes += message.bytes;
        ++run.messages;
        position = found.next;
        if (found.holds == 0) continue;
        frames.holds.assign(holds, holds + (frames.lost ? 0 : found.holds));
        return hold(frames, slot, lookup, patience_ms);
    }
    return run.messages > 0 ? RingStatus::ok : RingStatus::empty;
}

RingStatus Ring::peek(Run& run, const Run::Bounds& most, std::uint32_t slot, SegmentLookup& lookup,
                      unsigned patience_ms) {
    run.frames.holds.clear();
    if (size() == 0) return header().magic == kRingMagic ? RingStatus::empty : RingStatus::damaged;
    for (;;) {
        CachedLookup cached(lookup);
        if (const RingStatus locked = take(End::head, slot, cached, patience_ms); locked != RingStatus::ok)
            return locked;
        const std::uint64_t head = header().head.at.word.load(std::memory_order_relaxed);
        const std::uint64_t tail = header().tail.at.word.load(std::memory_order_acquire);  // SYNC: tail
        EncodedMessage::Room needed;
        const RingStatus result = gather(run, most, head, tail, slot, cached, patience_ms, needed);
        drop_lock(header().head.lock);
        if (cached.missing != 0) lookup.missing = cached.missing;
        if (result != RingStatus::no_room) return result;
        run.frames.make_room(needed);
    }
}

RingStatus Ring::take(EncodedMessage& encoded, std::uint32_t number, std::uint32_t messages, std::uint64_t commit,
                      std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms) {
    RingHeader& h = header();
    encoded.holds.clear();
    for (;;) {
        CachedLookup cached(lookup);
        if (const RingStatus locked = take(End::head, slot, cached, patience_ms); locked != RingStatus::ok)
            return locked;
        const std::uint64_t head = h.head.at.word.load(std::memory_order_relaxed);
        EncodedMessage::Room needed;
        RingStatus result = RingStatus::empty;
        if (count_of(head) == number)
            result = messages == 1 ? get_one(encoded, slot, cached, nullptr, needed, commit)
                                   : take_plain(head, messages, commit, slot);
        drop_lock(h.head.lock);
        if (result == RingStatus::ok) {
            wake(h.head);
            if (size() > 0) wake(h.tail);
        }
        if (result != RingStatus::no_room) return result;
        encoded.make_room(needed);
    }
}

// pre: head.lock. Takes messages without holds, all at once.
RingStatus Ring::take_plain(std::uint64_t head, std::uint32_t messages, std::uint64_t commit, std::uint32_t slot) {
    RingHeader& h = header();
    const std::uint64_t tail = h.tail.at.word.load(std::memory_order_acquire);  // SYNC: tail
    if (count_of(tail) - count_of(head) < messages) return RingStatus::empty;
    std::uint32_t position = units_of(head);
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < messages; ++i) {
        const Found found = message_at(position);
        if (!found.message || found.holds > 0) return RingStatus::damaged;
        bytes = found.message->bytes_before + found.message->bytes;
        position = found.next;
    }
    note(h.head, units_of(head), slot, commit);
    h.head.bytes.store(bytes, std::memory_order_release);  // SYNC: bytes
    SHMTENSOR_POINT("ring.take.moved");
    h.head.at.word.store(position_word(position, count_of(head) + messages));  // SYNC: head
    SHMTENSOR_POINT("ring.take.taken");
    h.head.undo.word.store(0, std::memory_order_release);  // SYNC: undo
    return RingStatus::ok;
}

RingStatus Ring::commit_number(End end, std::uint64_t* number, std::uint32_t slot, SegmentLookup& lookup,
                               unsigned patience_ms) {
    if (const RingStatus locked = take(end, slot, lookup, patience_ms); locked != RingStatus::ok) return locked;
    *number = at(end).commit_number.load(std::memory_order_acquire);  // SYNC: commit
    drop_lock(at(end).lock);
    return RingStatus::ok;
}

// --------------------------------------------------------------------------------------------------------------- waits

constexpr auto kNoPause = [] { return false; };

// Wait until changed(), or until the word differs from `seen`, at most for kLook. Returns early after a pause().
template <class Word, class Changed, class Pause>
int Ring::await(const std::atomic<Word>& word, std::uint32_t seen, std::atomic<std::uint32_t>& asleep,
                std::uint64_t timeout_ns, Changed&& changed, Pause&& pause) {
    if (changed() || spin_.until(changed, timeout_ns) || pause()) return 0;
    asleep.store(1);  // SYNC: asleep
    if (changed()) return 0;
    const int result = os::futex_wait(word, seen, std::min(timeout_ns, kLook));
    // Others may still sleep here: the next process that changes the word must see the mark.
    asleep.store(1);
    return result == EINTR ? EINTR : 0;
}

int Ring::await_message(std::uint64_t timeout_ns) {
    RingHeader& h = header();
    const std::uint32_t seen = count_of(h.tail.at.word.load(std::memory_order_acquire));  // SYNC: tail
    const auto changed = [&] {
        return count_of(h.tail.at.word.load()) != count_of(h.head.at.word.load(std::memory_order_relaxed));
    };
    return await(h.tail.at.word, seen, h.tail.asleep, timeout_ns, changed, [&] {
        return messages_.pause(taken(), timeout_ns, [&] {
            return h.head.asleep.load() ? 0 : count_of(h.tail.at.word.load(std::memory_order_relaxed)) - seen;
        });
    });
}

int Ring::await_beyond(std::uint32_t put, std::uint64_t timeout_ns) {
    RingHeader& h = header();
    const auto changed = [&] { return count_of(h.tail.at.word.load()) != put; };
    return await(h.tail.at.word, put, h.tail.asleep, timeout_ns, changed, kNoPause);
}

void Ring::say_room() {
    RingHeader& h = header();
    wake(h.head);
}

int Ring::await_room(std::uint32_t taken, std::uint64_t timeout_ns) {
    RingHeader& h = header();
    const auto changed = [&] { return count_of(h.head.at.word.load()) != taken; };
    return await(h.head.at.word, taken, h.head.asleep, timeout_ns, changed, [&] {
        const std::uint32_t put = count_of(h.tail.at.word.load());
        return room_.pause(put, timeout_ns, [&] { return h.tail.asleep.load() ? 0 : this->taken() - taken; });
    });
}

int Ring::await_done(std::uint64_t timeout_ns) {
    RingHeader& h = header();
    const std::uint32_t seen = h.done.load(std::memory_order_acquire);  // SYNC: done
    const auto changed = [&] { return is_all_done() || h.done.load() != seen; };
    return await(h.done, seen, h.joiners_asleep, timeout_ns, changed, kNoPause);
}

bool Ring::announce(const os::Descriptor& event, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms) {
    const bool locked = take(End::head, slot, lookup, patience_ms) == RingStatus::ok;
    bool some = size() > 0, ours = true;
    if (!some || to_all_) {
        ours = os::event_clear(event);
        some = size() > 0;  // a put does not wait for this lock
    }
    if (some) ours = os::event_set(event);
    if (locked) drop_lock(header().head.lock);
    return ours;
}

bool Ring::is_all_done() const {
    const RingHeader& h = header();
    return h.done.load() == count_of(h.tail.at.word.load());
}

bool Ring::task_done() {
    RingHeader& h = header();
    std::uint32_t done = h.done.load();
    do {
        if (done == count_of(h.tail.at.word.load())) return false;
    } while (!h.done.compare_exchange_weak(done, done + 1));  // SYNC: done
    if (h.joiners_asleep.load() != 0 && is_all_done() && h.joiners_asleep.exchange(0) != 0)
        os::futex_wake(h.done, kAll);
    return true;
}

// ---------------------------------------------------------------------------------------------------------- inspection

const char* Ring::check(SegmentLookup& lookup) const {
    const RingHeader& h = header();
    if (h.tail.undo.word.load() != 0 || h.head.undo.word.load() != 0) return "R4: an undo record is left";
    const std::uint64_t head = h.head.at.word.load(), tail = h.tail.at.word.load();
    std::uint32_t position = units_of(head), messages = 0;
    while (position != units_of(tail)) {
        const Found found = message_at(position);
        if (!found.message) return "R1: an entry inside is not a message";
        if (found.next - units_of(head) > units_of(tail) - units_of(head)) return "R1: a message extends past the tail";
        for (std::uint32_t i = 0; i < found.message->holds; ++i) {
            const MessageHold& hold = holds_of(*found.message)[i];
            bool known = false;
            const Hold* held = entry_of(hold, lookup, &known);
            if (!held || held->word.load() != hold_word(hold.block, number_, HoldKind::message))
                return "R3: a block of a message inside is not held by the ring";
        }
        position = found.next;
        ++messages;
    }
    if (messages != count_of(tail) - count_of(head)) return "R2: the count differs from the messages";
    const std::uint64_t before = messages > 0 ? message_at(units_of(head)).message->bytes_before : h.tail.bytes.load();
    return h.head.bytes.load() == before ? nullptr : "R5: the bytes taken differ from those before the head";
}

}  // namespace shmtensor
