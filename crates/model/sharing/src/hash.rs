//! A fast hash for addresses and small integers. The keys come from a program that its own user
//! observes, so the hash need not withstand collisions made on purpose.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with the fast hash.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Multiply>>;

/// Multiplication by an odd constant; the high bits, which are the well-mixed
/// ones, are folded down because the table uses the low ones.
#[derive(Clone, Copy, Default)]
pub(crate) struct Multiply(u64);

/// 2^64 divided by the golden ratio, made odd (Knuth, volume 3, section 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(GOLDEN);
    }
}
