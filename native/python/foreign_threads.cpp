#include "python/foreign_threads.hpp"

#include <atomic>
#include <cstdint>
#include <new>

#include "base/os.hpp"

namespace shmtensor {
namespace {

struct Dropped {
    PyObject* object;
    Dropped* next;
};

std::atomic<Dropped*> dropped{nullptr};
std::atomic<std::uint32_t> drops{0};  // the thread waits for a change
std::atomic<int> owner{0};            // the process that has the thread: a child of fork has none

void drop_all(Dropped* first) {
    try {
        const PyGILState_STATE state = PyGILState_Ensure();
        while (first) {
            Dropped* const next = first->next;
            Py_DECREF(first->object);
            delete first;
            first = next;
        }
        PyGILState_Release(state);
    } catch (...) {  // the interpreter is ending, and unwinds threads that want the GIL: see GilRelease
        os::sleep_forever();
    }
}

void drop_for_ever() {
    for (;;) {
        const std::uint32_t seen = drops.load(std::memory_order_acquire);
        Dropped* const first = dropped.exchange(nullptr, std::memory_order_acquire);
        if (is_python_ending()) return;
        if (first)
            drop_all(first);
        else
            drops.wait(seen, std::memory_order_acquire);
    }
}

}  // namespace

bool is_python_ending() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
    return !Py_IsInitialized() || Py_IsFinalizing();
#else
    return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

void drop_soon(PyObject* object) noexcept {
    if (is_python_ending()) return;
    auto* const given = new (std::nothrow) Dropped{object, nullptr};
    if (!given) return;
    given->next = dropped.load(std::memory_order_relaxed);
    while (!dropped.compare_exchange_weak(given->next, given, std::memory_order_release, std::memory_order_relaxed)) {
    }
    drops.fetch_add(1, std::memory_order_release);
    drops.notify_one();
    const int process = os::process_id();
    int known = owner.load();
    if (known != process && owner.compare_exchange_strong(known, process) && os::start_thread(drop_for_ever) != 0)
        owner.store(0);  // the next call tries again
}

}  // namespace shmtensor
