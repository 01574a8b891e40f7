// Putting values into a ring.
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "python/codec.hpp"
#include "python/codec_body.hpp"
#include "python/codec_memory.hpp"
#include "python/errors.hpp"
#include "python/rings.hpp"
#include "python/waits.hpp"

namespace shmtensor {
namespace {

constexpr std::size_t kInline =
    std::size_t{16} * 1024;  // bytes of a body that is stored in the ring; a longer one gets a block

}  // namespace

void write_message(PyRing& self, PyObject* value, EncodedValue& encoded, EncodedMessage& message, unsigned form) {
    message.holds.clear();
    if (!encode(self.client_object.ptr(), value, encoded, form)) throw nb::python_error();
    // A value that is copied as it is put may be read where this device does not exist, or after this process has
    // ended.
    if (form != kAnyForm)
        for (const Block* block : encoded.blocks)
            if (block->segment->on_device()) raise(errors.not_supported, kNotCopied);
    message.flags = 0;
    message.bytes = encoded.body.size() + encoded.bytes;
    if (encoded.body.size() > kInline) {
        const std::size_t bytes = encoded.body.size();
        Block* block = nullptr;
        if (!allocate_block(self.client_object.ptr(), bytes, &block, kHost)) throw nb::python_error();
        encoded.blocks.push_back(block);
        std::memcpy(block->data(), encoded.body.data(), bytes);
        encoded.body.clear();
        message.flags = kBodyInBlock;
    }
    message.body.swap(encoded.body);
}

void lend_holds(PyRing& self, const EncodedValue& encoded, EncodedMessage& message) {
    if (encoded.blocks.empty()) return;
    message.mark = self.client().new_mark();
    message.holds.reserve(encoded.blocks.size());
    HoldsGuard unsent(self.client(), {&message, 1});
    for (const Block* block : encoded.blocks) {
        MessageHold hold{};
        retry_blocking(self.self, {},
                       [&](unsigned patience) { return self.client().lend(*block, message.mark, patience, &hold); });
        message.holds.push_back(hold);
    }
    unsent.messages = {};
}

namespace {

[[noreturn]] void raise_does_not_fit(PyRing& self, const EncodedMessage& message) {
    raise_too_large(message.bytes, message.holds.size(), self.ring.header().max_bytes.load());
}

// One call that publishes messages in order, until all are put or the time is up. `sent`: how many were put, also if it
// raises.
class Delivery {
   public:
    Delivery(PyRing& self, EncodedMessage* messages, std::size_t count, std::uint64_t deadline, std::size_t& sent,
             std::uint64_t commit = 0)
        : self_(self),
          messages_(messages),
          count_(count),
          deadline_(deadline),
          commit_(commit),
          sent_(sent),
          watchers_(self),
          lookup_(self.self, deadline),
          between_(self, lookup_, deadline, End::tail) {}

    void run() {
        watchers_.prepare();
        retry(
            attempt(0), [this](unsigned patience) { return attempt(patience); },
            [this](RingStatus status) { return next(status); });
    }

   private:
    std::span<EncodedMessage> left() const { return {messages_ + sent_, count_ - sent_}; }
    RingStatus attempt(unsigned patience) {
        taken_ = self_.ring.taken();
        return self_.ring.put(left(), self_.client().slot(), lookup_, patience, &done_,
                              commit_ == 0 ? 0 : commit_ + sent_);
    }
    int next(RingStatus status) {
        sent_ += done_;
        unsent_.messages = left();
        if (done_ > 0) watchers_.tell();
        if (status == RingStatus::ok) [[likely]]
            return kDone;
        between_.note(status);
        const int patience = after(status);
        if (patience != kDone) watchers_.prepare();
        return patience;
    }
    int after(RingStatus status) {
        switch (status) {
            case RingStatus::full: {
                if (self_.make_room && self_.make_room(lookup_, taken_)) return 0;
                const std::uint64_t left = left_of(deadline_);
                if (left == 0) return kDone;
                sleep_without_gil(self_.self, [&] { self_.ring.await_room(taken_, left); });
                self_.look_while_waiting();
                return 0;
            }
            case RingStatus::no_room: {
                Refusal refusal;
                {
                    const GilRelease released;
                    reserve(self_.ring, self_.ring.doubled(), self_.client(), refusal);
                }
                if (refusal.error) raise_refused(refusal, "making the queue larger");
                return 0;
            }
            case RingStatus::too_large:
                raise_does_not_fit(self_, left().front());
            default:
                return between_.next(status);
        }
    }

    PyRing& self_;
    EncodedMessage* const messages_;
    const std::size_t count_;
    const std::uint64_t deadline_, commit_;
    std::size_t& sent_;
    std::size_t done_ = 0;
    std::uint32_t taken_ = 0;  // Ring::taken() before the last attempt
    Watchers watchers_;
    ClientLookup lookup_;
    RingRetry between_;
    HoldsGuard unsent_{self_.client(), {messages_, count_}};
};

// Nothing is sent before all values are written.
void deliver_all(PyRing& self, const nb::list& values, std::uint64_t deadline, std::size_t& sent) {
    std::vector<EncodedMessage> messages;
    std::vector<std::unique_ptr<EncodedValue>> encoded;
    messages.reserve(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        encoded.push_back(std::make_unique<EncodedValue>());
        messages.emplace_back();
        const nb::object value = values[i];
        write_message(self, value.ptr(), *encoded.back(), messages.back(), self.put_form());
    }
    HoldsGuard unsent(self.client(), messages);
    for (std::size_t i = 0; i < messages.size(); ++i) lend_holds(self, *encoded[i], messages[i]);
    const std::uint64_t max_bytes = self.ring.header().max_bytes.load();
    for (const EncodedMessage& message : messages)
        if (max_bytes != 0 && message.bytes > max_bytes) raise_does_not_fit(self, message);
    unsent.messages = {};
    Delivery(self, messages.data(), messages.size(), deadline, sent).run();
}

// Read a frame, and check that its body begins as encode() writes it; decoding checks the rest.
void read_frame(std::span<const std::byte>& frames, bool with_blocks, bool pickled, EncodedMessage& message) {
    FrameHeader header{};
    if (frames.size() < sizeof header) raise(errors.message_damaged, "a frame is cut off");
    std::memcpy(&header, frames.data(), sizeof header);
    frames = frames.subspan(sizeof header);
    const bool in_block = header.flags & kBodyInBlock;
    if (header.body_bytes > frames.size() || (header.flags & ~kBodyInBlock) || (in_block && !with_blocks))
        raise(errors.message_damaged, "a frame is shorter than its header states");
    message.flags = header.flags;
    message.body.assign(frames.begin(), frames.begin() + static_cast<std::ptrdiff_t>(header.body_bytes));
    message.bytes = header.body_bytes;
    frames = frames.subspan(header.body_bytes);
    if (!in_block && !pickled && is_pickled(message.body))
        raise(errors.message_damaged, "a message was pickled, which this side has not allowed");
}

}  // namespace

std::size_t put_frames(PyRing& self, std::span<const std::byte> frames, const nb::list& blocks, std::uint64_t commit,
                       bool pickled) {
    self.require_client();
    const bool with_blocks = blocks.size() > 0;
    std::vector<EncodedMessage> messages;
    EncodedValue encoded;
    do {
        read_frame(frames, with_blocks, pickled, messages.emplace_back());
    } while (!frames.empty() && !with_blocks);
    if (!frames.empty()) raise(errors.message_damaged, "a message with blocks travels alone");
    for (const nb::handle item : blocks) {
        Block* block = nb::cast<PyBlock&>(item).block;
        if (block->client != &self.client()) throw nb::value_error("the block belongs to another client");
        encoded.blocks.push_back(block);
        self.client().share(*block);
        messages[0].bytes += block->bytes;
    }
    if (messages[0].flags & kBodyInBlock) {
        const Block* body = encoded.blocks.back();
        if (body->segment->on_device()) raise(errors.message_damaged, "the body of a message is memory of a GPU");
        if (!pickled && body->bytes > 0 && body->data()[0] == std::byte{codec::kPickled})
            raise(errors.message_damaged, "a message was pickled, which this side has not allowed");
    }
    lend_holds(self, encoded, messages[0]);
    std::size_t sent = 0;
    try {
        Delivery(self, messages.data(), messages.size(), 0, sent, commit).run();
    } catch (const nb::python_error&) {
        if (sent == 0) throw;  // otherwise return the number put; the next call fails in the same way
    }
    return sent;
}

bool put(PyRing& self, nb::handle value, bool wait, nb::handle timeout) {
    self.require_client();
    self.count_call();
    const std::uint64_t deadline = deadline_of(wait, timeout);
    const ScratchLease scratch;
    write_message(self, value.ptr(), scratch->encoded, scratch->message, self.put_form());
    lend_holds(self, scratch->encoded, scratch->message);
    std::size_t sent = 0;
    Delivery(self, &scratch->message, 1, deadline, sent).run();
    if (sent == 0) raise_queue_full();
    return true;
}

std::size_t put_many(PyRing& self, const nb::list& values, bool wait, nb::handle timeout) {
    self.require_client();
    self.count_call();
    const std::uint64_t deadline = deadline_of(wait, timeout);
    std::size_t sent = 0;
    try {
        deliver_all(self, values, deadline, sent);
        // Handle a signal that arrived meanwhile, while the caller can still be told what was put.
        if (sent > 0 && PyErr_CheckSignals() != 0) throw nb::python_error();
    } catch (...) {
        add_to_error("put", nb::int_(sent));
    }
    if (sent == 0 && values.size() != 0) raise_queue_full();
    return sent;
}

}  // namespace shmtensor
