/* A C program as users write them: heat in a square, rows shared out over the ranks, derived types for the halo columns,
   persistent halo exchange, a reduction per step. Prints a checksum that does not depend on the number of ranks. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 240, STEPS = 200 };

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int size, dims[2] = {0, 0}, periods[2] = {0, 0}, place[2], rank;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Dims_create(size, 2, dims);
  MPI_Comm grid;
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
  MPI_Comm_rank(grid, &rank);
  MPI_Cart_coords(grid, rank, 2, place);
  int first_row = SIDE * place[0] / dims[0], rows = SIDE * (place[0] + 1) / dims[0] - first_row;
  int first_column = SIDE * place[1] / dims[1], columns = SIDE * (place[1] + 1) / dims[1] - first_column;
  int pitch = columns + 2;
  double *field[2];
  for (int f = 0; f < 2; f++) field[f] = calloc((size_t)(rows + 2) * (size_t)pitch, sizeof(double));
  for (int r = 1; r <= rows; r++)
    for (int c = 1; c <= columns; c++) {
      int y = first_row + r - 1, x = first_column + c - 1;
      field[0][r * pitch + c] = ((x - 60) * (x - 60) + (y - 90) * (y - 90) < 900) ? 100.0 : 0.01 * ((x * 7 + y * 13) % 17);
    }
  MPI_Datatype column;
  MPI_Type_vector(rows, 1, pitch, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  int up, down, left, right;
  MPI_Cart_shift(grid, 0, 1, &up, &down);
  MPI_Cart_shift(grid, 1, 1, &left, &right);
  MPI_Request halo[2][8];
  for (int f = 0; f < 2; f++) {
    double *u = field[f];
    MPI_Send_init(&u[pitch + 1], columns, MPI_DOUBLE, up, 1, grid, &halo[f][0]);
    MPI_Send_init(&u[rows * pitch + 1], columns, MPI_DOUBLE, down, 2, grid, &halo[f][1]);
    MPI_Send_init(&u[pitch + 1], 1, column, left, 3, grid, &halo[f][2]);
    MPI_Send_init(&u[pitch + columns], 1, column, right, 4, grid, &halo[f][3]);
    MPI_Recv_init(&u[(rows + 1) * pitch + 1], columns, MPI_DOUBLE, down, 1, grid, &halo[f][4]);
    MPI_Recv_init(&u[1], columns, MPI_DOUBLE, up, 2, grid, &halo[f][5]);
    MPI_Recv_init(&u[pitch + columns + 1], 1, column, right, 3, grid, &halo[f][6]);
    MPI_Recv_init(&u[pitch], 1, column, left, 4, grid, &halo[f][7]);
  }
  double change = 0, largest = 0;
  for (int step = 0; step < STEPS; step++) {
    double *u = field[step % 2], *next = field[1 - step % 2];
    MPI_Startall(8, halo[step % 2]);
    MPI_Waitall(8, halo[step % 2], MPI_STATUSES_IGNORE);
    change = 0;
    for (int r = 1; r <= rows; r++)
      for (int c = 1; c <= columns; c++) {
        int i = r * pitch + c;
        next[i] = u[i] + 0.2 * (u[i - 1] + u[i + 1] + u[i - pitch] + u[i + pitch] - 4 * u[i]);
        change = fmax(change, fabs(next[i] - u[i]));
      }
    MPI_Allreduce(&change, &largest, 1, MPI_DOUBLE, MPI_MAX, grid);
  }
  /* Whole thousandths add up the same in any order. */
  long long mine = 0, total = 0;
  for (int r = 1; r <= rows; r++)
    for (int c = 1; c <= columns; c++) mine += llround(field[STEPS % 2][r * pitch + c] * 1e6);
  MPI_Reduce(&mine, &total, 1, MPI_LONG_LONG, MPI_SUM, 0, grid);
  if (rank == 0) printf("checksum %lld, last change %.9f\n", total, largest);
  for (int f = 0; f < 2; f++)
    for (int h = 0; h < 8; h++) MPI_Request_free(&halo[f][h]);
  MPI_Type_free(&column);
  MPI_Comm_free(&grid);
  MPI_Finalize();
  return 0;
}
