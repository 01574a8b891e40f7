// libFuzzer around target.py: Python embedded, the core of the extension instrumented. run.py starts it.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {
PyObject* one = nullptr;

void end() {
    PyErr_Print();
    std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.site_import = 0;  // an environment's editable install would come before the instrumented package
    config.install_signal_handlers = 0;
    if (PyStatus_Exception(Py_InitializeFromConfig(&config))) std::abort();
    PyObject* module = PyImport_ImportModule("target");
    PyObject* type = module ? PyObject_GetAttrString(module, "Target") : nullptr;
    PyObject* target = type ? PyObject_CallFunction(type, "s", std::getenv("SHMTENSOR_FUZZ_MANAGER")) : nullptr;
    one = target ? PyObject_GetAttrString(target, "one") : nullptr;
    if (!one) end();
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    PyObject* result =
        PyObject_CallFunction(one, "y#", reinterpret_cast<const char*>(data), static_cast<Py_ssize_t>(size));
    if (!result) end();
    Py_DECREF(result);
    return 0;
}
