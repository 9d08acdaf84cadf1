/* Sends and receives in one fixed pattern for as long as it is told, so that whatever a message costs shows between a
 * short run and a long one.
 *
 *     steady PATTERN SIZE ROUNDS THREADS [protected]
 *
 * posted:     both ranks have the receive posted before its message is sent.
 * unexpected: sixteen messages arrive each round before anybody asks for them.
 * Each thread has a communicator of its own, with a protection of its own if so told; one thread asks for
 * MPI_THREAD_SINGLE, more for MPI_THREAD_MULTIPLE. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 16, THREADS_MAX = 8 };

static int size, rounds, peer, unexpected;

static char *buffer(void) {
    char *bytes = calloc(1, size ? size : 1);
    if (!bytes) abort();
    return bytes;
}

static void posted(MPI_Comm comm) {
    char *in[2] = {buffer(), buffer()}, *out = buffer();
    MPI_Request receive[2], send;
    MPI_Irecv(in[0], size, MPI_BYTE, peer, 0, comm, &receive[0]);
    MPI_Barrier(comm);
    for (int i = 0; i < rounds; i++) {
        /* The peer sends its message i + 1 when it has our message i, so this receive is in time. */
        MPI_Irecv(in[(i + 1) % 2], size, MPI_BYTE, peer, 0, comm, &receive[(i + 1) % 2]);
        MPI_Isend(out, size, MPI_BYTE, peer, 0, comm, &send);
        MPI_Wait(&receive[i % 2], MPI_STATUS_IGNORE);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
    }
    MPI_Send(out, size, MPI_BYTE, peer, 0, comm);
    MPI_Wait(&receive[rounds % 2], MPI_STATUS_IGNORE);
}

static void unasked(MPI_Comm comm) {
    char *in = buffer(), *out = buffer(), token = 0, other;
    MPI_Request send[WINDOW], go;
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < WINDOW; k++) MPI_Isend(out, size, MPI_BYTE, peer, k, comm, &send[k]);
        MPI_Isend(&token, 1, MPI_BYTE, peer, WINDOW, comm, &go);
        MPI_Recv(&other, 1, MPI_BYTE, peer, WINDOW, comm, MPI_STATUS_IGNORE);
        for (int k = 0; k < WINDOW; k++) MPI_Recv(in, size, MPI_BYTE, peer, k, comm, MPI_STATUS_IGNORE);
        MPI_Waitall(WINDOW, send, MPI_STATUSES_IGNORE);
        MPI_Wait(&go, MPI_STATUS_IGNORE);
    }
}

static void *work(void *comm) {
    (unexpected ? unasked : posted)(*(MPI_Comm *)comm);
    return NULL;
}

static void duplicate(int number, int is_protected, MPI_Comm *new) {
    static const char *protections[] = {"none", "integrity", "privacy"};
    MPI_Info info;
    MPI_Info_create(&info);
    if (is_protected) MPI_Info_set(info, "gambeson_protection", protections[number % 3]);
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, new);
    MPI_Info_free(&info);
}

int main(int argc, char **argv) {
    int granted, rank, ranks, count;
    int is_protected = argc == 6 && !strcmp(argv[5], "protected");
    if (argc != 5 + is_protected) return 2;
    unexpected = !strcmp(argv[1], "unexpected");
    size = atoi(argv[2]), rounds = atoi(argv[3]), count = atoi(argv[4]);
    if (count < 1 || count > THREADS_MAX) return 2;
    int wanted = count > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, wanted, &granted);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (granted < wanted || ranks != 2) MPI_Abort(MPI_COMM_WORLD, 1);
    peer = 1 - rank;
    MPI_Comm comms[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    for (int i = 0; i < count; i++) duplicate(i, is_protected, &comms[i]);
    for (int i = 1; i < count; i++) pthread_create(&threads[i], NULL, work, &comms[i]);
    work(&comms[0]);
    for (int i = 1; i < count; i++) pthread_join(threads[i], NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("all ok\n");
    MPI_Finalize();
    return 0;
}
