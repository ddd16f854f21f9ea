//! Text from outside (process names, model names, server errors) made safe to draw.

use unicode_width::UnicodeWidthChar;

/// Longest text kept from outside, in characters.
pub const MAX_CHARS: usize = 256;

/// Keeps what can be drawn: no control characters (C0, DEL, C1, so no escape sequence survives), no
/// bidirectional overrides, nothing of zero width. Runs of white space become one space; at most
/// [`MAX_CHARS`] characters stay.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MAX_CHARS));
    let mut kept = 0;
    let mut space = false;
    for c in text.chars() {
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
        if kept >= MAX_CHARS {
            break;
        }
        out.push(c);
        kept += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_lose_their_power() {
        assert_eq!(clean("\x1b]0;owned\x07name\x1b[31m"), "]0;ownedname[31m");
        assert_eq!(clean("a\u{9b}31mb"), "a31mb");
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
}
