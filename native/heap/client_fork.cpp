// A client in a fork, and for a child that is started: the child's slot, an embryo, gets the holds of its parent before
// the child exists (docs/memory-layout.md, "Fork").
#include <cerrno>
#include <utility>

#include "base/failpoint.hpp"
#include "base/os.hpp"
#include "heap/client.hpp"
#include "heap/protocol.hpp"

namespace shmtensor {
namespace {

constexpr unsigned kForkPatience = 5000;  // ms that a fork waits for the metadata of one segment

}  // namespace

int Client::embryo(EmbryoSlot* made) {
    const std::lock_guard guard(private_);
    std::uint64_t word = 0;
    os::Descriptor theirs;
    const int error = make_embryo(&made->slot, &word, &theirs);
    made->generation = generation_of(word);
    made->socket = theirs.release();
    return error;
}

// pre: private lock held.
int Client::make_embryo(std::uint32_t* slot, std::uint64_t* word, os::Descriptor* socket) {
    os::Descriptor theirs;
    if (const int error = os::socket_pair(socket, &theirs)) return error;
    *slot = group_.claim(SlotState::embryo, 0, 0, slot_, word);
    SHMTENSOR_POINT("client.embryo.claimed");
    if (*slot != kNone) {
        group_.slot(*slot).socket.store(socket->inode());
        EmbryoMessage message;
        message.slot = *slot;
        message.generation = generation_of(*word);
        // If no manager receives it, the child finds its socket closed, and the manager finds the child by its slot.
        if (os::send(connection_, &message, sizeof message, theirs.number()) != 0)
            epoch_ = 0;  // reconnect later; the manager learns of it then
    }
    SHMTENSOR_POINT("client.embryo.announced");
    if (*slot != kNone) return 0;
    socket->close();
    return ENOSPC;
}

// Give the embryo a hold on every block of this segment that we hold. False: the metadata stayed locked.
bool Client::hold_for_embryo(Segment& s) {
    if (s.held_count == 0) return true;
    if (!s.metadata.lock(slot_, kForkPatience)) return false;
    for (std::uint32_t index = 0; index < s.held.size();) {
        Block* block = s.held[index];
        if (!block) {
            ++index;
            continue;
        }
        block->embryo_hold = s.metadata.add_hold(index, fork_.slot, HoldKind::client, 0);
        if (block->embryo_hold != kNone) {
            SHMTENSOR_POINT("client.fork.held_one");
            ++index;
            continue;
        }
        s.metadata.unlock();
        if (more_holds(s, kForkPatience) != Status::ok || !s.metadata.lock(slot_, kForkPatience)) return false;
    }
    s.metadata.unlock();
    return true;
}

void Client::before_fork() {
    private_.lock();
    prepare_fork();
    table_.lock();  // only until the fork is done: other threads may want it under the lock of a ring
}

// pre: private lock held.
void Client::prepare_fork() {
    const int inherited = may_touch() ? 0 : fork_.error;  // a child that may not touch anything forks again: same error
    fork_ = {};
    fork_.error = inherited;
    if (!may_touch()) return;
    if (const int error = make_embryo(&fork_.slot, &fork_.word, &fork_.socket)) {
        fork_ = {};
        fork_.error = error;
        return;
    }
    fork_.complete = true;
    refusal_ = {};
    for (const auto& [id, segment] : segments_) fork_.complete = fork_.complete && hold_for_embryo(*segment);
    if (!fork_.complete) fork_.error = refusal_.error ? refusal_.error : EBUSY;
    SHMTENSOR_POINT("client.fork.prepared");
}

void Client::after_fork_in_parent() {
    fork_.socket.close();  // if the fork failed, this tells the manager
    if (may_touch()) fork_ = {};
    SHMTENSOR_POINT("client.fork.parent");
    table_.unlock();
    private_.unlock();
}

// The child claims its slot itself, so that it needs no manager for this. False: the slot was reclaimed, as if there
// were no child.
bool Client::become(std::uint32_t slot, std::uint64_t word) {
    // The manager can use our process id if it could use our parent's, and we are in the same PID namespace.
    const bool same = group_.slot(parent_of(word)).pid.load() == static_cast<std::uint32_t>(process_) &&
                      os::pid_namespace() == namespace_;
    process_ = os::process_id();
    const std::uint32_t pid = same ? static_cast<std::uint32_t>(process_) : 0;
    SHMTENSOR_POINT("client.fork.born");
    if (!group_.move(slot, word, SlotState::client, pid)) return false;
    SHMTENSOR_POINT("client.fork.taken");
    std::uint64_t ticks = 0;
    if (pid == 0 || os::start_time(process_, &ticks) != 0) return true;
    group_.slot(slot).start_time.store(ticks);
    group_.slot(slot).pid.store(pid);
    return true;
}

void Client::after_fork_in_child() {
    // The inherited connection is the parent's: if we kept it open, the manager would not see the parent close it.
    connection_ = std::move(fork_.socket);
    *intact_ = 1;
    held_ = fork_.complete && become(fork_.slot, fork_.word);
    if (fork_.complete && !held_) fork_.error = ESTALE;
    heap_.forget_all();
    for (auto& [device, heap] : device_heaps_) heap->forget_all();
    deferred_.clear();
    next_mark_ = static_cast<std::uint32_t>(os::random64());
    if (held_) {
        slot_ = fork_.slot;
        generation_ = generation_of(fork_.word);
        for (const auto& [id, segment] : segments_)
            for (Block* block : segment->held)
                if (block) block->hold = block->embryo_hold;
        const QuietHello hello;
        // If no process has the other end, we look for the manager at the next request.
        if (os::send(connection_, &hello, sizeof hello, -1) != 0) epoch_ = 0;
        SHMTENSOR_POINT("client.fork.child");
    } else {
        connection_.close();
    }
    table_.unlock();
    private_.unlock();
}

}  // namespace shmtensor
