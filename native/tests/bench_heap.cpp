// Time of allocating and freeing shared blocks without Python. One JSON object a line; nanoseconds for the pair of
// calls.
#include <algorithm>
#include <numeric>
#include <random>

#include "world.hpp"

using namespace world;

namespace {

constexpr int kRounds = 7;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

struct Bench {
    Group group;
    Connection connection;
    std::unique_ptr<Client> client;
    std::vector<std::unique_ptr<Arena>> arenas;

    Bench() {
        want(group.create(1) == 0, "group.create");
        const std::uint32_t slot = group.claim(SlotState::client, static_cast<std::uint32_t>(os::process_id()), 0, 0);
        client = std::make_unique<Client>(group, slot, connection.ours, 0);
        connection.ours = -1;
    }
    Block* allocate(std::uint64_t bytes) {
        Block* block = nullptr;
        for (;;) {
            const Status status =
                retry_blocking([&](unsigned patience) { return client->allocate(bytes, patience, &block); });
            if (status == Status::ok) return block;
            want(status == Status::need_segment, "allocate");
            arenas.push_back(std::make_unique<Arena>(arenas.size() + 1, client->slot()));
            arenas.back()->add_to(*client, true);
        }
    }
};

void report(const char* what, std::uint64_t bytes, std::size_t live, double ns) {
    std::printf("{\"bench\": \"%s\", \"bytes\": %llu, \"live\": %zu, \"ns\": %.1f}\n", what,
                static_cast<unsigned long long>(bytes), live, ns);
    std::fflush(stdout);
}

}  // namespace

int main() {
    Bench bench;
    std::vector<Block*> live;
    std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): every run frees in the same order
    for (const std::size_t count : {std::size_t{10}, std::size_t{1000}, std::size_t{100000}, std::size_t{1000000}}) {
        while (live.size() < count) live.push_back(bench.allocate(64));
        constexpr int kCalls = 200000;
        for (const std::uint64_t bytes : {std::uint64_t{64}, std::uint64_t{4096}}) {
            std::vector<double> times;
            for (int round = 0; round < kRounds; ++round) {
                const std::uint64_t start = os::monotonic_ns();
                for (int i = 0; i < kCalls; ++i) bench.client->release(bench.allocate(bytes));
                times.push_back(static_cast<double>(os::monotonic_ns() - start) / kCalls);
            }
            report("allocate+free, last in first out", bytes, count, median(times));
        }
        const std::size_t calls = std::max<std::size_t>(count, 1000);
        std::vector<double> times;
        for (int round = 0; round < kRounds; ++round) {
            std::vector<std::size_t> order(calls);
            for (auto& at : order) at = random() % live.size();
            const std::uint64_t start = os::monotonic_ns();
            for (const std::size_t at : order) {
                bench.client->release(live[at]);
                live[at] = bench.allocate(64);
            }
            times.push_back(static_cast<double>(os::monotonic_ns() - start) / static_cast<double>(calls));
        }
        report("free+allocate, random live block", 64, count, median(times));
        // Freeing half of them in random order, then allocating as many: the lists themselves are in random order.
        const std::size_t half = std::max<std::size_t>(count / 2, 1);
        std::shuffle(live.begin(), live.end(), random);
        const std::uint64_t start = os::monotonic_ns();
        for (std::size_t i = 0; i < half; ++i) bench.client->release(live[i]);
        for (std::size_t i = 0; i < half; ++i) live[i] = bench.allocate(64);
        report("free half in random order, allocate it again", 64, count,
               static_cast<double>(os::monotonic_ns() - start) / static_cast<double>(half));
    }
}
