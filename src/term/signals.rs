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
const CRASHES: [(c_int, &str, &str); 7] = [
    (libc::SIGSEGV, "SIGSEGV", "bad memory access, or a full stack"),
    (libc::SIGBUS, "SIGBUS", "memory that is not there, e.g. of a file that shrank"),
    (libc::SIGABRT, "SIGABRT", "gave up, e.g. for want of memory"),
    (libc::SIGILL, "SIGILL", "bad instruction"),
    (libc::SIGFPE, "SIGFPE", "bad arithmetic"),
    (libc::SIGSYS, "SIGSYS", "forbidden system call"),
    (libc::SIGTRAP, "SIGTRAP", "breakpoint"),
];
/// Crashes that happen again when their handler returns: the instruction is tried once more.
const REPEATED: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
/// What ends a process that does not handle it and means nothing to this one (signal(7)). The realtime signals do so too.
const ENDS: [(c_int, &str); 8] = [
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGVTALRM, "SIGVTALRM"),
    (libc::SIGPROF, "SIGPROF"),
    (libc::SIGIO, "SIGIO"),
    (libc::SIGPWR, "SIGPWR"),
    (libc::SIGSTKFLT, "SIGSTKFLT"),
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
    // SAFETY: the action is one that the system gave us, a constant of the system, or `crashed` or `ended`, which only make
    // calls that a signal handler may make.
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

/// Ends the process at once: what libraries have for its end, which may hang or crash, is not run.
pub(super) fn leave(code: c_int) -> ! {
    // SAFETY: no memory is involved, and it does not return.
    unsafe { libc::_exit(code) }
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
    let known = CRASHES.iter().find(|(known, ..)| *known == signal);
    let (name, meaning) = known.map_or(("a signal", ""), |(_, name, meaning)| (name, meaning));
    say(format_args!(
        "warptop: crashed with {name} ({meaning}) in thread '{}'; the terminal is as it was.\n\
         If that thread is 'warptop-nvml', the GPU driver's library crashed: does nvidia-smi work? Else please report it,\n\
         with 'warptop --version' and what 2>FILE keeps of standard error.\n",
        thread_name(&mut [0; 32])
    ));
    // SAFETY: with SA_SIGINFO the system hands over a valid description.
    let by_fault = REPEATED.contains(&signal) && !info.is_null() && unsafe { (*info).si_code } > 0;
    // A fault happens again when this returns, and then does what it did before. What was sent has to be sent again; to
    // what Rust does about it this would be the first of two.
    if !by_fault {
        again(signal);
    }
}

/// Has `signal` do what it does by default, once the handler that calls this returns.
fn again(signal: c_int) {
    set(signal, &simple(libc::SIG_DFL));
    // SAFETY: no memory is involved.
    let _ = unsafe { libc::raise(signal) };
}

/// Has the terminal given back when a signal ends the process that is none of its own business. One that somebody handles
/// or ignores already stays so.
pub(super) fn restore_on_end() {
    let mut end = simple(ended as Handler as libc::sighandler_t);
    end.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    for signal in ENDS.map(|(signal, _)| signal).into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
        if action(signal).is_some_and(|action| action.sa_sigaction == libc::SIG_DFL) {
            set(signal, &end);
        }
    }
}

/// Runs wherever the signal came upon the process; the same rules hold as for `crashed`.
extern "C" fn ended(signal: c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    set(signal, &simple(libc::SIG_DFL));
    super::restore();
    match ENDS.iter().find(|(known, _)| *known == signal) {
        Some((_, name)) => say(format_args!("warptop: ended by {name}; the terminal is as it was.\n")),
        None => say(format_args!("warptop: ended by signal {signal}; the terminal is as it was.\n")),
    }
    again(signal);
}

/// Has the terminal given back when a library calls `exit`, and no more of its code be run.
pub(super) fn restore_on_exit() {
    // SAFETY: what is registered is a function for the whole life of the process. Without room for it all is as before.
    let _ = unsafe { libc::atexit(exited) };
}

extern "C" fn exited() {
    super::restore();
    say(format_args!(
        "warptop: a library ended the program (exit) in thread '{}'; the terminal is as it was.\n\
         If that thread is 'warptop-nvml', it was the GPU driver's: does nvidia-smi work? Else please report it,\n\
         with 'warptop --version'.\n",
        thread_name(&mut [0; 32])
    ));
    leave(1);
}

/// Says on standard error what happened and what to do.
fn say(what: fmt::Arguments<'_>) {
    let mut words = Words { bytes: [0; 512], len: 0 };
    let _ = words.write_fmt(what);
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
