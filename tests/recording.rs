//! Recordings that are cut, damaged, endless, foreign or still being written.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

use std::io::{Cursor, Read};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, channel};

use flate2::read::GzDecoder;
use proptest::prelude::*;
use warptop::model::{Batch, Edge, FactKey, HistogramSample, Mark, Metric, SourceId, Subject, Time};
use warptop::recording::{Header, MAX_LINE, OpenError, Output, Reader, RecordError, Recorder, Writer};
use warptop::store::{Retention, Store, Window};

const START: u64 = 1_795_960_436_789;

fn batch(i: u64) -> Batch {
    let mut batch = Batch::new(SourceId::Engine(0), Time(START + i * 1000), 3500);
    batch.push(Subject::Engine(0), Metric::GenerationTokens, 1000.5 * i as f64);
    batch.fact(Subject::Engine(0), FactKey::Model, "llama-8b");
    batch.histograms.push(HistogramSample {
        sets: 0,
        subject: Subject::Engine(0),
        metric: Metric::Ttft,
        edges: [0.1, 1.0].into(),
        cumulative: vec![i as f64, i as f64, (2 * i) as f64],
        sum: Some(i as f64),
    });
    batch
}

fn header() -> Header {
    Header::new(Time(START), "gpu-07", 250)
}

fn packed(batches: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for i in 0..batches {
        writer.write(&batch(i)).unwrap();
        writer.sync().unwrap();
    }
    writer.finish().unwrap()
}

fn plain(batches: u64) -> Vec<u8> {
    let mut text = Vec::new();
    GzDecoder::new(&packed(batches)[..]).read_to_end(&mut text).unwrap();
    text
}

fn play(bytes: Vec<u8>) -> Result<(Vec<Batch>, Vec<String>), OpenError> {
    let mut reader = Reader::new(Cursor::new(bytes))?;
    let batches = reader.by_ref().collect();
    Ok((batches, reader.problems().texts()))
}

fn expected(n: u64) -> Vec<Batch> {
    (0..n).map(batch).collect()
}

#[test]
fn reads_back_what_was_written_packed_or_not() {
    for bytes in [packed(20), plain(20)] {
        assert_eq!(play(bytes).unwrap(), (expected(20), vec![]));
    }
    let reader = Reader::new(Cursor::new(packed(1))).unwrap();
    assert_eq!(reader.header(), &header());
}

/// Fault: recording: it is cut, packed or not
/// Seen: `cut after 00:03:19: the rest is missing`
/// Works: all before the cut
/// Recovers: at once
#[test]
fn a_cut_recording_plays_and_says_how_far() {
    let bytes = packed(200);
    let (batches, problems) = play(bytes[..bytes.len() - 8].to_vec()).unwrap();
    assert_eq!((batches.len(), problems), (200, vec!["cut after 00:03:19: the rest is missing".to_owned()]));
    let text = plain(200);
    let (batches, problems) = play(text[..text.len() - 30].to_vec()).unwrap();
    assert_eq!((batches.len(), problems), (199, vec!["cut after 00:03:18: the rest is missing".to_owned()]));
}

/// Fault: recording: lines of it are damaged
/// Seen: `4 damaged or unknown lines passed over`
/// Works: all other lines
/// Recovers: with the next line
#[test]
fn a_damaged_line_is_passed_over_and_counted() {
    let text = String::from_utf8(plain(5)).unwrap();
    let broken = text.replacen("\"src\"", "\"s?c\"", 2) + "garbage \u{1b}[31m\n\u{0}\n";
    let (batches, problems) = play(broken.into_bytes()).unwrap();
    assert_eq!((batches.len(), problems), (3, vec!["4 damaged or unknown lines passed over".to_owned()]));
}

/// Fault: recording: a time that no clock shows
/// Seen: `1 damaged or unknown line passed over`
/// Works: all other lines
/// Recovers: with the next line
#[test]
fn a_time_that_no_clock_shows_is_damage() {
    let mut bytes = plain(0);
    bytes.extend_from_slice(b"{\"t\":18446744073709551615,\"src\":\"nvml\",\"valid_ms\":1}\n");
    let rest = plain(2);
    bytes.extend_from_slice(&rest);
    let (batches, problems) = play(bytes).unwrap();
    assert_eq!((batches, problems), (expected(2), vec!["1 damaged or unknown line passed over".to_owned()]));
}

/// Fault: recording: a line longer than any that warptop writes
/// Seen: below the replay, how many lines were passed over
/// Works: the lines before and after it
/// Recovers: with the next line
#[test]
fn a_line_too_long_is_passed_over() {
    let mut text = plain(1);
    text.extend(std::iter::repeat_n(b'x', MAX_LINE + 1));
    text.push(b'\n');
    text.extend(serde_json::to_vec(&batch(1)).unwrap());
    text.push(b'\n');
    let (batches, problems) = play(text).unwrap();
    assert_eq!((batches, problems.len()), (expected(2), 1));
}

/// Fault: recording: it was made by a newer version
/// Seen: `format 7`, and lines of kinds that are not known are counted
/// Works: what is known
/// Recovers: –
#[test]
fn a_newer_version_plays_what_is_known() {
    let text = String::from_utf8(plain(3)).unwrap().replace("\"version\":1", "\"version\":7,\"mood\":{\"a\":[1]}");
    let text = text + "{\"t\":1,\"src\":\"quantum\",\"valid_ms\":5}\n";
    let (batches, problems) = play(text.into_bytes()).unwrap();
    assert_eq!(batches, expected(3));
    assert!(problems[0].contains("format 7") && problems[1].starts_with("1 damaged or unknown line"), "{problems:?}");
}

/// Fault: recording: the file is empty, of another kind, or ends in its first line
/// Seen: `empty`, `not a warptop recording`, `before its first line`
/// Works: –
/// Recovers: at once, with exit code 1
#[test]
fn what_is_no_recording_is_refused_in_words() {
    let says = |bytes: Vec<u8>| play(bytes).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(says(vec![]).contains("empty"));
    assert!(says(b"\x7fELF\0\0\0".to_vec()).contains("not a warptop recording"));
    assert!(says(b"{\"format\":\"other\",\"version\":1}\n".to_vec()).contains("not a warptop recording"));
    assert!(says(vec![b'x'; 1 << 20]).contains("not a warptop recording"));
    assert!(says(packed(3)[..14].to_vec()).contains("before its first line"));
    assert!(says(b"\x1f\x8b garbage after the magic".to_vec()).contains("before its first line"));
}

/// Fault: recording: escape sequences in its texts, histograms that are none
/// Seen: the texts without them; no histogram
/// Works: everything else
/// Recovers: –
#[test]
fn texts_and_histograms_from_a_file_are_made_safe() {
    let mut text = String::from_utf8(plain(0)).unwrap();
    text += concat!(
        r#"{"t":1,"src":{"engine":0},"valid_ms":1,"facts":[{"of":"engine0","k":"model","v":"a\u001b[2Jb"}],"#,
        r#""state":{"is":"failed","why":"x\u0007y"},"h":[{"of":"engine0","m":"ttft_s","edges":[2,1],"cumulative":[1,2,3],"sum":null},"#,
        r#"{"of":"engine0","m":"ttft_s","edges":[1,2],"cumulative":[1,2],"sum":null}]}"#,
        "\n"
    );
    let (batches, _) = play(text.into_bytes()).unwrap();
    assert_eq!(&*batches[0].facts[0].text, "ab");
    assert_eq!(batches[0].state.as_ref().unwrap().why(), "xy");
    assert_eq!(batches[0].histograms, vec![]);
}

/// Fault: recording: GPUs, buckets, processes and threads by the thousand
/// Seen: below the replay `7 values, histograms or rows are beyond what is kept, and left out`
/// Works: all that is within the limits
/// Recovers: at once
#[test]
fn what_is_beyond_the_limits_is_left_out_and_counted() {
    let list = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let text = String::from_utf8(plain(0)).unwrap()
        + &format!(
            concat!(
                r#"{{"t":1,"src":"nvml","valid_ms":1,"s":{{"gpu200":{{"temp_c":1}},"gpu1":{{"temp_c":2}},"host":{{"temp_c":3}}}},"#,
                r#""facts":[{{"of":"gpu77","k":"name","v":"x"}},{{"of":"gpu1","k":"name","v":"y"}}],"#,
                r#""h":[{{"of":"engine0","m":"ttft_s","edges":[{}],"cumulative":[{}],"sum":null}}],"#,
                r#""procs":[{}]}}"#,
                "\n"
            ),
            list(1000),
            list(1001),
            vec![r#"{"pid":1,"cpu_ms":0,"rss":0,"majflt":0,"page_table":0}"#; 67].join(","),
        );
    let (batches, problems) = play(text.into_bytes()).unwrap();
    assert_eq!((batches[0].samples.len(), batches[0].facts.len(), batches[0].histograms.len()), (1, 1, 0));
    assert_eq!(batches[0].processes.as_ref().unwrap().len(), 64);
    assert_eq!(problems, ["7 values, histograms or rows are beyond what is kept, and left out"]);
}

/// Fault: recording: an earlier version recorded an engine's key
/// Seen: `vllm serve m --api-key *** --port 1`
/// Works: everything
/// Recovers: the file itself still holds the key: record anew, or remove it
#[test]
fn secrets_in_a_recording_of_an_earlier_version_are_masked() {
    let mut text = String::from_utf8(plain(0)).unwrap();
    text += concat!(
        r#"{"t":1,"src":"process","valid_ms":1,"procs":[{"pid":7,"start":1,"user":"ann","gpus":[],"#,
        r#""command":"vllm serve m --api-key sk-SECRET --port 1","cpu_ms":1,"rss":1,"majflt":1,"page_table":1}]}"#,
        "\n"
    );
    text += concat!(
        r#"{"t":2,"src":{"engine":0},"valid_ms":1,"facts":[{"of":"engine0","k":"url","v":"http://u:sk-SECRET@gpu7:8000"},"#,
        r#"{"of":"engine0","k":"name","v":"vLLM --api-key=sk-SECRET"}],"#,
        r#""state":{"is":"failed","why":"answers with HTTP 401: Authorization: Bearer sk-SECRET is bad"}}"#,
        "\n"
    );
    let (batches, problems) = play(text.into_bytes()).unwrap();
    assert_eq!(problems, Vec::<String>::new());
    let rows = batches[0].processes.as_deref().unwrap();
    assert_eq!(&*rows[0].command, "vllm serve m --api-key *** --port 1");
    assert_eq!((batches[1].facts.len(), batches[1].state.is_some()), (2, true));
    assert!(!format!("{batches:?}").contains("SECRET"), "{batches:?}");
}

#[test]
fn recordings_put_together_play_as_one() {
    let mut bytes = packed(2);
    bytes.extend(packed(2));
    let (batches, problems) = play(bytes).unwrap();
    assert_eq!((batches.len(), problems), (4, vec![]));
}

/// A pipe whose writer is still there: reading beyond what was sent would wait for ever, so it fails the test.
struct Pipe(Receiver<Vec<u8>>, Cursor<Vec<u8>>);

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.1.read(buf)? {
                0 => self.1 = Cursor::new(self.0.try_recv().map_err(|_| std::io::Error::other("would wait"))?),
                n => return Ok(n),
            }
        }
    }
}

#[test]
fn a_live_pipe_shows_what_was_synced_without_waiting_for_more() {
    let (send, receive) = channel();
    let bytes = packed(50);
    // All that is synced, without the end mark (an empty last block and the checksum).
    send.send(bytes[..bytes.len() - 10].to_vec()).unwrap();
    let reader = Reader::new(Pipe(receive, Cursor::default())).unwrap();
    assert_eq!(reader.take(50).collect::<Vec<_>>(), expected(50));
}

#[test]
fn the_recorder_writes_a_file_that_plays_and_never_overwrites_one() {
    let dir = tempfile::tempdir().unwrap();
    let output = Output::File(dir.path().join("a.jsonl.gz"));
    let recorder = Recorder::start(&output, &header(), || ControlFlow::Continue(())).unwrap();
    for i in 0..30 {
        recorder.tap().send(batch(i)).unwrap();
    }
    let summary = recorder.finish().unwrap();
    assert_eq!((summary.batches, summary.ms), (30, 29_000));
    let bytes = std::fs::read(dir.path().join("a.jsonl.gz")).unwrap();
    assert_eq!(summary.bytes, bytes.len() as u64);
    assert_eq!(play(bytes.clone()).unwrap(), (expected(30), vec![]));
    assert!(matches!(Recorder::start(&output, &header(), || ControlFlow::Continue(())), Err(RecordError::Exists(_))));
    assert_eq!(std::fs::read(dir.path().join("a.jsonl.gz")).unwrap(), bytes);
}

/// Fault: recording: the recorder is killed
/// Seen: the recording plays to its last second
/// Works: –
/// Recovers: –
#[test]
fn a_recorder_that_is_killed_leaves_a_file_that_plays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl.gz");
    let recorder = Recorder::start(&Output::File(path.clone()), &header(), || ControlFlow::Continue(())).unwrap();
    for i in 0..30 {
        recorder.tap().send(batch(i)).unwrap();
    }
    // Never finished; its thread syncs when a second of data or a tenth of idleness has passed.
    let mut batches = 0;
    for _ in 0..2000 {
        batches = play(std::fs::read(&path).unwrap()).unwrap().0.len();
        if batches == 30 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(batches, 30);
    drop(recorder);
}

/// Fault: disk: the disk is full when a recording begins
/// Seen: `/dev/full` and `space`
/// Works: the samplers
/// Recovers: at once, with exit code 1
#[test]
fn a_full_disk_ends_the_recorder_in_words_and_stops_no_sampler() {
    let full = std::path::PathBuf::from("/dev/full");
    if !full.exists() {
        return;
    }
    let error = Recorder::start(&Output::File(full), &header(), || ControlFlow::Continue(())).unwrap_err().to_string();
    assert!(error.contains("/dev/full") && error.contains("space"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn cut_anywhere_a_prefix_plays(at in 0usize..4000, pack: bool) {
        let bytes = if pack { packed(30) } else { plain(30) };
        let at = at.min(bytes.len());
        if let Ok((batches, _)) = play(bytes[..at].to_vec()) {
            prop_assert_eq!(&batches[..], &expected(30)[..batches.len()]);
        }
    }

    #[test]
    fn a_flipped_bit_never_panics_and_keeps_what_is_before(at in 0usize..6000, bit in 0u8..8, pack: bool) {
        let mut bytes = if pack { packed(30) } else { plain(30) };
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        // The unpacker gives nothing of the half kilobyte that holds the damage.
        let before = if pack {
            bytes[..at.saturating_sub(512)].to_vec()
        } else {
            bytes[..bytes[..at].iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1)].to_vec()
        };
        let damaged = play(bytes);
        if let Ok((before, _)) = play(before) {
            let (batches, _) = damaged.unwrap();
            prop_assert!(batches.len() >= before.len(), "{} {}", batches.len(), before.len());
            prop_assert_eq!(&batches[..before.len()], &before[..]);
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..2000), tail: bool) {
        let mut input = if tail { plain(2) } else { vec![] };
        input.extend(bytes);
        if let Ok((batches, _)) = play(input) {
            prop_assert!(batches.len() >= 2);
        }
    }
}

#[test]
fn a_closed_pipe_says_so() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut writer = Writer::new(writer, &header());
    let error = match &mut writer {
        Ok(w) => w.write(&batch(0)).and_then(|()| w.sync()).unwrap_err(),
        Err(e) => std::io::Error::from(e.kind()),
    };
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn runs_of_probes_come_back_from_a_recording() {
    const AT: Time = Time(START);
    let mark = |run: &str, edge| Mark { subject: Subject::Gpu(0), probe: "hbm".into(), run: run.into(), edge };
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for (ms, mark) in [
        (1_000, mark("a", Edge::Start(60_000))),
        (6_000, mark("a", Edge::End("done".into()))),
        (9_000, mark("b\u{1b}[31m", Edge::Start(30_000))),
    ] {
        let mut batch = Batch::new(SourceId::Probe, AT + ms, 0);
        batch.marks.push(mark);
        writer.write(&batch).unwrap();
    }
    let (batches, _) = play(writer.finish().unwrap()).unwrap();
    let store = Store::new(Retention::HOUR);
    for batch in &batches {
        store.push(batch);
    }
    let data = store.read();
    let runs: Vec<_> = data.runs(Subject::Gpu(0), Window::last(AT + 60_000, 60_000)).collect();
    let spans: Vec<_> = runs.iter().map(|run| (run.name.as_ref(), run.start, run.end, run.how.as_deref())).collect();
    // The second was cut off with its recording: it counts for as long as it might have taken, its name made safe.
    let expected = [("a", AT + 1_000, AT + 6_000, Some("done")), ("b", AT + 9_000, AT + 39_000, None)];
    assert_eq!(spans, expected);
}

/// Runs the program, for 30 s at most.
fn warptop(args: &[&str], meanwhile: impl FnOnce(&std::process::Child)) -> (i32, String) {
    use std::process::{Command, Stdio};
    let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let mut child = command.spawn().unwrap();
    meanwhile(&child);
    for _ in 0..3000 {
        if let Some(status) = child.try_wait().unwrap() {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            return (status.code().unwrap_or(-1), said);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("{args:?} does not end");
}

fn pipe(dir: &tempfile::TempDir) -> String {
    let path = dir.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Fault: recording: `record -o` a named pipe that nobody reads
/// Seen: after a second `waiting for`, at the end of `--duration` `nothing was recorded: nobody reads the pipe`
/// Works: `--duration`, Ctrl-C and TERM
/// Recovers: when a reader opens the pipe
#[test]
fn a_pipe_that_nobody_reads_ends_with_the_duration_or_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = pipe(&dir);
    let record = ["record", "--no-discover", "-o", &pipe, "--duration", "1500ms"];
    let (code, said) = warptop(&record, |_| {});
    assert!(said.contains("waiting for") && said.contains("nothing was recorded: nobody reads the pipe"), "{said}");
    assert!(code == 1 && said.contains(&format!("warptop replay {pipe}")), "{code} {said}");
    let (code, said) = warptop(&record[..4], |child| {
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        // Its own words say that it waits, and that signals are read.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    });
    assert!(code == 130 && said.contains("nothing was recorded: nobody reads the pipe"), "{code} {said}");
}

#[test]
fn a_pipe_is_recorded_to_once_somebody_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = pipe(&dir);
    let output = Output::File(pipe.clone().into());
    let mut reader = None;
    let recorder = Recorder::start(&output, &header(), || {
        // Waited for at least once.
        let path = pipe.clone();
        reader.get_or_insert_with(|| std::thread::spawn(move || Reader::new(std::fs::File::open(path).unwrap())));
        ControlFlow::Continue(())
    });
    let recorder = recorder.unwrap();
    recorder.tap().send(batch(0)).unwrap();
    let reading = reader.unwrap().join().unwrap().unwrap();
    recorder.finish().unwrap();
    assert_eq!(reading.collect::<Vec<_>>(), expected(1));
}

/// Fault: recording: `replay` of what never ends (`/dev/zero`, a pipe without a line's end, a packed bomb)
/// Seen: `its first line is no header`
/// Works: –
/// Recovers: at once, with exit code 1
#[test]
fn what_never_ends_is_refused_at_its_first_line() {
    let (code, said) = warptop(&["snapshot", "--json", "--replay", "/dev/zero"], |_| {});
    assert!(code == 1 && said.contains("its first line is no header"), "{code} {said}");
    let dir = tempfile::tempdir().unwrap();
    let bomb = dir.path().join("bomb.gz");
    let mut packed = flate2::write::GzEncoder::new(std::fs::File::create(&bomb).unwrap(), flate2::Compression::best());
    std::io::copy(&mut std::io::repeat(b' ').take(400 << 20), &mut packed).unwrap();
    packed.finish().unwrap();
    let (code, said) = warptop(&["snapshot", "--json", "--replay", bomb.to_str().unwrap()], |_| {});
    assert!(code == 1 && said.contains("its first line is no header"), "{code} {said}");
}

/// Counts what is asked of it: without end, after a recording that is whole.
struct Endless(Cursor<Vec<u8>>, u8, std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl Read for Endless {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.2.fetch_add(buf.len(), std::sync::atomic::Ordering::Relaxed);
        let n = self.0.read(buf)?;
        buf[n..].fill(self.1);
        Ok(buf.len())
    }
}

/// Fault: recording: after some readings it goes on for ever with what cannot be read
/// Seen: `64 MiB in a row hold no reading: given up after 00:00:02: the rest is missing`
/// Works: all that is before
/// Recovers: at once, as a recording that is cut
#[test]
fn what_never_ends_is_given_up_after_a_bounded_number_of_bytes() {
    for byte in *b"x\n" {
        let asked = std::sync::Arc::default();
        let mut reader = Reader::new(Endless(Cursor::new(plain(3)), byte, std::sync::Arc::clone(&asked))).unwrap();
        assert_eq!(reader.by_ref().collect::<Vec<_>>(), expected(3));
        let words = reader.problems().texts();
        let given_up = "64 MiB in a row hold no reading: given up after 00:00:02: the rest is missing";
        assert_eq!(words.last().map(String::as_str), Some(given_up), "{words:?}");
        assert!(asked.load(std::sync::atomic::Ordering::Relaxed) < 128 << 20);
    }
}

/// Fault: disk: other users of the machine look for recordings
/// Seen: a file of mode 0600; `--readable` makes it 0644
/// Works: everything
/// Recovers: –
#[test]
fn a_recording_is_readable_by_others_only_when_asked() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let record = |name: &str, readable: &[&str]| {
        let path = dir.path().join(name);
        let args = ["record", "--no-discover", "--duration", "100ms", "-o", path.to_str().unwrap()];
        let (code, said) = warptop(&[&args[..], readable].concat(), |_| {});
        assert_eq!(code, 0, "{said}");
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(record("own", &[]), 0o600);
    let readable = record("others", &["--readable"]);
    // A umask may take away of it and adds nothing.
    assert!(readable & !0o644 == 0 && readable & 0o600 == 0o600, "{readable:o}");
    // A file that is there is not written to, so whoever may read it learns nothing.
    let there = dir.path().join("there");
    std::fs::write(&there, "").unwrap();
    let (code, said) = warptop(&["record", "--no-discover", "-o", there.to_str().unwrap()], |_| {});
    assert!(code == 1 && said.contains("exists already") && std::fs::read(there).unwrap().is_empty(), "{code} {said}");
}

/// Fault: recording: `-o` names a link or a pipe that another user has put there
/// Seen: `of another user`
/// Works: nothing is written to it
/// Recovers: with another place
#[test]
fn what_another_user_put_there_is_not_recorded_to() {
    use std::os::unix::fs::{chown, lchown, symlink};
    let dir = tempfile::tempdir().unwrap();
    let (link, pipe) = (dir.path().join("link"), dir.path().join("pipe"));
    symlink("/dev/null", &link).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let record = |path: &std::path::Path| {
        warptop(&["record", "--no-discover", "--duration", "100ms", "-o", path.to_str().unwrap()], |_| {})
    };
    // One's own link to a device is what one asked for.
    assert_eq!(record(&link).0, 0);
    if lchown(&link, Some(65_534), None).is_err() || chown(&pipe, Some(65_534), None).is_err() {
        return;
    }
    for path in [&link, &pipe] {
        let (code, said) = record(path);
        assert!(code == 1 && said.contains("of another user"), "{path:?}: {code} {said}");
    }
}
