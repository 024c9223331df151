//! Clocks: what counts time, what a look at it costs, and whether it stands still.

use crate::{Finding, line_of};
use nix::time::ClockId;
use obol_fabric::Nanos;
use obol_fabric::host::clock;
use std::hint::black_box;
use std::path::Path;

const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// Sources that are read without a call of the kernel.
const FAST: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
/// Reads that are timed together.
const READS: u32 = 1000;
/// Batches of which the fastest counts: the others were interrupted.
const BATCHES: u32 = 50;
/// Less than this is the time between two reads of two clocks.
const SUSPENDED_MIN: Nanos = Nanos::from_millis(1);

pub(crate) fn check() -> Vec<Finding> {
    let mut all = vec![source()];
    all.extend(counter());
    all.push(suspended());
    all.extend(virtual_machine());
    all
}

/// What one read of the clock costs.
fn cost() -> Nanos {
    let batch = || {
        let began = clock::now();
        (0..READS).for_each(|_| {
            black_box(clock::now());
        });
        clock::now().since(began).0 / u64::from(READS)
    };
    Nanos((0..BATCHES).map(|_| batch()).min().unwrap_or_default())
}

fn source() -> Finding {
    let (source, cost) = (line_of(SOURCE).unwrap_or_else(|| "unknown".to_owned()), cost());
    let found = format!("{source}, {cost} a read (fastest of {BATCHES} batches of {READS})");
    if FAST.contains(&source.as_str()) {
        return Finding::good("clock source", found);
    }
    let costs = format!(
        "a program reads the clock at each check of its lease, so each costs {cost} and not about 25ns"
    );
    Finding::warning(
        "clock source",
        found,
        (costs, "boot with `clocksource=tsc tsc=reliable`, if the processor has nonstop_tsc"),
    )
}

/// Whether the counter of the processor runs steadily, on x86.
fn counter() -> Option<Finding> {
    let cpu = line_of("/proc/cpuinfo")?;
    let flags = cpu.lines().find_map(|line| line.strip_prefix("flags"))?;
    let has = |flag: &str| flags.split_whitespace().any(|one| one == flag);
    if has("constant_tsc") && has("nonstop_tsc") {
        return Some(Finding::good("time stamp counter", "constant and nonstop"));
    }
    Some(Finding::warning(
        "time stamp counter",
        "neither constant nor nonstop",
        (
            "its rate changes with the frequency of the core, so clocks of two hosts may drift by more than the profile's lease.drift_ppm, and leases are not safe",
            "use another host, or watch the counter drift_alarms (`obol status --json`, alert ObolClockDrift)",
        ),
    ))
}

/// The time in which this host was suspended since it booted.
fn suspended() -> Finding {
    let read = |id: ClockId| {
        // Every supported kernel has both clocks.
        id.now().map_or(Nanos::ZERO, |time| Nanos::from_std(time.into()))
    };
    // In this order, a pause between the two cannot look like a suspension.
    let boot = read(ClockId::CLOCK_BOOTTIME);
    let slept = Nanos(boot.0.saturating_sub(read(ClockId::CLOCK_MONOTONIC).0));
    if slept < SUSPENDED_MIN {
        return Finding::good("suspension", "this host was never suspended since it booted (CLOCK_BOOTTIME)");
    }
    Finding::warning(
        "suspension",
        format_args!("this host was suspended for {slept} since it booted (CLOCK_BOOTTIME)"),
        (
            "leases of its members lasted that much longer than their coordinators assumed",
            "`systemctl mask sleep.target suspend.target hibernate.target`",
        ),
    )
}

/// Clocks by which a virtual machine notices that it was paused.
fn host_clocks() -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/class/ptp").into_iter().flatten().filter_map(Result::ok) {
        found.extend(line_of(entry.path().join("clock_name")));
    }
    found.retain(|name| {
        ["kvm", "hyperv", "vmclock", "xen"].iter().any(|host| name.to_lowercase().contains(host))
    });
    let devices = std::fs::read_dir("/dev").into_iter().flatten().filter_map(Result::ok);
    let names = devices.filter_map(|entry| entry.file_name().into_string().ok());
    found.extend(names.filter(|name| name.starts_with("vmclock")));
    found
}

fn virtual_machine() -> Option<Finding> {
    let is_virtual = line_of("/proc/cpuinfo")?.lines().any(|line| {
        line.strip_prefix("flags")
            .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
    }) || Path::new("/sys/hypervisor/type").exists();
    if !is_virtual {
        return Some(Finding::good("virtual machine", "this is none, so nothing pauses it from outside"));
    }
    let maker =
        line_of("/sys/class/dmi/id/sys_vendor").map_or_else(String::new, |maker| format!(" ({maker})"));
    let (clocks, costs) = (
        host_clocks(),
        "no clock of obol counts a pause or a live migration: leases of its members last that much longer than their coordinators assume (docs/design/leases.md)",
    );
    let remedy = "stop obol's processes before it is paused or migrated live, and switch live migration off";
    if clocks.is_empty() {
        let found = format!(
            "this is one{maker}, and neither a PTP clock of the hypervisor nor a vmclock page shows its pauses"
        );
        return Some(Finding::warning(
            "virtual machine",
            found,
            (costs, format!("{remedy}; `modprobe ptp_kvm` gives other programs such a clock")),
        ));
    }
    let found = format!("this is one{maker}; other programs see its pauses by {}", clocks.join(", "));
    Some(Finding::note("virtual machine", found, (costs, remedy)))
}
