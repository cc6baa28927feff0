# Replaces libevhtp's own module of this name: targets of the package Libevent instead of files.
find_package(Libevent CONFIG REQUIRED COMPONENTS core extra pthreads)
set(LibEvent_FOUND TRUE)
set(LIBEVENT_INCLUDE_DIRS "")
