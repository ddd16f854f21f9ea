//! Keys from the bytes that a terminal sends.
//!
//! A pure state machine: it must not know where bytes come from or what time it is. Invariants: constant memory; each
//! byte is looked at once; whatever came before, after [`KeyDecoder::expire`] the next byte stands for itself; Ctrl-C
//! is heard inside of every sequence, and inside of a paste when it comes three times in a row.
//!
//! Sources: ECMA-48 for the shape of sequences, xterm's "Control Sequences" for its keys, reports and pastes, kitty's
//! "Comprehensive keyboard handling" for `CSI u`. Reports that nobody here asked for (mouse, focus, colours, versions)
//! are recognised, so that none of their bytes acts as a key.

use std::time::Duration;

use crate::app::Key;

/// How long an unfinished sequence is waited for. Terminals send one in a single write; over a slow link it may come
/// in two packets.
const SEQUENCE: Duration = Duration::from_millis(100);
/// The same for a paste, which comes as fast as the line takes it.
const PASTE: Duration = Duration::from_millis(500);
/// Most bytes of the parameters of a sequence. The longest answers (device attributes) take about 40.
const PARAMETERS: usize = 64;
/// What ends a paste.
const PASTE_END: &[u8] = b"\x1b[201~";
/// So many Ctrl-C in a row are no text any more: somebody wants to leave a paste that has no end.
const INSISTENT: u8 = 3;

const CTRL_C: u8 = 0x03;
const ESC: u8 = 0x1b;

/// Where in a sequence the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Outside of any.
    #[default]
    Ground,
    /// After ESC, which may still be the key.
    Escape,
    /// In a character of so many bytes; `alt`: after ESC.
    Utf8 { bytes: [u8; 4], have: u8, need: u8, alt: bool },
    /// After `ESC [`.
    Csi { bytes: [u8; PARAMETERS], len: u8 },
    /// After `ESC O`.
    Ss3,
    /// In what follows without a rule of its own: so many bytes of a mouse report or of a console's function key.
    Raw(u8),
    /// In a text that ends with `ESC \` or BEL: an answer of the terminal.
    Text,
    /// In pasted text: bytes of [`PASTE_END`] seen, Ctrl-C in a row.
    Paste { end: u8, ctrl_c: u8 },
}

/// Turns bytes into keys, one at a time.
#[derive(Clone, Debug, Default)]
pub struct KeyDecoder {
    place: Place,
}

impl KeyDecoder {
    /// Takes in a byte; the key that is complete with it.
    pub fn feed(&mut self, byte: u8) -> Option<Key> {
        match self.place {
            Place::Ground => self.ground(byte),
            Place::Escape => self.escape(byte),
            Place::Utf8 { bytes, have, need, alt } => self.utf8(byte, bytes, have, need, alt),
            Place::Csi { bytes, len } => self.csi(byte, bytes, len),
            Place::Ss3 => self.ss3(byte),
            Place::Raw(left) => self.raw(byte, left),
            Place::Text => self.text(byte),
            Place::Paste { end, ctrl_c } => self.paste(byte, end, ctrl_c),
        }
    }

    /// Gives up on what is unfinished, since nothing more came in time: ESC alone is the key, all else is dropped.
    pub fn expire(&mut self) -> Option<Key> {
        let place = std::mem::take(&mut self.place);
        (place == Place::Escape).then_some(Key::Esc)
    }

    /// How long to wait for the next byte before [`Self::expire`]; `None` when nothing is unfinished.
    pub const fn patience(&self) -> Option<Duration> {
        match self.place {
            Place::Ground => None,
            Place::Paste { .. } => Some(PASTE),
            _ => Some(SEQUENCE),
        }
    }

    /// A byte that cannot belong to the sequence ends it and stands for itself.
    fn again(&mut self, byte: u8) -> Option<Key> {
        self.place = Place::Ground;
        self.ground(byte)
    }

    fn ground(&mut self, byte: u8) -> Option<Key> {
        match byte {
            ESC => self.place = Place::Escape,
            0x80.. => self.place = start_of_character(byte, false),
            _ => return plain(byte),
        }
        None
    }

    fn escape(&mut self, byte: u8) -> Option<Key> {
        self.place = match byte {
            b'[' => Place::Csi { bytes: [0; PARAMETERS], len: 0 },
            b'O' => Place::Ss3,
            // DCS, SOS, OSC, PM, APC.
            b'P' | b'X' | b']' | b'^' | b'_' => Place::Text,
            // The first was the key; the second may begin something.
            ESC => return Some(Key::Esc),
            CTRL_C => return self.again(byte),
            0x80.. => start_of_character(byte, true),
            // With Alt, which does nothing, or the end of a text.
            _ => Place::Ground,
        };
        None
    }

    fn utf8(&mut self, byte: u8, mut bytes: [u8; 4], have: u8, need: u8, alt: bool) -> Option<Key> {
        if byte & 0xc0 != 0x80 {
            return self.again(byte);
        }
        bytes[usize::from(have)] = byte;
        let have = have + 1;
        if have < need {
            self.place = Place::Utf8 { bytes, have, need, alt };
            return None;
        }
        self.place = Place::Ground;
        let character = std::str::from_utf8(&bytes[..usize::from(need)]).ok()?.chars().next()?;
        (!alt && !character.is_control()).then_some(Key::Char(character))
    }

    fn csi(&mut self, byte: u8, mut bytes: [u8; PARAMETERS], len: u8) -> Option<Key> {
        let at = usize::from(len);
        self.place = match byte {
            // Three bytes of a mouse report that may have any value; a function key of the Linux console.
            b'M' if len == 0 => Place::Raw(3),
            b'[' if len == 0 => Place::Raw(1),
            0x20..=0x3f if at < PARAMETERS => {
                bytes[at] = byte;
                Place::Csi { bytes, len: len + 1 }
            }
            0x40..=0x7e if bytes[..at] == *b"200" && byte == b'~' => Place::Paste { end: 0, ctrl_c: 0 },
            0x40..=0x7e => {
                self.place = Place::Ground;
                return sequence(&bytes[..at], byte);
            }
            ESC => Place::Escape,
            _ => return self.again(byte),
        };
        None
    }

    fn ss3(&mut self, byte: u8) -> Option<Key> {
        match byte {
            0x20..=0x7e => {
                self.place = Place::Ground;
                if byte == b'M' { Some(Key::Enter) } else { cursor_key(byte) }
            }
            _ => self.again(byte),
        }
    }

    fn raw(&mut self, byte: u8, left: u8) -> Option<Key> {
        if byte < 0x20 {
            return self.again(byte);
        }
        self.place = if left > 1 { Place::Raw(left - 1) } else { Place::Ground };
        None
    }

    fn text(&mut self, byte: u8) -> Option<Key> {
        match byte {
            ESC => self.place = Place::Escape,
            // BEL, CAN and SUB end it.
            0x07 | 0x18 | 0x1a => self.place = Place::Ground,
            CTRL_C => return self.again(byte),
            _ => {}
        }
        None
    }

    fn paste(&mut self, byte: u8, end: u8, ctrl_c: u8) -> Option<Key> {
        let ctrl_c = if byte == CTRL_C { ctrl_c + 1 } else { 0 };
        let end = match byte {
            _ if byte == PASTE_END[usize::from(end)] => end + 1,
            ESC => 1,
            _ => 0,
        };
        if ctrl_c == INSISTENT {
            return self.again(byte);
        }
        let over = usize::from(end) == PASTE_END.len();
        self.place = if over { Place::Ground } else { Place::Paste { end, ctrl_c } };
        None
    }
}

/// The keys in `bytes`, when nothing comes after them in time. Pasted text is no key press: it could quit.
pub fn parse(bytes: &[u8]) -> Vec<Key> {
    let mut decoder = KeyDecoder::default();
    let mut keys: Vec<_> = bytes.iter().filter_map(|&byte| decoder.feed(byte)).collect();
    keys.extend(decoder.expire());
    keys
}

/// What a first byte above ASCII begins.
fn start_of_character(byte: u8, alt: bool) -> Place {
    let need = match byte {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Place::Ground,
    };
    Place::Utf8 { bytes: [byte, 0, 0, 0], have: 1, need, alt }
}

/// A byte of ASCII that is a key by itself.
fn plain(byte: u8) -> Option<Key> {
    match byte {
        b'\t' => Some(Key::Tab),
        b'\r' => Some(Key::Enter),
        0x01..=0x1a => Some(Key::Ctrl(char::from(byte - 1 + b'a'))),
        b' '..=b'~' => Some(Key::Char(char::from(byte))),
        _ => None,
    }
}

fn cursor_key(last: u8) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        _ => return None,
    })
}

/// What is held down, as bits of a parameter less one (xterm and kitty).
#[derive(Clone, Copy)]
struct Modifiers(u32);

impl Modifiers {
    const fn shift(self) -> bool {
        self.0 & 1 != 0
    }
    const fn ctrl(self) -> bool {
        self.0 & 4 != 0
    }
    /// Alt, Super, Hyper or Meta: keys with these do nothing here.
    const fn others(self) -> bool {
        self.0 & (2 | 8 | 16 | 32) != 0
    }
}

/// The key of a complete `ESC [ parameters last`.
fn sequence(parameters: &[u8], last: u8) -> Option<Key> {
    let parameters = std::str::from_utf8(parameters).ok()?;
    // Private parameters and intermediate bytes are in reports of the terminal only.
    if !parameters.bytes().all(|byte| byte.is_ascii_digit() || byte == b';' || byte == b':') {
        return None;
    }
    let field = |place: usize, sub: usize| -> Option<u32> {
        parameters.split(';').nth(place)?.split(':').nth(sub)?.parse().ok()
    };
    let first = field(0, 0);
    if last == b'~' && first == Some(27) {
        // xterm's other keys: 27 ; modifiers ; code.
        return code_key(field(2, 0)?, None, modifiers(field(1, 0)));
    }
    let held = modifiers(field(1, 0));
    // 3: the key was let go (kitty).
    if held.others() || field(1, 1) == Some(3) {
        return None;
    }
    match (last, first) {
        (b'Z', _) => Some(Key::BackTab),
        (b'u', Some(code)) => code_key(code, field(0, 1), held),
        (b'~', Some(1 | 7)) => Some(Key::Home),
        (b'~', Some(4 | 8)) => Some(Key::End),
        _ => cursor_key(last),
    }
}

fn modifiers(parameter: Option<u32>) -> Modifiers {
    Modifiers(parameter.unwrap_or(1).saturating_sub(1))
}

/// The key of a code point; `shifted` is what it is with Shift, where the terminal says so.
fn code_key(code: u32, shifted: Option<u32>, held: Modifiers) -> Option<Key> {
    if held.others() {
        return None;
    }
    let character = char::from_u32(code)?;
    Some(match character {
        '\t' if held.shift() => Key::BackTab,
        '\t' => Key::Tab,
        '\r' => Key::Enter,
        '\x1b' => Key::Esc,
        _ if character.is_control() => return None,
        _ if held.ctrl() => Key::Ctrl(character.to_ascii_lowercase()),
        _ if held.shift() => {
            Key::Char(shifted.and_then(char::from_u32).unwrap_or_else(|| character.to_ascii_uppercase()))
        }
        _ => Key::Char(character),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_as_terminals_send_them() {
        let cases: &[(&str, &[Key])] = &[
            ("q", &[Key::Char('q')]),
            ("G ", &[Key::Char('G'), Key::Char(' ')]),
            ("é€🦀", &[Key::Char('é'), Key::Char('€'), Key::Char('🦀')]),
            ("\x03\x1a\x0c", &[Key::Ctrl('c'), Key::Ctrl('z'), Key::Ctrl('l')]),
            ("\t\r\x1b[Z", &[Key::Tab, Key::Enter, Key::BackTab]),
            ("\x1b", &[Key::Esc]),
            ("\x1b\x1b", &[Key::Esc, Key::Esc]),
            ("\x1b[A\x1b[B\x1b[C\x1b[D", &[Key::Up, Key::Down, Key::Right, Key::Left]),
            ("\x1bOA\x1bOH\x1bOF\x1bOM", &[Key::Up, Key::Home, Key::End, Key::Enter]),
            (
                "\x1b[H\x1b[1~\x1b[7~\x1b[F\x1b[4~\x1b[8~",
                &[Key::Home, Key::Home, Key::Home, Key::End, Key::End, Key::End],
            ),
            ("\x1b[1;5A\x1b[1;2B", &[Key::Up, Key::Down]),
            // Kitty's, left on by a program that crashed; xterm's other keys.
            ("\x1b[99;5u\x1b[113u\x1b[27u\x1b[13u", &[Key::Ctrl('c'), Key::Char('q'), Key::Esc, Key::Enter]),
            ("\x1b[103;2u\x1b[47:63;2u\x1b[9;2u", &[Key::Char('G'), Key::Char('?'), Key::BackTab]),
            ("\x1b[27;5;99~\x1b[27;2;71~", &[Key::Ctrl('c'), Key::Char('G')]),
        ];
        for (bytes, keys) in cases {
            assert_eq!(parse(bytes.as_bytes()), *keys, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_no_key_press_does_nothing() {
        let silent = [
            // With Alt; let go; above Shift.
            "\x1bq\x1bé\x1b[113;3u\x1b[113;1:3u\x1b[1;3A\x1b[27;3;113~",
            // Reports: mouse (three kinds), focus, cursor, attributes, modes, colours, version, size.
            "\x1b[<0;10;20M\x1b[<0;10;20m\x1b[Mqqq\x1b[32;1;1M\x1b[I\x1b[O\x1b[12;40R\x1b[?62;1;22c",
            "\x1b[?2026;2$y\x1b]11;rgb:0/0/0\x07\x1b]11;rgb:q/q/q\x1b\\\x1bP>|quick(1)\x1b\\\x1b_Gi=1;OK\x1b\\",
            "\x1b[48;24;80;0;0t\x1b[[A\x1b[15~\x1bOP",
            "\x7f\0\u{85}",
            "\x1b[200~q\x03y\x1b[201\x1b[20~q\x1b[201~",
        ];
        for bytes in silent {
            assert_eq!(parse(bytes.as_bytes()), [], "{bytes:?}");
        }
        assert_eq!(parse(b"\xff\xc0\xed\xa0\x80\xf5\x80"), [], "no characters");
    }

    #[test]
    fn ctrl_c_is_heard_inside_of_every_sequence() {
        for before in
            ["", "\x1b", "\x1b[", "\x1b[?", "\x1b[1;", "\x1bO", "\x1b[M", "\x1b[Ma", "\x1b[[", "\x1b]0;a", "\x1bP"]
        {
            let keys = parse(format!("{before}\x03").as_bytes());
            assert_eq!(keys.last(), Some(&Key::Ctrl('c')), "{before:?}");
        }
        assert_eq!(parse(b"\xe2\x82\x03"), [Key::Ctrl('c')]);
        assert_eq!(parse(b"\x1b[200~abc\x03\x03\x03"), [Key::Ctrl('c')]);
    }

    /// Bytes as they would come: many that begin or continue a sequence.
    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            proptest::sample::select(&b"\x1b[]PO_^XMm~;:?<200\x03\x18\xe2q"[..]).prop_map(|byte| vec![byte]),
            proptest::sample::select(vec![
                "\x1b[",
                "\x1b[200~",
                "\x1b[201~",
                "\x1b[?",
                "\x1b]11;",
                "\x1b[<",
                "\x1b[27;"
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
        ];
        proptest::collection::vec(piece, 0..64).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn whatever_came_before_a_key_is_a_key_after_the_wait(bytes in hostile()) {
            let mut decoder = KeyDecoder::default();
            let keys = bytes.iter().filter(|&&byte| decoder.feed(byte).is_some()).count();
            prop_assert!(keys <= bytes.len());
            // What is unfinished has a limit of time, and what has none is finished.
            let idle = decoder.patience().is_none();
            let late = decoder.expire();
            prop_assert!(!idle || late.is_none());
            prop_assert!(decoder.patience().is_none());
            prop_assert_eq!(decoder.feed(b'q'), Some(Key::Char('q')));
            prop_assert_eq!(decoder.feed(0x03), Some(Key::Ctrl('c')));
        }

        #[test]
        fn ctrl_c_three_times_ends_anything(bytes in hostile()) {
            let mut decoder = KeyDecoder::default();
            let _: Vec<_> = bytes.iter().filter_map(|&byte| decoder.feed(byte)).collect();
            prop_assert!((0..3).any(|_| decoder.feed(CTRL_C) == Some(Key::Ctrl('c'))));
        }
    }

    #[test]
    fn a_large_paste_acts_as_no_key_and_takes_no_memory() {
        let mut decoder = KeyDecoder::default();
        let text = b"qypx\r\n\x1b[A \xe2\x82\xac\x03".iter().copied().cycle().take(10 << 20);
        let mut pasted = b"\x1b[200~".iter().copied().chain(text).chain(PASTE_END.iter().copied());
        assert_eq!(pasted.find_map(|byte| decoder.feed(byte)), None);
        assert_eq!(decoder.feed(b'q'), Some(Key::Char('q')));
        assert!(size_of::<KeyDecoder>() <= 80);
    }
}
