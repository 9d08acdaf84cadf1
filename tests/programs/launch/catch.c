/* Stands in for libmunge in front of a program: writes the credential that it would send to CAUGHT, and gives it none. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int munge_encode(char **credential, void *context, const void *payload, int length)
{
    void *munge = dlopen("libmunge.so.2.0.0", RTLD_NOW | RTLD_LOCAL);
    int (*encode)(char **, void *, const void *, int) = (int (*)(char **, void *, const void *, int))dlsym(munge, "munge_encode");
    int number = encode(credential, context, payload, length);
    int file = number ? -1 : open(getenv("CAUGHT"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || write(file, *credential, strlen(*credential)) < 0)
        fprintf(stderr, "nothing caught\n");
    *credential = NULL;
    return 1;
}

int munge_decode(void) { return 1; }

const char *munge_strerror(int number) { (void)number; return "caught"; }
