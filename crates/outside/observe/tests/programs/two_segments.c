/* A function that the linker places far from the others, in a segment of its own. */
__asm__(".section .far, \"ax\", @progbits\n"
        ".globl far_away\n"
        ".type far_away, @function\n"
        "far_away: mov $0x12345678, %eax\n"
        "ret\n"
        ".size far_away, . - far_away\n"
        ".text\n");

extern int far_away(void);

int main(void) { return far_away() != 0x12345678; }
