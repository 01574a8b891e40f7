// A small group for the native tests: the harness is manager and first client at once.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/os.hpp"
#include "heap/client.hpp"

namespace world {

using namespace shmtensor;

[[noreturn]] inline void fail(const std::string& what) {
    std::fprintf(stderr, "FAILED: %s\n", what.c_str());
    std::_Exit(1);
}
inline void want(bool holds, const std::string& what) {
    if (!holds) fail(what);
}

// The argument of a program at a position, or `otherwise` if there is none.
inline std::uint32_t argument(int count, char** arguments, int at, std::uint32_t otherwise) {
    if (at >= count) return otherwise;
    const std::string_view text = arguments[at];
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    want(error == std::errc{} && end == text.data() + text.size(), std::string{text} + " is not a number");
    return value;
}

// The emulator that runs this program, as `make aarch64` sets it; nullptr: none.
inline const char* emulator() {
    return std::getenv("SHMTENSOR_EMULATOR");
}

// Ends this program with SIGALRM after `seconds`, or more under an emulator.
inline void set_bound(unsigned seconds) {
    ::alarm(emulator() ? 4 * seconds : seconds);
}

// Repeat a call of the core until it succeeds or fails, as retry_blocking of python/waits.hpp does.
template <class Call>
Status retry_blocking(Call&& call) {
    Status status = call(0u);
    for (int tries = 0; (status == Status::busy || status == Status::slow) && tries < 600; ++tries) status = call(50u);
    return status;
}

struct Arena {
    SegmentMetadata metadata;  // the manager's view
    int payload = -1;
    Arena(std::uint64_t id, std::uint32_t owner) {
        want(metadata.create("test-metadata", id, owner, 0, kArenaBytes, false) == 0, "metadata.create");
        want(os::memfd("test-payload", kArenaBytes, &payload) == 0, "memfd");
    }
    ~Arena() { os::close(payload); }
    void add_to(Client& client, bool owned) {
        want(client.add_segment(metadata.header().segment, ::fcntl(metadata.fd(), F_DUPFD_CLOEXEC, 3),
                                ::fcntl(payload, F_DUPFD_CLOEXEC, 3), kArenaBytes, SegmentKind::arena, owned) == 0,
             "add_segment");
    }
    // As the manager does, but with a long wait: every holder of the lock is dead or about to release it.
    std::uint32_t release_holds_of(std::uint32_t slot) {
        want(metadata.lock(0, 5000), "the lock of a segment could not be taken");
        const std::uint32_t released = metadata.release_holds_of(slot);
        metadata.unlock();
        return released;
    }
    // Of a dead client: if no block is live, reset the arena for the next client, since all processes have it mapped
    // already.
    bool empty_for_another() {
        if (metadata.header().live_blocks != 0 || !metadata.lock(0, 1000)) return false;
        for (std::uint32_t b = 0; b < metadata.header().blocks_high; ++b)
            metadata.block(b).where = static_cast<std::uint32_t>(Where::home);
        metadata.header().blocks_high = metadata.header().holds_high = 0;
        metadata.header().free_hold = metadata.header().returned = kNone;
        metadata.unlock();
        return true;
    }
    void check(const std::string& where) {
        want(metadata.lock(0, 5000), where + ": the lock of a segment could not be taken");
        const char* wrong = metadata.check();
        metadata.unlock();
        if (wrong) fail(where + ": " + wrong);
    }
};

struct Connection {
    int ours = -1, theirs = -1;
    Connection() {
        int pair[2];
        want(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
        ours = pair[0];
        theirs = pair[1];
    }
    ~Connection() {
        os::close(ours);
        os::close(theirs);
    }
};

// Kill a process that must still be running.
inline void kill_running(int pid) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) fail("a process ended by itself: " + std::to_string(status));
    ::kill(pid, SIGKILL);
    want(::waitpid(pid, &status, 0) == pid, "waitpid");
}

// A pause before the next kill of a storm. Under an emulator, also wait until the processes have made progress: there,
// starting one takes longer than the time between two kills.
template <class Progress>
void pause_before_kill(std::uint32_t microseconds, Progress&& progress) {
    const auto before = progress();
    ::usleep(microseconds);
    if (!emulator()) return;
    for (int waits = 0; progress() == before && waits < 10000; ++waits) ::usleep(1000);
}

// Sets the state of a slot as a manager does, without checking the former state.
inline void set_state(Group& group, std::uint32_t slot, SlotState state) {
    std::atomic<std::uint64_t>& word = group.slot(slot).word;
    word.store(slot_word(state, 0, generation_of(word.load())));
}

inline void fill(const Block& block, unsigned char value) {
    std::memset(block.data(), value, block.bytes);
}
inline bool filled(const Block& block, unsigned char value) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(block.data());
    for (std::uint64_t i = 0; i < block.bytes; i += 61)
        if (bytes[i] != value) return false;
    return bytes[block.bytes - 1] == value;
}

}  // namespace world
