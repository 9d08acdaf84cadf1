/* Preloaded: the system's clock, off by as many seconds as the file in $CLOCK says, which can change at any time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile long *shift;

__attribute__((constructor)) static void begin(void) {
    void *mapped = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, open(getenv("CLOCK"), O_RDONLY), 0);
    if (mapped == MAP_FAILED) _exit(99);
    shift = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += *shift;
    return failed;
}
