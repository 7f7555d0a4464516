//! Lines of a file, one at a time. A line that is longer than any record is passed over without being
//! kept.

use std::io::{self, BufRead};
use sunder_fleet::Wrong;

/// The longest line. Findings with very many words take some hundred thousand bytes.
pub const LONGEST: usize = 4 << 20;

/// How the last line of a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a newline, or it was a whole record all the same.
    Whole,
    /// In its middle.
    CutOff,
}

/// Hands each line to `take`, and tells `wrong` of each that it does not take, but for the last one if
/// that is cut off.
///
/// # Errors
/// If reading fails. The lines before were handed on.
pub fn read(
    reader: &mut impl BufRead,
    take: &mut dyn FnMut(&[u8]) -> Result<(), Wrong>,
    wrong: &mut dyn FnMut(Wrong),
) -> io::Result<Ended> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let next = next(reader, &mut line)?;
        let text = line.trim_ascii();
        match next {
            Next::TooLong => wrong(Wrong::Damaged),
            Next::Line if text.is_empty() => {}
            Next::Line => take(text).unwrap_or_else(&mut *wrong),
            Next::End if text.is_empty() => return Ok(Ended::Whole),
            Next::End => {
                return Ok(match take(text) {
                    Ok(()) => Ended::Whole,
                    Err(Wrong::Damaged) => Ended::CutOff,
                    Err(other) => {
                        wrong(other);
                        Ended::Whole
                    }
                });
            }
        }
    }
}

enum Next {
    /// A line that ends with a newline.
    Line,
    /// What is behind the last newline.
    End,
    /// A line that is not kept.
    TooLong,
}

/// Reads to the next newline.
fn next(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Next> {
    let mut too_long = false;
    loop {
        let chunk = match reader.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if chunk.is_empty() {
            return Ok(if too_long { Next::TooLong } else { Next::End });
        }
        let newline = chunk.iter().position(|&byte| byte == b'\n');
        let part = &chunk[..newline.unwrap_or(chunk.len())];
        if line.len() + part.len() > LONGEST {
            too_long = true;
            line.clear();
        } else if !too_long {
            line.extend_from_slice(part);
        }
        let count = part.len() + usize::from(newline.is_some());
        reader.consume(count);
        if newline.is_some() {
            return Ok(if too_long { Next::TooLong } else { Next::Line });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines, how many are wrong, and the end. A line is a record if it begins with `{`.
    fn of(text: &[u8], chunk: usize) -> (Vec<String>, usize, Ended) {
        let mut reader = io::BufReader::with_capacity(chunk, text);
        let (mut lines, mut wrong) = (Vec::new(), 0);
        let mut take = |line: &[u8]| match line.first() {
            Some(b'{') => {
                lines.push(String::from_utf8_lossy(line).into_owned());
                Ok(())
            }
            _ => Err(Wrong::Damaged),
        };
        let ended = read(&mut reader, &mut take, &mut |_| wrong += 1).expect("memory can be read");
        (lines, wrong, ended)
    }

    #[test]
    fn lines_come_whole_whatever_is_read_at_a_time() {
        for chunk in [1, 3, 64] {
            let (lines, wrong, ended) = of(b"{a\r\n\n  \nbad\n{b\n{c", chunk);
            assert_eq!(
                (lines.concat().as_str(), wrong, ended),
                ("{a{b{c", 1, Ended::Whole)
            );
            let (lines, wrong, ended) = of(b"{a\nca", chunk);
            assert_eq!((lines.len(), wrong, ended), (1, 0, Ended::CutOff));
            assert_eq!(of(b"", chunk), (vec![], 0, Ended::Whole));
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_counted_and_the_next_one_is_read() {
        let mut text = vec![b'{'; LONGEST + 1];
        text.extend(b"\n{b\n");
        let (lines, wrong, ended) = of(&text, 1000);
        assert_eq!(
            (lines, wrong, ended),
            (vec!["{b".to_owned()], 1, Ended::Whole)
        );
        let longest = of(&vec![b'{'; LONGEST], 1000);
        assert_eq!((longest.0.len(), longest.1), (1, 0));
    }
}
