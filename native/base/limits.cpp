#include "base/limits.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

namespace shmtensor::limits {
namespace {

constexpr std::uint64_t kPartKept = 64;           // a 64th of the machine's memory is never counted as available
constexpr std::uint64_t kSpareMemory = 32 << 20;  // bytes that a reservation leaves to other uses
constexpr std::uint32_t kLook = 1;                // seconds for which the place in the cgroup tree is cached

// The number after `key` in a text (key "" = at its start); false when there is none ("max", no such file).
bool number_in(const std::string& text, const char* key, std::uint64_t* value) {
    const std::size_t at = text.find(key);
    if (at == std::string::npos) return false;
    const char* from = text.c_str() + at + std::strlen(key);
    char* end = nullptr;
    *value = std::strtoull(from, &end, 10);
    return end != from;
}

bool number_of(const std::string& path, std::uint64_t* value) {
    return number_in(os::text_of(path), "", value);
}

// The directories of this process's memory cgroups, its own first.
struct Tree {
    std::vector<std::string> directories;
    std::size_t shown = 0;  // characters of a directory before the path of the cgroup
    bool first = false;     // version 1
};

struct Mount {
    std::string root, at;  // the mounted part of the hierarchy, and the mount point
};

// Whether the memory controller is in a list of names with commas between them.
bool lists_memory(std::string_view names) {
    for (;;) {
        const std::size_t comma = names.find(',');
        if (names.substr(0, comma) == "memory") return true;
        if (comma == std::string_view::npos) return false;
        names.remove_prefix(comma + 1);
    }
}

// The mount of one hierarchy: that of version 1 with the memory controller, or the one of version 2.
bool mount_of(const std::string& mounts, bool first, Mount* found) {
    std::istringstream lines(mounts);
    for (std::string line; std::getline(lines, line);) {
        // "36 31 0:32 /root /mounted/at options ... - cgroup source super,options"
        const std::size_t dash = line.find(" - ");
        if (dash == std::string::npos) continue;
        std::istringstream before(line), after(line.substr(dash + 3));
        std::string skipped, type, source, options;
        before >> skipped >> skipped >> skipped >> found->root >> found->at;
        after >> type >> source >> options;
        if (first ? type == "cgroup" && lists_memory(options) : type == "cgroup2") return true;
    }
    return false;
}

// The path of this process in a hierarchy, from a line "4:memory:/path", or "0::/path" for version 2.
bool path_in(const std::string& text, bool first, std::string* path) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t one = line.find(':'), two = line.find(':', one + 1);
        if (one == std::string::npos || two == std::string::npos) continue;
        const std::string_view names = std::string_view(line).substr(one + 1, two - one - 1);
        if (first ? !lists_memory(names) : !names.empty()) continue;
        *path = line.substr(two + 1);
        return true;
    }
    return false;
}

Tree find_tree(const std::string& root) {
    const std::string mounts = os::text_of(root + "proc/self/mountinfo"), own = os::text_of(root + "proc/self/cgroup");
    for (const bool first : {true, false}) {  // only one hierarchy has the memory controller; version 1's if listed
        Mount mount;
        std::string path;
        if (!path_in(own, first, &path) || !mount_of(mounts, first, &mount)) continue;
        // A container may see only a part of the tree, while the paths begin outside of that part.
        if (mount.root != "/" && path.compare(0, mount.root.size(), mount.root) == 0) path.erase(0, mount.root.size());
        while (!path.empty() && path.back() == '/') path.pop_back();
        Tree tree;
        tree.first = first;
        std::string directory = root;
        directory += mount.at.substr(1);
        tree.shown = directory.size();
        directory += path;
        while (directory.size() >= tree.shown) {
            tree.directories.push_back(directory);
            if (directory.size() == tree.shown) break;
            directory.resize(directory.rfind('/'));
        }
        return tree;
    }
    return {};
}

// One copy per thread, so that no lock of another thread can be held across a fork.
const Tree& tree_of(const std::string& root) {
    static thread_local struct {
        Tree tree;
        std::string root;
        std::uint32_t since = 0;
    } known;
    const std::uint32_t now = os::monotonic_seconds();
    if (known.root != root || now - known.since > kLook) known = {find_tree(root), root, now};
    return known.tree;
}

}  // namespace

std::vector<Cgroup> cgroups(const std::string& root) {
    std::vector<Cgroup> found;
    const Tree& tree = tree_of(root);
    for (const std::string& directory : tree.directories) {
        const char *limit_file = tree.first ? "/memory.limit_in_bytes" : "/memory.max",
                   *usage_file = tree.first ? "/memory.usage_in_bytes" : "/memory.current";
        std::uint64_t limit = 0, used = 0, cache = 0;
        if (!number_of(directory + limit_file, &limit) || limit >= std::uint64_t{1} << 62) continue;  // no limit
        if (!number_of(directory + usage_file, &used)) continue;
        // The page cache of files counts as used but is dropped first; shared memory is not among inactive_file.
        const std::string figures = os::text_of(directory + "/memory.stat");
        if (!number_in(figures, "total_inactive_file ", &cache)) number_in(figures, "inactive_file ", &cache);
        const std::string shown = directory.substr(tree.shown);
        found.push_back({shown.empty() ? "/" : shown, used > cache ? used - cache : 0, limit});
    }
    return found;
}

std::uint64_t available(const char** limit, const std::string& root) {
    std::uint64_t kilobytes = 0, all = 0, bytes = ~std::uint64_t{0};
    const std::string machine = os::text_of(root + "proc/meminfo");
    if (number_in(machine, "MemAvailable:", &kilobytes) && number_in(machine, "MemTotal:", &all)) {
        // Some memory stays for private memory: a process that filled 24 GB up to the last 32 MiB was killed.
        const std::uint64_t kept = all / kPartKept;
        bytes = (kilobytes > kept ? kilobytes - kept : 0) * 1024;
        *limit = "memory of the machine";
    }
    for (const Cgroup& group : cgroups(root)) {
        const std::uint64_t left = group.limit > group.used ? group.limit - group.used : 0;
        if (left >= bytes) continue;
        bytes = left;
        *limit = "memory cgroup";
    }
    return bytes;
}

int ask(std::uint64_t bytes, Refusal& refusal) {
    refusal = {0, bytes, "", 0};
    refusal.room = available(&refusal.limit);
    refusal.room -= std::min(refusal.room, kSpareMemory);
    if (refusal.room < bytes) refusal.error = ENOMEM;
    return refusal.error;
}

int reserve(const os::Descriptor& file, std::byte* at, std::uint64_t offset, std::uint64_t bytes, Refusal& refusal) {
    if (ask(bytes, refusal) != 0) return refusal.error;
    refusal.error = os::reserve(file, at, offset, bytes);
    if (refusal.error) refusal.limit = refusal.error == ENOSPC ? "size of the shared-memory file system" : "kernel";
    return refusal.error;
}

}  // namespace shmtensor::limits
