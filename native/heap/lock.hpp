// A robust process-shared mutex with bounded waits, which reports that the last holder died.
#pragma once

#include <cstdint>

#include "base/layout.hpp"

namespace shmtensor {

enum class Locked {
    yes,          // held by us; the last holder unlocked it
    after_death,  // held by us; the last holder died with it: repair the data, then call made_consistent()
    busy,         // still held by another after patience_ms
};

void init_lock(Lock& lock);
// Waits at most `patience_ms` (0: only tries). pre: this thread does not hold it. SYNC: lock
Locked take_lock(Lock& lock, std::uint32_t slot, unsigned patience_ms);
void made_consistent(Lock& lock);
void drop_lock(Lock& lock);  // SYNC: lock

// The same lock for the manager, which trusts nothing in shared memory: it only tries, and uses only the mutex's word,
// since pthread would follow the pointers and the kind beside it. Release it with drop_lock_untrusted(). pre: this
// thread holds no other lock in this way.
Locked try_lock_untrusted(Lock& lock);
void drop_lock_untrusted(Lock& lock);
// The number of the holding thread in its own PID namespace; 0: none, or it has died. A plain load.
std::uint32_t holder_of(const Lock& lock);
// The slot of the client that holds it; 0: none, or the manager. Plain loads, for reports only.
std::uint32_t holder_slot(const Lock& lock);
// Whether every thread that may hold a lock is visible in this process's PID namespace. Only then can garbage be
// detected: a word that names a thread that does not exist is treated as the lock of a dead thread.
void set_threads_visible(bool visible);

}  // namespace shmtensor
