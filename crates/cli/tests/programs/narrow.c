/* Waits for ever, without a C library, so that it can be built for 32 bits anywhere. */
void _start(void) {
    enum { PAUSE = 29 };
    for (;;) __asm__ volatile("int $0x80" : : "a"(PAUSE));
}
