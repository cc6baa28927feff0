// The entry point of a stub that is a library. Its main() is the upstream program's, which C++ may not call by that
// name.
#ifdef __APPLE__
#define SYMBOL "_main"
#else
#define SYMBOL "main"
#endif

extern "C" {

__attribute__((visibility("hidden"))) int upstream_main(int argc, char** argv) __asm__(SYMBOL);

__attribute__((visibility("default"))) int macbuild_python_stub(int argc, char** argv);

int macbuild_python_stub(int argc, char** argv)
{
  return upstream_main(argc, argv);
}

}  // extern "C"
