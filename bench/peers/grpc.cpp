// gRPC with mutual TLS, in C++: the server answers by callbacks, the client waits in its own thread for one call at a time
// and uses a completion queue for many (what its performance guide recommends), over TCP.
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "echo.grpc.pb.h"
#include "peer.h"

namespace {

using peers::Bytes;
using peers::Echo;

class Server final : public Echo::CallbackService {
  grpc::ServerUnaryReactor *Call(grpc::CallbackServerContext *context, const Bytes *request, Bytes *answer) override {
    answer->set_data(request->data());
    auto *reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerReadReactor<Bytes> *Take(grpc::CallbackServerContext *, Bytes *answer) override {
    class Taker final : public grpc::ServerReadReactor<Bytes> {
     public:
      explicit Taker(Bytes *answer) : answer_(answer) { StartRead(&message_); }
      void OnReadDone(bool more) override {
        if (more) return StartRead(&message_);
        answer_->set_data("x");
        Finish(grpc::Status::OK);
      }
      void OnDone() override { delete this; }

     private:
      Bytes message_, *answer_;
    };
    return new Taker(answer);
  }
};

void check(const grpc::Status &status) {
  if (!status.ok()) die("call", status.error_message().c_str());
}

void serve(const std::string &certificate, const std::string &key) {
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = certificate;
  options.pem_key_cert_pairs.push_back({key, certificate});
  Server service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
  builder.RegisterService(&service);
  auto server = builder.BuildAndStart();
  if (!server) die("server", "it does not start");
  printf("%d 127.0.0.1:%d\n", static_cast<int>(getpid()), port);
  fflush(stdout);
  end_with_input();
  server->Wait();
}

std::unique_ptr<Echo::Stub> stub;

void trips(const Bytes &request, long count) {
  for (long i = 0; i < count; i++) {
    grpc::ClientContext context;
    Bytes answer;
    check(stub->Call(&context, request, &answer));
  }
}

void stream(const Bytes &request, long count) {
  grpc::ClientContext context;
  Bytes answer;
  auto writer = stub->Take(&context, &answer);
  for (long i = 0; i < count; i++) {
    if (!writer->Write(request)) die("stream", "it broke");
  }
  writer->WritesDone();
  check(writer->Finish());
}

void outstanding(const Bytes &request, long count) {
  struct Pending {
    grpc::ClientContext context;
    Bytes answer;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Bytes>> reader;
  };
  grpc::CompletionQueue queue;
  long sent = 0;
  for (long got = 0; got < count; got++) {
    for (; sent < count && sent - got < OUTSTANDING; sent++) {
      auto *pending = new Pending;
      pending->reader = stub->AsyncCall(&pending->context, request, &queue);
      pending->reader->Finish(&pending->answer, &pending->status, pending);
    }
    void *tag;
    bool ok;
    if (!queue.Next(&tag, &ok)) die("queue", "it ended");
    std::unique_ptr<Pending> pending(static_cast<Pending *>(tag));
    check(pending->status);
  }
}

void perform(const struct work *work) {
  Bytes request;
  request.set_data(std::string(work->length, '\0'));
  if (strcmp(work->kind, "trips") == 0) {
    trips(request, work->count);
  } else if (strcmp(work->kind, "stream") == 0) {
    stream(request, work->count);
  } else {
    outstanding(request, work->count);
  }
}

}  // namespace

int main(int count, char **words) {
  if (count != 4) die("usage", "grpc serve|ask FOLDER tcp");
  std::string certificate = read_file(words[2], "certificate.pem"), key = read_file(words[2], "key.pem");
  if (strcmp(words[1], "serve") == 0) {
    serve(certificate, key);
    return 0;
  }
  char address[64];
  int pid;
  if (scanf("%d %63s", &pid, address) != 2) die("ask", "where?");
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("localhost");
  arguments.SetMaxReceiveMessageSize(-1);
  auto credentials = grpc::SslCredentials({certificate, key, certificate});
  stub = Echo::NewStub(grpc::CreateCustomChannel(address, credentials, arguments));
  answer_works(pid, perform);
}
