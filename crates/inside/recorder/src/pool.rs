//! Encoders, which all threads share because each needs megabytes: twice as many as there are
//! processors. Contexts: all, with signals blocked.

use crate::memory::map;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::system;
use sunder_trace::Encoder;

const MOST: usize = 64;

#[derive(Debug)]
struct Entry {
    busy: AtomicBool,
    encoder: AtomicPtr<Encoder>,
}

/// The encoders of a process.
#[derive(Debug)]
pub struct Pool {
    entries: [Entry; MOST],
    count: AtomicU32,
}

/// A claimed encoder, until dropped.
#[derive(Debug)]
pub struct Taken<'a> {
    entry: &'a Entry,
    encoder: &'a mut Encoder,
}

impl Pool {
    pub const fn new() -> Self {
        Self {
            entries: [const {
                Entry {
                    busy: AtomicBool::new(false),
                    encoder: AtomicPtr::new(core::ptr::null_mut()),
                }
            }; MOST],
            count: AtomicU32::new(0),
        }
    }

    /// Prepares the pool before the first encoder is taken; false if there is no memory for one.
    pub fn prepare(&self) -> bool {
        let count = (system::processors() * 2).clamp(2, MOST as u32);
        self.count.store(count, Ordering::Relaxed);
        self.take().is_some()
    }

    /// Claims an encoder; waits until one is free. Only with signals blocked. `None` if there is no
    /// memory.
    pub fn take(&self) -> Option<Taken<'_>> {
        let count = self.count.load(Ordering::Relaxed) as usize;
        let entries = self.entries.get(..count)?;
        loop {
            for entry in entries {
                if !entry.busy.swap(true, Ordering::Acquire) {
                    let encoder = entry.get();
                    if encoder.is_none() {
                        entry.busy.store(false, Ordering::Release);
                    }
                    return encoder.map(|encoder| Taken { entry, encoder });
                }
            }
            system::give_way();
        }
    }
}

impl Entry {
    /// The encoder, which is mapped on first use. The caller has set `busy`.
    #[expect(
        clippy::mut_from_ref,
        reason = "whoever has set `busy` is the only one"
    )]
    fn get(&self) -> Option<&mut Encoder> {
        if self.encoder.load(Ordering::Relaxed).is_null() {
            let memory = map(size_of::<Encoder>(), PAGE)?;
            self.encoder
                .store(memory.as_ptr().cast(), Ordering::Relaxed);
        }
        // SAFETY: zeroes are a valid encoder, it is never unmapped, and only the thread that has
        // set `busy` uses it.
        unsafe { self.encoder.load(Ordering::Relaxed).as_mut() }
    }
}

impl Deref for Taken<'_> {
    type Target = Encoder;

    fn deref(&self) -> &Encoder {
        self.encoder
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut Encoder {
        self.encoder
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.entry.busy.store(false, Ordering::Release);
    }
}
