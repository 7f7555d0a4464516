/* An instruction for which the compiler has no line: line 0. */
int shared;

int bump(int n)
{
    __asm__ volatile("nop\n\t.loc 1 0\n\tincl %0" : "+m"(shared)); /* LINE asm */
    return n + 1;
}

int main(int argc, char **argv)
{
    (void)argv;
    return bump(argc) == 0;
}
