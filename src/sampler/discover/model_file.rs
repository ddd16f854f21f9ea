//! Finds and reads the `config.json` of the model that a process serves, as that process would find it.
//!
//! It must not know what stands in it. Invariants: paths are resolved below the root of that process (links
//! of a container lead to its own files, not to the host's); only regular files are opened, and no more
//! than [`LONGEST`] is read; nothing of what was read gets into the words of an error.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};

use super::scan::Pid;
use crate::engine::options::Model;

/// Longest file that is read, bytes.
const LONGEST: u64 = 1 << 20;

/// What describes a model.
#[derive(Debug)]
pub(super) struct Config {
    /// Text of its `config.json`.
    pub(super) text: String,
    /// There is a `hf_quant_config.json` beside it.
    pub(super) quantised: bool,
}

/// Reads it. The error says in words why there is none.
pub(super) fn read(pid: Pid, model: &Model) -> Result<Config, String> {
    let files = Files::of(pid)?;
    let environ = environment(pid);
    if let Some(name) = environ.keys().find(|key| DECISIVE.contains(&key.as_str())) {
        return Err(format!("the environment decides about it ({name})"));
    }
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let directories =
        std::iter::once(cwd.join(&model.name).to_string_lossy().into_owned()).chain(snapshot(&files, model, &environ));
    for directory in directories {
        if let Ok(text) = files.text(&format!("{directory}/config.json")) {
            let quantised = files.regular(&format!("{directory}/hf_quant_config.json")).is_ok();
            return Ok(Config { text, quantised });
        }
    }
    Err("its config.json is neither in the directory given nor in the Hugging Face cache".to_owned())
}

/// Variables that change where the model comes from or how it is run.
const DECISIVE: &[&str] = &["VLLM_MLA_DISABLE", "VLLM_USE_MODELSCOPE", "SGLANG_USE_MODELSCOPE"];

/// Files as a process sees them.
struct Files {
    root: OwnedFd,
}

impl Files {
    fn of(pid: Pid) -> Result<Self, String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(format!("/proc/{pid}/root"), flags, Mode::empty());
        Ok(Self { root: root.map_err(|_| "its files cannot be seen: it is another user's process")? })
    }

    /// A regular file, found but not yet opened: opening a device or a pipe may do something, or wait.
    fn regular(&self, path: &str) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = openat2(&self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
        let regular = FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::RegularFile;
        if regular { Ok(found) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn text(&self, path: &str) -> io::Result<String> {
        let found = self.regular(path)?;
        let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
        let mut text = String::new();
        file.take(LONGEST + 1).read_to_string(&mut text)?;
        if text.len() as u64 > LONGEST { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
    }
}

/// Where the model lies in the Hugging Face cache: `models--ORG--NAME/snapshots/COMMIT`.
fn snapshot(files: &Files, model: &Model, environ: &HashMap<String, String>) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let name = model.name.as_str();
    if !name.chars().all(is_plain) || name.split('/').count() > 2 || name.split('/').any(|p| p.is_empty() || p == "..")
    {
        return None;
    }
    let cache = model.cache.clone().or_else(|| hub_cache(environ))?;
    let place = format!("{cache}/models--{}", name.replace('/', "--"));
    let revision = model.revision.as_deref().unwrap_or("main");
    if revision.split('/').any(|part| part == "..") {
        return None;
    }
    let commit = files.text(&format!("{place}/refs/{revision}")).unwrap_or_else(|_| revision.to_owned());
    let commit = commit.trim();
    let is_commit = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    is_commit.then(|| format!("{place}/snapshots/{commit}"))
}

/// The directory of the Hugging Face cache, as `huggingface_hub` finds it.
fn hub_cache(environ: &HashMap<String, String>) -> Option<String> {
    let of = |key: &str| environ.get(key).filter(|value| !value.is_empty()).cloned();
    of("HF_HUB_CACHE")
        .or_else(|| of("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| of("HF_HOME").map(|home| format!("{home}/hub")))
        .or_else(|| of("XDG_CACHE_HOME").map(|cache| format!("{cache}/huggingface/hub")))
        .or_else(|| of("HOME").map(|home| format!("{home}/.cache/huggingface/hub")))
}

/// Those variables of a process's environment that tell where its models lie. Nothing else of it is kept.
fn environment(pid: Pid) -> HashMap<String, String> {
    const PLACES: [&str; 5] = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"];
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/environ")) {
        let _ = file.take(LONGEST).read_to_end(&mut bytes);
    }
    let pairs = bytes.split(|&b| b == 0).filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
    let kept = pairs.filter(|(key, value)| {
        PLACES.contains(key) || (DECISIVE.contains(key) && !["", "0", "false", "False"].contains(value))
    });
    kept.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn own() -> Pid {
        i32::try_from(std::process::id()).unwrap()
    }

    fn model(name: &str, cache: Option<&Path>) -> Model {
        Model { name: name.into(), cache: cache.map(|path| path.to_str().unwrap().to_owned()), ..Model::default() }
    }

    fn text(model: &Model) -> Option<String> {
        read(own(), model).ok().map(|config| config.text)
    }

    #[test]
    fn a_directory_given_as_the_model() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config.json"), "{}").unwrap();
        let name = dir.path().to_str().unwrap();
        let found = read(own(), &model(name, None)).unwrap();
        assert_eq!((found.text.as_str(), found.quantised), ("{}", false));
        fs::write(dir.path().join("hf_quant_config.json"), "{}").unwrap();
        assert!(read(own(), &model(name, None)).unwrap().quantised);
    }

    #[test]
    fn the_cache_of_hugging_face() {
        let cache = tempfile::tempdir().unwrap();
        let place = cache.path().join("models--org--m");
        let commits = ["a".repeat(40), "b".repeat(40)];
        for commit in &commits {
            fs::create_dir_all(place.join("snapshots").join(commit)).unwrap();
            fs::create_dir_all(place.join("blobs")).unwrap();
            fs::write(place.join("blobs").join(commit), commit).unwrap();
            let link = place.join("snapshots").join(commit).join("config.json");
            std::os::unix::fs::symlink(format!("../../blobs/{commit}"), link).unwrap();
        }
        fs::create_dir_all(place.join("refs")).unwrap();
        fs::write(place.join("refs/main"), &commits[0]).unwrap();
        fs::write(place.join("refs/v2"), format!("{}\n", commits[1])).unwrap();
        let with = |revision: Option<&str>| {
            text(&Model { revision: revision.map(ToOwned::to_owned), ..model("org/m", Some(cache.path())) })
        };
        assert_eq!(with(None).as_ref(), Some(&commits[0]));
        assert_eq!(with(Some("v2")).as_ref(), Some(&commits[1]));
        assert_eq!(with(Some(&commits[1])).as_ref(), Some(&commits[1]));
        for revision in ["v3", "../refs/main", ""] {
            assert_eq!(with(Some(revision)), None, "{revision}");
        }
        for name in ["org/other", "../models--org--m", "a/b/c", "s3://org/m", "org/"] {
            assert_eq!(text(&model(name, Some(cache.path()))), None, "{name}");
        }
    }

    #[test]
    fn where_the_cache_is() {
        let of = |pairs: &[(&str, &str)]| {
            hub_cache(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        };
        let is = |path: &str| Some(path.to_owned());
        assert_eq!(of(&[("HOME", "/h")]), is("/h/.cache/huggingface/hub"));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), is("/x/huggingface/hub"));
        assert_eq!(of(&[("HOME", "/h"), ("HF_HOME", "/f")]), is("/f/hub"));
        assert_eq!(of(&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")]), is("/c"));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn only_regular_files_of_a_sane_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.json");
        let name = model(dir.path().to_str().unwrap(), None);
        // A named pipe would wait for a writer for ever.
        assert!(std::process::Command::new("mkfifo").arg(&config).status().unwrap().success());
        assert_eq!(text(&name), None);
        fs::remove_file(&config).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &config).unwrap();
        assert_eq!(text(&name), None);
        fs::remove_file(&config).unwrap();
        std::os::unix::fs::symlink("config.json", &config).unwrap();
        assert_eq!(text(&name), None, "a link to itself");
        fs::remove_file(&config).unwrap();
        std::os::unix::fs::symlink(format!("/proc/{}/fd/0", own()), &config).unwrap();
        assert_eq!(text(&name), None, "a magic link");
        fs::remove_file(&config).unwrap();
        fs::write(&config, vec![b' '; LONGEST as usize + 1]).unwrap();
        assert_eq!(text(&name), None, "too long");
        fs::write(&config, [0xff, 0xfe]).unwrap();
        assert_eq!(text(&name), None, "no text");
        fs::write(&config, vec![b' '; LONGEST as usize]).unwrap();
        assert_eq!(text(&name).map(|text| text.len() as u64), Some(LONGEST));
        assert!(read(-1, &name).unwrap_err().contains("another user's"));
    }
}
