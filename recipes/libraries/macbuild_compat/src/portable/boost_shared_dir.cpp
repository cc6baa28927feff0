// The function that Boost.Interprocess calls if BOOST_INTERPROCESS_SHARED_DIR_FUNC is defined, as in forced.h for
// foreign code on Darwin (boost/interprocess/detail/shared_dir_helpers.hpp, read in Boost 1.88). Boost then makes no
// folder.
#include <string>

#include "macbuild/compat/ipc_dir.hpp"

namespace boost::interprocess::ipcdetail {

void get_shared_dir(std::string& shared_dir);

void get_shared_dir(std::string& shared_dir) { shared_dir = macbuild::compat::ipc_dir(); }

}  // namespace boost::interprocess::ipcdetail
