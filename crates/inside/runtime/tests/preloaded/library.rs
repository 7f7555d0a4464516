//! What the library imports and exports.

use crate::harness::library;
use std::process::Command;

fn symbols(kind: &str) -> Vec<String> {
    let output = Command::new("nm")
        .args(["-D", kind])
        .arg(library())
        .output()
        .expect("nm runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let mut names: Vec<String> = names
        .map(|name| name.split('@').next().unwrap_or(name).to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn it_exports_what_it_interposes_and_nothing_else() {
    assert_eq!(
        symbols("--defined-only"),
        [
            "__pthread_key_create",
            "aligned_alloc",
            "calloc",
            "dlclose",
            "execl",
            "execle",
            "execlp",
            "execv",
            "execve",
            "execveat",
            "execvp",
            "execvpe",
            "fexecve",
            "free",
            "malloc",
            "memalign",
            "mlockall",
            "posix_memalign",
            "posix_spawn",
            "posix_spawnp",
            "prctl",
            "pthread_create",
            "pthread_key_create",
            "pthread_sigmask",
            "pvalloc",
            "realloc",
            "reallocarray",
            "sigaction",
            "signal",
            "signalfd",
            "sigprocmask",
            "sigtimedwait",
            "sigwait",
            "sigwaitinfo",
            "syscall",
            "tss_create",
            "valloc",
        ]
    );
}

/// Imports of our own code: functions that neither allocate nor lock, or that run only when a
/// thread starts.
const OURS: &[&str] = &[
    "__errno_location",
    "__register_atfork",
    "__libc_current_sigrtmax",
    "__libc_current_sigrtmin",
    "clock_gettime",
    "dlsym",
    "environ",
    "getrlimit",
    "getrlimit64",
    "memcpy",
    "memmove",
    "memset",
    "bcmp",
    "memcmp",
    "strlen",
    "pthread_attr_destroy",
    "pthread_attr_getstack",
    "pthread_attr_getstacksize",
    "pthread_attr_init",
    "pthread_key_create",
    "pthread_self",
    "pthread_setspecific",
    "sigaddset",
    "sigdelset",
    "sigfillset",
    "sigismember",
    // Weak: of another library of ours, if that is there.
    "sunder_isolate_carried",
    "sunder_isolate_places",
];

/// Symbols that the linker and the start files add.
const LINKED: &[&str] = &[
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    "__cxa_finalize",
    "__gmon_start__",
];

/// Imports of Rust's standard library for its panic messages. None of them is reached: the library
/// is written not to panic, and a panic in a function that C calls would end the process at once.
const STANDARD_LIBRARY: &[&str] = &[
    "_Unwind_Backtrace",
    "_Unwind_DeleteException",
    "_Unwind_GetDataRelBase",
    "_Unwind_GetIP",
    "_Unwind_GetIPInfo",
    "_Unwind_GetLanguageSpecificData",
    "_Unwind_GetRegionStart",
    "_Unwind_GetTextRelBase",
    "_Unwind_RaiseException",
    "_Unwind_Resume",
    "_Unwind_SetGR",
    "_Unwind_SetIP",
    "__cxa_thread_atexit_impl",
    "__tls_get_addr",
    "abort",
    "close",
    "dl_iterate_phdr",
    "fstat64",
    "getcwd",
    "getenv",
    "gettid",
    "lseek64",
    "mmap64",
    "munmap",
    "open64",
    "pthread_key_delete",
    "read",
    "readlink",
    "realpath",
    "stat64",
    "statx",
    "syscall",
    "write",
    "writev",
];

#[test]
fn it_imports_only_what_is_allowed() {
    let allowed = [OURS, LINKED, STANDARD_LIBRARY].concat();
    let more: Vec<_> = symbols("--undefined-only")
        .into_iter()
        .filter(|name| !allowed.contains(&name.as_str()))
        .collect();
    assert!(more.is_empty(), "not allowed: {more:?}");
}
