//! Secrets on command lines: found by the names they are given under, and masked before anything keeps them.
//!
//! Pure: words in, words out; it must not read `/proc`. Invariants: a value under the name of a secret is masked
//! whole, whatever it holds; where it is not certain how far a value goes, more is masked rather than less; what
//! is masked already stays as it is.

mod find;
mod names;

use std::ops::Range;

use find::Reach;

/// What stands in place of a secret.
pub const MASK: &str = "***";

/// Longest word that is looked through, bytes; what is beyond is left out. The work for a word may grow with the
/// square of its length, and nothing of a word this long is shown to its end.
const MAX_WORD: usize = 8 << 10;

/// What the next words of a command line are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Nothing special.
    Plain,
    /// One secret.
    Secret,
    /// A secret, or the file that holds it.
    SecretOrFile,
    /// Secrets up to the next option.
    Secrets,
    /// A user's name, perhaps with a password after a colon.
    User,
}

/// Masks the secrets in the words of a command line.
pub fn mask_words(words: Vec<String>) -> Vec<String> {
    let shell = words.first().is_some_and(|word| names::is_shell(word));
    let mut next = Next::Plain;
    let mut code = false;
    let mut masked = |word: String| {
        let script = std::mem::take(&mut code);
        let word = cut(&word);
        let hidden = !names::is_option(word)
            && match next {
                Next::Plain => false,
                Next::Secret | Next::Secrets => true,
                Next::SecretOrFile => !names::is_path(word),
                Next::User => names::has_password(word),
            };
        if hidden {
            if next != Next::Secrets {
                next = Next::Plain;
            }
            return MASK.to_owned();
        }
        next = after(word);
        code = shell && names::is_code_option(word);
        mask_text(word, if script { Reach::Line } else { Reach::Word })
    };
    words.into_iter().map(&mut masked).collect()
}

/// Masks the secrets in a command line whose words were joined by blanks.
pub fn mask_line(line: &str) -> String {
    mask_text(cut(line), Reach::Line)
}

/// What comes after a word.
fn after(word: &str) -> Next {
    if let Some(header) = word.strip_suffix(':') {
        return if names::is_secret(header) { Next::Secrets } else { Next::Plain };
    }
    if names::is_scheme(word) {
        return Next::Secret;
    }
    if !word.starts_with('-') || word.contains('=') {
        return Next::Plain;
    }
    match names::is_secret(word) {
        true if names::may_be_file(word) => Next::SecretOrFile,
        true if names::takes_many(word) => Next::Secrets,
        true => Next::Secret,
        false if names::is_user(word) => Next::User,
        false => Next::Plain,
    }
}

fn mask_text(text: &str, reach: Reach) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for Range { start, end } in find::secrets(text, reach) {
        out.push_str(&text[done..start]);
        out.push_str(MASK);
        done = end;
    }
    out.push_str(&text[done..]);
    out
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_WORD)]
}

#[cfg(test)]
mod tests;
