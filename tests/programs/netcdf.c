/* `netcdf FILE`: all ranks write a variable through PnetCDF, open the file again and read another rank's part. */
#include <pnetcdf.h>
#include <stdio.h>

#define ROW 1000

static void check(int status, const char *what)
{
    if (status == NC_NOERR) return;
    fprintf(stderr, "%s: %s\n", what, ncmpi_strerror(status));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    int rank, size, file, dimensions[2], variable, row[ROW], wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Offset start[2] = {rank, 0}, count[2] = {1, ROW};
    for (int i = 0; i < ROW; i++) row[i] = 1000 * rank + i;
    check(ncmpi_create(MPI_COMM_WORLD, argv[1], NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file), "create");
    check(ncmpi_def_dim(file, "rank", size, &dimensions[0]), "def_dim");
    check(ncmpi_def_dim(file, "element", ROW, &dimensions[1]), "def_dim");
    check(ncmpi_def_var(file, "row", NC_INT, 2, dimensions, &variable), "def_var");
    check(ncmpi_enddef(file), "enddef");
    check(ncmpi_put_vara_int_all(file, variable, start, count, row), "put_vara");
    check(ncmpi_close(file), "close");
    check(ncmpi_open(MPI_COMM_WORLD, argv[1], NC_NOWRITE, MPI_INFO_NULL, &file), "open");
    check(ncmpi_inq_varid(file, "row", &variable), "inq_varid");
    start[0] = (rank + 1) % size;
    check(ncmpi_get_vara_int_all(file, variable, start, count, row), "get_vara");
    for (int i = 0; i < ROW; i++) wrong |= row[i] != 1000 * (int)start[0] + i;
    check(ncmpi_close(file), "close");
    if (!wrong) printf("rank %d found what was written\n", rank);
    MPI_Finalize();
    return wrong;
}
