//! The unit of recording: sixteen bytes for each event, which every recorder writes and the codec
//! packs. A slot is a value (mostly a data address) and a key that says what it is (mostly an
//! instruction, with the kind and the width of the access).

use sunder_access::Kind;

/// One event, or a part of one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The accessed address, or what the tag says.
    pub value: u64,
    /// Bits 0 to 47: instruction address or payload; 48 to 55: width or code;
    /// 56 to 63: tag. Zero: the slot is empty.
    pub key: Key,
}

/// See [`Slot::key`].
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// The bits of a payload.
pub const PAYLOAD: u64 = (1 << 48) - 1;

impl Key {
    /// A key of these parts; keeps 48 bits of the payload.
    #[inline]
    pub const fn new(tag: u8, code: u8, payload: u64) -> Self {
        Self((tag as u64) << 56 | (code as u64) << 48 | payload & PAYLOAD)
    }

    /// See [`tag`].
    #[inline]
    pub const fn tag(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// The width of an access in bytes, or the kind of synchronisation.
    #[inline]
    pub const fn code(self) -> u8 {
        (self.0 >> 48) as u8
    }

    /// The instruction's address, or what the tag says.
    #[inline]
    pub const fn payload(self) -> u64 {
        self.0 & PAYLOAD
    }
}

/// The meaning of a slot.
pub mod tag {
    /// A plain load. Value: address; code: width; payload: instruction.
    pub const READ: u8 = 1;
    /// A plain store.
    pub const WRITE: u8 = 2;
    /// A load and a store by one instruction that is not locked.
    pub const UPDATE: u8 = 3;
    /// A locked read-modify-write.
    pub const ATOMIC: u8 = 4;
    /// An atomic load: a plain load to the machine, synchronisation to the
    /// program.
    pub const ATOMIC_READ: u8 = 5;
    /// An atomic store.
    pub const ATOMIC_WRITE: u8 = 6;
    /// The size of the allocation in the next slot. Payload: call stack; code: see
    /// [`super::alignment_code`].
    pub const SIZE: u8 = 16;
    /// An allocation. Value: address; the slot before it is [`SIZE`].
    pub const ALLOCATE: u8 = 17;
    /// A free. Value: address.
    pub const FREE: u8 = 18;
    /// The first event of a thread. Value: index of its creator, or 0; payload:
    /// kernel thread id.
    pub const THREAD_START: u8 = 19;
    /// The last event of a thread.
    pub const THREAD_END: u8 = 20;
    /// Synchronisation. Value: the object's address; code: [`super::Sync`].
    pub const SYNC: u8 = 21;
    /// A mark that the program set. Value: its number.
    pub const MARK: u8 = 22;
    /// The calling thread's stack. Value: its lowest address; payload: bytes.
    pub const STACK: u8 = 23;
    /// A stack frame of the thread that waits in the following thread creation, innermost first.
    /// Value: the frame's stack pointer at its call, which is the canonical frame address of the
    /// frame before; payload: the return address of that call. A payload of 0 ends the list; its
    /// value is the last frame's canonical frame address, or 0.
    pub const FRAME: u8 = 24;
    /// Ticks of the clock at this position. Not an event: the codec removes stamps and gives every
    /// slot a time.
    pub const STAMP: u8 = 32;
}

/// The code of a [`tag::SIZE`]: 1 for an allocation without a requested alignment, else the base-2
/// logarithm of the alignment plus 1. An allocator rounds an alignment up to a power of two.
/// Recorders that do not know it write 0, as the first ones did.
pub const fn alignment_code(alignment: usize) -> u8 {
    match alignment.checked_next_power_of_two() {
        Some(power) => power.trailing_zeros() as u8 + 1,
        None => 0,
    }
}

/// The alignment with this [`alignment_code`]; `None` if the recorder did not know it.
pub const fn alignment(code: u8) -> Option<u64> {
    match code {
        1..=64 => Some(1 << (code - 1)),
        _ => None,
    }
}

/// The tag of an access; `None` for other slots.
pub const fn access_kind(tag: u8) -> Option<(Kind, bool)> {
    match tag {
        tag::READ => Some((Kind::Read, false)),
        tag::WRITE => Some((Kind::Write, false)),
        tag::UPDATE => Some((Kind::Update, false)),
        tag::ATOMIC => Some((Kind::Atomic, true)),
        tag::ATOMIC_READ => Some((Kind::Read, true)),
        tag::ATOMIC_WRITE => Some((Kind::Write, true)),
        _ => None,
    }
}

impl Slot {
    /// A slot with this value and key.
    #[inline]
    pub const fn new(value: u64, key: Key) -> Self {
        Self { value, key }
    }

    /// Ticks of the clock.
    #[inline]
    pub const fn stamp(ticks: u64) -> Self {
        Self::new(ticks, Key::new(tag::STAMP, 0, 0))
    }

    /// Synchronisation on the object at `object`.
    pub const fn sync(kind: Sync, object: u64) -> Self {
        Self::new(object, Key::new(tag::SYNC, kind as u8, 0))
    }
}

macro_rules! sync_kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// The action of a thread on a synchronisation object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Sync {
            $($(#[$doc])* $name = $code,)*
        }

        impl Sync {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The kind with this code.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The name in the output of `sunder trace dump`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

sync_kinds! {
    /// A mutex was locked.
    MutexLock = 1, "mutex-lock";
    /// A mutex is about to be unlocked.
    MutexUnlock = 2, "mutex-unlock";
    /// A read-write lock was taken for reading.
    ReadLock = 3, "read-lock";
    /// A read-write lock was taken for writing.
    WriteLock = 4, "write-lock";
    /// A read-write lock is about to be released.
    RwUnlock = 5, "rw-unlock";
    /// A condition variable is about to be waited for; its mutex, which is not named, is released.
    /// Newer recorders unlock and lock the mutex by events of their own around
    /// [`Sync::ConditionEnter`] and [`Sync::ConditionLeave`].
    ConditionWait = 6, "condition-wait";
    /// The wait is over and the mutex is held again.
    ConditionWoken = 7, "condition-woken";
    /// A condition variable is about to be signalled.
    ConditionSignal = 8, "condition-signal";
    /// A barrier was reached.
    BarrierReached = 9, "barrier-reached";
    /// A barrier was left.
    BarrierLeft = 10, "barrier-left";
    /// A semaphore is about to be raised.
    SemaphorePost = 11, "semaphore-post";
    /// A semaphore was lowered.
    SemaphoreWait = 12, "semaphore-wait";
    /// A one-time initialisation is complete.
    OnceDone = 13, "once-done";
    /// A one-time initialisation was found complete.
    OncePassed = 14, "once-passed";
    /// A spin lock was taken.
    SpinLock = 15, "spin-lock";
    /// A spin lock is about to be released.
    SpinUnlock = 16, "spin-unlock";
    /// A thread is about to be created. The object is the thread's index in the
    /// trace, where it is known.
    ThreadCreate = 17, "thread-create";
    /// A thread was joined.
    ThreadJoin = 18, "thread-join";
    /// A fence.
    Fence = 19, "fence";
    /// An annotation: what the thread did before it happens before all that follows a
    /// [`Sync::HappensAfter`] of the same object.
    HappensBefore = 20, "happens-before";
    /// See [`Sync::HappensBefore`].
    HappensAfter = 21, "happens-after";
    /// A condition variable is about to be waited for. The mutex was unlocked just before.
    ConditionEnter = 22, "condition-enter";
    /// The wait is over. The mutex is locked just after.
    ConditionLeave = 23, "condition-leave";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_returns_its_parts_and_truncates_large_ones() {
        let key = Key::new(tag::WRITE, 64, 0xffff_7fff_1234_5678);
        assert_eq!(
            (key.tag(), key.code(), key.payload()),
            (tag::WRITE, 64, 0x7fff_1234_5678)
        );
    }

    #[test]
    fn no_alignment_and_an_unknown_one_have_codes_of_their_own() {
        assert_eq!(alignment(0), None);
        for (requested, recorded) in [
            (0, 1),
            (1, 1),
            (8, 8),
            (24, 32),
            (64, 64),
            (1 << 63, 1 << 63),
        ] {
            assert_eq!(
                alignment(alignment_code(requested)),
                Some(recorded),
                "{requested}"
            );
        }
        // No power of two of 64 bits is so large.
        assert_eq!(alignment(alignment_code(usize::MAX)), None);
    }

    #[test]
    fn every_kind_of_synchronisation_has_one_code_and_one_name() {
        for (i, &kind) in Sync::ALL.iter().enumerate() {
            assert_eq!(kind as usize, i + 1);
            assert_eq!(Sync::from_code(kind as u8), Some(kind));
        }
        assert_eq!(Sync::from_code(0), None);
    }
}
