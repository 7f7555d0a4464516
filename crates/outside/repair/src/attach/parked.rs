//! Keeps threads off their own stacks while pages of these are moved: a stopped thread that waits in a
//! kernel call goes on waiting in code of the library, on a stack of ours (`sunder_wire::parked`). The
//! kernel makes the call again there as it would have where the thread was. Called by `inject` and
//! `leave`, while all threads are stopped. Must not park a thread that computes.

use super::layout::Slots;
use super::presence::Presence;
use crate::control::ControlFile;
use std::mem::offset_of;
use std::sync::atomic::Ordering::{Acquire, Release};
use sunder_access::{Address, Mappings};
use sunder_stop::{Stopped, World, top_of};
use sunder_wire::parked::Parked;

/// The numbers of `rbx` and `rsp` in machine code.
const RBX: usize = 3;
const RSP: usize = 4;

impl Presence {
    /// The record of a thread that is parked.
    pub fn parked<'a>(&self, file: &'a ControlFile, thread: &Stopped) -> Option<&'a Parked> {
        let (number, registers) = (thread.thread().unsigned_abs(), thread.registers());
        let mut all = file.control().parked.iter();
        all.find(|one| {
            one.thread.load(Acquire) == number
                && one.called.load(Acquire) == registers.rip
                && self.ledger.has(registers.rip)
                && registers.rbx == self.address_of(file, one)
        })
    }

    /// Address of a record in the program.
    fn address_of(&self, file: &ControlFile, record: &Parked) -> u64 {
        let offset = file.offset(&record.thread) - offset_of!(Parked, thread) as u64;
        self.ledger.control.wrapping_add(offset)
    }

    /// Parks these threads, or none of them.
    ///
    /// # Errors
    /// Says why not.
    pub fn park(
        &self,
        file: &ControlFile,
        world: &mut World,
        owners: &[i32],
        mappings: &Mappings,
        (slots, called): (Slots, u64),
    ) -> Result<(), &'static str> {
        let is_in_use = |number: usize, record: &Parked| {
            let (from, to) = slots.slot(number);
            let thread = record.thread.load(Acquire).cast_signed();
            let mut threads = world.threads().iter();
            threads.any(|t| {
                let registers = t.registers();
                let is_there = self.ledger.has(registers.rip) && t.thread() == thread;
                is_there || (from..=to).contains(&registers.rsp)
            })
        };
        let all = file.control().parked.iter().enumerate();
        let free = all.filter(|&(number, record)| !is_in_use(number, record));
        let free: Vec<(usize, &Parked)> = free.take(owners.len()).collect();
        if free.len() < owners.len() {
            return Err("too many threads have to wait for it, on whose stacks it lies");
        }
        let mut done = Vec::new();
        for (&owner, (number, record)) in owners.iter().zip(free) {
            let mut threads = world.threads_mut().iter_mut();
            let thread = threads.find(|t| t.thread() == owner);
            let parked = thread.and_then(|thread| {
                let registers = *thread.registers();
                let stack = mappings.at(Address(registers.rsp))?;
                for (word, value) in [
                    (&record.after, registers.rip),
                    (&record.rsp, registers.rsp),
                    (&record.rbx, registers.rbx),
                    (&record.guard, slots.slot(number).0),
                    (&record.low, stack.span.start.0),
                    (&record.high, top_of(&registers, stack)),
                    (&record.called, called),
                ] {
                    word.store(value, Release);
                }
                record.thread.store(owner.unsigned_abs(), Release);
                let at = self.address_of(file, record);
                let go = self.move_to(thread, called, |general| {
                    (general[RBX], general[RSP]) = (at, slots.stack_pointer(number));
                });
                go.ok()
            });
            if parked.is_none() {
                // Others may have been parked for pages that are away.
                self.unpark(file, world, |thread| done.contains(&thread));
                return Err("a thread on whose stack it lies can't be made to wait elsewhere");
            }
            done.push(owner);
        }
        Ok(())
    }

    /// Has parked threads wait where they waited before, those that `which` is true for. What has moved
    /// of their stacks must be back. Gives how many could not be changed.
    pub fn unpark(
        &self,
        file: &ControlFile,
        world: &mut World,
        which: impl Fn(i32) -> bool,
    ) -> usize {
        let mut failed = 0;
        let threads = world.threads_mut().iter_mut();
        for thread in threads.filter(|t| which(t.thread())) {
            let Some(record) = self.parked(file, thread) else {
                continue;
            };
            let back = self.move_to(thread, record.after.load(Acquire), |general| {
                general[RBX] = record.rbx.load(Acquire);
                general[RSP] = record.rsp.load(Acquire);
            });
            failed += usize::from(back.is_err());
        }
        failed
    }
}
