/* Every function of gambeson/link.h, in one process with two domains; stops where something is not as it should be. */
#include <gambeson/link.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define OK GAMBESON_LINK_STATUS_OK
#define IS(status, expected)                                                                                           \
    do {                                                                                                               \
        int is_ = (int)(status);                                                                                       \
        if (is_ != (int)(expected)) {                                                                                  \
            fprintf(stderr, "%s:%d: status %d: %s\n", __FILE__, __LINE__, is_, gambeson_link_error());                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define MUST(condition) IS(!(condition), 0)
#define SAYS(words)                                                                                                    \
    do {                                                                                                               \
        if (!strstr(gambeson_link_error(), words)) {                                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, gambeson_link_error());                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { ECHO, COUNT, WHO, REFUSE, STREAM, SLOW, KEEP, ITEMS };

static void echo(gambeson_link_call *call, void *user) {
    const void *payload;
    size_t length;
    uint32_t handler;
    IS(gambeson_link_call_handler(call, &handler), OK);
    MUST(handler == ECHO && user == NULL);
    IS(gambeson_link_call_payload(call, &payload, &length), OK);
    IS(gambeson_link_call_answer(call, payload, length), OK);
}

static void count(gambeson_link_call *call, void *user) {
    const void *payload;
    size_t length;
    MUST(!gambeson_link_call_wants_answer(call));
    IS(gambeson_link_call_payload(call, &payload, &length), OK);
    __atomic_fetch_add((size_t *)user, length, __ATOMIC_SEQ_CST);
}

static void who(gambeson_link_call *call, void *user) {
    const gambeson_link_peer *peer = gambeson_link_call_peer(call);
    char name[64], role[64], host[256], line[512];
    uint8_t key[32];
    size_t length;
    MUST(gambeson_link_call_wants_answer(call));
    IS(gambeson_link_peer_key(peer, key), OK);
    MUST(memcmp(key, user, 32) == 0);
    IS(gambeson_link_peer_name(peer, name, 2, &length), GAMBESON_LINK_STATUS_ROOM);
    MUST(length == strlen("alice"));
    IS(gambeson_link_peer_address(peer, name, sizeof name, NULL), OK);
    MUST(strcmp(name, "10.1.2.3") == 0);
    IS(gambeson_link_peer_name(peer, name, sizeof name, NULL), OK);
    IS(gambeson_link_peer_role(peer, 1, role, sizeof role, NULL), OK);
    IS(gambeson_link_peer_role(peer, 2, role, sizeof role, NULL), GAMBESON_LINK_STATUS_END);
    IS(gambeson_link_peer_host(peer, host, sizeof host, &length), OK);
    int wrote = snprintf(line, sizeof line, "%s, %s, %s", name, role, host);
    IS(gambeson_link_call_answer(call, line, (size_t)wrote), OK);
}

static void refuse(gambeson_link_call *call, void *user) {
    (void)user;
    IS(gambeson_link_call_refuse(call, "not today"), OK);
}

static void items(gambeson_link_call *call, void *user) {
    (void)user;
    for (uint8_t at = 0; at < 3; at++) IS(gambeson_link_call_item(call, &at, 1), OK);
    IS(gambeson_link_call_finish(call), OK);
}

static void stream(gambeson_link_request *request, void *user) {
    const void *payload;
    size_t length;
    uint32_t handler;
    (void)user;
    IS(gambeson_link_request_handler(request, &handler), OK);
    IS(gambeson_link_request_payload(request, &payload, &length), OK);
    MUST(!gambeson_link_request_is_cancelled(request));
    MUST(handler == STREAM && length == 1 && gambeson_link_request_peer(request) != NULL);
    for (uint8_t at = 0; at < *(const uint8_t *)payload; at++) IS(gambeson_link_request_item(request, &at, 1), OK);
    gambeson_link_request_free(request);
}

static void rest(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void slow(gambeson_link_request *request, void *user) {
    const void *payload;
    size_t length;
    rest(*(long *)user);
    IS(gambeson_link_request_payload(request, &payload, &length), OK);
    IS(gambeson_link_request_answer(request, payload, length), OK);
}

static void *refuse_later(void *kept) {
    IS(gambeson_link_request_refuse(kept, "later: no"), OK);
    return NULL;
}

/* Keeps its request, and another thread ends it. */
static void keep(gambeson_link_request *request, void *user) {
    IS(pthread_create(user, NULL, refuse_later, request), 0);
}

/* A transform module that numbers what passes, and turns its bits over; links that are open. */
static size_t numbered_links;
typedef struct {
    uint8_t out, in;
} numbers;

static void *open_numbered(uint32_t end, gambeson_link_message *failure, void *user) {
    MUST(failure && (end == GAMBESON_LINK_END_STARTPOINT || end == GAMBESON_LINK_END_ENDPOINT));
    __atomic_fetch_add((size_t *)user, 1, __ATOMIC_SEQ_CST);
    return calloc(1, sizeof(numbers));
}

static void close_numbered(void *state, void *user) {
    free(state);
    __atomic_fetch_sub((size_t *)user, 1, __ATOMIC_SEQ_CST);
}

static void turn(uint8_t *bytes, size_t length) {
    for (size_t at = 0; at < length; at++) bytes[at] = (uint8_t)~bytes[at];
}

static void apply_numbered(gambeson_link_message *message, void *state, void *user) {
    void *bytes;
    size_t length;
    MUST(user == &numbered_links);
    IS(gambeson_link_message_bytes(message, &bytes, &length), OK);
    if (length == 7 && memcmp(bytes, "refused", 7) == 0) {
        IS(gambeson_link_message_fail(message, "not this one"), OK);
        return;
    }
    IS(gambeson_link_message_resize(message, length + 1), OK);
    IS(gambeson_link_message_bytes(message, &bytes, &length), OK);
    ((uint8_t *)bytes)[length - 1] = ((numbers *)state)->out++;
    turn(bytes, length);
}

static void restore_numbered(gambeson_link_message *message, size_t most, void *state, void *user) {
    void *bytes;
    size_t length;
    (void)user;
    IS(gambeson_link_message_bytes(message, &bytes, &length), OK);
    MUST(length == most + 1);
    turn(bytes, length);
    if (((uint8_t *)bytes)[length - 1] != ((numbers *)state)->in++) {
        IS(gambeson_link_message_fail(message, "out of order"), OK);
        return;
    }
    IS(gambeson_link_message_resize(message, length - 1), OK);
}

static const gambeson_link_transform numbered = {"numbered",     open_numbered, apply_numbered, restore_numbered,
                                                 close_numbered, true,          &numbered_links};

/* An operation of our own: the sums of bytes, of which there may not be more than 100. */
static void sum_bytes(const void *one, size_t one_length, const void *other, size_t other_length,
                      gambeson_link_message *combined, void *user) {
    void *bytes;
    size_t length;
    if (one_length != other_length || one_length > 100) {
        IS(gambeson_link_message_fail(combined, "too many bytes"), OK);
        return;
    }
    IS(gambeson_link_message_resize(combined, one_length), OK);
    IS(gambeson_link_message_bytes(combined, &bytes, &length), OK);
    for (size_t at = 0; at < length; at++)
        ((uint8_t *)bytes)[at] = (uint8_t)(((const uint8_t *)one)[at] + ((const uint8_t *)other)[at]);
    __atomic_fetch_add((size_t *)user, 1, __ATOMIC_SEQ_CST);
}

static gambeson_link_domain *open_domain(uint8_t own[32], const uint8_t other[32], gambeson_link_identity *identity,
                                         const char *name, const char *listen, uint32_t progress) {
    const char *roles[] = {"reader", "writer"};
    gambeson_link_trust *trust;
    gambeson_link_config *config;
    gambeson_link_domain *domain;
    uint8_t hash[32];
    IS(gambeson_link_trust_new(&trust), OK);
    IS(gambeson_link_trust_pinned(trust, other, name, roles, 2), OK);
    IS(gambeson_link_trust_pinned(trust, own, "itself", NULL, 0), OK);
    IS(gambeson_link_config_new(identity, trust, &config), OK);
    if (listen) IS(gambeson_link_config_listen(config, listen), OK);
    IS(gambeson_link_config_host(config, "here"), OK);
    IS(gambeson_link_config_rank(config, 3), OK);
    IS(gambeson_link_config_address(config, "10.1.2.3"), OK);
    IS(gambeson_link_config_shm(config, true), OK);
    IS(gambeson_link_config_progress(config, progress), OK);
    IS(gambeson_link_config_weakest(config, GAMBESON_LINK_PROTECTION_INTEGRITY), OK);
    IS(gambeson_link_config_patience(config, 10), OK);
    IS(gambeson_link_config_silence(config, 10), OK);
    IS(gambeson_link_config_transform(config, &numbered), OK);
    IS(gambeson_link_domain_open(config, &domain), OK);
    IS(gambeson_link_domain_key_hash(domain, hash), OK);
    MUST(memcmp(hash, own, 32) == 0);
    return domain;
}

/* An endpoint that asks for nothing has what the policy asks for, and one that asks for more has that. */
static void policy_is_kept(gambeson_link_domain *server, gambeson_link_domain *client) {
    const uint32_t asked[] = {GAMBESON_LINK_PROTECTION_NONE, GAMBESON_LINK_PROTECTION_INTEGRITY,
                              GAMBESON_LINK_PROTECTION_PRIVACY};
    const uint32_t found[] = {GAMBESON_LINK_PROTECTION_INTEGRITY, GAMBESON_LINK_PROTECTION_INTEGRITY,
                              GAMBESON_LINK_PROTECTION_PRIVACY};
    for (int at = 0; at < 3; at++) {
        gambeson_link_attributes *attributes;
        gambeson_link_handlers *handlers;
        gambeson_link_endpoint *endpoint;
        gambeson_link_capability *capability;
        gambeson_link_startpoint *link;
        uint32_t protection = 99;
        IS(gambeson_link_attributes_new(&attributes), OK);
        IS(gambeson_link_attributes_protection(attributes, asked[at]), OK);
        IS(gambeson_link_handlers_new(&handlers), OK);
        IS(gambeson_link_domain_endpoint(server, attributes, handlers, &endpoint), OK);
        gambeson_link_attributes_free(attributes);
        IS(gambeson_link_endpoint_startpoint(endpoint, NULL, 0, &capability), OK);
        IS(gambeson_link_domain_startpoint(client, capability, 10, &link), OK);
        IS(gambeson_link_startpoint_protection(link, &protection), OK);
        MUST(protection == found[at]);
        IS(gambeson_link_startpoint_protection(link, NULL), GAMBESON_LINK_STATUS_ARGUMENT);
        gambeson_link_startpoint_free(link);
        gambeson_link_capability_free(capability);
        gambeson_link_endpoint_free(endpoint);
    }
    IS(gambeson_link_startpoint_protection(NULL, NULL), GAMBESON_LINK_STATUS_ARGUMENT);
}

/* Nothing is undefined: nulls, bad lengths, numbers and texts that make no sense. */
static void nonsense(void) {
    gambeson_link_identity *identity = (void *)&identity;
    gambeson_link_trust *trust;
    gambeson_link_config *config;
    gambeson_link_capability *capability;
    gambeson_link_startpoint *startpoint;
    gambeson_link_domain *domain;
    uint8_t key[32] = {0};
    const char latin1[] = {(char)0xe4, 0};
    const gambeson_link_status argument = GAMBESON_LINK_STATUS_ARGUMENT;
    gambeson_link_policy *policy;
    gambeson_link_pack *pack;
    gambeson_link_refusals refusals;
    MUST(*gambeson_link_error() == 0);
    IS(gambeson_link_identity_generate(NULL), argument);
    SAYS("null");
    IS(gambeson_link_identity_from_pem("none", 4, "none", 4, &identity), GAMBESON_LINK_STATUS_IDENTITY);
    MUST(identity == NULL);
    IS(gambeson_link_identity_from_pem(NULL, 4, "none", 4, &identity), argument);
    IS(gambeson_link_identity_from_pem("none", SIZE_MAX, "none", 4, &identity), argument);
    IS(gambeson_link_identity_key_hash(NULL, key), argument);
    SAYS("the identity is null");
    IS(gambeson_link_trust_new(&trust), OK);
    IS(gambeson_link_trust_pinned(trust, key, NULL, NULL, 0), argument);
    IS(gambeson_link_trust_pinned(trust, key, latin1, NULL, 0), argument);
    SAYS("UTF-8");
    IS(gambeson_link_trust_pinned(trust, key, "name", NULL, 1), argument);
    IS(gambeson_link_trust_pinned(trust, NULL, "name", NULL, 0), argument);
    IS(gambeson_link_trust_job(trust, NULL, key, key), argument);
    IS(gambeson_link_trust_job(trust, key, key, key), OK);
    IS(gambeson_link_trust_authorities(trust, "nobody", 6), GAMBESON_LINK_STATUS_IDENTITY);
    IS(gambeson_link_config_new(NULL, trust, &config), argument);
    MUST(config == NULL);
    IS(gambeson_link_config_listen(NULL, "127.0.0.1:0"), argument);
    IS(gambeson_link_identity_generate(&identity), OK);
    IS(gambeson_link_trust_new(&trust), OK);
    IS(gambeson_link_config_new(identity, trust, &config), OK);
    IS(gambeson_link_config_listen(config, "here"), argument);
    SAYS("no address");
    IS(gambeson_link_config_listen(config, NULL), argument);
    IS(gambeson_link_config_progress(config, 2), argument);
    IS(gambeson_link_config_weakest(config, 0), argument);
    IS(gambeson_link_config_address(config, "10.1.2.3:4000"), argument);
    IS(gambeson_link_config_address(config, "10.1.2.3"), OK);
    IS(gambeson_link_config_listen_fabric(config, NULL, NULL), argument);
    IS(gambeson_link_config_site(NULL), argument);
    IS(gambeson_link_config_directory(config, NULL, "site.pub"), argument);
    IS(gambeson_link_config_directory(config, "/nowhere/directory.toml", "/nowhere/site.pub"),
       GAMBESON_LINK_STATUS_IDENTITY);
    SAYS("/nowhere/");
    IS(gambeson_link_config_policy(config, NULL), argument);
    IS(gambeson_link_config_from_job(NULL), argument);
    gambeson_link_transform nameless = numbered, empty = {"empty", NULL, NULL, NULL, NULL, false, NULL};
    nameless.name = NULL;
    IS(gambeson_link_config_transform(config, NULL), argument);
    IS(gambeson_link_config_transform(config, &nameless), argument);
    IS(gambeson_link_config_transform(config, &empty), argument);
    SAYS("apply");
    IS(gambeson_link_message_bytes(NULL, NULL, NULL), argument);
    IS(gambeson_link_message_resize(NULL, 1), argument);
    IS(gambeson_link_message_fail(NULL, "no"), argument);
    IS(gambeson_link_config_patience(config, -1), argument);
    IS(gambeson_link_config_patience(config, 0.0 / 0.0), argument);
    IS(gambeson_link_config_patience(config, 1e300), OK);
    IS(gambeson_link_domain_open(config, NULL), argument);
    IS(gambeson_link_domain_open(NULL, &domain), argument);
    IS(gambeson_link_config_from_job(&config), GAMBESON_LINK_STATUS_IDENTITY);
    SAYS("gambeson run");
    MUST(config == NULL);
    IS(gambeson_link_policy_parse("protection = \"some\"", "the text", &policy), GAMBESON_LINK_STATUS_POLICY);
    SAYS("the text:1");
    MUST(policy == NULL);
    IS(gambeson_link_policy_parse(NULL, "the text", &policy), argument);
    IS(gambeson_link_policy_read("/nowhere/gambeson.toml", &policy), GAMBESON_LINK_STATUS_POLICY);
    SAYS("/nowhere/gambeson.toml");
    IS(gambeson_link_domain_set_policy(NULL, policy), argument);
    IS(gambeson_link_domain_refusals(NULL, &refusals), argument);
    IS(gambeson_link_capability_decode("nothing", 7, &capability), GAMBESON_LINK_STATUS_STARTPOINT);
    IS(gambeson_link_capability_decode(NULL, 7, &capability), argument);
    IS(gambeson_link_capability_narrow_uses(NULL, 1), argument);
    IS(gambeson_link_domain_startpoint(NULL, NULL, 1, &startpoint), argument);
    IS(gambeson_link_startpoint_send(NULL, 0, NULL, 0), argument);
    IS(gambeson_link_startpoint_flush(NULL, 0), argument);
    IS(gambeson_link_startpoint_gather_send(NULL, 0, NULL, 0), argument);
    IS(gambeson_link_domain_startpoint_over(NULL, GAMBESON_LINK_TRANSPORT_TCP, NULL, 1, &startpoint), argument);
    IS(gambeson_link_startpoint_carrier(NULL, NULL, NULL, 0, NULL), argument);
    IS(gambeson_link_startpoint_prefer(NULL, GAMBESON_LINK_TRANSPORT_TCP, 1), argument);
    IS(gambeson_link_startpoint_pack(NULL, 0, 0, &pack), argument);
    IS(gambeson_link_pack_put(NULL, NULL, 0), argument);
    IS(gambeson_link_pack_send(NULL), argument);
    IS(gambeson_link_pack_call(NULL, NULL, 0, NULL, 1), argument);
    IS(gambeson_link_pending_test(NULL), argument);
    IS(gambeson_link_pending_wait(NULL, 0), argument);
    IS(gambeson_link_answers_next(NULL, 0, NULL, NULL), argument);
    IS(gambeson_link_request_answer(NULL, NULL, 0), argument);
    IS(gambeson_link_call_answer(NULL, NULL, 0), argument);
    MUST(gambeson_link_call_peer(NULL) == NULL && gambeson_link_request_peer(NULL) == NULL);
    gambeson_link_identity_free(NULL);
    gambeson_link_trust_free(NULL);
    gambeson_link_config_free(NULL);
    gambeson_link_domain_free(NULL);
    gambeson_link_attributes_free(NULL);
    gambeson_link_handlers_free(NULL);
    gambeson_link_endpoint_free(NULL);
    gambeson_link_request_free(NULL);
    gambeson_link_capability_free(NULL);
    gambeson_link_startpoint_free(NULL);
    gambeson_link_pending_free(NULL);
    gambeson_link_answers_free(NULL);
    gambeson_link_pack_free(NULL);
    gambeson_link_policy_free(NULL);
    gambeson_link_group_free(NULL);
    gambeson_link_results_free(NULL);
}

/* The three answers of a stream. */
static void three_answers(gambeson_link_answers *answers) {
    const void *bytes;
    size_t length;
    for (uint8_t at = 0; at < 3; at++) {
        IS(gambeson_link_answers_next(answers, 10, &bytes, &length), OK);
        MUST(length == 1 && *(const uint8_t *)bytes == at);
    }
    IS(gambeson_link_answers_next(answers, 10, &bytes, &length), GAMBESON_LINK_STATUS_END);
    gambeson_link_answers_free(answers);
}

static void requests(gambeson_link_startpoint *link, size_t *counted) {
    gambeson_link_pending *pending[8], *late;
    gambeson_link_answers *answers;
    static uint8_t block[300000];
    uint8_t *long_answer = malloc(sizeof block);
    const void *bytes;
    char text[512];
    size_t length;
    IS(gambeson_link_startpoint_call(link, ECHO, "hello", 5, text, sizeof text, &length, 10), OK);
    MUST(length == 5 && memcmp(text, "hello", 5) == 0);
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10), OK);
    IS(gambeson_link_startpoint_call(link, ECHO, "hello", 5, text, 4, &length, 10), GAMBESON_LINK_STATUS_ROOM);
    MUST(length == 5);
    memset(block, 7, sizeof block);
    IS(gambeson_link_startpoint_call(link, ECHO, block, sizeof block, long_answer, sizeof block, &length, 10), OK);
    MUST(length == sizeof block && memcmp(block, long_answer, length) == 0);
    free(long_answer);
    IS(gambeson_link_startpoint_call(link, WHO, NULL, 0, text, sizeof text, &length, 10), OK);
    text[length] = 0;
    MUST(strcmp(text, "alice, writer, here") == 0);
    IS(gambeson_link_startpoint_call(link, REFUSE, NULL, 0, NULL, 0, NULL, 10), GAMBESON_LINK_STATUS_HANDLER);
    SAYS("not today");
    IS(gambeson_link_startpoint_call(link, KEEP, NULL, 0, NULL, 0, NULL, 10), GAMBESON_LINK_STATUS_HANDLER);
    SAYS("later: no");
    IS(gambeson_link_startpoint_call(link, 99, NULL, 0, NULL, 0, NULL, 10), GAMBESON_LINK_STATUS_HANDLER);
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, SIZE_MAX, NULL, 0, NULL, 10), GAMBESON_LINK_STATUS_ARGUMENT);

    for (int at = 0; at < 10; at++) IS(gambeson_link_startpoint_send(link, COUNT, block, sizeof block), OK);
    IS(gambeson_link_startpoint_post(link, COUNT, block, 1), OK);
    IS(gambeson_link_startpoint_flush(link, 10), OK);
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10), OK);
    MUST(__atomic_load_n(counted, __ATOMIC_SEQ_CST) == 10 * sizeof block + 1);

    for (uint8_t at = 0; at < 8; at++) IS(gambeson_link_startpoint_start(link, ECHO, &at, 1, &pending[at]), OK);
    for (int at = 7; at >= 0; at--) {
        IS(gambeson_link_pending_wait(pending[at], 10), OK);
        IS(gambeson_link_pending_test(pending[at]), OK);
        IS(gambeson_link_pending_answer(pending[at], &bytes, &length), OK);
        MUST(length == 1 && *(const uint8_t *)bytes == at);
        gambeson_link_pending_free(pending[at]);
    }
    IS(gambeson_link_startpoint_start(link, SLOW, "late", 4, &late), OK);
    IS(gambeson_link_pending_test(late), GAMBESON_LINK_STATUS_PENDING);
    IS(gambeson_link_pending_answer(late, &bytes, &length), GAMBESON_LINK_STATUS_PENDING);
    IS(gambeson_link_pending_wait(late, 0.001), GAMBESON_LINK_STATUS_TIMED_OUT);
    while (gambeson_link_pending_test(late) == GAMBESON_LINK_STATUS_PENDING) rest(1);
    IS(gambeson_link_pending_answer(late, &bytes, &length), OK);
    MUST(length == 4 && memcmp(bytes, "late", 4) == 0);
    gambeson_link_pending_free(late);
    IS(gambeson_link_startpoint_start(link, SLOW, "cancelled", 9, &late), OK);
    gambeson_link_pending_free(late);

    uint8_t three = 3;
    for (uint32_t handler = STREAM; handler <= ITEMS; handler += ITEMS - STREAM) {
        IS(gambeson_link_startpoint_stream(link, handler, &three, 1, &answers), OK);
        three_answers(answers);
    }
}

/* An endpoint with the handlers that answer with what they get. */
static gambeson_link_startpoint *plain_link(gambeson_link_domain *server, gambeson_link_domain *client,
                                            const char *class, const char *module, size_t *counted,
                                            gambeson_link_endpoint **endpoint) {
    gambeson_link_attributes *attributes;
    gambeson_link_handlers *handlers;
    gambeson_link_capability *capability;
    gambeson_link_startpoint *link;
    IS(gambeson_link_attributes_new(&attributes), OK);
    IS(gambeson_link_attributes_class(attributes, class), OK);
    if (module) IS(gambeson_link_attributes_transform(attributes, module), OK);
    IS(gambeson_link_handlers_new(&handlers), OK);
    IS(gambeson_link_handlers_inline(handlers, ECHO, echo, NULL), OK);
    IS(gambeson_link_handlers_inline(handlers, COUNT, count, counted), OK);
    IS(gambeson_link_handlers_threaded(handlers, STREAM, stream, NULL), OK);
    IS(gambeson_link_domain_endpoint(server, attributes, handlers, endpoint), OK);
    gambeson_link_attributes_free(attributes);
    IS(gambeson_link_endpoint_startpoint(*endpoint, NULL, 0, &capability), OK);
    IS(gambeson_link_domain_startpoint(client, capability, 10, &link), OK);
    gambeson_link_capability_free(capability);
    return link;
}

static void waits_for(gambeson_link_pending *pending, const void *expected, size_t size) {
    const void *bytes;
    size_t length;
    IS(gambeson_link_pending_wait(pending, 10), OK);
    IS(gambeson_link_pending_answer(pending, &bytes, &length), OK);
    MUST(length == size && memcmp(bytes, expected, size) == 0);
    gambeson_link_pending_free(pending);
}

/* Requests gathered from several buffers. */
static void gathered(gambeson_link_startpoint *link, size_t *counted) {
    static uint8_t block[20 * 15000], answer[sizeof block];
    const gambeson_link_piece hello[] = {{"he", 2}, {NULL, 0}, {"llo", 3}}, three = {"\3", 1}, none = {NULL, 3};
    gambeson_link_piece many[20];
    gambeson_link_pending *pending;
    gambeson_link_answers *answers;
    char text[8];
    size_t length, before = __atomic_load_n(counted, __ATOMIC_SEQ_CST);
    IS(gambeson_link_startpoint_gather_call(link, ECHO, hello, 3, text, sizeof text, &length, 10), OK);
    MUST(length == 5 && memcmp(text, "hello", 5) == 0);
    IS(gambeson_link_startpoint_gather_call(link, ECHO, hello, 3, text, 4, &length, 10), GAMBESON_LINK_STATUS_ROOM);
    IS(gambeson_link_startpoint_gather_call(link, ECHO, NULL, 0, text, 4, &length, 10), OK);
    MUST(length == 0);
    IS(gambeson_link_startpoint_gather_call(link, ECHO, NULL, 1, text, 4, NULL, 10), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_startpoint_gather_call(link, ECHO, &none, 1, text, 4, NULL, 10), GAMBESON_LINK_STATUS_ARGUMENT);
    for (size_t at = 0; at < sizeof block; at++) block[at] = (uint8_t)(at / 7);
    for (size_t at = 0; at < 20; at++) many[at] = (gambeson_link_piece){block + at * 15000, 15000};
    IS(gambeson_link_startpoint_gather_call(link, ECHO, many, 20, answer, sizeof answer, &length, 10), OK);
    MUST(length == sizeof block && memcmp(block, answer, length) == 0);
    IS(gambeson_link_startpoint_gather_start(link, ECHO, many, 20, &pending), OK);
    waits_for(pending, block, sizeof block);
    IS(gambeson_link_startpoint_gather_stream(link, STREAM, &three, 1, &answers), OK);
    three_answers(answers);
    IS(gambeson_link_startpoint_gather_send(link, COUNT, many, 20), OK);
    IS(gambeson_link_startpoint_gather_post(link, COUNT, hello, 3), OK);
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10), OK);
    MUST(__atomic_load_n(counted, __ATOMIC_SEQ_CST) == before + sizeof block + 5);
}

static gambeson_link_pack *packed(gambeson_link_startpoint *link, uint32_t handler, const uint8_t *block, size_t size) {
    gambeson_link_pack *pack;
    IS(gambeson_link_startpoint_pack(link, handler, size, &pack), OK);
    for (size_t at = 0; at < size; at += 30000)
        IS(gambeson_link_pack_put(pack, block + at, size - at < 30000 ? size - at : 30000), OK);
    return pack;
}

/* Another thread may not go on with a pack, and may give it up. */
static void *give_up(void *pack) {
    IS(gambeson_link_pack_put(pack, "more", 4), GAMBESON_LINK_STATUS_MESSAGE);
    SAYS("another thread");
    gambeson_link_pack_free(pack);
    return NULL;
}

/* Requests packed one buffer after the other; without modules they are sealed as they come. */
static void packs(gambeson_link_startpoint *link, size_t *counted, bool whole) {
    static uint8_t block[100000], answer[sizeof block];
    gambeson_link_pack *pack;
    gambeson_link_pending *pending;
    gambeson_link_answers *answers;
    pthread_t other;
    size_t length, before = __atomic_load_n(counted, __ATOMIC_SEQ_CST);
    for (size_t at = 0; at < sizeof block; at++) block[at] = (uint8_t)(at / 11);
    for (size_t size = 100; size <= sizeof block; size *= 10) {
        pack = packed(link, ECHO, block, size);
        IS(gambeson_link_pack_call(pack, answer, sizeof answer, &length, 10), OK);
        MUST(length == size && memcmp(block, answer, size) == 0);
        IS(gambeson_link_pack_start(packed(link, ECHO, block, size), &pending), OK);
        waits_for(pending, block, size);
        IS(gambeson_link_pack_send(packed(link, COUNT, block, size)), OK);
    }
    IS(gambeson_link_pack_stream(packed(link, STREAM, (const uint8_t *)"\3", 1), &answers), OK);
    three_answers(answers);
    MUST(__atomic_load_n(counted, __ATOMIC_SEQ_CST) == before + 111100);

    pack = packed(link, COUNT, block, 60000);
    IS(gambeson_link_pack_put(pack, "1", 1), GAMBESON_LINK_STATUS_MESSAGE);
    SAYS("was to have 60000");
    IS(gambeson_link_pack_send(pack), OK);
    IS(gambeson_link_startpoint_pack(link, COUNT, sizeof block, &pack), OK);
    IS(gambeson_link_pack_put(pack, block, sizeof block - 1), OK);
    IS(gambeson_link_pack_put(pack, NULL, 1), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10),
       whole ? OK : GAMBESON_LINK_STATUS_MESSAGE);
    IS(gambeson_link_pack_send(pack), GAMBESON_LINK_STATUS_MESSAGE);
    SAYS("99999 bytes were put");
    IS(gambeson_link_startpoint_pack(link, COUNT, sizeof block, &pack), OK);
    IS(gambeson_link_pack_put(pack, block, 50000), OK);
    IS(pthread_create(&other, NULL, give_up, pack), 0);
    IS(pthread_join(other, NULL), 0);
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10), OK);
    MUST(__atomic_load_n(counted, __ATOMIC_SEQ_CST) == before + 171100);
}

/* A policy says how links are protected, and another one may take its place. */
static void policies(gambeson_link_domain *server, gambeson_link_domain *client, const char *folder, size_t *counted) {
    gambeson_link_policy *policy;
    gambeson_link_endpoint *endpoint, *other;
    gambeson_link_startpoint *link, *sealed;
    char path[512];
    uint32_t protection;
    int length = snprintf(path, sizeof path, "%s/gambeson.toml", folder);
    MUST(length > 0 && (size_t)length < sizeof path);
    FILE *file = fopen(path, "w");
    MUST(file && fputs("protection = \"integrity\"\n[[rule]]\nbetween = [\"*\", \"*\"]\nclass = \"secrets\"\n"
                       "protection = \"privacy\"\n", file) >= 0 && fclose(file) == 0);
    IS(chmod(path, 0666), 0);
    IS(gambeson_link_policy_read(path, &policy), GAMBESON_LINK_STATUS_POLICY);
    SAYS("can be written by others");
    IS(chmod(path, 0600), 0);
    IS(gambeson_link_policy_read(path, &policy), OK);
    IS(gambeson_link_domain_set_policy(server, policy), OK);
    IS(gambeson_link_domain_set_policy(client, policy), OK);
    gambeson_link_policy_free(policy);
    link = plain_link(server, client, "fluxes", NULL, counted, &endpoint);
    sealed = plain_link(server, client, "secrets", NULL, counted, &other);
    IS(gambeson_link_startpoint_protection(link, &protection), OK);
    MUST(protection == GAMBESON_LINK_PROTECTION_INTEGRITY);
    IS(gambeson_link_startpoint_protection(sealed, &protection), OK);
    MUST(protection == GAMBESON_LINK_PROTECTION_PRIVACY);
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10), OK);
    IS(gambeson_link_startpoint_call(sealed, ECHO, NULL, 0, NULL, 0, NULL, 10), OK);
    IS(gambeson_link_policy_parse("protection = \"privacy\"", "now", &policy), OK);
    IS(gambeson_link_domain_set_policy(server, policy), OK);
    gambeson_link_policy_free(policy);
    MUST(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10) != OK);
    SAYS("integrity");
    IS(gambeson_link_startpoint_call(sealed, ECHO, NULL, 0, NULL, 0, NULL, 10), OK);
    gambeson_link_startpoint_free(link);
    gambeson_link_startpoint_free(sealed);
    gambeson_link_endpoint_free(endpoint);
    gambeson_link_endpoint_free(other);
}

/* A module of our own sees every message once and in order, and may refuse one. */
static void modules(gambeson_link_domain *server, gambeson_link_domain *client, size_t *counted) {
    gambeson_link_endpoint *endpoint;
    gambeson_link_startpoint *link = plain_link(server, client, "data", "numbered", counted, &endpoint);
    char text[8];
    size_t length;
    gathered(link, counted);
    packs(link, counted, true);
    MUST(__atomic_load_n(&numbered_links, __ATOMIC_SEQ_CST) == 2);
    for (int at = 0; at < 2; at++) {
        IS(gambeson_link_startpoint_call(link, ECHO, "refused", 7, text, sizeof text, &length, 10),
           GAMBESON_LINK_STATUS_TRANSFORM);
        SAYS("\"numbered\" failed: not this one");
    }
    SAYS("bind the startpoint again");
    gambeson_link_startpoint_free(link);
    gambeson_link_endpoint_free(endpoint);
}

static void goes_over(gambeson_link_startpoint *link, uint32_t expected, const char *words) {
    uint32_t transport;
    char text[256];
    size_t length, asked;
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10), OK);
    /* What was attached to began over TCP, and goes over to the better transport after a second or so. */
    for (int tries = 0; tries < 1000; tries++) {
        IS(gambeson_link_startpoint_carrier(link, &transport, text, sizeof text, &length), OK);
        if (transport == expected) break;
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    MUST(transport == expected && strncmp(text, words, strlen(words)) == 0 && strlen(text) == length);
    IS(gambeson_link_startpoint_carrier(link, NULL, NULL, 0, &asked), OK);
    MUST(asked == length);
    IS(gambeson_link_startpoint_carrier(link, NULL, text, 2, NULL), GAMBESON_LINK_STATUS_ROOM);
}

/* By rule and by hand, also a link that is in use. */
static void transports(gambeson_link_domain *client, gambeson_link_endpoint *endpoint) {
    gambeson_link_capability *capability;
    gambeson_link_startpoint *by_rule, *by_hand;
    IS(gambeson_link_endpoint_startpoint(endpoint, NULL, 0, &capability), OK);
    IS(gambeson_link_domain_startpoint(client, capability, 10, &by_rule), OK);
    IS(gambeson_link_domain_startpoint_over(client, 9, capability, 10, &by_hand), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_domain_startpoint_over(client, GAMBESON_LINK_TRANSPORT_TCP, capability, 10, &by_hand), OK);
    goes_over(by_rule, GAMBESON_LINK_TRANSPORT_SHM, "shm ");
    goes_over(by_hand, GAMBESON_LINK_TRANSPORT_TCP, "tcp 127.0.0.1:");
    IS(gambeson_link_startpoint_prefer(by_hand, GAMBESON_LINK_TRANSPORT_SHM, 10), OK);
    goes_over(by_hand, GAMBESON_LINK_TRANSPORT_SHM, "shm ");
    IS(gambeson_link_startpoint_prefer(by_rule, GAMBESON_LINK_TRANSPORT_TCP, 10), OK);
    goes_over(by_rule, GAMBESON_LINK_TRANSPORT_TCP, "tcp 127.0.0.1:");
    IS(gambeson_link_startpoint_prefer(by_rule, 0, 10), OK);
    goes_over(by_rule, GAMBESON_LINK_TRANSPORT_SHM, "shm ");
    MUST(gambeson_link_startpoint_prefer(by_rule, GAMBESON_LINK_TRANSPORT_FABRIC, 10) != OK);
    goes_over(by_rule, GAMBESON_LINK_TRANSPORT_SHM, "shm ");
    gambeson_link_startpoint_free(by_rule);
    gambeson_link_startpoint_free(by_hand);
    gambeson_link_capability_free(capability);
}

/* What the tests before were refused, by reason. */
static void refusals_are_counted(gambeson_link_domain *server, gambeson_link_domain *client) {
    const int asked_for[] = {GAMBESON_LINK_REFUSAL_METHOD, GAMBESON_LINK_REFUSAL_USED_UP, GAMBESON_LINK_REFUSAL_REVOKED,
                             GAMBESON_LINK_REFUSAL_MEMORY, GAMBESON_LINK_REFUSAL_ABSENT};
    gambeson_link_refusals refusals;
    uint64_t all = 0, known;
    IS(gambeson_link_domain_refusals(server, NULL), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_domain_refusals(server, &refusals), OK);
    /* Links that nobody used, to endpoints that were closed at once. */
    known = refusals.startpoints[GAMBESON_LINK_REFUSAL_UNKNOWN];
    for (size_t at = 0; at < sizeof asked_for / sizeof *asked_for; at++) {
        MUST(refusals.startpoints[asked_for[at]] > 0);
        known += refusals.startpoints[asked_for[at]];
    }
    for (int at = 0; at < 32; at++) all += refusals.startpoints[at];
    MUST(all == known && refusals.connections == 0 && refusals.tampered == 0 && refusals.names > 0);
    IS(gambeson_link_domain_refusals(client, &refusals), OK);
    for (int at = 0; at < 32; at++) MUST(refusals.startpoints[at] == 0);
}

/* Narrowed, copied, revoked. */
static void startpoints(gambeson_link_domain *server, gambeson_link_domain *client, gambeson_link_endpoint *endpoint) {
    gambeson_link_capability *whole, *narrow, *copy, *stolen;
    gambeson_link_startpoint *link;
    uint8_t bytes[GAMBESON_LINK_CAPABILITY_BYTES], owner[32], key[32];
    uint32_t only[] = {ECHO};
    char text[64];
    size_t length;
    IS(gambeson_link_endpoint_startpoint(endpoint, NULL, 0, &whole), OK);
    IS(gambeson_link_capability_encode(whole, bytes, 1, &length), GAMBESON_LINK_STATUS_ROOM);
    IS(gambeson_link_capability_encode(whole, bytes, sizeof bytes, &length), OK);
    IS(gambeson_link_capability_decode(bytes, length, &narrow), OK);
    IS(gambeson_link_domain_key_hash(server, key), OK);
    IS(gambeson_link_capability_owner(narrow, owner), OK);
    MUST(memcmp(key, owner, 32) == 0);
    IS(gambeson_link_capability_holder(narrow, key), GAMBESON_LINK_STATUS_END);
    IS(gambeson_link_capability_class(narrow, text, sizeof text, &length), OK);
    MUST(strcmp(text, "fluxes") == 0 && length == 6);
    IS(gambeson_link_capability_transform(narrow, 0, text, sizeof text, &length), OK);
    MUST(strcmp(text, "zstd") == 0);
    IS(gambeson_link_capability_transform(narrow, 1, text, sizeof text, &length), GAMBESON_LINK_STATUS_END);
    IS(gambeson_link_capability_narrow_methods(narrow, only, 1), OK);
    IS(gambeson_link_capability_narrow_methods(narrow, NULL, 1), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_capability_narrow_uses(narrow, 1), OK);
    IS(gambeson_link_capability_narrow_expires(narrow, UINT64_C(4000000000)), OK);
    IS(gambeson_link_capability_narrow_protection(narrow, GAMBESON_LINK_PROTECTION_INTEGRITY), OK);
    gambeson_link_window windows[] = {{1, 0, 8, 3}, {1, 0, 0, 3}};
    IS(gambeson_link_capability_narrow_memory(narrow, windows, 2), GAMBESON_LINK_STATUS_STARTPOINT);
    IS(gambeson_link_capability_narrow_memory(narrow, NULL, 2), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_capability_narrow_memory(narrow, windows, 1), OK);
    IS(gambeson_link_domain_startpoint(client, narrow, 10, &link), OK);
    IS(gambeson_link_startpoint_call(link, REFUSE, NULL, 0, NULL, 0, NULL, 10), GAMBESON_LINK_STATUS_HANDLER);
    SAYS("handler");
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10), OK);
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10), GAMBESON_LINK_STATUS_HANDLER);
    SAYS("used up");
    gambeson_link_startpoint_free(link);
    gambeson_link_capability_free(narrow);

    IS(gambeson_link_domain_key_hash(client, key), OK);
    IS(gambeson_link_domain_copy_for(server, whole, key, &copy), OK);
    IS(gambeson_link_capability_holder(copy, owner), OK);
    MUST(memcmp(key, owner, 32) == 0);
    IS(gambeson_link_domain_copy_for(server, copy, key, &stolen), GAMBESON_LINK_STATUS_STARTPOINT);
    MUST(stolen == NULL);
    IS(gambeson_link_domain_startpoint(client, copy, 10, &link), OK);
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10), OK);
    gambeson_link_capability_free(copy);
    IS(gambeson_link_startpoint_capability(link, &copy), OK);
    IS(gambeson_link_endpoint_revoke(endpoint, whole), OK);
    IS(gambeson_link_endpoint_revoke(endpoint, whole), GAMBESON_LINK_STATUS_STARTPOINT);
    MUST(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10) != OK);
    SAYS("revoked");
    gambeson_link_startpoint_free(link);
    gambeson_link_capability_free(copy);
    gambeson_link_capability_free(whole);
}

/* Attached to by name: by a key, by a role, and by nobody else. */
static void names(gambeson_link_domain *server, gambeson_link_domain *client, gambeson_link_endpoint *endpoint) {
    const char *roles[] = {"nobody", "writer"};
    const uint8_t nobody[32] = {7};
    gambeson_link_capability *like;
    gambeson_link_startpoint *link, *none;
    char at[64];
    uint8_t key[32];
    uint32_t only[] = {ECHO};
    IS(gambeson_link_domain_key_hash(server, key), OK);
    IS(gambeson_link_domain_listening(server, 0, at, sizeof at, NULL), OK);
    IS(gambeson_link_endpoint_startpoint(endpoint, NULL, 0, &like), OK);
    IS(gambeson_link_capability_narrow_methods(like, only, 1), OK);
    IS(gambeson_link_endpoint_publish(endpoint, "model", roles, 2, like), OK);
    gambeson_link_capability_free(like);
    IS(gambeson_link_endpoint_publish(endpoint, "model", roles, 2, NULL), GAMBESON_LINK_STATUS_STARTPOINT);
    SAYS("already");
    IS(gambeson_link_endpoint_publish(endpoint, "hidden", roles, 1, NULL), OK);
    IS(gambeson_link_endpoint_publish(endpoint, "other", NULL, 1, NULL), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_endpoint_publish(endpoint, NULL, roles, 1, NULL), GAMBESON_LINK_STATUS_ARGUMENT);
    for (int by_role = 0; by_role < 2; by_role++) {
        IS(gambeson_link_domain_attach(client, at, by_role ? NULL : key, by_role ? "reader" : NULL, "model", 10, &link), OK);
        IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10), OK);
        IS(gambeson_link_startpoint_call(link, WHO, NULL, 0, NULL, 0, NULL, 10), GAMBESON_LINK_STATUS_HANDLER);
        if (!by_role) gambeson_link_startpoint_free(link);
    }
    IS(gambeson_link_domain_attach(client, at, key, NULL, "hidden", 10, &none), GAMBESON_LINK_STATUS_STARTPOINT);
    SAYS("has nothing published as");
    MUST(none == NULL);
    IS(gambeson_link_domain_attach(client, at, NULL, "emperor", "model", 10, &none), GAMBESON_LINK_STATUS_REFUSED);
    IS(gambeson_link_domain_attach(client, at, nobody, NULL, "model", 10, &none), GAMBESON_LINK_STATUS_REFUSED);
    IS(gambeson_link_domain_attach(client, at, NULL, NULL, "model", 10, &none), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_domain_attach(client, at, key, "reader", "model", 10, &none), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_domain_attach_host(client, "ocean1", "model", 10, &none), GAMBESON_LINK_STATUS_STARTPOINT);
    SAYS("directory");
    IS(gambeson_link_domain_attach_host(client, NULL, "model", 10, &none), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_domain_attach(client, "nowhere", nobody, NULL, "model", 10, &none), GAMBESON_LINK_STATUS_SYSTEM);
    IS(gambeson_link_endpoint_withdraw(endpoint, "model"), OK);
    IS(gambeson_link_endpoint_withdraw(endpoint, "model"), GAMBESON_LINK_STATUS_STARTPOINT);
    MUST(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10) != OK);
    SAYS("revoked");
    gambeson_link_startpoint_free(link);
}

/* Memory that startpoints reach, as far as their windows go. */
static void regions(gambeson_link_domain *client, gambeson_link_endpoint *endpoint) {
    gambeson_link_region *region;
    gambeson_link_capability *capability;
    gambeson_link_startpoint *link;
    gambeson_link_pending *pending;
    uint64_t number, length;
    uint8_t bytes[16];
    const void *came;
    size_t size;
    IS(gambeson_link_endpoint_region(endpoint, "0123456789abcdef", 16, &region), OK);
    IS(gambeson_link_region_number(region, &number), OK);
    IS(gambeson_link_region_length(region, &length), OK);
    MUST(length == 16);
    gambeson_link_window window = {number, 4, 8, 3};
    IS(gambeson_link_endpoint_startpoint(endpoint, &window, 1, &capability), OK);
    IS(gambeson_link_domain_startpoint(client, capability, 10, &link), OK);
    IS(gambeson_link_startpoint_get(link, number, 4, bytes, 8, 10), OK);
    MUST(memcmp(bytes, "456789ab", 8) == 0);
    MUST(gambeson_link_startpoint_get(link, number, 0, bytes, 8, 10) != OK);
    SAYS("memory");
    IS(gambeson_link_startpoint_put(link, number, 4, "PUT", 3, 10), OK);
    IS(gambeson_link_startpoint_put_one_way(link, number, 7, "way", 3), OK);
    IS(gambeson_link_startpoint_start_put(link, number, 10, "zz", 2, &pending), OK);
    IS(gambeson_link_pending_wait(pending, 10), OK);
    gambeson_link_pending_free(pending);
    IS(gambeson_link_startpoint_start_get(link, number, 4, 8, &pending), OK);
    IS(gambeson_link_pending_wait(pending, 10), OK);
    IS(gambeson_link_pending_answer(pending, &came, &size), OK);
    MUST(size == 8 && memcmp(came, "PUTwayzz", 8) == 0);
    gambeson_link_pending_free(pending);
    IS(gambeson_link_region_write(region, 0, "new", 3), OK);
    IS(gambeson_link_region_read(region, 0, bytes, 16), OK);
    MUST(memcmp(bytes, "new3PUTwayzzcdef", 16) == 0);
    IS(gambeson_link_region_read(region, 1, bytes, 16), GAMBESON_LINK_STATUS_STARTPOINT);
    IS(gambeson_link_region_write(region, 0, NULL, 3), GAMBESON_LINK_STATUS_ARGUMENT);
    gambeson_link_region_free(region);
    IS(gambeson_link_endpoint_region(endpoint, NULL, SIZE_MAX, &region), GAMBESON_LINK_STATUS_ARGUMENT);
    gambeson_link_region_free(region);
    MUST(gambeson_link_startpoint_put(link, number, 4, "gone", 4, 10) != OK);
    gambeson_link_startpoint_free(link);
    gambeson_link_capability_free(capability);
}

/* One endpoint under two startpoints, as a group, and a third member that answers nothing. */
static void groups(gambeson_link_domain *client, gambeson_link_endpoint *endpoint, size_t *counted) {
    gambeson_link_capability *members[3];
    gambeson_link_group *group;
    gambeson_link_results *results;
    uint32_t nothing = 1000;
    int64_t number = 21, sum;
    const void *came;
    size_t size, before = __atomic_load_n(counted, __ATOMIC_SEQ_CST);
    for (int at = 0; at < 3; at++) IS(gambeson_link_endpoint_startpoint(endpoint, NULL, 0, &members[at]), OK);
    IS(gambeson_link_domain_group(client, NULL, 2, false, &group), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_domain_group(client, (const gambeson_link_capability *const *)members, 2, false, &group), OK);
    IS(gambeson_link_group_length(group, &size), OK);
    MUST(size == 2);
    IS(gambeson_link_group_reduce(group, ECHO, &number, 8, GAMBESON_LINK_OPERATION_SUM_I64, &sum, 8, &size, 10), OK);
    MUST(size == 8 && sum == 42);
    IS(gambeson_link_group_reduce(group, ECHO, &number, 8, 99, &sum, 8, &size, 10), GAMBESON_LINK_STATUS_ARGUMENT);
    size_t combined = 0;
    const uint8_t one[101] = {1};
    uint8_t sums[101];
    gambeson_link_own_operation own = {"sum-bytes", sum_bytes, &combined}, bad = {"+sum", sum_bytes, NULL};
    IS(gambeson_link_group_reduce_own(group, ECHO, one, 1, &own, sums, sizeof sums, &size, 10), OK);
    MUST(size == 1 && sums[0] == 2 && combined == 1);
    IS(gambeson_link_group_reduce_own(group, ECHO, one, 101, &own, sums, sizeof sums, &size, 10),
       GAMBESON_LINK_STATUS_HANDLER);
    SAYS("too many bytes");
    IS(gambeson_link_group_reduce_own(group, ECHO, one, 1, &bad, sums, sizeof sums, &size, 10),
       GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_group_reduce_own(group, ECHO, one, 1, NULL, sums, sizeof sums, &size, 10),
       GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_group_send(group, COUNT, "12345", 5, 10, &results), OK);
    for (size_t at = 0; at < 2; at++) IS(gambeson_link_results_get(results, at, &came, &size), OK);
    gambeson_link_results_free(results);
    while (__atomic_load_n(counted, __ATOMIC_SEQ_CST) != before + 10) rest(1);
    gambeson_link_group_free(group);
    IS(gambeson_link_capability_narrow_methods(members[2], &nothing, 1), OK);
    IS(gambeson_link_domain_group(client, (const gambeson_link_capability *const *)members, 3, true, &group), OK);
    IS(gambeson_link_group_call(group, ECHO, "all", 3, 10, &results), OK);
    for (size_t at = 0; at < 2; at++) {
        IS(gambeson_link_results_get(results, at, &came, &size), OK);
        MUST(size == 3 && memcmp(came, "all", 3) == 0);
    }
    MUST(gambeson_link_results_get(results, 2, &came, &size) != OK);
    SAYS("handler");
    IS(gambeson_link_results_get(results, 3, &came, &size), GAMBESON_LINK_STATUS_END);
    gambeson_link_results_free(results);
    gambeson_link_group_free(group);
    for (int at = 0; at < 3; at++) gambeson_link_capability_free(members[at]);
}

/* A group that goes by a tree: answers are combined where messages are passed on, too. */
static void passed_on(gambeson_link_domain *client, gambeson_link_endpoint *endpoint, size_t *combined) {
    enum { MEMBERS = 20 };
    gambeson_link_capability *members[MEMBERS];
    gambeson_link_group *group;
    size_t size, here = 0;
    const uint8_t one = 1;
    uint8_t sum;
    gambeson_link_own_operation own = {"sum-bytes", sum_bytes, &here};
    for (int at = 0; at < MEMBERS; at++) IS(gambeson_link_endpoint_startpoint(endpoint, NULL, 0, &members[at]), OK);
    for (int flat = 0; flat < 2; flat++) {
        IS(gambeson_link_domain_group(client, (const gambeson_link_capability *const *)members, MEMBERS, flat, &group), OK);
        IS(gambeson_link_group_reduce_own(group, ECHO, &one, 1, &own, &sum, 1, &size, 10), OK);
        MUST(size == 1 && sum == MEMBERS);
        gambeson_link_group_free(group);
        size_t there = __atomic_exchange_n(combined, 0, __ATOMIC_SEQ_CST);
        MUST(flat ? there == 0 : there > 0);
        MUST(there + here == MEMBERS - 1);
        here = 0;
    }
    for (int at = 0; at < MEMBERS; at++) gambeson_link_capability_free(members[at]);
}

/* Who answers nothing unless it is asked to. */
static void *serve_by_hand(void *given) {
    void **parts = given;
    bool any;
    while (!__atomic_load_n((int *)parts[1], __ATOMIC_SEQ_CST))
        IS(gambeson_link_domain_progress(parts[0], 0.01, &any), OK);
    return NULL;
}

int main(int word_count, char **words) {
    MUST(word_count == 2);
    gambeson_link_identity *bob, *alice;
    gambeson_link_attributes *attributes;
    gambeson_link_handlers *handlers;
    gambeson_link_endpoint *endpoint;
    gambeson_link_capability *capability;
    gambeson_link_startpoint *link, *plain;
    gambeson_link_endpoint *plain_endpoint;
    uint8_t bobs[32], alices[32];
    char address[64];
    size_t counted = 0, combined = 0, length;
    long milliseconds = 100;
    pthread_t keeper;
    nonsense();

    IS(gambeson_link_identity_generate(&bob), OK);
    IS(gambeson_link_identity_generate(&alice), OK);
    IS(gambeson_link_identity_key_hash(bob, bobs), OK);
    IS(gambeson_link_identity_key_hash(alice, alices), OK);
    gambeson_link_domain *server = open_domain(bobs, alices, bob, "alice", "127.0.0.1:0", GAMBESON_LINK_PROGRESS_AUTO);
    gambeson_link_domain *client = open_domain(alices, bobs, alice, "bob", NULL, GAMBESON_LINK_PROGRESS_MANUAL);
    IS(gambeson_link_domain_listening(server, 0, address, sizeof address, &length), OK);
    MUST(strncmp(address, "127.0.0.1:", 10) == 0 && strlen(address) == length);
    IS(gambeson_link_domain_listening(server, 1, address, sizeof address, &length), GAMBESON_LINK_STATUS_END);

    IS(gambeson_link_attributes_new(&attributes), OK);
    IS(gambeson_link_attributes_class(attributes, "fluxes"), OK);
    IS(gambeson_link_attributes_transform(attributes, "zstd"), OK);
    IS(gambeson_link_attributes_transform(attributes, NULL), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_attributes_message_max(attributes, 1 << 20), OK);
    IS(gambeson_link_attributes_protection(attributes, GAMBESON_LINK_PROTECTION_PRIVACY), OK);
    policy_is_kept(server, client);
    IS(gambeson_link_handlers_new(&handlers), OK);
    IS(gambeson_link_handlers_inline(handlers, ECHO, NULL, NULL), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_handlers_inline(handlers, ECHO, echo, NULL), OK);
    const gambeson_link_own_operation sum = {"sum-bytes", sum_bytes, &combined}, none = {NULL, sum_bytes, NULL};
    IS(gambeson_link_handlers_forwards(handlers, &none, 1), GAMBESON_LINK_STATUS_ARGUMENT);
    IS(gambeson_link_handlers_forwards(handlers, &sum, 1), OK);
    IS(gambeson_link_handlers_inline(handlers, COUNT, count, &counted), OK);
    IS(gambeson_link_handlers_inline(handlers, WHO, who, alices), OK);
    IS(gambeson_link_handlers_inline(handlers, REFUSE, refuse, NULL), OK);
    IS(gambeson_link_handlers_inline(handlers, ITEMS, items, NULL), OK);
    IS(gambeson_link_handlers_threaded(handlers, STREAM, stream, NULL), OK);
    IS(gambeson_link_handlers_threaded(handlers, SLOW, slow, &milliseconds), OK);
    IS(gambeson_link_handlers_threaded(handlers, KEEP, keep, &keeper), OK);
    IS(gambeson_link_domain_endpoint(server, attributes, handlers, &endpoint), OK);
    gambeson_link_attributes_free(attributes);

    IS(gambeson_link_endpoint_startpoint(endpoint, NULL, 0, &capability), OK);
    IS(gambeson_link_domain_startpoint(client, capability, 10, &link), OK);
    int stop = 0;
    void *parts[] = {client, &stop};
    pthread_t progress;
    IS(pthread_create(&progress, NULL, serve_by_hand, parts), 0);
    requests(link, &counted);
    plain = plain_link(server, client, "data", NULL, &counted, &plain_endpoint);
    gathered(link, &counted);
    gathered(plain, &counted);
    packs(link, &counted, true);
    packs(plain, &counted, false);
    gambeson_link_startpoint_free(plain);
    modules(server, client, &counted);
    startpoints(server, client, endpoint);
    names(server, client, endpoint);
    regions(client, endpoint);
    groups(client, endpoint, &counted);
    passed_on(client, endpoint, &combined);
    transports(client, endpoint);
    refusals_are_counted(server, client);
    policies(server, client, words[1], &counted);
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    IS(pthread_join(progress, NULL), 0);
    IS(pthread_join(keeper, NULL), 0);

    gambeson_link_endpoint_free(endpoint);
    gambeson_link_endpoint_free(plain_endpoint);
    gambeson_link_domain_free(server);
    IS(gambeson_link_startpoint_call(link, ECHO, NULL, 0, NULL, 0, NULL, 10), GAMBESON_LINK_STATUS_LOST);
    SAYS("bob");
    gambeson_link_startpoint_free(link);
    gambeson_link_capability_free(capability);
    gambeson_link_domain_free(client);
    MUST(__atomic_load_n(&numbered_links, __ATOMIC_SEQ_CST) == 0);
    puts("all ok");
    return 0;
}
