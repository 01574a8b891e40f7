// A ring of messages in shared memory (layout.hpp, "Ring"): many producers, many consumers, any of whom may be killed.
// Clients and the manager share this code.
//
// Order of locks: tail.lock, head.lock (RingHeader), and then nothing that waits. A hold moves between its sender, the
// ring and its receiver by one store of its entry, which leaves the block as it is and so needs no lock of the
// metadata.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/layout.hpp"
#include "base/wait.hpp"
#include "heap/group.hpp"
#include "heap/lock.hpp"
#include "heap/segment_metadata.hpp"

namespace shmtensor {

class Client;

// Where the metadata of segments are found; asked under a ring's lock, so it neither waits nor allocates.
class SegmentLookup {
   public:
    virtual SegmentMetadata* find(std::uint64_t segment) = 0;  // nullptr: not here
    std::uint64_t missing = 0;                                 // what was not found
    std::uint64_t gone = 0;  // what nobody has any more: a message that names it is lost
    bool is_gone(std::uint64_t segment) const { return gone != 0 && segment == gone; }

   protected:
    ~SegmentLookup() = default;
};

// Remembers the segment asked for last: most messages have all their blocks in one.
class CachedLookup final : public SegmentLookup {
   public:
    explicit CachedLookup(SegmentLookup& all) : all_(all) { gone = all.gone; }
    SegmentMetadata* find(std::uint64_t segment) override {
        if (!metadata_ || segment != segment_) {
            metadata_ = all_.find(segment);
            segment_ = segment;
            if (!metadata_) all_.missing = segment;
        }
        return metadata_;
    }

   private:
    SegmentLookup& all_;
    SegmentMetadata* metadata_ = nullptr;
    std::uint64_t segment_ = 0;
};

// A message: complete but for its place in a ring, or taken out of one. Until it is put, and once it is taken, its
// entries belong to this process.
struct EncodedMessage {
    std::vector<std::byte> body;
    std::vector<MessageHold> holds;
    std::uint32_t flags = 0;
    std::uint32_t mark = 0;
    std::uint64_t bytes = 0;  // what it counts for
    bool lost = false;        // it names a segment that is gone, and was taken without its holds

    // How much a message needs before it can be copied here: under a lock nothing is allocated.
    struct Room {
        std::size_t body = 0, holds = 0;
    };
    void make_room(const Room& needed) {
        body.reserve(needed.body);
        holds.reserve(needed.holds);
    }
};

enum class RingStatus {
    ok,
    busy,          // a lock is taken, or there is much to copy: again, with patience
    empty,         // no message
    full,          // max_messages, max_bytes, or all that a ring can hold
    too_large,     // no ring, or not this one, will ever take it
    no_room,       // room must be made first: put() wants reserve(), what takes a message EncodedMessage::make_room()
    need_mapping,  // a segment is not in the lookup
    damaged,       // what lies there is no message; see R1
    exists,        // of a store: an object has that key, or the key is reserved
    spilled,       // of a store: the object is in a file
};

enum class End { tail, head };  // of a ring: where messages are put, and where they are taken

// Messages as bytes: a frame for each, which is FrameHeader and the body. Those with holds travel alone, their blocks
// beside them in the order of the list.
struct FrameHeader {
    std::uint32_t body_bytes;
    std::uint32_t flags;  // kBodyInBlock
};

// The oldest messages of a ring, which are inside still.
struct Run {
    EncodedMessage frames;  // the body: all frames; the holds, of a single message: the reader's own
    std::uint32_t number = 0, messages = 0;
    std::uint64_t bytes = 0;  // what the messages count for
    struct Bounds {
        std::size_t bytes;  // of frames, but for a single one
        std::uint32_t messages;
    };
};

class Ring {
   public:
    // Write the header of a new ring into zeroed memory, of which the first kFirstRingBytes are reserved.
    static void make(std::byte* at, std::uint32_t number);
    // False when what lies there is no ring of this version. `bytes` of the file are mapped; it must outlive the ring.
    bool open(std::byte* at, std::uint64_t bytes, const os::Descriptor& file);

    RingHeader& header() const { return *reinterpret_cast<RingHeader*>(at_); }
    std::uint32_t number() const { return number_; }
    std::uint32_t size() const;  // messages inside, just now
    bool is_full() const;

    // Publish messages as `slot`, in order, as many as fit; `done` says how many. After that their holds are the
    // ring's.
    // Not ok: why the next one was not published. `commit`: the commit number of the first message, and of the others
    // those after it; 0: none.
    RingStatus put(std::span<const EncodedMessage> messages, std::uint32_t slot, SegmentLookup& lookup,
                   unsigned patience_ms, std::size_t* done, std::uint64_t commit = 0);
    // Take the oldest messages as `slot`, at most messages.size(). ok: `done` is at least 1. `receipt`, if any, is set
    // to a message's number + 1 before it is taken. One that names a segment that is gone is `lost`.
    RingStatus get(std::span<EncodedMessage> messages, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms,
                   std::size_t* done, std::atomic<std::uint64_t>* receipt = nullptr);
    // For who moves messages: peek() copies the oldest ones, as many without holds as have room in `most`, or one with
    // holds; take() takes out those that a peek() gave. `commit`: the commit number of the last of them. empty:
    // others have taken the first of them. What take() leaves in `encoded` is to be dropped.
    RingStatus peek(Run& run, const Run::Bounds& most, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    RingStatus take(EncodedMessage& encoded, std::uint32_t number, std::uint32_t messages, std::uint64_t commit,
                    std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    // The commit number of an end, once nothing of the dead is left to undo there.
    RingStatus commit_number(End end, std::uint64_t* number, std::uint32_t slot, SegmentLookup& lookup,
                             unsigned patience_ms);
    // Reserve the first `want` bytes; they count for the group (slot 0), and for `slot` meanwhile. 0 or errno.
    int reserve(std::uint64_t want, Group& group, std::uint32_t slot, Refusal& refusal);
    std::uint64_t doubled() const;  // bytes of it with twice the capacity; 0: damaged

    // Wait until there may be a message, room, a task_done(); at most timeout_ns, and not beyond the moment to look
    // again (100 ms). Spins first when that has paid. EINTR when a signal came. `taken`: as taken() was before the put
    // that found no room.
    int await_message(std::uint64_t timeout_ns);
    int await_beyond(std::uint32_t put, std::uint64_t timeout_ns);  // more messages than this have been put
    int await_room(std::uint32_t taken, std::uint64_t timeout_ns);
    std::uint32_t taken() const {
        return count_of(header().head.at.word.load(std::memory_order_acquire));  // SYNC: head
    }
    int await_done(std::uint64_t timeout_ns);
    bool task_done();  // false: called more often than there were messages
    bool is_all_done() const;

    // Make an event readable if there are messages, and else not. After each put and get when somebody watches: under
    // head.lock, so that no message is announced once it has been taken. (Without it, if that cannot be had in time.)
    // For each message of a broadcast the event is emptied and written to: after a publication there always is a write
    // to an empty pipe, by this process or another, which is what views of the event need (os::view_open).
    // False: the event's descriptor is lost.
    bool announce(const os::Descriptor& event, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);

    // For a dead client: whether an undo record names it, what is needed to undo, the undoing.
    bool has_transfer_of(std::uint32_t slot) const;
    std::vector<std::uint64_t> segments_to_undo(std::uint32_t slot) const;
    RingStatus undo_transfers(std::uint32_t slot, SegmentLookup& lookup);

    // What changes with every put, get and read, and with who reads: read twice, it tells whether there was any.
    std::vector<std::uint64_t> version() const;

    // First broken invariant in words, or nullptr. pre: nobody uses the ring.
    const char* check(SegmentLookup& lookup) const;

   private:
    friend class Broadcast;
    friend class Store;
    struct Found {
        const Message* message;  // nullptr: damaged
        std::uint32_t next;      // the position after it
        std::uint32_t holds;     // listed in it
    };
    RingEnd& at(End end) const { return end == End::tail ? header().tail : header().head; }
    // Lock an end, of which a dead holder's transfer is undone first; as the manager does it (lock.hpp), too.
    RingStatus take(End end, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    RingStatus take_untrusted(End end, SegmentLookup& lookup);
    RingStatus taken_over(End end, Locked locked, SegmentLookup& lookup, void (*drop)(Lock&));
    RingStatus undo(End end, SegmentLookup& lookup);
    RingStatus put_one(const EncodedMessage& encoded, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms,
                       std::uint64_t commit);
    // Before anything moves at an end: what has to be undone if this process dies. With the commit number, if any,
    // which is part of the commit.
    void note(RingEnd& end, std::uint32_t units, std::uint32_t slot, std::uint64_t commit);
    // no_room: `needed` says how much. get_one() moves the holds as well, and the head.
    RingStatus get_one(EncodedMessage& encoded, std::uint32_t slot, SegmentLookup& lookup,
                       std::atomic<std::uint64_t>* receipt, EncodedMessage::Room& needed, std::uint64_t commit = 0);
    // Copies from `at`, before `tail`, as peek(). ok: there is at least one.
    RingStatus gather(Run& run, const Run::Bounds& most, std::uint64_t at, std::uint64_t tail, std::uint32_t slot,
                      SegmentLookup& lookup, unsigned patience_ms, EncodedMessage::Room& needed) const;
    static RingStatus copy(const Found& found, EncodedMessage& into, SegmentLookup& lookup,
                           EncodedMessage::Room& needed);
    // pre: the encoded message has a copy of a message's list, and all its segments are in the lookup. Each entry in it
    // becomes one of the slot's own. Not ok: those that were made are all that is left in the encoded message; full:
    // hold entries must be reserved in the segment lookup.missing first.
    static RingStatus hold(EncodedMessage& encoded, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    RingStatus grow(std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    RingStatus take_plain(std::uint64_t head, std::uint32_t messages, std::uint64_t commit, std::uint32_t slot);
    Found message_at(std::uint32_t position) const;
    void say_room();  // after head moved
    std::byte* unit(std::uint32_t position, std::uint32_t capacity) const {
        return at_ + kMessagesAt + std::size_t{position & (capacity - 1)} * kRingUnit;
    }
    std::uint32_t capacity() const;
    template <class Word, class Changed, class Pause>
    int await(const std::atomic<Word>& word, std::uint32_t seen, std::atomic<std::uint32_t>& asleep,
              std::uint64_t timeout_ns, Changed&& changed, Pause&& pause);

    // Whether all of a message's list of holds was ever written; what it says of its length may not be so.
    bool is_written(const Found& found) const;

    std::byte* at_ = nullptr;
    std::uint64_t bytes_ = 0;
    const os::Descriptor* file_ = nullptr;
    std::uint32_t number_ = 0;  // as it was when the ring was opened
    bool to_all_ = false;       // a message is for all who wait or watch, and not for one of them
    Spin spin_;
    Gather messages_, room_;
};

// Reserve the first `want` bytes of a ring, as Ring::reserve does. If that is refused, the client gives back what it
// keeps and tries again; then the other clients are asked to give back.
void reserve(Ring& ring, std::uint64_t want, Client& client, Refusal& refusal);

}  // namespace shmtensor
