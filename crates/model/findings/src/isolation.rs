//! What is known of pages of which isolated threads had private copies. Written by `protect` and
//! the observer that compares pages, read by reports.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sunder_access::Address;

/// A page of which isolated threads had private copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PrivatePage {
    /// Its first byte, in hexadecimal.
    #[serde(with = "crate::address::known")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub address: Address,
    /// What became of it.
    pub state: PageState,
    /// How often two consecutive commits to one of its lines were by two threads (SHERIFF, section
    /// 4.3). A thread's commit counts once, however often the thread wrote before it.
    pub interleaved_writes: u64,
    /// The threads that wrote it while they were isolated, the one with most commits first.
    pub threads: Vec<PageWriter>,
}

/// What a thread wrote to private copies of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PageWriter {
    /// The kernel's thread id.
    pub id: u32,
    /// The thread's name, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The commits that found bytes of the page changed.
    pub commits: u64,
    /// The changed bytes of all these commits.
    pub bytes: u64,
}

/// What became of a page of which threads had private copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PageState {
    /// Isolated threads have private copies of it to the end.
    #[default]
    Private,
    /// It is shared again, because bytes beside the isolated objects changed on it.
    OtherBytes,
    /// It is shared again, because two threads changed the same bytes.
    SameBytes,
    /// It is shared again, because a thread got on only when it saw what others had written there.
    Awaited,
    /// It is shared again, because private copies of it took too much of the threads' time.
    Costly,
    /// It is shared again, because its object was freed or the program asked for it.
    Released,
}
