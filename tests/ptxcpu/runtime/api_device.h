// CUDA's calls on devices, errors and functions.
#pragma once

#include "launches.h"

API cudaError_t cudaGetDeviceCount(int* n) {
  *n = NDEV();
  return NDEV() ? cudaSuccess : ret(cudaErrorNoDevice);
}

API cudaError_t cudaGetDevice(int* d) {
  *d = cur_dev;
  return cudaSuccess;
}

API cudaError_t cudaSetDevice(int d) {
  if (d < 0 || d >= NDEV()) return ret(cudaErrorInvalidDevice);
  cur_dev = d;
  return cudaSuccess;
}

API cudaError_t cudaDeviceSynchronize() {
  std::lock_guard l(G);
  TRY(cap_device("cudaDeviceSynchronize"));
  drain_all();
  return fin();
}

static int ccv() {
  if (CC()) return CC();
  return 90;
}

API cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int) {
  switch ((int)a) {
    case cudaDevAttrMaxThreadsPerBlock:
      *v = 1024;
      break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      *v = 1024;
      break;
    case cudaDevAttrMaxBlockDimZ:
      *v = 64;
      break;
    case cudaDevAttrMaxGridDimX:
      *v = 2147483647;
      break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *v = 65535;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *v = 49152;
      break;
    case cudaDevAttrTotalConstantMemory:
      *v = 65536;
      break;
    case cudaDevAttrWarpSize:
      *v = 32;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *v = 65536;
      break;
    case cudaDevAttrClockRate:
      *v = 1000000;
      break;
    case cudaDevAttrMultiProcessorCount:
      *v = SMS();
      break;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrComputePreemptionSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrHostRegisterSupported:
      *v = 1;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *v = 2048;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *v = 233472;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *v = 232448;
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *v = 1024;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *v = ccv() / 10;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *v = ccv() % 10;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *v = 32;
      break;
    case cudaDevAttrL2CacheSize:
      *v = 50 << 20;
      break;
    case cudaDevAttrAsyncEngineCount:
      *v = 2;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *v = 5120;
      break;
    case cudaDevAttrMemoryClockRate:
      *v = 2600000;
      break;
    case cudaDevAttrTextureAlignment:
      *v = 512;
      break;
    default:
      *v = 0;
  }
  return cudaSuccess;
}

API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) {
  if (d < 0 || d >= NDEV()) return ret(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  strcpy(p->name, "ptxcpu emulated device");
  p->totalGlobalMem = TOTAL;
  p->sharedMemPerBlock = 49152;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->major = ccv() / 10;
  p->minor = ccv() % 10;
  p->multiProcessorCount = SMS();
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerMultiprocessor = 233472;
  p->sharedMemPerBlockOptin = 232448;
  p->reservedSharedMemPerBlock = 1024;
  p->concurrentKernels = 1;
  p->unifiedAddressing = 1;
  p->managedMemory = 1;
  p->cooperativeLaunch = 1;
  p->memoryPoolsSupported = 1;
  p->l2CacheSize = 50 << 20;
  p->totalConstMem = 65536;
  p->maxBlocksPerMultiProcessor = 32;
  p->memoryBusWidth = 5120;
  p->canMapHostMemory = 1;
  p->asyncEngineCount = 2;
  p->concurrentManagedAccess = 1;
  p->pciBusID = d;
  return cudaSuccess;
}

API cudaError_t cudaDeviceGetStreamPriorityRange(int* l, int* g) {
  *l = 0;
  *g = -5;
  return cudaSuccess;
}

API cudaError_t cudaDriverGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}

API cudaError_t cudaGetLastError() {
  cudaError_t e = last_err;
  if (sticky) e = (cudaError_t)(int)sticky;
  last_err = cudaSuccess;
  return e;
}

API cudaError_t cudaPeekAtLastError() { return sticky ? (cudaError_t)(int)sticky : last_err; }
// clang-format off
#define ERRS \
  X(cudaSuccess, "no error") \
  X(cudaErrorInvalidValue, "invalid argument") \
  X(cudaErrorMemoryAllocation, "out of memory") \
  X(cudaErrorInvalidConfiguration, "invalid configuration argument") \
  X(cudaErrorIllegalAddress, "an illegal memory access was encountered") \
  X(cudaErrorMisalignedAddress, "misaligned address") \
  X(cudaErrorLaunchFailure, "unspecified launch failure") \
  X(cudaErrorLaunchTimeout, "the launch timed out and was terminated") \
  X(cudaErrorAssert, "device-side assert triggered") \
  X(cudaErrorInvalidDeviceFunction, "invalid device function") \
  X(cudaErrorInvalidKernelImage, "device kernel image is invalid") \
  X(cudaErrorLaunchOutOfResources, "too many resources requested for launch") \
  X(cudaErrorNotReady, "device not ready") \
  X(cudaErrorNotSupported, "operation not supported") \
  X(cudaErrorInvalidDevice, "invalid device ordinal") \
  X(cudaErrorNoDevice, "no CUDA-capable device is detected") \
  X(cudaErrorInvalidSymbol, "invalid device symbol") \
  X(cudaErrorInvalidResourceHandle, "invalid resource handle") \
  X(cudaErrorIllegalInstruction, "an illegal instruction was encountered") \
  X(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch") \
  X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
  X(cudaErrorIllegalState, "the operation cannot be performed in the present state") \
  X(cudaErrorMissingConfiguration, "__global__ function call is not configured") \
  X(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped") \
  X(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region") \
  X(cudaErrorUnknown, "unknown error") \
  X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing") \
  X(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture") \
  X(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences") \
  X(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began") \
  X(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work") \
  X(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream") \
  X(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream") \
  X(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream") \
  X(cudaErrorStreamCaptureWrongThread, "attempt to terminate a thread-local capture sequence from another thread") \
  X(cudaErrorGraphExecUpdateFailure, "the graph update was not performed because it included changes which violated " \
    "constraints specific to instantiated graph update")
// clang-format on
API const char* cudaGetErrorString(cudaError_t e) {
  switch ((int)e) {
#define X(a, b) \
  case a:       \
    return b;
    ERRS
#undef X
  }
  return "unknown error";
}

API const char* cudaGetErrorName(cudaError_t e) {
  switch ((int)e) {
#define X(a, b) \
  case a:       \
    return #a;
    ERRS
#undef X
  }
  return "cudaErrorUnknown";
}

// ---------------------------------------------------------------- function attributes
API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, void const* f) {
  std::lock_guard l(G);
  Func* F = getf(f);
  if (!F) return ret(cudaErrorInvalidDeviceFunction);
  memset(a, 0, sizeof *a);
  if (!meta(F)) return ret(cudaErrorInvalidKernelImage);
  F->known = true;
  a->sharedSizeBytes = F->stat;
  a->maxThreadsPerBlock = F->maxnt;
  a->numRegs = 32;
  a->ptxVersion = F->m->target;
  a->binaryVersion = F->m->target;
  a->maxDynamicSharedSizeBytes = std::max(F->maxdyn, 49152) - (int)F->stat;
  return cudaSuccess;
}

API cudaError_t cudaFuncSetAttribute(void const* f, cudaFuncAttribute a, int v) {
  std::lock_guard l(G);
  Func* F = getf(f);
  if (!F) return ret(cudaErrorInvalidDeviceFunction);
  if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (v < 0 || v > 232448) return ret(cudaErrorInvalidValue);
    F->maxdyn = v;
  }
  return cudaSuccess;
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, void const* f, int bs, size_t dyn,
                                                                       unsigned) {
  std::lock_guard l(G);
  Func* F = getf(f);
  if (!F) return ret(cudaErrorInvalidDeviceFunction);
  if (!meta(F)) return ret(cudaErrorInvalidKernelImage);
  *n = std::min<long>(32, 2048 / std::max(1, (bs + 31) / 32 * 32));
  long sm = F->stat + dyn;
  if (sm > 0) *n = std::min<long>(*n, 233472 / (sm + 1024));
  return cudaSuccess;
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, void const* f, int bs, size_t dyn) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, bs, dyn, 0);
}
