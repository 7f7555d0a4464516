//! Whose a process is, for dividing the budget: names that its user can't choose.

use crate::origin::container_id;
use std::collections::HashMap;
use sunder_access::ProcessId;
use sunder_observe::proc;

/// The most processes whose owners are remembered.
const MOST: usize = 16_384;

/// Who has a part of the budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A container that the machine's services have started, whoever runs in it.
    Container(String),
    /// A user; of processes in a namespace of users, the one who made it.
    User(u32),
    /// All that could not be told apart.
    Others,
}

/// The owners of processes, each asked for once.
#[derive(Debug, Default)]
pub struct Owners(HashMap<ProcessId, Owner>);

impl Owners {
    /// The owner of a process.
    pub fn of(&mut self, process: ProcessId) -> Owner {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let owner = self.0.entry(process);
        owner.or_insert_with(|| owner_of(process)).clone()
    }

    /// It has ended, or executes another program.
    pub fn forget(&mut self, process: ProcessId) {
        self.0.remove(&process);
    }
}

fn owner_of(process: ProcessId) -> Owner {
    let group = proc::control_group(process);
    if let Some(container) = group.as_deref().and_then(container_of_services) {
        return Owner::Container(container);
    }
    let user = || Some(proc::status(process).ok()?.user);
    match proc::maker_of_users(process).or_else(user) {
        Some(user) => Owner::User(user),
        None => Owner::Others,
    }
}

/// The outermost container of a control group. Inner groups may be named by who runs in it, and those of a
/// session by its user.
fn container_of_services(group: &str) -> Option<String> {
    let parts = || group.split('/');
    let of_session = parts().any(|part| part == "user.slice");
    (!of_session).then(|| parts().find_map(container_id))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_the_name_that_no_one_in_it_can_choose() {
        let id = |digit: &str| digit.repeat(64);
        let of = |group: String| container_of_services(&group);
        let outer = format!("/system.slice/docker-{}.scope", id("a"));
        assert_eq!(of(outer.clone()), Some(id("a")));
        assert_eq!(of(format!("{outer}/docker/{}", id("b"))), Some(id("a")));
        let session = "/user.slice/user-1000.slice/user@1000.service";
        assert_eq!(of(format!("{session}/docker-{}.scope", id("c"))), None);
        assert_eq!(of("/system.slice/x.service".into()), None);
    }

    #[test]
    fn a_process_is_its_users() {
        // SAFETY: takes and changes nothing.
        let user = unsafe { libc::getuid() };
        let own = ProcessId(std::process::id());
        let mut owners = Owners::default();
        let of_own = owners.of(own);
        let in_container = matches!(of_own, Owner::Container(_));
        assert!(in_container || of_own == Owner::User(user), "{of_own:?}");
        assert_eq!(owners.of(ProcessId(1 << 23)), Owner::Others);
    }
}
