/* Included before each C and C++ file of a foreign project (inject.cmake) to redirect its calls. Nothing is included
   here and no macro is defined that could affect a program, except one of Boost's: a declaration with an asm label
   applies to every later declaration of the same function, including the system's own (GCC and clang: "Asm Labels"). */
#ifndef MACBUILD_COMPAT_FORCED_H
#define MACBUILD_COMPAT_FORCED_H

#define MACBUILD_COMPAT_TEXT_(text) #text
#define MACBUILD_COMPAT_TEXT(text) MACBUILD_COMPAT_TEXT_(text)
#define MACBUILD_COMPAT_LABEL(name) __asm__(MACBUILD_COMPAT_TEXT(__USER_LABEL_PREFIX__) name)
/* glibc declares its functions as noexcept. */
#if defined(__cplusplus) && defined(__linux__)
#define MACBUILD_COMPAT_NOEXCEPT noexcept
#else
#define MACBUILD_COMPAT_NOEXCEPT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* signals.hpp */
void (*signal(int, void (*)(int)) MACBUILD_COMPAT_NOEXCEPT)(int) MACBUILD_COMPAT_LABEL("macbuild_compat_signal");

/* For edits. Maps a default such as "/opt/tritonserver/backends" to a folder of this installation (installed_folder in
   libraries.hpp); the text stays valid. */
const char* macbuild_compat_directory(const char* fixed);

/* For edits. The path itself, or the one with the other suffix (.so, .dylib) if only that file exists; the text stays
   valid. */
const char* macbuild_compat_library_file(const char* path);

#ifdef __cplusplus
}
#endif

/* Boost.Interprocess asks macbuild_compat where its files go (src/portable/boost_shared_dir.cpp). */
#if defined(__cplusplus) && !defined(BOOST_INTERPROCESS_SHARED_DIR_PATH) && !defined(BOOST_INTERPROCESS_SHARED_DIR_FUNC)
#define BOOST_INTERPROCESS_SHARED_DIR_FUNC
#endif

#endif
