/* gradsieve in C: gradient compression for data-parallel training. C11 and C++; link the library gradsieve_c.
 *
 * Every function returns GRADSIEVE_OK or what went wrong; gradsieve_error() then has a sentence about the last failure
 * on this thread. Nothing throws. A null pointer is refused, but where a size of 0 says that nothing is there.
 * Objects are not for concurrent use. */
#ifndef GRADSIEVE_GRADSIEVE_H
#define GRADSIEVE_GRADSIEVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gradsieve_compressor gradsieve_compressor;

typedef enum gradsieve_status {
  GRADSIEVE_OK = 0,
  GRADSIEVE_INVALID_ARGUMENT = 1,  /* nothing has changed */
  GRADSIEVE_MISMATCH = 2,          /* ranks, or a state and its compressor, differ */
  GRADSIEVE_CORRUPT = 3,           /* damaged bytes of a message or a state */
  GRADSIEVE_COMMUNICATION = 4,     /* a collective failed, or another rank did: the gradient stays in the residual */
  GRADSIEVE_NO_MEMORY = 5,
  GRADSIEVE_ROOM = 6,              /* the caller's memory is too small: the size that is needed was written */
  GRADSIEVE_OTHER = 7
} gradsieve_status;

/* A layer of a gradient. Names tell which layers pass through uncompressed: those with "bias" or "norm" do. */
typedef struct gradsieve_layer {
  const char* name; /* may be null: no name */
  uint64_t size;    /* elements */
} gradsieve_layer;

/* How ranks talk. Each function is collective, returns 0 or a number that says that it failed, and gets `context`.
 * `size` is in bytes for all_gather, broadcast and send_receive. maximum: 0 for a sum. All ranks end with the same bits.
 * all_gather: sizes[r] bytes of rank r, back to back in rank order. Functions that a recipe does not need may be null:
 * broadcast is of cyclic; send_receive of sums of values with fewer than 32 bits. */
typedef struct gradsieve_communicator {
  void* context;
  int rank;
  int size;
  int (*all_reduce_float)(void* context, float* in_out, size_t count, int maximum);
  int (*all_reduce_double)(void* context, double* in_out, size_t count, int maximum);
  int (*all_gather)(void* context, const void* mine, size_t size, void* all, const size_t* sizes);
  int (*broadcast)(void* context, void* in_out, size_t size, int root);
  int (*send_receive)(void* context, const void* out, size_t out_size, int to, void* in, size_t in_size, int from);
} gradsieve_communicator;

/* Of the last step. */
typedef struct gradsieve_report {
  uint64_t step;
  uint64_t selected;       /* entries that this rank sent */
  uint64_t updated;        /* entries of the averaged update */
  uint64_t non_finite;     /* elements that were NaN or infinite, left out */
  uint64_t saturated;      /* values clamped to what codec, sum or output can hold */
  uint64_t bytes_sent;
  uint64_t bytes_received;
  uint64_t baseline_bytes; /* what an uncompressed all-reduce would send */
  double seconds;
} gradsieve_report;

/* The sentence about this thread's last failure; "" before any. Lives until the next call on this thread. */
const char* gradsieve_error(void);
/* The names that a recipe may have. Lives as long as the program. */
const char* gradsieve_recipe_names(void);

/* A recipe is a text, such as "radix+deft+momentum+packed:delta,fp32@0.01", see any_compressor.hpp. Writes the
 * compressor; gradsieve_destroy() frees it, and takes null. */
gradsieve_status gradsieve_create(const char* recipe, const gradsieve_layer* layers, size_t count,
                                  gradsieve_compressor** made);
void gradsieve_destroy(gradsieve_compressor* which);

/* Replaces the gradient by the mean over all ranks of what they sent. Collective. */
gradsieve_status gradsieve_exchange(gradsieve_compressor* which, const gradsieve_communicator* comm, float* gradient,
                                    size_t size);

/* With a transport of one's own: selects what to send, and hands out the message that says it, which lives until the
 * next call with this compressor. */
gradsieve_status gradsieve_compress(gradsieve_compressor* which, const float* gradient, size_t size,
                                    const void** message, size_t* message_size);
/* Overwrites the gradient with the mean of messages of such compressors. */
gradsieve_status gradsieve_apply(gradsieve_compressor* which, const void* const* messages, const size_t* sizes,
                                 size_t count, float* gradient, size_t size);

gradsieve_status gradsieve_get_report(const gradsieve_compressor* which, gradsieve_report* to);
/* What the last step gave up returns to the residual: its update was not used. On every rank. */
gradsieve_status gradsieve_discard_step(gradsieve_compressor* which);
/* L2 norm of what has not been sent. One pass. */
gradsieve_status gradsieve_residual_norm(gradsieve_compressor* which, double* norm);

/* Everything that the next steps depend on. *size is the room in bytes, and becomes what the state takes; with room
 * for less, GRADSIEVE_ROOM, and nothing is written. `to` may be null where *size is 0. */
gradsieve_status gradsieve_save(gradsieve_compressor* which, void* to, size_t* size);
gradsieve_status gradsieve_load(gradsieve_compressor* which, const void* state, size_t size);

#ifdef __cplusplus
}
#endif
#endif
