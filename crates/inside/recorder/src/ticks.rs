//! The clock that orders threads: the time-stamp counter if it has one constant rate on all
//! processors, else `CLOCK_MONOTONIC`. Contexts: all.

use core::arch::x86_64::{__cpuid, __rdtscp, _mm_lfence, _rdtsc};
use sunder_guest::system;
use sunder_trace::meta::Clock;

/// The clock of this machine. The processor says whether its counter is invariant (CPUID
/// 8000_0007h, EDX bit 8).
pub fn clock_of_this_machine() -> Clock {
    #[allow(unused_unsafe, reason = "only older compilers demand it")]
    // SAFETY: every x86-64 processor has the instruction.
    let (most, bits) = unsafe { (__cpuid(0x8000_0000).eax, __cpuid(0x8000_0007).edx) };
    if most >= 0x8000_0007 && bits & 1 << 8 != 0 {
        Clock::Tsc
    } else {
        Clock::Monotonic
    }
}

/// A clock that can be read.
pub trait Ticks {
    /// The time, not later than anything that the calling thread does after this: for a release.
    fn before(self) -> u64;

    /// The time, not earlier than anything that the calling thread did before this: for an acquire.
    fn after(self) -> u64;
}

impl Ticks for Clock {
    #[inline]
    fn before(self) -> u64 {
        match self {
            // A store becomes visible only after it retires, so after this instruction.
            // SAFETY: every x86-64 processor has the instruction.
            Self::Tsc => unsafe { _rdtsc() },
            Self::Monotonic => system::clock(libc::CLOCK_MONOTONIC),
        }
    }

    #[inline]
    fn after(self) -> u64 {
        match self {
            // `rdtscp` waits until earlier loads are done; the fence keeps later ones after it.
            Self::Tsc => {
                let mut processor = 0;
                // SAFETY: every processor with an invariant counter has both instructions; the
                // pointer is that of a local.
                unsafe {
                    let now = __rdtscp(&raw mut processor);
                    _mm_lfence();
                    now
                }
            }
            Self::Monotonic => system::clock(libc::CLOCK_MONOTONIC),
        }
    }
}
