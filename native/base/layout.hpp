// Every struct that lives in shared memory, with its unit, its writer and the invariants that tie the fields together.
//
// Two kinds of mapping are described here:
//   group segment   GroupHeader, Slot[kMaxSlots], Timeline[kTimelines]        one per manager
//   control part    MetadataHeader, BlockRecord[blocks], Hold[holds]          one per segment, beside its payload
//   ring            RingHeader, messages (or the objects of a store)          the payload of a segment made for it
// and what lies in ordinary blocks: the words of locks and the like (Synchronisation, at the end).
//
// Version rule: any change to the size, order or meaning of a field below raises kLayoutVersion. The manager tells its
// version in the handshake and refuses a client of another one, so two versions never meet in one mapping.
//
// Order of memory. What acquires names what released it, by the same `SYNC: name` at both ends; who acquires sees:
//   lock       what the last holder of a Lock wrote under it
//   slot       the state of a slot, and with it whether what names that slot still counts
//   epoch      that another manager leads
//   quota      what others have counted; of two who count and then look, at least one sees the other
//   hold       an entry's mark, and the record of its block
//   tail       the messages before it
//   head       that the room before it is free
//   capacity   the messages, copied to where they lie in the larger ring
//   reserved   the pages of a larger ring
//   bytes      no less taken than what tail.bytes, read afterwards, says was put
//   undo       the message that the record names
//   asleep     the mark of a sleeper, or the changed word: a process sets the mark and reads the word again before it
//              sleeps; a process that changes the word reads the mark afterwards
//   done       the count of task_done()
//   rows       the cursor of a reader's row
//   cursor     a tail that is not behind it
//   commit     the message that has the number
//   lost       where the interval of lost points of a timeline begins
//   timeline   which points of a timeline were lost; what a stream wrote before a point, the GPU itself orders
//   dirty      what of a store follows from its records
//   high       that the records before it are whole
//   chains     where the hash chains before it lie
//   record     what a record of a store contains: read under the lock, which its writer may have died with
//   receipt    which message a worker took, and the results of those before it: read in Python
//   handover   what the last holder of a lock, or who set an event or notified, wrote before (sync.cpp)
// All that stands without an order in the code is sequentially consistent. What is relaxed is under a lock, or a hint.
// docs/memory-order.md argues each pair, and what a process leaves that is killed between two stores.
//
// Only offsets and indices are stored, never pointers. (pthread_mutex_t keeps pointers of the thread that holds it;
// they mean something to that thread and to the kernel alone.)
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shmtensor {

constexpr std::uint32_t kLayoutVersion = 8;
constexpr std::uint64_t kGroupMagic = 0x50554f52474d4853;     // "SHMGROUP", little endian
constexpr std::uint64_t kMetadataMagic = 0x534b4f4f424d4853;  // "SHMBOOKS"
constexpr std::uint64_t kRingMagic = 0x2a474e49524d4853;      // "SHMRING*"

constexpr std::size_t kLine = 64;                              // bytes; no two writers share a line that is hot
constexpr std::size_t kPage = 4096;                            // bytes; unit of reservation and of page alignment
constexpr std::uint32_t kNone = 0xffffffff;                    // no index
constexpr std::uint32_t kMaxSlots = 8192;                      // entries of the slot table
constexpr std::uint64_t kArenaBytes = std::uint64_t{1} << 30;  // payload of an arena, address space
constexpr std::uint64_t kMaxSegmentBytes = std::uint64_t{1} << 46;
constexpr std::uint64_t kDeviceArenaBytes = 32 << 20;  // payload of an arena in a device's memory, all of it there
constexpr std::uint32_t kArenaBlocks = 1u << 20;       // block records of an arena
constexpr std::uint32_t kArenaHolds = 1u << 22;        // hold entries of an arena
constexpr std::uint32_t kDedicatedHolds = 1u << 16;    // hold entries of a segment with a single block

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "words in shared memory must be plain words");

// ---------------------------------------------------------------------------------------------------------------------
// A robust process-shared mutex. `holder` is the slot of who has it: for reports only, never for decisions.
struct alignas(kLine) Lock {
    pthread_mutex_t mutex;
    std::atomic<std::uint32_t> holder;
};
static_assert(sizeof(Lock) == kLine);

// ---------------------------------------------------------------------------------------------------------------------
// Group segment
enum class SlotState : std::uint32_t {
    free = 0,    // nobody; may be claimed by compare-and-swap
    group = 1,   // slot 0 alone: owns what is in flight through plain pickles
    client = 2,  // a process that said hello
    embryo = 3,  // a child being forked or spawned; `parent` claimed it
    dead = 4,    // gone; the manager still has to release what it held
};

constexpr std::uint32_t kManagers = 4;  // managers of a group that may be alive at once, all but one of them stopped

struct GroupHeader {
    // written once by the manager that made it
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t slots;
    std::uint64_t group_id;  // random
    // of the manager
    std::atomic<std::uint32_t> epoch;         // managers that this group has had; raised by each when it takes over
    std::atomic<std::uint32_t> next_ring;     // numbers of rings from here on were never given out
    std::atomic<std::uint64_t> next_segment;  // numbers of segments from here on were never given out
    std::atomic<std::uint64_t> namespace_;    // inode of the PID namespace in which the slots' process ids hold
    // alive[epoch % kManagers] is held by the manager of that epoch for life: its death shows by a plain load.
    Lock alive[kManagers];

    // Quotas, in bytes of payload; 0: none. Written by the manager alone.
    //   Q1  the sum of Slot::reserved over all slots is at most max_bytes, but for what is being taken back
    //   Q2  Slot::reserved of a client is at most max_bytes_per_client, likewise
    // A quota that is set below what is reserved already only keeps more from being reserved.
    std::atomic<std::uint64_t> max_bytes;
    std::atomic<std::uint64_t> max_bytes_per_client;
    // CLOCK_MONOTONIC, seconds, of the last time that a client was refused memory: the others then give back what they
    // keep for later. Written by whoever was refused.
    std::atomic<std::uint32_t> pressed;

    // Looks of managers for rings that nobody can reach: ended << 32 | look.
    //   look   the last one begun. Void once there is a later one: the next manager's, or as somebody opened a ring
    //   that
    //          was sealed with its number
    //   ended  the last one that was decided. Rings sealed with its number are no more: nobody opens them
    std::atomic<std::uint64_t> looks;

    // Counters of all managers of the group. They only grow, by one atomic addition each, so that a manager that was
    // stopped and replaced takes nothing back. On a line of their own: clients look at those above all the time.
    alignas(kLine) std::atomic<std::uint64_t> requests;  // packets received
    std::atomic<std::uint64_t> refused;                  // requests and connections
    std::atomic<std::uint64_t> reaped;                   // clients that ended, and were or will be reclaimed
};
static_assert(sizeof(GroupHeader) <= kPage);
constexpr std::uint32_t look_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word);
}
constexpr std::uint32_t ended_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32);
}
constexpr std::uint64_t looks_word(std::uint32_t ended, std::uint32_t look) {
    return std::uint64_t{ended} << 32 | look;
}

// Life of a slot:  free -> client                      (manager, on hello)
//                  free -> embryo                      (a client, before it forks or spawns)
//                  embryo -> client                    (a forked child itself; the manager, on a spawned child's hello)
//                  client | embryo -> dead -> free     (manager)
// Each is one compare-and-swap of the whole word, by whoever comes first: a child that finds its embryo gone holds
// nothing, and a manager that was replaced changes nothing. So who is killed leaves either nothing or an embryo that
// can be told to be its own. A slot leaves `dead` only when no hold names it, so that the next owner of the index
// inherits nothing. Who touches shared memory is a client: what an embryo holds may be taken away once nobody can come
// for it any more.
//
// The end of a client has four steps, each with one name everywhere; all of them together reclaim its slot:
//   1  the slot becomes `dead`
//   2  its unfinished transfers in rings are undone          Ring::undo_transfers
//   3  the holds that name the slot are released             SegmentMetadata::release_holds_of
//   4  the slot is freed                                     Group::move
struct alignas(kLine) Slot {
    // generation << 32 | parent << 8 | SlotState. The parent is the slot of an embryo's claimer; a client has its
    // process id there as the manager sees it (pids have 22 bits at most; 0: not known). The generation is raised by
    // each claim, so that what was said of an earlier owner of the index is not taken for the present one.
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint32_t> pid;         // of a client in the manager's own PID namespace, else 0
    std::atomic<std::uint64_t> start_time;  // clock ticks since boot; with pid, names a process for ever
    // Bytes of payload that count for this slot, at least as many as it has reserved: raised before pages are reserved,
    // lowered when that was refused and after pages are given back. Its own client's; in a free slot it counts for
    // nothing, and whoever claims that begins at 0. Slot 0, where there is a max_bytes: what rings and segments without
    // an owner have reserved; the manager's, and raised by whoever has made a ring larger.
    std::atomic<std::uint64_t> reserved;
    // Inode of the socket on which an embryo's child will speak: while some process has it, the child may still come.
    std::atomic<std::uint64_t> socket;
};
static_assert(sizeof(Slot) == kLine);

constexpr SlotState state_of(std::uint64_t word) {
    return static_cast<SlotState>(word & 0xff);
}
constexpr std::uint32_t parent_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 8) & 0xffffff;
}
constexpr std::uint32_t generation_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32);
}
constexpr std::uint64_t slot_word(SlotState state, std::uint32_t parent, std::uint32_t generation) {
    return std::uint64_t{generation} << 32 | std::uint64_t{parent} << 8 | static_cast<std::uint64_t>(state);
}

// How far a stream of a GPU has come (docs/gpu.md, "Order: timelines"). A point is a number that the owner gives out
// and then has its stream write into `completed`, behind the work submitted so far.
//
//   T1  completed <= issued, and both only grow, whoever owns the line; only their owner's stream writes points that
//   are
//       outstanding
//   T2  each point up to `issued` is reached in the end: its stream writes it, or the manager, once the owner is dead
//   T3  the work before a point was done when completed >= point, unless lost_from < point <= lost_to
//
// When an owner has died its streams have ended. The manager then stores the points that were never reached as lost,
// then sets completed to issued, then frees the line: a manager that is killed in between leaves what the next one
// repeats, and one that is replaced changes nothing that the next one has done, since each store is a compare-and-swap.
//
// A line has one interval of lost points, which only grows: if a second owner loses points, too, it reaches from the
// first of the one to the last of the other, so that points in between count as lost that were reached. Therefore lines
// without lost points are given out first, of which there are as many as owners that have not been killed with work
// outstanding.
struct alignas(kLine) Timeline {
    std::atomic<std::uint64_t> completed;  // by the GPU; by the manager once the owner is dead
    std::atomic<std::uint64_t> issued;     // by the owner
    std::atomic<std::uint64_t> owner;      // slot generation << 32 | slot; 0: free. Claimed by compare-and-swap
    std::atomic<std::uint64_t> lost_from;  // by the manager, once
    std::atomic<std::uint64_t> lost_to;    // by the manager, after lost_from; 0: nothing is lost
};
static_assert(sizeof(Timeline) == kLine);
constexpr std::uint32_t kTimelines = 1024;  // streams of all processes of a group

constexpr std::size_t kSlotsAt = kPage;
constexpr std::size_t kTimelinesAt = kSlotsAt + kMaxSlots * sizeof(Slot);
constexpr std::size_t kGroupBytes = kTimelinesAt + kTimelines * sizeof(Timeline);
static_assert(kTimelinesAt % kPage == 0 && kGroupBytes % kPage == 0);  // the table is registered with the driver

// ---------------------------------------------------------------------------------------------------------------------
// Control part of a segment
//
// THE HOLD ENTRY IS THE TRUTH. A block is live exactly when a hold entry names it. One store of Hold::word makes or
// ends a hold; everything marked (derived) follows from the entries and is rebuilt by whoever takes the lock from a
// dead owner. All fields are written under MetadataHeader::lock.
//
//   I1  count(b)          = number of holds h < holds_high with block(h) = b                       (derived)
//   I2  live_blocks       = number of blocks with count > 0;  live_bytes = the sum of their sizes   (derived)
//   I3  free-hold chain   = exactly the h < holds_high with word(h) = 0, each once                  (derived)
//   I4  returned chain    = exactly the b < blocks_high with where(b) = out and count(b) = 0        (derived)
//   I5  count(b) > 0      implies where(b) = out, and the bytes of b overlap those of no other live block
//
// The owner of a hold is a slot, or (from kFirstRing on) a ring with messages inside.
enum class HoldKind : std::uint32_t {
    none = 0,
    client = 1,   // a process that has the block open
    ticket = 2,   // in flight through a pickle
    message = 3,  // in flight through a ring: the sender's until it is published, then the ring's
    name = 4,     // of slot 0: a named object that is there without processes
};
constexpr std::uint32_t kFirstRing = kMaxSlots;  // owner numbers of rings: [kFirstRing, kLastRing]
constexpr std::uint32_t kLastRing = (1u << 24) - 1;

// word = block << 32 | owner slot << 8 | kind;  0 = free entry.
struct Hold {
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint32_t> mark;   // ticket, message: nonce of the message; free entry: next of the chain (derived)
    std::atomic<std::uint32_t> since;  // seconds of CLOCK_MONOTONIC when the hold was made
};
static_assert(sizeof(Hold) == 16);

constexpr std::uint64_t hold_word(std::uint32_t block, std::uint32_t owner, HoldKind kind) {
    return std::uint64_t{block} << 32 | std::uint64_t{owner} << 8 | static_cast<std::uint64_t>(kind);
}
constexpr std::uint32_t block_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32);
}
constexpr std::uint32_t owner_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 8) & 0xffffff;
}
constexpr HoldKind kind_of(std::uint64_t word) {
    return static_cast<HoldKind>(word & 0xff);
}
static_assert(kMaxSlots <= 1u << 24);

enum class Where : std::uint32_t {
    home = 0,  // in the owner's private lists, or never used
    out = 1,   // handed out since the owner last had it
};

struct BlockRecord {
    std::uint64_t offset;                   // bytes from the start of the payload; multiple of 64
    std::atomic<std::uint64_t> size;        // bytes asked for; at least 1
    std::atomic<std::uint32_t> generation;  // raised by each allocation; wraps
    std::atomic<std::uint32_t> count;       // (derived) I1
    std::uint32_t next;                     // (derived) I4: next of the returned chain
    std::uint32_t where;                    // Where; written by the owner and by the one release that made count 0
};
static_assert(sizeof(BlockRecord) == 32);

struct MetadataHeader {
    // written once by the manager
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t owner;  // slot of the client that allocates from it
    std::uint64_t segment;
    std::uint64_t payload_bytes;
    std::uint32_t dedicated;
    std::uint32_t owner_generation;      // of that slot
    std::atomic<std::uint32_t> retired;  // 1: the manager has given the segment up; unmap it when nothing of it is held
    // 1: a message may hold blocks of it, or may have. Under the lock; never 0 again.
    std::atomic<std::uint32_t> lent;
    // A ring's: the look that found that only messages may hold it (GroupHeader::looks); 0: none. Under the lock.
    std::atomic<std::uint32_t> sealed;

    Lock lock;

    // under the lock
    std::atomic<std::uint32_t> blocks_high;     // block records in use: [0, blocks_high)
    std::atomic<std::uint32_t> holds_high;      // hold entries in use: [0, holds_high)
    std::atomic<std::uint32_t> holds_reserved;  // hold entries whose pages are reserved
    std::atomic<std::uint32_t> free_hold;       // (derived) I3: head
    std::atomic<std::uint32_t> returned;        // (derived) I4: head; others look at it without the lock, as a hint
    std::atomic<std::uint32_t> live_blocks;     // (derived) I2
    std::atomic<std::uint64_t> live_bytes;      // (derived) I2
    std::atomic<std::uint64_t> reserved_bytes;  // payload bytes reserved; by the owner, of an orphan by the manager

    // written once by the manager: UUID of the device whose memory the payload is; zeros: memory of the host
    std::uint8_t device[16];
};
static_assert(sizeof(MetadataHeader) <= kPage);
static_assert(offsetof(MetadataHeader, lock) % kLine == 0);

// What a segment is for, as the manager says it. In the control part it shows only whether it is `dedicated`: any but
// an arena, which has a single block.
enum class SegmentKind : std::uint32_t { arena = 0, dedicated = 1, ring = 2 };

// Where the tables of a control part lie. Computed from what the manager said, never read from shared memory.
struct Shape {
    std::uint32_t blocks;
    std::uint32_t holds;
    std::size_t blocks_at;
    std::size_t holds_at;
    std::size_t bytes;
};
constexpr Shape shape_of(bool dedicated) {
    const std::uint32_t blocks = dedicated ? 1 : kArenaBlocks;
    const std::uint32_t holds = dedicated ? kDedicatedHolds : kArenaHolds;
    const std::size_t blocks_bytes = (blocks * sizeof(BlockRecord) + kPage - 1) / kPage * kPage;
    return {blocks, holds, kPage, kPage + blocks_bytes, kPage + blocks_bytes + holds * sizeof(Hold)};
}

// ---------------------------------------------------------------------------------------------------------------------
// Ring
//
// A queue of messages of any length, for many producers and many consumers. It is the only block of a segment that is
// used for nothing else. Positions count units of 64 bytes since the beginning and wrap; the message at a position lies
// at position mod capacity, whole.
//
//   R1  what lies from head to tail is whole messages (and fillers before the wrap), in order
//   R2  tail.count - head.count messages are inside; a message is published by the one store of `tail`, and taken by
//       the one store of `head`
//   R3  with no undo record, each hold listed in a message inside is an entry (its block, this ring's number, message)
//   R4  an undo record names a transfer whose one store has not happened yet, or has and there is nothing to undo
//   R5  with no undo record, head.bytes is tail.bytes as it was before the oldest message inside (but for a message
//       whose memory was lost: until the next one is taken)
//   R6  with no undo record, the commit number of an end is that of the last message that was put or taken with one
//
// A commit number is what a process that moves messages to or from somewhere else calls the message: the next such
// process reads it and knows how far the one before it came, wherever that was killed.
//
// A lock is left only with the undo record cleared; a record that is there when the lock is taken is somebody's who
// died, and the taker undoes it first. The manager undoes what a dead client left before it releases that client's
// holds.
constexpr std::uint32_t kRingUnit = 64;              // bytes
constexpr std::uint32_t kRingUnits = 1u << 24;       // units of a ring at most: 1 GiB
constexpr std::uint32_t kFirstRingUnits = 1u << 10;  // and at first: 64 KiB

// position << 32 | messages before it. Its low half changes with every message: that is what waiters wait on.
struct Position {
    std::atomic<std::uint64_t> word;
};
constexpr std::uint32_t units_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32);
}
constexpr std::uint32_t count_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word);
}
constexpr std::uint64_t position_word(std::uint32_t units, std::uint32_t count) {
    return std::uint64_t{units} << 32 | count;
}

// position << 32 | slot << 8 | numbered << 1 | 1; 0: nothing to undo. Written by the holder of the lock, before the
// first hold moves. Numbered: the commit number changes as well.
struct Undo {
    std::atomic<std::uint64_t> word;
};
constexpr std::uint64_t undo_word(std::uint32_t units, std::uint32_t slot, bool numbered = false) {
    return std::uint64_t{units} << 32 | std::uint64_t{slot} << 8 | (numbered ? 3 : 1);
}
constexpr bool is_numbered(std::uint64_t word) {
    return (word & 2) != 0;
}
constexpr std::uint32_t undo_slot(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 8) & 0xffffff;
}

// One end of a ring. Its lock guards the rest.
struct RingEnd {
    Lock lock;
    alignas(kLine) Position at;
    std::atomic<std::uint32_t> asleep;  // 1: somebody may sleep until `at` moves; written without the lock, too
    Undo undo;
    std::atomic<std::uint64_t> bytes;  // of all messages that passed here, but for the one that is just being put
    std::atomic<std::uint64_t> commit_number;  // R6; 0: of none
    std::uint64_t commit_before;               // with a numbered undo record: what commit_number was
};
static_assert(sizeof(RingEnd) == 2 * kLine);

struct RingHeader {
    // written once by the manager
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t number;                       // owner number of the holds inside
    std::atomic<std::uint32_t> max_messages;    // 0: nobody has set it so far; set once, from 0, by the first who asks
    std::atomic<std::uint32_t> kind;            // what the creator made of it; told apart in Python
    std::atomic<std::uint64_t> max_bytes;       // as max_messages
    std::atomic<std::uint64_t> reserved_bytes;  // bytes whose pages are reserved; under tail.lock
    std::atomic<std::uint32_t> capacity;        // units, a power of two; changed under both locks
    std::atomic<std::uint32_t> watched;         // 1: there is an event, to be kept readable while not empty

    RingEnd tail;  // where messages are put
    RingEnd head;  // where they are taken

    alignas(kLine) std::atomic<std::uint32_t> done;  // messages that task_done() was called for
    std::atomic<std::uint32_t> joiners_asleep;       // 1: somebody may sleep until done moves
    std::atomic<std::uint32_t> peak_messages;        // messages inside, at most so far; a statistic
    std::atomic<std::uint32_t> policy;               // of a broadcast: a Policy, set as max_messages is
    std::atomic<std::uint32_t> readers_high;         // rows in use: [0, readers_high); under head.lock
    std::atomic<std::uint64_t> event;                // inode of the pipe that is the event; the manager's
    std::atomic<std::uint32_t> copied;               // 1: tensors are copied as they are put, since messages may leave
                                                     // this machine; set by who moves them
};
static_assert(offsetof(RingHeader, tail) % kLine == 0 && offsetof(RingHeader, head) % kLine == 0);
static_assert(sizeof(RingHeader) <= kPage);

constexpr std::uint32_t kFiller = 1;       // nothing in here: the next message begins at the wrap
constexpr std::uint32_t kBodyInBlock = 2;  // the body is the content of the last hold's block

// At a position: Message, MessageHold[holds], the body.
struct Message {
    std::uint32_t units;  // with the holds and the body
    std::uint32_t flags;
    std::uint32_t holds;
    std::uint32_t mark;  // of its hold entries
    std::uint64_t body_bytes;
    std::uint64_t bytes_before;  // tail.bytes before it
    std::uint64_t bytes;         // what it counts for: body and blocks
};
static_assert(sizeof(Message) == 40);

struct MessageHold {
    std::uint64_t segment;
    std::uint32_t block;
    std::uint32_t generation;
    std::uint32_t hold;  // index of the entry in the segment's metadata
    std::uint32_t spare;
};
static_assert(sizeof(MessageHold) == 24);

// A broadcast is a ring whose messages are read by everybody who has joined, and taken out by whoever reads them last
// or needs the room. A row is nobody's, or a reader's: it is there for as long as its process lives and has not left.
//
//   C1  the cursor of a row whose owner lives names a message inside, or the tail
//   C2  a reader has read, or missed, what lies before its cursor, and nothing else
struct ReaderRow {
    // slot generation << 32 | serial << 16 | slot; 0: nobody's. The serial tells the readers of a process apart.
    // Written under head.lock, but cleared by whom it names without.
    std::atomic<std::uint64_t> owner;
    Position cursor;  // of what it reads next; under head.lock
};
static_assert(sizeof(ReaderRow) == 16 && kMaxSlots <= 1u << 16);
// A row of slot 0 is nobody's process: it stays until somebody who knows its word clears it.
constexpr std::uint64_t reader_word(std::uint32_t generation, std::uint16_t serial, std::uint32_t slot) {
    return std::uint64_t{generation} << 32 | std::uint64_t{serial} << 16 | slot;
}
constexpr std::uint32_t reader_slot(std::uint64_t word) {
    return static_cast<std::uint32_t>(word) & 0xffff;
}
enum class Policy : std::uint32_t {
    unset = 0,        // nobody has chosen one so far
    block = 1,        // who puts waits for the slowest reader
    drop_oldest = 2,  // slow readers miss what has no room any more
    raise = 3,        // put raises at once
};

constexpr std::size_t kReadersAt = kPage;
constexpr std::size_t kMessagesAt = 4 * kPage;  // the readers of a broadcast lie between header and messages
constexpr std::uint32_t kReaders = (kMessagesAt - kReadersAt) / sizeof(ReaderRow);
constexpr std::size_t kRingBytes = kMessagesAt + std::size_t{kRingUnits} * kRingUnit;
constexpr std::size_t kFirstRingBytes = kMessagesAt + std::size_t{kFirstRingUnits} * kRingUnit;

// A store is a ring whose messages have keys, stay until they are removed, and are read by everybody. The header of the
// store lies where a broadcast has its readers; records of any length follow from kMessagesAt on, one behind the other.
// All of it is under tail.lock. `tail.at` counts the changes, and its position is 0, but for the transfer of a put,
// which names the message that lists the holds (R4). head follows it, so that as many messages seem to be inside as
// there are objects.
//
//   S1  from the first unit to `high` lie whole records; a record keeps its length for ever
//   S2  an object is in the store exactly when its record says `present`; or `putting` of a change that tail.at has
//       counted, and then it has replaced the object of its key
//   S3  with no undo record, each hold listed in an object is an entry (its block, the store's number, message) with
//       the mark of its message; in `removed` ones, those that are not released yet
//   S4  a key is reserved for a process while a record says `reserved` and names it, and it lives
//   S5  with `dirty` 0, everything marked (derived) follows from the records
//
// A process that leaves the lock has cleared `dirty`. A process that takes the lock and finds it set derives the rest
// again.
constexpr std::uint32_t kStoreChunks = 14;  // of hash chains: the first has kFirstChains, each next as many as before
constexpr std::uint32_t kFirstChains = 1u << 9;
constexpr std::uint32_t kStoreLevels = 12;   // of the list in order
constexpr std::uint32_t kStoreClasses = 96;  // of lengths of records
constexpr std::uint32_t kMaxKeyBytes = 1024;
constexpr std::uint32_t kMaxSpillPath = 1024;  // bytes, with the 0 at the end
constexpr std::uint32_t kStoreDropped = 64;    // spilled objects that were removed, of which the versions are known

struct StoreHeader {
    std::atomic<std::uint64_t> objects;    // (derived) present ones
    std::atomic<std::uint64_t> bytes;      // (derived) what they count for
    std::atomic<std::uint64_t> max_bytes;  // 0: none
    std::atomic<std::uint64_t> evicted;    // objects removed for room so far, and because their time was over
    std::atomic<std::uint64_t> expired;
    std::atomic<std::uint64_t> spilled;            // (derived) objects of which the content is in a file
    std::atomic<std::uint64_t> spilled_bytes;      // (derived)
    std::atomic<std::uint64_t> max_spilled_bytes;  // 0: none
    std::atomic<std::uint64_t> dropped;            // spilled objects that were removed, whose files may be there still
    std::uint64_t next_version;                    // versions from here on were never given out
    std::uint64_t clock;                           // of uses
    // 1: a change is under way. This, `high` and `chains` are written in the order in which derive() relies on them.
    std::atomic<std::uint32_t> dirty;
    std::atomic<std::uint32_t> high;     // units; S1
    std::uint32_t hand;                  // units: the record at which the search for what may go continues
    std::uint32_t evicts;                // 1: objects that nobody uses make room for others; set by who made it
    std::atomic<std::uint32_t> writing;  // 1: a process writes files, or was killed while it did; under their lock
    std::atomic<std::uint32_t> chains;   // hash chains in use
    std::uint32_t removed;               // (derived) first of the chain of removed records
    std::uint64_t dropped_versions[kStoreDropped];  // of the first of `dropped`
    std::uint32_t chunks[kStoreChunks];             // records with the first entries of hash chains
    std::uint32_t in_order[kStoreLevels];           // (derived) first of the list of objects by key, on each level
    std::uint32_t free_records[kStoreClasses];      // (derived) first of the free records of each class
    char spill_path[kMaxSpillPath];                 // directory of the files; empty: nothing is spilled
};
static_assert(sizeof(StoreHeader) <= 3 * kPage);

enum class StoreState : std::uint32_t {
    free = 0,
    putting = 1,
    present = 2,
    reserved = 3,
    removed = 4,
    chains = 5,
    spilled = 6,  // present, but its content is in a file named by the version
};

// A record: this; of an object then Message, MessageHold[holds], the body, the key, the links of the list in order
// (at the end, the lowest level last). Links are positions in units; 0: none.
struct StoreRecord {
    std::uint32_t units;  // of all of it
    // change << 8 | StoreState: for `putting` the value of tail.at's count that commits it
    std::atomic<std::uint64_t> word;
    std::uint64_t hash;  // of the key
    std::uint64_t version;
    std::uint64_t owner;    // of a reserved key: as reader_word, with serial 0
    std::uint64_t expires;  // ns of CLOCK_BOOTTIME; 0: never
    std::uint64_t created;  // ns of CLOCK_REALTIME
    std::uint64_t used;     // StoreHeader::clock at the last use
    std::uint32_t key_bytes;
    std::uint32_t key_at;  // bytes from the start of the record
    std::uint32_t levels;
    std::uint32_t pinned;  // 1: never evicted
    std::uint32_t next;    // (derived) of its hash chain, the chain of removed or that of free records
};
static_assert(sizeof(StoreRecord) <= 2 * kLine);
constexpr std::uint32_t kRecordUnits = 2;  // the message of an object begins behind so many
constexpr StoreState state_of_record(std::uint64_t word) {
    return static_cast<StoreState>(word & 0xff);
}
constexpr std::uint64_t record_word(StoreState state, std::uint32_t change = 0) {
    return std::uint64_t{change} << 8 | static_cast<std::uint64_t>(state);
}

// ---------------------------------------------------------------------------------------------------------------------
// Synchronisation
//
// A lock, a semaphore, an event, a wait queue: each one block of ordinary shared memory. Every change is one
// compare-and-swap or exchange of one word, which leaves what any other process can go on from, so there is nothing to
// undo: whoever is killed leaves a word that names it, or one that names nobody.
//
//   Y1  a lock is held exactly when its word is not 0; the word says by which thread of which process
//   Y2  a semaphore's word says how many units are free, and of how many at first if somebody has said so; of a bounded
//       one no more are free than that
//   Y3  a thread waits in a wait queue exactly when an entry below `high` names it with the mark waiting; no two have a
//       ticket in common
//   Y4  who sleeps on a word has set its bit `asleep`, or may have missed that somebody cleared it: nobody sleeps
//       longer than 100 ms without another look
//   Y5  a free lock says nothing of a dead holder, and an event that is set nothing of sleepers
//
// identity = generation (its low 18 bits) << 14 | slot << 1: 31 bits, not 0 since slot 0 is no client. Bit 0 beside it
// is `asleep`. A process is dead for a lock as soon as its slot is not a client or embryo of that generation any more.
constexpr std::uint32_t kSyncMagic = 0x434e5953;  // "SYNC"
constexpr std::uint32_t kMaxUnits = 0x7fffffff;   // of a semaphore
constexpr std::uint32_t kAsleep = 1;              // somebody may sleep on this word
constexpr std::uint32_t kWaitQueueEntries = 504;  // waiters of a condition at most

enum class SyncKind : std::uint32_t { none = 0, lock = 1, recursive = 2, semaphore = 3, event = 4, wait_queue = 5 };

constexpr std::uint32_t identity_of(std::uint32_t slot, std::uint64_t word) {
    return (generation_of(word) & 0x3ffff) << 14 | slot << 1;
}
constexpr std::uint32_t slot_of(std::uint32_t identity) {
    return identity >> 1 & (kMaxSlots - 1);
}
static_assert(kMaxSlots == 1u << 13);

struct SyncHeader {  // written once by who made it
    std::uint32_t magic;
    SyncKind kind;
};

struct alignas(kLine) SharedLock {
    SyncHeader header;
    // thread << 32 | identity | asleep; 0: free. Threads are numbered by each process from 1. Its low half is the
    // futex.
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint32_t> depth;      // of a recursive lock; the holder's
    std::atomic<std::uint32_t> inherited;  // 1: the holder took it from a process that died; the holder's
};
static_assert(sizeof(SharedLock) == kLine);

struct alignas(kLine) SharedSemaphore {
    SyncHeader header;
    // (units at first + 1) << 32 | free units << 1 | asleep. Its upper half is 0, and one unit there, until the first
    // who asks for a number of units sets it. Its low half is the futex.
    std::atomic<std::uint64_t> word;
    std::uint32_t bounded;  // 1: never more free units than at first; written once by who made it
};
static_assert(sizeof(SharedSemaphore) == kLine);

struct alignas(kLine) SharedEvent {
    SyncHeader header;
    std::atomic<std::uint32_t> word;  // times it was set << 2 | set << 1 | asleep
};
static_assert(sizeof(SharedEvent) == kLine);

// Who waits, in a table without order; the oldest is the one with the lowest ticket.
struct alignas(kLine) SharedWaitQueue {
    SyncHeader header;
    std::atomic<std::uint32_t> tickets;  // given out; wraps at 30 bits
    std::atomic<std::uint32_t> high;     // entries from here on have never been used; raised before the entry is
    std::atomic<std::int32_t> state;     // of the barrier that it belongs to
    // After this header. identity << 32 | ticket << 2 | Mark; 0: free. The low half is the futex of who waits.
    using Entry = std::atomic<std::uint64_t>;
};
static_assert(sizeof(SharedWaitQueue) == kLine);
enum class Mark : std::uint32_t { waiting = 1, notified = 2 };
constexpr std::size_t wait_queue_bytes(std::uint32_t entries) {
    return sizeof(SharedWaitQueue) + entries * sizeof(SharedWaitQueue::Entry);
}
static_assert(wait_queue_bytes(kWaitQueueEntries) == kPage);

}  // namespace shmtensor
