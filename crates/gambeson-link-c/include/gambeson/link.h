/* Links between the processes of distributed programs, with a security context each: docs/links.md,
 * docs/reference/links.md. Written by `make reference`; do not edit.
 *
 * Functions return a status. What is filled in is filled in with GAMBESON_LINK_STATUS_OK alone, unless it is said
 * otherwise, and handles are null after a failure. gambeson_link_error() has the sentence behind it.
 *
 * A pointer is null, which is an error where something is needed, or leads to what its name says, with as many bytes as
 * the length beside it says; texts are UTF-8 with a zero byte at their end. Handles come from the functions here, are
 * freed once by their own function, and are not used afterwards. Threads may share domains, endpoints and startpoints;
 * everything else belongs to one thread at a time. What a function takes over, it takes whatever it returns. */

#ifndef GAMBESON_LINK_H
#define GAMBESON_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Room enough for any startpoint's bytes.
#define GAMBESON_LINK_CAPABILITY_BYTES 4096

// Stands for all processes that were started together.
#define GAMBESON_LAUNCH_ALL UINT32_MAX

// What every function returns; `gambeson_link_error` has the sentence behind what is not `OK`, `PENDING` or `END`.
typedef enum {
    // It worked.
    GAMBESON_LINK_STATUS_OK = 0,
    // Not yet: ask or wait again.
    GAMBESON_LINK_STATUS_PENDING = 1,
    // A stream of answers is at its end.
    GAMBESON_LINK_STATUS_END = 2,
    // An argument is null or makes no sense.
    GAMBESON_LINK_STATUS_ARGUMENT = 3,
    // The answer or text is longer than the room for it; its length was filled in.
    GAMBESON_LINK_STATUS_ROOM = 4,
    // An own certificate, key, list of authorities or site directory is not usable.
    GAMBESON_LINK_STATUS_IDENTITY = 5,
    // The other end is not who it should be, or does not accept us.
    GAMBESON_LINK_STATUS_REFUSED = 6,
    // The bytes are not what a domain sends: altered on the way, or of another version.
    GAMBESON_LINK_STATUS_PROTOCOL = 7,
    // A startpoint does not allow it.
    GAMBESON_LINK_STATUS_STARTPOINT = 8,
    // The handler at the endpoint says no.
    GAMBESON_LINK_STATUS_HANDLER = 9,
    // Nothing came in time.
    GAMBESON_LINK_STATUS_TIMED_OUT = 10,
    // The other end is gone.
    GAMBESON_LINK_STATUS_LOST = 11,
    // The operating system says no.
    GAMBESON_LINK_STATUS_SYSTEM = 12,
    // A defect of this library. The call had no further effect.
    GAMBESON_LINK_STATUS_DEFECT = 13,
    // A transform module is missing, or does not take a message.
    GAMBESON_LINK_STATUS_TRANSFORM = 14,
    // It is not the message that it was to be.
    GAMBESON_LINK_STATUS_MESSAGE = 15,
    // A policy is not usable.
    GAMBESON_LINK_STATUS_POLICY = 16,
} gambeson_link_status;

// Which end of a link we are.
typedef enum {
    // The one that opened it. Of a control link: the one that opened the session.
    GAMBESON_LINK_END_STARTPOINT = 0,
    // The one it was opened to.
    GAMBESON_LINK_END_ENDPOINT = 1,
} gambeson_link_end;

// How two answers become one. It is applied in the members' order, so it need not be commutative; and in a grouping
// that depends on their number alone, so that sums of floating-point numbers are the same each time.
typedef enum {
    // One answer behind the other.
    GAMBESON_LINK_OPERATION_CONCATENATE = 0,
    // The sums of arrays of `i64`, little-endian, element by element; they wrap around.
    GAMBESON_LINK_OPERATION_SUM_I64 = 1,
    // The least of each element of arrays of `i64`, little-endian.
    GAMBESON_LINK_OPERATION_MIN_I64 = 2,
    // The greatest of each element of arrays of `i64`, little-endian.
    GAMBESON_LINK_OPERATION_MAX_I64 = 3,
    // The sums of arrays of `f64`, little-endian, element by element.
    GAMBESON_LINK_OPERATION_SUM_F64 = 4,
    // The least of each element of arrays of `f64`, little-endian; NaN if one is.
    GAMBESON_LINK_OPERATION_MIN_F64 = 5,
    // The greatest of each element of arrays of `f64`, little-endian; NaN if one is.
    GAMBESON_LINK_OPERATION_MAX_F64 = 6,
} gambeson_link_operation;

// Who moves bytes while the program computes (libfabric's FI_PROGRESS_MANUAL and FI_PROGRESS_AUTO).
typedef enum {
    // A thread of the domain's own.
    GAMBESON_LINK_PROGRESS_AUTO = 0,
    // The program, whenever it calls or waits: the shortest way, and nothing happens in between.
    GAMBESON_LINK_PROGRESS_MANUAL = 1,
} gambeson_link_progress;

// How the messages of a pair are protected, strongest first.
typedef enum {
    // Sealed: nobody reads or alters.
    GAMBESON_LINK_PROTECTION_PRIVACY = 1,
    // Authenticated, in clear: nobody alters.
    GAMBESON_LINK_PROTECTION_INTEGRITY = 2,
    // Neither.
    GAMBESON_LINK_PROTECTION_NONE = 3,
} gambeson_link_protection;

// Why an activation or a request is refused. The numbers go over the wire.
typedef enum {
    // The bytes are no activation.
    GAMBESON_LINK_REFUSAL_MALFORMED = 1,
    // The link's number was used before in the session, or is not the opener's to use.
    GAMBESON_LINK_REFUSAL_REPLAYED = 2,
    // No such endpoint or startpoint, or no more.
    GAMBESON_LINK_REFUSAL_UNKNOWN = 3,
    // The opener lacks the startpoint's secret, or the two ends disagree on something.
    GAMBESON_LINK_REFUSAL_UNPROVEN = 4,
    // Bound to another domain's key than the session's.
    GAMBESON_LINK_REFUSAL_NOT_HOLDER = 5,
    // Copied by somebody who did not hold it.
    GAMBESON_LINK_REFUSAL_UNVOUCHED = 6,
    // It, or what it was copied from, was revoked.
    GAMBESON_LINK_REFUSAL_REVOKED = 7,
    // Its time is over.
    GAMBESON_LINK_REFUSAL_EXPIRED = 8,
    // The link would be less protected than it must be.
    GAMBESON_LINK_REFUSAL_UNPROTECTED = 9,
    // All its uses are used up.
    GAMBESON_LINK_REFUSAL_USED_UP = 10,
    // Not a handler that it may call.
    GAMBESON_LINK_REFUSAL_METHOD = 11,
    // Not memory that it may reach so.
    GAMBESON_LINK_REFUSAL_MEMORY = 12,
    // The endpoint keeps as much for this startpoint as it may.
    GAMBESON_LINK_REFUSAL_FULL = 13,
    // The memory region is not there, or not any more, or ends before the access does.
    GAMBESON_LINK_REFUSAL_ABSENT = 14,
    // A message longer than the endpoint takes.
    GAMBESON_LINK_REFUSAL_TOO_LONG = 15,
} gambeson_link_refusal;

// How to get to an address.
typedef enum {
    // TCP.
    GAMBESON_LINK_TRANSPORT_TCP = 1,
    // Shared memory on one host.
    GAMBESON_LINK_TRANSPORT_SHM = 2,
    // An endpoint of one of libfabric's providers.
    GAMBESON_LINK_TRANSPORT_FABRIC = 3,
} gambeson_link_transport;

// What a process has from its creator: a domain of their job, and what the creator gave it.
typedef struct gambeson_launch_child gambeson_launch_child;

// A program that starts processes.
typedef struct gambeson_launch_creator gambeson_launch_creator;

// Processes that were started together, numbered from 0.
typedef struct gambeson_launch_processes gambeson_launch_processes;

// A stream of answers; dropping it cancels the request.
//
// One thread at a time. It may outlive its startpoint's handle.
typedef struct gambeson_link_answers gambeson_link_answers;

// What an endpoint is made with, and its startpoints inherit.
typedef struct gambeson_link_attributes gambeson_link_attributes;

// A request at its endpoint, as an inline handler sees it.
//
// It is there until the handler returns.
typedef struct gambeson_link_call gambeson_link_call;

// A capability to an endpoint of another process, or of ours.
typedef struct gambeson_link_capability gambeson_link_capability;

// What a domain is opened with.
typedef struct gambeson_link_config gambeson_link_config;

// A process's place among links.
//
// Freed, it closes. What belongs to it and is used afterwards says that the link is over.
typedef struct gambeson_link_domain gambeson_link_domain;

// Handlers that others can be given startpoints to. It stays as long as its domain, or until it is dropped.
typedef struct gambeson_link_endpoint gambeson_link_endpoint;

// A set of endpoints that are called together, with their order.
//
// Threads may share it.
typedef struct gambeson_link_group gambeson_link_group;

// The handlers of an endpoint, before it is there.
typedef struct gambeson_link_handlers gambeson_link_handlers;

// A domain's own key, with the certificate that shows it.
typedef struct gambeson_link_identity gambeson_link_identity;

// A message that a function of the program's own reads and writes.
//
// It is there until that function returns.
typedef struct gambeson_link_message gambeson_link_message;

// A request that is being packed. It belongs to the thread that began it, whose other requests over this link are
// refused meanwhile: they would wait for it. Any thread may drop it.
//
// It may outlive its startpoint's handle.
typedef struct gambeson_link_pack gambeson_link_pack;

// Who is at the other end of a session, proved.
//
// It belongs to the call or request that it was asked of, and is there as long as that.
typedef struct gambeson_link_peer gambeson_link_peer;

// A request that is under way; dropping it cancels it. A future, too, with `GAMBESON_LINK_PROGRESS_AUTO`.
//
// One thread at a time. It may outlive its startpoint's handle.
typedef struct gambeson_link_pending gambeson_link_pending;

// A resolved policy: what every process of the job obeys.
//
// It does not change; domains have copies.
typedef struct gambeson_link_policy gambeson_link_policy;

// Memory of an endpoint that startpoints reach, as far as their windows go. It is there as long as somebody holds it;
// clones are the same memory.
//
// Threads may share it. Freed, it is gone, and who reaches for it is refused.
typedef struct gambeson_link_region gambeson_link_region;

// A request at its endpoint, as a threaded or queued handler gets it.
//
// It is the handler's to keep, and to answer from any thread, also later; what ends it frees it.
typedef struct gambeson_link_request gambeson_link_request;

// What the members of a group answered, in their order.
typedef struct gambeson_link_results gambeson_link_results;

// One end of a link, from which remote service requests go to its endpoint. It is released when it is dropped.
//
// Threads may share it.
typedef struct gambeson_link_startpoint gambeson_link_startpoint;

// Whom a domain talks to. Without anything it talks to nobody.
typedef struct gambeson_link_trust gambeson_link_trust;

// How often a domain refused something since it was opened.
typedef struct {
    // Connections of those who did not prove that they may talk to it, spoke something else or nothing.
    uint64_t connections;
    // Connections given up, or sessions ended, because of what came over them: somebody on the way altered it.
    uint64_t tampered;
    // Names that somebody asked for and may not have, or under which nothing is published.
    uint64_t names;
    // Startpoints and requests, by `gambeson_link_refusal`. Places of no reason have 0.
    uint64_t startpoints[32];
} gambeson_link_refusals;

// What a handler that is not threaded is: it runs in the domain's thread or, with manual progress, in whoever makes some.
// It must not wait, and no exception may leave it.
typedef void (*gambeson_link_inline_handler)(gambeson_link_call *call, void *user);

// What a threaded handler is: it runs in a thread of the domain's pool, several at a time, and owns the request. No
// exception may leave it.
typedef void (*gambeson_link_threaded_handler)(gambeson_link_request *request, void *user);

// An own one. Endpoints that pass messages on are given it with `gambeson_link_handlers_forwards`, under the same name
// of 1 to 64 bytes, which must not begin with `+`; where it is missing, answers are passed on as they are.
typedef struct {
    // 1 to 64 bytes, the same at all ends, which do not begin with `+`.
    const char *name;
    // Makes `combined`, which is empty, of two answers, of which `one` is the earlier member's. It runs in threads of the
    // library's, several at a time. No exception may leave it.
    void (*combine)(const void *one,
                    size_t one_length,
                    const void *other,
                    size_t other_length,
                    gambeson_link_message *combined,
                    void *user);
    // Given to the function.
    void *user;
} gambeson_link_own_operation;

// Part of a memory region, with what may be done in it.
typedef struct {
    // Number of the region at its owner.
    uint64_t region;
    // First byte.
    uint64_t offset;
    // Bytes; not zero.
    uint64_t length;
    // 1 to read, 2 to write, 3 for both.
    uint8_t rights;
} gambeson_link_window;

// Bytes somewhere in memory, as `struct iovec` has them.
typedef struct {
    // The first of them; null if there are none.
    const void *start;
    // How many.
    size_t length;
} gambeson_link_piece;

// A module that transforms the messages of links: compression, an own encoding, a cipher or a checksum beside those
// that are there.
//
// Its functions run with the domain locked, in whatever thread moves its bytes, one at a time: they must not wait, and
// use nothing of the library but what reads and alters the message. No exception may leave them. What the other end sent may have
// been made with malice.
typedef struct {
    // By what endpoints name it: printable ASCII without spaces and commas. All names of one stack have 64 characters,
    // commas between them included.
    const char *name;
    // A link begins, and this is that end of it, a `gambeson_link_end`. What it returns is the link's state in both
    // directions. Null if there is nothing to do; `gambeson_link_message_fail` says that the link does not come about, and
    // nothing is closed then.
    void *(*open)(uint32_t end, gambeson_link_message *failure, void *user);
    // Transforms what goes out from this end, each message once and in the order of the link.
    void (*apply)(gambeson_link_message *message, void *state, void *user);
    // Undoes what the other end's `apply` did, in the same order; `most` bytes are the most that may become of it.
    void (*restore)(gambeson_link_message *message, size_t most, void *state, void *user);
    // The link is over: frees its state. Null if there is nothing to do.
    void (*close)(void *state, void *user);
    // Whether what becomes of a message depends on the ones before. Then a message that fails is the last of its link in
    // that direction.
    bool remembers;
    // Given to all of them.
    void *user;
} gambeson_link_transform;

// Processes that are wanted. Lists end with a null, as those of execve(2); set everything else that is not needed to zero.
typedef struct {
    // Where: each `NAME`, or `NAME=ADDRESS:PORT` where its daemon listens elsewhere.
    const char *const *hosts;
    // How many on each host.
    uint32_t count;
    // Where they start; the account's home if it is null.
    const char *directory;
    // A path, or a name to look for in `PATH`; the first of `argv` if it is null.
    const char *executable;
    // All of argv, the name by which it is called first.
    const char *const *argv;
    // Variables, each `NAME=VALUE`; nothing else of this program's goes along.
    const char *const *environment;
    // The account to use there; the creator's own if it is null.
    const char *account;
    // Whether they have a standard input (`gambeson_launch_processes_input`).
    bool input;
    // What each of them finds (`gambeson_launch_child_context`).
    const void *context;
    // Its length.
    size_t context_length;
    // Where the initial link of each leads: a startpoint to an endpoint of the creator's domain, or null.
    const gambeson_link_capability *creator;
} gambeson_launch_wanted;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Why something with a link did not work.
//
// Of the last call on this thread that failed; empty if none did. It is there until the next one does.
const char *gambeson_link_error(void);

// A fresh Ed25519 key in a certificate of its own: what ranks of a job use, and whoever is known by a pinned key.
gambeson_link_status gambeson_link_identity_generate(gambeson_link_identity **identity);

// A certificate with its chain and its private key, both in PEM (RFC 7468). In the place of a key that is in a token
// stands a line with its PKCS #11 URI (RFC 7512): the token is opened, by the module that the URI names.
gambeson_link_status gambeson_link_identity_from_pem(const void *chain,
                                                     size_t chain_length,
                                                     const void *key,
                                                     size_t key_length,
                                                     gambeson_link_identity **identity);

// By what others know this domain.
//
// It has 32 bytes.
gambeson_link_status gambeson_link_identity_key_hash(const gambeson_link_identity *identity, uint8_t *hash);

// Frees an identity that no configuration took. Null is nothing to free.
void gambeson_link_identity_free(gambeson_link_identity *identity);

// Makes one that accepts nobody yet.
gambeson_link_status gambeson_link_trust_new(gambeson_link_trust **trust);

// Accepts who proves that it has this job's secret; its roles are `rank`. Both ends need the job.
//
// `job` has 16 bytes and is no secret; `secret` and `policy_hash` have 32. The secret should be wiped afterwards.
gambeson_link_status gambeson_link_trust_job(gambeson_link_trust *trust,
                                             const uint8_t *job,
                                             const uint8_t *secret,
                                             const uint8_t *policy_hash);

// Accepts the owner of this public key, under a name and with roles.
//
// `key` has 32 bytes. `roles` are texts, as many as `role_count`.
gambeson_link_status gambeson_link_trust_pinned(gambeson_link_trust *trust,
                                                const uint8_t *key,
                                                const char *name,
                                                const char *const *roles,
                                                size_t role_count);

// Accepts certificates that these authorities signed, for servers and for clients. The roles are what its URIs of the
// form `gambeson:role:NAME` name, and `dns:NAME` for each of its DNS names, in small letters. The name is the
// certificate's first DNS name, or else the last of its roles.
gambeson_link_status gambeson_link_trust_authorities(gambeson_link_trust *trust, const void *pem, size_t length);

// Frees a trust that no configuration took. Null is nothing to free.
void gambeson_link_trust_free(gambeson_link_trust *trust);

// Its public key.
//
// It has 32 bytes.
gambeson_link_status gambeson_link_peer_key(const gambeson_link_peer *peer, uint8_t *hash);

// What it is known by: `rank` of the job, the pinned key's name, or the certificate's.
//
// Writes the text with a zero byte at its end; `length`, unless it is null, gets its bytes without that one.
gambeson_link_status gambeson_link_peer_name(const gambeson_link_peer *peer, char *name, size_t room, size_t *length);

// What it may be asked to be.
//
// The one at place `at`, from 0 on, as `gambeson_link_peer_name` does; `END` when there are not so many.
gambeson_link_status gambeson_link_peer_role(const gambeson_link_peer *peer,
                                             size_t at,
                                             char *role,
                                             size_t room,
                                             size_t *length);

// The host that it says it is on; vouched for by whoever vouches for it.
//
// As `gambeson_link_peer_name` does.
gambeson_link_status gambeson_link_peer_host(const gambeson_link_peer *peer, char *host, size_t room, size_t *length);

// The address that it says its host has, if it does: what policy rules about subnets go by.
//
// As `gambeson_link_peer_name` does; `END` if it does not.
gambeson_link_status gambeson_link_peer_address(const gambeson_link_peer *peer,
                                                char *address,
                                                size_t room,
                                                size_t *length);

// Parses and resolves one document that stands alone, without a floor.
//
// `document` is the text of a `gambeson.toml`; sentences about it name `origin`.
gambeson_link_status gambeson_link_policy_parse(const char *document,
                                                const char *origin,
                                                gambeson_link_policy **policy);

// Reads a policy from a `gambeson.toml` that nobody but its owner and root can write.
gambeson_link_status gambeson_link_policy_read(const char *path, gambeson_link_policy **policy);

// Frees a policy. Null is nothing to free.
void gambeson_link_policy_free(gambeson_link_policy *policy);

// How its links are protected, by where they lead and by their class. Everything is sealed unless it says otherwise.
//
// `policy` stays the caller's.
gambeson_link_status gambeson_link_config_policy(gambeson_link_config *config, const gambeson_link_policy *policy);

// Follows another policy from now on. Links that are weaker than it allows end, and say why; the others stay as they
// are. The domains at the other ends keep theirs.
//
// `policy` stays the caller's.
gambeson_link_status gambeson_link_domain_set_policy(const gambeson_link_domain *domain,
                                                     const gambeson_link_policy *policy);

// A domain that listens nowhere, moves bytes by itself and seals everything.
//
// It takes `identity` and `trust` over, whatever it returns: they are not to be used or freed any more.
gambeson_link_status gambeson_link_config_new(gambeson_link_identity *identity,
                                              gambeson_link_trust *trust,
                                              gambeson_link_config **config);

// A domain of the job that this process belongs to: a fresh key, the job's secret to prove, its rank and host, and the
// policy of the job, and the directory of the site that the job was started at. It listens nowhere yet.
gambeson_link_status gambeson_link_config_from_job(gambeson_link_config **config);

// Goes by the directory of the site that this host is of: `/etc/gambeson/directory.toml`, which the owner of
// `/etc/gambeson/site.pub` has signed. A host without a site's key is of none, and the policy decides alone.
gambeson_link_status gambeson_link_config_site(gambeson_link_config *config);

// Goes by this directory, which the owner of the key in the other file has signed. When its time is over no session
// begins, until a newer one lies in its place.
gambeson_link_status gambeson_link_config_directory(gambeson_link_config *config,
                                                    const char *file,
                                                    const char *site_key);

// Listens there too; port 0 takes a free one.
//
// `address` is `10.1.2.3:4000`, `[::1]:4000`, or a host's name and a port.
gambeson_link_status gambeson_link_config_listen(gambeson_link_config *config, const char *address);

// The host it is on, for people and policies.
gambeson_link_status gambeson_link_config_host(gambeson_link_config *config, const char *host);

// The address of its host that it states, for policy rules about subnets; without one the first that it listens on, if
// that is one that others can reach. Of who states none, the stronger answer holds.
//
// An address such as `10.1.2.3` or `fd00::1`, without a port.
gambeson_link_status gambeson_link_config_address(gambeson_link_config *config, const char *address);

// Its rank in the job, if it has one.
gambeson_link_status gambeson_link_config_rank(gambeson_link_config *config, uint32_t rank);

// Whether processes of this host may come over shared memory, too, if it listens at all.
//
// They may, unless it is said otherwise.
gambeson_link_status gambeson_link_config_shm(gambeson_link_config *config, bool shm);

// Who moves bytes.
//
// A `gambeson_link_progress`; `AUTO` unless it is said otherwise.
gambeson_link_status gambeson_link_config_progress(gambeson_link_config *config, uint32_t progress);

// The weakest protection that any link of this domain may have. Links of class `control` have
// `GAMBESON_LINK_PROTECTION_INTEGRITY` at least, whatever this says.
//
// A `gambeson_link_protection`; `PRIVACY` unless it is said otherwise.
gambeson_link_status gambeson_link_config_weakest(gambeson_link_config *config, uint32_t weakest);

// How long a session that lost its connection waits for another one before it is over.
//
// In seconds; a minute unless it is said otherwise.
gambeson_link_status gambeson_link_config_patience(gambeson_link_config *config, double patience);

// After how long a connection is given up over which a peer says nothing that owes an answer.
//
// In seconds; 20 unless it is said otherwise.
gambeson_link_status gambeson_link_config_silence(gambeson_link_config *config, double silence);

// Frees a configuration that no domain took. Null is nothing to free.
void gambeson_link_config_free(gambeson_link_config *config);

// Opens a domain.
//
// It takes `config` over, whatever it returns: it is not to be used or freed any more.
gambeson_link_status gambeson_link_domain_open(gambeson_link_config *config, gambeson_link_domain **domain);

// By what others know this domain.
//
// It has 32 bytes.
gambeson_link_status gambeson_link_domain_key_hash(const gambeson_link_domain *domain, uint8_t *hash);

// Where it listens for other hosts.
//
// The address at place `at`, from 0 on, with a zero byte at its end; `END` when there are not so many. `length`, unless
// it is null, gets its bytes without that one.
gambeson_link_status gambeson_link_domain_listening(const gambeson_link_domain *domain,
                                                    size_t at,
                                                    char *address,
                                                    size_t room,
                                                    size_t *length);

// A copy of a startpoint for another domain, and for it alone: stolen bytes of it open nothing. It descends from this
// one: what narrows or ends this one narrows or ends the copy.
//
// `holder` has 32 bytes.
gambeson_link_status gambeson_link_domain_copy_for(const gambeson_link_domain *domain,
                                                   const gambeson_link_capability *capability,
                                                   const uint8_t *holder,
                                                   gambeson_link_capability **copy);

// Does what there is to do: takes what has come, runs handlers, sends what waits. With `GAMBESON_LINK_PROGRESS_MANUAL`
// nothing else does. Waits for it at most so long; whether there was anything.
//
// `wait` is in seconds; `any`, unless it is null, is told whether there was something.
gambeson_link_status gambeson_link_domain_progress(const gambeson_link_domain *domain, double wait, bool *any);

// Closes a domain and frees it. Null is nothing to free. Not from a handler of its own.
void gambeson_link_domain_free(gambeson_link_domain *domain);

// What it refused so far, by reason.
gambeson_link_status gambeson_link_domain_refusals(const gambeson_link_domain *domain,
                                                   gambeson_link_refusals *refusals);

// Makes attributes of class `data`, protected as the policy says, for messages of up to 64 MiB.
gambeson_link_status gambeson_link_attributes_new(gambeson_link_attributes **attributes);

// The class of its links, by which policy rules go; up to 32 letters, digits, `-`, `_` and `.`.
gambeson_link_status gambeson_link_attributes_class(gambeson_link_attributes *attributes, const char *name);

// How its links are protected at the least, whatever the policies of both ends say.
//
// A `gambeson_link_protection`.
gambeson_link_status gambeson_link_attributes_protection(gambeson_link_attributes *attributes, uint32_t protection);

// The longest message that it takes, in bytes, as the handler gets it. What is longer is refused, and its link goes
// on.
gambeson_link_status gambeson_link_attributes_message_max(gambeson_link_attributes *attributes, size_t bytes);

// Sends requests and answers through this module, behind those that were named before and in front of the protection,
// which is always there. `zstd` is one of every domain; more come with `gambeson_link_config_transform`.
gambeson_link_status gambeson_link_attributes_transform(gambeson_link_attributes *attributes, const char *name);

// Frees attributes. Null is nothing to free.
void gambeson_link_attributes_free(gambeson_link_attributes *attributes);

// None yet.
gambeson_link_status gambeson_link_handlers_new(gambeson_link_handlers **handlers);

// A handler that runs where the request arrives, between two others: the fastest way, for what only answers. It must
// not wait for anything, and may not use its own domain but to answer.
//
// `user` is given to it, and must stay as long as the domain.
gambeson_link_status gambeson_link_handlers_inline(gambeson_link_handlers *handlers,
                                                   uint32_t number,
                                                   gambeson_link_inline_handler handler,
                                                   void *user);

// A handler that runs on a thread of its own among few, and may do what it likes.
//
// `user` is given to it, and must stay as long as the domain and the requests that handlers keep.
gambeson_link_status gambeson_link_handlers_threaded(gambeson_link_handlers *handlers,
                                                     uint32_t number,
                                                     gambeson_link_threaded_handler handler,
                                                     void *user);

// Passes messages of groups on (`gambeson_link_domain_group`), on threads of the domain's, and combines the answers,
// also by these operations of the program's own. Whoever may call that handler (`FORWARD`) has this domain connect
// where the startpoints lead that he hands it.
//
// `operations` are `count`, and stay the caller's; their functions, and what their `user` leads to, must stay as long as
// the domain.
gambeson_link_status gambeson_link_handlers_forwards(gambeson_link_handlers *handlers,
                                                     const gambeson_link_own_operation *operations,
                                                     size_t count);

// Frees handlers that no endpoint took. Null is nothing to free.
void gambeson_link_handlers_free(gambeson_link_handlers *handlers);

// Makes an endpoint.
//
// It takes `handlers` over, whatever it returns; `attributes` stay the caller's, and may be null: those of
// `gambeson_link_attributes_new`.
gambeson_link_status gambeson_link_domain_endpoint(const gambeson_link_domain *domain,
                                                   const gambeson_link_attributes *attributes,
                                                   gambeson_link_handlers *handlers,
                                                   gambeson_link_endpoint **endpoint);

// A startpoint to give away, for whoever holds it, narrowed so.
//
// It reaches `count` windows of memory regions, none if `windows` is null; `gambeson_link_capability_narrow_uses` and
// its like narrow it further.
gambeson_link_status gambeson_link_endpoint_startpoint(const gambeson_link_endpoint *endpoint,
                                                       const gambeson_link_window *windows,
                                                       size_t count,
                                                       gambeson_link_capability **capability);

// Puts this endpoint under a name, for who attaches to this domain (`gambeson_link_domain_attach`) and proves to have
// one of the roles: `rank` for processes of the job, else those of pinned keys and certificates. Each gets a
// startpoint narrowed so, bound to its own key; uses are counted over all of them.
//
// `roles` are texts, as many as `role_count`. Narrowed as `like` is, a startpoint of this endpoint, which stays the
// caller's; not at all, if it is null.
gambeson_link_status gambeson_link_endpoint_publish(const gambeson_link_endpoint *endpoint,
                                                    const char *name,
                                                    const char *const *roles,
                                                    size_t role_count,
                                                    const gambeson_link_capability *like);

// Takes a name away from this endpoint: all that was attached by it has ended.
gambeson_link_status gambeson_link_endpoint_withdraw(const gambeson_link_endpoint *endpoint, const char *name);

// Ends a startpoint of this endpoint and all that descend from it.
gambeson_link_status gambeson_link_endpoint_revoke(const gambeson_link_endpoint *endpoint,
                                                   const gambeson_link_capability *capability);

// Closes an endpoint and frees it. Null is nothing to free.
void gambeson_link_endpoint_free(gambeson_link_endpoint *endpoint);

// The handler's number.
gambeson_link_status gambeson_link_call_handler(const gambeson_link_call *call, uint32_t *handler);

// What was sent.
//
// The bytes are there until the handler returns.
gambeson_link_status gambeson_link_call_payload(const gambeson_link_call *call, const void **payload, size_t *length);

// Who sent it, proved.
const gambeson_link_peer *gambeson_link_call_peer(const gambeson_link_call *call);

// Whether the other end waits for an answer.
bool gambeson_link_call_wants_answer(const gambeson_link_call *call);

// Answers; of a stream, the last word. One-way requests take none.
gambeson_link_status gambeson_link_call_answer(gambeson_link_call *call, const void *answer, size_t length);

// Sends one of a stream of answers.
gambeson_link_status gambeson_link_call_item(gambeson_link_call *call, const void *item, size_t length);

// Ends a stream of answers.
gambeson_link_status gambeson_link_call_finish(gambeson_link_call *call);

// Says no, and why.
gambeson_link_status gambeson_link_call_refuse(gambeson_link_call *call, const char *why);

// The handler's number.
gambeson_link_status gambeson_link_request_handler(const gambeson_link_request *request, uint32_t *handler);

// What was sent.
//
// The bytes are there as long as the request.
gambeson_link_status gambeson_link_request_payload(const gambeson_link_request *request,
                                                   const void **payload,
                                                   size_t *length);

// Who sent it, proved.
const gambeson_link_peer *gambeson_link_request_peer(const gambeson_link_request *request);

// Whether nobody waits for an answer any more: the request was cancelled, it was one-way, or the link is over.
bool gambeson_link_request_is_cancelled(const gambeson_link_request *request);

// Answers; of a stream, the last word. One-way requests take none.
//
// It frees the request, whatever it returns.
gambeson_link_status gambeson_link_request_answer(gambeson_link_request *request, const void *answer, size_t length);

// Sends one of a stream of answers, and waits until its reader has room for it.
gambeson_link_status gambeson_link_request_item(gambeson_link_request *request, const void *item, size_t length);

// Says no, and why.
//
// It frees the request, whatever it returns.
gambeson_link_status gambeson_link_request_refuse(gambeson_link_request *request, const char *why);

// Frees a request: a stream of answers ends, and who waits for an answer hears that there is none. Null is nothing to
// free.
void gambeson_link_request_free(gambeson_link_request *request);

// Reads what `Startpoint::encode` wrote. Whether its endpoint takes it, only its owner can tell.
gambeson_link_status gambeson_link_capability_decode(const void *encoded,
                                                     size_t length,
                                                     gambeson_link_capability **capability);

// Its bytes, secret and all: they travel only where secrets may.
//
// `length` gets how many there are, also when there is too little room: `GAMBESON_LINK_CAPABILITY_BYTES` is always enough.
gambeson_link_status gambeson_link_capability_encode(const gambeson_link_capability *capability,
                                                     void *into,
                                                     size_t room,
                                                     size_t *length);

// The domain that owns the endpoint: sessions must lead there.
//
// The bytes of a public key's hash: 32.
gambeson_link_status gambeson_link_capability_owner(const gambeson_link_capability *capability, uint8_t *hash);

// The domain that it is bound to; `None` is a bearer's.
//
// The bytes of a public key's hash: 32. `END` for a bearer's.
gambeson_link_status gambeson_link_capability_holder(const gambeson_link_capability *capability, uint8_t *hash);

// The class of its links, by which policies choose.
//
// As `gambeson_link_peer_name` does.
gambeson_link_status gambeson_link_capability_class(const gambeson_link_capability *capability,
                                                    char *name,
                                                    size_t room,
                                                    size_t *length);

// The transform modules of its links.
//
// The one at place `at`, from 0 on, as `gambeson_link_peer_name` does; `END` when there are not so many.
gambeson_link_status gambeson_link_capability_transform(const gambeson_link_capability *capability,
                                                        size_t at,
                                                        char *name,
                                                        size_t room,
                                                        size_t *length);

// Only these handlers, in whatever order.
gambeson_link_status gambeson_link_capability_narrow_methods(gambeson_link_capability *capability,
                                                             const uint32_t *handlers,
                                                             size_t count);

// So many requests, counted over everything that descends from here. The endpoint keeps the count until the earliest
// expiry that stands before it, so there should be one.
gambeson_link_status gambeson_link_capability_narrow_uses(gambeson_link_capability *capability, uint64_t uses);

// Nothing from this second on (since 1970, by the endpoint's clock).
gambeson_link_status gambeson_link_capability_narrow_expires(gambeson_link_capability *capability, uint64_t second);

// Links at least so protected.
//
// A `gambeson_link_protection`.
gambeson_link_status gambeson_link_capability_narrow_protection(gambeson_link_capability *capability,
                                                                uint32_t protection);

// Memory inside one of these windows only. A startpoint without this caveat reaches no memory: its endpoint's owner
// puts one into each.
//
// As many windows as `count`.
gambeson_link_status gambeson_link_capability_narrow_memory(gambeson_link_capability *capability,
                                                            const gambeson_link_window *windows,
                                                            size_t count);

// Frees a startpoint that is not bound. Null is nothing to free.
void gambeson_link_capability_free(gambeson_link_capability *capability);

// Binds a startpoint that came from elsewhere: connects to its owner, unless there is a session with it, and opens a
// link.
//
// `patience` is in seconds. `capability` stays the caller's.
gambeson_link_status gambeson_link_domain_startpoint(const gambeson_link_domain *domain,
                                                     const gambeson_link_capability *capability,
                                                     double patience,
                                                     gambeson_link_startpoint **startpoint);

// Attaches to a program that runs: asks at an address, `10.0.0.1:4000` or a host's name and a port, for the endpoint
// that is published there under a name (`gambeson_link_endpoint_publish`), and binds a startpoint to it. Both prove
// who they are, and who is there must be who is `expected`.
//
// Expected is the owner of `key`, which has 32 bytes, or whoever has `role`; the other of the two is null. `patience` is
// in seconds.
gambeson_link_status gambeson_link_domain_attach(const gambeson_link_domain *domain,
                                                 const char *address,
                                                 const uint8_t *key,
                                                 const char *role,
                                                 const char *name,
                                                 double patience,
                                                 gambeson_link_startpoint **startpoint);

// As `gambeson_link_domain_attach`, to the program that the site directory has on a host: it says where that listens,
// and who has to be there.
//
// `patience` is in seconds.
gambeson_link_status gambeson_link_domain_attach_host(const gambeson_link_domain *domain,
                                                      const char *host,
                                                      const char *name,
                                                      double patience,
                                                      gambeson_link_startpoint **startpoint);

// What it is bound by.
//
// The copy is to be freed by itself.
gambeson_link_status gambeson_link_startpoint_capability(const gambeson_link_startpoint *startpoint,
                                                         gambeson_link_capability **capability);

// How the link is protected: as the policies of both ends, the endpoint and the startpoint want it.
//
// A `gambeson_link_protection`.
gambeson_link_status gambeson_link_startpoint_protection(const gambeson_link_startpoint *startpoint,
                                                         uint32_t *protection);

// Sends a request that nobody answers.
gambeson_link_status gambeson_link_startpoint_send(const gambeson_link_startpoint *startpoint,
                                                   uint32_t handler,
                                                   const void *payload,
                                                   size_t length);

// Sends a request that nobody answers, and does not wait: what finds no room stays in memory. Who posts much asks
// `gambeson_link_startpoint_flush` now and then.
gambeson_link_status gambeson_link_startpoint_post(const gambeson_link_startpoint *startpoint,
                                                   uint32_t handler,
                                                   const void *payload,
                                                   size_t length);

// Waits until there was room for all that was sent, at most so long; whether there was.
//
// `patience` is in seconds; `PENDING` when there was no room.
gambeson_link_status gambeson_link_startpoint_flush(const gambeson_link_startpoint *startpoint, double patience);

// `Startpoint::call` into memory that is there: `answer` is emptied first.
//
// `patience` is in seconds. `into` gets the answer; `answer_length`, unless it is null, gets its length. Of an answer
// longer than `room` nothing is written, and it is lost: `gambeson_link_startpoint_start` takes answers of any length.
gambeson_link_status gambeson_link_startpoint_call(const gambeson_link_startpoint *startpoint,
                                                   uint32_t handler,
                                                   const void *payload,
                                                   size_t length,
                                                   void *into,
                                                   size_t room,
                                                   size_t *answer_length,
                                                   double patience);

// Sends a request whose answer is waited for later, or awaited.
gambeson_link_status gambeson_link_startpoint_start(const gambeson_link_startpoint *startpoint,
                                                    uint32_t handler,
                                                    const void *payload,
                                                    size_t length,
                                                    gambeson_link_pending **pending);

// Whether the answer to a request is there: `OK` or `PENDING`, without waiting. It moves no bytes: with manual progress
// `gambeson_link_domain_progress` does.
gambeson_link_status gambeson_link_pending_test(gambeson_link_pending *pending);

// Waits for the answer, at most so long.
//
// In seconds. After `TIMED_OUT` it may be waited for again.
gambeson_link_status gambeson_link_pending_wait(gambeson_link_pending *pending, double patience);

// `gambeson_link_pending_wait` into memory that is there, and once more after a time-out: `answer` is emptied first.
gambeson_link_status gambeson_link_pending_answer(const gambeson_link_pending *pending,
                                                  const void **answer,
                                                  size_t *length);

// Frees a request, and cancels it if it is under way. Null is nothing to free.
void gambeson_link_pending_free(gambeson_link_pending *pending);

// Sends a request that is answered by a stream.
gambeson_link_status gambeson_link_startpoint_stream(const gambeson_link_startpoint *startpoint,
                                                     uint32_t handler,
                                                     const void *payload,
                                                     size_t length,
                                                     gambeson_link_answers **answers);

// The next answer, waited for at most so long; `None` at the stream's end.
//
// In seconds; `END` at the stream's end. The bytes are there until the next one is asked for. After `TIMED_OUT` it may be
// waited for again.
gambeson_link_status gambeson_link_answers_next(gambeson_link_answers *answers,
                                                double patience,
                                                const void **answer,
                                                size_t *length);

// Frees a stream of answers, and cancels its request if it is under way. Null is nothing to free.
void gambeson_link_answers_free(gambeson_link_answers *answers);

// Frees a startpoint and releases its link. Null is nothing to free.
void gambeson_link_startpoint_free(gambeson_link_startpoint *startpoint);

// Listens over this provider of libfabric too, on the interface of `node`, or on its first.
//
// `node` may be null.
gambeson_link_status gambeson_link_config_listen_fabric(gambeson_link_config *config,
                                                        const char *provider,
                                                        const char *node);

// As `gambeson_link_domain_startpoint`, over this transport, whatever the rule says. Links to one owner share a
// session if they wish for the same.
//
// `transport` is a `gambeson_link_transport`.
gambeson_link_status gambeson_link_domain_startpoint_over(const gambeson_link_domain *domain,
                                                          uint32_t transport,
                                                          const gambeson_link_capability *capability,
                                                          double patience,
                                                          gambeson_link_startpoint **startpoint);

// What it goes over at present; `None` while the connection is lost.
//
// `PENDING` then. `transport`, unless it is null, gets a `gambeson_link_transport`; `where`, unless `room` is 0, a text
// such as `tcp 10.1.2.3:4000`, and `length`, unless it is null, its bytes without the zero byte at its end.
gambeson_link_status gambeson_link_startpoint_carrier(const gambeson_link_startpoint *startpoint,
                                                      uint32_t *transport,
                                                      char *where,
                                                      size_t room,
                                                      size_t *length);

// Goes on over this transport, or over what the rule says, and waits for the change at most so long. All links of its
// session go with it: a link that is to go its own way is bound by `gambeson_link_domain_startpoint_over`. Nothing is
// lost and nothing comes twice.
//
// `transport` is a `gambeson_link_transport`, or 0 for what the rule says; `patience` is in seconds.
gambeson_link_status gambeson_link_startpoint_prefer(const gambeson_link_startpoint *startpoint,
                                                     uint32_t transport,
                                                     double patience);

// As `gambeson_link_startpoint_send`.
//
// `pieces` are `count`, and are read before it returns; so are those of the functions below.
gambeson_link_status gambeson_link_startpoint_gather_send(const gambeson_link_startpoint *startpoint,
                                                          uint32_t handler,
                                                          const gambeson_link_piece *pieces,
                                                          size_t count);

// As `gambeson_link_startpoint_post`.
gambeson_link_status gambeson_link_startpoint_gather_post(const gambeson_link_startpoint *startpoint,
                                                          uint32_t handler,
                                                          const gambeson_link_piece *pieces,
                                                          size_t count);

// As `gambeson_link_startpoint_call`.
gambeson_link_status gambeson_link_startpoint_gather_call(const gambeson_link_startpoint *startpoint,
                                                          uint32_t handler,
                                                          const gambeson_link_piece *pieces,
                                                          size_t count,
                                                          void *into,
                                                          size_t room,
                                                          size_t *answer_length,
                                                          double patience);

// As `gambeson_link_startpoint_start`.
gambeson_link_status gambeson_link_startpoint_gather_start(const gambeson_link_startpoint *startpoint,
                                                           uint32_t handler,
                                                           const gambeson_link_piece *pieces,
                                                           size_t count,
                                                           gambeson_link_pending **pending);

// As `gambeson_link_startpoint_stream`.
gambeson_link_status gambeson_link_startpoint_gather_stream(const gambeson_link_startpoint *startpoint,
                                                            uint32_t handler,
                                                            const gambeson_link_piece *pieces,
                                                            size_t count,
                                                            gambeson_link_answers **answers);

// Begins to pack a request whose message will have `size` bytes. Over links with transform modules it is put together
// first.
gambeson_link_status gambeson_link_startpoint_pack(const gambeson_link_startpoint *startpoint,
                                                   uint32_t handler,
                                                   size_t size,
                                                   gambeson_link_pack **pack);

// Puts these bytes behind those that were put before. What of them is not sealed yet when it returns was copied.
// Waits, as `gambeson_link_startpoint_send` does, while there is no room or others' messages go first.
gambeson_link_status gambeson_link_pack_put(gambeson_link_pack *pack, const void *from, size_t length);

// Sends it; nobody answers.
//
// It frees the pack, whatever it returns; so do the functions below.
gambeson_link_status gambeson_link_pack_send(gambeson_link_pack *pack);

// Sends it and waits for the answer, at most so long.
//
// As `gambeson_link_startpoint_call`.
gambeson_link_status gambeson_link_pack_call(gambeson_link_pack *pack,
                                             void *into,
                                             size_t room,
                                             size_t *answer_length,
                                             double patience);

// Sends it; the answer is waited for later, or awaited.
gambeson_link_status gambeson_link_pack_start(gambeson_link_pack *pack, gambeson_link_pending **pending);

// Sends it; a stream answers.
gambeson_link_status gambeson_link_pack_stream(gambeson_link_pack *pack, gambeson_link_answers **answers);

// Frees a pack whose message is given up. Null is nothing to free.
void gambeson_link_pack_free(gambeson_link_pack *pack);

// Makes memory that startpoints of this endpoint reach if they have a `gambeson_link_capability_narrow_memory` with a
// window onto it. It is the library's as long as the `gambeson_link_region` or a clone of it is held.
//
// It begins with a copy of the `length` bytes at `initial`, or with zeroes if that is null.
gambeson_link_status gambeson_link_endpoint_region(const gambeson_link_endpoint *endpoint,
                                                   const void *initial,
                                                   size_t length,
                                                   gambeson_link_region **region);

// Its number at its endpoint, which no other region has or will have.
gambeson_link_status gambeson_link_region_number(const gambeson_link_region *region, uint64_t *number);

// Its length in bytes; it never changes.
gambeson_link_status gambeson_link_region_length(const gambeson_link_region *region, uint64_t *length);

// Copies from `offset` on into `into`. No put is seen in part.
gambeson_link_status gambeson_link_region_read(const gambeson_link_region *region,
                                               uint64_t offset,
                                               void *into,
                                               size_t length);

// Copies `from` to `offset`.
gambeson_link_status gambeson_link_region_write(const gambeson_link_region *region,
                                                uint64_t offset,
                                                const void *from,
                                                size_t length);

// Frees a region: it is gone. Null is nothing to free.
void gambeson_link_region_free(gambeson_link_region *region);

// Puts bytes into a memory region of the endpoint, from `offset` on, and waits until they are there, at most so long.
// They land whole or not at all, in turn with the link's requests, other puts, and gets.
//
// `patience` is in seconds.
gambeson_link_status gambeson_link_startpoint_put(const gambeson_link_startpoint *startpoint,
                                                  uint64_t region,
                                                  uint64_t offset,
                                                  const void *from,
                                                  size_t length,
                                                  double patience);

// `gambeson_link_startpoint_put` without an answer: it lands before what follows on the link, or is refused and nobody
// hears.
gambeson_link_status gambeson_link_startpoint_put_one_way(const gambeson_link_startpoint *startpoint,
                                                          uint64_t region,
                                                          uint64_t offset,
                                                          const void *from,
                                                          size_t length);

// A `gambeson_link_startpoint_put` that is waited for later, or awaited; its answer is empty.
gambeson_link_status gambeson_link_startpoint_start_put(const gambeson_link_startpoint *startpoint,
                                                        uint64_t region,
                                                        uint64_t offset,
                                                        const void *from,
                                                        size_t length,
                                                        gambeson_link_pending **pending);

// Gets as many bytes of a memory region of the endpoint as `into` has, from `offset` on; waits at most so long. No put
// is seen in part.
//
// `patience` is in seconds.
gambeson_link_status gambeson_link_startpoint_get(const gambeson_link_startpoint *startpoint,
                                                  uint64_t region,
                                                  uint64_t offset,
                                                  void *into,
                                                  size_t length,
                                                  double patience);

// A get of `length` bytes that is waited for later, or awaited.
//
// What comes is the answer of `pending`.
gambeson_link_status gambeson_link_startpoint_start_get(const gambeson_link_startpoint *startpoint,
                                                        uint64_t region,
                                                        uint64_t offset,
                                                        size_t length,
                                                        gambeson_link_pending **pending);

// A group of the endpoints that these startpoints lead to. Nothing is connected to until it is called.
//
// As many as `count`; they stay the caller's. With `flat` all of them are called by this domain itself: nobody passes
// anything on.
gambeson_link_status gambeson_link_domain_group(const gambeson_link_domain *domain,
                                                const gambeson_link_capability *const *members,
                                                size_t count,
                                                bool flat,
                                                gambeson_link_group **group);

// How many members it has.
gambeson_link_status gambeson_link_group_length(const gambeson_link_group *group, size_t *length);

// Sends a request that nobody answers to all members; for each, whether it went, within `patience`.
//
// `patience` is in seconds. It is `OK` whatever the members say: `gambeson_link_results_get` has that.
gambeson_link_status gambeson_link_group_send(const gambeson_link_group *group,
                                              uint32_t handler,
                                              const void *payload,
                                              size_t length,
                                              double patience,
                                              gambeson_link_results **results);

// Calls all members; their answers, in their order.
//
// `patience` is in seconds. It is `OK` whatever the members say: `gambeson_link_results_get` has that.
gambeson_link_status gambeson_link_group_call(const gambeson_link_group *group,
                                              uint32_t handler,
                                              const void *payload,
                                              size_t length,
                                              double patience,
                                              gambeson_link_results **results);

// Calls all members and combines their answers by an operation, always in the same order and grouping, whether it is
// called flat or not. Empty of an empty group.
//
// `operation` is a `gambeson_link_operation`, `patience` in seconds. `into` gets the answer, as of
// `gambeson_link_startpoint_call`.
gambeson_link_status gambeson_link_group_reduce(const gambeson_link_group *group,
                                                uint32_t handler,
                                                const void *payload,
                                                size_t length,
                                                uint32_t operation,
                                                void *into,
                                                size_t room,
                                                size_t *answer_length,
                                                double patience);

// As `gambeson_link_group_reduce`, by an operation of the program's own. It also stands in the `operations` of
// `gambeson_link_handlers_forwards` where messages are passed on; where it does not, answers are passed on as they are.
//
// `operation` stays the caller's.
gambeson_link_status gambeson_link_group_reduce_own(const gambeson_link_group *group,
                                                    uint32_t handler,
                                                    const void *payload,
                                                    size_t length,
                                                    const gambeson_link_own_operation *own,
                                                    void *into,
                                                    size_t room,
                                                    size_t *answer_length,
                                                    double patience);

// What the member at place `at`, from 0 on, answered: its status, and with `OK` the bytes, which are there as long as the
// results. `END` when there are not so many.
gambeson_link_status gambeson_link_results_get(const gambeson_link_results *results,
                                               size_t at,
                                               const void **bytes,
                                               size_t *length);

// Frees results. Null is nothing to free.
void gambeson_link_results_free(gambeson_link_results *results);

// Frees a group. Null is nothing to free.
void gambeson_link_group_free(gambeson_link_group *group);

// Where the message is, to be read and altered.
//
// The bytes are there until it is resized.
gambeson_link_status gambeson_link_message_bytes(gambeson_link_message *message, void **bytes, size_t *length);

// Gives the message another length, in bytes. What it gains is zero.
gambeson_link_status gambeson_link_message_resize(gambeson_link_message *message, size_t length);

// Says that there is no such message, and why: the request ends with that sentence.
gambeson_link_status gambeson_link_message_fail(gambeson_link_message *message, const char *why);

// Has this transform module, too, so that endpoints can name it and startpoints with it be bound.
//
// `module` stays the caller's; its functions, and what `user` leads to, must stay as long as the domain.
gambeson_link_status gambeson_link_config_transform(gambeson_link_config *config,
                                                    const gambeson_link_transform *module);

// A program that starts processes, as who this is, whose identity is in `folder`, by default `~/.config/gambeson`.
//
// Under `gambeson run` the processes belong to its job, otherwise to a new one. The domain that they connect to listens at
// `listen`, as in `10.1.2.3:4000`, or else at the address of this host that the site's authority is reached from.
gambeson_link_status gambeson_launch_creator_open(const char *folder,
                                                  const char *listen,
                                                  gambeson_launch_creator **creator);

// The domain that the processes connect to.
//
// It closes when it and the creator are freed, both.
gambeson_link_status gambeson_launch_creator_domain(const gambeson_launch_creator *creator,
                                                    gambeson_link_domain **domain);

// Frees it. Null is nothing to free. Its processes go on until they are freed.
void gambeson_launch_creator_free(gambeson_launch_creator *creator);

// Has processes started, all at once, and does not wait for that: split-phase.
//
// What they write is written where this program writes. What happens at a host shows with its processes.
gambeson_link_status gambeson_launch_start_process(const gambeson_launch_creator *creator,
                                                   const gambeson_launch_wanted *wanted,
                                                   gambeson_launch_processes **processes);

// The startpoint that a process hands over once it is ready. `PENDING` if that is not within `patience` seconds; what
// fails says how it ended before that, or why it was not started.
gambeson_link_status gambeson_launch_processes_startpoint(const gambeson_launch_processes *processes,
                                                          uint32_t process,
                                                          double patience,
                                                          gambeson_link_capability **startpoint);

// How a process ended: its status, or the negative number of a signal. `PENDING` if it has not within `patience` seconds;
// what fails says why it was not started, or that nobody knows.
gambeson_link_status gambeson_launch_processes_status(const gambeson_launch_processes *processes,
                                                      uint32_t process,
                                                      double patience,
                                                      int32_t *status);

// Writes to a process's standard input, and waits for room. Nothing to write ends that.
gambeson_link_status gambeson_launch_processes_input(const gambeson_launch_processes *processes,
                                                     uint32_t process,
                                                     const void *text,
                                                     size_t length);

// Sends a signal to a process, or to `GAMBESON_LAUNCH_ALL`, and to what they have started.
gambeson_link_status gambeson_launch_processes_signal(const gambeson_launch_processes *processes,
                                                      uint32_t process,
                                                      uint8_t signal);

// Ends the processes, if they have not ended, and frees their handle. Null is nothing to free.
void gambeson_launch_processes_free(gambeson_launch_processes *processes);

// Takes this process's security context, and opens its domain.
//
// It listens at `listen`, as in `10.1.2.3:0`, or if that is null at the address of this host that its creator is reached
// from. `REFUSED` when `gambeson_launch_start_process` did not make this process, or its context was taken already.
gambeson_link_status gambeson_launch_init_process(const char *listen,
                                                  gambeson_launch_child **child);

// Its place among the processes that were started together, from 0.
gambeson_link_status gambeson_launch_child_number(const gambeson_launch_child *child, uint32_t *number);

// What the creator said to it, in secret. It is there as long as the handle.
gambeson_link_status gambeson_launch_child_context(const gambeson_launch_child *child,
                                                   const void **context,
                                                   size_t *length);

// Its place among links. Processes of one creator trust each other by their job's secret.
//
// It closes when it and the child are freed, both.
gambeson_link_status gambeson_launch_child_domain(const gambeson_launch_child *child, gambeson_link_domain **domain);

// Hands the creator a startpoint to an endpoint of this process's domain. The initial link to the creator comes back in
// `creator`; null if that has given a startpoint for none.
//
// `patience` is in seconds. `own` stays the caller's.
gambeson_link_status gambeson_launch_child_ready(const gambeson_launch_child *child,
                                                 const gambeson_link_capability *own,
                                                 double patience,
                                                 gambeson_link_startpoint **creator);

// Frees it. Null is nothing to free.
void gambeson_launch_child_free(gambeson_launch_child *child);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GAMBESON_LINK_H */
