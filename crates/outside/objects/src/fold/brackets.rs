//! Where the brackets of a name close.

/// The length of the text up to the `>` that closes its first `<`, inclusive.
pub(super) fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' => {
                depth -= 1;
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    text.len() + 1
}
