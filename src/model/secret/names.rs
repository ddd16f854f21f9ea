//! Which names carry secrets, and what words of a command line look like.
//!
//! Names are compared by their parts: `--hf-token`, `HF_TOKEN`, `hfToken` and `x.hf_token` are `hf`, `token`.

/// Last parts that say what a name is about although it speaks of a secret: where it lies, how long it is.
const ABOUT: &[&str] = &[
    "file",
    "files",
    "path",
    "paths",
    "dir",
    "directory",
    "env",
    "var",
    "name",
    "names",
    "type",
    "types",
    "header",
    "headers",
    "ttl",
    "length",
    "len",
    "size",
    "count",
    "counts",
    "limit",
    "budget",
    "id",
    "ids",
    "expiry",
    "timeout",
    "url",
    "uri",
    "endpoint",
    "format",
    "mode",
    "provider",
    "required",
    "enabled",
    "stdin",
    "parser",
];
/// Before `key` or `token`: certainly a secret, wherever in the name.
const KINDS: &[&str] = &[
    "api",
    "access",
    "secret",
    "private",
    "auth",
    "admin",
    "hf",
    "hub",
    "bearer",
    "refresh",
    "github",
    "master",
    "session",
    "openai",
    "anthropic",
    "azure",
    "aws",
    "signing",
    "encryption",
    "account",
    "service",
    "ngc",
    "wandb",
];
/// Before `token`: one of a text.
const OF_TEXT: &[&str] = &[
    "per",
    "pad",
    "eos",
    "bos",
    "unk",
    "sep",
    "cls",
    "mask",
    "stop",
    "start",
    "begin",
    "end",
    "special",
    "image",
    "audio",
    "video",
    "first",
    "next",
    "last",
    "max",
    "min",
    "num",
    "draft",
    "prompt",
    "output",
    "input",
    "think",
    "thinking",
    "reasoning",
    "tool",
    "decode",
    "prefill",
    "generated",
    "new",
    "ignore",
    "skip",
    "single",
    "each",
    "by",
    "placeholder",
];
/// Before `key`: one to look something up.
const OF_TABLES: &[&str] = &[
    "sort",
    "group",
    "hash",
    "partition",
    "routing",
    "cache",
    "primary",
    "foreign",
    "dict",
    "label",
    "metric",
    "pub",
    "public",
    "order",
    "index",
    "column",
    "row",
    "json",
    "map",
    "prefix",
    "block",
    "kv",
    "config",
    "state",
    "weight",
    "shard",
    "dedup",
    "idempotency",
    "model",
    "tool",
    "stop",
];
/// Before `key`: it may be the path of a file.
const OF_FILES: &[&str] = &["ssl", "tls", "private", "client", "server", "ca", "cert", "ssh", "host"];
/// A part that ends with one of these is a secret wherever it stands.
const ALWAYS: &[&str] =
    &["password", "passwd", "passphrase", "passcode", "secret", "secrets", "credential", "credentials"];
/// A last part that ends with one of these.
const JOINED: &[&str] = &[
    "apikey",
    "apikeys",
    "secretkey",
    "accesskey",
    "accountkey",
    "privatekey",
    "masterkey",
    "authkey",
    "adminkey",
    "token",
];
/// Whole last parts.
const LAST: &[&str] = &[
    "auth",
    "authorization",
    "creds",
    "otp",
    "pw",
    "bearer",
    "cookie",
    "jwt",
    "pass",
    "pat",
    "pwd",
    "sig",
    "signature",
    "sshpass",
];
/// Options of their own kind: llama.cpp's `-hft` is `--hf-token`; Triton's two hold a header and its value.
const OPTIONS: &[&str] = &["-hft", "--http-restricted-api", "--grpc-restricted-protocol"];
/// Python's parser takes the start of an option for the whole: the least that is unambiguous, and the whole.
const SHORTENED: &[(&str, &str)] = &[
    ("api-k", "api-key"),
    ("hf-t", "hf-token"),
    ("admin-a", "admin-api-key"),
    ("ssl-keyfile-p", "ssl-keyfile-password"),
];

/// Whether what is given under a name is a secret: an option with its dashes, a variable, a header, a JSON name.
pub(super) fn is_secret(name: &str) -> bool {
    let dashed = name.replace('_', "-");
    if OPTIONS.contains(&dashed.as_str()) || is_shortened(&dashed) {
        return true;
    }
    let mut parts = parts(name);
    while parts.last().is_some_and(|part| part.bytes().all(|b| b.is_ascii_digit())) {
        parts.pop();
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    // Where a shell is and was.
    let Some((last, before)) = parts.split_last().filter(|_| !matches!(name, "PWD" | "OLDPWD")) else { return false };
    let last = last.trim_end_matches(|c: char| c.is_ascii_digit());
    let previous = before.last().copied().unwrap_or_default();
    match last {
        "id" => return previous == "secret" || before.ends_with(&["access", "key"]),
        _ if ABOUT.contains(&last) => return false,
        _ if LAST.contains(&last) => return true,
        _ => {}
    }
    let certain = |pair: &[&str]| KINDS.contains(&pair[0]) && matches!(pair[1], "key" | "keys" | "token");
    parts.iter().any(|part| ends_with(part, ALWAYS))
        || parts.windows(2).any(certain)
        || match last {
            "token" => !OF_TEXT.contains(&previous),
            "key" => !OF_TABLES.contains(&previous),
            "tokens" => KINDS.contains(&previous),
            last => ends_with(last, JOINED),
        }
}

fn ends_with(part: &str, endings: &[&str]) -> bool {
    endings.iter().any(|ending| part.ends_with(ending))
}

fn is_shortened(name: &str) -> bool {
    let Some(name) = name.strip_prefix("--") else { return false };
    SHORTENED.iter().any(|(least, whole)| name.starts_with(least) && whole.starts_with(name))
}

/// The parts of a name, in small letters.
fn parts(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut parts = vec![String::new()];
    for (i, &c) in letters.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| letters[i]);
        let hump = c.is_ascii_uppercase()
            && before.is_some_and(|before| {
                before.is_ascii_lowercase()
                    || before.is_ascii_uppercase() && letters.get(i + 1).is_some_and(char::is_ascii_lowercase)
            });
        if hump || !c.is_ascii_alphanumeric() {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            part.push(c.to_ascii_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Whether several secrets may follow an option, as vLLM and LMDeploy take keys.
pub(super) fn takes_many(option: &str) -> bool {
    parts(option).iter().any(|part| part == "api" || part == "keys")
}

/// Whether the value under the name of a secret may be the path of the file that holds it.
pub(super) fn may_be_file(name: &str) -> bool {
    match parts(name).as_slice() {
        [only] => only == "key",
        [.., previous, last] => last == "key" && OF_FILES.contains(&previous.as_str()),
        [] => false,
    }
}

/// Whether a value is the path of a file rather than a secret.
pub(super) fn is_path(value: &str) -> bool {
    let starts = ["/", "./", "../", "~/"].iter().any(|start| value.starts_with(start));
    starts || [".pem", ".key", ".crt"].iter().any(|end| value.ends_with(end))
}

/// Whether a word is an option and no value: a key may begin with a dash as well, but has capitals or figures.
pub(super) fn is_option(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.'))
    };
    // A key in PEM begins with dashes too.
    if !name.starts_with('-') || word.starts_with("-----BEGIN") {
        return false;
    }
    match name.strip_prefix("--") {
        Some(long) if is_name(long) => true,
        None if name.len() <= 7 && name[1..].bytes().all(|b| b.is_ascii_lowercase()) && name.len() > 1 => true,
        _ => is_secret(name),
    }
}

/// Whether a word says how the next one authorises, as in a header.
pub(super) fn is_scheme(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer") || word == "Basic"
}

/// Whether a user's name follows an option, with a password after a colon: as curl takes it.
pub(super) fn is_user(option: &str) -> bool {
    matches!(option, "-u" | "-U" | "--user" | "--proxy-user")
}

/// Whether a user's name has a password after it: with numbers alone it is a user and a group.
pub(super) fn has_password(user: &str) -> bool {
    user.split_once(':').is_some_and(|(_, password)| password.bytes().any(|b| !b.is_ascii_digit()))
}

/// Whether a program takes command lines as one word.
pub(super) fn is_shell(program: &str) -> bool {
    let base = program.rsplit('/').next().unwrap_or_default().trim_start_matches('-');
    matches!(base, "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" | "fish")
}

/// Whether a shell takes the next word as a command line: `-c`, `-lc`.
pub(super) fn is_code_option(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
}
