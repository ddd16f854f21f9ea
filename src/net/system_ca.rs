//! Certificates of the authorities that this system trusts: those of `SSL_CERT_FILE` and `SSL_CERT_DIR` where one of them is
//! set, else those of the places where systems keep them.
//!
//! It must not know TLS. Invariants: they are read once in a process, when a connection needs them first; of what a variable
//! names only regular files are read, and of those no more than the bounds below, whatever it names.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::file;
use crate::model::text;

/// Longest file of certificates: four times the list of a whole system.
pub(super) const MAX_FILE: u64 = 1 << 20;
/// Most names in a directory of certificates; systems have 150 authorities under two names each.
const MAX_NAMES: usize = 4096;
/// Most bytes of a directory's certificates together.
const MAX_DIRECTORY: u64 = 16 << 20;

/// What was read.
#[derive(Debug, Default)]
struct SystemCa {
    certificates: Vec<CertificateDer<'static>>,
    /// What could not be read, for the screen; empty where all was.
    trouble: String,
}

static READ: OnceLock<SystemCa> = OnceLock::new();

/// The certificates; none where they cannot be read, which [`trouble`] says.
pub(super) fn certificates() -> &'static [CertificateDer<'static>] {
    &READ.get_or_init(read).certificates
}

/// What to add to the words for an authority that is not trusted: "; SSL_CERT_FILE=/dev/zero is no regular file", or nothing.
pub(super) fn trouble() -> &'static str {
    READ.get().map_or("", |read| &read.trouble)
}

fn read() -> SystemCa {
    let (file, directories) = (std::env::var_os("SSL_CERT_FILE"), std::env::var_os("SSL_CERT_DIR"));
    if file.is_none() && directories.is_none() {
        let certificates = rustls_native_certs::load_native_certs().certs;
        return SystemCa { certificates, trouble: String::new() };
    }
    of_variables(file.as_deref(), directories.as_deref())
}

/// Reads what the two variables name.
fn of_variables(file: Option<&OsStr>, directories: Option<&OsStr>) -> SystemCa {
    let mut read = SystemCa::default();
    if let Some(path) = file.map(Path::new) {
        let bytes = bytes(path);
        read.note(&format!("SSL_CERT_FILE={}", path.display()), bytes.map(|bytes| vec![bytes]));
    }
    for directory in directories.map(std::env::split_paths).into_iter().flatten() {
        let files = files(&directory);
        read.note(&format!("SSL_CERT_DIR={}", directory.display()), files);
    }
    read.certificates.sort_unstable_by(|a, b| a.cmp(b));
    read.certificates.dedup();
    read
}

impl SystemCa {
    fn note(&mut self, name: &str, files: Result<Vec<Vec<u8>>, String>) {
        match files {
            // What is no certificate is passed over, as every other program does it.
            Ok(files) => {
                let each = files.iter().flat_map(|pem| CertificateDer::pem_slice_iter(pem).flatten());
                self.certificates.extend(each);
            }
            Err(why) => {
                // Writing to a String never fails.
                let _ = write!(self.trouble, "; {} {why}", text::clean(name));
            }
        }
    }
}

/// The bytes of a regular file that is no longer than [`MAX_FILE`].
fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    let file = file::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    // The kernel's own files say that they are empty.
    if !metadata.is_file() || metadata.len() == 0 {
        return Err("is no regular file with something in it".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("is longer than {} MiB: not a file of certificates", MAX_FILE >> 20));
    }
    Ok(bytes)
}

/// The files of a directory that can be read.
fn files(directory: &Path) -> Result<Vec<Vec<u8>>, String> {
    let names = std::fs::read_dir(directory).map_err(|error| format!("cannot be read: {error}"))?;
    let names: Vec<PathBuf> = names.take(MAX_NAMES + 1).flatten().map(|entry| entry.path()).collect();
    let too_much = || "holds too much: not a directory of certificates".to_owned();
    if names.len() > MAX_NAMES {
        return Err(too_much());
    }
    let (mut files, mut total) = (Vec::new(), 0);
    for bytes in names.iter().filter_map(|path| bytes(path).ok()) {
        total += bytes.len() as u64;
        if total > MAX_DIRECTORY {
            return Err(too_much());
        }
        files.push(bytes);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem() -> String {
        rcgen::generate_simple_self_signed(["gpu7".to_owned()]).unwrap().cert.pem()
    }

    #[test]
    fn files_and_directories_that_variables_name_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("all.pem");
        std::fs::write(&file, pem() + &pem()).unwrap();
        let below = dir.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("one.pem"), pem()).unwrap();
        std::fs::copy(&file, below.join("both.pem")).unwrap();
        std::os::unix::fs::symlink(&file, below.join("ab12.0")).unwrap();
        let read = of_variables(Some(file.as_os_str()), Some(below.as_os_str()));
        assert_eq!((read.certificates.len(), read.trouble.as_str()), (3, ""));
    }

    /// Fault: disk: `SSL_CERT_FILE` or `SSL_CERT_DIR` names a device, a pipe, the kernel's files or far too much
    /// Seen: `is no regular file with something in it` beside the words of an https engine that is not trusted
    /// Works: all engines over http, and those over https whose authority is in `--engine-ca`
    /// Recovers: with the next start
    #[test]
    fn what_is_no_file_of_certificates_is_not_read_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        for path in [Path::new("/dev/zero"), &pipe, Path::new("/proc/version")] {
            let read = of_variables(Some(path.as_os_str()), None);
            assert!(read.certificates.is_empty());
            assert_eq!(
                read.trouble,
                format!("; SSL_CERT_FILE={} is no regular file with something in it", path.display())
            );
        }
        let kernel = of_variables(None, Some(OsStr::new("/proc:/proc/self/task")));
        assert!(kernel.certificates.is_empty(), "none of its files is opened to be read");
        let long = dir.path().join("long");
        std::fs::File::create(&long).unwrap().set_len(MAX_FILE + 1).unwrap();
        assert!(of_variables(Some(long.as_os_str()), None).trouble.contains("longer than 1 MiB"));
        let many = dir.path().join("many");
        std::fs::create_dir(&many).unwrap();
        (0..=MAX_NAMES).for_each(|i| drop(std::fs::File::create(many.join(i.to_string())).unwrap()));
        assert!(of_variables(None, Some(many.as_os_str())).trouble.contains("holds too much"));
        let none = of_variables(Some(OsStr::new("/no/such\u{1b}[31m")), None).trouble;
        assert!(none.contains("cannot be read") && !none.contains('\u{1b}'), "{none}");
    }
}
