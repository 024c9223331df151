//! How soon a death is known, and by what. How soon at best is measured on bare processes.

use crate::{Finding, Severity};
use obol_chaos::floor::Floors;
use obol_deaths::Detection;
use obol_deaths::Detectors;
use obol_fabric::host::sched::Slice;
use obol_observe::stats::{Summary, shown};
use obol_term::output::Failure;
use std::path::Path;

/// Deaths of bare processes that are measured.
const DEATHS: u32 = 30;

pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, Failure> {
    let mut floors = Floors::default();
    floors.run(root, DEATHS, Slice::Default)?;
    let detected = floors.detected.summary();
    let median = detected.p50.map_or_else(|| "--".to_owned(), shown);
    Ok(vec![robust_futex(&detected, floors.ordinary), of(&Detectors::look(), &median)])
}

/// Of the deaths that it showed. `ordinary`: the measuring process had no real-time priority.
fn robust_futex(detected: &Summary, ordinary: bool) -> Finding {
    const CHECK: &str = "robust futex";
    let median = detected.p50.map_or_else(|| "--".to_owned(), shown);
    let ordinary = if ordinary { ", without real-time priority of the measuring process" } else { "" };
    let found = format!(
        "a robust futex shows the death of a bare process after {median} (p50 of {}, the longest {}{ordinary})",
        detected.n,
        shown(detected.max)
    );
    if detected.n < u64::from(DEATHS) {
        return Finding::warning(
            CHECK,
            format_args!("{found}: {DEATHS} have died"),
            (
                "deaths that it does not show are found by pidfds or heartbeats alone",
                "run `obol doctor` again on an idle host; if it repeats, see docs/design/deaths.md",
            ),
        );
    }
    Finding::good(CHECK, found)
}

fn of(detectors: &Detectors, median: &str) -> Finding {
    const CHECK: &str = "death detector";
    let first = detectors.first.name();
    let refused = |of: &Option<String>| of.clone().unwrap_or_default();
    match detectors.first {
        Detection::Module => Finding::good(
            CHECK,
            format_args!("{first}: suspicion and proof come before the memory of the dead goes"),
        ),
        Detection::Ebpf if detectors.wakes => Finding::good(
            CHECK,
            format_args!(
                "{first}: the suspicion comes when the signal is sent, on this host; module: {}",
                refused(&detectors.module)
            ),
        ),
        Detection::Ebpf => Finding::bad(
            CHECK,
            Severity::Note,
            format_args!("{first}; module: {}", refused(&detectors.module)),
            (
                format!(
                    "processes that are awake learn of deaths as with the module; sleeping ones by the robust futex, so about {median} later than the signal, with the proof in the same turn"
                ),
                "if an earlier release has loaded the programs, as root: `obol detector unload`, then `load`; to wake they need Linux 6.1",
            ),
        ),
        Detection::FutexPidfd => Finding::warning(
            CHECK,
            format_args!(
                "{first}; module: {}; eBPF: {}",
                refused(&detectors.module),
                refused(&detectors.ebpf)
            ),
            (
                format!(
                    "a death is suspected about {median} after the signal, and proved only when its memory was released: 0.2 to 0.5 ms later for a small process (docs/design/deaths.md), milliseconds later for a large one (docs/kernel.md)"
                ),
                "as root: `groupadd --force --system obol`, then `obol detector load --group obol`; the module: docs/kernel.md",
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::Nanos;
    use obol_observe::stats::Distribution;

    #[test]
    fn a_futex_that_showed_fewer_deaths_than_there_were_is_not_good() {
        let of = |deaths: u32| {
            let mut all = Distribution::new();
            (0..deaths).for_each(|n| all.add(Nanos::from_micros(40 + u64::from(n))));
            robust_futex(&all.summary(), false).severity
        };
        assert_eq!(of(DEATHS), Severity::Good);
        for deaths in [0, 1, DEATHS - 1] {
            assert_eq!(of(deaths), Severity::Warning, "{deaths}");
        }
    }

    #[test]
    fn without_a_notice_of_the_kernel_the_cost_is_the_measured_delay() {
        let with = |first, wakes, module: Option<&str>, ebpf: Option<&str>| {
            let [module, ebpf] = [module, ebpf].map(|refusal| refusal.map(str::to_owned));
            super::of(&Detectors { first, wakes, module, ebpf }, "42us")
        };
        let of = |first, module, ebpf| with(first, false, module, ebpf);
        let none = of(Detection::FutexPidfd, Some("no module"), Some("no BTF"));
        assert_eq!(none.severity, Severity::Warning);
        assert!(none.found.contains("no module") && none.found.contains("no BTF"), "{none:?}");
        assert!(none.cost.is_some_and(|cost| cost.contains("42us")));
        assert_eq!(of(Detection::Ebpf, Some("no module"), None).severity, Severity::Note);
        assert_eq!(with(Detection::Ebpf, true, Some("no module"), None).severity, Severity::Good);
        assert_eq!(of(Detection::Module, None, None).severity, Severity::Good);
    }
}
