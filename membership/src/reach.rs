//! A leader asks the member that had a process excluded to READ it before it is admitted again. That the
//! leader reaches a newcomer, and the newcomer everyone, does not show that every member reaches it:
//! over IP each pair of hosts has a connection for each direction. Otherwise a member that cannot
//! connect to a process would have it excluded each time it is admitted.

use crate::Config;
use crate::detectors::links;
use crate::mutants::Mutant;
use crate::tokens::{self, Part};
use crate::view::{Change, Reason, View};
use crate::wire::Message;
use obol_fabric::{Address, Completion, Fabric, Incarnation, LinkError, Remote};
use std::collections::BTreeMap;

/// Concurrent READs for leaders. One that is not taken is asked for again with the next request of its
/// newcomer.
pub const READS_MAX: usize = 32;
/// Excluded processes whose accusers are kept: as many as links are watched for.
const ACCUSERS_MAX: usize = links::LINK_MEMBERS_MAX;

/// Whether that is the result of a READ of memory that can be reached. That this process cannot map the
/// memory implies nothing about its owner.
pub const fn is_reached(result: &Result<Completion<'_>, LinkError>) -> bool {
    matches!(result, Ok(_) | Err(LinkError::Unmapped))
}

/// READs one word of a process.
pub fn read<F: Fabric>(at: Address, part: Part, number: u32, config: &Config, fabric: &mut F) {
    let heartbeat = Remote { at, offset: config.layout.heartbeat(at.seat) };
    fabric.read(heartbeat, 8, tokens::pack(part, 0, number));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ask {
    number: u32,
    at: Address,
    by: Address,
}

/// The READs of one member for leaders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asks {
    last: u32,
    asks: Vec<Ask>,
}

impl Asks {
    /// READs a process for a leader, unless it is about to, or has too much to read.
    pub fn take<F: Fabric>(&mut self, at: Address, by: Address, config: &Config, fabric: &mut F) {
        let known = self.asks.iter().any(|ask| ask.at == at && ask.by == by);
        if known || self.asks.len() >= READS_MAX || u32::from(at.seat) >= config.layout.limits().seats {
            return;
        }
        self.last = self.last.wrapping_add(1);
        self.asks.push(Ask { number: self.last, at, by });
        read(at, Part::Reach, self.last, config, fabric);
    }

    /// Answers a leader.
    pub fn complete<F: Fabric>(
        &mut self,
        number: u32,
        result: &Result<Completion<'_>, LinkError>,
        fabric: &mut F,
    ) {
        if let Some(place) = self.asks.iter().position(|ask| ask.number == number) {
            let Ask { at, by, .. } = self.asks.swap_remove(place);
            fabric.send(by, &Message::Reached { at, reached: is_reached(result) }.encode());
        }
    }
}

/// Who had processes excluded for broken links, by the seats of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Accusers(BTreeMap<Address, Incarnation>);

/// A seat, in whatever life of its process.
const fn seat(address: Address) -> Address {
    Address { generation: 0, ..address }
}

impl Accusers {
    /// Follows the views of the cluster: who was excluded and by whom, who is back, and who went. Only
    /// where links are watched: elsewhere no clique is kept, and who cannot reach the others may be the
    /// accuser.
    pub fn follow(&mut self, before: &View, view: &View, config: &Config) {
        if !links::are_watched(config) {
            return;
        }
        for change in &view.changes {
            match *change {
                Change::Failed { accused, accuser, reason: Reason::Timeout } => {
                    let room = self.0.len() < ACCUSERS_MAX && !config.mutant.has(Mutant::AdmitUnasked);
                    if let Some(member) = before.member(accused).filter(|_| room) {
                        self.0.insert(seat(member.address), accuser);
                    }
                }
                Change::Joined(who) => {
                    if let Some(member) = view.member(who) {
                        self.0.remove(&seat(member.address));
                    }
                }
                _ => {}
            }
        }
        self.0.retain(|_, accuser| view.member(*accuser).is_some());
    }

    /// Who had the process in this seat excluded, and is a member still.
    pub fn of(&self, address: Address) -> Option<Incarnation> {
        self.0.get(&seat(address)).copied()
    }
}
