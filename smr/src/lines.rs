//! Lines that replicas write into each other's memory, outside of the log, where everybody may write at
//! any time: requests for permissions or votes, and their answers ([`crate::Grants`],
//! [`crate::Votes`]). A line is a few words and their checksum, of one replica for another one.

use crate::REPLICAS_MAX;
use crate::area::Area;
use crate::sealed;
use crate::tokens::{Part, token};
use core::sync::atomic::Ordering;
use obol_fabric::{Address, Fabric, Incarnation, Remote};
use obol_membership::View;

/// The replicas of the newest view, and the lines in own memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lines {
    /// By place.
    replicas: Vec<(Incarnation, Address)>,
    own: Option<Incarnation>,
    place: usize,
    /// Lines that were written to others.
    written: u64,
    /// The checksums of the lines that were handled.
    seen: [u64; REPLICAS_MAX],
}

impl Lines {
    /// All lines are handled again: one may be of a replica that is in a newer view.
    pub(crate) fn install(&mut self, view: &View, own: Option<Incarnation>) {
        self.replicas = crate::replicas(view).map(|member| (member.incarnation, member.address)).collect();
        let place = self.replicas.iter().position(|(who, _)| Some(*who) == own);
        self.own = own.filter(|_| place.is_some());
        self.place = place.unwrap_or(REPLICAS_MAX);
        self.seen = [0; REPLICAS_MAX];
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

    /// The lines that have changed since the last call. One that is not complete yet comes later.
    pub(crate) fn changed<const N: usize, F: Fabric>(&mut self, area: Area, fabric: &F) -> Vec<[u64; N]> {
        let mut changed = Vec::new();
        for (place, seen) in self.seen.iter_mut().enumerate().take(self.replicas.len()) {
            let words = fabric.own(area.permission(place), 8 * (N + 1));
            let sum = words.and_then(|words| words.get(N)).map(|sum| sum.load(Ordering::Relaxed));
            if let Some(sum) = sum.filter(|sum| sum != seen)
                && let Some(line) = sealed::unseal_own::<N>(words)
            {
                *seen = sum;
                changed.push(line);
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
        line: [u64; N],
        area: Area,
        fabric: &mut F,
    ) {
        let mut bytes = Vec::new();
        sealed::seal(line, &mut bytes);
        let to = Remote { at: to, offset: area.permission(self.place) };
        fabric.write_unsignaled(to, &bytes, token(Part::Send, 0));
    }
}
