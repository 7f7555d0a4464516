//! Lexers for several streams. Every stream has a state of its own in a Box, and
//! a thread feeds it byte by byte, as the bytes arrive. The boxes are made one
//! after the other and are smaller than a cache line, so that neighbours on the
//! heap share lines.
#![allow(unexpected_cfgs)]

use std::thread;

#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Space,
    Word,
    Number,
}

#[cfg_attr(fixed, repr(align(64)))]
struct Lexer {
    inside: Inside,
    tokens: u32,
    hash: u64,
}

impl Lexer {
    fn new(stream: usize) -> Self {
        Lexer { inside: Inside::Space, tokens: 0, hash: stream as u64 }
    }

    /// Takes one byte; gives the hash of a token that ends before it.
    #[inline(never)]
    fn feed(&mut self, byte: u8) -> Option<u64> {
        let now = match byte {
            b'0'..=b'9' => Inside::Number,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Inside::Word,
            _ => Inside::Space,
        };
        let ended = now != self.inside && self.inside != Inside::Space;
        let token = self.hash;
        self.tokens += u32::from(ended);
        self.hash = if ended { 0 } else { (token ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3) };
        self.inside = now;
        ended.then_some(token)
    }
}

fn make_source(length: usize) -> Vec<u8> {
    let letters = b"while (index_1 < 4096) { total = total * 31 + table[index_1]; }\n";
    letters.iter().copied().cycle().take(length).collect()
}

/// Feeds the source `rounds` times; the tokens go to a table of symbols.
fn read(lexer: &mut Lexer, source: &[u8], rounds: u64) -> u64 {
    let mut symbols = vec![0u64; 128];
    for _ in 0..rounds {
        for &byte in source {
            if let Some(token) = lexer.feed(byte) {
                symbols[token as usize % 128] += token >> 8;
            }
        }
    }
    symbols.iter().fold(0, |hash, &symbol| (hash ^ symbol).wrapping_mul(0x100_0000_01b3))
}

fn arguments() -> Option<(usize, u64)> {
    let mut all = std::env::args().skip(1);
    let threads = all.next()?.parse().ok()?;
    let size = all.next()?.parse().ok()?;
    ((1..=64).contains(&threads) && size > 0).then_some((threads, size))
}

fn main() {
    let Some((threads, size)) = arguments() else {
        eprintln!("usage: lexer_states THREADS SIZE");
        std::process::exit(2);
    };
    let rounds = size / threads as u64;
    let source = make_source(4096);
    let mut lexers: Vec<Box<Lexer>> = (0..threads).map(|stream| Box::new(Lexer::new(stream))).collect();
    let hashes: Vec<u64> = thread::scope(|scope| {
        let source = &source;
        let running: Vec<_> = lexers
            .iter_mut()
            .map(|lexer| scope.spawn(move || read(lexer, source, rounds)))
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut sum = 0u64;
    for (lexer, hash) in lexers.iter().zip(hashes) {
        sum = (sum ^ hash).wrapping_mul(31).wrapping_add(lexer.hash ^ u64::from(lexer.tokens));
    }
    println!("checksum {sum:016x}");
}
