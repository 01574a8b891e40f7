// All system calls of native code. Each function returns 0 or an errno; none throws, and none hides an error by
// retrying.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

struct robust_list_head;  // linux/futex.h

namespace shmtensor::os {

// A close-on-exec memfd of `bytes` (sparse), sealed against shrinking and growing.
int memfd(const char* name, std::uint64_t bytes, int* fd);
int map_shared(int fd, std::uint64_t bytes, std::byte** at);  // read-write; left out of core dumps
// A second, read-only mapping of the pages of a shared mapping.
int map_readonly(std::byte* from, std::uint64_t bytes, std::byte** at);
// A copy-on-write mapping of a file. `at` is the byte at `offset`, which need not be a multiple of the page size.
int map_private(int fd, std::uint64_t offset, std::uint64_t bytes, std::byte** at);
// Map pages of a file in place of the pages at `at`.
int map_over(std::byte* at, int fd, std::uint64_t bytes, bool shared, bool writable);
void unmap(std::byte* at, std::uint64_t bytes);  // the whole pages that the range touches
bool is_sealed(int fd);                          // a memfd that cannot be made smaller
// A private page that reads 0 in a process that was cloned without pthread_atfork hooks.
int wipe_on_fork_page(std::byte** at);

std::string text_of(const std::string& path);  // of a small file; empty when it cannot be read

struct Facts {
    std::uint64_t bytes = 0;     // size of the file
    std::uint64_t reserved = 0;  // bytes of it that have pages
};
int facts_of(int fd, Facts* facts);
// Copy a range of a file. Pages that were never written read as zeros and are not allocated. EINVAL: the file ends
// before the range does.
int read_at(int fd, std::uint64_t offset, std::uint64_t bytes, void* to);

// A descriptor and the identity (device and inode) of its file. A program may close descriptors that it did not open
// itself, and the number may then stand for another file. So the identity is compared before each use of the number,
// closing included. If more than a moment lies between the comparison and the use, a duplicate is used, which another
// thread cannot replace.
class Descriptor {
   public:
    Descriptor() = default;
    explicit Descriptor(int fd);  // takes ownership; a closed number makes an empty object
    Descriptor(Descriptor&& other) noexcept { *this = std::move(other); }
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor() { close(); }

    int number() const { return fd_; }  // -1: none. It may stand for another file; see is_ours().
    std::uint64_t inode() const { return inode_; }
    bool is_ours() const;
    int facts(Facts* facts) const;  // 0; EBADF: the number stands for another file
    Descriptor duplicate() const;   // empty if the number stands for another file, or no descriptor is left
    // Use another number of the same file, if the present one is lost. Other threads may use this object meanwhile.
    void regain(Descriptor&& again);
    int release();  // the number, which the caller owns from then on
    void close();

   private:
    std::atomic<int> fd_ = -1;
    std::uint64_t device_ = 0, inode_ = 0;
};

// Reserve the pages of a range of a file, so that touching them cannot fail later. `at`: where byte 0 of the file is
// mapped, used if the descriptor is lost. pre: offset and bytes are page multiples. EBADF: the descriptor is lost, and
// the kernel (before 5.14) needs it.
int reserve(const Descriptor& file, std::byte* at, std::uint64_t offset, std::uint64_t bytes);
// Give the pages of a range back. It then reads as zeros and must be reserved again before use. `at` as in reserve().
int punch(const Descriptor& file, std::byte* at, std::uint64_t offset, std::uint64_t bytes);
int punch(int fd, std::uint64_t offset, std::uint64_t bytes);

bool event_set(const Descriptor& event);    // makes a pipe readable. False: it is lost
bool event_clear(const Descriptor& event);  // makes it unreadable

// A view of an event, for one of many watchers: a descriptor that becomes readable when something is written to the
// event, until the view is cleared. So no watcher clears the event for the others.
int view_open(const Descriptor& event, int* view);
// Make the view readable if the event is. False: `view` is not a view of this event, or the event is lost.
bool view_show(int view, const Descriptor& event);
// Make the view unreadable until something is written to the event. False: as view_show.
bool view_clear(int view, const Descriptor& event);

int socket_pair(Descriptor* ours, Descriptor* theirs);  // SEQPACKET, close-on-exec; `theirs` passes credentials on
// Send a message with the descriptor `fd` (< 0: none). Never blocks. EBADF: the socket is lost.
int send(const Descriptor& socket, const void* message, std::size_t bytes, int fd);
void close(int fd);
int duplicate(int fd, int* copy);  // close-on-exec

// If the word is still `expected`, sleep until it is woken, at most timeout_ns. Returns 0, EAGAIN (the word differs),
// ETIMEDOUT or EINTR. The word may lie in shared memory. Of a 64-bit word, the low half is compared and woken.
int futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::uint64_t timeout_ns);
int futex_wait(const std::atomic<std::uint64_t>& word, std::uint32_t expected, std::uint64_t timeout_ns);
int futex_wake(const std::atomic<std::uint32_t>& word, int count);  // returns how many were woken
int futex_wake(const std::atomic<std::uint64_t>& word, int count);

std::uint32_t monotonic_seconds();
std::uint64_t monotonic_ns();
std::uint64_t boot_ns();      // includes suspended time
std::uint64_t realtime_ns();  // since 1970
std::uint64_t random64();
int process_id();
std::uint64_t pid_namespace();    // of this process; 0 when it cannot be seen
int thread_id();                  // as the kernel numbers it
bool thread_exists(int thread);   // in this PID namespace; also true when this cannot be determined
robust_list_head* robust_list();  // the robust mutexes that this thread holds, as glibc registered them with the kernel
// The first part of [begin, end) of a memory file that was ever written, in whole pages. False: there is none.
bool next_written(int fd, std::uint64_t begin, std::uint64_t end, std::uint64_t* from, std::uint64_t* to);
// Field 22 of /proc/<pid>/stat: clock ticks since boot. ESRCH: no such process.
int start_time(int pid, std::uint64_t* ticks);
// Whether the process with this start time has ended, according to /proc. A zombie has ended.
bool has_ended(int pid, std::uint64_t start_time);
int processors();  // number that this process may run on
// Starts a detached thread, in which all signals are blocked. Returns 0 or an errno.
int start_thread(void (*run)());
void sleep(std::uint64_t ns);
[[noreturn]] void sleep_forever();
[[noreturn]] void end_process(int status);  // immediately: no exit handlers, no flush
void signal_process(int signal);            // this process

// A close-on-exec, non-blocking descriptor that becomes readable when an entry is removed from a watched directory or
// moved out of it, or when the directory itself is removed or moved.
int directory_watch(int* fd);
int watch_directory(int watch, const char* path);  // watching a directory again changes nothing

}  // namespace shmtensor::os
