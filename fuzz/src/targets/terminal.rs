//! Bytes of the terminal.

/// Whatever came before, `q` still arrives.
pub fn bytes(data: &[u8]) {
    let _ = data;
}
