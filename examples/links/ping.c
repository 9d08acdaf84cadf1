/* Two processes and a sealed link between them.
 *
 *     cc ping.c -o ping $(pkg-config --cflags --libs gambeson-link)
 *     ./ping
 *
 * One process has an endpoint that answers; the other asks it and takes the time. Everything between them is sealed
 * (AES-256-GCM under keys of this link alone): that is how links are unless one says otherwise. */
#include <gambeson/link.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KEY = 32, ECHO = 0, PINGS = 10000 };

static void must(gambeson_link_status status) {
    if (status != GAMBESON_LINK_STATUS_OK) {
        fprintf(stderr, "ping: %s\n", gambeson_link_error());
        exit(1);
    }
}

static void give(int to, const void *bytes, size_t length) {
    if (write(to, bytes, length) != (ssize_t)length) exit(1);
}

static size_t take(int from, void *bytes, size_t room) {
    ssize_t length = read(from, bytes, room);
    if (length <= 0) exit(1);
    return (size_t)length;
}

/* A domain with a fresh key, which talks to the owner of one other key and to nobody else. The two learn each other's
 * keys over `pair`; in a real program a file, a launcher or a person carries them. */
static gambeson_link_domain *open_domain(int pair, const char *peer, const char *listen) {
    gambeson_link_identity *identity;
    gambeson_link_trust *trust;
    gambeson_link_config *config;
    gambeson_link_domain *domain;
    uint8_t own[KEY], other[KEY];
    must(gambeson_link_identity_generate(&identity));
    must(gambeson_link_identity_key_hash(identity, own));
    give(pair, own, KEY);
    take(pair, other, KEY);
    must(gambeson_link_trust_new(&trust));
    must(gambeson_link_trust_pinned(trust, other, peer, NULL, 0));
    must(gambeson_link_config_new(identity, trust, &config));
    if (listen) must(gambeson_link_config_listen(config, listen));
    must(gambeson_link_domain_open(config, &domain));
    return domain;
}

/* Runs where a request arrives, and answers with what came. */
static void echo(gambeson_link_call *call, void *user) {
    const void *payload;
    size_t length;
    (void)user;
    if (gambeson_link_call_payload(call, &payload, &length) == GAMBESON_LINK_STATUS_OK)
        gambeson_link_call_answer(call, payload, length);
}

static void serve(int pair) {
    gambeson_link_domain *domain = open_domain(pair, "asker", "127.0.0.1:0");
    gambeson_link_handlers *handlers;
    gambeson_link_endpoint *endpoint;
    gambeson_link_capability *capability;
    uint8_t bytes[GAMBESON_LINK_CAPABILITY_BYTES];
    size_t length;
    char over;
    must(gambeson_link_handlers_new(&handlers));
    must(gambeson_link_handlers_inline(handlers, ECHO, echo, NULL));
    must(gambeson_link_domain_endpoint(domain, NULL, handlers, &endpoint));
    /* A startpoint is what lets others ask this endpoint: here, so many times and no more. It is a secret. */
    must(gambeson_link_endpoint_startpoint(endpoint, NULL, 0, &capability));
    must(gambeson_link_capability_narrow_uses(capability, PINGS + 1));
    must(gambeson_link_capability_encode(capability, bytes, sizeof bytes, &length));
    give(pair, bytes, length);
    take(pair, &over, 1); /* the domain's own thread answers meanwhile */
    gambeson_link_capability_free(capability);
    gambeson_link_endpoint_free(endpoint);
    gambeson_link_domain_free(domain);
}

static void ask(int pair) {
    gambeson_link_domain *domain = open_domain(pair, "answerer", NULL);
    gambeson_link_capability *capability;
    gambeson_link_startpoint *startpoint;
    uint8_t bytes[GAMBESON_LINK_CAPABILITY_BYTES];
    char answer[64];
    size_t length = take(pair, bytes, sizeof bytes);
    must(gambeson_link_capability_decode(bytes, length, &capability));
    must(gambeson_link_domain_startpoint(domain, capability, 5.0, &startpoint));
    must(gambeson_link_startpoint_call(startpoint, ECHO, "hello", 5, answer, sizeof answer, &length, 5.0));
    printf("asked over a sealed link, and got: %.*s\n", (int)length, answer);
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int at = 0; at < PINGS; at++)
        must(gambeson_link_startpoint_call(startpoint, ECHO, "12345678", 8, answer, sizeof answer, &length, 5.0));
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double seconds = (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9;
    printf("%d requests of 8 bytes and their answers: %.2f us each\n", PINGS, seconds / PINGS * 1e6);
    /* The startpoint's uses are over: its endpoint says so. */
    if (gambeson_link_startpoint_call(startpoint, ECHO, "more", 4, answer, sizeof answer, &length, 5.0) == 0) exit(1);
    printf("one more: %s\n", gambeson_link_error());
    give(pair, "", 1);
    gambeson_link_startpoint_free(startpoint);
    gambeson_link_capability_free(capability);
    gambeson_link_domain_free(domain);
}

int main(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair)) return 1;
    /* A domain belongs to its process: fork first, open afterwards. */
    pid_t child = fork();
    if (child < 0) return 1;
    close(pair[child != 0]); /* each keeps its own end */
    if (child == 0) {
        serve(pair[1]);
        return 0;
    }
    ask(pair[0]);
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
