//! Newtypes for everything that would otherwise be a bare integer. Addresses
//! of different spaces never share a type.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

macro_rules! address_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl $name {
            /// The address `bytes` further on; wraps as the hardware does.
            #[must_use]
            pub const fn offset(self, bytes: i64) -> Self {
                Self(self.0.wrapping_add_signed(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        /// Reads what `Display` writes.
        impl FromStr for $name {
            type Err = NotAnAddress;

            fn from_str(text: &str) -> Result<Self, NotAnAddress> {
                number(text).map(Self).ok_or(NotAnAddress)
            }
        }
    };
}

/// A text that is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnAddress;

impl fmt::Display for NotAnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address is `0x` and at most 16 hexadecimal digits")
    }
}

impl core::error::Error for NotAnAddress {}

/// The number that is written as `0x` and hexadecimal digits.
fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    // `from_str_radix` takes a sign.
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u64::from_str_radix(digits, 16).ok()?;
    is_plain.then_some(number)
}

address_type! {
    /// A virtual address of data in the target.
    Address
}
address_type! {
    /// A virtual address of an instruction in the target.
    CodeAddress
}
address_type! {
    /// An address as an ELF file has it, before loading adds the bias.
    LinkAddress
}

/// A thread of the target, by its kernel thread id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// A process, by its kernel process id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Nanoseconds on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// From `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanoseconds_since(earlier))
    }

    /// The same as a number, for arithmetic on many times.
    pub const fn nanoseconds_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// So much later; the last time that there is, if that is beyond it.
    #[must_use]
    pub const fn after(self, interval: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(interval)))
    }

    /// So much earlier; zero if that is before it.
    #[must_use]
    pub const fn before(self, interval: Duration) -> Self {
        Self(self.0.saturating_sub(nanoseconds(interval)))
    }
}

/// An interval in nanoseconds; `u64::MAX` for more than 584 years.
const fn nanoseconds(interval: Duration) -> u64 {
    let nanoseconds = interval.as_nanos();
    if nanoseconds > u64::MAX as u128 {
        u64::MAX
    } else {
        nanoseconds as u64
    }
}

/// A range of bytes in the target. `len` may be zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The first byte.
    pub start: Address,
    /// Number of bytes.
    pub len: u64,
}

impl Span {
    /// A span of `len` bytes from `start`.
    pub const fn new(start: Address, len: u64) -> Self {
        Self { start, len }
    }

    /// The first address after the span.
    pub const fn end(self) -> Address {
        Address(self.start.0.saturating_add(self.len))
    }

    /// Whether `address` is one of its bytes.
    pub const fn contains(self, address: Address) -> bool {
        address.0 >= self.start.0 && address.0 - self.start.0 < self.len
    }

    /// Whether the two have a byte in common.
    pub const fn overlaps(self, other: Self) -> bool {
        self.len > 0
            && other.len > 0
            && self.start.0 < other.end().0
            && other.start.0 < self.end().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_overlap_only_in_common_bytes() {
        let a = Span::new(Address(64), 8);
        assert!(a.overlaps(Span::new(Address(71), 1)));
        assert!(!a.overlaps(Span::new(Address(72), 8)));
        assert!(!a.overlaps(Span::new(Address(64), 0)));
        assert!(a.contains(Address(71)) && !a.contains(Address(72)));
    }

    #[test]
    fn addresses_parse_from_their_display_form() {
        use alloc::string::ToString;
        for number in [0, 1, 0x55e3_0000_1040, u64::MAX] {
            let address = Address(number);
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        for bad in [
            "",
            "0x",
            "55e3",
            "0X1",
            "0x+1",
            "0x 1",
            "0x1g",
            "-0x1",
            "0x10000000000000000",
            "\u{1b}[2J",
        ] {
            assert_eq!(bad.parse::<Address>(), Err(NotAnAddress), "{bad:?}");
        }
    }

    #[test]
    fn time_arithmetic_saturates() {
        let second = Duration::from_secs(1);
        assert_eq!(Time(5).after(second), Time(1_000_000_005));
        assert_eq!(Time(1_000_000_005).before(second), Time(5));
        assert_eq!(Time(5).before(second), Time(0));
        assert_eq!(Time(5).after(Duration::MAX), Time(u64::MAX));
        assert_eq!(Time(7).since(Time(5)), Duration::from_nanos(2));
        assert_eq!(Time(5).since(Time(7)), Duration::ZERO);
    }

    #[test]
    fn a_span_at_the_top_of_the_address_space_does_not_wrap() {
        let top = Span::new(Address(u64::MAX - 3), 8);
        assert_eq!(top.end(), Address(u64::MAX));
        assert!(top.contains(Address(u64::MAX)));
    }
}
