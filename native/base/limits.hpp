// How much memory the machine and its memory cgroups have left, and reservations that stay within it. Once a cgroup or
// the machine is full, the kernel kills a process instead of refusing memory, so every reservation checks both first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/os.hpp"

namespace shmtensor {

// Why memory was refused.
struct Refusal {
    int error = 0;              // errno; EDQUOT: a quota of the group
    std::uint64_t bytes = 0;    // asked for
    const char* limit = "";     // the name of the limit that was reached
    std::uint64_t room = 0;     // bytes that were available
    std::uint64_t segment = 0;  // the segment whose table of holds is full, if that is the reason
};

namespace limits {

// A memory cgroup of this process with a limit; bytes. `used` excludes the page cache that the kernel drops first.
struct Cgroup {
    std::string path;
    std::uint64_t used, limit;
};

// From this process's own cgroup up to the root, of version 1 or 2, wherever they are mounted. Searched for again each
// second, since a process may be moved. `root`: the directory of /proc and the mounts; "/" is that of the system.
std::vector<Cgroup> cgroups(const std::string& root = "/");

// Bytes that may be reserved before the machine or a memory cgroup has none left, and the name of that limit.
std::uint64_t available(const char** limit, const std::string& root = "/");

// Whether `bytes` are available, with some to spare for other processes. 0 or ENOMEM.
int ask(std::uint64_t bytes, Refusal& refusal);
// Reserve pages for a range of a file that is mapped at `at`, if ask() permits. 0 or errno. pre: as os::reserve.
int reserve(const os::Descriptor& file, std::byte* at, std::uint64_t offset, std::uint64_t bytes, Refusal& refusal);

}  // namespace limits
}  // namespace shmtensor
