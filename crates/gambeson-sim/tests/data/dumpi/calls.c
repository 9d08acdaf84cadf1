#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rank, size, i, flag, index, out, indices[4];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);
  double a[64] = {0}, b[256] = {0}; MPI_Request r[4]; MPI_Status st[4]; MPI_Comm dup, half;
  int next = (rank + 1) % size, prev = (rank + size - 1) % size;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Comm_dup(MPI_COMM_WORLD, &dup);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  if (rank == 0) MPI_Send(a, 3, MPI_DOUBLE, 1, 7, dup);
  if (rank == 1) { MPI_Probe(0, 7, dup, st); MPI_Get_count(st, MPI_DOUBLE, &i); MPI_Recv(b, 64, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, dup, st); }
  MPI_Sendrecv(a, 5, MPI_INT, next, 1, b, 5, MPI_INT, prev, 1, MPI_COMM_WORLD, st);
  MPI_Sendrecv_replace(a, 6, MPI_CHAR, next, 2, prev, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Irecv(b, 8, MPI_FLOAT, prev, 3, dup, &r[0]); MPI_Isend(a, 8, MPI_FLOAT, next, 3, dup, &r[1]);
  MPI_Waitall(2, r, st);
  MPI_Irecv(b, 9, MPI_FLOAT, prev, 4, dup, &r[0]); MPI_Isend(a, 9, MPI_FLOAT, next, 4, dup, &r[1]);
  MPI_Waitany(2, r, &index, st); MPI_Waitany(2, r, &index, MPI_STATUS_IGNORE);
  MPI_Irecv(b, 10, MPI_FLOAT, prev, 5, dup, &r[0]); MPI_Isend(a, 10, MPI_FLOAT, next, 5, dup, &r[1]);
  for (i = 0; i < 2; i += out) MPI_Waitsome(2, r, &out, indices, st);
  MPI_Irecv(b, 11, MPI_SHORT, prev, 6, half == MPI_COMM_NULL ? dup : MPI_COMM_WORLD, &r[0]);
  MPI_Issend(a, 11, MPI_SHORT, next, 6, MPI_COMM_WORLD, &r[1]);
  MPI_Barrier(dup); usleep(20000); for (flag = 0; !flag;) MPI_Test(&r[0], &flag, st);
  MPI_Wait(&r[1], MPI_STATUS_IGNORE);
  MPI_Recv_init(b, 12, MPI_INT, prev, 8, MPI_COMM_WORLD, &r[0]); MPI_Send_init(a, 12, MPI_INT, next, 8, MPI_COMM_WORLD, &r[1]);
  for (i = 0; i < 2; i++) { MPI_Startall(2, r); MPI_Waitall(2, r, MPI_STATUSES_IGNORE); }
  MPI_Start(&r[0]); MPI_Start(&r[1]); MPI_Barrier(dup); usleep(20000); for (flag = 0; !flag;) MPI_Testall(2, r, &flag, st);
  MPI_Request_free(&r[0]); MPI_Request_free(&r[1]);
  MPI_Datatype three; MPI_Type_contiguous(3, MPI_DOUBLE, &three); MPI_Type_commit(&three);
  int hr, hs; MPI_Comm_rank(half, &hr); MPI_Comm_size(half, &hs);
  if (hs > 1) { if (hr == 0) MPI_Send(a, 2, three, 1, 9, half); if (hr == 1) MPI_Recv(b, 2, three, 0, 9, half, st); }
  MPI_Bcast(a, 13, MPI_DOUBLE, hs - 1, half); MPI_Reduce(a, b, 14, MPI_DOUBLE, MPI_SUM, 2 % size, MPI_COMM_WORLD);
  MPI_Allreduce(a, b, 15, MPI_DOUBLE, MPI_MAX, half); MPI_Scan(a, b, 16, MPI_INT, MPI_SUM, dup);
  MPI_Gather(a, 2, MPI_INT, b, 2, MPI_INT, 1, MPI_COMM_WORLD); MPI_Scatter(b, 3, MPI_INT, a, 3, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Allgather(a, 4, MPI_INT, b, 4, MPI_INT, MPI_COMM_WORLD); MPI_Alltoall(a, 5, MPI_CHAR, b, 5, MPI_CHAR, MPI_COMM_WORLD);
  int sc[8], sd[8], rc[8], rd[8]; for (i = 0; i < size; i++) { sc[i] = rank + i; rc[i] = i + rank; sd[i] = 8 * i; rd[i] = 8 * i; }
  MPI_Alltoallv(a, sc, sd, MPI_INT, b, rc, rd, MPI_INT, MPI_COMM_WORLD);
  double t = MPI_Wtime(); (void)t;
  MPI_Type_free(&three); MPI_Comm_free(&half); MPI_Comm_free(&dup);
  MPI_Finalize(); return 0;
}
