// Calls that may block: tried first with the GIL, then without it in slices between which signals are handled.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/os.hpp"
#include "heap/client.hpp"
#include "python/objects.hpp"

namespace shmtensor {

constexpr int kSlice = 50;  // ms between two checks for signals

// Releases the GIL until the end of the scope. Before 3.14, Python unwinds a daemon thread that wants the GIL back
// while the interpreter ends, which C++ frames on the way do not allow. The thread blocks here instead, as in 3.14.
class GilRelease {
   public:
    GilRelease() : state_(PyEval_SaveThread()) {}
    GilRelease(const GilRelease&) = delete;
    GilRelease& operator=(const GilRelease&) = delete;
    ~GilRelease() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            os::sleep_forever();
        }
    }

   private:
    PyThreadState* state_;
};

// A deadline is a time of CLOCK_MONOTONIC in ns. Timeouts are read as by the standard library: None means for ever, and
// a negative one means 0.
constexpr std::uint64_t kForever = ~std::uint64_t{0};
std::uint64_t deadline_of(bool wait, nb::handle timeout);  // raises ValueError, and what reading the timeout raises
std::uint64_t left_of(std::uint64_t deadline);             // ns until then

// Between two slices of waiting: runs Python's signal handlers, and makes sure that the group has a manager. Both may
// raise.
void check_signals(PyClient& client);
// Only the second part: at most every 100 ms, if the manager is gone or another one leads.
void ask_for_manager(PyClient& client);
inline void look_for_manager(PyClient& client) {
    if (!client.client.is_led()) [[unlikely]]
        ask_for_manager(client);
}

// The common loop of calls that may block. The first attempt was made with the GIL and without waiting, and returned
// `result`. `next(result)` provides what the attempt lacked, handles signals, may raise, and returns the patience in ms
// for the next attempt(patience). kDone: stop; 0: with the GIL and without waiting; otherwise without the GIL, waiting
// at most that long. (An int, not an optional, which is written in parts and read as a whole: that stalls the
// processor.)
constexpr int kDone = -1;
template <class Result, class Attempt, class Next>
Result retry(Result result, Attempt&& attempt, Next&& next) {
    for (int patience = next(result); patience != kDone; patience = next(result)) {
        if (patience == 0) {
            result = attempt(0u);
        } else {
            const GilRelease released;
            result = attempt(static_cast<unsigned>(patience));
        }
    }
    return result;
}

// Sleep without the GIL, then handle signals.
template <class Sleep>
void sleep_without_gil(PyClient& client, Sleep&& sleep) {
    {
        const GilRelease released;
        sleep();
    }
    check_signals(client);
}

// After a failed try: wait in slices until the deadline, by `wait(ns)` without the GIL, which returns true on success.
// The last slice is 0 ns. False: the time is up.
template <class Wait>
bool wait_in_slices(PyClient& client, std::uint64_t deadline, std::uint64_t slice_ns, Wait&& wait) {
    bool waited = false, last = false;
    return retry(
        false,
        [&](unsigned) {
            const std::uint64_t left = left_of(deadline);
            waited = true;
            last = left == 0;
            return static_cast<bool>(wait(std::min(left, slice_ns)));
        },
        [&](bool done) {
            if (done) return kDone;
            if (waited) check_signals(client);
            return last ? kDone : kSlice;
        });
}

// What a call of a client may lack: a segment to be mapped, or bytes to be allocated.
struct Needs {
    std::uint64_t segment = 0, bytes = 0;
    int device = kHost;  // in whose memory to allocate the bytes
};

// Provides what the call lacked, by Python code if needed.
class ClientRetry {
   public:
    ClientRetry(PyClient& client, const Needs& needs) : client_(client), needs_(needs) {}
    int operator()(Status status);

   private:
    bool relieve();

    PyClient& client_;
    const Needs needs_;
    std::uint64_t until_ = 0;
    int tries_ = 0;
    bool relieved_ = false;
};

// Repeat a call of the core until it succeeds. Raises the error if it fails (errors.hpp, raise_status).
template <class Call>
void retry_blocking(PyClient& client, const Needs& needs, Call&& call) {
    const Status status = call(0u);
    if (status != Status::ok) [[unlikely]]
        retry(status, call, ClientRetry(client, needs));
}

// A block with one user, and a ticket for a slot. Both raise as retry_blocking.
inline Block* allocate(PyClient& client, std::uint64_t bytes, int device = kHost) {
    Block* block = nullptr;
    retry_blocking(client, {.bytes = bytes, .device = device},
                   [&](unsigned patience) { return client.client.allocate(bytes, patience, &block, device); });
    return block;
}
inline Ticket make_ticket(PyClient& client, const Block& block, std::uint32_t owner) {
    Ticket ticket{};
    retry_blocking(client, {},
                   [&](unsigned patience) { return client.client.ticket(block, owner, patience, &ticket); });
    return ticket;
}

}  // namespace shmtensor
