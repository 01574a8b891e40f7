// The bindings of os.hpp and limits.hpp: operating system and memory limits.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "base/limits.hpp"
#include "base/os.hpp"
#include "heap/lock.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/results.hpp"

namespace shmtensor {
namespace {

struct AvailableMemory {
    std::uint64_t nbytes;
    const char* limit;
};

}  // namespace

template <>
struct Result<AvailableMemory> {
    static constexpr const char* name = "AvailableMemory";
    static constexpr std::tuple fields{field("nbytes", &AvailableMemory::nbytes),
                                       field("limit", &AvailableMemory::limit)};
};
template <>
struct Result<limits::Cgroup> {
    static constexpr const char* name = "Cgroup";
    static constexpr std::tuple fields{field("path", &limits::Cgroup::path), field("used", &limits::Cgroup::used),
                                       field("limit", &limits::Cgroup::limit)};
};

namespace {

int make_payload(const std::string& name, std::uint64_t bytes) {
    int fd = -1;
    if (const int error = os::memfd(name.c_str(), bytes, &fd)) raise_os(error);
    return fd;
}

void punch(int fd, std::uint64_t offset, std::uint64_t bytes) {
    if (const int error = os::punch(fd, offset, bytes)) raise_os(error);
}

void map_over(nb::handle buffer, int fd, bool shared, bool writable) {
    const nb::object view = nb::steal(PyMemoryView_FromObject(buffer.ptr()));
    if (!view.is_valid()) throw nb::python_error();
    const Py_buffer& memory = *PyMemoryView_GET_BUFFER(view.ptr());
    const auto bytes = static_cast<std::uint64_t>(memory.len);
    if (const int error = os::map_over(static_cast<std::byte*>(memory.buf), fd, bytes, shared, writable))
        raise_os(error);
}

std::uint64_t process_start_time(int pid) {
    std::uint64_t ticks = 0;
    if (const int error = os::start_time(pid, &ticks)) raise_os(error);
    return ticks;
}

int directory_watch() {
    int fd = -1;
    if (const int error = os::directory_watch(&fd)) raise_os(error);
    return fd;
}

void watch_directory(int watch, const nb::bytes& path) {
    if (const int error = os::watch_directory(watch, path.c_str())) raise_os(error);
}

AvailableMemory memory_available(const std::string& root) {
    AvailableMemory found{0, ""};
    found.nbytes = limits::available(&found.limit, root);
    return found;
}

void make_descriptor(os::Descriptor* self, int fd) {
    new (self) os::Descriptor(fd);
    if (self->number() < 0) raise_os(EBADF);
}

}  // namespace

void add_system(nb::module_& m) {
    add_result<AvailableMemory>(m);
    add_result<limits::Cgroup>(m);
    m.def("make_payload", &make_payload, nb::arg("name"), nb::arg("nbytes"));
    m.def("punch", &punch, nb::arg("fd"), nb::arg("offset"), nb::arg("nbytes"));
    m.def("map_over", &map_over, nb::arg("buffer"), nb::arg("fd"), nb::arg("shared"), nb::arg("writable"));
    m.def("process_start_time", &process_start_time, nb::arg("pid"));
    m.def("directory_watch", &directory_watch);
    m.def("watch_directory", &watch_directory, nb::arg("watch"), nb::arg("path"));
    m.def("set_threads_visible", &set_threads_visible, nb::arg("visible"));
    m.def("memory_available", &memory_available, nb::arg("root") = "/");
    m.def("memory_cgroups", &limits::cgroups, nb::arg("root") = "/");

    nb::class_<os::Descriptor>(m, "Descriptor", nb::is_final())
        .def("__init__", &make_descriptor, nb::arg("fd"))
        .def_prop_ro("number", &os::Descriptor::number)
        .def_prop_ro("is_ours", &os::Descriptor::is_ours)
        .def("close", &os::Descriptor::close);
}

}  // namespace shmtensor
