// The free and taken ranges of an arena's payload: process-private, two-level segregated fit with coalescing, O(1).
//
// A range is a node; its index is the index of the block record it gets when it is handed out. Free ranges are warm
// (pages reserved) or cold (never reserved, or given back). The arena begins as one cold range; reserving and trimming
// move ranges from one kind to the other.
//
//   ranges tile the payload: next(n).offset = n.offset + n.bytes; every offset and size is a multiple of kUnit
#pragma once

#include <cstdint>
#include <vector>

#include "base/layout.hpp"

namespace shmtensor {

constexpr std::uint64_t kUnit = 64;             // bytes; minimum size and alignment of a block
constexpr std::uint64_t kPagedFrom = 64 << 10;  // bytes; blocks from here on are page-aligned
constexpr std::uint64_t kBinnedUpTo = 1 << 20;  // bytes; larger ranges are rounded to pages and not binned

// Bytes a request occupies: steps of 64 up to 1 KiB, then four steps per doubling, then whole pages.
std::uint64_t rounded(std::uint64_t bytes);
// Bin of a rounded size up to kBinnedUpTo: 0 for 64, 1 for 128, ...
std::uint32_t bin_of(std::uint64_t rounded_bytes);
constexpr std::uint32_t kBins = 56;

class Ranges {
   public:
    enum class State : std::uint8_t { unused, warm, cold, taken };
    struct Node {
        std::uint64_t offset = 0, bytes = 0;
        std::uint32_t before = kNone, after = kNone;  // neighbours in the payload
        std::uint32_t newer = kNone, older = kNone;   // neighbours in the free list
        State state = State::unused;
    };

    Ranges(std::uint64_t bytes, std::uint32_t max_nodes);

    // Take a range of exactly this rounded size from the free ranges of one kind. kNone: there is none, or no nodes are
    // left. The caller reserves the pages of a cold range.
    std::uint32_t take(std::uint64_t bytes, State kind);
    void give(std::uint32_t node, State kind);  // free it, joined with free neighbours of the same kind
    // Cut a range that was just taken down to `bytes`; the rest becomes free of `kind`.
    void cut(std::uint32_t node, std::uint64_t bytes, State kind);
    bool take_whole(std::uint32_t node);  // take a free range whole; false: the node is not a free range
    // Join every cold range with its free neighbours, as cold: for requests that fit neither kind alone.
    bool join_all();

    const Node& operator[](std::uint32_t node) const { return nodes_[node]; }
    std::uint32_t node_count() const { return static_cast<std::uint32_t>(nodes_.size()); }
    std::uint64_t largest_cold() const;
    std::uint64_t taken_bytes() const { return taken_; }
    const char* check() const;

   private:
    static constexpr std::uint32_t kFirst = 35, kSecond = 8;  // classes: powers of two from kUnit, each cut in eight
    struct Free {
        std::uint64_t first = 0;
        std::uint8_t second[kFirst] = {};
        std::uint32_t head[kFirst][kSecond];
    };

    Free& free_of(State kind) { return free_[kind == State::cold]; }
    std::uint32_t find(std::uint64_t bytes, State kind);
    void link(std::uint32_t node, State kind);
    void unlink(std::uint32_t node);
    void absorb(std::uint32_t node, std::uint32_t next);
    std::uint32_t new_node();  // pre: one is left

    std::vector<Node> nodes_;
    std::vector<std::uint32_t> spare_;  // nodes that name no range
    std::uint32_t max_nodes_;
    std::uint64_t bytes_;
    std::uint64_t taken_;
    Free free_[2];
};

}  // namespace shmtensor
