#include "ipc/store.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/failpoint.hpp"
#include "base/os.hpp"

namespace shmtensor {
namespace {

constexpr unsigned kMetadataMoment = 1;         // ms that a process with the lock waits for metadata
constexpr std::uint32_t kSample = 16;           // objects of which the least recently used one is evicted
constexpr std::uint32_t kClearedByPut = 4;      // records that each put checks, and clears if they are void
constexpr std::uint32_t kClearedAtOnce = 1024;  // records that expire() checks during one hold of the lock

std::uint32_t levels_of(std::uint64_t hash) {
    return std::min(1 + static_cast<std::uint32_t>(std::countr_zero(hash >> 32 | std::uint64_t{1} << 31)) / 2,
                    kStoreLevels);
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------- removal

// pre: in no list. release_removed() then releases the object's holds.
void Store::take_out(std::uint32_t at) {
    StoreHeader& h = header();
    StoreRecord& r = record(at);
    const bool holds_nothing = state(at) != StoreState::present, has_file = state(at) == StoreState::spilled;
    r.word.store(record_word(holds_nothing ? StoreState::free : StoreState::removed),
                 std::memory_order_release);  // SYNC: record
    SHMTENSOR_POINT("store.removed");
    if (has_file) {  // only after the removal: the file of a present object must not be listed
        const std::uint64_t dropped = h.dropped.load(std::memory_order_relaxed);
        if (dropped < kStoreDropped) h.dropped_versions[dropped] = r.version;
        add(h.dropped, 1);
    }
    if (holds_nothing) {
        free_record(at);
    } else {
        r.next = h.removed;
        h.removed = at;
    }
}

// pre: the lock. busy, need_mapping: not all were released; the rest is released later. Each released hold shortens the
// list of its object, so that every call makes progress, however many segments are gone.
RingStatus Store::release_removed(std::uint32_t slot, SegmentLookup& lookup) {
    StoreHeader& h = header();
    while (const std::uint32_t at = h.removed) {
        Message& m = message(at);
        for (; m.holds > 0; --m.holds) {
            const MessageHold& hold = holds(at).back();
            if (lookup.is_gone(hold.segment)) continue;
            SegmentMetadata* metadata = lookup.find(hold.segment);
            if (!metadata) {
                lookup.missing = hold.segment;
                return RingStatus::need_mapping;
            }
            if (hold.hold >= metadata->shape().holds) continue;
            if (!metadata->lock(slot, kMetadataMoment)) return RingStatus::busy;
            const Hold& held = metadata->hold(hold.hold);
            if (held.word.load(std::memory_order_relaxed) == hold_word(hold.block, ring_.number(), HoldKind::message) &&
                held.mark.load(std::memory_order_relaxed) == m.mark)
                metadata->release(hold.hold, false);
            metadata->unlock();
            SHMTENSOR_POINT("store.release.one");
        }
        h.removed = record(at).next;
        free_record(at);
    }
    return RingStatus::ok;
}

// Whether a block of an object has a hold that is not the store's. If its segment is not in the lookup, the block
// counts as held, and the segment is `missing`.
bool Store::is_held(std::uint32_t at, SegmentLookup& lookup) const {
    for (const MessageHold& hold : holds(at)) {
        if (lookup.is_gone(hold.segment)) continue;
        SegmentMetadata* metadata = lookup.find(hold.segment);
        if (!metadata) lookup.missing = hold.segment;
        if (!metadata || hold.block >= metadata->shape().blocks ||
            metadata->block(hold.block).count.load(std::memory_order_relaxed) > 1)
            return true;
    }
    return false;
}

// pre: the lock. Of some objects that may go, from where the last search ended: an expired one, or else the least
// recently used one.
template <class MayGo>
std::uint32_t Store::sample(MayGo&& may_go) {
    StoreHeader& h = header();
    std::uint32_t oldest = 0, sampled = 0, at = h.hand < h.high ? h.hand : kFirstRecord;
    const std::uint32_t from = at;
    do {
        if (may_go(at)) {
            ++sampled;
            if (oldest == 0 || is_over(at) || record(at).used < record(oldest).used) oldest = at;
            if (is_over(at)) break;
        }
        at += record(at).units;
        if (at >= h.high) at = kFirstRecord;
    } while (sampled < kSample && at != from);
    h.hand = at;
    return oldest;
}

// pre: the lock. Removes objects until there is room for `bytes` more. Never removes a key in `but`.
bool Store::make_room(std::uint64_t bytes, std::span<const NewObject> but, std::uint32_t slot, SegmentLookup& lookup) {
    StoreHeader& h = header();
    const bool evicts = h.evicts != 0 && h.spill_path[0] == 0;
    const auto may_go = [&](std::uint32_t at) {
        if (state(at) != StoreState::present) return false;
        const StoreRecord& r = record(at);
        for (const NewObject& object : but)
            if (is_of(at, object.key)) return false;
        return is_over(at) || (evicts && r.pinned == 0 && !is_held(at, lookup));
    };
    while (h.bytes.load(std::memory_order_relaxed) + bytes > h.max_bytes.load(std::memory_order_relaxed)) {
        const std::uint32_t oldest = sample(may_go);
        if (oldest == 0) return false;
        add(is_over(oldest) ? h.expired : h.evicted, 1);
        unlink(oldest);
        take_out(oldest);
        changed();
        release_removed(slot, lookup);
    }
    return true;
}

// pre: the lock. Removes a void record: an expired object, or a key reserved by a process that has died. Returns
// whether it was an object.
bool Store::clear(std::uint32_t at) {
    const StoreState now = state(at);
    const bool expired = (now == StoreState::present || now == StoreState::spilled) && is_over(at);
    if (!expired && (now != StoreState::reserved || is_reserved(at))) return false;
    if (expired) add(header().expired, 1);
    unlink(at);
    take_out(at);
    changed();
    return expired;
}

// pre: the lock. Each put checks some records, since no call asks for a void one by its key.
void Store::clear_some() {
    StoreHeader& h = header();
    for (std::uint32_t looks = 0; looks < kClearedByPut; ++looks) {
        const std::uint32_t at = h.hand < h.high ? h.hand : kFirstRecord;
        h.hand = at + record(at).units;
        clear(at);
    }
}

RingStatus Store::expire(std::uint32_t* at, std::uint32_t* expired, std::uint32_t slot, SegmentLookup& lookup,
                         unsigned patience_ms) {
    if (const RingStatus taken = lock(slot, lookup, patience_ms); taken != RingStatus::ok) return taken;
    begin_change();
    const std::uint32_t before = *expired;
    *at = std::max(*at, kFirstRecord);
    for (std::uint32_t looks = 0; looks < kClearedAtOnce && *at < header().high; ++looks) {
        const std::uint32_t next = *at + record(*at).units;
        *expired += clear(*at);
        *at = next;
    }
    const bool is_end = *at >= header().high;
    const RingStatus released = release_removed(slot, lookup);
    unlock();
    if (*expired != before) tell();
    return released != RingStatus::ok ? released : is_end ? RingStatus::empty : RingStatus::ok;
}

RingStatus Store::release(std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms) {
    if (const RingStatus taken = lock(slot, lookup, patience_ms); taken != RingStatus::ok) return taken;
    begin_change();
    const RingStatus released = release_removed(slot, lookup);
    unlock();
    return released;
}

// ----------------------------------------------------------------------------------------------------------------- put

void Store::make(std::uint64_t max_bytes, bool evicts, std::string_view spill_path, std::uint64_t max_spilled_bytes) {
    StoreHeader& h = header();
    spill_path.copy(h.spill_path, kMaxSpillPath - 1);
    h.max_spilled_bytes = max_spilled_bytes;
    h.max_bytes = max_bytes;
    h.evicts = evicts;
    h.high = h.hand = kFirstRecord;
    h.chains = kFirstChains;
    ring_.header().capacity.store(kRingUnits);
    h.chunks[0] = take_record(units_of(sizeof(StoreRecord) + kFirstChains * sizeof(std::uint32_t)));
    record(h.chunks[0]).word.store(record_word(StoreState::chains));
    std::memset(chain(0), 0, kFirstChains * sizeof(std::uint32_t));
    h.next_version = 1;
}

std::uint32_t Store::write_record(const StoreKey& key, std::uint32_t units, std::uint32_t levels) {
    const std::uint32_t at = take_record(units);
    if (at == 0) return 0;
    StoreRecord& r = record(at);
    r.hash = key.hash;
    r.levels = levels;
    r.owner = r.expires = 0;
    r.pinned = 0;
    r.created = os::realtime_ns();
    r.key_bytes = static_cast<std::uint32_t>(key.text.size());
    return at;
}

// A record of an object, not in the store yet. 0: see room().
std::uint32_t Store::write(const NewObject& object, std::uint32_t change) {
    const EncodedMessage& m = *object.message;
    const std::uint32_t levels = levels_of(object.key.hash);
    const std::uint64_t key_at =
        std::size_t{kRecordUnits} * kRingUnit + sizeof(Message) + m.holds.size() * sizeof(MessageHold) + m.body.size();
    const std::uint32_t units = units_of(key_at + object.key.text.size() + sizeof(std::uint32_t) * (levels + 1));
    const std::uint32_t at = write_record(object.key, units, levels);
    if (at == 0) return 0;
    StoreRecord& r = record(at);
    Message& into = message(at);
    into = {.units = r.units - kRecordUnits,
            .flags = m.flags,
            .holds = static_cast<std::uint32_t>(m.holds.size()),
            .mark = m.mark,
            .body_bytes = m.body.size(),
            .bytes_before = ring_.header().tail.bytes.load(std::memory_order_relaxed),
            .bytes = m.bytes};
    auto* to = reinterpret_cast<std::byte*>(&into + 1);
    if (!m.holds.empty()) std::memcpy(to, m.holds.data(), m.holds.size() * sizeof(MessageHold));
    to += m.holds.size() * sizeof(MessageHold);
    if (!m.body.empty()) std::memcpy(to, m.body.data(), m.body.size());
    std::memcpy(to + m.body.size(), object.key.text.data(), object.key.text.size());
    r.key_at = static_cast<std::uint32_t>(key_at);
    r.version = header().next_version++;
    r.used = ++header().clock;
    r.expires = object.expires;
    r.pinned = object.pinned;
    r.word.store(record_word(StoreState::putting, change), std::memory_order_release);  // SYNC: record
    SHMTENSOR_POINT("store.put.written");
    return at;
}

// Move the holds of records to the store and count the change, as one transaction. False: no room for the list of the
// holds of several objects.
bool Store::transfer(std::span<const std::uint32_t> records, std::uint32_t slot, SegmentLookup& lookup) {
    RingHeader& h = ring_.header();
    std::uint32_t list = records[0];
    const bool several = records.size() > 1;
    if (several) {
        std::size_t all = 0;
        for (const std::uint32_t at : records) all += holds(at).size();
        list =
            take_record(units_of(std::size_t{kRecordUnits} * kRingUnit + sizeof(Message) + all * sizeof(MessageHold)));
        if (list == 0) return false;
        Message& into = message(list);
        into = {.units = record(list).units - kRecordUnits,
                .flags = 0,
                .holds = static_cast<std::uint32_t>(all),
                .mark = 0,
                .body_bytes = 0,
                .bytes_before = h.tail.bytes.load(std::memory_order_relaxed),
                .bytes = 0};
        auto* to = reinterpret_cast<MessageHold*>(&into + 1);
        for (const std::uint32_t at : records) to = std::copy(holds(at).begin(), holds(at).end(), to);
    }
    const std::uint32_t position = list + kRecordUnits;
    const std::uint32_t changes = count_of(h.tail.at.word.load(std::memory_order_relaxed));
    h.tail.at.word.store(position_word(position, changes));
    h.tail.undo.word.store(undo_word(position, slot), std::memory_order_release);  // SYNC: undo
    SHMTENSOR_POINT("store.put.noted");
    for (const MessageHold& hold : holds(list)) {
        SegmentMetadata* metadata = lookup.find(hold.segment);
        if (metadata && hold.hold < metadata->shape().holds)
            metadata->hold(hold.hold).word.store(hold_word(hold.block, ring_.number(), HoldKind::message),
                                                 std::memory_order_release);  // SYNC: hold
        SHMTENSOR_POINT("store.put.one_moved");
    }
    changed();
    SHMTENSOR_POINT("store.put.published");
    h.tail.undo.word.store(0, std::memory_order_release);  // SYNC: undo
    SHMTENSOR_POINT("store.put.cleared");
    if (several) free_record(list);
    return true;
}

// pre: the lock. Whether the keys are as `present` requires; `bytes`: by how much the objects are larger than those
// that they replace.
RingStatus Store::may_put(std::span<const NewObject> objects, IfPresent present, std::uint32_t slot, std::size_t* which,
                          std::uint64_t* bytes) const {
    std::uint64_t more = 0, less = 0;
    for (*which = 0; *which < objects.size(); ++*which) {
        const std::uint32_t known = find(objects[*which].key);
        more += objects[*which].message->bytes;
        const bool there = known != 0 && is_there(known), reserved = known != 0 && is_reserved(known);
        if (present == IfPresent::seal &&
            !(reserved && is_mine(known, slot) && record(known).version == objects[*which].version))
            return RingStatus::empty;
        if (present == IfPresent::refuse && there) return RingStatus::exists;
        if (present != IfPresent::seal && reserved) return RingStatus::exists;
        if (there && state(known) == StoreState::present) less += message(known).bytes;
    }
    *which = 0;
    *bytes = more - std::min(more, less);
    return RingStatus::ok;
}

// pre: the lock; the change is counted. The records replace the former records of their keys.
void Store::enter(std::span<const NewObject> objects, std::span<const std::uint32_t> records) {
    std::atomic<std::uint64_t>& put = ring_.header().tail.bytes;
    for (std::size_t i = 0; i < objects.size(); ++i) {
        if (const std::uint32_t known = find(objects[i].key)) {
            unlink(known);
            take_out(known);
        }
        record(records[i]).word.store(record_word(StoreState::present), std::memory_order_release);  // SYNC: record
        link(records[i]);
        grow_chains();
        add(put, objects[i].message->bytes);
        SHMTENSOR_POINT("store.put.linked");
    }
}

RingStatus Store::put(std::span<NewObject> objects, IfPresent present, std::uint32_t slot, SegmentLookup& lookup,
                      unsigned patience_ms, std::size_t* which) {
    *which = 0;
    if (objects.empty()) return RingStatus::ok;
    std::vector<std::uint32_t> records;  // does not grow under the lock
    records.reserve(objects.size());
    CachedLookup cached(lookup);
    if (const RingStatus taken = lock(slot, cached, patience_ms); taken != RingStatus::ok) return taken;
    StoreHeader& h = header();
    begin_change();
    const auto leave = [&](RingStatus status) {
        for (const std::uint32_t at : records) free_record(at);
        lookup.missing = cached.missing;
        unlock();
        return status;
    };
    if (const RingStatus released = release_removed(slot, cached); released == RingStatus::need_mapping)
        return leave(released);
    clear_some();
    for (const NewObject& object : objects)
        if (const std::uint32_t known = find(object.key)) clear(known);  // otherwise its bytes would still count
    std::uint64_t bytes = 0;
    if (const RingStatus may = may_put(objects, present, slot, which, &bytes); may != RingStatus::ok) return leave(may);
    const std::uint64_t limit = h.max_bytes.load(std::memory_order_relaxed);
    if (limit != 0 && bytes > limit) return leave(RingStatus::too_large);
    cached.missing = 0;
    if (limit != 0 && !make_room(bytes, objects, slot, cached))
        return leave(cached.missing != 0 ? RingStatus::need_mapping : RingStatus::full);
    const std::uint32_t change = count_of(ring_.header().tail.at.word.load(std::memory_order_relaxed)) + 1;
    for (const NewObject& object : objects) {
        const std::uint32_t at = write(object, change);
        if (at == 0) return leave(no_record());
        records.push_back(at);
    }
    if (!transfer(records, slot, cached)) return leave(no_record());
    for (std::size_t i = 0; i < objects.size(); ++i) objects[i].version = record(records[i]).version;
    enter(objects, records);
    release_removed(slot, cached);
    unlock();
    tell();
    return RingStatus::ok;
}

// --------------------------------------------------------------------------------------------------- others

RingStatus Store::get(const StoreKey& key, std::uint64_t* version, EncodedMessage& encoded, std::uint32_t slot,
                      SegmentLookup& lookup, unsigned patience_ms) {
    encoded.holds.clear();
    for (;;) {
        CachedLookup cached(lookup);
        if (const RingStatus taken = lock(slot, cached, patience_ms); taken != RingStatus::ok) return taken;
        RingStatus result = RingStatus::empty;
        EncodedMessage::Room needed;
        const std::uint32_t at = find(key);
        const bool there = at != 0 && is_there(at) && (*version == 0 || record(at).version == *version);
        if (there) *version = record(at).version;
        if (there && state(at) == StoreState::spilled) {
            record(at).used = ++header().clock;
            result = RingStatus::spilled;
        } else if (there) {
            const Ring::Found found{&message(at), 0, message(at).holds};
            result = Ring::copy(found, encoded, cached, needed);
            if (result == RingStatus::ok && !encoded.lost) result = Ring::hold(encoded, slot, cached, patience_ms);
            if (result == RingStatus::ok) record(at).used = ++header().clock;
            SHMTENSOR_POINT("store.get.held");
        }
        unlock();
        if (cached.missing != 0) lookup.missing = cached.missing;
        if (result != RingStatus::no_room) return result;
        encoded.make_room(needed);
    }
}

RingStatus Store::remove(const StoreKey& key, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms) {
    CachedLookup cached(lookup);
    if (const RingStatus taken = lock(slot, cached, patience_ms); taken != RingStatus::ok) return taken;
    begin_change();
    const std::uint32_t at = find(key);
    const bool there = at != 0 && (is_there(at) || is_mine(at, slot));
    if (there) {
        unlink(at);
        take_out(at);
        changed();
    }
    release_removed(slot, cached);  // those in mapped segments; see release()
    unlock();
    if (there) tell();
    return there ? RingStatus::ok : RingStatus::empty;
}

RingStatus Store::reserve_key(const StoreKey& key, std::uint64_t* version, std::uint32_t slot, SegmentLookup& lookup,
                              unsigned patience_ms) {
    if (const RingStatus taken = lock(slot, lookup, patience_ms); taken != RingStatus::ok) return taken;
    begin_change();
    RingStatus result = RingStatus::ok;
    const std::uint32_t known = find(key);
    if (known != 0 && (is_there(known) || is_reserved(known))) {
        result = RingStatus::exists;
    } else {
        const std::uint32_t key_at = sizeof(StoreRecord);
        const std::uint32_t at = write_record(key, units_of(key_at + key.text.size()), 0);
        if (at == 0) {
            result = no_record();
        } else {
            StoreRecord& r = record(at);
            r.key_at = key_at;
            std::memcpy(reinterpret_cast<char*>(&r) + key_at, key.text.data(), key.text.size());
            const std::uint64_t me = group_.slot(slot).word.load(std::memory_order_acquire);  // SYNC: slot
            r.owner = reader_word(generation_of(me), 0, slot);
            *version = r.version = ++header().clock;
            if (known != 0) {
                unlink(known);
                take_out(known);
            }
            r.word.store(record_word(StoreState::reserved), std::memory_order_release);  // SYNC: record
            link(at);
            SHMTENSOR_POINT("store.reserved");
        }
    }
    release_removed(slot, lookup);
    unlock();
    return result;
}

RingStatus Store::give_up(const StoreKey& key, std::uint64_t version, std::uint32_t slot, SegmentLookup& lookup,
                          unsigned patience_ms) {
    if (const RingStatus taken = lock(slot, lookup, patience_ms); taken != RingStatus::ok) return taken;
    begin_change();
    const std::uint32_t at = find(key);
    const bool there = at != 0 && is_mine(at, slot) && record(at).version == version;
    if (there) {
        unlink(at);
        take_out(at);
        changed();
    }
    unlock();
    if (there) tell();
    return there ? RingStatus::ok : RingStatus::empty;
}

RingStatus Store::touch(const StoreKey& key, const std::uint64_t* expires, const bool* pinned, std::uint32_t slot,
                        SegmentLookup& lookup, unsigned patience_ms) {
    if (const RingStatus taken = lock(slot, lookup, patience_ms); taken != RingStatus::ok) return taken;
    const std::uint32_t at = find(key);
    const bool there = at != 0 && is_there(at);
    if (there) {
        StoreRecord& r = record(at);
        r.used = ++header().clock;
        if (pinned) r.pinned = *pinned;
        if (expires) {  // a process that waits for a change wakes when the next object expires
            begin_change();
            r.expires = *expires;
            changed();
        }
    }
    unlock();
    if (there && expires) tell();
    return there ? RingStatus::ok : RingStatus::empty;
}

RingStatus Store::facts(const StoreKey& key, ObjectFacts& facts, std::uint32_t slot, SegmentLookup& lookup,
                        unsigned patience_ms) {
    if (const RingStatus taken = lock(slot, lookup, patience_ms); taken != RingStatus::ok) return taken;
    const std::uint32_t at = find(key);
    const bool there = at != 0 && is_there(at);
    if (there) {
        const StoreRecord& r = record(at);
        facts = {.version = r.version,
                 .bytes = message(at).bytes,
                 .created = r.created,
                 .expires = r.expires,
                 .blocks = message(at).holds,
                 .holders = 0,
                 .pinned = r.pinned != 0,
                 .spilled = state(at) == StoreState::spilled};
        for (const MessageHold& hold : holds(at)) {
            const SegmentMetadata* metadata = lookup.find(hold.segment);
            if (metadata && hold.block < metadata->shape().blocks) {
                const std::uint32_t count = metadata->block(hold.block).count.load(std::memory_order_relaxed);
                facts.holders = std::max(facts.holders, count > 0 ? count - 1 : 0);
            }
        }
    }
    unlock();
    return there ? RingStatus::ok : RingStatus::empty;
}

Store::Keys::Keys(std::size_t keys, std::size_t bytes) {
    text_.reserve(bytes);
    ends_.reserve(keys);
    versions_.reserve(keys);
    expiries_.reserve(keys);
}

void Store::Keys::clear() {
    text_.clear();
    ends_.clear();
    versions_.clear();
    expiries_.clear();
}

std::string_view Store::Keys::key(std::size_t index) const {
    const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
    return std::string_view(text_).substr(begin, ends_[index] - begin);
}

bool Store::Keys::add(std::string_view key, std::uint64_t version, std::uint64_t expires) {
    if (ends_.size() == ends_.capacity() || text_.capacity() - text_.size() < key.size()) return false;
    text_.append(key);
    ends_.push_back(text_.size());
    versions_.push_back(version);
    expiries_.push_back(expires);
    return true;
}

RingStatus Store::keys(std::string_view prefix, std::string_view after, Keys& found, std::uint32_t slot,
                       SegmentLookup& lookup, unsigned patience_ms) {
    if (const RingStatus taken = lock(slot, lookup, patience_ms); taken != RingStatus::ok) return taken;
    Links links;
    seek(after.empty() ? prefix : after, links);
    std::uint32_t at = *links[0];
    if (!after.empty() && at != 0 && key_of(at) == after) at = tower(at)[0];
    RingStatus result = RingStatus::empty;
    for (; at != 0 && key_of(at).starts_with(prefix); at = tower(at)[0]) {
        if (is_over(at) || found.add(key_of(at), record(at).version, record(at).expires)) continue;
        result = RingStatus::ok;
        break;
    }
    unlock();
    return result;
}

// ------------------------------------------------------------------------------------------------------------ spilling

RingStatus Store::choose(Found& found, std::span<const StoreKey> but, std::uint32_t slot, SegmentLookup& lookup,
                         unsigned patience_ms) {
    lookup.missing = 0;
    if (const RingStatus taken = lock(slot, lookup, patience_ms); taken != RingStatus::ok) return taken;
    StoreHeader& h = header();
    const std::uint64_t limit = h.max_spilled_bytes.load(std::memory_order_relaxed);
    const auto fits = [&](std::uint32_t one) {
        const std::uint64_t there = h.evicts != 0 ? 0 : h.spilled_bytes.load(std::memory_order_relaxed);
        return limit == 0 || there + message(one).bytes <= limit;
    };
    const std::uint32_t at = sample([&](std::uint32_t one) {
        return state(one) == StoreState::present && !is_over(one) && record(one).pinned == 0 &&
               (h.evicts != 0 || fits(one)) &&
               std::ranges::none_of(but, [&](const StoreKey& key) { return is_of(one, key); }) && !is_held(one, lookup);
    });
    RingStatus result = at != 0 ? RingStatus::ok : lookup.missing != 0 ? RingStatus::need_mapping : RingStatus::empty;
    const bool evicted = at != 0 && !fits(at);
    if (evicted) {
        begin_change();
        add(h.evicted, 1);
        unlink(at);
        take_out(at);
        changed();
        release_removed(slot, lookup);
        found.key.clear();
        found.version = 0;
    } else if (at != 0 && found.key.capacity() < record(at).key_bytes) {
        result = RingStatus::no_room;  // nothing is allocated under a lock
    } else if (at != 0) {
        found.key.assign(key_of(at));
        found.version = record(at).version;
    }
    unlock();
    if (evicted) tell();
    return result;
}

RingStatus Store::spill(const StoreKey& key, std::uint64_t version, std::uint32_t slot, SegmentLookup& lookup,
                        unsigned patience_ms) {
    if (const RingStatus taken = lock(slot, lookup, patience_ms); taken != RingStatus::ok) return taken;
    StoreHeader& h = header();
    begin_change();
    const auto leave = [&](RingStatus status) {
        unlock();
        return status;
    };
    const auto is_it = [&](std::uint32_t at) {
        return at != 0 && state(at) == StoreState::present && record(at).version == version && record(at).pinned == 0 &&
               !is_held(at, lookup);
    };
    const std::uint32_t known = find(key);
    if (!is_it(known)) return leave(RingStatus::empty);
    const std::uint64_t bytes = message(known).bytes, limit = h.max_spilled_bytes.load(std::memory_order_relaxed);
    if (limit != 0 && bytes > limit) return leave(RingStatus::full);
    while (limit != 0 && h.spilled_bytes.load(std::memory_order_relaxed) + bytes > limit) {
        const std::uint32_t oldest = sample([&](std::uint32_t at) {
            return state(at) == StoreState::spilled && (is_over(at) || (h.evicts != 0 && record(at).pinned == 0));
        });
        if (oldest == 0) return leave(RingStatus::full);
        add(is_over(oldest) ? h.expired : h.evicted, 1);
        unlink(oldest);
        take_out(oldest);
        changed();
    }
    const StoreRecord& from = record(known);
    const auto key_at = static_cast<std::uint32_t>(std::size_t{kRecordUnits} * kRingUnit + sizeof(Message));
    const std::uint32_t at =
        write_record(key, units_of(key_at + key.text.size() + sizeof(std::uint32_t) * (from.levels + 1)), from.levels);
    if (at == 0) return leave(no_record());
    StoreRecord& r = record(at);
    r.key_at = key_at;
    r.version = version;
    r.expires = from.expires;
    r.created = from.created;
    r.used = from.used;
    message(at) = {.units = r.units - kRecordUnits,
                   .flags = 0,
                   .holds = 0,
                   .mark = 0,
                   .body_bytes = 0,
                   .bytes_before = 0,
                   .bytes = bytes};
    std::memcpy(reinterpret_cast<char*>(&r) + key_at, key.text.data(), key.text.size());
    SHMTENSOR_POINT("store.spill.written");
    r.word.store(record_word(StoreState::spilled), std::memory_order_release);  // SYNC: record
    SHMTENSOR_POINT("store.spill.done");
    unlink(known);
    take_out(known);
    link(at);
    release_removed(slot, lookup);
    return leave(RingStatus::ok);
}

RingStatus Store::take_dropped(std::vector<std::uint64_t>& versions, std::uint32_t slot, SegmentLookup& lookup,
                               unsigned patience_ms) {
    if (const RingStatus taken = lock(slot, lookup, patience_ms); taken != RingStatus::ok) return taken;
    StoreHeader& h = header();
    const std::uint64_t dropped = h.dropped.load(std::memory_order_relaxed);
    const bool known = dropped <= std::min<std::size_t>(kStoreDropped, versions.capacity());
    if (known) {
        versions.assign(h.dropped_versions, h.dropped_versions + dropped);
        h.dropped.store(0, std::memory_order_relaxed);
    }
    unlock();
    return known ? RingStatus::ok : RingStatus::empty;
}

RingStatus Store::spilled(std::vector<std::uint64_t>& versions, std::size_t* needed, std::uint32_t slot,
                          SegmentLookup& lookup, unsigned patience_ms) {
    if (const RingStatus taken = lock(slot, lookup, patience_ms); taken != RingStatus::ok) return taken;
    const StoreHeader& h = header();
    *needed = h.spilled.load(std::memory_order_relaxed);
    const bool fits = *needed <= versions.capacity();
    for (std::uint32_t at = kFirstRecord; fits && at < h.high; at += record(at).units)
        if (state(at) == StoreState::spilled) versions.push_back(record(at).version);
    unlock();
    return fits ? RingStatus::ok : RingStatus::no_room;
}

}  // namespace shmtensor
