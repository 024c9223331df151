//! What C is asked for, and in which order.

use super::*;
use obol_smr::Service as _;
use std::slice;

/// A service in the manner of C: the calls that it got, and a state of bytes.
#[derive(Default)]
struct Told {
    calls: Vec<&'static str>,
    state: Vec<u8>,
    saved: Vec<u8>,
    loaded: Vec<u8>,
    refuses: bool,
}

fn told<'a>(context: *mut c_void, call: &'static str) -> &'a mut Told {
    // SAFETY: each test's context outlives its calls, which come one at a time.
    let told = unsafe { &mut *context.cast::<Told>() };
    if !call.is_empty() {
        told.calls.push(call);
    }
    told
}

fn bytes<'a>(from: *const u8, length: usize) -> &'a [u8] {
    // SAFETY: the bytes of the call.
    unsafe { slice::from_raw_parts(from, length) }
}

unsafe extern "C" fn commit(context: *mut c_void, command: *const u8, length: usize, _: *mut Output) {
    told(context, "").state.extend_from_slice(bytes(command, length));
}

unsafe extern "C" fn read(context: *mut c_void, _: *const u8, _: usize, reply: *mut Output) {
    let state = &told(context, "").state;
    // SAFETY: they outlive the call.
    unsafe { obol_output_write(reply, state.as_ptr(), state.len()) }
}

unsafe extern "C" fn save(context: *mut c_void, to: *mut Output) {
    let state = &told(context, "save").state;
    // SAFETY: they outlive the call.
    unsafe { obol_output_write(to, state.as_ptr(), state.len()) }
}

unsafe extern "C" fn load(context: *mut c_void, from: *const u8, length: usize) -> bool {
    told(context, "load").state = bytes(from, length).to_vec();
    true
}

unsafe extern "C" fn save_begin(context: *mut c_void) -> u64 {
    let told = told(context, "save_begin");
    told.saved = told.state.clone();
    told.saved.len() as u64
}

unsafe extern "C" fn save_part(context: *mut c_void, to: *mut Output) -> bool {
    let told = told(context, "");
    let part: Vec<u8> = told.saved.drain(..told.saved.len().min(5)).collect();
    // SAFETY: they outlive the call.
    unsafe { obol_output_write(to, part.as_ptr(), part.len()) }
    told.saved.is_empty()
}

unsafe extern "C" fn save_end(context: *mut c_void) {
    told(context, "save_end").saved.clear();
}

unsafe extern "C" fn load_begin(context: *mut c_void) {
    told(context, "load_begin").loaded.clear();
}

/// Takes two bytes at a time; refuses a 0.
unsafe extern "C" fn load_part(context: *mut c_void, from: *const u8, length: usize) -> usize {
    let (told, from) = (told(context, ""), bytes(from, length / 2 * 2));
    told.loaded.extend_from_slice(from);
    if from.contains(&0) { usize::MAX } else { from.len() }
}

unsafe extern "C" fn load_commit(context: *mut c_void) -> bool {
    let told = told(context, "load_commit");
    if !told.refuses {
        told.state = std::mem::take(&mut told.loaded);
    }
    !told.refuses
}

unsafe extern "C" fn load_abandon(context: *mut c_void) {
    told(context, "load_abandon").loaded.clear();
}

unsafe extern "C" fn work(context: *mut c_void) -> bool {
    told(context, "work");
    false
}

const PARTS: Parts = Parts {
    on_save_begin: Some(save_begin),
    on_save_part: Some(save_part),
    on_save_end: Some(save_end),
    on_load_begin: Some(load_begin),
    on_load_part: Some(load_part),
    on_load_commit: Some(load_commit),
    on_load_abandon: Some(load_abandon),
    on_work: Some(work),
};

fn service(context: *mut c_void) -> Service {
    Service {
        context,
        on_commit: Some(commit),
        on_read: Some(read),
        on_save: Some(save),
        on_load: Some(load),
    }
}

fn with_parts(context: *mut c_void) -> Foreign {
    Foreign::new(&service(context), Some(&PARTS)).ok().expect("all are there")
}

fn calls(context: *mut c_void) -> Vec<&'static str> {
    std::mem::take(&mut told(context, "").calls)
}

fn state(of: &Foreign) -> Vec<u8> {
    let mut state = Vec::new();
    of.read(&[], &mut state);
    state
}

/// A context, which the test frees.
fn context() -> *mut c_void {
    Box::into_raw(Box::<Told>::default()).cast()
}

fn free(context: *mut c_void) {
    // SAFETY: it was made by `context`.
    drop(unsafe { Box::from_raw(context.cast::<Told>()) });
}

#[test]
fn all_functions_have_to_be_there_but_on_save_with_parts() {
    let context = context();
    let refused = |service: &Service, parts: Option<&Parts>| {
        Foreign::new(service, parts).err().map(|refusal| refusal.text().to_owned()).unwrap_or_default()
    };
    let without_save = Service { on_save: None, ..service(context) };
    assert_eq!(refused(&without_save, None), "on_save is null");
    assert_eq!(refused(&without_save, Some(&PARTS)), "");
    assert_eq!(
        refused(&service(context), Some(&Parts { on_save_end: None, ..PARTS })),
        "on_save_end is null"
    );
    assert_eq!(refused(&service(context), Some(&Parts { on_work: None, ..PARTS })), "on_work is null");
    free(context);
}

#[test]
fn a_save_is_the_state_of_its_begin_and_ends_once() {
    let context = context();
    let mut of = with_parts(context);
    of.apply(b"the state of now", &mut Vec::new());
    of.end_save();
    assert_eq!((of.begin_save(), calls(context)), (Some(16), vec!["save_begin"]));
    let mut all = Vec::new();
    while of.save_part(&mut all) == Some(false) {
        of.apply(b"!", &mut Vec::new());
    }
    assert_eq!((of.save_part(&mut all), &all[..]), (None, &b"the state of now"[..]));
    of.end_save();
    assert_eq!(calls(context), ["save_end"]);
    of.begin_save();
    of.begin_save();
    of.end_save();
    assert_eq!(calls(context), ["save_begin", "save_end", "save_begin", "save_end"]);
    free(context);
}

#[test]
fn a_load_is_committed_or_abandoned_once() {
    let context = context();
    let mut of = with_parts(context);
    of.begin().expect("the initial state");
    of.apply(b"before", &mut Vec::new());
    assert_eq!(calls(context), ["load"]);
    let mut next = of.begin_load();
    let mut come = b"abc".to_vec();
    assert_eq!((next.load_part(&mut come), &come[..], state(&of)), (Ok(()), &b"c"[..], b"before".to_vec()));
    assert_eq!(next.end_load(&come), Err(LoadError), "a byte is left");
    of.discard(next);
    assert_eq!((calls(context), state(&of)), (vec!["load_begin", "load_abandon"], b"before".to_vec()));

    let given_up = of.begin_load();
    let mut next = of.begin_load();
    of.discard(given_up);
    let mut come = b"abcd".to_vec();
    assert_eq!((next.load_part(&mut come), come.len()), (Ok(()), 0));
    assert_eq!(next.begin_save(), Some(6), "of the state before");
    assert_eq!(next.end_load(&come), Ok(()));
    let mut former = std::mem::replace(&mut of, next);
    assert_eq!(former.save_part(&mut Vec::new()), None, "its save has ended");
    of.discard(former);
    let as_told =
        ["load_begin", "load_abandon", "load_begin", "save_begin", "save_end", "load_commit"].to_vec();
    assert_eq!((calls(context), state(&of)), (as_told, b"abcd".to_vec()));

    // The next one is told apart from the instance that took its place.
    let next = of.begin_load();
    assert!(!of.work());
    of.begin().expect("the initial state");
    of.discard(next);
    assert_eq!(calls(context), ["load_begin", "work", "load_abandon", "load"]);
    free(context);
}

#[test]
fn bytes_or_a_state_that_c_refuses_change_nothing() {
    let context = context();
    let mut of = with_parts(context);
    of.apply(b"before", &mut Vec::new());
    let mut next = of.begin_load();
    assert_eq!(next.load_part(&mut b"a\0".to_vec()), Err(LoadError));
    of.discard(next);
    told(context, "").refuses = true;
    let mut next = of.begin_load();
    assert_eq!(next.end_load(&[]), Err(LoadError));
    of.discard(next);
    let as_told = ["load_begin", "load_abandon", "load_begin", "load_commit", "load_abandon"].to_vec();
    assert_eq!((calls(context), state(&of)), (as_told, b"before".to_vec()));
    free(context);
}

#[test]
fn without_parts_the_state_is_saved_and_loaded_at_once() {
    let context = context();
    let mut of = Foreign::new(&service(context), None).ok().expect("all are there");
    of.begin().expect("the initial state");
    assert_eq!((of.begin_save(), of.save_part(&mut Vec::new()), of.work()), (None, None, false));
    let (mut next, mut come) = (of.begin_load(), b"abc".to_vec());
    assert_eq!((next.load_part(&mut come), come.len()), (Ok(()), 3));
    assert_eq!((next.end_load(&come), state(&of)), (Ok(()), b"abc".to_vec()));
    of.discard(next);
    assert_eq!(calls(context), ["load", "load"]);
    free(context);
}
