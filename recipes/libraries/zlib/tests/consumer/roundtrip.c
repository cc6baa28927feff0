/* Streams, gz files and checksums of the installed zlib. Exit code: the number of the first check that failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define CHECK(number, condition)                               \
  do {                                                         \
    if (!(condition)) {                                        \
      fprintf(stderr, "check %d: %s\n", number, #condition);   \
      return number;                                           \
    }                                                          \
  } while (0)

enum { SIZE = 100000 };

static unsigned char text[SIZE], packed[SIZE + 1000], unpacked[SIZE];

/* Small steps through a deflate stream with a gzip header, as an HTTP server does it. */
static int gzip_in_steps(void) {
  z_stream out = {0}, in = {0};
  CHECK(10, deflateInit2(&out, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  out.next_in = text;
  out.next_out = packed;
  int state = Z_OK;
  while (state == Z_OK) {
    const uLong left = SIZE - out.total_in;
    out.avail_in = (uInt)(left < 1000 ? left : 1000);
    out.avail_out = 777;
    state = deflate(&out, left <= 1000 ? Z_FINISH : Z_NO_FLUSH);
  }
  CHECK(11, state == Z_STREAM_END && packed[0] == 0x1f && packed[1] == 0x8b);
  CHECK(12, deflateEnd(&out) == Z_OK);
  CHECK(13, inflateInit2(&in, 15 + 32) == Z_OK);
  in.next_in = packed;
  in.avail_in = (uInt)out.total_out;
  in.next_out = unpacked;
  in.avail_out = SIZE;
  CHECK(14, inflate(&in, Z_FINISH) == Z_STREAM_END && in.total_out == SIZE);
  CHECK(15, inflateEnd(&in) == Z_OK && memcmp(text, unpacked, SIZE) == 0);
  return 0;
}

static int gz_file(void) {
  FILE *file = tmpfile();
  CHECK(20, file != NULL);
  gzFile writer = gzdopen(fileno(file), "wb");
  CHECK(21, writer != NULL && gzprintf(writer, "%s %d\n", "answer", 42) == 10);
  CHECK(22, gzflush(writer, Z_FINISH) == Z_OK);
  rewind(file);
  unsigned char head[2];
  CHECK(23, fread(head, 1, 2, file) == 2 && head[0] == 0x1f && head[1] == 0x8b);
  CHECK(24, gzclose(writer) == Z_OK);
  return 0;
}

int main(void) {
  CHECK(1, strcmp(zlibVersion(), ZLIB_VERSION) == 0);
  CHECK(2, crc32(0, (const Bytef *)"123456789", 9) == 0xcbf43926UL); /* the check value of CRC-32 */
  CHECK(3, adler32(adler32(0, Z_NULL, 0), (const Bytef *)"Wikipedia", 9) == 0x11e60398UL);

  unsigned state = 1;
  for (int i = 0; i < SIZE; ++i) {
    state = state * 1103515245u + 12345u;
    text[i] = (unsigned char)(i % 7 ? 'a' + i / 1000 % 26 : state >> 24);
  }
  uLongf length = sizeof packed, size = SIZE;
  CHECK(4, compress2(packed, &length, text, SIZE, 9) == Z_OK && length < SIZE / 2);
  CHECK(5, uncompress(unpacked, &size, packed, length) == Z_OK && size == SIZE);
  CHECK(6, memcmp(text, unpacked, SIZE) == 0);
  packed[length / 2] ^= 0x40;
  CHECK(7, uncompress(unpacked, &size, packed, length) == Z_DATA_ERROR);

  const int failed = gzip_in_steps();
  return failed ? failed : gz_file();
}
