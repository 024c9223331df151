//! Which death detectors this host has for the processes of one user.

use crate::Detection;
use crate::deadbeat::Deadbeat;
use crate::ebpf::Programs;
use serde::{Serialize, Serializer};

/// Which death detectors this host has.
#[derive(Serialize)]
pub struct Detectors {
    /// What would report a death first to a process of this user.
    #[serde(rename = "deadbeat", serialize_with = "name")]
    pub first: Detection,
    /// Whether that wakes a process that sleeps, as soon as the signal is sent.
    pub wakes: bool,
    /// Why it is not the module, if it is not.
    pub module: Option<String>,
    /// Why not eBPF programs, if not.
    pub ebpf: Option<String>,
}

fn name<S: Serializer>(of: &Detection, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(of.name())
}

impl Detectors {
    /// Tries each.
    pub fn look() -> Self {
        let module = Deadbeat::open().err().map(|error| error.to_string());
        let programs = Programs::open();
        let wakes = module.is_none() || programs.as_ref().is_ok_and(|programs| programs.wakes().is_some());
        let ebpf = programs.err().map(|error| error.to_string());
        let first = match (&module, &ebpf) {
            (None, _) => Detection::Module,
            (_, None) => Detection::Ebpf,
            _ => Detection::FutexPidfd,
        };
        Self { first, wakes, module, ebpf }
    }
}
