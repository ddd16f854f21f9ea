//! Words of the panes that show KV memory: grouped token numbers, factors, marks of estimates.

use std::fmt::{self, Display, Formatter};

use crate::ui::units::Decimals;

/// "32 768": digits in groups of three.
pub(in crate::ui::panes) struct Tokens(pub(in crate::ui::panes) f64);

impl Display for Tokens {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let whole = self.0.round().max(0.0) as u64;
        if whole < 10_000 {
            return write!(f, "{whole}");
        }
        if whole >= 1_000_000 {
            write!(f, "{} {:03} {:03}", whole / 1_000_000, whole / 1000 % 1000, whole % 1000)
        } else {
            write!(f, "{} {:03}", whole / 1000, whole % 1000)
        }
    }
}

/// "2.5×", "40×".
pub(in crate::ui::panes) struct Times(pub(in crate::ui::panes) f64);

impl Display for Times {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let decimals = usize::from(self.0 < 9.95);
        write!(f, "{}×", Decimals(self.0, decimals))
    }
}

/// The mark of an estimate.
pub(in crate::ui::panes) struct Tilde(pub(in crate::ui::panes) bool);

impl Display for Tilde {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "~" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_factors_short() {
        assert_eq!(Tokens(812.0).to_string(), "812");
        assert_eq!(Tokens(32_768.0).to_string(), "32 768");
        assert_eq!(Tokens(1_048_576.0).to_string(), "1 048 576");
        assert_eq!((Times(2.46).to_string(), Times(40.35).to_string()), ("2.5×".into(), "40×".into()));
    }
}
