/* Puts a man in the middle: preloaded into a rank, it leads libfabric's connections through a proxy, as if every packet
 * passed a hostile router, and shows the proxy the addresses of peers before the provider gets them, as if the address
 * exchange were in hostile hands. Connections that the launcher's own libraries make are left alone.
 *
 * The proxy listens at 127.0.0.1:$ATTACK_PROXY. Every connection to it begins with a `struct word`.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

/* What a rank tells the proxy. */
struct word {
    char magic[4];
    uint8_t kind; /* 'c': this connection is for that address; 'l': this rank listens there; 'a': addresses follow */
    uint8_t family;
    uint16_t port; /* network order */
    uint8_t address[16];
    int32_t rank;
    int32_t pid;
};

static void *(*real_dlsym)(void *, const char *);
static void *(*real_dlvsym)(void *, const char *, const char *);

/* Both ways to look a symbol up are ours here, so the C library's are found by walking the loaded libraries' tables. */
static void *beyond_us(const char *wanted)
{
    for (struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
        const ElfW(Sym) *symbols = NULL;
        const char *strings = NULL;
        for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_SYMTAB)
                symbols = (const void *)entry->d_un.d_ptr;
            if (entry->d_tag == DT_STRTAB)
                strings = (const void *)entry->d_un.d_ptr;
        }
        if (!strstr(map->l_name, "libc.so") && !strstr(map->l_name, "libdl.so"))
            continue;
        /* Linkers put the strings right behind the symbols. */
        for (const ElfW(Sym) *at = symbols; (const char *)at < strings; at++)
            if (at->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(at->st_info) == STT_FUNC &&
                !strcmp(strings + at->st_name, wanted))
                return (void *)(map->l_addr + at->st_value);
    }
    abort();
}

__attribute__((constructor)) static void begin(void)
{
    real_dlsym = (void *(*)(void *, const char *))beyond_us("dlsym");
    real_dlvsym = (void *(*)(void *, const char *, const char *))beyond_us("dlvsym");
}

static int proxy_port(void)
{
    const char *text = getenv("ATTACK_PROXY");
    return text ? atoi(text) : 0;
}

static int own_rank(void)
{
    static const char *const names[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text)
            return atoi(text);
    }
    return -1;
}

static int from_libfabric(const void *caller)
{
    Dl_info info;
    if (!dladdr(caller, &info) || !info.dli_fname)
        return 0;
    const char *slash = strrchr(info.dli_fname, '/');
    const char *name = slash ? slash + 1 : info.dli_fname;
    return strstr(name, "libfabric") || strstr(name, "-fi.so");
}

static int all(int socket, void *bytes, size_t len, int out)
{
    char *at = bytes;
    while (len) {
        ssize_t some = out ? send(socket, at, len, MSG_NOSIGNAL) : recv(socket, at, len, 0);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return -1;
        at += some;
        len -= (size_t)some;
    }
    return 0;
}

static int fill(struct word *word, char kind, const struct sockaddr *address)
{
    memset(word, 0, sizeof *word);
    memcpy(word->magic, "MITM", 4);
    word->kind = (uint8_t)kind;
    word->rank = own_rank();
    word->pid = getpid();
    if (!address)
        return 0;
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;
        word->family = 4;
        word->port = v4->sin_port;
        memcpy(word->address, &v4->sin_addr, 4);
        return 0;
    }
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)address;
        word->family = 6;
        word->port = v6->sin6_port;
        memcpy(word->address, &v6->sin6_addr, 16);
        return 0;
    }
    return -1;
}

static int real_connect(int socket, const struct sockaddr *address, socklen_t len)
{
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real)
        real = (int (*)(int, const struct sockaddr *, socklen_t))real_dlsym(RTLD_NEXT, "connect");
    return real(socket, address, len);
}

static int to_proxy(int socket, int family)
{
    if (family == AF_INET6) {
        struct sockaddr_in6 proxy = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)proxy_port())};
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &proxy.sin6_addr);
        return real_connect(socket, (struct sockaddr *)&proxy, sizeof proxy);
    }
    struct sockaddr_in proxy = {.sin_family = AF_INET, .sin_port = htons((uint16_t)proxy_port())};
    proxy.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return real_connect(socket, (struct sockaddr *)&proxy, sizeof proxy);
}

int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    struct word word;
    if (!proxy_port() || !from_libfabric(__builtin_return_address(0)) || fill(&word, 'c', address))
        return real_connect(fd, address, len);
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    int status = to_proxy(fd, address->sa_family);
    int why = errno;
    if (!status && all(fd, &word, sizeof word, 1)) {
        status = -1;
        why = ECONNREFUSED;
    }
    fcntl(fd, F_SETFL, flags);
    errno = why;
    return status;
}

/* Opens a connection of our own to the proxy and says `word`. */
static int say(struct word *word)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (to_proxy(fd, AF_INET) || all(fd, word, sizeof *word, 1))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int listen(int fd, int backlog)
{
    static int (*real)(int, int);
    if (!real)
        real = (int (*)(int, int))real_dlsym(RTLD_NEXT, "listen");
    int status = real(fd, backlog);
    if (status || !proxy_port() || !from_libfabric(__builtin_return_address(0)))
        return status;
    struct sockaddr_storage own;
    socklen_t len = sizeof own;
    struct word word;
    if (!getsockname(fd, (struct sockaddr *)&own, &len) && !fill(&word, 'l', (struct sockaddr *)&own)) {
        int told = say(&word);
        if (told >= 0) {
            /* The proxy knows the port before anybody can connect to it. */
            (void)all(told, &word, 1, 0);
            close(told);
        }
    }
    return 0;
}

/* libfabric's entry points are tables of functions. We hand out copies of the tables with one entry of ours each. */
enum { TABLES = 16 };

static struct wrapped {
    void *object;
    void *original;
    size_t address_len;
} domains[TABLES], vectors[TABLES];
static int domain_count, vector_count;
static int (*original_domain)(struct fid_fabric *, struct fi_info *, struct fid_domain **, void *);
static int (*original_domain2)(struct fid_fabric *, struct fi_info *, struct fid_domain **, uint64_t, void *);

static struct wrapped *find(struct wrapped *table, int count, void *object)
{
    for (int i = count - 1; i >= 0; i--)
        if (table[i].object == object)
            return &table[i];
    abort();
}

static void *copy_table(const void *table)
{
    size_t size = *(const size_t *)table;
    void *copy = malloc(size);
    return memcpy(copy, table, size);
}

static int av_insert(struct fid_av *av, const void *addresses, size_t count, fi_addr_t *out, uint64_t flags, void *context)
{
    struct wrapped *vector = find(vectors, vector_count, av);
    struct fi_ops_av *original = vector->original;
    uint32_t shape[2] = {(uint32_t)count, (uint32_t)vector->address_len};
    size_t len = count * vector->address_len;
    struct word word;
    fill(&word, 'a', NULL);
    int fd = len ? say(&word) : -1;
    if (fd < 0)
        return original->insert(av, addresses, count, out, flags, context);
    char *bytes = malloc(len);
    memcpy(bytes, addresses, len);
    int exchanged = !all(fd, shape, sizeof shape, 1) && !all(fd, bytes, len, 1) && !all(fd, bytes, len, 0);
    close(fd);
    int status = original->insert(av, exchanged ? bytes : addresses, count, out, flags, context);
    free(bytes);
    return status;
}

static int av_open(struct fid_domain *domain, struct fi_av_attr *attributes, struct fid_av **av, void *context)
{
    struct wrapped *wrapped = find(domains, domain_count, domain);
    int status = ((struct fi_ops_domain *)wrapped->original)->av_open(domain, attributes, av, context);
    if (status || vector_count == TABLES)
        return status;
    vectors[vector_count++] = (struct wrapped){*av, (*av)->ops, wrapped->address_len};
    struct fi_ops_av *ops = copy_table((*av)->ops);
    ops->insert = av_insert;
    (*av)->ops = ops;
    return 0;
}

static size_t address_len(const struct fi_info *info)
{
    if (info->src_addrlen)
        return info->src_addrlen;
    switch (info->addr_format) {
    case FI_SOCKADDR_IN:
        return sizeof(struct sockaddr_in);
    case FI_SOCKADDR_IN6:
        return sizeof(struct sockaddr_in6);
    default:
        return 64;
    }
}

static int wrap_domain(int status, const struct fi_info *info, struct fid_domain **opened)
{
    if (status || domain_count == TABLES)
        return status;
    struct fid_domain *domain = *opened;
    domains[domain_count++] = (struct wrapped){domain, domain->ops, address_len(info)};
    struct fi_ops_domain *ops = copy_table(domain->ops);
    ops->av_open = av_open;
    domain->ops = ops;
    return 0;
}

static int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context)
{
    return wrap_domain(original_domain(fabric, info, domain, context), info, domain);
}

static int domain2_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, uint64_t flags,
                        void *context)
{
    return wrap_domain(original_domain2(fabric, info, domain, flags, context), info, domain);
}

static int (*real_fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);

int fi_fabric(struct fi_fabric_attr *attributes, struct fid_fabric **fabric, void *context)
{
    if (!real_fabric) {
        void *library = dlopen("libfabric.so.1", RTLD_LAZY | RTLD_NOLOAD);
        real_fabric = (int (*)(struct fi_fabric_attr *, struct fid_fabric **, void *))real_dlsym(library, "fi_fabric");
    }
    int status = real_fabric(attributes, fabric, context);
    if (status || !proxy_port() || original_domain)
        return status;
    struct fi_ops_fabric *ops = copy_table((*fabric)->ops);
    original_domain = ops->domain;
    ops->domain = domain_open;
    if (ops->size > offsetof(struct fi_ops_fabric, domain2)) {
        original_domain2 = ops->domain2;
        ops->domain2 = domain2_open;
    }
    (*fabric)->ops = ops;
    return 0;
}

/* Ours in place of fi_fabric, but for the provider under test, which must get the real one to open its core. */
static void *fabric_for(const void *caller, void *found)
{
    Dl_info info;
    if (!found || !proxy_port() || from_libfabric(caller) ||
        (dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "gambeson")))
        return found;
    real_fabric = (int (*)(struct fi_fabric_attr *, struct fid_fabric **, void *))found;
    return (void *)fi_fabric;
}

/* Intel MPI looks libfabric's symbols up by name. The tail calls keep the caller's address, which the real ones look at. */
void *dlsym(void *handle, const char *name)
{
    if (!real_dlsym)
        begin();
    if (!strcmp(name, "fi_fabric"))
        return fabric_for(__builtin_return_address(0), real_dlsym(handle, name));
    return real_dlsym(handle, name);
}

void *dlvsym(void *handle, const char *name, const char *version)
{
    if (!real_dlvsym)
        begin();
    if (!strcmp(name, "fi_fabric"))
        return fabric_for(__builtin_return_address(0), real_dlvsym(handle, name, version));
    return real_dlvsym(handle, name, version);
}

/* Asked by the provider, which looks at the order of addresses while MPI starts. With ATTACK_ORDER_HIDDEN it does not, as
 * where several hosts leave room for more than one order; then the guard's roll call alone stands against swapped ones. */
int gambeson_mpi_starts(void)
{
    static int (*real)(void);
    if (getenv("ATTACK_ORDER_HIDDEN"))
        return 0;
    if (!real)
        real = (int (*)(void))real_dlsym(RTLD_NEXT, "gambeson_mpi_starts");
    return real ? real() : 0;
}
