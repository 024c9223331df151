//! Proposers with the shipped engine, and acceptors that are memory. Nothing is executed before a
//! command delivers it, so a trace shows every operation in the given order.
//!
//! ```text
//! acceptors 3              as many acceptors
//! open p1 slot 1 [after p2]    opens a slot, expecting that p2 has prepared it
//! prepare p1
//! propose p1 VALUE         without a value: the adopted one
//! deliver p1 [a2] [N]      executes what p1 has posted, to a2 alone, N operations
//! cut p1 a2                what p1 has posted to a2, and will post, fails
//! words                    the words of the open slot
//! ```

use super::script::{Traced, number};
use crate::common::{LIMITS, Noted, Post};
use obol_fabric::{Address, Completion, Layout, LinkError, Remote, Token, ViewId};
use obol_membership::consensus::{Consensus, Engine, Outcome, SlotWord};
use obol_membership::mutants::ActiveMutant;
use obol_membership::view::Acceptor;
use obol_membership::{frame, tokens};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const PROPOSERS: usize = 2;

struct Proposer {
    engine: Engine,
    posted: VecDeque<(Post, Token)>,
    cut: BTreeSet<u32>,
}

pub(crate) struct World {
    layout: Layout,
    acceptors: Vec<Acceptor>,
    /// By acceptor and offset.
    words: BTreeMap<(u32, u32), u64>,
    values: BTreeMap<(u32, u32), Vec<u8>>,
    proposers: Vec<Proposer>,
}

impl Default for World {
    fn default() -> Self {
        let layout = Layout::new(LIMITS).expect("in bounds");
        let proposer = |n| Proposer {
            engine: Engine::new(n as u16, layout, ActiveMutant::NONE),
            posted: VecDeque::new(),
            cut: BTreeSet::new(),
        };
        Self {
            layout,
            acceptors: Vec::new(),
            words: BTreeMap::new(),
            values: BTreeMap::new(),
            proposers: (1..=PROPOSERS).map(proposer).collect(),
        }
    }
}

/// A value as the trace shows it.
fn shown(value: &[u8]) -> String {
    frame::decode_frame(value).map_or_else(
        |_| "nothing whole".to_owned(),
        |(_, whole)| format!("\"{}\"", String::from_utf8_lossy(frame::body(whole))),
    )
}

impl World {
    fn proposer(&mut self, word: &str) -> Result<(usize, &mut Proposer), String> {
        let n = number(word)?;
        let proposer = self.proposers.get_mut(n.wrapping_sub(1));
        proposer.map(|proposer| (n, proposer)).ok_or_else(|| format!("there is no proposer {n}"))
    }

    /// Calls an engine and queues its posts.
    fn call(
        &mut self,
        who: &str,
        trace: &mut Vec<String>,
        call: impl FnOnce(&mut Engine, &mut Noted) -> Option<Outcome>,
    ) -> Result<(), String> {
        let (n, proposer) = self.proposer(who)?;
        let mut fabric = Noted::default();
        let outcome = call(&mut proposer.engine, &mut fabric);
        proposer.posted.extend(fabric.posts);
        if let Some(outcome) = outcome {
            trace.push(match outcome {
                Outcome::Prepared => format!("p{n}: prepared"),
                Outcome::Adopted => format!("p{n}: prepared, has to propose what it read"),
                Outcome::Decided { value, adopted } => {
                    let of = if adopted { ", of another proposer" } else { "" };
                    format!("p{n}: decided {}{of}", shown(&value))
                }
                Outcome::Aborted(reason) => format!("p{n}: aborted, {reason:?}"),
            });
        }
        Ok(())
    }

    /// Executes an operation at its acceptor, and returns the completion.
    fn execute(
        &mut self,
        who: &str,
        post: &Post,
        token: Token,
        trace: &mut Vec<String>,
    ) -> Result<(), String> {
        let (Post::Read { from: at, .. } | Post::Write { to: at, .. } | Post::Cas { at, .. }) = post;
        let &Remote { at: Address { region, .. }, offset } = at;
        let is_cut = self.proposer(who)?.1.cut.contains(&region);
        let read;
        let (line, result) = match post {
            _ if is_cut => ("fails: the link is cut".to_owned(), Err(LinkError::PeerDead)),
            Post::Cas { expected, desired, .. } => {
                let word = self.words.entry((region, offset)).or_default();
                let found = *word;
                let [from, to] = [*expected, *desired].map(|raw| SlotWord::from_raw(raw).to_string());
                let end = if found == *expected {
                    *word = *desired;
                    "swapped".to_owned()
                } else {
                    format!("finds {}", SlotWord::from_raw(found))
                };
                (format!("CAS {from} -> {to}: {end}"), Ok(Completion::Swapped(found)))
            }
            Post::Write { bytes, .. } => {
                self.values.insert((region, offset), bytes.clone());
                (format!("WRITE {}", shown(bytes)), Ok(Completion::Written))
            }
            Post::Read { .. } if self.words.contains_key(&(region, offset)) => {
                let word = self.words[&(region, offset)];
                read = word.to_le_bytes().to_vec();
                (format!("READ {}", SlotWord::from_raw(word)), Ok(Completion::Read(&read)))
            }
            Post::Read { len, .. } => {
                read = self.values.get(&(region, offset)).cloned().unwrap_or_else(|| vec![0; *len as usize]);
                (format!("READ {}", shown(&read)), Ok(Completion::Read(&read)))
            }
        };
        trace.push(format!("{who} to a{region}: {line}"));
        let Some((part, peer, round)) = tokens::unpack(token) else { return Ok(()) };
        self.call(who, trace, |engine, fabric| engine.complete(part, peer, round, &result, fabric))
    }

    fn deliver(&mut self, who: &str, rest: &[&str], trace: &mut Vec<String>) -> Result<(), String> {
        let to = rest.iter().find(|word| word.starts_with('a')).map(|word| number(word)).transpose()?;
        let limit = rest.iter().find(|word| !word.starts_with('a')).map(|word| number(word)).transpose()?;
        let is_meant = |post: &Post| {
            let (Post::Read { from: at, .. } | Post::Write { to: at, .. } | Post::Cas { at, .. }) = post;
            to.is_none_or(|to| at.at.region as usize == to)
        };
        for _ in 0..limit.unwrap_or(usize::MAX) {
            let posted = &mut self.proposer(who)?.1.posted;
            let Some(next) = posted.iter().position(|(post, _)| is_meant(post)) else { break };
            let Some((post, token)) = posted.remove(next) else { break };
            self.execute(who, &post, token, trace)?;
        }
        Ok(())
    }
}

impl Traced for World {
    fn command(&mut self, words: &[&str], trace: &mut Vec<String>) -> Result<(), String> {
        match *words {
            ["acceptors", _, _, ..] => {
                let acceptor = |n: usize| Acceptor { proposer: n as u16, address: Address::region(n as u32) };
                let named = words[1..].iter().map(|word| number(word).map(acceptor));
                self.acceptors = named.collect::<Result<_, _>>()?;
            }
            ["acceptors", count] => {
                let acceptor = |n| Acceptor { proposer: n as u16, address: Address::region(n) };
                self.acceptors = (1..=number(count)? as u32).map(acceptor).collect();
            }
            ["open", who, "slot", slot, ref rest @ ..] => {
                let before = match *rest {
                    ["after", before] => Some(number(before)? as u16),
                    _ => None,
                };
                let (slot, acceptors) = (ViewId(number(slot)? as u64), self.acceptors.clone());
                self.call(who, trace, |engine, _| {
                    engine.open(slot, &acceptors, before);
                    None
                })?;
            }
            ["prepare", who] => self.call(who, trace, |engine, fabric| engine.prepare(fabric))?,
            ["propose", who, ref rest @ ..] => {
                let slot = self.proposer(who)?.1.engine.slot();
                let value = match *rest {
                    [value] => frame::encode_frame(slot, value.as_bytes()),
                    _ => Arc::from([]),
                };
                self.call(who, trace, |engine, fabric| engine.accept(value, |_| {}, fabric))?;
            }
            ["deliver", who, ref rest @ ..] => self.deliver(who, rest, trace)?,
            ["cut", who, acceptor] => {
                let acceptor = number(acceptor)? as u32;
                self.proposer(who)?.1.cut.insert(acceptor);
            }
            ["words"] => {
                let offset = self.layout.slot(self.proposers[0].engine.slot().0);
                for Acceptor { address, .. } in &self.acceptors {
                    let word = self.words.get(&(address.region, offset)).copied().unwrap_or_default();
                    trace.push(format!("a{}: {}", address.region, SlotWord::from_raw(word)));
                }
            }
            _ => return Err("no such command".to_owned()),
        }
        Ok(())
    }
}
