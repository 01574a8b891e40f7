// Calls that may have to wait: made first with the GIL, then without it in slices between which signals are looked at.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/os.hpp"
#include "heap/client.hpp"
#include "python/objects.hpp"

namespace shmtensor {

constexpr int kSlice = 50;  // ms between two looks at signals

// Without the GIL from here to the end of the scope. A daemon thread that wants it back while the interpreter ends is
// unwound by Python before 3.14, which no frame of C++ on the way lets pass: it stays here instead, as in 3.14.
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

// A deadline is a moment on CLOCK_MONOTONIC in ns. As the standard library reads a timeout: None is for ever, less than
// nothing is 0: at once.
constexpr std::uint64_t kForever = ~std::uint64_t{0};
std::uint64_t deadline_of(bool wait, nb::handle timeout);  // raises ValueError and what reading the timeout raises
std::uint64_t left_of(std::uint64_t deadline);             // ns until then

// Between two slices of waiting: runs Python's signal handlers, and has somebody see to it that the group has a
// manager. Both may raise.
void check_signals(PyClient& client);
// The second part alone: at most every 100 ms, once the manager is gone, or another one leads.
void ask_for_manager(PyClient& client);
inline void look_for_manager(PyClient& client) {
    if (!client.client.is_led()) [[unlikely]]
        ask_for_manager(client);
}

// The one loop of calls that may have to wait. The first attempt was made with the GIL and without waiting, and gave
// `result`. Now `next(result)` says how it is to be made again, as attempt(patience in ms): kDone: no more; 0: at once
// and with the GIL; else without the GIL, waiting for at most so long. It sees to what the attempt lacked, looks at
// signals, and may raise. (No optional: it is written in parts and read whole, which stalls the processor.)
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

// Sleep without the GIL, then look at signals.
template <class Sleep>
void sleep_without_gil(PyClient& client, Sleep&& sleep) {
    {
        const GilRelease released;
        sleep();
    }
    check_signals(client);
}

// After a try that failed: wait in slices (`wait(ns)` without the GIL, true: it has come) until the deadline. The last
// slice is one of 0 ns. False: the time is up.
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

// What a call of a client is about, if that may be lacking: a segment that has to be mapped, bytes to be allocated.
struct Needs {
    std::uint64_t segment = 0, bytes = 0;
    int device = kHost;  // whose memory the bytes are to be
};

// What the call lacked is asked for, in Python where need be.
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

// Make a call of the core until it is through. Raises what it failed with (errors.hpp, raise_status).
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
