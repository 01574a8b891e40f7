// A robust process-shared mutex with bounded waits. Whoever takes it from a dead owner is told so.
#pragma once

#include <cstdint>

#include "layout.hpp"

namespace shmtensor {

enum class Locked {
    yes,          // held by us; the last holder left in order
    after_death,  // held by us; the last holder died inside: put things right, then call made_consistent()
    busy,         // still held by another when the patience was over
};

void init_lock(Lock& lock);
// Waits at most `patience_ms` (0: only tries). pre: this thread does not hold it. SYNC: lock
Locked take_lock(Lock& lock, std::uint32_t slot, unsigned patience_ms);
void made_consistent(Lock& lock);
void drop_lock(Lock& lock);  // SYNC: lock

}  // namespace shmtensor
