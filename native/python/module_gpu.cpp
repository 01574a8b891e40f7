// The binding of timelines.hpp, _native.Timelines, and calls of the driver on the path of a message. The driver's
// functions are passed as addresses, so that nothing here is linked with CUDA.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "heap/timelines.hpp"
#include "python/module.hpp"
#include "python/objects.hpp"
#include "python/operands.hpp"
#include "python/results.hpp"
#include "python/waits.hpp"

namespace shmtensor {
namespace {

struct TimelineFacts {
    std::uint64_t completed, issued;
    std::uint32_t slot, generation;
    std::uint64_t lost_from, lost_to;
};

constexpr unsigned kWriteAfterFence = 0;     // CU_STREAM_WRITE_VALUE_DEFAULT
constexpr unsigned kWaitGreaterOrEqual = 0;  // CU_STREAM_WAIT_VALUE_GEQ
constexpr int kRelaxed = 2;                  // CU_STREAM_CAPTURE_MODE_RELAXED

// The driver's functions on the path of a message. Each returns 0 (CUDA_SUCCESS) or an error code.
struct StreamFunctions {
    int (*write)(void* stream, std::uint64_t address, std::uint64_t value, unsigned flags);  // cuStreamWriteValue64_v2
    int (*wait)(void* stream, std::uint64_t address, std::uint64_t value, unsigned flags);   // cuStreamWaitValue64_v2
    int (*query)(void* stream);                                                              // cuStreamQuery
    int (*is_capturing)(void* stream, int* status);                                          // cuStreamIsCapturing
    int (*exchange_mode)(int* mode);     // cuThreadExchangeStreamCaptureMode
    int (*current_context)(void** own);  // cuCtxGetCurrent
    int (*push_context)(void* own);      // cuCtxPushCurrent_v2
    int (*pop_context)(void** own);      // cuCtxPopCurrent_v2
};

// Makes a context current in this thread during its scope, since stream 0 belongs to a context. nullptr: not needed.
class InContext {
   public:
    InContext(const StreamFunctions& functions, std::uintptr_t context) : functions_(functions) {
        void* const own = reinterpret_cast<void*>(context);  // NOLINT(performance-no-int-to-ptr)
        void* now = nullptr;
        if (own == nullptr || (functions_.current_context(&now) == 0 && now == own)) return;
        refused_ = functions_.push_context(own);
        pushed_ = refused_ == 0;
    }
    InContext(const InContext&) = delete;
    InContext& operator=(const InContext&) = delete;
    InContext(InContext&&) = delete;
    InContext& operator=(InContext&&) = delete;
    ~InContext() {
        void* own = nullptr;
        if (pushed_) functions_.pop_context(&own);
    }
    int refused() const { return refused_; }

   private:
    const StreamFunctions& functions_;
    int refused_ = 0;
    bool pushed_ = false;
};

class PyTimelines {
   public:
    explicit PyTimelines(nb::object group)
        : group_object_(std::move(group)), timelines_(nb::cast<Group&>(group_object_)) {}

    std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(&timelines_.at(0)); }

    void use(const std::array<std::uintptr_t, 8>& functions, std::uint64_t base) {
        static_assert(sizeof functions == sizeof functions_);
        std::memcpy(&functions_, functions.data(), sizeof functions_);
        base_ = base;
    }

    // Whether all work of `stream` is done. False also if the driver refuses the query.
    bool is_idle(std::uintptr_t context, std::uintptr_t stream) const {
        require_driver();
        const InContext entered(functions_, context);
        return entered.refused() == 0 && is_idle(stream);
    }

    // The next point of a line, which `stream` reaches after its work so far. 0, which every line has reached: the
    // stream has no work left. Below 0: the driver refused, with -result.
    std::int64_t mark(std::uint32_t index, std::uintptr_t context, std::uintptr_t stream) {
        Timeline& line = checked(index);
        require_driver();
        const InContext entered(functions_, context);
        if (entered.refused() != 0) return -entered.refused();
        if (is_idle(stream)) return 0;
        const std::lock_guard in_order(marking_);  // a later point must not be submitted before an earlier one
        const std::uint64_t point = line.issued.load(std::memory_order_relaxed) + 1;
        line.issued.store(point);
        const int refused = call(functions_.write, stream, index, point, kWriteAfterFence);
        if (refused == 0) return static_cast<std::int64_t>(point);
        line.issued.store(point - 1);
        return -refused;
    }

    // Make later work of `stream` wait for a point. 0, or the driver's result.
    int wait(std::uint32_t index, std::uint64_t point, std::uintptr_t context, std::uintptr_t stream) {
        checked(index);
        require_driver();
        if (timelines_.is_reached(index, point)) return 0;
        const InContext entered(functions_, context);
        if (entered.refused() != 0) return entered.refused();
        return call(functions_.wait, stream, index, point, kWaitGreaterOrEqual);
    }

    bool is_reached(std::uint32_t index, std::uint64_t point) const {
        checked(index);
        return timelines_.is_reached(index, point);
    }
    bool is_lost(std::uint32_t index, std::uint64_t point) const {
        checked(index);
        return timelines_.is_lost(index, point);
    }
    TimelineFacts facts(std::uint32_t index) const {
        const Timeline& line = checked(index);
        const std::uint64_t owner = line.owner.load();
        return {line.completed.load(),
                line.issued.load(),
                static_cast<std::uint32_t>(owner),
                static_cast<std::uint32_t>(owner >> 32),
                line.lost_from.load(),
                line.lost_to.load()};
    }
    int claim(std::uint32_t slot, std::uint32_t generation) {
        slot_ = slot;
        generation_ = generation;
        const std::uint32_t index = timelines_.claim(slot, generation);
        return index == kNone ? -1 : static_cast<int>(index);
    }
    // False: points are outstanding, or the line does not belong to this object's client.
    bool give_back(std::uint32_t index) const {
        checked(index);
        return timelines_.give_back(index, slot_, generation_);
    }

   private:
    Timeline& checked(std::uint32_t index) const {
        if (index >= kTimelines) throw nb::index_error("no such timeline");
        return timelines_.at(index);
    }
    void require_driver() const {
        if (!functions_.write) throw nb::value_error("the timelines have not been given a driver");
    }
    // Whether a stream has no work left, by a query; of the default stream, also those that it waits for. A query of a
    // stream that captures a graph breaks off the capture; and while any other one captures, so does every query,
    // unless this thread's mode is relaxed.
    bool is_idle(std::uintptr_t handle) const {
        void* const stream = reinterpret_cast<void*>(handle);  // NOLINT(performance-no-int-to-ptr)
        int status = 0, mode = kRelaxed;
        if (functions_.is_capturing(stream, &status) != 0 || status != 0) return false;
        functions_.exchange_mode(&mode);
        const int found = functions_.query(stream);
        functions_.exchange_mode(&mode);
        return found == 0;
    }
    int call(int (*function)(void*, std::uint64_t, std::uint64_t, unsigned), std::uintptr_t stream, std::uint32_t index,
             std::uint64_t value, unsigned flags) const {
        return function(reinterpret_cast<void*>(stream), base_ + index * sizeof(Timeline), value, flags);  // NOLINT
    }

    nb::object group_object_;
    Timelines timelines_;
    std::mutex marking_;
    std::uint32_t slot_ = 0, generation_ = 0;  // of the client that claims lines; slot 0 is not a client
    StreamFunctions functions_{};
    std::uint64_t base_ = 0;
};

// The block of device memory that contains all of [address, address + bytes), of any client of this process.
nb::object device_block_at(std::uintptr_t address, std::uint64_t bytes) {
    const auto* data = reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
    Block* block = nullptr;
    bool readonly = false;
    if (Client::locate(data, bytes, 0, &block, &readonly) == Status::busy) {
        const GilRelease released;
        Client::locate(data, bytes, kSlice, &block, &readonly);
    }
    if (!block) return nb::none();
    nb::object found = wrapper_of(block);
    return block->segment->on_device() ? found : nb::none();
}

}  // namespace

template <>
struct Result<TimelineFacts> {
    static constexpr const char* name = "TimelineFacts";
    static constexpr std::tuple fields{
        field("completed", &TimelineFacts::completed), field("issued", &TimelineFacts::issued),
        field("slot", &TimelineFacts::slot),           field("generation", &TimelineFacts::generation),
        field("lost_from", &TimelineFacts::lost_from), field("lost_to", &TimelineFacts::lost_to)};
};

void add_gpu(nb::module_& m) {
    m.attr("TIMELINES") = kTimelines;
    m.attr("TIMELINES_BYTES") = kTimelines * sizeof(Timeline);
    add_result<TimelineFacts>(m);
    m.def("has_device_arrays", [] { return device_module != nullptr; });
    m.def("is_device_array", [](nb::handle object) { return is_device_array(object.ptr()); }, nb::arg("object").none());
    m.def(
        "set_device_arrays", [](nb::handle type, nb::handle module) { set_device_arrays(type.ptr(), module.ptr()); },
        nb::arg("type"), nb::arg("module"));
    m.def("device_block_at", &device_block_at, nb::arg("address"), nb::arg("nbytes"));
    nb::class_<PyTimelines>(m, "Timelines", nb::is_final())
        .def(nb::init<nb::object>(), nb::arg("group"))
        .def_prop_ro("address", &PyTimelines::address)
        .def("use", &PyTimelines::use, nb::arg("functions"), nb::arg("base"))
        .def("claim", &PyTimelines::claim, nb::arg("slot"), nb::arg("generation"))
        .def("give_back", &PyTimelines::give_back, nb::arg("index"))
        .def("is_idle", nb::overload_cast<std::uintptr_t, std::uintptr_t>(&PyTimelines::is_idle, nb::const_),
             nb::arg("context"), nb::arg("stream"))
        .def("mark", &PyTimelines::mark, nb::arg("index"), nb::arg("context"), nb::arg("stream"))
        .def("wait", &PyTimelines::wait, nb::arg("index"), nb::arg("point"), nb::arg("context"), nb::arg("stream"))
        .def("is_reached", &PyTimelines::is_reached, nb::arg("index"), nb::arg("point"))
        .def("is_lost", &PyTimelines::is_lost, nb::arg("index"), nb::arg("point"))
        .def("facts", &PyTimelines::facts, nb::arg("index"));
}

}  // namespace shmtensor
