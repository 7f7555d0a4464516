//! Registers the callbacks of each instruction that is translated. The emulator translates in one
//! thread at a time. Contexts: normal.

use crate::accesses::{self, data};
use crate::api::{self, BOTH, Block, Functions, Id, Instruction, NO_REGISTERS};
use crate::decode::{Effect, Side, effect};
use crate::{guest, modules};
use core::cell::RefCell;
use sunder_trace::slot::{Key, tag};
use sunder_x86::Manual;

thread_local! {
    static MANUAL: RefCell<Manual> = RefCell::new(Manual::new());
}

/// A block is being translated.
pub extern "C" fn block(_: Id, block: *mut Block) {
    let Some(emulator) = api::functions() else {
        return;
    };
    MANUAL.with(|manual| {
        let Ok(mut manual) = manual.try_borrow_mut() else {
            return;
        };
        for i in 0..(emulator.count)(block) {
            let instruction = (emulator.instruction)(block, i);
            if !instruction.is_null() {
                one(emulator, instruction, &mut manual);
            }
        }
    });
}

fn one(emulator: &Functions, instruction: *mut Instruction, manual: &mut Manual) {
    let address = (emulator.address)(instruction);
    let (start, count) = ((emulator.bytes)(instruction), (emulator.size)(instruction));
    if start.is_null() {
        return;
    }
    // SAFETY: the emulator keeps the bytes while the block is being translated.
    let bytes = unsafe { core::slice::from_raw_parts(start, count) };
    let of = Of {
        emulator,
        instruction,
        address,
    };
    if guest::is_bell(bytes) {
        let base = (emulator.host)(instruction).addr() as u64;
        guest::set_base(base.wrapping_sub(address));
        return of.on(guest::rung, Key::new(0, 0, address));
    }
    if modules::is_in_announcer(address) {
        return;
    }
    match effect(bytes, address, manual) {
        Effect::None => {}
        Effect::Fence => of.before(accesses::fence),
        Effect::Atomic(bytes) => {
            of.before(accesses::before_atomic);
            of.on(accesses::atomic, of.key(tag::ATOMIC, bytes));
        }
        Effect::Update(Side::Whole(bytes)) => {
            of.on(accesses::store, of.key(tag::UPDATE, bytes));
        }
        Effect::Plain {
            read: Some(side),
            write: None,
        } => of.side(tag::READ, side),
        Effect::Plain {
            read: None,
            write: Some(side),
        } => of.side(tag::WRITE, side),
        Effect::Call { length, loads } => {
            let callback = if loads {
                accesses::call_through
            } else {
                accesses::call
            };
            of.on(callback, of.key(0, length));
        }
        Effect::Return => of.on(accesses::leave, of.key(tag::READ, 8)),
        Effect::Update(_) | Effect::Plain { .. } | Effect::Unknown => {
            of.on(accesses::unknown, of.key(0, 0));
        }
    }
}

struct Of<'a> {
    emulator: &'a Functions,
    instruction: *mut Instruction,
    address: u64,
}

impl Of<'_> {
    fn key(&self, tag: u8, code: u8) -> Key {
        Key::new(tag, code, self.address)
    }

    /// Always for loads and stores: QEMU 7.2 confuses the two when only one is requested.
    fn on(&self, callback: api::Access, key: Key) {
        (self.emulator.on_access)(self.instruction, callback, NO_REGISTERS, BOTH, data(key));
    }

    fn before(&self, callback: api::Execute) {
        let data = core::ptr::null_mut();
        (self.emulator.on_execute)(self.instruction, callback, NO_REGISTERS, data);
    }

    /// Registers the callbacks of an instruction that only loads, or only stores.
    fn side(&self, tag: u8, side: Side) {
        match side {
            Side::Whole(bytes) => self.on(accesses::whole, self.key(tag, bytes)),
            Side::Pieces(bytes) => self.on(accesses::piece, self.key(tag, bytes)),
        }
    }
}
