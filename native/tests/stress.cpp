// Threads and processes allocate, share, hand over, fork, and are killed. No byte of a live block may change.
//
//   stress [SECONDS] [SEED]     without processes under ThreadSanitizer, which watches one process only
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "world.hpp"

using namespace world;

#if defined(__SANITIZE_THREAD__)
constexpr bool kProcesses = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool kProcesses = false;
#else
constexpr bool kProcesses = true;
#endif
#else
constexpr bool kProcesses = true;
#endif

namespace {

struct Mail {  // a ticket in flight between any two threads
    BlockName name;
    Ticket ticket;
    unsigned char value;
};

struct Post {
    std::mutex lock;
    std::vector<Mail> mail;
};

struct Member {
    Connection connection;
    std::unique_ptr<Client> client;
    std::unique_ptr<Arena> arena;
};

unsigned char value_of(const Block& b) {
    return static_cast<unsigned char>(b.index * 31 + b.generation * 7 + 1);
}

// One thread: fills every block that it makes with a value derived from its name, and checks it before dropping it.
void work(Client& client, std::uint64_t own, Post& post, std::uint32_t seed, const std::atomic<bool>& stop) {
    std::mt19937 random(seed);
    std::vector<Block*> mine;
    while (!stop.load(std::memory_order_relaxed)) {
        const auto dice = random() % 10;
        if (dice < 4 && mine.size() < 200) {
            const std::uint64_t bytes = dice == 0 ? 1 + random() % 300000 : 1 + random() % 3000;
            Block* block = nullptr;
            want(retry_blocking([&](unsigned p) { return client.allocate(bytes, p, &block); }) == Status::ok,
                 "allocate");
            fill(*block, value_of(*block));
            mine.push_back(block);
        } else if (dice < 7 && !mine.empty()) {
            std::swap(mine[random() % mine.size()], mine.back());
            want(filled(*mine.back(), value_of(*mine.back())), "a live block changed");
            client.release(mine.back());
            mine.pop_back();
        } else if (dice == 7 && !mine.empty()) {
            const Block& block = *mine[random() % mine.size()];
            Mail mail{block.name(), {}, value_of(block)};
            want(retry_blocking([&](unsigned p) { return client.ticket(block, 0, p, &mail.ticket); }) == Status::ok,
                 "ticket");
            const std::lock_guard guard(post.lock);
            post.mail.push_back(mail);
        } else if (dice == 8) {
            Mail mail{};
            {
                const std::lock_guard guard(post.lock);
                if (post.mail.empty()) continue;
                std::swap(post.mail[random() % post.mail.size()], post.mail.back());
                mail = post.mail.back();
                post.mail.pop_back();
            }
            Block* block = nullptr;
            want(retry_blocking([&](unsigned p) { return client.redeem(mail.name, mail.ticket, p, &block); }) ==
                     Status::ok,
                 "redeem");
            want(filled(*block, mail.value), "a block changed in flight");
            mine.push_back(block);
        } else if (random() % 500 == 0) {
            std::uint64_t given = 0;
            want(client.trim(&given) == Status::ok, "trim");
        }
    }
    for (Block* block : mine) {
        want(filled(*block, value_of(*block)), "a live block changed");
        client.release(block);
    }
    (void)own;
}

void threads(unsigned seconds, std::uint32_t seed) {
    Group group;
    want(group.create(3) == 0, "group.create");
    std::vector<std::unique_ptr<Member>> members;
    for (std::uint64_t i = 0; i < 2; ++i) {
        auto member = std::make_unique<Member>();
        const std::uint32_t slot = group.claim(SlotState::client, 1, 1, 0);
        member->client = std::make_unique<Client>(group, slot, member->connection.ours, 0);
        member->connection.ours = -1;
        member->arena = std::make_unique<Arena>(i + 1, slot);
        members.push_back(std::move(member));
    }
    for (auto& member : members)
        for (auto& other : members) other->arena->add_to(*member->client, other == member);
    Post post;
    std::atomic<bool> stop{false};
    std::vector<std::thread> pool;
    pool.reserve(4);
    for (std::uint32_t t = 0; t < 4; ++t)
        pool.emplace_back([&, t] { work(*members[t % 2]->client, t % 2 + 1, post, seed + t, stop); });
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    stop = true;
    for (auto& thread : pool) thread.join();
    for (auto& member : members) {
        member->arena->release_holds_of(0);  // tickets that were never received
        if (const char* wrong = member->client->check()) fail(wrong);
        want(member->arena->metadata.header().live_blocks == 0, "blocks are left");
        want(member->client->close(), "close");
    }
    std::puts("threads: ok");
}

// A release that finds the metadata locked is deferred, and done by the next release or when asked for.
void put_off() {
    Group group;
    want(group.create(5) == 0, "group.create");
    Connection connection;
    const std::uint32_t slot = group.claim(SlotState::client, 1, 1, 0);
    Client client(group, slot, connection.ours, 0);
    connection.ours = -1;
    Arena arena(1, slot);
    arena.add_to(client, true);
    Block* blocks[4];
    for (Block*& block : blocks)
        want(retry_blocking([&](unsigned p) { return client.allocate(100, p, &block); }) == Status::ok, "allocate");
    want(arena.metadata.lock(0, 1000), "the lock could not be taken");
    std::thread other([&] {
        client.release(blocks[0]);
        client.release(blocks[1]);
    });
    other.join();
    arena.metadata.unlock();
    want(arena.metadata.header().live_blocks == 4, "a block was released without the lock");
    client.release(blocks[2]);
    want(arena.metadata.header().live_blocks == 1, "the deferred releases were not done");
    want(arena.metadata.lock(0, 1000), "the lock could not be taken");
    std::thread last([&] {
        client.release(blocks[3]);
        client.finish_releases();
    });
    last.join();
    arena.metadata.unlock();
    want(arena.metadata.header().live_blocks == 1, "a block was released without the lock");
    client.finish_releases();
    want(arena.metadata.header().live_blocks == 0, "the deferred release was not done");
    if (const char* wrong = client.check()) fail(wrong);
    want(client.close(), "close");
    std::puts("deferred: ok");
}

struct Child {
    pid_t pid;
    std::uint32_t slot;
    std::unique_ptr<Arena> arena;
};

// A child until it is killed: two threads work, a third forks.
[[noreturn]] void live(Group& group, std::uint32_t slot, Arena& own, Arena& shared) {
    Connection connection;
    Client client(group, slot, connection.ours, 0);
    connection.ours = -1;
    own.add_to(client, true);
    shared.add_to(client, false);
    Post post;
    const std::atomic<bool> never{false};
    const auto work_on = [&] { work(client, slot + 10, post, static_cast<std::uint32_t>(os::random64()), never); };
    const std::thread other(work_on);
    const std::thread forker([] {
        for (;;) {
            const pid_t child = ::fork();
            if (child == 0) std::_Exit(0);
            int status = 0;
            if (child > 0) ::waitpid(child, &status, 0);
            ::usleep(500);
        }
    });
    work_on();
    std::abort();  // it works for ever
}

// After a child was killed: release its holds and those of its own forked children. `last`: no other child is left that
// could be their parent.
void reclaim(Group& group, const std::vector<Child>& children, const Child& child, bool last) {
    child.arena->check("before the release");
    child.arena->release_holds_of(child.slot);
    child.arena->release_holds_of(0);
    for (std::uint32_t s = 1; s < kMaxSlots; ++s) {
        // Forked children: embryos, or clients that have ended or will end without touching shared memory.
        const std::uint64_t word = group.slot(s).word.load();
        if (state_of(word) == SlotState::free || state_of(word) == SlotState::dead ||
            std::ranges::any_of(children, [&](auto& c) { return c.slot == s; }))
            continue;
        child.arena->release_holds_of(s);
        const bool own = state_of(word) == SlotState::embryo && parent_of(word) == child.slot;
        if (own || (state_of(word) == SlotState::client && last)) group.move(s, word, SlotState::free);
    }
    child.arena->check("after the release");
    want(child.arena->metadata.header().live_blocks == 0, "the dead hold blocks");
    set_state(group, child.slot, SlotState::free);
}

// Processes with one arena each and an arena of the harness; each is killed at a random instant.
void processes(unsigned seconds, std::uint32_t seed) {
    std::mt19937 random(seed);
    Group group;
    want(group.create(4) == 0, "group.create");
    const std::uint64_t until = os::monotonic_ns() + std::uint64_t{seconds} * 1'000'000'000;
    Arena shared(1, 1);
    want(group.claim(SlotState::client, 1, 1, 0) == 1, "claim");
    int kills = 0;
    while (os::monotonic_ns() < until) {
        std::vector<Child> children;
        for (int i = 0; i < 3; ++i) {
            const std::uint32_t slot = group.claim(SlotState::client, 1, 1, 0);
            want(slot != kNone, "no slot is left: slots leak");
            auto arena = std::make_unique<Arena>(slot + 10, slot);
            const pid_t pid = ::fork();
            want(pid >= 0, "fork");
            if (pid == 0) live(group, slot, *arena, shared);
            children.push_back({pid, slot, std::move(arena)});
        }
        for (const Child& child : children) {
            ::usleep(static_cast<useconds_t>(random() % 40000));
            ::kill(child.pid, SIGKILL);
            int status = 0;
            ::waitpid(child.pid, &status, 0);
            want(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "a process failed before it was killed");
            ++kills;
        }
        for (const Child& child : children) reclaim(group, children, child, &child == &children.back());
    }
    std::printf("processes: ok, %d kills\n", kills);
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint32_t seconds = argument(argc, argv, 1, 5);
    const std::uint32_t seed = argument(argc, argv, 2, static_cast<std::uint32_t>(os::random64()));
    std::printf("seed %u\n", seed);
    set_bound(seconds * 4 + 60);
    put_off();
    threads(seconds, seed);
    if (kProcesses) processes(seconds, seed);
    return 0;
}
