// A store (layout.hpp, "StoreHeader"): a ring whose messages have keys, stay until they are removed, and are read by
// everybody. Any process may be killed.
//
// A put moves the holds of its messages as Ring::put does, so the undo record of the ring covers it; its commit is the
// one store of tail.at. A removal first says so in the record, and then releases the holds, each of which is told by
// its mark: whoever finds a removal unfinished goes on with it. What follows from the records (hash chains, the list in
// order, free records) is derived again by whoever finds the mark that a change was under way.
//
// Order of locks: tail.lock, and then the metadata of one segment, for a moment.
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
    std::uint64_t version = 0;  // set by the put; before a `seal`, that of the reservation
};

enum class IfPresent {
    refuse,   // exists: nothing is put
    replace,  // the object becomes the next version; who has the old one keeps it
    seal,     // the key must be reserved for the caller
};

struct ObjectFacts {
    std::uint64_t version, bytes, created, expires;
    std::uint32_t blocks, holders;  // holds on its blocks, but for the store's
    bool pinned, spilled;
};

class Store {
   public:
    // Both must outlive it.
    Store(Ring& ring, const Group& group) : ring_(ring), group_(group) { ring_.to_all_ = true; }

    // Make an empty ring that nobody else knows a store. 0 for no limit. `spill_path`: shorter than kMaxSpillPath;
    // empty: objects are not spilled.
    void make(std::uint64_t max_bytes, bool evicts, std::string_view spill_path, std::uint64_t max_spilled_bytes);

    // Each takes tail.lock, for which it waits for patience_ms. need_mapping: a segment is not in the lookup. no_room:
    // put() and reserve_key() want Ring::reserve() of room(), the others EncodedMessage::make_room().

    // All objects at once, or none. exists: `which` is in the store already, or reserved; empty: the key of `which` is
    // not reserved for the caller (any more); full: max_bytes, and nothing may go; `which` is what has no room;
    // too_large: max_bytes, or the ring, will never take it.
    RingStatus put(std::span<NewObject> objects, IfPresent present, std::uint32_t slot, SegmentLookup& lookup,
                   unsigned patience_ms, std::size_t* which);
    std::uint64_t room() const { return room_; }
    // The object of a key, or of this version of it (0: any), which is said; the holds are the caller's. empty: there
    // is none. spilled: it is in a file. full: as Broadcast::read.
    RingStatus get(const StoreKey& key, std::uint64_t* version, EncodedMessage& encoded, std::uint32_t slot,
                   SegmentLookup& lookup, unsigned patience_ms);
    // Release what removed objects hold, after a removal that could not: remove() maps nothing.
    RingStatus release(std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    bool has_removed() const { return header().removed != 0; }
    // Remove the objects whose time is over among some records from `at` on, which is moved behind them and is 0 at
    // first; `expired` counts them. ok: there are more records; empty: these were the last.
    RingStatus expire(std::uint32_t* at, std::uint32_t* expired, std::uint32_t slot, SegmentLookup& lookup,
                      unsigned patience_ms);
    // empty: there is none.
    RingStatus remove(const StoreKey& key, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    // Reserve a key for this process, as long as it lives; nobody sees that but who puts. The number that
    // is its version tells this reservation from later ones.
    RingStatus reserve_key(const StoreKey& key, std::uint64_t* version, std::uint32_t slot, SegmentLookup& lookup,
                           unsigned patience_ms);
    // End that reservation. empty: it has ended.
    RingStatus give_up(const StoreKey& key, std::uint64_t version, std::uint32_t slot, SegmentLookup& lookup,
                       unsigned patience_ms);
    RingStatus touch(const StoreKey& key, const std::uint64_t* expires, const bool* pinned, std::uint32_t slot,
                     SegmentLookup& lookup, unsigned patience_ms);
    RingStatus facts(const StoreKey& key, ObjectFacts& facts, std::uint32_t slot, SegmentLookup& lookup,
                     unsigned patience_ms);
    // The object that should be spilled first, none of the keys in `but`; one that is more than all files may be is
    // evicted, and its version is said to be 0. empty: none may.
    struct Found {
        std::string key;
        std::uint64_t version = 0;
    };
    RingStatus choose(Found& found, std::span<const StoreKey> but, std::uint32_t slot, SegmentLookup& lookup,
                      unsigned patience_ms);
    // The content of this version is in its file: the memory is free for others. empty: it is there no more, or
    // somebody reads it. full: the files would be too many bytes, or it is more than all of them may be.
    RingStatus spill(const StoreKey& key, std::uint64_t version, std::uint32_t slot, SegmentLookup& lookup,
                     unsigned patience_ms);
    // The versions of spilled objects that were removed since the last call, as far as their files may be there still.
    // pre: `versions` has a capacity of kStoreDropped. empty: there are too many, which stays so until the next sweep.
    RingStatus take_dropped(std::vector<std::uint64_t>& versions, std::uint32_t slot, SegmentLookup& lookup,
                            unsigned patience_ms);
    void forget_dropped() { header().dropped = 0; }
    // The versions of all spilled objects, as far as the capacity of `versions` goes; no_room: `needed` would do.
    RingStatus spilled(std::vector<std::uint64_t>& versions, std::size_t* needed, std::uint32_t slot,
                       SegmentLookup& lookup, unsigned patience_ms);
    // The keys that begin with `prefix`, in order, from `after` on (which is left out unless it is empty), with their
    // versions and the times when they are over (ns of CLOCK_BOOTTIME; 0: never): as many as have room. ok: there may
    // be more.
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

    // First broken invariant in words, or nullptr. pre: nobody uses the store.
    const char* check() const;

   private:
    static constexpr std::uint32_t kFirstRecord = 1;
    static std::uint32_t units_of(std::uint64_t bytes);
    // Under the lock, so that nobody else writes.
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
    std::uint32_t find(const StoreKey& key) const;  // 0: nothing
    bool is_of(std::uint32_t at, const StoreKey& key) const;
    bool is_reserved(std::uint32_t at) const;  // and by a process that lives
    bool is_mine(std::uint32_t at, std::uint32_t slot) const;
    bool is_over(std::uint32_t at) const;  // its time
    void seek(std::string_view key, Links links) const;
    void link(std::uint32_t at);
    void unlink(std::uint32_t at);
    void grow_chains();
    std::uint32_t take_record(std::uint32_t units);  // 0: see room()
    RingStatus no_record() const;                    // why take_record() gave none
    void free_record(std::uint32_t at);
    std::uint32_t write(const NewObject& object, std::uint32_t change);
    RingStatus may_put(std::span<const NewObject> objects, IfPresent present, std::uint32_t slot, std::size_t* which,
                       std::uint64_t* bytes) const;
    void enter(std::span<const NewObject> objects, std::span<const std::uint32_t> records);
    std::uint32_t write_record(const StoreKey& key, std::uint32_t units, std::uint32_t levels);
    bool make_room(std::uint64_t bytes, std::span<const NewObject> but, std::uint32_t slot, SegmentLookup& lookup);
    bool is_held(std::uint32_t at, SegmentLookup& lookup) const;
    bool is_there(std::uint32_t at) const;  // present or spilled, and its time is not over
    template <class MayGo>
    std::uint32_t sample(MayGo&& may_go);  // 0: none
    bool clear(std::uint32_t at);
    void clear_some();
    void take_out(std::uint32_t at);
    RingStatus release_removed(std::uint32_t slot, SegmentLookup& lookup);
    bool transfer(std::span<const std::uint32_t> records, std::uint32_t slot, SegmentLookup& lookup);
    void changed();
    void tell();  // those who wait for a change

    Ring& ring_;
    const Group& group_;
    std::atomic<std::uint64_t> room_{0};  // of whichever thread lacked it last
};

}  // namespace shmtensor
