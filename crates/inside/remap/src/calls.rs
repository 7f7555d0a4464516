//! Interposed functions behind which is one kernel call whose memory must be in its place before
//! the call is made, and stay there: it may transfer a part, or take something from the kernel,
//! such as a connection or a child's exit status, before it writes. The error that
//! [`crate::hooks`] could detect and repair would come too late.
//!
//! Contexts: all.

#![cfg(not(test))]

use crate::{real, under_way, uses};
use core::ffi::{c_int, c_long, c_void};
use sunder_guest::next::fails;
use sunder_kernel::KernelCall;

/// As [`uses::begin`].
#[inline]
fn begin<const N: usize>(number: c_long, given: [u64; N]) -> usize {
    let mut arguments = [0; 6];
    let places = arguments.iter_mut().zip(given);
    places.for_each(|(to, argument)| *to = argument);
    uses::begin(KernelCall { number, arguments })
}

/// Functions, and the calls behind them with their arguments.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $call:ident($($passed:expr),*);)*) => {$(
        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            let place = begin(libc::$call, [$($passed as u64),*]);
            let result = match real::$name() {
                // SAFETY: the caller's arguments, passed on unchanged under the same contract.
                Some(real) => unsafe { real($($argument),*) },
                None => {
                    fails();
                    -1
                }
            };
            under_way::end(place);
            result
        }
    )*};
}

type Place = *mut c_void;
type Vectors = *const libc::iovec;

/// Size of the kernel's signal sets, in bytes.
const SET: usize = 8;

#[rustfmt::skip]
calls! {
    read(file: c_int, at: Place, len: usize) -> isize, SYS_read(file, at, len);
    write(file: c_int, at: Place, len: usize) -> isize, SYS_write(file, at, len);
    pread(file: c_int, at: Place, len: usize, offset: i64) -> isize, SYS_pread64(file, at, len, offset);
    pwrite(file: c_int, at: Place, len: usize, offset: i64) -> isize, SYS_pwrite64(file, at, len, offset);
    pread64(file: c_int, at: Place, len: usize, offset: i64) -> isize, SYS_pread64(file, at, len, offset);
    pwrite64(file: c_int, at: Place, len: usize, offset: i64) -> isize, SYS_pwrite64(file, at, len, offset);
    readv(file: c_int, at: Vectors, count: c_int) -> isize, SYS_readv(file, at, count);
    writev(file: c_int, at: Vectors, count: c_int) -> isize, SYS_writev(file, at, count);
    preadv(file: c_int, at: Vectors, count: c_int, offset: i64) -> isize, SYS_preadv(file, at, count, offset);
    pwritev(file: c_int, at: Vectors, count: c_int, offset: i64) -> isize, SYS_pwritev(file, at, count, offset);
    recv(file: c_int, at: Place, len: usize, flags: c_int) -> isize, SYS_recvfrom(file, at, len, flags);
    send(file: c_int, at: Place, len: usize, flags: c_int) -> isize, SYS_sendto(file, at, len, flags);
    sendto(file: c_int, at: Place, len: usize, flags: c_int, to: Place, size: u32) -> isize,
        SYS_sendto(file, at, len, flags, to, size);
    recvfrom(file: c_int, at: Place, len: usize, flags: c_int, from: Place, size: *mut u32) -> isize,
        SYS_recvfrom(file, at, len, flags, from, size);
    recvmsg(file: c_int, message: *mut libc::msghdr, flags: c_int) -> isize, SYS_recvmsg(file, message, flags);
    sendmsg(file: c_int, message: *mut libc::msghdr, flags: c_int) -> isize, SYS_sendmsg(file, message, flags);
    accept(file: c_int, name: Place, len: *mut u32) -> c_int, SYS_accept(file, name, len);
    accept4(file: c_int, name: Place, len: *mut u32, flags: c_int) -> c_int, SYS_accept4(file, name, len, flags);
    wait(status: *mut c_int) -> c_int, SYS_wait4(-1i64, status);
    waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int, SYS_wait4(child, status, options);
    wait3(status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> c_int,
        SYS_wait4(-1i64, status, options, usage);
    wait4(child: c_int, status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> c_int,
        SYS_wait4(child, status, options, usage);
    waitid(kind: u32, child: u32, info: *mut libc::siginfo_t, options: c_int) -> c_int,
        SYS_waitid(kind, child, info, options);
    sigwaitinfo(set: *const libc::sigset_t, info: *mut libc::siginfo_t) -> c_int,
        SYS_rt_sigtimedwait(set, info, 0u64, SET);
    sigtimedwait(set: *const libc::sigset_t, info: *mut libc::siginfo_t, time: *const libc::timespec) -> c_int,
        SYS_rt_sigtimedwait(set, info, time, SET);
    msgrcv(queue: c_int, message: Place, len: usize, kind: i64, flags: c_int) -> isize,
        SYS_msgrcv(queue, message, len, kind, flags);
}
