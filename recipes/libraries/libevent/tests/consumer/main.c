// Uses libevent as Triton's HTTP server and libevhtp do: timers, sockets with buffers, wake-ups from another thread,
// and an HTTP server on the loopback device with a client that keeps its connection.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/thread.h>
#include <event2/util.h>

#ifdef __APPLE__
#define BACKEND "kqueue"
#else
#define BACKEND "epoll"
#endif

enum { BULK = 1 << 20, BODY = 200000 };

static int failures;

static void check(int good, const char *what) {
  if (!good) {
    ++failures;
    fprintf(stderr, "wrong: %s\n", what);
  }
}

static unsigned char pattern(size_t index) {
  return (unsigned char)(index * 31 + (index >> 8));
}

static int has_pattern(struct evbuffer *buffer, size_t length) {
  if (evbuffer_get_length(buffer) != length) {
    return 0;
  }
  const unsigned char *bytes = evbuffer_pullup(buffer, -1);
  for (size_t index = 0; index < length; ++index) {
    if (bytes[index] != pattern(index)) {
      return 0;
    }
  }
  return 1;
}

static void add_pattern(struct evbuffer *buffer, size_t length) {
  for (size_t index = 0; index < length; ++index) {
    const unsigned char byte = pattern(index);
    evbuffer_add(buffer, &byte, 1);
  }
}

static void too_late(evutil_socket_t socket, short events, void *base) {
  (void)socket;
  (void)events;
  check(0, "an event did not come within ten seconds");
  event_base_loopbreak(base);
}

// Runs the loop until a callback breaks out of it, for at most ten seconds.
static void run(struct event_base *base) {
  const struct timeval limit = {10, 0};
  struct event *guard = event_new(base, -1, 0, too_late, base);
  event_add(guard, &limit);
  event_base_dispatch(base);
  event_free(guard);
}

// ---- timers

struct ticks {
  struct event_base *base;
  char order[8];
};

static struct ticks ticks;

static void tick(evutil_socket_t socket, short events, void *name) {
  (void)socket;
  check(events == EV_TIMEOUT, "a timer reports a timeout");
  strncat(ticks.order, name, 1);
  if (strlen(ticks.order) == 3) {
    event_base_loopbreak(ticks.base);
  }
}

static void timers(struct event_base *base) {
  static char names[3][2] = {"c", "a", "b"};
  static const int milliseconds[3] = {60, 20, 40};
  struct timespec begin, end;
  ticks.base = base;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int index = 0; index < 3; ++index) {
    const struct timeval wait = {0, milliseconds[index] * 1000};
    event_base_once(base, -1, EV_TIMEOUT, tick, names[index], &wait);
  }
  run(base);
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double took = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
  check(strcmp(ticks.order, "abc") == 0, "timers fire in the order of their times");
  check(took > 0.055 && took < 5, "timers wait as long as they should");
}

// ---- buffers over a pair of sockets

static void echo(struct bufferevent *side, void *unused) {
  (void)unused;
  bufferevent_write_buffer(side, bufferevent_get_input(side));
}

static void collect(struct bufferevent *side, void *base) {
  if (evbuffer_get_length(bufferevent_get_input(side)) >= BULK) {
    event_base_loopbreak(base);
  }
}

static void buffers(struct event_base *base) {
  evutil_socket_t pair[2];
  check(evutil_socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "evutil_socketpair");
  struct bufferevent *ends[2];
  for (int index = 0; index < 2; ++index) {
    evutil_make_socket_nonblocking(pair[index]);
    ends[index] = bufferevent_socket_new(base, pair[index], BEV_OPT_CLOSE_ON_FREE | BEV_OPT_THREADSAFE);
    bufferevent_setcb(ends[index], index ? echo : collect, NULL, NULL, base);
    bufferevent_enable(ends[index], EV_READ | EV_WRITE);
  }
  add_pattern(bufferevent_get_output(ends[0]), BULK);
  run(base);
  check(has_pattern(bufferevent_get_input(ends[0]), BULK), "a mebibyte comes back through a pair of sockets");
  bufferevent_free(ends[0]);
  bufferevent_free(ends[1]);
}

// ---- a wake-up from another thread

static void woken(evutil_socket_t socket, short events, void *base) {
  (void)socket;
  (void)events;
  event_base_loopbreak(base);
}

static void *wake(void *event) {
  const struct timespec pause = {0, 20000000};
  nanosleep(&pause, NULL);
  event_active(event, EV_READ, 0);
  return NULL;
}

static void threads(struct event_base *base) {
  pthread_t thread;
  struct event *event = event_new(base, -1, EV_PERSIST, woken, base);
  event_add(event, NULL);
  check(pthread_create(&thread, NULL, wake, event) == 0, "pthread_create");
  run(base);
  pthread_join(thread, NULL);
  event_free(event);
}

// ---- HTTP

static int connections;

static void note_connection(struct evhttp_request *request) {
  char *address;
  ev_uint16_t port;
  static ev_uint16_t last_port;
  evhttp_connection_get_peer(evhttp_request_get_connection(request), &address, &port);
  check(strcmp(address, "127.0.0.1") == 0, "the server sees the client's address");
  if (port != last_port) {
    ++connections;
    last_port = port;
  }
}

static void serve_echo(struct evhttp_request *request, void *unused) {
  (void)unused;
  note_connection(request);
  const char *kind = evhttp_find_header(evhttp_request_get_input_headers(request), "X-Kind");
  check(kind != NULL && strcmp(kind, "pattern") == 0, "the server reads a header");
  check(evhttp_request_get_command(request) == EVHTTP_REQ_POST, "the server sees the method");
  evhttp_add_header(evhttp_request_get_output_headers(request), "X-Answer", "yes");
  struct evbuffer *body = evbuffer_new();
  evbuffer_add_buffer(body, evhttp_request_get_input_buffer(request));
  evhttp_send_reply(request, 200, "OK", body);
  evbuffer_free(body);
}

static void serve_nothing(struct evhttp_request *request, void *unused) {
  (void)unused;
  note_connection(request);
  evhttp_send_error(request, 404, NULL);
}

static int answered;

static void answer(struct evhttp_request *request, void *base) {
  event_base_loopbreak(base);
  check(request != NULL, "the client has an answer");
  if (request == NULL) {
    return;
  }
  ++answered;
  if (answered < 3) {
    check(evhttp_request_get_response_code(request) == 200, "status 200");
    check(has_pattern(evhttp_request_get_input_buffer(request), BODY), "the body comes back");
    const char *header = evhttp_find_header(evhttp_request_get_input_headers(request), "X-Answer");
    check(header != NULL && strcmp(header, "yes") == 0, "the client reads a header");
  } else {
    check(evhttp_request_get_response_code(request) == 404, "status 404");
  }
}

static void http(struct event_base *base) {
  struct evhttp *server = evhttp_new(base);
  evhttp_set_cb(server, "/echo", serve_echo, NULL);
  evhttp_set_gencb(server, serve_nothing, NULL);
  struct evhttp_bound_socket *bound = evhttp_bind_socket_with_handle(server, "127.0.0.1", 0);
  check(bound != NULL, "a server on a free port");
  if (bound == NULL) {
    return;
  }
  struct sockaddr_in address;
  socklen_t length = sizeof address;
  getsockname(evhttp_bound_socket_get_fd(bound), (struct sockaddr *)&address, &length);

  struct evhttp_connection *client =
      evhttp_connection_base_new(base, NULL, "127.0.0.1", ntohs(address.sin_port));
  for (int index = 0; index < 3; ++index) {
    struct evhttp_request *request = evhttp_request_new(answer, base);
    evhttp_add_header(evhttp_request_get_output_headers(request), "X-Kind", "pattern");
    if (index < 2) {
      add_pattern(evhttp_request_get_output_buffer(request), BODY);
    }
    evhttp_make_request(client, request, index < 2 ? EVHTTP_REQ_POST : EVHTTP_REQ_GET, index < 2 ? "/echo" : "/none");
    run(base);
  }
  check(answered == 3, "three answers");
  check(connections == 1, "all requests went over one connection");
  evhttp_connection_free(client);
  evhttp_free(server);
}

int main(void) {
  check(strcmp(event_get_version(), "2.1.12-stable") == 0, "version");
  check(evthread_use_pthreads() == 0, "evthread_use_pthreads");
  struct event_base *base = event_base_new();
  check(base != NULL, "event_base_new");
  if (base == NULL) {
    return 1;
  }
  check(strcmp(event_base_get_method(base), BACKEND) == 0, "the system's own event mechanism is used");
  unsigned char random[32] = {0}, zero[32] = {0};
  evutil_secure_rng_get_bytes(random, sizeof random);
  check(memcmp(random, zero, sizeof zero) != 0, "random bytes");
  timers(base);
  buffers(base);
  threads(base);
  http(base);
  event_base_free(base);
  libevent_global_shutdown();
  return failures != 0;
}
