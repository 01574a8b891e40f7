// The functions that add each part of shmtensor._native, called by module.cpp. Each part has a file of its own.
#pragma once

#include <nanobind/nanobind.h>

namespace shmtensor {

namespace nb = nanobind;

void add_atomics(nb::module_& m);
void add_blocks(nb::module_& m);
void add_broadcast(nb::module_& m);
void add_client(nb::module_& m);
void add_codec(nb::module_& m);  // after add_blocks
void add_dlpack(nb::module_& m);
void add_gpu(nb::module_& m);
void add_group(nb::module_& m);
void add_layers(nb::module_& m);
void add_queue(nb::module_& m);
void add_random(nb::module_& m);
void add_ring(nb::module_& m);
void add_segment(nb::module_& m);
void add_store(nb::module_& m);
void add_sync(nb::module_& m);
void add_system(nb::module_& m);
void add_training(nb::module_& m);

}  // namespace shmtensor
