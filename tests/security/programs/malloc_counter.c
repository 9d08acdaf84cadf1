/* Preloaded: counts the calls of malloc and its like that come out of the provider's own code, and writes the number to
 * a file of this process in the folder MALLOC_COUNTER when it ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static atomic_ulong calls;
static _Atomic uintptr_t first, last;

static int find(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size, (void)unused;
    if (!strstr(object->dlpi_name, "gambeson-fi.so") && !strstr(object->dlpi_name, "gambeson_fi.so")) return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        last = object->dlpi_addr + part->p_vaddr + part->p_memsz;
        first = object->dlpi_addr + part->p_vaddr;
    }
    return 1;
}

static void note(uintptr_t caller) {
    static _Thread_local int inside;
    if (!first && !inside) {
        static atomic_uint turns;
        if (turns++ % 256 == 0) {
            inside = 1;
            dl_iterate_phdr(find, NULL);
            inside = 0;
        }
    }
    if (caller >= first && caller < last) calls++;
}

#define CALLER ((uintptr_t)__builtin_return_address(0))

void *malloc(size_t size) {
    note(CALLER);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    note(CALLER);
    return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    note(CALLER);
    return __libc_realloc(block, size);
}

int posix_memalign(void **block, size_t alignment, size_t size) {
    note(CALLER);
    *block = __libc_memalign(alignment, size);
    return *block || !size ? 0 : 12;
}

void *aligned_alloc(size_t alignment, size_t size) {
    note(CALLER);
    return __libc_memalign(alignment, size);
}

__attribute__((destructor)) static void tell(void) {
    const char *folder = getenv("MALLOC_COUNTER");
    if (!folder || !first) return;
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
    FILE *file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "%lu", (unsigned long)calls);
    fclose(file);
}
