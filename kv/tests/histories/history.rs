//! Checks what clients have observed with stateright's tester. Linearizability is local: each key
//! is checked by itself.

use obol_kv::{Done, Operation, Status};
use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};
use std::collections::BTreeMap;

/// A key's value as the checker knows it; 0 stands for none.
type Value = u64;
type Tester = LinearizabilityTester<u32, Register<Value>>;

/// The history of a run.
#[derive(Default)]
pub(crate) struct History {
    keys: BTreeMap<u64, Tester>,
    pub(crate) operations: usize,
}

const fn key(operation: &Operation) -> u64 {
    match operation {
        Operation::Get(key) | Operation::Put(key, _) => *key,
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

impl History {
    fn tester(&mut self, key: u64) -> &mut Tester {
        self.keys.entry(key).or_insert_with(|| LinearizabilityTester::new(Register(0)))
    }

    pub(crate) fn begins(&mut self, client: u32, operation: &Operation) -> Result<(), String> {
        let asked = match operation {
            Operation::Get(_) => RegisterOp::Read,
            Operation::Put(_, bytes) => RegisterOp::Write(value(bytes)?),
        };
        self.tester(key(operation)).on_invoke(client, asked).map(drop)
    }

    pub(crate) fn ends(&mut self, client: u32, operation: &Operation, done: &Done) -> Result<(), String> {
        self.operations += 1;
        let found = match (operation, done.status) {
            (Operation::Get(_), Status::Done) => RegisterRet::ReadOk(value(&done.value)?),
            (Operation::Get(_), Status::Missing) => RegisterRet::ReadOk(0),
            (Operation::Put(..), Status::Done) => RegisterRet::WriteOk,
            (operation, status) => return Err(format!("{operation:?} ended with {status:?}")),
        };
        self.tester(key(operation)).on_return(client, found).map(drop)
    }

    pub(crate) fn judge(&self) -> Result<(), String> {
        match self.keys.iter().find(|(_, tester)| !tester.is_consistent()) {
            None => Ok(()),
            Some((key, tester)) => Err(format!("the history of key {key} is not linearizable: {tester:?}")),
        }
    }
}
