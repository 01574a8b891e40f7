// Writers and readers of one store, killed: at every failpoint of it in every role, and at random.
//
//   store                         the matrix: kill, stop and exit at every point; exits with 0 when all were reached
//   and every check passed store storm [KILLS] [SEED]    random kills of processes that put, replace, remove, create
//   and read, under load
//
// The harness is the manager: it undoes the transfers of a dead client, then releases its holds. An object
// has its number in its body and in each of its blocks, so that a part of an object or a block of another is detected.
#include <signal.h>
#include <sys/prctl.h>

#include <random>

#include "base/failpoint.hpp"
#include "ipc/store.hpp"
#include "matrix.hpp"
#include "ring_world.hpp"

using namespace world;

namespace {

constexpr int kArenas = 24;
constexpr std::uint32_t kInFile = 0xfffffffe;  // the number of an object that is spilled
constexpr int kBase = 12;                      // objects at the beginning of a run

// The objects that are put at once.
const std::vector<std::string> kGroup = {"group/a", "group/b", "group/c"};

std::uint64_t sum_of(std::uint32_t number, std::uint64_t bytes) {
    return (std::uint64_t{number} + 1) * 0x9e3779b97f4a7c15u ^ bytes;
}
std::string base_key(int i) {
    return "base/" + std::to_string(i);
}

struct Board {
    std::atomic<bool> stop;
    std::atomic<std::uint64_t> read, put;
};

struct World : RingWorld {
    Store store{ring, group};
    SharedBoard<Board> board;

    explicit World(int count, std::uint64_t max_bytes = 0, const char* spill = "") : RingWorld(count) {
        store.make(max_bytes, true, spill, *spill ? 3000 : 0);
    }
};

// One process at the store.
struct Member : RingMember {
    World& world;
    Store store{ring, world.group};
    std::uint64_t reserved = 0;  // the version of the last reservation

    Member(World& w, std::uint32_t s, int owned) : RingMember(w, s, owned), world(w) {}

    template <class Call>
    RingStatus until_done(Call&& call) {
        for (int tries = 0;; ++tries) {
            want(tries < 6000, "the store could not be locked");
            const RingStatus result = call(tries == 0 ? 0u : 50u);
            if (result == RingStatus::no_room) {
                Refusal refusal;
                want(ring.reserve(store.room(), world.group, slot, refusal) == 0, "reserve");
            } else if (result != RingStatus::busy) {
                want(result != RingStatus::damaged && result != RingStatus::need_mapping, "the store is damaged");
                return result;
            }
        }
    }

    void write(EncodedMessage& message, std::vector<Block*>& mine, std::uint32_t number, int blocks) {
        message.mark = client.new_mark();
        message.body.resize(sizeof number + number % 300, static_cast<std::byte>(number));
        std::memcpy(message.body.data(), &number, sizeof number);
        message.bytes = message.body.size();
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
            message.bytes += bytes;
            mine.push_back(block);
        }
    }

    RingStatus put(const std::vector<std::string>& keys, std::uint32_t number, int blocks, IfPresent present,
                   std::uint64_t expires = 0, bool pinned = false) {
        std::vector<EncodedMessage> messages(keys.size());
        std::vector<Block*> mine;
        std::vector<NewObject> objects;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            write(messages[i], mine, number, blocks);
            objects.push_back({.key = StoreKey(keys[i]),
                               .message = &messages[i],
                               .expires = expires,
                               .pinned = pinned,
                               .version = reserved});
        }
        std::size_t which = 0;
        const RingStatus result =
            until_done([&](unsigned p) { return store.put(objects, present, slot, lookup, p, &which); });
        if (result != RingStatus::ok)
            for (const EncodedMessage& message : messages)
                for (const MessageHold& hold : message.holds) client.drop(hold);
        for (Block* b : mine) client.release(b);
        return result;
    }
    // Put three objects at once. They are pinned: the store evicts objects one by one.
    void put_group(std::uint32_t number) { put(kGroup, number, 1, IfPresent::replace, 0, true); }
    bool remove(const std::string& key) {
        return until_done([&](unsigned p) { return store.remove(StoreKey(key), slot, lookup, p); }) == RingStatus::ok;
    }
    std::uint32_t expire() {
        std::uint32_t at = 0, expired = 0;
        while (until_done([&](unsigned p) { return store.expire(&at, &expired, slot, lookup, p); }) == RingStatus::ok) {
        }
        return expired;
    }
    bool reserve_key(const std::string& key) {
        return until_done([&](unsigned p) { return store.reserve_key(StoreKey(key), &reserved, slot, lookup, p); }) ==
               RingStatus::ok;
    }
    bool give_up(const std::string& key) {
        return until_done([&](unsigned p) { return store.give_up(StoreKey(key), reserved, slot, lookup, p); }) ==
               RingStatus::ok;
    }
    std::vector<std::string> keys(std::size_t at_most = 10'000) {
        Store::Keys found(at_most, at_most * 64);
        until_done([&](unsigned p) {
            found.clear();
            return store.keys("", "", found, slot, lookup, p);
        });
        std::vector<std::string> all;
        all.reserve(found.size());
        for (std::size_t i = 0; i < found.size(); ++i) all.emplace_back(found.key(i));
        return all;
    }
    void spill_one() {
        Store::Found found;
        found.key.reserve(kMaxKeyBytes);
        if (until_done([&](unsigned p) { return store.choose(found, {}, slot, lookup, p); }) == RingStatus::ok)
            until_done([&](unsigned p) { return store.spill(StoreKey(found.key), found.version, slot, lookup, p); });
    }
    // The number of the object of a key, after all of it was checked; kNone: there is none.
    std::uint32_t get(const std::string& key) {
        EncodedMessage message;
        for (;;) {
            const RingStatus result = until_done([&](unsigned p) {
                std::uint64_t version = 0;
                return store.get(StoreKey(key), &version, message, slot, lookup, p);
            });
            if (result == RingStatus::ok) break;
            for (const MessageHold& hold : message.holds) client.drop(hold);
            message.holds.clear();
            if (result == RingStatus::empty) return kNone;
            if (result == RingStatus::spilled) return kInFile;
            want(retry_blocking([&](unsigned p) { return client.reserve_holds(lookup.missing, p); }) == Status::ok,
                 "holds");
        }
        std::uint32_t number = 0;
        want(message.body.size() >= sizeof number, "a body is short");
        std::memcpy(&number, message.body.data(), sizeof number);
        want(message.body.size() == sizeof number + number % 300, "a body has the length of another");
        for (std::size_t i = sizeof number; i < message.body.size(); ++i)
            want(message.body[i] == static_cast<std::byte>(number), "a body is torn");
        for (const MessageHold& hold : message.holds) {
            Block* block = nullptr;
            want(client.receive(hold, &block) == Status::ok, "a block of an object is gone");
            std::uint64_t sum = 0;
            std::memcpy(&sum, block->data(), sizeof sum);
            want(sum == sum_of(number, block->bytes), "a block has the content of another");
            const auto* bytes = reinterpret_cast<const unsigned char*>(block->data());
            want(bytes[block->bytes - 1] == static_cast<unsigned char>(number), "a block is torn");
            client.release(block);
        }
        return number;
    }
};

// All processes have ended: every object in the store is whole, and no block is left after the store is emptied.
void audit(World& world, const std::string& what) {
    const std::uint32_t slot = world.claim();
    {
        Member me(world, slot, 0);
        std::uint32_t group = kNone;
        std::size_t parts = 0;
        std::string last;
        for (const std::string& key : me.keys()) {
            const std::uint32_t number = me.get(key);
            want(number != kNone, what + ": a listed key is missing");
            want(last < key, what + ": keys are out of order");
            last = key;
            if (!key.starts_with("group/")) continue;
            want(group == kNone || group == number, what + ": half of a put is there");
            group = number;
            ++parts;
        }
        if (const char* wrong = me.store.check()) fail(what + ": " + wrong);
        want(parts == 0 || parts == kGroup.size(), what + ": a part of a put is missing");
        for (const std::string& key : me.keys()) want(me.remove(key), what + ": a key cannot be removed");
        me.expire();
        if (const char* wrong = me.store.check()) fail(what + ": " + wrong);
        want(me.store.header().objects == 0 && me.store.header().bytes == 0, what + ": the store is not empty");
        want(me.client.close(), what + ": close");
    }
    world.reclaim(slot);
    for (Arena& arena : world.arenas) {
        arena.check(what);
        want(arena.metadata.header().live_blocks == 0,
             what + ": " + std::to_string(arena.metadata.header().live_blocks) + " blocks are left");
    }
}

// ---------------------------------------------------------------------------------------------------------- the matrix

const std::vector<std::string> kRoles = {"writer",
                                         "remover",
                                         "expirer",
                                         "reader",
                                         "creator",
                                         "filler",
                                         "evictor",
                                         "spiller",
                                         "successor of a spiller",
                                         "successor of a writer",
                                         "successor of a publisher",
                                         "successor of a remover",
                                         "manager"};

void play(World& world, const std::string& role, std::uint32_t slot, int arena) {
    if (role == "manager") {
        World::ManagerLookup all(world);
        for (std::uint32_t dead = 1; dead < slot; ++dead)
            if (state_of(world.group.slot(dead).word) == SlotState::client) world.ring.undo_transfers(dead, all);
        return;
    }
    Member me(world, slot, arena);
    if (role == "remover") {
        for (int i = 0; i < kBase; i += 2) want(me.remove(base_key(i)) || i > 0, "a base object is missing");
    } else if (role == "expirer") {
        for (std::uint32_t i = 0; i < 3; ++i) me.put({"short/" + std::to_string(i)}, i, 2, IfPresent::refuse, 1);
        me.expire();
        for (std::uint32_t i = 0; i < 3; ++i)
            want(me.get("short/" + std::to_string(i)) == kNone, "an expired object is present");
    } else if (role == "reader") {
        for (int i = 0; i < kBase; ++i) want(me.get(base_key(i)) != kNone, "a base object is missing");
    } else if (role == "creator") {
        want(me.reserve_key("made"), "a key cannot be reserved");
        want(me.get("made") == kNone, "an object that is not sealed can be read");
        me.put({"made"}, 7, 2, IfPresent::seal);
        want(me.reserve_key("given up") && me.give_up("given up"), "a key cannot be given up");
    } else if (role.ends_with("spiller")) {
        for (int i = 0; i < 8; ++i) me.spill_one();
        me.put({base_key(1)}, 100, 2, IfPresent::replace);
        me.remove(base_key(2));
    } else if (role == "filler") {
        for (std::uint32_t i = 0; i < 700; ++i)
            me.put({"more/" + std::to_string(i)}, i, i % 50 == 0, IfPresent::refuse);
    } else {
        for (std::uint32_t i = 0; i < 3; ++i) {
            me.put({"new/" + std::to_string(i)}, i, static_cast<int>(i) % 3, IfPresent::refuse);
            me.put({base_key(1)}, 100 + i, 2, IfPresent::replace);
            me.put_group(50 + i);
        }
    }
}

struct Run {
    std::string role, what;
    World world;
    int status = 0, arena = 1;
    std::vector<std::uint32_t> dead;

    Run(std::string as, std::string called)
        : role(std::move(as)),
          what(std::move(called)),
          world(4, role == "evictor" ? 40'000 : 0, role.ends_with("spiller") ? "somewhere" : "") {
        const std::uint32_t slot = world.claim();
        {
            Member first(world, slot, 1);
            for (int i = 0; i < kBase; ++i)
                want(
                    first.put({base_key(i)}, static_cast<std::uint32_t>(i), i % 4, IfPresent::refuse) == RingStatus::ok,
                    what);
            want(first.client.close(), what);
        }
        world.reclaim(slot);
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
    void finish() {
        for (const std::uint32_t one : dead) world.reclaim(one);
        const bool removes = role.ends_with("remover") || role == "evictor" || role.ends_with("spiller");
        const std::uint32_t slot = world.claim();
        {
            Member me(world, slot, 0);
            for (int i = 0; i < kBase; ++i)
                want((removes && (i % 2 == 0 || !role.ends_with("remover"))) || me.get(base_key(i)) != kNone,
                     what + ": " + base_key(i) + " is lost");
            want(me.client.close(), what + ": close");
        }
        world.reclaim(slot);
        audit(world, what);
    }
};

bool run(const std::string& role, const std::string& point, int nth, const std::string& action) {
    const std::string spec = point + ":" + std::to_string(nth) + ":" + action;
    Run one(role, role + " " + spec);
    if (role == "successor of a writer" || role == "manager") one.victim("writer", "store.put.one_moved:2:kill");
    if (role == "successor of a publisher") one.victim("writer", "store.put.published:3:kill");
    if (role == "successor of a spiller") one.victim("spiller", "store.spill.done:2:kill");
    if (role == "successor of a remover") one.victim("remover", "store.release.one:2:kill");
    const pid_t pid = one.start(role, spec);
    int status = 0;
    want(::waitpid(pid, &status, WUNTRACED) == pid, one.what);
    if (WIFSTOPPED(status)) {
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
    const auto ours = points_where([](const std::string& point) { return point.starts_with("store."); });
    const auto points = points_where([](const std::string& point) {
        return point.starts_with("store.") || point == "broadcast.read.one_held" || point.starts_with("ring.undo.") ||
               point.starts_with("metadata.release.");
    });
    return world::matrix(points, ours, kRoles, {1, 2, 3, 6, 12}, 12, run);
}

// ----------------------------------------------------------------------------------------------------------- the storm

class Storm {
   public:
    explicit Storm(std::uint32_t seed) : random_(seed) {
        for (int i = kArenas; i > 0; --i) spare_.push_back(i);
        for (int i = 0; i < 2; ++i) begin(true);
        for (int i = 0; i < 2; ++i) begin(false);
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
    std::pair<std::uint64_t, std::uint64_t> finish() {
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
        audit(world_, "storm");
        return {world_.board->put.load(), world_.board->read.load()};
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
            while (!world_.board->stop) writes ? write(me, dice) : read(me, dice);
            std::_Exit(me.client.close() ? 0 : 3);
        }
        all_.push_back({pid, slot, writes, arena});
    }
    // Few keys, so that writers compete; old objects are removed, so that arenas of the dead become free.
    void write(Member& me, std::mt19937& dice) {
        const auto number = static_cast<std::uint32_t>(dice());
        const std::string key = "k" + std::to_string(dice() % 60);
        switch (dice() % 7) {
            case 3:
                me.put({key}, number, 2, IfPresent::replace, os::boot_ns() + 1'000'000);
                break;
            case 4:
                if (dice() % 8 == 0) me.expire();
                break;
            case 0:
                me.put_group(number);
                break;
            case 1:
                me.remove(key);
                break;
            case 2:
                if (!me.reserve_key(key)) break;
                if (dice() % 4 != 0)
                    me.put({key}, number, 2, IfPresent::seal);
                else
                    me.give_up(key);
                break;
            default:
                me.put({key}, number, static_cast<int>(dice() % 4),
                       dice() % 2 ? IfPresent::replace : IfPresent::refuse);
        }
        ++world_.board->put;
    }
    void read(Member& me, std::mt19937& dice) {
        me.get("k" + std::to_string(dice() % 60));
        if (dice() % 50 == 0) me.keys();
        ++world_.board->read;
    }
    void recycle() {
        std::erase_if(orphans_, [&](int orphan) {
            if (!world_.arenas[static_cast<std::size_t>(orphan) - 1].empty_for_another()) return false;
            spare_.insert(spare_.begin(), orphan);
            return true;
        });
    }

    World world_{kArenas, 60'000};
    std::mt19937 random_;
    std::vector<One> all_;
    std::vector<int> spare_, orphans_;  // arenas
};

int storm(std::uint32_t kills, std::uint32_t seed) {
    Storm storm(seed);
    for (std::uint32_t killed = 0; killed < kills; ++killed) storm.kill_one();
    const auto [puts, reads] = storm.finish();
    std::printf("%u kills, %llu changes, %llu reads: none wrong, nothing left\n", kills,
                static_cast<unsigned long long>(puts), static_cast<unsigned long long>(reads));
    return 0;
}

// A key reserved by a dead process is cleared by puts of others, even if no call names the key.
void reserved() {
    World world(2);
    const std::uint32_t dead = world.claim(), slot = world.claim();
    {
        Member gone(world, dead, 1);
        want(gone.reserve_key("left"), "reserve");
        want(gone.client.close(), "close");
    }
    world.reclaim(dead);
    {
        Member me(world, slot, 2);
        const auto left = [&] {
            const StoreRecord* record = nullptr;
            for (std::uint32_t at = 1; at < me.store.header().high; at += record->units) {
                record =
                    reinterpret_cast<const StoreRecord*>(world.ring_at + kMessagesAt + std::size_t{at} * kRingUnit);
                if (state_of_record(record->word) == StoreState::reserved) return true;
            }
            return false;
        };
        want(left(), "no key is reserved");
        for (int i = 0; i < 8; ++i) me.put({"k"}, 1, 0, IfPresent::replace);
        want(!left(), "a reserved key of the dead stays");
        if (const char* wrong = me.store.check()) fail(std::string{"reserved: "} + wrong);
        want(me.remove("k") && me.client.close(), "close");
    }
    world.reclaim(slot);
}

// Enough keys to make every part of the index grow, against a plain list.
void many(std::uint32_t count) {
    World world(1);
    const std::uint32_t slot = world.claim();
    {
        Member me(world, slot, 1);
        std::mt19937 dice(1);  // NOLINT(bugprone-random-generator-seed): every run has the same keys
        std::set<std::string> known;
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::string key = std::string(dice() % 40, 'x') + std::to_string(dice() % count);
            const bool there = known.contains(key);
            if (dice() % 4 == 0) {
                want(me.remove(key) == there, "remove() of a key returned the wrong result");
                known.erase(key);
            } else {
                want((me.put({key}, i, 0, IfPresent::refuse) == RingStatus::exists) == there, "a key is there twice");
                known.insert(key);
            }
        }
        if (const char* wrong = me.store.check()) fail(std::string{"many: "} + wrong);
        want(me.keys(count) == std::vector<std::string>(known.begin(), known.end()), "the wrong keys are listed");
        want(me.client.close(), "close");
    }
    world.reclaim(slot);
}

}  // namespace

int main(int argc, char** argv) {
    set_bound(900);
    if (argc > 1 && std::string{argv[1]} == "storm")
        return storm(argument(argc, argv, 2, 500), argument(argc, argv, 3, std::random_device{}()));
    many(100'000);
    reserved();
    return matrix();
}
