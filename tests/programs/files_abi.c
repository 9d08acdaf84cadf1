/* Files through the standard ABI (MPI-5 chapter 20): `files_abi FILE` writes records of all ranks, interleaved by a view,
 * with a hole behind them, and reads them back by other routines. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS 3000
#define LENGTH 10

static int rank, size;

static void check(int holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    static int own[RECORDS * LENGTH], got[RECORDS * LENGTH];
    MPI_File file;
    MPI_Datatype vector, record;
    MPI_Status status;
    MPI_Request request;
    MPI_Offset end, at;
    int count, class, flag;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < RECORDS * LENGTH; i++) own[i] = i * 3 + 1000000 * rank;

    check(!MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
    MPI_Type_contiguous(LENGTH, MPI_INT, &record);
    MPI_Type_create_resized(record, 0, (MPI_Aint)sizeof(int) * LENGTH * size, &vector);
    MPI_Type_commit(&vector);
    check(!MPI_File_set_view(file, (MPI_Offset)sizeof(int) * LENGTH * rank, MPI_INT, vector, "native", MPI_INFO_NULL),
          "set_view");
    check(!MPI_File_write_all(file, own, RECORDS * LENGTH, MPI_INT, &status), "write_all");
    MPI_Get_count(&status, MPI_INT, &count);
    check(count == RECORDS * LENGTH, "the count of what was written");
    check(!MPI_File_iread_at(file, 0, got, RECORDS * LENGTH, MPI_INT, &request), "iread_at");
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    check(count == RECORDS * LENGTH && !memcmp(own, got, sizeof own), "own records");
    check(!MPI_File_seek(file, -LENGTH, MPI_SEEK_END), "seek");
    check(!MPI_File_get_position(file, &at) && at == (RECORDS - 1) * LENGTH, "the position");
    check(!MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    check(!MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), "set_view");
    check(!MPI_File_get_size(file, &end) && end == (MPI_Offset)sizeof(int) * RECORDS * LENGTH * size, "the size");
    check(!MPI_File_read_at_all(file, (MPI_Offset)LENGTH * ((rank + 1) % size), got, LENGTH, MPI_INT, &status), "read");
    check(got[1] == 3 + 1000000 * ((rank + 1) % size), "another rank's record");
    check(!MPI_File_get_amode(file, &flag) && flag == (MPI_MODE_CREATE | MPI_MODE_RDWR), "the mode");
    MPI_Error_class(MPI_File_read_at(file, -5, got, 1, MPI_INT, &status), &class);
    check(class == MPI_ERR_ARG, "the class of an error");
    check(!MPI_File_close(&file) && file == MPI_FILE_NULL, "close");
    MPI_Type_free(&vector);
    MPI_Type_free(&record);
    printf("rank %d found what was written\n", rank);
    MPI_Finalize();
    return 0;
}
