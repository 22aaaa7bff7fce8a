// The library that stands in for libcudart.so.13: one unit of these parts, each of which includes what it needs.
#include "runtime/api_device.h"
#include "runtime/api_graphs.h"
#include "runtime/api_memory.h"
#include "runtime/api_streams.h"
#include "runtime/calls.h"
