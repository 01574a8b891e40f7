#include "python/errors.hpp"

#include <nanobind/nanobind.h>

#include <cerrno>
#include <cstring>

namespace nb = nanobind;

namespace shmtensor {

Errors errors;

namespace {

constexpr const char* kTruncated =
    "a shared-memory object is shorter than when it was created: a program truncated it, and its content is lost. Use "
    "the strategy file_descriptor, whose memory cannot be truncated";

// Why a fork could not be registered, and what to do.
const char* why_not_registered(int error) {
    switch (error) {
        case EMFILE:
        case ENFILE:
            return "its parent had no file descriptors left for it; raise the limit of open files (ulimit -n), or "
                   "close some before forking";
        case ENOMEM:
            return "there was no memory to record its holds on the blocks of its parent; release tensors before "
                   "forking, or raise the memory limit";
        case ENOSPC:
            return "the table of processes, or the table of holds of a segment, was full; end some processes, or "
                   "release tensors before forking";
        case EBUSY:
            return "the metadata of a segment stayed locked by another process; it may be stopped: see "
                   "`shmtensor-manager ls`";
        case ESTALE:
            return "its slot was reclaimed before it connected; start another process";
        default:
            return std::strerror(error);
    }
}

[[noreturn]] void raise_none(PyObject* type) {
    PyErr_SetNone(type);
    throw nb::python_error();
}

}  // namespace

bool load_errors(PyObject* module) {
    try {
        const nb::object known = nb::module_::import_("shmtensor.errors");
        const auto find = [&](const char* name) { return known.attr(name).inc_ref().ptr(); };
        const auto make = [&](const char* name, PyObject* base) {
            PyObject* type = PyErr_NewException((std::string{"shmtensor._native."} + name).c_str(), base, nullptr);
            if (!type || PyModule_AddObjectRef(module, name, type) != 0) throw nb::python_error();
            return type;
        };
        errors = {
            .block_gone = make("BlockGone", nullptr),
            .lock_busy = make("LockBusy", nullptr),
            // A memoryview or an array may raise it as well, where no Python code of ours can translate it.
            .not_held = make("NotHeld", find("ClientUnavailable")),
            .refused = make("Refused", nullptr),
            .spilled = make("Spilled", nullptr),
            .argument = find("InvalidArgument"),
            .dtype = find("DTypeError"),
            .foreign_reader = find("ForeignReader"),
            .index = find("IndexOutOfRange"),
            .layout = find("LayoutError"),
            .message_damaged = find("MessageDamaged"),
            .message_too_large = find("MessageTooLarge"),
            .not_supported = find("NotSupported"),
            .queue_damaged = find("QueueDamaged"),
            .quota = find("QuotaExceeded"),
            .segment_lost = find("SegmentLost"),
            .stall = find("StallWarning"),
            .queue_empty = nb::module_::import_("_queue").attr("Empty").inc_ref().ptr(),
            .queue_full = nullptr,
        };
        return true;
    } catch (nb::python_error& error) {
        error.restore();
        return false;
    }
}

bool load_queue_full() {
    if (errors.queue_full) return true;
    PyObject* module = PyImport_ImportModule("queue");
    errors.queue_full = module ? PyObject_GetAttrString(module, "Full") : nullptr;
    Py_XDECREF(module);
    return errors.queue_full != nullptr;
}

void raise(PyObject* type, const std::string& message) {
    PyErr_SetString(type, message.c_str());
    throw nb::python_error();
}

void raise_os(int error) {
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
}

void raise_refused(const Refusal& refusal, const char* what) {
    const nb::tuple args = nb::make_tuple(what, refusal.error, refusal.bytes, refusal.limit, refusal.segment);
    PyErr_SetObject(errors.refused, args.ptr());
    throw nb::python_error();
}

void set_not_held(const Client& client) {
    if (client.fork_error() != 0)
        PyErr_Format(errors.not_held,
                     "shared memory cannot be used in this process: its fork could not be registered, since %s",
                     why_not_registered(client.fork_error()));
    else
        PyErr_Format(errors.not_held,
                     "shared memory cannot be used in this process: %s. Start children by fork, spawn or forkserver of "
                     "shmtensor.multiprocessing",
                     client.connection() < 0 ? "its client is closed" : "it was cloned without the fork hooks");
}

void raise_not_held(const Client& client) {
    set_not_held(client);
    throw nb::python_error();
}

void raise_status(Status status, const Client& client) {
    switch (status) {
        case Status::busy:
            raise(errors.lock_busy, "the metadata of a segment stayed locked by another process for 30 s");
        case Status::need_segment:
            raise(PyExc_MemoryError, "new segments have no room for the request");
        case Status::need_mapping:
            raise(PyExc_RuntimeError, "need_mapping did not add the segment");
        case Status::gone:
            raise(errors.block_gone, "no live block of this generation");
        case Status::refused:
        case Status::full:
            raise_refused(Client::refusal(), "reserving pages");
        case Status::lost:
            raise(errors.segment_lost, kTruncated);
        case Status::not_held:
            raise_not_held(client);
        case Status::ok:
        case Status::slow:
            break;
    }
    raise(PyExc_SystemError, "a call that did not fail is reported as failed");
}

void raise_queue_empty() {
    raise_none(errors.queue_empty);
}

void raise_queue_full() {
    raise_none(errors.queue_full);
}

void raise_queue_damaged() {
    raise(errors.queue_damaged, "the shared memory of the queue has invalid content; something overwrote it");
}

void raise_too_large(std::uint64_t bytes, std::size_t blocks, std::uint64_t max_bytes) {
    raise(errors.message_too_large, "a message of " + std::to_string(bytes) + " bytes and " + std::to_string(blocks) +
                                        " blocks does not fit into this queue (" +
                                        (max_bytes ? "maxbytes " + std::to_string(max_bytes) : "no limit of bytes") +
                                        "); send it in parts");
}

void raise_message_lost(const std::string& why) {
    raise(errors.segment_lost, "a message refers to memory that is lost, and was removed from the queue: " +
                                   (why.empty() ? kTruncated : why));
}

}  // namespace shmtensor
