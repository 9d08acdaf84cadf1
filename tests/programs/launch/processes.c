/* start_process and init_process from C: this program starts itself on hosts, and each process asks the next one who it is.
 *
 *     processes HOST...        two on each host */
#include <gambeson/link.h>

#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WHO = 0, ASK = 1, LEAVE = 2, COUNT = 2, PROCESSES_MAX = 64 };
static const double PATIENCE = 30.0;

static void must(gambeson_link_status status) {
    if (status != GAMBESON_LINK_STATUS_OK) {
        fprintf(stderr, "processes: status %d: %s\n", (int)status, gambeson_link_error());
        exit(70);
    }
}

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "processes: %s\n", what);
        exit(71);
    }
}

/* ---- one of the processes */

static gambeson_launch_child *child;
static gambeson_link_domain *domain;
static uint32_t number;
static sem_t left;

static void who(gambeson_link_call *call, void *user) {
    const void *context;
    size_t length;
    char text[100];
    (void)user;
    must(gambeson_launch_child_context(child, &context, &length));
    snprintf(text, sizeof text, "%u of %.*s", number, (int)length, (const char *)context);
    must(gambeson_link_call_answer(call, text, strlen(text)));
}

static void ask(gambeson_link_request *request, void *user) {
    const void *payload;
    size_t length;
    char answer[100];
    gambeson_link_capability *capability;
    gambeson_link_startpoint *sibling;
    (void)user;
    must(gambeson_link_request_payload(request, &payload, &length));
    must(gambeson_link_capability_decode(payload, length, &capability));
    must(gambeson_link_domain_startpoint(domain, capability, PATIENCE, &sibling));
    must(gambeson_link_startpoint_call(sibling, WHO, "", 0, answer, sizeof answer, &length, PATIENCE));
    must(gambeson_link_request_answer(request, answer, length));
    gambeson_link_startpoint_free(sibling);
    gambeson_link_capability_free(capability);
}

static void leave(gambeson_link_call *call, void *user) {
    (void)call, (void)user;
    sem_post(&left);
}

static int member(void) {
    gambeson_launch_child *second;
    gambeson_link_handlers *handlers;
    gambeson_link_endpoint *endpoint;
    gambeson_link_capability *own;
    gambeson_link_startpoint *creator;
    sem_init(&left, 0, 0);
    must(gambeson_launch_init_process(NULL, &child));
    must(gambeson_launch_child_number(child, &number));
    must(gambeson_launch_child_domain(child, &domain));
    check(gambeson_launch_init_process(NULL, &second) == GAMBESON_LINK_STATUS_REFUSED && !second, "taken twice");
    must(gambeson_link_handlers_new(&handlers));
    must(gambeson_link_handlers_inline(handlers, WHO, who, NULL));
    must(gambeson_link_handlers_threaded(handlers, ASK, ask, NULL));
    must(gambeson_link_handlers_inline(handlers, LEAVE, leave, NULL));
    must(gambeson_link_domain_endpoint(domain, NULL, handlers, &endpoint));
    must(gambeson_link_endpoint_startpoint(endpoint, NULL, 0, &own));
    must(gambeson_launch_child_ready(child, own, PATIENCE, &creator));
    /* The initial link. */
    must(gambeson_link_startpoint_send(creator, WHO, "", 0));
    sem_wait(&left);
    gambeson_link_capability_free(own);
    gambeson_link_startpoint_free(creator);
    gambeson_link_endpoint_free(endpoint);
    gambeson_link_domain_free(domain);
    gambeson_launch_child_free(child);
    return (int)number;
}

/* ---- the creator */

static sem_t arrived;

static void arrive(gambeson_link_call *call, void *user) {
    (void)call, (void)user;
    sem_post(&arrived);
}

static int32_t end(gambeson_launch_processes *processes, uint32_t process) {
    int32_t status;
    must(gambeson_launch_processes_status(processes, process, PATIENCE, &status));
    return status;
}

int main(int count, char **words) {
    const char *program[] = {words[0], "member", NULL};
    const char *cat[] = {"cat", NULL}, *sleeper[] = {"sleep", "100", NULL};
    const char *environment[] = {"OCEAN=atlantic", NULL};
    const char *one[] = {words[1], NULL};
    gambeson_launch_creator *creator;
    gambeson_link_handlers *handlers;
    gambeson_link_endpoint *endpoint;
    gambeson_link_capability *initial, *found[PROCESSES_MAX];
    gambeson_link_startpoint *startpoints[PROCESSES_MAX];
    gambeson_launch_processes *processes;
    int32_t status;
    uint32_t all = (uint32_t)(count - 1) * COUNT, at;
    if (count == 2 && !strcmp(words[1], "member")) return member();
    check(count > 1 && all <= PROCESSES_MAX, "usage: processes HOST...");
    sem_init(&arrived, 0, 0);

    must(gambeson_launch_creator_open(NULL, NULL, &creator));
    must(gambeson_launch_creator_domain(creator, &domain));
    must(gambeson_link_handlers_new(&handlers));
    must(gambeson_link_handlers_inline(handlers, WHO, arrive, NULL));
    must(gambeson_link_domain_endpoint(domain, NULL, handlers, &endpoint));
    must(gambeson_link_endpoint_startpoint(endpoint, NULL, 0, &initial));
    gambeson_launch_wanted wanted = {
        .hosts = (const char *const *)words + 1,
        .count = COUNT,
        .argv = program,
        .environment = environment,
        .context = "the ocean",
        .context_length = strlen("the ocean"),
        .creator = initial,
    };
    must(gambeson_launch_start_process(creator, &wanted, &processes));
    for (at = 0; at < all; at++) {
        must(gambeson_launch_processes_startpoint(processes, at, PATIENCE, &found[at]));
        must(gambeson_link_domain_startpoint(domain, found[at], PATIENCE, &startpoints[at]));
        sem_wait(&arrived);
    }
    check(gambeson_launch_processes_status(processes, 0, 0.0, &status) == GAMBESON_LINK_STATUS_PENDING, "it has ended");
    for (at = 0; at < all; at++) {
        uint8_t bytes[GAMBESON_LINK_CAPABILITY_BYTES], owner[32];
        gambeson_link_capability *copy;
        size_t length;
        char answer[100];
        must(gambeson_link_capability_owner(found[at], owner));
        must(gambeson_link_domain_copy_for(domain, found[(at + 1) % all], owner, &copy));
        must(gambeson_link_capability_encode(copy, bytes, sizeof bytes, &length));
        must(gambeson_link_startpoint_call(startpoints[at], ASK, bytes, length, answer, sizeof answer, &length, PATIENCE));
        printf("%u heard %.*s\n", at, (int)length, answer);
        gambeson_link_capability_free(copy);
    }
    for (at = 0; at < all; at++) {
        must(gambeson_link_startpoint_send(startpoints[at], LEAVE, "", 0));
        check(end(processes, at) == (int32_t)at, "another status");
        gambeson_link_startpoint_free(startpoints[at]);
        gambeson_link_capability_free(found[at]);
    }
    check(gambeson_launch_processes_status(processes, all, 0.0, &status) == GAMBESON_LINK_STATUS_ARGUMENT, "one more");
    gambeson_launch_processes_free(processes);
    gambeson_link_capability_free(initial);

    wanted = (gambeson_launch_wanted){.hosts = one, .count = 2, .argv = cat, .input = true};
    must(gambeson_launch_start_process(creator, &wanted, &processes));
    while (gambeson_launch_processes_input(processes, 1, "", 0) != GAMBESON_LINK_STATUS_OK) usleep(10000);
    check(end(processes, 1) == 0, "cat did not end by itself");
    check(gambeson_launch_processes_startpoint(processes, 1, 0.0, &found[0]) == GAMBESON_LINK_STATUS_LOST && !found[0] &&
              strstr(gambeson_link_error(), "before it was ready"),
          "cat was ready");
    gambeson_launch_processes_free(processes);

    wanted = (gambeson_launch_wanted){.hosts = one, .count = 2, .executable = "/bin/sleep", .argv = sleeper};
    must(gambeson_launch_start_process(creator, &wanted, &processes));
    do {
        usleep(10000);
        must(gambeson_launch_processes_signal(processes, GAMBESON_LAUNCH_ALL, SIGTERM));
    } while (gambeson_launch_processes_status(processes, 1, 0.0, &status) == GAMBESON_LINK_STATUS_PENDING);
    check(status == -SIGTERM && end(processes, 0) == -SIGTERM, "sleep was not ended by the signal");
    gambeson_launch_processes_free(processes);

    gambeson_link_endpoint_free(endpoint);
    gambeson_link_domain_free(domain);
    gambeson_launch_creator_free(creator);
    printf("all ok\n");
    return 0;
}
