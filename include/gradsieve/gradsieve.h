/** @file
 * gradsieve in C. */

/** @defgroup c_interface C interface
 * gradsieve in C: gradient compression for data-parallel training. C11 and C++; link the library gradsieve_c.
 *
 * Every function returns GRADSIEVE_OK or what went wrong; gradsieve_error() then has a sentence about the last failure
 * on this thread. Nothing throws. A null pointer is refused, unless its size of 0 says that nothing is there.
 * Objects are not for concurrent use. */
#ifndef GRADSIEVE_GRADSIEVE_H
#define GRADSIEVE_GRADSIEVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @addtogroup c_interface
 * @{ */

/** Compresses one flat gradient, step after step, with a recipe; see gradsieve_create(). */
typedef struct gradsieve_compressor gradsieve_compressor;

/** What a function returns. */
typedef enum gradsieve_status {
  GRADSIEVE_OK = 0,               /**< it worked */
  GRADSIEVE_INVALID_ARGUMENT = 1, /**< nothing has changed */
  GRADSIEVE_MISMATCH = 2,         /**< ranks, or a state and its compressor, differ */
  GRADSIEVE_CORRUPT = 3,          /**< damaged bytes of a message or a state */
  GRADSIEVE_COMMUNICATION = 4,    /**< a collective failed, or another rank did: the gradient stays in the residual */
  GRADSIEVE_NO_MEMORY = 5,        /**< an allocation failed */
  GRADSIEVE_ROOM = 6,             /**< the caller's memory is too small: the size that is needed was written */
  GRADSIEVE_OTHER = 7             /**< anything else; gradsieve_error() says what */
} gradsieve_status;

/** A layer of a gradient. Biases and the parameters of norms pass through uncompressed: layers of one dimension, if
 * gradsieve_create_with_dimensions() was told, else those whose name has a word such as "bias", "norm", "layernorm" or
 * "bn"; gradsieve_describe() lists them. */
typedef struct gradsieve_layer {
  const char* name; /**< may be null: no name */
  uint64_t size;    /**< elements */
} gradsieve_layer;

/** How ranks talk. Each function is collective, gets `context`, and returns 0, or another number if it failed. `maximum`
 * is 0 for a sum. All ranks must end with the same bits. Functions that a recipe does not need may be null: broadcast is
 * for `cyclic`, send_receive for sums of values with fewer than 32 bits. */
typedef struct gradsieve_communicator {
  void* context; /**< the caller's */
  int rank;      /**< this rank, from 0 */
  int size;      /**< number of ranks */
  /** Replaces `count` values by the ranks' sums or maxima. */
  int (*all_reduce_float)(void* context, float* in_out, size_t count, int maximum);
  /** The same for doubles. */
  int (*all_reduce_double)(void* context, double* in_out, size_t count, int maximum);
  /** Writes sizes[r] bytes of each rank r to `all`, back to back in rank order; `size` bytes are this rank's. */
  int (*all_gather)(void* context, const void* mine, size_t size, void* all, const size_t* sizes);
  /** Sends the root's `size` bytes to all ranks. */
  int (*broadcast)(void* context, void* in_out, size_t size, int root);
  /** Sends bytes to one rank while it receives bytes from another. */
  int (*send_receive)(void* context, const void* out, size_t out_size, int to, void* in, size_t in_size, int from);
} gradsieve_communicator;

/** What the last step did, on this rank. */
typedef struct gradsieve_report {
  uint64_t step;           /**< counted from 0 */
  uint64_t selected;       /**< entries that this rank sent */
  uint64_t updated;        /**< entries of the averaged update */
  uint64_t non_finite;     /**< elements that were NaN or infinite, left out */
  uint64_t saturated;      /**< values clamped to what codec, sum or output can hold */
  uint64_t bytes_sent;     /**< handed to the communicator */
  uint64_t bytes_received; /**< taken from the communicator */
  uint64_t baseline_bytes; /**< what an uncompressed all-reduce would send */
  double seconds;          /**< that the step took */
} gradsieve_report;

/** The sentence about this thread's last failure; "" before any. Lives until the next call on this thread. */
const char* gradsieve_error(void);
/** The names that a recipe may have, by family. Lives as long as the program. */
const char* gradsieve_recipe_names(void);

/** Makes a compressor of `count` layers, back to back. `recipe` is a text such as
 * "radix+deft+momentum+packed:delta,fp32@0.01": names of policies joined by '+', then '@' and the density, and
 * with "passthrough:head.*,*.bias" patterns of layers that pass through; a pattern that fits no layer is refused. See
 * gradsieve_recipe_names() and gradsieve::any_recipe::parse(). Writes it to `made`; free it with gradsieve_destroy(). */
gradsieve_status gradsieve_create(const char* recipe, const gradsieve_layer* layers, size_t count,
                                  gradsieve_compressor** made);
/** As gradsieve_create(). `dimensions[i]` says how many dimensions the shape of layer i has (a scalar has 1), or 0 where
 * that is not known; null: of none. */
gradsieve_status gradsieve_create_with_dimensions(const char* recipe, const gradsieve_layer* layers,
                                                  const uint32_t* dimensions, size_t count,
                                                  gradsieve_compressor** made);
/** Frees a compressor; does nothing for null. */
void gradsieve_destroy(gradsieve_compressor* which);

/** Replaces the gradient, `size` elements, by the mean over all ranks of what they sent. What is not sent stays in the
 * residual. Collective. Allocates in the first step with another number of ranks. */
gradsieve_status gradsieve_exchange(gradsieve_compressor* which, const gradsieve_communicator* comm, float* gradient,
                                    size_t size);

/** The same where the caller will not use the update of some layers, such as those of parameters that no rank used.
 * `skipped` has one byte for each layer, not 0 for a layer that is skipped; null: none is. Skipped layers send nothing,
 * their gradients stay in the residual, and the update is zero there. All ranks skip the same layers in a step. */
gradsieve_status gradsieve_exchange_skipping(gradsieve_compressor* which, const gradsieve_communicator* comm,
                                             float* gradient, size_t size, const unsigned char* skipped);

/** For a transport of one's own: selects what to send of the gradient and encodes it. The message lives until the next
 * call with this compressor. */
gradsieve_status gradsieve_compress(gradsieve_compressor* which, const float* gradient, size_t size,
                                    const void** message, size_t* message_size);
/** As gradsieve_compress(), as rank `rank` of those whose messages are averaged: with a codec that rounds at random
 * (`qsgd`), ranks with different numbers round independently. gradsieve_compress() is rank 0. */
gradsieve_status gradsieve_compress_as(gradsieve_compressor* which, int rank, const float* gradient, size_t size,
                                       const void** message, size_t* message_size);
/** Overwrites the gradient with the mean of `count` messages of such compressors. All messages are checked before. */
gradsieve_status gradsieve_apply(gradsieve_compressor* which, const void* const* messages, const size_t* sizes,
                                 size_t count, float* gradient, size_t size);

/** Writes the report of the last step. */
gradsieve_status gradsieve_get_report(const gradsieve_compressor* which, gradsieve_report* to);
/** Writes where a text is: the recipe, and which layers pass through. It lives until the next call with this
 * compressor. */
gradsieve_status gradsieve_describe(gradsieve_compressor* which, const char** text);
/** For an update that was not used: returns what the last step gave up to the residual. Call it on every rank. */
gradsieve_status gradsieve_discard_step(gradsieve_compressor* which);
/** Writes the L2 norm of what has not been sent. Cost: one pass. */
gradsieve_status gradsieve_residual_norm(gradsieve_compressor* which, double* norm);

/** Writes everything that the next steps depend on. `*size` is the room in bytes and becomes the size of the state; if
 * the room is too small, returns GRADSIEVE_ROOM and writes only that. `to` may be null if `*size` is 0. */
gradsieve_status gradsieve_save(gradsieve_compressor* which, void* to, size_t* size);
/** Continues where a state was saved. If it is refused, the compressor is unchanged. */
gradsieve_status gradsieve_load(gradsieve_compressor* which, const void* state, size_t size);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
