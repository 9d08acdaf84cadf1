/* Starts MPI by the function its first argument names and says so. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  int provided, rank, error;
  if (argc > 1 && strcmp(argv[1], "thread") == 0)
    error = MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  else if (argc > 1 && strcmp(argv[1], "profiler") == 0)
    error = PMPI_Init(&argc, &argv);
  else
    error = MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  printf("rank %d started, error %d\n", rank, error);
  fflush(stdout);
  return MPI_Finalize();
}
