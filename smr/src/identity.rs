//! Identities of logs, and which of two is newer.
//!
//! ```text
//! 0   kind of the service, kind of the guard (1 byte each)
//! 2   random (2 bytes)
//! 4   generation (4 bytes)
//! ```
//!
//! A log that is begun on an operator's word, anew or with what one replica has, has a generation of at
//! least [`FIRST_ORDERED`]: the seconds since 1970, and more than that of each log that is known there. So
//! it is newer than the one that it replaces, and replicas of that one which come back give way. The
//! generation of any other log is random and below that: nobody has said that it replaces one, so it never
//! does.

/// Generations from this one on have an order.
pub const FIRST_ORDERED: u32 = 1 << 30;

const GENERATION_AT: u32 = 32;
/// The kinds of service and guard.
const KINDS: u64 = 0xffff;

pub(crate) const fn generation(log: u64) -> u32 {
    (log >> GENERATION_AT) as u32
}

const fn with_generation(log: u64, generation: u32) -> u64 {
    log & u32::MAX as u64 | (generation as u64) << GENERATION_AT
}

/// The number for the identity of a log that begins without an operator's word: the first of a store.
pub const fn of_first_log(random: u64) -> u64 {
    with_generation(random, generation(random) % FIRST_ORDERED)
}

/// The number for the identity of a log that an operator begins. `seconds` counts from 1970; `known` has the
/// identities of the other logs that can be seen.
pub fn of_newer_log(random: u64, seconds: u64, known: impl IntoIterator<Item = u64>) -> u64 {
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    let first = with_generation(random, seconds.max(FIRST_ORDERED));
    known.into_iter().fold(first, above)
}

/// The same identity, with a generation above that of another log.
pub(crate) const fn above(log: u64, other: u64) -> u64 {
    let next = generation(other).saturating_add(1);
    let least = if next > FIRST_ORDERED { next } else { FIRST_ORDERED };
    if generation(log) >= least { log } else { with_generation(log, least) }
}

/// Whether a log replaces another one of the same service and guard.
pub(crate) const fn is_newer(one: u64, other: u64) -> bool {
    let is_ordered = generation(one) >= FIRST_ORDERED && generation(one) > generation(other);
    other != 0 && is_ordered && one & KINDS == other & KINDS
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: u64 = 0x0205;
    const NOW: u64 = 1_800_000_000;

    fn log(number: u64) -> u64 {
        number & !KINDS | KIND
    }

    #[test]
    fn a_log_that_an_operator_asked_for_is_newer_than_each_one_that_is_known() {
        let first = log(of_first_log(u64::MAX));
        let anew = log(of_newer_log(7, NOW, [first]));
        let again = log(of_newer_log(8, NOW, [first, anew]));
        let late = log(of_newer_log(9, 5, [again, first]));
        for (one, other) in [(anew, first), (again, anew), (late, again), (late, first)] {
            assert!(is_newer(one, other) && !is_newer(other, one), "{one:x} {other:x}");
        }
        assert_eq!(generation(anew), NOW as u32);
        assert!(generation(log(of_newer_log(1, 0, []))) >= FIRST_ORDERED, "whatever the clock shows");
    }

    #[test]
    fn a_log_that_nobody_asked_for_is_newer_than_none() {
        for random in [0, 1 << 32, u64::MAX, 0x1234_5678_9abc_def0] {
            let one = log(of_first_log(random));
            assert!(!is_newer(one, log(0)) && !is_newer(one, log(of_first_log(!random))));
        }
    }

    #[test]
    fn logs_of_other_kinds_and_none_have_no_order() {
        let (first, anew) = (log(of_first_log(3)), log(of_newer_log(3, NOW, [])));
        assert!(!is_newer(anew ^ 1, first) && !is_newer(anew ^ 0x100, first));
        assert!(!is_newer(anew, 0) && !is_newer(0, anew) && !is_newer(anew, anew));
    }

    #[test]
    fn generations_end_and_do_not_wrap() {
        let last = log(of_newer_log(3, u64::MAX, []));
        assert_eq!((generation(last), generation(above(log(0), last))), (u32::MAX, u32::MAX));
        assert_eq!(above(last, log(0)), last);
    }
}
