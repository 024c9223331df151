//! The kernel, cores and what else runs on them, rights and limits of this user.

use crate::{Finding, line_of};
use nix::sys::resource::Resource;
use obol_fabric::Nanos;
use obol_fabric::host::sched;
use obol_fabric::host::soft_limit;
use obol_profiles::Profile;
use std::collections::BTreeSet;
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
    let mut all = vec![kernel(&release)];
    all.push(cores(
        thread::available_parallelism().ok().map(usize::from),
        line_of("/sys/devices/system/cpu/isolated").as_deref(),
        line_of("/proc/loadavg").as_deref(),
    ));
    all.extend(line_of("/proc/self/cgroup").map(|groups| quota(&groups, Path::new("/sys/fs/cgroup"))));
    all.extend(governor(&governors()));
    all.extend(idle_states(&sleeps()));
    all.push(real_time(profile, &Rights::of_this_process(profile)));
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
            (
                "obol needs Linux 5.16, which waits on several futexes at once",
                "install a newer kernel, on Debian 12 or later `apt-get install linux-image-amd64`",
            ),
        ),
        Some(version) if version < KERNEL_SLICES => Finding::note(
            "kernel",
            format_args!("Linux {release}: the scheduler ignores short slices, which Linux 6.12 heeds"),
            (
                "on shared cores a failover takes longer: 778 to 829us without short slices and 579 to 657us with them, on two cores (docs/design/deaths.md)",
                "install Linux 6.12 or later, on Debian 12 `apt-get install -t bookworm-backports linux-image-amd64`; or use real-time scheduling: `obol up --profile dedicated`",
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

/// Of the number of usable cores, the list of isolated ones, and /proc/loadavg.
fn cores(cores: Option<usize>, isolated: Option<&str>, load: Option<&str>) -> Finding {
    let load = load.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let load = load.filter(|load| load.is_finite() && *load >= 0.0);
    let isolation = isolated.map_or_else(|| "none isolated".to_owned(), |list| format!("isolated: {list}"));
    let unknown = || "unknown".to_owned();
    let found = format!(
        "{} usable, {isolation}, load {}",
        cores.map_or_else(unknown, |cores| cores.to_string()),
        load.map_or_else(unknown, |load| format!("{load:.1}"))
    );
    let (Some(cores), Some(load)) = (cores, load) else {
        return Finding::note(
            "cores",
            found,
            (
                "whether more threads want to run than there are cores is not known",
                "`nproc` and /proc/loadavg show both",
            ),
        );
    };
    if load > cores as f64 {
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

/// What a control group limits.
#[derive(Debug, PartialEq, Eq)]
enum Limit {
    /// The quota and the period in microseconds.
    Of(u64, u64),
    /// What its files say is not understood, or they are not there.
    Unknown(String),
}

/// The limit of a control group; none if it has none.
fn limit_of(group: &Path) -> Option<Limit> {
    let text = line_of(group.join("cpu.max")).or_else(|| {
        // Version 1.
        let [quota, period] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|file| line_of(group.join(file)));
        Some(format!("{} {}", quota?, period.unwrap_or_default()))
    })?;
    let (quota, period) = text.split_once(' ').unwrap_or((&text, ""));
    if matches!(quota, "max" | "-1") {
        return None;
    }
    Some(match (quota.parse(), period.parse()) {
        (Ok(quota), Ok(period)) if quota > 0 && period > 0 => Limit::Of(quota, period),
        _ => Limit::Unknown(format!("{text:?}")),
    })
}

/// The control group that limits a process. `groups` are those that it is in, below `top`.
fn limited(groups: &str, top: &Path) -> Option<(PathBuf, Limit)> {
    groups.lines().find_map(|line| {
        // The number of the hierarchy, its controllers, and the group; version 2 has no list.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let top = match controllers {
            // Where both versions are mounted, `top` has the controllers of version 1.
            "" => {
                Some(top.join("unified")).filter(|hybrid| hybrid.is_dir()).unwrap_or_else(|| top.to_owned())
            }
            list if list.split(',').any(|one| one == "cpu") => top.join(list),
            _ => return None,
        };
        let own = top.join(group.trim_start_matches('/'));
        let found = own.ancestors().take_while(|group| group.starts_with(&top)).find_map(|group| {
            let limit = limit_of(group)?;
            Some((group.to_owned(), limit))
        });
        found.or_else(|| (!own.is_dir()).then(|| (own, Limit::Unknown("no such directory".to_owned()))))
    })
}

/// A limit of processor time by a control group of this process.
fn quota(groups: &str, top: &Path) -> Finding {
    const CHECK: &str = "processor quota";
    match limited(groups, top) {
        None => Finding::good(CHECK, "none"),
        Some((group, Limit::Of(quota, period))) => {
            let longest = Nanos::from_micros(period.saturating_sub(quota.min(period)));
            Finding::warning(
                CHECK,
                format_args!("{} may use {quota} us of each {period} us", group.display()),
                (
                    format!("when it is used up, all its threads stop, for up to {longest}"),
                    "lift it for obol's processes: `CPUQuota=` of the unit, or `--cpus` of the container",
                ),
            )
        }
        Some((group, Limit::Unknown(why))) => Finding::note(
            CHECK,
            format_args!("the limit of the control group {} is not known: {why}", group.display()),
            (
                "if there is one, all threads of a process stop when it is used up",
                "`cat cpu.max` or `cat cpu.cfs_quota_us` in the group's directory, on the host if this is a container",
            ),
        ),
    }
}

/// The governor of each core that has one; `None` if its file cannot be read.
fn governors() -> Vec<Option<String>> {
    let cores = std::fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().filter_map(Result::ok);
    let files = cores.map(|core| core.path().join("cpufreq/scaling_governor"));
    files.filter(|file| file.exists()).map(line_of).collect()
}

fn governor(of_cores: &[Option<String>]) -> Option<Finding> {
    const CHECK: &str = "frequency";
    const BEST: &str = "performance";
    if of_cores.is_empty() {
        return None;
    }
    let known: BTreeSet<&str> = of_cores.iter().flatten().map(String::as_str).collect();
    let others: Vec<&str> = known.into_iter().filter(|governor| *governor != BEST).collect();
    if !others.is_empty() {
        return Some(Finding::warning(
            CHECK,
            format_args!("governor {}", others.join(", ")),
            (
                "a core that was idle begins slowly: every step of a failover takes longer",
                "`cpupower frequency-set --governor performance`",
            ),
        ));
    }
    if of_cores.contains(&None) {
        return Some(Finding::note(
            CHECK,
            "the governor of a core cannot be read",
            ("a core that was idle may begin slowly", "`cpupower frequency-info` as root shows it"),
        ));
    }
    Some(Finding::good(CHECK, format_args!("governor {BEST}")))
}

/// What the files of one state in which a core sleeps say; `None` if they cannot be read.
struct Sleep {
    disable: Option<String>,
    latency: Option<String>,
}

/// The states of the first core.
fn sleeps() -> Vec<Sleep> {
    let states = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cpuidle").into_iter().flatten();
    let of = |state: std::fs::DirEntry| {
        let [disable, latency] = ["disable", "latency"].map(|file| line_of(state.path().join(file)));
        Sleep { disable, latency }
    };
    states.filter_map(Result::ok).map(of).collect()
}

/// How long the deepest sleep of a core takes to end.
fn idle_states(states: &[Sleep]) -> Option<Finding> {
    // As the kernel has both: a bit for each reason to disable it, and microseconds in 32 bits.
    let number = |text: &Option<String>| text.as_ref()?.parse::<u32>().ok();
    let mut latencies = Vec::new();
    for Sleep { disable, latency } in states {
        match (number(disable), number(latency)) {
            (Some(0), Some(us)) => latencies.push(Nanos::from_micros(us.into())),
            (Some(1..), _) => {}
            _ => {
                return Some(Finding::note(
                    "idle states",
                    "a state in which a core sleeps cannot be read",
                    (
                        "how much later a process on an idle core runs is not known",
                        "`cpupower idle-info` as root shows it",
                    ),
                ));
            }
        }
    }
    let deepest = latencies.into_iter().max()?;
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

/// What lets a process run with real-time scheduling.
struct Rights {
    /// Of /proc/self/status.
    status: Option<String>,
    /// RLIMIT_RTPRIO; `None` is without limit.
    limit: Option<u64>,
    /// Whether a thread that tried it could.
    allowed: bool,
}

impl Rights {
    fn of_this_process(profile: &Profile) -> Self {
        Self {
            status: line_of("/proc/self/status"),
            limit: soft_limit(Resource::RLIMIT_RTPRIO),
            allowed: sched::may_run_fifo(profile.scheduling.priority().unwrap_or(PRIORITY)),
        }
    }

    fn has_capability(&self) -> Option<bool> {
        let line = self.status.as_ref()?.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        Some(u64::from_str_radix(line.trim(), 16).ok()? & 1 << SYS_NICE != 0)
    }
}

fn real_time(profile: &Profile, rights: &Rights) -> Finding {
    let wanted = profile.scheduling.priority();
    let priority = wanted.unwrap_or(PRIORITY);
    let capability = match rights.has_capability() {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    let limit = rights.limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    let allowed = rights.allowed;
    let rights = format!("CAP_SYS_NICE {capability}, RLIMIT_RTPRIO {limit}");
    // What was tried counts: a seccomp filter or a security module can refuse what these rights allow.
    if allowed {
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

    fn good(finding: &Finding) -> bool {
        finding.severity == Severity::Good
    }

    #[test]
    fn a_quota_of_either_version_of_control_groups_is_found() {
        let top = tempfile::tempdir().expect("made");
        let of = |groups: &str| {
            limited(groups, top.path())
                .map(|(group, limit)| (group.strip_prefix(top.path()).expect("below").to_owned(), limit))
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
        assert_eq!(
            of("0::/a/b"),
            Some(("a".into(), Limit::Of(20_000, 100_000))),
            "that of a group around it"
        );
        put("cpu,cpuacct/c", &[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")]);
        let groups = "9:cpuset:/\n4:cpu,cpuacct:/c\n0::/\n";
        assert_eq!(of(groups), None);
        put("cpu,cpuacct/c", &[("cpu.cfs_quota_us", "50000\n")]);
        assert_eq!(of(groups), Some(("cpu,cpuacct/c".into(), Limit::Of(50_000, 100_000))));
    }

    #[test]
    fn a_host_with_both_versions_of_control_groups_has_those_of_version_2_in_a_directory_of_their_own() {
        let top = tempfile::tempdir().expect("made");
        for group in ["cpu/user", "unified/user/session"] {
            std::fs::create_dir_all(top.path().join(group)).expect("made");
        }
        let groups = "3:cpu:/user\n0::/user/session\n";
        assert!(good(&quota(groups, top.path())), "{:?}", quota(groups, top.path()));
        let own = top.path().join("unified/user/session");
        std::fs::write(own.join("cpu.max"), "20000 100000\n").expect("written");
        assert_eq!(limited(groups, top.path()), Some((own, Limit::Of(20_000, 100_000))));
    }

    #[test]
    fn a_quota_that_cannot_be_read_or_makes_no_sense_is_not_good() {
        let top = tempfile::tempdir().expect("made");
        let group = top.path().join("a");
        let of = |text: Option<&str>| {
            if let Some(text) = text {
                std::fs::create_dir_all(&group).expect("made");
                std::fs::write(group.join("cpu.max"), text).expect("written");
            }
            quota("0::/a", top.path())
        };
        let missing = of(None);
        assert!(
            missing.severity == Severity::Note && missing.found.contains("no such directory"),
            "{missing:?}"
        );
        assert!(good(&of(Some("max 100000\n"))));
        assert_eq!(of(Some("20000 100000\n")).severity, Severity::Warning);
        for absurd in ["none", "20000", "0 100000", "20000 0", "-5 100000", "\u{fffd} 100000"] {
            let found = of(Some(absurd));
            assert!(found.severity == Severity::Note && found.found.contains("is not known"), "{found:?}");
        }
    }

    #[test]
    fn cores_under_load_or_of_unknown_load_are_not_good() {
        assert!(good(&cores(Some(2), None, Some("1.50 0.75 0.33 2/345 6789"))));
        let busy = cores(Some(2), Some("1"), Some("2.50 0.75 0.33 2/345 6789"));
        assert!(busy.severity == Severity::Warning && busy.found.contains("isolated: 1"), "{busy:?}");
        for (cores, load) in [
            (None, Some("0.10 0.10 0.10")),
            (Some(2), None),
            (Some(2), Some("NaN 0 0")),
            (Some(2), Some("inf 0 0")),
            (Some(2), Some("-1.00 0 0")),
            (Some(2), Some("idle")),
        ] {
            let found = super::cores(cores, None, load);
            assert!(!good(&found) && found.found.contains("unknown"), "{found:?}");
        }
    }

    #[test]
    fn one_core_with_another_governor_is_not_good() {
        let of = |names: &[Option<&str>]| {
            governor(&names.iter().map(|name| name.map(str::to_owned)).collect::<Vec<_>>())
        };
        assert!(of(&[Some("performance"), Some("performance")]).is_some_and(|found| good(&found)));
        assert!(of(&[]).is_none(), "nothing is said of a host without governors");
        for cores in [
            &[Some("performance"), Some("powersave")][..],
            &[Some("performance"), None],
            &[None],
            &[Some("performance2")],
            &[Some("Performance\u{fffd}")],
        ] {
            let found = of(cores).expect("there are governors");
            assert!(!good(&found), "{found:?}");
        }
    }

    #[test]
    fn a_state_that_takes_long_to_leave_or_cannot_be_read_is_not_good() {
        let of = |states: &[(Option<&str>, Option<&str>)]| {
            let own = |text: &Option<&str>| text.map(str::to_owned);
            let all: Vec<Sleep> = states
                .iter()
                .map(|(disable, latency)| Sleep { disable: own(disable), latency: own(latency) })
                .collect();
            idle_states(&all)
        };
        let (on, off) = (Some("0"), Some("1"));
        assert!(of(&[(on, Some("2")), (off, Some("890"))]).is_some_and(|found| good(&found)));
        assert!(of(&[]).is_none(), "nothing is said of a core that has no states");
        for states in [
            [(on, Some("2")), (on, Some("890"))],
            [(on, Some("2")), (None, Some("890"))],
            [(on, Some("2")), (on, None)],
            [(on, Some("2")), (on, Some("-1"))],
            [(on, Some("2")), (on, Some("18446744073709551615"))],
            [(on, Some("2")), (on, Some("4294967295"))],
        ] {
            let found = of(&states).expect("there are states");
            assert!(!good(&found), "{states:?}: {found:?}");
        }
    }

    #[test]
    fn real_time_scheduling_that_was_refused_is_not_good_whatever_the_rights_say() {
        let status = |set: &str| Some(format!("Name:\tobol\nCapEff:\t{set}\n"));
        let all = || status("000001ffffffffff");
        let of = |name, status, limit, allowed| {
            real_time(&Profile::builtin(name).expect("it ships"), &Rights { status, limit, allowed })
        };
        for name in ["laptop", "dedicated"] {
            assert!(good(&of(name, all(), Some(0), true)));
            for (status, limit) in [
                (status("0000000000000000"), Some(0)),
                (all(), None),
                (None, Some(99)),
                (status("all"), Some(u64::MAX)),
            ] {
                let found = of(name, status, limit, false);
                assert!(!good(&found) && found.found.contains("is refused"), "{found:?}");
            }
        }
        assert_eq!(of("dedicated", all(), None, false).severity, Severity::Problem);
        assert!(of("laptop", None, None, false).found.contains("CAP_SYS_NICE unknown"));
    }

    #[test]
    fn what_is_too_little_or_not_known_is_not_good() {
        let good = |finding: Finding| good(&finding);
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
