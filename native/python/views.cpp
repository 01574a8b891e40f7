#include "python/views.hpp"

#include <cerrno>
#include <cstring>
#include <new>

#include "base/os.hpp"
#include "heap/ranges.hpp"
#include "python/errors.hpp"

namespace shmtensor {
namespace {

// Smaller blocks are copied for a personal view: a copy is cheaper than a mapping, and a process has a limited number
// of mappings. Blocks of this size and more begin at a page. They are copied, too, if the segment's descriptor is lost.
constexpr std::uint64_t kMappedFrom = kPagedFrom;

}  // namespace

PyView::PyView(nb::handle_t<PyBlock> from, int number) {
    if (number < 1 || number > 4) throw nb::value_error("the kind of a view must be 1 to 4");
    const Block& b = *nb::inst_ptr<PyBlock>(from)->block;
    if (!b.client->may_touch()) raise_not_held(*b.client);
    kind = static_cast<ViewKind>(number);
    bytes = b.bytes;
    if (const int error = open(b)) raise_os(error);
    if (kind != ViewKind::personal || mapped) block = nb::borrow(from);
    count(+1);
}

int PyView::open(const Block& from) {
    if (from.segment->on_device()) return ENODEV;
    if (kind == ViewKind::lent) {
        data = from.data();
        return 0;
    }
    if (kind != ViewKind::personal) return from.client->readonly_of(from, &data);
    if (bytes >= kMappedFrom) {
        const os::Descriptor file = from.segment->file.duplicate();
        mapped = file.number() >= 0;
        if (mapped) return os::map_private(file.number(), from.offset, bytes, &data);
    }
    data = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{kLine}, std::nothrow));
    if (!data) return ENOMEM;
    std::memcpy(data, from.data(), bytes);
    return 0;
}

PyView::~PyView() {
    count(-1);
    if (kind != ViewKind::personal || !data) return;
    if (mapped)
        os::unmap(data, bytes);
    else
        ::operator delete(data, std::align_val_t{kLine});
}

// Counted so that code that finds the bytes in another way gets no wider rights.
void PyView::count(int by) {
    if (kind != ViewKind::lent && kind != ViewKind::frozen) return;
    Block& b = *nb::inst_ptr<PyBlock>(block)->block;
    (kind == ViewKind::lent ? b.lent : b.frozen) += static_cast<std::uint32_t>(by);
}

const Client* PyView::untouchable() const {
    if (!block.is_valid()) return nullptr;
    const Client* client = nb::inst_ptr<PyBlock>(block)->block->client;
    return client->may_touch() ? nullptr : client;
}

nb::object view_of(nb::handle block, bool readonly, std::byte** data) {
    const Block& b = *nb::inst_ptr<PyBlock>(block)->block;
    const ViewKind kind = !readonly ? ViewKind::lent : b.frozen > 0 ? ViewKind::frozen : ViewKind::readonly;
    *data = b.data();
    if (kind == ViewKind::lent && b.lent == 0) return nb::borrow(block);
    auto* view = new PyView(nb::handle_t<PyBlock>(block), static_cast<int>(kind));
    *data = view->data;
    return nb::cast(view, nb::rv_policy::take_ownership);
}

}  // namespace shmtensor
