//! Programs attached to a node. They take its seats, ask its machine to join or leave, get its
//! answers, and keep the node's region mapped even if the node dies before them.

use super::core::Core;
use super::node::{Input, State, page_words};
use super::program::Program;
use super::queue::Pending;
use core::mem::offset_of;
use obol_fabric::contract::{SeatRequest, SeatStatus};
use obol_fabric::types::{Address, Incarnation, Instant, Name, Nanos};
use obol_fabric::version::Release;
use obol_fabric::{layout, page};
use std::sync::Arc;

impl Core {
    /// The program in a seat if its generation is this one.
    fn program(&mut self, node: u32, seat: u16, generation: u32) -> Option<&mut Program> {
        let place = self.nodes.get_mut(node as usize)?.seats.get_mut(usize::from(seat))?;
        if place.generation == generation { place.occupant.as_mut() } else { None }
    }

    /// The program in a seat, whatever its generation.
    pub(super) fn occupant(&mut self, node: u32, seat: u16) -> Option<&mut Program> {
        self.nodes.get_mut(node as usize)?.seats.get_mut(usize::from(seat))?.occupant.as_mut()
    }

    pub(super) fn attach(&mut self, at: u32, seat: u16, name: Name) -> Option<Address> {
        let node = self.nodes.get(at as usize)?;
        if seat == 0 || usize::from(seat) >= node.seats.len() || node.state == State::Dead {
            return None;
        }
        self.kill_program(at, seat);
        let now = self.now;
        let node = &mut self.nodes[at as usize];
        let place = &mut node.seats[usize::from(seat)];
        place.generation += 1;
        place.asked = false;
        let generation = place.generation;
        let address = Address { region: at, seat, generation, ..Address::default() };
        place.occupant = Some(Program {
            address,
            name,
            memory: Arc::clone(&node.memory),
            home: node.generation,
            alive: true,
            request_at: u64::MAX,
            beat_at: now,
            ..Program::default()
        });
        let first = self.layout.seat(seat);
        self.store(at, first + offset_of!(layout::Seat, generation) as u32, u64::from(generation));
        self.store(at, first + offset_of!(layout::Seat, incarnation) as u32, 0);
        for (n, word) in name.to_words().into_iter().enumerate() {
            self.store(at, first + offset_of!(layout::Seat, name) as u32 + n as u32 * 8, word);
        }
        Some(address)
    }

    /// Makes a program send a request.
    pub(super) fn request(&mut self, at: u32, seat: u16, leave: bool) {
        let token = self.rng.next_u64() | 1;
        let Some(program) = self.occupant(at, seat).filter(|p| p.alive) else { return };
        let generation = program.address.generation;
        program.sequence += 1;
        program.request = Some(if leave {
            SeatRequest::Leave
        } else {
            SeatRequest::Join {
                name: program.name,
                token,
                address: program.address,
                progress_within: program.progress_within,
                release: Release::THIS,
            }
        });
        self.request_soon(at, seat, generation);
    }

    fn request_soon(&mut self, node: u32, seat: u16, generation: u32) {
        let time = self.now + self.network.seat.draw(&mut self.rng);
        self.request_at(node, seat, generation, time);
    }

    fn request_at(&mut self, node: u32, seat: u16, generation: u32, time: u64) {
        let Some(program) = self.program(node, seat, generation) else { return };
        program.request_at = time;
        self.queue.push(time, Pending::Ask { node, seat, generation });
    }

    /// A request (or its repetition) reaches the seat.
    pub(super) fn deliver_request(&mut self, node: u32, seat: u16, generation: u32) {
        let now = self.now;
        let Some(program) = self.program(node, seat, generation) else { return };
        if program.request_at != now {
            return;
        }
        program.request_at = u64::MAX;
        if !program.is_running() || !program.has_request() {
            return;
        }
        let home = program.home;
        let time = now + self.network.ask_every.draw(&mut self.rng).max(1);
        self.request_at(node, seat, generation, time);
        let owner = &mut self.nodes[node as usize];
        let place = &mut owner.seats[usize::from(seat)];
        if owner.state != State::Dead && owner.generation == home && !place.asked {
            place.asked = true;
            owner.inbox.push_back(Input::Seat { seat, generation });
            self.arm(node);
        }
    }

    /// The request in the seat's request word.
    pub(super) fn request_of(&mut self, node: u32, seat: u16, generation: u32) -> Option<SeatRequest> {
        self.nodes[node as usize].seats[usize::from(seat)].asked = false;
        let program = self.program(node, seat, generation)?;
        program.handed = program.sequence;
        let promise = program.progress_within;
        match &mut program.request {
            Some(SeatRequest::Join { progress_within, .. }) => {
                (*progress_within, program.promised) = (promise, promise);
            }
            None if core::mem::replace(&mut program.promised, promise) != promise => {
                return Some(SeatRequest::Promise(promise));
            }
            Some(_) | None => {}
        }
        program.request
    }

    /// A program with a node's present region, or the node itself, requests a confirmation of its
    /// view as of now by the node's clock; returns that time. The node gets the request when it
    /// runs.
    pub(super) fn want(&mut self, node: u32) -> Instant {
        let (now, layout_page) = (self.now, self.layout.page());
        let owner = &self.nodes[node as usize];
        let since = owner.clock.local(now);
        page::want(page_words(&owner.memory, layout_page), since);
        let life = owner.generation;
        let time = now + self.network.seat.min.0;
        self.queue.push(time, Pending::Want { node, life });
        since
    }

    /// The ring reaches the owner.
    pub(super) fn wanted(&mut self, node: u32, life: u32) {
        let owner = &mut self.nodes[node as usize];
        if owner.state != State::Dead && owner.generation == life && !owner.wanted {
            owner.wanted = true;
            owner.inbox.push_back(Input::Confirm);
            self.arm(node);
        }
    }

    /// The owner publishes an answer to the program in a seat, which reads it when it runs.
    pub(super) fn publish_seat(&mut self, node: u32, seat: u16, status: SeatStatus, departs: u64) {
        let incarnation = match status {
            SeatStatus::Member(incarnation) => incarnation,
            SeatStatus::Excluded | SeatStatus::Left => Incarnation::NONE,
            // The join stays valid, so the program keeps waiting.
            SeatStatus::Full | SeatStatus::OnHold { .. } | SeatStatus::NameTaken => return,
        };
        let owner = self.nodes[node as usize].generation;
        // An answer to an earlier occupant is not for this one.
        let is_heard = |p: &&mut Program| p.home == owner && p.handed > 0;
        let Some(program) = self.occupant(node, seat).filter(is_heard) else { return };
        program.answer = Some((status, program.handed));
        let generation = program.address.generation;
        let word = self.layout.seat(seat) + offset_of!(layout::Seat, incarnation) as u32;
        self.store(node, word, incarnation.0);
        let time = departs + self.network.seat.draw(&mut self.rng);
        self.queue.push(time, Pending::Answered { node, seat, generation });
    }

    /// A program reads its status word.
    pub(super) fn answered(&mut self, node: u32, seat: u16, generation: u32) {
        let Some(program) = self.program(node, seat, generation).filter(|p| p.is_running()) else { return };
        let Some((status, answers)) = program.answer.take() else { return };
        program.status = Some(status);
        let leaving = matches!(program.request, Some(SeatRequest::Leave));
        if answers == program.sequence {
            program.request = None;
        }
        if status == SeatStatus::Excluded {
            if leaving {
                // It asked to leave and has left; a rejoin scheduled by an earlier exclusion must
                // not undo that.
                program.status = Some(SeatStatus::Left);
            } else {
                self.rejoin_later(node, seat, generation);
            }
        }
    }

    fn rejoin_later(&mut self, node: u32, seat: u16, generation: u32) {
        if let Some(delay) = self.network.rejoin {
            let time = self.now + delay.draw(&mut self.rng);
            self.queue.push(time, Pending::Rejoin { node, seat, generation });
        }
    }

    /// An excluded program asks to rejoin, with a new token.
    pub(super) fn rejoin(&mut self, node: u32, seat: u16, generation: u32) {
        let excluded = |p: &&mut Program| {
            p.is_running() && p.request.is_none() && p.status == Some(SeatStatus::Excluded)
        };
        if self.program(node, seat, generation).filter(excluded).is_some() {
            self.request(node, seat, false);
        }
    }

    /// Makes a program promise progress.
    pub(super) fn promise(&mut self, node: u32, seat: u16, within: Nanos) {
        let Some(program) = self.occupant(node, seat).filter(|p| p.alive) else { return };
        program.progress_within = within;
        // Before that, the promise is part of its join.
        if program.handed > 0 {
            let generation = program.address.generation;
            self.request_soon(node, seat, generation);
        }
    }

    /// Stops or resumes a program's progress.
    pub(super) fn hang(&mut self, node: u32, seat: u16, hung: bool) {
        self.beat(node);
        if let Some(program) = self.occupant(node, seat) {
            program.hung = hung;
        }
    }

    pub(super) fn kill_program(&mut self, node: u32, seat: u16) {
        self.beat(node);
        let Some(program) = self.occupant(node, seat) else { return };
        let generation = program.address.generation;
        if core::mem::replace(&mut program.alive, false) {
            self.announce_death(node, seat, generation);
        }
    }

    pub(super) fn freeze_program(&mut self, node: u32, seat: u16) {
        self.beat(node);
        if let Some(program) = self.occupant(node, seat) {
            program.frozen = true;
        }
    }

    pub(super) fn thaw_program(&mut self, node: u32, seat: u16) {
        let now = self.now;
        let Some(program) = self.occupant(node, seat).filter(|p| p.alive && p.frozen) else { return };
        program.frozen = false;
        program.beat_at = now;
        let generation = program.address.generation;
        let (asks, excluded) = (program.has_request(), program.status == Some(SeatStatus::Excluded));
        self.queue.push(now, Pending::Answered { node, seat, generation });
        if asks {
            self.request_soon(node, seat, generation);
        } else if excluded {
            self.rejoin_later(node, seat, generation);
        }
    }
}
