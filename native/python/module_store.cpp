// The binding of store.hpp: _native.StoreRing, the store in a ring.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/store.hpp"
#include "python/codec.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/results.hpp"
#include "python/rings.hpp"
#include "python/store_facts.hpp"
#include "python/waits.hpp"

namespace shmtensor {
namespace {

constexpr std::size_t kKeysAtOnce = 1024;  // keys that one call reads under the lock

struct StoredFacts {
    std::uint64_t version, nbytes, created_ns, expires_ns;
    std::uint32_t holders;
    bool pinned, spilled;
};
struct PutResult {
    int status;
    std::size_t which;
    std::vector<std::uint64_t> versions;
    std::uint64_t nbytes;
};
enum PutStatus : int { kPut = 0, kExists = 1, kFull = 2, kTooLarge = 3, kNotReserved = 4 };

}  // namespace

template <>
struct Result<StoredFacts> {
    static constexpr const char* name = "StoredFacts";
    static constexpr std::tuple fields{
        field("version", &StoredFacts::version),       field("nbytes", &StoredFacts::nbytes),
        field("created_ns", &StoredFacts::created_ns), field("expires_ns", &StoredFacts::expires_ns),
        field("holders", &StoredFacts::holders),       field("pinned", &StoredFacts::pinned),
        field("spilled", &StoredFacts::spilled)};
};
template <>
struct Result<PutResult> {
    static constexpr const char* name = "PutResult";
    static constexpr std::tuple fields{field("status", &PutResult::status), field("which", &PutResult::which),
                                       field("versions", &PutResult::versions), field("nbytes", &PutResult::nbytes)};
};

namespace {

std::string_view utf8_of(nb::handle text) {
    if (!PyUnicode_Check(text.ptr()))
        raise(errors.argument,
              std::string{"a key of a store must be a str, not "} + Py_TYPE(text.ptr())->tp_name + "; give str(key)");
    Py_ssize_t bytes = 0;
    const char* at = PyUnicode_AsUTF8AndSize(text.ptr(), &bytes);
    if (!at) {
        PyErr_Clear();
        raise(errors.argument, "a key of a store must be text in UTF-8; this one has a lone surrogate");
    }
    return {at, static_cast<std::size_t>(bytes)};
}

StoreKey key_of(nb::handle text) {
    const std::string_view key = utf8_of(text);
    if (key.empty() || key.size() > kMaxKeyBytes)
        raise(errors.argument, "a key is a str of 1 to " + std::to_string(kMaxKeyBytes) +
                                   " bytes in UTF-8; this one has " + std::to_string(key.size()));
    return StoreKey(key);
}

// _native.StoreRing
struct PyStore {
    explicit PyStore(nb::object object)
        : ring_object(std::move(object)), ring(nb::cast<PyRing&>(ring_object)), store(ring.ring, client().group()) {}
    PyStore(const PyStore&) = delete;
    PyStore& operator=(const PyStore&) = delete;
    Client& client() const { return ring.client(); }

    // Repeats an attempt until it succeeds, or fails for a reason that the caller must handle. Waits for a lock without
    // a time limit, but handles signals.
    template <class Attempt>
    RingStatus call(ClientLookup& lookup, Attempt&& attempt) {
        ring.require_client();
        RingRetry between(ring, lookup, kForever, End::tail);
        return retry(attempt(0u), std::forward<Attempt>(attempt), [&](RingStatus status) {
            between.note(status);
            switch (status) {
                case RingStatus::busy:
                case RingStatus::need_mapping:
                case RingStatus::damaged:
                    return between.next(status);
                case RingStatus::no_room:
                    reserve_room();
                    return 0;
                default:
                    return kDone;
            }
        });
    }
    void reserve_room() {
        Refusal refusal;
        {
            const GilRelease released;
            reserve(ring.ring, store.room(), client(), refusal);
        }
        if (refusal.error) raise_refused(refusal, "making the table of a store larger");
    }

    nb::object ring_object;
    PyRing& ring;
    Store store;
};

PutResult put_objects(PyStore& self, const nb::list& keys, const nb::list& values, std::uint64_t expires, bool pinned,
                      int present, bool copies, std::uint64_t reservation) {
    if (keys.size() != values.size()) throw nb::value_error("the numbers of keys and values differ");
    self.ring.require_client();
    std::vector<std::unique_ptr<ScratchLease>> scratch;
    std::vector<EncodedMessage> messages(keys.size());
    std::vector<NewObject> objects;
    scratch.reserve(keys.size());
    objects.reserve(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        objects.push_back({.key = key_of(keys[i]),
                           .message = &messages[i],
                           .expires = expires,
                           .pinned = pinned,
                           .version = reservation});
        scratch.push_back(std::make_unique<ScratchLease>());
        const nb::object value = values[i];
        write_message(self.ring, value.ptr(), (*scratch.back())->encoded, messages[i],
                      copies ? kCopyTensors | kRefusePickle : kAnyForm);
        if (!copies && is_pickled(messages[i].body))
            raise(errors.dtype, "an object created in a store must be a tensor of numbers in native byte order");
    }
    HoldsGuard unput(self.client(), messages);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        messages[i].mark = self.client().new_mark();
        lend_holds(self.ring, (*scratch[i])->encoded, messages[i]);
    }
    ClientLookup lookup(self.ring.self, kForever);
    PutResult result{kPut, 0, {}, 0};
    for (const EncodedMessage& message : messages) result.nbytes += message.bytes;
    const auto attempt = [&](unsigned patience) {
        return self.store.put(objects, static_cast<IfPresent>(present), self.client().slot(), lookup, patience,
                              &result.which);
    };
    switch (self.call(lookup, attempt)) {
        case RingStatus::ok:
            unput.messages = {};
            for (const NewObject& object : objects) result.versions.push_back(object.version);
            break;
        case RingStatus::exists:
            result.status = kExists;
            break;
        case RingStatus::empty:
            result.status = kNotReserved;
            break;
        case RingStatus::too_large:
            result.status = kTooLarge;
            break;
        default:
            result.status = kFull;
    }
    return result;
}

// Raises KeyError if there is no such object in time, and Spilled with its version if it is in a file.
nb::object get_object(PyStore& self, nb::handle key, std::uint64_t version, nb::handle timeout) {
    const StoreKey found = key_of(key);
    const std::uint64_t deadline = timeout.is_none() ? 0 : deadline_of(true, timeout);
    const ScratchLease scratch;
    const HoldsGuard unread(self.client(), {&scratch->message, 1});
    for (;;) {
        const std::uint32_t seen = self.store.changes();
        ClientLookup lookup(self.ring.self, kForever);
        std::uint64_t which = version;
        const auto attempt = [&](unsigned patience) {
            which = version;
            return self.store.get(found, &which, scratch->message, self.client().slot(), lookup, patience);
        };
        const RingStatus status = self.call(lookup, attempt);
        if (status == RingStatus::ok) {
            if (scratch->message.lost) lookup.raise_lost();
            return read_message(self.ring, scratch->message, scratch->encoded, Access::sealed);
        }
        HoldsGuard(self.client(), {&scratch->message, 1}).drop();
        if (status == RingStatus::spilled) {
            PyErr_SetObject(errors.spilled, nb::int_(which).ptr());
            throw nb::python_error();
        }
        if (status == RingStatus::full) {
            retry_blocking(self.ring.self, {.segment = lookup.missing},
                           [&](unsigned patience) { return self.client().reserve_holds(lookup.missing, patience); });
            continue;
        }
        const std::uint64_t left = deadline == 0 ? 0 : left_of(deadline);
        if (left == 0) {
            PyErr_SetObject(PyExc_KeyError, key.ptr());
            throw nb::python_error();
        }
        sleep_without_gil(self.ring.self, [&] { self.store.await_change(seen, left); });
    }
}

bool remove(PyStore& self, nb::handle key) {
    const StoreKey found = key_of(key);
    ClientLookup lookup(self.ring.self, kForever);
    const RingStatus status = self.call(
        lookup, [&](unsigned patience) { return self.store.remove(found, self.client().slot(), lookup, patience); });
    if (self.store.has_removed()) {
        ClientLookup again(self.ring.self, kForever);
        self.call(again, [&](unsigned patience) { return self.store.release(self.client().slot(), again, patience); });
    }
    return status == RingStatus::ok;
}

std::uint32_t expire(PyStore& self) {
    std::uint32_t at = 0, expired = 0;
    for (RingStatus status = RingStatus::ok; status == RingStatus::ok;) {
        ClientLookup lookup(self.ring.self, kForever);
        status = self.call(lookup, [&](unsigned patience) {
            return self.store.expire(&at, &expired, self.client().slot(), lookup, patience);
        });
        check_signals(self.ring.self);
    }
    return expired;
}

// The version of the reservation; 0: the key is in use.
std::uint64_t reserve_key(PyStore& self, nb::handle key) {
    const StoreKey found = key_of(key);
    ClientLookup lookup(self.ring.self, kForever);
    std::uint64_t version = 0;
    const RingStatus status = self.call(lookup, [&](unsigned patience) {
        return self.store.reserve_key(found, &version, self.client().slot(), lookup, patience);
    });
    return status == RingStatus::ok ? version : 0;
}

void give_up(PyStore& self, nb::handle key, std::uint64_t version) {
    const StoreKey found = key_of(key);
    ClientLookup lookup(self.ring.self, kForever);
    self.call(lookup, [&](unsigned patience) {
        return self.store.give_up(found, version, self.client().slot(), lookup, patience);
    });
}

bool touch(PyStore& self, nb::handle key, nb::handle expires, nb::handle pinned) {
    const StoreKey found = key_of(key);
    const std::uint64_t ns = expires.is_none() ? 0 : nb::cast<std::uint64_t>(expires);
    const bool pin = !pinned.is_none() && nb::cast<bool>(pinned);
    ClientLookup lookup(self.ring.self, kForever);
    return self.call(lookup, [&](unsigned patience) {
        return self.store.touch(found, expires.is_none() ? nullptr : &ns, pinned.is_none() ? nullptr : &pin,
                                self.client().slot(), lookup, patience);
    }) == RingStatus::ok;
}

// None: there is no such object.
nb::object stat(PyStore& self, nb::handle key) {
    const StoreKey found = key_of(key);
    ObjectFacts facts{};
    ClientLookup lookup(self.ring.self, kForever);
    const RingStatus status = self.call(lookup, [&](unsigned patience) {
        return self.store.facts(found, facts, self.client().slot(), lookup, patience);
    });
    if (status != RingStatus::ok) return nb::none();
    return nb::cast(StoredFacts{facts.version, facts.bytes, facts.created, facts.expires, facts.holders, facts.pinned,
                                facts.spilled});
}

// With `details`: (key, version, expiry time in ns of CLOCK_BOOTTIME, or 0).
nb::list keys(PyStore& self, nb::handle prefix, bool details) {
    const std::string_view begins = utf8_of(prefix);
    nb::list all;
    std::string after;
    Store::Keys found(kKeysAtOnce, kKeysAtOnce * 64);
    for (RingStatus status = RingStatus::ok; status == RingStatus::ok;) {
        ClientLookup lookup(self.ring.self, kForever);
        status = self.call(lookup, [&](unsigned patience) {
            found.clear();
            return self.store.keys(begins, after, found, self.client().slot(), lookup, patience);
        });
        for (std::size_t i = 0; i < found.size(); ++i) {
            const nb::str key(found.key(i).data(), found.key(i).size());
            if (details)
                all.append(nb::make_tuple(key, found.version(i), found.expires(i)));
            else
                all.append(key);
        }
        if (found.size() > 0) after = found.key(found.size() - 1);
        check_signals(self.ring.self);
    }
    return all;
}

// Waits until the number of changes, which wraps at 2**32, differs from `seen`, or the time is up; returns it.
std::uint32_t await_change(PyStore& self, std::uint32_t seen, nb::handle timeout) {
    const std::uint64_t deadline = deadline_of(true, timeout);
    while (self.store.changes() == seen) {
        const std::uint64_t left = left_of(deadline);
        if (left == 0) break;
        sleep_without_gil(self.ring.self, [&] { self.store.await_change(seen, left); });
    }
    return self.store.changes();
}

void make(PyStore& self, std::uint64_t max_bytes, bool evicts, const std::string& spill_path,
          std::uint64_t max_spilled_bytes) {
    if (spill_path.size() >= kMaxSpillPath)
        raise(errors.argument, "the path of a spill directory has at most " + std::to_string(kMaxSpillPath - 1) +
                                   " bytes; this one has " + std::to_string(spill_path.size()));
    self.store.make(max_bytes, evicts, spill_path, max_spilled_bytes);
}

// None: there are too many.
std::optional<std::vector<std::uint64_t>> take_dropped(PyStore& self) {
    std::vector<std::uint64_t> versions;
    versions.reserve(kStoreDropped);
    ClientLookup lookup(self.ring.self, kForever);
    const RingStatus status = self.call(lookup, [&](unsigned patience) {
        return self.store.take_dropped(versions, self.client().slot(), lookup, patience);
    });
    if (status != RingStatus::ok) return std::nullopt;
    return versions;
}

// (key, version) of the object to spill next, none of the keys in `but`; ("", 0) after one was evicted; None: no object
// may be spilled.
nb::object choose(PyStore& self, const nb::list& but) {
    Store::Found found;
    found.key.reserve(kMaxKeyBytes);
    std::vector<StoreKey> kept;
    kept.reserve(but.size());
    for (const nb::handle key : but) kept.push_back(key_of(key));
    ClientLookup lookup(self.ring.self, kForever);
    const RingStatus status = self.call(lookup, [&](unsigned patience) {
        return self.store.choose(found, kept, self.client().slot(), lookup, patience);
    });
    if (status != RingStatus::ok) return nb::none();
    return nb::make_tuple(nb::str(found.key.data(), found.key.size()), found.version);
}

int spill(PyStore& self, nb::handle key, std::uint64_t version) {
    const StoreKey known = key_of(key);
    ClientLookup lookup(self.ring.self, kForever);
    switch (self.call(lookup, [&](unsigned patience) {
        return self.store.spill(known, version, self.client().slot(), lookup, patience);
    })) {
        case RingStatus::ok:
            return kPut;
        case RingStatus::full:
            return kFull;
        default:
            return kExists;
    }
}

std::vector<std::uint64_t> spilled(PyStore& self) {
    std::vector<std::uint64_t> versions;
    for (std::size_t needed = 0;;) {
        versions.clear();
        versions.reserve(needed + kKeysAtOnce);
        RingStatus fits = RingStatus::ok;
        ClientLookup lookup(self.ring.self, kForever);
        self.call(lookup, [&](unsigned patience) {
            const RingStatus status = self.store.spilled(versions, &needed, self.client().slot(), lookup, patience);
            if (status != RingStatus::no_room) return status;
            fits = status;
            return RingStatus::ok;
        });
        if (fits == RingStatus::ok) return versions;
    }
}

}  // namespace

void add_store(nb::module_& m) {
    add_result<StoreFacts>(m);
    add_result<StoredFacts>(m);
    add_result<PutResult>(m);
    m.attr("STORE_REFUSE") = static_cast<int>(IfPresent::refuse);
    m.attr("STORE_REPLACE") = static_cast<int>(IfPresent::replace);
    m.attr("STORE_SEAL") = static_cast<int>(IfPresent::seal);
    m.attr("STORE_PUT") = static_cast<int>(kPut);
    m.attr("STORE_EXISTS") = static_cast<int>(kExists);
    m.attr("STORE_FULL") = static_cast<int>(kFull);
    m.attr("STORE_TOO_LARGE") = static_cast<int>(kTooLarge);
    m.attr("STORE_NOT_RESERVED") = static_cast<int>(kNotReserved);

    nb::class_<PyStore>(m, "StoreRing", nb::is_final(), nb::is_weak_referenceable())
        .def(nb::init<nb::object>(), nb::arg("ring"))
        .def("make", &make, nb::arg("max_bytes"), nb::arg("evicts"), nb::arg("spill_path") = "",
             nb::arg("max_spilled_bytes") = 0)
        .def_prop_ro("spill_path", [](PyStore& self) { return std::string(self.store.header().spill_path); })
        .def("choose", &choose, nb::arg("but"))
        .def("spill", &spill, nb::arg("key").none(), nb::arg("version"))
        .def("spilled", &spilled)
        .def_prop_rw(
            "writing", [](PyStore& self) { return self.store.header().writing != 0; },
            [](PyStore& self, bool writing) { self.store.header().writing = writing; })
        .def("take_dropped", &take_dropped)
        .def("forget_dropped", [](PyStore& self) { self.store.forget_dropped(); })
        .def("put", &put_objects, nb::arg("keys"), nb::arg("values"), nb::arg("expires"), nb::arg("pinned"),
             nb::arg("present"), nb::arg("copies") = true, nb::arg("reservation") = 0)
        .def("get", &get_object, nb::arg("key").none(), nb::arg("version") = 0, nb::arg("timeout") = nb::none())
        .def("remove", &remove, nb::arg("key").none())
        .def("is_new", [](PyStore& self) { return self.store.header().high == 0; })
        .def("reserve_key", &reserve_key, nb::arg("key").none())
        .def("expire", &expire)
        .def("give_up", &give_up, nb::arg("key"), nb::arg("version"))
        .def("touch", &touch, nb::arg("key").none(), nb::arg("expires").none(), nb::arg("pinned").none())
        .def("stat", &stat, nb::arg("key").none())
        .def("keys", &keys, nb::arg("prefix").none(), nb::arg("versions") = false)
        .def("changes", [](PyStore& self) { return self.store.changes(); })
        .def("await_change", &await_change, nb::arg("seen"), nb::arg("timeout").none())
        .def("stats", [](PyStore& self) { return store_facts(self.ring.ring); })
        .def("check_invariants", [](PyStore& self) { require_sound(self.store.check()); });
}

}  // namespace shmtensor
