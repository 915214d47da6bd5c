/* Loaded before an emulator (LD_PRELOAD), sets the wall clock of what it emulates 14 years ahead: after January 2038, when
 * seconds since 1970 no longer fit in 32 bits. Used by check.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME)
        time->tv_sec += (time_t)14 * 365 * 86400;
    return result;
}
