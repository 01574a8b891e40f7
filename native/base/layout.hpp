// Every struct that lives in shared memory, with its unit, its writer and the invariants that tie the fields together.
//
// This header describes these mappings:
//   group segment   GroupHeader, Slot[kMaxSlots], Timeline[kTimelines]        one per manager
//   control part    MetadataHeader, BlockRecord[blocks], Hold[holds]          one per segment, beside its payload
//   ring            RingHeader, messages (or the objects of a store)          the payload of a segment made for it
// and the words of locks, semaphores and the like, which lie in ordinary blocks (Synchronisation, at the end).
//
// Version rule: any change to the size, order or meaning of a field below raises kLayoutVersion. The manager states its
// version in the handshake and refuses a client of another one, so two versions never meet in one mapping.
//
// Memory order. A release and the acquire that it pairs with have the same comment `SYNC: name`. After the acquire, the
// reader sees:
//   lock       what the last holder of a Lock wrote under it
//   slot       the state of a slot, and so whether holds and rows that name the slot still count
//   epoch      that another manager leads
//   quota      what others have counted; of two processes that count and then read, at least one sees the other
//   hold       an entry's mark, and the record of its block
//   tail       the messages before it
//   head       that the room before it is free
//   capacity   the messages, copied to where they lie in the larger ring
//   reserved   the pages of a larger ring
//   bytes      a tail.bytes, read after head.bytes, that is not less than head.bytes
//   undo       the message that the record names
//   asleep     the mark of a sleeper, or the changed word: a process sets the mark and reads the word again before it
//              sleeps; a process that changes the word reads the mark afterwards
//   done       what the callers of task_done() wrote before the call
//   rows       the cursor of a reader's row
//   cursor     a tail that is not behind it
//   commit     the message that has the number
//   lost       where the interval of lost points of a timeline begins
//   timeline   which points of a timeline were lost; the GPU itself orders what a stream wrote before a point
//   dirty      the fields of a store that are derived from its records
//   high       that the records before it are whole
//   chains     where the hash chains before it lie
//   record     what a record of a store contains: read under the lock, which its writer may have held when it died
//   receipt    which message a worker took, and the results of those before it: read in Python
//   handover   what the last holder of a lock, or the process that set an event or notified, wrote before (sync.cpp)
// An atomic operation without an explicit order is sequentially consistent. A relaxed one is under a lock, or a hint.
// docs/memory-order.md argues each pair, and what remains of a process that is killed between two stores.
//
// Only offsets and indices are stored, never pointers. (pthread_mutex_t keeps pointers of the thread that holds it;
// only that thread and the kernel use them.)
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

constexpr std::size_t kLine = 64;                              // bytes; no two writers share a hot line
constexpr std::size_t kPage = 4096;                            // bytes; unit of reservation and of page alignment
constexpr std::uint32_t kNone = 0xffffffff;                    // no index
constexpr std::uint32_t kMaxSlots = 8192;                      // entries of the slot table
constexpr std::uint64_t kArenaBytes = std::uint64_t{1} << 30;  // payload of an arena, address space
constexpr std::uint64_t kMaxSegmentBytes = std::uint64_t{1} << 46;
constexpr std::uint64_t kDeviceArenaBytes = 32 << 20;  // payload of an arena in a device's memory, all allocated
constexpr std::uint32_t kArenaBlocks = 1u << 20;       // block records of an arena
constexpr std::uint32_t kArenaHolds = 1u << 22;        // hold entries of an arena
constexpr std::uint32_t kDedicatedHolds = 1u << 16;    // hold entries of a segment with a single block

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "atomics in shared memory must be lock-free");

// ---------------------------------------------------------------------------------------------------------------------
// A robust process-shared mutex. `holder` is the slot of the process that holds it: for reports only, never for
// decisions.
struct alignas(kLine) Lock {
    pthread_mutex_t mutex;
    std::atomic<std::uint32_t> holder;
};
static_assert(sizeof(Lock) == kLine);

// ---------------------------------------------------------------------------------------------------------------------
// Group segment
enum class SlotState : std::uint32_t {
    free = 0,    // no process; may be claimed by compare-and-swap
    group = 1,   // slot 0 alone: owns what is in flight through plain pickles
    client = 2,  // a process that sent HELLO
    embryo = 3,  // a child being forked or spawned; `parent` claimed it
    dead = 4,    // ended; the manager still has to release its holds
};

constexpr std::uint32_t kManagers = 4;  // managers of a group that may be alive at once, all but one of them stopped

struct GroupHeader {
    // written once by the manager that made it
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t slots;
    std::uint64_t group_id;  // random
    // written by the manager
    std::atomic<std::uint32_t> epoch;         // managers that this group has had; raised by each when it takes over
    std::atomic<std::uint32_t> next_ring;     // the next ring number to give out
    std::atomic<std::uint64_t> next_segment;  // the next segment number to give out
    std::atomic<std::uint64_t> namespace_;    // inode of the PID namespace in which the slots' process ids are valid
    // The manager of an epoch holds alive[epoch % kManagers] for life, so that a plain load shows its death.
    Lock alive[kManagers];

    // Quotas, in bytes of payload; 0: none. Written by the manager alone.
    //   Q1  the sum of Slot::reserved over all slots is at most max_bytes, except while a refused charge is taken back
    //   Q2  Slot::reserved of a client is at most max_bytes_per_client, likewise
    // A quota that is set below what is already reserved only prevents further reservations.
    std::atomic<std::uint64_t> max_bytes;
    std::atomic<std::uint64_t> max_bytes_per_client;
    // When a client was last refused memory (CLOCK_MONOTONIC, seconds). The others then give back the memory that they
    // keep for later. Written by the client that was refused.
    std::atomic<std::uint32_t> pressed;

    // Looks: a manager's searches for rings that no process can reach. ended << 32 | look.
    //   look   the last look begun. A later number voids it: the next manager began a look, or a process opened a ring
    //          that was sealed with its number
    //   ended  the last look that was decided. Rings sealed with its number have ended: no process opens them
    std::atomic<std::uint64_t> looks;

    // Counters of all managers of the group. Each only grows, by atomic addition, so that a manager that was stopped
    // and replaced cannot lower one. On a line of their own, since clients read the fields above all the time.
    alignas(kLine) std::atomic<std::uint64_t> requests;  // packets received
    std::atomic<std::uint64_t> refused;                  // requests and connections
    std::atomic<std::uint64_t> reaped;                   // clients that ended; each was or will be reclaimed
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

// Life of a slot:  free -> client                      (manager, on HELLO)
//                  free -> embryo                      (a client, before it forks or spawns)
//                  embryo -> client                    (a forked child itself; the manager, on a spawned child's HELLO)
//                  client | embryo -> dead -> free     (manager)
// Each transition is one compare-and-swap of the whole word, and the first one wins: a child that finds its embryo gone
// holds nothing, and a manager that was replaced changes nothing. So a process that is killed here leaves either
// nothing or an embryo that names it as the parent. A slot leaves `dead` only when no hold names it, so that the next
// owner of the index inherits nothing. Only clients touch shared memory: the holds of an embryo may be released once no
// child can come for them.
//
// The end of a client has four steps, each with one name everywhere. All four together reclaim its slot:
//   1  the slot becomes `dead`
//   2  its unfinished transfers in rings are undone          Ring::undo_transfers
//   3  the holds that name the slot are released             SegmentMetadata::release_holds_of
//   4  the slot is freed                                     Group::move
struct alignas(kLine) Slot {
    // generation << 32 | parent << 8 | SlotState. The parent is the slot of the process that claimed an embryo. A
    // client has its process id there, as the manager sees it (pids have 22 bits at most; 0: not known). Each claim
    // raises the generation, so that a reference to an earlier owner of the index does not match the present one.
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint32_t> pid;         // of a client in the manager's own PID namespace, else 0
    std::atomic<std::uint64_t> start_time;  // clock ticks since boot; with pid, identifies a process for ever
    // Bytes of payload that count for this slot, at least as many as it has reserved: raised before pages are reserved,
    // lowered when that was refused and after pages are given back. Written by the slot's client. It is ignored in a
    // free slot, and a claim sets it to 0. In slot 0, if there is a max_bytes: what rings and segments without an owner
    // have reserved; written by the manager, and raised by a client that has made a ring larger.
    std::atomic<std::uint64_t> reserved;
    // Inode of the socket that an embryo's child will use: while some process has it open, the child may still come.
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

// The progress of a GPU stream (docs/gpu.md, "Order: timelines"). A point is a number that the owner gives out. The
// owner's stream then writes it into `completed`, after the work submitted so far.
//
//   T1  completed <= issued, and both only grow, across all owners of the line; only the owner's stream writes
//       outstanding points
//   T2  each point up to `issued` is reached in the end: its stream writes it, or the manager, once the owner is dead
//   T3  if completed >= point, the work before the point was done, unless lost_from < point <= lost_to
//
// When an owner has died, its streams have ended. The manager then stores the interval of points that were never
// reached, then sets completed to issued, then frees the line. If that manager is killed in between, the next one
// repeats this; if it is replaced, it changes nothing that the next one has done, since each store is a
// compare-and-swap.
//
// A line has one interval of lost points, which only grows. If a second owner loses points too, the interval reaches
// from the first point that the first owner lost to the last that the second lost, and points in between that were
// reached count as lost. Therefore lines without lost points are given out first. A line has lost points only if an
// owner was killed with work outstanding.
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
// ends a hold. Fields marked (derived) follow from the entries: a process that takes the lock after its holder died
// rebuilds them. All fields are written under MetadataHeader::lock.
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
    message = 3,  // in flight through a ring: owned by the sender until it is published, then by the ring
    name = 4,     // of slot 0: a named object, which exists without processes
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
    out = 1,   // handed out, and not taken back by the owner
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
    std::atomic<std::uint32_t> retired;  // 1: the manager has given up the segment; unmap it when none of it is held
    // 1: a message holds blocks of it, or may have held some. Under the lock; never 0 again.
    std::atomic<std::uint32_t> lent;
    // Of a ring: the look that found that only messages may hold it (GroupHeader::looks); 0: none. Under the lock.
    std::atomic<std::uint32_t> sealed;

    Lock lock;

    // under the lock
    std::atomic<std::uint32_t> blocks_high;     // block records in use: [0, blocks_high)
    std::atomic<std::uint32_t> holds_high;      // hold entries in use: [0, holds_high)
    std::atomic<std::uint32_t> holds_reserved;  // hold entries whose pages are reserved
    std::atomic<std::uint32_t> free_hold;       // (derived) I3: head
    std::atomic<std::uint32_t> returned;        // (derived) I4: head; read without the lock as a hint
    std::atomic<std::uint32_t> live_blocks;     // (derived) I2
    std::atomic<std::uint64_t> live_bytes;      // (derived) I2
    std::atomic<std::uint64_t> reserved_bytes;  // payload bytes reserved; the owner's, of an orphan the manager's

    // written once by the manager: UUID of the device whose memory the payload is; zeros: memory of the host
    std::uint8_t device[16];
};
static_assert(sizeof(MetadataHeader) <= kPage);
static_assert(offsetof(MetadataHeader, lock) % kLine == 0);

// What a segment is for, according to the manager. The control part only tells `dedicated` segments, which have a
// single block, from arenas.
enum class SegmentKind : std::uint32_t { arena = 0, dedicated = 1, ring = 2 };

// Where the tables of a control part lie. Computed from what the manager states, never read from shared memory.
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
// A queue of messages of any length, for many producers and many consumers. It is the only block of a segment of its
// own. Positions count units of 64 bytes since the beginning and wrap. The message at a position lies at position mod
// capacity, and is contiguous.
//
//   R1  from head to tail lie whole messages (and fillers before the wrap), in order
//   R2  tail.count - head.count messages are inside; a message is published by the one store of `tail`, and taken by
//       the one store of `head`
//   R3  with no undo record, each hold listed in a message inside is an entry (its block, this ring's number, message)
//   R4  an undo record names a transfer that is not committed, or one that is committed and has nothing to undo
//   R5  with no undo record, head.bytes is tail.bytes as it was before the oldest message inside (except after a
//       message whose memory was lost, until the next one is taken)
//   R6  with no undo record, the commit number of an end is that of the last message that was put or taken with one
//
// A process that moves messages to or from another place gives each message a commit number. If it is killed, the next
// such process reads the number and knows which messages were moved.
//
// A process clears the undo record before it drops the lock. A record that exists when a process takes the lock is that
// of a dead process, and is undone first. The manager undoes a dead client's transfers before it releases that client's
// holds.
constexpr std::uint32_t kRingUnit = 64;              // bytes
constexpr std::uint32_t kRingUnits = 1u << 24;       // units of a ring at most: 1 GiB
constexpr std::uint32_t kFirstRingUnits = 1u << 10;  // and at first: 64 KiB

// position << 32 | messages before it. Its low half changes with every message, and is the futex of the waiters.
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

// One end of a ring. Its lock guards the other fields.
struct RingEnd {
    Lock lock;
    alignas(kLine) Position at;
    std::atomic<std::uint32_t> asleep;  // 1: a process may sleep until `at` moves; also written without the lock
    Undo undo;
    std::atomic<std::uint64_t> bytes;          // of all messages that passed here, without the one that is being put
    std::atomic<std::uint64_t> commit_number;  // R6; 0: of none
    std::uint64_t commit_before;               // with a numbered undo record: what commit_number was
};
static_assert(sizeof(RingEnd) == 2 * kLine);

struct RingHeader {
    // written once by the manager
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t number;                       // owner number of the holds inside
    std::atomic<std::uint32_t> max_messages;    // 0: not set yet; set once, by the first process that asks
    std::atomic<std::uint32_t> kind;            // the kind that its creator chose; defined in Python
    std::atomic<std::uint64_t> max_bytes;       // set as max_messages is
    std::atomic<std::uint64_t> reserved_bytes;  // bytes whose pages are reserved; under tail.lock
    std::atomic<std::uint32_t> capacity;        // units, a power of two; changed under both locks
    std::atomic<std::uint32_t> watched;         // 1: it has an event, which is readable while the ring is not empty

    RingEnd tail;  // where messages are put
    RingEnd head;  // where they are taken

    alignas(kLine) std::atomic<std::uint32_t> done;  // calls of task_done()
    std::atomic<std::uint32_t> joiners_asleep;       // 1: a process may sleep until done moves
    std::atomic<std::uint32_t> peak_messages;        // the most messages inside so far; a statistic
    std::atomic<std::uint32_t> policy;               // of a broadcast: a Policy, set as max_messages is
    std::atomic<std::uint32_t> readers_high;         // rows in use: [0, readers_high); under head.lock
    std::atomic<std::uint64_t> event;                // inode of the pipe that is the event; written by the manager
    std::atomic<std::uint32_t> copied;               // 1: tensors are copied as they are put, since messages may leave
                                                     // this machine; set by the process that moves them
};
static_assert(offsetof(RingHeader, tail) % kLine == 0 && offsetof(RingHeader, head) % kLine == 0);
static_assert(sizeof(RingHeader) <= kPage);

constexpr std::uint32_t kFiller = 1;       // no message: the next one begins at the wrap
constexpr std::uint32_t kBodyInBlock = 2;  // the body is the content of the last hold's block

// At a position: Message, MessageHold[holds], the body.
struct Message {
    std::uint32_t units;  // with the holds and the body
    std::uint32_t flags;
    std::uint32_t holds;
    std::uint32_t mark;  // of its hold entries
    std::uint64_t body_bytes;
    std::uint64_t bytes_before;  // tail.bytes before it
    std::uint64_t bytes;         // its size: body and blocks
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

// A broadcast is a ring in which every reader that has joined reads each message. The last reader of a message, or a
// process that needs the room, takes it out. A row is free or belongs to a reader, which has it until its process
// leaves or ends.
//
//   C1  the cursor of a row whose owner lives names a message inside, or the tail
//   C2  a reader has read, or missed, exactly the messages before its cursor
struct ReaderRow {
    // slot generation << 32 | serial << 16 | slot; 0: free. The serial tells the readers of a process apart. Written
    // under head.lock, but the process that it names clears it without the lock.
    std::atomic<std::uint64_t> owner;
    Position cursor;  // of the message that it reads next; under head.lock
};
static_assert(sizeof(ReaderRow) == 16 && kMaxSlots <= 1u << 16);
// A row of slot 0 belongs to no process: it stays until a process that knows its word clears it.
constexpr std::uint64_t reader_word(std::uint32_t generation, std::uint16_t serial, std::uint32_t slot) {
    return std::uint64_t{generation} << 32 | std::uint64_t{serial} << 16 | slot;
}
constexpr std::uint32_t reader_slot(std::uint64_t word) {
    return static_cast<std::uint32_t>(word) & 0xffff;
}
enum class Policy : std::uint32_t {
    unset = 0,        // not chosen yet
    block = 1,        // put waits for the slowest reader
    drop_oldest = 2,  // put removes the oldest messages, which slow readers then miss
    raise = 3,        // put raises at once
};

constexpr std::size_t kReadersAt = kPage;
constexpr std::size_t kMessagesAt = 4 * kPage;  // the readers of a broadcast lie between header and messages
constexpr std::uint32_t kReaders = (kMessagesAt - kReadersAt) / sizeof(ReaderRow);
constexpr std::size_t kRingBytes = kMessagesAt + std::size_t{kRingUnits} * kRingUnit;
constexpr std::size_t kFirstRingBytes = kMessagesAt + std::size_t{kFirstRingUnits} * kRingUnit;

// A store is a ring whose messages have keys, stay until they are removed, and can be read by every process. The header
// of the store lies where a broadcast has its readers; records of any length follow from kMessagesAt on, without gaps.
// All fields are under tail.lock. `tail.at` counts the changes; its position is 0, except during the transfer of a put,
// when it names the message that lists the holds (R4). head follows tail, so that the number of messages inside equals
// the number of objects.
//
//   S1  from the first unit to `high` lie whole records; the length of a record never changes
//   S2  an object is in the store exactly when its record says `present`, or `putting` of a change that tail.at has
//       counted; in the latter case it has replaced the object of its key
//   S3  with no undo record, each hold listed in an object is an entry (its block, the store's number, message) with
//       the mark of its message; in `removed` objects, each hold that is not released yet
//   S4  a key is reserved for a process while a record says `reserved` and names that process, and the process lives
//   S5  with `dirty` 0, everything marked (derived) follows from the records
//
// A process clears `dirty` before it drops the lock. A process that takes the lock and finds `dirty` set rebuilds the
// derived fields.
constexpr std::uint32_t kStoreChunks = 14;  // of hash chains: the first has kFirstChains, each next doubles the total
constexpr std::uint32_t kFirstChains = 1u << 9;
constexpr std::uint32_t kStoreLevels = 12;   // of the list in order
constexpr std::uint32_t kStoreClasses = 96;  // of lengths of records
constexpr std::uint32_t kMaxKeyBytes = 1024;
constexpr std::uint32_t kMaxSpillPath = 1024;  // bytes, with the 0 at the end
constexpr std::uint32_t kStoreDropped = 64;    // removed spilled objects whose versions are listed

struct StoreHeader {
    std::atomic<std::uint64_t> objects;            // (derived) present ones
    std::atomic<std::uint64_t> bytes;              // (derived) their size
    std::atomic<std::uint64_t> max_bytes;          // 0: none
    std::atomic<std::uint64_t> evicted;            // objects removed so far to make room
    std::atomic<std::uint64_t> expired;            // objects removed so far because they expired
    std::atomic<std::uint64_t> spilled;            // (derived) objects whose content is in a file
    std::atomic<std::uint64_t> spilled_bytes;      // (derived)
    std::atomic<std::uint64_t> max_spilled_bytes;  // 0: none
    std::atomic<std::uint64_t> dropped;            // removed spilled objects whose files may still exist
    std::uint64_t next_version;                    // the next version to give out
    std::uint64_t clock;                           // counts the uses of objects
    // 1: a change is under way. derive() relies on the order in which this, `high` and `chains` are written.
    std::atomic<std::uint32_t> dirty;
    std::atomic<std::uint32_t> high;     // units; S1
    std::uint32_t hand;                  // units: the record at which the search for evictable objects continues
    std::uint32_t evicts;                // 1: objects not in use are evicted to make room; set by the creator
    std::atomic<std::uint32_t> writing;  // 1: a process writes files, or was killed while writing; under their lock
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

// A record: this header, then, if it is an object, Message, MessageHold[holds], the body, the key, and the links of the
// ordered list (at the end, the lowest level last). Links are positions in units; 0: none.
struct StoreRecord {
    std::uint32_t units;  // of the whole record
    // change << 8 | StoreState. Of `putting`, change is the count in tail.at that commits it.
    std::atomic<std::uint64_t> word;
    std::uint64_t hash;  // of the key
    std::uint64_t version;
    std::uint64_t owner;    // of a reserved key: a reader_word with serial 0
    std::uint64_t expires;  // ns of CLOCK_BOOTTIME; 0: never
    std::uint64_t created;  // ns of CLOCK_REALTIME
    std::uint64_t used;     // StoreHeader::clock at the last use
    std::uint32_t key_bytes;
    std::uint32_t key_at;  // bytes from the start of the record
    std::uint32_t levels;
    std::uint32_t pinned;  // 1: never evicted
    std::uint32_t next;    // (derived) in its hash chain, the chain of removed records or that of free records
};
static_assert(sizeof(StoreRecord) <= 2 * kLine);
constexpr std::uint32_t kRecordUnits = 2;  // the message of an object begins after this many
constexpr StoreState state_of_record(std::uint64_t word) {
    return static_cast<StoreState>(word & 0xff);
}
constexpr std::uint64_t record_word(StoreState state, std::uint32_t change = 0) {
    return std::uint64_t{change} << 8 | static_cast<std::uint64_t>(state);
}

// ---------------------------------------------------------------------------------------------------------------------
// Synchronisation
//
// A lock, a semaphore, an event, a wait queue: each is one block of ordinary shared memory. Every change is one
// compare-and-swap or exchange of one word, after which any other process can continue, so there is nothing to undo: a
// process that is killed leaves a word that names it, or one that names no process.
//
//   Y1  a lock is held exactly when its word is not 0; the word names the thread and the process
//   Y2  a semaphore's word contains the number of free units and, once set, the initial number; a bounded semaphore
//       never has more free units than the initial number
//   Y3  a thread waits in a wait queue exactly when an entry below `high` names it with the mark waiting; no two have a
//       ticket in common
//   Y4  a sleeper has set the bit `asleep` of its word, or may have missed that another process cleared it: no sleep
//       lasts longer than 100 ms without reading the word again
//   Y5  `inherited` of a free lock is 0, and the word of an event that is set has no bit `asleep`
//
// identity = generation (its low 18 bits) << 14 | slot << 1: 31 bits, not 0 since slot 0 is not a client. Bit 0 beside
// it is `asleep`. For a lock, a process is dead once its slot is not a client or embryo of that generation.
constexpr std::uint32_t kSyncMagic = 0x434e5953;  // "SYNC"
constexpr std::uint32_t kMaxUnits = 0x7fffffff;   // of a semaphore
constexpr std::uint32_t kAsleep = 1;              // a thread may sleep on this word
constexpr std::uint32_t kWaitQueueEntries = 504;  // waiters of a condition at most

enum class SyncKind : std::uint32_t { none = 0, lock = 1, recursive = 2, semaphore = 3, event = 4, wait_queue = 5 };

constexpr std::uint32_t identity_of(std::uint32_t slot, std::uint64_t word) {
    return (generation_of(word) & 0x3ffff) << 14 | slot << 1;
}
constexpr std::uint32_t slot_of(std::uint32_t identity) {
    return identity >> 1 & (kMaxSlots - 1);
}
static_assert(kMaxSlots == 1u << 13);

struct SyncHeader {  // written once by the creator
    std::uint32_t magic;
    SyncKind kind;
};

struct alignas(kLine) SharedLock {
    SyncHeader header;
    // thread << 32 | identity | asleep; 0: free. Threads are numbered by each process from 1. Its low half is the
    // futex.
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint32_t> depth;      // of a recursive lock; written by the holder
    std::atomic<std::uint32_t> inherited;  // 1: the holder took it from a process that died; written by the holder
};
static_assert(sizeof(SharedLock) == kLine);

struct alignas(kLine) SharedSemaphore {
    SyncHeader header;
    // (initial units + 1) << 32 | free units << 1 | asleep. Until the first process that asks for a number of units
    // sets it, the upper half is 0 and one unit is free. The low half is the futex.
    std::atomic<std::uint64_t> word;
    std::uint32_t bounded;  // 1: never more free units than initially; written once by the creator
};
static_assert(sizeof(SharedSemaphore) == kLine);

struct alignas(kLine) SharedEvent {
    SyncHeader header;
    std::atomic<std::uint32_t> word;  // times it was set << 2 | set << 1 | asleep
};
static_assert(sizeof(SharedEvent) == kLine);

// The waiting threads, in a table without order; the oldest has the lowest ticket.
struct alignas(kLine) SharedWaitQueue {
    SyncHeader header;
    std::atomic<std::uint32_t> tickets;  // given out; wraps at 30 bits
    std::atomic<std::uint32_t> high;     // entries from here on have never been used; raised before the entry is
    std::atomic<std::int32_t> state;     // of the barrier that it belongs to
    // After this header. identity << 32 | ticket << 2 | Mark; 0: free. The low half is the futex of the waiting thread.
    using Entry = std::atomic<std::uint64_t>;
};
static_assert(sizeof(SharedWaitQueue) == kLine);
enum class Mark : std::uint32_t { waiting = 1, notified = 2 };
constexpr std::size_t wait_queue_bytes(std::uint32_t entries) {
    return sizeof(SharedWaitQueue) + entries * sizeof(SharedWaitQueue::Entry);
}
static_assert(wait_queue_bytes(kWaitQueueEntries) == kPage);

}  // namespace shmtensor
