/* Names, answers and a whole lookup with the installed c-ares. Exit code: the number of the first check that failed. */
#include <ares.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define CHECK(number, condition)                               \
  do {                                                         \
    if (!(condition)) {                                        \
      fprintf(stderr, "check %d: %s\n", number, #condition);   \
      return number;                                           \
    }                                                          \
  } while (0)

enum { HEADER = 12, PORT_FIELD = 32 };

static const unsigned char question[] = "\5model\4test\0\0\1\0\1"; /* model.test, type A, class IN */
enum { QUESTION = sizeof question - 1 };

/* The answer 192.0.2.7, valid for 300 seconds, to a query; only its number and question are read. */
static size_t make_answer(const unsigned char *query, unsigned char *answer) {
  static const unsigned char counts[] = {0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0};
  static const unsigned char record[] = {0xc0, HEADER, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 7};
  memcpy(answer, query, 2);
  memcpy(answer + 2, counts, sizeof counts);
  memcpy(answer + HEADER, query + HEADER, QUESTION);
  memcpy(answer + HEADER + QUESTION, record, sizeof record);
  return HEADER + QUESTION + sizeof record;
}

static int parse(void) {
  unsigned char query[HEADER + QUESTION] = {0x12, 0x34, 1, 0, 0, 1}, answer[512];
  memcpy(query + HEADER, question, QUESTION);
  const size_t length = make_answer(query, answer);

  ares_dns_record_t *record = NULL;
  CHECK(10, ares_dns_parse(answer, length, 0, &record) == ARES_SUCCESS);
  CHECK(11, ares_dns_record_get_id(record) == 0x1234);
  CHECK(12, ares_dns_record_rr_cnt(record, ARES_SECTION_ANSWER) == 1);
  const ares_dns_rr_t *rr = ares_dns_record_rr_get(record, ARES_SECTION_ANSWER, 0);
  CHECK(13, strcmp(ares_dns_rr_get_name(rr), "model.test") == 0 && ares_dns_rr_get_ttl(rr) == 300);
  CHECK(14, ares_dns_rr_get_addr(rr, ARES_RR_A_ADDR)->s_addr == htonl(0xc0000207));
  ares_dns_record_destroy(record);
  CHECK(15, ares_dns_parse(answer, length - 1, 0, &record) == ARES_EBADRESP);
  return 0;
}

static void found(void *argument, int status, int timeouts, struct ares_addrinfo *result) {
  (void)timeouts;
  if (status == ARES_SUCCESS && result->nodes && result->nodes->ai_family == AF_INET) {
    *(in_addr_t *)argument = ((struct sockaddr_in *)(void *)result->nodes->ai_addr)->sin_addr.s_addr;
  }
  ares_freeaddrinfo(result);
}

/* c-ares' own thread asks a name server that is a socket of this program. */
static int lookup(void) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from;
  socklen_t size = sizeof here;
  const int server = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(20, bind(server, (struct sockaddr *)&here, size) == 0);
  CHECK(21, getsockname(server, (struct sockaddr *)&here, &size) == 0);
  const struct timeval limit = {.tv_sec = 10};
  CHECK(22, setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);

  ares_channel_t *channel = NULL;
  struct ares_options options = {.evsys = ARES_EVSYS_DEFAULT, .lookups = "b"};
  CHECK(23, ares_threadsafety() == ARES_TRUE);
  CHECK(24, ares_init_options(&channel, &options, ARES_OPT_EVENT_THREAD | ARES_OPT_LOOKUPS) == ARES_SUCCESS);
  char address[PORT_FIELD];
  snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(here.sin_port));
  CHECK(25, ares_set_servers_ports_csv(channel, address) == ARES_SUCCESS);

  in_addr_t answered = 0;
  const struct ares_addrinfo_hints hints = {.ai_family = AF_INET, .ai_flags = ARES_AI_NOSORT};
  ares_getaddrinfo(channel, "model.test", NULL, &hints, found, &answered);

  unsigned char query[512], answer[512];
  size = sizeof from;
  const ssize_t length = recvfrom(server, query, sizeof query, 0, (struct sockaddr *)&from, &size);
  CHECK(26, length >= HEADER + QUESTION && memcmp(query + HEADER, question, QUESTION) == 0);
  const size_t answer_length = make_answer(query, answer);
  CHECK(27, sendto(server, answer, answer_length, 0, (struct sockaddr *)&from, size) == (ssize_t)answer_length);
  CHECK(28, ares_queue_wait_empty(channel, 10000) == ARES_SUCCESS);
  CHECK(29, answered == htonl(0xc0000207));
  ares_destroy(channel);
  close(server);
  return 0;
}

int main(void) {
  int number = 0;
  CHECK(1, strcmp(ares_version(&number), ARES_VERSION_STR) == 0 && number == ARES_VERSION);
  CHECK(2, ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS);
  int failed = parse();
  failed = failed ? failed : lookup();
  ares_library_cleanup();
  return failed;
}
