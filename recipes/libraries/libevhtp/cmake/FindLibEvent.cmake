# What libevhtp's own module of this name finds as files, as the targets of the package Libevent.
find_package(Libevent CONFIG REQUIRED COMPONENTS core extra pthreads)
set(LibEvent_FOUND TRUE)
set(LIBEVENT_INCLUDE_DIRS "")
