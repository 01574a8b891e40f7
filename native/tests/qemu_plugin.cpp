// A TCG plugin for qemu-user, built for the host. It makes system calls that qemu-user does not make for its guest, and
// that tests of killed processes need.
//
//   set_robust_list, get_robust_list   qemu-user answers ENOSYS, since it cannot translate a guest's list in general.
//                                      Then the kernel does not mark the mutex of a killed holder
//   madvise                            qemu-user answers 0 and ignores most advice. MADV_REMOVE then frees no memory,
//                                      and MADV_POPULATE_WRITE reserves none
//   openat of /proc/PID/stat           for the guest itself, qemu-user makes up the content, with a start time that no
//                                      other process reads there. The plugin changes the path in place to one that
//                                      qemu-user does not recognise, so the buffer must have room for two more
//                                      characters, as that of os.cpp has
//
// Here guest and host are both little-endian with pointers of 64 bits, and guest memory lies at its own addresses
// (guest_base is 0, as for a position-independent program by default). So the guest's addresses, and its robust list,
// are valid for the kernel as they are.
//
// QEMU_PLUGIN=file=qemu_plugin.so qemu-aarch64 program. Debian has no package with qemu-plugin.h, so the
// declarations are here.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#ifndef QEMU_PLUGIN_API
#define QEMU_PLUGIN_API 1  // of QEMU 7.2
#endif

namespace {

constexpr std::int64_t kSetRobustList = 99, kGetRobustList = 100, kMadvise = 233, kOpenAt = 56;  // of aarch64
constexpr std::uint64_t kRemove = 9, kPopulateWrite = 23;
thread_local std::uint64_t head = 0, head_bytes = 0;  // as registered

void before_call(std::uint64_t, unsigned, std::int64_t number, std::uint64_t a1, std::uint64_t a2, std::uint64_t a3,
                 std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t) {
    if (number == kSetRobustList && ::syscall(SYS_set_robust_list, a1, a2) == 0) {
        head = a1;
        head_bytes = a2;
    }
    // NOLINTBEGIN(performance-no-int-to-ptr): guest addresses are host addresses
    // The guest still gets ENOSYS, but its list is filled in. Only for the calling thread.
    if (number == kGetRobustList && a1 == 0) {
        *reinterpret_cast<std::uint64_t*>(a2) = head;
        *reinterpret_cast<std::uint64_t*>(a3) = head_bytes;
    }
    if (number == kOpenAt) {
        auto* path = reinterpret_cast<char*>(a2);
        char own[32];
        std::snprintf(own, sizeof own, "/proc/%d/stat", static_cast<int>(::getpid()));
        if (std::strcmp(path, own) == 0) std::sprintf(path, "/proc/./%d/stat", static_cast<int>(::getpid()));
    }
    // NOLINTEND(performance-no-int-to-ptr)
    if (number == kMadvise && (a3 == kRemove || a3 == kPopulateWrite)) ::syscall(SYS_madvise, a1, a2, a3);
}

}  // namespace

extern "C" {

void qemu_plugin_register_vcpu_syscall_cb(std::uint64_t id, decltype(&before_call) call);

__attribute__((visibility("default"))) int qemu_plugin_version = QEMU_PLUGIN_API;

__attribute__((visibility("default"))) int qemu_plugin_install(std::uint64_t id, const void*, int, char**) {
    qemu_plugin_register_vcpu_syscall_cb(id, before_call);
    return 0;
}
}
