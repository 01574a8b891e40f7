// Rings in messages of rings: which ones the manager ends, when it is killed, stopped or replaced at every point of its
// look, and when a client opens a ring meanwhile.
//
//   reach     the matrix: kill, stop and exit at every point; exits with 0 when all were reached and every check passed
//
// Three rings, each in a message of the one before it, and the first in a message of the last. The harness is the next
// manager.
#include <signal.h>
#include <sys/prctl.h>

#include <array>

#include "base/failpoint.hpp"
#include "ipc/reach.hpp"
#include "matrix.hpp"
#include "world.hpp"

using namespace world;

namespace {

constexpr std::uint32_t kRings = 3;
const std::vector<std::string> kRoles = {"manager", "manager beside an opener", "opener"};

struct OneRing {
    SegmentMetadata metadata;
    os::Descriptor file;
    std::byte* at = nullptr;
    Ring ring;

    void make(std::uint32_t index, std::uint32_t slot) {
        want(metadata.create("ring-metadata", index + 1, 0, 0, kRingBytes, true) == 0, "metadata.create");
        int fd = -1;
        want(os::memfd("ring", kRingBytes, &fd) == 0, "memfd");
        file = os::Descriptor(fd);
        want(os::map_shared(fd, kRingBytes, &at) == 0 && os::reserve(file, at, 0, kFirstRingBytes) == 0, "map");
        Ring::make(at, kFirstRing + index);
        want(ring.open(at, kRingBytes, file), "ring.open");
        std::uint32_t reserved = 0;
        Refusal refusal;
        want(metadata.reserve_blocks(1, refusal) == 0 && metadata.reserve_holds(&reserved, refusal) == 0, "reserve");
        want(metadata.lock_untrusted(), "lock");
        metadata.grow_holds(reserved);
        want(metadata.hand_out(0, 0, kRingBytes, slot) == 0, "hand_out");
        metadata.unlock();
    }
    ~OneRing() { os::unmap(at, kRingBytes); }
};

struct World {
    Group group;
    std::array<OneRing, kRings> rings;

    World() {
        want(group.create(7) == 0, "group.create");
        const std::uint32_t slot = group.claim(SlotState::client, 1, 1, 0);
        for (std::uint32_t i = 0; i < kRings; ++i) rings[i].make(i, slot);
    }
    struct ManagerLookup final : SegmentLookup {
        explicit ManagerLookup(World& all) : world(all) {}
        SegmentMetadata* find(std::uint64_t segment) override {
            return segment - 1 < kRings ? &world.rings[segment - 1].metadata : nullptr;
        }
        World& world;
    };
    std::size_t look() {
        std::vector<Reached> all;
        all.reserve(rings.size());
        for (OneRing& one : rings) all.push_back({&one.ring, &one.metadata});
        return end_unreached(group, all);
    }
    std::size_t ended() const {
        std::size_t count = 0;
        for (const OneRing& one : rings) count += group.has_ended(one.metadata.header().sealed.load());
        return count;
    }
    void reclaim(std::uint32_t slot) {
        for (OneRing& one : rings) {
            want(!one.ring.has_transfer_of(slot), "no process dies in a transfer here");
            want(one.metadata.lock(0, 5000), "the lock of a segment could not be taken");
            one.metadata.release_holds_of(slot);
            one.metadata.unlock();
        }
        set_state(group, slot, SlotState::free);
    }
};

struct Member {
    World& world;
    std::uint32_t slot;
    Connection connection;
    Client client;
    struct ClientLookup final : SegmentLookup {
        explicit ClientLookup(Client& c) : client(c) {}
        SegmentMetadata* find(std::uint64_t segment) override { return client.find(segment); }
        Client& client;
    } lookup{client};

    Member(World& w, std::uint32_t s) : world(w), slot(s), client(w.group, s, std::exchange(connection.ours, -1)) {
        for (std::uint32_t i = 0; i < kRings; ++i) {
            const OneRing& one = w.rings[i];
            want(client.add_segment(i + 1, ::fcntl(one.metadata.fd(), F_DUPFD_CLOEXEC, 3),
                                    ::fcntl(one.file.number(), F_DUPFD_CLOEXEC, 3), kRingBytes, SegmentKind::ring,
                                    false) == 0,
                 "add_segment");
        }
    }
    void put(std::uint32_t into, const Block& block) {
        EncodedMessage message;
        message.mark = client.new_mark();
        MessageHold hold{};
        want(retry_blocking([&](unsigned p) { return client.lend(block, message.mark, p, &hold); }) == Status::ok,
             "lend");
        message.holds.push_back(hold);
        std::size_t done = 0;
        want(world.rings[into].ring.put({&message, 1}, slot, lookup, 1000, &done) == RingStatus::ok, "put");
    }
    // The ring in the oldest message of ring `from`.
    Block* get(std::uint32_t from) {
        EncodedMessage message;
        message.body.reserve(1);
        message.holds.reserve(4);
        std::size_t done = 0;
        want(world.rings[from].ring.get({&message, 1}, slot, lookup, 1000, &done) == RingStatus::ok, "get");
        Block* block = nullptr;
        want(message.holds.size() == 1 && client.receive(message.holds[0], &block) == Status::ok, "a ring is gone");
        return block;
    }
    Status open(std::uint32_t index, Block** block) {
        return retry_blocking([&](unsigned p) { return client.attach({index + 1, 0, 1}, p, block); });
    }
};

// Puts every ring into the one before it; no process holds any.
void tie(World& world) {
    Member first(world, 1);
    std::array<Block*, kRings> blocks{};
    for (std::uint32_t i = 0; i < kRings; ++i)
        want(first.client.receive({i + 1, 0, 1, 0, 0}, &blocks[i]) == Status::ok, "receive");
    for (std::uint32_t i = 0; i < kRings; ++i) first.put(i, *blocks[(i + 1) % kRings]);
    want(world.group.lead() == 0 && world.look() == 0, "a ring that a process holds was ended");
    for (Block* block : blocks) first.client.release(block);
    want(first.client.close(), "close");
    world.group.leave();
    set_state(world.group, 1, SlotState::free);
}

// Opens the first ring and follows the cycle: all rings must be there.
void go_round(Member& me, Block* here, const std::string& what) {
    for (std::uint32_t i = 0; i < kRings; ++i) {
        Block* next = me.get(i);
        want(next->segment->id == (i + 1) % kRings + 1, what + ": a message has another ring");
        me.put(i, *next);
        me.client.release(here);
        here = next;
    }
    me.client.release(here);
}

void play(World& world, const std::string& role, std::uint32_t slot) {
    if (role == "opener") {
        Member me(world, slot);
        Block* block = nullptr;
        if (me.open(0, &block) == Status::ok) go_round(me, block, role);
        return;
    }
    want(world.group.lead() == 0, "lead");
    world.look();
}

// Continues a stopped process, which then ends.
void go_on(pid_t pid, const std::string& what) {
    int status = 0;
    ::kill(pid, SIGCONT);
    want(::waitpid(pid, &status, 0) == pid && WIFEXITED(status), what);
}

// Opens a ring. Either it has ended, and so have all, or it stays, whatever the manager does next.
void open_beside(World& world, pid_t manager, bool stopped, const std::string& what) {
    const std::uint32_t late = world.group.claim(SlotState::client, 1, 1, 0);
    {
        Member me(world, late);
        Block* block = nullptr;
        const bool gone = me.open(0, &block) == Status::gone;
        want(world.ended() == (gone ? kRings : 0), what + ": some have ended and some have not");
        if (stopped) go_on(manager, what);
        want(world.ended() == (gone ? kRings : 0), what + ": a ring that is held was ended");
        if (!gone) go_round(me, block, what);
        want(me.client.close(), what);
    }
    world.reclaim(late);
}

// No process can reach a ring: all have ended, and their holds can be released.
void audit(World& world, const std::string& what) {
    want(world.ended() == kRings || world.look() == kRings, what + ": unreachable rings are not ended");
    want(world.ended() == kRings, what + ": not all have ended");
    World::ManagerLookup all(world);
    for (OneRing& one : world.rings)
        if (const char* wrong = one.ring.check(all)) fail(what + ": " + wrong);
    for (OneRing& one : world.rings) {
        want(one.metadata.lock(0, 5000), what + ": a lock could not be taken");
        for (std::uint32_t i = 0; i < kRings; ++i) one.metadata.release_holds_of(kFirstRing + i);
        const char* wrong = one.metadata.check();
        one.metadata.unlock();
        if (wrong) fail(what + ": " + wrong);
        want(one.metadata.header().live_blocks == 0, what + ": a ring is still held");
    }
}

bool run(const std::string& role, const std::string& point, int nth, const std::string& action) {
    const std::string what = role + " " + point + ":" + std::to_string(nth) + ":" + action;
    World world;
    tie(world);
    const std::uint32_t slot = world.group.claim(SlotState::client, 1, 1, 0);
    std::uint32_t look = 0;
    if (role == "opener") {  // in the middle of a look
        want(world.group.lead() == 0, "lead");
        look = world.group.begin_look();
        for (OneRing& one : world.rings) one.metadata.header().sealed.store(look);
    }
    const pid_t pid = ::fork();
    want(pid >= 0, "fork");
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        failpoint::arm(point + ":" + std::to_string(nth) + ":" + action);
        play(world, role, slot);
        std::_Exit(0);
    }
    int status = 0;
    want(::waitpid(pid, &status, WUNTRACED) == pid, what);
    const bool stopped = WIFSTOPPED(status);
    const bool passed = stopped || WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 70);
    if (!passed) want(WIFEXITED(status) && WEXITSTATUS(status) == 0, what + ": the role failed");

    if (role == "opener")
        want(!world.group.decide(look) && world.ended() == 0, what + ": a look is decided though a ring was opened");
    if (role == "manager beside an opener") open_beside(world, pid, stopped, what);
    if (role != "opener") want(world.group.lead() == 0, what + ": the next manager cannot lead");
    if (stopped && role == "manager") {  // continues after it has been replaced
        want(world.ended() == kRings || world.look() == kRings, what + ": the next manager does not end them");
        go_on(pid, what);
    } else if (stopped && role == "opener") {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, &status, 0);
    }
    world.reclaim(slot);
    audit(world, what);
    return passed;
}

}  // namespace

int main() {
    set_bound(600);
    const auto points = points_where(
        [](const std::string& point) { return point.starts_with("reach.") || point.starts_with("group.may_open."); });
    return world::matrix(points, points, kRoles, {1, 2, 3}, 3, run);
}
