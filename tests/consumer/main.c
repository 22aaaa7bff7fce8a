/* What a user of the C interface writes. */
#include <gradsieve/gradsieve.h>
#include <stdio.h>

int main(void) {
  gradsieve_layer const layers[] = {{"weight", 100}};
  gradsieve_compressor* made = NULL;
  gradsieve_status const status = gradsieve_create("radix@0.1", layers, 1, &made);
  if (status != GRADSIEVE_OK) fprintf(stderr, "%s\n", gradsieve_error());
  gradsieve_destroy(made);
  return status;
}
