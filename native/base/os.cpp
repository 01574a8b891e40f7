#include "base/os.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "base/layout.hpp"

namespace shmtensor::os {

int memfd(const char* name, std::uint64_t bytes, int* fd) {
    const int made = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0) return errno;
    if (::ftruncate(made, static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        const int error = errno;
        ::close(made);
        return error;
    }
    *fd = made;
    return 0;
}

namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which the headers of an older C library lack

int map(int fd, std::uint64_t offset, std::uint64_t bytes, int rights, int kind, std::byte** at) {
    void* mapped = ::mmap(nullptr, bytes, rights, kind, fd, static_cast<off_t>(offset));
    if (mapped == MAP_FAILED) return errno;
    ::madvise(mapped, bytes, MADV_DONTDUMP);  // dumping gigabytes would keep a dead owner's lock held for seconds
    *at = static_cast<std::byte*>(mapped);
    return 0;
}

std::uint64_t page_bytes() {
    static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));  // kPage is the minimum
    return bytes;
}

}  // namespace

int map_shared(int fd, std::uint64_t bytes, std::byte** at) {
    return map(fd, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, at);
}

int map_readonly(std::byte* from, std::uint64_t bytes, std::byte** at) {
    void* mapped = ::mremap(from, 0, bytes, MREMAP_MAYMOVE);  // old size 0: maps the shared pages again
    if (mapped == MAP_FAILED) return errno;
    if (::mprotect(mapped, bytes, PROT_READ) != 0) {
        const int error = errno;
        ::munmap(mapped, bytes);
        return error;
    }
    *at = static_cast<std::byte*>(mapped);
    return 0;
}

int map_private(int fd, std::uint64_t offset, std::uint64_t bytes, std::byte** at) {
    const std::uint64_t lead = offset % page_bytes();
    const int error = map(fd, offset - lead, lead + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, at);
    if (!error) *at += lead;
    return error;
}

int map_over(std::byte* at, int fd, std::uint64_t bytes, bool shared, bool writable) {
    const int rights = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void* mapped = ::mmap(at, bytes, rights, MAP_FIXED | (shared ? MAP_SHARED : MAP_PRIVATE), fd, 0);
    return mapped == MAP_FAILED ? errno : 0;
}

void unmap(std::byte* at, std::uint64_t bytes) {
    const std::uint64_t lead = reinterpret_cast<std::uintptr_t>(at) % page_bytes();
    ::munmap(at - lead, lead + bytes);
}

bool is_sealed(int fd) {
    const int seals = ::fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

namespace {

Facts facts_in(const struct stat& found) {
    // 512: the unit of st_blocks, whatever st_blksize says
    return {static_cast<std::uint64_t>(found.st_size), static_cast<std::uint64_t>(found.st_blocks) * 512};
}

}  // namespace

int facts_of(int fd, Facts* facts) {
    struct stat found{};
    if (::fstat(fd, &found) != 0) return errno;
    *facts = facts_in(found);
    return 0;
}

int read_at(int fd, std::uint64_t offset, std::uint64_t bytes, void* to) {
    for (std::uint64_t done = 0; done < bytes;) {
        const ssize_t got =
            ::pread(fd, static_cast<std::byte*>(to) + done, bytes - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) return EINVAL;
        done += static_cast<std::uint64_t>(got);
    }
    return 0;
}

Descriptor::Descriptor(int fd) {
    struct stat found{};
    if (fd < 0 || ::fstat(fd, &found) != 0) return;
    fd_ = fd;
    device_ = found.st_dev;
    inode_ = found.st_ino;
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    if (this == &other) return *this;
    close();
    device_ = other.device_;
    inode_ = other.inode_;
    fd_ = other.release();
    return *this;
}

bool Descriptor::is_ours() const {
    Facts facts;
    return this->facts(&facts) == 0;
}

int Descriptor::facts(Facts* facts) const {
    struct stat found{};
    const int fd = fd_;
    if (fd < 0 || ::fstat(fd, &found) != 0 || found.st_dev != device_ || found.st_ino != inode_) return EBADF;
    *facts = facts_in(found);
    return 0;
}

Descriptor Descriptor::duplicate() const {
    // Also compared before: closing a duplicate of another file would release this process's locks on that file
    // (fcntl(2)).
    if (!is_ours()) return {};
    int made = -1;
    os::duplicate(fd_, &made);
    Descriptor copy(made);
    if (copy.device_ != device_ || copy.inode_ != inode_) return {};
    return copy;
}

void Descriptor::regain(Descriptor&& again) {
    if (again.device_ == device_ && again.inode_ == inode_ && !is_ours()) fd_ = again.release();
}

int Descriptor::release() {
    return fd_.exchange(-1);
}

void Descriptor::close() {
    if (is_ours()) ::close(fd_);
    fd_ = -1;
}

int reserve(const Descriptor& file, std::byte* at, std::uint64_t offset, std::uint64_t bytes) {
    const Descriptor own = file.duplicate();
    if (own.number() >= 0) {
        while (::fallocate(own.number(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0)
            if (errno != EINTR) return errno;
        return 0;
    }
    while (::madvise(at + offset, bytes, kPopulateWrite) != 0) {
        if (errno == EINTR) continue;
        // A touch would have been SIGBUS: the file system is full, or a process truncated the file.
        return errno == EFAULT ? ENOSPC : errno == EINVAL ? EBADF : errno;
    }
    return 0;
}

int punch(const Descriptor& file, std::byte* at, std::uint64_t offset, std::uint64_t bytes) {
    if (::madvise(at + offset, bytes, MADV_REMOVE) == 0) return 0;
    const int error = errno;
    const Descriptor own = file.duplicate();  // also works on pages that are locked (mlockall)
    return own.number() >= 0 ? punch(own.number(), offset, bytes) : error;
}

int punch(int fd, std::uint64_t offset, std::uint64_t bytes) {
    while (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(bytes)) != 0)
        if (errno != EINTR) return errno;
    return 0;
}

int wipe_on_fork_page(std::byte** at) {
    void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return errno;
    if (::madvise(page, kPage, MADV_WIPEONFORK) != 0) {
        const int error = errno;
        ::munmap(page, kPage);
        return error;
    }
    *at = static_cast<std::byte*>(page);
    return 0;
}

std::string text_of(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    std::string text;
    char part[4096];
    ssize_t got = 0;
    while ((got = ::read(fd, part, sizeof part)) > 0 || (got < 0 && errno == EINTR))
        if (got > 0) text.append(part, static_cast<std::size_t>(got));
    ::close(fd);
    return text;
}

// Non-blocking: a full counter is readable anyway, and an empty one is clear.
bool event_set(const Descriptor& event) {
    const char one = 1;
    if (!event.is_ours()) return false;
    while (::write(event.number(), &one, sizeof one) < 0 && errno == EINTR) {  // a full one is readable
    }
    return true;
}

bool event_clear(const Descriptor& event) {
    char bytes[kPage];
    ssize_t got = 0;
    do {
        if (!event.is_ours()) return false;
        got = ::read(event.number(), bytes, sizeof bytes);
    } while (got == sizeof bytes || (got < 0 && errno == EINTR));
    return true;
}

// An epoll instance, which can itself be watched: EPOLLET makes it readable with each write to the event, and
// epoll_wait() clears that. EPOLL_CTL_MOD of an event that is watched already makes the instance readable if the event
// is, and fails if the event is not watched.
namespace {

bool view_control(int view, const Descriptor& event, int operation) {
    struct epoll_event wanted{};
    wanted.events = EPOLLIN | EPOLLET;
    return event.is_ours() && ::epoll_ctl(view, operation, event.number(), &wanted) == 0;
}

}  // namespace

int view_open(const Descriptor& event, int* view) {
    const int made = ::epoll_create1(EPOLL_CLOEXEC);
    if (made < 0) return errno;
    if (!view_control(made, event, EPOLL_CTL_ADD)) {
        const int error = event.is_ours() ? errno : EBADF;
        ::close(made);
        return error;
    }
    *view = made;
    return 0;
}

bool view_show(int view, const Descriptor& event) {
    return view_control(view, event, EPOLL_CTL_MOD);
}

bool view_clear(int view, const Descriptor& event) {
    // If the number now belongs to another epoll instance, epoll_wait() would take that instance's readiness.
    if (!view_show(view, event)) return false;
    struct epoll_event taken;
    while (::epoll_wait(view, &taken, 1, 0) < 0 && errno == EINTR) {
    }
    return true;
}

int socket_pair(Descriptor* ours, Descriptor* theirs) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return errno;
    const int on = 1;
    if (::setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) {
        const int error = errno;
        ::close(pair[0]);
        ::close(pair[1]);
        return error;
    }
    *ours = Descriptor(pair[0]);
    *theirs = Descriptor(pair[1]);
    return 0;
}

int send(const Descriptor& socket, const void* message, std::size_t bytes, int fd) {
    const Descriptor own = socket.duplicate();
    if (own.number() < 0) return EBADF;
    iovec part{const_cast<void*>(message), bytes};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (fd >= 0) {
        header.msg_control = space;
        header.msg_controllen = sizeof space;
        cmsghdr* control = CMSG_FIRSTHDR(&header);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
    }
    while (::sendmsg(own.number(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        if (errno != EINTR) return errno;
    return 0;
}

void close(int fd) {
    if (fd >= 0) ::close(fd);
}

int duplicate(int fd, int* copy) {
    const int made = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (made < 0) return errno;
    *copy = made;
    return 0;
}

namespace {

// The kernel compares 32 bits at an address: the low half of a 64-bit word.
static_assert(std::endian::native == std::endian::little);

int wait_at(const void* word, std::uint32_t expected, std::uint64_t timeout_ns) {
    const timespec left{static_cast<time_t>(timeout_ns / 1'000'000'000), static_cast<long>(timeout_ns % 1'000'000'000)};
    return ::syscall(SYS_futex, word, FUTEX_WAIT, expected, &left, nullptr, 0) == 0 ? 0 : errno;
}

int wake_at(const void* word, int count) {
    const long woken = ::syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0);
    return woken > 0 ? static_cast<int>(woken) : 0;
}

}  // namespace

int futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::uint64_t timeout_ns) {
    return wait_at(&word, expected, timeout_ns);
}

int futex_wait(const std::atomic<std::uint64_t>& word, std::uint32_t expected, std::uint64_t timeout_ns) {
    return wait_at(&word, expected, timeout_ns);
}

int futex_wake(const std::atomic<std::uint32_t>& word, int count) {
    return wake_at(&word, count);
}

int futex_wake(const std::atomic<std::uint64_t>& word, int count) {
    return wake_at(&word, count);
}

namespace {

std::uint64_t clock_ns(clockid_t clock) {
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

std::uint64_t monotonic_ns() {
    return clock_ns(CLOCK_MONOTONIC);
}
std::uint64_t boot_ns() {
    return clock_ns(CLOCK_BOOTTIME);
}
std::uint64_t realtime_ns() {
    return clock_ns(CLOCK_REALTIME);
}

std::uint32_t monotonic_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint32_t>(now.tv_sec);
}

std::uint64_t random64() {
    std::uint64_t value = 0;
    while (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
    }
    return value;
}

int process_id() {
    return ::getpid();
}

std::uint64_t pid_namespace() {
    struct stat found{};
    return ::stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

int thread_id() {
    return static_cast<int>(::syscall(SYS_gettid));
}

bool thread_exists(int thread) {
    return ::kill(thread, 0) == 0 || errno != ESRCH;
}

robust_list_head* robust_list() {
    robust_list_head* found = nullptr;
    std::size_t bytes = 0;
    ::syscall(SYS_get_robust_list, 0, &found, &bytes);
    return found;
}

bool next_written(int fd, std::uint64_t begin, std::uint64_t end, std::uint64_t* from, std::uint64_t* to) {
    if (begin >= end) return false;
    const off_t data = ::lseek(fd, static_cast<off_t>(begin), SEEK_DATA);
    if (data < 0 || static_cast<std::uint64_t>(data) >= end) return false;
    const off_t hole = ::lseek(fd, data, SEEK_HOLE);
    if (hole < 0) return false;
    *from = static_cast<std::uint64_t>(data);
    *to = std::min(end, static_cast<std::uint64_t>(hole));
    return true;
}

namespace {

// Sets `fields` to field 3 of /proc/<pid>/stat, which follows the command. ESRCH: no such process.
int stat_of(int pid, char (&text)[1024], const char** fields) {
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? ESRCH : errno;
    const ssize_t got = ::read(fd, text, sizeof text - 1);
    const int error = errno;
    ::close(fd);
    if (got <= 0) return got == 0 ? ESRCH : error;
    text[got] = 0;
    const char* end = std::strrchr(text, ')');  // the command may contain spaces and parentheses; later fields do not
    if (!end || end[1] != ' ') return EPROTO;
    *fields = end + 2;
    return 0;
}

// pre: fields is at field 3.
const char* field_of(const char* fields, int number) {
    for (int i = 3; fields && i < number; ++i) {
        fields = std::strchr(fields, ' ');
        if (fields) ++fields;
    }
    return fields;
}

}  // namespace

int start_time(int pid, std::uint64_t* ticks) {
    char text[1024];
    const char* fields = nullptr;
    if (const int error = stat_of(pid, text, &fields)) return error;
    const char* started = field_of(fields, 22);
    if (!started) return EPROTO;
    *ticks = std::strtoull(started, nullptr, 10);
    return 0;
}

bool has_ended(int pid, std::uint64_t start_time) {
    char text[1024];
    const char* fields = nullptr;
    if (const int error = stat_of(pid, text, &fields)) return error == ESRCH;
    const char *threads = field_of(fields, 20), *started = field_of(fields, 22);
    if (!threads || !started) return false;
    if (std::strtoull(started, nullptr, 10) != start_time) return true;
    // A main thread that has ended while others run looks the same, so the number of threads decides.
    return (*fields == 'Z' || *fields == 'X') && std::strtol(threads, nullptr, 10) <= 1;
}

int processors() {
    cpu_set_t set;
    return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int start_thread(void (*run)()) {
    sigset_t all, before;
    ::sigfillset(&all);
    if (const int failed = ::pthread_sigmask(SIG_SETMASK, &all, &before)) return failed;
    int result = 0;
    try {
        std::thread(run).detach();
    } catch (...) {  // no thread, or no memory for one
        result = EAGAIN;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return result;
}

void sleep(std::uint64_t ns) {
    timespec left{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void sleep_forever() {
    for (;;) ::pause();
}

void end_process(int status) {
    ::_exit(status);
}

void signal_process(int signal) {
    ::kill(::getpid(), signal);
}

int directory_watch(int* fd) {
    const int made = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (made < 0) return errno;
    *fd = made;
    return 0;
}

int watch_directory(int watch, const char* path) {
    const std::uint32_t events = IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
    return ::inotify_add_watch(watch, path, events) < 0 ? errno : 0;
}

}  // namespace shmtensor::os
