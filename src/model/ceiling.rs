//! Where a measured ceiling comes from: which run of a probe, when, and with what software.
//!
//! It travels through store and recordings as the text of a fact. It must not know whether the ceiling still
//! holds: that depends on who asks, and when.

use std::fmt;

use super::Time;

/// The measurement behind a ceiling. As text five words: figure, ms since the Unix epoch, run, driver, warptop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CeilingOrigin<'a> {
    /// The figure of the report, e.g. `triad`.
    pub figure: &'a str,
    /// When its run ended.
    pub at: Time,
    /// Name of the run.
    pub run: &'a str,
    /// Version of the GPU driver then; empty where it was not known.
    pub driver: &'a str,
    /// Version of warptop that measured.
    pub warptop: &'a str,
}

/// Stands for a word that is not known.
const NOTHING: &str = "-";

impl<'a> CeilingOrigin<'a> {
    /// From the text of a fact; `None` when it is something else.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ').map(|word| if word == NOTHING { "" } else { word });
        let mut next = || words.next();
        let (figure, at, run, driver, warptop) = (next()?, next()?, next()?, next()?, next()?);
        let at = Time(at.parse().ok()?);
        next().is_none().then_some(Self { figure, at, run, driver, warptop })
    }
}

/// The text of a fact.
impl fmt::Display for CeilingOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |f: &mut fmt::Formatter<'_>, word: &str| {
            let kept = || word.chars().filter(|c| !c.is_whitespace());
            if kept().next().is_none() {
                return f.write_str(NOTHING);
            }
            kept().try_for_each(|c| fmt::Write::write_char(f, c))
        };
        word(f, self.figure)?;
        write!(f, " {}", self.at.0)?;
        [self.run, self.driver, self.warptop].into_iter().try_for_each(|text| {
            f.write_str(" ")?;
            word(f, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_survives_as_text() {
        let origin = CeilingOrigin {
            figure: "triad",
            at: Time(1_795_960_010_000),
            run: "20261129-134650-000-hbm-7",
            driver: "580.159.03",
            warptop: "0.1.0",
        };
        assert_eq!(origin.to_string(), "triad 1795960010000 20261129-134650-000-hbm-7 580.159.03 0.1.0");
        assert_eq!(CeilingOrigin::parse(&origin.to_string()), Some(origin));
        let unknown = CeilingOrigin { driver: "", ..origin };
        assert_eq!(CeilingOrigin::parse(&unknown.to_string()), Some(unknown));
        let odd = CeilingOrigin { driver: "5 80", ..origin }.to_string();
        assert_eq!(CeilingOrigin::parse(&odd).map(|origin| origin.driver), Some("580"));
        for text in ["", "triad", "triad x r d w", "triad 1 r d w more"] {
            assert_eq!(CeilingOrigin::parse(text), None, "{text}");
        }
    }
}
