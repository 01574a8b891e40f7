// Getting values from a ring.
#include <algorithm>
#include <atomic>
#include <exception>
#include <span>
#include <vector>

#include "python/codec.hpp"
#include "python/errors.hpp"
#include "python/rings.hpp"
#include "python/waits.hpp"

namespace shmtensor {
namespace {

constexpr std::size_t kBatch = 64;  // messages that get_many takes under one lock

// One call that takes messages, until it has at least one or the time is up.
class Collection {
   public:
    Collection(PyRing& self, EncodedMessage* messages, std::size_t count, std::uint64_t deadline,
               std::atomic<std::uint64_t>* receipt)
        : self_(self),
          messages_(messages),
          count_(count),
          deadline_(deadline),
          receipt_(receipt),
          watchers_(self),
          lookup_(self.self, deadline),
          between_(self, lookup_, deadline, End::head) {}

    // Returns how many messages were taken.
    std::size_t run() {
        watchers_.prepare();
        retry(
            attempt(0), [this](unsigned patience) { return attempt(patience); },
            [this](RingStatus status) { return next(status); });
        return done_;
    }

   private:
    RingStatus attempt(unsigned patience) {
        const std::size_t max_items = lookup_.gone ? 1 : count_;  // a lost message is taken alone
        return self_.ring.get({messages_, max_items}, self_.client().slot(), lookup_, patience, &done_, receipt_);
    }
    int next(RingStatus status) {
        between_.note(status);
        if (status == RingStatus::ok) [[likely]] {
            if (self_.ring.size() == 0) watchers_.tell();
            if (messages_[0].lost) lookup_.raise_lost();
            return kDone;
        }
        const int patience = status == RingStatus::empty ? await_message() : between_.next(status);
        if (patience != kDone) watchers_.prepare();
        return patience;
    }
    int await_message() {
        const std::uint64_t left = left_of(deadline_);
        if (left == 0) {
            if (self_.event) watchers_.tell();
            return kDone;
        }
        sleep_without_gil(self_.self, [&] { self_.ring.await_message(left); });
        if (self_.ring.size() == 0) self_.look_while_waiting();
        return 0;
    }

    PyRing& self_;
    EncodedMessage* const messages_;
    const std::size_t count_;
    const std::uint64_t deadline_;
    std::atomic<std::uint64_t>* const receipt_;
    std::size_t done_ = 0;
    Watchers watchers_;
    ClientLookup lookup_;
    RingRetry between_;
};

}  // namespace

void receive_blocks(PyRing& self, const EncodedMessage& message, EncodedValue& encoded) {
    std::size_t received = 0;
    bool truncated = false;
    try {
        encoded.blocks.reserve(message.holds.size());
        for (; received < message.holds.size(); ++received) {
            Block* block = nullptr;
            const Status status = self.client().receive(message.holds[received], &block);
            if (status == Status::ok) encoded.blocks.push_back(block);
            truncated |= status == Status::lost;
        }
    } catch (...) {  // no memory
        for (; received < message.holds.size(); ++received) self.client().drop(message.holds[received]);
        throw;
    }
    if (truncated) raise_message_lost("");
    if (encoded.blocks.size() != message.holds.size()) raise_queue_damaged();
}

nb::object read_message(PyRing& self, EncodedMessage& message, EncodedValue& encoded, Access access) {
    const struct Taken {
        std::vector<MessageHold>& holds;
        ~Taken() { holds.clear(); }
    } taken{message.holds};
    receive_blocks(self, message, encoded);
    const std::byte* body = message.body.data();
    std::size_t bytes = message.body.size();
    if (message.flags & kBodyInBlock) {
        if (encoded.blocks.empty() || encoded.blocks.back()->segment->on_device()) raise_queue_damaged();
        body = encoded.blocks.back()->data();
        bytes = encoded.blocks.back()->bytes;
    }
    PyObject* value = decode(body, bytes, encoded.blocks, access);
    if (!value) throw nb::python_error();
    return nb::steal(value);
}

nb::object get(PyRing& self, bool wait, nb::handle timeout, nb::handle receipt) {
    self.require_client();
    self.count_call();
    const std::uint64_t deadline = deadline_of(wait, timeout);
    std::atomic<std::uint64_t>* cell = nullptr;
    if (!receipt.is_none()) {
        const Block& block = *nb::inst_ptr<PyBlock>(receipt)->block;
        if (block.bytes < sizeof *cell || block.segment->on_device()) throw nb::value_error("a receipt needs 8 bytes");
        cell = reinterpret_cast<std::atomic<std::uint64_t>*>(block.data());
    }
    const ScratchLease scratch;
    if (Collection(self, &scratch->message, 1, deadline, cell).run() == 0) raise_queue_empty();
    return read_message(self, scratch->message, scratch->encoded, Access::own);
}

nb::list get_many(PyRing& self, std::size_t max_items, bool wait, nb::handle timeout) {
    self.require_client();
    self.count_call();
    const std::uint64_t deadline = deadline_of(wait, timeout);
    std::vector<EncodedMessage> messages(std::min({max_items, kBatch, std::max<std::size_t>(self.ring.size(), 1)}));
    nb::list values;
    std::exception_ptr problem;
    while (values.size() < max_items && !problem) {
        std::size_t got = 0;
        try {
            const std::size_t want = std::min(messages.size(), max_items - values.size());
            got = Collection(self, messages.data(), want, values.size() ? 0 : deadline, nullptr).run();
        } catch (...) {
            problem = std::current_exception();
        }
        if (got == 0) break;
        for (EncodedMessage& message : std::span(messages).first(got)) {
            EncodedValue encoded;
            try {
                values.append(read_message(self, message, encoded, Access::own));
            } catch (...) {
                if (!problem) problem = std::current_exception();
            }
        }
    }
    try {  // handle a signal that arrived meanwhile, while the caller can still be told what was taken
        if (!problem && values.size() > 0 && PyErr_CheckSignals() != 0) throw nb::python_error();
    } catch (...) {
        problem = std::current_exception();
    }
    if (problem) {
        // The other messages have left the queue as well; only the caller can get them.
        try {
            std::rethrow_exception(problem);
        } catch (...) {
            add_to_error("messages", values);
        }
    }
    if (values.size() == 0 && max_items > 0) raise_queue_empty();
    return values;
}

}  // namespace shmtensor
