// The progress of GPU streams: the table of timelines in the group segment (layout.hpp, T1 to T3).
#pragma once

#include <cstddef>
#include <cstdint>

#include "heap/group.hpp"

namespace shmtensor {

class Timelines {
   public:
    explicit Timelines(Group& group) : group_(group) {}

    Timeline& at(std::uint32_t index) const { return group_.timeline(index); }

    // Give a free line to a client; kNone when there is none. Lines with lost points are given out last, since the
    // receiver of an old message must still find that its point was lost.
    std::uint32_t claim(std::uint32_t slot, std::uint32_t generation) const;
    // Give a line back. False: it is not the client's, or it has outstanding points; then its stream may still write,
    // and the line remains the client's until the client has ended.
    bool give_back(std::uint32_t index, std::uint32_t slot, std::uint32_t generation) const;
    // Free the lines of a client that has ended (called by the manager). It may be repeated at any time, even by a
    // manager that was stopped meanwhile and replaced.
    void end(std::uint32_t slot, std::uint32_t generation) const;

    // Whether the work before a point is over: done or lost. Only then does is_lost() tell which.
    bool is_reached(std::uint32_t index, std::uint64_t point) const {
        return at(index).completed.load(std::memory_order_acquire) >= point;  // SYNC: timeline
    }
    bool is_lost(std::uint32_t index, std::uint64_t point) const {
        const Timeline& line = at(index);
        // In this order: lost_to without its lost_from would make points before the interval seem lost.
        const std::uint64_t to = line.lost_to.load(std::memory_order_acquire);  // SYNC: lost
        return point <= to && point > line.lost_from.load(std::memory_order_relaxed);
    }

   private:
    Group& group_;
};

}  // namespace shmtensor
