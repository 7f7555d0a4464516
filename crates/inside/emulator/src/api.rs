//! The part of the emulator's plugin interface that this plugin uses, version 1 (`qemu-plugin.h` of
//! QEMU 4.2 to 8.2). The functions are looked up when the plugin is loaded, so that an emulator
//! without one of them is told apart from one that fails. Contexts: normal, before the program
//! runs.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The version of the interface for which this plugin was written; the emulator refuses plugins of
/// versions that it does not support.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// The plugin's id.
pub type Id = u64;

/// A block of instructions that is being translated.
#[repr(C)]
pub struct Block([u8; 0]);

/// An instruction of a block.
#[repr(C)]
pub struct Instruction([u8; 0]);

/// The emulator's description of itself. Further fields follow that are not used here.
#[repr(C)]
pub struct Info {
    /// The emulated architecture.
    pub target: *const c_char,
    /// The oldest version of the interface that it supports.
    pub oldest: c_int,
    /// The newest version that it supports.
    pub newest: c_int,
}

/// For memory callbacks: called for loads and stores.
pub const BOTH: c_int = 3;
/// The callback reads no registers.
pub const NO_REGISTERS: c_int = 0;

/// Runs after an access; gets the processor, the kind of access, the address, and our data.
pub type Access = extern "C" fn(c_uint, u32, u64, *mut c_void);
/// Runs before an instruction; gets the processor and our data.
pub type Execute = extern "C" fn(c_uint, *mut c_void);
/// Runs when a processor begins or ends.
pub type Processor = extern "C" fn(Id, c_uint);
/// Runs before a system call; gets its number and arguments.
pub type Enter = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// Runs after a system call; gets its number and result.
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
                    // SAFETY: the interface defines this type for the function of this name.
                    $($name: unsafe {
                        core::mem::transmute::<*mut c_void, $type>(look_up($symbol)?)
                    },)*
                })
            }
        }
    };
}

functions! {
    /// Registers a callback for the translation of a block.
    on_translate: c"qemu_plugin_register_vcpu_tb_trans_cb",
        extern "C" fn(Id, extern "C" fn(Id, *mut Block));
    /// Registers a callback for the program's exit.
    on_exit: c"qemu_plugin_register_atexit_cb",
        extern "C" fn(Id, extern "C" fn(Id, *mut c_void), *mut c_void);
    /// Registers a callback for a new processor; it runs in the thread that makes the processor.
    on_begin: c"qemu_plugin_register_vcpu_init_cb", extern "C" fn(Id, Processor);
    /// Registers a callback for a processor's end.
    on_end: c"qemu_plugin_register_vcpu_exit_cb", extern "C" fn(Id, Processor);
    /// Registers a callback before system calls.
    on_enter: c"qemu_plugin_register_vcpu_syscall_cb", extern "C" fn(Id, Enter);
    /// Registers a callback after system calls.
    on_leave: c"qemu_plugin_register_vcpu_syscall_ret_cb", extern "C" fn(Id, Leave);
    /// Registers a callback after accesses of an instruction.
    on_access: c"qemu_plugin_register_vcpu_mem_cb",
        extern "C" fn(*mut Instruction, Access, c_int, c_int, *mut c_void);
    /// Registers a callback before an instruction.
    on_execute: c"qemu_plugin_register_vcpu_insn_exec_cb",
        extern "C" fn(*mut Instruction, Execute, c_int, *mut c_void);
    /// The number of instructions in a block.
    count: c"qemu_plugin_tb_n_insns", extern "C" fn(*const Block) -> usize;
    /// An instruction of a block, by index.
    instruction: c"qemu_plugin_tb_get_insn", extern "C" fn(*const Block, usize) -> *mut Instruction;
    /// The address of an instruction in the program.
    address: c"qemu_plugin_insn_vaddr", extern "C" fn(*const Instruction) -> u64;
    /// The address of an instruction in this process.
    host: c"qemu_plugin_insn_haddr", extern "C" fn(*const Instruction) -> *const u8;
    /// The bytes of an instruction.
    bytes: c"qemu_plugin_insn_data", extern "C" fn(*const Instruction) -> *const u8;
    /// The length of an instruction.
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
