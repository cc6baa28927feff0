// Uses libevhtp as Triton's HTTP server does: a server with threads on the loopback device, requests that are paused
// and answered later from another thread, hooks, headers, long bodies, persistent connections. The client is
// libevent's.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <event2/thread.h>
#include <evhtp/evhtp.h>

namespace {

constexpr int kThreads = 2;
constexpr int kClients = 4;
constexpr int kRequests = 6;  // of each client

std::atomic<int> failures{0};

void Check(bool good, const char* what) {
  if (!good) {
    ++failures;
    std::fprintf(stderr, "wrong: %s\n", what);
  }
}

std::string Body(int client, int round) {
  std::string body;
  for (int index = 0; index < 40000 + 1000 * client; ++index) {
    body += static_cast<char>('a' + (index * (round + 3) + client) % 26);
  }
  return body;
}

std::string Drain(evbuffer* buffer) {
  std::string text(evbuffer_get_length(buffer), '\0');
  evbuffer_remove(buffer, text.data(), text.size());
  return text;
}

// ---- the server

std::atomic<int> threads_started{0};
std::atomic<int> threads_ended{0};
std::atomic<int> requests_ended{0};
std::mutex lock;
std::vector<std::thread> workers;  // under the lock, since the server's threads fill it
std::set<in_port_t> peers;  // under the same lock

void ThreadBegins(evhtp_t*, evthr_t*, void*) { ++threads_started; }
void ThreadEnds(evhtp_t*, evthr_t*, void*) { ++threads_ended; }

evhtp_res RequestEnds(evhtp_request_t*, void*) {
  ++requests_ended;
  return EVHTP_RES_OK;
}

// Through void*, since compilers warn of a cast between functions of different types.
const auto kRequestEnds = reinterpret_cast<evhtp_hook>(reinterpret_cast<void*>(RequestEnds));

void Reply(evthr_t*, void* argument, void*) {
  auto* request = static_cast<evhtp_request_t*>(argument);
  const std::string body = Drain(request->buffer_in);
  evbuffer_add(request->buffer_out, body.data(), body.size());
  const std::string length = std::to_string(body.size());
  evhtp_headers_add_header(request->headers_out, evhtp_header_new("X-Length", length.c_str(), 1, 1));
  evhtp_send_reply(request, EVHTP_RES_OK);
  evhtp_request_resume(request);
}

// Like an inference: the connection's thread continues, and another thread reports the answer.
void Infer(evhtp_request_t* request, void*) {
  Check(request->method == htp_method_POST, "the server sees the method");
  const char* kind = evhtp_kv_find(request->headers_in, "X-Kind");
  Check(kind != nullptr && std::strcmp(kind, "letters") == 0, "the server reads a header");
  evhtp_request_set_hook(request, evhtp_hook_on_request_fini, kRequestEnds, nullptr);
  evhtp_request_pause(request);
  evthr_t* thread = request->conn->thread;
  const std::lock_guard guard(lock);
  peers.insert(reinterpret_cast<const sockaddr_in*>(request->conn->saddr)->sin_port);
  workers.emplace_back([thread, request] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Check(evthr_defer(thread, Reply, request) == EVTHR_RES_OK, "evthr_defer");
  });
}

void Unknown(evhtp_request_t* request, void*) {
  Check(std::strcmp(request->uri->path->full, "/v2/none") == 0, "the server sees the path");
  evhtp_send_reply(request, EVHTP_RES_NOTFOUND);
}

// ---- the clients

struct Client {
  event_base* base;
  evhttp_connection* connection;
  int number;
  int round = 0;
};

int answers = 0;

void Next(Client& client);

void Answered(evhttp_request* answer, void* argument) {
  auto& client = *static_cast<Client*>(argument);
  const bool last = client.round == kRequests - 1;
  Check(answer != nullptr && evhttp_request_get_response_code(answer) == (last ? 404 : 200), "the status of an answer");
  if (answer != nullptr && !last) {
    const std::string expected = Body(client.number, client.round);
    Check(Drain(evhttp_request_get_input_buffer(answer)) == expected, "the body comes back");
    const char* length = evhttp_find_header(evhttp_request_get_input_headers(answer), "X-Length");
    Check(length != nullptr && length == std::to_string(expected.size()), "the client reads a header");
  }
  ++answers;
  if (++client.round < kRequests) {
    Next(client);
  } else if (answers == kClients * kRequests) {
    event_base_loopbreak(client.base);
  }
}

void Next(Client& client) {
  evhttp_request* request = evhttp_request_new(Answered, &client);
  evkeyvalq* headers = evhttp_request_get_output_headers(request);
  evhttp_add_header(headers, "Host", "localhost");
  evhttp_add_header(headers, "X-Kind", "letters");
  if (client.round == kRequests - 1) {
    evhttp_make_request(client.connection, request, EVHTTP_REQ_GET, "/v2/none");
    return;
  }
  const std::string body = Body(client.number, client.round);
  evbuffer_add(evhttp_request_get_output_buffer(request), body.data(), body.size());
  evhttp_make_request(client.connection, request, EVHTTP_REQ_POST, "/v2/models/letters/infer");
}

void TooLate(evutil_socket_t, short, void* base) {
  Check(false, "not all answers came within fifteen seconds");
  event_base_loopbreak(static_cast<event_base*>(base));
}

}  // namespace

int main() {
  Check(evthread_use_pthreads() == 0, "evthread_use_pthreads");
  event_base* base = event_base_new();
  evhtp_t* server = evhtp_new(base, nullptr);
  evhtp_enable_flag(server, EVHTP_FLAG_ENABLE_NODELAY);
  evhtp_enable_flag(server, EVHTP_FLAG_ENABLE_REUSEPORT);
  evhtp_set_gencb(server, Unknown, nullptr);
  evhtp_set_glob_cb(server, "/v2/models/*", Infer, nullptr);
  Check(evhtp_use_threads_wexit(server, ThreadBegins, ThreadEnds, kThreads, nullptr) == 0, "evhtp_use_threads_wexit");
  if (evhtp_bind_socket(server, "127.0.0.1", 0, 1024) != 0) {
    std::fprintf(stderr, "wrong: evhtp_bind_socket\n");
    return 1;
  }
  sockaddr_in address{};
  socklen_t length = sizeof address;
  getsockname(evconnlistener_get_fd(server->server), reinterpret_cast<sockaddr*>(&address), &length);

  std::vector<Client> clients;
  for (int number = 0; number < kClients; ++number) {
    evhttp_connection* connection = evhttp_connection_base_new(base, nullptr, "127.0.0.1", ntohs(address.sin_port));
    clients.push_back({base, connection, number});
  }
  for (Client& client : clients) {
    Next(client);
  }
  const timeval limit{15, 0};
  event_base_once(base, -1, EV_TIMEOUT, TooLate, base, &limit);
  event_base_dispatch(base);

  Check(answers == kClients * kRequests, "every request has an answer");
  Check(peers.size() == kClients, "the requests of a client go over one connection");
  Check(threads_started == kThreads, "the server's threads start");
  for (std::thread& worker : workers) {
    worker.join();
  }
  for (Client& client : clients) {
    evhttp_connection_free(client.connection);
  }
  evhtp_unbind_socket(server);
  evhtp_free(server);
  Check(threads_ended == kThreads, "the server's threads end");
  Check(requests_ended == kClients * (kRequests - 1), "the hook at the end of a request is called");
  event_base_free(base);
  return failures != 0;
}
