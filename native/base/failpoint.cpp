#include "base/failpoint.hpp"

#ifdef SHMTENSOR_FAILPOINTS

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/os.hpp"

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names for the ends of the section
extern const shmtensor::failpoint::Point* const __start_shmtensor_points[];
extern const shmtensor::failpoint::Point* const __stop_shmtensor_points[];
// NOLINTEND(bugprone-reserved-identifier)

namespace shmtensor::failpoint {
namespace {

struct Armed {
    std::string name;
    std::string action;
};
Armed armed;
std::atomic<int> left{0};  // passes until the action; 0 = disarmed

[[maybe_unused]] const bool read_environment = [] {
    if (const char* spec = std::getenv("SHMTENSOR_FAILPOINT")) arm(spec);
    return true;
}();

}  // namespace

void arm(std::string_view spec) {
    left = 0;
    if (spec.empty()) return;
    const auto last = spec.rfind(':');
    const auto first = last == spec.npos ? spec.npos : spec.rfind(':', last - 1);
    const std::string action{last == spec.npos ? spec : spec.substr(last + 1)};
    const auto number = first == spec.npos ? std::string_view{} : spec.substr(first + 1, last - first - 1);
    int nth = 0;
    std::from_chars(number.data(), number.data() + number.size(), nth);
    if (nth < 1 || (action != "kill" && action != "stop" && action != "exit")) {
        std::fprintf(stderr, "SHMTENSOR_FAILPOINT: expected name:nth:kill|stop|exit, got '%.*s'\n",
                     static_cast<int>(spec.size()), spec.data());
        std::abort();
    }
    armed = {std::string{spec.substr(0, first)}, action};
    left = nth;
}

void pass(const Point& point) {
    if (left.load(std::memory_order_relaxed) == 0 || armed.name != point.name) return;
    if (left.fetch_sub(1) != 1) return;
    if (armed.action == "exit") os::end_process(70);
    os::signal_process(armed.action == "kill" ? SIGKILL : SIGSTOP);
}

std::vector<const char*> all() {
    std::vector<const char*> names;
    for (auto entry = __start_shmtensor_points; entry != __stop_shmtensor_points; ++entry)
        names.push_back((*entry)->name);
    return names;
}

}  // namespace shmtensor::failpoint

#endif
