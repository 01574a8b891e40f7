// The bindings of blocks and their views, _native.Block and _native.View, and of arrays over other arrays' memory.
#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "python/array.hpp"
#include "python/codec_memory.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/objects.hpp"
#include "python/operands.hpp"
#include "python/views.hpp"

namespace shmtensor {
namespace {

nb::object taken(PyObject* array) {
    if (!array) throw nb::python_error();
    return nb::steal(array);
}

// Refuses the buffer: the memory may belong to another process by now.
int refuse_buffer(const Client& client, Py_buffer* buffer) {
    set_not_held(client);
    buffer->obj = nullptr;
    return -1;
}

// The error for memory that only a device may touch.
constexpr const char* kOnDevice = "the block is memory of a GPU, which the CPU cannot read";
void require_host(const Block& b) {
    if (b.segment->on_device()) raise(PyExc_BufferError, kOnDevice);
}

int block_buffer(PyObject* exporter, Py_buffer* buffer, int flags) {
    const Block& b = *nb::inst_ptr<PyBlock>(exporter)->block;
    if (b.segment->on_device()) return PyBuffer_FillInfo(buffer, exporter, nullptr, 0, 1, flags);  // for PickleBuffer
    if (!b.client->may_touch()) return refuse_buffer(*b.client, buffer);
    return PyBuffer_FillInfo(buffer, exporter, b.data(), static_cast<Py_ssize_t>(b.bytes), 0, flags);
}
PyType_Slot block_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(block_buffer)}, {0, nullptr}};

int view_buffer(PyObject* exporter, Py_buffer* buffer, int flags) {
    const PyView& v = *nb::inst_ptr<PyView>(exporter);
    if (const Client* client = v.untouchable()) return refuse_buffer(*client, buffer);
    return PyBuffer_FillInfo(buffer, exporter, v.data, static_cast<Py_ssize_t>(v.bytes), !v.writable(), flags);
}
PyType_Slot view_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(view_buffer)}, {0, nullptr}};

nb::object block_array(nb::handle self, nb::handle dtype, nb::handle shape, Py_ssize_t offset, nb::handle strides) {
    const Block& b = *nb::inst_ptr<PyBlock>(self)->block;
    if (!b.client->may_touch()) raise_not_held(*b.client);
    require_host(b);
    return taken(make_array(self.ptr(), b.data(), b.bytes, dtype.ptr(), shape.ptr(), offset, strides.ptr()));
}

nb::object view_array(nb::handle self, nb::handle dtype, nb::handle shape, Py_ssize_t offset, nb::handle strides) {
    const PyView& v = *nb::inst_ptr<PyView>(self);
    if (const Client* client = v.untouchable()) raise_not_held(*client);
    return taken(
        make_array(self.ptr(), v.data, v.bytes, dtype.ptr(), shape.ptr(), offset, strides.ptr(), v.writable()));
}

bool array_overlaps(nb::handle array) {
    bool result = false;
    if (!overlaps(array.ptr(), &result)) throw nb::python_error();
    return result;
}

nb::object strided(nb::handle array, nb::handle shape, nb::handle strides, Py_ssize_t offset) {
    if (is_device_array(array.ptr()))
        return nb::module_::import_("shmtensor.gpu.arrays").attr("strided")(array, shape, strides, offset);
    return taken(strided_view(array.ptr(), shape.ptr(), strides.ptr(), offset));
}

void add_block(nb::module_& m) {
    nb::class_<PyBlock>(m, "Block", nb::is_final(), nb::is_weak_referenceable(), nb::type_slots(block_slots))
        .def_prop_ro("address", [](PyBlock& b) { return reinterpret_cast<std::uintptr_t>(b.block->data()); })
        .def_prop_ro("nbytes", [](PyBlock& b) { return b.block->bytes; })
        .def_prop_ro("segment", [](PyBlock& b) { return b.block->segment->id; })
        .def_prop_ro("index", [](PyBlock& b) { return b.block->index; })
        .def_prop_ro("generation", [](PyBlock& b) { return b.block->generation; })
        .def_prop_ro("offset", [](PyBlock& b) { return b.block->offset; })
        .def_prop_ro("device", [](PyBlock& b) { return b.block->segment->device; })
        .def_prop_ro("client", [](PyBlock& b) { return nb::borrow(wrapper_of(*b.block->client)); })
        .def_prop_ro("holds",
                     [](PyBlock& b) {
                         const SegmentMetadata* metadata = b.block->client->find(b.block->segment->id);
                         return metadata ? metadata->block(b.block->index).count.load() : 0;
                     })
        .def("array", &block_array, nb::arg("dtype"), nb::arg("shape"), nb::arg("offset") = 0,
             nb::arg("strides") = nb::none());
}

// A user of a block beside its wrapper: this process keeps the memory even after the last array over it is gone.
class PyBlockUse {
   public:
    explicit PyBlockUse(Block& block) : block_(&block) { block_->client->share(*block_); }
    PyBlockUse(const PyBlockUse&) = delete;
    PyBlockUse& operator=(const PyBlockUse&) = delete;
    ~PyBlockUse() { close(); }

    nb::object renew() {
        if (!block_ || !block_->client->renew(*block_)) return nb::none();
        block_->client->share(*block_);
        return wrapper_of(block_);
    }
    void close() {
        if (Block* const ended = std::exchange(block_, nullptr)) ended->client->release(ended);
    }
    Block& block() const {
        if (!block_) throw nb::value_error("this use of a block has ended");
        return *block_;
    }

   private:
    Block* block_;
};

void add_block_use(nb::module_& m) {
    nb::class_<PyBlockUse>(m, "BlockUse", nb::is_final(), nb::is_weak_referenceable())
        .def(
            "__init__", [](PyBlockUse* use, PyBlock& of) { new (use) PyBlockUse(*of.block); }, nb::arg("block"))
        .def("again", [](PyBlockUse& u) { return std::make_unique<PyBlockUse>(u.block()); })
        .def("renew", &PyBlockUse::renew)
        .def("close", &PyBlockUse::close)
        .def_prop_ro("address", [](PyBlockUse& u) { return reinterpret_cast<std::uintptr_t>(u.block().data()); })
        .def_prop_ro("nbytes", [](PyBlockUse& u) { return u.block().bytes; });
}

void add_view(nb::module_& m) {
    m.attr("VIEW_LENT") = static_cast<int>(ViewKind::lent);
    m.attr("VIEW_READONLY") = static_cast<int>(ViewKind::readonly);
    m.attr("VIEW_FROZEN") = static_cast<int>(ViewKind::frozen);
    m.attr("VIEW_PERSONAL") = static_cast<int>(ViewKind::personal);

    nb::class_<PyView>(m, "View", nb::is_final(), nb::type_slots(view_slots))
        .def(nb::init<nb::handle_t<PyBlock>, int>(), nb::arg("block"), nb::arg("kind"))
        .def_prop_ro("kind", [](PyView& v) { return static_cast<int>(v.kind); })
        .def_prop_ro("block", [](PyView& v) { return v.block.is_valid() ? v.block : nb::none(); })
        .def_prop_ro("address", [](PyView& v) { return reinterpret_cast<std::uintptr_t>(v.data); })
        .def_prop_ro("nbytes", [](PyView& v) { return v.bytes; })
        .def("array", &view_array, nb::arg("dtype"), nb::arg("shape"), nb::arg("offset") = 0,
             nb::arg("strides") = nb::none());
}

}  // namespace

void add_blocks(nb::module_& m) {
    add_block(m);
    add_block_use(m);
    add_view(m);
    m.def(
        "sample_blocks", [](std::uint32_t every, const nb::object& note) { sample_blocks(every, note.ptr()); },
        nb::arg("every"), nb::arg("note").none());
    m.def("overlaps", &array_overlaps);
    m.def("strided", &strided, nb::arg("array"), nb::arg("shape"), nb::arg("strides"), nb::arg("offset") = 0);
}

}  // namespace shmtensor
