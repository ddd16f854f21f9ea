//! Lengths of prompts and outputs: as text, from a file, and drawn.
//!
//! It must not know requests. Invariants: a length is 1 to [`MOST_TOKENS`]; the same random numbers draw the same
//! lengths; a text that names a file is understood without reading the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::model::text::clean;

use super::plan::Lengths;
use super::table::Table;

/// Longest prompt or output, tokens.
pub const MOST_TOKENS: u32 = 1_000_000;
/// What a text looks like that gives lengths.
pub const FORM: &str = "256, 64..512, 128:3,1024:1 (length:weight) or @FILE (a length, or prompt and output, a line)";
/// Largest weight of a length.
const MOST_WEIGHT: f64 = 1e9;

/// What a text gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// These lengths.
    Lengths(Lengths),
    /// Those in this file.
    File(PathBuf),
}

/// Which lengths of a file are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Those of prompts.
    Prompts,
    /// Those of outputs.
    Outputs,
}

/// What a text gives; a file that it names is not read.
///
/// # Errors
/// What is wrong with it, and what it should look like.
pub fn parse(text: &str) -> Result<Given, String> {
    let text = text.trim();
    if let Some(path) = text.strip_prefix('@') {
        return if path.is_empty() {
            Err("after @ comes the path of a file".to_owned())
        } else {
            Ok(Given::File(PathBuf::from(path)))
        };
    }
    let lengths = if text.contains(':') {
        Lengths::Mixed(text.split(',').map(weighted).collect::<Result<_, _>>()?)
    } else if let Some((least, most)) = text.split_once("..") {
        match (length(least)?, length(most)?) {
            (least, most) if least > most => {
                return Err(format!("{least}..{most} goes down: put the smaller length first"));
            }
            (least, most) if least == most => Lengths::Fixed(least),
            (least, most) => Lengths::Uniform(least, most),
        }
    } else if text.contains(',') {
        return Err(format!("lengths of a mix have weights, as in 128:3,1024:1; \"{}\" has none", clean(text)));
    } else {
        Lengths::Fixed(length(text)?)
    };
    Ok(Given::Lengths(lengths))
}

/// Why a text gives no lengths; `None` where it does. A file that it names is not looked at.
pub fn wrong(text: &str) -> Option<String> {
    parse(text).err()
}

/// The lengths that a text gives, from its file where it names one.
///
/// # Errors
/// What is wrong with the text or the file: what, where, what is expected.
pub fn resolve(text: &str, of: Of) -> Result<Lengths, String> {
    match parse(text)? {
        Given::Lengths(lengths) => Ok(lengths),
        Given::File(path) => read(&path, of),
    }
}

/// The lengths in a file, each as often as it stands there.
///
/// # Errors
/// What is wrong with it: what, where, what is expected.
pub fn read(path: &Path, of: Of) -> Result<Lengths, String> {
    let table = Table::read(path)?;
    let mut counts: BTreeMap<u32, f64> = BTreeMap::new();
    for row in &table.rows {
        let (length, what) = match of {
            Of::Prompts => (row.prompt, "prompts"),
            Of::Outputs => (row.output, "outputs"),
        };
        let wrong = |why: &str| format!("{}, line {}: {why}", table.name, row.line);
        let length = length.ok_or_else(|| wrong(&format!("no length of {what} is in it: {FORM}")))?;
        if length == 0 {
            return Err(wrong("a length of 0: at least one token is expected; leave the line out"));
        }
        *counts.entry(length).or_default() += 1.0;
    }
    Ok(match counts.first_key_value() {
        Some((length, _)) if counts.len() == 1 => Lengths::Fixed(*length),
        _ => Lengths::Mixed(counts.into_iter().collect()),
    })
}

fn length(text: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|n| (1..=MOST_TOKENS).contains(n));
    number.ok_or_else(|| format!("\"{}\" is no length: give 1 to {MOST_TOKENS} tokens, as {FORM}", clean(text)))
}

fn weighted(text: &str) -> Result<(u32, f64), String> {
    let (of, weight) = text
        .split_once(':')
        .ok_or_else(|| format!("\"{}\" has no weight: give length:weight, as in 128:3", clean(text)))?;
    let number = weight.trim().parse().ok().filter(|w: &f64| *w > 0.0 && *w <= MOST_WEIGHT);
    let wrong = || format!("\"{}\" is no weight: give a number above 0", clean(weight));
    Ok((length(of)?, number.ok_or_else(wrong)?))
}

impl Lengths {
    /// The longest that can come, tokens.
    pub fn longest(&self) -> u32 {
        match self {
            Self::Fixed(length) | Self::Uniform(_, length) => *length,
            Self::Mixed(all) => all.iter().map(|(length, _)| *length).max().unwrap_or(1),
        }
    }

    /// What they are on average, tokens.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Fixed(length) => f64::from(*length),
            Self::Uniform(least, most) => f64::midpoint(f64::from(*least), f64::from(*most)),
            Self::Mixed(all) => {
                let weight: f64 = all.iter().map(|(_, weight)| weight).sum();
                all.iter().map(|(length, share)| f64::from(*length) * share / weight).sum()
            }
        }
    }
}

/// Draws lengths.
#[derive(Clone, Debug)]
pub(super) enum Draw {
    /// Evenly between two, both included.
    Even(u32, u32),
    /// Lengths, each with the sum of the weights up to its own.
    Mixed(Vec<(u32, f64)>),
}

impl Draw {
    pub(super) fn new(lengths: &Lengths) -> Self {
        match lengths {
            Lengths::Fixed(length) => Self::Even(*length, *length),
            Lengths::Uniform(least, most) => Self::Even((*least).min(*most), *most),
            Lengths::Mixed(all) => {
                let mut sum = 0.0;
                let add = |(length, weight): &(u32, f64)| {
                    sum += weight;
                    (*length, sum)
                };
                Self::Mixed(all.iter().map(add).collect())
            }
        }
    }

    pub(super) fn next(&self, random: &mut fastrand::Rng) -> u32 {
        match self {
            Self::Even(least, most) => random.u32(*least..=*most),
            Self::Mixed(sums) => {
                let at = random.f64() * sums.last().map_or(0.0, |(_, sum)| *sum);
                let i = sums.partition_point(|(_, sum)| *sum <= at);
                sums.get(i).or(sums.last()).map_or(1, |(length, _)| *length)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lengths(text: &str) -> Lengths {
        resolve(text, Of::Prompts).unwrap()
    }

    #[test]
    fn each_form_is_understood() {
        assert_eq!(lengths(" 256 "), Lengths::Fixed(256));
        assert_eq!(lengths("64..512"), Lengths::Uniform(64, 512));
        assert_eq!(lengths("7..7"), Lengths::Fixed(7));
        assert_eq!(lengths("128:3, 1024:0.5"), Lengths::Mixed(vec![(128, 3.0), (1024, 0.5)]));
        assert_eq!(parse("@no/such/file"), Ok(Given::File("no/such/file".into())));
        assert_eq!(wrong("@no/such/file"), None);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_give() {
        let cases = [
            ("", "\"\" is no length: give 1 to 1000000 tokens, as 256, 64..512"),
            ("0", "\"0\" is no length"),
            ("1000001", "\"1000001\" is no length"),
            ("-5", "\"-5\" is no length"),
            ("1.5", "\"1.5\" is no length"),
            ("512..64", "512..64 goes down: put the smaller length first"),
            ("64..", "\"\" is no length"),
            ("1,2", "lengths of a mix have weights, as in 128:3,1024:1"),
            ("128:3,1024", "\"1024\" has no weight: give length:weight"),
            ("128:0", "\"0\" is no weight"),
            ("128:inf", "\"inf\" is no weight"),
            ("128:nan", "\"nan\" is no weight"),
            ("@", "after @ comes the path of a file"),
            ("\x1b[31mred", "\"red\" is no length"),
        ];
        for (text, why) in cases {
            let error = wrong(text).unwrap();
            assert!(error.starts_with(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_file_holds_one_length_or_both_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lengths");
        let read_as = |text: &str, of| {
            std::fs::write(&path, text).unwrap();
            read(&path, of)
        };
        let mixed = Ok(Lengths::Mixed(vec![(5, 1.0), (9, 2.0)]));
        assert_eq!(read_as("9\n5\n9\n", Of::Prompts), mixed);
        assert_eq!(read_as("9\n5\n9\n", Of::Outputs), mixed);
        assert_eq!(read_as("1 9\n1 5\n1 9\n", Of::Outputs), mixed);
        assert_eq!(read_as("1 9\n1 5\n1 9\n", Of::Prompts), Ok(Lengths::Fixed(1)));
        let json = "{\"input_length\":9,\"hash_ids\":[1]}\n{\"input_length\":5}\n{\"input_length\":9}";
        assert_eq!(read_as(json, Of::Prompts), mixed);
        let error = read_as(json, Of::Outputs).unwrap_err();
        assert!(error.contains("lengths, line 1: no length of outputs is in it"), "{error}");
        let error = read_as("3\n0\n", Of::Prompts).unwrap_err();
        assert!(error.contains("lengths, line 2: a length of 0"), "{error}");
        assert_eq!(resolve(&format!("@{}", path.display()), Of::Prompts).unwrap_err(), error);
    }

    #[test]
    fn means_and_longest_are_those_of_arithmetic() {
        let cases = [("8", 8.0, 8), ("10..20", 15.0, 20), ("128:3,1024:1", 352.0, 1024)];
        for (text, mean, longest) in cases {
            let lengths = lengths(text);
            assert!((lengths.mean() - mean).abs() < 1e-9, "{text}");
            assert_eq!(lengths.longest(), longest, "{text}");
        }
    }

    #[test]
    fn a_mix_comes_in_the_shares_of_its_weights() {
        let draw = Draw::new(&lengths("1:1,2:3,3:6"));
        let mut random = fastrand::Rng::with_seed(1);
        let mut counts = [0u32; 4];
        for _ in 0..10_000 {
            counts[draw.next(&mut random) as usize] += 1;
        }
        // Standard deviations of the counts are 30, 46 and 49.
        let near = |count: u32, expected: u32| count.abs_diff(expected) < 250;
        assert!(near(counts[1], 1_000) && near(counts[2], 3_000) && near(counts[3], 6_000), "{counts:?}");
    }

    #[test]
    fn a_range_is_drawn_evenly_with_both_its_ends() {
        let draw = Draw::new(&lengths("10..13"));
        let mut random = fastrand::Rng::with_seed(1);
        let mut counts = [0u32; 14];
        for _ in 0..4_000 {
            counts[draw.next(&mut random) as usize] += 1;
        }
        // The standard deviation of a count is 27.
        assert!(counts[10..].iter().all(|count| count.abs_diff(1_000) < 140), "{counts:?}");
    }

    proptest! {
        #[test]
        fn draws_are_within_and_the_same_for_a_seed(least in 1u32..500, more in 0u32..500, seed: u64) {
            for text in [format!("{least}..{}", least + more), format!("{least}:1,{}:2", least + more)] {
                let draw = Draw::new(&lengths(&text));
                let all = |seed| {
                    let mut random = fastrand::Rng::with_seed(seed);
                    (0..50).map(|_| draw.next(&mut random)).collect::<Vec<_>>()
                };
                prop_assert!(all(seed).iter().all(|n| (least..=least + more).contains(n)));
                prop_assert_eq!(all(seed), all(seed));
            }
        }

        #[test]
        fn no_text_is_too_odd(text in ".{0,40}") {
            prop_assert_eq!(parse(&text).is_err(), wrong(&text).is_some());
        }
    }
}
