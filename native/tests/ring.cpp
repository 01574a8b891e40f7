// Producers and consumers of one ring, killed: at every failpoint of the ring in every role, and at random.
//
//   ring                          the matrix: kill, stop and exit at every point; exits with 0 when all were reached
//   and every check passed ring storm [KILLS] [SEED]     random kills of producers and consumers under load ring
//   threads [SECONDS]        the same load by threads, for ThreadSanitizer
//
// The harness is the manager: it undoes the transfers of a dead client, then releases its holds.
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <random>
#include <thread>

#include "base/failpoint.hpp"
#include "ipc/ring.hpp"
#include "matrix.hpp"
#include "ring_world.hpp"

using namespace world;

namespace {

constexpr std::uint32_t kMany = 1 << 25;  // the largest number of messages
constexpr int kArenas = 24;
constexpr std::uint32_t kRun = 3, kCommits = 16;

// Shared by the processes beside the ring.
struct Board {
    std::atomic<std::uint32_t> next;  // number of the next message
    std::atomic<bool> stop;
    std::atomic<std::uint8_t> put[kMany];           // put() has returned
    std::atomic<std::uint8_t> got[kMany];           // times received whole
    std::atomic<std::uint32_t> working[kMaxSlots];  // consumer: number of the message that it works on, + 1
    // By the ring's count of messages, as the pool uses it: the last message that a consumer took, + 1; the messages
    // that are accounted for.
    std::atomic<std::uint64_t> receipts[kMaxSlots];
    std::atomic<std::uint8_t> seen[kMany], excused[kMany];
    // By commit number: the message that the mover was about to take, and the one that the numbered producer was about
    // to put.
    struct Moved {
        std::uint32_t number, messages, ids[kRun];
    } moved[kCommits];
    std::uint32_t numbered[kCommits];
    bool has_mover, has_numbered;
};

std::uint64_t sum_of(std::uint32_t number, std::uint64_t bytes) {
    return (std::uint64_t{number} + 1) * 0x9e3779b97f4a7c15u ^ bytes;
}

struct World : RingWorld {
    SharedBoard<Board> board;

    explicit World(int count = 4) : RingWorld(count) {}

    void reclaim_and_excuse(std::uint32_t slot) {
        RingWorld::reclaim(slot);
        board->working[slot] = 0;
        // Its last message is excused, if it was taken.
        const auto last = static_cast<std::uint32_t>(board->receipts[slot].exchange(0));
        if (last != 0 && static_cast<std::int32_t>(ring.taken() - (last - 1)) > 0) board->excused[last - 1] = 1;
    }
};

// One process at the ring.
struct Member : RingMember {
    World& world;

    Member(World& w, std::uint32_t s, int owned) : RingMember(w, s, owned), world(w) {}

    template <class Again>
    RingStatus retry_ring(Again&& again) {
        for (int tries = 0;; ++tries) {
            const RingStatus result = again(tries == 0 ? 0u : 50u);
            if (result == RingStatus::no_room) {
                Refusal refusal;
                want(ring.reserve(ring.doubled(), world.group, slot, refusal) == 0, "reserve");
            } else if (result != RingStatus::busy) {
                return result;
            }
            want(tries < 600, "the lock of the ring could not be locked");
        }
    }

    // Message `number` with this many blocks and a body of its number and filling.
    void put(std::uint32_t number, int blocks, std::size_t filling, std::uint64_t commit = 0) {
        EncodedMessage message;
        message.mark = client.new_mark();
        message.body.resize(sizeof number + filling, static_cast<std::byte>(number));
        std::memcpy(message.body.data(), &number, sizeof number);
        message.bytes = message.body.size();
        std::vector<Block*> mine;
        for (int i = 0; i < blocks; ++i) {
            Block* block = nullptr;
            const std::uint64_t bytes = 64 + (number * 37 + static_cast<std::uint32_t>(i) * 1000) % 5000;
            want(retry_blocking([&](unsigned p) { return client.allocate(bytes, p, &block); }) == Status::ok,
                 "allocate");
            fill(*block, static_cast<unsigned char>(number));
            const std::uint64_t sum = sum_of(number, bytes);
            std::memcpy(block->data(), &sum, sizeof sum);
            MessageHold hold{};
            want(retry_blocking([&](unsigned p) { return client.lend(*block, message.mark, p, &hold); }) == Status::ok,
                 "lend");
            message.holds.push_back(hold);
            mine.push_back(block);
        }
        std::size_t done = 0;
        for (;;) {
            const std::uint32_t taken = ring.taken();
            const RingStatus result =
                retry_ring([&](unsigned p) { return ring.put({&message, 1}, slot, lookup, p, &done, commit); });
            if (result == RingStatus::ok) break;
            want(result == RingStatus::full, "put");
            ring.await_room(taken, 50'000'000);
        }
        world.board->put[number] = 1;
        for (Block* b : mine) client.release(b);
    }

    // Take messages as a process that moves them elsewhere does.
    void move(std::uint32_t commit) {
        Run run;
        const RingStatus status = retry_ring([&](unsigned p) { return ring.peek(run, {4096, kRun}, slot, lookup, p); });
        if (status == RingStatus::empty) return;
        want(status == RingStatus::ok && run.messages <= kRun, "peek");
        for (const MessageHold& hold : run.frames.holds) client.drop(hold);
        Board::Moved& moved = world.board->moved[commit];
        const std::byte* at = run.frames.body.data();
        for (std::uint32_t i = 0; i < run.messages; ++i) {
            FrameHeader header{};
            std::memcpy(&header, at, sizeof header);
            std::memcpy(&moved.ids[i], at + sizeof header, sizeof moved.ids[i]);
            at += sizeof header + header.body_bytes;
        }
        want(at == run.frames.body.data() + run.frames.body.size(), "frames");
        moved.number = run.number;
        moved.messages = run.messages;
        EncodedMessage taken;
        const RingStatus took =
            retry_ring([&](unsigned p) { return ring.take(taken, run.number, run.messages, commit, slot, lookup, p); });
        want(took == RingStatus::ok, "take");
        for (const MessageHold& hold : taken.holds) client.drop(hold);
    }

    // False: no message came in time.
    bool get(std::uint64_t patience_ns) {
        EncodedMessage message;
        std::size_t done = 0;
        std::atomic<std::uint64_t>& receipt = world.board->receipts[slot];
        const RingStatus result =
            retry_ring([&](unsigned p) { return ring.get({&message, 1}, slot, lookup, p, &done, &receipt); });
        if (result == RingStatus::empty) {
            if (patience_ns > 0) ring.await_message(patience_ns);
            return false;
        }
        want(result == RingStatus::ok && done == 1, "get");
        std::uint32_t number = 0;
        want(message.body.size() >= sizeof number, "a body is short");
        std::memcpy(&number, message.body.data(), sizeof number);
        want(number < kMany, "a body is wrong");
        world.board->working[slot] = number + 1;
        for (std::size_t i = sizeof number; i < message.body.size(); ++i)
            want(message.body[i] == static_cast<std::byte>(number), "a body is torn");
        for (const MessageHold& hold : message.holds) {
            Block* block = nullptr;
            want(client.receive(hold, &block) == Status::ok, "a block of a message is gone");
            std::uint64_t sum = 0;
            std::memcpy(&sum, block->data(), sizeof sum);
            want(sum == sum_of(number, block->bytes), "a block has the content of another");
            const auto* bytes = reinterpret_cast<const unsigned char*>(block->data());
            want(block->bytes == sizeof sum || bytes[block->bytes - 1] == static_cast<unsigned char>(number),
                 "a block is torn");
            client.release(block);
        }
        ++world.board->got[number];
        ++world.board->seen[receipt - 1];
        world.board->working[slot] = 0;
        return true;
    }
};

// ---------------------------------------------------------------------------------------------------------- the matrix

constexpr int kMessages = 8;
const std::vector<std::string> kRoles = {"producer",
                                         "consumer",
                                         "grower",
                                         "mover",
                                         "numbered producer",
                                         "successor of a producer",
                                         "successor of a consumer",
                                         "successor of a mover",
                                         "manager"};

void play(World& world, const std::string& role, std::uint32_t slot) {
    if (role == "manager") {
        World::ManagerLookup all(world);
        for (std::uint32_t dead = 1; dead < slot; ++dead)
            if (state_of(world.group.slot(dead).word) == SlotState::client) world.ring.undo_transfers(dead, all);
        return;
    }
    const bool produces = role == "producer" || role == "grower" || role == "successor of a producer";
    Member me(world, slot, static_cast<int>(slot));  // this arena is still unused
    const bool grows = role == "grower";
    world.board->has_mover |= role == "mover";
    world.board->has_numbered |= role == "numbered producer";
    for (int i = 0; i < kMessages; ++i) {
        const auto commit = static_cast<std::uint32_t>(i) + 1;
        if (role == "mover") {
            me.move(commit);
        } else if (role == "numbered producer") {
            world.board->numbered[commit] = world.board->next++;
            me.put(world.board->numbered[commit], i % 4, 100, commit);
        } else if (produces) {
            me.put(world.board->next++, grows ? i % 2 : i % 4, grows ? 30000 : static_cast<std::size_t>(i) * 100);
        } else {
            me.get(0);
        }
    }
}

pid_t start(World& world, const std::string& role, std::uint32_t slot, const std::string& spec) {
    const pid_t pid = ::fork();
    want(pid >= 0, "fork");
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        failpoint::arm(spec);
        play(world, role, slot);
        std::_Exit(0);
    }
    return pid;
}

std::uint32_t claim(World& world) {
    const std::uint32_t slot = world.group.claim(SlotState::client, 1, 1, 0);
    want(slot != kNone, "claim");
    return slot;
}

// Exactly the messages that the commit numbers count as moved are at the other end.
void audit_moved(World& world, Member& me) {
    const auto number = [&](End end) {
        std::uint64_t found = 0;
        want(me.retry_ring([&](unsigned p) { return me.ring.commit_number(end, &found, me.slot, me.lookup, p); }) ==
                 RingStatus::ok,
             "commit_number");
        return found;
    };
    const std::uint64_t taken = world.board->has_mover ? number(End::head) : 0;
    for (std::uint64_t commit = 1; commit <= taken; ++commit) {
        const Board::Moved& moved = world.board->moved[commit];
        for (std::uint32_t i = 0; i < moved.messages; ++i) {
            ++world.board->got[moved.ids[i]];
            ++world.board->seen[moved.number + i];
        }
    }
}

void audit_numbered(World& world, std::uint64_t put, const std::string& what) {
    for (std::uint64_t commit = 1; commit < kCommits && world.board->numbered[commit] != 0; ++commit)
        want(world.board->got[world.board->numbered[commit]] == (commit <= put ? 1 : 0),
             what + ": message " + std::to_string(commit) + " and commit number " + std::to_string(put));
}

void audit(World& world, const std::string& what, std::size_t may_lose) {
    World::ManagerLookup all(world);
    if (const char* wrong = world.ring.check(all)) fail(what + ": " + wrong);
    const std::uint32_t slot = claim(world);
    const std::uint64_t put = world.ring.header().tail.commit_number;
    {
        Member me(world, slot, 0);
        audit_moved(world, me);
        while (world.ring.size() > 0) want(me.get(0), what + ": a message cannot be taken");
        want(me.client.close(), what + ": the last consumer cannot close");
    }
    world.reclaim_and_excuse(slot);
    if (world.board->has_numbered) audit_numbered(world, put, what);
    std::size_t lost = 0;
    for (std::uint32_t i = 0; i < world.board->next; ++i) {
        want(world.board->got[i] <= 1, what + ": a message was received twice");
        if (world.board->put[i] && !world.board->got[i]) ++lost;
    }
    want(lost <= may_lose, what + ": " + std::to_string(lost) + " messages are lost");
    for (std::uint32_t i = 0; i < world.ring.taken(); ++i) {
        want(world.board->seen[i] <= 1, what + ": two receipts for one message");
        want(world.board->seen[i] || world.board->excused[i], what + ": a message was taken without a receipt");
    }
    for (Arena& arena : world.arenas) {
        arena.check(what);
        want(arena.metadata.header().live_blocks == 0,
             what + ": " + std::to_string(arena.metadata.header().live_blocks) + " blocks are left");
    }
}

bool run(const std::string& role, const std::string& point, int nth, const std::string& action) {
    const std::string what = role + " " + point + ":" + std::to_string(nth) + ":" + action;
    World world;
    {
        const std::uint32_t slot = claim(world);
        Member first(world, slot, 1);
        for (int i = 0; i < kMessages; ++i) first.put(world.board->next++, i % 4 < 2 ? 0 : i % 4, 10);
        want(first.client.close(), what);
        world.reclaim_and_excuse(slot);
    }
    int status = 0;
    std::vector<std::uint32_t> dead;
    const auto victim = [&](const std::string& as, const std::string& spec) {
        dead.push_back(claim(world));
        const pid_t pid = start(world, as, dead.back(), spec);
        want(::waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), what + ": the victim lives");
    };
    // A process died halfway before: the role must undo.
    if (role == "successor of a producer" || role == "manager") victim("producer", "ring.put.one_moved:2:kill");
    if (role == "successor of a consumer" || role == "manager") victim("consumer", "ring.get.one_moved:2:kill");
    if (role == "successor of a mover") victim("mover", "ring.note.numbered:2:kill");
    dead.push_back(claim(world));
    const pid_t pid = start(world, role, dead.back(), point + ":" + std::to_string(nth) + ":" + action);
    want(::waitpid(pid, &status, WUNTRACED) == pid, what);
    if (WIFSTOPPED(status)) {
        // A stopped holder blocks others no longer than their patience.
        World::ManagerLookup all(world);
        EncodedMessage message;
        std::size_t done = 0;
        const RingStatus got =
            world.ring.get({&message, 1}, kMaxSlots - 1, all, 10, &done, &world.board->receipts[kMaxSlots - 1]);
        want(got == RingStatus::ok || got == RingStatus::busy || got == RingStatus::empty ||
                 got == RingStatus::need_mapping,
             what + ": get beside a stopped process");
        if (got == RingStatus::ok) {
            std::uint32_t number = 0;
            std::memcpy(&number, message.body.data(), sizeof number);
            ++world.board->got[number];
            dead.push_back(kMaxSlots - 1);
        }
        ::kill(pid, SIGKILL);
        ::waitpid(pid, &status, 0);
    }
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool exited = WIFEXITED(status) && WEXITSTATUS(status) == 70;
    if (!killed && !exited) want(WIFEXITED(status) && WEXITSTATUS(status) == 0, what + ": the role failed");
    for (const std::uint32_t slot : dead) world.reclaim_and_excuse(slot);
    audit(world, what, 2);
    return killed || exited;
}

int matrix() {
    const auto points = points_where([](const std::string& point) { return point.starts_with("ring."); });
    return world::matrix(points, points, kRoles, kPasses, kPasses.back(), run);
}

// ----------------------------------------------------------------------------------------------------------- the storm

class Storm {
   public:
    explicit Storm(std::uint32_t seed) : random_(seed) {
        for (int i = kArenas; i > 0; --i) spare_.push_back(i);
        world_.ring.header().max_messages = 500;
        for (int i = 0; i < 3; ++i) {
            begin(true);
            begin(false);
        }
    }
    // Kill a process, and start another in its place.
    void kill_one() {
        pause_before_kill(static_cast<std::uint32_t>(random_() % 3000), [&] { return world_.ring.taken(); });
        const std::size_t which = random_() % all_.size();
        const One one = all_[which];
        kill_running(one.pid);
        if (!one.produces) ++may_lose_;
        world_.reclaim_and_excuse(one.slot);
        all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(which));
        orphans_.push_back(one.arena);
        recycle();
        for (int waits = 0; spare_.empty(); ++waits) {
            want(waits < 2000, "no arena becomes free: a block is stranded");
            ::usleep(5000);
            recycle();
        }
        begin(one.produces);
    }
    // Returns the number of messages.
    std::uint32_t finish() {
        world_.board->stop = true;
        for (const One& one : all_) {
            int status = 0;
            for (int waits = 0; ::waitpid(one.pid, &status, WNOHANG) == 0; ++waits) {
                want(waits < 2000, "a process hangs at the end");
                if (world_.ring.is_full()) make_room();
                ::usleep(5000);
            }
            want(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a process failed: " + std::to_string(status));
            world_.reclaim_and_excuse(one.slot);
        }
        audit(world_, "storm", may_lose_);
        return std::min(world_.board->next.load(), kMany);
    }

   private:
    struct One {
        pid_t pid;
        std::uint32_t slot;
        bool produces;
        int arena;
    };

    void begin(bool produces) {
        want(!spare_.empty(), "arenas");
        const int arena = spare_.back();
        spare_.pop_back();
        const std::uint32_t slot = claim(world_);
        const auto seed = static_cast<std::uint32_t>(random_());
        const pid_t pid = ::fork();
        want(pid >= 0, "fork");
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            Member me(world_, slot, produces ? arena : 0);
            work(me, produces, seed);
            std::_Exit(me.client.close() ? 0 : 3);
        }
        all_.push_back({pid, slot, produces, arena});
    }
    void work(Member& me, bool produces, std::uint32_t seed) {
        std::mt19937 dice(seed);
        while (!world_.board->stop) {
            if (!produces) {
                me.get(20'000'000);
                continue;
            }
            const std::uint32_t number = world_.board->next++;
            if (number >= kMany) break;
            me.put(number, static_cast<int>(dice() % 4), dice() % 20 == 0 ? 20000 : dice() % 300);
        }
    }
    void recycle() {
        std::erase_if(orphans_, [&](int orphan) {
            if (!world_.arenas[static_cast<std::size_t>(orphan) - 1].empty_for_another()) return false;
            spare_.insert(spare_.begin(), orphan);
            return true;
        });
    }
    // For producers that wait at the end.
    void make_room() {
        const std::uint32_t slot = claim(world_);
        {
            Member me(world_, slot, 0);
            for (int i = 0; i < 100 && me.get(0); ++i) {
            }
            me.client.close();
        }
        world_.reclaim_and_excuse(slot);
    }

    World world_{kArenas};
    std::mt19937 random_;
    std::vector<One> all_;
    std::vector<int> spare_, orphans_;  // arenas
    std::size_t may_lose_ = 0;
};

int storm(std::uint32_t kills, std::uint32_t seed) {
    Storm storm(seed);
    for (std::uint32_t killed = 0; killed < kills; ++killed) storm.kill_one();
    const std::uint32_t messages = storm.finish();
    std::printf("%u kills, %u messages, none wrong, none twice, lost at most what the dead were moving\n", kills,
                messages);
    return 0;
}

// --------------------------------------------------------------------------------------------------------- the threads

int threads(std::uint32_t seconds) {
    World world(3);
    world.ring.header().max_messages = 200;
    std::vector<std::thread> all;
    std::atomic<bool> stop{false};
    for (int i = 0; i < 6; ++i) {
        const std::uint32_t slot = claim(world);
        all.emplace_back([&world, &stop, slot, i] {
            Member me(world, slot, i < 3 ? i + 1 : 0);
            std::mt19937 dice(slot);
            if (i < 3) {
                while (!stop)
                    me.put(world.board->next++, static_cast<int>(dice() % 4), dice() % 20 == 0 ? 20000 : dice() % 300);
            } else {
                while (!stop || world.ring.size() > 0) me.get(20'000'000);
            }
            want(me.client.close(), "a thread's client holds blocks at the end");
        });
    }
    ::sleep(seconds);
    stop = true;
    for (std::thread& one : all) one.join();
    for (std::uint32_t slot = 1; slot <= 6; ++slot) world.reclaim_and_excuse(slot);
    audit(world, "threads", 0);
    std::printf("%u messages, none wrong, lost or twice\n", world.board->next.load());
    return 0;
}

// A call without patience, which may hold the GIL, does not wait while a growing ring is copied.
void patience() {
    World world(1);
    World::ManagerLookup all(world);
    const std::uint32_t slot = claim(world), capacity = world.ring.header().capacity;
    EncodedMessage message;
    message.body.resize(1000);
    std::size_t done = 0;
    int put = 0;
    while (world.ring.put({&message, 1}, slot, all, 0, &done) == RingStatus::ok) ++put;
    Refusal refusal;
    want(world.ring.reserve(world.ring.doubled(), world.group, slot, refusal) == 0, "reserve");
    want(world.ring.put({&message, 1}, slot, all, 0, &done) == RingStatus::busy, "growth without patience");
    want(world.ring.header().capacity == capacity && world.ring.size() == static_cast<std::uint32_t>(put), "unchanged");
    want(world.ring.put({&message, 1}, slot, all, 50, &done) == RingStatus::ok, "growth with patience");
    want(world.ring.header().capacity == capacity * 2, "grown");
}

// A wait pauses if several messages came since the last one, and less often after each pause that did not pay.
void pauses() {
    Gather gather;
    std::uint32_t passed = 0;
    const auto pause = [&](std::uint32_t more, std::uint32_t first, std::uint64_t timeout_ns = 1'000'000'000,
                           std::uint32_t second = 100) {
        return gather.pause(passed += more, timeout_ns,
                            [&, looks = 0]() mutable { return looks++ ? first + second : first; });
    };
    want(!pause(1, 100), "no pause for one message at a time");
    want(!pause(5, 100, 1'000), "no pause in a short wait");
    want(pause(5, 100) && pause(5, 100), "pauses that pay");
    for (const int skipped : {1, 3, 7}) {
        want(pause(5, 3), "a pause that does not pay");
        for (int i = 0; i < skipped; ++i) want(!pause(5, 100), "waits without a pause after it");
    }
    want(pause(5, 100), "pauses that pay again");
    want(pause(5, 100, 1'000'000'000, 3) && !pause(5, 100), "a pause of which only the first half pays");
    want(pause(5, 100) && pause(5, 100), "pauses that pay again");
}

}  // namespace

int main(int argc, char** argv) {
    set_bound(900);
    if (argc > 1 && std::string{argv[1]} == "storm")
        return storm(argument(argc, argv, 2, 1000), argument(argc, argv, 3, std::random_device{}()));
    if (argc > 1 && std::string{argv[1]} == "threads") return threads(argument(argc, argv, 2, 5));
    patience();
    pauses();
    return matrix();
}
