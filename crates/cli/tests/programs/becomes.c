/* Becomes the user `nobody` and executes its arguments, as `gosu` does. */
#include <grp.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2 || setgroups(0, NULL) || setgid(65534) || setuid(65534))
        return 2;
    execvp(argv[1], argv + 1);
    return 2;
}
