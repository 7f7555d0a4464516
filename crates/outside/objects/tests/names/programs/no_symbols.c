/* Code without symbols, as it is the first of this file. */
__asm__(".text\n.skip 128, 0x90\n");

int main(void) { return 0; }
