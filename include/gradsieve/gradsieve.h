/** @file
 * gradsieve in C. */

/** @defgroup c_interface C interface
 * gradsieve in C: gradient compression for data-parallel training. C11 and C++; link the library gradsieve_c.
 *
 * Every function returns GRADSIEVE_OK or an error code; gradsieve_error() then returns a sentence about the last
 * failure on this thread. Nothing throws. A null pointer is refused, unless it comes with a size of 0.
 * Objects are not for concurrent use: an object that is in use is refused.
 *
 * Gradients are in host memory. A library that was built with nvcc (GRADSIEVE_BUILD_CUDA) also has objects in device
 * memory, see gradsieve_device: the same functions take them. */
#ifndef GRADSIEVE_GRADSIEVE_H
#define GRADSIEVE_GRADSIEVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @addtogroup c_interface
 * @{ */

/** Compresses one flat gradient in every step, with a recipe; see gradsieve_create(). */
typedef struct gradsieve_compressor gradsieve_compressor;

/** The result of a function. */
typedef enum gradsieve_status {
  GRADSIEVE_OK = 0,               /**< success */
  GRADSIEVE_INVALID_ARGUMENT = 1, /**< nothing has changed */
  GRADSIEVE_MISMATCH = 2,         /**< ranks, or a state and its compressor, differ */
  GRADSIEVE_CORRUPT = 3,          /**< damaged bytes of a message or a state */
  GRADSIEVE_COMMUNICATION = 4,    /**< a collective or another rank failed: the gradient stays in the residual */
  GRADSIEVE_NO_MEMORY = 5,        /**< an allocation failed */
  GRADSIEVE_ROOM = 6,             /**< the caller's memory is too small: the required size was written */
  GRADSIEVE_OTHER = 7,            /**< any other failure; see gradsieve_error() */
  GRADSIEVE_NON_FINITE = 8        /**< on_non_finite:fail, and a rank's gradient is not finite: nothing has changed */
} gradsieve_status;

/** A layer of a gradient. Biases and the parameters of norms pass through uncompressed: layers of one dimension, if
 * gradsieve_create_with_dimensions() got dimensions, otherwise those whose name has a word such as "bias", "norm",
 * "layernorm" or "bn"; gradsieve_describe() lists them. */
typedef struct gradsieve_layer {
  const char* name; /**< may be null: no name */
  uint64_t size;    /**< elements */
} gradsieve_layer;

/** The collectives of the ranks. Each function is collective, gets `context`, and returns 0, or another number if it
 * failed. One that is written in another language returns that number for an exception too: Python's ctypes drops the
 * exception and returns what chance has left, often 0 (examples/python/gradsieve shows how). `maximum` is 0 for a
 * sum. All ranks must end with the same bits. Functions that a recipe does not need may be null: broadcast is for
 * `cyclic`, send_receive for sums of values with fewer than 32 bits, all_to_all for `reduce_scatter` and
 * `coded_all_reduce`. */
typedef struct gradsieve_communicator {
  void* context; /**< the caller's */
  int rank;      /**< this rank, from 0 */
  int size;      /**< number of ranks */
  /** Replaces `count` values by the ranks' sums or maxima. */
  int (*all_reduce_float)(void* context, float* in_out, size_t count, int maximum);
  /** As above, for doubles. */
  int (*all_reduce_double)(void* context, double* in_out, size_t count, int maximum);
  /** Writes sizes[r] bytes of each rank r to `all`, back to back in rank order; `size` bytes are this rank's. */
  int (*all_gather)(void* context, const void* mine, size_t size, void* all, const size_t* sizes);
  /** Sends the root's `size` bytes to all ranks. */
  int (*broadcast)(void* context, void* in_out, size_t size, int root);
  /** Sends bytes to one rank while it receives bytes from another. */
  int (*send_receive)(void* context, const void* out, size_t out_size, int to, void* in, size_t in_size, int from);
  /** Sends each rank r the next out_sizes[r] bytes of `out`, and writes in_sizes[r] bytes from it to `in`, back to
   * back. */
  int (*all_to_all)(void* context, const void* out, const size_t* out_sizes, void* in, const size_t* in_sizes);
  /** Null, or a number that each function changes when it has succeeded: one that left it as it was has failed. For
   * languages that may return without having run the function, as Python does after Ctrl-C. */
  const uint64_t* completed;
  /** As all_reduce_float, for sums of counts, and maxima below 2^31. On a host it may be null: all_reduce_double is
   * called. In device memory index_union, leader (the exchange of deft) and nodes need it. */
  int (*all_reduce_uint32)(void* context, uint32_t* in_out, size_t count, int maximum);
} gradsieve_communicator;

/** Where objects in device memory work: on the GPU that is current when they are made, and at every call. Gradients,
 * parameters, messages and the communicator's memory are device memory then; sizes, reports and states stay on the
 * host. Work is enqueued in the stream, and a communicator's functions enqueue theirs in it, as NCCL's do, or wait for
 * it. Calls that return a number, a report or a state, that save or load, and gradsieve_apply(), wait for the stream. A
 * failure in enqueued work is returned by the call that reads the report. Stream and pool outlive the object. */
typedef struct gradsieve_device {
  void* stream; /**< a cudaStream_t; null: the default stream */
  /** Takes device memory from a pool in the stream's order, aligned to 256 bytes; returns null if there is none. Null:
   * cudaMalloc. */
  void* (*allocate)(void* context, size_t size);
  void (*release)(void* context, void* memory); /**< gives it back; null with `allocate` only */
  void* context;                                /**< the caller's */
} gradsieve_device;

/** The last step on this rank. */
typedef struct gradsieve_report {
  uint64_t step;           /**< counted from 0 */
  uint64_t selected;       /**< entries that this rank sent */
  uint64_t updated;        /**< entries of the averaged update */
  uint64_t non_finite;     /**< elements that were NaN or infinite, left out */
  uint64_t saturated;      /**< values clamped to what codec, sum or output can hold */
  uint64_t bytes_sent;     /**< by this rank, through the communicator */
  uint64_t bytes_received; /**< by this rank, through the communicator */
  uint64_t baseline_bytes; /**< of the uncompressed gradient */
  double seconds;          /**< duration of the step */
} gradsieve_report;

/** The sentence about this thread's last failure; "" before any. Valid until the next call on this thread. */
const char* gradsieve_error(void);
/** The names that a recipe may contain, by family. Valid as long as the program runs. */
const char* gradsieve_recipe_names(void);

/** Makes a compressor of `count` layers, back to back. `recipe` is a text such as
 * "radix+deft+momentum+packed:delta,fp32@0.01" or "laplacian+bf16": names of policies joined by '+', '@' and the
 * density, and with "passthrough:head.*,*.bias" patterns of layers that pass through; a pattern that matches no layer
 * is refused. It can name everything that a recipe in C++ can on a host: see gradsieve_recipe_names() and
 * gradsieve::any_recipe::parse(). Writes the compressor to `made`, null if it fails; free it with gradsieve_destroy().
 * */
gradsieve_status gradsieve_create(const char* recipe, const gradsieve_layer* layers, size_t count,
                                  gradsieve_compressor** made);
/** As gradsieve_create(). `dimensions[i]` is the number of dimensions of layer i's shape (1 for a scalar), or 0 if it
 * is not known; null: not known for any layer. */
gradsieve_status gradsieve_create_with_dimensions(const char* recipe, const gradsieve_layer* layers,
                                                  const uint32_t* dimensions, size_t count,
                                                  gradsieve_compressor** made);
/** For nodes of several ranks, as gradsieve_create_with_dimensions(): gradients are summed within a node and
 * compressed between nodes, of which each rank sends a part; see gradsieve::two_level_compressor. `inside` are the
 * ranks of this node, `across` one rank of each node at the same place. Exchange with gradsieve_exchange_nodes().
 * Norm, state and report are those of this rank's part; it makes no messages for your own transport. */
gradsieve_status gradsieve_create_nodes(const char* recipe, const gradsieve_layer* layers, const uint32_t* dimensions,
                                        size_t count, const gradsieve_communicator* inside,
                                        const gradsieve_communicator* across, gradsieve_compressor** made);
/** 1 if this library was built with nvcc: the functions `..._on_device` work; otherwise 0, and they are refused. */
int gradsieve_has_devices(void);
/** As gradsieve_create_with_dimensions(), for gradients in device memory. `where` is copied. Messages have a fixed size
 * there: recipes name coo, or packed with the indices elias_fano, fixed_width or raw32; what does not run on a GPU
 * is refused by name. Of all combinations of policies it has those that the programs in examples/ have, see
 * examples/recipes.hpp. */
gradsieve_status gradsieve_create_on_device(const char* recipe, const gradsieve_layer* layers,
                                            const uint32_t* dimensions, size_t count, const gradsieve_device* where,
                                            gradsieve_compressor** made);
/** As gradsieve_create_nodes(), in device memory. */
gradsieve_status gradsieve_create_nodes_on_device(const char* recipe, const gradsieve_layer* layers,
                                                  const uint32_t* dimensions, size_t count,
                                                  const gradsieve_communicator* inside,
                                                  const gradsieve_communicator* across, const gradsieve_device* where,
                                                  gradsieve_compressor** made);
/** Frees a compressor; does nothing for null. */
void gradsieve_destroy(gradsieve_compressor* which);

/** Writes weight * ranks / (the sum of the ranks' weights): ranks that multiply their loss, or their gradient before
 * an exchange, by it get the weighted mean; with weight 0 a rank has no part in it. `comm`, and `across` with nodes,
 * else null: the communicators of the exchange. Collective: in a step call it on all ranks, or on none.
 * GRADSIEVE_INVALID_ARGUMENT on every rank if a weight is not in [0, 1e300] or all are 0. Their functions get host
 * memory, also for an exchange in device memory. See gradsieve::mean_factor(). */
gradsieve_status gradsieve_mean_factor(const gradsieve_communicator* comm, const gradsieve_communicator* across,
                                       double weight, float* factor);

/** Replaces the gradient, `size` elements, by the mean over all ranks of what they sent. What is not sent stays in the
 * residual. Collective. Allocates in the first step with another number of ranks. */
gradsieve_status gradsieve_exchange(gradsieve_compressor* which, const gradsieve_communicator* comm, float* gradient,
                                    size_t size);

/** As above, if the caller will not use the update of some layers, such as those of parameters that no rank used.
 * `skipped` has one byte for each layer, nonzero for a skipped layer; null: none. Skipped layers send nothing, their
 * gradients stay in the residual, and their update is zero. All ranks skip the same layers in a step. */
gradsieve_status gradsieve_exchange_skipping(gradsieve_compressor* which, const gradsieve_communicator* comm,
                                             float* gradient, size_t size, const unsigned char* skipped);

/** As gradsieve_exchange(), for a gradient in pieces: parts[i] points to the elements of layer i, anywhere in memory;
 * it may be null for a layer without elements. Each piece is read and overwritten in place, without a copy; pieces that
 * share memory are refused. */
gradsieve_status gradsieve_exchange_pieces(gradsieve_compressor* which, const gradsieve_communicator* comm,
                                           float* const* parts);

/** A format of a gradient's values. */
typedef enum gradsieve_format {
  GRADSIEVE_FLOAT32 = 0, /**< float */
  GRADSIEVE_FLOAT16 = 1, /**< IEEE 754 binary16 */
  GRADSIEVE_BFLOAT16 = 2 /**< the upper half of a float */
} gradsieve_format;
/** As gradsieve_exchange(), for a gradient of `size` values in this format; they are converted to binary32, and then
 * accumulated and sent by the recipe. */
gradsieve_status gradsieve_exchange_format(gradsieve_compressor* which, const gradsieve_communicator* comm,
                                           gradsieve_format format, void* gradient, size_t size);

/** As gradsieve_exchange_format(), of a compressor that gradsieve_create_nodes() has made. `skipped` as in
 * gradsieve_exchange_skipping(), or null. */
gradsieve_status gradsieve_exchange_nodes(gradsieve_compressor* which, const gradsieve_communicator* inside,
                                          const gradsieve_communicator* across, gradsieve_format format, void* gradient,
                                          size_t size, const unsigned char* skipped);

/** For a transport of your own: selects what to send of the gradient and encodes it. The message is valid until the
 * next call with this compressor. */
gradsieve_status gradsieve_compress(gradsieve_compressor* which, const float* gradient, size_t size,
                                    const void** message, size_t* message_size);
/** As gradsieve_compress(), as rank `rank` of those whose messages are averaged: with a codec that rounds at random
 * (`qsgd`), ranks with different numbers round independently. gradsieve_compress() is rank 0. */
gradsieve_status gradsieve_compress_as(gradsieve_compressor* which, int rank, const float* gradient, size_t size,
                                       const void** message, size_t* message_size);
/** As gradsieve_compress_as(), of a gradient in this format. */
gradsieve_status gradsieve_compress_format(gradsieve_compressor* which, int rank, gradsieve_format format,
                                           const void* gradient, size_t size, const void** message,
                                           size_t* message_size);
/** Overwrites the gradient with the mean of `count` messages of such compressors. All messages are checked before. */
gradsieve_status gradsieve_apply(gradsieve_compressor* which, const void* const* messages, const size_t* sizes,
                                 size_t count, float* gradient, size_t size);
/** As gradsieve_apply(), of a gradient in this format. */
gradsieve_status gradsieve_apply_format(gradsieve_compressor* which, const void* const* messages, const size_t* sizes,
                                        size_t count, gradsieve_format format, void* gradient, size_t size);

/** Writes the report of the last step. */
gradsieve_status gradsieve_get_report(const gradsieve_compressor* which, gradsieve_report* to);
/** Writes the address of a text: the recipe, and which layers pass through. It is valid until the next call with this
 * compressor. */
gradsieve_status gradsieve_describe(gradsieve_compressor* which, const char** text);
/** For an update that was not used: adds what the last step sent back to the residual. Call it on every rank. */
gradsieve_status gradsieve_discard_step(gradsieve_compressor* which);
/** Writes the L2 norm of the residual. Cost: one pass. */
gradsieve_status gradsieve_residual_norm(gradsieve_compressor* which, double* norm);

/** Writes everything that later steps depend on. `*size` is the size of `to` in bytes and becomes the size of the
 * state; if `to` is too small, returns GRADSIEVE_ROOM and writes only `*size`. `to` may be null if `*size` is 0. */
gradsieve_status gradsieve_save(gradsieve_compressor* which, void* to, size_t* size);
/** Continues from a saved state. If the state is refused, the compressor is unchanged. */
gradsieve_status gradsieve_load(gradsieve_compressor* which, const void* state, size_t size);

/* ---- Adam and other optimizers that normalise: parameters, not gradients -------------------------------------- */

/** Exchanges the changes that each rank's own optimizer makes; see gradsieve_create_parameters(). */
typedef struct gradsieve_parameters gradsieve_parameters;

/** For optimizers that normalise (Adam, Lion, Adafactor), for which compressed gradients fail: each rank steps its own
 * parameters, and the change is compressed and exchanged. `own` are `size` parameters, as many as the layers have
 * elements, the same on all ranks; they become the common ones. `recipe`, `layers`, `dimensions` (or null) and `count`
 * are those of gradsieve_create_with_dimensions(); a residual store with momentum is refused. `weight`, in [0, 1]: the
 * factor of a rank's unsent changes in its own parameters; below 0: the usual choice, 0.5, or 1 for a single rank. Free
 * it with gradsieve_destroy_parameters(). See gradsieve::parameter_exchange. */
gradsieve_status gradsieve_create_parameters(const char* recipe, const gradsieve_layer* layers,
                                             const uint32_t* dimensions, size_t count, const float* own, size_t size,
                                             float weight, gradsieve_parameters** made);
/** As above, for an optimizer without a momentum (Adam with beta1 = 0), which the common parameters have instead: the
 * mean of the changes moves them with this momentum, in [0, 1), such as Adam's beta1, or below a density of 6 %
 * 1 - min(5, 0.06 / density) * (1 - beta1). All ranks give the same. It loses less than a momentum of each rank's own.
 * The usual weight is then 0.25, or 0.125 on more than 4 ranks or below a density of 2.5 %, or 1 for a single rank, and
 * `own` is ahead, at (final) densities below 1, by the momentum times the last move, which only C++ can switch off. See
 * gradsieve::parameter_options. */
gradsieve_status gradsieve_create_parameters_with_momentum(const char* recipe, const gradsieve_layer* layers,
                                                           const uint32_t* dimensions, size_t count, const float* own,
                                                           size_t size, float weight, float momentum,
                                                           gradsieve_parameters** made);
/** As above, in device memory: `own` and the common parameters. A momentum of 0: none. */
gradsieve_status gradsieve_create_parameters_on_device(const char* recipe, const gradsieve_layer* layers,
                                                       const uint32_t* dimensions, size_t count, const float* own,
                                                       size_t size, float weight, float momentum,
                                                       const gradsieve_device* where, gradsieve_parameters** made);
/** Frees it; does nothing for null. */
void gradsieve_destroy_parameters(gradsieve_parameters* which);
/** After the optimizer's step: exchanges its changes of `own`, and rewrites `own` for the next step. Nothing is lost if
 * it fails: continue, or call it again. `skipped`: as in gradsieve_exchange_skipping(), or null. Collective. */
gradsieve_status gradsieve_exchange_parameters(gradsieve_parameters* which, const gradsieve_communicator* comm,
                                               float* own, size_t size, const unsigned char* skipped);
/** The same with a factor of this rank's changes, for a weighted mean: that of gradsieve_mean_factor(); with 0 they are
 * dropped. Weights in the loss vanish where an optimizer normalises. */
gradsieve_status gradsieve_exchange_weighted_parameters(gradsieve_parameters* which, const gradsieve_communicator* comm,
                                                        float* own, size_t size, const unsigned char* skipped,
                                                        float factor);
/** Writes the address of the common parameters, the same bits on all ranks: to evaluate and to save. It is valid as
 * long as `which` exists; each exchange changes the values. */
gradsieve_status gradsieve_common(const gradsieve_parameters* which, const float** common);
/** Writes the report of the last exchange. */
gradsieve_status gradsieve_get_parameters_report(const gradsieve_parameters* which, gradsieve_report* to);
/** Multiplies what this rank has not sent; when the number of ranks changes, pass new size / old size. */
gradsieve_status gradsieve_rescale_parameters(gradsieve_parameters* which, float factor, float* own, size_t size);
/** Adds what a rank that left had not sent, from its saved state. */
gradsieve_status gradsieve_absorb_parameters(gradsieve_parameters* which, const void* state, size_t state_size,
                                             float* own, size_t size);
/** Begins as a new rank, from another rank's state; the others call gradsieve_rescale_parameters(). */
gradsieve_status gradsieve_join_parameters(gradsieve_parameters* which, const void* state, size_t state_size,
                                           float* own, size_t size);
/** As gradsieve_save(). Changes of `own` since the last exchange are not included. */
gradsieve_status gradsieve_save_parameters(gradsieve_parameters* which, void* to, size_t* size);
/** Continues from a saved state, and writes `own`. If the state is refused, nothing has changed. */
gradsieve_status gradsieve_load_parameters(gradsieve_parameters* which, const void* state, size_t state_size,
                                           float* own, size_t size);

/** Factors of second moments, and clipping, for ranks that step their parameters; see gradsieve_create_moments(). */
typedef struct gradsieve_moments gradsieve_moments;

/** A rank's squared gradients are those of a smaller batch, too large by a factor up to the number of ranks. Measures
 * the factor of each layer from samples. `density`: fraction of the elements that is sampled, such as 0.001. `every`:
 * measures in each step whose number is a multiple of it, such as 1. Free it with gradsieve_destroy_moments(). See
 * gradsieve::second_moments. */
gradsieve_status gradsieve_create_moments(const gradsieve_layer* layers, size_t count, double density, uint32_t every,
                                          gradsieve_moments** made);
/** As above, of gradients in device memory, where the factors are, too. */
gradsieve_status gradsieve_create_moments_on_device(const gradsieve_layer* layers, size_t count, double density,
                                                    uint32_t every, const gradsieve_device* where,
                                                    gradsieve_moments** made);
/** Frees it; does nothing for null. */
void gradsieve_destroy_moments(gradsieve_moments* which);
/** Measures this step's gradient, before it is clipped. Call it in each step. Collective. If ranks differ in layers,
 * options or steps, all get GRADSIEVE_MISMATCH, in the first call and after gradsieve_load_moments(). If a rank's
 * gradient has the wrong size, its call returns GRADSIEVE_INVALID_ARGUMENT, and on all ranks the norm is unknown until
 * the next call: gradsieve_clip() then clips nothing. */
gradsieve_status gradsieve_measure_moments(gradsieve_moments* which, const gradsieve_communicator* comm,
                                           const float* gradient, size_t size);
/** Writes the address of the factors, one per layer, the same on all ranks: with Adam,
 * v += (1 - b2) * (factor * g * g - v). It is valid as long as `which` exists. */
gradsieve_status gradsieve_moment_factors(const gradsieve_moments* which, const float** factors);
/** Clips this rank's gradient so that the mean gradient's norm, as measured, is at most `most`: all ranks by the same
 * factor. Writes the norm to `norm`, unless that is null. A norm that is not finite clips nothing: skip the step. */
gradsieve_status gradsieve_clip(const gradsieve_moments* which, float* gradient, size_t size, float most, float* norm);
/** As gradsieve_save(); the same on all ranks. */
gradsieve_status gradsieve_save_moments(const gradsieve_moments* which, void* to, size_t* size);
/** As gradsieve_load(), on all ranks. A state with another `density` or `every` is GRADSIEVE_MISMATCH. */
gradsieve_status gradsieve_load_moments(gradsieve_moments* which, const void* state, size_t size);

/* ---- Weight deltas: what changed between two versions of a model ---------------------------------------------- */

/** A format of weights. */
typedef enum gradsieve_weight_format {
  GRADSIEVE_WEIGHTS_FLOAT32 = 0,  /**< float */
  GRADSIEVE_WEIGHTS_FLOAT16 = 1,  /**< IEEE 754 binary16 */
  GRADSIEVE_WEIGHTS_BFLOAT16 = 2, /**< the upper half of a float */
  GRADSIEVE_WEIGHTS_8_BITS = 3    /**< bytes, such as fp8 */
} gradsieve_weight_format;

/** Encodes the weights whose bits differ from the version before, lossless; see gradsieve::delta_encoder. */
typedef struct gradsieve_delta_encoder gradsieve_delta_encoder;
/** Applies such messages by overwriting what changed; see gradsieve::delta_decoder. */
typedef struct gradsieve_delta_decoder gradsieve_delta_decoder;

/** Makes an encoder of weights with these layers, in host memory. `chunk_bytes`: the most bytes of a chunk, 0: 4 MiB.
 * `threads`: 1 or more; 0: as many as OpenMP gives. Free it with gradsieve_destroy_delta_encoder(). */
gradsieve_status gradsieve_create_delta_encoder(const gradsieve_layer* layers, size_t count, uint64_t chunk_bytes,
                                                int threads, gradsieve_delta_encoder** made);
/** As above, of weights in device memory, where its messages are, too; it waits for the stream. */
gradsieve_status gradsieve_create_delta_encoder_on_device(const gradsieve_layer* layers, size_t count,
                                                          uint64_t chunk_bytes, const gradsieve_device* where,
                                                          gradsieve_delta_encoder** made);
/** Frees it; does nothing for null. */
void gradsieve_destroy_delta_encoder(gradsieve_delta_encoder* which);
/** Copies the weights, `size` of this format, as version `version`, for gradsieve_encode_delta() without `before`. */
gradsieve_status gradsieve_keep_weights(gradsieve_delta_encoder* which, gradsieve_weight_format format,
                                        const void* weights, size_t size, uint64_t version);
/** Encodes what changed from `before`, or if that is null from the copy, which is brought up to date, to `after`.
 * `from` and `to`: numbers of these versions, which receivers check. Writes the address of the message and its size in
 * bytes: one chunk or several behind each other, see gradsieve_delta_chunk(). It is valid until the next call. */
gradsieve_status gradsieve_encode_delta(gradsieve_delta_encoder* which, gradsieve_weight_format format,
                                        const void* before, const void* after, size_t size, uint64_t from, uint64_t to,
                                        const void** message, size_t* message_size);
/** As gradsieve_keep_weights(), of weights in pieces: parts[i] points to the elements of layer i, anywhere in the memory
 * of the encoder's space; it may be null for a layer without elements. */
gradsieve_status gradsieve_keep_weight_pieces(gradsieve_delta_encoder* which, gradsieve_weight_format format,
                                              const void* const* parts, uint64_t version);
/** As gradsieve_encode_delta(), of weights in pieces. */
gradsieve_status gradsieve_encode_delta_of_pieces(gradsieve_delta_encoder* which, gradsieve_weight_format format,
                                                  const void* const* before, const void* const* after, uint64_t from,
                                                  uint64_t to, const void** message, size_t* message_size);
/** Writes the number of chunks of the last message, and the address and size of chunk `i` of them. */
gradsieve_status gradsieve_delta_chunk(gradsieve_delta_encoder* which, size_t i, const void** chunk, size_t* chunk_size,
                                       size_t* chunks);
/** Makes a decoder of weights with these layers, which have version `version`. `threads` as above. Free it with
 * gradsieve_destroy_delta_decoder(). */
gradsieve_status gradsieve_create_delta_decoder(const gradsieve_layer* layers, size_t count, uint64_t version,
                                                int threads, gradsieve_delta_decoder** made);
/** As above, of weights in device memory. Its messages are there, too; it waits for the stream. */
gradsieve_status gradsieve_create_delta_decoder_on_device(const gradsieve_layer* layers, size_t count, uint64_t version,
                                                          const gradsieve_device* where,
                                                          gradsieve_delta_decoder** made);
/** Frees it; does nothing for null. */
void gradsieve_destroy_delta_decoder(gradsieve_delta_decoder* which);
/** Applies a message, or some of its chunks, in their order: `count` blocks of memory, each of whole chunks. All are
 * checked before a weight is written. GRADSIEVE_CORRUPT for damaged or missing bytes; GRADSIEVE_MISMATCH for another
 * model, format or version, and for a chunk that is missing or came twice: the weights and the decoder are unchanged. */
gradsieve_status gradsieve_apply_delta(gradsieve_delta_decoder* which, gradsieve_weight_format format,
                                       const void* const* messages, const size_t* sizes, size_t count, void* weights,
                                       size_t size);
/** As gradsieve_apply_delta(), of weights in pieces, of which no two share memory. */
gradsieve_status gradsieve_apply_delta_to_pieces(gradsieve_delta_decoder* which, gradsieve_weight_format format,
                                                 const void* const* messages, const size_t* sizes, size_t count,
                                                 void* const* parts);
/** Checks what these would check of messages, but not of weights, and changes nothing: for several decoders of which all
 * or none are to go on. Writes what gradsieve_delta_version() would say afterwards; either address may be null. */
gradsieve_status gradsieve_verify_delta(gradsieve_delta_decoder* which, gradsieve_weight_format format,
                                        const void* const* messages, const size_t* sizes, size_t count,
                                        uint64_t* version, int* complete);
/** Writes the version of the weights, and whether all chunks of the last delta were applied: between two of them the
 * version is the one before. Either address may be null. */
gradsieve_status gradsieve_delta_version(const gradsieve_delta_decoder* which, uint64_t* version, int* complete);
/** Expects the first chunk of the same delta again, as after a connection that broke. */
gradsieve_status gradsieve_restart_delta(gradsieve_delta_decoder* which);
/** Says that the caller has replaced all weights by those of a version. */
gradsieve_status gradsieve_reset_delta(gradsieve_delta_decoder* which, uint64_t version);
/** Writes a hash of the bits of all weights, for use as a version; see gradsieve::weights_fingerprint(). */
gradsieve_status gradsieve_fingerprint_weights(const gradsieve_layer* layers, size_t count,
                                               gradsieve_weight_format format, const void* weights, size_t size,
                                               int threads, uint64_t* fingerprint);
/** As above, of weights in device memory, with the same result. */
gradsieve_status gradsieve_fingerprint_weights_on_device(const gradsieve_layer* layers, size_t count,
                                                         gradsieve_weight_format format, const void* weights,
                                                         size_t size, const gradsieve_device* where,
                                                         uint64_t* fingerprint);
/** As these, of weights in pieces; `where` null: in host memory. */
gradsieve_status gradsieve_fingerprint_weight_pieces(const gradsieve_layer* layers, size_t count,
                                                     gradsieve_weight_format format, const void* const* parts,
                                                     int threads, const gradsieve_device* where,
                                                     uint64_t* fingerprint);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
