//! Bytes of the terminal.

use warptop::app::Key;
use warptop::term::keys::{KeyDecoder, parse};

/// Whatever came before, `q` still arrives, and Ctrl-C at the third time without a wait.
pub fn bytes(data: &[u8]) {
    let mut decoder = KeyDecoder::default();
    let mut keys: Vec<_> = data.iter().filter_map(|&byte| decoder.feed(byte)).collect();
    let mut insistent = decoder.clone();
    assert!((0..3).any(|_| insistent.feed(3) == Some(Key::Ctrl('c'))));
    keys.extend(decoder.expire());
    assert_eq!(keys, parse(data));
    assert_eq!(decoder.feed(b'q'), Some(Key::Char('q')));
}
