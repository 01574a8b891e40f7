// A block as its receivers may use it: `_native.View`. See docs/sharing.md.
#include <nanobind/nanobind.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "base/os.hpp"
#include "heap/client.hpp"
#include "heap/ranges.hpp"
#include "python/array.hpp"
#include "python/module.hpp"

namespace shmtensor {

enum class ViewKind {
    lent = 1,      // the block's own bytes; receivers get readonly
    readonly = 2,  // pages that cannot be written; receivers get the same
    frozen = 3,    // pages that cannot be written; receivers get personal ones
    personal = 4,  // bytes of this process alone, which begin as the block's
};

// Smaller blocks are copied for a personal view: that costs less than a mapping, of which a process has a limited
// number. From here on blocks begin at a page. Larger ones are copied, too, where the segment's descriptor is lost.
constexpr std::uint64_t kMappedFrom = kPagedFrom;

// A NumPy array has either this as its base, or, where it aliases with all rights, the Block itself.
struct PyView {
    PyView(nb::handle_t<PyBlock> from, int number) {
        if (number < 1 || number > 4) throw nb::value_error("there is no view of this kind");
        const Block& b = *nb::inst_ptr<PyBlock>(from)->block;
        if (!b.client->may_touch()) raise_not_held(*b.client);
        kind = static_cast<ViewKind>(number);
        bytes = b.bytes;
        int error = 0;
        if (kind == ViewKind::lent) {
            data = b.data();
        } else if (kind == ViewKind::readonly || kind == ViewKind::frozen) {
            error = b.client->readonly_of(b, &data);
        } else if (bytes >= kMappedFrom) {
            const os::Descriptor file = b.segment->file.duplicate();
            mapped = file.number() >= 0;
            if (mapped) error = os::map_private(file.number(), b.offset, bytes, &data);
        }
        if (kind == ViewKind::personal && !mapped) {
            data = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{kLine}, std::nothrow));
            if (data) std::memcpy(data, b.data(), bytes);
            error = data ? 0 : ENOMEM;
        }
        if (error) raise_os(error);
        if (kind != ViewKind::personal || mapped) block = nb::borrow(from);
        count(+1);
    }
    PyView(const PyView&) = delete;
    ~PyView() {
        count(-1);
        if (kind != ViewKind::personal || !data) return;
        if (mapped)
            os::unmap(data, bytes);
        else
            ::operator delete(data, std::align_val_t{kLine});
    }

    // So that whoever comes upon the bytes in another way gets no wider rights.
    void count(int by) {
        if (kind != ViewKind::lent && kind != ViewKind::frozen) return;
        Block& b = *nb::inst_ptr<PyBlock>(block)->block;
        (kind == ViewKind::lent ? b.lent : b.frozen) += static_cast<std::uint32_t>(by);
    }
    bool writable() const { return kind == ViewKind::lent || kind == ViewKind::personal; }
    // nullptr, or whose memory this is, of which a clone without the fork hooks holds nothing.
    const Client* untouchable() const {
        if (!block.is_valid()) return nullptr;
        const Client* client = nb::inst_ptr<PyBlock>(block)->block->client;
        return client->may_touch() ? nullptr : client;
    }

    ViewKind kind;
    std::byte* data = nullptr;
    std::uint64_t bytes;
    bool mapped = false;  // a personal one: pages of the segment's, and no copy
    nb::object block;     // kept while the view lives; invalid where the bytes were copied
};

nb::object view_of(nb::handle block, bool readonly, std::byte** data) {
    const Block& b = *nb::inst_ptr<PyBlock>(block)->block;
    const ViewKind kind = !readonly ? ViewKind::lent : b.frozen > 0 ? ViewKind::frozen : ViewKind::readonly;
    *data = b.data();
    if (kind == ViewKind::lent && b.lent == 0) return nb::borrow(block);
    auto* view = new PyView(nb::handle_t<PyBlock>(block), static_cast<int>(kind));
    *data = view->data;
    return nb::cast(view, nb::rv_policy::take_ownership);
}

namespace {

int view_buffer(PyObject* exporter, Py_buffer* buffer, int flags) {
    const PyView& v = *nb::inst_ptr<PyView>(exporter);
    if (const Client* client = v.untouchable()) {
        set_not_held(*client);
        buffer->obj = nullptr;
        return -1;
    }
    return PyBuffer_FillInfo(buffer, exporter, v.data, static_cast<Py_ssize_t>(v.bytes), !v.writable(), flags);
}
PyType_Slot view_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(view_buffer)}, {0, nullptr}};

}  // namespace

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
        .def(
            "array",
            [](nb::handle self, nb::handle dtype, nb::handle shape, Py_ssize_t offset, nb::handle strides) {
                const PyView& v = *nb::inst_ptr<PyView>(self);
                if (const Client* client = v.untouchable()) raise_not_held(*client);
                PyObject* array = make_array(self.ptr(), v.data, v.bytes, dtype.ptr(), shape.ptr(), offset,
                                             strides.ptr(), v.writable());
                if (!array) throw nb::python_error();
                return nb::steal(array);
            },
            nb::arg("dtype"), nb::arg("shape"), nb::arg("offset") = 0, nb::arg("strides") = nb::none());

    m.def("overlaps", [](nb::handle array) {
        bool result = false;
        if (!overlaps(array.ptr(), &result)) throw nb::python_error();
        return result;
    });
    m.def(
        "strided",
        [](nb::handle array, nb::handle shape, nb::handle strides, Py_ssize_t offset) {
            PyObject* view = view_of(array.ptr(), shape.ptr(), strides.ptr(), offset);
            if (!view) throw nb::python_error();
            return nb::steal(view);
        },
        nb::arg("array"), nb::arg("shape"), nb::arg("strides"), nb::arg("offset") = 0);
}

}  // namespace shmtensor
