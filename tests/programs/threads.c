/* MPI_THREAD_MULTIPLE from C: four POSIX threads per rank exchange with the same thread of the neighbours, with every
   size class, by tag on one communicator and with collectives on one communicator each. Two ranks or more. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define TURNS 120

static int rank, size;
static MPI_Comm own[THREADS];
static const int sizes[] = {0, 1, 64, 4000, 5000, 66000, 270000, 530000};

static unsigned char byte_of(int seed, int index) { return (unsigned char)((seed * 131 + index * 7 + index / 251) & 255); }

static void *work(void *argument) {
  int thread = (int)(long)argument, right = (rank + 1) % size, left = (rank + size - 1) % size;
  unsigned char *outgoing = malloc(530000), *incoming = malloc(530000);
  for (int turn = 0; turn < TURNS; turn++) {
    int count = sizes[(turn + thread) & 7];
    for (int i = 0; i < count; i++) outgoing[i] = byte_of(rank + turn + thread, i);
    memset(incoming, 0, (size_t)count);
    MPI_Request requests[2];
    MPI_Irecv(incoming, count, MPI_BYTE, left, thread, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(outgoing, count, MPI_BYTE, right, thread, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < count; i++)
      if (incoming[i] != byte_of(left + turn + thread, i)) {
        fprintf(stderr, "rank %d thread %d turn %d: byte %d of %d is wrong\n", rank, thread, turn, i, count);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, own[thread]);
    if (sum != size) MPI_Abort(MPI_COMM_WORLD, 2);
  }
  free(outgoing);
  free(incoming);
  return NULL;
}

int main(int argc, char **argv) {
  int provided;
  pthread_t threads[THREADS];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE) {
    fprintf(stderr, "MPI_THREAD_MULTIPLE is not granted\n");
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int t = 0; t < THREADS; t++) MPI_Comm_dup(MPI_COMM_WORLD, &own[t]);
  for (long t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, work, (void *)t);
  for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
  for (int t = 0; t < THREADS; t++) MPI_Comm_free(&own[t]);
  if (rank == 0) printf("all ok\n");
  MPI_Finalize();
  return 0;
}
