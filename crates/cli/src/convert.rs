//! Converts the arguments of the command line to the options of the crates that carry commands
//! out. Nothing here acts.

use crate::args::{
    self, MachineChoice, MachineOptions, Merge, OrderChoice, PlacementChoice, ProtocolChoice,
    ReportOptions, Simulate, WhatIf,
};
use crate::progress;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sunder_coherence::Protocol;
use sunder_live::ObserveOptions;
use sunder_place::Placement;
use sunder_record::Via;
use sunder_replay::Order;

impl From<&args::ObserveOptions> for ObserveOptions {
    fn from(options: &args::ObserveOptions) -> Self {
        Self {
            frequency: options.frequency,
            line_size: options.line_size,
            watch_budget: options.watch_budget,
        }
    }
}

impl From<PlacementChoice> for Placement {
    fn from(choice: PlacementChoice) -> Self {
        match choice {
            PlacementChoice::General => Self::General,
            PlacementChoice::Hoard => Self::Hoard,
            PlacementChoice::Sized => Self::Sized,
            PlacementChoice::CallSite => Self::CallSite,
            PlacementChoice::SizedCallSite => Self::SizedCallSite,
        }
    }
}

impl From<OrderChoice> for Order {
    fn from(choice: OrderChoice) -> Self {
        match choice {
            OrderChoice::Parallel => Self::Parallel,
            OrderChoice::Canonical => Self::Canonical,
            OrderChoice::Recorded => Self::Recorded,
        }
    }
}

impl From<OrderChoice> for sunder_tables::Order {
    fn from(choice: OrderChoice) -> Self {
        match choice {
            OrderChoice::Parallel => Self::Parallel,
            OrderChoice::Canonical => Self::Canonical,
            OrderChoice::Recorded => Self::Recorded,
        }
    }
}

impl From<args::Via> for Via {
    fn from(via: args::Via) -> Self {
        match via {
            args::Via::Auto => Self::Auto,
            args::Via::Instrumented => Self::Instrumented,
            args::Via::Emulated => Self::Emulated,
        }
    }
}

const fn protocol(choice: ProtocolChoice) -> Protocol {
    match choice {
        ProtocolChoice::Msi => Protocol::Msi,
        ProtocolChoice::Mesi => Protocol::Mesi,
        ProtocolChoice::Mesif => Protocol::Mesif,
    }
}

/// The same replay on the machine that `options` describe.
fn on_machine(
    options: &MachineOptions,
    replay: sunder_replay::Simulate,
) -> sunder_replay::Simulate {
    let named = match options.machine {
        MachineChoice::Caches => replay,
        MachineChoice::Dsm => replay.on_dsm(),
    };
    sunder_replay::Simulate {
        granule: options.granule.unwrap_or(named.granule),
        nodes: options.nodes,
        protocol: options.protocol.map_or(named.protocol, protocol),
        ..named
    }
}

/// A replay of the trace as it was recorded, reported as `tell` says.
fn replay(file: &Path, tell: &ReportOptions) -> sunder_replay::Simulate {
    sunder_replay::Simulate {
        threshold: tell.threshold,
        progress: Arc::clone(&progress::of_replays(tell.quiet)),
        ..sunder_replay::Simulate::new(file.to_owned())
    }
}

impl From<&Simulate> for sunder_replay::Simulate {
    fn from(options: &Simulate) -> Self {
        Self {
            caches: options.caches,
            order: options.order.map(Into::into).unwrap_or_default(),
            map: options.map.clone(),
            placement: options.placement.clone(),
            pad: options.pad.clone(),
            align: options.align.clone(),
            heap_only: options.heap_only,
            reproducible: options.reproducible,
            ..on_machine(
                &options.machine,
                replay(
                    options
                        .files
                        .first()
                        .map_or(Path::new(""), PathBuf::as_path),
                    &options.tell,
                ),
            )
        }
    }
}

impl From<&Merge> for sunder_replay::Simulate {
    fn from(options: &Merge) -> Self {
        Self {
            reproducible: options.reproducible,
            ..replay(Path::new(""), &options.tell)
        }
    }
}

impl From<&WhatIf> for sunder_replay::WhatIf {
    fn from(options: &WhatIf) -> Self {
        Self {
            base: sunder_replay::Simulate {
                order: options.order.into(),
                map: options.map.clone(),
                ..on_machine(&options.machine, replay(&options.file, &options.tell))
            },
            top: options.top,
        }
    }
}
