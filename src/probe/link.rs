//! The child's side: what a probe may say, and when it must stop.
//!
//! Owns the process it runs in: it dies with its parent, it ends when told to, and it says all it has to
//! say as lines of [`Message`]. It must not know what is measured. Invariants: every word of a probe is
//! also a question whether to go on; a child that is told to stop and does not is ended from within.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::model::{Clock, SystemClock, spawn, text};
use crate::net::sealed::{MAX_SEALED, Sealed};

use super::protocol::{Failure, MAX_SAMPLES_SAID, Message, Outcome, Request, SAMPLES_EVERY_US, Sample, VERSION};
use super::spec::Target;

/// How long a probe may take to see that it shall stop before its process ends anyway.
const STOP_WITHIN: Duration = Duration::from_millis(250);
/// Least time between two words about how far it is, µs.
const PROGRESS_EVERY_US: u64 = 100_000;
/// Exit code of a child that was told to stop, or whose parent is gone.
const LEFT: i32 = 3;

/// What a probe is given to speak through.
pub struct Link {
    request: Request,
    clock: Arc<dyn Clock>,
    stop: Arc<AtomicBool>,
    out: Box<dyn io::Write + Send>,
    said: Option<u64>,
    /// Since when measurements are counted, µs, and how many were said since.
    samples: (u64, u32),
    /// Measurements that were not said, nor that they were not.
    left_out: u64,
    /// What the parent sealed for it.
    sealed: Option<Sealed>,
}

impl Link {
    /// A link that speaks into `out`, for a child and for tests of probes.
    pub fn new(request: Request, clock: Arc<dyn Clock>, stop: Arc<AtomicBool>, out: Box<dyn io::Write + Send>) -> Self {
        Self { request, clock, stop, out, said: None, samples: (0, 0), left_out: 0, sealed: None }
    }

    /// What it is aimed at. One GPU: the only one that CUDA shows here, as its device 0.
    pub const fn target(&self) -> &Target {
        &self.request.target
    }

    /// What opens its endpoint; given once.
    pub const fn take_sealed(&mut self) -> Option<Sealed> {
        self.sealed.take()
    }

    /// Is set when it shall stop, for work on another thread; a probe that loses its parent sets it itself.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Device memory it may take on each GPU, context included, bytes.
    pub const fn most_bytes(&self) -> u64 {
        self.request.most_bytes
    }

    /// Share of time it may keep the target busy, 0 to 1. Kernels stay at 5 ms or less in any case.
    pub fn duty(&self) -> f64 {
        f64::from(self.request.duty_pct.clamp(1, 100)) / 100.0
    }

    /// Microseconds of a monotonic clock.
    pub fn micros(&self) -> u64 {
        self.clock.micros()
    }

    /// The clock of [`Self::micros`], for a pass that is timed by itself.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// From here on what a library writes to standard output goes to standard error: it is the link's alone, and some
    /// libraries greet there.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn let_libraries_print() -> Result<(), Failure> {
        rustix::stdio::dup2_stdout(io::stderr())
            .map_err(|error| Failure::Failed(format!("standard output cannot be kept free: {error}")))
    }

    /// Goes on unless it shall stop.
    ///
    /// # Errors
    /// [`Failure::Stopped`], to be handed on with `?`.
    pub fn check(&self) -> Result<(), Failure> {
        if self.stop.load(Ordering::Acquire) { Err(Failure::Stopped) } else { Ok(()) }
    }

    /// Says how far it is: the share that is done (0 to 1), the time left in s where that can be told, and
    /// what it is doing. May be called as often as one likes; only a few words a second go out.
    ///
    /// # Errors
    /// [`Failure::Stopped`], to be handed on with `?`.
    pub fn progress(&mut self, done: f64, eta_s: Option<f64>, what: &str) -> Result<(), Failure> {
        self.check()?;
        let now = self.clock.micros();
        if self.said.is_some_and(|said| now.saturating_sub(said) < PROGRESS_EVERY_US) {
            return Ok(());
        }
        self.said = Some(now);
        let done = if done.is_finite() { done.clamp(0.0, 1.0) } else { 0.0 };
        let eta_s = eta_s.filter(|eta| eta.is_finite());
        self.say(&Message::Progress { done, eta_s, what: what.to_owned() })
    }

    /// Says one measurement; of more than the parent takes only how many there were.
    ///
    /// # Errors
    /// When it is no number, or to stop.
    pub fn sample(&mut self, series: &str, unit: &str, value: f64) -> Result<(), Failure> {
        self.check()?;
        if !value.is_finite() {
            return Err(Failure::Failed(format!("a measurement of {series} is no number")));
        }
        let now = self.clock.micros();
        if now.saturating_sub(self.samples.0) >= SAMPLES_EVERY_US {
            self.samples = (now, 0);
            self.say_left_out()?;
        }
        if self.samples.1 >= MAX_SAMPLES_SAID {
            self.left_out += 1;
            return Ok(());
        }
        self.samples.1 += 1;
        self.say(&Message::Sample(Sample { series: series.to_owned(), unit: unit.to_owned(), value }))
    }

    fn say_left_out(&mut self) -> Result<(), Failure> {
        match std::mem::take(&mut self.left_out) {
            0 => Ok(()),
            samples => self.say(&Message::LeftOut { samples }),
        }
    }

    /// The last words.
    fn end(&mut self, last: &Message) -> Result<(), Failure> {
        self.say_left_out()?;
        self.say(last)
    }

    /// Rests after `busy_us` of work, so that the duty cycle is kept: not at all when the target is its own.
    ///
    /// # Errors
    /// [`Failure::Stopped`], to be handed on with `?`.
    pub fn rest(&self, busy_us: u64) -> Result<(), Failure> {
        let mut left = (busy_us as f64 * (1.0 / self.duty() - 1.0)) as u64;
        while left > 0 {
            self.check()?;
            let nap = left.min(20_000);
            std::thread::sleep(Duration::from_micros(nap));
            left -= nap;
        }
        self.check()
    }

    /// Writes a line. When nobody reads any more, there is nobody to measure for.
    pub(super) fn say(&mut self, message: &Message) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(message).map_err(|error| Failure::Failed(error.to_string()))?;
        line.push(b'\n');
        self.out.write_all(&line).and_then(|()| self.out.flush()).map_err(|_| Failure::Stopped)
    }
}

/// Runs the probe that `request` names, as the child that this process is. Returns its exit code.
pub fn run_as_child(request: &str) -> u8 {
    let Ok(request) = serde_json::from_str::<Request>(request) else { return 2 };
    if !die_with(request.parent) {
        return LEFT as u8;
    }
    end_after(request.most_ms);
    // Before anything listens to the same input.
    let sealed = unseal(&request);
    let stop = Arc::new(AtomicBool::new(false));
    obey(&stop);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    // A handle of its own, so that libraries can be kept from writing to it.
    let Ok(out) = io::stdout().as_fd().try_clone_to_owned() else { return 2 };
    let mut link = Link::new(request, clock, stop, Box::new(File::from(out)));
    let last = match attempt(&mut link, sealed) {
        Ok(outcome) => Message::Result(outcome),
        Err(failure) => Message::Error(failure),
    };
    let code = u8::from(matches!(last, Message::Error(_)));
    drop(link.end(&last));
    code
}

fn attempt(link: &mut Link, sealed: io::Result<Option<Sealed>>) -> Result<Outcome, Failure> {
    let run = link.request.run.clone();
    link.say(&Message::Hello { version: VERSION, run })?;
    link.sealed = sealed.map_err(|error| {
        Failure::Failed(format!(
            "what opens the endpoint did not come ({}): run it again",
            text::clean(&error.to_string())
        ))
    })?;
    let Some(probe) = super::find(&link.request.probe) else {
        return Err(Failure::Failed(format!("this program has no probe '{}'", text::clean(&link.request.probe))));
    };
    let params = link.request.params.clone();
    if !params.fit(&probe.spec) {
        return Err(Failure::Failed("its parameters are not within their bounds".to_owned()));
    }
    // Libraries that are loaded at run time panic when they are not there.
    catch_unwind(AssertUnwindSafe(|| (probe.run)(link, &params))).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("for an unknown reason");
        Err(broke_off(&text::clean(words)))
    })
}

/// What a panic comes to. That a library has not a function that is called is one.
fn broke_off(words: &str) -> Failure {
    match words.strip_prefix("Missing symbol ").and_then(|words| words.split_once(':')) {
        Some((function, _)) => Failure::Unavailable(format!(
            "the library on this machine has no {function}: it is older than what the probe needs; update the GPU driver, \
             or what else brought the library"
        )),
        None => Failure::Failed(format!("the probe broke off: {words}")),
    }
}

/// Has the system kill this process when its parent ends, however that ends. Returns whether the parent
/// is still there: it may have gone before the system knew.
pub fn die_with(parent: u32) -> bool {
    let asked = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let is_there = rustix::process::getppid().is_some_and(|pid| pid.as_raw_nonzero().get().unsigned_abs() == parent);
    asked.is_ok() && is_there
}

/// Ends this process when its time is over: its parent may stand still, and would not see to it.
fn end_after(ms: u64) {
    /// The parent comes first, and has the words for it.
    const LATER_MS: u64 = 5_000;
    let body = move || {
        std::thread::sleep(Duration::from_millis(ms.saturating_add(LATER_MS)));
        std::process::exit(LEFT);
    };
    drop(spawn("warptop-limit", body));
}

/// Reads what the parent sealed, if it did: the first line of the input.
fn unseal(request: &Request) -> io::Result<Option<Sealed>> {
    if !request.sealed {
        return Ok(None);
    }
    let mut line = String::new();
    io::stdin().lock().take(MAX_SEALED as u64).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(Some(Sealed::of(line.to_owned()))),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Listens for the one word that a child is told: any byte, or the end of its input, means stop.
fn obey(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    let body = move || {
        let mut byte = [0];
        while io::stdin().read(&mut byte).is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
        stop.store(true, Ordering::Release);
        // A kernel that runs, or a call that hangs, does not hear it.
        std::thread::sleep(STOP_WITHIN);
        std::process::exit(LEFT);
    };
    // Without a thread to listen the parent's kill is what ends it.
    drop(spawn("warptop-obey", body));
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::model::Time;
    use crate::probe::protocol::Intake;
    use crate::probe::protocol::tests::request;

    #[derive(Default)]
    struct Hands(AtomicU64);

    impl Clock for Hands {
        fn now(&self) -> Time {
            Time(self.micros() / 1_000)
        }
        fn micros(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_opens_the_endpoint_and_did_not_come_is_told() {
        let said = Said::default();
        let clock: Arc<dyn Clock> = Arc::new(Hands::default());
        let mut link = Link::new(request("sweep"), clock, Arc::default(), Box::new(said.clone()));
        let failure = attempt(&mut link, Err(io::ErrorKind::UnexpectedEof.into())).unwrap_err();
        assert!(matches!(&failure, Failure::Failed(why) if why.starts_with("what opens the endpoint")), "{failure:?}");
        assert!(!said.0.lock().unwrap().is_empty(), "its name came first");
    }

    #[test]
    fn however_fast_a_probe_measures_it_keeps_the_rules_and_every_measurement_counts() {
        // 240 µs: as long as 200 000 loads of the first level of cache take. And some faster ones.
        for every_us in [10_000, 1_000, 240, 20] {
            let (hands, said) = (Arc::new(Hands::default()), Said::default());
            let request = request("hostmem");
            let clock: Arc<dyn Clock> = hands.clone();
            let mut link = Link::new(request, clock, Arc::default(), Box::new(said.clone()));
            link.say(&Message::Hello { version: VERSION, run: "r".to_owned() }).unwrap();
            let (mut intake, mut heard, mut left_out) = (Intake::new("r".to_owned()), 0, 0);
            let mut listen = |at| {
                let bytes = std::mem::take(&mut *said.0.lock().unwrap());
                intake.take(at, &bytes, |message| match message {
                    Message::Sample(_) => heard += 1,
                    Message::LeftOut { samples } => left_out += samples,
                    _ => {}
                })
            };
            let made = 5_000_000 / every_us;
            for i in 0..made {
                let at = hands.0.fetch_add(every_us, Ordering::Relaxed) + every_us;
                link.progress(0.5, None, "").unwrap();
                link.sample("rate", "GB/s", 1.0).unwrap();
                // A parent that hears only now and then hears much at once.
                if i % 1_000 == 0 {
                    listen(at).unwrap();
                }
            }
            link.end(&Message::Result(Outcome::default())).unwrap();
            listen(5_000_001).unwrap();
            assert_eq!(heard + left_out, made, "a measurement each {every_us} µs");
            assert_eq!(left_out == 0, every_us > 1_250, "{left_out} left out, one each {every_us} µs");
        }
    }
}
