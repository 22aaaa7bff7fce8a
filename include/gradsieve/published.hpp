// Published methods for comparison, on the host; the core does not depend on them. Device parts: published.cuh.
#pragma once

#include <gradsieve/published/ldte.hpp>
#include <gradsieve/published/qsgd.hpp>
#include <gradsieve/published/random_k.hpp>
#include <gradsieve/published/removed.hpp>
#include <gradsieve/published/shared_choice.hpp>
#include <gradsieve/published/sidco.hpp>
#include <gradsieve/published/threshold_search.hpp>
#include <gradsieve/published/trimmed.hpp>
