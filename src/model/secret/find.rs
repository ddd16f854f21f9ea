//! Where the secrets are in a text: one word of a command line, or a whole line of them.
//!
//! Each kind of secret is looked for in the text as it is, whatever else was found, so that nothing before a
//! secret can hide it. Invariant: the ranges are in order, apart, and at the bounds of characters.

use std::ops::Range;

use super::{MASK, names};

/// How far a value without quotes goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The text is one word: to its end.
    Word,
    /// The text is a line of words: to the next blank that is not quoted.
    Line,
}

/// What tokens of well-known services begin with, and the least that follows. From the services' documentation
/// and the rules of gitleaks (github.com/gitleaks/gitleaks, config/gitleaks.toml).
const TOKENS: &[(&str, usize)] = &[
    ("hf_", 12),
    ("api_org_", 16),
    ("sk-", 8),
    ("sk_", 12),
    ("csk-", 16),
    ("gsk_", 16),
    ("nvapi-", 8),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghs_", 16),
    ("ghu_", 16),
    ("ghr_", 16),
    ("github_pat_", 16),
    ("glpat-", 12),
    ("xoxb-", 8),
    ("xoxp-", 8),
    ("xoxa-", 8),
    ("xoxs-", 8),
    ("xoxe.", 8),
    ("xapp-", 8),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("eyJ", 20),
    ("r8_", 20),
    ("pplx-", 20),
    ("xai-", 20),
    ("tgp_v1_", 16),
    ("npm_", 20),
    ("pypi-", 20),
    ("dckr_pat_", 12),
    ("ya29.", 16),
    ("hvs.", 16),
    ("wandb_v1_", 16),
    ("rk_live_", 12),
    ("whsec_", 16),
    ("SG.", 20),
    ("dop_v1_", 16),
    ("shpat_", 16),
    ("sbp_", 20),
    ("lsv2_pt_", 16),
    ("lsv2_sk_", 16),
    ("tvly-", 12),
    ("jina_", 20),
    ("sess-", 16),
    ("https://hooks.slack.com/services/", 8),
];

/// Where the secrets are.
pub(super) fn secrets(text: &str, reach: Reach) -> Vec<Range<usize>> {
    let mut search = Search { text, bytes: text.as_bytes(), reach, found: Vec::new(), open: 0 };
    search.pairs();
    search.addresses();
    search.tokens();
    search.options();
    let mut found = search.found;
    found.retain(|range| !range.is_empty());
    found.sort_unstable_by_key(|range| range.start);
    let mut apart: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for range in found {
        match apart.last_mut().filter(|last| range.start < last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => apart.push(range),
        }
    }
    apart
}

/// A name before a `=` or `:`.
struct Name<'a> {
    text: &'a str,
    start: usize,
    /// A quote ends it, as in JSON.
    quoted: bool,
    /// A blank is between it and the sign.
    gap: bool,
}

struct Search<'a> {
    text: &'a str,
    bytes: &'a [u8],
    reach: Reach,
    found: Vec<Range<usize>>,
    /// Up to here all is masked, by a value that goes to the end of the word.
    open: usize,
}

const fn is_quote(b: u8) -> bool {
    matches!(b, b'"' | b'\'')
}

const fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

/// What is between words of a line, or of a list in JSON.
const fn is_between(b: u8) -> bool {
    b.is_ascii_whitespace() || is_quote(b) || matches!(b, b',' | b'[' | b']' | b'(' | b')' | b'{' | b'}' | b';' | b'`')
}

impl<'a> Search<'a> {
    /// Values after a name and a `=` or `:`.
    fn pairs(&mut self) {
        for sign in 0..self.bytes.len() {
            if !matches!(self.bytes[sign], b'=' | b':') || sign < self.open {
                continue;
            }
            if let Some(name) = self.name_before(sign)
                && names::is_secret(name.text)
                && let Some(value) = self.value_after(sign, &name)
            {
                self.found.push(value);
            }
        }
    }

    fn name_before(&self, sign: usize) -> Option<Name<'a>> {
        let back =
            |from: usize, is: fn(u8) -> bool| from - self.bytes[..from].iter().rev().take_while(|b| is(**b)).count();
        let blank = back(sign, |b| b == b' ');
        let end = back(blank, |b| is_quote(b) || matches!(b, b'\\' | b']'));
        // An index: `auth.tokens[0]=`.
        let figures = back(end, |b| b.is_ascii_digit());
        let index = self.bytes[end..blank].contains(&b']') && figures > 0 && self.bytes[figures - 1] == b'[';
        let end = if index { figures - 1 } else { end };
        let start = back(end, is_name);
        let quoted = self.bytes[end..blank].iter().any(|b| is_quote(*b));
        (start < end).then(|| Name { text: &self.text[start..end], start, quoted, gap: blank < sign })
    }

    fn value_after(&mut self, sign: usize, name: &Name<'_>) -> Option<Range<usize>> {
        let colon = self.bytes[sign] == b':';
        let before = name.start.checked_sub(1).map(|at| self.bytes[at]);
        let next = self.bytes.get(sign + 1)?;
        // The scheme of a URL; the tag of an image.
        if colon && (self.text[sign + 1..].starts_with("//") || before == Some(b'/') && *next != b' ') {
            return None;
        }
        let skip = if colon || name.gap || name.quoted { self.blanks(sign + 1) } else { 0 };
        let start = sign + 1 + skip;
        let rest = self.text.get(start..).filter(|rest| !rest.is_empty())?;
        if names::may_be_file(name.text) && names::is_path(rest.split_ascii_whitespace().next().unwrap_or_default()) {
            return None;
        }
        // "NAME=value" as a whole in quotes.
        if let Some(quote) = before.filter(|b| is_quote(*b) && !name.quoted)
            && let Some(end) = self.closing(quote, start, self.backslashes(name.start - 1))
        {
            return Some(start..end);
        }
        if self.reach == Reach::Word && !name.quoted && name.start == 0 {
            return Some(self.rest(start));
        }
        let escapes = self.bytes[start..].iter().take_while(|b| **b == b'\\').count();
        let opening = start + escapes;
        match self.bytes.get(opening) {
            Some(&quote) if is_quote(quote) => Some(self.quoted(opening, escapes, name)),
            Some(b'[' | b'{') => Some(start..self.bracket(opening)),
            _ if name.quoted => Some(start..self.until(start, is_between)),
            _ if matches!(before, Some(b'?' | b'&')) => {
                Some(start..self.until(start, |b| b.is_ascii_whitespace() || matches!(b, b'&' | b'#' | b'"')))
            }
            _ => Some(self.bare(start, colon && skip > 0)),
        }
    }

    /// A value without quotes.
    fn bare(&mut self, start: usize, run: bool) -> Range<usize> {
        if self.reach == Reach::Word {
            return self.rest(start);
        }
        let end = if run { self.run_end(start) } else { self.shell_end(start) };
        start..end
    }

    fn rest(&mut self, start: usize) -> Range<usize> {
        self.open = self.bytes.len();
        start..self.open
    }

    /// The content of a value in quotes.
    fn quoted(&mut self, opening: usize, escapes: usize, name: &Name<'_>) -> Range<usize> {
        let start = opening + 1;
        let Some(end) = self.closing(self.bytes[opening], start, escapes) else { return self.rest(start) };
        // A shell puts what is in quotes and what follows together.
        let after = self.bytes.get(end + escapes + 1).copied().unwrap_or(b' ');
        if name.quoted || is_between(after) || matches!(after, b'&' | b'|' | b'<' | b'>' | b'\\') {
            return start..end;
        }
        start..self.bare(end, false).end
    }

    /// Blanks from a place on.
    fn blanks(&self, from: usize) -> usize {
        self.bytes.get(from..).unwrap_or_default().iter().take_while(|b| b.is_ascii_whitespace()).count()
    }

    /// Backslashes before a place.
    fn backslashes(&self, at: usize) -> usize {
        self.bytes[..at].iter().rev().take_while(|b| **b == b'\\').count()
    }

    /// Where a quote is closed that was opened with as many backslashes before it: the end of what it holds.
    fn closing(&self, quote: u8, from: usize, escapes: usize) -> Option<usize> {
        let mut run = 0;
        for (i, &b) in self.bytes.iter().enumerate().skip(from) {
            if b == quote && (run == escapes || escapes == 0 && run % 2 == 0) {
                return Some(i - escapes.min(run));
            }
            run = if b == b'\\' { run + 1 } else { 0 };
        }
        None
    }

    /// After the bracket that closes the one at a place; the end where there is none.
    fn bracket(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        let mut at = open;
        while let Some(&b) = self.bytes.get(at) {
            match b {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                _ if is_quote(b) => {
                    let escapes = self.backslashes(at);
                    at = self.closing(b, at + 1, escapes).map_or(self.bytes.len(), |end| end + escapes);
                }
                _ => {}
            }
            at += 1;
            if depth == 0 {
                return at;
            }
        }
        self.bytes.len()
    }

    fn until(&self, from: usize, ends: impl Fn(u8) -> bool) -> usize {
        self.bytes[from..].iter().position(|b| ends(*b)).map_or(self.bytes.len(), |length| from + length)
    }

    /// Where a shell ends a word.
    fn shell_end(&self, from: usize) -> usize {
        let mut at = from;
        while let Some(&b) = self.bytes.get(at).filter(|b| !b.is_ascii_whitespace()) {
            at = match b {
                b'\\' if self.bytes.get(at + 1).is_some_and(u8::is_ascii) => at + 2,
                b if is_quote(b) => self.closing(b, at + 1, 0).map_or(at + 1, |end| end + 1),
                _ => at + 1,
            };
        }
        at.min(self.bytes.len())
    }

    /// Before the next option of a line, from a value on.
    fn run_end(&self, from: usize) -> usize {
        if self.text[from..].starts_with(MASK) {
            return from + MASK.len();
        }
        let next = self.words().find(|word| word.start > from && names::is_option(&self.text[word.clone()]));
        let end = next.map_or(self.bytes.len(), |word| word.start);
        let trailing = self.bytes[from..end].iter().rev().take_while(|b| is_between(**b)).count();
        end - trailing
    }

    /// The words of a line, or of a list in JSON.
    fn words(&self) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let bytes = self.bytes;
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at + bytes[at..].iter().position(|b| !is_between(*b))?;
            at = bytes[start..].iter().position(|b| is_between(*b)).map_or(bytes.len(), |length| start + length);
            Some(start..at)
        })
    }

    /// What follows an option, or the word for how a header authorises.
    fn options(&mut self) {
        let mut words = self.words().peekable();
        let mut done = 0;
        while let Some(word) = words.next() {
            let Some(value) = words.peek().cloned().filter(|value| value.start >= done) else { continue };
            let (word, next) = (&self.text[word], &self.text[value.clone()]);
            let option = word.starts_with('-') && !word.contains(['=', ':']);
            let end = if names::is_scheme(word) {
                value.end
            } else if !option || names::is_option(next) {
                continue;
            } else if names::is_secret(word) && !(names::may_be_file(word) && names::is_path(next)) {
                self.run_end(value.start)
            } else if names::is_user(word) && names::has_password(next) {
                value.end
            } else {
                continue;
            };
            done = end;
            self.found.push(value.start..end);
        }
    }

    /// User name and password before the host of a URL, or of an address without a scheme.
    fn addresses(&mut self) {
        for (at, _) in self.text.match_indices("://") {
            let start = at + 3;
            let word = self.until(start, |b| b.is_ascii_whitespace());
            let authority = self.until(start, |b| b.is_ascii_whitespace() || matches!(b, b'/' | b'?' | b'#'));
            let last = |end: usize| self.text[start..end].rfind('@').map(|length| start + length);
            let port = self.text[start..authority].rsplit(':').next().unwrap_or_default();
            let is_port =
                !self.text[start..authority].contains(':') || port.bytes().all(|b| b.is_ascii_digit() || b == b']');
            // A password may hold what would end the host.
            if let Some(end) = last(authority).or_else(|| last(word).filter(|_| !is_port)) {
                self.found.push(start..end);
            }
        }
        for (at, _) in self.text.match_indices('@') {
            let ends = |b: &u8| b.is_ascii_whitespace() || is_quote(*b) || matches!(b, b'=' | b',');
            let start = at - self.bytes[..at].iter().rev().take_while(|b| !ends(b)).count();
            let host = &self.text[at + 1..];
            let is_host =
                host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[') && !host.starts_with("sha256:");
            let Some((user, password)) = self.text[start..at].split_once(':') else { continue };
            if is_host && !user.contains('/') && !password.is_empty() && !password.starts_with("//") {
                self.found.push(start..at);
            }
        }
    }

    /// Tokens of well-known services.
    fn tokens(&mut self) {
        let of_token = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'+' | b'/' | b'=' | b'~');
        for (prefix, least) in TOKENS {
            for (at, _) in self.text.match_indices(prefix) {
                let before = at.checked_sub(1).map_or(b' ', |before| self.bytes[before]);
                let end = self.until(at + prefix.len(), |b| !of_token(b));
                // In a longer word or a path it is no token (`task-1`, `models/sk-large`). A percent sign has two figures
                // after it.
                let escaped = at >= 3 && self.bytes[at - 3] == b'%';
                let apart = escaped || !before.is_ascii_alphanumeric() && !matches!(before, b'-' | b'.' | b'/');
                // A function's name (`hf_hub_download`) is none.
                let is_name = |token: &[u8]| *prefix == "hf_" && token[..*least].contains(&b'_');
                let token = &self.bytes[(at + prefix.len()).min(end)..end];
                if apart && token.len() >= *least && !is_name(token) {
                    self.found.push(at..end);
                }
            }
        }
    }
}
