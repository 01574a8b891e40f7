// How far the streams of GPUs have come: the table of timelines in the group segment (layout.hpp, T1 to T3).
#pragma once

#include <cstddef>
#include <cstdint>

#include "heap/group.hpp"

namespace shmtensor {

class Timelines {
   public:
    explicit Timelines(Group& group) : group_(group) {}

    Timeline& at(std::uint32_t index) const { return group_.timeline(index); }

    // A free line becomes that of a client; kNone when there is none. Lines that have lost points go last: a receiver
    // of an old message with such a point has to find it.
    std::uint32_t claim(std::uint32_t slot, std::uint32_t generation) const;
    // Give a line back. False: it is not the client's any more, or points of it are outstanding; then its stream may
    // still write, and the line stays the client's until that has ended.
    bool give_back(std::uint32_t index, std::uint32_t slot, std::uint32_t generation) const;
    // The lines of a client that has ended, and its streams with it (the manager). Repeating it does no harm, also
    // late, by a manager that was stopped meanwhile and replaced.
    void end(std::uint32_t slot, std::uint32_t generation) const;

    // Whether the work before a point is over. Then, and only then, is_lost() says whether it was done.
    bool is_reached(std::uint32_t index, std::uint64_t point) const {
        return at(index).completed.load(std::memory_order_acquire) >= point;  // SYNC: timeline
    }
    bool is_lost(std::uint32_t index, std::uint64_t point) const {
        const Timeline& line = at(index);
        // In this order: with the first end of the interval alone, points before it would seem to be lost.
        const std::uint64_t to = line.lost_to.load(std::memory_order_acquire);  // SYNC: lost
        return point <= to && point > line.lost_from.load(std::memory_order_relaxed);
    }

   private:
    Group& group_;
};

}  // namespace shmtensor
