// The metadata of one segment: blocks and the holds on them, in shared memory. Clients and the manager share this code.
//
// Every call below the line `locked` wants the lock held. Nothing in here waits but lock(), makes a system call but
// create(), open() and reserve_holds(), or believes an index that it reads from shared memory without checking it. Who
// locks with lock_untrusted(), as the manager does, does not even believe that a table is as long as it says: it looks
// at no page that was never written, which would be made for the look and be charged to it.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/layout.hpp"
#include "base/limits.hpp"
#include "heap/lock.hpp"

namespace shmtensor {

// What release() left of the block.
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

    // Make the control part of a new segment (manager), a memfd of that name; `device`: the UUID of that whose memory
    // the payload is. 0 or errno.
    int create(const char* name, std::uint64_t segment, std::uint32_t owner, std::uint32_t generation,
               std::uint64_t payload_bytes, bool dedicated, const std::uint8_t* device = nullptr);
    // Map an existing one; takes fd over on success. EINVAL when it is not what the arguments say.
    int open(int fd, std::uint64_t segment, std::uint64_t payload_bytes, bool dedicated);
    // The same of one that we know nothing about (a new manager): it must be sealed, and true to its own header.
    int open_found(int fd);
    void close();

    bool is_open() const { return at_ != nullptr; }
    int fd() const { return file_.number(); }
    // Whether its descriptor stands for another file by now. With one of the same file again, it does not any more.
    bool is_lost() const { return !file_.is_ours(); }
    void regain(SegmentMetadata& again) { file_.regain(std::move(again.file_)); }
    const Shape& shape() const { return shape_; }
    MetadataHeader& header() const { return *reinterpret_cast<MetadataHeader*>(at_); }
    BlockRecord& block(std::uint32_t index) const {
        return reinterpret_cast<BlockRecord*>(at_ + shape_.blocks_at)[index];
    }
    Hold& hold(std::uint32_t index) const { return reinterpret_cast<Hold*>(at_ + shape_.holds_at)[index]; }

    // Take the lock as `slot`; a dead holder's unfinished work is put right first. False: busy for all of patience_ms.
    bool lock(std::uint32_t slot, unsigned patience_ms);
    // The same as the manager does it (lock.hpp), which only tries.
    bool lock_untrusted();
    void unlock() { untrusted_ ? drop_lock_untrusted(header().lock) : drop_lock(header().lock); }

    // Reserve pages for more hold entries, outside the lock; grow_holds() under the lock then lets them be used.
    int reserve_holds(std::uint32_t* reserved, Refusal& refusal) const;
    // Reserve pages for block records [0, count). Owner only.
    int reserve_blocks(std::uint32_t count, Refusal& refusal) const;

    // A live block's size, or 0. Without the lock: a snapshot.
    std::uint64_t live_size(std::uint32_t index, std::uint32_t generation) const;
    // The entries by kind. Without the lock, likewise, and as careful with pages as who locks with lock_untrusted().
    HoldCounts count_holds() const;

    // Whether a name holds a block. Without the lock: a hold that is made or released meanwhile is seen or not. Reads
    // no page that was never written, as after lock_untrusted().
    bool is_kept_untrusted();

    // ---- locked -----------------------------------------------------------------------------------------------------
    void grow_holds(std::uint32_t reserved);
    // The owner hands out a block that is home. Gives the hold's index, kNone when no reserved entry is free.
    std::uint32_t hand_out(std::uint32_t index, std::uint64_t offset, std::uint64_t size, std::uint32_t slot);
    // One more hold on a live block. pre: is_live(index, generation). kNone as above.
    std::uint32_t add_hold(std::uint32_t index, std::uint32_t slot, HoldKind kind, std::uint32_t mark);
    // Turn a ticket into a hold of `slot`. False when it is not that ticket (any more).
    bool redeem(std::uint32_t hold, std::uint32_t mark, std::uint32_t index, std::uint32_t slot);
    bool is_ticket(std::uint32_t hold, std::uint32_t mark, std::uint32_t index) const;
    bool is_live(std::uint32_t index, std::uint32_t generation) const;
    // A new generation for a live block, as if it had been freed and made again: older handles are refused from now on.
    // False, and nothing is done: it has more than one hold.
    bool renew(std::uint32_t index, std::uint32_t* generation);
    // Where a live block lies, checked and then not read again. False when it is not live.
    bool find_live(std::uint32_t index, std::uint32_t generation, std::uint64_t* offset, std::uint64_t* size) const;
    // Whether an entry or a record may ever have been written.
    bool has_hold(std::uint32_t index) const { return !untrusted_ || written_holds_[index / kHoldsPerPage]; }
    bool has_record(std::uint32_t index) const { return !untrusted_ || written_blocks_[index / kBlocksPerPage]; }
    // End a hold. `by_owner`: the caller owns the arena and takes the block home when this was the last one.
    Left release(std::uint32_t hold, bool by_owner);
    // The owner takes home what others returned; appends the indices.
    void take_returned(std::vector<std::uint32_t>& home);
    // Release every hold of a slot or ring, or the tickets of slot 0 made before `before` (monotonic seconds). Returns
    // how many. `rebuild`: then derive all that follows from the holds that are left, whatever stood there.
    std::uint32_t release_holds_of(std::uint32_t slot, bool rebuild = false);
    std::uint32_t expire_tickets(std::uint32_t before);
    // The owner of each hold, into the capacity that `rings` has. False: the capacity is too small, or an owner is a
    // slot.
    bool owners(std::vector<std::uint32_t>& rings) const;
    // First broken invariant in words, or nullptr.
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
    bool untrusted_ = false;  // the lock was taken last by lock_untrusted()
    std::bitset<kArenaHolds / kHoldsPerPage> written_holds_;
    std::bitset<kArenaBlocks / kBlocksPerPage> written_blocks_;
};

}  // namespace shmtensor
