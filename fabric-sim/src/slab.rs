//! Reusable entries, so that a running world allocates nothing for an event.

use core::ops::{Index, IndexMut};

/// Values by number. A freed value stays in its entry and keeps its buffers for reuse.
#[derive(Debug, Default)]
pub(super) struct Slab<T> {
    all: Vec<T>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    /// An entry with the contents of its last user.
    pub(super) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(T::default());
            self.all.len() as u32 - 1
        })
    }

    pub(super) fn free(&mut self, id: u32) {
        self.free.push(id);
    }

    /// Used entries, to check for leaks in tests.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.all.len() - self.free.len()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, id: u32) -> &T {
        &self.all[id as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.all[id as usize]
    }
}
