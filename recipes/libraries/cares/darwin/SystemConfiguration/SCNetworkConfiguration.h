/* The two bits that c-ares reads in the flags of a DNS server; zig has no frameworks. Source: the documentation of
 * SCNetworkReachabilityFlags (bit 1 reachable, bit 3 connection on traffic). */
#ifndef MACBUILD_SCNETWORKCONFIGURATION_H
#define MACBUILD_SCNETWORKCONFIGURATION_H

enum {
  kSCNetworkFlagsReachable = 1 << 1,
  kSCNetworkReachabilityFlagsConnectionOnTraffic = 1 << 3,
};

#endif
