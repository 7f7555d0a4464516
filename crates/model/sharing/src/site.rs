//! The instructions that touched a line. Called by the line for every touch.

use crate::touch::Touch;
use sunder_access::{ByteMask, CodeAddress, Kind, ThreadId};

/// The most instructions that are kept apart on a line.
pub(crate) const MAX_SITES: usize = 32;
/// The most threads that are kept of an instruction.
const MAX_SITE_THREADS: usize = 64;

/// What one instruction did on the line.
#[derive(Clone, Debug)]
pub(crate) struct SiteRecord {
    pub instruction: CodeAddress,
    pub kind: Kind,
    pub threads: Vec<ThreadId>,
    pub count: u64,
    pub bytes: ByteMask,
}

/// Counts a touch for its instruction.
pub(crate) fn record_site(sites: &mut Vec<SiteRecord>, touch: &Touch) {
    // A comparison of pages does not tell which instruction wrote.
    if touch.instruction == CodeAddress(0) {
        return;
    }
    let same =
        |s: &&mut SiteRecord| s.instruction == touch.instruction && s.kind == touch.footprint.kind;
    let count = u64::from(touch.count);
    let bytes = touch.footprint.mask();
    if let Some(site) = sites.iter_mut().find(same) {
        site.count += count;
        site.bytes = site.bytes.union(bytes);
        if site.threads.len() < MAX_SITE_THREADS && !site.threads.contains(&touch.thread) {
            site.threads.push(touch.thread);
        }
        return;
    }
    let new = SiteRecord {
        instruction: touch.instruction,
        kind: touch.footprint.kind,
        threads: vec![touch.thread],
        count,
        bytes,
    };
    if sites.len() < MAX_SITES {
        sites.push(new);
    } else if let Some(least) = sites.iter_mut().min_by_key(|s| s.count) {
        *least = new;
    }
}
