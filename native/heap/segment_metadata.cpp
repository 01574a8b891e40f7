#include "heap/segment_metadata.hpp"

#include <algorithm>
#include <cerrno>

#include "base/failpoint.hpp"
#include "base/os.hpp"

namespace shmtensor {
namespace {

constexpr std::uint32_t kHoldStep = 4096;  // entries reserved at a time: 64 KiB

std::uint64_t pages(std::uint64_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}

template <std::size_t kPages>
void note_written(int fd, std::uint64_t table, std::uint64_t bytes, std::bitset<kPages>& written) {
    written.reset();
    const std::uint64_t end = table + pages(bytes);
    for (std::uint64_t from = 0, to = table; os::next_written(fd, to, end, &from, &to);)
        for (std::uint64_t at = from; at < to; at += kPage) written.set((at - table) / kPage);
}

}  // namespace

int SegmentMetadata::create(const char* name, std::uint64_t segment, std::uint32_t owner, std::uint32_t generation,
                            std::uint64_t payload_bytes, bool dedicated, const std::uint8_t* device) {
    shape_ = shape_of(dedicated);
    payload_bytes_ = payload_bytes;
    int fd = -1;
    if (const int error = os::memfd(name, shape_.bytes, &fd)) return error;
    if (const int error = os::map_shared(fd, shape_.bytes, &at_)) {
        os::close(fd);
        return error;
    }
    file_ = os::Descriptor(fd);
    if (const int error = os::reserve(file_, at_, 0, kPage)) return error;
    MetadataHeader& h = header();
    h.magic = kMetadataMagic;
    h.version = kLayoutVersion;
    h.owner = owner;
    h.owner_generation = generation;
    h.segment = segment;
    h.payload_bytes = payload_bytes;
    h.dedicated = dedicated;
    if (device) std::copy_n(device, sizeof h.device, h.device);
    h.free_hold = kNone;
    h.returned = kNone;
    init_lock(h.lock);
    return 0;
}

int SegmentMetadata::open(int fd, std::uint64_t segment, std::uint64_t payload_bytes, bool dedicated) {
    shape_ = shape_of(dedicated);
    payload_bytes_ = payload_bytes;
    os::Facts facts;
    if (const int error = os::facts_of(fd, &facts)) return error;
    if (facts.bytes != shape_.bytes) return EINVAL;
    if (const int error = os::map_shared(fd, shape_.bytes, &at_)) return error;
    const MetadataHeader& h = header();
    if (h.magic != kMetadataMagic || h.version != kLayoutVersion || h.segment != segment ||
        h.payload_bytes != payload_bytes || (h.dedicated != 0) != dedicated) {
        os::unmap(at_, shape_.bytes);
        at_ = nullptr;
        return EINVAL;
    }
    file_ = os::Descriptor(fd);
    return 0;
}

int SegmentMetadata::open_found(int fd) {
    os::Facts facts;
    if (const int error = os::facts_of(fd, &facts)) return error;
    if (!os::is_sealed(fd) || facts.bytes < kPage) return EINVAL;
    std::byte* at = nullptr;
    if (const int error = os::map_shared(fd, kPage, &at)) return error;
    const auto& h = *reinterpret_cast<const MetadataHeader*>(at);
    const std::uint64_t segment = h.segment, payload_bytes = h.payload_bytes;
    const bool dedicated = h.dedicated != 0;
    os::unmap(at, kPage);
    return payload_bytes == 0 || payload_bytes > kMaxSegmentBytes ? EINVAL
                                                                  : open(fd, segment, payload_bytes, dedicated);
}

void SegmentMetadata::close() {
    if (at_) os::unmap(at_, shape_.bytes);
    at_ = nullptr;
    file_.close();
}

inline bool SegmentMetadata::locked(Locked result, bool untrusted) {
    if (result == Locked::busy) return false;
    untrusted_ = untrusted;
    if (untrusted) {
        note_written(fd(), shape_.holds_at, shape_.holds * sizeof(Hold), written_holds_);
        note_written(fd(), shape_.blocks_at, shape_.blocks * sizeof(BlockRecord), written_blocks_);
    }
    if (result == Locked::after_death) {
        // If this process is killed here, the lock is marked again, and the next one starts over.
        derive();
        made_consistent(header().lock);
    }
    return true;
}

bool SegmentMetadata::lock(std::uint32_t slot, unsigned patience_ms) {
    return locked(take_lock(header().lock, slot, patience_ms), false);
}

bool SegmentMetadata::lock_untrusted() {
    return locked(try_lock_untrusted(header().lock), true);
}

// Rebuild all fields marked (derived) in layout.hpp from the hold entries.
void SegmentMetadata::derive() {
    MetadataHeader& h = header();
    const std::uint32_t blocks = std::min(h.blocks_high.load(), shape_.blocks);
    const std::uint32_t holds = std::min(h.holds_high.load(), shape_.holds);
    // Counted apart and then set by one store each: the manager reads a count without the lock, and a live block must
    // never look free.
    for (std::uint32_t b = 0; b < blocks; ++b)
        if (has_record(b)) block(b).next = 0;
    SHMTENSOR_POINT("metadata.derive.begun");
    std::uint32_t chain = kNone, high = 0;
    for (std::uint32_t i = 0; i < holds; ++i) {
        if (!has_hold(i)) continue;
        high = i + 1;
        const std::uint64_t word = hold(i).word.load(std::memory_order_acquire);  // SYNC: hold
        if (word != 0 && block_of(word) < blocks && has_record(block_of(word))) {
            ++block(block_of(word)).next;
        } else {
            hold(i).word.store(0, std::memory_order_relaxed);
            hold(i).mark.store(chain, std::memory_order_relaxed);
            chain = i;
        }
    }
    h.free_hold.store(chain);
    if (untrusted_) h.holds_high.store(high);  // entries beyond were never used
    SHMTENSOR_POINT("metadata.derive.holds_chained");
    std::uint32_t returned = kNone, live = 0;
    std::uint64_t bytes = 0;
    for (std::uint32_t b = 0; b < blocks; ++b) {
        if (!has_record(b)) continue;
        BlockRecord& r = block(b);
        r.count.store(r.next, std::memory_order_release);  // SYNC: hold
        if (r.next > 0) {
            r.where = static_cast<std::uint32_t>(Where::out);
            ++live;
            bytes += r.size.load(std::memory_order_relaxed);
        } else if (r.where == static_cast<std::uint32_t>(Where::out)) {
            r.next = returned;
            returned = b;
        }
    }
    h.returned.store(returned);
    h.live_blocks.store(live);
    h.live_bytes.store(bytes);
    SHMTENSOR_POINT("metadata.derive.done");
}

int SegmentMetadata::reserve_holds(std::uint32_t* reserved, Refusal& refusal) const {
    const std::uint32_t have = std::min(header().holds_reserved.load(), shape_.holds);
    if (have == shape_.holds) {
        refusal = {ENOSPC, sizeof(Hold), "hold entries of the segment", 0, header().segment};
        return ENOSPC;
    }
    // In steps that grow with the table, so that forking a client with many blocks reserves rarely.
    const std::uint32_t want = std::min(shape_.holds, have + std::max(kHoldStep, have / 2 / kHoldStep * kHoldStep));
    *reserved = want;
    return limits::reserve(file_, at_, shape_.holds_at + have * sizeof(Hold), pages((want - have) * sizeof(Hold)),
                           refusal);
}

int SegmentMetadata::reserve_blocks(std::uint32_t count, Refusal& refusal) const {
    return limits::reserve(file_, at_, shape_.blocks_at, pages(std::min(count, shape_.blocks) * sizeof(BlockRecord)),
                           refusal);
}

std::uint64_t SegmentMetadata::live_size(std::uint32_t index, std::uint32_t generation) const {
    if (index >= std::min(header().blocks_high.load(std::memory_order_relaxed), shape_.blocks)) return 0;
    const std::uint64_t page = (shape_.blocks_at + index * sizeof(BlockRecord)) / kPage * kPage;
    std::uint64_t from = 0, to = 0;
    if (!os::next_written(fd(), page, page + kPage, &from, &to)) return 0;
    const BlockRecord& r = block(index);
    const bool live = r.count.load(std::memory_order_acquire) > 0 &&  // SYNC: hold
                      r.generation.load(std::memory_order_relaxed) == generation;
    return live ? r.size.load(std::memory_order_relaxed) : 0;
}

HoldCounts SegmentMetadata::count_holds() const {
    HoldCounts counts{0, 0, 0, 0, kNone};
    const std::uint64_t end = shape_.holds_at + std::min(header().holds_high.load(), shape_.holds) * sizeof(Hold);
    for (std::uint64_t from = 0, to = shape_.holds_at; os::next_written(fd(), to, end, &from, &to);) {
        const auto stop = static_cast<std::uint32_t>((to - shape_.holds_at) / sizeof(Hold));
        for (auto i = static_cast<std::uint32_t>((from - shape_.holds_at) / sizeof(Hold)); i < stop; ++i) {
            const HoldKind kind = kind_of(hold(i).word.load(std::memory_order_acquire));  // SYNC: hold
            counts.client += kind == HoldKind::client;
            counts.message += kind == HoldKind::message;
            counts.name += kind == HoldKind::name;
            if (kind != HoldKind::ticket) continue;
            ++counts.ticket;
            counts.oldest_ticket = std::min(counts.oldest_ticket, hold(i).since.load(std::memory_order_relaxed));
        }
    }
    return counts;
}

bool SegmentMetadata::is_kept_untrusted() {
    untrusted_ = true;
    note_written(fd(), shape_.holds_at, shape_.holds * sizeof(Hold), written_holds_);
    const std::uint32_t holds = std::min(header().holds_high.load(), shape_.holds);
    for (std::uint32_t i = 0; i < holds; ++i)
        if (const std::uint64_t word = has_hold(i) ? hold(i).word.load(std::memory_order_relaxed) : 0;
            owner_of(word) == 0 && kind_of(word) == HoldKind::name)
            return true;
    return false;
}

void SegmentMetadata::grow_holds(std::uint32_t reserved) {
    if (reserved > header().holds_reserved.load()) header().holds_reserved.store(std::min(reserved, shape_.holds));
}

std::uint32_t SegmentMetadata::pop_free_hold() {
    MetadataHeader& h = header();
    const std::uint32_t head = h.free_hold.load(std::memory_order_relaxed);
    if (head != kNone && head < std::min(h.holds_high.load(std::memory_order_relaxed), shape_.holds) &&
        hold(head).word.load(std::memory_order_relaxed) == 0) {
        h.free_hold.store(hold(head).mark.load(std::memory_order_relaxed), std::memory_order_relaxed);
        return head;
    }
    const std::uint32_t high = h.holds_high.load(std::memory_order_relaxed);
    if (high >= std::min(h.holds_reserved.load(std::memory_order_relaxed), shape_.holds)) return kNone;
    h.holds_high.store(high + 1, std::memory_order_relaxed);
    return high;
}

std::uint32_t SegmentMetadata::hand_out(std::uint32_t index, std::uint64_t offset, std::uint64_t size,
                                        std::uint32_t slot) {
    const std::uint32_t taken = pop_free_hold();
    if (taken == kNone) return kNone;
    SHMTENSOR_POINT("metadata.hand_out.entry_taken");
    MetadataHeader& h = header();
    if (index >= h.blocks_high.load(std::memory_order_relaxed)) h.blocks_high.store(index + 1);
    BlockRecord& r = block(index);
    r.generation.store(r.generation.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    r.offset = offset;
    r.size.store(size, std::memory_order_relaxed);
    r.where = static_cast<std::uint32_t>(Where::out);
    SHMTENSOR_POINT("metadata.hand_out.record_written");
    Hold& e = hold(taken);
    e.since.store(os::monotonic_seconds(), std::memory_order_relaxed);
    e.word.store(hold_word(index, slot, HoldKind::client), std::memory_order_release);  // SYNC: hold
    SHMTENSOR_POINT("metadata.hand_out.held");
    r.count.store(1, std::memory_order_release);  // SYNC: hold
    h.live_blocks.store(h.live_blocks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    h.live_bytes.store(h.live_bytes.load(std::memory_order_relaxed) + size, std::memory_order_relaxed);
    SHMTENSOR_POINT("metadata.hand_out.counted");
    return taken;
}

std::uint32_t SegmentMetadata::add_hold(std::uint32_t index, std::uint32_t slot, HoldKind kind, std::uint32_t mark) {
    const std::uint32_t taken = pop_free_hold();
    if (taken == kNone) return kNone;
    SHMTENSOR_POINT("metadata.add_hold.entry_taken");
    if (kind == HoldKind::message && header().lent.load(std::memory_order_relaxed) == 0)
        header().lent.store(1, std::memory_order_relaxed);
    Hold& e = hold(taken);
    e.mark.store(mark, std::memory_order_relaxed);
    e.since.store(os::monotonic_seconds(), std::memory_order_relaxed);
    e.word.store(hold_word(index, slot, kind), std::memory_order_release);  // SYNC: hold
    SHMTENSOR_POINT("metadata.add_hold.held");
    block(index).count.fetch_add(1, std::memory_order_relaxed);
    SHMTENSOR_POINT("metadata.add_hold.counted");
    return taken;
}

bool SegmentMetadata::is_live(std::uint32_t index, std::uint32_t generation) const {
    std::uint64_t offset = 0, size = 0;
    return find_live(index, generation, &offset, &size);
}

bool SegmentMetadata::renew(std::uint32_t index, std::uint32_t* generation) {
    BlockRecord& r = block(index);
    if (r.count.load(std::memory_order_relaxed) != 1) return false;
    *generation = r.generation.load(std::memory_order_relaxed) + 1;
    r.generation.store(*generation, std::memory_order_relaxed);  // one store, so that there is nothing to undo
    return true;
}

bool SegmentMetadata::find_live(std::uint32_t index, std::uint32_t generation, std::uint64_t* offset,
                                std::uint64_t* size) const {
    if (index >= std::min(header().blocks_high.load(std::memory_order_relaxed), shape_.blocks)) return false;
    const BlockRecord& r = block(index);
    *offset = __atomic_load_n(&r.offset, __ATOMIC_RELAXED);
    *size = r.size.load(std::memory_order_relaxed);
    return r.count.load(std::memory_order_relaxed) > 0 && r.generation.load(std::memory_order_relaxed) == generation &&
           *offset <= payload_bytes_ && *size <= payload_bytes_ - *offset;
}

bool SegmentMetadata::is_ticket(std::uint32_t index, std::uint32_t mark, std::uint32_t of_block) const {
    if (index >= std::min(header().holds_high.load(std::memory_order_relaxed), shape_.holds)) return false;
    const std::uint64_t word = hold(index).word.load(std::memory_order_acquire);  // SYNC: hold
    return kind_of(word) == HoldKind::ticket && block_of(word) == of_block &&
           hold(index).mark.load(std::memory_order_relaxed) == mark;
}

bool SegmentMetadata::redeem(std::uint32_t index, std::uint32_t mark, std::uint32_t of_block, std::uint32_t slot) {
    // Under the lock, so that the entry cannot become another ticket between the check of the mark and the store.
    if (!is_ticket(index, mark, of_block)) return false;
    SHMTENSOR_POINT("metadata.redeem.recognised");
    hold(index).word.store(hold_word(of_block, slot, HoldKind::client), std::memory_order_release);  // SYNC: hold
    SHMTENSOR_POINT("metadata.redeem.held");
    return true;
}

Left SegmentMetadata::release(std::uint32_t index, bool by_owner) {
    MetadataHeader& h = header();
    Hold& e = hold(index);
    const std::uint32_t of_block = block_of(e.word.load(std::memory_order_relaxed));
    e.word.store(0, std::memory_order_release);  // SYNC: hold
    SHMTENSOR_POINT("metadata.release.ended");
    e.mark.store(h.free_hold.load(std::memory_order_relaxed), std::memory_order_relaxed);
    h.free_hold.store(index, std::memory_order_relaxed);
    SHMTENSOR_POINT("metadata.release.entry_freed");
    if (of_block >= shape_.blocks || !has_record(of_block))
        return Left::held;  // only a damaged entry names such a block
    BlockRecord& r = block(of_block);
    const std::uint32_t count = r.count.load(std::memory_order_relaxed) - 1;
    r.count.store(count, std::memory_order_relaxed);
    if (count > 0) return Left::held;
    h.live_blocks.store(h.live_blocks.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    h.live_bytes.store(h.live_bytes.load(std::memory_order_relaxed) - r.size.load(std::memory_order_relaxed),
                       std::memory_order_relaxed);
    SHMTENSOR_POINT("metadata.release.uncounted");
    if (by_owner) {
        r.where = static_cast<std::uint32_t>(Where::home);
        SHMTENSOR_POINT("metadata.release.home");
        return Left::home;
    }
    r.next = h.returned.load(std::memory_order_relaxed);
    h.returned.store(of_block, std::memory_order_relaxed);
    SHMTENSOR_POINT("metadata.release.returned");
    return Left::returned;
}

void SegmentMetadata::take_returned(std::vector<std::uint32_t>& home) {
    MetadataHeader& h = header();
    // An overwritten chain ends at the first record that does not belong there, which also ends a cycle.
    for (std::uint32_t b = h.returned.load(std::memory_order_relaxed); b != kNone && b < shape_.blocks;
         b = block(b).next) {
        if (block(b).where != static_cast<std::uint32_t>(Where::out) || block(b).count.load() != 0) break;
        block(b).where = static_cast<std::uint32_t>(Where::home);
        SHMTENSOR_POINT("metadata.take_returned.one");
        home.push_back(b);
    }
    h.returned.store(kNone, std::memory_order_relaxed);
    SHMTENSOR_POINT("metadata.take_returned.all");
}

std::uint32_t SegmentMetadata::release_holds_of(std::uint32_t slot, bool rebuild) {
    const std::uint32_t holds = std::min(header().holds_high.load(), shape_.holds);
    std::uint32_t released = 0;
    for (std::uint32_t i = 0; i < holds; ++i) {
        if (!has_hold(i)) continue;
        const std::uint64_t word = hold(i).word.load(std::memory_order_relaxed);
        if (word == 0 || owner_of(word) != slot) continue;
        release(i, false);
        ++released;
        SHMTENSOR_POINT("metadata.release_holds.one");
    }
    if (rebuild) derive();
    return released;
}

std::uint32_t SegmentMetadata::expire_tickets(std::uint32_t before) {
    const std::uint32_t holds = std::min(header().holds_high.load(), shape_.holds);
    std::uint32_t released = 0;
    for (std::uint32_t i = 0; i < holds; ++i) {
        if (!has_hold(i)) continue;
        const std::uint64_t word = hold(i).word.load(std::memory_order_relaxed);
        if (word == 0 || owner_of(word) != 0 || kind_of(word) != HoldKind::ticket) continue;
        if (hold(i).since.load(std::memory_order_relaxed) > before) continue;
        release(i, false);
        ++released;
    }
    return released;
}

bool SegmentMetadata::owners(std::vector<std::uint32_t>& rings) const {
    const std::uint32_t holds = std::min(header().holds_high.load(), shape_.holds);
    for (std::uint32_t i = 0; i < holds; ++i) {
        const std::uint64_t word = has_hold(i) ? hold(i).word.load(std::memory_order_acquire) : 0;  // SYNC: hold
        if (word == 0) continue;
        if (owner_of(word) < kFirstRing || rings.size() == rings.capacity()) return false;
        rings.push_back(owner_of(word));
    }
    return true;
}

const char* SegmentMetadata::check() const {
    const MetadataHeader& h = header();
    const std::uint32_t blocks = h.blocks_high, holds = h.holds_high;
    if (blocks > shape_.blocks || holds > shape_.holds) return "a table is longer than its segment";
    std::vector<std::uint32_t> counted(blocks, 0);
    std::uint32_t empty = 0;
    for (std::uint32_t i = 0; i < holds; ++i) {
        const std::uint64_t word = hold(i).word;
        if (word == 0) {
            ++empty;
        } else if (block_of(word) >= blocks) {
            return "a hold names a block beyond the table";
        } else {
            ++counted[block_of(word)];
        }
    }
    std::uint32_t live = 0, away = 0;
    std::uint64_t bytes = 0;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
    for (std::uint32_t b = 0; b < blocks; ++b) {
        const BlockRecord& r = block(b);
        if (r.count != counted[b]) return "I1: a count differs from the holds";
        const bool out = r.where == static_cast<std::uint32_t>(Where::out);
        if (counted[b] > 0) {
            if (!out) return "I5: a live block is home";
            ++live;
            bytes += r.size;
            spans.emplace_back(r.offset, r.offset + r.size);
        } else if (out) {
            ++away;
        }
    }
    if (live != h.live_blocks || bytes != h.live_bytes) return "I2: the totals differ from the blocks";
    std::uint32_t chained = 0;
    for (std::uint32_t i = h.free_hold; i != kNone; i = hold(i).mark, ++chained)
        if (i >= holds || chained == empty || hold(i).word != 0) return "I3: the chain of free holds is wrong";
    if (chained != empty) return "I3: the chain of free holds is short";
    std::uint32_t returned = 0;
    for (std::uint32_t b = h.returned; b != kNone; b = block(b).next, ++returned)
        if (b >= blocks || returned == away || counted[b] != 0) return "I4: the chain of returned blocks is wrong";
    if (returned != away) return "I4: the chain of returned blocks is short";
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i)
        if (spans[i].first < spans[i - 1].second) return "I5: two live blocks overlap";
    return nullptr;
}

}  // namespace shmtensor
