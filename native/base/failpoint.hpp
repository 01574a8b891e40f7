// Named places between two stores that matter. In a test build (SHMTENSOR_FAILPOINTS) the environment variable
//     SHMTENSOR_FAILPOINT=name:nth:kill|stop|exit
// ends or stops the process when it passes the point for the nth time (from 1). A normal build contains no points.
// A test can list every point of the binary, and so prove that each was reached.
#pragma once

#ifdef SHMTENSOR_FAILPOINTS

#include <string_view>
#include <vector>

namespace shmtensor::failpoint {

struct Point {
    const char* name;
};
void pass(const Point& point);
void arm(std::string_view spec);  // "" disarms; same format as the environment variable, which is read at first use
std::vector<const char*> all();   // names of every point linked into this binary

}  // namespace shmtensor::failpoint

#define SHMTENSOR_POINT(text)                                                                                        \
    do {                                                                                                             \
        static const ::shmtensor::failpoint::Point point{text};                                                      \
        static const ::shmtensor::failpoint::Point* const entry __attribute__((used, section("shmtensor_points"))) = \
            &point;                                                                                                  \
        ::shmtensor::failpoint::pass(*entry);                                                                        \
    } while (false)

#else
#define SHMTENSOR_POINT(text) ((void)0)
#endif
