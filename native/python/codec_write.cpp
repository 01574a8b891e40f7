// Encoding: from a value to a body and blocks.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "python/array.hpp"
#include "python/autograd.hpp"
#include "python/codec.hpp"
#include "python/codec_body.hpp"
#include "python/codec_memory.hpp"
#include "python/errors.hpp"
#include "python/tensors.hpp"

namespace shmtensor {
namespace {

using namespace codec;

constexpr std::uint64_t kInlineBytes = 512;                   // of an ndarray or buffer; longer ones get a block
constexpr std::size_t kFirstRoom = 256;                       // bytes of a body
constexpr std::size_t kLongestNumber = 10;                    // bytes of a LEB128
constexpr std::uint64_t kWithGil = std::uint64_t{64} * 1024;  // bytes; a longer copy lets other threads run

PyObject *python_dump, *python_dump_by_value, *python_client, *python_describe;

class Writer {
   public:
    explicit Writer(std::vector<std::byte>& body) : body_(body) { restart(); }
    void restart() {
        body_.resize(kFirstRoom);
        at_ = body_.data();
        end_ = at_ + body_.size();
    }
    void finish() { body_.resize(size()); }
    std::size_t size() const { return static_cast<std::size_t>(at_ - body_.data()); }
    std::byte& operator[](std::size_t offset) { return body_[offset]; }

    // The writing functions below require room() for what they write.
    void room(std::size_t bytes) {
        if (static_cast<std::size_t>(end_ - at_) < bytes) [[unlikely]]
            grow(bytes);
    }
    void byte(std::uint8_t value) { *at_++ = std::byte{value}; }
    void tag(Tag value) { byte(static_cast<std::uint8_t>(value)); }
    template <class T>
    void fixed(T value) {
        std::memcpy(at_, &value, sizeof value);
        at_ += sizeof value;
    }
    void number(std::uint64_t value) {
        for (; value >= 0x80; value >>= 7) byte(static_cast<std::uint8_t>(value | 0x80));
        byte(static_cast<std::uint8_t>(value));
    }
    void zigzag(std::int64_t value) {
        number((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
    }
    std::byte* take(std::size_t bytes) { return std::exchange(at_, at_ + bytes); }
    void raw(const void* from, std::size_t bytes) {
        if (bytes > 0) std::memcpy(take(bytes), from, bytes);
    }

   private:
    void grow(std::size_t bytes) {
        const std::size_t used = size();
        body_.resize(std::max(used + bytes, 2 * body_.size()));
        at_ = body_.data() + used;
        end_ = body_.data() + body_.size();
    }
    std::vector<std::byte>& body_;
    std::byte *at_, *end_;
};

// Values that have been written, by identity. Keeps them alive, so that no other value gets the same address.
class Seen {
   public:
    struct Entry {
        PyObject* key = nullptr;
        std::uint64_t offset = 0;  // of its tag; the top bit while it is being written
    };
    Seen() = default;
    Seen(const Seen&) = delete;
    ~Seen() { clear(); }

    // The entry of an object; a new one has no key until add().
    Entry& find(PyObject* object) {
        if (!table_) start();
        std::size_t at = place(object);
        while (table_[at].key && table_[at].key != object) at = (at + 1) & mask_;
        return table_[at];
    }
    void add(Entry& entry, PyObject* object, std::uint64_t offset) {
        entry = {Py_NewRef(object), offset};
        if (++count_ * 2 > mask_) grow();
    }
    void clear() {
        if (!table_) return;
        Entry* table = std::exchange(table_, nullptr);
        const auto held = std::move(large_);
        for (std::size_t i = 0; i <= mask_; ++i) Py_XDECREF(table[i].key);
        count_ = 0;
    }

   private:
    void start() {
        std::fill(std::begin(few_), std::end(few_), Entry{});
        table_ = few_;
        mask_ = std::size(few_) - 1;
        shift_ = 64 - std::countr_zero(std::size(few_));
    }
    std::size_t place(PyObject* object) const {
        return (reinterpret_cast<std::uintptr_t>(object) >> 4) * 0x9E3779B97F4A7C15u >> shift_;
    }
    void grow() {
        const std::size_t old = mask_ + 1, more = 4 * old;
        auto table = std::make_unique<Entry[]>(more);
        mask_ = more - 1;
        shift_ -= 2;
        for (std::size_t i = 0; i < old; ++i) {
            if (!table_[i].key) continue;
            std::size_t at = place(table_[i].key);
            while (table[at].key) at = (at + 1) & mask_;
            table[at] = table_[i];
        }
        large_ = std::move(table);
        table_ = large_.get();
    }
    Entry few_[32];
    std::unique_ptr<Entry[]> large_;
    Entry* table_ = nullptr;  // nullptr: empty, and `few_` is not cleared yet
    std::size_t mask_ = 0, count_ = 0;
    int shift_ = 0;
};
constexpr std::uint64_t kOpen = std::uint64_t{1} << 63;

enum class Written { ok, needs_pickle, failed };

std::uint64_t last_message = 0;  // under the GIL

class Encoder {
   public:
    Encoder(PyObject* client, EncodedValue& encoded, unsigned form)
        : given_(client),
          form_(form),
          encoded_(encoded),
          out_(encoded.body),
          arrays_(array_type_if_loaded()),
          tensors_(tensor_type_if_loaded()) {}

    bool run(PyObject* value) {
        out_.byte(kPlain);
        Written result = write(value, Py_REFCNT(value) == 1, kDepth);
        if (result == Written::needs_pickle && (form_ & kRefusePickle)) {
            if (!PyErr_Occurred())
                PyErr_SetString(
                    errors.dtype,
                    "the value contains other objects than tensors and ndarrays of numbers, None, bool, int below "
                    "2**63, float, complex, str, bytes, and tuples, lists and dicts of these: it needs "
                    "pickle, which a channel accepts if both ends have pickle=True");
            return false;
        }
        if (result == Written::needs_pickle) {
            encoded_.clear();
            seen_.clear();
            out_.restart();
            message_ = ++last_message;
            result = pickle(value) ? Written::ok : Written::failed;
        }
        if (result == Written::failed) return false;
        out_.finish();
        return true;
    }

   private:
    // `once`: there is no other reference to the value, so that it need not be remembered.
    Written write(PyObject* v, bool once, int depth) {
        PyTypeObject* const type = Py_TYPE(v);
        out_.room(32);
        if (type == &PyLong_Type) return integer(v);
        if (type == &PyFloat_Type) {
            out_.tag(Tag::real);
            out_.fixed(PyFloat_AS_DOUBLE(v));
            return Written::ok;
        }
        if (v == Py_None) return out_.tag(Tag::none), Written::ok;
        if (type == &PyBool_Type) return out_.tag(v == Py_True ? Tag::yes : Tag::no), Written::ok;
        const bool holds = type == &PyTuple_Type || type == &PyList_Type || type == &PyDict_Type;
        if (!once) {
            Seen::Entry& entry = seen_.find(v);
            if (entry.key) {
                if (entry.offset & kOpen) return Written::needs_pickle;  // a cycle
                out_[entry.offset] |= std::byte{kReferred};
                out_.tag(Tag::reference);
                out_.number(entry.offset);
                return Written::ok;
            }
            seen_.add(entry, v, out_.size() | (holds ? kOpen : 0));
        }
        if (holds) {
            if (depth == 0) return Written::needs_pickle;
            const Written result = type == &PyTuple_Type  ? tuple(v, depth - 1)
                                   : type == &PyList_Type ? list(v, depth - 1)
                                                          : dict(v, depth - 1);
            if (!once && result == Written::ok) seen_.find(v).offset &= ~kOpen;
            return result;
        }
        if (type == tensors_) return tensor(v);
        if (type == arrays_) return array(v);
        if (type == &PyUnicode_Type) return text(v);
        if (type == &PyBytes_Type) {
            const auto length = static_cast<std::size_t>(PyBytes_GET_SIZE(v));
            out_.tag(Tag::bytes);
            out_.number(length);
            out_.room(length);
            out_.raw(PyBytes_AS_STRING(v), length);
            return Written::ok;
        }
        if (type == &PyComplex_Type) {
            const Py_complex c = PyComplex_AsCComplex(v);
            out_.tag(Tag::complex);
            out_.fixed(c.real);
            out_.fixed(c.imag);
            return Written::ok;
        }
        return Written::needs_pickle;
    }

    // A member of a container, which may release it while Python code runs.
    Written member(PyObject* v, int depth) {
        const bool once = Py_REFCNT(v) == 1;
        const Ref kept = Ref::to(v);
        return write(v, once, depth);
    }

    Written integer(PyObject* v) {
        int overflow = 0;
        const long long value = PyLong_AsLongLongAndOverflow(v, &overflow);
        if (overflow) return Written::needs_pickle;
        if (value == static_cast<std::int8_t>(value)) {
            out_.tag(Tag::small);
            out_.byte(static_cast<std::uint8_t>(value));
        } else {
            out_.tag(Tag::integer);
            out_.fixed(static_cast<std::int64_t>(value));
        }
        return Written::ok;
    }

    Written text(PyObject* v) {
        const auto length = static_cast<std::size_t>(PyUnicode_GET_LENGTH(v));
        const auto kind = static_cast<std::size_t>(PyUnicode_KIND(v));
        switch (kind) {
            case PyUnicode_1BYTE_KIND:
                out_.tag(Tag::text1);
                break;
            case PyUnicode_2BYTE_KIND:
                out_.tag(Tag::text2);
                break;
            case PyUnicode_4BYTE_KIND:
                out_.tag(Tag::text4);
                break;
            default:
                return Written::needs_pickle;
        }
        out_.number(length);
        out_.room(length * kind);
        out_.raw(PyUnicode_DATA(v), length * kind);
        return Written::ok;
    }

    Written tuple(PyObject* v, int depth) {
        const Py_ssize_t count = PyTuple_GET_SIZE(v);
        out_.tag(Tag::tuple);
        out_.number(static_cast<std::uint64_t>(count));
        for (Py_ssize_t i = 0; i < count; ++i)
            if (const Written result = member(PyTuple_GET_ITEM(v, i), depth); result != Written::ok) return result;
        return Written::ok;
    }

    // A list or dict that changes while its tensors are moved is left to pickle, which reports the error.
    Written list(PyObject* v, int depth) {
        const Py_ssize_t count = PyList_GET_SIZE(v);
        out_.tag(Tag::list);
        out_.number(static_cast<std::uint64_t>(count));
        for (Py_ssize_t i = 0; i < count; ++i) {
            if (i >= PyList_GET_SIZE(v)) return Written::needs_pickle;
            if (const Written result = member(PyList_GET_ITEM(v, i), depth); result != Written::ok) return result;
        }
        return PyList_GET_SIZE(v) == count ? Written::ok : Written::needs_pickle;
    }

    Written dict(PyObject* v, int depth) {
        const Py_ssize_t count = PyDict_GET_SIZE(v);
        out_.tag(Tag::dict);
        out_.number(static_cast<std::uint64_t>(count));
        Py_ssize_t position = 0, written = 0;
        PyObject *key = nullptr, *item = nullptr;
        while (PyDict_Next(v, &position, &key, &item)) {
            const bool once = Py_REFCNT(item) == 1;
            const Ref kept = Ref::to(item);
            if (const Written result = member(key, depth); result != Written::ok) return result;
            if (const Written result = write(item, once, depth); result != Written::ok) return result;
            if (++written > count || PyDict_GET_SIZE(v) != count) return Written::needs_pickle;
        }
        return written == count ? Written::ok : Written::needs_pickle;
    }

    Written copied(PyObject* t) {
        const Ref held(live_array(t));
        if (!held) return Written::failed;
        if (Py_TYPE(held.get()) != arrays()) return not_copied(held.get());
        const ArrayView view = view_array(held.get());
        Block* block = nullptr;
        if (!is_plain(view)) return Written::needs_pickle;
        if (!fresh(std::max<std::uint64_t>(view.bytes, 1), &block)) return Written::failed;
        const bool strided = view.fortran_order && !view.c_order;
        out_.tag(Tag::tensor);
        shape(view, strided ? kBit6 : 0);
        out_.number(block->number);
        out_.number(0);
        auto step = static_cast<std::int64_t>(array_bytes(view.type, 0, nullptr));
        for (int i = 0; strided && i < view.axes; step *= view.sizes[i++]) out_.zigzag(step);
        return copy_elements(held.get(), view, block->data()) ? Written::ok : Written::failed;
    }

    Written tensor(PyObject* t) {
        if (form_ & kCopyTensors) return copied(t);
        const Written written = shared(t);
        return written == Written::needs_pickle && form_ != kAnyForm ? copied(t) : written;
    }

    Written shared(PyObject* t) {
        if (autograd::requires_grad(t)) return Written::needs_pickle;  // the reducer refuses results of operations
        for (bool moved = false;; moved = true) {
            const Ref held(live_array(t));
            if (!held) return Written::failed;
            if (Py_TYPE(held.get()) != arrays()) return on_device(t, Ref::to(held.get()), moved);
            const ArrayView view = view_array(held.get());
            PyObject* base = view.base;
            while (base && Py_TYPE(base) == arrays_) base = base_of(base);
            if (base && Py_TYPE(base) == block_type) {
                if (!client()) return Written::failed;
                Block* block = block_of(base);
                if (block->client != client_ || !view.writable || !is_plain(view)) return Written::needs_pickle;
                const auto offset = view.bytes == 0 ? 0 : static_cast<std::uint64_t>(view.data - block->data());
                if (view.bytes != 0 && offset >= block->bytes) return Written::needs_pickle;
                const bool strided = !view.c_order || view.bytes == 0;  // an empty array may have any strides
                out_.tag(Tag::tensor);
                shape(view, strided ? kBit6 : 0);
                out_.number(number_of(block));
                out_.number(offset);
                for (int i = 0; strided && i < view.axes; ++i) out_.zigzag(view.strides[i]);
                return Written::ok;
            }
            // Lent or private memory: the storage determines how receivers get it.
            if (moved || (base && Py_TYPE(base) == view_type)) return Written::needs_pickle;
            if (!Ref(PyObject_CallMethodNoArgs(t, tensors.share_memory_))) return Written::failed;
        }
    }

    static Written not_copied(PyObject* array) {
        PyObject* function = python_part(&python_describe, "describe_device");
        const Ref found(function ? PyObject_CallOneArg(function, array) : nullptr);
        if (!found) return Written::failed;
        if (found.get() == Py_None) return Written::needs_pickle;
        PyErr_SetString(errors.not_supported, kNotCopied);
        return Written::failed;
    }

    // A tensor whose array may lie on a device. Its stream is not stopped: the message names the point that the stream
    // must reach before the receiver reads.
    Written on_device(PyObject* t, Ref held, bool moved) {
        PyObject* function = python_part(&python_describe, "describe_device");
        if (!function) return Written::failed;
        Ref found;
        for (;; moved = true) {
            found = Ref(PyObject_CallOneArg(function, held.get()));
            if (!found) return Written::failed;
            if (found.get() == Py_None) return Written::needs_pickle;  // not on a device
            if (found.get() != Py_False) break;
            if (moved) return Written::needs_pickle;
            if (!Ref(PyObject_CallMethodNoArgs(t, tensors.share_memory_))) return Written::failed;
            held = Ref(live_array(t));
            if (!held) return Written::failed;
        }
        PyObject *of = nullptr, *sizes = nullptr, *steps = nullptr;
        unsigned char type = 0;
        unsigned long long offset = 0, point = 0;
        unsigned timeline = 0;
        if (!PyArg_ParseTuple(found.get(), "ObO!O!KIK", &of, &type, &PyTuple_Type, &sizes, &PyTuple_Type, &steps,
                              &offset, &timeline, &point))
            return Written::failed;
        const Py_ssize_t axes = PyTuple_GET_SIZE(sizes);
        if (!client() || Py_TYPE(of) != block_type || block_of(of)->client != client_ || axes > kAxes)
            return Written::needs_pickle;
        out_.tag(Tag::device_tensor);
        out_.room(4 + kLongestNumber * (5 + 2 * static_cast<std::size_t>(axes)));
        out_.byte(type);
        out_.byte(static_cast<std::uint8_t>(axes | kBit6));
        for (Py_ssize_t i = 0; i < axes; ++i) out_.number(PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(sizes, i)));
        out_.number(number_of(block_of(of)));
        out_.number(offset);
        for (Py_ssize_t i = 0; i < axes; ++i) out_.zigzag(PyLong_AsLongLong(PyTuple_GET_ITEM(steps, i)));
        out_.number(timeline);
        out_.number(point);
        return PyErr_Occurred() ? Written::failed : Written::ok;
    }

    // Whether a form can describe the array; an array with more axes is pickled.
    static bool is_plain(const ArrayView& view) { return view.type >= 0 && view.axes <= kAxes; }

    // Writes type and form, and makes room for what follows as well. pre: plain.
    void shape(const ArrayView& view, int form) {
        out_.room(4 + kLongestNumber * (2 + 2 * static_cast<std::size_t>(view.axes)));
        out_.byte(static_cast<std::uint8_t>(view.type));
        out_.byte(static_cast<std::uint8_t>(view.axes | form));
        for (int i = 0; i < view.axes; ++i) out_.number(static_cast<std::uint64_t>(view.sizes[i]));
    }

    Written array(PyObject* v) {
        ArrayView view = view_array(v);
        if (!is_plain(view)) return Written::needs_pickle;
        const std::uint64_t bytes = view.bytes;
        Block* block = nullptr;
        if (bytes > kInlineBytes) {
            if (!fresh(bytes, &block)) return Written::failed;
            view = view_array(v);  // Python code that ran meanwhile may have reshaped it
            if (!is_plain(view) || view.bytes != bytes) return Written::needs_pickle;
        }
        out_.tag(block ? Tag::array : Tag::small_array);
        shape(view, view.fortran_order && !view.c_order ? kBit6 : 0);
        if (block) {
            out_.number(block->number);
            return copy_elements(v, view, block->data()) ? Written::ok : Written::failed;
        }
        out_.room(bytes);
        return copy_elements(v, view, out_.take(bytes)) ? Written::ok : Written::failed;
    }

    // ------------------------------------------------------------------------------------------------ shared memory

    bool client() {
        if (client_) [[likely]]
            return true;
        if (given_ != Py_None) {
            held_ = Ref::to(given_);
        } else if (PyObject* function = python_part(&python_client, "default_client")) {
            held_ = Ref(PyObject_CallNoArgs(function));
        }
        if (held_) client_ = client_of(held_.get());
        return client_ != nullptr;
    }

    // The number of a block in this message.
    std::uint32_t number_of(Block* block) {
        if (block->message == message_) return block->number;
        add(block);
        client_->share(*block);
        return block->number;
    }
    void add(Block* block) {
        encoded_.blocks.push_back(block);
        if (!block->segment->is_ring())
            encoded_.bytes += block->bytes;  // the memory of a queue does not count for the message
        block->message = message_;
        block->number = static_cast<std::uint32_t>(encoded_.blocks.size() - 1);
    }
    // A new block, which belongs to the encoded value.
    bool fresh(std::uint64_t bytes, Block** block) {
        encoded_.blocks.reserve(encoded_.blocks.size() + 1);
        if (!client() || !allocate_block(held_.get(), bytes, block, kHost)) return false;
        add(*block);
        return true;
    }
    PyTypeObject* arrays() {
        if (!arrays_) arrays_ = array_type_if_loaded();
        return arrays_;
    }

    // ------------------------------------------------------------------------------------------------------ pickle

    bool pickle(PyObject* value) {
        PyObject* function = form_ & kPickleByValue ? python_part(&python_dump_by_value, "dump_by_value")
                                                    : python_part(&python_dump, "dump");
        if (!function) return false;
        PyObject* arguments[] = {given_, value};
        const Ref made(PyObject_Vectorcall(function, arguments, 2, nullptr));
        if (!made) return false;
        PyObject *stream = nullptr, *buffers = nullptr;
        if (!PyArg_ParseTuple(made.get(), "O!O!", &PyBytes_Type, &stream, &PyList_Type, &buffers)) return false;
        const Py_ssize_t count = PyList_GET_SIZE(buffers);
        out_.byte(kPickled);
        out_.number(static_cast<std::uint64_t>(count));
        for (Py_ssize_t i = 0; i < count; ++i)
            if (!buffer(PyList_GET_ITEM(buffers, i))) return false;
        const auto length = static_cast<std::size_t>(PyBytes_GET_SIZE(stream));
        out_.room(kLongestNumber + length);
        out_.number(length);
        out_.raw(PyBytes_AS_STRING(stream), length);
        return true;
    }

    bool buffer(PyObject* pickle_buffer) {
        const Py_buffer* view = PyPickleBuffer_GetBuffer(pickle_buffer);
        if (!view) return false;
        if (!PyBuffer_IsContiguous(view, 'A')) {
            PyErr_SetString(PyExc_BufferError, "a PickleBuffer over non-contiguous memory cannot be sent; make a copy");
            return false;
        }
        const auto length = static_cast<std::uint64_t>(view->len);
        out_.room(1 + kLongestNumber + kInlineBytes);
        const bool of_block = view->obj && Py_TYPE(view->obj) == block_type;
        if (of_block && !client()) return false;
        if (of_block && block_of(view->obj)->client == client_) {
            out_.byte(kShared);
            out_.number(number_of(block_of(view->obj)));
        } else if (length <= kInlineBytes) {
            out_.byte(view->readonly ? kReadOnly : kWritable);
            out_.number(length);
            out_.raw(view->buf, length);
        } else {
            Block* block = nullptr;
            if (!fresh(length, &block)) return false;
            out_.byte(kCopied);
            out_.number(block->number);
            PyThreadState* const others = length < kWithGil ? nullptr : PyEval_SaveThread();
            std::memcpy(block->data(), view->buf, length);
            if (others) PyEval_RestoreThread(others);
        }
        return true;
    }

    PyObject* const given_;
    const unsigned form_;
    EncodedValue& encoded_;
    Writer out_;
    Seen seen_;
    std::uint64_t message_ = ++last_message;  // the mark of this message's blocks
    PyTypeObject *arrays_, *tensors_;         // nullptr: not imported yet, so there are none
    Ref held_;
    Client* client_ = nullptr;
};

}  // namespace

bool is_pickled(const std::vector<std::byte>& body) {
    return !body.empty() && body[0] == std::byte{codec::kPickled};
}

void EncodedValue::clear() {
    for (Block* block : blocks)
        if (block) block->client->release(block);
    blocks.clear();
    body.clear();
    bytes = 0;
}

bool encode(PyObject* client, PyObject* value, EncodedValue& encoded, unsigned form) {
    bool done = false;
    {
        Encoder encoder(client, encoded, form);
        done = encoder.run(value);
    }
    if (!done) encoded.clear();
    return done;
}

}  // namespace shmtensor
