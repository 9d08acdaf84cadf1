// nng with TLS (mbedtls): a PAIR at each end, its simplest and fastest protocol, over TCP.
#include "peer.h"

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <nng/supplemental/tls/tls.h>

static nng_socket peer;

static void check(int result, const char *what) {
  if (result != 0) die(what, nng_strerror(result));
}

static nng_tls_config *identity(const char *folder, nng_tls_mode mode) {
  nng_tls_config *config;
  char *certificate = read_file(folder, "certificate.pem"), *key = read_file(folder, "key.pem");
  check(nng_tls_config_alloc(&config, mode), "TLS");
  check(nng_tls_config_ca_chain(config, certificate, NULL), "certificate");
  check(nng_tls_config_own_cert(config, certificate, key, NULL), "key");
  check(nng_tls_config_auth_mode(config, NNG_TLS_AUTH_MODE_REQUIRED), "TLS");
  if (mode == NNG_TLS_MODE_CLIENT) check(nng_tls_config_server_name(config, "localhost"), "TLS");
  return config;
}

static void open_socket(void) {
  check(nng_pair0_open(&peer), "socket");
  check(nng_socket_set_int(peer, NNG_OPT_SENDBUF, 2 * OUTSTANDING), "buffer");
  check(nng_socket_set_int(peer, NNG_OPT_RECVBUF, 2 * OUTSTANDING), "buffer");
  check(nng_socket_set_size(peer, NNG_OPT_RECVMAXSZ, 0), "longest message");
}

static void serve(const char *folder) {
  nng_listener listener;
  char address[64];
  int result = NNG_EADDRINUSE;
  open_socket();
  for (int port = 20000 + getpid() % 10000; result == NNG_EADDRINUSE; port++) {
    snprintf(address, sizeof address, "tls+tcp://127.0.0.1:%d", port);
    check(nng_listener_create(&listener, peer, address), "listener");
    check(nng_listener_set_ptr(listener, NNG_OPT_TLS_CONFIG, identity(folder, NNG_TLS_MODE_SERVER)), "TLS");
    result = nng_listener_start(listener, 0);
    if (result != 0) nng_listener_close(listener);
  }
  check(result, "listener");
  printf("%d %s\n", (int)getpid(), address);
  fflush(stdout);
  end_with_input();
  for (;;) {
    nng_msg *message;
    check(nng_recvmsg(peer, &message, 0), "receive");
    switch (*(unsigned char *)nng_msg_body(message)) {
      case LAST:
        nng_msg_chop(message, nng_msg_len(message) - 1);  // Its first byte is the answer.
        check(nng_sendmsg(peer, message, 0), "send");
        break;
      case ECHO:
        check(nng_sendmsg(peer, message, 0), "send");
        break;
      default:
        nng_msg_free(message);
    }
  }
}

static void send_one(size_t length, unsigned char what) {
  nng_msg *message;
  check(nng_msg_alloc(&message, length), "memory");
  memset(nng_msg_body(message), 0, length);
  *(unsigned char *)nng_msg_body(message) = what;
  check(nng_sendmsg(peer, message, 0), "send");
}

static void receive_one(void) {
  nng_msg *message;
  check(nng_recvmsg(peer, &message, 0), "receive");
  nng_msg_free(message);
}

static void perform(const struct work *work) {
  if (strcmp(work->kind, "trips") == 0) {
    for (long i = 0; i < work->count; i++) {
      send_one(work->length, ECHO);
      receive_one();
    }
  } else if (strcmp(work->kind, "stream") == 0) {
    for (long i = 0; i < work->count; i++) send_one(work->length, i + 1 < work->count ? TAKE : LAST);
    receive_one();
  } else {
    for (long sent = 0, got = 0; got < work->count; got++) {
      for (; sent < work->count && sent - got < OUTSTANDING; sent++) send_one(work->length, ECHO);
      receive_one();
    }
  }
}

int main(int count, char **words) {
  if (count != 4) die("usage", "nng serve|ask FOLDER tcp");
  if (strcmp(words[1], "serve") == 0) serve(words[2]);
  nng_dialer dialer;
  char address[64];
  int pid;
  if (scanf("%d %63s", &pid, address) != 2) die("ask", "where?");
  open_socket();
  check(nng_dialer_create(&dialer, peer, address), "dialer");
  check(nng_dialer_set_ptr(dialer, NNG_OPT_TLS_CONFIG, identity(words[2], NNG_TLS_MODE_CLIENT)), "TLS");
  check(nng_dialer_start(dialer, 0), "connect");
  answer_works(pid, perform);
}
