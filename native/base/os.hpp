// The only system calls of native code. Each returns 0 or an errno; none throws, none retries what the caller should
// see.
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
// The pages of a shared mapping once more, which fault when written to.
int map_readonly(std::byte* from, std::uint64_t bytes, std::byte** at);
// Pages of this process alone, which begin as those of the file. `at` is the byte at `offset`, in whatever page.
int map_private(int fd, std::uint64_t offset, std::uint64_t bytes, std::byte** at);
// Pages of a file in place of those that are mapped at `at`.
int map_over(std::byte* at, int fd, std::uint64_t bytes, bool shared, bool writable);
void unmap(std::byte* at, std::uint64_t bytes);  // the whole pages that the range touches
bool is_sealed(int fd);                          // a memfd that nobody can make smaller
// A private page that reads 0 in a process that was cloned without pthread_atfork hooks.
int wipe_on_fork_page(std::byte** at);

std::string text_of(const std::string& path);  // a small file of text; empty when it cannot be read

struct Facts {
    std::uint64_t bytes = 0;     // size of the file
    std::uint64_t reserved = 0;  // bytes of it that have pages
};
int facts_of(int fd, Facts* facts);
// Copy a range of a file. Pages that were never written read as zeros, and are not made. EINVAL: the file ends before.
int read_at(int fd, std::uint64_t offset, std::uint64_t bytes, void* to);

// A descriptor that is kept, and what it was opened for. A program may at any moment close every descriptor that it did
// not open itself, and have a file of its own under the number: so nothing is done to a number, closing it included,
// before device and inode have been compared. Where more than a moment lies between the two, to a duplicate, which no
// other thread's reuse can reach.
class Descriptor {
   public:
    Descriptor() = default;
    explicit Descriptor(int fd);  // takes it over; one that is closed already is none
    Descriptor(Descriptor&& other) noexcept { *this = std::move(other); }
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor() { close(); }

    int number() const { return fd_; }  // -1: none. What it stands for by now is another matter.
    std::uint64_t inode() const { return inode_; }
    bool is_ours() const;
    int facts(Facts* facts) const;  // 0; EBADF: it is not ours any more
    Descriptor duplicate() const;   // none if it is not ours any more, or no descriptor is left
    // Stand for the same file by another number from now on, if the one before is lost. Other threads may use it.
    void regain(Descriptor&& again);
    int release();  // its number, which is the caller's from now on
    void close();

   private:
    std::atomic<int> fd_ = -1;
    std::uint64_t device_ = 0, inode_ = 0;
};

// Of a file that is mapped at `at` (its byte 0), by its descriptor, or without it if that is lost.
// Reserve the pages of a range, so that touching them cannot fail later. pre: offset and bytes are page multiples.
// EBADF: the descriptor is lost, and the kernel (before 5.14) cannot do without.
int reserve(const Descriptor& file, std::byte* at, std::uint64_t offset, std::uint64_t bytes);
// Give the pages of a range back; it reads as zeros and must be reserved again before use.
int punch(const Descriptor& file, std::byte* at, std::uint64_t offset, std::uint64_t bytes);
int punch(int fd, std::uint64_t offset, std::uint64_t bytes);

bool event_set(const Descriptor& event);    // a pipe becomes readable. False: it is lost
bool event_clear(const Descriptor& event);  // and is not

// A view of an event, for one of many who watch it: a descriptor that is readable once something was written to the
// event, and until the view is cleared. So the event is never cleared for the others.
int view_open(const Descriptor& event, int* view);
// Readable, if the event is. False: `view` is not a view of this event (any more), or the event is lost.
bool view_show(int view, const Descriptor& event);
// Not readable until something is written to the event. False: as view_show
bool view_clear(int view, const Descriptor& event);

int socket_pair(Descriptor* ours, Descriptor* theirs);  // SEQPACKET, close-on-exec; `theirs` passes credentials on
// With the descriptor `fd` (< 0: none); never blocks. EBADF: the socket is not ours any more.
int send(const Descriptor& socket, const void* message, std::size_t bytes, int fd);
void close(int fd);
int duplicate(int fd, int* copy);  // close-on-exec

// Sleep until somebody wakes the word, at most timeout_ns, if it is still `expected`. 0, or EAGAIN (it is not),
// ETIMEDOUT, EINTR. Between processes: the word may lie in shared memory. Of 64 bits the low half is compared and
// woken.
int futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::uint64_t timeout_ns);
int futex_wait(const std::atomic<std::uint64_t>& word, std::uint32_t expected, std::uint64_t timeout_ns);
int futex_wake(const std::atomic<std::uint32_t>& word, int count);  // gives how many were woken
int futex_wake(const std::atomic<std::uint64_t>& word, int count);

std::uint32_t monotonic_seconds();
std::uint64_t monotonic_ns();
std::uint64_t boot_ns();      // counts sleep, too
std::uint64_t realtime_ns();  // since 1970
std::uint64_t random64();
int process_id();
std::uint64_t pid_namespace();    // of this process; 0 when it cannot be seen
int thread_id();                  // as the kernel has it
bool thread_exists(int thread);   // in this PID namespace; also true where that cannot be told
robust_list_head* robust_list();  // the kernel's list of the robust mutexes that this thread holds; glibc registered it
// The first part of [begin, end) of a memory file that was ever written, as far as pages tell. False: there is none.
bool next_written(int fd, std::uint64_t begin, std::uint64_t end, std::uint64_t* from, std::uint64_t* to);
// Field 22 of /proc/<pid>/stat: clock ticks since boot. ESRCH when there is no such process.
int start_time(int pid, std::uint64_t* ticks);
// Whether the process of this start time has ended, as far as /proc can tell; one that nobody waited for has ended too.
bool has_ended(int pid, std::uint64_t start_time);
int processors();  // that this process may run on
// Starts a detached thread, in which all signals are blocked. Returns 0 or an errno.
int start_thread(void (*run)());
void sleep(std::uint64_t ns);
[[noreturn]] void sleep_forever();
[[noreturn]] void end_process(int status);  // at once: nothing is run or flushed
void signal_process(int signal);            // this one

// A close-on-exec descriptor that does not block and is readable after something was removed from a watched directory,
// or moved out of it, or after this happened to the directory itself.
int directory_watch(int* fd);
int watch_directory(int watch, const char* path);  // once more of the same directory: nothing changes

}  // namespace shmtensor::os
