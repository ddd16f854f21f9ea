//! Where reports, baselines and the lock are kept: `$XDG_STATE_HOME/warptop/probes`.
//!
//! It must not know what is in a report beyond its names. Invariants: a report is written once, whole or
//! not at all; one run at a time for each user, held by a lock that the system gives back however its holder
//! ends; nothing is created before there is something to keep; every file of it goes through `state`.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::text::clean_to;
use crate::state::{self, StateFolder};

use super::page::page;
use super::report::{Report, SCHEMA};
use super::spec::{Params, Target};

/// Largest report that is read, bytes.
const MAX_REPORT: u64 = 16 << 20;
/// Reports that are looked at, the newest.
const MAX_LISTED: usize = 1_000;
/// Who has the lock.
const HOLDER: &str = "holder.json";
/// Longest text of a file, in characters.
const MAX_TEXT: usize = 4_096;
/// Longest name of a run.
const MAX_NAME: usize = 100;

/// Something could not be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// Neither variable says where.
    #[error("there is no place for reports: set HOME or XDG_STATE_HOME")]
    NoPlace,
    /// Others could have prepared it.
    #[error("reports are neither kept nor read: {0}")]
    Refused(io::Error),
    /// Writing failed.
    #[error("the report could not be kept in '{0}': {1}")]
    Write(PathBuf, io::Error),
    /// Writing a baseline failed.
    #[error("no baseline could be kept in '{0}': {1}")]
    Baseline(PathBuf, io::Error),
    /// The lock cannot be had.
    #[error("nothing keeps two probes apart, '{0}' cannot be locked: {1}")]
    Lock(PathBuf, io::Error),
    /// The run has its report.
    #[error("'{0}' is there already: a report is written once")]
    Exists(PathBuf),
    /// Reading failed.
    #[error("'{0}' cannot be read: {1}")]
    Read(PathBuf, io::Error),
    /// It is something else.
    #[error("'{0}' is no report of a probe ({SCHEMA}): {1}")]
    NoReport(PathBuf, String),
    /// There is no such run.
    #[error("there is no run '{0}'; `warptop probe list` shows those there are")]
    NoRun(String),
}

/// The directory that reports live in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    root: PathBuf,
    /// How many of the last parts of its path are this program's.
    own: usize,
}

/// What the holder of the lock says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The run.
    pub run: String,
    /// The probe.
    pub probe: String,
    /// What it is aimed at.
    pub target: Target,
    /// Its parameters.
    pub params: Params,
    /// Share of time that it may keep the target busy, %, where that was chosen.
    #[serde(default)]
    pub duty: Option<u8>,
    /// Process id of the parent.
    pub pid: u32,
}

/// The lock, as long as this lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Who may run.
#[derive(Debug)]
pub enum Locked {
    /// We.
    Ours(Lock),
    /// Somebody else, who may not have said who it is.
    Theirs(Option<Holder>),
}

impl Files {
    /// The user's directory, from the environment.
    ///
    /// # Errors
    /// When neither `XDG_STATE_HOME` nor `HOME` is an absolute path.
    pub fn find(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, FilesError> {
        let root = state::home(variable).ok_or(FilesError::NoPlace)?.join("probes");
        Ok(Self { root, own: 2 })
    }

    /// This directory.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), own: 1 }
    }

    /// The same, unless others could have put something in its way.
    ///
    /// # Errors
    /// What is wrong with it. One that is not there yet is fine.
    pub fn checked(self) -> Result<Self, FilesError> {
        match self.folder(false) {
            Err(error) if state::is_refusal(&error) => Err(FilesError::Refused(error)),
            _ => Ok(self),
        }
    }

    fn folder(&self, make: bool) -> io::Result<StateFolder> {
        StateFolder::open(&self.root, self.own, make)
    }

    fn inside(&self, name: &str, make: bool) -> io::Result<StateFolder> {
        self.folder(make)?.inside(name, make)
    }

    /// Keeps a report and its page; says where.
    ///
    /// # Errors
    /// When there is one already, or the disk does not take it.
    pub fn keep(&self, report: &Report) -> Result<PathBuf, FilesError> {
        let path = self.root.join("reports").join(format!("{}.json", safe(&report.run)));
        let failed = |error: io::Error| FilesError::Write(path.clone(), error);
        let folder = self.inside("reports", true).map_err(failed)?;
        let json = serde_json::to_vec_pretty(report).map_err(|error| failed(error.into()))?;
        folder.write_once(&format!("{}.json", safe(&report.run)), &json).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => FilesError::Exists(path.clone()),
            _ => failed(error),
        })?;
        // The page can be made again from the report at any time.
        drop(folder.write_once(&format!("{}.md", safe(&report.run)), page(report).as_bytes()));
        Ok(path)
    }

    /// A report by the name of its run, or by its path.
    ///
    /// # Errors
    /// When there is none or it cannot be read.
    pub fn load(&self, name: &str) -> Result<Report, FilesError> {
        if let Some(path) = path_of(name) {
            return Self::load_path(path);
        }
        let name_of_file = format!("{}.json", safe(name));
        let path = self.root.join("reports").join(&name_of_file);
        let folder = self.inside("reports", false);
        match folder.and_then(|folder| folder.read(&name_of_file, MAX_REPORT)) {
            Ok(bytes) => report_of(&path, &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(FilesError::NoRun(name.to_owned())),
            Err(error) => Err(FilesError::Read(path, error)),
        }
    }

    /// A report in a file that the user named: it may lie anywhere.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load_path(path: &Path) -> Result<Report, FilesError> {
        let failed = |error| FilesError::Read(path.to_owned(), error);
        let mut bytes = Vec::new();
        open_regular(path).map_err(failed)?.take(MAX_REPORT).read_to_end(&mut bytes).map_err(failed)?;
        report_of(path, &bytes)
    }

    /// The folder of reports, and the names in it that may be of reports and fit, the newest first.
    fn reports(&self, fits: impl Fn(&str) -> bool) -> Option<(StateFolder, Vec<String>)> {
        let folder = self.inside("reports", false).ok()?;
        let mut names = folder.names().ok()?;
        names.retain(|name| is_report(name) && fits(name));
        // Names of runs rise with time.
        names.sort_unstable_by(|a, b| b.cmp(a));
        Some((folder, names))
    }

    /// Every report, the newest first, and how many files were none.
    pub fn list(&self) -> (Vec<Report>, usize) {
        let (mut reports, mut broken) = (Vec::new(), 0);
        if let Some((folder, names)) = self.reports(|_| true) {
            for name in names.iter().take(MAX_LISTED) {
                match read(&folder, name) {
                    Ok(report) => reports.push(report),
                    Err(_) => broken += 1,
                }
            }
        }
        reports.sort_by_key(|report| std::cmp::Reverse(report.started_unix_ms));
        (reports, broken)
    }

    /// The newest reports of a probe, at most `most`.
    pub fn newest(&self, probe: &str, most: usize) -> Vec<Report> {
        self.of_probe(probe).take(most).collect()
    }

    /// The reports of a probe, found by their names and read one by one, the newest first.
    pub fn of_probe<'a>(&self, probe: &'a str) -> impl Iterator<Item = Report> + use<'a> {
        let part = format!("-{}-", safe(probe));
        let found = self.reports(|name| name.contains(&part)).into_iter();
        let read_each = |(folder, names): (StateFolder, Vec<String>)| {
            names.into_iter().filter_map(move |name| read(&folder, &name).ok())
        };
        found.flat_map(read_each).filter(move |report| report.probe == probe)
    }

    fn baseline_name(probe: &str, target: &Target, inputs: &Params, bound: Option<&str>) -> String {
        // Other inputs or fewer CPUs, other figures: each set of them has its own.
        let mut sum = flate2::Crc::new();
        for (name, value) in inputs.iter() {
            sum.update(format!("{name}={value};").as_bytes());
        }
        if let Some(bound) = bound {
            sum.update(format!("bound={bound};").as_bytes());
        }
        format!("{}-{}-{:08x}.json", safe(probe), target.key(), sum.sum())
    }

    /// What runs of this probe with these inputs on this target, or on the part of it that they are bound to, are held
    /// against, if there is anything yet.
    pub fn baseline(&self, probe: &str, target: &Target, inputs: &Params, bound: Option<&str>) -> Option<Report> {
        let name = Self::baseline_name(probe, target, inputs, bound);
        // One of an older version may be of a part without its name saying so.
        let folder = self.inside("baseline", false).ok()?;
        read(&folder, &name).ok().filter(|report| report.bound() == bound)
    }

    /// Makes a report what later ones are held against, in place of any that was before.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn keep_baseline(&self, report: &Report) -> Result<(), FilesError> {
        let name = Self::baseline_name(&report.probe, &report.target, &report.inputs, report.bound());
        let failed = |error: io::Error| FilesError::Baseline(self.root.join("baseline").join(&name), error);
        let folder = self.inside("baseline", true).map_err(failed)?;
        let json = serde_json::to_vec_pretty(report).map_err(|error| failed(error.into()))?;
        folder.replace(&name, &json).map_err(failed)
    }

    /// Who has the machine, without touching the lock: a look must not get in the way of a run.
    pub fn holder(&self) -> Option<Holder> {
        let folder = self.folder(false).ok()?;
        let inode = folder.stat("lock").ok()?.st_ino;
        let locks = fs::read_to_string("/proc/locks").ok()?;
        // "3: FLOCK  ADVISORY  WRITE 812 08:01:4711 0 EOF"
        let file = format!(":{inode} ");
        locks.lines().find(|line| line.contains(" FLOCK ") && line.contains(&file))?;
        holder_in(&folder)
    }

    /// Takes the machine for a run, or says who has it. Waits for nobody.
    ///
    /// # Errors
    /// When the lock cannot be made.
    pub fn lock(&self, holder: &Holder) -> Result<Locked, FilesError> {
        let path = self.root.join("lock");
        let failed = |error| FilesError::Lock(path.clone(), error);
        let folder = self.folder(true).map_err(failed)?;
        let file = folder.open_or_make("lock", false).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Locked::Theirs(holder_in(&folder))),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // Who it is helps others; that it is held is what counts. A full disk is no reason not to run.
        let said = serde_json::to_vec(holder).map_err(io::Error::from);
        drop(said.and_then(|text| folder.replace(HOLDER, &text)));
        Ok(Locked::Ours(Lock { _file: file }))
    }
}

/// Letters, digits, `-`, `_`, `.` of a name, so that it stays inside its folder.
fn safe(name: &str) -> String {
    let kept = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    kept.take(MAX_NAME).collect::<String>().trim_start_matches('.').to_owned()
}

fn is_report(name: &str) -> bool {
    !name.starts_with('.') && Path::new(name).extension().is_some_and(|ending| ending == "json")
}

/// What the one who has the machine says of itself.
fn holder_in(folder: &StateFolder) -> Option<Holder> {
    parse(&folder.read(HOLDER, MAX_REPORT).ok()?).ok()
}

/// The path that is meant, where a name is one and not that of a run.
pub fn path_of(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    let is_path = name.contains('/') || path.extension().is_some_and(|ending| ending == "json") && path.exists();
    is_path.then_some(path)
}

/// Opens a file to read. Whatever else has its name is an error: a pipe would keep its reader waiting.
fn open_regular(path: &Path) -> io::Result<File> {
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
    if !fs::metadata(path)?.is_file() {
        return Err(other());
    }
    // It may have become one since.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

fn read(folder: &StateFolder, name: &str) -> Result<Report, FilesError> {
    let path = folder.path().join(name);
    let bytes = folder.read(name, MAX_REPORT).map_err(|error| FilesError::Read(path.clone(), error))?;
    report_of(&path, &bytes)
}

fn report_of(path: &Path, bytes: &[u8]) -> Result<Report, FilesError> {
    let report: Report =
        parse(bytes).map_err(|error| FilesError::NoReport(path.to_owned(), clean_to(&error.to_string(), MAX_TEXT)))?;
    if report.schema == SCHEMA {
        Ok(report)
    } else {
        Err(FilesError::NoReport(path.to_owned(), format!("its schema is '{}'", report.schema)))
    }
}

/// What a file says, with every text in it safe to show: it may come from another machine.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_value(cleaned(serde_json::from_slice(bytes)?))
}

fn cleaned(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(clean_to(&text, MAX_TEXT)),
        Value::Array(values) => values.into_iter().map(cleaned).collect(),
        Value::Object(map) => {
            map.into_iter().map(|(name, value)| (clean_to(&name, MAX_TEXT), cleaned(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::probe::report::tests::report;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn holder(run: &str) -> Holder {
        Holder {
            run: run.to_owned(),
            probe: "hbm".to_owned(),
            target: Target::default(),
            params: Params::default(),
            duty: None,
            pid: std::process::id(),
        }
    }

    #[test]
    fn the_place_follows_the_environment() {
        let find = |pairs: &'static [(&str, &str)]| {
            let value = move |name: &str| pairs.iter().find(|p| p.0 == name).map(|p| p.1.into());
            Files::find(value).map(|files| files.root).map_err(|error| error.to_string())
        };
        assert_eq!(find(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), Ok("/s/warptop/probes".into()));
        assert_eq!(
            find(&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]),
            Ok("/h/.local/state/warptop/probes".into())
        );
        assert!(find(&[]).unwrap_err().contains("XDG_STATE_HOME"));
    }

    #[test]
    fn a_report_is_written_once_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::at(&folder.path().join("a/b"));
        assert_eq!(files.list(), (Vec::new(), 0));
        assert!(!folder.path().join("a").exists(), "looking creates nothing");
        let first = report("20261129-1", 4000.0);
        let path = files.keep(&first).unwrap();
        assert!(matches!(files.keep(&report("20261129-1", 1.0)), Err(FilesError::Exists(_))));
        files.keep(&Report { started_unix_ms: first.started_unix_ms + 1, ..report("20261129-2", 3000.0) }).unwrap();
        assert_eq!(files.load("20261129-1").unwrap(), first);
        assert_eq!(files.load(path.to_str().unwrap()).unwrap(), first);
        assert_eq!(
            names(&folder.path().join("a/b/reports")),
            ["20261129-1.json", "20261129-1.md", "20261129-2.json", "20261129-2.md"]
        );
        fs::write(folder.path().join("a/b/reports/zzz.json"), "{\"schema\":").unwrap();
        fs::write(folder.path().join("a/b/reports/.half.tmp"), "{").unwrap();
        let (reports, broken) = files.list();
        let runs: Vec<_> = reports.iter().map(|report| report.run.as_str()).collect();
        assert_eq!((runs, broken), (vec!["20261129-2", "20261129-1"], 1));
        assert!(matches!(files.load("20261129-3"), Err(FilesError::NoRun(_))));
        assert!(matches!(files.load("../../../etc/passwd"), Err(FilesError::Read(..) | FilesError::NoReport(..))));
    }

    /// Fault: disk: a file or a link where the folder of reports has to be
    /// Seen: `could not be kept in`, `no baseline could be kept in`, `cannot be locked`
    /// Works: the run and its result
    /// Recovers: once the way is free
    #[test]
    fn a_disk_that_takes_nothing_is_said_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        // A file where the folder has to be: that holds for every user, also for root.
        fs::write(folder.path().join("reports"), "").unwrap();
        let error = Files::at(folder.path()).keep(&report("a", 1.0)).unwrap_err().to_string();
        assert!(error.contains("could not be kept in"), "{error}");
        // A link to nothing where the state lives.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/nowhere/at/all", &link).unwrap();
        let files = Files::at(&link);
        let error = files.keep(&report("a", 1.0)).unwrap_err().to_string();
        assert!(error.contains("could not be kept in") && error.contains("is a link"), "{error}");
        let error = files.keep_baseline(&report("a", 1.0)).unwrap_err().to_string();
        assert!(error.contains("no baseline could be kept in"), "{error}");
        let error = files.lock(&holder("a")).unwrap_err().to_string();
        assert!(error.contains("cannot be locked"), "{error}");
    }

    #[test]
    fn no_text_of_a_file_reaches_the_terminal_as_more_than_text() {
        const EVIL: &str = "a\u{1b}]0;x\u{7}\u{1b}[31m\u{9b}1m\u{202e}\r\nb|c";
        fn soil(value: &mut Value) {
            match value {
                Value::String(text) if text != SCHEMA => text.push_str(EVIL),
                Value::Array(values) => values.iter_mut().for_each(soil),
                Value::Object(map) => map.values_mut().for_each(soil),
                _ => {}
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let mut report = report("a", 4000.0);
        report.environment.facts.insert(EVIL.to_owned(), String::new());
        report.moments.insert(EVIL.to_owned(), 1.0);
        report.notes.push(String::new());
        let mut value = serde_json::to_value(&report).unwrap();
        let (mut kept, path) = (value.clone(), folder.path().join("x.json"));
        soil(&mut value);
        // Words of the format have to stay what they are.
        value["ending"] = kept["ending"].take();
        value["verdict"]["level"] = kept["verdict"]["level"].take();
        for word in ["better", "reference_bearing"] {
            value["results"][0][word] = kept["results"][0][word].take();
        }
        fs::write(&path, value.to_string()).unwrap();
        let loaded = Files::load_path(&path).unwrap();
        let json = serde_json::to_value(&loaded).unwrap().to_string();
        let shown = [page(&loaded), super::super::page::compare(&loaded, &loaded).unwrap()];
        for text in shown.iter().map(String::as_str).chain([json.as_str()]) {
            let bad = text.chars().find(|&c| (c.is_control() && c != '\n') || c == '\u{202e}');
            assert!(bad.is_none() && text.contains("a b"), "{bad:?} in {text}");
        }
        assert!(loaded.environment.facts.contains_key("a b|c") && loaded.probe == "hbma b|c", "{:?}", loaded.probe);
        for table in shown.iter().flat_map(|text| text.split("\n\n")).filter(|part| part.starts_with('|')) {
            let columns = |line: &str| line.replace("\\|", "").matches('|').count();
            let first = columns(table.lines().next().unwrap());
            assert!(table.lines().all(|line| columns(line) == first), "{table}");
        }
        // Who holds the lock says so in a file as well.
        let holder: Holder =
            parse(&serde_json::to_vec(&Holder { probe: EVIL.to_owned(), ..holder("a") }).unwrap()).unwrap();
        assert_eq!(holder.probe, "a b|c");
    }

    /// Fault: disk: a pipe where a report or the holder of the lock is read
    /// Seen: that file among those that are no reports
    /// Works: every other report, and the next run
    /// Recovers: once the pipe is removed
    #[test]
    fn what_is_no_regular_file_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::at(folder.path());
        files.keep(&report("20261129-1-hbm-1", 4000.0)).unwrap();
        let pipe = |name: &str| {
            let path = folder.path().join(name);
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            path
        };
        let path = pipe("reports/20261130-1-hbm-1.json");
        // Somebody has the machine, and what should say who is a pipe as well.
        let _lock = files.lock(&holder("a")).unwrap();
        fs::remove_file(folder.path().join(HOLDER)).unwrap();
        pipe(HOLDER);
        let (to, done) = std::sync::mpsc::channel();
        // On a thread: what hangs is to fail and not to hang the test.
        std::thread::spawn(move || {
            let newest = files.newest("hbm", 2).len();
            let is_error = files.load(path.to_str().unwrap()).is_err();
            let _ = to.send((files.list().1, newest, is_error, files.holder()));
        });
        assert_eq!(done.recv_timeout(Duration::from_secs(20)), Ok((1, 1, true, None)));
    }

    #[test]
    fn the_lock_is_held_by_one_and_says_by_whom() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::at(folder.path());
        let Locked::Ours(lock) = files.lock(&holder("a")).unwrap() else { panic!() };
        let Locked::Theirs(Some(there)) = files.lock(&holder("b")).unwrap() else { panic!() };
        assert_eq!(there, holder("a"));
        assert_eq!(files.holder(), Some(there), "seen without asking for it");
        drop(lock);
        assert_eq!(files.holder(), None);
        assert!(matches!(files.lock(&holder("b")).unwrap(), Locked::Ours(_)));
        assert!(matches!(files.lock(&holder("c")).unwrap(), Locked::Ours(_)), "the one before is over");
    }

    #[test]
    fn a_baseline_is_of_one_probe_on_one_target() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::at(folder.path());
        let report = report("a", 4000.0);
        assert_eq!(files.baseline("hbm", &report.target, &report.inputs, None), None);
        files.keep_baseline(&report).unwrap();
        files.keep_baseline(&Report { run: "b".to_owned(), ..report.clone() }).unwrap();
        assert_eq!(
            files.baseline("hbm", &report.target, &report.inputs, None).map(|report| report.run),
            Some("b".to_owned())
        );
        assert_eq!(files.baseline("hbm", &Target::default(), &report.inputs, None), None);
        assert_eq!(files.baseline("pcie", &report.target, &report.inputs, None), None);
        let mut others = report.inputs.clone();
        others.put("mib", crate::probe::Value::Number(1.0));
        assert_eq!(files.baseline("hbm", &report.target, &others, None), None, "other inputs");
        let mut part = report.clone();
        let words = "1 of 4 CPUs of node 0";
        let bound = Some(words);
        part.environment.bound_to = Some(words.to_owned());
        assert_eq!(files.baseline("hbm", &report.target, &report.inputs, bound), None, "a part is not the whole");
        files.keep_baseline(&Report { run: "c".to_owned(), ..part }).unwrap();
        let run = |bound| files.baseline("hbm", &report.target, &report.inputs, bound).map(|report| report.run);
        assert_eq!([run(bound), run(None)], [Some("c".to_owned()), Some("b".to_owned())]);
        assert_eq!(run(Some("2 of 4 CPUs of node 0")), None);
    }
}
