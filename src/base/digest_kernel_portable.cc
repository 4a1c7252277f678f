#define KERNEL portable_digest_kernel
#include "base/digest_kernel.inc"
