// A ring of messages in shared memory (layout.hpp, "Ring"): many producers, many consumers, any of which may be killed.
// Clients and the manager share this code.
//
// Order of locks: tail.lock, head.lock (RingHeader), and then nothing that blocks. A hold moves between its sender, the
// ring and its receiver by one store of its entry. That does not change the block, and so needs no lock of the
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

// Finds the metadata of segments. Called under a ring's lock, so it neither waits nor allocates.
class SegmentLookup {
   public:
    virtual SegmentMetadata* find(std::uint64_t segment) = 0;  // nullptr: not mapped here
    std::uint64_t missing = 0;                                 // the segment that was not found
    std::uint64_t gone = 0;  // a segment that no longer exists: a message that names it is lost
    bool is_gone(std::uint64_t segment) const { return gone != 0 && segment == gone; }

   protected:
    ~SegmentLookup() = default;
};

// Remembers the segment of the last lookup: most messages have all their blocks in one.
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

// A message that is ready to be put into a ring, or was taken out of one. Its hold entries belong to this process until
// it is put, and again once it is taken.
struct EncodedMessage {
    std::vector<std::byte> body;
    std::vector<MessageHold> holds;
    std::uint32_t flags = 0;
    std::uint32_t mark = 0;
    std::uint64_t bytes = 0;  // its size: body and blocks
    bool lost = false;        // it names a segment that is gone, and was taken without its holds

    // The room that a message needs before it can be copied here: nothing is allocated under a lock.
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
    busy,          // a lock is held, or there is much to copy: repeat with patience
    empty,         // no message
    full,          // max_messages, max_bytes, or the largest size of a ring
    too_large,     // no ring, or not this one, will ever take it
    no_room,       // make room first: reserve() for put(), EncodedMessage::make_room() for calls that return a message
    need_mapping,  // a segment is not in the lookup
    damaged,       // not a valid message; see R1
    exists,        // of a store: an object has that key, or the key is reserved
    spilled,       // of a store: the object is in a file
};

enum class End { tail, head };  // of a ring: where messages are put, and where they are taken

// Messages as bytes: one frame each, a FrameHeader and the body. A message with holds travels alone, with its blocks
// beside it in the order of the list.
struct FrameHeader {
    std::uint32_t body_bytes;
    std::uint32_t flags;  // kBodyInBlock
};

// Copies of the oldest messages of a ring, which are still inside.
struct Run {
    EncodedMessage frames;  // body: all frames; holds: those of a single message, owned by the reader
    std::uint32_t number = 0, messages = 0;
    std::uint64_t bytes = 0;  // size of the messages
    struct Bounds {
        std::size_t bytes;  // of all frames; a single frame may be longer
        std::uint32_t messages;
    };
};

class Ring {
   public:
    // Write the header of a new ring into zeroed memory, of which the first kFirstRingBytes are reserved.
    static void make(std::byte* at, std::uint32_t number);
    // False: not a ring of this version. `bytes` of the file are mapped. The file must outlive the ring.
    bool open(std::byte* at, std::uint64_t bytes, const os::Descriptor& file);

    RingHeader& header() const { return *reinterpret_cast<RingHeader*>(at_); }
    std::uint32_t number() const { return number_; }
    std::uint32_t size() const;  // messages inside; a snapshot
    bool is_full() const;

    // Publish as many messages as fit, in order, as `slot`; `done` is their number. Their holds then belong to the
    // ring. Not ok: the reason why the next one was not published. `commit`: the commit number of the first message,
    // from which those of the others count up; 0: none.
    RingStatus put(std::span<const EncodedMessage> messages, std::uint32_t slot, SegmentLookup& lookup,
                   unsigned patience_ms, std::size_t* done, std::uint64_t commit = 0);
    // Take the oldest messages as `slot`, at most messages.size(). ok: `done` is at least 1. `receipt`, if any, is set
    // to a message's number + 1 before it is taken. A message that names a segment that is gone is `lost`.
    RingStatus get(std::span<EncodedMessage> messages, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms,
                   std::size_t* done, std::atomic<std::uint64_t>* receipt = nullptr);
    // For a process that moves messages: peek() copies the oldest ones, either messages without holds within `most`, or
    // one with holds. take() takes out the messages of a peek(). `commit`: the commit number of the last of them.
    // empty: another process has taken the first of them. The caller drops what take() leaves in `encoded`.
    RingStatus peek(Run& run, const Run::Bounds& most, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    RingStatus take(EncodedMessage& encoded, std::uint32_t number, std::uint32_t messages, std::uint64_t commit,
                    std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    // The commit number of an end, after undoing a dead process's transfer there.
    RingStatus commit_number(End end, std::uint64_t* number, std::uint32_t slot, SegmentLookup& lookup,
                             unsigned patience_ms);
    // Reserve the first `want` bytes. They count for the group (slot 0) afterwards, and for `slot` during the call. 0
    // or errno.
    int reserve(std::uint64_t want, Group& group, std::uint32_t slot, Refusal& refusal);
    std::uint64_t doubled() const;  // its size in bytes with twice the capacity; 0: damaged

    // Wait until there may be a message, room, or a task_done(), at most timeout_ns and at most 100 ms (kLook). Spins
    // first if that has paid. EINTR: a signal arrived. `taken`: taken() before the put that found no room.
    int await_message(std::uint64_t timeout_ns);
    int await_beyond(std::uint32_t put, std::uint64_t timeout_ns);  // more messages than this have been put
    int await_room(std::uint32_t taken, std::uint64_t timeout_ns);
    std::uint32_t taken() const {
        return count_of(header().head.at.word.load(std::memory_order_acquire));  // SYNC: head
    }
    int await_done(std::uint64_t timeout_ns);
    bool task_done();  // false: called more often than there were messages
    bool is_all_done() const;

    // Make an event readable if there are messages, and unreadable otherwise. Called after each put and get of a
    // watched ring. Takes head.lock, so that no message is announced after it has been taken; goes on without the lock
    // after patience_ms. Of a broadcast, it empties the event and writes to it for each message, since views of the
    // event (os::view_open) need a write to an empty pipe after each publication. False: the event's descriptor is
    // lost.
    bool announce(const os::Descriptor& event, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);

    // For a dead client: whether an undo record names it, the segments needed to undo, and the undoing.
    bool has_transfer_of(std::uint32_t slot) const;
    std::vector<std::uint64_t> segments_to_undo(std::uint32_t slot) const;
    RingStatus undo_transfers(std::uint32_t slot, SegmentLookup& lookup);

    // The words that every put, get and read, and every join and leave of a reader, changes: if two calls return the
    // same, there was none in between.
    std::vector<std::uint64_t> version() const;

    // A description of the first broken invariant, or nullptr. pre: no process uses the ring.
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
    // Lock an end, and undo a dead holder's transfer. The untrusted form is the manager's (lock.hpp).
    RingStatus take(End end, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms);
    RingStatus take_untrusted(End end, SegmentLookup& lookup);
    RingStatus taken_over(End end, Locked locked, SegmentLookup& lookup, void (*drop)(Lock&));
    RingStatus undo(End end, SegmentLookup& lookup);
    RingStatus put_one(const EncodedMessage& encoded, std::uint32_t slot, SegmentLookup& lookup, unsigned patience_ms,
                       std::uint64_t commit);
    // Write the undo record before anything moves at an end, and the commit number, if any, which it covers.
    void note(RingEnd& end, std::uint32_t units, std::uint32_t slot, std::uint64_t commit);
    // Take one message: copy it, move its holds, move the head. no_room: `needed` is the room that it needs.
    RingStatus get_one(EncodedMessage& encoded, std::uint32_t slot, SegmentLookup& lookup,
                       std::atomic<std::uint64_t>* receipt, EncodedMessage::Room& needed, std::uint64_t commit = 0);
    // Copy messages from `at` to `tail`, as peek() does. ok: there is at least one.
    RingStatus gather(Run& run, const Run::Bounds& most, std::uint64_t at, std::uint64_t tail, std::uint32_t slot,
                      SegmentLookup& lookup, unsigned patience_ms, EncodedMessage::Room& needed) const;
    static RingStatus copy(const Found& found, EncodedMessage& into, SegmentLookup& lookup,
                           EncodedMessage::Room& needed);
    // Add holds of `slot` to all blocks in a copied list, and replace the entries of the list by them. Not ok: the
    // encoded message then has only the holds that were made. full: hold entries must first be reserved in the segment
    // lookup.missing. pre: all segments of the list are in the lookup.
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

    // Whether all of a message's list of holds was ever written; the message may state a wrong length.
    bool is_written(const Found& found) const;

    std::byte* at_ = nullptr;
    std::uint64_t bytes_ = 0;
    const os::Descriptor* file_ = nullptr;
    std::uint32_t number_ = 0;  // read when the ring was opened
    bool to_all_ = false;       // a message is for all that wait or watch, not for one of them
    Spin spin_;
    Gather messages_, room_;
};

// Reserve the first `want` bytes of a ring, as Ring::reserve does. If that is refused, the client gives back the memory
// that it keeps for later and tries again; then it asks the other clients to give back theirs.
void reserve(Ring& ring, std::uint64_t want, Client& client, Refusal& refusal);

}  // namespace shmtensor
