//! The options that say which running process is meant.

use clap::Args;
use std::fmt::{self, Display, Formatter};
use sunder_live::Sought;

/// Which process.
#[derive(Debug, Args)]
pub struct Target {
    /// The process of this number
    #[arg(long, short, conflicts_with_all = ["name", "container", "unit"])]
    pub pid: Option<u32>,
    /// The process of this name: that of the program's file, or what `ps` shows
    #[arg(long)]
    pub name: Option<String>,
    /// The process in the container of this id, or of an id that begins so
    #[arg(long, value_name = "ID")]
    pub container: Option<String>,
    /// The process of this systemd unit
    #[arg(long, value_name = "NAME")]
    pub unit: Option<String>,
}

impl Target {
    /// Whether nothing is said.
    pub const fn is_empty(&self) -> bool {
        self.pid.is_none() && self.name.is_none() && self.container.is_none() && self.unit.is_none()
    }
}

impl Display for Target {
    /// `the name redis-server and the unit redis.service`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parts = [
            self.pid.map(|pid| format!("the number {pid}")),
            self.name.as_ref().map(|name| format!("the name {name}")),
            self.container
                .as_ref()
                .map(|id| format!("the container {id}")),
            self.unit.as_ref().map(|unit| format!("the unit {unit}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(" and "))
    }
}

impl From<&Target> for Sought {
    fn from(target: &Target) -> Self {
        Self {
            name: target.name.clone(),
            container: target.container.clone(),
            unit: target.unit.clone(),
        }
    }
}
