// Messages a second between two ranks with 1, 2 and 4 threads each, every pair of threads on a communicator of its own.
// For docs/performance.md: does a lock of the layer below bound what several threads reach together?
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, WINDOW = 64, TAG = 1 };

struct pair {
    MPI_Comm comm;
    int size, bursts;
};

static int rank;

static void *exchange(void *argument) {
    const struct pair *pair = argument;
    MPI_Request requests[WINDOW];
    char *room = calloc(WINDOW, (size_t)pair->size);
    char answer = 0;
    for (int burst = 0; burst < pair->bursts; burst++) {
        for (int i = 0; i < WINDOW; i++) {
            char *at = room + (size_t)i * (size_t)pair->size;
            if (rank == 0) MPI_Isend(at, pair->size, MPI_BYTE, 1, TAG, pair->comm, &requests[i]);
            else MPI_Irecv(at, pair->size, MPI_BYTE, 0, TAG, pair->comm, &requests[i]);
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (rank == 0) MPI_Recv(&answer, 1, MPI_BYTE, 1, TAG, pair->comm, MPI_STATUS_IGNORE);
        else MPI_Send(&answer, 1, MPI_BYTE, 0, TAG, pair->comm);
    }
    free(room);
    return NULL;
}

/// Messages a second of all threads together.
static double rate(MPI_Comm *comms, int threads, int size, int bursts) {
    struct pair pairs[THREADS];
    pthread_t handles[THREADS];
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int i = 0; i < threads; i++) {
        pairs[i] = (struct pair){comms[i], size, bursts};
        if (pthread_create(&handles[i], NULL, exchange, &pairs[i])) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < threads; i++) pthread_join(handles[i], NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    return (double)threads * bursts * WINDOW / (MPI_Wtime() - began);
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (provided < MPI_THREAD_MULTIPLE) {
        fprintf(stderr, "this MPI gives no MPI_THREAD_MULTIPLE\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Comm comms[THREADS];
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    const int sizes[] = {8, 16384, 65536}, bursts[] = {600, 200, 60};
    for (int s = 0; s < 3; s++)
        for (int threads = 1; threads <= THREADS; threads *= 2) {
            rate(comms, threads, sizes[s], bursts[s] / 10);
            double value = rate(comms, threads, sizes[s], bursts[s]);
            if (rank == 0) printf("%d bytes, %d threads: %.0f messages/s\n", sizes[s], threads, value);
        }
    for (int i = 0; i < THREADS; i++) MPI_Comm_free(&comms[i]);
    MPI_Finalize();
    return 0;
}
