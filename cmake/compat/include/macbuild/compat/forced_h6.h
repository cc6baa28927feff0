/* Read before each C and C++ file of a foreign project. */
#ifndef MACBUILD_COMPAT_FORCED_H6_H
#define MACBUILD_COMPAT_FORCED_H6_H

/* Boost.Interprocess asks macbuild_compat where its files go (src/portable/boost_shared_dir.cpp). */
#if defined(__cplusplus) && !defined(BOOST_INTERPROCESS_SHARED_DIR_PATH) && !defined(BOOST_INTERPROCESS_SHARED_DIR_FUNC)
#define BOOST_INTERPROCESS_SHARED_DIR_FUNC
#endif

#endif
