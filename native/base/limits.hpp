// What the machine and its memory cgroups have left for shared memory, and reserving no more than that. The kernel
// kills rather than refuses once a cgroup or the machine is full, so both are asked before it is.
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
    const char* limit = "";     // what set the bound
    std::uint64_t room = 0;     // bytes that could have been had
    std::uint64_t segment = 0;  // the one whose table of holds is full, where it is that and no memory
};

namespace limits {

// A memory cgroup of this process with a limit; bytes. `used` without the page cache that the kernel drops first.
struct Cgroup {
    std::string path;
    std::uint64_t used, limit;
};

// From this process's own up to the root, of version 1 or 2, wherever they are mounted. Looked for again each second,
// since a process may be moved. `root`: where /proc and the mounts lie; "/" is the system's own.
std::vector<Cgroup> cgroups(const std::string& root = "/");

// Bytes that may be reserved before the machine or a memory cgroup has none left, and what sets the bound.
std::uint64_t available(const char** limit, const std::string& root = "/");

// Whether there is memory for so many bytes, and for everybody's next steps besides. 0 or ENOMEM.
int ask(std::uint64_t bytes, Refusal& refusal);
// Pages for a range of a file that is mapped at `at`, if that may be asked for. 0 or errno. pre: as os::reserve.
int reserve(const os::Descriptor& file, std::byte* at, std::uint64_t offset, std::uint64_t bytes, Refusal& refusal);

}  // namespace limits
}  // namespace shmtensor
