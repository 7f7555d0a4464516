//! The policies: what two requests must have in common to share a page. Uses only `core`.
//! Called for every allocation by the simulator, and by the live heap unless the policy needs
//! no call site.

use crate::class::{MIN_ALIGN, block_size, round_up};
use core::fmt;
use core::str::FromStr;
use sunder_access::ThreadId;

/// The place in the program that requested an object: any number that is the same for the same
/// place, such as a return address or the index of a call stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallSite(pub u64);

/// A request for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The requesting thread.
    pub thread: ThreadId,
    /// Requested bytes.
    pub size: u64,
    /// Requested alignment, a power of two; at least [`MIN_ALIGN`] is used.
    pub align: u64,
    /// The call site of the request.
    pub site: CallSite,
}

/// What decides which objects share pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// One heap for the process; objects mix as they come (the paper's "general
    /// shared memory allocator", section 4.3).
    #[default]
    General,
    /// A heap for each thread: no line holds objects of two threads (Hoard).
    Hoard,
    /// Only objects of one size on a page (section 2, Figure 2).
    Sized,
    /// Only objects of one call site on a page (CSTallocator, Figure 3).
    CallSite,
    /// Only objects of one size and call site on a page (SCSTallocator,
    /// Figures 4 and 5).
    SizedCallSite,
}

impl Policy {
    /// All of them, the coarsest first.
    pub const ALL: [Self; 5] = [
        Self::General,
        Self::Hoard,
        Self::Sized,
        Self::CallSite,
        Self::SizedCallSite,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Hoard => "hoard",
            Self::Sized => "sized",
            Self::CallSite => "call-site",
            Self::SizedCallSite => "sized-call-site",
        }
    }

    /// Whether the policy depends on call sites.
    pub const fn needs_site(self) -> bool {
        matches!(self, Self::CallSite | Self::SizedCallSite)
    }

    /// Whether its pages hold objects of one size each.
    pub const fn separates_sizes(self) -> bool {
        matches!(self, Self::Sized | Self::SizedCallSite)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no policy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy is one of")?;
        for (i, policy) in Policy::ALL.into_iter().enumerate() {
            write!(f, "{} {policy}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or(UnknownPolicy)
    }
}

/// What the objects of one bucket have in common: requests with equal buckets
/// may share pages, others never do. "A bucket means a unique allocation
/// control slot to gather only the homogeneous pages" (section 3, Figure 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bucket {
    /// The thread, if threads have heaps of their own.
    pub thread: Option<ThreadId>,
    /// The requested size, if sizes are separated. In a thread's heap and for padded objects,
    /// the size of the block (a class of sizes).
    pub size: Option<u64>,
    /// The call site, if call sites are separated.
    pub site: Option<CallSite>,
    /// Whether each object has lines of its own.
    pub padded: bool,
    /// The alignment, if it is larger than [`MIN_ALIGN`] and all blocks of the bucket are
    /// alike: otherwise the distance of the blocks would not preserve it.
    pub align: Option<u64>,
}

/// A policy, and the call sites whose objects get lines of their own.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// The policy for all objects without padding.
    pub policy: Policy,
    /// The call sites whose objects are padded, sorted.
    pub padded: &'a [CallSite],
    /// Bytes of a line, a power of two.
    pub line: u64,
}

impl Placement<'_> {
    /// Whether objects from `site` get lines of their own.
    pub fn pads(&self, site: CallSite) -> bool {
        !self.padded.is_empty() && self.padded.binary_search(&site).is_ok()
    }

    /// The bucket of `request`. Every request has one.
    pub fn bucket(&self, request: &Request) -> Bucket {
        let align = Some(request.align).filter(|&a| a > MIN_ALIGN);
        if self.pads(request.site) {
            return Bucket {
                size: Some(round_up(request.size.max(1), self.line)),
                padded: true,
                align: align.filter(|&a| a > self.line),
                ..Bucket::default()
            };
        }
        let size = Some(request.size);
        let site = Some(request.site);
        match self.policy {
            Policy::General => Bucket::default(),
            Policy::Hoard => Bucket {
                thread: Some(request.thread),
                size: Some(block_size(request.size)),
                align,
                ..Bucket::default()
            },
            Policy::Sized => Bucket {
                size,
                align,
                ..Bucket::default()
            },
            Policy::CallSite => Bucket {
                site,
                ..Bucket::default()
            },
            Policy::SizedCallSite => Bucket {
                size,
                site,
                align,
                ..Bucket::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Figure 2 to 4 of the paper: sizes a and b, call sites x and y.
    fn buckets_of(policy: Policy) -> usize {
        let placement = Placement {
            policy,
            padded: &[],
            line: 64,
        };
        let mut found = alloc::collections::BTreeSet::new();
        for (size, site) in [(100, 1), (100, 2), (200, 1), (200, 2), (100, 1)] {
            found.insert(placement.bucket(&Request {
                thread: ThreadId(1),
                size,
                align: 8,
                site: CallSite(site),
            }));
        }
        found.len()
    }

    #[test]
    fn requests_that_a_policy_distinguishes_get_different_buckets() {
        assert_eq!(buckets_of(Policy::General), 1);
        assert_eq!(buckets_of(Policy::Sized), 2);
        assert_eq!(buckets_of(Policy::CallSite), 2);
        assert_eq!(buckets_of(Policy::SizedCallSite), 4);
    }

    #[test]
    fn named_call_sites_are_padded_and_the_rest_is_not() {
        let placement = Placement {
            policy: Policy::General,
            padded: &[CallSite(3), CallSite(7)],
            line: 64,
        };
        let at = |site, size| {
            placement.bucket(&Request {
                site: CallSite(site),
                size,
                ..Request::default()
            })
        };
        assert_eq!(at(7, 65).size, Some(128));
        assert!(at(3, 0).padded && at(3, 0).size == Some(64));
        assert_eq!(at(5, 65), Bucket::default());
    }

    #[test]
    fn policies_parse_from_their_names() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        let error = "hord".parse::<Policy>().expect_err("no such policy");
        assert!(error.to_string().contains("one of general, hoard"));
    }
}
