//! NVIDIA's libraries that do not come with the driver: where they lie, and their functions.
//!
//! Owns the search and the loading. It must not know what a library is for. Invariants: what is loaded belongs to this
//! user or to root and nobody else may write to it; a missing library or function is words, never a panic.
//!
//! Looked at, in this order: the loader's own paths, CUDA's usual directories, the site-packages of every Python on the
//! `PATH`, and what processes of the same user have loaded or have in their own site-packages: the serving engine brings
//! these libraries along, often in a container. Root is another matter: whoever is root within a container has no right to
//! run code as root outside of it, so root looks only at processes that see the same files as this one.

#![expect(unsafe_code, reason = "a library is loaded by running its start-up code")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::Failure;
use crate::model::text;

/// A library and what it is called.
#[derive(Clone, Copy, Debug)]
pub(in crate::probe) struct Wanted {
    /// Its name for people.
    pub(in crate::probe) name: &'static str,
    /// Its file names, the newest first.
    pub(in crate::probe) files: &'static [&'static str],
    /// What brings it.
    pub(in crate::probe) package: &'static str,
}

/// A library that was loaded.
pub(in crate::probe) struct Library {
    library: libloading::Library,
    /// Where it lies; only its name where the system's loader knew it.
    pub(in crate::probe) path: PathBuf,
}

impl Library {
    /// Loads the first that is found and that `accept`s: that can do what it is wanted for.
    ///
    /// # Errors
    /// That there is none, with where was looked; or why the nearest of those that are there will not do.
    pub(in crate::probe) fn find<T>(
        wanted: Wanted,
        mut accept: impl FnMut(Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut nearest = None;
        let places = places();
        let by_name = wanted.files.iter().map(PathBuf::from);
        let lying = places.iter().flat_map(|place| wanted.files.iter().map(|file| place.join(file)));
        for path in by_name.chain(lying.filter(|path| is_ours(path))) {
            // SAFETY: the start-up code of one of NVIDIA's libraries, from a place that `is_ours` or the loader trusts.
            match unsafe { libloading::Library::new(&path) } {
                Ok(library) => {
                    let library = Self { library, path };
                    let lies_at = library.lies_at();
                    match accept(library) {
                        Ok(done) => return Ok(done),
                        Err(why) => _ = nearest.get_or_insert(format!("{} will not do: {why}", lies_at.display())),
                    }
                }
                Err(error) => nearest = nearest.or_else(|| not_loaded(&error, &path)),
            }
        }
        Err(Failure::Unavailable(nearest.unwrap_or_else(|| {
            format!(
                "no {} here ({}): looked in the loader's paths and {} more places, those of Pythons and of this user's \
                 processes among them; {} brings it, LD_LIBRARY_PATH may name its directory",
                wanted.name,
                wanted.files.join(", "),
                places.len(),
                wanted.package
            )
        })))
    }

    /// Where it lies, also when the loader found it by its name.
    pub(super) fn lies_at(&self) -> PathBuf {
        let path = &self.path;
        let maps =
            if path.is_absolute() { String::new() } else { fs::read_to_string("/proc/self/maps").unwrap_or_default() };
        mapped(&maps, &path.to_string_lossy()).unwrap_or_else(|| path.clone())
    }

    /// A function of it.
    ///
    /// # Errors
    /// When it has none of this name.
    ///
    /// # Safety
    /// `F` is the type of that function as the library's header declares it. It must not be called once the library is
    /// dropped.
    pub(super) unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, Failure> {
        // SAFETY: the caller's.
        let found = unsafe { self.library.get::<F>(name.as_bytes()) };
        found.map(|function| *function).map_err(|_| Failure::Unavailable(format!("it has no function {name}")))
    }
}

/// The file among those that a process has mapped whose name begins like this: a link was followed, to
/// `libcublasLt.so.12.8.4.1`.
fn mapped(maps: &str, name: &str) -> Option<PathBuf> {
    let files = maps.lines().filter_map(|line| line.get(line.find('/')?..));
    files.map(PathBuf::from).find(|file| file.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)))
}

/// Why a library was not loaded; `None` when it is not there. What is missing may be another one, which this one needs.
fn not_loaded(error: &libloading::Error, path: &Path) -> Option<String> {
    let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let is_missing = why.contains("No such file") && why.starts_with(&*path.to_string_lossy());
    (!is_missing).then(|| format!("{} will not do: it cannot be loaded: {}", path.display(), text::clean(&why)))
}

/// Directories where such libraries lie on this machine, the nearest first.
fn places() -> Vec<PathBuf> {
    let mut out = Vec::new();
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    for home in [variable("CUDA_HOME"), variable("CUDA_PATH"), Some("/usr/local/cuda".into())].into_iter().flatten() {
        out.push(home.join("lib64"));
        out.push(home.join("targets/x86_64-linux/lib"));
    }
    out.extend(below(Path::new("/usr/local"), "cuda-").into_iter().rev().map(|home| home.join("lib64")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut prefixes: Vec<_> = std::env::split_paths(&path).filter_map(|bin| Some(bin.parent()?.to_owned())).collect();
    prefixes.extend(["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable));
    prefixes.extend(variable("HOME").map(|home| home.join(".local")));
    for prefix in prefixes {
        out.extend(of_python(&prefix));
    }
    out.extend(of_processes(Path::new("/proc"), rustix::process::geteuid().as_raw()));
    let mut seen = BTreeSet::new();
    out.retain(|place| place.is_dir() && seen.insert(place.clone()));
    out
}

/// Entries of a directory whose names begin with `start`, in order.
fn below(directory: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    let mut out: Vec<_> = named.map(|entry| entry.path()).collect();
    out.sort();
    out
}

/// Directories of NVIDIA's wheels, and of PyTorch's own copies, below a Python's prefix.
fn of_python(prefix: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for python in below(&prefix.join("lib"), "python3").into_iter().rev() {
        for site in ["site-packages", "dist-packages"] {
            let wheels = below(&python.join(site).join("nvidia"), "");
            out.extend(wheels.into_iter().rev().map(|wheel| wheel.join("lib")));
            out.push(python.join(site).join("torch/lib"));
        }
    }
    out
}

/// The same for the processes of this user: where they loaded such a library from, and the Python that they run. For root,
/// only those in the same mount namespace.
fn of_processes(proc: &Path, user: u32) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let is_number = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok());
    for process in below(proc, "").into_iter().filter(|path| is_number(path)) {
        // Another user's files are not run.
        if fs::metadata(&process).map_or(true, |of| of.uid() != user) {
            continue;
        }
        let files_of = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
        if user == 0 && files_of(&process) != files_of(&proc.join("self")) {
            continue;
        }
        let root = process.join("root");
        let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        let Ok(maps) = fs::read_to_string(process.join("maps")) else { continue };
        let files = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
        let ours = ["libcublas", "libnccl", "libcudart", "libnvrtc"];
        let loaded: BTreeSet<_> = files
            .filter(|file| {
                file.file_name().is_some_and(|name| ours.iter().any(|o| name.to_string_lossy().starts_with(o)))
            })
            .filter_map(Path::parent)
            .collect();
        if loaded.is_empty() {
            continue;
        }
        out.extend(loaded.into_iter().map(inside));
        let prefix = fs::read_link(process.join("exe")).ok();
        // A virtual environment's Python is a link to another prefix: the environment says where it is.
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let of_environment = environment.split(|&b| b == 0).filter_map(|pair| {
            let text = std::str::from_utf8(pair).ok()?;
            text.strip_prefix("VIRTUAL_ENV=").map(PathBuf::from)
        });
        let of_exe = prefix.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned);
        for prefix in of_environment.chain(of_exe) {
            out.extend(of_python(&inside(&prefix)));
        }
    }
    out
}

/// Whether the file is there, belongs to this user or root, and nobody else may write to it.
fn is_ours(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::metadata(path).is_ok_and(|file| file.is_file() && [0, user].contains(&file.uid()) && file.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn wheels_of_a_python_are_found_the_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        let site = |version: &str| dir.path().join(format!("lib/{version}/site-packages"));
        touch(&site("python3.11").join("nvidia/cublas/lib/libcublasLt.so.12"));
        touch(&site("python3.12").join("nvidia/cu13/lib/libcublasLt.so.13"));
        touch(&site("python3.12").join("nvidia/cu12/lib/libcublasLt.so.12"));
        let found: Vec<_> = of_python(dir.path()).into_iter().filter(|place| place.is_dir()).collect();
        let right = ["python3.12/site-packages/nvidia/cu13", "python3.12/site-packages/nvidia/cu12"];
        let right = right.into_iter().chain(["python3.11/site-packages/nvidia/cublas"]);
        let right: Vec<_> = right.map(|path| dir.path().join("lib").join(path).join("lib")).collect();
        assert_eq!(found, right);
    }

    #[test]
    fn a_process_shows_what_it_loaded_inside_its_own_root() {
        let dir = tempfile::tempdir().unwrap();
        let process = dir.path().join("42");
        touch(&process.join("root/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"));
        let maps = "7f00-7f01 r-xp 0 0:1 5    /opt/x/lib/libcudart.so.12.4\n7f02-7f03 r--p 0 0:1 6 [stack]\n";
        fs::write(process.join("maps"), maps).unwrap();
        fs::write(process.join("environ"), "A=1\0VIRTUAL_ENV=/venv\0").unwrap();
        touch(&dir.path().join("43/maps"));
        let user = fs::metadata(&process).unwrap().uid();
        let found = of_processes(dir.path(), user);
        assert!(found.contains(&process.join("root/opt/x/lib")), "{found:?}");
        assert!(found.contains(&process.join("root/venv/lib/python3.12/site-packages/nvidia/nccl/lib")), "{found:?}");
        assert_eq!(of_processes(dir.path(), user + 1), Vec::<PathBuf>::new(), "another user's");
        // In a container: root within is not root without, any other user is the same.
        for (name, files) in [("42", "mnt:[2]"), ("self", "mnt:[1]")] {
            fs::create_dir_all(dir.path().join(name).join("ns")).unwrap();
            std::os::unix::fs::symlink(files, dir.path().join(name).join("ns/mnt")).unwrap();
        }
        assert_eq!(of_processes(dir.path(), user).is_empty(), user == 0);
    }

    #[test]
    fn what_others_may_write_is_not_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("libnccl.so.2");
        touch(&file);
        let with = |mode| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            is_ours(&file)
        };
        assert_eq!([0o644, 0o755, 0o666, 0o664].map(with), [true, true, false, false]);
    }

    #[test]
    fn a_library_that_the_loader_found_is_told_with_its_path() {
        let maps = "7f00-7f01 r-xp 0 0:1 5    /usr/lib/libcublas.so.12\n7f02-7f03 r-xp 0 0:1 6 [heap]\n\
                    7f04-7f05 r-xp 0 0:1 7    /opt/x/libcublasLt.so.12.8.4.1\n";
        assert_eq!(mapped(maps, "libcublasLt.so.12"), Some("/opt/x/libcublasLt.so.12.8.4.1".into()));
        assert_eq!(mapped(maps, "libcublasLt.so.13"), None);
    }

    #[test]
    fn a_library_that_is_nowhere_is_words() {
        let wanted = Wanted { name: "cuNothing", files: &["libcunothing.so.13"], package: "no package" };
        let why = Library::find(wanted, |_| Ok(())).unwrap_err().to_string();
        for words in ["no cuNothing here", "libcunothing.so.13", "no package brings it"] {
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn the_nearest_that_will_not_do_says_why() {
        let libc = Wanted { name: "libc", files: &["libc.so.6"], package: "the system" };
        // SAFETY: of C's `getpid`.
        let id = |name: &'static str| {
            move |library: Library| unsafe {
                library.function::<unsafe extern "C" fn() -> i32>(name).map(|function| function())
            }
        };
        assert_eq!(Library::find(libc, id("getpid")).unwrap().unsigned_abs(), std::process::id());
        let why = Library::find(libc, id("no_such_function")).unwrap_err().to_string();
        assert!(why.contains("libc.so.6 will not do") && why.contains("no function no_such_function"), "{why}");
    }
}
