# Sets the variables of CMake's own FindOpenSSL, for projects that do not use the targets.
set(OPENSSL_FOUND TRUE)
set(OPENSSL_VERSION "${OpenSSL_VERSION}")
set(OPENSSL_SSL_LIBRARY OpenSSL::SSL)
set(OPENSSL_CRYPTO_LIBRARY OpenSSL::Crypto)
set(OPENSSL_SSL_LIBRARIES OpenSSL::SSL)
set(OPENSSL_CRYPTO_LIBRARIES OpenSSL::Crypto)
set(OPENSSL_LIBRARIES OpenSSL::SSL OpenSSL::Crypto)
get_filename_component(OPENSSL_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../include" ABSOLUTE)
