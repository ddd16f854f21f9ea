//! Where reports, baselines and the lock are kept: `$XDG_STATE_HOME/warptop/probes`.
//!
//! It must not know what is in a report beyond its names. Invariants: a report is written once, whole or
//! not at all (a temporary file, synced, then linked to its name); one run at a time for each user, held by
//! a lock that the system gives back however its holder ends; nothing is created before there is something
//! to keep.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::text::clean_to;

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
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        Ok(Self::at(&state.ok_or(FilesError::NoPlace)?.join("warptop/probes")))
    }

    /// This directory.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.root.join(name);
        match fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
            // A file, or a link to nothing: that it is there is not what is wrong with it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(io::ErrorKind::NotADirectory.into()),
            made => made.map(|()| folder),
        }
    }

    /// Keeps a report and its page; says where.
    ///
    /// # Errors
    /// When there is one already, or the disk does not take it.
    pub fn keep(&self, report: &Report) -> Result<PathBuf, FilesError> {
        let path = self.root.join("reports").join(format!("{}.json", safe(&report.run)));
        let failed = |error: io::Error| FilesError::Write(path.clone(), error);
        let folder = self.folder("reports").map_err(failed)?;
        let json = serde_json::to_vec_pretty(report).map_err(|error| failed(error.into()))?;
        write_once(&folder, &format!("{}.json", safe(&report.run)), &json).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => FilesError::Exists(path.clone()),
            _ => failed(error),
        })?;
        // The page can be made again from the report at any time.
        drop(write_once(&folder, &format!("{}.md", safe(&report.run)), page(report).as_bytes()));
        Ok(path)
    }

    /// A report by the name of its run, or by its path.
    ///
    /// # Errors
    /// When there is none or it cannot be read.
    pub fn load(&self, name: &str) -> Result<Report, FilesError> {
        let path = Path::new(name);
        if name.contains('/') || path.extension().is_some_and(|ending| ending == "json") && path.exists() {
            return read(path);
        }
        let path = self.root.join("reports").join(format!("{}.json", safe(name)));
        if path.exists() { read(&path) } else { Err(FilesError::NoRun(name.to_owned())) }
    }

    /// Every report, the newest first, and how many files were none.
    pub fn list(&self) -> (Vec<Report>, usize) {
        let entries = fs::read_dir(self.root.join("reports")).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.path()).filter(|path| is_report(path)).collect();
        // Names of runs rise with time.
        names.sort_unstable_by(|a, b| b.cmp(a));
        names.truncate(MAX_LISTED);
        let (mut reports, mut broken) = (Vec::new(), 0);
        for name in names {
            match read(&name) {
                Ok(report) => reports.push(report),
                Err(_) => broken += 1,
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
        let entries = fs::read_dir(self.root.join("reports")).into_iter().flatten().flatten();
        let part = format!("-{}-", safe(probe));
        let of_probe =
            |path: &PathBuf| is_report(path) && path.file_name().is_some_and(|n| n.to_string_lossy().contains(&part));
        let mut names: Vec<_> = entries.map(|entry| entry.path()).filter(of_probe).collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        names.into_iter().filter_map(|name| read(&name).ok()).filter(move |report| report.probe == probe)
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
        read(&self.root.join("baseline").join(name)).ok().filter(|report| report.bound() == bound)
    }

    /// Makes a report what later ones are held against, in place of any that was before.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn keep_baseline(&self, report: &Report) -> Result<(), FilesError> {
        let name = Self::baseline_name(&report.probe, &report.target, &report.inputs, report.bound());
        let failed = |error: io::Error| FilesError::Baseline(self.root.join("baseline").join(&name), error);
        let folder = self.folder("baseline").map_err(failed)?;
        let json = serde_json::to_vec_pretty(report).map_err(|error| failed(error.into()))?;
        let temporary = write_temporary(&folder, &name, &json).map_err(failed)?;
        fs::rename(&temporary, folder.join(&name)).map_err(failed)
    }

    /// Who has the machine, without touching the lock: a look must not get in the way of a run.
    pub fn holder(&self) -> Option<Holder> {
        let inode = fs::metadata(self.root.join("lock")).ok()?.ino();
        let locks = fs::read_to_string("/proc/locks").ok()?;
        // "3: FLOCK  ADVISORY  WRITE 812 08:01:4711 0 EOF"
        let file = format!(":{inode} ");
        locks.lines().find(|line| line.contains(" FLOCK ") && line.contains(&file))?;
        self.read_holder()
    }

    /// What the one who has the machine says of itself.
    fn read_holder(&self) -> Option<Holder> {
        let mut text = Vec::new();
        open_regular(&self.root.join(HOLDER)).ok()?.take(MAX_REPORT).read_to_end(&mut text).ok()?;
        parse(&text).ok()
    }

    /// Takes the machine for a run, or says who has it. Waits for nobody.
    ///
    /// # Errors
    /// When the lock cannot be made.
    pub fn lock(&self, holder: &Holder) -> Result<Locked, FilesError> {
        let path = self.root.join("lock");
        let failed = |error| FilesError::Lock(path.clone(), error);
        self.folder("").map_err(failed)?;
        let mut open = OpenOptions::new();
        let file = open.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Locked::Theirs(self.read_holder())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // Who it is helps others; that it is held is what counts. A full disk is no reason not to run.
        let said = serde_json::to_vec(holder).map_err(io::Error::from);
        let written = said.and_then(|text| write_temporary(&self.root, HOLDER, &text));
        drop(written.and_then(|temporary| fs::rename(temporary, self.root.join(HOLDER))));
        Ok(Locked::Ours(Lock { _file: file }))
    }
}

/// Letters, digits, `-`, `_`, `.` of a name, so that it stays inside its folder.
fn safe(name: &str) -> String {
    let kept = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    kept.take(MAX_NAME).collect::<String>().trim_start_matches('.').to_owned()
}

fn is_report(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension().is_some_and(|ending| ending == "json")
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

fn read(path: &Path) -> Result<Report, FilesError> {
    let failed = |error| FilesError::Read(path.to_owned(), error);
    let mut bytes = Vec::new();
    open_regular(path).map_err(failed)?.take(MAX_REPORT).read_to_end(&mut bytes).map_err(failed)?;
    let report: Report =
        parse(&bytes).map_err(|error| FilesError::NoReport(path.to_owned(), clean_to(&error.to_string(), MAX_TEXT)))?;
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

/// A file of its own next to where the bytes shall be, on disk for good.
fn write_temporary(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let temporary = folder.join(format!(".{name}.{}.tmp", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()
    })();
    remove_left_overs(folder, &temporary);
    if written.is_err() {
        // What a full disk left of it.
        drop(fs::remove_file(&temporary));
    }
    written.map(|()| temporary)
}

/// Removes the temporary files of processes that were killed before they gave them their name: of this user, and a
/// minute older than `newest`, as the clock of the disk says. A process of another machine may share the folder, but none
/// takes a minute to write.
fn remove_left_overs(folder: &Path, newest: &Path) {
    let Ok(now) = fs::metadata(newest).and_then(|there| there.modified()) else { return };
    let us = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_nobodys = is_temporary(&name.to_string_lossy());
        let is_left = |there: &fs::Metadata| {
            let age = there.modified().ok().and_then(|then| now.duration_since(then).ok());
            there.is_file() && there.uid() == us && age > Some(Duration::from_mins(1))
        };
        if is_nobodys && entry.metadata().is_ok_and(|there| is_left(&there)) {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// Whether it is `.NAME.PID.tmp`, and no process has that number now.
fn is_temporary(name: &str) -> bool {
    let pid =
        name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp")?.rsplit_once('.')?.1.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

/// Writes a new file, whole or not at all; one that is there is left alone.
fn write_once(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(folder, name, bytes)?;
    let target = folder.join(name);
    // A link takes its name only when that is free. Where a file system has no links, a rename must do.
    let linked = match fs::hard_link(&temporary, &target) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !target.exists() => {
            fs::rename(&temporary, &target)
        }
        other => other,
    };
    drop(fs::remove_file(&temporary));
    linked?;
    // The name as well has to reach the disk; not every file system can be asked for that.
    drop(File::open(folder).and_then(|folder| folder.sync_all()));
    Ok(())
}

#[cfg(test)]
mod tests {
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
        assert!(error.contains("could not be kept in") && !error.contains("already"), "{error}");
        let error = files.keep_baseline(&report("a", 1.0)).unwrap_err().to_string();
        assert!(error.contains("no baseline could be kept in"), "{error}");
        let error = files.lock(&holder("a")).unwrap_err().to_string();
        assert!(error.contains("cannot be locked"), "{error}");
        // The system's own full disk, as the temporary file.
        let full = tempfile::tempdir().unwrap();
        let temporary = full.path().join(format!(".x.{}.tmp", std::process::id()));
        std::os::unix::fs::symlink("/dev/full", temporary).unwrap();
        let error = write_once(full.path(), "x", b"data").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(names(full.path()), [""; 0], "neither the file nor its temporary one");
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
        value["results"][0]["better"] = kept["results"][0]["better"].take();
        fs::write(&path, value.to_string()).unwrap();
        let loaded = read(&path).unwrap();
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
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        // No process has so high a number.
        let (dead, alive) = (".a.json.4194305.tmp", format!(".b.json.{}.tmp", std::process::id()));
        let fresh = ".c.json.4194305.tmp";
        for name in [dead, &alive, fresh, ".d.json.tmp", "e.json.4194305.tmp"] {
            let file = File::create(folder.path().join(name)).unwrap();
            if name != fresh {
                let now = file.metadata().unwrap().modified().unwrap();
                file.set_modified(now - Duration::from_mins(2)).unwrap();
            }
        }
        write_once(folder.path(), "x", b"data").unwrap();
        assert_eq!(names(folder.path()), [&alive, fresh, ".d.json.tmp", "e.json.4194305.tmp", "x"]);
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
        part.environment.facts.insert(crate::probe::report::BOUND.to_owned(), words.to_owned());
        assert_eq!(files.baseline("hbm", &report.target, &report.inputs, bound), None, "a part is not the whole");
        files.keep_baseline(&Report { run: "c".to_owned(), ..part }).unwrap();
        let run = |bound| files.baseline("hbm", &report.target, &report.inputs, bound).map(|report| report.run);
        assert_eq!([run(bound), run(None)], [Some("c".to_owned()), Some("b".to_owned())]);
        assert_eq!(run(Some("2 of 4 CPUs of node 0")), None);
    }
}
