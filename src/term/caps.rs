//! What the terminal can show: colours and characters, from the environment and the options.

use std::env;
use std::io;

use crate::ui::theme::{Charset, Depth, Theme};

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// As the environment says.
    #[default]
    Auto,
    /// Always, in as many colours as the terminal claims, at least 16.
    Always,
    /// Never.
    Never,
}

/// Colours and characters of this terminal.
pub fn theme(color: Color, ascii: bool) -> Theme {
    from_env(color, ascii, |name| env::var(name).ok().filter(|value| !value.is_empty()))
}

/// Whether the terminal can move its cursor at all.
pub fn is_dumb() -> bool {
    env::var("TERM").is_ok_and(|term| term == "dumb")
}

fn from_env(color: Color, ascii: bool, var: impl Fn(&str) -> Option<String>) -> Theme {
    let term = var("TERM").unwrap_or_default();
    // The first of these that is set decides the encoding; without any it is the C locale.
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(&var).unwrap_or_default().to_ascii_lowercase();
    let utf8 = locale.contains("utf-8") || locale.contains("utf8");
    // The Linux console has too few glyphs.
    let charset = if ascii || !utf8 || term == "linux" { Charset::Ascii } else { Charset::Unicode };
    Theme { depth: depth(color, &term, var), charset }
}

fn depth(color: Color, term: &str, var: impl Fn(&str) -> Option<String>) -> Depth {
    // NO_COLOR (no-color.org) outranks CLICOLOR_FORCE; the option outranks both.
    let forced = match color {
        Color::Never => return Depth::Mono,
        Color::Always => true,
        Color::Auto if var("NO_COLOR").is_some() => return Depth::Mono,
        Color::Auto => var("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
    };
    let many = var("COLORTERM").is_some_and(|value| value == "truecolor" || value == "24bit");
    match term {
        _ if many || term.ends_with("-direct") => Depth::True,
        _ if term.contains("256color") => Depth::Ansi256,
        "" | "dumb" | "vt52" | "vt100" | "vt102" | "vt220" if !forced => Depth::Mono,
        _ => Depth::Ansi16,
    }
}

/// Columns of the terminal that standard output goes to; `None` where it goes elsewhere.
pub fn columns() -> Option<u16> {
    rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(color: Color, ascii: bool, env: &[(&str, &str)]) -> Theme {
        let find = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        from_env(color, ascii, find)
    }
    fn depth_of(color: Color, env: &[(&str, &str)]) -> Depth {
        detect(color, false, env).depth
    }

    #[test]
    fn the_terminal_says_how_many_colours() {
        let auto = |env: &[(&str, &str)]| depth_of(Color::Auto, env);
        assert_eq!(auto(&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")]), Depth::True);
        assert_eq!(auto(&[("TERM", "tmux-256color")]), Depth::Ansi256);
        assert_eq!(auto(&[("TERM", "xterm")]), Depth::Ansi16);
        assert_eq!(auto(&[("TERM", "vt100")]), Depth::Mono);
        assert_eq!(auto(&[]), Depth::Mono);
    }

    #[test]
    fn wishes_outrank_the_terminal() {
        let full = [("TERM", "xterm-256color"), ("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")];
        assert_eq!(depth_of(Color::Auto, &full), Depth::Mono);
        assert_eq!(depth_of(Color::Always, &full), Depth::Ansi256);
        assert_eq!(depth_of(Color::Never, &[("COLORTERM", "truecolor")]), Depth::Mono);
        assert_eq!(depth_of(Color::Auto, &[("TERM", "vt100"), ("CLICOLOR_FORCE", "1")]), Depth::Ansi16);
        assert_eq!(depth_of(Color::Auto, &[("TERM", "vt100"), ("CLICOLOR_FORCE", "0")]), Depth::Mono);
    }

    #[test]
    fn the_locale_says_which_characters() {
        let charset = |env: &[(&str, &str)]| detect(Color::Auto, false, env).charset;
        assert_eq!(charset(&[("LANG", "en_US.UTF-8"), ("TERM", "xterm")]), Charset::Unicode);
        assert_eq!(charset(&[("LANG", "C.utf8"), ("LC_ALL", "POSIX")]), Charset::Ascii);
        assert_eq!(charset(&[("LANG", "en_US.UTF-8"), ("TERM", "linux")]), Charset::Ascii);
        assert_eq!(charset(&[]), Charset::Ascii);
        assert_eq!(detect(Color::Auto, true, &[("LANG", "en_US.UTF-8")]).charset, Charset::Ascii);
    }
}
