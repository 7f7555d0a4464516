//! The part of the emulator's plugin interface that we use, version 1
//! (`qemu-plugin.h` of QEMU 4.2 to 8.2). The functions are looked up when the
//! plugin is loaded, so that an emulator without one of them is told apart from
//! one that fails. Contexts: normal, before the program runs.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The version of the interface that we were written for; the emulator refuses
/// plugins whose version it does not speak.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// The plugin's number.
pub type Id = u64;

/// A block of instructions that is translated.
#[repr(C)]
pub struct Block([u8; 0]);

/// An instruction of it.
#[repr(C)]
pub struct Instruction([u8; 0]);

/// What the emulator says of itself. More follows that we don't need.
#[repr(C)]
pub struct Info {
    /// The emulated architecture.
    pub target: *const c_char,
    /// The oldest version of the interface that it speaks.
    pub oldest: c_int,
    /// The newest.
    pub newest: c_int,
}

/// Memory callbacks: of loads and stores.
pub const BOTH: c_int = 3;
/// The callback looks at no registers.
pub const NO_REGISTERS: c_int = 0;

/// Runs after an access: processor, what it was, address, our data.
pub type Access = extern "C" fn(c_uint, u32, u64, *mut c_void);
/// Runs before an instruction: processor, our data.
pub type Execute = extern "C" fn(c_uint, *mut c_void);
/// Runs when a processor begins or ends.
pub type Processor = extern "C" fn(Id, c_uint);
/// Runs before a system call: its number and arguments.
pub type Enter = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// Runs after it: number and result.
pub type Leave = extern "C" fn(Id, c_uint, i64, i64);

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $symbol:literal, $type:ty;)*) => {
        /// The emulator's functions.
        pub struct Functions {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Functions {
            fn find() -> Option<Self> {
                Some(Self {
                    // SAFETY: the interface gives the function of this name this
                    // type.
                    $($name: unsafe {
                        core::mem::transmute::<*mut c_void, $type>(look_up($symbol)?)
                    },)*
                })
            }
        }
    };
}

functions! {
    /// Calls back when a block is translated.
    on_translate: c"qemu_plugin_register_vcpu_tb_trans_cb",
        extern "C" fn(Id, extern "C" fn(Id, *mut Block));
    /// Calls back when the program exits.
    on_exit: c"qemu_plugin_register_atexit_cb",
        extern "C" fn(Id, extern "C" fn(Id, *mut c_void), *mut c_void);
    /// Calls back when a processor begins; in the thread that makes it.
    on_begin: c"qemu_plugin_register_vcpu_init_cb", extern "C" fn(Id, Processor);
    /// Calls back when a processor ends.
    on_end: c"qemu_plugin_register_vcpu_exit_cb", extern "C" fn(Id, Processor);
    /// Calls back before system calls.
    on_enter: c"qemu_plugin_register_vcpu_syscall_cb", extern "C" fn(Id, Enter);
    /// Calls back after them.
    on_leave: c"qemu_plugin_register_vcpu_syscall_ret_cb", extern "C" fn(Id, Leave);
    /// Calls back after accesses of an instruction.
    on_access: c"qemu_plugin_register_vcpu_mem_cb",
        extern "C" fn(*mut Instruction, Access, c_int, c_int, *mut c_void);
    /// Calls back before an instruction.
    on_execute: c"qemu_plugin_register_vcpu_insn_exec_cb",
        extern "C" fn(*mut Instruction, Execute, c_int, *mut c_void);
    /// Instructions in a block.
    count: c"qemu_plugin_tb_n_insns", extern "C" fn(*const Block) -> usize;
    /// One of them.
    instruction: c"qemu_plugin_tb_get_insn", extern "C" fn(*const Block, usize) -> *mut Instruction;
    /// Its address in the program.
    address: c"qemu_plugin_insn_vaddr", extern "C" fn(*const Instruction) -> u64;
    /// Its address in this process.
    host: c"qemu_plugin_insn_haddr", extern "C" fn(*const Instruction) -> *const u8;
    /// Its bytes.
    bytes: c"qemu_plugin_insn_data", extern "C" fn(*const Instruction) -> *const u8;
    /// How many.
    size: c"qemu_plugin_insn_size", extern "C" fn(*const Instruction) -> usize;
    /// The binary logarithm of an access's width.
    shift: c"qemu_plugin_mem_size_shift", extern "C" fn(u32) -> c_uint;
    /// Whether it is a store.
    is_store: c"qemu_plugin_mem_is_store", extern "C" fn(u32) -> bool;
}

fn look_up(symbol: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The emulator's functions; `None` if it lacks one.
#[inline]
pub fn functions() -> Option<&'static Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    FOUND.get_or_init(Functions::find).as_ref()
}
