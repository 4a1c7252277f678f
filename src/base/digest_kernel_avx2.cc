// Compiled with -mavx2 (CMakeLists.txt).
#define KERNEL avx2_digest_kernel
#include "base/digest_kernel.inc"
