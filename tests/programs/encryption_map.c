/* A file with a map, in C: `encryption_map FILE`. Of every hundred bytes the first fifty are a trial's, each rank giving
 * the map of its own hundred. Every rank says how that went, and whether it read what was written. */
#include <gambeson_mpi.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 1000 };

int main(int argc, char **argv)
{
    int rank, ranks, class = 0;
    char mine[COUNT], found[COUNT];
    MPI_File file;
    MPI_Datatype part, filetype;
    MPI_Aint extent;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    extent = 100 * ranks;
    MPI_Type_contiguous(50, MPI_BYTE, &part);
    MPI_Type_create_resized(part, 0, extent, &filetype);
    MPI_Type_commit(&filetype);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    int status = MPIX_File_set_encryption_map(file, 100 * rank, MPI_BYTE, filetype, "native", "trial", NULL, 4096,
                                              MPI_INFO_NULL);
    MPI_Error_class(status, &class);
    memset(mine, 'a' + rank, COUNT);
    MPI_File_write_at_all(file, COUNT * rank, mine, COUNT, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    int next = (rank + 1) % ranks;
    memset(mine, 'a' + next, COUNT);
    MPI_File_read_at(file, COUNT * next, found, COUNT, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    const char *how = class == MPI_SUCCESS ? "laid" : class == MPI_ERR_UNSUPPORTED_OPERATION ? "unsupported" : "failed";
    printf("rank %d: map %s, %s\n", rank, how, memcmp(mine, found, COUNT) ? "wrong" : "right");
    MPI_Type_free(&part);
    MPI_Type_free(&filetype);
    MPI_Finalize();
    return 0;
}
