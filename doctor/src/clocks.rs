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
/// A read that the processor does itself takes tens of nanoseconds; one that a hypervisor traps takes
/// microseconds.
const READ_MAX: Nanos = Nanos::from_micros(1);
/// Less than this is the time between two reads of two clocks.
const SUSPENDED_MIN: Nanos = Nanos::from_millis(1);

pub(crate) fn check() -> Vec<Finding> {
    let cpu = line_of("/proc/cpuinfo");
    let flags = cpu.as_deref().and_then(flags);
    let mut all = vec![source(line_of(SOURCE).as_deref(), cost())];
    // Only x86 has such a counter.
    all.extend(flags.map(counter));
    all.push(suspended(&Clocks::read()));
    all.push(virtual_machine(flags, Path::new("/sys/hypervisor/type").exists(), &host_clocks()));
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

fn source(source: Option<&str>, cost: Nanos) -> Finding {
    let source = source.unwrap_or("unknown");
    let found = format!("{source}, {cost} a read (fastest of {BATCHES} batches of {READS})");
    if cost == Nanos::ZERO {
        return Finding::warning(
            "clock source",
            format_args!("{found}: {READS} reads took less than {READS}ns"),
            (
                "the clock stands still or moves in steps, so leases and failovers cannot be timed",
                "boot with another `clocksource=`; /sys/devices/system/clocksource/clocksource0/available_clocksource lists them",
            ),
        );
    }
    if FAST.contains(&source) && cost < READ_MAX {
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

/// The flags of the first processor in /proc/cpuinfo, on x86.
fn flags(cpu: &str) -> Option<&str> {
    cpu.lines().find_map(|line| line.strip_prefix("flags"))
}

fn has(flags: &str, flag: &str) -> bool {
    flags.split_whitespace().any(|one| one == flag)
}

/// Whether the counter of the processor runs steadily.
fn counter(flags: &str) -> Finding {
    let lacks: Vec<&str> =
        ["constant_tsc", "nonstop_tsc"].into_iter().filter(|flag| !has(flags, flag)).collect();
    if lacks.is_empty() {
        return Finding::good("time stamp counter", "constant and nonstop");
    }
    Finding::warning(
        "time stamp counter",
        format_args!("the processor does not have {}", lacks.join(" and ")),
        (
            "its rate may change with the state of the core, so clocks of two hosts may drift by more than the profile's lease.drift_ppm, and leases are not safe",
            "use another host, or watch the counter drift_alarms (`obol status --json`, alert ObolClockDrift)",
        ),
    )
}

/// The clock that counts suspensions, and the one that does not, before and after it.
struct Clocks {
    before: Nanos,
    boot: Nanos,
    after: Nanos,
}

impl Clocks {
    fn read() -> Self {
        // Every supported kernel has both clocks.
        let read = |id: ClockId| id.now().map_or(Nanos::ZERO, |time| Nanos::from_std(time.into()));
        // In this order, a pause between the last two cannot look like a suspension.
        let before = read(ClockId::CLOCK_MONOTONIC);
        Self { before, boot: read(ClockId::CLOCK_BOOTTIME), after: read(ClockId::CLOCK_MONOTONIC) }
    }
}

/// The time in which this host was suspended since it booted.
fn suspended(clocks: &Clocks) -> Finding {
    let Clocks { before, boot, after } = *clocks;
    if boot < before || after < before || boot == Nanos::ZERO {
        return Finding::note(
            "suspension",
            format_args!("CLOCK_BOOTTIME is {boot}, read between {before} and {after} of CLOCK_MONOTONIC"),
            (
                "whether this host was suspended is not known: a time namespace can have clocks of its own",
                "run `obol doctor` outside of the container",
            ),
        );
    }
    let slept = Nanos(boot.0.saturating_sub(after.0));
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

/// Of the processor's `flags`, where they are known, whether a `hypervisor` names itself, and the
/// clocks that it offers.
fn virtual_machine(flags: Option<&str>, hypervisor: bool, clocks: &[String]) -> Finding {
    let costs = "no clock of obol counts a pause or a live migration: leases of its members last that much longer than their coordinators assume (docs/design/leases.md)";
    let virtual_by_flags = flags.map(|flags| has(flags, "hypervisor"));
    if !hypervisor && clocks.is_empty() {
        match virtual_by_flags {
            Some(false) => {
                return Finding::good("virtual machine", "this is none, so nothing pauses it from outside");
            }
            None => {
                return Finding::note(
                    "virtual machine",
                    "whether this is one is not known: /proc/cpuinfo has no flags of the processor",
                    (costs, "`systemd-detect-virt` tells it; see docs/design/leases.md if this is one"),
                );
            }
            Some(true) => {}
        }
    }
    let maker =
        line_of("/sys/class/dmi/id/sys_vendor").map_or_else(String::new, |maker| format!(" ({maker})"));
    let remedy = "switch live migration off at its host; before a pause: `obol stop NAME`, and `obol start NAME` after it";
    if clocks.is_empty() {
        let found = format!(
            "this is one{maker}, and neither a PTP clock of the hypervisor nor a vmclock page shows its pauses"
        );
        return Finding::warning("virtual machine", found, (costs, remedy));
    }
    let found = format!("this is one{maker}; other programs see its pauses by {}", clocks.join(", "));
    Finding::note("virtual machine", found, (costs, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;

    fn good(finding: &Finding) -> bool {
        finding.severity == Severity::Good
    }

    #[test]
    fn a_clock_that_is_slow_unknown_or_stands_still_is_not_good() {
        assert!(good(&source(Some("tsc"), Nanos(25))));
        for (name, cost) in [
            (Some("hpet"), Nanos(25)),
            (None, Nanos(25)),
            (Some("tsc "), Nanos(25)),
            (Some("tsc"), Nanos::ZERO),
            (Some("tsc"), READ_MAX),
            (Some("tsc"), Nanos::MAX),
        ] {
            let found = source(name, cost);
            assert!(!good(&found), "{found:?}");
        }
    }

    #[test]
    fn a_counter_is_good_with_both_flags_only() {
        let of = |text: &str| flags(text).map(counter);
        let steady = of("model name\t: x\nflags\t\t: fpu constant_tsc nonstop_tsc\n").expect("it has flags");
        assert!(good(&steady));
        for lacking in ["fpu constant_tsc", "fpu nonstop_tsc", "", "constant_tsc_nonstop_tsc", "\u{fffd}"] {
            let found = of(&format!("flags\t\t: {lacking}")).expect("it has flags");
            assert!(!good(&found) && found.found.contains("tsc"), "{found:?}");
        }
        assert!(of("Features\t: fp asimd").is_none() && of("").is_none());
    }

    #[test]
    fn a_host_was_not_suspended_only_if_its_clocks_say_so() {
        let of = |before, boot, after| {
            suspended(&Clocks { before: Nanos(before), boot: Nanos(boot), after: Nanos(after) })
        };
        assert!(good(&of(1000, 1001, 1002)));
        // A pause between the reads is not a suspension.
        assert!(good(&of(1000, 1001, 5_000_000_000)));
        let slept = of(1000, 5_000_001_002, 1002);
        assert!(slept.severity == Severity::Warning && slept.found.contains("5.00s"), "{slept:?}");
        for (before, boot, after) in [(1000, 1, 1002), (1000, 1001, 999), (0, 0, 0)] {
            let absurd = of(before, boot, after);
            assert!(!good(&absurd), "{absurd:?}");
        }
    }

    #[test]
    fn a_machine_whose_processor_says_nothing_may_be_virtual() {
        let one = ["KVM virtual PTP".to_owned()];
        let (none, one): (&[String], &[String]) = (&[], &one);
        assert!(good(&virtual_machine(Some(": fpu tsc"), false, none)));
        for (flags, hypervisor, clocks) in [
            (Some(": fpu hypervisor"), false, none),
            (Some(": fpu"), true, none),
            (None, true, none),
            (None, false, none),
            // A clock of a hypervisor belies the flags.
            (Some(": fpu"), false, one),
            (None, false, one),
        ] {
            let found = virtual_machine(flags, hypervisor, clocks);
            assert!(!good(&found), "{flags:?} {hypervisor} {clocks:?}: {found:?}");
        }
    }
}
