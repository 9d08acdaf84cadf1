// ZeroMQ with CURVE (libzmq, libsodium): a DEALER at each end, over TCP or a unix socket.
#include "peer.h"

#include <zmq.h>

static void *peer;

static void check(int result, const char *what) {
  if (result < 0) die(what, zmq_strerror(zmq_errno()));
}

static void *open_socket(void) {
  void *made = zmq_socket(zmq_ctx_new(), ZMQ_DEALER);
  if (!made) die("socket", zmq_strerror(zmq_errno()));
  return made;
}

static void serve(const char *folder, const char *carrier) {
  char public_key[41], secret_key[41], address[256];
  size_t length = sizeof address;
  int yes = 1;
  check(zmq_curve_keypair(public_key, secret_key), "key");
  peer = open_socket();
  check(zmq_setsockopt(peer, ZMQ_CURVE_SERVER, &yes, sizeof yes), "CURVE");
  check(zmq_setsockopt(peer, ZMQ_CURVE_SECRETKEY, secret_key, 40), "CURVE");
  if (strcmp(carrier, "tcp") == 0) {
    check(zmq_bind(peer, "tcp://127.0.0.1:*"), "bind");
  } else {
    snprintf(address, sizeof address, "ipc://%s/zeromq-%d", folder, (int)getpid());
    check(zmq_bind(peer, address), "bind");
  }
  check(zmq_getsockopt(peer, ZMQ_LAST_ENDPOINT, address, &length), "bind");
  printf("%d %s %s\n", (int)getpid(), address, public_key);
  fflush(stdout);
  end_with_input();
  zmq_msg_t message;
  zmq_msg_init(&message);
  for (;;) {
    check(zmq_msg_recv(&message, peer, 0), "receive");
    switch (*(unsigned char *)zmq_msg_data(&message)) {
      case ECHO:
        check(zmq_msg_send(&message, peer, 0), "send");
        zmq_msg_init(&message);
        break;
      case LAST:
        check(zmq_send(peer, "", 1, 0), "send");
    }
  }
}

static void send_one(const char *bytes, size_t length) { check(zmq_send(peer, bytes, length, 0), "send"); }

static void receive_one(void) {
  zmq_msg_t message;
  zmq_msg_init(&message);
  check(zmq_msg_recv(&message, peer, 0), "receive");
  zmq_msg_close(&message);
}

static void perform(const struct work *work) {
  char *bytes = calloc(1, work->length);
  if (strcmp(work->kind, "trips") == 0) {
    for (long i = 0; i < work->count; i++) {
      send_one(bytes, work->length);
      receive_one();
    }
  } else if (strcmp(work->kind, "stream") == 0) {
    for (long i = 0; i < work->count; i++) {
      bytes[0] = i + 1 < work->count ? TAKE : LAST;
      send_one(bytes, work->length);
    }
    receive_one();
  } else {
    for (long sent = 0, got = 0; got < work->count; got++) {
      while (sent < work->count && sent - got < OUTSTANDING) {
        send_one(bytes, work->length);
        sent++;
      }
      receive_one();
    }
  }
  free(bytes);
}

int main(int count, char **words) {
  if (count != 4) die("usage", "zeromq serve|ask FOLDER tcp|ipc");
  if (strcmp(words[1], "serve") == 0) serve(words[2], words[3]);
  char address[256], server_key[41], public_key[41], secret_key[41];
  int pid;
  if (scanf("%d %255s %40s", &pid, address, server_key) != 3) die("ask", "where?");
  check(zmq_curve_keypair(public_key, secret_key), "key");
  peer = open_socket();
  check(zmq_setsockopt(peer, ZMQ_CURVE_SERVERKEY, server_key, 40), "CURVE");
  check(zmq_setsockopt(peer, ZMQ_CURVE_PUBLICKEY, public_key, 40), "CURVE");
  check(zmq_setsockopt(peer, ZMQ_CURVE_SECRETKEY, secret_key, 40), "CURVE");
  check(zmq_connect(peer, address), "connect");
  answer_works(pid, perform);
}
