//! The binary: everything is in the library.

fn main() {
    warptop::cli::main()
}
