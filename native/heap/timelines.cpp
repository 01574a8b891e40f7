#include "heap/timelines.hpp"

#include "base/failpoint.hpp"

namespace shmtensor {
namespace {

std::uint64_t owner_word(std::uint32_t slot, std::uint32_t generation) {
    return std::uint64_t{generation} << 32 | slot;
}

// Never lowers the number, so that a manager that was replaced meanwhile can only repeat a store.
void raise(std::atomic<std::uint64_t>& number, std::uint64_t to) {
    std::uint64_t now = number.load(std::memory_order_relaxed);
    while (now < to && !number.compare_exchange_weak(now, to, std::memory_order_release)) {  // SYNC: lost
    }
}

}  // namespace

std::uint32_t Timelines::claim(std::uint32_t slot, std::uint32_t generation) const {
    for (const bool with_lost : {false, true}) {
        for (std::uint32_t index = 0; index < kTimelines; ++index) {
            Timeline& line = at(index);
            if (line.owner.load(std::memory_order_relaxed) != 0) continue;
            if (!with_lost && line.lost_to.load(std::memory_order_relaxed) != 0) continue;
            std::uint64_t free = 0;
            if (line.owner.compare_exchange_strong(free, owner_word(slot, generation))) return index;
        }
    }
    return kNone;
}

bool Timelines::give_back(std::uint32_t index, std::uint32_t slot, std::uint32_t generation) const {
    Timeline& line = at(index);
    if (line.completed.load() < line.issued.load()) return false;
    std::uint64_t ours = owner_word(slot, generation);
    return line.owner.compare_exchange_strong(ours, 0);
}

void Timelines::end(std::uint32_t slot, std::uint32_t generation) const {
    const std::uint64_t dead = owner_word(slot, generation);
    for (std::uint32_t index = 0; index < kTimelines; ++index) {
        Timeline& line = at(index);
        if (line.owner.load() != dead) continue;
        const std::uint64_t completed = line.completed.load(), issued = line.issued.load();
        SHMTENSOR_POINT("timelines.end.read");
        // A line never returns to an owner that has lost it, so both numbers are those of the dead owner.
        if (line.owner.load() != dead) continue;
        if (completed < issued) {
            std::uint64_t none = 0;
            if (line.lost_to.load() == 0) line.lost_from.compare_exchange_strong(none, completed);
            SHMTENSOR_POINT("timelines.end.lost_begun");
            raise(line.lost_to, issued);
            SHMTENSOR_POINT("timelines.end.lost_noted");
            std::uint64_t left = completed;
            line.completed.compare_exchange_strong(left, issued, std::memory_order_release);  // SYNC: timeline
        }
        SHMTENSOR_POINT("timelines.end.completed");
        std::uint64_t still = dead;
        line.owner.compare_exchange_strong(still, 0);
    }
}

}  // namespace shmtensor
