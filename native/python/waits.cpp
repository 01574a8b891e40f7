#include "python/waits.hpp"

#include <cmath>

#include "python/errors.hpp"

namespace shmtensor {
namespace {

constexpr std::uint64_t kLockBound = 30'000'000'000;  // ns until a lock that stays held is an error
constexpr std::uint64_t kAskAgain = 100'000'000;      // ns between two searches for a manager
constexpr int kSegmentTries = 3;                      // need_segment calls for one allocation

}  // namespace

std::uint64_t deadline_of(bool wait, nb::handle timeout) {
    if (!wait) return 0;
    if (timeout.is_none()) return kForever;
    const double seconds = PyFloat_AsDouble(timeout.ptr());
    if (seconds == -1.0 && PyErr_Occurred()) throw nb::python_error();
    if (std::isnan(seconds)) raise(PyExc_ValueError, "a timeout is not a number");
    if (seconds <= 0) return 0;
    return seconds < 1e9 ? os::monotonic_ns() + static_cast<std::uint64_t>(seconds * 1e9) : kForever;
}

std::uint64_t left_of(std::uint64_t deadline) {
    if (deadline == kForever) return kForever;
    const std::uint64_t now = deadline == 0 ? 0 : os::monotonic_ns();
    return deadline > now ? deadline - now : 0;
}

void ask_for_manager(PyClient& client) {
    const std::uint64_t now = os::monotonic_ns();
    if (now - client.asked < kAskAgain || !client.client.may_touch()) return;
    client.asked = now;
    client.need_manager();
    client.asked = os::monotonic_ns();  // the call may have taken long
}

void check_signals(PyClient& client) {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    look_for_manager(client);
}

// Let the program free memory for an allocation that was refused (shmtensor.hooks), once. False: it has no callback, or
// was called already. May run arbitrary Python code, and raise.
bool ClientRetry::relieve() {
    if (relieved_ || needs_.bytes == 0) return false;
    // Do not import it here, since descriptors may be lacking. Without the module, no callback has been set.
    const nb::object hooks = nb::steal(PyImport_GetModule(nb::str("shmtensor.hooks").ptr()));
    relieved_ = hooks.is_valid() && nb::cast<bool>(hooks.attr("relieve")(needs_.bytes));
    return relieved_;
}

int ClientRetry::operator()(Status status) {
    if (status == Status::ok) return kDone;
    const std::uint64_t now = os::monotonic_ns();
    if (until_ == 0) until_ = now + kLockBound;
    switch (status) {
        case Status::slow:
            return kSlice;
        case Status::busy:
            check_signals(client_);
            if (now > until_) break;
            return kSlice;
        case Status::need_segment:
            if (++tries_ > kSegmentTries) break;
            try {
                if (needs_.device == kHost)
                    client_.need_segment(wrapper_of(client_.client), payload_for(needs_.bytes));
                else
                    client_.need_segment(wrapper_of(client_.client), needs_.bytes, needs_.device);
            } catch (nb::python_error& error) {
                if (!error.matches(PyExc_MemoryError) || !relieve()) throw;
            }
            return kSlice;
        case Status::need_mapping:
            if (++tries_ > kSegmentTries) break;
            client_.need_mapping(wrapper_of(client_.client), needs_.segment, true);
            return kSlice;
        case Status::refused:
        case Status::full:
            if (!relieve()) break;
            return kSlice;
        default:
            break;
    }
    raise_status(status, client_.client);
}

}  // namespace shmtensor
