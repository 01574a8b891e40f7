// The records of a store, and what is derived from them: hash chains, the ordered list, free records, counts.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/failpoint.hpp"
#include "base/os.hpp"
#include "ipc/store.hpp"

namespace shmtensor {
namespace {

constexpr int kAll = 0x7fffffff;            // sleepers
constexpr std::uint32_t kMoreUnits = 4096;  // minimum that is reserved at a time: 256 KiB
constexpr std::uint32_t kMostChains = kFirstChains << (kStoreChunks - 1);

// Classes of record lengths: one per unit up to 8 units, then four per doubling.
std::uint32_t class_of(std::uint32_t units) {
    if (units <= 8) return units;
    const auto shift = static_cast<std::uint32_t>(std::bit_width(units - 1)) - 3;  // of the step between two lengths
    return 8 + (shift - 1) * 4 + ((units - 1) >> shift) - 3;
}
std::uint32_t rounded(std::uint32_t units) {
    if (units <= 8) return units;
    const auto shift = static_cast<std::uint32_t>(std::bit_width(units - 1)) - 3;
    return (((units - 1) >> shift) + 1) << shift;
}

std::uint64_t mix(std::uint64_t a) {
    a ^= a >> 32;
    a *= 0xe9846af9b1a615d;
    a ^= a >> 32;
    a *= 0xe9846af9b1a615d;
    return a ^ a >> 28;
}

}  // namespace

StoreKey::StoreKey(std::string_view key) : text(key), hash(mix(key.size())) {
    std::size_t at = 0;
    for (; at < key.size(); at += sizeof hash) {
        std::uint64_t part = 0;
        std::memcpy(&part, key.data() + at, std::min(sizeof part, key.size() - at));
        hash = mix(hash ^ part);
    }
}

// ------------------------------------------------------------------------------------------------------------- records

std::uint32_t Store::units_of(std::uint64_t bytes) {
    const std::uint64_t units = (bytes + kRingUnit - 1) / kRingUnit;
    return units > kRingUnits ? kRingUnits + 1 : static_cast<std::uint32_t>(units);
}

std::span<const MessageHold> Store::holds(std::uint32_t at) const {
    const Message& m = message(at);
    return {reinterpret_cast<const MessageHold*>(&m + 1), m.holds};
}

std::string_view Store::key_of(std::uint32_t at) const {
    const StoreRecord& r = record(at);
    return {reinterpret_cast<const char*>(&r) + r.key_at, r.key_bytes};
}

// The links of a record in the ordered list; [0] is the lowest level.
std::uint32_t* Store::tower(std::uint32_t at) const {
    StoreRecord& r = record(at);
    return reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::byte*>(&r) + std::size_t{r.units} * kRingUnit) -
           r.levels;
}

// The first link of a hash chain.
std::uint32_t* Store::chain(std::uint32_t index) const {
    const auto chunk = static_cast<std::uint32_t>(std::bit_width(index / kFirstChains));
    const std::uint32_t before = chunk == 0 ? 0 : kFirstChains << (chunk - 1);
    return reinterpret_cast<std::uint32_t*>(&record(header().chunks[chunk]) + 1) + (index - before);
}

// Linear hashing: a chain that has not yet been split in this doubling serves the hashes of two.
std::uint32_t* Store::chain_of(std::uint64_t hash) const {
    const std::uint32_t chains = header().chains.load(std::memory_order_relaxed), whole = std::bit_floor(chains);
    auto index = static_cast<std::uint32_t>(hash) & (2 * whole - 1);
    if (index >= chains) index -= whole;
    return chain(index);
}

std::uint32_t Store::find(const StoreKey& key) const {
    for (std::uint32_t at = *chain_of(key.hash); at != 0; at = record(at).next)
        if (is_of(at, key)) return at;
    return 0;
}

bool Store::is_of(std::uint32_t at, const StoreKey& key) const {
    return record(at).hash == key.hash && key_of(at) == key.text;
}

bool Store::is_reserved(std::uint32_t at) const {
    const std::uint64_t owner = record(at).owner;
    const std::uint64_t word =
        group_.slot(reader_slot(owner) % kMaxSlots).word.load(std::memory_order_acquire);  // SYNC: slot
    const SlotState slot = state_of(word);
    return state(at) == StoreState::reserved && generation_of(word) == static_cast<std::uint32_t>(owner >> 32) &&
           (slot == SlotState::client || slot == SlotState::embryo);
}

bool Store::is_mine(std::uint32_t at, std::uint32_t slot) const {
    return is_reserved(at) && reader_slot(record(at).owner) == slot;
}

bool Store::is_there(std::uint32_t at) const {
    const StoreState now = state(at);
    return (now == StoreState::present || now == StoreState::spilled) && !is_over(at);
}

bool Store::is_over(std::uint32_t at) const {
    const std::uint64_t expires = record(at).expires;
    return expires != 0 && os::boot_ns() >= expires;
}

// An unused record of at least `units` units. 0: more room must be reserved, see room().
std::uint32_t Store::take_record(std::uint32_t units) {
    StoreHeader& h = header();
    units = rounded(units);
    std::uint32_t& free = h.free_records[class_of(units)];
    if (free != 0) {
        const std::uint32_t at = free;
        free = record(at).next;
        return at;
    }
    const std::uint64_t reserved = ring_.header().reserved_bytes.load(std::memory_order_acquire);  // SYNC: reserved
    if (kMessagesAt + (std::uint64_t{h.high} + units) * kRingUnit > reserved) {
        const std::uint64_t least = kMessagesAt + (std::uint64_t{h.high} + units) * kRingUnit;
        const std::uint64_t more = kMessagesAt + (h.high + std::max<std::uint64_t>(kMoreUnits, h.high / 4)) * kRingUnit;
        room_ = std::max(least, std::min(more, std::uint64_t{kRingBytes}));
        return 0;
    }
    const std::uint32_t at = h.high.load(std::memory_order_relaxed);
    StoreRecord& r = record(at);
    r.units = units;
    r.word.store(record_word(StoreState::free), std::memory_order_relaxed);
    SHMTENSOR_POINT("store.record.made");
    h.high.store(at + units, std::memory_order_release);  // SYNC: high
    return at;
}

RingStatus Store::no_record() const {
    return room_ > kRingBytes ? RingStatus::too_large : RingStatus::no_room;
}

void Store::free_record(std::uint32_t at) {
    StoreRecord& r = record(at);
    r.word.store(record_word(StoreState::free), std::memory_order_release);  // SYNC: record
    std::uint32_t& free = header().free_records[class_of(r.units)];
    r.next = free;
    free = at;
}

// ------------------------------------------------------------------------------------------------------ lock and index

RingStatus Store::lock(std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms) {
    if (const RingStatus taken = ring_.take(End::tail, slot, lookup, patience_ms); taken != RingStatus::ok)
        return taken;
    if (header().dirty.load(std::memory_order_acquire) != 0) [[unlikely]]  // SYNC: dirty
        derive();
    return RingStatus::ok;
}

void Store::unlock() {
    StoreHeader& h = header();
    if (h.dirty.load(std::memory_order_relaxed) != 0) {  // for reports: messages inside == objects
        RingHeader& ring = ring_.header();
        const std::uint32_t changes = count_of(ring.tail.at.word.load(std::memory_order_relaxed));
        const auto objects = static_cast<std::uint32_t>(h.objects.load(std::memory_order_relaxed));
        ring.head.at.word.store(position_word(0, changes - objects), std::memory_order_release);  // SYNC: head
        ring.head.bytes.store(ring.tail.bytes.load(std::memory_order_relaxed) - h.bytes.load(std::memory_order_relaxed),
                              std::memory_order_relaxed);
        h.dirty.store(0, std::memory_order_release);  // SYNC: dirty
    }
    drop_lock(ring_.header().tail.lock);
}

// pre: the lock. The mark is stored before anything that the change writes; the fence keeps the compiler from moving
// those stores up.
void Store::begin_change() {
    header().dirty.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Of two records with one key: whether the first is to be removed. An object removes a reservation. A higher version
// removes a lower one. Of two records with the same version, the one in a file removes the one in memory.
bool Store::precedes(std::uint32_t one, std::uint32_t other) const {
    if (state(one) == StoreState::reserved || state(other) == StoreState::reserved)
        return state(other) != StoreState::reserved;
    const std::uint64_t first = record(one).version, second = record(other).version;
    return first == second ? state(one) == StoreState::present : first < second;
}

// pre: the lock. Rebuilds all fields marked (derived) from the records.
void Store::derive() {
    StoreHeader& h = header();
    h.objects = h.bytes = h.spilled = h.spilled_bytes = 0;
    h.removed = 0;
    std::fill(std::begin(h.in_order), std::end(h.in_order), 0);
    std::fill(std::begin(h.free_records), std::end(h.free_records), 0);
    const std::uint32_t chains = h.chains.load(std::memory_order_acquire);  // SYNC: chains
    for (std::uint32_t i = 0; i < chains; ++i) *chain(i) = 0;
    const std::uint32_t changes = count_of(ring_.header().tail.at.word.load(std::memory_order_relaxed));
    const std::uint32_t high = h.high.load(std::memory_order_acquire);  // SYNC: high
    for (std::uint32_t at = kFirstRecord; at < high; at += record(at).units) {
        StoreRecord& r = record(at);
        const std::uint64_t word = r.word.load(std::memory_order_acquire);  // SYNC: record
        StoreState now = state_of_record(word);
        if (now == StoreState::putting)
            now = static_cast<std::uint32_t>(word >> 8) == changes + 1 ? StoreState::free : StoreState::present;
        if (now == StoreState::chains && std::find(h.chunks, h.chunks + kStoreChunks, at) == h.chunks + kStoreChunks)
            now = StoreState::free;
        if (now == StoreState::present || now == StoreState::reserved || now == StoreState::spilled) {
            r.word.store(record_word(now), std::memory_order_relaxed);
            const std::uint32_t other = find(StoreKey(key_of(at)));
            if (other != 0 && precedes(at, other)) {
                take_out(at);
            } else {
                if (other != 0) {
                    unlink(other);
                    take_out(other);
                }
                link(at);
            }
        } else if (now == StoreState::removed) {
            r.next = h.removed;
            h.removed = at;
        } else if (now == StoreState::free) {
            free_record(at);
        }
        SHMTENSOR_POINT("store.derive.one");
    }
    h.hand = kFirstRecord;
}

// The links that lead to the first object in order whose key is not less.
void Store::seek(std::string_view key, Links links) const {
    std::uint32_t* from = header().in_order;
    for (std::uint32_t level = kStoreLevels; level-- > 0;) {
        while (from[level] != 0 && key_of(from[level]) < key) from = tower(from[level]);
        links[level] = &from[level];
    }
}

// Enters an object or a reserved key into the lists. pre: it is in no list.
void Store::link(std::uint32_t at) {
    StoreHeader& h = header();
    StoreRecord& r = record(at);
    std::uint32_t* first = chain_of(r.hash);
    r.next = *first;
    *first = at;
    if (state(at) == StoreState::reserved) return;
    Links links;
    seek(key_of(at), links);
    std::uint32_t* own = tower(at);
    for (std::uint32_t level = 0; level < r.levels; ++level) {
        own[level] = *links[level];
        *links[level] = at;
    }
    add(h.objects, 1);
    if (state(at) == StoreState::spilled) add(h.spilled, 1);
    add(state(at) == StoreState::spilled ? h.spilled_bytes : h.bytes, message(at).bytes);
}

void Store::unlink(std::uint32_t at) {
    StoreHeader& h = header();
    const StoreRecord& r = record(at);
    std::uint32_t* link = chain_of(r.hash);
    while (*link != at) link = &record(*link).next;
    *link = r.next;
    if (state(at) == StoreState::reserved) return;
    Links links;
    seek(key_of(at), links);
    const std::uint32_t* own = tower(at);
    for (std::uint32_t level = 0; level < r.levels; ++level) *links[level] = own[level];
    add(h.objects, ~std::uint64_t{0});
    if (state(at) == StoreState::spilled) add(h.spilled, ~std::uint64_t{0});
    add(state(at) == StoreState::spilled ? h.spilled_bytes : h.bytes, 0 - message(at).bytes);
}

// Adds a chain, if there are more objects than chains and there is room.
void Store::grow_chains() {
    StoreHeader& h = header();
    if (h.objects.load(std::memory_order_relaxed) < h.chains || h.chains == kMostChains) return;
    const std::uint32_t made = h.chains, whole = std::bit_floor(made);
    const auto chunk = static_cast<std::uint32_t>(std::bit_width(made / kFirstChains));
    if (h.chunks[chunk] == 0) {
        const std::uint64_t bytes = sizeof(StoreRecord) + std::uint64_t{made} * sizeof(std::uint32_t);
        const std::uint32_t at = take_record(units_of(bytes));
        if (at == 0) return;
        record(at).word.store(record_word(StoreState::chains), std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);  // or derive() would free a record that is only listed
        h.chunks[chunk] = at;
    }
    *chain(made) = 0;
    SHMTENSOR_POINT("store.chains.made");
    std::uint32_t at = *chain(made - whole);
    *chain(made - whole) = 0;
    h.chains.store(made + 1, std::memory_order_release);  // SYNC: chains
    while (at != 0) {
        const std::uint32_t next = record(at).next;
        std::uint32_t* first = chain_of(record(at).hash);
        record(at).next = *first;
        *first = at;
        at = next;
    }
}

void Store::tell() {
    RingEnd& end = ring_.header().tail;
    // SYNC: asleep
    if (end.asleep.load(std::memory_order_seq_cst) != 0 && end.asleep.exchange(0) != 0)
        os::futex_wake(end.at.word, kAll);
}

void Store::changed() {
    RingHeader& h = ring_.header();
    const std::uint32_t changes = count_of(h.tail.at.word.load(std::memory_order_relaxed)) + 1;
    h.tail.at.word.store(position_word(0, changes));  // SYNC: tail
}

// ---------------------------------------------------------------------------------------------------------- inspection

const char* Store::check() const {
    const StoreHeader& h = header();
    if (h.dirty != 0) return "S5: a change is under way";
    if (ring_.header().tail.undo.word.load() != 0) return "R4: an undo record is left";
    std::uint64_t objects = 0, bytes = 0, spilled_bytes = 0, free = 0, removed = 0;
    for (std::uint32_t at = kFirstRecord; at < h.high; at += record(at).units) {
        if (record(at).units == 0 || record(at).units > h.high - at) return "S1: the length of a record is wrong";
        switch (state(at)) {
            case StoreState::present:
            case StoreState::spilled:
                ++objects;
                (state(at) == StoreState::spilled ? spilled_bytes : bytes) += message(at).bytes;
                [[fallthrough]];
            case StoreState::reserved:
                if (find(StoreKey(key_of(at))) != at) return "S5: an object is not found by its key";
                break;
            case StoreState::free:
                ++free;
                break;
            case StoreState::removed:
                ++removed;
                break;
            case StoreState::chains:
                break;
            default:
                return "S2: a put is unfinished";
        }
    }
    if (objects != h.objects.load() || bytes != h.bytes.load() || spilled_bytes != h.spilled_bytes.load())
        return "S5: the count of objects is wrong";
    for (std::uint32_t first : h.free_records)
        for (std::uint32_t at = first; at != 0; at = record(at).next, --free)
            if (state(at) != StoreState::free || free == 0) return "S5: a free record is not free, or listed twice";
    for (std::uint32_t at = h.removed; at != 0; at = record(at).next, --removed)
        if (state(at) != StoreState::removed || removed == 0) return "S5: a removed record is not removed";
    if (free != 0 || removed != 0) return "S5: a record is in no list";
    for (std::uint32_t level = 0; level < kStoreLevels; ++level) {
        std::uint64_t seen = 0;
        for (std::uint32_t at = h.in_order[level]; at != 0; at = tower(at)[level], ++seen) {
            const std::uint32_t next = tower(at)[level];
            if (state(at) != StoreState::present && state(at) != StoreState::spilled)
                return "S5: the ordered list names an object that is not in the store";
            if (next != 0 && !(key_of(at) < key_of(next))) return "S5: the ordered list is not sorted";
            if (seen > objects) return "S5: the ordered list has no end";
        }
        if (level == 0 && seen != objects) return "S5: an object is not in the ordered list";
    }
    return nullptr;
}

}  // namespace shmtensor
