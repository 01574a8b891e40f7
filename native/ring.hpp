// A ring of messages in shared memory (layout.hpp, "Ring"): many producers, many consumers, any of whom may be killed.
// Clients and the manager share this code.
//
// Order of locks: put_lock, get_lock, and then nothing that waits. A hold moves between its sender, the ring and its
// receiver by one store of its entry, which leaves the block as it is and so needs no lock of the books.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "books.hpp"
#include "layout.hpp"
#include "lock.hpp"

namespace shmtensor {

// Where the books of segments are found; asked under a ring's lock, so it neither waits nor allocates.
class Shelf {
   public:
    virtual Books* find(std::uint64_t segment) = 0;  // nullptr: not here

   protected:
    ~Shelf() = default;
};

// A message that is complete but for its place in a ring.
struct Sending {
    std::vector<std::byte> body;
    std::vector<MessageHold> holds;  // their entries belong to the sender, kind message, with this mark
    std::uint32_t flags = 0;
    std::uint32_t mark = 0;
    std::uint64_t bytes = 0;
};

// A message that was taken: its holds belong to the receiver, kind client.
struct Taken {
    std::vector<std::byte> body;
    std::vector<MessageHold> holds;
    std::uint32_t flags = 0;
    std::uint32_t count = 0;  // messages before it
};

enum class Ringed {
    ok,
    busy,          // a lock is taken: again, with patience
    empty,         // no message
    full,          // max_messages or max_bytes would be passed
    too_large,     // no ring can hold it
    no_room,       // pages must be reserved first: reserve(), then again
    need_mapping,  // a segment is not on the shelf: missing()
    damaged,       // what lies there is no message; see R1
};

class Ring {
   public:
    // Write the header of a new ring into zeroed pages [0, kMessagesAt + the first messages), which are reserved.
    static void make(std::byte* at, std::uint32_t number);
    // False when what lies there is no ring of this version. `bytes` of it are mapped, `fd` is the file.
    bool open(std::byte* at, std::uint64_t bytes, int fd);

    RingHeader& header() const { return *reinterpret_cast<RingHeader*>(at_); }
    std::uint32_t size() const;  // messages inside, just now
    bool is_full() const;
    std::uint64_t missing() const { return missing_; }

    // Publish a message as `slot`. After `ok` its holds are the ring's.
    Ringed put(const Sending& message, std::uint32_t slot, Shelf& shelf, unsigned patience_ms);
    // Take the oldest message as `slot`. `receipt`, if any, is set to its count + 1 before the message is taken.
    // `lose`: a message whose segment is missing is taken all the same, without its holds.
    Ringed get(Taken& message, std::uint32_t slot, Shelf& shelf, unsigned patience_ms,
               std::atomic<std::uint64_t>* receipt = nullptr, bool lose = false);
    // Reserve pages for twice the capacity. 0 or errno. Without a lock.
    int reserve();

    // Wait until a message may be there (or room, or task_done), at most timeout_ns and at most kLook. `seen` is the
    // position looked at last. Spins for a moment first when that has paid. EINTR: a signal came.
    int await_message(std::uint64_t seen, std::uint64_t timeout_ns);
    int await_room(std::uint64_t seen, std::uint64_t timeout_ns);
    int await_done(std::uint32_t seen, std::uint64_t timeout_ns);
    bool task_done();  // false: more often than there were messages

    // The manager's part, for a dead client: whether an undo record names it, the segments needed to undo, the undoing.
    bool names(std::uint32_t slot) const;
    std::vector<std::uint64_t> segments_to_undo() const;
    Ringed settle(std::uint32_t slot, Shelf& shelf);

    // First broken invariant in words, or nullptr; with both locks held.
    const char* check(Shelf& shelf) const;

   private:
    bool lock(bool getting, std::uint32_t slot, unsigned patience_ms, Shelf& shelf, Ringed* why);
    Ringed undo(bool getting, Shelf& shelf);
    Ringed grow(std::uint32_t units, std::uint32_t slot, Shelf& shelf, unsigned patience_ms);
    const Message* message_at(std::uint32_t position) const;  // nullptr: damaged
    std::byte* unit(std::uint32_t position) const;

    std::byte* at_ = nullptr;
    std::uint64_t bytes_ = 0;
    int fd_ = -1;
    std::uint64_t missing_ = 0;
    std::uint32_t spin_ = 0;  // how long the next wait spins; adapts
};

}  // namespace shmtensor
