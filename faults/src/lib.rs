//! The faults of drills, one file each: keys in drill files, injection and undo by a fault agent,
//! and the equivalent in a simulated cluster.
//!
//! A new fault is a file with an implementation of [`Fault`], its `mod` line and its line in
//! [`KINDS`]. The trait is in `fault`, orders in `order`, and what is undone in `record`. Common
//! parts are in `links`, `host_network`, `host_delay`, `iproute2`, `load` and `realtime`.

mod allowed;
mod burst;
mod clock_step;
mod cpu_hog;
mod delay;
mod fault;
mod freeze;
mod host_crash;
mod host_delay;
pub mod host_network;
mod iproute2;
mod kernel_stall;
mod key;
mod kill;
mod link_error;
mod links;
mod load;
mod loss;
mod memory_pressure;
mod multicast_loss;
mod nic_down;
pub mod order;
mod partition;
mod realtime;
mod record;
mod span;
pub mod undo_record;

pub use allowed::Allowed;
pub use fault::{Armed, Arming, COMMON_KEYS, Effect, Fault, Planning, Scope, Simulated};
pub use key::Key;
pub use kill::Kill;
pub use realtime::ClockStep;
pub use record::{Filters, Interface, Record, Undone};
pub use span::{SPAN_MIN, span_schema};

use links::Network;
use obol_fabric::host::Cluster;

/// Every kind of fault, without its parameters.
pub static KINDS: &[&dyn Fault] = &[
    &kill::Kill { graceful: false },
    &freeze::Freeze,
    &cpu_hog::CPU_HOG,
    &memory_pressure::MEMORY_PRESSURE,
    &Network::of(partition::Partition),
    &Network::of(delay::Delay::NONE),
    &Network::of(loss::Loss { percent: 0 }),
    &Network::of(burst::Burst(host_network::Bursts { enter: 0, leave: 0, lost: 0, lost_between: 0 })),
    &Network::of(multicast_loss::MulticastLoss),
    &Network::of(link_error::LinkError),
    &clock_step::ClockStep::NONE,
    &nic_down::NicDown { interface: None },
    &kernel_stall::KernelStall,
    &host_crash::HostCrash::REBOOT,
];

/// The kind of this name.
pub fn kind(name: &str) -> Option<&'static dyn Fault> {
    KINDS.iter().copied().find(|kind| kind.name() == name)
}

/// The kind that gives orders of this name.
pub fn ordered(order: &str) -> Option<&'static dyn Fault> {
    KINDS.iter().copied().find(|kind| kind.orders().contains(&order))
}

/// Undoes what fault agents left behind by any fault.
pub fn recover(record: &Record, cluster: &Cluster, undone: &mut Undone) {
    KINDS.iter().for_each(|kind| kind.recover(record, cluster, undone));
    host_network::recover(record, undone);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Files without a fault of their own.
    const SHARED: [&str; 14] = [
        "undo_record",
        "lib",
        "allowed",
        "key",
        "span",
        "fault",
        "order",
        "record",
        "realtime",
        "links",
        "load",
        "host_delay",
        "host_network",
        "iproute2",
    ];

    #[test]
    fn every_file_is_registered_under_its_name() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).expect("a folder");
        let files = folder.map(|entry| entry.expect("a file").path());
        let files = files.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned());
        let files: BTreeSet<String> = files.filter(|file| !SHARED.contains(&file.as_str())).collect();
        let kinds: BTreeSet<String> = KINDS.iter().map(|kind| kind.name().replace('-', "_")).collect();
        assert_eq!(files, kinds);
    }

    #[test]
    fn every_order_is_armed_by_a_kind_that_gives_it() {
        for kind in KINDS {
            assert!(kind.orders().contains(&kind.order(1).fault.as_str()), "{}", kind.name());
            assert_eq!(kind.order(1).fault, ordered(&kind.order(1).fault).expect("a kind").order(1).fault);
        }
    }
}
