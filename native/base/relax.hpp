// One turn of a wait that spins.
#pragma once

namespace shmtensor {

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace shmtensor
