//! The victim's side of death notices: the words of a seat that the kernel marks when the
//! registered thread ends.
//!
//! The kernel walks a list of nodes in the thread's own memory and finds each node's word at a
//! constant offset. So the nodes are in private memory with the stride of the words, and no peer
//! can damage the list. The order of the list is the order of the words: coordinator 1 is notified
//! first.
#![allow(unsafe_code)]

use crate::host::error::HostError;
use crate::host::fork::OwnerProcess;
use crate::host::futex::{self, OWNER_DIED, TID_MASK};
use crate::host::region::Region;
use crate::layout::DEATH_WORDS;
use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use std::io;

/// An entry of the kernel's `struct robust_list`, with the length of a death word.
#[repr(C)]
struct Node {
    next: *mut Node,
}

/// The kernel's `struct robust_list_head`, and the nodes.
#[repr(C)]
struct List {
    first: *mut Node,
    futex_offset: isize,
    pending: *mut Node,
    nodes: [Node; DEATH_WORDS],
}

const HEAD_BYTES: usize = core::mem::offset_of!(List, nodes);
const _: () = assert!(HEAD_BYTES == 24 && size_of::<Node>() == 8);

thread_local! {
    /// The process in which this thread represents a seat; 0 if it represents none. A child's
    /// thread does not inherit this: the kernel gives it no list.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Reports the calling thread's death in a seat as long as this exists. It replaces the thread's
/// robust list, so the thread must hold no robust mutex of the C library meanwhile.
pub(crate) struct Registration {
    list: *mut List,
    previous: (*mut libc::c_void, usize),
    region: Region,
    seat: u16,
    /// The robust list is the thread's own.
    not_send: PhantomData<*mut ()>,
}

/// Registers the calling thread as the one whose end is the death of a seat.
pub(crate) fn register(region: &Region, seat: u16) -> Result<Registration, HostError> {
    let kernel = |doing| HostError::Kernel { doing, error: io::Error::last_os_error() };
    let home =
        OwnerProcess::here().map_err(|error| HostError::Kernel { doing: "mark this process", error })?;
    if TAKEN.get() == home.turn {
        return Err(HostError::ThreadTaken);
    }
    let mut previous = (core::ptr::null_mut(), 0usize);
    // SAFETY: both results are valid for writes; thread 0 is the calling one.
    if unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut previous.0, &raw mut previous.1) } != 0 {
        return Err(kernel("look up the thread's robust list"));
    }
    let list = Box::into_raw(Box::new(List {
        first: core::ptr::null_mut(),
        futex_offset: 0,
        pending: core::ptr::null_mut(),
        nodes: [const { Node { next: core::ptr::null_mut() } }; DEATH_WORDS],
    }));
    let words = region.death_word(seat, 0).as_ptr() as isize;
    // SAFETY: `list` is ours and valid; every node that is linked lies within it. The last one
    // points to the head, as the kernel wants it.
    unsafe {
        let nodes = (&raw mut (*list).nodes).cast::<Node>();
        for i in 0..DEATH_WORDS {
            let next = if i + 1 < DEATH_WORDS { nodes.add(i + 1) } else { list.cast() };
            (*nodes.add(i)).next = next;
        }
        (*list).first = nodes;
        (*list).futex_offset = words - nodes as isize;
    }
    // SAFETY: `list` stays valid until `Drop` has put the previous list back.
    if unsafe { libc::syscall(libc::SYS_set_robust_list, list, HEAD_BYTES) } != 0 {
        let error = kernel("register the thread's robust list");
        // SAFETY: the kernel has refused `list`, so nothing else refers to it.
        drop(unsafe { Box::from_raw(list) });
        return Err(error);
    }
    let tid = nix::unistd::gettid().as_raw().cast_unsigned() & TID_MASK;
    // Word 0 signals life to peers, so it is written last.
    for index in (0..DEATH_WORDS).rev() {
        region.death_claim(seat, index).store(0, Ordering::Relaxed);
        region.death_word(seat, index).store(tid, Ordering::Release);
    }
    TAKEN.set(home.turn);
    Ok(Registration { list, previous, region: region.clone(), seat, not_send: PhantomData })
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.region.is_here() {
            // A copy in a forked child: the kernel knows neither this list nor this thread, which
            // may represent a seat of the child's own.
            return;
        }
        // SAFETY: the previous list is the one that the C library registered for this very thread;
        // `Registration` is not `Send`.
        let restored =
            unsafe { libc::syscall(libc::SYS_set_robust_list, self.previous.0, self.previous.1) } == 0;
        if restored {
            // SAFETY: the kernel has let go of the list, and it was made by `Box::into_raw`.
            drop(unsafe { Box::from_raw(self.list) });
        }
        for index in 0..DEATH_WORDS {
            let word = self.region.death_word(self.seat, index);
            word.store(OWNER_DIED, Ordering::Release);
            futex::wake(word, 1);
        }
        TAKEN.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;
    use crate::Fabric;
    use crate::endpoint::{Owner, Wait};
    use crate::host::futex::WAITERS;
    use crate::host::test::{made, name};
    use crate::types::Name;

    fn owner(name: Name) -> Owner {
        Owner { kind: 1, name, region: None, groups: 2 }
    }

    #[test]
    fn the_end_of_a_thread_marks_all_words_and_a_drop_does_too() {
        let (_root, cluster) = made();
        for forget in [true, false] {
            let cluster = cluster.clone();
            let region = std::thread::spawn(move || {
                let endpoint = Endpoint::open(&cluster, owner(name("a")), Wait::Block).expect("opened");
                let region = Region::open(&cluster, endpoint.address().region).expect("mapped");
                assert!(
                    (0..DEATH_WORDS).all(|i| region.death_word(0, i).load(Ordering::Relaxed) & TID_MASK != 0)
                );
                region.death_word(0, 3).fetch_or(WAITERS, Ordering::Relaxed);
                if forget {
                    core::mem::forget(endpoint);
                }
                region
            })
            .join()
            .expect("no panic");
            assert!(
                (0..DEATH_WORDS).all(|i| region.death_word(0, i).load(Ordering::Relaxed) & OWNER_DIED != 0)
            );
            assert!(region.is_dead(0));
        }
    }

    #[test]
    fn a_thread_stands_for_one_endpoint() {
        let (_root, cluster) = made();
        let first = Endpoint::open(&cluster, owner(name("a")), Wait::Block).expect("opened");
        let second = Endpoint::open(&cluster, owner(name("b")), Wait::Block);
        assert!(matches!(second, Err(HostError::ThreadTaken)));
        drop(first);
        Endpoint::open(&cluster, owner(name("b")), Wait::Block).expect("opened after the first was dropped");
    }
}
