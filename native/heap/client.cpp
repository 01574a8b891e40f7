#include "heap/client.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/failpoint.hpp"
#include "base/os.hpp"

namespace shmtensor {
namespace {

constexpr unsigned kMoment = 10;  // ms that a release waits for the metadata: enough for a preempted holder to finish

// All clients of this process, for the fork hooks.
std::mutex registry_lock;
std::vector<Client*> registry;

void prepare() {
    registry_lock.lock();
    for (Client* c : registry) c->before_fork();
}
void parent() {
    for (Client* c : registry) c->after_fork_in_parent();
    registry_lock.unlock();
}
void child() {
    for (Client* c : registry) c->after_fork_in_child();
    registry_lock.unlock();
}

}  // namespace

thread_local Refusal Client::refusal_;

Client::Client(Group& group, std::uint32_t slot, int connection, std::uint32_t epoch)
    : group_(group),
      slot_(slot),
      generation_(generation_of(group.slot(slot).word.load())),
      connection_(connection),
      epoch_(epoch),
      heap_(group_, slot_),
      pressed_(group.pressed()),
      next_mark_(static_cast<std::uint32_t>(os::random64())) {
    process_ = os::process_id();
    namespace_ = os::pid_namespace();
    if (os::wipe_on_fork_page(&page_) != 0) page_ = new std::byte[1];  // the kernel is too old for this check
    intact_ = reinterpret_cast<unsigned char*>(page_);
    *intact_ = 1;
    const std::lock_guard guard(registry_lock);
    [[maybe_unused]] static const int hooked = ::pthread_atfork(prepare, parent, child);
    registry.push_back(this);
}

Client::~Client() {
    {
        const std::lock_guard guard(registry_lock);
        std::erase(registry, this);
    }
    connection_.close();
    // page_ stays mapped until the process ends, so that a late release can still call alive().
}

void Client::reconnect(int connection, std::uint32_t epoch, bool close) {
    const std::lock_guard guard(private_);
    if (!close) connection_.release();
    connection_ = os::Descriptor(connection);
    epoch_ = epoch;
}

// ------------------------------------------------------------------------------------------------------------ segments

Segment* Client::known(std::uint64_t id) {
    if (last_ && last_->id == id) return last_;
    const auto found = segments_.find(id);
    if (found == segments_.end()) return nullptr;
    return last_ = found->second.get();
}

// Called under the lock of a ring: its messages keep their segments from being given up.
SegmentMetadata* Client::find(std::uint64_t segment) {
    const std::lock_guard table(table_);
    const auto found = segments_.find(segment);
    return found == segments_.end() ? nullptr : &found->second->metadata;
}

int Client::add_segment(std::uint64_t id, int control, int payload, std::uint64_t payload_bytes, SegmentKind kind,
                        bool owned) {
    auto segment = std::make_unique<Segment>();
    segment->id = id;
    segment->file = os::Descriptor(payload);
    segment->payload_bytes = payload_bytes;
    segment->kind = kind;
    if (const int error = segment->metadata.open(control, id, payload_bytes, segment->is_dedicated())) {
        os::close(control);
        return error;
    }
    os::Facts facts;
    if (const int error = segment->file.facts(&facts)) return error;
    if (facts.bytes < payload_bytes) {  // not a memfd, and truncated: a touch would be SIGBUS
        if (owned) return ESTALE;
    } else if (const int error = os::map_shared(payload, payload_bytes, &segment->payload)) {
        return error;
    }
    enlist(std::move(segment), owned);
    return 0;
}

int Client::add_device_segment(std::uint64_t id, int control, int payload, std::uint64_t payload_bytes,
                               SegmentKind kind, bool owned, int device, std::uint64_t address) {
    auto segment = std::make_unique<Segment>();
    segment->id = id;
    segment->file = os::Descriptor(payload);
    segment->payload_bytes = payload_bytes;
    segment->kind = kind;
    segment->device = device;
    segment->payload = reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr): the driver's number
    if (const int error = segment->metadata.open(control, id, payload_bytes, segment->is_dedicated())) {
        os::close(control);
        return error;
    }
    return enlist(std::move(segment), owned);
}

// 0, or EEXIST: it was known already; only its lost descriptors were replaced.
int Client::enlist(std::unique_ptr<Segment> segment, bool owned) {
    const std::lock_guard guard(private_);
    unmap_retired();
    if (const auto found = segments_.find(segment->id); found != segments_.end()) {
        found->second->file.regain(std::move(segment->file));
        found->second->metadata.regain(segment->metadata);
        return EEXIST;
    }
    segment->held.resize(segment->is_dedicated() ? 1 : 0);
    if (owned) heap_of(segment->device).adopt(*segment);
    if (segment->payload) mapped_.emplace(segment->payload, segment.get());
    const std::lock_guard table(table_);
    const std::uint64_t id = segment->id;
    segments_.emplace(id, std::move(segment));
    return 0;
}

// pre: private lock held.
Heap& Client::heap_of(int device) {
    if (device == kHost) return heap_;
    auto& heap = device_heaps_[device];
    if (!heap) heap = std::make_unique<Heap>(group_, slot_, Backing::whole);
    return *heap;
}

std::vector<std::pair<std::uint64_t, int>> Client::device_segments() {
    const std::lock_guard guard(private_);
    std::vector<std::pair<std::uint64_t, int>> found;
    for (const auto& [id, segment] : segments_) {
        if (!segment->on_device()) continue;
        if (os::Descriptor copy = segment->file.duplicate(); copy.number() >= 0) found.emplace_back(id, copy.release());
    }
    return found;
}

std::vector<std::uint64_t> Client::give_up_unused(int device) {
    const std::lock_guard guard(private_);
    std::vector<std::uint64_t> ids;
    if (!may_touch() || !device_heaps_.contains(device)) return ids;
    finish_deferred();
    take_returned(heap_of(device), kMoment);
    for (const Segment* s : heap_of(device).give_up_unused()) ids.push_back(s->id);
    return ids;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> Client::take_unmapped() {
    const std::lock_guard guard(private_);
    unmap_retired();
    return std::exchange(unmapped_, {});
}

// pre: private lock held.
void Client::note_unmapped(const Segment& s) {
    if (s.on_device()) unmapped_.emplace_back(reinterpret_cast<std::uint64_t>(s.payload), s.payload_bytes);
}

// Unmap the segments that the manager has given up and of which this process holds no block.
void Client::unmap_retired() {
    for (auto it = segments_.begin(); it != segments_.end();) {
        Segment& s = *(it++)->second;
        if (!s.owned && s.held_count == 0 && s.metadata.header().retired.load() != 0) unmap_unless_awaited(s);
    }
}

// pre: private lock held; no block of the segment is held here. A segment with a hold that still has to end stays.
void Client::unmap_unless_awaited(Segment& s) {
    if (std::any_of(deferred_.begin(), deferred_.end(), [&](auto& d) { return d.first == &s; })) return;
    decltype(segments_)::node_type gone;  // unmapped once the table is free again
    const std::lock_guard table(table_);
    // Another thread that found it in a message may have its metadata from find(). Then it was lent before, and `lent`
    // is visible here, since both threads held the table's lock in between.
    const MetadataHeader& h = s.metadata.header();
    if (h.lent.load(std::memory_order_relaxed) != 0 && h.retired.load() == 0) return;
    if (last_ == &s) last_ = nullptr;
    mapped_.erase(s.payload);
    if (s.readonly) mapped_.erase(s.readonly);
    note_unmapped(s);
    gone = segments_.extract(s.id);
}

Status Client::more_holds(Segment& s, unsigned patience_ms) {
    if (patience_ms == 0) return Status::slow;
    std::uint32_t reserved = 0;
    if (const int error = s.metadata.reserve_holds(&reserved, refusal_)) {
        if (error == ENOSPC) return Status::full;
        // The memory in our own free ranges may be enough; it stays given back.
        if (give_back() == 0 || s.metadata.reserve_holds(&reserved, refusal_) != 0) {
            ask_others(refusal_);
            return Status::refused;
        }
    }
    if (!s.metadata.lock(slot_, patience_ms)) return Status::busy;
    s.metadata.grow_holds(reserved);
    s.metadata.unlock();
    return Status::ok;
}

// -------------------------------------------------------------------------------------------------------------- blocks

void Client::note(Block* block) {
    Segment& s = *block->segment;
    if (block->index >= s.held.size()) s.held.resize(std::max<std::size_t>(block->index + 1, s.held.size() * 2));
    s.held[block->index] = block;
    ++s.held_count;
}

// Take the private lock, waiting at most patience_ms; then check that this process may use the client.
Status Client::enter(std::unique_lock<std::mutex>& guard, unsigned patience_ms) {
    if (patience_ms > 0) {
        guard.lock();
    } else if (!guard.try_lock()) {
        return Status::busy;
    }
    return may_touch() ? Status::ok : Status::not_held;
}

Status Client::allocate(std::uint64_t bytes, unsigned patience_ms, Block** block, int device) {
    std::unique_lock guard(private_, std::defer_lock);
    if (const Status status = enter(guard, patience_ms); status != Status::ok) return status;
    if (!deferred_.empty()) finish_deferred();
    Heap& heap = heap_of(device);
    Room room = heap.quick(bytes);
    if (!room) {
        take_returned(heap, patience_ms);
        room = heap.quick(bytes);
    }
    if (!room) {
        if (patience_ms == 0) return Status::slow;
        yield_to_others();
        room = heap.thorough(bytes, refusal_);
        if (heap.take_lost()) epoch_ = 0;  // reconnect, and ask the manager for them again
        if (!room && refusal_.error == EBADF) return Status::need_segment;  // old kernel: use another one
        if (!room && !refusal_.error) return Status::need_segment;
        if (!room && refusal_.error == ESTALE) return Status::lost;
        if (!room) {
            ask_others(refusal_);
            return Status::refused;
        }
    }
    Segment& s = *room.segment;
    auto made = std::make_unique<Block>(Block{this, &s, room.node, 0, kNone, kNone, room.offset, bytes});
    std::uint32_t hold = kNone;
    while (hold == kNone) {
        if (!s.metadata.lock(slot_, patience_ms)) {
            heap.put_back(room);
            return Status::busy;
        }
        hold = s.metadata.hand_out(room.node, room.offset, bytes, slot_);
        made->generation = s.metadata.block(room.node).generation.load(std::memory_order_relaxed);
        s.metadata.unlock();
        if (hold != kNone) break;
        if (const Status status = more_holds(s, patience_ms); status != Status::ok) {
            heap.put_back(room);
            return status;
        }
    }
    made->hold = hold;
    note(made.get());
    *block = made.release();
    return Status::ok;
}

// Redeems `ticket` if it is given and still valid.
Status Client::open_block(const BlockName& name, const Ticket* ticket, unsigned patience_ms, Block** block) {
    std::unique_lock guard(private_, std::defer_lock);
    if (const Status status = enter(guard, patience_ms); status != Status::ok) return status;
    Segment* const segment = known(name.segment);
    if (!segment) return Status::need_mapping;
    Segment& s = *segment;
    const auto [id, index, generation] = name;
    Block* here = index < s.held.size() ? s.held[index] : nullptr;
    if (here && here->generation != generation) return Status::gone;  // held, so its generation cannot have changed
    if (here && !ticket) {
        ++here->users;
        *block = here;
        return Status::ok;
    }
    for (;;) {
        if (!s.metadata.lock(slot_, patience_ms)) return Status::busy;
        std::uint64_t offset = 0, size = 0;
        if (!s.metadata.find_live(index, generation, &offset, &size)) {
            s.metadata.unlock();
            return Status::gone;
        }
        std::uint32_t hold = kNone;
        if (!s.payload) {
            if (ticket && s.metadata.is_ticket(ticket->hold, ticket->mark, index))
                s.metadata.release(ticket->hold, false);
            s.metadata.unlock();
            return Status::lost;
        }
        if (here) {
            if (s.metadata.is_ticket(ticket->hold, ticket->mark, index)) s.metadata.release(ticket->hold, s.owned);
        } else if (ticket && s.metadata.redeem(ticket->hold, ticket->mark, index, slot_)) {
            hold = ticket->hold;
        } else if (!group_.may_open(s.metadata.header().sealed.load(std::memory_order_relaxed))) {
            s.metadata.unlock();
            return Status::gone;
        } else {
            hold = s.metadata.add_hold(index, slot_, HoldKind::client, 0);
        }
        s.metadata.unlock();
        if (here) {
            ++here->users;
            *block = here;
            return Status::ok;
        }
        if (hold != kNone) {
            *block = new Block{this, &s, index, generation, hold, kNone, offset, size};
            note(*block);
            return Status::ok;
        }
        if (const Status status = more_holds(s, patience_ms); status != Status::ok) return status;
    }
}

Status Client::attach(const BlockName& name, unsigned patience_ms, Block** block) {
    return open_block(name, nullptr, patience_ms, block);
}

Status Client::redeem(const BlockName& name, const Ticket& ticket, unsigned patience_ms, Block** block) {
    return open_block(name, &ticket, patience_ms, block);
}

Status Client::add_hold(const Block& block, std::uint32_t owner, HoldKind kind, std::uint32_t mark,
                        unsigned patience_ms, std::uint32_t* hold) {
    std::unique_lock guard(private_, std::defer_lock);
    if (const Status status = enter(guard, patience_ms); status != Status::ok) return status;
    Segment& s = *block.segment;
    for (;;) {
        if (!s.metadata.lock(slot_, patience_ms)) return Status::busy;
        *hold = s.metadata.add_hold(block.index, owner, kind, mark);
        s.metadata.unlock();
        if (*hold != kNone) return Status::ok;
        if (const Status status = more_holds(s, patience_ms); status != Status::ok) return status;
    }
}

Status Client::ticket(const Block& block, std::uint32_t owner, unsigned patience_ms, Ticket* ticket) {
    ticket->mark = new_mark();
    return add_hold(block, owner, HoldKind::ticket, ticket->mark, patience_ms, &ticket->hold);
}

Status Client::keep(const Block& block, bool kept, unsigned patience_ms) {
    std::unique_lock guard(private_, std::defer_lock);
    if (const Status status = enter(guard, patience_ms); status != Status::ok) return status;
    Segment& s = *block.segment;
    const std::uint64_t word = hold_word(block.index, 0, HoldKind::name);
    for (;;) {
        if (!s.metadata.lock(slot_, patience_ms)) return Status::busy;
        std::uint32_t hold = 0;
        const std::uint32_t holds = s.metadata.header().holds_high.load(std::memory_order_relaxed);
        while (hold < holds && s.metadata.hold(hold).word.load(std::memory_order_relaxed) != word) ++hold;
        const bool is_kept = hold < holds;
        if (is_kept && !kept) s.metadata.release(hold, s.owned);
        if (!is_kept && kept) hold = s.metadata.add_hold(block.index, 0, HoldKind::name, 0);
        s.metadata.unlock();
        if (hold != kNone) return Status::ok;
        if (const Status status = more_holds(s, patience_ms); status != Status::ok) return status;
    }
}

Status Client::lend(const Block& block, std::uint32_t mark, unsigned patience_ms, MessageHold* hold) {
    *hold = {block.segment->id, block.index, block.generation, kNone, 0};
    return add_hold(block, slot_, HoldKind::message, mark, patience_ms, &hold->hold);
}

void Client::drop(const MessageHold& hold) {
    const std::lock_guard guard(private_);
    Segment* s = known(hold.segment);
    if (!s || !may_touch() || hold.hold >= s->metadata.shape().holds) return;
    // Only our own holds: after a fork in the middle of a message, the parent ends its holds.
    const std::uint64_t word = s->metadata.hold(hold.hold).word.load(std::memory_order_acquire);  // SYNC: hold
    if (block_of(word) == hold.block && owner_of(word) == slot_) end_hold(*s, hold.hold, kMoment);
}

Status Client::reserve_holds(std::uint64_t segment, unsigned patience_ms) {
    std::unique_lock guard(private_, std::defer_lock);
    if (const Status status = enter(guard, patience_ms); status != Status::ok) return status;
    Segment* s = known(segment);
    return s ? more_holds(*s, patience_ms) : Status::need_mapping;
}

Status Client::receive(const MessageHold& hold, Block** block) {
    const std::lock_guard guard(private_);
    if (!may_touch()) return Status::not_held;
    Segment* s = known(hold.segment);
    if (!s || hold.hold >= s->metadata.shape().holds || hold.block >= s->metadata.shape().blocks) return Status::gone;
    const std::uint64_t word = s->metadata.hold(hold.hold).word.load(std::memory_order_acquire);  // SYNC: hold
    std::uint64_t offset = 0, size = 0;
    if (word != hold_word(hold.block, slot_, HoldKind::client) ||
        !s->metadata.find_live(hold.block, hold.generation, &offset, &size))
        return Status::gone;
    if (!s->payload) {
        end_hold(*s, hold.hold, kMoment);
        return Status::lost;
    }
    Block* here = hold.block < s->held.size() ? s->held[hold.block] : nullptr;
    if (here) {
        ++here->users;
        end_hold(*s, hold.hold, kMoment);
    } else {
        auto made =
            std::unique_ptr<Block>(new Block{this, s, hold.block, hold.generation, hold.hold, kNone, offset, size});
        note(made.get());
        here = made.release();
    }
    *block = here;
    return Status::ok;
}

void Client::share(Block& block) {
    const std::lock_guard guard(private_);
    ++block.users;
}

bool Client::renew(Block& block) {
    const std::lock_guard guard(private_);
    SegmentMetadata& metadata = block.segment->metadata;
    if (!may_touch() || block.users != 1 || !metadata.lock(slot_, kMoment)) return false;
    const bool renewed = metadata.renew(block.index, &block.generation);
    metadata.unlock();
    return renewed;
}

// pre: private lock held. False: the metadata was busy, and the hold ends later.
bool Client::end_hold(Segment& s, std::uint32_t hold, unsigned patience_ms) {
    if (!s.metadata.lock(slot_, patience_ms)) {
        deferred_.emplace_back(&s, hold);
        return false;
    }
    const std::uint32_t index = block_of(s.metadata.hold(hold).word.load(std::memory_order_relaxed));
    const Left left = s.metadata.release(hold, s.owned);
    s.metadata.unlock();
    if (left == Left::home) heap_of(s.device).put_back(s, index);
    return true;
}

void Client::release(Block* block) {
    if (!alive()) return;
    const std::lock_guard guard(private_);
    if (--block->users > 0) return;
    const std::unique_ptr<Block> ended(block);
    Segment& s = *block->segment;
    s.held[block->index] = nullptr;
    --s.held_count;
    if (!held_) return;
    if (!deferred_.empty()) finish_deferred();
    // If this release were deferred, a process that makes no further call would keep the block. So wait, unless others
    // are deferred already: a stopped lock holder costs one wait only.
    const bool done = end_hold(s, block->hold, deferred_.empty() ? kMoment : 0);
    // A dropped queue must not keep its two descriptors until the next segment is mapped. Other segments stay until
    // they are retired, and so does a queue that came in a message, since another message may bring it again.
    if (done && s.held_count == 0 && s.is_ring()) {
        unmap_unless_awaited(s);
        unmap_retired();
    }
    yield_to_others();
}

int Client::readonly_of(const Block& block, std::byte** at) {
    const std::lock_guard guard(private_);
    Segment& s = *block.segment;
    if (s.on_device()) return ENODEV;
    if (!s.readonly) {
        if (const int error = os::map_readonly(s.payload, s.payload_bytes, &s.readonly)) return error;
        mapped_.emplace(s.readonly, &s);
    }
    *at = s.readonly + block.offset;
    return 0;
}

// pre: private lock held.
Block* Client::holder_of(const std::byte* data, std::uint64_t bytes, bool* readonly) const {
    auto at = mapped_.upper_bound(data);
    if (at == mapped_.begin()) return nullptr;
    const auto& [start, s] = *--at;
    const auto offset = static_cast<std::uint64_t>(data - start);
    if (offset >= s->payload_bytes || s->is_ring()) return nullptr;
    *readonly = start == s->readonly;
    for (Block* b : s->held)
        if (b && b->offset <= offset && bytes <= b->bytes && offset - b->offset <= b->bytes - bytes) return b;
    return nullptr;
}

Status Client::locate(const std::byte* data, std::uint64_t bytes, unsigned patience_ms, Block** block, bool* readonly) {
    *block = nullptr;
    std::unique_lock all(registry_lock, std::defer_lock);
    if (patience_ms > 0) {
        all.lock();
    } else if (!all.try_lock()) {
        return Status::busy;
    }
    for (Client* c : registry) {
        std::unique_lock guard(c->private_, std::defer_lock);
        const Status status = c->enter(guard, patience_ms);
        if (status == Status::busy) return status;
        if (status == Status::ok) *block = c->holder_of(data, bytes, readonly);
        if (!*block) continue;
        ++(*block)->users;
        break;
    }
    return Status::ok;
}

void Client::finish_releases() {
    const std::lock_guard guard(private_);
    if (may_touch()) finish_deferred(kMoment);
}

// pre: private lock held.
void Client::finish_deferred(unsigned patience_ms) {
    const auto again = std::move(deferred_);
    deferred_.clear();
    const Segment* busy = nullptr;
    for (const auto& [segment, hold] : again) {
        if (segment == busy) {
            deferred_.emplace_back(segment, hold);
        } else if (!end_hold(*segment, hold, patience_ms)) {
            busy = segment;
            patience_ms = 0;
        }
    }
}

// pre: private lock held.
void Client::take_returned(Heap& heap, unsigned patience_ms) {
    for (Segment* s : heap.segments()) {
        // A hint, read without the lock: a block that was just returned is found the next time.
        if (s->metadata.header().returned.load(std::memory_order_relaxed) == kNone) continue;
        home_.clear();
        const std::uint32_t high =
            s->metadata.header().blocks_high.load(std::memory_order_relaxed);  // only we raise it
        home_.reserve(std::min(high, s->metadata.shape().blocks));
        if (!s->metadata.lock(slot_, patience_ms)) continue;
        s->metadata.take_returned(home_);
        s->metadata.unlock();
        for (const std::uint32_t index : home_) heap.put_back(*s, index);
    }
}

Status Client::trim(std::uint64_t* bytes) {
    const std::lock_guard guard(private_);
    if (!may_touch()) return Status::not_held;
    *bytes = give_back();
    unmap_retired();
    return Status::ok;
}

void Client::press_others(const Refusal& refusal) {
    const std::lock_guard guard(private_);
    ask_others(refusal);
}

// pre: private lock held.
std::uint64_t Client::give_back() {
    finish_deferred();
    take_returned(heap_, kMoment);
    return heap_.trim();
}

// Ask the other clients to give back memory, if that can help. pre: private lock held; we were refused memory, and have
// given back our own.
void Client::ask_others(const Refusal& refusal) {
    const std::uint64_t mine = group_.slot(slot_).reserved.load(), all = std::max(mine, group_.charged());
    const std::uint64_t each = group_.max_bytes_per_client();
    if (each != 0 && mine + refusal.bytes > each) return;
    if (refusal.bytes > refusal.room + (all - mine)) return;
    group_.press();
    pressed_ = group_.pressed();
}

// Give back the memory that we keep for later if a client was refused memory since the last call. pre: private lock
// held.
void Client::yield_to_others() {
    if (group_.pressed() == pressed_) [[likely]]
        return;
    pressed_ = group_.pressed();
    give_back();
}

// ---------------------------------------------------------------------------------------------------------- inspection

std::vector<std::uint64_t> Client::lost() {
    const std::lock_guard guard(private_);
    std::vector<std::uint64_t> found;
    for (const auto& [id, segment] : segments_)
        if (!segment->file.is_ours() || segment->metadata.is_lost()) found.push_back(id);
    return found;
}

static std::uint64_t ring_reserved(const Segment& segment) {
    const auto& header = *reinterpret_cast<const RingHeader*>(segment.payload);
    return std::min(header.reserved_bytes.load(std::memory_order_relaxed), segment.payload_bytes);
}

Client::Stats Client::stats() {
    const std::lock_guard guard(private_);
    Stats stats{segments_.size(), heap_.segments().size(), 0, 0, heap_.reserved_bytes(), heap_.free_bytes()};
    for (const auto& [id, segment] : segments_) {
        if (segment->on_device()) continue;
        stats.blocks += segment->held_count;
        if (segment->held_count == 0) continue;
        if (segment->is_ring()) {  // the size of its block is the address space that a ring can grow into
            if (segment->payload) stats.bytes += ring_reserved(*segment);
            continue;
        }
        for (const Block* block : segment->held) stats.bytes += block ? block->bytes : 0;
    }
    return stats;
}

Client::Stats Client::device_stats(int device) {
    const std::lock_guard guard(private_);
    Stats stats{};
    if (const auto found = device_heaps_.find(device); found != device_heaps_.end())
        stats = {0, found->second->segments().size(), 0,
                 0, found->second->reserved_bytes(),  found->second->free_bytes()};
    for (const auto& [id, segment] : segments_) {
        if (segment->device != device) continue;
        ++stats.mapped;
        stats.blocks += segment->held_count;
        for (const Block* block : segment->held) stats.bytes += block ? block->bytes : 0;
    }
    return stats;
}

const char* Client::check() {
    const std::lock_guard guard(private_);
    std::vector<Heap*> heaps{&heap_};
    for (auto& [device, heap] : device_heaps_) heaps.push_back(heap.get());
    for (Heap* heap : heaps) {
        if (const char* wrong = heap->check()) return wrong;
        for (Segment* s : heap->segments()) {
            if (!s->metadata.lock(slot_, 1000)) return "the metadata of a segment is locked";
            const char* wrong = s->metadata.check();
            s->metadata.unlock();
            if (wrong) return wrong;
        }
    }
    return nullptr;
}

bool Client::close() {
    const std::lock_guard guard(private_);
    if (alive()) finish_deferred();
    for (const auto& [id, segment] : segments_)
        if (segment->held_count > 0) return false;
    heap_.forget_all();
    device_heaps_.clear();
    for (const auto& [id, segment] : segments_) note_unmapped(*segment);
    const std::lock_guard table(table_);
    segments_.clear();
    mapped_.clear();
    last_ = nullptr;
    deferred_.clear();
    connection_.close();
    held_ = false;
    return true;
}

}  // namespace shmtensor
