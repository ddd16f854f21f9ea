//! Finds and reads the `config.json` of the model that a process serves, as that process would find it.
//!
//! It must not know what stands in it. Invariants: paths are resolved below the root of that process (links
//! of a container lead to its own files, not to the host's); only regular files are opened, none of the kernel's own
//! file systems (to read `/proc/kmsg` takes lines from the kernel's log, and may wait for ever), and no more
//! than [`LONGEST`] is read; for another user's process only what that user may read; nothing of what was read gets
//! into the words of an error.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, open, openat, openat2, readlinkat};

use super::scan::Pid;
use super::user::User;
use crate::engine::options::Model;

/// Longest file that is read, bytes.
const LONGEST: u64 = 1 << 20;

/// Most links that are followed at the end of a path; the cache of Hugging Face has one.
const MOST_LINKS: usize = 8;

/// Deepest directory that is looked into.
const DEEPEST: usize = 128;

/// How a directory is opened to look into it.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

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
    user: User,
}

/// File systems whose files are not data but ways to ask the kernel, by the numbers of `linux/magic.h`: reading one of
/// their files may change something, or wait.
const OF_THE_KERNEL: &[u64] = &[
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6265_6570, // configfs
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0x0000_1cd1, // devpts
    0x4249_4e4d, // binfmt_misc
    0x6573_5543, // fusectl
    0x1980_0202, // mqueue
    0x6e73_6673, // nsfs
    0x0765_5821, // resctrl
];

impl Files {
    fn of(pid: Pid) -> Result<Self, String> {
        const HIDDEN: &str = "its files cannot be seen: it is another user's process";
        let root = open(format!("/proc/{pid}/root"), DIRECTORY, Mode::empty()).map_err(|_| HIDDEN)?;
        Ok(Self { root, user: User::of(pid).ok_or(HIDDEN)? })
    }

    /// A regular file, found but not yet opened: opening a device or a pipe may do something, or wait.
    fn regular(&self, path: &str) -> io::Result<OwnedFd> {
        let found = self.find(path)?;
        let stat = fstat(&found)?;
        let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && !OF_THE_KERNEL.contains(&fstatfs(&found)?.f_type.cast_unsigned());
        if plain && self.user.may_read(&stat) { Ok(found) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// The file at a path, links followed, if the user may look it up: a file that anybody may read in a directory of
    /// somebody else's that only its owner may enter is none of a stranger's.
    fn find(&self, path: &str) -> io::Result<OwnedFd> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let (directory, name) = path.rsplit_once('/').ok_or(io::ErrorKind::InvalidInput)?;
            let directory = if directory.is_empty() { "/" } else { directory };
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            let inside = openat2(&self.root, directory, DIRECTORY, Mode::empty(), resolve)?;
            if !self.may_enter(&inside)? {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let Ok(target) = readlinkat(&inside, name, Vec::new()) else {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                return Ok(openat(&inside, name, flags, Mode::empty())?);
            };
            let target = target.to_str().map_err(|_| io::ErrorKind::InvalidData)?;
            path = if target.starts_with('/') { target.to_owned() } else { format!("{directory}/{target}") };
        }
        Err(io::ErrorKind::InvalidInput.into())
    }

    /// Whether the user may enter a directory and all above it, up to the root of the process.
    fn may_enter(&self, directory: &OwnedFd) -> io::Result<bool> {
        if !self.user.is_stranger() {
            return Ok(true);
        }
        let is_same = |a: &Stat, b: &Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
        let root = fstat(&self.root)?;
        let mut directory = directory.try_clone()?;
        for _ in 0..DEEPEST {
            let stat = fstat(&directory)?;
            if !self.user.may_search(&stat) {
                return Ok(false);
            }
            let above = openat(&directory, "..", DIRECTORY, Mode::empty())?;
            if is_same(&stat, &root) || is_same(&stat, &fstat(&above)?) {
                return Ok(true);
            }
            directory = above;
        }
        Ok(false)
    }

    fn text(&self, path: &str) -> io::Result<String> {
        let found = self.regular(path)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(open(format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty())?);
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

    /// Fault: engine: another user's process names a model whose `config.json` is a link to `/proc/kmsg`
    /// Seen: `its config.json is neither in the directory given`
    /// Works: everything else of the engine; the kernel's log loses no line
    /// Recovers: with a file of its own
    #[test]
    fn no_file_of_the_kernel_is_opened_for_a_process() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.json");
        let name = model(dir.path().to_str().unwrap(), None);
        // Regular files by their type, each of another file system, and readable by everybody.
        for file in ["/proc/version", "/proc/sys/kernel/ostype", "/sys/kernel/uevent_seqnum"] {
            if !Path::new(file).exists() {
                continue;
            }
            std::os::unix::fs::symlink(file, &config).unwrap();
            let refused = read(own(), &name).unwrap_err();
            assert!(refused.starts_with("its config.json is neither in the directory given"), "{file}: {refused}");
            fs::remove_file(&config).unwrap();
        }
        fs::write(&config, "{}").unwrap();
        assert_eq!(text(&name).as_deref(), Some("{}"));
    }

    /// Fault: engine: another user's process names a model whose `config.json` only root may read
    /// Seen: no size of the KV cache: the file is not opened
    /// Works: files that the user may read
    /// Recovers: when the file's mode lets that user read it
    #[test]
    fn for_another_user_only_what_that_user_may_read_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.json");
        fs::write(&config, "{}").unwrap();
        let path = config.to_str().unwrap();
        let set_mode = |path: &Path, mode| {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        set_mode(dir.path(), 0o755);
        let stranger = rustix::process::geteuid().as_raw().wrapping_add(4242);
        let files = Files { user: User::for_test(stranger, vec![]), ..Files::of(own()).unwrap() };
        for (mode, read) in [(0o600, false), (0o640, false), (0o644, true)] {
            set_mode(&config, mode);
            assert_eq!(files.text(path).is_ok(), read, "{}", if read { "found" } else { "not found" });
            assert_eq!(Files::of(own()).unwrap().text(path).ok().as_deref(), Some("{}"), "{mode:o}, for its owner");
        }
        // A file that all may read, below a directory that only its owner may enter, by its path and by links to both.
        let open = tempfile::tempdir().unwrap();
        let link = |name: &str, target: &Path| {
            std::os::unix::fs::symlink(target, open.path().join(name)).unwrap();
            open.path().join(name)
        };
        let below = dir.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("config.json"), "{}").unwrap();
        let by_file = link("config.json", &below.join("config.json"));
        let by_directory = link("model", &below).join("config.json");
        set_mode(open.path(), 0o755);
        for (mode, read) in [(0o755, true), (0o711, true), (0o744, false), (0o700, false)] {
            set_mode(dir.path(), mode);
            for path in [&below.join("config.json"), &by_file, &by_directory] {
                assert_eq!(files.text(path.to_str().unwrap()).is_ok(), read, "{mode:o} {path:?}");
            }
        }
    }
}
