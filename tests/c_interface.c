/* The C interface where it is misused, and one rank's step, state and messages. */
#include <gradsieve/gradsieve.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;
static void expect(int good, char const* what) {
  if (good) return;
  fprintf(stderr, "failed: %s (last error: %s)\n", what, gradsieve_error());
  ++failures;
}
#define EXPECT(it) expect(it, #it)
#define REFUSED(call, part) \
  expect((call) == GRADSIEVE_INVALID_ARGUMENT && strstr(gradsieve_error(), part) != NULL, #call)

static int nothing_f(void* c, float* v, size_t n, int max) { return (void)c, (void)v, (void)n, (void)max, 0; }
static int nothing_d(void* c, double* v, size_t n, int max) { return (void)c, (void)v, (void)n, (void)max, 0; }
static int negative(void* c, double* v, size_t n, int max) {
  (void)c, (void)max;
  for (size_t i = 0; i < n; ++i) v[i] = -1;
  return 0;
}
static int broken(void* c, const void* m, size_t n, void* a, const size_t* s) {
  return (void)c, (void)m, (void)n, (void)a, (void)s, 5;
}
static int alone(void* c, const void* m, size_t n, void* a, const size_t* s) {
  (void)c, (void)s;
  if (n > 0) memmove(a, m, n);
  return 0;
}

/* Another rank of weight 3. */
static int of_weight_3(void* c, const void* m, size_t n, void* a, const size_t* s) {
  double const weight = 3;
  (void)c, (void)s;
  memcpy(a, m, n);
  memcpy((char*)a + n, m, n);
  memcpy((char*)a + n + 16, &weight, sizeof weight);
  return 0;
}

static void weights(gradsieve_communicator const* comm) {
  enum { n = 100 };
  static float own[n];
  gradsieve_layer const layers[] = {{"weight", n}};
  gradsieve_parameters* made = NULL;
  gradsieve_communicator two = *comm;
  float factor = 0;
  two.size = 2;
  two.all_gather = of_weight_3;
  EXPECT(gradsieve_mean_factor(comm, NULL, 7, &factor) == GRADSIEVE_OK && factor == 1);
  EXPECT(gradsieve_mean_factor(&two, NULL, 1, &factor) == GRADSIEVE_OK && factor == 0.5f);
  EXPECT(gradsieve_mean_factor(comm, &two, 9, &factor) == GRADSIEVE_OK && factor == 1.5f);
  REFUSED(gradsieve_mean_factor(&two, NULL, -1, &factor), "rank 0 is not a number from 0 to 1e300");
  REFUSED(gradsieve_mean_factor(comm, NULL, 0, &factor), "the weights of all ranks are 0");
  REFUSED(gradsieve_mean_factor(NULL, NULL, 1, &factor), "communicator is null");
  REFUSED(gradsieve_mean_factor(comm, NULL, 1, NULL), "factor is null");
  EXPECT(gradsieve_create_parameters("radix@1", layers, NULL, 1, own, n, -1, &made) == GRADSIEVE_OK);
  own[5] = 1;
  EXPECT(gradsieve_exchange_weighted_parameters(made, comm, own, n, NULL, 0.25f) == GRADSIEVE_OK && own[5] == 0.25f);
  REFUSED(gradsieve_exchange_weighted_parameters(made, comm, own, n, NULL, -1), "negative or not finite");
  gradsieve_destroy_parameters(made);
}

/* Exchanged parameters and second moments, of one rank. */
static void parameters(gradsieve_communicator const* comm) {
  enum { n = 1000, steps = 20 };
  static float own[n], twin[n], gradient[n];
  gradsieve_layer const layers[] = {{"weight", n - 10}, {"bias", 10}};
  gradsieve_parameters *made = NULL, *other = NULL;
  gradsieve_moments *moments = NULL, *more = NULL;
  float const *common = NULL, *factors = NULL;
  gradsieve_report report;
  size_t size = 0;
  float norm = 0;
  for (int i = 0; i < n; ++i) own[i] = (float)i;

  REFUSED(gradsieve_create_parameters("radix", layers, NULL, 2, NULL, n, -1, &made), "own is null");
  REFUSED(gradsieve_create_parameters("radix", layers, NULL, 2, own, n - 1, -1, &made), "999 own parameters");
  REFUSED(gradsieve_create_parameters("radix", layers, NULL, 2, own, n, 2, &made), "weight is not in [0, 1]");
  REFUSED(gradsieve_create_parameters("momentum_correction", layers, NULL, 2, own, n, -1, &made), "keeps several states");
  REFUSED(gradsieve_create_parameters("radix+reduce_scatter", layers, NULL, 2, own, n, -1, &made), "a shard of the mean");
  REFUSED(gradsieve_create_parameters_with_momentum("radix", layers, NULL, 2, own, n, -1, 1, &made), "momentum is not in");
  REFUSED(gradsieve_create_parameters("radish", layers, NULL, 2, own, n, -1, &made), "there is no 'radish'");
  REFUSED(gradsieve_create_parameters("radix", layers, NULL, 2, own, n, -1, NULL), "made is null");
  EXPECT(made == NULL);
  gradsieve_destroy_parameters(NULL);
  EXPECT(gradsieve_create_parameters("radix@0.1", layers, NULL, 2, own, n, -1, &made) == GRADSIEVE_OK);
  EXPECT(gradsieve_common(made, &common) == GRADSIEVE_OK && memcmp(common, own, sizeof own) == 0);
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < n; ++i) own[i] += (float)(i % 10);
    EXPECT(gradsieve_exchange_parameters(made, comm, own, n, NULL) == GRADSIEVE_OK);
  }
  for (int i = 0; i < n; ++i) /* alone a rank trains on all that it has changed */
    EXPECT(own[i] > (float)(i + steps * (i % 10)) - 0.01f && own[i] < (float)(i + steps * (i % 10)) + 0.01f);
  EXPECT(memcmp(common, own, sizeof own) != 0); /* and has not sent all of it */
  EXPECT(gradsieve_get_parameters_report(made, &report) == GRADSIEVE_OK && report.selected == 99);
  REFUSED(gradsieve_exchange_parameters(made, comm, own, n - 1, NULL), "999");
  REFUSED(gradsieve_exchange_parameters(NULL, comm, own, n, NULL), "parameters is null");
  REFUSED(gradsieve_exchange_parameters(made, NULL, own, n, NULL), "communicator is null");

  EXPECT(gradsieve_save_parameters(made, NULL, &size) == GRADSIEVE_ROOM && size > 8 * n);
  void* state = malloc(size);
  EXPECT(gradsieve_save_parameters(made, state, &size) == GRADSIEVE_OK);
  EXPECT(gradsieve_create_parameters("radix@0.1", layers, NULL, 2, twin, n, -1, &other) == GRADSIEVE_OK);
  EXPECT(gradsieve_load_parameters(other, state, size - 1, twin, n) == GRADSIEVE_CORRUPT);
  EXPECT(gradsieve_load_parameters(other, state, size, twin, n) == GRADSIEVE_OK);
  EXPECT(memcmp(own, twin, sizeof own) == 0);
  EXPECT(gradsieve_join_parameters(other, state, size, twin, n) == GRADSIEVE_OK);
  EXPECT(memcmp(common, twin, sizeof twin) == 0); /* nothing waits */
  EXPECT(gradsieve_absorb_parameters(other, state, size, twin, n) == GRADSIEVE_OK);
  EXPECT(gradsieve_rescale_parameters(other, 0.5f, twin, n) == GRADSIEVE_OK);
  EXPECT(memcmp(common, twin, sizeof twin) != 0);
  unsigned char const skipped[] = {1, 0};
  memcpy(twin, common, sizeof twin);
  EXPECT(gradsieve_exchange_parameters(made, comm, own, n, skipped) == GRADSIEVE_OK);
  EXPECT(memcmp(common, twin, (n - 10) * sizeof *twin) == 0);
  free(state);
  gradsieve_destroy_parameters(made);
  EXPECT(gradsieve_create_parameters_with_momentum("radix@1", layers, NULL, 2, twin, n, -1, 0.5f, &made) == GRADSIEVE_OK);
  EXPECT(gradsieve_common(made, &common) == GRADSIEVE_OK);
  float const before = common[0];
  twin[0] += 1;
  EXPECT(gradsieve_exchange_parameters(made, comm, twin, n, NULL) == GRADSIEVE_OK && common[0] > before + 0.99f);
  EXPECT(gradsieve_exchange_parameters(made, comm, twin, n, NULL) == GRADSIEVE_OK && common[0] > before + 1.3f);
  gradsieve_destroy_parameters(made);
  gradsieve_destroy_parameters(other);

  REFUSED(gradsieve_create_moments(layers, 2, 2, 1, &moments), "density is not in [0, 1]");
  REFUSED(gradsieve_create_moments(layers, 2, 0.01, 0, &moments), "every is 0");
  REFUSED(gradsieve_create_moments(NULL, 2, 0.01, 1, &moments), "layers is null");
  gradsieve_destroy_moments(NULL);
  EXPECT(gradsieve_create_moments(layers, 2, 0.01, 1, &moments) == GRADSIEVE_OK);
  EXPECT(gradsieve_moment_factors(moments, &factors) == GRADSIEVE_OK && factors[0] == 1 && factors[1] == 1);
  for (int i = 0; i < n; ++i) gradient[i] = 2;
  EXPECT(gradsieve_measure_moments(moments, comm, gradient, n) == GRADSIEVE_OK);
  REFUSED(gradsieve_measure_moments(moments, comm, gradient, n - 1), "999");
  EXPECT(gradsieve_measure_moments(moments, comm, gradient, n) == GRADSIEVE_OK);
  REFUSED(gradsieve_clip(moments, gradient, n - 1, 1, &norm), "999 values");
  REFUSED(gradsieve_clip(moments, gradient, n, 0, &norm), "norm above 0");
  EXPECT(gradsieve_clip(moments, gradient, n, 1, &norm) == GRADSIEVE_OK);
  EXPECT(norm > 63.2f && norm < 63.3f && gradient[5] > 0.0316f && gradient[5] < 0.0317f);
  size = 0;
  EXPECT(gradsieve_save_moments(moments, NULL, &size) == GRADSIEVE_ROOM);
  state = malloc(size);
  EXPECT(gradsieve_save_moments(moments, state, &size) == GRADSIEVE_OK);
  EXPECT(gradsieve_create_moments(layers, 1, 0.01, 1, &more) == GRADSIEVE_OK);
  EXPECT(gradsieve_load_moments(more, state, size) == GRADSIEVE_MISMATCH);
  EXPECT(gradsieve_load_moments(moments, state, size) == GRADSIEVE_OK);
  free(state);
  gradsieve_destroy_moments(moments);
  gradsieve_destroy_moments(more);
}

/* Nodes, and gradients and messages of 16 bits, of one rank. */
static void formats_and_nodes(gradsieve_communicator const* comm) {
  enum { n = 1000 };
  static uint16_t half[n], twin[n];
  gradsieve_layer const layers[] = {{"weight", n - 10}, {"other", 10}};
  gradsieve_communicator nobody = *comm;
  gradsieve_compressor *flat = NULL, *nodes = NULL, *away = NULL;
  void const* message = NULL;
  size_t size = 0;
  gradsieve_report report;
  for (int i = 0; i < n; ++i) half[i] = twin[i] = (uint16_t)(0x3c00 + i); /* binary16, from 1 on */
  nobody.rank = 1;
  char const* const recipe = "adacomp+layerwise+binned@0.5";
  REFUSED(gradsieve_create_nodes(recipe, layers, NULL, 2, NULL, comm, &nodes), "communicator is null");
  REFUSED(gradsieve_create_nodes(recipe, layers, NULL, 2, comm, &nobody, &nodes), "rank 1 of 1");
  REFUSED(gradsieve_create_nodes("radish", layers, NULL, 2, comm, comm, &nodes), "there is no 'radish'");
  EXPECT(nodes == NULL);
  EXPECT(gradsieve_create_nodes(recipe, layers, NULL, 2, comm, comm, &nodes) == GRADSIEVE_OK);
  EXPECT(gradsieve_create(recipe, layers, 2, &flat) == GRADSIEVE_OK);
  EXPECT(gradsieve_create(recipe, layers, 2, &away) == GRADSIEVE_OK);
  unsigned char const skipped[] = {0, 1};
  EXPECT(gradsieve_exchange_nodes(nodes, comm, comm, GRADSIEVE_FLOAT16, half, n, skipped) == GRADSIEVE_OK);
  EXPECT(half[n - 1] == 0 && gradsieve_get_report(nodes, &report) == GRADSIEVE_OK && report.selected > 0);
  memcpy(half, twin, sizeof half);
  EXPECT(gradsieve_compress_format(away, 0, GRADSIEVE_FLOAT16, half, n, &message, &size) == GRADSIEVE_OK);
  EXPECT(gradsieve_apply_format(away, &message, &size, 1, GRADSIEVE_FLOAT16, half, n) == GRADSIEVE_OK);
  EXPECT(gradsieve_exchange_format(flat, comm, GRADSIEVE_FLOAT16, twin, n) == GRADSIEVE_OK);
  EXPECT(memcmp(half, twin, sizeof half) == 0);
  REFUSED(gradsieve_exchange_nodes(flat, comm, comm, GRADSIEVE_FLOAT16, half, n, NULL), "for ranks that are alike");
  gradsieve_communicator damaged = *comm;
  damaged.all_reduce_double = negative;
  EXPECT(gradsieve_exchange_nodes(nodes, &damaged, comm, GRADSIEVE_FLOAT16, half, n, NULL) == GRADSIEVE_CORRUPT);
  REFUSED(gradsieve_exchange_format(nodes, comm, GRADSIEVE_FLOAT16, half, n), "for the nodes of a two_level");
  REFUSED(gradsieve_compress_format(nodes, 0, GRADSIEVE_FLOAT16, half, n, &message, &size), "with nodes a step");
  REFUSED(gradsieve_compress_format(flat, 0, (gradsieve_format)7, half, n, &message, &size), "no format 7");
  gradsieve_destroy(flat);
  gradsieve_destroy(nodes);
  gradsieve_destroy(away);
}

/* Two versions of weights, in two layers. */
static void deltas(void) {
  enum { n = 100000 };
  static uint16_t before[n], after[n], weights[n];
  static char damaged[n];
  gradsieve_layer const layers[] = {{"weight", n - 10}, {"bias", 10}};
  gradsieve_weight_format const bfloat16 = GRADSIEVE_WEIGHTS_BFLOAT16;
  gradsieve_delta_encoder* encoder = NULL;
  gradsieve_delta_decoder* decoder = NULL;
  void const *message = NULL, *chunk = NULL;
  size_t size = 0, chunk_size = 0, chunks = 0, sum = 0;
  uint64_t version = 0, hash = 0, other = 0;
  int complete = 0;
  for (size_t i = 0; i < n; ++i) before[i] = after[i] = weights[i] = (uint16_t)(i * 7919);
  for (size_t i = 0; i < n; i += 97) after[i] ^= 1;

  REFUSED(gradsieve_create_delta_encoder(layers, 2, 0, 1, NULL), "made is null");
  REFUSED(gradsieve_create_delta_encoder(NULL, 2, 0, 1, &encoder), "layers is null");
  REFUSED(gradsieve_create_delta_encoder(layers, 2, 0, -1, &encoder), "-1 threads");
  REFUSED(gradsieve_create_delta_decoder(layers, 2, 5, 1, NULL), "made is null");
  gradsieve_destroy_delta_encoder(NULL);
  gradsieve_destroy_delta_decoder(NULL);
  EXPECT(gradsieve_create_delta_encoder(layers, 2, 150000, 1, &encoder) == GRADSIEVE_OK);
  EXPECT(gradsieve_create_delta_decoder(layers, 2, 5, 1, &decoder) == GRADSIEVE_OK);
  REFUSED(gradsieve_delta_chunk(encoder, 0, &chunk, &chunk_size, &chunks), "no chunk 0 of 0");
  REFUSED(gradsieve_encode_delta(encoder, bfloat16, NULL, after, n, 5, 6, &message, &size), "call keep() before");
  REFUSED(gradsieve_encode_delta(encoder, bfloat16, before, NULL, n, 5, 6, &message, &size), "weights is null");
  REFUSED(gradsieve_encode_delta(encoder, bfloat16, before, after, n - 1, 5, 6, &message, &size), "99999 weights");
  REFUSED(gradsieve_encode_delta(encoder, bfloat16, before, after, n, 5, 6, NULL, &size), "message");
  REFUSED(gradsieve_keep_weights(encoder, (gradsieve_weight_format)9, before, n, 5), "there is no format 9");
  EXPECT(gradsieve_keep_weights(encoder, bfloat16, before, n, 5) == GRADSIEVE_OK);
  EXPECT(gradsieve_encode_delta(encoder, bfloat16, NULL, after, n, 5, 6, &message, &size) == GRADSIEVE_OK);
  EXPECT(size > 1031 * 3 && size < 1031 * 4); /* 1031 changes */
  do {
    EXPECT(gradsieve_delta_chunk(encoder, sum == 0 ? 0 : 1, &chunk, &chunk_size, &chunks) == GRADSIEVE_OK);
    sum += chunk_size;
  } while (sum < size && chunks == 2);
  EXPECT(sum == size);

  memcpy(damaged, message, size);
  damaged[size / 2] ^= 4;
  void const* given = damaged;
  EXPECT(gradsieve_apply_delta(decoder, bfloat16, &given, &size, 1, weights, n) == GRADSIEVE_CORRUPT);
  given = message;
  EXPECT(gradsieve_apply_delta(decoder, GRADSIEVE_WEIGHTS_FLOAT16, &given, &size, 1, weights, n) == GRADSIEVE_MISMATCH);
  REFUSED(gradsieve_apply_delta(decoder, bfloat16, NULL, &size, 1, weights, n), "messages or sizes is null");
  REFUSED(gradsieve_apply_delta(decoder, bfloat16, &given, &size, 1, NULL, n), "weights is null");
  EXPECT(memcmp(weights, before, sizeof weights) == 0);
  EXPECT(gradsieve_apply_delta(decoder, bfloat16, &given, &size, 1, weights, n) == GRADSIEVE_OK);
  EXPECT(memcmp(weights, after, sizeof weights) == 0);
  EXPECT(gradsieve_delta_version(decoder, &version, &complete) == GRADSIEVE_OK && version == 6 && complete == 1);
  EXPECT(gradsieve_apply_delta(decoder, bfloat16, &given, &size, 1, weights, n) == GRADSIEVE_MISMATCH);
  EXPECT(strstr(gradsieve_error(), "starts from version 5, the weights have version 6") != NULL);
  EXPECT(gradsieve_restart_delta(decoder) == GRADSIEVE_OK && gradsieve_reset_delta(decoder, 5) == GRADSIEVE_OK);
  EXPECT(gradsieve_apply_delta(decoder, bfloat16, &given, &size, 1, weights, n) == GRADSIEVE_OK);
  EXPECT(gradsieve_fingerprint_weights(layers, 2, bfloat16, weights, n, 1, &hash) == GRADSIEVE_OK);
  EXPECT(gradsieve_fingerprint_weights(layers, 2, bfloat16, before, n, 1, &other) == GRADSIEVE_OK && hash != other);
  EXPECT(gradsieve_fingerprint_weights(layers, 2, bfloat16, after, n, 2, &other) == GRADSIEVE_OK && hash == other);

  /* Layers that lie apart. */
  static uint16_t bias[10];
  void const* const old[] = {before, before + n - 10};
  void const* const now[] = {after, after + n - 10};
  void* const own[] = {weights, bias};
  memcpy(weights, before, sizeof weights);
  memcpy(bias, before + n - 10, sizeof bias);
  memcpy(damaged, message, size);
  REFUSED(gradsieve_keep_weight_pieces(encoder, bfloat16, NULL, 5), "parts is null");
  EXPECT(gradsieve_keep_weight_pieces(encoder, bfloat16, old, 5) == GRADSIEVE_OK);
  EXPECT(gradsieve_encode_delta_of_pieces(encoder, bfloat16, NULL, now, 5, 6, &message, &chunk_size) == GRADSIEVE_OK);
  EXPECT(chunk_size == size && memcmp(message, damaged, size) == 0);
  REFUSED(gradsieve_encode_delta_of_pieces(encoder, bfloat16, old, NULL, 5, 6, &message, &size), "parts is null");
  EXPECT(gradsieve_encode_delta_of_pieces(encoder, bfloat16, old, now, 5, 6, &message, &size) == GRADSIEVE_OK);
  EXPECT(chunk_size == size && memcmp(message, damaged, size) == 0);
  given = message;
  EXPECT(gradsieve_verify_delta(decoder, bfloat16, &given, &size, 1, NULL, NULL) == GRADSIEVE_MISMATCH);
  EXPECT(gradsieve_reset_delta(decoder, 5) == GRADSIEVE_OK);
  EXPECT(gradsieve_verify_delta(decoder, bfloat16, &given, &size, 1, &version, &complete) == GRADSIEVE_OK);
  EXPECT(version == 6 && complete == 1);
  EXPECT(gradsieve_delta_version(decoder, &version, &complete) == GRADSIEVE_OK && version == 5 && complete == 1);
  EXPECT(gradsieve_apply_delta_to_pieces(decoder, bfloat16, &given, &size, 1, own) == GRADSIEVE_OK);
  EXPECT(memcmp(weights, after, (n - 10) * 2) == 0 && memcmp(bias, after + n - 10, sizeof bias) == 0);
  EXPECT(gradsieve_fingerprint_weight_pieces(layers, 2, bfloat16, (void const* const*)own, 1, NULL, &other) ==
         GRADSIEVE_OK);
  EXPECT(hash == other);
  memset(weights, 0, sizeof weights); /* all change: two chunks */
  EXPECT(gradsieve_encode_delta(encoder, bfloat16, after, weights, n, 6, 7, &message, &size) == GRADSIEVE_OK);
  EXPECT(gradsieve_delta_chunk(encoder, 0, &chunk, &chunk_size, &chunks) == GRADSIEVE_OK && chunks == 2);
  EXPECT(gradsieve_verify_delta(decoder, bfloat16, &chunk, &chunk_size, 1, &version, &complete) == GRADSIEVE_OK);
  EXPECT(version == 6 && complete == 0);
  gradsieve_destroy_delta_encoder(encoder);
  gradsieve_destroy_delta_decoder(decoder);
}

int main(void) {
  enum { n = 1000 };
  static float gradient[n], mean[n];
  for (int i = 0; i < n; ++i) gradient[i] = (float)(i * 7919 % 1009) - 500;
  gradsieve_layer const layers[] = {{"weight", n}};
  gradsieve_compressor *made = NULL, *other = NULL;
  gradsieve_communicator comm = {NULL, 0, 1, nothing_f, nothing_d, alone, NULL, NULL, NULL, NULL, NULL};
  gradsieve_report report;
  void const* message = NULL;
  size_t size = 0;
  double norm = 0;

  EXPECT(strcmp(gradsieve_error(), "") == 0);
  deltas();
  EXPECT(strstr(gradsieve_recipe_names(), "laplacian") != NULL);
  made = (gradsieve_compressor*)(void*)&comm; /* whatever was there, destroying it after a failure is safe */
  REFUSED(gradsieve_create(NULL, layers, 1, &made), "recipe is null");
  EXPECT(made == NULL);
  REFUSED(gradsieve_create("radix", NULL, 1, &made), "layers is null");
  REFUSED(gradsieve_create("radix", layers, 1, NULL), "made is null");
  REFUSED(gradsieve_create("radish", layers, 1, &made), "there is no 'radish'; nearest are radix, ");
  REFUSED(gradsieve_create("radix+@0.1", layers, 1, &made), "a name is missing: at the beginning");
  EXPECT(made == NULL);
  REFUSED(gradsieve_create("radix+deft+packed:delta,int8@0.1", layers, 1, &made), "fp32, fp16, bf16, not int8");
  if (!gradsieve_has_devices()) {
    gradsieve_device const where = {NULL, NULL, NULL, NULL};
    gradsieve_parameters* parameters_there = NULL;
    gradsieve_moments* moments_there = NULL;
    REFUSED(gradsieve_create_on_device("radix", layers, NULL, 1, &where, &made), "built without CUDA");
    REFUSED(gradsieve_create_nodes_on_device("radix", layers, NULL, 1, &comm, &comm, &where, &made), "built without CUDA");
    REFUSED(gradsieve_create_parameters_on_device("radix", layers, NULL, 1, mean, n, -1, 0, &where, &parameters_there),
            "built without CUDA");
    REFUSED(gradsieve_create_moments_on_device(layers, 1, 0.1, 1, &where, &moments_there), "built without CUDA");
    gradsieve_delta_encoder* encoder_there = NULL;
    gradsieve_delta_decoder* decoder_there = NULL;
    uint64_t print_there = 0;
    REFUSED(gradsieve_create_delta_encoder_on_device(layers, 1, 0, &where, &encoder_there), "built without CUDA");
    REFUSED(gradsieve_create_delta_decoder_on_device(layers, 1, 0, &where, &decoder_there), "built without CUDA");
    REFUSED(gradsieve_fingerprint_weights_on_device(layers, 1, GRADSIEVE_WEIGHTS_FLOAT32, mean, n, &where, &print_there),
            "built without CUDA");
    EXPECT(made == NULL && parameters_there == NULL && moments_there == NULL);
  }
  gradsieve_destroy(NULL);
  EXPECT(gradsieve_create("radix+deft+packed:delta,fp16@0.1", layers, 1, &made) == GRADSIEVE_OK);
  memcpy(mean, gradient, sizeof mean);
  EXPECT(gradsieve_exchange(made, &comm, mean, n) == GRADSIEVE_OK);
  gradsieve_destroy(made);
  REFUSED(gradsieve_create("radix+passthrough:wejght", layers, 1, &made), "pattern 'wejght' matches none of the 1 layers");
  char const* text = NULL;
  uint32_t const dimensions[] = {1};
  EXPECT(gradsieve_create("radix", layers, 1, &made) == GRADSIEVE_OK);
  EXPECT(gradsieve_describe(made, &text) == GRADSIEVE_OK && strstr(text, "; 0 of 1 layers pass through") != NULL);
  REFUSED(gradsieve_describe(made, NULL), "text is null");
  gradsieve_destroy(made);
  EXPECT(gradsieve_create_with_dimensions("radix", layers, dimensions, 1, &made) == GRADSIEVE_OK);
  EXPECT(gradsieve_describe(made, &text) == GRADSIEVE_OK);
  EXPECT(strstr(text, "; 1 of 1 layers pass through, 1000 of 1000 elements: weight") != NULL);
  gradsieve_destroy(made);
  EXPECT(gradsieve_create("radix+passthrough:module.*", layers, 1, &made) == GRADSIEVE_OK);
  EXPECT(gradsieve_describe(made, &text) == GRADSIEVE_OK && strstr(text, "; 1 of 1 layers pass through") != NULL);
  gradsieve_destroy(made);
  made = NULL;
  EXPECT(gradsieve_create("radix+packed:delta,fp16@0.1", layers, 1, &made) == GRADSIEVE_OK);

  REFUSED(gradsieve_exchange(NULL, &comm, gradient, n), "compressor is null");
  REFUSED(gradsieve_exchange(made, NULL, gradient, n), "communicator is null");
  REFUSED(gradsieve_exchange(made, &comm, NULL, n), "gradient is null");
  REFUSED(gradsieve_exchange(made, &comm, gradient, n - 1), "999");
  comm.rank = 1;
  REFUSED(gradsieve_exchange(made, &comm, gradient, n), "rank 1 of 1");
  comm.rank = 0;
  comm.all_gather = NULL;
  REFUSED(gradsieve_exchange(made, &comm, gradient, n), "all_gather is null");
  comm.all_gather = broken;
  EXPECT(gradsieve_exchange(made, &comm, gradient, n) == GRADSIEVE_COMMUNICATION);
  EXPECT(strstr(gradsieve_error(), "all_gather returned 5") != NULL);
  comm.all_gather = alone;
  gradsieve_destroy(made);

  EXPECT(gradsieve_create("radix+packed:delta,fp16@0.1", layers, 1, &made) == GRADSIEVE_OK);
  EXPECT(gradsieve_create("radix+packed:delta,fp16@0.1", layers, 1, &other) == GRADSIEVE_OK);
  memcpy(mean, gradient, sizeof mean);
  EXPECT(gradsieve_exchange(made, &comm, mean, n) == GRADSIEVE_OK);
  EXPECT(gradsieve_get_report(made, &report) == GRADSIEVE_OK);
  EXPECT(report.selected == n / 10 && report.updated == n / 10 && report.baseline_bytes == 4 * n);
  EXPECT(report.bytes_sent < 4 * n && report.bytes_sent > 0);
  REFUSED(gradsieve_get_report(made, NULL), "report is null");
  EXPECT(gradsieve_residual_norm(made, &norm) == GRADSIEVE_OK && norm > 0);
  REFUSED(gradsieve_residual_norm(made, NULL), "norm is null");

  unsigned char const skipped[] = {1};
  gradsieve_compressor* waits = NULL;
  EXPECT(gradsieve_create("radix@0.1", layers, 1, &waits) == GRADSIEVE_OK);
  memcpy(mean, gradient, sizeof mean);
  EXPECT(gradsieve_exchange_skipping(waits, &comm, mean, n, skipped) == GRADSIEVE_OK);
  EXPECT(gradsieve_get_report(waits, &report) == GRADSIEVE_OK && report.selected == 0 && mean[0] == 0);
  EXPECT(gradsieve_exchange_skipping(waits, &comm, mean, n, NULL) == GRADSIEVE_OK);
  EXPECT(gradsieve_get_report(waits, &report) == GRADSIEVE_OK && report.selected == n / 10);
  gradsieve_destroy(waits);
  EXPECT(gradsieve_create("radix+on_non_finite:fail@0.1", layers, 1, &waits) == GRADSIEVE_OK);
  memcpy(mean, gradient, sizeof mean);
  mean[3] = 1e30f * 1e30f;
  EXPECT(gradsieve_exchange(waits, &comm, mean, n) == GRADSIEVE_NON_FINITE);
  gradsieve_destroy(waits);

  gradsieve_layer const two[] = {{"weight", 600}, {"none", 0}, {"other", n - 600}};
  gradsieve_compressor *flat = NULL, *pieces = NULL;
  static float part[n];
  static uint16_t halves[n];
  EXPECT(gradsieve_create("laplacian+reduce_scatter@0.1", two, 3, &flat) == GRADSIEVE_OK);
  memcpy(mean, gradient, sizeof mean);
  EXPECT(gradsieve_exchange(flat, &comm, mean, n) == GRADSIEVE_COMMUNICATION);
  EXPECT(strstr(gradsieve_error(), "the communicator has no all_to_all") != NULL);
  gradsieve_destroy(flat);
  EXPECT(gradsieve_create("int4+coded_all_reduce@1", two, 3, &flat) == GRADSIEVE_OK);
  EXPECT(gradsieve_exchange(flat, &comm, mean, n) == GRADSIEVE_COMMUNICATION);
  gradsieve_destroy(flat);
  EXPECT(gradsieve_create("chunked(size=100)@0.1", two, 3, &flat) == GRADSIEVE_OK);
  EXPECT(gradsieve_create("chunked(size=100)@0.1", two, 3, &pieces) == GRADSIEVE_OK);
  memcpy(mean, gradient, sizeof mean);
  memcpy(part + 1, gradient + 600, sizeof(float) * (n - 600));
  float first[600];
  memcpy(first, gradient, sizeof first);
  float* const parts[] = {first, NULL, part + 1};
  EXPECT(gradsieve_exchange(flat, &comm, mean, n) == GRADSIEVE_OK);
  EXPECT(gradsieve_exchange_pieces(pieces, &comm, parts) == GRADSIEVE_OK);
  EXPECT(memcmp(first, mean, sizeof first) == 0 && memcmp(part + 1, mean + 600, sizeof(float) * (n - 600)) == 0);
  REFUSED(gradsieve_exchange_pieces(pieces, &comm, NULL), "parts is null");
  float* const missing[] = {first, NULL, NULL};
  REFUSED(gradsieve_exchange_pieces(pieces, &comm, missing), "piece 2 of the gradient is null");
  float* const tied[] = {parts[0], NULL, parts[0]};
  REFUSED(gradsieve_exchange_pieces(pieces, &comm, tied), "share memory");
  for (int i = 0; i < n; ++i) halves[i] = (uint16_t)(0x3C00 + i); /* 1 and more, as binary16 */
  EXPECT(gradsieve_exchange_format(pieces, &comm, GRADSIEVE_FLOAT16, halves, n) == GRADSIEVE_OK);
  int kept = 0;
  for (int i = 0; i < n; ++i) kept += halves[i] != 0;
  EXPECT(kept == n / 10);
  REFUSED(gradsieve_exchange_format(pieces, &comm, (gradsieve_format)9, halves, n), "no format 9");
  gradsieve_destroy(flat);
  gradsieve_destroy(pieces);

  size = 0; /* the size, then the state */
  EXPECT(gradsieve_save(made, NULL, &size) == GRADSIEVE_ROOM && size > 4 * n);
  void* state = malloc(size);
  EXPECT(gradsieve_save(made, state, &size) == GRADSIEVE_OK);
  REFUSED(gradsieve_save(made, NULL, &size), "to is null");
  EXPECT(gradsieve_load(other, state, size - 1) == GRADSIEVE_CORRUPT);
  EXPECT(gradsieve_load(other, state, size) == GRADSIEVE_OK);
  REFUSED(gradsieve_load(other, NULL, size), "state is null");

  /* both go on alike: the same message */
  EXPECT(gradsieve_compress(made, gradient, n, &message, &size) == GRADSIEVE_OK);
  void const* same = NULL;
  size_t same_size = 0;
  EXPECT(gradsieve_compress(other, gradient, n, &same, &same_size) == GRADSIEVE_OK);
  EXPECT(size == same_size && memcmp(message, same, size) == 0);
  void const* const both[] = {message, same};
  size_t const sizes[] = {size, same_size};
  EXPECT(gradsieve_apply(made, both, sizes, 2, mean, n) == GRADSIEVE_OK);
  int entries = 0;
  for (int i = 0; i < n; ++i) entries += mean[i] < 0 || mean[i] > 0;
  EXPECT(entries == n / 10);
  size_t const cut[] = {size, same_size - 1};
  EXPECT(gradsieve_apply(made, both, cut, 2, mean, n) == GRADSIEVE_CORRUPT);
  REFUSED(gradsieve_apply(made, NULL, sizes, 2, mean, n), "messages or sizes is null");
  REFUSED(gradsieve_compress(made, gradient, n, NULL, &size), "message or message_size is null");
  REFUSED(gradsieve_compress_as(made, -1, gradient, n, &message, &size), "the rank -1");
  EXPECT(gradsieve_discard_step(made) == GRADSIEVE_OK);
  REFUSED(gradsieve_discard_step(NULL), "compressor is null");
  free(state);
  gradsieve_destroy(made);
  gradsieve_destroy(other);
  comm.all_gather = alone;
  weights(&comm);
  parameters(&comm);
  formats_and_nodes(&comm);
  return failures == 0 ? 0 : 1;
}
