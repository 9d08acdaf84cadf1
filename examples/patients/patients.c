/* Patients' records in one parallel HDF5 file, under two labels.
 *
 *     patients write FILE    every rank writes its share of the diagnoses, and of who the patients are
 *     patients read FILE     every rank reads its share of both, and says what it was refused
 *
 * It is an ordinary program of parallel HDF5 but for put_identities_apart(), which has one dataset sealed under a label of
 * its own. Without `gambeson run` that function is not there, and the file is in clear.
 */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "gambeson_mpi.h"

#define PATIENTS 20000
#define IDENTITY 64 /* bytes of a name and a date of birth */

static int rank, size;

/* This rank's patients: [first, first + count). */
static void share(hsize_t *first, hsize_t *count)
{
    *first = (hsize_t)PATIENTS * rank / size;
    *count = (hsize_t)PATIENTS * (rank + 1) / size - *first;
}

/* The records are made up, from a patient's number. */
static int diagnosis(hsize_t patient) { return 100 + (int)(patient * 7919 % 900); }

static void identity(hsize_t patient, char into[IDENTITY])
{
    static const char *const given[] = {"Ada", "Emmy", "Grace", "Lise", "Sofja", "Hedy"};
    static const char *const family[] = {"Byron", "Noether", "Hopper", "Meitner", "Kowalewskaja", "Lamarr"};
    memset(into, 0, IDENTITY);
    snprintf(into, IDENTITY, "%s %s, born %d-%02d-%02d", given[patient % 6], family[patient / 6 % 6],
             1920 + (int)(patient * 31 % 90), 1 + (int)(patient % 12), 1 + (int)(patient % 28));
}

/* A dataset that has its place in the file before anything is written, and that HDF5 doesn't fill. */
static hid_t dataset(hid_t file, const char *name, hid_t type)
{
    const hsize_t patients = PATIENTS;
    hid_t space = H5Screate_simple(1, &patients, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    hid_t made = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    H5Pclose(list);
    H5Sclose(space);
    return made;
}

/* Has the bytes of a dataset sealed under the label "identity", whatever the rest of the file is sealed under. */
static int put_identities_apart(hid_t file, hid_t names)
{
    MPI_File *below;
    MPI_Datatype part, whole;
    if (H5Fget_vfd_handle(file, H5P_DEFAULT, (void **)&below) < 0) return -1;
    /* Each rank says what it is about to write. A map repeats like a view: this one's extent is beyond every file's end. */
    hsize_t first, count;
    share(&first, &count);
    MPI_Offset begin = (MPI_Offset)(H5Dget_offset(names) + first * IDENTITY);
    MPI_Type_contiguous((int)count * IDENTITY, MPI_BYTE, &part);
    MPI_Type_create_resized(part, 0, (MPI_Aint)1 << 40, &whole);
    MPI_Type_commit(&whole);
    int status = MPIX_File_set_encryption_map(*below, begin, MPI_BYTE, whole, "native", "identity", NULL, 0,
                                              MPI_INFO_NULL);
    MPI_Type_free(&whole);
    MPI_Type_free(&part);
    if (status == MPI_ERR_UNSUPPORTED_OPERATION) return 0; /* not under gambeson run */
    if (status != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(status, text, &length);
        printf("rank %d: %s\n", rank, text);
    }
    return status == MPI_SUCCESS ? 0 : -1;
}

/* What MPI said, out of HDF5's stack of errors. */
static herr_t sentence(unsigned depth, const H5E_error2_t *error, void *into)
{
    const char *found = strstr(error->desc, "MPI error string is '");
    (void)depth;
    if (found) snprintf(into, MPI_MAX_ERROR_STRING, "%s", found + strlen("MPI error string is '"));
    return 0;
}

/* Reads or writes this rank's share of a dataset, all ranks together. */
static herr_t transfer(hid_t data, hid_t type, void *buffer, int writes)
{
    hsize_t first, count;
    share(&first, &count);
    hid_t memory = H5Screate_simple(1, &count, NULL), space = H5Dget_space(data), list = H5Pcreate(H5P_DATASET_XFER);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, NULL, &count, NULL);
    H5Pset_dxpl_mpio(list, H5FD_MPIO_COLLECTIVE);
    herr_t done = writes ? H5Dwrite(data, type, memory, space, list, buffer)
                         : H5Dread(data, type, memory, space, list, buffer);
    if (done < 0) {
        char said[MPI_MAX_ERROR_STRING] = "HDF5 does not say why";
        H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, sentence, said);
        said[strcspn(said, "'\n")] = 0;
        printf("rank %d: refused: %s\n", rank, said);
    }
    H5Pclose(list);
    H5Sclose(space);
    H5Sclose(memory);
    return done;
}

int main(int count, char **words)
{
    static int codes[PATIENTS];
    static char names[PATIENTS][IDENTITY];
    hsize_t first, own;
    int status = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (count != 3 || (strcmp(words[1], "write") && strcmp(words[1], "read"))) {
        if (rank == 0) fprintf(stderr, "usage: patients write|read FILE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int writes = !strcmp(words[1], "write");
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    share(&first, &own);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, IDENTITY);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    hid_t file = writes ? H5Fcreate(words[2], H5F_ACC_TRUNC, H5P_DEFAULT, access)
                        : H5Fopen(words[2], H5F_ACC_RDONLY, access);
    if (file < 0) {
        char said[MPI_MAX_ERROR_STRING] = "HDF5 does not say why";
        H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, sentence, said);
        printf("rank %d: %s can't be opened: %s\n", rank, words[2], said);
        MPI_Finalize();
        return 1;
    }
    hid_t diagnoses = writes ? dataset(file, "diagnoses", H5T_STD_I32LE) : H5Dopen2(file, "diagnoses", H5P_DEFAULT);
    hid_t identities = writes ? dataset(file, "identities", text) : H5Dopen2(file, "identities", H5P_DEFAULT);
    if (writes) {
        status |= put_identities_apart(file, identities) < 0;
        for (hsize_t i = 0; i < own; i++) {
            codes[i] = diagnosis(first + i);
            identity(first + i, names[i]);
        }
    }
    if (!status) {
        int has_codes = transfer(diagnoses, H5T_NATIVE_INT, codes, writes) >= 0;
        int has_names = transfer(identities, text, names, writes) >= 0;
        for (hsize_t i = 0; i < own && !writes; i++) {
            char expected[IDENTITY];
            identity(first + i, expected);
            if (has_codes && codes[i] != diagnosis(first + i)) status = 1;
            if (has_names && memcmp(names[i], expected, IDENTITY)) status = 1;
        }
        printf("rank %d: %s %s%s%s of patients %d to %d%s\n", rank, writes ? "wrote" : "read",
               has_codes ? "diagnoses" : "nothing", has_codes && has_names ? " and " : "", has_names ? "identities" : "",
               (int)first, (int)(first + own - 1), status ? ", and they are NOT what was written" : "");
    }
    H5Dclose(diagnoses);
    H5Dclose(identities);
    H5Tclose(text);
    H5Pclose(access);
    if (H5Fclose(file) < 0) status = 1;
    MPI_Finalize();
    return status;
}
