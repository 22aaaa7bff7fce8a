/* Logistic regression on handwritten digits in C, data-parallel over four processes: fork(), shared memory as the
 * transport. With gradient descent ranks exchange gradients through gradsieve; with Adam each steps parameters of its
 * own and exchanges what that has changed. Ends with code 1 unless it learns and all ranks end with the same bits. */
#define _GNU_SOURCE
#include <gradsieve/gradsieve.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ranks = 4, pixels = 64, digits = 10, weights = digits * pixels, parameters = weights + digits };
enum { most_rows = 2000, steps = 150, room = 1 << 20 };

/* What the processes share: a barrier, and a place for each rank's bytes. */
struct shared {
  pthread_barrier_t barrier;
  _Alignas(64) unsigned char place[ranks][room];
};
struct link {
  struct shared* all;
  int rank;
};

static void everybody_waits(struct shared* all) { pthread_barrier_wait(&all->barrier); }

static int all_reduce_float(void* context, float* in_out, size_t count, int maximum) {
  struct link* link = context;
  if (count * sizeof(float) > room) return 1;
  if (count > 0) memcpy(link->all->place[link->rank], in_out, count * sizeof(float));
  everybody_waits(link->all);
  for (size_t i = 0; i < count; ++i)
    for (int r = 0; r < ranks; ++r) {
      float const value = ((float const*)(void const*)link->all->place[r])[i];
      in_out[i] = r == 0 ? value : maximum ? fmaxf(in_out[i], value) : in_out[i] + value;
    }
  everybody_waits(link->all);
  return 0;
}
static int all_reduce_double(void* context, double* in_out, size_t count, int maximum) {
  struct link* link = context;
  if (count * sizeof(double) > room) return 1;
  if (count > 0) memcpy(link->all->place[link->rank], in_out, count * sizeof(double));
  everybody_waits(link->all);
  for (size_t i = 0; i < count; ++i)
    for (int r = 0; r < ranks; ++r) {
      double const value = ((double const*)(void const*)link->all->place[r])[i];
      in_out[i] = r == 0 ? value : maximum ? fmax(in_out[i], value) : in_out[i] + value;
    }
  everybody_waits(link->all);
  return 0;
}
static int all_gather(void* context, const void* mine, size_t size, void* all, const size_t* sizes) {
  struct link* link = context;
  if (size > room) return 1;
  if (size > 0) memcpy(link->all->place[link->rank], mine, size);
  everybody_waits(link->all);
  for (int r = 0; r < ranks; ++r) {
    if (sizes[r] > 0) memcpy(all, link->all->place[r], sizes[r]);
    all = (unsigned char*)all + sizes[r];
  }
  everybody_waits(link->all);
  return 0;
}

static float image[most_rows][pixels];
static int label[most_rows];

static int read_digits(char const* path) {
  FILE* file = fopen(path, "r");
  int rows = 0;
  for (int field = 0, value; file && rows < most_rows && fscanf(file, "%d%*[,\n\r]", &value) == 1;) {
    if (field < pixels) image[rows][field++] = (float)value / 16;
    else label[rows++] = value, field = 0;
  }
  if (file) fclose(file);
  return rows;
}

/* The likeliest digit; probabilities of all ten. */
static int classify(float const* model, float const* pixel, float* probability) {
  int best = 0;
  float sum = 0;
  for (int d = 0; d < digits; ++d) {
    probability[d] = model[weights + d];
    for (int p = 0; p < pixels; ++p) probability[d] += model[d * pixels + p] * pixel[p];
    if (probability[d] > probability[best]) best = d;
  }
  float const largest = probability[best];
  for (int d = 0; d < digits; ++d) sum += probability[d] = expf(probability[d] - largest);
  for (int d = 0; d < digits; ++d) probability[d] /= sum;
  return best;
}

static int refused(gradsieve_status status) {
  if (status != GRADSIEVE_OK) fprintf(stderr, "train_in_c: %s\n", gradsieve_error());
  return status != GRADSIEVE_OK;
}

/* This rank's gradient, such that the ranks' mean is that of all rows below `test`. */
static void differentiate(float const* model, int rank, int test, float* gradient) {
  float probability[digits];
  memset(gradient, 0, parameters * sizeof *gradient);
  for (int i = rank; i < test; i += ranks) {
    classify(model, image[i], probability);
    for (int d = 0; d < digits; ++d) {
      float const error = (probability[d] - (float)(d == label[i])) * (float)ranks / (float)test;
      for (int p = 0; p < pixels; ++p) gradient[d * pixels + p] += error * image[i][p];
      gradient[weights + d] += error;
    }
  }
}

static gradsieve_layer const layers[] = {{"weight", weights}, {"bias", digits}};

/* Gradient descent: all ranks have the same model. Returns 1 if anything was refused. */
static int descend(gradsieve_communicator const* comm, int test, char const* recipe, float* model,
                   gradsieve_report* report) {
  static float gradient[parameters];
  gradsieve_compressor* compressor = NULL;
  int bad = refused(gradsieve_create(recipe, layers, 2, &compressor));
  for (int step = 0; step < steps && !bad; ++step) {
    differentiate(model, comm->rank, test, gradient);
    bad = refused(gradsieve_exchange(compressor, comm, gradient, parameters));
    for (int i = 0; i < parameters; ++i) model[i] -= gradient[i];
  }
  bad = bad || refused(gradsieve_get_report(compressor, report));
  gradsieve_destroy(compressor);
  return bad;
}

/* Adam: each rank steps `own` without a momentum; the model, which the ranks have in common, has it. */
static int adam(gradsieve_communicator const* comm, int test, char const* recipe, float* model,
                gradsieve_report* report) {
  static float own[parameters], gradient[parameters], square[parameters];
  gradsieve_parameters* exchange = NULL;
  gradsieve_moments* moments = NULL;
  float const *common = NULL, *factors = NULL;
  int bad = refused(gradsieve_create_parameters_with_momentum(recipe, layers, NULL, 2, own, parameters, -1, 0.9f,
                                                              &exchange)) ||
            refused(gradsieve_create_moments(layers, 2, 0.001, 1, &moments)) ||
            refused(gradsieve_moment_factors(moments, &factors)) || refused(gradsieve_common(exchange, &common));
  for (int step = 1; step <= steps && !bad; ++step) {
    differentiate(own, comm->rank, test, gradient);
    bad = refused(gradsieve_measure_moments(moments, comm, gradient, parameters)) ||
          refused(gradsieve_clip(moments, gradient, parameters, 1, NULL));
    float const rate = 0.1f * sqrtf(1 - powf(0.99f, (float)step));
    for (int i = 0; i < parameters; ++i) {
      float const factor = factors[i < weights ? 0 : 1];
      square[i] += 0.01f * (factor * gradient[i] * gradient[i] - square[i]);
      own[i] -= rate * gradient[i] / (sqrtf(square[i]) + 1e-8f);
    }
    bad = bad || refused(gradsieve_exchange_parameters(exchange, comm, own, parameters, NULL));
  }
  bad = bad || refused(gradsieve_get_parameters_report(exchange, report));
  if (!bad) memcpy(model, common, parameters * sizeof *model);
  gradsieve_destroy_moments(moments);
  gradsieve_destroy_parameters(exchange);
  return bad;
}

static int train(struct shared* all, int rank, int rows, char const* recipe, int with_adam) {
  static float model[parameters];
  struct link link = {all, rank};
  gradsieve_communicator const comm = {.context = &link,
                                       .rank = rank,
                                       .size = ranks,
                                       .all_reduce_float = all_reduce_float,
                                       .all_reduce_double = all_reduce_double,
                                       .all_gather = all_gather};
  int const test = rows * 4 / 5; /* rows from here on are not trained with */
  gradsieve_report report = {0};
  if ((with_adam ? adam : descend)(&comm, test, recipe, model, &report)) return 1;
  float probability[digits];
  int right = 0;
  for (int i = test; i < rows; ++i) right += classify(model, image[i], probability) == label[i];
  double const accuracy = (double)right / (rows - test);
  if (rank == 0)
    printf("%s: accuracy %.3f, %llu of %llu B a step\n", recipe, accuracy, (unsigned long long)report.bytes_sent,
           (unsigned long long)report.baseline_bytes);
  memcpy(all->place[rank], model, sizeof model);
  everybody_waits(all);
  return accuracy < 0.8 || memcmp(all->place[rank], all->place[(rank + 1) % ranks], sizeof model) != 0;
}

int main(int argc, char** argv) {
  int const rows = argc > 1 ? read_digits(argv[1]) : 0;
  if (rows < 100) return fprintf(stderr, "usage: train_in_c DIGITS.csv [RECIPE [adam]]\n"), 2;
  char const* recipe = argc > 2 ? argv[2] : "radix+packed:automatic,fp16@0.05";
  int const with_adam = argc > 3 && strcmp(argv[3], "adam") == 0;
  struct shared* all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_barrierattr_t between_processes;
  if (all == MAP_FAILED || pthread_barrierattr_init(&between_processes) != 0) return 1;
  pthread_barrierattr_setpshared(&between_processes, PTHREAD_PROCESS_SHARED);
  if (pthread_barrier_init(&all->barrier, &between_processes, ranks) != 0) return 1;
  for (int rank = 0; rank < ranks; ++rank)
    if (fork() == 0) exit(train(all, rank, rows, recipe, with_adam));
  int failed = 0;
  for (int status; wait(&status) > 0;) failed |= status != 0;
  return failed;
}
