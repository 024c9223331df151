//! Locks and deadlines as clients see them, judged in true time by what they were told alone: the rules of
//! Redis' SET NX PX, PEXPIRE, TTL and PTTL, and no code of the store.

use std::collections::BTreeMap;

pub(crate) const MS: u64 = 1_000_000;
/// By how much a deadline may be off, in ns: stamps count whole ms at both of its ends, and each successor goes on
/// from the newest stamp that it knows.
const ERROR: u64 = 2 * MS;
const ERROR_EACH: u64 = MS;

/// What one batch of commands has told a client of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) key: usize,
    /// When it was sent and when the answer came, in true time, and how many leaders there had been.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) leaders: (u64, u64),
    /// Who has the lock before the batch; `None` for nobody.
    pub(crate) owner: Option<u64>,
    /// Who was given it, or a new deadline for it, by the batch.
    pub(crate) given: Option<u64>,
    /// What PTTL has said after that, in ms: less than 0 for none.
    pub(crate) left_ms: i64,
}

/// All that clients were told, for locks of fixed spans.
pub(crate) struct Locks {
    spans_ms: Vec<u64>,
    told: Vec<Told>,
}

/// What was reached.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    pub(crate) given: usize,
    /// Locks that passed from one owner to another.
    pub(crate) passed: usize,
    /// Deadlines that leaders have changed before.
    pub(crate) across: usize,
}

impl Locks {
    pub(crate) fn new(spans_ms: &[u64]) -> Self {
        Self { spans_ms: spans_ms.to_vec(), told: Vec::new() }
    }

    pub(crate) fn tell(&mut self, told: Told) {
        self.told.push(told);
    }

    /// Checks each pair of a gift and what was told later, while the gift may count.
    pub(crate) fn judge(&self) -> Result<Reached, String> {
        let mut reached = Reached::default();
        let mut by_key: BTreeMap<usize, Vec<&Told>> = BTreeMap::new();
        self.told.iter().for_each(|told| by_key.entry(told.key).or_default().push(told));
        for (key, mut all) in by_key {
            let span = self.spans_ms[key] * MS;
            all.sort_by_key(|told| told.begin);
            let gifts: Vec<&Told> = all.iter().copied().filter(|told| told.given.is_some()).collect();
            reached.given += gifts.len();
            for told in &all {
                Self::judge_one(told, &gifts, span, &mut reached)?;
            }
        }
        Ok(reached)
    }

    /// Whether what was told of the owner follows from the gifts.
    fn judge_one(told: &Told, gifts: &[&Told], span: u64, reached: &mut Reached) -> Result<(), String> {
        let error = |gift: &Told| ERROR + ERROR_EACH * told.leaders.1.saturating_sub(gift.leaders.0);
        // Surely before it, and surely not over yet: then it counts, whatever came after it.
        for gift in gifts.iter().filter(|gift| gift.end <= told.begin) {
            let counts = told.end + error(gift) < gift.begin + span;
            if counts && told.owner != gift.given {
                return Err(format!("a lock ended early, or has two owners: {gift:?}, and then {told:?}"));
            }
        }
        // Its owner was given it, and not too long ago.
        if let Some(owner) = told.owner {
            let of_owner = gifts.iter().filter(|gift| gift.given == Some(owner) && gift.begin <= told.end);
            let last = of_owner.clone().max_by_key(|gift| gift.end + error(gift));
            let last = last.ok_or_else(|| format!("an owner that was given nothing: {told:?}"))?;
            if told.begin > last.end + span + error(last) {
                return Err(format!("a lock ended late: {last:?}, and still {told:?}"));
            }
            reached.across += usize::from(told.leaders.1 > last.leaders.1);
        }
        reached.passed += usize::from(told.given.is_some() && told.owner != told.given);
        Self::judge_left(told, gifts, span, error)
    }

    /// Whether PTTL fits the gifts that may count: that of the batch itself, or else one before.
    fn judge_left(
        told: &Told,
        gifts: &[&Told],
        span: u64,
        error: impl Fn(&Told) -> u64,
    ) -> Result<(), String> {
        let has_owner = told.given.or(told.owner).is_some();
        if has_owner != (told.left_ms >= 0) {
            return Err(format!("a lock without a deadline, or a deadline without a lock: {told:?}"));
        }
        let left = u64::try_from(told.left_ms).unwrap_or(0) * MS;
        let fits = |gift: &Told| {
            let (early, late) = (gift.begin + span, gift.end + span);
            told.begin + left <= late + error(gift) && early <= told.end + left + error(gift)
        };
        let may_count = |gift: &&&Told| gift.begin <= told.end;
        if has_owner && told.given.is_none() && !gifts.iter().filter(may_count).any(|gift| fits(gift)) {
            return Err(format!("PTTL fits no deadline that was given: {told:?}"));
        }
        if told.given.is_some() && !fits(told) {
            return Err(format!("PTTL does not fit the deadline that was just given: {told:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn told(begin: u64, owner: Option<u64>, given: Option<u64>, left_ms: i64) -> Told {
        let (begin, end) = (begin * MS, begin * MS + MS / 10);
        Told { key: 0, begin, end, leaders: (0, 0), owner, given, left_ms }
    }

    fn judge(all: &[Told]) -> Result<Reached, String> {
        let mut locks = Locks::new(&[20]);
        all.iter().for_each(|one| locks.tell(*one));
        locks.judge()
    }

    #[test]
    fn the_checker_tells_right_histories_from_wrong_ones() {
        let first = told(100, None, Some(1), 20);
        let right = [first, told(105, Some(1), None, 15), told(122, None, Some(2), 20)];
        assert_eq!(judge(&right).map(|reached| (reached.given, reached.passed)), Ok((2, 2)));
        for (wrong, why) in [
            (told(110, None, Some(2), 20), "two owners"),
            (told(110, None, None, -2), "ended early"),
            (told(130, Some(1), None, 1), "ended late"),
            (told(105, Some(1), None, 9), "PTTL fits no deadline"),
            (told(105, Some(2), None, 15), "two owners"),
            (told(105, Some(1), None, -1), "without a deadline"),
            (told(150, None, Some(2), 4), "just given"),
            (told(150, Some(3), None, 4), "given nothing"),
        ] {
            let said = judge(&[first, wrong]).expect_err(why);
            assert!(said.contains(why), "{why}: {said}");
        }
    }
}
