//! Real processes, for what only an operating system does. One program, because every one is linked
//! for long.

mod busy;
mod caches;
mod capi;
mod commands;
mod console;
mod coordinators;
mod drillfiles;
mod drills;
mod embedded;
mod fault_agent;
mod faults;
mod floor;
mod frozen;
mod handles;
mod hosts;
mod joins;
mod kv;
mod leases;
mod leftovers;
mod life;
mod names;
mod namespaces;
mod network;
mod partition;
mod planted;
mod replayed;
mod run;
mod run_frozen;
mod run_leftovers;
mod ssh;
mod starting;
mod support;
mod temporary;
mod totals;
mod watch;
