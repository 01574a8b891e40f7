// Writers and readers of one broadcast, killed: at every failpoint of it in every role, and at random.
//
//   cast                          the matrix: kill, stop and exit at every point; exits with 0 when all were reached
//   and every check passed cast storm [KILLS] [SEED]     random kills of the writer and the readers under load
//
// The harness is the manager: it undoes the transfers of a dead client, then releases its holds. A message
// contains its number, the count of the tail at which it was put. A writer that died before that did not move the tail,
// so every reader can tell that it sees each message, and in order.
#include <signal.h>
#include <sys/prctl.h>

#include <random>

#include "base/failpoint.hpp"
#include "ipc/broadcast.hpp"
#include "matrix.hpp"
#include "ring_world.hpp"

using namespace world;

namespace {

constexpr int kArenas = 24;
constexpr std::uint32_t kMessages = 8;

struct Board {
    std::atomic<bool> stop;
    std::atomic<std::uint64_t> read, missed;
};

std::uint64_t sum_of(std::uint32_t number, std::uint64_t bytes) {
    return (std::uint64_t{number} + 1) * 0x9e3779b97f4a7c15u ^ bytes;
}

struct World : RingWorld {
    Broadcast broadcast{ring, group};
    SharedBoard<Board> board;

    explicit World(int count, std::uint32_t max_messages, Policy policy) : RingWorld(count) {
        ring.header().max_messages = max_messages;
        ring.header().policy = static_cast<std::uint32_t>(policy);
    }

    // A reader in the harness itself, which has no client: it reads blocks through their file.
    bool read(Reader& reader, std::uint32_t slot, const std::string& what) {
        ManagerLookup all(*this);
        EncodedMessage message;
        for (int tries = 0;; ++tries) {
            const RingStatus result = broadcast.read(message, reader, Next::oldest, slot, all, 100);
            if (result == RingStatus::empty) return false;
            if (result == RingStatus::ok) break;
            want((result == RingStatus::full || result == RingStatus::busy) && tries < 100, what + ": cannot read");
            for (const MessageHold& hold : message.holds) end(hold);
            if (result == RingStatus::full) reserve(all.missing);
        }
        std::uint32_t number = 0;
        want(message.body.size() >= sizeof number, what + ": a body is short");
        std::memcpy(&number, message.body.data(), sizeof number);
        want(number == reader.next.load() - 1, what + ": message " + std::to_string(number) + " came as number " +
                                                   std::to_string(reader.next.load() - 1));
        for (const MessageHold& hold : message.holds) {
            Arena& arena = arenas[hold.segment - 1];
            const BlockRecord& record = arena.metadata.block(hold.block);
            want(arena.metadata.is_live(hold.block, hold.generation), what + ": a block is gone");
            std::uint64_t sum = 0;
            want(::pread(arena.payload, &sum, sizeof sum, static_cast<off_t>(record.offset)) == sizeof sum, "pread");
            want(sum == sum_of(number, record.size), what + ": a block has the content of another");
            end(hold);
        }
        return true;
    }
    void reserve(std::uint64_t segment) {
        std::uint32_t reserved = 0;
        SegmentMetadata& metadata = arenas[segment - 1].metadata;
        Refusal refusal;
        want(metadata.reserve_holds(&reserved, refusal) == 0 && metadata.lock(0, 1000), "reserve_holds");
        metadata.grow_holds(reserved);
        metadata.unlock();
    }
    void end(const MessageHold& hold) {
        SegmentMetadata& metadata = arenas[hold.segment - 1].metadata;
        want(metadata.lock(0, 5000), "lock");
        metadata.release(hold.hold, false);
        metadata.unlock();
    }

    // All processes have ended: the ring and every arena are sound and empty.
    void audit(const std::string& what) {
        ManagerLookup all(*this);
        if (const char* wrong = ring.check(all)) fail(what + ": " + wrong);
        if (const char* wrong = broadcast.check()) fail(what + ": " + wrong);
        EncodedMessage message;
        const std::uint32_t slot = claim();
        while (ring.size() > 0)
            want(broadcast.drop(message, Drop::unneeded, 0, slot, all, 1000) == RingStatus::ok,
                 what + ": a message that every reader has read stays");
        reclaim(slot);
        for (Arena& arena : arenas) {
            arena.check(what);
            want(arena.metadata.header().live_blocks == 0,
                 what + ": " + std::to_string(arena.metadata.header().live_blocks) + " blocks are left");
        }
    }
};

// One process at the broadcast.
struct Member : RingMember {
    World& world;
    Broadcast broadcast{ring, world.group};
    Reader reader;

    Member(World& w, std::uint32_t s, int owned) : RingMember(w, s, owned), world(w) {}

    template <class Again>
    RingStatus retry_broadcast(EncodedMessage& message, Again&& again) {
        for (int tries = 0;; ++tries) {
            const RingStatus result = again(tries == 0 ? 0u : 50u);
            if (result == RingStatus::ok || result == RingStatus::empty) return result;
            for (const MessageHold& hold : message.holds) client.drop(hold);
            message.holds.clear();
            if (result == RingStatus::full) {
                want(retry_blocking([&](unsigned p) { return client.reserve_holds(lookup.missing, p); }) == Status::ok,
                     "holds");
            } else {
                want(result == RingStatus::busy && tries < 600, "the broadcast could not be locked");
            }
        }
    }

    void join(bool from_oldest) {
        EncodedMessage none;
        want(retry_broadcast(none, [&](unsigned p) { return broadcast.join(reader, slot, lookup, p, from_oldest); }) ==
                 RingStatus::ok,
             "join");
    }

    bool drop(Drop which, std::uint32_t taken = 0) {
        EncodedMessage message;
        const RingStatus result = retry_broadcast(
            message, [&](unsigned p) { return broadcast.drop(message, which, taken, slot, lookup, p); });
        for (const MessageHold& hold : message.holds) client.drop(hold);
        return result == RingStatus::ok;
    }

    // False: it was stopped while it waited for room.
    bool put(int blocks, std::size_t filling) {
        const std::uint32_t number = count_of(ring.header().tail.at.word.load());
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
        bool sent = false;
        for (int tries = 0; !sent; ++tries) {
            const std::uint32_t taken = ring.taken();
            std::size_t done = 0;
            const RingStatus result = ring.put({&message, 1}, slot, lookup, tries == 0 ? 0 : 50, &done);
            sent = result == RingStatus::ok;
            if (sent) break;
            if (result == RingStatus::no_room) {
                Refusal refusal;
                want(ring.reserve(ring.doubled(), world.group, slot, refusal) == 0, "reserve");
            } else if (result == RingStatus::full) {
                if (drop(Drop::passed) || drop(Drop::unneeded)) continue;
                if (ring.header().policy == static_cast<std::uint32_t>(Policy::drop_oldest) &&
                    drop(Drop::oldest, taken))
                    continue;
                if (world.board->stop) break;
                ring.await_room(taken, 50'000'000);
            } else {
                want(result == RingStatus::busy && tries < 6000, "put");
            }
        }
        if (!sent)
            for (const MessageHold& hold : message.holds) client.drop(hold);
        for (Block* b : mine) client.release(b);
        return sent;
    }

    // False: no message came in time.
    bool read(std::uint64_t patience_ns, Next next = Next::oldest) {
        EncodedMessage message;
        const RingStatus result = retry_broadcast(
            message, [&](unsigned p) { return broadcast.read(message, reader, next, slot, lookup, p); });
        if (result == RingStatus::empty) {
            if (patience_ns > 0) broadcast.await(reader, patience_ns);
            if (broadcast.lag(reader) == 0 && ring.size() > 0) drop(Drop::passed);
            return false;
        }
        std::uint32_t number = 0;
        want(message.body.size() >= sizeof number, "a body is short");
        std::memcpy(&number, message.body.data(), sizeof number);
        want(number == reader.next.load() - 1, "a message is out of its order");
        for (std::size_t i = sizeof number; i < message.body.size(); ++i)
            want(message.body[i] == static_cast<std::byte>(number), "a body is torn");
        for (const MessageHold& hold : message.holds) {
            Block* block = nullptr;
            want(client.receive(hold, &block) == Status::ok, "a block of a message is gone");
            std::uint64_t sum = 0;
            std::memcpy(&sum, block->data(), sizeof sum);
            want(sum == sum_of(number, block->bytes), "a block has the content of another");
            const auto* bytes = reinterpret_cast<const unsigned char*>(block->data());
            want(bytes[block->bytes - 1] == static_cast<unsigned char>(number), "a block is torn");
            client.release(block);
        }
        return true;
    }
};

// ---------------------------------------------------------------------------------------------------------- the matrix

const std::vector<std::string> kRoles = {"writer",
                                         "dropper",
                                         "reader",
                                         "last reader",
                                         "successor of a last reader",
                                         "leaver",
                                         "sweeper",
                                         "successor of a dropper",
                                         "manager",
                                         "skipper"};

void play(World& world, const std::string& role, std::uint32_t slot, int arena) {
    if (role == "manager") {
        World::ManagerLookup all(world);
        for (std::uint32_t dead = 1; dead < slot; ++dead)
            if (state_of(world.group.slot(dead).word) == SlotState::client) world.ring.undo_transfers(dead, all);
        return;
    }
    Member me(world, slot, arena);
    if (role == "writer" || role.ends_with("dropper")) {
        for (int i = 0; i < 4; ++i) me.put(i % 4, static_cast<std::size_t>(i) * 100);
    } else if (role == "sweeper") {
        while (me.drop(Drop::passed)) {
        }
    } else {
        me.join(true);
        if (role == "leaver") return me.broadcast.leave(me.reader);
        if (role == "skipper") {
            me.read(0, Next::newest);
            want(me.reader.skipped > 0 && me.reader.missed == 0, "a reader does not count the messages that it skips");
            while (me.drop(Drop::passed)) {
            }
            return;
        }
        while (me.read(0)) {
        }
    }
}

// One run of the matrix: a ring with messages, a reader that has died, and a witness that reads every message.
struct Run {
    std::string role, what;
    bool drops;
    World world;
    World::ManagerLookup all{world};
    Reader witness;
    int status = 0, arena = 1;
    std::vector<std::uint32_t> dead;

    Run(std::string as, std::string called)
        : role(std::move(as)),
          what(std::move(called)),
          drops(role.ends_with("dropper")),
          world(4, drops ? kMessages : 64, drops ? Policy::drop_oldest : Policy::block) {
        {
            const std::uint32_t slot = world.claim();
            Member first(world, slot, 1);
            for (std::uint32_t i = 0; i < kMessages; ++i) first.put(static_cast<int>(i % 4), 10);
            want(first.client.close(), what);
            world.reclaim(slot);
        }
        Reader dead_reader, parked;  // the second keeps the messages here
        const std::uint32_t dead_slot = world.claim();
        slot_ = world.claim();
        want(world.broadcast.join(dead_reader, dead_slot, all, 100, true) == RingStatus::ok, what);
        want(world.broadcast.join(parked, slot_, all, 100, true) == RingStatus::ok, what);
        want(world.broadcast.join(witness, slot_, all, 100, true) == RingStatus::ok, what);
        if (role.ends_with("last reader") || role == "sweeper" || role == "skipper" || role == "manager") {
            while (witness_reads()) {
            }
        }
        world.broadcast.leave(parked);
        world.reclaim(dead_slot);
        expected_ = witness.next;
    }

    pid_t start(const std::string& as, const std::string& spec) {
        dead.push_back(world.claim());
        ++arena;  // an arena that is still unused
        const pid_t pid = ::fork();
        want(pid >= 0, "fork");
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            failpoint::arm(spec);
            play(world, as, dead.back(), arena);
            std::_Exit(0);
        }
        return pid;
    }
    void victim(const std::string& as, const std::string& spec) {
        const pid_t pid = start(as, spec);
        want(::waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), what + ": the victim lives");
    }
    // A stopped holder blocks others no longer than their patience.
    void act_beside_a_stopped_one() {
        EncodedMessage message;
        const RingStatus got = world.broadcast.drop(message, Drop::passed, 0, kMaxSlots - 1, all, 10);
        want(got == RingStatus::ok || got == RingStatus::busy || got == RingStatus::empty,
             what + ": beside a stopped process");
        for (const MessageHold& hold : message.holds) {
            SegmentMetadata& metadata = world.arenas[hold.segment - 1].metadata;
            // The stopped process may hold the lock of its metadata.
            if (!metadata.lock(0, 10)) {
                dead.push_back(kMaxSlots - 1);
                break;
            }
            metadata.release(hold.hold, false);
            metadata.unlock();
        }
    }
    bool witness_reads() { return world.read(witness, slot_, what); }
    void finish() {
        for (const std::uint32_t one : dead) world.reclaim(one);
        // The witness reads all messages in order, under Policy::block without a gap.
        while (witness_reads()) want(drops || witness.next == ++expected_, what + ": a message is missed");
        want(witness.next == count_of(world.ring.header().tail.at.word.load()), what + ": the witness ends early");
        want(drops || world.broadcast.missed(witness) == 0, what + ": messages are missed");
        world.broadcast.leave(witness);
        world.audit(what);
    }

   private:
    std::uint32_t slot_ = 0, expected_ = 0;
};

bool run(const std::string& role, const std::string& point, int nth, const std::string& action) {
    const std::string spec = point + ":" + std::to_string(nth) + ":" + action;
    Run one(role, role + " " + spec);
    if (role == "successor of a last reader" || role == "manager")
        one.victim("last reader", "ring.get.one_moved:2:kill");
    if (role == "successor of a dropper") one.victim("dropper", "ring.get.one_moved:2:kill");
    const pid_t pid = one.start(role, spec);
    int status = 0;
    want(::waitpid(pid, &status, WUNTRACED) == pid, one.what);
    if (WIFSTOPPED(status)) {
        one.act_beside_a_stopped_one();
        ::kill(pid, SIGKILL);
        ::waitpid(pid, &status, 0);
    }
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool exited = WIFEXITED(status) && WEXITSTATUS(status) == 70;
    if (!killed && !exited) want(WIFEXITED(status) && WEXITSTATUS(status) == 0, one.what + ": the role failed");
    one.finish();
    return killed || exited;
}

int matrix() {
    const auto ours = points_where([](const std::string& point) { return point.starts_with("broadcast."); });
    const auto points = points_where([](const std::string& point) {
        return point.starts_with("broadcast.") || point.starts_with("ring.get.") || point.starts_with("ring.undo.") ||
               point.starts_with("metadata.add_hold.") || point.starts_with("metadata.release.");
    });
    return world::matrix(points, ours, kRoles, {1, 2, 3, 6, 12}, 12, run);
}

// ----------------------------------------------------------------------------------------------------------- the storm

class Storm {
   public:
    explicit Storm(std::uint32_t seed) : random_(seed) {
        for (int i = kArenas; i > 0; --i) spare_.push_back(i);
        begin(true);
        for (int i = 0; i < 3; ++i) begin(false);
    }
    // Kill a process, and start another in its place.
    void kill_one() {
        pause_before_kill(static_cast<std::uint32_t>(random_() % 5000), [&] { return world_.board->read.load(); });
        const std::size_t which = random_() % all_.size();
        const One one = all_[which];
        kill_running(one.pid);
        world_.reclaim(one.slot);
        all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(which));
        if (one.writes) orphans_.push_back(one.arena);
        recycle();
        for (int waits = 0; one.writes && spare_.empty(); ++waits) {
            want(waits < 2000, "no arena becomes free: a block is stranded");
            ::usleep(5000);
            recycle();
        }
        begin(one.writes);
    }
    // Returns the numbers of messages and of reads.
    std::pair<std::uint32_t, std::uint64_t> finish() {
        world_.board->stop = true;
        for (const One& one : all_) {
            int status = 0;
            for (int waits = 0; ::waitpid(one.pid, &status, WNOHANG) == 0; ++waits) {
                want(waits < 2000, "a process hangs at the end");
                ::usleep(5000);
            }
            want(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a process failed: " + std::to_string(status));
            world_.reclaim(one.slot);
        }
        want(world_.board->missed == 0, "readers missed messages that may not be dropped");
        const std::uint32_t messages = count_of(world_.ring.header().tail.at.word.load());
        world_.audit("storm");
        return {messages, world_.board->read.load()};
    }

   private:
    struct One {
        pid_t pid;
        std::uint32_t slot;
        bool writes;
        int arena;
    };

    void begin(bool writes) {
        int arena = 0;
        if (writes) {
            want(!spare_.empty(), "arenas");
            arena = spare_.back();
            spare_.pop_back();
        }
        const std::uint32_t slot = world_.claim();
        const auto seed = static_cast<std::uint32_t>(random_());
        const pid_t pid = ::fork();
        want(pid >= 0, "fork");
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            Member me(world_, slot, arena);
            std::mt19937 dice(seed);
            writes ? write(me, dice) : read(me, dice);
            std::_Exit(me.client.close() ? 0 : 3);
        }
        all_.push_back({pid, slot, writes, arena});
    }
    void write(Member& me, std::mt19937& dice) {
        while (!world_.board->stop) me.put(static_cast<int>(dice() % 4), dice() % 20 == 0 ? 20000 : dice() % 300);
    }
    void read(Member& me, std::mt19937& dice) {
        me.join(dice() % 2 == 0);
        std::uint32_t next = me.reader.next;
        while (!world_.board->stop || me.broadcast.lag(me.reader) > 0) {
            const std::uint64_t before = me.reader.skipped;
            if (!me.read(20'000'000, dice() % 10 == 0 ? Next::newest : Next::oldest)) continue;
            next += static_cast<std::uint32_t>(me.reader.skipped - before) + 1;
            want(me.reader.next == next, "a reader has a gap");
            ++world_.board->read;
            if (dice() % 50 == 0) ::usleep(500);
        }
        world_.board->missed += me.broadcast.missed(me.reader);
        me.broadcast.leave(me.reader);
    }
    void recycle() {
        std::erase_if(orphans_, [&](int orphan) {
            if (!world_.arenas[static_cast<std::size_t>(orphan) - 1].empty_for_another()) return false;
            spare_.insert(spare_.begin(), orphan);
            return true;
        });
    }

    World world_{kArenas, 100, Policy::block};
    std::mt19937 random_;
    std::vector<One> all_;
    std::vector<int> spare_, orphans_;  // arenas
};

int storm(std::uint32_t kills, std::uint32_t seed) {
    Storm storm(seed);
    for (std::uint32_t killed = 0; killed < kills; ++killed) storm.kill_one();
    const auto [messages, reads] = storm.finish();
    std::printf("%u kills, %u messages, %llu reads: none wrong, none missed\n", kills, messages,
                static_cast<unsigned long long>(reads));
    return 0;
}

// Another writer makes room after a put has found none and before it drops a message.
void between() {
    World world(1, 2, Policy::drop_oldest);
    const std::uint32_t slot = world.claim();
    {
        Member me(world, slot, 1);
        me.join(false);
        for (int i = 0; i < 2; ++i) me.put(1, 10);
        const std::uint32_t taken = me.ring.taken();
        me.put(0, 10);  // drops one
        want(!me.drop(Drop::oldest, taken) && me.broadcast.missed(me.reader) == 1,
             "a message is dropped although there is room");
        want(me.drop(Drop::oldest, taken + 1) && me.broadcast.missed(me.reader) == 2, "the oldest can be dropped");
        me.ring.header().head.asleep = 1;
        me.broadcast.leave(me.reader);
        want(me.ring.header().head.asleep == 0, "a writer that waits for room is not woken when a reader leaves");
        while (me.drop(Drop::unneeded)) {
        }
        want(me.client.close(), "close");
    }
    world.reclaim(slot);
    world.audit("between");
}

}  // namespace

int main(int argc, char** argv) {
    set_bound(900);
    if (argc > 1 && std::string{argv[1]} == "storm")
        return storm(argument(argc, argv, 2, 500), argument(argc, argv, 3, std::random_device{}()));
    between();
    return matrix();
}
