"""Build CMake projects with the compilers for macOS."""
