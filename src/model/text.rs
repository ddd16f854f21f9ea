//! Text and numbers from outside (process names, model names, server errors) made safe to draw.

use std::fmt;
use std::str::Chars;

use unicode_width::UnicodeWidthChar;

/// Longest text kept from outside, in characters.
pub const MAX_CHARS: usize = 256;

/// Keeps what can be drawn: no escape sequences, no control characters (C0, DEL, C1), no bidirectional overrides,
/// nothing of zero width. Runs of white space become one space; at most [`MAX_CHARS`] characters stay.
pub fn clean(text: &str) -> String {
    clean_to(text, MAX_CHARS)
}

/// The same for whole sentences: at most `most` characters stay.
pub fn clean_to(text: &str, most: usize) -> String {
    let mut out = String::with_capacity(text.len().min(most));
    let mut kept = 0;
    let mut space = false;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if pass_sequence(c, &mut rest) {
            continue;
        }
        if c.is_whitespace() {
            space = !out.is_empty();
            continue;
        }
        if c.is_control() || c.width().unwrap_or(0) == 0 {
            continue;
        }
        if space {
            out.push(' ');
            kept += 1;
            space = false;
        }
        if kept >= most {
            break;
        }
        out.push(c);
        kept += 1;
    }
    out
}

/// Goes past an escape sequence (ECMA-48) that begins with `c`, if it does. A string without its end is only
/// the start of one: what follows it may be all there is to read.
fn pass_sequence(c: char, rest: &mut Chars<'_>) -> bool {
    let kind = match c {
        '\u{1b}' => rest.clone().next().unwrap_or_default(),
        '\u{80}'..='\u{9f}' => char::from_u32(u32::from(c) - 0x40).unwrap_or_default(),
        _ => return false,
    };
    if c == '\u{1b}' && matches!(kind, ' '..='~') {
        rest.next();
    }
    match kind {
        '[' => {
            pass_while(rest, |c| matches!(c, ' '..='?'));
            pass_one(rest, |c| matches!(c, '@'..='~'));
        }
        ']' | 'P' | 'X' | '^' | '_' => pass_string(rest),
        ' '..='/' => {
            pass_while(rest, |c| matches!(c, ' '..='/'));
            pass_one(rest, |c| matches!(c, '0'..='~'));
        }
        _ => {}
    }
    true
}

fn pass_one(rest: &mut Chars<'_>, is: impl Fn(char) -> bool) -> bool {
    let found = rest.clone().next().is_some_and(is);
    if found {
        rest.next();
    }
    found
}

fn pass_while(rest: &mut Chars<'_>, is: impl Fn(char) -> bool) {
    while pass_one(rest, &is) {}
}

/// Goes past a control string up to BEL, ST or the next ESC.
fn pass_string(rest: &mut Chars<'_>) {
    let mut ahead = rest.clone();
    match ahead.find(|c| matches!(c, '\u{7}' | '\u{9c}' | '\u{1b}')) {
        Some('\u{1b}') => {
            pass_one(&mut ahead, |c| c == '\\');
        }
        Some(_) => {}
        None => return,
    }
    *rest = ahead;
}

/// A count with the word for one or for more: "1 batch", "2 batches".
pub struct Plural<'a>(pub u64, pub &'a str, pub &'a str);

impl std::fmt::Display for Plural<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(n, one, more) = self;
        write!(f, "{n} {}", if *n == 1 { one } else { more })
    }
}

/// With a capital letter at its start.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A number with so many decimals; from 1e15 on, where a number is none that anything measures and digits would fill the
/// screen, as "1e308".
#[derive(Clone, Copy, Debug)]
pub struct Decimals(pub f64, pub usize);

impl fmt::Display for Decimals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, decimals) = *self;
        if value.abs() < 1e15 { write!(f, "{value:.decimals$}") } else { write!(f, "{value:.0e}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capital_letter_is_at_the_start_only() {
        assert_eq!([capital("triad of 4 MiB"), capital("élan"), capital("")], ["Triad of 4 MiB", "Élan", ""]);
    }

    #[test]
    fn escape_sequences_go_as_a_whole() {
        let cases = [
            ("\x1b]0;owned\x07name\x1b[31m", "name"),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("ev\x1b[31mil", "evil"),
            ("ev\x1b[38;5;1;1mil\x1b[0m", "evil"),
            ("a\u{9b}31mb\u{9d}0;x\u{9c}c", "abc"),
            ("a\x1b(Bb\x1b7c\x1bP1$r0m\x1b\\d", "abcd"),
            ("\x1b]0;no end", "0;no end"),
            ("a\x1b[3", "a"),
            ("a\x1b[é b\x1b", "aé b"),
            ("a [31m] b", "a [31m] b"),
        ];
        for (text, left) in cases {
            assert_eq!(clean(text), left, "{text:?}");
        }
        let bidi = ['\u{200e}', '\u{200f}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{61c}'];
        for c in bidi {
            assert_eq!(clean(&format!("evil{c}txt")), "eviltxt", "{c:?}");
        }
    }

    #[test]
    fn white_space_folds_and_length_is_bounded() {
        assert_eq!(clean("  a \t\n b  "), "a b");
        assert_eq!(clean(&"x".repeat(10_000)).chars().count(), MAX_CHARS);
    }

    #[test]
    fn one_is_not_many() {
        let batches = |n| Plural(n, "batch", "batches").to_string();
        assert_eq!([0, 1, 2].map(batches), ["0 batches", "1 batch", "2 batches"]);
    }
}
