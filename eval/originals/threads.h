/* Programs that start a thread for each CPU start THREADS of them instead. Included before all else. */
#include <unistd.h>
#define sysconf(name) ((name) == _SC_NPROCESSORS_ONLN ? (THREADS) : sysconf(name))
