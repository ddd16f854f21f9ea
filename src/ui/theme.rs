//! Colours and characters, and how they degrade: colour depth and charset are two ladders.
//!
//! Panes ask for a role, never for a colour. Good and bad are blue and orange, not green and red, and
//! no state is told by colour alone. Series are told apart by shape as well as by hue.

use ratatui::style::{Color, Modifier, Style};

/// How many colours the terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// None: shape, bold, dim and reverse only (`NO_COLOR`, `TERM=dumb` or vt100).
    Mono,
    /// The 16 named colours, whose hues belong to the user.
    Ansi16,
    /// The fixed 256-colour palette.
    Ansi256,
    /// 24-bit colour.
    True,
}

/// Which characters the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// ASCII only (a locale that is not UTF-8, the Linux console, `--ascii`).
    Ascii,
    /// Box drawing, block elements and braille.
    Unicode,
}

/// What a piece of the screen means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ordinary text and values.
    Text,
    /// Units, ages, labels.
    Dim,
    /// Frames.
    Border,
    /// Frame of the pane that has the focus.
    Focus,
    /// The product's accent: keys, the chosen tab.
    Accent,
    /// All well.
    Good,
    /// Look at this.
    Warn,
    /// First series: a line (SM active, SM clock, waiting).
    Line,
    /// Second series: an area (DRAM bandwidth, running).
    Area,
    /// Labels and values of the second series: its hue, light enough to read.
    AreaText,
    /// Third series (temperature, P99).
    Third,
    /// Fourth series (power, P50).
    Fourth,
}

/// Colours and characters in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Number of colours.
    pub depth: Depth,
    /// Set of characters.
    pub charset: Charset,
}

/// Role to (24-bit, 256-colour index, 16-colour name).
const fn colours(role: Role) -> Option<((u8, u8, u8), u8, Color)> {
    Some(match role {
        Role::Text => return None,
        Role::Dim => ((138, 138, 138), 245, Color::DarkGray),
        Role::Border => ((78, 78, 78), 239, Color::DarkGray),
        Role::Focus | Role::Accent => ((95, 215, 255), 81, Color::Cyan),
        Role::Good => ((95, 175, 255), 75, Color::Blue),
        Role::Warn => ((255, 175, 0), 214, Color::Yellow),
        Role::Line => ((255, 215, 95), 221, Color::Yellow),
        Role::Area => ((0, 95, 135), 24, Color::Blue),
        Role::AreaText => ((95, 175, 215), 74, Color::LightBlue),
        Role::Third => ((255, 135, 95), 209, Color::Red),
        Role::Fourth => ((135, 215, 175), 115, Color::Green),
    })
}

/// Cividis, 12 steps: safe for colour-blind eyes, lightness strictly rising, in 256 colours too.
const HEAT_256: [u8; 12] = [17, 18, 238, 239, 241, 243, 102, 246, 144, 179, 185, 220];
const HEAT_TRUE: [(u8, u8, u8); 12] = [
    (0, 34, 78),
    (18, 53, 112),
    (59, 73, 108),
    (79, 91, 108),
    (97, 109, 112),
    (112, 125, 119),
    (130, 141, 120),
    (148, 158, 118),
    (170, 176, 111),
    (194, 195, 102),
    (220, 215, 86),
    (254, 232, 56),
];
/// The same by shade, where colours are few or none.
const SHADES: [char; 4] = ['░', '▒', '▓', '█'];
const ASCII_SHADES: [char; 4] = ['.', ':', 'o', '#'];

impl Theme {
    /// Full colour and Unicode.
    pub const FULL: Self = Self { depth: Depth::True, charset: Charset::Unicode };
    /// No colour, Unicode.
    pub const MONO: Self = Self { depth: Depth::Mono, charset: Charset::Unicode };

    /// The style of a role.
    pub const fn style(&self, role: Role) -> Style {
        let style = match self.colour(role) {
            Some(colour) => Style::new().fg(colour),
            None => Style::new(),
        };
        match (self.depth, role) {
            (Depth::Mono, Role::Dim | Role::Border) => style.add_modifier(Modifier::DIM),
            (_, Role::Warn | Role::Accent) | (Depth::Mono, Role::Focus) => style.add_modifier(Modifier::BOLD),
            _ => style,
        }
    }

    /// The colour of a role, for backgrounds; `None` for the terminal's own.
    pub const fn colour(&self, role: Role) -> Option<Color> {
        let Some(((r, g, b), index, name)) = colours(role) else { return None };
        match self.depth {
            Depth::Mono => None,
            Depth::Ansi16 => Some(name),
            Depth::Ansi256 => Some(Color::Indexed(index)),
            Depth::True => Some(Color::Rgb(r, g, b)),
        }
    }

    /// A cell of a heat map at `t` (0 to 1): colour for half-block cells, `None` where only
    /// [`Theme::shade`] can tell values apart (16 colours and mono).
    pub fn heat(&self, t: f32) -> Option<Color> {
        let i = ((t.clamp(0.0, 1.0) * 11.0).round()) as usize;
        match self.depth {
            Depth::Mono | Depth::Ansi16 => None,
            Depth::Ansi256 => Some(Color::Indexed(HEAT_256[i])),
            Depth::True => Some(Color::Rgb(HEAT_TRUE[i].0, HEAT_TRUE[i].1, HEAT_TRUE[i].2)),
        }
    }

    /// A cell of a heat map at `t` (above 0, to 1) as a character.
    pub fn shade(&self, t: f32) -> char {
        let i = ((t.clamp(0.0, 1.0) * 4.0).ceil() as usize).clamp(1, 4) - 1;
        if self.unicode() { SHADES[i] } else { ASCII_SHADES[i] }
    }

    /// Whether block elements, braille and box drawing may be used.
    pub const fn unicode(&self) -> bool {
        matches!(self.charset, Charset::Unicode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, sRGB.
    fn luminance((r, g, b): (u8, u8, u8)) -> f64 {
        let f = |c: u8| (f64::from(c) / 255.0).powf(2.2);
        0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b)
    }

    /// The colour of an index of the fixed 256-colour palette.
    fn xterm(i: u8) -> (u8, u8, u8) {
        if i >= 232 {
            let v = 8 + 10 * (i - 232);
            return (v, v, v);
        }
        let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
        let i = i - 16;
        (level(i / 36), level(i / 6 % 6), level(i % 6))
    }

    #[test]
    fn heat_gets_lighter_at_every_step() {
        for ramp in [HEAT_TRUE, HEAT_256.map(xterm)] {
            assert!(ramp.windows(2).all(|p| luminance(p[0]) < luminance(p[1])), "{ramp:?}");
        }
    }

    #[test]
    fn mono_has_no_colour() {
        for role in [Role::Text, Role::Warn, Role::Line, Role::Area, Role::Border] {
            assert_eq!(Theme::MONO.style(role).fg, None);
        }
        assert_eq!(Theme::MONO.heat(0.5), None);
    }
}
