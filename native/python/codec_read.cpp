// Decoding: from a body and blocks to a value.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "python/array.hpp"
#include "python/codec.hpp"
#include "python/codec_body.hpp"
#include "python/codec_memory.hpp"
#include "python/errors.hpp"
#include "python/tensors.hpp"
#include "python/views.hpp"

namespace shmtensor {
namespace {

using namespace codec;

PyObject *python_load, *python_rebuild;

class Decoder {
   public:
    Decoder(const std::byte* body, std::size_t bytes, std::vector<Block*>& blocks, Access access)
        : begin_(body),
          at_(body),
          end_(body + bytes),
          blocks_(blocks),
          common_(access != Access::own),
          sealed_(access == Access::sealed) {}
    Decoder(const Decoder&) = delete;
    ~Decoder() {
        for (std::size_t i = 0; wrappers_ && i < blocks_.size(); ++i) Py_XDECREF(wrappers_[i]);
        for (auto& [offset, object] : referred_) Py_XDECREF(object);
    }

    PyObject* run() {
        std::uint8_t kind = 0;
        if (!byte(&kind)) return nullptr;
        Ref value(kind == kPlain ? read(kDepth) : kind == kPickled ? unpickle() : damaged());
        if (value && at_ != end_) return damaged();
        return value.release();
    }

   private:
    static PyObject* damaged() {
        if (!PyErr_Occurred())
            PyErr_SetString(
                errors.message_damaged,
                "the received bytes are not a message of this version: they are cut off, or were overwritten");
        return nullptr;
    }
    std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
    bool byte(std::uint8_t* into) {
        if (at_ == end_) return damaged(), false;
        *into = static_cast<std::uint8_t>(*at_++);
        return true;
    }
    template <class T>
    bool fixed(T* into) {
        if (left() < sizeof *into) return damaged(), false;
        std::memcpy(into, at_, sizeof *into);
        at_ += sizeof *into;
        return true;
    }
    bool number(std::uint64_t* into) {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            std::uint8_t part = 0;
            if (!byte(&part)) return false;
            value |= std::uint64_t{part & 0x7fu} << shift;
            if (part < 0x80) return *into = value, true;
        }
        return damaged(), false;
    }
    // A count of items of at least `each` bytes.
    bool count(std::uint64_t* into, std::size_t each) {
        if (!number(into)) return false;
        return *into <= left() / each || (damaged(), false);
    }

    PyObject* read(int depth) {
        const auto offset = static_cast<std::uint64_t>(at_ - begin_);
        std::uint8_t first = 0;
        if (!byte(&first)) return nullptr;
        const auto tag = static_cast<Tag>(first & ~kReferred);
        if (!(first & kReferred)) [[likely]]
            return content(tag, depth);
        const std::size_t place = referred_.size();
        referred_.emplace_back(offset, nullptr);
        PyObject* value = content(tag, depth);
        referred_[place].second = Py_XNewRef(value);
        return value;
    }

    PyObject* content(Tag tag, int depth) {
        switch (tag) {
            case Tag::reference:
                return reference();
            case Tag::none:
                return Py_NewRef(Py_None);
            case Tag::no:
                return Py_NewRef(Py_False);
            case Tag::yes:
                return Py_NewRef(Py_True);
            case Tag::small: {
                std::int8_t value = 0;
                return fixed(&value) ? PyLong_FromLong(value) : nullptr;
            }
            case Tag::integer: {
                std::int64_t value = 0;
                return fixed(&value) ? PyLong_FromLongLong(value) : nullptr;
            }
            case Tag::real: {
                double value = 0;
                return fixed(&value) ? PyFloat_FromDouble(value) : nullptr;
            }
            case Tag::complex: {
                double real = 0, imaginary = 0;
                return fixed(&real) && fixed(&imaginary) ? PyComplex_FromDoubles(real, imaginary) : nullptr;
            }
            case Tag::text1:
                return text(PyUnicode_1BYTE_KIND);
            case Tag::text2:
                return text(PyUnicode_2BYTE_KIND);
            case Tag::text4:
                return text(PyUnicode_4BYTE_KIND);
            case Tag::bytes: {
                std::uint64_t length = 0;
                if (!count(&length, 1)) return nullptr;
                const std::byte* from = std::exchange(at_, at_ + length);
                return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(from), static_cast<Py_ssize_t>(length));
            }
            case Tag::tuple:
                return tuple(depth);
            case Tag::list:
                return list(depth);
            case Tag::dict:
                return dict(depth);
            case Tag::tensor:
                return tensor();
            case Tag::small_array:
            case Tag::array:
                return array(tag == Tag::array);
            case Tag::device_tensor:
                return on_device();
            case Tag::end:
                break;
        }
        return damaged();
    }

    PyObject* reference() {
        std::uint64_t offset = 0;
        if (!number(&offset)) return nullptr;
        const auto found = std::lower_bound(referred_.begin(), referred_.end(), offset,
                                            [](const auto& entry, std::uint64_t o) { return entry.first < o; });
        if (found == referred_.end() || found->first != offset || !found->second) return damaged();
        return Py_NewRef(found->second);
    }

    PyObject* text(int kind) {
        std::uint64_t length = 0;
        const auto width = static_cast<std::size_t>(kind);
        if (!count(&length, width)) return nullptr;
        const std::byte* from = std::exchange(at_, at_ + length * width);
        std::vector<std::byte> aligned;  // CPython reads whole code points
        if (reinterpret_cast<std::uintptr_t>(from) % width != 0) {
            aligned.assign(from, from + length * width);
            from = aligned.data();
        }
        PyObject* made = PyUnicode_FromKindAndData(kind, from, static_cast<Py_ssize_t>(length));
        if (!made && PyErr_ExceptionMatches(PyExc_SystemError)) {  // beyond the last code point
            PyErr_Clear();
            return damaged();
        }
        return made;
    }

    bool enter(int depth) { return depth > 0 || (damaged(), false); }

    PyObject* tuple(int depth) {
        std::uint64_t size = 0;
        if (!enter(depth) || !count(&size, 1)) return nullptr;
        Ref made(PyTuple_New(static_cast<Py_ssize_t>(size)));
        if (!made) return nullptr;
        for (std::uint64_t i = 0; i < size; ++i) {
            PyObject* item = read(depth - 1);
            if (!item) return nullptr;
            PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), item);
        }
        return made.release();
    }

    PyObject* list(int depth) {
        std::uint64_t size = 0;
        if (!enter(depth) || !count(&size, 1)) return nullptr;
        Ref made(PyList_New(static_cast<Py_ssize_t>(size)));
        if (!made) return nullptr;
        for (std::uint64_t i = 0; i < size; ++i) {
            PyObject* item = read(depth - 1);
            if (!item) return nullptr;
            PyList_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), item);
        }
        return made.release();
    }

    PyObject* dict(int depth) {
        std::uint64_t size = 0;
        if (!enter(depth) || !count(&size, 2)) return nullptr;
        Ref made(PyDict_New());
        if (!made) return nullptr;
        for (std::uint64_t i = 0; i < size; ++i) {
            const Ref key(read(depth - 1));
            const Ref item(key ? read(depth - 1) : nullptr);
            if (!item) return nullptr;
            if (PyDict_SetItem(made.get(), key.get(), item.get()) < 0) {
                if (!PyErr_ExceptionMatches(PyExc_TypeError)) return nullptr;
                PyErr_Clear();  // a valid body has no such key
                return damaged();
            }
        }
        return made.release();
    }

    struct Form {
        std::uint8_t type, bits;
        int axes;
        Py_ssize_t sizes[kAxes];
    };
    bool shape(Form* form) {
        if (!byte(&form->type) || !byte(&form->bits) || !load_type(form->type)) return false;
        form->axes = form->bits & kAxes;
        for (int i = 0; i < form->axes; ++i) {
            std::uint64_t size = 0;
            if (!number(&size)) return false;
            if (size > PY_SSIZE_T_MAX) return damaged(), false;
            form->sizes[i] = static_cast<Py_ssize_t>(size);
        }
        return true;
    }

    // The wrapper of a block of this message (borrowed) and its memory.
    PyObject* wrapper(const Block** block) {
        std::uint64_t index = 0;
        if (!number(&index)) return nullptr;
        if (index >= blocks_.size()) return damaged();
        if (!wrappers_) {
            if (blocks_.size() > std::size(few_)) many_ = std::make_unique<PyObject*[]>(blocks_.size());
            wrappers_ = many_ ? many_.get() : few_;
        }
        PyObject*& known = wrappers_[index];
        if (!known) {
            if (!blocks_[index]) return damaged();
            known = take_wrapper(blocks_[index]);
            if (!known) return nullptr;
        }
        *block = block_of(known);
        return known;
    }

    static PyObject* memory_of(PyObject* block, bool readonly) {
        Ref view(PyMemoryView_FromObject(block));
        return view && readonly ? PyObject_CallMethod(view.get(), "toreadonly", nullptr) : view.release();
    }

    // A wrapper of memory that the processor can read.
    PyObject* host_wrapper(const Block** block) {
        PyObject* found = wrapper(block);
        return found && (*block)->segment->on_device() ? damaged() : found;
    }

    PyObject* on_device() {
        Form form;
        const Block* block = nullptr;
        std::uint64_t offset = 0, timeline = 0, point = 0;
        if (!shape(&form)) return nullptr;
        PyObject* base = wrapper(&block);
        if (!base || !number(&offset) || !need_tensors()) return nullptr;
        if (!block->segment->on_device() || (form.bits & kBit7) || !(form.bits & kBit6)) return damaged();
        Py_ssize_t strides[kAxes];
        const Ref sizes(PyTuple_New(form.axes)), steps(PyTuple_New(form.axes));
        if (!sizes || !steps) return nullptr;
        for (int i = 0; i < form.axes; ++i) {
            std::uint64_t zigzag = 0;
            if (!number(&zigzag)) return nullptr;
            strides[i] = static_cast<Py_ssize_t>((zigzag >> 1) ^ (0 - (zigzag & 1)));
            PyTuple_SET_ITEM(sizes.get(), i, PyLong_FromSsize_t(form.sizes[i]));
            PyTuple_SET_ITEM(steps.get(), i, PyLong_FromSsize_t(strides[i]));
        }
        if (PyErr_Occurred() || !number(&timeline) || !number(&point)) return nullptr;
        if (!array_fits(form.type, form.axes, form.sizes, strides, offset, block->bytes) || timeline >= kTimelines)
            return damaged();
        PyObject* function = python_part(&python_rebuild, "rebuild_device");
        const Ref array(
            function ? PyObject_CallFunction(function, "OiOOKIK", base, static_cast<int>(form.type), sizes.get(),
                                             steps.get(), static_cast<unsigned long long>(offset),
                                             static_cast<unsigned>(timeline), static_cast<unsigned long long>(point))
                     : nullptr);
        return array ? make_tensor(array.get(), Py_None, tensors.settled) : nullptr;
    }

    PyObject* tensor() {
        Form form;
        const Block* block = nullptr;
        std::uint64_t offset = 0;
        if (!shape(&form)) return nullptr;
        PyObject* base = host_wrapper(&block);
        if (!base || !number(&offset) || !need_tensors()) return nullptr;
        Py_ssize_t strides[kAxes];
        if (form.bits & kBit7) return damaged();
        const bool strided = form.bits & kBit6;
        for (int i = 0; strided && i < form.axes; ++i) {
            std::uint64_t zigzag = 0;
            if (!number(&zigzag)) return nullptr;
            strides[i] = static_cast<Py_ssize_t>((zigzag >> 1) ^ (0 - (zigzag & 1)));
        }
        const Py_ssize_t* steps = strided ? strides : nullptr;
        if (!array_fits(form.type, form.axes, form.sizes, steps, offset, block->bytes)) return damaged();
        std::byte* data = block->data();
        const nb::object sealed = sealed_ ? view_of(base, true, &data) : nb::object();
        PyObject* owner = sealed_ ? sealed.ptr() : base;
        const Ref view(array_at(owner, data + offset, form.type, form.axes, form.sizes, steps, false, !sealed_));
        if (!view) return nullptr;
        return make_tensor(view.get(), Py_None, tensors.settled);
    }

    PyObject* array(bool in_block) {
        Form form;
        if (!shape(&form)) return nullptr;
        const Block* block = nullptr;
        PyObject* base = nullptr;
        if (in_block) base = host_wrapper(&block);
        if (in_block && !base) return nullptr;
        const std::byte* data = block ? block->data() : at_;
        if (!array_fits(form.type, form.axes, form.sizes, nullptr, 0, block ? block->bytes : left())) {
            return damaged();
        }
        if (!block) at_ += array_bytes(form.type, form.axes, form.sizes);
        if (block && sealed_) {
            std::byte* at = nullptr;
            const nb::object sealed = view_of(base, true, &at);
            return array_at(sealed.ptr(), at, form.type, form.axes, form.sizes, nullptr, form.bits & kBit6, false);
        }
        // NumPy would allow the array to be made writable again if its base is writable.
        const Ref common(block && common_ ? memory_of(base, true) : nullptr);
        if (block && common_ && !common) return nullptr;
        return array_at(common ? common.get() : base, data, form.type, form.axes, form.sizes, nullptr,
                        form.bits & kBit6, !common_);
    }

    PyObject* unpickle() {
        std::uint64_t size = 0, length = 0;
        PyObject* function = python_part(&python_load, "load");
        if (!function || !count(&size, 2)) return nullptr;
        const Ref buffers(PyList_New(static_cast<Py_ssize_t>(size)));
        if (!buffers) return nullptr;
        for (std::uint64_t i = 0; i < size; ++i) {
            PyObject* made = buffer();
            if (!made) return nullptr;
            PyList_SET_ITEM(buffers.get(), static_cast<Py_ssize_t>(i), made);
        }
        if (!count(&length, 1)) return nullptr;
        auto* from = const_cast<char*>(reinterpret_cast<const char*>(std::exchange(at_, at_ + length)));
        const Ref stream(PyMemoryView_FromMemory(from, static_cast<Py_ssize_t>(length), PyBUF_READ));
        if (!stream) return nullptr;
        PyObject* arguments[] = {stream.get(), buffers.get()};
        return PyObject_Vectorcall(function, arguments, 2, nullptr);
    }

    PyObject* buffer() {
        std::uint8_t kind = 0;
        std::uint64_t length = 0;
        if (!byte(&kind)) return nullptr;
        if (kind == kShared || kind == kCopied) {
            const Block* block = nullptr;
            PyObject* all = kind == kShared ? wrapper(&block) : host_wrapper(&block);  // an object's may be on a GPU
            return all ? memory_of(all, kind == kCopied && common_) : nullptr;
        }
        if (kind > kCopied || !count(&length, 1)) return damaged();
        const auto* from = reinterpret_cast<const char*>(std::exchange(at_, at_ + length));
        return kind == kReadOnly || common_ ? PyBytes_FromStringAndSize(from, static_cast<Py_ssize_t>(length))
                                            : PyByteArray_FromStringAndSize(from, static_cast<Py_ssize_t>(length));
    }

    const std::byte *begin_, *at_, *end_;
    std::vector<Block*>& blocks_;
    const bool common_, sealed_;
    PyObject* few_[8] = {};
    std::unique_ptr<PyObject*[]> many_;
    PyObject** wrappers_ = nullptr;                              // by number; nullptr until first named
    std::vector<std::pair<std::uint64_t, PyObject*>> referred_;  // (offset, value), ascending; nullptr: not made yet
};

}  // namespace

PyObject* decode(const std::byte* body, std::size_t bytes, std::vector<Block*>& blocks, Access access) {
    return Decoder(body, bytes, blocks, access).run();
}

}  // namespace shmtensor
