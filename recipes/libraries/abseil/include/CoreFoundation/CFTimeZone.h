// The part of CoreFoundation that Abseil's time zones use, for compilers without an SDK. Names, types and the value of
// the encoding are from Apple's documentation: https://developer.apple.com/documentation/corefoundation
#ifndef MACBUILD_CFTIMEZONE_H_
#define MACBUILD_CFTIMEZONE_H_

#ifdef __cplusplus
extern "C" {
#endif

typedef const void* CFTypeRef;
typedef const struct __CFString* CFStringRef;
typedef const struct __CFTimeZone* CFTimeZoneRef;
typedef signed long CFIndex;
typedef unsigned int CFStringEncoding;
typedef unsigned char Boolean;

enum { kCFStringEncodingUTF8 = 0x08000100 };

void CFRelease(CFTypeRef object);
CFIndex CFStringGetLength(CFStringRef string);
CFIndex CFStringGetMaximumSizeForEncoding(CFIndex length, CFStringEncoding encoding);
Boolean CFStringGetCString(CFStringRef string, char* buffer, CFIndex size, CFStringEncoding encoding);
CFTimeZoneRef CFTimeZoneCopyDefault(void);
CFStringRef CFTimeZoneGetName(CFTimeZoneRef zone);

#ifdef __cplusplus
}
#endif

#endif
