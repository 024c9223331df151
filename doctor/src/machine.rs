//! The kernel, cores and what else runs on them, rights and limits of this user.

use crate::{Finding, line_of};
use nix::sys::resource::Resource;
use obol_fabric::Nanos;
use obol_fabric::host::sched;
use obol_fabric::host::soft_limit;
use obol_profiles::Profile;
use std::path::{Path, PathBuf};
use std::thread;

/// The first kernel that waits on several futexes at once.
const KERNEL_MIN: (u32, u32) = (5, 16);
/// The first kernel whose scheduler heeds a thread's slice (EEVDF).
const KERNEL_SLICES: (u32, u32) = (6, 12);
/// A core that sleeps more deeply than this wakes noticeably late.
const IDLE_LATENCY: Nanos = Nanos::from_micros(20);
/// Descriptors that suffice for the processes of a large cluster: one for each region that is
/// being mapped, and sockets.
const DESCRIPTORS: u64 = 1024;
/// The bit of CAP_SYS_NICE.
const SYS_NICE: u32 = 23;
/// Of the profiles with real-time scheduling.
const PRIORITY: u32 = 50;

pub(crate) fn check(profile: &Profile) -> Vec<Finding> {
    let release = line_of("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut all = vec![kernel(&release), cores()];
    all.extend(quota());
    all.extend(governor());
    all.extend(idle_states());
    all.push(real_time(profile));
    all.push(descriptors(soft_limit(Resource::RLIMIT_NOFILE)));
    all.extend(line_of("/proc/swaps").map(|areas| swap(&areas)));
    all
}

/// Major and minor number of a release such as `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel(release: &str) -> Finding {
    match version(release) {
        Some(version) if version < KERNEL_MIN => Finding::problem(
            "kernel",
            format_args!("Linux {release}"),
            ("obol needs Linux 5.16, which waits on several futexes at once", "install a newer kernel"),
        ),
        Some(version) if version < KERNEL_SLICES => Finding::note(
            "kernel",
            format_args!("Linux {release}: the scheduler ignores short slices, which Linux 6.12 heeds"),
            (
                "on shared cores a failover takes longer: 778 to 829us without short slices and 579 to 657us with them, on two cores (docs/design/deaths.md)",
                "install Linux 6.12 or later, or use real-time scheduling (profile dedicated)",
            ),
        ),
        Some(_) => Finding::good("kernel", format_args!("Linux {release}")),
        None => Finding::note(
            "kernel",
            format_args!("{release:?} is not the number of a release of Linux"),
            ("whether obol can run is not known: it needs Linux 5.16", "`uname -r` shows the release"),
        ),
    }
}

fn cores() -> Finding {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let isolated = line_of("/sys/devices/system/cpu/isolated");
    let load = line_of("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let busy = load.filter(|load| *load > cores as f64);
    let isolation = isolated.map_or_else(|| "none isolated".to_owned(), |list| format!("isolated: {list}"));
    let found = format!(
        "{cores} usable, {isolation}, load {}",
        load.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.1}"))
    );
    if busy.is_some() {
        return Finding::warning(
            "cores",
            format_args!("{found}: more threads want to run than there are cores"),
            (
                "obol's processes wait for a core; the pauses above were measured under this load",
                "end other programs, or give obol cores of its own: `isolcpus=` or a cpuset, and rdma.core of the profile",
            ),
        );
    }
    Finding::good("cores", found)
}

/// The quota and the period of a control group, in microseconds; none if it has no limit.
fn limit_of(group: &Path) -> Option<(u64, u64)> {
    let (quota, period) = match line_of(group.join("cpu.max")) {
        Some(both) => both.split_once(' ').map(|(quota, period)| (quota.to_owned(), period.to_owned()))?,
        // Version 1.
        None => (line_of(group.join("cpu.cfs_quota_us"))?, line_of(group.join("cpu.cfs_period_us"))?),
    };
    // Without a limit it is `max`, or -1.
    Some((quota.parse().ok()?, period.parse().ok()?))
}

/// The control group that limits a process. `groups` are those that it is in, below `top`.
fn limited(groups: &str, top: &Path) -> Option<(PathBuf, u64, u64)> {
    groups.lines().find_map(|line| {
        // The number of the hierarchy, its controllers, and the group; version 2 has no list.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let top = match controllers {
            "" => top.to_owned(),
            list if list.split(',').any(|one| one == "cpu") => top.join(list),
            _ => return None,
        };
        let own = top.join(group.trim_start_matches('/'));
        own.ancestors().take_while(|group| group.starts_with(&top)).find_map(|group| {
            let (quota, period) = limit_of(group)?;
            Some((group.to_owned(), quota, period))
        })
    })
}

/// A limit of processor time by a control group of this process.
fn quota() -> Option<Finding> {
    let groups = line_of("/proc/self/cgroup")?;
    let Some((group, quota, period)) = limited(&groups, Path::new("/sys/fs/cgroup")) else {
        return Some(Finding::good("processor quota", "none"));
    };
    let longest = Nanos::from_micros(period.saturating_sub(quota.min(period)));
    Some(Finding::warning(
        "processor quota",
        format_args!("{} may use {quota} us of each {period} us", group.display()),
        (
            format!("when it is used up, all its threads stop, for up to {longest}"),
            "lift it for obol's processes: `CPUQuota=` of the unit, or `--cpus` of the container",
        ),
    ))
}

fn governor() -> Option<Finding> {
    let governor = line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")?;
    if governor == "performance" {
        return Some(Finding::good("frequency", "governor performance"));
    }
    Some(Finding::warning(
        "frequency",
        format_args!("governor {governor}"),
        (
            "a core that was idle begins slowly: every step of a failover takes longer",
            "`cpupower frequency-set --governor performance`",
        ),
    ))
}

/// How long the deepest sleep of a core takes to end.
fn idle_states() -> Option<Finding> {
    let states = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cpuidle").ok()?.filter_map(Result::ok);
    let enabled = states.filter(|state| line_of(state.path().join("disable")).as_deref() == Some("0"));
    let latency = |state: std::fs::DirEntry| line_of(state.path().join("latency"))?.parse().ok();
    let deepest = Nanos::from_micros(enabled.filter_map(latency).max()?);
    if deepest <= IDLE_LATENCY {
        return Some(Finding::good("idle states", format_args!("the deepest takes {deepest} to leave")));
    }
    Some(Finding::warning(
        "idle states",
        format_args!("the deepest takes {deepest} to leave"),
        (
            format!("a process on an idle core runs up to {deepest} later, at each step of a failover"),
            format!("`cpupower idle-set --disable-by-latency {}`", IDLE_LATENCY.0 / 1000),
        ),
    ))
}

fn real_time(profile: &Profile) -> Finding {
    let wanted = profile.scheduling.priority();
    let priority = wanted.unwrap_or(PRIORITY);
    let capability = line_of("/proc/self/status")
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("CapEff:")).map(str::trim)?;
            u64::from_str_radix(line, 16).ok()
        })
        .is_some_and(|set| set & 1 << SYS_NICE != 0);
    let limit = soft_limit(Resource::RLIMIT_RTPRIO).map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    let rights = format!("CAP_SYS_NICE {}, RLIMIT_RTPRIO {limit}", if capability { "yes" } else { "no" });
    if sched::may_run_fifo(priority) {
        return Finding::good(
            "real-time scheduling",
            format_args!("allowed with priority {priority} ({rights})"),
        );
    }
    let remedy = "grant it: `AmbientCapabilities=CAP_SYS_NICE` or `LimitRTPRIO=50` in the unit, `ulimit -r 50` in a shell";
    match wanted {
        Some(priority) => Finding::problem(
            "real-time scheduling",
            format_args!(
                "SCHED_FIFO {priority}, which the profile {} asks for, is refused ({rights})",
                profile.name
            ),
            (
                "while the machine is busy, healthy processes are removed, because they do not run in time",
                remedy,
            ),
        ),
        None => Finding::note(
            "real-time scheduling",
            format_args!(
                "SCHED_FIFO {priority} is refused ({rights}); the profile {} does not ask for it",
                profile.name
            ),
            ("pauses are those of ordinary scheduling, above", remedy),
        ),
    }
}

fn descriptors(limit: Option<u64>) -> Finding {
    match limit {
        Some(limit) if limit < DESCRIPTORS => Finding::warning(
            "open files",
            format_args!("ulimit -n is {limit}"),
            (
                "a process that runs out of descriptors cannot map the regions of its peers (counter map_failures)",
                format!("`ulimit -n {DESCRIPTORS}`, or LimitNOFILE={DESCRIPTORS} in the unit"),
            ),
        ),
        Some(limit) => Finding::good("open files", format_args!("ulimit -n is {limit}")),
        None => Finding::good("open files", "no limit"),
    }
}

/// `areas`: a line for each, below a line of heads.
fn swap(areas: &str) -> Finding {
    let swaps = areas.lines().skip(1).count();
    if swaps == 0 {
        return Finding::good("swap", "none");
    }
    Finding::warning(
        "swap",
        format_args!("{swaps} areas are in use"),
        (
            "a page of a process or of its region that was swapped out costs a pause of milliseconds when it is needed",
            "`swapoff -a`, or MemorySwapMax=0 in the units",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;

    #[test]
    fn a_quota_of_either_version_of_control_groups_is_found() {
        let top = tempfile::tempdir().expect("made");
        let of = |groups: &str| {
            limited(groups, top.path()).map(|(group, quota, period)| {
                (group.strip_prefix(top.path()).expect("below").to_owned(), quota, period)
            })
        };
        let put = |group: &str, files: &[(&str, &str)]| {
            std::fs::create_dir_all(top.path().join(group)).expect("made");
            for (file, text) in files {
                std::fs::write(top.path().join(group).join(file), text).expect("written");
            }
        };
        put("a/b", &[("cpu.max", "max 100000\n")]);
        assert_eq!(of("0::/a/b"), None);
        put("a", &[("cpu.max", "20000 100000\n")]);
        assert_eq!(of("0::/a/b"), Some(("a".into(), 20_000, 100_000)), "that of a group around it");
        put("cpu,cpuacct/c", &[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")]);
        let groups = "9:cpuset:/\n4:cpu,cpuacct:/c\n0::/\n";
        assert_eq!(of(groups), None);
        put("cpu,cpuacct/c", &[("cpu.cfs_quota_us", "50000\n")]);
        assert_eq!(of(groups), Some(("cpu,cpuacct/c".into(), 50_000, 100_000)));
    }

    #[test]
    fn what_is_too_little_or_not_known_is_not_good() {
        let good = |finding: Finding| finding.severity == Severity::Good;
        assert!(good(kernel("6.12.3")));
        for release in ["5.15.0-1-amd64", "6.1.0-18-amd64", "custom", ""] {
            assert!(!good(kernel(release)), "{release:?}");
        }
        assert!(good(descriptors(None)) && good(descriptors(Some(DESCRIPTORS))));
        assert!(!good(descriptors(Some(DESCRIPTORS - 1))));
        let heads = "Filename Type Size Used Priority\n";
        assert!(good(swap(heads)) && !good(swap(&format!("{heads}/dev/sda2 partition 1024 0 -2\n"))));
    }

    #[test]
    fn releases_of_kernels_are_compared_by_number() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("5.16"), Some((5, 16)));
        assert!(version("5.9.1").is_some_and(|old| old < KERNEL_MIN));
        assert!(version("6.12.3+").is_some_and(|new| new >= KERNEL_SLICES));
        assert_eq!(version("custom"), None);
    }
}
