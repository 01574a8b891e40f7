// The only system calls of the core. Each returns 0 or an errno; none throws, none retries what the caller should see.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace shmtensor::os {

// A close-on-exec memfd of `bytes` (sparse), sealed against shrinking and growing.
int memfd(const char* name, std::uint64_t bytes, int* fd);
int map_shared(int fd, std::uint64_t bytes, std::byte** at);    // read-write; left out of core dumps
int map_readonly(int fd, std::uint64_t bytes, std::byte** at);  // the same pages, which fault when written to
// Pages of this process alone, which begin as those of the file. `at` is the byte at `offset`, in whatever page.
int map_private(int fd, std::uint64_t offset, std::uint64_t bytes, std::byte** at);
void unmap(std::byte* at, std::uint64_t bytes);  // the whole pages that the range touches
int size_of(int fd, std::uint64_t* bytes);
bool is_sealed(int fd);                         // a memfd that nobody can make smaller
int reserved_of(int fd, std::uint64_t* bytes);  // bytes of the file that have pages
// Reserve the pages of a range, so that touching them cannot fail later. pre: offset and bytes are page multiples.
int reserve(int fd, std::uint64_t offset, std::uint64_t bytes);
// Give the pages of a range back; it reads as zeros and must be reserved again before use.
int punch(int fd, std::uint64_t offset, std::uint64_t bytes);
// A private page that reads 0 in a process that was cloned without pthread_atfork hooks.
int wipe_on_fork_page(std::byte** at);

std::string text_of(const std::string& path);  // a small file of text; empty when it cannot be read

void event_set(int fd);    // a pipe becomes readable
void event_clear(int fd);  // and is not

// A view of an event, for one of many who watch it: a descriptor that is readable once something was written to the
// event, and until the view is cleared. So the event is never cleared for the others.
int view_open(int event, int* view);
bool view_show(int view, int event);   // readable, if the event is. False: `view` is no view of this event any more
bool view_clear(int view, int event);  // not readable until something is written to the event. False: as view_show

std::uint64_t socket_inode(int fd);       // 0: it is none, or closed
int socket_pair(int* ours, int* theirs);  // SEQPACKET, close-on-exec; `theirs` is told to pass credentials on
int send_with_fd(int socket, const void* message, std::size_t bytes, int fd);  // fd < 0: none; never blocks
void close(int fd);

// A socket that is ours for as long as its descriptor stands for it: a program may close every descriptor that it did
// not open itself, and have a file of its own under the number.
class Socket {
   public:
    explicit Socket(int fd) : fd_(fd), inode_(socket_inode(fd)) {}
    int fd() const { return fd_; }
    int send(const void* message, std::size_t bytes, int fd) const;  // as send_with_fd; EBADF: it is not ours any more
    void close();

   private:
    bool is_ours() const { return inode_ != 0 && socket_inode(fd_) == inode_; }
    int fd_;
    std::uint64_t inode_;
};

// Sleep until somebody wakes the word, at most timeout_ns, if it is still `expected`. 0, or EAGAIN (it is not),
// ETIMEDOUT, EINTR. Between processes: the word may lie in shared memory.
int futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::uint64_t timeout_ns);
int futex_wake(const std::atomic<std::uint32_t>& word, int count);  // gives how many were woken

std::uint32_t monotonic_seconds();
std::uint64_t monotonic_ns();
std::uint64_t random64();
int process_id();
std::uint64_t pid_namespace();  // of this process; 0 when it cannot be seen
int thread_id();                // as the kernel has it
// The first part of [begin, end) of a memory file that was ever written, as far as pages tell. False: there is none.
bool next_written(int fd, std::uint64_t begin, std::uint64_t end, std::uint64_t* from, std::uint64_t* to);
// Field 22 of /proc/<pid>/stat: clock ticks since boot. ESRCH when there is no such process.
int start_time(int pid, std::uint64_t* ticks);
// Whether the process of this start time has ended, as far as /proc can tell; one that nobody waited for has ended too.
bool has_ended(int pid, std::uint64_t start_time);
int processors();  // that this process may run on

// A close-on-exec descriptor that does not block and is readable after something was removed from a watched directory,
// or moved out of it, or after this happened to the directory itself.
int directory_watch(int* fd);
int watch_directory(int watch, const char* path);  // once more of the same directory: nothing changes

}  // namespace shmtensor::os
