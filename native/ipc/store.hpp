// A store (layout.hpp, "StoreHeader"): a ring whose messages have keys, stay until they are removed, and can be read by
// every process. Any process may be killed.
//
// A put moves the holds of its messages as Ring::put does, so the undo record of the ring covers it; its commit is the
// one store of tail.at. A removal first marks the record as removed, and then releases the holds, which their mark
// identifies: a process that finds an unfinished removal continues it. A process that finds an unfinished change
// derives the hash chains, the ordered list and the lists of free records again from the records.
//
// Order of locks: tail.lock, then briefly the metadata of one segment.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heap/group.hpp"
#include "ipc/ring.hpp"

namespace shmtensor {

struct StoreKey {
    explicit StoreKey(std::string_view text);
    std::string_view text;
    std::uint64_t hash;
};

// An object to be put. `message`: as for Ring::put.
struct NewObject {
    StoreKey key;
    EncodedMessage* message;
    std::uint64_t expires = 0;  // ns of CLOCK_BOOTTIME; 0: never
    bool pinned = false;
    std::uint64_t version = 0;  // set by the put; for `seal`, the caller sets that of the reservation
};

enum class IfPresent {
    refuse,   // exists: nothing is put
    replace,  // the object becomes the next version; processes that have the old one keep it
    seal,     // the key must be reserved for the caller
};

struct ObjectFacts {
    std::uint64_t version, bytes, created, expires;
    std::uint32_t blocks, holders;  // holds on its blocks, without the store's
    bool pinned, spilled;
};

class Store {
   public:
    // Both must outlive it.
    Store(Ring& ring, const Group& group) : ring_(ring), group_(group) { ring_.to_all_ = true; }

    // Make a store of an empty ring that no other process knows. 0 for no limit. `spill_path`: shorter than
    // kMaxSpillPath; empty: objects are not spilled.
    void make(std::uint64_t max_bytes, bool evicts, std::string_view spill_path, std::uint64_t max_spilled_bytes);

    // Each call takes tail.lock, for which it waits at most patience_ms. need_mapping: a segment is not in the lookup.
    // no_room: put() and reserve_key() need Ring::reserve() of room(), the others EncodedMessage::make_room().

    // Put all objects, or none. exists: `which` is in the store already, or reserved. empty: the key of `which` is not
    // reserved for the caller. full: `which` has no room within max_bytes, and no object may be evicted. too_large: it
    // exceeds max_bytes or the ring.
    RingStatus put(std::span<NewObject> objects, IfPresent present, std::uint32_t slot, SegmentLookup& lookup,
                   unsigned patience_ms, std::size_t* which);
    std::uint64_t room() const { return room_; }
    // Get the object of a key, with holds of the caller's own. `version`: the wanted one (0: any), set to the one
    // found. empty: there is none. spilled: it is in a file. full: as Broadcast::read.
    RingStatus get(const StoreKey& key, std::uint64_t* version, EncodedMessage& encoded, std::uint32_t slot,
                   SegmentLookup& lookup, unsigned patience_ms);
    // Release the holds of removed objects that a removal could not release, since remove() maps no segments.
    RingStatus release(std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    bool has_removed() const { return header().removed != 0; }
    // Remove the expired objects among some records from `at` on. `at` is 0 at first and is moved past them; `expired`
    // counts the objects. ok: there are more records. empty: these were the last.
    RingStatus expire(std::uint32_t* at, std::uint32_t* expired, std::uint32_t slot, SegmentLookup& lookup,
                      unsigned patience_ms);
    // empty: there is no such object.
    RingStatus remove(const StoreKey& key, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    // Reserve a key for this process, as long as it lives. Only calls of put() and reserve_key() see a reservation. Its
    // version distinguishes it from later ones.
    RingStatus reserve_key(const StoreKey& key, std::uint64_t* version, std::uint32_t slot, SegmentLookup& lookup,
                           unsigned patience_ms);
    // End that reservation. empty: it has already ended.
    RingStatus give_up(const StoreKey& key, std::uint64_t version, std::uint32_t slot, SegmentLookup& lookup,
                       unsigned patience_ms);
    RingStatus touch(const StoreKey& key, const std::uint64_t* expires, const bool* pinned, std::uint32_t slot,
                     SegmentLookup& lookup, unsigned patience_ms);
    RingStatus facts(const StoreKey& key, ObjectFacts& facts, std::uint32_t slot, SegmentLookup& lookup,
                     unsigned patience_ms);
    // Choose the object to spill next, none of the keys in `but`. An object that exceeds the limit of all files is
    // evicted instead, and the version is then 0. empty: no object may be spilled.
    struct Found {
        std::string key;
        std::uint64_t version = 0;
    };
    RingStatus choose(Found& found, std::span<const StoreKey> but, std::uint32_t slot, SegmentLookup& lookup,
                      unsigned patience_ms);
    // Free the memory of an object whose content has been written to its file. empty: this version is not present, or
    // a process holds it. full: the files would exceed their limit, or the object alone does.
    RingStatus spill(const StoreKey& key, std::uint64_t version, std::uint32_t slot, SegmentLookup& lookup,
                     unsigned patience_ms);
    // The versions of spilled objects that were removed since the last call, whose files may still exist. pre:
    // `versions` has a capacity of kStoreDropped. empty: there are too many; call forget_dropped() and sweep all files.
    RingStatus take_dropped(std::vector<std::uint64_t>& versions, std::uint32_t slot, SegmentLookup& lookup,
                            unsigned patience_ms);
    void forget_dropped() { header().dropped = 0; }
    // The versions of all spilled objects. no_room: `versions` needs a capacity of `needed`.
    RingStatus spilled(std::vector<std::uint64_t>& versions, std::size_t* needed, std::uint32_t slot,
                       SegmentLookup& lookup, unsigned patience_ms);
    // The keys that begin with `prefix` and follow `after` (empty: all), in order, with their versions and expiry times
    // (ns of CLOCK_BOOTTIME; 0: never), as many as fit into `found`. ok: there may be more.
    class Keys {
       public:
        Keys(std::size_t keys, std::size_t bytes);  // bytes: kMaxKeyBytes at least
        void clear();
        std::size_t size() const { return ends_.size(); }
        std::string_view key(std::size_t index) const;
        std::uint64_t version(std::size_t index) const { return versions_[index]; }
        std::uint64_t expires(std::size_t index) const { return expiries_[index]; }

       private:
        friend class Store;
        // Allocates nothing; false: no room.
        bool add(std::string_view key, std::uint64_t version, std::uint64_t expires);
        std::string text_;
        std::vector<std::size_t> ends_;
        std::vector<std::uint64_t> versions_, expiries_;
    };
    RingStatus keys(std::string_view prefix, std::string_view after, Keys& found, std::uint32_t slot,
                    SegmentLookup& lookup, unsigned patience_ms);

    StoreHeader& header() const { return header_of(ring_); }
    // Of a ring that is known to be a store.
    static StoreHeader& header_of(const Ring& ring) { return *reinterpret_cast<StoreHeader*>(ring.at_ + kReadersAt); }
    std::uint32_t changes() const {
        return count_of(ring_.header().tail.at.word.load(std::memory_order_acquire));  // SYNC: tail
    }
    int await_change(std::uint32_t seen, std::uint64_t timeout_ns) { return ring_.await_beyond(seen, timeout_ns); }

    // A description of the first broken invariant, or nullptr. pre: no process uses the store.
    const char* check() const;

   private:
    static constexpr std::uint32_t kFirstRecord = 1;
    static std::uint32_t units_of(std::uint64_t bytes);
    // pre: the lock, so that no other thread writes.
    static void add(std::atomic<std::uint64_t>& count, std::uint64_t more) {
        count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }
    using Links = std::uint32_t* [kStoreLevels];

    StoreRecord& record(std::uint32_t at) const {
        return *reinterpret_cast<StoreRecord*>(ring_.at_ + kMessagesAt + std::size_t{at} * kRingUnit);
    }
    Message& message(std::uint32_t at) const {
        return *reinterpret_cast<Message*>(ring_.at_ + kMessagesAt + std::size_t{at + kRecordUnits} * kRingUnit);
    }
    std::span<const MessageHold> holds(std::uint32_t at) const;
    std::string_view key_of(std::uint32_t at) const;
    std::uint32_t* tower(std::uint32_t at) const;
    std::uint32_t* chain(std::uint32_t index) const;
    std::uint32_t* chain_of(std::uint64_t hash) const;
    StoreState state(std::uint32_t at) const {
        return state_of_record(record(at).word.load(std::memory_order_acquire));  // SYNC: record
    }

    RingStatus lock(std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    void unlock();
    void begin_change();
    void derive();
    bool precedes(std::uint32_t one, std::uint32_t other) const;
    std::uint32_t find(const StoreKey& key) const;  // 0: none
    bool is_of(std::uint32_t at, const StoreKey& key) const;
    bool is_reserved(std::uint32_t at) const;  // by a living process
    bool is_mine(std::uint32_t at, std::uint32_t slot) const;
    bool is_over(std::uint32_t at) const;  // it has expired
    void seek(std::string_view key, Links links) const;
    void link(std::uint32_t at);
    void unlink(std::uint32_t at);
    void grow_chains();
    std::uint32_t take_record(std::uint32_t units);  // 0: see room()
    RingStatus no_record() const;                    // why take_record() returned none
    void free_record(std::uint32_t at);
    std::uint32_t write(const NewObject& object, std::uint32_t change);
    RingStatus may_put(std::span<const NewObject> objects, IfPresent present, std::uint32_t slot, std::size_t* which,
                       std::uint64_t* bytes) const;
    void enter(std::span<const NewObject> objects, std::span<const std::uint32_t> records);
    std::uint32_t write_record(const StoreKey& key, std::uint32_t units, std::uint32_t levels);
    bool make_room(std::uint64_t bytes, std::span<const NewObject> but, std::uint32_t slot, SegmentLookup& lookup);
    bool is_held(std::uint32_t at, SegmentLookup& lookup) const;
    bool is_there(std::uint32_t at) const;  // present or spilled, and not expired
    template <class MayGo>
    std::uint32_t sample(MayGo&& may_go);  // 0: none
    bool clear(std::uint32_t at);
    void clear_some();
    void take_out(std::uint32_t at);
    RingStatus release_removed(std::uint32_t slot, SegmentLookup& lookup);
    bool transfer(std::span<const std::uint32_t> records, std::uint32_t slot, SegmentLookup& lookup);
    void changed();
    void tell();  // wake the processes that wait for a change

    Ring& ring_;
    const Group& group_;
    std::atomic<std::uint64_t> room_{0};  // of the last thread that lacked room
};

}  // namespace shmtensor
