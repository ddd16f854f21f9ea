//! What signals do to the process, besides being read (`input.rs`): the few calls that the system offers no safe way to.
//!
//! Invariants: a crash ends the process as it would have without this module, with the same signal, the same core file
//! and Rust's own words about a full stack, only with the terminal given back before; whoever started the program with
//! a signal ignored has it ignored (`nohup`).

#![expect(unsafe_code, reason = "what a signal does is set by a call of C, and its handler gets a pointer")]

use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::time::Duration;

use libc::c_int;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, kill_current_process_group};

/// Ways in which a process crashes, with what each means.
const CRASHES: [(c_int, &str, &str); 6] = [
    (libc::SIGSEGV, "SIGSEGV", "bad memory access, or a full stack"),
    (libc::SIGBUS, "SIGBUS", "memory that is not there, e.g. of a file that shrank"),
    (libc::SIGABRT, "SIGABRT", "gave up, e.g. for want of memory"),
    (libc::SIGILL, "SIGILL", "bad instruction"),
    (libc::SIGFPE, "SIGFPE", "bad arithmetic"),
    (libc::SIGSYS, "SIGSYS", "forbidden system call"),
];
/// How long the last words wait for standard error.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What a crash did before this module.
static BEFORE: OnceLock<[libc::sigaction; CRASHES.len()]> = OnceLock::new();

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// What `signal` does now.
fn action(signal: c_int) -> Option<libc::sigaction> {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed without a new action, and `now` is written in full where the call succeeds.
    (unsafe { libc::sigaction(signal, null(), now.as_mut_ptr()) } == 0).then(|| unsafe { now.assume_init() })
}

/// Makes `signal` do this.
fn set(signal: c_int, action: &libc::sigaction) {
    // SAFETY: the action is one that the system gave us, a constant of the system, or `crashed`, which only makes calls
    // that a signal handler may make.
    let _ = unsafe { libc::sigaction(signal, action, null_mut()) };
}

/// An action without a function of ours.
fn simple(what: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: an action is plain numbers, and all of them may be 0: no flags, and an empty set of signals.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = what;
    action
}

/// Whether whoever started the program wants `signal` ignored, as `nohup` and a shell's `&` do. To be asked before it is
/// handled.
pub(super) fn is_ignored(signal: c_int) -> bool {
    action(signal).is_some_and(|action| action.sa_sigaction == libc::SIG_IGN)
}

/// Keeps the program from being stopped when it touches the terminal out of the background, where it could hear no
/// request to end: it looks whether it is in front instead.
pub(super) fn outlive_the_background() {
    for signal in [libc::SIGTTIN, libc::SIGTTOU] {
        set(signal, &simple(libc::SIG_IGN));
    }
}

/// Stops this process and its group, as Ctrl-Z does, and returns when it goes on. Without a shell that could continue it
/// the system does not stop it, and this returns at once.
pub(super) fn stop() {
    let Some(before) = action(libc::SIGTSTP).filter(|action| action.sa_sigaction != libc::SIG_IGN) else { return };
    // First the others: after that nothing is left to do until this process goes on.
    set(libc::SIGTSTP, &simple(libc::SIG_IGN));
    let _ = kill_current_process_group(Signal::TSTP);
    set(libc::SIGTSTP, &simple(libc::SIG_DFL));
    // SAFETY: no memory is involved. Sent to this very thread, the signal is there before the call returns.
    let _ = unsafe { libc::raise(libc::SIGTSTP) };
    set(libc::SIGTSTP, &before);
}

/// Has the terminal given back when the process crashes: a driver's library that reads where nothing is, an allocation
/// that cannot be had, a full stack.
pub(super) fn restore_on_crash() {
    if BEFORE.get().is_some() {
        return;
    }
    let before = CRASHES.map(|(signal, ..)| action(signal).unwrap_or_else(|| simple(libc::SIG_DFL)));
    if BEFORE.set(before).is_err() {
        return;
    }
    let mut action = simple(crashed as Handler as libc::sighandler_t);
    // On a stack of its own, where the thread has one: the usual one may be full.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    for (signal, ..) in CRASHES {
        set(signal, &action);
    }
}

/// Runs in the middle of a crash: no allocation, no waiting for a lock, only calls that a signal handler may make.
extern "C" fn crashed(signal: c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // First of all, so that whatever goes wrong from here on ends the process.
    for ((signal, ..), before) in CRASHES.iter().zip(BEFORE.get().into_iter().flatten()) {
        set(*signal, before);
    }
    super::restore();
    say(signal);
    // SAFETY: with SA_SIGINFO the system hands over a valid description.
    let by_fault = !info.is_null() && unsafe { (*info).si_code } > 0;
    // A fault happens again when this returns, and then does what it did before. What was sent has to be sent again; to
    // what Rust does about it this would be the first of two.
    if !by_fault {
        set(signal, &simple(libc::SIG_DFL));
        // SAFETY: no memory is involved. It waits until this handler returns.
        let _ = unsafe { libc::raise(signal) };
    }
}

/// Says on standard error what happened and what to do.
fn say(signal: c_int) {
    let mut words = Words { bytes: [0; 512], len: 0 };
    let (name, meaning) = CRASHES
        .iter()
        .find(|(known, ..)| *known == signal)
        .map_or(("a signal", ""), |(_, name, meaning)| (name, meaning));
    let mut thread = [0; 32];
    let thread = thread_name(&mut thread);
    let _ = write!(
        words,
        "warptop: crashed with {name} ({meaning}) in thread '{thread}'; the terminal is as it was.\n\
         If that thread is 'warptop-nvml', the GPU driver's library crashed: does nvidia-smi work? Else please report it,\n\
         with 'warptop --version' and what 2>FILE keeps of standard error.\n"
    );
    let error = rustix::stdio::stderr();
    let most = Timespec::try_from(LAST_WORDS).ok();
    // A terminal that takes nothing must not keep a dead process.
    if poll(&mut [PollFd::new(&error.as_fd(), PollFlags::OUT)], most.as_ref()).is_ok_and(|n| n > 0) {
        let _ = rustix::io::write(error, &words.bytes[..words.len]);
    }
}

/// The name of this thread, from the system.
fn thread_name(into: &mut [u8; 32]) -> &str {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(c"/proc/thread-self/comm", flags, Mode::empty()) else { return "?" };
    let len = rustix::io::read(&file, &mut into[..]).unwrap_or(0);
    std::str::from_utf8(&into[..len]).map_or("?", str::trim_end)
}

/// Text in a place of its own.
struct Words {
    bytes: [u8; 512],
    len: usize,
}

impl fmt::Write for Words {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let n = text.len().min(room.len());
        room[..n].copy_from_slice(&text.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}
