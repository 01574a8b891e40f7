// A broadcast (layout.hpp, "ReaderRow"): a ring whose messages every reader sees, in order. Any process may be killed.
//
// Messages are put as into any ring. A reader adds its own holds to the blocks of a message. The last reader of a
// message takes it out of the ring as Ring::get does, and so does a process that drops it. So a transfer has the ring's
// undo record, and a dead reader leaves only holds of its slot and a row that names it. The next process that finds the
// row in its way clears it.
//
// Order of locks: head.lock, then briefly the metadata of one segment.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "heap/group.hpp"
#include "ipc/ring.hpp"

namespace shmtensor {

// The state of a reader in its own process. `next` and `missed` are written under head.lock.
struct Reader {
    std::uint32_t row = 0;
    std::uint64_t owner = 0;
    std::atomic<std::uint32_t> next{0};     // number of the message after the one read last
    std::atomic<std::uint64_t> missed{0};   // messages dropped before they were read, as of the last read
    std::atomic<std::uint64_t> skipped{0};  // messages passed over for a newer one
};

enum class Next { oldest, newest };  // of the messages that a reader has not read

enum class Drop {
    passed,    // there are readers, and all have read it
    unneeded,  // no reader lacks it
    oldest,    // readers that lack it miss it, provided that no message was taken since the put found no room
};

class Broadcast {
   public:
    // Both must outlive it.
    Broadcast(Ring& ring, const Group& group) : ring_(ring), group_(group) { ring_.to_all_ = true; }

    // Take a row for a reader of process `slot`, which begins with the oldest message or with the next one put. full:
    // there are kReaders.
    RingStatus join(Reader& reader, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms, bool from_oldest);
    // Take a row that belongs to no process and stays until leave(). `id`, not 0, identifies it: a process that joins
    // with the same id takes over the row and continues from its cursor. full: there are kReaders.
    RingStatus join_kept(Reader& reader, std::uint64_t id, std::uint32_t slot, SegmentLookup& lookup,
                         unsigned patience_ms);
    void leave(const Reader& reader);      // does not block; processes that wait for room look again
    bool has(const Reader& reader) const;  // the row is still this reader's

    // Read the next message; Next::newest skips all but the last one. Not ok: the caller drops the holds in `encoded`.
    // full: hold entries must first be reserved in the segment lookup.missing. empty: no message, or the reader has
    // left.
    RingStatus read(EncodedMessage& encoded, Reader& reader, Next next, std::uint32_t slot, SegmentLookup& lookup,
                    unsigned patience_ms);
    // Copy what a reader reads next, as Ring::peek() does; its cursor stays.
    RingStatus peek(Run& run, const Reader& reader, const Run::Bounds& most, std::uint32_t slot, SegmentLookup& lookup,
                    unsigned patience_ms);
    // Take the oldest message out, if `which` permits it; the caller drops its holds. empty: not permitted, or there is
    // no message. `taken`: Ring::taken() before the put that found no room.
    RingStatus drop(EncodedMessage& encoded, Drop which, std::uint32_t taken, std::uint32_t slot, SegmentLookup& lookup,
                    unsigned patience_ms);

    std::uint32_t lag(const Reader& reader) const;   // messages that it has not read
    std::uint32_t next(const Reader& reader) const;  // number of the first of them
    std::uint64_t missed(const Reader& reader) const;
    int await(const Reader& reader, std::uint64_t timeout_ns);  // as Ring::await_message

    struct Member {
        std::uint32_t slot, lag;
    };
    std::vector<Member> members() const;  // a snapshot

    // A description of the first broken invariant, or nullptr. pre: no process uses it.
    const char* check() const;

   private:
    RingStatus join_as(std::uint64_t owner, Reader& reader, std::uint32_t slot, SegmentLookup& lookup,
                       unsigned patience_ms, bool from_oldest);
    ReaderRow& row(std::uint32_t index) const { return reinterpret_cast<ReaderRow*>(ring_.at_ + kReadersAt)[index]; }
    std::uint32_t rows() const;
    bool lives(std::uint64_t owner) const;
    struct Lag {
        bool anybody, lacking;
    };
    Lag find_lagging(std::uint64_t head, std::uint32_t but);
    bool is_inside(std::uint64_t at, const Ring::Found& found, std::uint64_t head, std::uint64_t tail) const;
    bool newest(std::uint64_t* at, std::uint64_t head, std::uint64_t tail) const;
    RingStatus read_one(EncodedMessage& encoded, Reader& reader, Next next, std::uint32_t slot, SegmentLookup& lookup,
                        unsigned patience_ms, EncodedMessage::Room& needed);
    RingStatus drop_one(EncodedMessage& encoded, Drop which, std::uint32_t taken, std::uint32_t slot,
                        SegmentLookup& lookup, EncodedMessage::Room& needed);

    Ring& ring_;
    const Group& group_;
};

}  // namespace shmtensor
