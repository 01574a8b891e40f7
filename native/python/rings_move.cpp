// Messages of a ring as bytes and blocks, for a process that moves them elsewhere. rings_put.cpp has the inverse.
#include <nanobind/stl/vector.h>

#include "python/errors.hpp"
#include "python/results.hpp"
#include "python/rings.hpp"
#include "python/waits.hpp"

namespace shmtensor {

RingStatus RingMove::call(End end, EncodedMessage* holding, const std::function<RingStatus(unsigned)>& attempt) {
    RingRetry between(ring_, lookup, kForever, end);
    return retry(attempt(0u), attempt, [&](RingStatus status) {
        between.note(status);
        if (status == RingStatus::ok || status == RingStatus::empty) return kDone;
        if (holding) HoldsGuard(ring_.client(), {holding, 1}).drop();
        if (status != RingStatus::full) return between.next(status);
        retry_blocking(ring_.self, {.segment = lookup.missing},
                       [&](unsigned patience) { return ring_.client().reserve_holds(lookup.missing, patience); });
        return 0;
    });
}

nb::object RingMove::peek(const std::function<RingStatus(Run&, unsigned)>& attempt) {
    Run run;
    HoldsGuard unread(ring_.client(), {&run.frames, 1});
    const RingStatus status = call(End::head, &run.frames, [&](unsigned patience) { return attempt(run, patience); });
    if (status != RingStatus::ok) return nb::none();
    RunOfMessages result{.number = run.number,
                         .messages = run.messages,
                         .nbytes = run.bytes,
                         .lost = run.frames.lost,
                         .frames = nb::bytes(run.frames.body.data(), run.frames.body.size()),
                         .blocks = nb::list()};
    EncodedValue received;
    receive_blocks(ring_, run.frames, received);
    unread.messages = {};
    for (Block*& block : received.blocks) result.blocks.append(wrapper_of(std::exchange(block, nullptr)));
    return to_python(result);
}

nb::object peek(PyRing& self, std::size_t max_bytes, std::uint32_t max_messages) {
    self.require_client();
    RingMove move(self);
    return move.peek([&](Run& run, unsigned patience) {
        return self.ring.peek(run, {max_bytes, max_messages}, self.client().slot(), move.lookup, patience);
    });
}

bool take(PyRing& self, std::uint32_t number, std::uint32_t messages, std::uint64_t commit) {
    self.require_client();
    RingMove move(self);
    EncodedMessage taken;
    const HoldsGuard dropped(self.client(), {&taken, 1});
    const auto attempt = [&](unsigned patience) {
        return self.ring.take(taken, number, messages, commit, self.client().slot(), move.lookup, patience);
    };
    return move.call(End::head, &taken, attempt) == RingStatus::ok;
}

std::uint64_t commit_number(PyRing& self, bool of_puts) {
    self.require_client();
    RingMove move(self);
    const End end = of_puts ? End::tail : End::head;
    std::uint64_t number = 0;
    move.call(end, nullptr, [&](unsigned patience) {
        return self.ring.commit_number(end, &number, self.client().slot(), move.lookup, patience);
    });
    return number;
}

}  // namespace shmtensor
