//! The file, the queue, and what is said how often.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use super::file::MAX_BYTES;
use super::*;
use crate::model::{ManualClock, Subject};

const START: Time = Time(1_795_960_436_789);

fn line(words: &str) -> LogLine {
    LogLine::new(START, LogLevel::Warning, "engine 0", words)
}

fn start(folder: &Path) -> (EventLog, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(START));
    let file = LogFile::open(folder).map_err(|error| error.to_string());
    (EventLog::start(&(Arc::clone(&clock) as _), file), clock)
}

fn words(log: &EventLog) -> Vec<String> {
    log.flush(Duration::from_mins(1));
    log.lines().iter().map(|line| format!("{} {}: {}", line.level.word(), line.subject, line.text())).collect()
}

#[test]
fn a_line_says_when_how_bad_of_what_and_how_often() {
    let mut one = line("does not answer\u{1b}[31m within\n2 s");
    assert_eq!(one.to_string(), "2026-11-29T13:53:56.789Z warning engine 0: does not answer within 2 s");
    one.again = 240;
    assert!(one.to_string().ends_with("2 s (240 more in the last minute)"));
    assert_eq!(line(&"x".repeat(9_999)).words.chars().count(), MOST_CHARS);
}

/// Fault: disk: an error in each reading
/// Seen: one line a minute, `(240 more in the last minute)`
/// Works: everything
/// Recovers: with the first reading without it
#[test]
fn the_same_words_are_one_line_a_minute() {
    let mut repeats = Repeats::default();
    let (mut said, mut counted) = (0, 0);
    for tick in 0..4 * 600_u64 {
        let now = START + tick * 250;
        said +=
            usize::from(repeats.take(line(&format!("late for {} s, the last by {tick} ms", tick / 4)), now).is_some());
        for line in repeats.due(now) {
            said += 1;
            counted += line.again;
        }
    }
    // Ten minutes at 4 Hz: the first line, and one for each minute after it.
    assert_eq!((said, counted), (10, 9 * 240));
    assert_eq!(repeats.due(START + 700_000).len(), 1, "what came last is counted too");
    assert_eq!(repeats.due(START + 800_000), [], "and then forgotten");
    assert!(repeats.take(line("late for 1 s, the last by 1 ms"), START + 800_001).is_some());
}

#[test]
fn words_without_end_are_bounded_and_counted() {
    let mut repeats = Repeats::default();
    let name = |i: u32| i.to_string().bytes().map(|b| char::from(b + 49)).collect::<String>();
    let said = (0..10_000).filter(|&i| repeats.take(line(&name(i)), START).is_some()).count();
    assert_eq!(said, 256);
    assert!(repeats.due(START + 59_999).is_empty());
    let due = repeats.due(START + 60_000);
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].words, "9744 more lines of other words are left out");
}

#[test]
fn a_state_is_noted_when_it_changes_and_so_are_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = start(&folder.path().join("s"));
    let states = [
        SourceState::Starting,
        SourceState::Ok,
        SourceState::Ok,
        SourceState::Failed("refused: start it".into()),
        SourceState::Failed("refused: start it".into()),
        SourceState::Stalled("hangs".into()),
    ];
    for state in states {
        let mut batch = Batch::new(SourceId::Engine(3), START, 0);
        batch.state = Some(state);
        log.batch(&batch);
    }
    let mut batch = Batch::new(SourceId::Probe, START, 0);
    for edge in [Edge::Start(9), Edge::End("done".into())] {
        batch.marks.push(Mark { subject: Subject::Gpu(0), probe: "hbm".into(), run: "r-1".into(), edge });
    }
    log.batch(&batch);
    let said = words(&log);
    let expected = [
        "info engine 3: ok",
        "error engine 3: refused: start it",
        "warning engine 3: hangs",
        "info probe: hbm began on gpu0 (run r-1)",
        "info probe: hbm ended on gpu0: done (run r-1)",
    ];
    assert_eq!(said, expected);
    let file = fs::read_to_string(folder.path().join("s/warptop.log")).unwrap();
    assert!(file.lines().zip(expected).all(|(line, words)| line.ends_with(words)), "{file}");
    assert_eq!(file.lines().count(), expected.len());
}

#[test]
fn two_files_of_a_mebibyte_are_all_that_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    // Two processes write to it.
    let mut files = [LogFile::open(&path).unwrap(), LogFile::open(&path).unwrap()];
    let mut last = line("");
    for i in 0..12_000 {
        last = line(&format!("{i} {}", "x".repeat(280)));
        files[i % 2].write(&last).unwrap();
    }
    let names = ["warptop.log", "warptop.log.1"];
    let there: Vec<_> = names.iter().map(|name| fs::metadata(path.join(name)).unwrap()).collect();
    assert!(there.iter().all(|file| file.mode() & 0o777 == 0o600 && file.len() <= MAX_BYTES), "{there:?}");
    assert!(there[1].len() > MAX_BYTES - 400 && fs::read_dir(&path).unwrap().count() == 2);
    let [now, before] = names.map(|name| fs::read_to_string(path.join(name)).unwrap());
    assert!(now.ends_with(&format!("{last}\n")));
    // One line follows the other over the border.
    let number = |line: &str| line.split(' ').nth(4).unwrap().parse::<u32>().unwrap();
    assert_eq!(number(before.lines().last().unwrap()) + 1, number(now.lines().next().unwrap()));
    // Whoever removes it gets a new one; a link in its place is not followed.
    fs::remove_file(path.join(names[0])).unwrap();
    files[0].write(&last).unwrap();
    assert_eq!(fs::read_to_string(path.join(names[0])).unwrap(), format!("{last}\n"));
    fs::remove_file(path.join(names[0])).unwrap();
    symlink(folder.path().join("elsewhere"), path.join(names[0])).unwrap();
    assert!(files[0].write(&last).unwrap_err().to_string().contains("no regular file"));
    assert!(!folder.path().join("elsewhere").exists());
}

/// Fault: disk: the log cannot be written
/// Seen: `cannot be written, lines are on the screen only`, in the log on the screen
/// Works: the log on the screen, and everything else
/// Recovers: with the next line that can be written
#[test]
fn without_a_file_the_screen_has_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (log, _) = start(&path);
    log.say(LogLevel::Info, "a", "one");
    log.flush(Duration::from_mins(1));
    fs::remove_dir_all(&path).unwrap();
    log.say(LogLevel::Info, "a", "two");
    let said = words(&log);
    assert_eq!(said[..2], ["info a: one", "info a: two"]);
    assert!(said[2].starts_with("warning log: cannot be written, lines are on the screen only: "), "{said:?}");
    fs::write(folder.path().join("file"), "").unwrap();
    let (log, _) = start(&folder.path().join("file"));
    assert!(words(&log)[0].starts_with("info log: is not written to a file: "), "{:?}", words(&log));
    assert!(log.place().is_err());
}

#[test]
fn who_says_something_never_waits() {
    // A log whose thread is gone, as one that hangs in a write.
    let (to, said) = sync_channel(2);
    let shared =
        Shared { kept: Mutex::default(), lost: AtomicU64::new(0), states: Mutex::default(), place: Err(String::new()) };
    let (shared, clock) = (Arc::new(shared), Arc::new(ManualClock::at(START)));
    let log = EventLog { to, shared: Arc::clone(&shared), clock: Arc::clone(&clock) as _ };
    for _ in 0..10 {
        log.say(LogLevel::Info, "a", "b");
    }
    log.flush(Duration::ZERO);
    assert_eq!(shared.lost.load(Ordering::Relaxed), 8);
    let repeats = Repeats::default();
    let mut keeper = Keeper { shared, clock, repeats, file: None, trouble: String::new(), lost: 0 };
    keeper.look();
    assert!(log.lines()[0].words.starts_with("8 lines of the log are lost"), "{:?}", log.lines());
    drop(said);
}

#[test]
fn the_screen_keeps_the_last_lines() {
    let (log, clock) = start(&tempfile::tempdir().unwrap().path().join("s"));
    let shared = Arc::clone(&log.shared);
    let repeats = Repeats::default();
    let keeper = Keeper { shared, clock, repeats, file: None, trouble: String::new(), lost: 0 };
    for i in 0..MOST_LINES + 5 {
        keeper.show(line(&i.to_string()));
    }
    let lines = log.lines();
    assert_eq!((lines.len(), lines[0].words.as_str(), log.version()), (MOST_LINES, "5", MOST_LINES as u64 + 5));
}

#[test]
fn a_panic_is_noted_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = start(&folder.path().join("s"));
    log.note_panics();
    let thread = std::thread::Builder::new().name("broken".to_owned());
    let ended = thread.spawn(|| panic!("no place for {} --api-key=hunter2", 7)).unwrap().join();
    drop(std::panic::take_hook());
    assert!(ended.is_err());
    let file = fs::read_to_string(folder.path().join("s/warptop.log")).unwrap();
    assert!(file.contains("error warptop: panic of thread broken at src/log/tests.rs:"), "{file}");
    assert!(file.contains("no place for 7") && !file.contains("hunter2"), "{file}");
}
