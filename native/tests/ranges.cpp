// Random operations on Ranges and SegmentMetadata beside a naive model of each.
//
//   ranges [SECONDS] [SEED]
#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "heap/ranges.hpp"
#include "world.hpp"

using namespace world;

namespace {

using State = Ranges::State;

// The model of Ranges: the state of each unit of the payload.
struct Payload {
    static constexpr std::uint64_t kBytes = 8 << 20;
    static constexpr std::uint64_t kUnits = kBytes / kUnit;

    Ranges ranges;
    std::uint32_t max_nodes;
    std::vector<State> units = std::vector<State>(kUnits, State::cold);
    std::vector<std::uint32_t> taken;

    explicit Payload(std::uint32_t nodes) : ranges(kBytes, nodes), max_nodes(nodes) {}

    void set(std::uint64_t offset, std::uint64_t bytes, State from, State to) {
        for (std::uint64_t u = offset / kUnit; u < (offset + bytes) / kUnit; ++u) {
            if (units[u] != from) fail("a range was given out that is not free of its kind");
            units[u] = to;
        }
    }
    void take(std::uint64_t bytes, State kind) {
        const std::uint64_t largest = longest(kind);
        const std::uint32_t node = ranges.take(bytes, kind);
        if (node == kNone) {
            // A range twice as large as needed is in a higher class, and is found as long as nodes are left.
            want(largest < 2 * (bytes + kPage) || used() + 3 > max_nodes, "a range that fits was not found");
            return;
        }
        const auto range = ranges[node];
        want(range.bytes == bytes, "a range does not have the requested size");
        want(range.offset % (bytes >= kPagedFrom ? kPage : kUnit) == 0, "a range is not aligned");
        set(range.offset, bytes, kind, State::taken);
        taken.push_back(node);
    }
    std::uint32_t pick(std::mt19937& random) {
        std::swap(taken[random() % taken.size()], taken.back());
        return taken.back();
    }
    void give(std::uint32_t node, State kind) {
        const auto range = ranges[node];
        set(range.offset, range.bytes, State::taken, kind);
        ranges.give(node, kind);
        taken.pop_back();
    }
    // As the heap grows: take a step of cold bytes, use the front, and free the rest as warm.
    void grow(std::uint64_t step, std::uint64_t bytes) {
        const std::uint32_t node = ranges.take(step, State::cold);
        if (node == kNone) return;
        const auto range = ranges[node];
        want(range.bytes == step, "a step does not have the requested size");
        set(range.offset, step, State::cold, State::taken);
        ranges.cut(node, bytes, State::warm);
        want(ranges[node].bytes == bytes, "a step was not cut");
        set(range.offset + bytes, step - bytes, State::taken, State::warm);
        taken.push_back(node);
    }
    void trim(std::uint32_t node) {
        const auto range = ranges[node];
        if (!ranges.take_whole(node)) return;
        set(range.offset, range.bytes, range.state, State::cold);
        ranges.give(node, State::cold);
    }
    void join() {
        ranges.join_all();
        for (std::uint64_t u = 0; u < kUnits; ++u)  // warm units beside cold ones become cold
            if (units[u] == State::warm) {
                std::uint64_t end = u, from = u;
                while (end < kUnits && units[end] == State::warm) ++end;
                const bool mixed =
                    (from > 0 && units[from - 1] == State::cold) || (end < kUnits && units[end] == State::cold);
                if (mixed) std::fill(&units[from], &units[from] + (end - from), State::cold);
                u = end;
            }
    }
    std::uint32_t used() const {
        std::uint32_t count = 0;
        for (std::uint32_t n = 0; n != kNone; n = ranges[n].after) ++count;
        return count;
    }
    std::uint64_t longest(State kind) const {
        std::uint64_t largest = 0;
        for (std::uint32_t n = 0; n != kNone; n = ranges[n].after)
            if (ranges[n].state == kind) largest = std::max(largest, ranges[n].bytes);
        return largest;
    }
    void compare() const {
        if (const char* wrong = ranges.check()) fail(wrong);
        for (std::uint32_t n = 0; n != kNone; n = ranges[n].after) {
            const auto& r = ranges[n];
            for (std::uint64_t u = r.offset / kUnit; u < (r.offset + r.bytes) / kUnit; ++u)
                if (units[u] != r.state) fail("a range and the model differ");
        }
    }
};

std::uint64_t some_size(std::mt19937& random) {
    constexpr std::uint64_t kSizes[] = {64, 1000, 5000, 70000, 1 << 20, 2 << 20};
    return rounded(1 + random() % kSizes[random() % std::size(kSizes)]);
}

void ranges(unsigned seconds, std::mt19937& random) {
    const std::uint64_t until = os::monotonic_ns() + std::uint64_t{seconds} * 1'000'000'000;
    std::uint64_t operations = 0;
    while (os::monotonic_ns() < until) {
        Payload payload(random() % 2 ? 1u << 16 : 8 + static_cast<std::uint32_t>(random() % 200));
        for (int i = 0; i < 4000; ++i, ++operations) {
            const auto dice = random() % 100;
            const State kind = random() % 2 ? State::warm : State::cold;
            if (dice < 45) {
                payload.take(some_size(random), kind);
            } else if (dice < 55) {
                const std::uint64_t bytes = some_size(random);
                payload.grow(std::max<std::uint64_t>(bytes, 1 << 20), bytes);
            } else if (dice < 97) {
                if (!payload.taken.empty()) payload.give(payload.pick(random), kind);
            } else if (dice < 99) {
                payload.trim(static_cast<std::uint32_t>(random()) % payload.ranges.node_count());
            } else if (random() % 10 == 0) {
                payload.join();
            }
            if (i % 200 == 0) payload.compare();
        }
        payload.compare();
        while (!payload.taken.empty()) payload.give(payload.taken.back(), State::cold);
        payload.join();
        payload.compare();
        want(payload.used() <= 1 && payload.ranges.largest_cold() == Payload::kBytes, "free ranges were not joined");
    }
    std::printf("ranges: ok, %llu operations\n", static_cast<unsigned long long>(operations));
}

void sizes() {
    std::uint64_t before = 0;
    std::uint32_t bin = 0;
    for (std::uint64_t bytes = 1; bytes <= kBinnedUpTo; ++bytes) {
        const std::uint64_t size = rounded(bytes);
        want(size >= bytes && size % kUnit == 0 && size >= before && rounded(size) == size,
             "a size is rounded wrongly");
        want(bytes <= 1024 || size - bytes < bytes / 4, "a size wastes more than a quarter");
        want(bytes < kPagedFrom || size % kPage == 0, "a paged size is not a multiple of a page");
        if (size != before) want(bin_of(size) == bin++, "bins are not consecutive");
        before = size;
    }
    want(bin == kBins, "the number of bins and sizes differ");
}

// The model of SegmentMetadata: the holds by entry, the blocks by index.
struct Ledger {
    struct Entry {
        std::uint32_t block, owner, mark;
        bool ticket;
    };
    enum class Place { home, live, returned };

    static constexpr std::uint32_t kBlocks = 300;
    SegmentMetadata metadata;
    std::map<std::uint32_t, Entry> holds;
    Place places[kBlocks] = {};
    std::uint32_t generations[kBlocks] = {};
    std::uint32_t marks = 0;

    Ledger() { want(metadata.create("test-metadata", 1, 1, 0, kArenaBytes, false) == 0, "metadata.create"); }

    void lock() { want(metadata.lock(1, 1000), "the lock could not be taken"); }
    std::uint32_t holds_on(std::uint32_t block) const {
        return static_cast<std::uint32_t>(
            std::count_if(holds.begin(), holds.end(), [&](auto& h) { return h.second.block == block; }));
    }
    // An entry from make(); reserves more entries when it returns none.
    template <class Make>
    std::uint32_t entry(Make&& make) {
        std::uint32_t hold = make();
        if (hold == kNone) {
            std::uint32_t reserved = 0;
            Refusal refusal;
            want(metadata.reserve_holds(&reserved, refusal) == 0, "reserve_holds");
            metadata.grow_holds(reserved);
            hold = make();
        }
        want(hold != kNone && !holds.contains(hold), "an entry was given out twice");
        return hold;
    }
    void end(std::uint32_t hold, bool by_owner) {
        const std::uint32_t block = holds.at(hold).block;
        holds.erase(hold);
        const bool last = holds_on(block) == 0;
        const Left left = metadata.release(hold, by_owner);
        want(left == (!last ? Left::held : by_owner ? Left::home : Left::returned), "release() returned another state");
        if (last) places[block] = by_owner ? Place::home : Place::returned;
    }
    void step(std::mt19937& random) {
        const auto block = static_cast<std::uint32_t>(random() % kBlocks);
        const auto owner = static_cast<std::uint32_t>(1 + random() % 5);
        const auto dice = random() % 100;
        if (places[block] == Place::home && dice < 60) {
            const std::uint32_t hold =
                entry([&] { return metadata.hand_out(block, std::uint64_t{block} << 12, 1 + random() % 4096, owner); });
            holds[hold] = {block, owner, 0, false};
            places[block] = Place::live;
            want(metadata.block(block).generation.load() == ++generations[block], "the generation was not raised");
        } else if (places[block] == Place::live && dice < 40) {
            const bool ticket = random() % 2;
            const std::uint32_t by = ticket ? 0 : owner, mark = ticket ? ++marks : 0;
            const std::uint32_t hold =
                entry([&] { return metadata.add_hold(block, by, ticket ? HoldKind::ticket : HoldKind::client, mark); });
            holds[hold] = {block, by, mark, ticket};
        } else if (dice < 85 && !holds.empty()) {
            auto it = holds.lower_bound(static_cast<std::uint32_t>(random()) % (holds.rbegin()->first + 1));
            auto& [hold, e] = *it;
            if (e.ticket && random() % 2) {
                want(!metadata.redeem(hold, e.mark + 1, e.block, owner), "a wrong mark was redeemed");
                want(!metadata.redeem(hold, e.mark, e.block + 1, owner), "another block's ticket was redeemed");
                want(metadata.redeem(hold, e.mark, e.block, owner), "a ticket was not redeemed");
                want(!metadata.redeem(hold, e.mark, e.block, owner), "a ticket was redeemed twice");
                e = {e.block, owner, 0, false};
            } else {
                end(hold, random() % 2);
            }
        } else if (dice < 90) {
            std::vector<std::uint32_t> home;
            metadata.take_returned(home);
            for (const std::uint32_t b : home) {
                want(places[b] == Place::returned, "a block came home that was not returned");
                places[b] = Place::home;
            }
            want(std::count(std::begin(places), std::end(places), Place::returned) == 0, "a block did not come home");
        } else if (dice == 90) {
            const auto mine = std::erase_if(holds, [&](auto& h) { return h.second.owner == owner; });
            want(metadata.release_holds_of(owner) == mine, "the wrong number of holds was released");
            note_returned();
        } else if (dice == 91) {
            const auto tickets = std::erase_if(holds, [](auto& h) { return h.second.ticket; });
            want(metadata.expire_tickets(~0u) == tickets, "the wrong number of tickets expired");
            note_returned();
        }
    }
    void note_returned() {
        for (std::uint32_t b = 0; b < kBlocks; ++b)
            if (places[b] == Place::live && holds_on(b) == 0) places[b] = Place::returned;
    }
    // The holder of the lock dies, and leaves garbage in every derived field.
    void die(std::mt19937& random) {
        std::thread([&] {
            lock();
            MetadataHeader& h = metadata.header();
            h.free_hold = static_cast<std::uint32_t>(random());
            h.returned = static_cast<std::uint32_t>(random());
            h.live_blocks = static_cast<std::uint32_t>(random());
            h.live_bytes = random();
            for (std::uint32_t b = 0; b < h.blocks_high; ++b) {
                metadata.block(b).count = static_cast<std::uint32_t>(random());
                metadata.block(b).next = static_cast<std::uint32_t>(random());
            }
            for (std::uint32_t i = 0; i < h.holds_high; ++i)
                if (metadata.hold(i).word == 0) metadata.hold(i).mark = static_cast<std::uint32_t>(random());
        }).join();
    }
    void compare() const {
        if (const char* wrong = metadata.check()) fail(wrong);
        for (std::uint32_t b = 0; b < kBlocks; ++b)
            want((places[b] == Place::live) == metadata.is_live(b, generations[b]), "a block and the model differ");
        for (const auto& [hold, e] : holds) {
            const auto kind = e.ticket ? HoldKind::ticket : HoldKind::client;
            want(metadata.hold(hold).word == hold_word(e.block, e.owner, kind), "a hold and the model differ");
        }
    }
};

void metadata(unsigned seconds, std::mt19937& random) {
    const std::uint64_t until = os::monotonic_ns() + std::uint64_t{seconds} * 1'000'000'000;
    std::uint64_t operations = 0;
    int deaths = 0;
    while (os::monotonic_ns() < until) {
        Ledger ledger;
        for (int round = 0; round < 20; ++round) {
            ledger.lock();
            for (int i = 0; i < 300; ++i, ++operations) ledger.step(random);
            ledger.compare();
            ledger.metadata.unlock();
            if (round % 4 != 3) continue;
            ledger.die(random);
            ++deaths;
            ledger.lock();
            ledger.compare();
            ledger.metadata.unlock();
        }
    }
    std::printf("metadata: ok, %llu operations, %d deaths\n", static_cast<unsigned long long>(operations), deaths);
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint32_t seconds = argument(argc, argv, 1, 4);
    const std::uint32_t seed = argument(argc, argv, 2, static_cast<std::uint32_t>(os::random64()));
    std::printf("seed %u\n", seed);
    std::fflush(stdout);
    std::mt19937 random(seed);
    sizes();
    metadata((seconds + 1) / 2, random);
    ranges((seconds + 1) / 2, random);
    return 0;
}
