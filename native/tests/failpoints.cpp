// Kill, stop and exit at every failpoint of the core, in every role that passes it. The world must be sound afterwards.
//
//   failpoints                run the matrix; exits with 0 when every point was reached and every check passed
//   failpoints --list         names of the points in this binary
//   failpoints ROLE ...       (internal) one role, as a process of its own, armed by SHMTENSOR_FAILPOINT
#include <signal.h>
#include <spawn.h>

#include <algorithm>
#include <filesystem>

#include "base/failpoint.hpp"
#include "matrix.hpp"
#include "world.hpp"

using namespace world;

extern char** environ;

namespace {

// Descriptors that a role inherits.
constexpr int kGroupFd = 50, kConnectionFd = 51, kOwnMetadata = 52, kOwnPayload = 53, kPeerMetadata = 54,
              kPeerPayload = 55;
constexpr std::uint64_t kOwnId = 2, kPeerId = 1;  // the role's arena, the harness's arena
constexpr std::uint32_t kHarness = 1, kRole = 2, kLate = 3;
constexpr std::size_t kBlocks = 6;
// Points that other programs test.
constexpr const char* kElsewhere[] = {"ring.", "sync.", "broadcast.", "reach.", "group.may_open.", "timelines."};
const std::vector<std::string> kRoles = {"owner", "peer", "forker", "spawner", "manager", "successor"};

struct Named {
    BlockName block;
    Ticket ticket;
};

// ----------------------------------------------------------------------------------------------------------- the roles

struct Role {
    Group group;
    std::unique_ptr<Client> client;
    SegmentMetadata own;  // a second mapping of the own arena, to act as another process

    Role() {
        want(group.open(kGroupFd) == 0, "group.open");
        client = std::make_unique<Client>(group, kRole, kConnectionFd, 0);
        const auto copy = [](int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, 100); };
        want(client->add_segment(kOwnId, copy(kOwnMetadata), copy(kOwnPayload), kArenaBytes, SegmentKind::arena,
                                 true) == 0,
             "own");
        want(client->add_segment(kPeerId, copy(kPeerMetadata), copy(kPeerPayload), kArenaBytes, SegmentKind::arena,
                                 false) == 0,
             "peer");
        want(own.open(copy(kOwnMetadata), kOwnId, kArenaBytes, false) == 0, "own metadata");
    }
    Block* allocate(std::uint64_t bytes) {
        Block* block = nullptr;
        want(retry_blocking([&](unsigned p) { return client->allocate(bytes, p, &block); }) == Status::ok, "allocate");
        fill(*block, 0x5a);
        return block;
    }
    Block* attach(const Named& n) {
        Block* block = nullptr;
        want(retry_blocking([&](unsigned p) { return client->attach(n.block, p, &block); }) == Status::ok, "attach");
        return block;
    }
    Block* redeem(const Named& n) {
        Block* block = nullptr;
        want(retry_blocking([&](unsigned p) { return client->redeem(n.block, n.ticket, p, &block); }) == Status::ok,
             "redeem");
        return block;
    }
};

void play_owner() {
    Role role;
    std::vector<Block*> blocks;
    for (const std::uint64_t bytes : {100u, 5000u, 70000u, 3u << 20}) blocks.push_back(role.allocate(bytes));
    Ticket ticket{};
    want(role.client->ticket(*blocks[1], 0, 1000, &ticket) == Status::ok, "ticket");
    for (Block* b : blocks) role.client->release(b);
    want(role.own.lock(0, 1000), "lock");
    want(role.own.release(ticket.hold, false) == Left::returned, "the ticket was the last hold");
    role.own.unlock();
    role.client->release(role.allocate(200));  // no block of this size was freed: takes the returned ones home
    std::uint64_t given = 0;
    want(role.client->trim(&given) == Status::ok && given > 0, "trim");
    role.client->release(role.allocate(2 << 20));
    want(role.client->check() == nullptr, "the owner's lists");
}

void play_peer(const std::vector<Named>& named) {
    Role role;
    std::vector<Block*> blocks = {role.attach(named[0]), role.attach(named[1])};
    blocks.push_back(role.redeem(named[2]));  // the harness holds it too
    blocks.push_back(role.redeem(named[3]));  // ours alone from here on
    Ticket ticket{};
    want(role.client->ticket(*blocks[0], 0, 1000, &ticket) == Status::ok, "ticket");
    blocks.push_back(role.redeem({named[0].block, ticket}));  // held here already
    for (Block* b : blocks) role.client->release(b);
}

void play_forker(const std::vector<Named>& named) {
    Role role;
    Block* peer = role.attach(named[0]);
    Block* own = role.allocate(5000);
    const pid_t child = ::fork();
    want(child >= 0, "fork");
    if (child == 0) {
        want(filled(*own, 0x5a), "the child's block");
        role.client->release(own);
        role.client->release(peer);
        std::_Exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, WUNTRACED);
    if (WIFSTOPPED(status)) ::kill(child, SIGKILL);
    role.client->release(own);
    role.client->release(peer);
    if (status != 0) std::_Exit(70);  // the point lay in the child
}

void play_spawner() {
    Role role;
    Block* own = role.allocate(5000);
    EmbryoSlot embryo;
    Ticket ticket{};
    want(role.client->embryo(&embryo) == 0, "embryo");
    want(role.client->ticket(*own, embryo.slot, 1000, &ticket) == Status::ok, "ticket");
    os::close(embryo.socket);  // the child never starts
    role.client->release(own);
}

// A manager that releases the holds of the late client; `successor` first takes over the lock of a dead process.
void play_manager() {
    SegmentMetadata metadata;
    want(metadata.open(::fcntl(kPeerMetadata, F_DUPFD_CLOEXEC, 100), kPeerId, kArenaBytes, false) == 0, "open");
    want(metadata.lock(0, 1000), "lock");
    metadata.release_holds_of(kLate);
    metadata.unlock();
    Group group;
    want(group.open(kGroupFd) == 0, "group.open");
    want(group.lead() == 0, "lead");
    want(group.claim(SlotState::client, 1, 1, 0) != kNone, "claim");
    group.leave();
}

int play(const std::string& role, const std::vector<Named>& named) {
    if (role == "owner") play_owner();
    if (role == "peer") play_peer(named);
    if (role == "forker") play_forker(named);
    if (role == "spawner") play_spawner();
    if (role == "manager" || role == "successor") play_manager();
    return 0;
}

// --------------------------------------------------------------------------------------------------------- the harness

struct Harness {
    Group group;
    Connection mine, roles;
    std::unique_ptr<Client> client;
    Arena peer{kPeerId, kHarness}, own{kOwnId, kRole};
    std::vector<Block*> blocks;
    std::vector<Named> named;

    Harness() {
        want(group.create(7) == 0, "group.create");
        for (const std::uint32_t slot : {kHarness, kRole, kLate})
            want(group.claim(SlotState::client, slot, slot, 0) == slot, "claim");
        client = std::make_unique<Client>(group, kHarness, mine.ours, 0);
        mine.ours = -1;
        peer.add_to(*client, true);
        for (std::size_t i = 0; i < kBlocks; ++i) {
            Block* block = nullptr;
            want(retry_blocking([&](unsigned p) { return client->allocate(3000, p, &block); }) == Status::ok,
                 "allocate");
            fill(*block, static_cast<unsigned char>(i + 1));
            Named n{block->name(), {}};
            // 2, 3: in flight; 4, 5: held by the late client beside us
            if (i >= 2) want(client->ticket(*block, i < 4 ? 0 : kLate, 1000, &n.ticket) == Status::ok, "ticket");
            named.push_back(n);
            blocks.push_back(block);
        }
        client->release(blocks[3]);  // only the message holds this one
        blocks[3] = nullptr;
        client->release(blocks[5]);  // and only the late client this one
        blocks[5] = nullptr;
    }

    pid_t start(const std::string& self, const std::string& role, const std::string& spec) {
        posix_spawn_file_actions_t files;
        ::posix_spawn_file_actions_init(&files);
        const int pass[][2] = {
            {group.fd(), kGroupFd},     {roles.ours, kConnectionFd},         {own.metadata.fd(), kOwnMetadata},
            {own.payload, kOwnPayload}, {peer.metadata.fd(), kPeerMetadata}, {peer.payload, kPeerPayload}};
        for (const auto& [from, to] : pass) ::posix_spawn_file_actions_adddup2(&files, from, to);
        // If an emulator runs this program, the kernel cannot run it directly.
        std::vector<std::string> words = {self, role};
        if (emulator()) words.insert(words.begin(), emulator());
        for (const Named& n : named)
            for (const std::uint32_t v : {n.block.index, n.block.generation, n.ticket.hold, n.ticket.mark})
                words.push_back(std::to_string(v));
        std::vector<char*> arguments;
        arguments.reserve(words.size() + 1);
        for (auto& w : words) arguments.push_back(w.data());
        arguments.push_back(nullptr);
        std::string variable = "SHMTENSOR_FAILPOINT=" + spec;
        std::vector<char*> environment;
        for (char** e = environ; *e; ++e)
            if (std::strncmp(*e, "SHMTENSOR_FAILPOINT=", 20) != 0) environment.push_back(*e);
        if (!spec.empty()) environment.push_back(variable.data());
        environment.push_back(nullptr);
        pid_t pid = 0;
        want(::posix_spawnp(&pid, words[0].c_str(), &files, nullptr, arguments.data(), environment.data()) == 0,
             "spawn");
        ::posix_spawn_file_actions_destroy(&files);
        return pid;
    }

    // Read the embryos that the role's fork hooks announced, and wait until each child has ended. Returns their slots.
    std::vector<std::uint32_t> embryos(const std::string& what) {
        os::close(roles.ours);
        roles.ours = -1;
        std::vector<std::uint32_t> slots;
        for (;;) {
            std::uint32_t message[8] = {};
            iovec part{message, sizeof message};
            alignas(cmsghdr) char space[256] = {};
            msghdr header{};
            header.msg_iov = &part;
            header.msg_iovlen = 1;
            header.msg_control = space;
            header.msg_controllen = sizeof space;
            pollfd ready{roles.theirs, POLLIN, 0};
            want(::poll(&ready, 1, 10000) == 1, what + ": the role's socket stays open");
            if (::recvmsg(roles.theirs, &header, MSG_CMSG_CLOEXEC) <= 0) break;
            slots.push_back(message[4]);
            for (cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
                if (c->cmsg_type != SCM_RIGHTS) continue;
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
                for (bool open = true; open;) {
                    pollfd child{fd, POLLIN, 0};
                    want(::poll(&child, 1, 10000) == 1, what + ": a forked child lives on");
                    char hello[64];
                    open = ::recv(fd, hello, sizeof hello, 0) > 0;
                }
                os::close(fd);
            }
        }
        // Claimed, but never announced: the claimer is dead, so these are dead too.
        for (std::uint32_t s = 1; s < kMaxSlots; ++s) {
            const std::uint64_t word = group.slot(s).word.load();
            if (state_of(word) == SlotState::embryo && std::find(slots.begin(), slots.end(), s) == slots.end())
                slots.push_back(s);
        }
        return slots;
    }

    void audit(const std::string& what) {
        std::vector<std::uint32_t> dead = embryos(what);
        dead.push_back(kRole);
        for (const std::uint32_t slot : dead) {
            peer.release_holds_of(slot);
            own.release_holds_of(slot);
        }
        peer.check(what);
        own.check(what);
        const auto live = own.metadata.header().live_blocks.load();
        // A ticket of the group may outlive its sender; nothing else of the role may.
        want(own.metadata.lock(0, 1000), what);
        own.metadata.expire_tickets(~0u);
        own.metadata.unlock();
        want(own.metadata.header().live_blocks == 0,
             what + ": " + std::to_string(live) + " blocks of the dead are held");
        for (std::size_t i = 0; i < kBlocks; ++i)
            if (blocks[i])
                want(filled(*blocks[i], static_cast<unsigned char>(i + 1)), what + ": a live block was overwritten");
        peer.release_holds_of(kLate);
        want(peer.metadata.lock(0, 1000), what);
        peer.metadata.expire_tickets(~0u);
        peer.metadata.unlock();
        want(peer.metadata.header().live_blocks == 4, what + ": " + std::to_string(peer.metadata.header().live_blocks) +
                                                          " blocks are live, the harness holds 4");
        std::vector<Block*> more;
        for (int i = 0; i < 64; ++i) {
            Block* block = nullptr;
            want(retry_blocking([&](unsigned p) { return client->allocate(3000, p, &block); }) == Status::ok, what);
            fill(*block, 0xee);
            more.push_back(block);
        }
        for (std::size_t i = 0; i < kBlocks; ++i)
            if (blocks[i])
                want(filled(*blocks[i], static_cast<unsigned char>(i + 1)), what + ": memory was given out twice");
        for (Block* b : more) client->release(b);
        if (const char* wrong = client->check()) fail(what + ": " + wrong);
        for (Block* b : blocks)
            if (b) client->release(b);
        want(client->close(), what + ": the harness cannot close");
        want(peer.metadata.header().live_blocks == 0, what + ": blocks are left");
    }
};

// True when the point was passed.
bool run(const std::string& self, const std::string& role, const std::string& point, int nth,
         const std::string& action) {
    const std::string what = role + " " + point + ":" + std::to_string(nth) + ":" + action;
    Harness harness;
    int status = 0;
    if (role == "successor") {  // first a process dies with the lock of the harness's metadata
        const pid_t victim = harness.start(self, "peer", "metadata.add_hold.entry_taken:1:kill");
        want(::waitpid(victim, &status, 0) == victim && WIFSIGNALED(status), what + ": the victim lives");
    }
    const pid_t pid = harness.start(self, role, point + ":" + std::to_string(nth) + ":" + action);
    want(::waitpid(pid, &status, WUNTRACED) == pid, what);
    const bool stopped = WIFSTOPPED(status);
    if (stopped) {
        // A stopped holder does not block others: the manager only tries, and a client's wait is bounded.
        if (harness.peer.metadata.lock_untrusted()) harness.peer.metadata.unlock();
        if (harness.own.metadata.lock_untrusted()) harness.own.metadata.unlock();
        Block* block = nullptr;
        const Status got = harness.client->allocate(3000, 10, &block);
        want(got == Status::ok || got == Status::busy, what + ": allocation beside a stopped process");
        if (got == Status::ok) harness.client->release(block);
        ::kill(pid, SIGKILL);
        ::waitpid(pid, &status, 0);
    }
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool exited = WIFEXITED(status) && WEXITSTATUS(status) == 70;
    if (!killed && !exited) want(WIFEXITED(status) && WEXITSTATUS(status) == 0, what + ": the role failed");
    harness.audit(what);
    return killed || exited;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1 && std::string{argv[1]} == "--list") {
        for (const char* name : failpoint::all()) std::puts(name);
        return 0;
    }
    if (argc > 2) {
        std::vector<Named> named;
        for (int i = 2; i + 3 < argc; i += 4) {
            const auto number = [&](int at) { return static_cast<std::uint32_t>(std::strtoul(argv[at], nullptr, 10)); };
            named.push_back({{kPeerId, number(i), number(i + 1)}, {number(i + 2), number(i + 3)}});
        }
        return play(argv[1], named);
    }
    set_bound(900);                                                            // of the whole matrix
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");  // differs in an emulator's child
    const auto points = points_where([](const std::string& point) {
        return std::none_of(std::begin(kElsewhere), std::end(kElsewhere),
                            [&](const char* area) { return point.starts_with(area); });
    });
    return world::matrix(points, points, kRoles, kPasses, kPasses.back(),
                         [&](const std::string& role, const std::string& point, int nth, const std::string& action) {
                             return run(self, role, point, nth, action);
                         });
}
