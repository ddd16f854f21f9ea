//! What the name of a recording on the command line means: a file, or one of the standard streams.

use std::path::Path;

use crate::recording::Output;
use crate::sampler::replay::Input as Recorded;

/// Names under which the system gives out what is standard output already, be it a file.
const STDOUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// "-" is a pipe.
fn is_pipe(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What to read.
pub(super) fn recorded(file: &Path) -> Recorded {
    if is_pipe(file) { Recorded::Stdin } else { Recorded::File(file.to_owned()) }
}

/// Where to record to; `readable` by others as well.
pub(super) fn to_record(file: &Path, readable: bool) -> Output {
    if is_pipe(file) || STDOUT.iter().any(|name| file == Path::new(name)) {
        return Output::Stdout;
    }
    if readable { Output::Readable(file.to_owned()) } else { Output::File(file.to_owned()) }
}
