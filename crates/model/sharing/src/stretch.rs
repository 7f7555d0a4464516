//! A stretch: the latest touches of one line without a long pause between them, and the account
//! that is made when it ends. This module is the judge's arithmetic; the crate's documentation
//! derives it and names its weak points. Called by [`crate::line`] and [`crate::burst`]. It
//! knows neither lines nor addresses: threads are indices, bytes are footprints.

mod account;
mod exact;
mod mixture;
mod samples;

pub(crate) use account::{ANY_CPU, Account, Class, Context, Entry, Life, ThreadAccount};
pub(crate) use mixture::expected_changes;
pub(crate) use samples::may_differ;

use crate::bytes::{ByteState, ByteWatch};
use exact::account_exact;
use mixture::account_changes;
use samples::account_samples;

/// Makes the account of `entries`, which must be in order of time.
pub(crate) fn account(entries: &[Entry], context: &Context<'_>) -> Account {
    let mut account = Account {
        threads: vec![ThreadAccount::default(); context.threads],
        active: vec![false; entries.len()],
        ..Account::default()
    };
    account_samples(entries, context, &mut account);
    account_exact(entries, context, &mut account);
    if account.is_contended() {
        account_changes(entries, context, &mut account);
        account.bytes = byte_states(entries, context, &account);
    }
    account
}

/// The state of each byte of the line after the stretch.
fn byte_states(entries: &[Entry], context: &Context<'_>, account: &Account) -> Vec<ByteState> {
    let together = |i: u16, j: u16| !context.never_together(account, i.into(), j.into());
    let mut touches: Vec<(u16, u16)> = entries
        .iter()
        .zip(&account.active)
        .filter(|(_, active)| **active)
        .map(|(e, _)| (e.footprint, e.thread))
        .collect();
    touches.sort_unstable();
    touches.dedup();
    let mut watch = vec![ByteWatch::default(); context.granule];
    for (footprint, thread) in touches {
        let f = context.footprints.get(footprint);
        for byte in &mut watch[usize::from(f.start)..usize::from(f.end())] {
            byte.touch(thread, f.kind.writes());
        }
    }
    watch.iter().map(|b| b.state(together)).collect()
}
