// What lanes hold of the products of an architecture, and how they load it.
#pragma once
#include "tensor_core.cuh"

#if VOLTA
#include "tensor_quads.cuh"
#else
#include "tensor_warp.cuh"
#endif
