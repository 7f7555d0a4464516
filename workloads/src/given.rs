//! The inputs of the distribution's programs in tests and benchmarks: generated, and the same on
//! every machine. Writes no files.

use std::fmt::Write as _;

/// Width and height of a film, in pixels.
const SIZE: (usize, usize) = (320, 176);

/// Numbers without a pattern (Knuth's MMIX constants).
fn numbers() -> impl FnMut() -> u32 {
    let mut state = 20_261_121_u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    }
}

/// Text with repetitions, of `bytes` bytes or a little more.
#[must_use]
pub fn text(bytes: usize) -> Vec<u8> {
    let mut next = numbers();
    let mut all = String::with_capacity(bytes + 100);
    while all.len() < bytes {
        for _ in 0..8 {
            let number = next() % 5000;
            // Writing to a string can't fail.
            let _ = write!(all, "{} ", number * number);
        }
        all.push('\n');
    }
    all.into_bytes()
}

/// A film of so many frames of moving noise (YUV4MPEG2).
#[must_use]
pub fn film(frames: usize) -> Vec<u8> {
    let (width, height) = SIZE;
    let mut next = numbers();
    let noise: Vec<u8> = (0..width * height + 7 * frames)
        .map(|_| next() as u8)
        .collect();
    let mut all = format!("YUV4MPEG2 W{width} H{height} F25:1 C420\n").into_bytes();
    for frame in 0..frames {
        all.extend_from_slice(b"FRAME\n");
        all.extend_from_slice(&noise[frame * 7..][..width * height]);
        all.resize(all.len() + width * height / 2, 128 + (frame % 64) as u8);
    }
    all
}

/// A Python program that computes outside of the interpreter's lock in four threads, so many rounds
/// each.
#[must_use]
pub fn python(rounds: u32) -> String {
    format!(
        "import hashlib, threading, zlib
out = [None] * 4
def work(n):
    digest = hashlib.sha256()
    for i in range({rounds}):
        digest.update(zlib.compress(bytes((i * j + n) % 251 for j in range(4000)) * 20, 6))
    out[n] = digest.hexdigest()
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*out, sep='\\n')
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_input_has_lines_of_eight_squares() {
        let all = String::from_utf8(text(1000)).expect("digits");
        assert!((1000..1100).contains(&all.len()), "{}", all.len());
        let square = |word: &str| {
            let number: u32 = word.parse().expect("a number");
            number.isqrt().pow(2) == number
        };
        for line in all.lines() {
            assert_eq!(line.split_whitespace().filter(|w| square(w)).count(), 8);
        }
        assert_eq!(text(2000)[..1000], text(1000)[..1000]);
    }

    #[test]
    fn the_video_input_has_different_frames() {
        // The head, then a word, brightness, and a quarter as much of each colour.
        let (head, frame) = (31, 6 + 320 * 176 * 3 / 2);
        let all = film(3);
        assert_eq!(all.iter().position(|&b| b == b'\n'), Some(head - 1));
        assert_eq!(all.len(), head + 3 * frame);
        let mut frames = all[head..].chunks(frame);
        assert!(frames.clone().all(|f| f.starts_with(b"FRAME\n")));
        assert_ne!(frames.next(), frames.next());
    }
}
