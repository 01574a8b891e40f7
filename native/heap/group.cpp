#include "heap/group.hpp"

#include <cerrno>
#include <cstdio>
#include <new>

#include "base/failpoint.hpp"
#include "heap/lock.hpp"

namespace shmtensor {

Group::~Group() {
    leave();
    // A mutex that is held must not be unmapped: if another thread holds it, that thread would follow its list to the
    // unmapped memory when it unlocks another mutex.
    if (at_ && leads_ == 0) os::unmap(at_, kGroupBytes);
}

int Group::map(int fd) {
    file_ = os::Descriptor(fd);
    return os::map_shared(fd, kGroupBytes, &at_);
}

int Group::create(std::uint64_t group_id) {
    char name[40];
    std::snprintf(name, sizeof name, "shmtensor-%016llx", static_cast<unsigned long long>(group_id));
    int fd = -1;
    if (const int error = os::memfd(name, kGroupBytes, &fd)) return error;
    if (const int error = map(fd)) return error;
    if (const int error = os::reserve(file_, at_, 0, kGroupBytes)) return error;
    GroupHeader& h = *new (at_) GroupHeader{};
    h.magic = kGroupMagic;
    h.version = kLayoutVersion;
    h.slots = kMaxSlots;
    h.group_id = group_id;
    h.next_ring.store(kFirstRing);
    h.next_segment.store(1);
    for (Lock& lock : h.alive) init_lock(lock);
    slot(0).word.store(slot_word(SlotState::group, 0, 0));
    return 0;
}

int Group::open(int fd) {
    os::Facts facts;
    if (const int error = os::facts_of(fd, &facts)) return error;
    if (facts.bytes != kGroupBytes) return EINVAL;
    int copy = -1;
    if (const int error = os::duplicate(fd, &copy)) return error;
    if (const int error = map(copy)) return error;
    const bool ours =
        header().magic == kGroupMagic && header().version == kLayoutVersion && header().slots == kMaxSlots;
    return ours ? 0 : EINVAL;
}

void Group::regain(int fd) {
    int copy = -1;
    if (!file_.is_ours() && os::duplicate(fd, &copy) == 0) file_.regain(os::Descriptor(copy));
}

std::uint32_t Group::claim(SlotState state, std::uint32_t pid, std::uint64_t start_time, std::uint32_t parent,
                           std::uint64_t* word) {
    for (std::uint32_t tried = 0; tried < kMaxSlots; ++tried) {
        const std::uint32_t index = hint_;
        hint_ = hint_ + 1 == kMaxSlots ? 1 : hint_ + 1;
        Slot& s = slot(index);
        std::uint64_t found = s.word.load();
        if (state_of(found) != SlotState::free) continue;
        const std::uint64_t claimed = slot_word(state, parent, generation_of(found) + 1);
        if (!s.word.compare_exchange_strong(found, claimed)) continue;  // SYNC: slot
        s.reserved.store(0);  // the bytes of the former client count for others
        SHMTENSOR_POINT("group.claim.taken");
        s.pid.store(pid);
        s.start_time.store(start_time);
        if (word) *word = claimed;
        return index;
    }
    return kNone;
}

bool Group::move(std::uint32_t index, std::uint64_t expected, SlotState next, std::uint32_t pid) {
    // SYNC: slot
    return slot(index).word.compare_exchange_strong(expected, slot_word(next, pid, generation_of(expected)));
}

int Group::lead() {
    GroupHeader& h = header();
    if (is_foreign()) return EXDEV;
    std::uint32_t before = h.epoch.load();
    do {
        Lock& lock = h.alive[(before + 1) % kManagers];
        const Locked locked = take_lock(lock, 0, 0);
        if (locked == Locked::busy) return EBUSY;
        if (locked == Locked::after_death) made_consistent(lock);
        SHMTENSOR_POINT("group.lead.locked");
        if (h.epoch.compare_exchange_strong(before, before + 1)) break;  // SYNC: epoch
        drop_lock(lock);
    } while (true);
    leads_ = before + 1;
    thread_ = os::thread_id();
    h.namespace_.store(os::pid_namespace());
    return 0;
}

void Group::leave() {
    if (leads_ == 0 || thread_ != os::thread_id()) return;
    drop_lock(header().alive[leads_ % kManagers]);
    leads_ = 0;
}

bool Group::is_foreign() const {
    const std::uint64_t known = header().namespace_.load();
    return known != 0 && known != os::pid_namespace();
}

std::uint32_t Group::leader() const {
    return holder_of(header().alive[epoch() % kManagers]);
}

bool Group::is_led() const {
    return leader() != 0;
}

std::uint32_t Group::begin_look() {
    std::uint64_t word = header().looks.load();
    std::uint32_t next = 0;
    do {
        next = look_of(word) + 1;
        if (next == 0) next = 1;
    } while (!header().looks.compare_exchange_weak(word, looks_word(ended_of(word), next)));
    return next;
}

bool Group::decide(std::uint32_t look) {
    std::uint64_t word = header().looks.load();
    do {
        if (look_of(word) != look || !leads()) return false;
    } while (!header().looks.compare_exchange_weak(word, looks_word(look, look)));
    return true;
}

bool Group::has_ended(std::uint32_t sealed) const {
    return sealed != 0 && sealed == ended_of(header().looks.load());
}

bool Group::may_open(std::uint32_t sealed) {
    if (sealed == 0) [[likely]]
        return true;
    std::uint64_t word = header().looks.load();
    do {
        if (sealed == ended_of(word)) return false;
        if (sealed != look_of(word)) return true;
    } while (!header().looks.compare_exchange_weak(word, looks_word(ended_of(word), look_of(word) + 1)));
    SHMTENSOR_POINT("group.may_open.void");
    return true;
}

// Count first, then sum: of two clients that exceed the limit together, at least one sees the other. [SYNC: quota]
const char* Group::charge(std::uint32_t index, std::uint64_t bytes, Checked quotas, std::uint64_t* room) {
    const std::uint64_t mine = slot(index).reserved.fetch_add(bytes) + bytes;
    SHMTENSOR_POINT("group.charge.counted");
    const char* limit = nullptr;
    const auto check = [&](std::uint64_t quota, std::uint64_t counted, const char* name) {
        if (quota == 0 || counted <= quota) return;
        const std::uint64_t others = counted - bytes;
        limit = name;
        *room = quota > others ? quota - others : 0;
    };
    if (quotas == Checked::group_and_client)
        check(max_bytes_per_client(), mine, "the manager's --max-bytes-per-client");
    if (!limit && max_bytes() != 0) check(max_bytes(), charged(), "the manager's --max-bytes");
    if (limit) discharge(index, bytes);
    return limit;
}

void Group::discharge(std::uint32_t index, std::uint64_t bytes) {
    slot(index).reserved.fetch_sub(bytes);
}

std::uint64_t Group::charged() const {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < kMaxSlots; ++i)
        if (state_of(slot(i).word.load()) != SlotState::free) sum += slot(i).reserved.load();  // SYNC: quota
    return sum;
}

void Group::set_quotas(std::uint64_t all, std::uint64_t each) {
    header().max_bytes.store(all);
    header().max_bytes_per_client.store(each);
}

void Group::press() {
    const std::uint32_t now = os::monotonic_seconds();
    if (pressed() != now) header().pressed.store(now, std::memory_order_relaxed);
}

}  // namespace shmtensor
