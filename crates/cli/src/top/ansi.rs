//! What `ratatui` draws, as text for the terminal, in the 16 colours that every terminal has. It writes
//! nothing itself.

use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};
use std::convert::Infallible;
use std::fmt::Write;

/// A drawing, which grows until it is taken.
#[derive(Debug, Default)]
pub struct Ansi {
    text: String,
    size: Size,
    /// Whether only ASCII may be drawn.
    ascii: bool,
}

impl Ansi {
    /// An empty drawing.
    pub fn new(ascii: bool) -> Self {
        Self {
            ascii,
            ..Self::default()
        }
    }

    /// Takes what was drawn.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// The terminal has this size now.
    pub fn set_size(&mut self, columns: u16, rows: u16) {
        self.size = Size::new(columns, rows);
    }
}

/// The number of a colour among the 16 of a terminal: 30 and up, 90 and up for the bright ones. Others
/// are the terminal's own.
const fn foreground(color: Color) -> u8 {
    match color {
        Color::Black => 30,
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
        Color::Blue => 34,
        Color::Magenta => 35,
        Color::Cyan => 36,
        Color::Gray => 37,
        Color::DarkGray => 90,
        _ => 39,
    }
}

impl Backend for Ansi {
    type Error = Infallible;

    fn draw<'a, I>(&mut self, content: I) -> Result<(), Infallible>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        for (column, row, cell) in content {
            if next != Some((column, row)) {
                let _ = write!(self.text, "\x1b[{};{}H", row + 1, column + 1);
            }
            let _ = write!(self.text, "\x1b[0;{}", foreground(cell.fg));
            for (modifier, code) in [
                (Modifier::BOLD, 1),
                (Modifier::DIM, 2),
                (Modifier::REVERSED, 7),
            ] {
                if cell.modifier.contains(modifier) {
                    let _ = write!(self.text, ";{code}");
                }
            }
            self.text.push('m');
            let symbol = cell.symbol();
            if self.ascii {
                self.text.push_str(&sunder_report::in_ascii(symbol));
            } else {
                self.text.push_str(symbol);
            }
            // Wide characters take two columns: the next cell is placed anew.
            let is_narrow = symbol.is_ascii();
            next = is_narrow.then_some((column + 1, row));
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn show_cursor(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn get_cursor_position(&mut self) -> Result<Position, Infallible> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, _position: P) -> Result<(), Infallible> {
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Infallible> {
        self.text.push_str("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _kind: ClearType) -> Result<(), Infallible> {
        self.clear()
    }

    fn size(&self) -> Result<Size, Infallible> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> Result<WindowSize, Infallible> {
        Ok(WindowSize {
            columns_rows: self.size,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
