// Published test vectors and a TLS connection in memory with the installed BoringSSL. Exit code: how many checks failed.
#include <openssl/aes.h>
#include <openssl/bio.h>
#include <openssl/curve25519.h>
#include <openssl/ec_key.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/nid.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Bytes = std::vector<uint8_t>;

int failures = 0;

void check(bool condition, const char *what) {
  if (!condition) {
    std::fprintf(stderr, "failed: %s\n", what);
    ERR_print_errors_fp(stderr);
    ++failures;
  }
}

Bytes hex(std::string_view text) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// FIPS 180-2, appendix B.1, and a text long enough for every implementation that the processor offers.
void sha256() {
  Bytes digest(SHA256_DIGEST_LENGTH);
  SHA256(reinterpret_cast<const uint8_t *>("abc"), 3, digest.data());
  check(digest == hex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"), "SHA-256 of abc");

  const std::string thousand(1000, 'a');
  bssl::ScopedEVP_MD_CTX context;
  check(EVP_DigestInit(context.get(), EVP_sha256()), "a digest begun");
  for (int i = 0; i < 1000; ++i) EVP_DigestUpdate(context.get(), thousand.data(), thousand.size());
  check(EVP_DigestFinal(context.get(), digest.data(), nullptr), "a digest ended");
  check(digest == hex("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"), "SHA-256 of a million a");
}

// Test case 4 of the GCM specification.
void aes_gcm() {
  const Bytes key = hex("feffe9928665731c6d6a8f9467308308"), nonce = hex("cafebabefacedbaddecaf888");
  const Bytes plain = hex(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
      "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
  const Bytes extra = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  const Bytes sealed = hex(
      "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
      "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
      "5bc94fbc3221a5db94fae95ae7121a47");

  bssl::ScopedEVP_AEAD_CTX context;
  check(EVP_AEAD_CTX_init(context.get(), EVP_aead_aes_128_gcm(), key.data(), key.size(), 16, nullptr), "a key");
  Bytes out(plain.size() + 16);
  size_t length = 0;
  check(EVP_AEAD_CTX_seal(context.get(), out.data(), &length, out.size(), nonce.data(), nonce.size(), plain.data(),
                          plain.size(), extra.data(), extra.size()) &&
            out == sealed,
        "AES-GCM sealed");
  Bytes opened(plain.size());
  const auto open = [&] {
    return EVP_AEAD_CTX_open(context.get(), opened.data(), &length, opened.size(), nonce.data(), nonce.size(),
                             out.data(), out.size(), extra.data(), extra.size());
  };
  check(open() && opened == plain, "AES-GCM opened");
  out[5] ^= 1;
  check(!open(), "AES-GCM detects a changed byte");
  ERR_clear_error();
}

// RFC 7748, section 5.2: the function fed with its own results a thousand times.
void x25519() {
  Bytes scalar = hex("09" + std::string(62, '0')), point = scalar, result(32);
  for (int i = 0; i < 1000; ++i) {
    check(X25519(result.data(), scalar.data(), point.data()), "X25519");
    point = scalar;
    scalar = result;
    if (i == 0) {
      check(result == hex("422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"), "X25519 once");
    }
  }
  check(result == hex("684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"), "X25519 a thousand times");
}

bssl::UniquePtr<EVP_PKEY> make_key() {
  bssl::UniquePtr<EC_KEY> ec(EC_KEY_new_by_curve_name(NID_X9_62_prime256v1));
  bssl::UniquePtr<EVP_PKEY> key(EVP_PKEY_new());
  check(ec && EC_KEY_generate_key(ec.get()) && EVP_PKEY_set1_EC_KEY(key.get(), ec.get()), "a key of P-256");
  return key;
}

// A self-signed certificate for model.test.
bssl::UniquePtr<X509> make_certificate(EVP_PKEY *key) {
  bssl::UniquePtr<X509> certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_NAME *name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, reinterpret_cast<const uint8_t *>("test"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  X509_set_pubkey(certificate.get(), key);

  bssl::UniquePtr<GENERAL_NAMES> names(GENERAL_NAMES_new());
  GENERAL_NAME *host = GENERAL_NAME_new();
  ASN1_IA5STRING *text = ASN1_IA5STRING_new();
  ASN1_STRING_set(text, "model.test", -1);
  GENERAL_NAME_set0_value(host, GEN_DNS, text);
  check(sk_GENERAL_NAME_push(names.get(), host) > 0, "a name");
  check(X509_add1_ext_i2d(certificate.get(), NID_subject_alt_name, names.get(), 0, 0), "the names in a certificate");
  check(X509_sign(certificate.get(), key, EVP_sha256()) > 0, "a signed certificate");
  return certificate;
}

int choose_h2(SSL *, const uint8_t **out, uint8_t *length, const uint8_t *offered, unsigned size, void *) {
  static const uint8_t h2[] = "\2h2";
  const int found = SSL_select_next_proto(const_cast<uint8_t **>(out), length, h2, 3, offered, size);
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

struct Connection {
  bssl::UniquePtr<SSL> client, server;

  // Lets both sides run in turn until none can continue, and returns whether both are done.
  bool handshake() const {
    int to_client = 0, to_server = 0;
    for (int turn = 0; turn < 20 && (to_client != 1 || to_server != 1); ++turn) {
      to_client = to_client == 1 ? 1 : SSL_do_handshake(client.get());
      to_server = to_server == 1 ? 1 : SSL_do_handshake(server.get());
    }
    return to_client == 1 && to_server == 1;
  }
};

Connection connect(SSL_CTX *client_context, SSL_CTX *server_context, const char *host) {
  Connection connection{bssl::UniquePtr<SSL>(SSL_new(client_context)), bssl::UniquePtr<SSL>(SSL_new(server_context))};
  BIO *here = nullptr, *there = nullptr;
  check(BIO_new_bio_pair(&here, 0, &there, 0), "a pair of BIOs");
  SSL_set_bio(connection.client.get(), here, here);
  SSL_set_bio(connection.server.get(), there, there);
  SSL_set_connect_state(connection.client.get());
  SSL_set_accept_state(connection.server.get());
  check(SSL_set1_host(connection.client.get(), host), "the expected host");
  return connection;
}

void tls(uint16_t version) {
  const auto key = make_key();
  const auto certificate = make_certificate(key.get());
  bssl::UniquePtr<SSL_CTX> server(SSL_CTX_new(TLS_method())), client(SSL_CTX_new(TLS_method()));
  check(SSL_CTX_use_certificate(server.get(), certificate.get()) && SSL_CTX_use_PrivateKey(server.get(), key.get()) &&
            SSL_CTX_check_private_key(server.get()),
        "a server with a certificate");
  SSL_CTX_set_alpn_select_cb(server.get(), choose_h2, nullptr);
  check(X509_STORE_add_cert(SSL_CTX_get_cert_store(client.get()), certificate.get()), "a trusted certificate");
  SSL_CTX_set_verify(client.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_alpn_protos(client.get(), reinterpret_cast<const uint8_t *>("\2h2"), 3);
  SSL_CTX_set_max_proto_version(client.get(), version);

  const Connection good = connect(client.get(), server.get(), "model.test");
  check(good.handshake() && SSL_version(good.client.get()) == version, "a handshake");
  const uint8_t *protocol = nullptr;
  unsigned length = 0;
  SSL_get0_alpn_selected(good.client.get(), &protocol, &length);
  check(length == 2 && std::memcmp(protocol, "h2", 2) == 0, "HTTP/2 agreed on");

  Bytes sent(9000), received(sent.size());
  RAND_bytes(sent.data(), sent.size());
  check(SSL_write(good.server.get(), sent.data(), 9000) == 9000, "written");
  size_t got = 0;
  for (int n = 1; n > 0 && got < sent.size(); got += n > 0 ? n : 0) {
    n = SSL_read(good.client.get(), received.data() + got, static_cast<int>(sent.size() - got));
  }
  check(received == sent, "read");

  check(!connect(client.get(), server.get(), "other.test").handshake(), "another host is refused");
  ERR_clear_error();
}

}  // namespace

int main() {
  sha256();
  aes_gcm();
  x25519();
  tls(TLS1_2_VERSION);
  tls(TLS1_3_VERSION);
  return failures;
}
