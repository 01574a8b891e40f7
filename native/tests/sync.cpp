// Locks, semaphores, events and wait queues under kills: at every failpoint in every role, and at random.
//
//   sync                          the matrix: kill, stop and exit at every point; exits with 0 when all were reached
//   and every check passed sync storm [KILLS] [SEED]     random kills of processes that take a lock, wait for each
//   other and notify sync threads [SECONDS]        the same load by threads, for ThreadSanitizer
//
// The harness is the manager: it marks dead processes. It does not mark those that exit until the others have continued
// without it: they find out by themselves, as if there were no manager.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <functional>
#include <new>
#include <random>
#include <thread>

#include "base/failpoint.hpp"
#include "ipc/sync.hpp"
#include "matrix.hpp"
#include "world.hpp"

using namespace world;

namespace {

constexpr std::uint32_t kPlaces = 8;
constexpr std::uint64_t kSlice = 100'000'000;  // ns
constexpr int kBound = 10;                     // seconds after which a process counts as hanging

// Shared by the processes.
struct Board {
    SharedLock lock;
    SharedSemaphore semaphore;
    SharedEvent event;
    SharedWaitQueue queue;
    SharedWaitQueue::Entry places[kPlaces];
    std::atomic<std::uint32_t> inside;  // storm: who is between lock and unlock
    std::atomic<std::uint64_t> rounds;
    std::atomic<bool> stop;
};
static_assert(offsetof(Board, places) == offsetof(Board, queue) + sizeof(SharedWaitQueue));

std::uint64_t deadline() {
    return os::monotonic_ns() + std::uint64_t{kBound} * 1'000'000'000;
}

struct World {
    Group group;
    Board* board = nullptr;

    World() {
        want(group.create(7) == 0, "group.create");
        void* at = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        want(at != MAP_FAILED, "mmap");
        board = new (at) Board{};
    }
    ~World() { ::munmap(board, sizeof(Board)); }
    World(const World&) = delete;

    std::uint32_t claim() {
        const std::uint32_t slot = group.claim(SlotState::client, 1, 1, 0);
        want(slot != kNone, "claim");
        return slot;
    }
    void say_dead(std::uint32_t slot) { set_state(group, slot, SlotState::dead); }
    void reclaim(std::uint32_t slot) {
        set_state(group, slot, SlotState::dead);
        set_state(group, slot, SlotState::free);
    }
    void check(const std::string& what) const {
        const sync::WaitQueue queue(board->queue, kPlaces);
        for (const char* wrong :
             {sync::check(board->lock), sync::check(board->semaphore), sync::check(board->event), queue.check()})
            want(wrong == nullptr, what + ": " + (wrong ? wrong : ""));
    }
};

// One thread of a client at the board. Every wait is bounded: a thread that is not served in time reports that and
// ends.
struct Member {
    Board& board;
    sync::ClientThread self;
    std::string name;
    Spin spin{};
    sync::WaitQueue queue{board.queue, kPlaces};

    Member(World& world, std::uint32_t slot, std::string called)
        : board(*world.board), self{world.group, slot, sync::thread_number()}, name(std::move(called)) {}

    template <class Slice>
    void in_time(const char* what, Slice&& slice) {
        const std::uint64_t until = deadline();
        while (!slice()) want(os::monotonic_ns() < until, name + " hangs: " + what);
    }
    void lock() {
        if (sync::try_lock(board.lock, self)) return;
        in_time("lock", [&] { return sync::wait_lock(board.lock, self, spin, kSlice); });
    }
    void unlock() { want(sync::unlock(board.lock), name + ": a lock that was held was free"); }
    void take() {
        if (sync::try_take(board.semaphore)) return;
        in_time("semaphore", [&] { return sync::wait_take(board.semaphore, spin, kSlice); });
    }
    void wait_event() {
        in_time("event", [&] { return sync::wait_set(board.event, 0, spin, kSlice); });
    }
    void wait_notified() {
        lock();
        const sync::WaitQueue::Place place = queue.enter(self);
        want(place.index != kNone, name + ": the wait queue is full");
        unlock();
        in_time("notification", [&] { return queue.wait(place, spin, kSlice); });
        want(queue.leave(place), name + ": notified and not notified");
        lock();
        unlock();
    }
    void enter_and_leave() {
        const sync::WaitQueue::Place place = queue.enter(self);
        want(place.index != kNone && !queue.wait(place, spin, 0) && !queue.leave(place),
             name + ": a notification without a notifier");
    }
    // A barrier of three: true when all came, false when one died.
    bool meet() {
        lock();
        if (queue.forget_dead(self, true) > 0 || board.queue.state == -2) {
            board.queue.state = -2;
            unlock();
            return false;
        }
        const sync::WaitQueue::Place place = queue.enter(self);
        want(place.index != kNone, name + ": the wait queue is full");
        if (queue.waiting(self) == 3) {
            board.queue.state = 1;
            queue.notify(self, kPlaces);
        }
        const std::uint64_t until = deadline();
        while (board.queue.state == 0) {
            if (queue.has_dead(self, place)) {
                board.queue.state = -2;
                break;
            }
            unlock();
            queue.wait(place, spin, kSlice / 10);
            want(os::monotonic_ns() < until, name + " hangs: meeting");
            lock();
        }
        const bool met = board.queue.state == 1;
        queue.leave(place);
        unlock();
        return met;
    }
};

// ---------------------------------------------------------------------------------------------------------- the matrix

// A process at the board, and how it ended.
struct Actor {
    pid_t pid = 0;
    std::uint32_t slot = 0;
    int status = 0;
    bool ended = false, stopped = false;

    void look() {
        if (ended) return;
        int now = 0;
        if (::waitpid(pid, &now, WNOHANG | WUNTRACED) != pid) return;
        status = now;
        stopped = WIFSTOPPED(now);
        ended = !stopped;
    }
    bool is_out() {  // it has ended or is stopped
        look();
        return ended || stopped;
    }
    bool sleeps() const {  // in the kernel, at present
        std::FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r");
        char state = 0;
        if (file == nullptr) return false;
        const bool read = std::fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
        std::fclose(file);
        return read && state == 'S';
    }
    bool is_killed() const { return ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
    bool has_exited() const { return ended && WIFEXITED(status) && WEXITSTATUS(status) == 70; }
    bool is_fine() const { return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

Actor start(World& world, const std::string& name, const std::string& spec, const std::function<void(Member&)>& act) {
    Actor actor;
    actor.slot = world.claim();
    actor.pid = ::fork();
    want(actor.pid >= 0, "fork");
    if (actor.pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::alarm(60);
        Slot& own = world.group.slot(actor.slot);
        std::uint64_t started = 0;
        want(os::start_time(::getpid(), &started) == 0, "start_time");
        own.pid = static_cast<std::uint32_t>(::getpid());
        own.start_time = started;
        failpoint::arm(spec);
        Member me(world, actor.slot, name);
        act(me);
        std::_Exit(0);
    }
    return actor;
}

void until(const std::string& what, const std::function<bool()>& holds) {
    for (const std::uint64_t end = deadline(); !holds(); ::usleep(200))
        want(os::monotonic_ns() < end, what + ": the harness waited too long");
}

// One run: the victim in its role, and others beside it. `finish` is called when the victim is out: it kills a stopped
// one and marks its slot.
struct Play {
    World world;
    std::string what, spec;  // the name of the run, and the failpoint of the victim
    int nth;
    Member me;  // the harness
    Actor victim;
    std::vector<Actor> others;
    bool manager;  // the harness marks the death before the others continue
    bool reached = false;

    Play(const std::string& role, const std::string& point, int pass, const std::string& action)
        : what(role + " " + point + ":" + std::to_string(pass) + ":" + action),
          spec(point + ":" + std::to_string(pass) + ":" + action),
          nth(pass),
          me(world, world.claim(), what + ": the harness"),
          manager(action != "exit") {
        Slot& own = world.group.slot(me.self.slot);
        std::uint64_t started = 0;
        want(os::start_time(::getpid(), &started) == 0, "start_time");
        own.pid = static_cast<std::uint32_t>(::getpid());
        own.start_time = started;
    }
    Board& board() const { return *world.board; }
    void begin(const std::function<void(Member&)>& act) { victim = start(world, what + ": the victim", spec, act); }
    void await(const std::function<bool()>& holds) {  // or until the victim is out
        until(what, [&] { return holds() || victim.is_out(); });
    }
    std::uint32_t waiting() { return me.queue.waiting(me.self); }
    void other(const std::function<void(Member&)>& act) { others.push_back(start(world, what + ": another", "", act)); }
    int alive_in_queue() const {
        int count = 0;
        for (const auto& place : world.board->places)
            count += place != 0 && !sync::is_gone(me.self, static_cast<std::uint32_t>(place >> 32), true);
        return count;
    }
    bool is_asleep(const std::atomic<std::uint64_t>& word) const { return word & kAsleep; }

    void finish() {
        until(what, [&] { return victim.is_out(); });
        if (victim.stopped) {
            reached = true;
            // A stopped process blocks others no longer than their patience.
            if (sync::wait_lock(world.board->lock, me.self, me.spin, 2'000'000)) me.unlock();
            ::kill(victim.pid, SIGKILL);
            until(what, [&] { return victim.look(), victim.ended; });
        }
        reached = reached || victim.is_killed() || victim.has_exited();
        want(reached || victim.is_fine(), what + ": the role failed");
        if (reached && manager) world.say_dead(victim.slot);
    }
    void all_end() {
        for (Actor& one : others) {
            until(what + ": another does not end", [&] { return one.look(), one.ended; });
            want(one.is_fine(), what + ": another failed");
            world.reclaim(one.slot);
        }
        others.clear();
    }
    void audit() {
        world.check(what);
        me.lock();
        const bool dead_held = world.board->lock.inherited;
        want(reached || !dead_held, what + ": a dead holder was reported");
        me.unlock();
        want(sync::try_lock(world.board->lock, me.self), what + ": a free lock");
        want(!world.board->lock.inherited, what + ": a dead holder was reported twice");
        want(sync::is_mine(world.board->lock, me.self), what + ": is_mine() is false for our lock");
        me.unlock();
        want(!sync::unlock(world.board->lock), what + ": a free lock was released");
        want(me.queue.forget_dead(me.self, true) <= 1, what + ": too many dead waiters");
        for (const auto& place : world.board->places) want(place == 0, what + ": a stale entry is left");
        world.reclaim(victim.slot);
    }
};

void lock_once(Member& one) {
    one.lock();
    one.unlock();
}

void play_holder(Play& play) {
    play.begin([](Member& one) {
        for (int i = 0; i < 3; ++i) lock_once(one);
    });
    play.finish();
    play.other(lock_once);
}

void play_next_taker(Play& play) {
    Board& board = play.board();
    play.me.lock();
    play.other(lock_once);
    until(play.what, [&] { return play.is_asleep(board.lock.word); });
    sync::unlock(board.lock);  // this also tests that the first wakes the second
    play.all_end();
    play.me.lock();
    play.begin(lock_once);
    play.await([&] { return play.is_asleep(board.lock.word); });
    play.other(lock_once);
    play.me.unlock();
    play.finish();
}

void play_successor(Play& play) {
    Actor dead = start(play.world, "the dead", "sync.lock.noted:1:kill", [](Member& one) { one.lock(); });
    until(play.what, [&] { return dead.look(), dead.is_killed(); });
    if (play.manager) play.world.reclaim(dead.slot);
    play.begin([](Member& one) {
        one.lock();
        want(one.board.lock.inherited, one.name + ": the lock is not marked inherited");
        one.unlock();
    });
    play.finish();
    play.other(lock_once);
    play.all_end();
    if (!play.manager) play.world.reclaim(dead.slot);
}

void play_taker(Play& play) {
    Board& board = play.board();
    play.begin([](Member& one) {
        one.take();
        sync::give(one.board.semaphore);
    });
    play.await([&] { return board.semaphore.word & kAsleep; });
    play.other([](Member& one) { one.take(); });
    sync::give(board.semaphore);
    sync::give(board.semaphore);
    play.finish();
    play.all_end();
    const std::uint32_t units = sync::free_units(board.semaphore);
    want(units == 1 || (units == 0 && play.reached), play.what + ": units are wrong");
}

void play_giver(Play& play) {
    Board& board = play.board();
    play.other([](Member& one) { one.take(); });
    until(play.what, [&] { return board.semaphore.word & kAsleep; });
    play.begin([](Member& one) {
        for (int i = 0; i < 2; ++i) want(sync::give(one.board.semaphore), "give");
    });
    play.finish();
    play.all_end();
    want(sync::free_units(board.semaphore) == (play.reached && play.nth == 1 ? 0 : 1), play.what + ": units are wrong");
}

void play_event_waiter(Play& play) {
    Board& board = play.board();
    play.begin([](Member& one) { one.wait_event(); });
    play.await([&] { return board.event.word & kAsleep; });
    play.other([](Member& one) { one.wait_event(); });
    sync::set(board.event);
    play.finish();
}

void play_event_setter(Play& play) {
    Board& board = play.board();
    play.other([](Member& one) { one.wait_event(); });
    until(play.what, [&] { return board.event.word & kAsleep; });
    play.begin([](Member& one) {
        sync::set(one.board.event);
        sync::clear(one.board.event);
        sync::set(one.board.event);
    });
    play.finish();
}

void play_waiter(Play& play) {
    Member& me = play.me;
    play.begin([](Member& one) {
        one.enter_and_leave();
        one.wait_notified();
        one.enter_and_leave();
    });
    // Ticket 0 is that of the victim's first entry.
    play.await([&] { return me.board.queue.tickets == 2 && play.waiting() == 1 && play.victim.sleeps(); });
    const bool early = play.victim.is_out();
    if (early) play.finish();
    play.other([](Member& one) { one.wait_notified(); });
    until(play.what, [&] { return play.alive_in_queue() == (early ? 1 : 2); });
    if (!early) {
        want(me.queue.notify(me.self, 1) == 1, play.what + ": the victim was not notified");
        play.finish();
    }
    // This notification is for the other process, even if the dead one was notified before. Under the lock, since
    // otherwise the other could have ended before notify() checks that it lives.
    me.lock();
    want(me.queue.notify(me.self, 1) == 1, play.what + ": no thread was notified");
    me.unlock();
}

void play_notifier(Play& play) {
    for (int i = 0; i < 2; ++i) play.other([](Member& one) { one.wait_notified(); });
    until(play.what, [&] { return play.waiting() == 2; });
    const auto notify_both = [](Member& one) {
        one.lock();
        one.queue.notify(one.self, 2);
        one.unlock();
    };
    play.begin(notify_both);
    play.finish();
    notify_both(play.me);
}

void play_party(Play& play) {
    Board& board = play.board();
    const auto meet = [](Member& one) { one.meet(); };
    for (int i = 0; i < 2; ++i) play.other(meet);
    until(play.what, [&] { return play.waiting() == 2; });
    play.begin(meet);
    play.finish();
    const auto entries =
        std::count_if(std::begin(board.places), std::end(board.places), [](const auto& place) { return place != 0; });
    if (entries == 2 && board.queue.state == 0) play.other(meet);  // the victim died before it entered
    play.all_end();
    want(play.reached || board.queue.state == 1, play.what + ": the three did not meet");
    play.me.queue.forget_dead(play.me.self, true);
    board.queue.state = 0;
    for (int i = 0; i < 3; ++i)
        play.other([](Member& one) { want(one.meet(), one.name + ": three cannot meet again"); });
}

constexpr std::pair<const char*, void (*)(Play&)> kRoles[] = {
    {"holder", play_holder},
    {"next taker", play_next_taker},
    {"successor", play_successor},
    {"taker", play_taker},
    {"giver", play_giver},
    {"event waiter", play_event_waiter},
    {"event setter", play_event_setter},
    {"waiter", play_waiter},
    {"notifier", play_notifier},
    {"party", play_party},
};

bool run(const std::string& role, const std::string& point, int nth, const std::string& action) {
    Play play(role, point, nth, action);
    for (const auto& [name, act] : kRoles)
        if (role == name) act(play);
    play.all_end();
    play.audit();
    return play.reached;
}

int matrix() {
    const auto points = points_where([](const std::string& point) { return point.starts_with("sync."); });
    // The number of sleeps and wake-ups varies; only the first is certain.
    std::vector<std::string> roles;
    for (const auto& [name, act] : kRoles) roles.emplace_back(name);
    return world::matrix(points, points, roles, {1, 2, 3}, 1, run);
}

// ------------------------------------------------------------------------------------------- the storm and the threads

// Rounds of a lock, a condition that possibly no other thread notifies, and a semaphore, until told to stop.
void churn(Member& one, std::uint32_t seed) {
    Board& board = one.board;
    std::mt19937 dice(seed);
    while (!board.stop) {
        one.lock();
        const std::uint32_t before = board.inside.exchange(one.self.slot);
        want(before == 0 || board.lock.inherited, one.name + ": two hold the lock");
        ++board.rounds;
        if (dice() % 4 == 0) {
            one.queue.notify(one.self, static_cast<std::uint32_t>(dice() % 3));
        } else if (dice() % 4 == 0) {
            const sync::WaitQueue::Place place = one.queue.enter(one.self);
            want(place.index != kNone, one.name + ": the wait queue is full");
            want(board.inside.exchange(0) == one.self.slot, one.name + ": two hold the lock");
            one.unlock();
            one.queue.wait(place, one.spin, dice() % 5'000'000);
            one.queue.leave(place);
            continue;
        }
        want(board.inside.exchange(0) == one.self.slot, one.name + ": two hold the lock");
        one.unlock();
        if (sync::wait_take(board.semaphore, one.spin, 1'000'000)) sync::give(board.semaphore);
        if (dice() % 2) {
            sync::set(board.event);
        } else {
            sync::clear(board.event);
            sync::wait_set(board.event, sync::times_set(board.event), one.spin, 1'000'000);
        }
    }
}

int storm(std::uint32_t kills, std::uint32_t seed) {
    World world;
    std::mt19937 random(seed);
    for (int i = 0; i < 3; ++i) sync::give(world.board->semaphore);
    std::vector<Actor> all;
    const auto begin = [&] {
        const auto own_seed = static_cast<std::uint32_t>(random());
        all.push_back(start(world, "a process", "", [&](Member& one) {
            ::alarm(0);
            churn(one, own_seed);
        }));
    };
    for (int i = 0; i < 5; ++i) begin();
    for (std::uint32_t killed = 0; killed < kills; ++killed) {
        pause_before_kill(static_cast<std::uint32_t>(random() % 3000), [&] { return world.board->rounds.load(); });
        const std::size_t which = random() % all.size();
        Actor one = all[which];
        one.look();
        want(!one.ended, "a process ended by itself");
        ::kill(one.pid, SIGKILL);
        until("storm", [&] { return one.look(), one.ended; });
        want(one.is_killed(), "a process ended by itself");
        // Sometimes the manager is slow, or gone.
        if (random() % 8 == 0) ::usleep(20000);
        world.reclaim(one.slot);
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
        begin();
    }
    // Units that dead processes held are lost, as documented; the others can end without them.
    const std::uint64_t rounds = world.board->rounds;
    until("no process makes progress", [&] { return world.board->rounds > rounds + 100; });
    world.board->stop = true;
    for (Actor& one : all) {
        until("a process hangs at the end", [&] { return one.look(), one.ended; });
        want(one.is_fine(), "a process failed");
        world.reclaim(one.slot);
    }
    Member me(world, world.claim(), "the harness");
    world.check("after the storm");
    me.lock();
    me.unlock();
    me.queue.forget_dead(me.self, true);
    for (const auto& place : world.board->places) want(place == 0, "a stale entry is left");
    std::printf("%u kills, %llu rounds, never two at once, no waiter forgotten\n", kills,
                static_cast<unsigned long long>(world.board->rounds));
    return 0;
}

int threads(std::uint32_t seconds) {
    World world;
    for (int i = 0; i < 2; ++i) sync::give(world.board->semaphore);
    std::vector<std::thread> all;
    std::uint64_t plain = 0;  // guarded by the lock: ThreadSanitizer checks that this is enough
    for (int i = 0; i < 4; ++i) {
        const std::uint32_t slot = world.claim();
        all.emplace_back([&world, &plain, slot] {
            Member one(world, slot, "a thread");
            std::thread counter([&world, &plain, slot] {  // of the same process, another thread
                Member two(world, slot, "a second thread");
                while (!world.board->stop) {
                    two.lock();
                    ++plain;
                    world.board->inside = two.self.slot;
                    world.board->inside = 0;
                    two.unlock();
                }
            });
            churn(one, slot);
            counter.join();
        });
    }
    ::sleep(seconds);
    world.board->stop = true;
    for (std::thread& one : all) one.join();
    world.check("after the threads");
    want(world.board->lock.word == 0, "the lock is held although no thread has it");
    want(sync::free_units(world.board->semaphore) == 2, "units are wrong");
    std::printf("%llu rounds by threads\n", static_cast<unsigned long long>(plain) + world.board->rounds.load());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    set_bound(900);
    if (argc > 1 && std::string{argv[1]} == "storm")
        return storm(argument(argc, argv, 2, 1000), argument(argc, argv, 3, std::random_device{}()));
    if (argc > 1 && std::string{argv[1]} == "threads") return threads(argument(argc, argv, 2, 5));
    return matrix();
}
