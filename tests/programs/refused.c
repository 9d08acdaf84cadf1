/* Opens a file that is refused, with the error handler that files have and with one of the program's own. */
#include <mpi.h>
#include <stdio.h>

static void say(const char *who, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int class, length;
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    printf("%s: %s: %s\n", who, class == MPI_ERR_ACCESS ? "MPI_ERR_ACCESS" : "another class", text);
    fflush(stdout);
}

static void handler(MPI_File *file, int *code, ...)
{
    (void)file;
    say("handler", *code);
}

int main(int argc, char **argv)
{
    MPI_File file;
    MPI_Errhandler own;
    MPI_Init(&argc, &argv);
    say("returned", MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    MPI_File_create_errhandler(handler, &own);
    MPI_File_set_errhandler(MPI_FILE_NULL, own);
    say("returned again", MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    MPI_Errhandler_free(&own);
    MPI_Finalize();
    return 0;
}
