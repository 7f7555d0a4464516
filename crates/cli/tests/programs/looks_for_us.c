/* Says whether a library of Sunder's is in this process. */
#include <stdio.h>
#include <string.h>

int main(void)
{
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, "sunder-runtime") != 0;
    puts(found ? "with it" : "without it");
    return 0;
}
