//! Draws the faults: kinds, times and combinations, in rounds. Some wait for a cue of the oracle,
//! such as a renewal or the first acceptance of a value, because narrow windows follow those.

use super::act::Act;
use super::driver::{Driver, PROGRAMS};
use super::faults::Faults;
use super::marks::Mark;
use super::oracle::{Cue, Verdict};
use obol_fabric::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Acts that a cue triggers.
#[derive(Clone, Debug)]
struct TriggeredFault {
    cue: Cue,
    expires: u64,
    /// With their delays.
    acts: Vec<(u64, Act)>,
}

/// A pending fault, ordered by time and, at one time, in the order of drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    number: u64,
    act: Act,
}

/// The pending faults of one run.
#[derive(Debug, Default)]
pub(super) struct FaultSchedule {
    schedule: BinaryHeap<Reverse<Due>>,
    number: u64,
    triggered: Vec<TriggeredFault>,
}

impl FaultSchedule {
    pub(super) fn after(&mut self, driver: &Driver, delay: u64, act: Act) {
        self.number += 1;
        self.schedule.push(Reverse(Due { at: driver.cluster.now() + delay, number: self.number, act }));
    }

    pub(super) fn on_cue(&mut self, cue: Cue, expires: u64, acts: Vec<(u64, Act)>) {
        self.triggered.push(TriggeredFault { cue, expires, acts });
    }

    fn act(&mut self, driver: &mut Driver, act: Act) -> Verdict {
        if act != Act::KillLeader {
            driver.act(act)?;
            // After a pause the answer in a node's queue is as old as the pause.
            return match act {
                Act::Thaw(node) => self.confirm_one(driver, node),
                Act::Heal(_, node) if node >= driver.scenario.coordinators => self.confirm_one(driver, node),
                _ => Ok(()),
            };
        }
        if let Some(leader) = driver.leader() {
            driver.oracle.marks.hit(Mark::KilledLeader);
            driver.act(Act::Kill(leader))?;
            let down = driver.rng.below(4 * lease(driver));
            self.after(driver, down, Act::Start(leader));
        }
        Ok(())
    }

    /// A program at this node requests confirmation of its view.
    fn confirm_one(&mut self, driver: &mut Driver, node: u32) -> Verdict {
        if !driver.scenario.confirms || node < driver.scenario.coordinators || driver.scenario.is_cache(node)
        {
            return Ok(());
        }
        let seats = if driver.scenario.is_agent(node) { driver.programs(node) } else { vec![0] };
        let drawn = driver.confirm_rng.below(seats.len() as u64) as usize;
        seats.get(drawn).map_or(Ok(()), |seat| driver.act(Act::Confirm(node, *seat)))
    }

    /// Some programs request confirmations at random times.
    fn confirm_some(&mut self, driver: &mut Driver) {
        let unit = lease(driver);
        for node in driver.scenario.coordinators..driver.scenario.nodes() {
            if !driver.scenario.confirms || driver.scenario.is_cache(node) || driver.confirm_rng.coin() {
                continue;
            }
            let seats = if driver.scenario.is_agent(node) { driver.programs(node) } else { vec![0] };
            let drawn = driver.confirm_rng.below(seats.len() as u64) as usize;
            let later = driver.confirm_rng.below(2 * unit);
            if let Some(seat) = seats.get(drawn) {
                self.after(driver, later, Act::Confirm(node, *seat));
            }
        }
    }

    /// A holder freezes while its READs are outstanding, or nearly, and resumes when others have
    /// been active without it: the pending answers are older than any request of its programs.
    fn stale_answer(&mut self, driver: &mut Driver) {
        let unit = lease(driver);
        let holds =
            |d: &Driver, n: u32| n >= d.scenario.coordinators && !d.scenario.is_cache(n) && d.cluster.runs(n);
        let holders: Vec<u32> = (0..driver.scenario.nodes()).filter(|n| holds(driver, *n)).collect();
        let (Some(first), many) = (holders.first().copied(), holders.len() as u64) else { return };
        let at = driver.confirm_rng.below(many) as usize;
        let holder = holders.get(at).copied().unwrap_or(first);
        let way = driver.scenario.rough.one_way;
        let renewal = driver.scenario.config.timing.renew_every.0;
        let posted = renewal + driver.confirm_rng.below(3 * (way.min.0 + way.jitter.0));
        let pause = 2 * unit + driver.confirm_rng.below(3 * unit);
        let mut acts = vec![(posted, Act::Freeze(holder)), (posted + pause, Act::Thaw(holder))];
        if let Some(other) = holders.get((at + 1) % holders.len()).filter(|other| **other != holder) {
            let death = posted + way.min.0 + driver.confirm_rng.below(way.min.0 + way.jitter.0 + 1);
            acts.extend([(death, Act::Kill(*other)), (death + pause / 2, Act::Start(*other))]);
        }
        self.on_cue(Cue::Renewed(holder), driver.cluster.now() + 2 * unit, acts);
    }

    /// Draws one round.
    pub(super) fn round(&mut self, driver: &mut Driver) {
        let unit = lease(driver);
        self.repair(driver);
        self.confirm_some(driver);
        self.hit_pulses(driver);
        if driver.scenario.confirms && driver.confirm_rng.permille(200) {
            self.stale_answer(driver);
        }
        if driver.scenario.caches > 0 && driver.rng.permille(150) {
            return self.hit_caches(driver);
        }
        if driver.scenario.spares > 0 && driver.rng.permille(250) {
            return self.change_acceptors(driver);
        }
        match driver.rng.below(100) {
            0..=9 => {
                let node = driver.rng.below(u64::from(driver.scenario.nodes())) as u32;
                self.down(driver, node, 0);
            }
            10..=19 => self.hit_leader(driver),
            20..=25 => {
                let node = driver.rng.below(u64::from(driver.scenario.nodes())) as u32;
                let time = unit / 5 + driver.rng.below(5 * unit);
                self.after(driver, 0, Act::Freeze(node));
                self.after(driver, time, Act::Thaw(node));
            }
            26..=33 => {
                let node = driver.rng.below(u64::from(driver.scenario.nodes())) as u32;
                let time = unit / 5 + driver.rng.below(4 * unit);
                let acts = self.cut_off(driver, node, time);
                self.all(driver, 0, acts);
            }
            34..=43 => {
                let acts = self.view_changes(driver, None);
                self.all(driver, 0, acts);
            }
            44..=75 => self.isolate_holder(driver),
            76..=79 => {
                if let Some(node) = pick(driver, |d, n| d.cluster.runs(n)) {
                    self.after(driver, 0, Act::Leave(node));
                    let out = driver.rng.below(3 * unit);
                    self.after(driver, unit + out, Act::Kill(node));
                    self.after(driver, unit + out + 1_000, Act::Start(node));
                }
            }
            80..=84 => {
                if let Some(node) = pick(driver, |d, n| !d.cluster.is_dead(n)) {
                    let seat = driver.rng.below(u64::from(PROGRAMS) + 1) as u16;
                    self.after(driver, 0, Act::Suspect(node, seat));
                }
            }
            85..=89 => self.burst(driver),
            90..=92 => self.lose_majority(driver),
            93..=95 => {
                let lease = some_lease(driver);
                let to = driver.rng.below(1 << driver.scenario.coordinators) as u32;
                self.after(driver, 0, Act::SetLease(lease, to));
            }
            _ => self.stop_at_work(driver),
        }
    }

    fn all(&mut self, driver: &Driver, delay: u64, acts: Vec<(u64, Act)>) {
        for (more, act) in acts {
            self.after(driver, delay + more, act);
        }
    }

    /// A majority of coordinators, or more, dies and restarts.
    fn lose_majority(&mut self, driver: &mut Driver) {
        let unit = lease(driver);
        let all = driver.scenario.coordinators;
        let first = driver.rng.below(u64::from(all)) as u32;
        let time = unit / 2 + driver.rng.below(6 * unit);
        for n in 0..all / 2 + 1 + driver.rng.below(u64::from(all - all / 2)) as u32 {
            let node = (first + n) % all;
            self.after(driver, driver.scenario.seed % 1_000, Act::Kill(node));
            let later = driver.rng.below(unit);
            self.after(driver, time + later, Act::Start(node));
        }
    }

    /// A program freezes or hangs while it works.
    fn stop_at_work(&mut self, driver: &mut Driver) {
        let unit = lease(driver);
        if let Some((node, seat)) = some_program(driver) {
            let time = unit + driver.rng.below(4 * unit);
            let span = driver.rng.below(unit / 2);
            self.after(driver, 0, Act::Work(node, seat, span));
            let hangs = driver.scenario.promise > Nanos::ZERO && driver.rng.coin();
            let (stop, go) = if hangs {
                (Act::HangProgram(node, seat), Act::UnhangProgram(node, seat))
            } else {
                (Act::FreezeProgram(node, seat), Act::ThawProgram(node, seat))
            };
            self.after(driver, 0, stop);
            self.after(driver, time, go);
        }
    }

    /// Restarts what is down after some time, so that later faults find a cluster.
    fn repair(&mut self, driver: &mut Driver) {
        for node in 0..driver.scenario.nodes() {
            if driver.cluster.is_dead(node) && driver.rng.permille(350) {
                let later = driver.rng.below(lease(driver));
                self.after(driver, later, Act::Start(node));
            }
            if driver.scenario.is_agent(node) && driver.cluster.runs(node) && driver.rng.permille(300) {
                let seat = 1 + driver.rng.below(u64::from(PROGRAMS)) as u16;
                if !driver.programs(node).contains(&seat) {
                    let later = driver.rng.below(lease(driver));
                    self.after(driver, later, Act::Attach(node, seat));
                }
            }
        }
    }

    fn down(&mut self, driver: &mut Driver, node: u32, delay: u64) {
        let time = driver.rng.below(5 * lease(driver));
        self.after(driver, delay, Act::Kill(node));
        self.after(driver, delay + time, Act::Start(node));
    }

    /// The leader dies now, or right after a step of its work.
    fn hit_leader(&mut self, driver: &mut Driver) {
        let unit = lease(driver);
        let lag = if driver.rng.coin() { 0 } else { driver.rng.below(3_000) };
        let acts = match driver.rng.below(5) {
            0..=2 => vec![(lag, Act::KillLeader)],
            // Alive, but unable to act on what it has learned: two leaders, late completions.
            3 => {
                let leader = driver.leader().unwrap_or(0);
                let time = driver.rng.below(3 * unit);
                vec![(lag, Act::Freeze(leader)), (lag + time, Act::Thaw(leader))]
            }
            _ => {
                let leader = driver.leader().unwrap_or(0);
                vec![(lag, Act::Suspect(leader, 0))]
            }
        };
        let cue = match driver.rng.below(5) {
            0 => return self.all(driver, 0, acts),
            1 | 2 => Cue::Accepted,
            3 => Cue::Chosen,
            _ => [Cue::ClearSent, Cue::Takeover][driver.rng.below(2) as usize],
        };
        self.on_cue(cue, driver.cluster.now() + 3 * unit, acts);
        let acts = self.view_changes(driver, None);
        self.all(driver, 0, acts);
    }

    /// All caches die, or one can no longer renew its own lease while members still query it.
    fn hit_caches(&mut self, driver: &mut Driver) {
        let unit = lease(driver);
        let caches = driver.scenario.nodes() - driver.scenario.caches..driver.scenario.nodes();
        let time = unit / 2 + driver.rng.below(3 * unit);
        if driver.rng.permille(250) {
            for cache in caches {
                let later = driver.rng.below(unit);
                self.after(driver, driver.scenario.seed % 1_000, Act::Kill(cache));
                self.after(driver, time + later, Act::Start(cache));
            }
            return;
        }
        let Some(cache) = pick(driver, |d, n| d.scenario.is_cache(n) && d.cluster.runs(n)) else { return };
        let mut acts = match driver.rng.below(4) {
            0 => vec![(0, Act::Freeze(cache)), (time, Act::Thaw(cache))],
            _ => (0..driver.scenario.coordinators)
                .flat_map(|c| [(0, Act::Cut(c, cache)), (0, Act::Cut(cache, c)), (time, Act::Heal(c, cache))])
                .chain((0..driver.scenario.coordinators).map(|c| (time, Act::Heal(cache, c))))
                .collect(),
        };
        acts.extend(self.view_changes(driver, Some(cache)));
        self.on_cue(Cue::Renewed(cache), driver.cluster.now() + 2 * unit, acts);
    }

    /// An operator changes the acceptors, with retries, while a process that this concerns is hit.
    fn change_acceptors(&mut self, driver: &mut Driver) {
        if driver.rng.permille(250) {
            self.outvote_frozen(driver);
            return;
        }
        let unit = lease(driver);
        let present = driver.acceptors();
        let all = 0..driver.scenario.coordinators;
        let absent: Vec<u32> = all.filter(|n| !present.contains(n)).collect();
        let least = driver.scenario.deciders() as usize;
        let add = !absent.is_empty() && (present.len() < least || driver.rng.coin());
        let from = if add { &absent } else { &present };
        if !add && present.len() < least {
            return;
        }
        let Some(&node) = from.get(driver.rng.below(from.len() as u64) as usize) else { return };
        let mut time = 0;
        for _ in 0..1 + driver.rng.below(4) {
            self.after(driver, time, Act::SetAcceptor(node, add));
            time += 1 + driver.rng.below(unit);
        }
        let lag = if driver.rng.coin() { 0 } else { driver.rng.below(3_000) };
        let back = unit / 2 + driver.rng.below(3 * unit);
        let (down, up) = if driver.rng.coin() {
            (Act::Kill(node), Act::Start(node))
        } else {
            (Act::Freeze(node), Act::Thaw(node))
        };
        let acts = match driver.rng.below(4) {
            0 => return,
            1 => vec![(lag, down), (lag + back, up)],
            _ => vec![(lag, Act::KillLeader)],
        };
        let cue = [Cue::Accepted, Cue::Chosen, Cue::ClearSent, Cue::Takeover][driver.rng.below(4) as usize];
        self.on_cue(cue, driver.cluster.now() + 3 * unit, acts);
    }

    /// All but one of the first coordinators are frozen while others become acceptors and slots are
    /// reused. Then the one that runs gets a value accepted by enough acceptors for a majority of
    /// the first ones, but not of the present ones. Members start that know only the first view,
    /// find nothing newer at the frozen ones, and read rings.
    pub(super) fn outvote_frozen(&mut self, driver: &mut Driver) -> u64 {
        let unit = lease(driver);
        let (first, all) = (driver.scenario.deciders(), driver.scenario.coordinators);
        let awake = first - 1;
        let time = 3 * unit;
        for node in 0..first - 1 {
            self.after(driver, 0, Act::Freeze(node));
        }
        // An operator repeats a request until it is done.
        for n in 0..8 {
            for node in first..all {
                self.after(driver, n * time / 8 + u64::from(node), Act::SetAcceptor(node, true));
            }
        }
        let slots = u64::from(driver.scenario.config.layout.limits().slots);
        let mut end = time;
        for n in 0..slots + 3 {
            self.after(driver, end, Act::SetLease(unit + n % 2, 1 << awake));
            end += 5_000 + driver.rng.below(unit / 8);
        }
        let heard = first / 2;
        let cuts = (heard..all).filter(|node| *node != awake);
        for node in cuts {
            self.after(driver, end, Act::Cut(awake, node));
            self.after(driver, end + 3 * unit, Act::Heal(awake, node));
        }
        self.after(driver, end + 1, Act::SetLease(unit + (slots + 3) % 2, 1 << awake));
        for member in all..driver.scenario.nodes() {
            let down = driver.rng.below(unit);
            self.after(driver, end.saturating_sub(down), Act::Kill(member));
            let up = end + driver.rng.below(unit / 4);
            self.after(driver, up, Act::Start(member));
        }
        for node in 0..first - 1 {
            self.after(driver, end + 3 * unit, Act::Thaw(node));
        }
        end + 4 * unit
    }

    /// Cuts a node off, in one or both directions, from all coordinators or some, for a while.
    fn cut_off(&mut self, driver: &mut Driver, node: u32, time: u64) -> Vec<(u64, Act)> {
        let (to, from) = match driver.rng.below(4) {
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        let everybody = driver.rng.permille(700);
        let peers =
            if driver.rng.permille(800) { driver.scenario.coordinators } else { driver.scenario.nodes() };
        if to != from {
            driver.oracle.marks.hit(Mark::LinkCutOneWay);
        }
        let mut acts = Vec::new();
        for peer in (0..peers).filter(|p| *p != node) {
            if !everybody && driver.rng.coin() {
                continue;
            }
            for (cut, a, b) in [(to, peer, node), (from, node, peer)] {
                if cut {
                    acts.push((0, Act::Cut(a, b)));
                    acts.push((time, Act::Heal(a, b)));
                }
            }
        }
        acts
    }

    /// A holder is isolated right after a renewal, its lease still running, while views change
    /// without it.
    fn isolate_holder(&mut self, driver: &mut Driver) {
        let unit = lease(driver);
        let Some(holder) = pick(driver, |d, n| n >= d.scenario.coordinators && d.cluster.runs(n)) else {
            return;
        };
        let time = unit / 2 + driver.rng.below(3 * unit);
        let worker = some_worker(driver, holder);
        let programs = !driver.programs(holder).is_empty();
        let mut acts = match driver.rng.below(10) {
            0..=2 => {
                let span = driver.rng.below(unit / 2);
                let begin = worker.map(|seat| (0, Act::Work(holder, seat, span)));
                let frozen = [(0, Act::Freeze(holder)), (time, Act::Thaw(holder))];
                begin.into_iter().chain(frozen).collect()
            }
            3..=5 if programs => {
                let down = driver.rng.below(3 * unit);
                vec![(0, Act::Kill(holder)), (down, Act::Start(holder))]
            }
            _ => self.cut_off(driver, holder, time),
        };
        if driver.rng.permille(400)
            && let Some(other) =
                pick(driver, |d, n| n != holder && d.scenario.is_agent(n) && d.cluster.runs(n))
        {
            // A view that is decided right after the renewal leaves the least margin for a short
            // wait.
            let seat = 1 + driver.rng.below(u64::from(PROGRAMS)) as u16;
            acts.push((0, Act::Attach(other, seat)));
            self.on_cue(Cue::Renewed(holder), driver.cluster.now() + 2 * unit, acts);
            return;
        }
        let lag = if driver.rng.coin() { 0 } else { driver.rng.below(unit / 4) };
        acts.extend(
            self.view_changes(driver, Some(holder)).into_iter().map(|(delay, act)| (delay + lag, act)),
        );
        self.on_cue(Cue::Renewed(holder), driver.cluster.now() + 2 * unit, acts);
    }

    /// One to four view changes in quick succession, none of them at `hidden`.
    fn view_changes(&mut self, driver: &mut Driver, hidden: Option<u32>) -> Vec<(u64, Act)> {
        let unit = lease(driver);
        let (mut acts, mut time) = (Vec::new(), 0);
        let everybody = (1 << driver.scenario.coordinators) - 1;
        if driver.rng.permille(300) {
            // Leases granted before are longer than those of the next views.
            let lease = least_lease(driver);
            acts.push((0, Act::SetLease(lease, everybody)));
            time += 2_000 + driver.rng.below(unit / 8);
        }
        for _ in 0..1 + driver.rng.below(4) {
            let act = match driver.rng.below(12) {
                0..=3 => {
                    pick(driver, |d, n| Some(n) != hidden && d.scenario.is_agent(n) && d.cluster.runs(n))
                        .map(|node| Act::Attach(node, 1 + driver.rng.below(u64::from(PROGRAMS)) as u16))
                }
                4 | 5 => pick(driver, |d, n| {
                    Some(n) != hidden && n >= d.scenario.coordinators && d.cluster.runs(n)
                })
                .map(|node| {
                    let down = driver.rng.below(3 * unit);
                    acts.push((time + down, Act::Start(node)));
                    Act::Kill(node)
                }),
                6 => some_program(driver)
                    .filter(|(n, _)| Some(*n) != hidden)
                    .map(|(n, s)| Act::KillProgram(n, s)),
                7 => some_program(driver)
                    .filter(|(n, _)| Some(*n) != hidden)
                    .map(|(n, s)| Act::LeaveProgram(n, s)),
                8 => pick(driver, |d, n| {
                    n < d.scenario.coordinators && d.cluster.runs(n) && d.leader() != Some(n)
                })
                .map(|node| {
                    let down = driver.rng.below(3 * unit);
                    acts.push((time + down, Act::Start(node)));
                    Act::Kill(node)
                }),
                9 => Some(Act::KillLeader),
                10 => hidden.map(|node| Act::Suspect(node, 0)),
                _ => Some(Act::SetLease(some_lease(driver), everybody)),
            };
            if let Some(act) = act {
                acts.push((time, act));
            }
            let most = if driver.rng.coin() { 3_000 } else { unit / 2 };
            time += driver.rng.below(most);
        }
        acts
    }

    /// Many views in quick succession: slots are reused often.
    fn burst(&mut self, driver: &mut Driver) {
        let mut time = 0;
        if driver.rng.coin()
            && let Some(node) = pick(driver, |d, n| d.cluster.runs(n))
        {
            let acts = self.cut_off(driver, node, 400_000);
            self.all(driver, 0, acts);
        }
        let everybody = (1 << driver.scenario.coordinators) - 1;
        let many = if driver.rng.permille(250) { 45 } else { 12 };
        for n in 0..many {
            let base = driver.scenario.config.timing.lease.0;
            self.after(driver, time, Act::SetLease(base + n % 2, everybody));
            time += 5_000 + driver.rng.below(5_000);
        }
    }

    /// Drops all pending faults.
    pub(super) fn stop(&mut self) {
        self.schedule.clear();
        self.triggered.clear();
    }
}

impl Faults for FaultSchedule {
    fn next(&self) -> u64 {
        self.schedule.peek().map_or(u64::MAX, |Reverse(due)| due.at)
    }

    /// Injects the faults that the last step triggered.
    fn after_step(&mut self, driver: &mut Driver) -> Verdict {
        if self.triggered.is_empty() || driver.oracle.cues.is_empty() {
            return Ok(());
        }
        let now = driver.cluster.now();
        self.triggered.retain(|t| t.expires > now);
        let cues = std::mem::take(&mut driver.oracle.cues);
        let mut fired = Vec::new();
        self.triggered.retain_mut(|t| {
            let hit = cues.contains(&t.cue);
            if hit {
                fired.append(&mut t.acts);
            }
            !hit
        });
        driver.oracle.cues = cues;
        for (delay, act) in fired {
            if delay == 0 { self.act(driver, act)? } else { self.after(driver, delay, act) }
        }
        Ok(())
    }

    fn due(&mut self, driver: &mut Driver) -> Verdict {
        while let Some(Reverse(due)) =
            self.schedule.peek().copied().filter(|next| next.0.at <= driver.cluster.now())
        {
            self.schedule.pop();
            self.act(driver, due.act)?;
        }
        Ok(())
    }
}

/// The lease of the newest view, as a unit of time.
pub(super) fn lease(driver: &Driver) -> u64 {
    driver.scenario.config.timing.lease.0
}

/// The shortest lease that a member can hold without interruption.
fn least_lease(driver: &Driver) -> u64 {
    lease(driver) / 2
}

fn some_lease(driver: &mut Driver) -> u64 {
    let base = lease(driver);
    [base / 2, base * 2 / 3, base, base * 3 / 2, base * 3][driver.rng.below(5) as usize]
}

/// A node for which something holds.
fn pick(driver: &mut Driver, fits: impl Fn(&Driver, u32) -> bool) -> Option<u32> {
    let nodes: Vec<u32> = (0..driver.scenario.nodes()).filter(|n| fits(driver, *n)).collect();
    nodes.get(driver.rng.below(nodes.len() as u64) as usize).copied()
}

/// A worker at a holder: its embedded app, or one of its programs.
fn some_worker(driver: &mut Driver, holder: u32) -> Option<u16> {
    if !driver.scenario.is_agent(holder) {
        return (!driver.scenario.is_cache(holder)).then_some(0);
    }
    let seats = driver.programs(holder);
    seats.get(driver.rng.below(seats.len() as u64) as usize).copied()
}

/// A live program.
fn some_program(driver: &mut Driver) -> Option<(u32, u16)> {
    let node = pick(driver, |d, n| !d.programs(n).is_empty())?;
    let seats = driver.programs(node);
    seats.get(driver.rng.below(seats.len() as u64) as usize).map(|seat| (node, *seat))
}
