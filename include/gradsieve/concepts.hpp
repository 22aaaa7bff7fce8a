// The contract: the members that a space, a policy and a communicator must have, and those that they may have. Policies
// are regular values without base class or registration. Optional members make a refinement; check your own policy with
// static_assert(gs::warm_selector<mine>). A recipe refuses an optional member of another type. The rules between
// policies: step/recipe.hpp.
// @verbatim
// space           space; its step is step_stages. May have: its node_exchange, for two_level_compressor
// selector        threshold_selector, direct_selector, bin_selector or choosing_members. May be: capacity_selector,
//                 predicting_selector, warm_selector, candidate_selector, searching_selector; of bins:
//                 scoring_selector, quantising_selector, layer_bin_selector
//  its workspace  selector_workspace
// partitioner     partitioner, with partitioner_traits
// residual store  residual_store. May be: formatted_residual_store, wrapping_residual_store, scaling_residual_store,
//                 versioned_residual_store
// codec           codec. May be: quantises, limited_codec, bounded_codec, accounting_codec, bin_codec, separable_codec
//  packed's parts index_codec. May be: choosing_index_codec
//                 value_codec. May be: quantises, limited_codec, counting_value_codec, elementwise_values
// exchange        exchange_policy, with exchange_traits; host_exchange
// communicator    communicator. May be: has_all_reduce, has_all_gather, has_broadcast, has_send_receive,
//                 has_all_to_all, thread_checking_communicator, stream_ordered_communicator, staging_communicator
// every policy    policy. May be: described, self_checking, fingerprinted: see fields.hpp
// @endverbatim
#pragma once

#include <gradsieve/concepts/codec.hpp>
#include <gradsieve/concepts/communicator.hpp>
#include <gradsieve/concepts/exchange.hpp>
#include <gradsieve/concepts/partitioner.hpp>
#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/concepts/residual.hpp>
#include <gradsieve/concepts/selector.hpp>
#include <gradsieve/concepts/space.hpp>

/// @defgroup compression Compressors
/// A compressor and its recipe, the averager for the receiving side, reports, states, and recipes as text.

/// @defgroup policies Policies
/// The parts of a recipe: one group for each family, its concepts first. Every policy is a plain value.

/// @defgroup vocabulary Vocabulary
/// The types that the contracts use: layouts, selections, thresholds, numbers, text and errors.
