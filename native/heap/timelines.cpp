#include "heap/timelines.hpp"

#include "base/failpoint.hpp"

namespace shmtensor {
namespace {

std::uint64_t owner_word(std::uint32_t slot, std::uint32_t generation) {
    return std::uint64_t{generation} << 32 | slot;
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

void Timelines::give_back(std::uint32_t index) const {
    at(index).owner.store(0);
}

void Timelines::end(std::uint32_t slot, std::uint32_t generation) const {
    for (std::uint32_t index = 0; index < kTimelines; ++index) {
        Timeline& line = at(index);
        if (line.owner.load(std::memory_order_relaxed) != owner_word(slot, generation)) continue;
        const std::uint64_t completed = line.completed.load(), issued = line.issued.load();
        if (completed < issued) {
            line.lost_from.store(completed, std::memory_order_relaxed);
            line.lost_to.store(issued, std::memory_order_relaxed);
            SHMTENSOR_POINT("timelines.end.lost_noted");
            line.completed.store(issued, std::memory_order_release);  // SYNC: timeline
        }
        SHMTENSOR_POINT("timelines.end.completed");
        line.owner.store(0);
    }
}

}  // namespace shmtensor
