//! Programs attached to an agent. The agent requests their membership, publishes its state to them,
//! and reports their death.

use crate::Config;
use crate::holds::JoinHolds;
use crate::timing::Timing;
use crate::view::{Kind, Newcomer, View};
use crate::wire::{Message, Refusal};
use obol_fabric::{
    Address, Fabric, Incarnation, Instant, Name, Nanos, Release, SeatRequest, SeatStatus, ViewId,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Joining,
    Member(Incarnation),
    Leaving(Incarnation),
    /// The program died before its membership was known. If its join turns out to be decided, the
    /// death is reported.
    Dead,
    /// A member of this agent without a program: its join was abandoned, but decided later.
    Stray(Incarnation),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AttachedApp {
    seat: u16,
    token: u64,
    name: Name,
    address: Address,
    /// The period in which it promises progress; zero if it promises nothing.
    progress_within: Nanos,
    release: Release,
    /// The newest view when the join was requested; see [`crate::view::JOIN_WINDOW`].
    as_of: ViewId,
    phase: Phase,
    due: Instant,
}

/// The programs in an agent's seats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttachedApps(Vec<AttachedApp>);

impl AttachedApp {
    const fn is_stray(&self) -> bool {
        matches!(self.phase, Phase::Stray(_))
    }
}

impl AttachedApps {
    /// Records a program's request; a repetition changes nothing. Returns whether a promise of
    /// progress changed.
    pub fn request<F: Fabric>(
        &mut self,
        seat: u16,
        request: SeatRequest,
        view: &View,
        now: Instant,
        fabric: &mut F,
    ) -> bool {
        match request {
            SeatRequest::Join { name, token, address, progress_within, release } => {
                if let Some(app) = self.0.iter_mut().find(|app| app.token == token) {
                    if app.phase == Phase::Dead {
                        // The report of its death was wrong.
                        (app.phase, app.due) = (Phase::Joining, now);
                    }
                    return core::mem::replace(&mut app.progress_within, progress_within) != progress_within;
                }
                self.0.retain_mut(|app| {
                    // Removals stay due: in a full view no member is admitted to replace the old
                    // member.
                    if let Phase::Leaving(who) = app.phase
                        && app.seat == seat
                    {
                        app.phase = Phase::Stray(who);
                    }
                    let stays = app.seat != seat || app.is_stray();
                    if !stays && app.phase == Phase::Joining {
                        fabric.unwatch(app.address);
                    }
                    stays
                });
                let as_of = view.id;
                let phase = Phase::Joining;
                // A program that crashes at once must not be requested again when its name may
                // rejoin.
                fabric.watch_lazily(address);
                self.0.push(AttachedApp {
                    seat,
                    token,
                    name,
                    address,
                    progress_within,
                    release,
                    as_of,
                    phase,
                    due: now,
                });
            }
            SeatRequest::Promise(within) => {
                let app = self.0.iter_mut().find(|app| app.seat == seat && !app.is_stray());
                return app.is_some_and(|app| core::mem::replace(&mut app.progress_within, within) != within);
            }
            SeatRequest::Leave => {
                let at = self.0.iter().position(|app| app.seat == seat && !app.is_stray());
                match at.map(|at| (at, self.0[at].phase.clone())) {
                    Some((at, Phase::Member(who))) => {
                        self.0[at].phase = Phase::Leaving(who);
                        self.0[at].due = now;
                    }
                    Some((_, Phase::Leaving(_) | Phase::Stray(_) | Phase::Dead)) => {}
                    // If its join turns out to be decided, it is a stray.
                    Some((at, Phase::Joining)) => {
                        fabric.unwatch(self.0[at].address);
                        self.0.remove(at);
                        fabric.publish_seat(seat, SeatStatus::Left);
                    }
                    None => fabric.publish_seat(seat, SeatStatus::Left),
                }
            }
        }
        false
    }

    /// The member at this address.
    pub fn at(&self, address: Address) -> Option<Incarnation> {
        // A stray may precede it in the same seat.
        self.0.iter().filter(|app| app.address == address).find_map(|app| match app.phase {
            Phase::Joining | Phase::Dead | Phase::Stray(_) => None,
            Phase::Member(who) | Phase::Leaving(who) => Some(who),
        })
    }

    /// Whether a program at this address had asked to join. It died, or may have; a program that is
    /// alive asks again.
    pub fn died<F: Fabric>(&mut self, address: Address, fabric: &mut F) -> bool {
        let joins = |app: &&mut AttachedApp| app.address == address && app.phase == Phase::Joining;
        let Some(app) = self.0.iter_mut().find(joins) else { return false };
        fabric.unwatch(address);
        (app.phase, app.due) = (Phase::Dead, Instant::NEVER);
        true
    }

    /// Members that promised progress, with the period of each.
    pub fn promises(&self) -> impl Iterator<Item = (Incarnation, Nanos)> {
        self.0.iter().filter(|app| app.progress_within != Nanos::ZERO).filter_map(|app| match app.phase {
            Phase::Member(who) => Some((who, app.progress_within)),
            Phase::Joining | Phase::Dead | Phase::Leaving(_) | Phase::Stray(_) => None,
        })
    }

    /// Compares the programs with a new view and publishes what changed.
    ///
    /// `me` is the agent's incarnation. Members that it hosts without a program are removed after
    /// `patience`.
    pub fn follow<F: Fabric>(&mut self, view: &View, me: Incarnation, patience: Instant, fabric: &mut F) {
        self.0.retain_mut(|app| {
            match app.phase {
                Phase::Joining | Phase::Dead => {
                    if let Some(member) = view.by_token(app.token) {
                        app.phase = Phase::Member(member.incarnation);
                        app.due = Instant::NEVER;
                        // The coordinators watch it as well; this serves fabrics where only its own
                        // node can. A death that was already reported is reported again.
                        fabric.watch_lazily(app.address);
                        fabric.publish_seat(app.seat, SeatStatus::Member(member.incarnation));
                        return true;
                    }
                    if !view.departed.iter().any(|d| d.token == app.token) {
                        return true;
                    }
                    fabric.unwatch(app.address);
                    fabric.publish_seat(app.seat, SeatStatus::Excluded);
                }
                Phase::Member(who) | Phase::Leaving(who) if view.member(who).is_some() => return true,
                Phase::Member(_) => {
                    fabric.unwatch(app.address);
                    fabric.publish_seat(app.seat, SeatStatus::Excluded);
                }
                Phase::Leaving(_) => {
                    fabric.unwatch(app.address);
                    fabric.publish_seat(app.seat, SeatStatus::Left);
                }
                Phase::Stray(who) if view.member(who).is_some() => return true,
                Phase::Stray(_) => {}
            }
            false
        });
        if me == Incarnation::NONE {
            return;
        }
        for m in view.of_kind(Kind::App).filter(|m| m.host == me) {
            if self.0.iter().all(|app| app.token != m.token) {
                self.0.push(AttachedApp {
                    seat: m.address.seat,
                    token: m.token,
                    name: m.name,
                    address: m.address,
                    progress_within: Nanos::ZERO,
                    release: m.release,
                    as_of: view.id,
                    phase: Phase::Stray(m.incarnation),
                    due: patience,
                });
            }
        }
    }

    /// A join was refused. If the refusal is final, the program has to ask again with a new token.
    pub fn refused<F: Fabric>(
        &mut self,
        token: u64,
        refusal: Refusal,
        timing: &Timing,
        now: Instant,
        fabric: &mut F,
    ) {
        self.0.retain_mut(|app| {
            if app.token != token || app.phase != Phase::Joining {
                return true;
            }
            let status = match refusal {
                // Not of programs in seats: their agent is a member.
                Refusal::Unreachable => return true,
                Refusal::Full => SeatStatus::Full,
                Refusal::NameTaken => SeatStatus::NameTaken,
                Refusal::OnHold(left) => {
                    app.due = now + left.min(timing.join_hold_max);
                    SeatStatus::OnHold { until: app.due }
                }
                Refusal::Stale | Refusal::Departed | Refusal::NoHost | Refusal::Release(_) => {
                    fabric.unwatch(app.address);
                    SeatStatus::Excluded
                }
            };
            fabric.publish_seat(app.seat, status);
            status != SeatStatus::Excluded
        });
    }

    /// When a request is next repeated.
    pub fn deadline(&self) -> Instant {
        self.0.iter().map(|app| app.due).min().unwrap_or(Instant::NEVER)
    }

    /// Sends the due requests to every coordinator; `host` is the agent's incarnation.
    pub fn tick<F: Fabric>(
        &mut self,
        host: Incarnation,
        view: &View,
        holds: &JoinHolds,
        config: &Config,
        now: Instant,
        fabric: &mut F,
    ) {
        for app in self.0.iter_mut().filter(|app| app.due <= now) {
            app.due = now + config.timing.join_every;
            let message = match app.phase {
                Phase::Joining if host == Incarnation::NONE => continue,
                Phase::Joining => {
                    let AttachedApp { name, address, token, release, .. } = *app;
                    let newcomer =
                        Newcomer { kind: Kind::App, name, address, host, token, proposer: 0, release };
                    let left = holds.left(name, &config.timing, now);
                    if left > Nanos::ZERO {
                        // The leader would not admit it earlier.
                        app.due = now + left;
                        fabric.publish_seat(app.seat, SeatStatus::OnHold { until: app.due });
                        continue;
                    }
                    Message::Join { newcomer, as_of: app.as_of, proved: true }
                }
                Phase::Leaving(who) | Phase::Stray(who) => Message::Leave(who),
                Phase::Member(_) | Phase::Dead => {
                    app.due = Instant::NEVER;
                    continue;
                }
            };
            let bytes = message.encode();
            for acceptor in &view.acceptors {
                fabric.send(acceptor.address, &bytes);
            }
        }
    }
}
