//! Files in the state directory, as the program leaves them: whoever prepared it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use warptop::probe::report::Report;

/// A state directory of its own for each test.
struct State(TempDir);

/// Exit code, standard output, standard error.
type Ended = (Option<i32>, String, String);

impl State {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join("warptop").join(below)
    }

    fn run(&self, args: &[&str]) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
        let output = command.args(args).env("XDG_STATE_HOME", self.0.path()).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }
}

/// Runs a probe, lists and shows, with a state directory that cannot be used.
fn all_but_state(state: &State, words: &str) {
    let (code, stdout, stderr) = state.run(&["probe", "fake", "--yes", "--json", "--no-discover"]);
    assert_eq!((code, serde_json::from_str::<Report>(&stdout).unwrap().results.len()), (Some(0), 1), "{stderr}");
    assert!(stderr.contains(words), "{words}: {stderr}");
    let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    fs::write(file.path(), &stdout).unwrap();
    let (code, _, stderr) = state.run(&["probe", "list"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains(words) && stderr.contains("set XDG_STATE_HOME"), "{stderr}");
    let (code, stdout, stderr) = state.run(&["probe", "show", file.path().to_str().unwrap()]);
    assert!(code == Some(0) && stdout.contains("fake"), "a report in a file needs no state: {stderr}");
    assert_eq!(state.run(&["snapshot", "--json", "--no-discover"]).0, Some(0));
}

/// Fault: disk: as root, with a state directory of another user who has planted links
/// Seen: `belongs to user 65534`, and what to do
/// Works: the run and its result; `snapshot`; reports in files
/// Recovers: with a directory of root's own
#[test]
fn another_users_state_directory_gives_nobody_a_way_in() {
    let state = State::new();
    let folder = state.path("probes");
    fs::create_dir_all(&folder).unwrap();
    let victim = tempfile::NamedTempFile::new().unwrap();
    fs::write(victim.path(), "precious").unwrap();
    // The names that the next processes would write to.
    let pid = std::process::id();
    for pid in (1..3_000).map(|next| (pid + next) % 4_194_304) {
        let name = format!(".holder.json.{pid}.tmp");
        std::os::unix::fs::symlink(victim.path(), folder.join(name)).unwrap();
    }
    std::os::unix::fs::symlink(victim.path(), folder.join("lock")).unwrap();
    let give = |path: &Path| std::os::unix::fs::lchown(path, Some(65_534), None).is_ok();
    if give(state.0.path()) && give(&state.path("")) && give(&folder) {
        all_but_state(&state, "belongs to user 65534");
    } else {
        // Who is not root can only make one that anyone may write to.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        all_but_state(&state, "can be written by other users (mode 777)");
    }
    assert_eq!(fs::read_to_string(victim.path()).unwrap(), "precious");
    assert!(!folder.join("reports").exists() && !folder.join("holder.json").exists());
}

const SECRET: &str = "hunter2-hunter2";

/// Records for a moment, with a key in each place that takes one.
fn record(state: &State, more: &[&str]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let (keys, out) = (folder.path().join("keys"), folder.path().join("out"));
    fs::write(&keys, format!("http://127.0.0.1:1 x-key: {SECRET}\n")).unwrap();
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    let engine = format!("http://ann:{SECRET}@127.0.0.1:1/v");
    let args = ["record", "-o", out.to_str().unwrap(), "--duration", "1s", "--no-discover", "--engine", &engine];
    state.run(&[&args[..], &["--engine-auth", keys.to_str().unwrap()], more].concat())
}

#[test]
fn the_log_says_what_happened_and_no_secret() {
    let state = State::new();
    assert_eq!(record(&state, &[]).0, Some(0));
    let path = state.path("warptop.log");
    let log = fs::read_to_string(&path).unwrap();
    let words = ["started as process", "record -o ", "error engine 0: ", "info warptop: ended: recorded 00:00:01"];
    assert!(words.iter().all(|words| log.contains(words)), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (code, help, _) = state.run(&["--help"]);
    assert!(code == Some(0) && help.contains(path.to_str().unwrap()), "{help}");
    assert_eq!(record(&state, &["--no-log"]).0, Some(0));
    assert_eq!(fs::read_to_string(&path).unwrap(), log, "nothing is added");
    // A probe writes into the same file.
    assert_eq!(state.run(&["probe", "fake", "--yes", "--no-discover"]).0, Some(0));
    let log = fs::read_to_string(&path).unwrap();
    assert!(
        log.contains("info probe: fake began on host") && log.contains("info probe: fake ended on host: done"),
        "{log}"
    );
}

/// Fault: disk: a link was planted where the log goes
/// Seen: in the log on the screen, that it is not written to a file, and why
/// Works: everything but the file of the log
/// Recovers: with the next start, once the link is removed
#[test]
fn a_link_in_place_of_the_log_is_not_followed() {
    let state = State::new();
    fs::create_dir_all(state.path("")).unwrap();
    fs::set_permissions(state.path(""), fs::Permissions::from_mode(0o700)).unwrap();
    let victim = state.0.path().join("victim");
    for there in [true, false] {
        if there {
            fs::write(&victim, "precious").unwrap();
        } else {
            fs::remove_file(&victim).unwrap();
        }
        drop(fs::remove_file(state.path("warptop.log")));
        std::os::unix::fs::symlink(&victim, state.path("warptop.log")).unwrap();
        assert_eq!(record(&state, &[]).0, Some(0));
        assert_eq!(fs::read_to_string(&victim).ok().as_deref(), there.then_some("precious"));
    }
}
