// A broadcast (layout.hpp, "ReaderRow"): a ring whose messages every reader sees, in order. Any process may be killed.
//
// Messages are put as into any ring. Reading one adds holds of the reader's own to its blocks; the last to read it
// takes it out of the ring as Ring::get does, and so does whoever drops it. So a transfer has the ring's undo record,
// and what a dead reader leaves are holds of its slot and a row that names it, which the next one who is hindered by it
// clears.
//
// Order of locks: head.lock, and then the metadata of one segment, for a moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "heap/group.hpp"
#include "ipc/ring.hpp"

namespace shmtensor {

// A reader, as its process knows it. `next` and `missed` are written under head.lock.
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
    oldest,    // whoever lacks it misses it, if it still is the message of the number that had no room behind it
};

class Broadcast {
   public:
    // Both must outlive it.
    Broadcast(Ring& ring, const Group& group) : ring_(ring), group_(group) { ring_.to_all_ = true; }

    // A row for a reader of process `slot`, who begins with the oldest message, or with what is put from now on.
    // full: there are kReaders.
    RingStatus join(Reader& reader, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms, bool from_oldest);
    // A row that belongs to no process: it stays until leave(). `id`, not 0, tells it from others; whoever knows it
    // takes the row over, and reads on from its cursor. full: there are kReaders.
    RingStatus join_kept(Reader& reader, std::uint64_t id, std::uint32_t slot, SegmentLookup& lookup,
                         unsigned patience_ms);
    void leave(const Reader& reader);      // waits for nobody; those who wait for room look again
    bool has(const Reader& reader) const;  // the row is still this reader's

    // The next message of a reader; with Next::newest it passes over what was put before the last one. Not ok: the
    // holds in the encoded message are to be dropped. full: hold entries must be reserved in the segment lookup.missing
    // first. empty also when it has left.
    RingStatus read(EncodedMessage& encoded, Reader& reader, Next next, std::uint32_t slot, SegmentLookup& lookup,
                    unsigned patience_ms);
    // What a reader reads next, copied as by Ring::peek(); its cursor stays.
    RingStatus peek(Run& run, const Reader& reader, const Run::Bounds& most, std::uint32_t slot, SegmentLookup& lookup,
                    unsigned patience_ms);
    // Take the oldest message out if it may go; its holds are the caller's to drop. empty: it may not, or there is
    // none. `taken`: as Ring::taken() was before the put that found no room.
    RingStatus drop(EncodedMessage& encoded, Drop which, std::uint32_t taken, std::uint32_t slot, SegmentLookup& lookup,
                    unsigned patience_ms);

    std::uint32_t lag(const Reader& reader) const;   // messages that it has not read
    std::uint32_t next(const Reader& reader) const;  // number of the first of them
    std::uint64_t missed(const Reader& reader) const;
    int await(const Reader& reader, std::uint64_t timeout_ns);  // as Ring::await_message

    struct Member {
        std::uint32_t slot, lag;
    };
    std::vector<Member> members() const;  // just now

    // First broken invariant in words, or nullptr. pre: nobody uses it.
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
