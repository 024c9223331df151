//! Lines that replicas write into each other's memory, outside of the log, where everybody may write at
//! any time: requests for permissions or votes, and their answers ([`crate::Grants`],
//! [`crate::Votes`]). A line is a few words and their checksum, of one replica for another one. The upper
//! half of its fourth word is the generation of its sender's log ([`crate::identity`]): a replica with
//! another log asks for nothing here, and grants nothing.

use crate::REPLICAS_MAX;
use crate::area::Area;
use crate::identity;
use crate::members;
use crate::tokens::{Part, token};
use core::sync::atomic::Ordering;
use obol_fabric::sealed;
use obol_fabric::{Address, Fabric, Incarnation, Remote};
use obol_membership::View;

/// The word with the sender's generation, and where it begins in it.
const GENERATION_WORD: usize = 3;
const GENERATION_AT: u32 = 32;

/// The replicas of the newest view, and the lines in own memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lines {
    /// By place.
    replicas: Vec<(Incarnation, Address)>,
    own: Option<Incarnation>,
    place: usize,
    /// The generation of the own log; 0 for none.
    generation: u32,
    /// Lines that were written to others.
    written: u64,
    /// The checksums of the lines that were seen, and which of these were left out: their sender or their
    /// receiver was not in the view.
    seen: [u64; REPLICAS_MAX],
    left_out: [bool; REPLICAS_MAX],
}

impl Lines {
    /// Lines that were left out are handled now, if this view has their sender. The others are not handled
    /// again: the heartbeat of a leader that has died would seem to be new.
    pub(crate) fn install(&mut self, view: &View, own: Option<Incarnation>) {
        self.replicas = members::replicas(view).map(|member| (member.incarnation, member.address)).collect();
        let place = self.replicas.iter().position(|(who, _)| Some(*who) == own);
        self.own = own.filter(|_| place.is_some());
        self.place = place.unwrap_or(REPLICAS_MAX);
        for (seen, left_out) in self.seen.iter_mut().zip(&mut self.left_out) {
            if core::mem::take(left_out) {
                *seen = 0;
            }
        }
    }

    pub(crate) const fn set_log(&mut self, log: u64) {
        self.generation = identity::generation(log);
    }

    /// Whether lines with this generation count: one of them may have no log.
    const fn is_of_log(&self, generation: u32) -> bool {
        generation == self.generation || generation == 0 || self.generation == 0
    }

    /// This replica; `None` if the newest view does not have it.
    pub(crate) const fn own(&self) -> Option<Incarnation> {
        self.own
    }

    pub(crate) fn others(&self) -> Vec<(Incarnation, Address)> {
        self.replicas.iter().copied().filter(|(who, _)| Some(*who) != self.own).collect()
    }

    pub(crate) fn address(&self, of: Incarnation) -> Option<Address> {
        self.replicas.iter().find(|(who, _)| *who == of).map(|(_, at)| *at)
    }

    /// The lines for this replica that have changed since the last call. The first two words of each are
    /// sender and receiver. One that is not complete yet comes later.
    pub(crate) fn changed<const N: usize, F: Fabric>(&mut self, area: Area, fabric: &F) -> Vec<[u64; N]> {
        let mut changed = Vec::new();
        for place in 0..self.replicas.len().min(REPLICAS_MAX) {
            let words = fabric.own(area.permission(place), 8 * (N + 1));
            let sum = words.and_then(|words| words.get(N)).map(|sum| sum.load(Ordering::Relaxed));
            if let Some(sum) = sum.filter(|sum| *sum != self.seen[place])
                && let Some(mut line) = sealed::unseal_own::<N>(words)
            {
                let generation = (line[GENERATION_WORD] >> GENERATION_AT) as u32;
                line[GENERATION_WORD] &= u64::from(u32::MAX);
                let is_for_me = self.address(Incarnation(line[0])).is_some()
                    && self.own.is_some_and(|own| own.0 == line[1] && own.0 != line[0]);
                (self.seen[place], self.left_out[place]) = (sum, !is_for_me);
                if is_for_me && self.is_of_log(generation) {
                    changed.push(line);
                }
            }
        }
        changed
    }

    /// This replica and the number of its next line, by which a repeated line differs from the one
    /// before; `None` if it has no place.
    pub(crate) fn next_line(&mut self) -> Option<(Incarnation, u64)> {
        let own = self.own.filter(|_| self.place < REPLICAS_MAX)?;
        self.written += 1;
        Some((own, self.written))
    }

    /// Writes its line into another replica's memory.
    pub(crate) fn write<const N: usize, F: Fabric>(
        &self,
        to: Address,
        mut line: [u64; N],
        area: Area,
        fabric: &mut F,
    ) {
        // Of the number only differences count.
        line[GENERATION_WORD] &= u64::from(u32::MAX);
        line[GENERATION_WORD] |= u64::from(self.generation) << GENERATION_AT;
        let mut bytes = Vec::new();
        sealed::seal(line, &mut bytes);
        let to = Remote { at: to, offset: area.permission(self.place) };
        fabric.write_unsignaled(to, &bytes, token(Part::Send, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_another_log_does_not_count_and_one_of_none_does() {
        let log = |generation: u64| generation << GENERATION_AT | 0x0302_0105;
        let mut lines = Lines::default();
        assert!(lines.is_of_log(7), "it has no log");
        lines.set_log(log(8));
        assert_eq!([0, 7, 8, 9].map(|generation| lines.is_of_log(generation)), [true, false, true, false]);
    }
}
