//! The parent's side: starts a probe's process, listens to it, and makes sure that it is gone.
//!
//! Each child has a thread of its own that waits for it; nobody waits for that thread. It must not know
//! what a run means. Invariants: a child is in a process group of its own, which is killed as a whole;
//! [`Heard::Gone`] is said once, last, and only when no process of the group is left; what a child writes
//! is bounded ([`super::protocol`]); a dropped [`Child`] is a killed one; a key is in no argument and no variable.
//!
//! The system sends the death signal that a child asks for when the *thread* that started it ends. It is
//! started by the thread that waits for it, which ends after it.

use std::collections::VecDeque;
use std::io::{self, Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid};

use crate::model::{Clock, lock, spawn, text};
use crate::net::access::TOKEN_VARIABLE;
use crate::net::sealed::Sealed;

use super::protocol::{Intake, Message, Request};

/// The hidden command of a child.
pub const COMMAND: &str = "__probe-child";
/// How often a child is looked at.
const EVERY: Duration = Duration::from_millis(20);
/// How long the last words of a child that is gone are waited for.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// What is kept of its standard error, bytes: the end.
const STDERR: usize = 16 << 10;

/// Whether NCCL may use multicast of NVLink switches. Off unless somebody set it: what carries a sum is then the links, as
/// on a machine without such switches, and nobody else's use of the switches is disturbed.
pub const NVLS: &str = "NCCL_NVLS_ENABLE";

/// What is heard of a child.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// It was started; its process id.
    Started(u32),
    /// It said something.
    Message(Box<Message>),
    /// It could not be started or broke the rules of its stream; it is being killed.
    Broke(String),
    /// It is gone, with its group: how it ended.
    Gone(String),
}

enum Told {
    Stop,
    Kill,
}

/// A child that was started.
#[derive(Debug)]
pub struct Child {
    tell: Sender<Told>,
}

impl Child {
    /// Starts `program` as the child for `request`, and tells it through a pipe what is `sealed`. All that is heard of it
    /// goes to `hear`, from a thread of its own; so does that it could not be started.
    pub fn start(
        program: &Path,
        request: Request,
        sealed: Option<Sealed>,
        clock: Arc<dyn Clock>,
        hear: impl Fn(Heard) + Send + Clone + 'static,
    ) -> Self {
        let (tell, told) = channel();
        let (program, say) = (program.to_owned(), hear.clone());
        let request = Request { sealed: sealed.is_some(), ..request };
        let body = move || run(&program, request, sealed, &clock, &told, &hear);
        if let Err(error) = spawn("warptop-probe", body) {
            say(Heard::Broke(format!("no thread for the probe: {error}")));
            say(Heard::Gone("not started".to_owned()));
        }
        Self { tell }
    }

    /// Asks it to end by itself.
    pub fn stop(&self) {
        drop(self.tell.send(Told::Stop));
    }

    /// Kills it and its group.
    pub fn kill(&self) {
        drop(self.tell.send(Told::Kill));
    }
}

fn command(program: &Path, request: &Request) -> Command {
    let json = serde_json::to_string(request).unwrap_or_default();
    let mut command = Command::new(program);
    command.arg0("warptop").arg(COMMAND).arg(&request.probe).arg(json);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    if let [gpu] = request.target.gpus.as_slice()
        && !gpu.uuid.is_empty()
    {
        // CUDA counts GPUs in an order of its own: with one to choose from it cannot take the wrong one.
        command.env("CUDA_VISIBLE_DEVICES", &gpu.uuid);
    }
    if std::env::var_os(NVLS).is_none() {
        command.env(NVLS, "0");
    }
    // Which endpoint it may go to is decided here; what it needs there comes sealed.
    command.env_remove(TOKEN_VARIABLE);
    command
}

/// What the threads of a child report to the one that waits for it.
enum Noise {
    Messages(Vec<Message>),
    Broke(String),
    Closed,
}

fn run(
    program: &Path,
    request: Request,
    sealed: Option<Sealed>,
    clock: &Arc<dyn Clock>,
    told: &Receiver<Told>,
    hear: &(impl Fn(Heard) + Send),
) {
    let mut child = match command(program, &request).spawn() {
        Ok(child) => child,
        Err(error) => {
            hear(Heard::Broke(format!("the probe's process cannot be started: {error}")));
            hear(Heard::Gone("not started".to_owned()));
            return;
        }
    };
    hear(Heard::Started(child.id()));
    let (noise, noises) = sync_channel(64);
    let end = Arc::new(Mutex::new(VecDeque::new()));
    if let Some(stdout) = child.stdout.take() {
        listen(stdout, Intake::new(request.run), Arc::clone(clock), noise);
    }
    if let Some(stderr) = child.stderr.take() {
        keep_end(stderr, Arc::clone(&end));
    }
    let mut word = child.stdin.take().map(|stdin| speak(stdin, sealed));
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
    loop {
        match told.try_recv() {
            Ok(Told::Stop) => {
                // What was sealed goes first; a child that takes not even that is killed.
                drop(word.take());
            }
            Ok(Told::Kill) | Err(std::sync::mpsc::TryRecvError::Disconnected) => kill(group),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        match noises.recv_timeout(EVERY) {
            Ok(noise) => pass_on(noise, group, hear),
            Err(RecvTimeoutError::Timeout) => {}
            // Its output is closed: it is about to end, or hangs.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(EVERY),
        }
        if has_ended(group) {
            break;
        }
    }
    // It is not reaped yet, so its number is still that of its group: whoever is left there goes with it.
    kill(group);
    while let Ok(noise) = noises.recv_timeout(LAST_WORDS) {
        if matches!(noise, Noise::Closed) {
            break;
        }
        pass_on(noise, None, hear);
    }
    let status = child.wait();
    wait_for_group(group);
    let end = lock(&end).iter().copied().collect::<Vec<u8>>();
    hear(Heard::Gone(how(&status, &end)));
}

/// Tells a child what is sealed, on a thread: one that does not read must not keep anybody waiting. When the handle that
/// is returned is dropped, the child is told to stop.
fn speak(mut stdin: ChildStdin, sealed: Option<Sealed>) -> Sender<()> {
    let (word, stop) = channel();
    let body = move || {
        let line = sealed.map(|sealed| format!("{}\n", sealed.line())).unwrap_or_default();
        // A child that is gone does not listen any more.
        if stdin.write_all(line.as_bytes()).is_ok() {
            let _: Result<(), _> = stop.recv();
            drop(stdin.write_all(b"s"));
        }
    };
    // Without the thread its input is closed at once, which means stop as well.
    drop(spawn("warptop-speak", body));
    word
}

fn pass_on(noise: Noise, group: Option<Pid>, hear: &impl Fn(Heard)) {
    match noise {
        Noise::Messages(messages) => messages.into_iter().for_each(|message| hear(Heard::Message(Box::new(message)))),
        Noise::Broke(why) => {
            kill(group);
            hear(Heard::Broke(why));
        }
        Noise::Closed => {}
    }
}

fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        // That nobody is left is what is wanted.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Whether the leader of the group has ended; it stays a zombie.
fn has_ended(group: Option<Pid>) -> bool {
    let Some(pid) = group else { return true };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None) | Err(rustix::io::Errno::INTR))
}

/// Waits until nobody is left in the group: killed processes that are not our children take a moment.
fn wait_for_group(group: Option<Pid>) {
    let Some(group) = group else { return };
    for _ in 0..50 {
        if test_kill_process_group(group).is_err() {
            return;
        }
        std::thread::sleep(EVERY);
    }
}

/// Reads what a child says on a thread, and holds it to the rules.
fn listen(mut stdout: impl Read + Send + 'static, mut intake: Intake, clock: Arc<dyn Clock>, to: SyncSender<Noise>) {
    let body = move || {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let noise = match stdout.read(&mut buffer) {
                Ok(0) => Noise::Closed,
                Ok(n) => {
                    let mut messages = Vec::new();
                    match intake.take(clock.micros(), &buffer[..n], |message| messages.push(message)) {
                        Ok(()) => Noise::Messages(messages),
                        Err(broken) => Noise::Broke(broken.to_string()),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => Noise::Closed,
            };
            let last = !matches!(noise, Noise::Messages(_));
            if to.send(noise).is_err() || last {
                // Closes the pipe: a child that floods it gets an error instead of a reader.
                return;
            }
        }
    };
    drop(spawn("warptop-hear", body));
}

/// Reads standard error on a thread and keeps the end of it.
fn keep_end(mut stderr: impl Read + Send + 'static, end: Arc<Mutex<VecDeque<u8>>>) {
    let body = move || {
        let mut buffer = [0; 1024];
        while let Ok(n) = stderr.read(&mut buffer) {
            if n == 0 {
                return;
            }
            let mut end = lock(&end);
            end.extend(&buffer[..n]);
            let surplus = end.len().saturating_sub(STDERR);
            end.drain(..surplus);
        }
    };
    drop(spawn("warptop-stderr", body));
}

/// Whether a line says what happened. A note says how to learn more, a backtrace where it happened.
fn tells(line: &str) -> bool {
    let is_frame = line.starts_with("at ")
        || line.split_once(": ").is_some_and(|(place, _)| place.parse::<u32>().is_ok())
        || line == "stack backtrace:";
    !(line.is_empty() || line.starts_with("note:") || is_frame)
}

/// How it ended, in words, with the last line it wrote to standard error.
fn how(status: &io::Result<ExitStatus>, stderr: &[u8]) -> String {
    let mut words = match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "ended in an unknown way".to_owned(),
        },
        Err(error) => format!("not known how: {error}"),
    };
    let stderr = String::from_utf8_lossy(stderr);
    if let Some(last) = stderr.lines().rev().map(text::clean).find(|line| tells(line)) {
        words.push_str(": ");
        words.push_str(&last);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::protocol::tests::request;

    #[test]
    fn the_last_line_that_tells_something_is_the_reason() {
        let aborted = Ok(ExitStatus::from_raw(6));
        let stderr = b"hello\nmemory allocation of 1073741824 bytes failed\nnote: run with `RUST_BACKTRACE=1`\n\n";
        assert_eq!(how(&aborted, stderr), "killed by signal 6: memory allocation of 1073741824 bytes failed");
        let traced =
            b"memory allocation of 7 bytes failed\nstack backtrace:\n   0:     0x1 - f\n             at /x/y.rs:1:2\n";
        assert_eq!(how(&aborted, traced), "killed by signal 6: memory allocation of 7 bytes failed");
        assert_eq!(how(&aborted, b"note: only this\n"), "killed by signal 6");
    }

    #[test]
    fn multicast_of_nvlink_switches_stays_off_unless_somebody_set_it() {
        let request = request("p2p");
        let command = command(Path::new("warptop"), &request);
        let given = command.get_envs().find(|(name, _)| *name == NVLS).and_then(|(_, value)| value);
        let right = std::env::var_os(NVLS).is_none().then_some(std::ffi::OsStr::new("0"));
        assert_eq!(given, right);
    }
}
