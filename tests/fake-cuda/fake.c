/* A stand-in for the CUDA driver's library, as far as it comes without a device. tests/cuda.rs compiles one for each case.
 * What may be defined:
 *   INIT       result of cuInit
 *   HANG       cuInit does not come back
 *   CRASH      cuInit reaches for memory that is not there
 *   NO_INIT    it has no cuInit
 *   NO_DEVICE  it has no more than cuInit and the texts of errors */
#include <unistd.h>

#ifndef INIT
#define INIT 0
#endif

#ifndef NO_INIT
int cuInit(unsigned flags) {
    (void)flags;
#ifdef HANG
    for (;;) pause();
#endif
#ifdef CRASH
    *(volatile int *)8 = 1;
#endif
    return INIT;
}
#endif

int cuGetErrorName(int error, const char **out) {
    switch (error) {
    case 34: *out = "CUDA_ERROR_STUB_LIBRARY"; return 0;
    case 100: *out = "CUDA_ERROR_NO_DEVICE"; return 0;
    case 802: *out = "CUDA_ERROR_SYSTEM_NOT_READY"; return 0;
    case 803: *out = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; return 0;
    case 999: *out = "CUDA_ERROR_UNKNOWN"; return 0;
    default: *out = 0; return 1;
    }
}
int cuGetErrorString(int error, const char **out) { (void)error; *out = "text of the driver"; return 0; }

#ifndef NO_DEVICE
/* A count, and then nothing that could be opened. */
int cuDeviceGetCount(int *out) { *out = 1; return 0; }
#endif
