//! One fuzzer for all targets: the environment variable `FUZZ_TARGET` names which. See `fuzz/run`.

#![no_main]

mod targets;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let known = targets::ALL.iter().find(|(id, _)| *id == name);
    let Some((_, target)) = known else {
        let names: Vec<&str> = targets::ALL.iter().map(|(id, _)| *id).collect();
        eprintln!("FUZZ_TARGET is to be one of: {}", names.join(" "));
        std::process::exit(2);
    };
    *target
});

fuzz_target!(|data: &[u8]| TARGET(data));
