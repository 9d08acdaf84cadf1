/* One of some processes of a job, in C: see the example neighbours of crates/gambeson-link.  neighbour FILE COUNT NUMBER */
#include <gambeson/link.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != GAMBESON_LINK_STATUS_OK) {                                                                       \
            fprintf(stderr, "neighbour.c:%d: %s\n", __LINE__, gambeson_link_error());                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { WHO, DONE };

static int number, done;

static void who(gambeson_link_call *call, void *user) {
    const gambeson_link_peer *peer = gambeson_link_call_peer(call);
    char name[64], role[64], line[256];
    (void)user;
    MUST(gambeson_link_peer_name(peer, name, sizeof name, NULL));
    MUST(gambeson_link_peer_role(peer, 0, role, sizeof role, NULL));
    int length = snprintf(line, sizeof line, "%d, asked by %s with the role %s", number, name, role);
    MUST(gambeson_link_call_answer(call, line, (size_t)length));
}

static void finish(gambeson_link_call *call, void *user) {
    (void)user;
    __atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
    MUST(gambeson_link_call_answer(call, NULL, 0));
}

static void rest(void) {
    struct timespec time = {0, 5000000};
    nanosleep(&time, NULL);
}

int main(int count, char **words) {
    gambeson_link_config *config;
    gambeson_link_domain *domain;
    gambeson_link_attributes *attributes;
    gambeson_link_handlers *handlers;
    gambeson_link_endpoint *endpoint;
    gambeson_link_capability *capability;
    gambeson_link_startpoint *startpoint;
    const char *protections[] = {"", "privacy", "integrity", "none"};
    char path[512], part[512], answer[256];
    uint8_t bytes[GAMBESON_LINK_CAPABILITY_BYTES];
    uint32_t protection;
    size_t length;
    if (count != 4) return 2;
    number = atoi(words[3]);
    MUST(gambeson_link_config_from_job(&config));
    MUST(gambeson_link_config_listen(config, "127.0.0.1:0"));
    MUST(gambeson_link_domain_open(config, &domain));
    MUST(gambeson_link_attributes_new(&attributes));
    MUST(gambeson_link_attributes_class(attributes, "neighbours"));
    MUST(gambeson_link_handlers_new(&handlers));
    MUST(gambeson_link_handlers_inline(handlers, WHO, who, NULL));
    MUST(gambeson_link_handlers_inline(handlers, DONE, finish, NULL));
    MUST(gambeson_link_domain_endpoint(domain, attributes, handlers, &endpoint));
    MUST(gambeson_link_endpoint_startpoint(endpoint, NULL, 0, &capability));
    MUST(gambeson_link_capability_encode(capability, bytes, sizeof bytes, &length));
    gambeson_link_capability_free(capability);
    snprintf(part, sizeof part, "%s.part%d", words[1], number);
    snprintf(path, sizeof path, "%s.%d", words[1], number);
    int file = open(part, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (file < 0 || write(file, bytes, length) != (ssize_t)length || close(file) || rename(part, path)) return 3;

    snprintf(path, sizeof path, "%s.%d", words[1], (number + 1) % atoi(words[2]));
    while ((file = open(path, O_RDONLY)) < 0) rest();
    ssize_t came = read(file, bytes, sizeof bytes);
    if (came < 0) return 4;
    MUST(gambeson_link_capability_decode(bytes, (size_t)came, &capability));
    MUST(gambeson_link_domain_startpoint(domain, capability, 30, &startpoint));
    MUST(gambeson_link_startpoint_call(startpoint, WHO, NULL, 0, answer, sizeof answer, &length, 30));
    MUST(gambeson_link_startpoint_protection(startpoint, &protection));
    printf("%d: %.*s (%s)\n", number, (int)length, answer, protections[protection]);
    MUST(gambeson_link_startpoint_call(startpoint, DONE, NULL, 0, NULL, 0, NULL, 30));
    while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST)) rest();
    for (int at = 0; at < 10; at++) rest();
    gambeson_link_startpoint_free(startpoint);
    gambeson_link_capability_free(capability);
    gambeson_link_endpoint_free(endpoint);
    gambeson_link_attributes_free(attributes);
    gambeson_link_domain_free(domain);
    return 0;
}
