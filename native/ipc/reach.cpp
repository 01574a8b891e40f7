#include "ipc/reach.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/failpoint.hpp"

namespace shmtensor {
namespace {

constexpr std::uint32_t kGlance = kPage / sizeof(Hold);  // entries on the first page, which was written with hold 0

// Whether a slot holds the ring, as is usual. A hint, read without the lock.
bool is_held(const SegmentMetadata& metadata) {
    const std::uint32_t high = std::min(metadata.header().holds_high.load(std::memory_order_relaxed), kGlance);
    for (std::uint32_t i = 0; i < high; ++i) {
        const std::uint64_t word = metadata.hold(i).word.load(std::memory_order_relaxed);
        if (word != 0 && owner_of(word) < kFirstRing) return true;
    }
    return false;
}

// The rings that may be unreachable, each with its place in the list.
class Candidates {
   public:
    Candidates(std::span<const Reached> rings) : rings_(rings.begin(), rings.end()) { number(); }

    const std::vector<Reached>& rings() const { return rings_; }
    // Keep the rings that no process can reach according to one reading. False: all were kept.
    bool narrow() {
        const auto before = versions();
        SHMTENSOR_POINT("reach.versions");
        std::vector<bool> reached(rings_.size(), false);
        std::vector<std::vector<std::uint32_t>> inside(rings_.size());  // the rings that messages of each one hold
        for (std::uint32_t i = 0; i < rings_.size(); ++i) reached[i] = !read(i, inside);
        SHMTENSOR_POINT("reach.holds");
        const auto after = versions();
        for (std::uint32_t i = 0; i < rings_.size(); ++i) reached[i] = reached[i] || before[i] != after[i];
        std::vector<std::uint32_t> next;
        for (std::uint32_t i = 0; i < rings_.size(); ++i)
            if (reached[i]) next.push_back(i);
        while (!next.empty()) {
            const std::uint32_t from = next.back();
            next.pop_back();
            for (const std::uint32_t to : inside[from]) {
                if (reached[to]) continue;
                reached[to] = true;
                next.push_back(to);
            }
        }
        std::vector<Reached> left;
        for (std::uint32_t i = 0; i < rings_.size(); ++i)
            if (!reached[i]) left.push_back(rings_[i]);
        const bool less = left.size() < rings_.size();
        rings_ = std::move(left);
        number();
        return less;
    }

   private:
    void number() {
        places_.clear();
        for (std::uint32_t i = 0; i < rings_.size(); ++i) places_.emplace(rings_[i].ring->number(), i);
    }
    std::vector<std::vector<std::uint64_t>> versions() const {
        std::vector<std::vector<std::uint64_t>> all;
        all.reserve(rings_.size());
        for (const Reached& one : rings_) all.push_back(one.ring->version());
        return all;
    }
    // Note which candidates hold this ring. False: a slot or another ring holds it, or its metadata is locked.
    bool read(std::uint32_t to, std::vector<std::vector<std::uint32_t>>& inside) const {
        SegmentMetadata& metadata = *rings_[to].metadata;
        std::vector<std::uint32_t> owners;
        owners.reserve(std::min(metadata.header().holds_high.load(std::memory_order_relaxed), metadata.shape().holds) +
                       64);
        if (!metadata.lock_untrusted()) return false;
        // Under the lock: a process that adds a hold on this ring already has another one.
        const bool all = metadata.owners(owners);
        metadata.unlock();
        if (!all) return false;
        for (const std::uint32_t owner : owners) {
            const auto found = places_.find(owner);
            if (found == places_.end()) return false;
            if (inside[found->second].empty() || inside[found->second].back() != to)
                inside[found->second].push_back(to);
        }
        return true;
    }

    std::vector<Reached> rings_;
    std::unordered_map<std::uint32_t, std::uint32_t> places_;  // of rings, by number
};

// False: the metadata of a ring is locked, or this manager has been replaced.
bool seal(const Group& group, std::span<const Reached> rings, std::uint32_t look) {
    for (const Reached& one : rings) {
        if (!one.metadata->lock_untrusted()) return false;
        const bool leads = group.leads();
        if (leads) one.metadata->header().sealed.store(look, std::memory_order_relaxed);
        one.metadata->unlock();
        if (!leads) return false;
        SHMTENSOR_POINT("reach.sealed_one");
    }
    return true;
}

}  // namespace

std::size_t end_unreached(Group& group, std::span<const Reached> rings) {
    std::vector<Reached> likely;
    for (const Reached& one : rings) {
        if (group.has_ended(one.metadata->header().sealed.load(std::memory_order_relaxed))) return 0;
        if (!is_held(*one.metadata)) likely.push_back(one);
    }
    if (likely.empty()) return 0;
    Candidates candidates(likely);
    candidates.narrow();  // so that few are sealed
    while (!candidates.rings().empty()) {
        const std::uint32_t number = group.begin_look();
        SHMTENSOR_POINT("reach.begun");
        if (!seal(group, candidates.rings(), number)) return 0;
        if (candidates.narrow()) continue;
        SHMTENSOR_POINT("reach.found");
        if (!group.decide(number)) return 0;
        SHMTENSOR_POINT("reach.decided");
        return candidates.rings().size();
    }
    return 0;
}

}  // namespace shmtensor
