//! The compilers' atomic operations. All memory orders are sequentially consistent, which every
//! weaker order permits. Contexts: all.
//!
//! A recorded operation is stamped and executed under a lock that is chosen by its address, so that
//! stamps have the order of the operations on one address. A signal handler that interrupts the
//! lock's owner continues without the lock, and so does a thread that has waited very long: the
//! program must not be blocked.

use crate::hooks::call_before;
use crate::local::{RECORDER, local, recorded};
use core::arch::{asm, naked_asm};
use core::ffi::c_int;
use core::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use sunder_guest::system;
use sunder_trace::slot::{Key, Slot, Sync, tag};

#[repr(align(64))]
struct Stripe(AtomicU64);

const STRIPES: usize = 1024;

/// The owner of each lock: the address of its thread-local memory, or 0.
static STRIPE: [Stripe; STRIPES] = [const { Stripe(AtomicU64::new(0)) }; STRIPES];

struct Locked(Option<&'static AtomicU64>);

impl Locked {
    #[inline]
    fn on(address: u64) -> Self {
        let line = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let Some(Stripe(stripe)) = STRIPE.get(line as usize) else {
            return Self(None);
        };
        let own = local() as u64;
        for turn in 0..1_000_000 {
            match stripe.compare_exchange(0, own, Acquire, Relaxed) {
                Ok(_) => return Self(Some(stripe)),
                Err(owner) if owner == own => return Self(None),
                Err(_) if turn % 64 == 63 => system::give_way(),
                Err(_) => core::hint::spin_loop(),
            }
        }
        Self(None)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(stripe) = self.0 {
            stripe.store(0, Release);
        }
    }
}

#[inline]
fn ordered<T>(tag: u8, address: u64, operation: impl FnOnce() -> T) -> T {
    let Some(buffer) = recorded() else {
        return operation();
    };
    // SAFETY: the calling thread's own memory.
    let caller = unsafe { (*local()).caller };
    let key = Key::new(tag, size_of::<T>() as u8, call_before(caller));
    // SAFETY: the calling thread's buffer.
    unsafe { RECORDER.make_room(buffer, 2) };
    let _locked = Locked::on(address);
    // SAFETY: the calling thread's buffer, with room for two slots.
    unsafe { RECORDER.push_after(buffer, Slot::new(address, key)) };
    operation()
}

/// Exports functions that keep their return address and continue in the function of the same name
/// in `inner`.
macro_rules! exported {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        /// Called by compiled code.
        ///
        /// # Safety
        /// Its pointers are valid and aligned.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            naked_asm!(
                "mov r11, qword ptr [rsp]",
                "mov r10, qword ptr [rip + sunder_tracer_local@GOTTPOFF]",
                "mov qword ptr fs:[r10 + 56], r11",
                "jmp {}",
                sym inner::$name,
            )
        }
    )*};
}

const _: () = assert!(core::mem::offset_of!(crate::local::Local, caller) == 56);

macro_rules! names {
    ($go:ident, $($bits:literal $type:ty, $atomic:ty: $load:ident $store:ident $exchange:ident $add:ident $sub:ident $and:ident $or:ident $xor:ident $nand:ident $strong:ident $weak:ident $value:ident;)*) => {
        $($go! { $type, $atomic: $load $store $exchange $add $sub $and $or $xor $nand $strong $weak $value })*
    };
}

macro_rules! all {
    ($go:ident) => {
        names! { $go,
            8 u8, AtomicU8: __tsan_atomic8_load __tsan_atomic8_store __tsan_atomic8_exchange __tsan_atomic8_fetch_add __tsan_atomic8_fetch_sub __tsan_atomic8_fetch_and __tsan_atomic8_fetch_or __tsan_atomic8_fetch_xor __tsan_atomic8_fetch_nand __tsan_atomic8_compare_exchange_strong __tsan_atomic8_compare_exchange_weak __tsan_atomic8_compare_exchange_val;
            16 u16, AtomicU16: __tsan_atomic16_load __tsan_atomic16_store __tsan_atomic16_exchange __tsan_atomic16_fetch_add __tsan_atomic16_fetch_sub __tsan_atomic16_fetch_and __tsan_atomic16_fetch_or __tsan_atomic16_fetch_xor __tsan_atomic16_fetch_nand __tsan_atomic16_compare_exchange_strong __tsan_atomic16_compare_exchange_weak __tsan_atomic16_compare_exchange_val;
            32 u32, AtomicU32: __tsan_atomic32_load __tsan_atomic32_store __tsan_atomic32_exchange __tsan_atomic32_fetch_add __tsan_atomic32_fetch_sub __tsan_atomic32_fetch_and __tsan_atomic32_fetch_or __tsan_atomic32_fetch_xor __tsan_atomic32_fetch_nand __tsan_atomic32_compare_exchange_strong __tsan_atomic32_compare_exchange_weak __tsan_atomic32_compare_exchange_val;
            64 u64, AtomicU64: __tsan_atomic64_load __tsan_atomic64_store __tsan_atomic64_exchange __tsan_atomic64_fetch_add __tsan_atomic64_fetch_sub __tsan_atomic64_fetch_and __tsan_atomic64_fetch_or __tsan_atomic64_fetch_xor __tsan_atomic64_fetch_nand __tsan_atomic64_compare_exchange_strong __tsan_atomic64_compare_exchange_weak __tsan_atomic64_compare_exchange_val;
            128 u128, Wide: __tsan_atomic128_load __tsan_atomic128_store __tsan_atomic128_exchange __tsan_atomic128_fetch_add __tsan_atomic128_fetch_sub __tsan_atomic128_fetch_and __tsan_atomic128_fetch_or __tsan_atomic128_fetch_xor __tsan_atomic128_fetch_nand __tsan_atomic128_compare_exchange_strong __tsan_atomic128_compare_exchange_weak __tsan_atomic128_compare_exchange_val;
        }
    };
}

macro_rules! export {
    ($type:ty, $atomic:ty: $load:ident $store:ident $exchange:ident $add:ident $sub:ident $and:ident $or:ident $xor:ident $nand:ident $strong:ident $weak:ident $value:ident) => {
        exported! {
            $load(at: *const $type, order: c_int) -> $type;
            $store(at: *mut $type, value: $type, order: c_int);
            $exchange(at: *mut $type, value: $type, order: c_int) -> $type;
            $add(at: *mut $type, value: $type, order: c_int) -> $type;
            $sub(at: *mut $type, value: $type, order: c_int) -> $type;
            $and(at: *mut $type, value: $type, order: c_int) -> $type;
            $or(at: *mut $type, value: $type, order: c_int) -> $type;
            $xor(at: *mut $type, value: $type, order: c_int) -> $type;
            $nand(at: *mut $type, value: $type, order: c_int) -> $type;
            $strong(at: *mut $type, expected: *mut $type, new: $type, order: c_int, failed: c_int) -> c_int;
            $weak(at: *mut $type, expected: *mut $type, new: $type, order: c_int, failed: c_int) -> c_int;
            $value(at: *mut $type, expected: $type, new: $type, order: c_int, failed: c_int) -> $type;
        }
    };
}

all!(export);

mod inner {
    use super::*;

    macro_rules! update {
        ($type:ty, $atomic:ty, $($name:ident $method:ident)*) => {$(
            pub unsafe extern "C" fn $name(at: *mut $type, value: $type, _: c_int) -> $type {
                // SAFETY: compiled code passes a valid, aligned address.
                let atomic = unsafe { <$atomic>::from_ptr(at) };
                ordered(tag::ATOMIC, at as u64, || atomic.$method(value, SeqCst))
            }
        )*};
    }

    macro_rules! define {
        ($type:ty, $atomic:ty: $load:ident $store:ident $exchange:ident $add:ident $sub:ident $and:ident $or:ident $xor:ident $nand:ident $strong:ident $weak:ident $value:ident) => {
            pub unsafe extern "C" fn $load(at: *const $type, _: c_int) -> $type {
                // SAFETY: as in `update`.
                let atomic = unsafe { <$atomic>::from_ptr(at.cast_mut()) };
                ordered(tag::ATOMIC_READ, at as u64, || atomic.load(SeqCst))
            }

            pub unsafe extern "C" fn $store(at: *mut $type, value: $type, _: c_int) {
                // SAFETY: as in `update`.
                let atomic = unsafe { <$atomic>::from_ptr(at) };
                // The closure's value has the operation's width.
                ordered(tag::ATOMIC_WRITE, at as u64, || {
                    atomic.store(value, SeqCst);
                    value
                });
            }

            update! { $type, $atomic, $exchange swap $add fetch_add $sub fetch_sub $and fetch_and $or fetch_or $xor fetch_xor $nand fetch_nand }

            pub unsafe extern "C" fn $value(
                at: *mut $type,
                expected: $type,
                new: $type,
                _: c_int,
                _: c_int,
            ) -> $type {
                // SAFETY: as in `update`.
                let atomic = unsafe { <$atomic>::from_ptr(at) };
                ordered(tag::ATOMIC, at as u64, || {
                    match atomic.compare_exchange(expected, new, SeqCst, SeqCst) {
                        Ok(old) | Err(old) => old,
                    }
                })
            }

            pub unsafe extern "C" fn $strong(
                at: *mut $type,
                expected: *mut $type,
                new: $type,
                order: c_int,
                failed: c_int,
            ) -> c_int {
                // SAFETY: as in `update`; compiled code passes a valid address for the result.
                unsafe {
                    let wanted = *expected;
                    let old = $value(at, wanted, new, order, failed);
                    if old != wanted {
                        *expected = old;
                    }
                    c_int::from(old == wanted)
                }
            }

            pub unsafe extern "C" fn $weak(
                at: *mut $type,
                expected: *mut $type,
                new: $type,
                order: c_int,
                failed: c_int,
            ) -> c_int {
                // SAFETY: the caller's arguments, passed on unchanged under the same contract.
                unsafe { $strong(at, expected, new, order, failed) }
            }
        };
    }

    all!(define);
}

/// A 16-byte value, changed by `cmpxchg16b`.
struct Wide(*mut u128);

impl Wide {
    /// # Safety
    /// The address is valid and a multiple of 16.
    unsafe fn from_ptr(at: *mut u128) -> Self {
        Self(at)
    }

    fn compare_exchange(
        &self,
        expected: u128,
        new: u128,
        _: core::sync::atomic::Ordering,
        _: core::sync::atomic::Ordering,
    ) -> Result<u128, u128> {
        let (mut low, mut high) = (expected as u64, (expected >> 64) as u64);
        // SAFETY: by the contract of `from_ptr`. The compiler reserves rbx, so the new value's low
        // half is in it for this one instruction only.
        unsafe {
            asm!(
                "xchg {new_low}, rbx",
                "lock cmpxchg16b xmmword ptr [{at}]",
                "mov rbx, {new_low}",
                at = in(reg) self.0,
                new_low = inout(reg) new as u64 => _,
                in("rcx") (new >> 64) as u64,
                inout("rax") low,
                inout("rdx") high,
                options(nostack),
            );
        }
        let old = u128::from(high) << 64 | u128::from(low);
        if old == expected { Ok(old) } else { Err(old) }
    }

    fn update(&self, change: impl Fn(u128) -> u128) -> u128 {
        let mut old = 0;
        loop {
            match self.compare_exchange(old, change(old), SeqCst, SeqCst) {
                Ok(old) => return old,
                Err(now) => old = now,
            }
        }
    }

    fn load(&self, _: core::sync::atomic::Ordering) -> u128 {
        match self.compare_exchange(0, 0, SeqCst, SeqCst) {
            Ok(old) | Err(old) => old,
        }
    }

    fn store(&self, value: u128, _: core::sync::atomic::Ordering) {
        self.update(|_| value);
    }
}

macro_rules! wide {
    ($($name:ident |$old:ident, $value:ident| $new:expr;)*) => {
        impl Wide {$(
            fn $name(&self, $value: u128, _: core::sync::atomic::Ordering) -> u128 {
                self.update(|$old| $new)
            }
        )*}
    };
}

wide! {
    swap |_old, value| value;
    fetch_add |old, value| old.wrapping_add(value);
    fetch_sub |old, value| old.wrapping_sub(value);
    fetch_and |old, value| old & value;
    fetch_or |old, value| old | value;
    fetch_xor |old, value| old ^ value;
    fetch_nand |old, value| !(old & value);
}

/// A fence between threads.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_atomic_thread_fence(_order: c_int) {
    fence(SeqCst);
    crate::local::after(Slot::sync(Sync::Fence, 0));
}

/// A fence against signal handlers of the same thread. The call itself is one.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_atomic_signal_fence(_order: c_int) {
    core::sync::atomic::compiler_fence(SeqCst);
}
