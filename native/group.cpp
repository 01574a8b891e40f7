#include "group.hpp"

#include <fcntl.h>

#include <cerrno>
#include <new>

#include "failpoint.hpp"
#include "os.hpp"

namespace shmtensor {

Group::~Group() {
    if (at_) os::unmap(at_, kGroupBytes);
    os::close(fd_);
}

int Group::map(int fd) {
    fd_ = fd;
    return os::map_shared(fd, kGroupBytes, &at_);
}

int Group::create(std::uint64_t group_id) {
    int fd = -1;
    if (const int error = os::memfd("shmtensor-group", kGroupBytes, &fd)) return error;
    if (const int error = map(fd)) return error;
    if (const int error = os::reserve(fd, 0, kGroupBytes)) return error;
    GroupHeader& h = *new (at_) GroupHeader{};
    h.magic = kGroupMagic;
    h.version = kLayoutVersion;
    h.slots = kMaxSlots;
    h.group_id = group_id;
    slot(0).word.store(slot_word(SlotState::group, 0, 0));
    return 0;
}

int Group::open(int fd) {
    std::uint64_t bytes = 0;
    if (const int error = os::size_of(fd, &bytes)) return error;
    if (bytes != kGroupBytes) return EINVAL;
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) return errno;
    if (const int error = map(copy)) return error;
    const bool ours =
        header().magic == kGroupMagic && header().version == kLayoutVersion && header().slots == kMaxSlots;
    return ours ? 0 : EINVAL;
}

std::uint32_t Group::claim(SlotState state, std::uint32_t pid, std::uint64_t start_time, std::uint32_t parent) {
    for (std::uint32_t tried = 0; tried < kMaxSlots; ++tried) {
        const std::uint32_t index = hint_;
        hint_ = hint_ + 1 == kMaxSlots ? 1 : hint_ + 1;
        Slot& s = slot(index);
        std::uint64_t word = s.word.load();
        if (state_of(word) != SlotState::free) continue;
        if (!s.word.compare_exchange_strong(word, slot_word(state, parent, generation_of(word) + 1))) continue;
        SHMTENSOR_POINT("group.claim.taken");
        s.pid.store(pid);
        s.start_time.store(start_time);
        return index;
    }
    return kNone;
}

void Group::set_state(std::uint32_t index, SlotState state) {
    Slot& s = slot(index);
    s.word.store(slot_word(state, 0, generation_of(s.word.load())));
}

// Counted first and looked at then: of two who pass the limit together, at least one sees the other. [SYNC: quota]
const char* Group::charge(std::uint32_t index, std::uint64_t bytes, bool each, std::uint64_t* room) {
    const std::uint64_t mine = slot(index).reserved.fetch_add(bytes) + bytes;
    SHMTENSOR_POINT("group.charge.counted");
    const char* limit = nullptr;
    const auto look = [&](std::uint64_t most, std::uint64_t counted, const char* name) {
        if (most == 0 || counted <= most) return;
        const std::uint64_t others = counted - bytes;
        limit = name;
        *room = most > others ? most - others : 0;
    };
    if (each) look(max_bytes_per_client(), mine, "the manager's --max-bytes-per-client");
    if (!limit && max_bytes() != 0) look(max_bytes(), charged(), "the manager's --max-bytes");
    if (limit) discharge(index, bytes);
    return limit;
}

void Group::discharge(std::uint32_t index, std::uint64_t bytes) {
    slot(index).reserved.fetch_sub(bytes);
}

std::uint64_t Group::charged() const {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < kMaxSlots; ++i) sum += slot(i).reserved.load();  // SYNC: quota
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
