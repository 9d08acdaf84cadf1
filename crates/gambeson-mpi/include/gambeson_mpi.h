/* Sealed files: which bytes are sealed under which label.
 *
 * The function proper is in libgambeson-mpi.so, which `gambeson run` loads into every rank, and is looked up at run
 * time: nothing has to be linked (before glibc 2.34: -ldl). A program that runs without Gambeson gets an error.
 */
#ifndef GAMBESON_MPI_H
#define GAMBESON_MPI_H

#include <dlfcn.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Has the bytes of a file that a filetype covers, repeated from a displacement on as in a view (MPI-4.1 section 14.3),
 * sealed under a label. It is independent of the view, and bytes in no map are sealed as the policy's rule says; if
 * none seals the file, its first map makes it a sealed one, and they stay in clear.
 *
 * Collective over the file's ranks: each gives its own part, and those of one label are one map. The file has no data
 * yet. A map that is there already changes nothing.
 *
 * fh          a file that is open for writing
 * disp        bytes from the file's start to the first filetype
 * etype       as for MPI_File_set_view
 * filetype    as for MPI_File_set_view; its runs must not overlap. Without bytes: this rank adds none
 * datarep     "native", or NULL for the same
 * key_label   a label under which at least one rank may write
 * suite       "xaes-256-gcm", "aes-256-gcm-siv", "aes-256-xts", or NULL for the first
 * block_size  bytes of the file's blocks, a power of two from 4096 to 1048576, or 0 to leave them as they are
 * info        MPI_INFO_NULL
 *
 * Errors come by the file's error handler, on all ranks alike: MPI_ERR_ACCESS without a key, MPI_ERR_ARG for a file
 * with data, for maps that overlap and for parts that make none, MPI_ERR_READ_ONLY, and MPI_ERR_UNSUPPORTED_OPERATION
 * in a job that `gambeson run` did not start.
 */
static inline int MPIX_File_set_encryption_map(MPI_File fh, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
                                               const char *datarep, const char *key_label, const char *suite,
                                               int block_size, MPI_Info info)
{
    typedef int (*function)(MPI_File, MPI_Offset, MPI_Datatype, MPI_Datatype, const char *, const char *, const char *,
                            int, MPI_Info);
    /* A null handle stands for all loaded objects (RTLD_DEFAULT). */
    function loaded = (function)dlsym((void *)0, "MPIX_File_set_encryption_map");
    if (loaded)
        return loaded(fh, disp, etype, filetype, datarep, key_label, suite, block_size, info);
    MPI_File_call_errhandler(fh, MPI_ERR_UNSUPPORTED_OPERATION);
    return MPI_ERR_UNSUPPORTED_OPERATION;
}

#ifdef __cplusplus
}
#endif

#endif
