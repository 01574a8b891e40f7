// The metadata of one segment: blocks and the holds on them, in shared memory. Clients and the manager share this code.
//
// Every call below the line `locked` requires the lock. Only lock() waits; only create(), open(), reserve_holds() and
// reserve_blocks() make system calls. Every index read from shared memory is checked. The manager, which uses
// lock_untrusted(), does not trust the length of a table either: it reads no page that was never written, since the
// read would allocate the page and charge it to the manager.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/layout.hpp"
#include "base/limits.hpp"
#include "heap/lock.hpp"

namespace shmtensor {

// The state of the block after release().
enum class Left { held, returned, home };

struct HoldCounts {
    std::uint32_t client, ticket, message, name;
    std::uint32_t oldest_ticket;  // seconds of CLOCK_MONOTONIC when it was made; kNone without tickets
};

class SegmentMetadata {
   public:
    SegmentMetadata() = default;
    SegmentMetadata(const SegmentMetadata&) = delete;
    SegmentMetadata& operator=(const SegmentMetadata&) = delete;
    ~SegmentMetadata() { close(); }

    // Make the control part of a new segment (manager), a memfd of that name; `device`: the UUID of the device whose
    // memory the payload is. 0 or errno.
    int create(const char* name, std::uint64_t segment, std::uint32_t owner, std::uint32_t generation,
               std::uint64_t payload_bytes, bool dedicated, const std::uint8_t* device = nullptr);
    // Map an existing one; takes ownership of fd on success. EINVAL: it does not match the arguments.
    int open(int fd, std::uint64_t segment, std::uint64_t payload_bytes, bool dedicated);
    // The same for an unknown one (a new manager): it must be sealed, and consistent with its own header.
    int open_found(int fd);
    void close();

    bool is_open() const { return at_ != nullptr; }
    int fd() const { return file_.number(); }
    // Whether its descriptor is lost: the number stands for another file. regain() replaces it.
    bool is_lost() const { return !file_.is_ours(); }
    void regain(SegmentMetadata& again) { file_.regain(std::move(again.file_)); }
    const Shape& shape() const { return shape_; }
    MetadataHeader& header() const { return *reinterpret_cast<MetadataHeader*>(at_); }
    BlockRecord& block(std::uint32_t index) const {
        return reinterpret_cast<BlockRecord*>(at_ + shape_.blocks_at)[index];
    }
    Hold& hold(std::uint32_t index) const { return reinterpret_cast<Hold*>(at_ + shape_.holds_at)[index]; }

    // Take the lock as `slot`, and repair a dead holder's unfinished work. False: held by others for all of
    // patience_ms.
    bool lock(std::uint32_t slot, unsigned patience_ms);
    // The same for the manager (lock.hpp); only tries.
    bool lock_untrusted();
    void unlock() { untrusted_ ? drop_lock_untrusted(header().lock) : drop_lock(header().lock); }

    // Reserve pages for more hold entries, outside the lock; grow_holds() under the lock then puts them to use.
    int reserve_holds(std::uint32_t* reserved, Refusal& refusal) const;
    // Reserve pages for block records [0, count). Owner only.
    int reserve_blocks(std::uint32_t count, Refusal& refusal) const;

    // A live block's size, or 0. Without the lock: a snapshot.
    std::uint64_t live_size(std::uint32_t index, std::uint32_t generation) const;
    // The entries by kind. Without the lock: a snapshot. Reads no page that was never written.
    HoldCounts count_holds() const;

    // Whether a name holds a block. Without the lock: a hold that is made or released meanwhile may be seen or not.
    // Reads no page that was never written.
    bool is_kept_untrusted();

    // ---- locked -----------------------------------------------------------------------------------------------------
    void grow_holds(std::uint32_t reserved);
    // The owner hands out a block that is home. Returns the hold's index, kNone when no reserved entry is free.
    std::uint32_t hand_out(std::uint32_t index, std::uint64_t offset, std::uint64_t size, std::uint32_t slot);
    // One more hold on a live block. pre: is_live(index, generation). kNone as above.
    std::uint32_t add_hold(std::uint32_t index, std::uint32_t slot, HoldKind kind, std::uint32_t mark);
    // Turn a ticket into a hold of `slot`. False: the entry is not that ticket.
    bool redeem(std::uint32_t hold, std::uint32_t mark, std::uint32_t index, std::uint32_t slot);
    bool is_ticket(std::uint32_t hold, std::uint32_t mark, std::uint32_t index) const;
    bool is_live(std::uint32_t index, std::uint32_t generation) const;
    // Give a live block a new generation, as if it had been freed and allocated again: older handles are then refused.
    // False, and nothing is done: it has more than one hold.
    bool renew(std::uint32_t index, std::uint32_t* generation);
    // The place of a live block, checked after a single read. False: it is not live.
    bool find_live(std::uint32_t index, std::uint32_t generation, std::uint64_t* offset, std::uint64_t* size) const;
    // Whether an entry or a record may ever have been written.
    bool has_hold(std::uint32_t index) const { return !untrusted_ || written_holds_[index / kHoldsPerPage]; }
    bool has_record(std::uint32_t index) const { return !untrusted_ || written_blocks_[index / kBlocksPerPage]; }
    // End a hold. `by_owner`: the caller owns the arena and takes the block home when this was the last one.
    Left release(std::uint32_t hold, bool by_owner);
    // The owner takes back the blocks that others returned; appends their indices.
    void take_returned(std::vector<std::uint32_t>& home);
    // Release every hold of a slot or ring. Returns how many. `rebuild`: then derive all derived fields again, whatever
    // they contain.
    std::uint32_t release_holds_of(std::uint32_t slot, bool rebuild = false);
    // Release the tickets of slot 0 that were made before `before` (CLOCK_MONOTONIC, seconds). Returns how many.
    std::uint32_t expire_tickets(std::uint32_t before);
    // The owner of each hold, within the capacity of `rings`. False: the capacity is too small, or an owner is a slot.
    bool owners(std::vector<std::uint32_t>& rings) const;
    // A description of the first broken invariant, or nullptr.
    const char* check() const;

   private:
    static constexpr std::uint32_t kHoldsPerPage = kPage / sizeof(Hold), kBlocksPerPage = kPage / sizeof(BlockRecord);

    void derive();
    bool locked(Locked result, bool untrusted);
    std::uint32_t pop_free_hold();

    std::byte* at_ = nullptr;
    os::Descriptor file_;
    Shape shape_{};
    std::uint64_t payload_bytes_ = 0;
    bool untrusted_ = false;  // the lock was last taken by lock_untrusted()
    std::bitset<kArenaHolds / kHoldsPerPage> written_holds_;
    std::bitset<kArenaBlocks / kBlocksPerPage> written_blocks_;
};

}  // namespace shmtensor
