#include "heap/ranges.hpp"

#include <algorithm>
#include <bit>

namespace shmtensor {
namespace {

constexpr std::uint32_t kNodesOfTake = 3;  // at most made by a take and the cut after it: lead, rest, rest of the cut

std::uint64_t up(std::uint64_t bytes, std::uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

struct Class {
    std::uint32_t first, second;
};
// The class whose ranges are the largest not above `bytes`. pre: bytes is a multiple of kUnit, at least kUnit.
Class class_of(std::uint64_t bytes) {
    const std::uint64_t units = bytes / kUnit;
    const auto first = static_cast<std::uint32_t>(std::bit_width(units) - 1);
    const auto second =
        static_cast<std::uint32_t>(first >= 3 ? (units >> (first - 3)) & 7 : (units << (3 - first)) & 7);
    return {first, second};
}

}  // namespace

std::uint64_t rounded(std::uint64_t bytes) {
    if (bytes <= 1024) return std::max(up(bytes, kUnit), kUnit);
    if (bytes > kBinnedUpTo) return up(bytes, kPage);
    const std::uint64_t step = std::bit_floor(bytes - 1) / 4;
    return up(bytes, step);
}

std::uint32_t bin_of(std::uint64_t bytes) {
    if (bytes <= 1024) return static_cast<std::uint32_t>(bytes / kUnit - 1);
    const auto doubling = static_cast<std::uint32_t>(std::bit_width(bytes - 1)) - 11;  // 0 for (1024, 2048]
    const auto step = static_cast<std::uint32_t>((bytes - 1) / (std::uint64_t{256} << doubling)) - 4;
    return 16 + doubling * 4 + step;
}

Ranges::Ranges(std::uint64_t bytes, std::uint32_t max_nodes)
    : max_nodes_(max_nodes), bytes_(bytes / kUnit * kUnit), taken_(bytes_) {
    for (Free& f : free_)
        for (auto& row : f.head) std::fill(std::begin(row), std::end(row), kNone);
    nodes_.emplace_back();
    nodes_[0].bytes = bytes_;
    link(0, State::cold);
}

std::uint32_t Ranges::new_node() {
    if (!spare_.empty()) {
        const std::uint32_t node = spare_.back();
        spare_.pop_back();
        return node;
    }
    nodes_.emplace_back();
    return static_cast<std::uint32_t>(nodes_.size() - 1);
}

void Ranges::link(std::uint32_t node, State kind) {
    Node& n = nodes_[node];
    Free& f = free_of(kind);
    const Class c = class_of(n.bytes);
    n.state = kind;
    n.newer = kNone;
    n.older = f.head[c.first][c.second];
    if (n.older != kNone) nodes_[n.older].newer = node;
    f.head[c.first][c.second] = node;
    f.second[c.first] = static_cast<std::uint8_t>(f.second[c.first] | 1u << c.second);
    f.first |= std::uint64_t{1} << c.first;
    taken_ -= n.bytes;
}

void Ranges::unlink(std::uint32_t node) {
    Node& n = nodes_[node];
    Free& f = free_of(n.state);
    taken_ += n.bytes;
    if (n.older != kNone) nodes_[n.older].newer = n.newer;
    if (n.newer != kNone) {
        nodes_[n.newer].older = n.older;
    } else {
        const Class c = class_of(n.bytes);
        f.head[c.first][c.second] = n.older;
        if (n.older == kNone) {
            f.second[c.first] = static_cast<std::uint8_t>(f.second[c.first] & ~(1u << c.second));
            if (f.second[c.first] == 0) f.first &= ~(std::uint64_t{1} << c.first);
        }
    }
    n.state = State::taken;
}

std::uint32_t Ranges::find(std::uint64_t bytes, State kind) {
    Free& f = free_of(kind);
    Class c = class_of(bytes);
    // The request's own class may have a range that fits, often a freed one of the same size; try a few.
    std::uint32_t node = f.head[c.first][c.second];
    for (int looks = 0; node != kNone && looks < 8; ++looks, node = nodes_[node].older)
        if (nodes_[node].bytes >= bytes) return node;
    // Any range of a higher class fits.
    const auto rest = static_cast<std::uint32_t>(f.second[c.first] & ~((2u << c.second) - 1));
    if (rest) return f.head[c.first][std::countr_zero(rest)];
    const std::uint64_t higher = c.first + 1 < 64 ? f.first & ~((std::uint64_t{2} << c.first) - 1) : 0;
    if (!higher) return kNone;
    const auto first = static_cast<std::uint32_t>(std::countr_zero(higher));
    return f.head[first][std::countr_zero(static_cast<std::uint32_t>(f.second[first]))];
}

std::uint32_t Ranges::take(std::uint64_t bytes, State kind) {
    // Refuse rather than hand out more than was asked for because no node is left for the rest: the rest could be all
    // free memory.
    if (spare_.size() + max_nodes_ - nodes_.size() < kNodesOfTake) return kNone;
    const std::uint64_t align = bytes >= kPagedFrom ? kPage : kUnit;
    std::uint32_t node = find(bytes, kind);
    if (node == kNone) return kNone;
    std::uint64_t lead = up(nodes_[node].offset, align) - nodes_[node].offset;
    if (lead + bytes > nodes_[node].bytes) {  // fits, but not page-aligned: ask for one more page
        node = find(bytes + align, kind);
        if (node == kNone) return kNone;
        lead = up(nodes_[node].offset, align) - nodes_[node].offset;
    }
    unlink(node);
    if (lead > 0) {
        const std::uint32_t main = new_node();
        Node& front = nodes_[node];
        Node& back = nodes_[main];
        back = {front.offset + lead, front.bytes - lead, node, front.after, kNone, kNone, State::taken};
        if (back.after != kNone) nodes_[back.after].before = main;
        front.bytes = lead;
        front.after = main;
        link(node, kind);
        node = main;
    }
    cut(node, bytes, kind);
    return node;
}

void Ranges::cut(std::uint32_t node, std::uint64_t bytes, State kind) {
    if (nodes_[node].bytes == bytes) return;
    const std::uint32_t rest = new_node();
    Node& n = nodes_[node];
    nodes_[rest] = {n.offset + bytes, n.bytes - bytes, node, n.after, kNone, kNone, State::taken};
    if (n.after != kNone) nodes_[n.after].before = rest;
    n.after = rest;
    n.bytes = bytes;
    give(rest, kind);
}

// Join `next` to `node`, which it follows. Both are taken.
void Ranges::absorb(std::uint32_t node, std::uint32_t next) {
    Node& n = nodes_[node];
    Node& gone = nodes_[next];
    n.bytes += gone.bytes;
    n.after = gone.after;
    if (n.after != kNone) nodes_[n.after].before = node;
    gone = Node{};
    spare_.push_back(next);
}

void Ranges::give(std::uint32_t node, State kind) {
    const std::uint32_t after = nodes_[node].after, before = nodes_[node].before;
    if (after != kNone && nodes_[after].state == kind) {
        unlink(after);
        absorb(node, after);
    }
    if (before != kNone && nodes_[before].state == kind) {
        unlink(before);
        absorb(before, node);
        node = before;
    }
    link(node, kind);
}

bool Ranges::take_whole(std::uint32_t node) {
    if (nodes_[node].state != State::warm && nodes_[node].state != State::cold) return false;
    unlink(node);
    return true;
}

bool Ranges::join_all() {
    bool joined = false;
    for (std::uint32_t node = 0; node != kNone;) {
        std::uint32_t after = nodes_[node].after;
        const auto is_free = [&](std::uint32_t n) {
            return nodes_[n].state == State::warm || nodes_[n].state == State::cold;
        };
        if (is_free(node) && after != kNone && is_free(after)) {
            unlink(node);
            unlink(after);
            absorb(node, after);
            link(node, State::cold);
            joined = true;
        } else {
            node = after;
        }
    }
    return joined;
}

std::uint64_t Ranges::largest_cold() const {
    const Free& f = free_[1];
    std::uint64_t largest = 0;
    if (!f.first) return 0;
    const auto first = static_cast<std::uint32_t>(std::bit_width(f.first) - 1);
    const auto second = static_cast<std::uint32_t>(std::bit_width(static_cast<unsigned>(f.second[first])) - 1);
    for (std::uint32_t n = f.head[first][second]; n != kNone; n = nodes_[n].older)
        largest = std::max(largest, nodes_[n].bytes);
    return largest;
}

const char* Ranges::check() const {
    std::uint64_t at = 0, taken = 0, spares = 0;
    std::uint32_t before = kNone, seen = 0;
    for (std::uint32_t n = 0; n != kNone; before = n, n = nodes_[n].after, ++seen) {
        if (nodes_[n].offset != at || nodes_[n].before != before) return "ranges do not tile the payload";
        if (nodes_[n].bytes == 0 || nodes_[n].bytes % kUnit) return "a range has no proper size";
        if (nodes_[n].state == State::unused) return "a range in use is marked unused";
        if (nodes_[n].state == State::taken) taken += nodes_[n].bytes;
        at += nodes_[n].bytes;
    }
    if (at != bytes_) return "ranges end before the payload does";
    if (taken != taken_) return "the count of taken bytes is wrong";
    for (const Node& n : nodes_) spares += n.state == State::unused;
    if (spares != spare_.size() || seen + spares != nodes_.size()) return "a node is lost";
    return nullptr;
}

}  // namespace shmtensor
