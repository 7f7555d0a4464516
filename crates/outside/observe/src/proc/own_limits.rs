//! What the user allows this process. `rustix` has a function for this that panics where a filter
//! refuses the system call.

/// The soft and the hard limit of a resource (`libc::RLIMIT_…`), in its unit; `u64::MAX` for none.
/// `None` if the kernel does not say.
pub fn own_limit(resource: libc::__rlimit_resource_t) -> Option<(u64, u64)> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the result.
    let done = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
    done.then_some((limit.rlim_cur, limit.rlim_max))
}
