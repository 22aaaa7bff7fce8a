// Eigen, without its own threads: the workers are the parallelism here, and sums round alike on any machine's
// number of cores.
#pragma once

#if !defined(EIGEN_DONT_PARALLELIZE)
#define EIGEN_DONT_PARALLELIZE
#endif
#include <Eigen/Core>
