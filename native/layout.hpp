// Every struct that lives in shared memory, with its unit, its writer and the invariants that tie the fields together.
//
// Two kinds of mapping are described here:
//   group segment   GroupHeader, Slot[kMaxSlots]                              one per manager
//   control part    BooksHeader, BlockRecord[blocks], Hold[holds]             one per segment, beside its payload
//
// Version rule: any change to the size, order or meaning of a field below raises kLayoutVersion. The manager tells its
// version in the handshake and refuses a client of another one, so two versions never meet in one mapping.
//
// Only offsets and indices are stored, never pointers. (pthread_mutex_t keeps pointers of the thread that holds it;
// they mean something to that thread and to the kernel alone.)
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shmtensor {

constexpr std::uint32_t kLayoutVersion = 1;
constexpr std::uint64_t kGroupMagic = 0x50554f52474d4853;  // "SHMGROUP", little endian
constexpr std::uint64_t kBooksMagic = 0x534b4f4f424d4853;  // "SHMBOOKS"

constexpr std::size_t kLine = 64;                              // bytes; no two writers share a line that is hot
constexpr std::size_t kPage = 4096;                            // bytes; unit of reservation and of page alignment
constexpr std::uint32_t kNone = 0xffffffff;                    // no index
constexpr std::uint32_t kMaxSlots = 8192;                      // entries of the slot table
constexpr std::uint64_t kArenaBytes = std::uint64_t{1} << 30;  // payload of an arena, address space
constexpr std::uint64_t kMaxSegmentBytes = std::uint64_t{1} << 46;
constexpr std::uint32_t kArenaBlocks = 1u << 20;     // block records of an arena
constexpr std::uint32_t kArenaHolds = 1u << 22;      // hold entries of an arena
constexpr std::uint32_t kDedicatedHolds = 1u << 16;  // hold entries of a segment with a single block

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

struct GroupHeader {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t slots;
    std::uint64_t group_id;  // random, set once by the manager
};

// Life of a slot:  free -> client -> dead -> free      (manager)
//                  free -> embryo                      (a client, by compare-and-swap, before it forks or spawns)
//                  embryo -> client | dead             (manager: on the child's hello, or when its socket closes first)
// A slot leaves `dead` only when no hold names it, so that the next owner of the index inherits nothing.
// State and claimer change in one store, so that a claimer who is killed leaves either nothing or an attributable
// embryo.
struct alignas(kLine) Slot {
    // generation << 32 | parent << 8 | SlotState. The parent is the slot of an embryo's claimer, else 0; the generation
    // is raised by each claim, so that what was said of an earlier owner of the index is not taken for the present one.
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint32_t> pid;         // as the manager sees it; 0 for an embryo
    std::atomic<std::uint64_t> start_time;  // clock ticks since boot; with pid, names a process for ever
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

constexpr std::size_t kSlotsAt = kPage;
constexpr std::size_t kGroupBytes = kSlotsAt + kMaxSlots * sizeof(Slot);

// ---------------------------------------------------------------------------------------------------------------------
// Control part of a segment
//
// THE HOLD ENTRY IS THE TRUTH. A block is live exactly when a hold entry names it. One store of Hold::word makes or
// ends a hold; everything marked (derived) follows from the entries and is rebuilt by whoever takes the lock from a
// dead owner. All fields are written under BooksHeader::lock.
//
//   I1  count(b)          = number of holds h < holds_high with block(h) = b                       (derived)
//   I2  live_blocks       = number of blocks with count > 0;  live_bytes = the sum of their sizes   (derived)
//   I3  free-hold chain   = exactly the h < holds_high with word(h) = 0, each once                  (derived)
//   I4  returned chain    = exactly the b < blocks_high with where(b) = out and count(b) = 0        (derived)
//   I5  count(b) > 0      implies where(b) = out, and the bytes of b overlap those of no other live block
enum class HoldKind : std::uint32_t { none = 0, client = 1, ticket = 2 };

// word = block << 32 | owner slot << 8 | kind;  0 = free entry.
struct Hold {
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint32_t> mark;  // ticket: nonce of the message; free entry: next of the free-hold chain (derived)
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

struct BooksHeader {
    // written once by the manager
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t owner;  // slot of the client that allocates from it
    std::uint64_t segment;
    std::uint64_t payload_bytes;
    std::uint32_t dedicated;
    std::atomic<std::uint32_t> retired;  // 1: the manager has given the segment up; unmap it when nothing of it is held

    Lock lock;

    // under the lock
    std::atomic<std::uint32_t> blocks_high;     // block records in use: [0, blocks_high)
    std::atomic<std::uint32_t> holds_high;      // hold entries in use: [0, holds_high)
    std::atomic<std::uint32_t> holds_reserved;  // hold entries whose pages are reserved
    std::atomic<std::uint32_t> free_hold;       // (derived) I3: head
    std::atomic<std::uint32_t> returned;        // (derived) I4: head; others look at it without the lock, as a hint
    std::atomic<std::uint32_t> live_blocks;     // (derived) I2
    std::atomic<std::uint64_t> live_bytes;      // (derived) I2
    std::atomic<std::uint64_t> reserved_bytes;  // payload bytes the owner has reserved; for display
};
static_assert(sizeof(BooksHeader) <= kPage);
static_assert(offsetof(BooksHeader, lock) % kLine == 0);

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

}  // namespace shmtensor
