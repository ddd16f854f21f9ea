//! Servers with secrets on their command lines, in many spellings, and everything that leaves the program: none of them
//! does. The servers are processes of their own: this test binary again, under the name of vLLM.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test an error is a failure")]

mod support;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use flate2::read::GzDecoder;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use support::{BODY, Server, until, vllm};

/// Words that hold secrets, of several servers, since a command line is shown up to 256 letters. `@` stands for a secret.
const SERVERS: [&[&str]; 7] = [
    &["--api-key", "@", "@", "@", "--hf-token", "@", "--hf_token=@", "-api-key", "@"],
    &["--api_key=@", "--ssl-keyfile-password", "@", "HF_TOKEN=@", "OPENAI_API_KEY=@", "-hft", "@"],
    &["VLLM_API_KEY=@", "AWS_SECRET_ACCESS_KEY=@", "--header", "x-api-key: @", "-H", "Authorization: Bearer @"],
    &["http://ann:@@h/v1", "https://h/?token=@&a=b", "--u=https://h/?api_key=@", "x=redis://:@@h:6379/0"],
    &["--config", r#"{"api_key":"@","a":1}"#, "--c", r#"{"api_keys": ["@", "@"], "hfToken": "@"}"#],
    &["hf_0123456789ab@", "sk-proj-@", "--a=github_pat_0123456789@", "--args", r#"["--api-key","@","--x"]"#],
    &[
        "sh -c HF_TOKEN=@ vllm serve m",
        "--wrap=vllm serve --api-key @ --b",
        "--token",
        "@",
        "--db-pass=@",
        "--api-k",
        "@",
    ],
];

/// What every secret begins with: enough of it to be known by.
const MARK: &str = "Zq7";

/// The words of a server, each secret another one.
fn words(server: usize) -> Vec<String> {
    let mut number = 0;
    let secret = |word: &&str| {
        // "@@" is a secret before the host of a URL.
        let parts = word.replace("@@", "@\u{0}");
        let mut out = String::new();
        for c in parts.chars() {
            match c {
                '@' => {
                    number += 1;
                    write!(out, "{MARK}{server}x{number}Vw9").unwrap();
                }
                '\0' => out.push('@'),
                c => out.push(c),
            }
        }
        out
    };
    SERVERS[server].iter().map(secret).collect()
}

/// Not a test: the server. It serves until its standard input ends.
#[test]
#[ignore = "is started by the tests below"]
fn stand_in() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::listen(listener, |path, stream| drop(stream.write_all(&vllm(path, BODY, "1"))));
    println!("\nstarted {}", server.port);
    drop(std::io::stdin().read(&mut [0]));
}

struct Engine {
    child: Child,
    port: String,
    /// Its command line, as `/proc` has it with blanks between.
    line: String,
}

impl Engine {
    fn start(server: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .arg0("vllm")
            .args(["serve", "stand_in", "--exact", "--ignored", "--nocapture", "--"])
            .args(words(server));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port =
            lines.map_while(Result::ok).find_map(|line| line.strip_prefix("started ").map(str::to_owned)).unwrap();
        let line = std::fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap().replace('\0', " ");
        assert!(line.trim().chars().count() < 256, "longer than what is shown: {line}");
        Self { child, port, line: line.trim().to_owned() }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Fails if a secret is in what left the program.
fn clean(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(at) = text.find(MARK) {
        let start = text.floor_char_boundary(at.saturating_sub(120));
        let end = text.ceil_char_boundary((at + 40).min(text.len()));
        panic!("{what} holds a secret: …{}…", &text[start..end]);
    }
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

struct Lab {
    home: tempfile::TempDir,
    engines: Vec<Engine>,
}

impl Lab {
    fn start() -> Self {
        Self { home: tempfile::tempdir().unwrap(), engines: (0..SERVERS.len()).map(Engine::start).collect() }
    }

    fn urls(&self) -> Vec<String> {
        self.engines.iter().map(|engine| format!("--engine=127.0.0.1:{}", engine.port)).collect()
    }

    /// Runs it and looks at all that it says.
    fn run(&self, args: &[&str], live: bool) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warptop"));
        command.args(args).env("XDG_STATE_HOME", self.home.path()).stdin(Stdio::null());
        if live {
            command.args(self.urls());
        }
        let said = command.output().unwrap();
        clean(&format!("standard output of {args:?}"), &said.stdout);
        clean(&format!("standard error of {args:?}"), &said.stderr);
        for path in files(self.home.path()) {
            clean(&path.display().to_string(), &std::fs::read(&path).unwrap());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (said.status.code().unwrap_or(-1), text(&said.stdout) + &text(&said.stderr))
    }

    /// Its screen with every pane alone, the evidence, and help; for as long as `see` is not on it.
    fn screen(&self, args: &[&str], live: bool, see: &str) {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_warptop"));
        command.args(args);
        if live {
            command.args(self.urls());
        }
        command.env("XDG_STATE_HOME", self.home.path());
        command.env("TERM", "xterm-256color");
        command.env("LANG", "C.UTF-8");
        let pair =
            native_pty_system().openpty(PtySize { rows: 60, cols: 300, pixel_width: 0, pixel_height: 0 }).unwrap();
        let mut child = pair.slave.spawn_command(command).unwrap();
        let (columns, rows) = (300_u16.try_into().unwrap(), 60_u16.try_into().unwrap());
        let seen = Arc::new(Mutex::new((vt100::Parser::new(rows, columns, 0), Vec::new())));
        let (mut reader, shared) = (pair.master.try_clone_reader().unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                let mut seen = shared.lock().unwrap();
                seen.0.process(&bytes[..n]);
                seen.1.extend_from_slice(&bytes[..n]);
            }
        });
        let contents = || {
            let text = seen.lock().unwrap().0.screen().contents();
            clean("the screen", text.as_bytes());
            text
        };
        let mut keys = pair.master.take_writer().unwrap();
        let mut press = |key: &str| keys.write_all(key.as_bytes()).unwrap();
        until("the first frame", || contents().contains("quit").then_some(()));
        press("z");
        let mut steps = 0;
        until(see, || {
            let found = contents().contains(see);
            // The next pane, now and then, when it has been drawn.
            steps += 1;
            if steps % 40 == 0 && !found {
                press("\t");
            }
            found.then_some(())
        });
        for key in ["D", "\x1b", "e", "?", "\x1b", "p", "\x1b", "\t", "\t", "\t"] {
            press(key);
            // A key may change nothing, so no frame is waited for.
            for _ in 0..20 {
                contents();
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        press("\x03");
        until("the end", || child.try_wait().unwrap());
        clean("what was written to the terminal", &seen.lock().unwrap().1);
    }
}

fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// The recording as an earlier version would have made it: with the command lines as they are.
fn of_earlier_version(lab: &Lab, text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        for row in value["procs"].as_array_mut().into_iter().flatten() {
            let engine = lab.engines.iter().find(|engine| u64::from(engine.child.id()) == row["pid"].as_u64().unwrap());
            if let Some(engine) = engine {
                row["command"] = engine.line.as_str().into();
            }
        }
        out += &value.to_string();
        out.push('\n');
    }
    out
}

/// Fault: engine: keys, tokens and passwords on command lines, in thirty spellings
/// Seen: `--api-key ***` in screen, snapshot and recording
/// Works: everything: options that are no secrets stay
/// Recovers: –
#[test]
fn no_secret_of_a_command_line_leaves_the_program() {
    let lab = Lab::start();
    let secrets: usize = lab.engines.iter().map(|engine| engine.line.matches(MARK).count()).sum();
    assert!(secrets >= 30, "{secrets}");

    let (code, said) = lab.run(&["snapshot", "--json"], true);
    assert!(code == 0 && said.matches("vllm serve stand_in").count() >= SERVERS.len(), "{code} {said}");
    assert!(said.contains("--api-key *** *** *** --hf-token ***"), "{said}");
    lab.run(&["check", "--for", "3s", "--json"], true);
    lab.run(&["probe", "fake", "--yes", "--json", "--force"], true);
    lab.run(&["probe", "list"], false);
    lab.run(&["probe", "show", "last:fake"], false);

    let path = lab.home.path().join("recording.gz");
    let (code, said) = lab.run(&["record", "--duration", "6s", "-o", path.to_str().unwrap()], true);
    assert_eq!(code, 0, "{said}");
    let text = unpacked(&path);
    clean("the recording", text.as_bytes());
    assert!(text.contains("--api-key *** *** *** --hf-token ***"));

    let old = of_earlier_version(&lab, &text);
    assert!(old.matches(MARK).count() >= secrets, "the earlier version hid nothing");
    // Not in the home: what is there must hold no secret.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.jsonl");
    std::fs::write(&path, old).unwrap();
    let old = path.to_str().unwrap();
    let (code, said) = lab.run(&["snapshot", "--json", "--replay", old], false);
    assert!(code == 0 && said.contains("--api-key *** --hf-token ***"), "{code} {said}");
    lab.run(&["check", "--json", "--replay", old], false);
    lab.screen(&["replay", old], false, "--api-key ***");
    lab.screen(&[], true, "--api-key ***");
}
