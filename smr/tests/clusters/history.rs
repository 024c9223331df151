//! Checks what clients have observed with stateright's tester. Linearizability is local: each key
//! is checked by itself.

use obol_smr::{Done, KeyValue, LoadError, Service};
use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};
use std::collections::{BTreeMap, BTreeSet};

/// A key's value as the checker knows it; 0 stands for none.
pub(crate) type Value = u64;
type Tester = LinearizabilityTester<u32, Register<Value>>;

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Get(u64),
    Put(u64, Value),
}

impl Act {
    const fn key(self) -> u64 {
        match self {
            Self::Get(key) | Self::Put(key, _) => key,
        }
    }
}

/// A value as bytes: lengths vary, so that torn values are detected.
pub(crate) fn bytes(value: Value) -> Box<[u8]> {
    let len = 8 * (1 + value as usize % 40);
    value.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn value(found: &[u8]) -> Result<Value, String> {
    let value = found.first_chunk().map(|word| u64::from_le_bytes(*word)).ok_or("a value without a word")?;
    if found == &bytes(value)[..] {
        Ok(value)
    } else {
        Err(format!("a value that no client wrote: {found:?}"))
    }
}

/// The history of a run.
#[derive(Default)]
pub(crate) struct History {
    keys: BTreeMap<u64, Tester>,
    pub(crate) operations: usize,
}

impl History {
    fn tester(&mut self, key: u64) -> &mut Tester {
        self.keys.entry(key).or_insert_with(|| LinearizabilityTester::new(Register(0)))
    }

    pub(crate) fn begins(&mut self, client: u32, act: Act) -> Result<(), String> {
        let asked = match act {
            Act::Get(_) => RegisterOp::Read,
            Act::Put(_, value) => RegisterOp::Write(value),
        };
        self.tester(act.key()).on_invoke(client, asked).map(drop)
    }

    pub(crate) fn ends(&mut self, client: u32, act: Act, done: &Done) -> Result<(), String> {
        self.operations += 1;
        let outcome = KeyValue::outcome(&done.reply).map_err(|_| format!("{act:?} was invalid"))?;
        let found = match (act, outcome) {
            (Act::Get(_), Some(found)) => RegisterRet::ReadOk(value(found)?),
            (Act::Get(_), None) => RegisterRet::ReadOk(0),
            (Act::Put(..), _) => RegisterRet::WriteOk,
        };
        self.tester(act.key()).on_return(client, found).map(drop)
    }

    pub(crate) fn judge(&self) -> Result<(), String> {
        match self.keys.iter().find(|(_, tester)| !tester.is_consistent()) {
            None => Ok(()),
            Some((key, _)) => Err(format!("invariant 7: the history of key {key} is not linearizable")),
        }
    }
}

/// Bytes of the time before each command and query.
const TIME_BYTES: usize = 8;
/// The time that clients write there: far ahead of any clock.
const FOREIGN: u64 = u64::MAX / 2;

/// A command or query with a time that is the client's.
pub(crate) fn stamped_by_client(command: &[u8]) -> Box<[u8]> {
    [&FOREIGN.to_le_bytes(), command].concat().into()
}

fn time_of(command: &[u8]) -> Option<(u64, &[u8])> {
    let (time, rest) = command.split_first_chunk::<TIME_BYTES>()?;
    Some((u64::from_le_bytes(*time), rest))
}

/// The store, which notices a command that takes effect twice, because each PUT has a value of its own,
/// and a time that is lower than one before it, or a client's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Watched {
    store: KeyValue,
    seen: BTreeSet<Value>,
    pub(crate) twice: Option<Value>,
    /// The newest time of a command.
    now: u64,
    /// A time that no leader should have given, after which one.
    pub(crate) wrong_time: Option<(u64, u64)>,
}

impl Service for Watched {
    const KIND: u8 = 255;

    fn apply(&mut self, command: &[u8], reply: &mut Vec<u8>) {
        let Some((time, command)) = time_of(command) else { return };
        if time < self.now || time == FOREIGN {
            self.wrong_time = Some((time, self.now));
        }
        self.now = self.now.max(time);
        self.store.apply(command, reply);
        // After the operation and a key of one byte.
        let value =
            command.get(3..11).and_then(|word| word.first_chunk()).map(|word| u64::from_le_bytes(*word));
        if let Some(value) = value.filter(|value| !self.seen.insert(*value)) {
            self.twice = Some(value);
        }
    }

    fn stamp(command: &mut [u8], at_ms: u64) {
        if let Some(time) = command.first_chunk_mut::<TIME_BYTES>() {
            *time = at_ms.to_le_bytes();
        }
    }

    fn stamped(command: &[u8]) -> Option<u64> {
        time_of(command).map(|(time, _)| time)
    }

    fn time(&self) -> u64 {
        self.now
    }

    fn read(&self, query: &[u8], reply: &mut Vec<u8>) {
        if let Some((_, query)) = time_of(query) {
            self.store.read(query, reply);
        }
    }

    fn save(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.now.to_le_bytes());
        to.extend_from_slice(&(self.seen.len() as u64).to_le_bytes());
        for value in &self.seen {
            to.extend_from_slice(&value.to_le_bytes());
        }
        self.store.save(to);
    }

    fn load(&mut self, from: &[u8]) -> Result<(), LoadError> {
        let number = |at: usize| {
            let word = from.get(at..at + 8).and_then(|word| word.first_chunk());
            word.map(|word| u64::from_le_bytes(*word)).ok_or(LoadError)
        };
        self.now = number(0)?;
        let count = number(8)? as usize;
        self.seen = (2..2 + count).map(|n| number(8 * n)).collect::<Result<_, _>>()?;
        self.store.load(from.get(8 * (2 + count)..).ok_or(LoadError)?)
    }
}
