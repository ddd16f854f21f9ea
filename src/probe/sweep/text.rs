//! Texts of parameters: levels, lengths, SLOs and traces. Stands in for the parsers of `crate::load`.
//!
//! Invariant: what is checked before the start reads no file; files are read by the probe's process.

use std::fs::File;
use std::io::Read as _;

use crate::load::plan::{Arrival, Lengths, Slo};

/// Longest file that is read, bytes.
const MAX_FILE: u64 = 64 << 20;
/// Most tokens of a prompt or an output.
const MOST_LENGTH: u32 = 10_000_000;

/// "1,2,4": numbers above 0.
pub(super) fn parse_levels(text: &str) -> Result<Vec<f64>, String> {
    let level = |part: &str| {
        let number = part.trim().parse::<f64>().ok().filter(|n| *n > 0.0 && *n <= 1e6);
        number.ok_or_else(|| format!("'{}' is no level: a number above 0 is needed", crate::model::text::clean(part)))
    };
    text.split(',').map(level).collect()
}

pub(super) fn wrong_levels(text: &str) -> Option<String> {
    parse_levels(text).err()
}

/// "256", "128..512", "128*3,512*1", or "@FILE" with one length a line.
pub(super) fn parse_lengths(text: &str) -> Result<Lengths, String> {
    match text.strip_prefix('@') {
        Some(path) => of_file(path),
        None => given(text),
    }
}

fn length(text: &str) -> Result<u32, String> {
    let number = text.trim().parse::<u32>().ok().filter(|n| (1..=MOST_LENGTH).contains(n));
    number.ok_or_else(|| format!("'{}' is no number of tokens", crate::model::text::clean(text)))
}

fn given(text: &str) -> Result<Lengths, String> {
    if let Some((least, most)) = text.split_once("..") {
        let (least, most) = (length(least)?, length(most)?);
        return if least <= most {
            Ok(Lengths::Uniform(least, most))
        } else {
            Err("the larger length comes first".into())
        };
    }
    if !text.contains([',', '*']) {
        return length(text).map(Lengths::Fixed);
    }
    let weighted = |part: &str| {
        let (tokens, weight) = part.split_once('*').unwrap_or((part, "1"));
        let weight = weight.trim().parse::<f64>().ok().filter(|w| *w > 0.0 && w.is_finite());
        Ok((length(tokens)?, weight.ok_or("a weight is no number above 0")?))
    };
    text.split(',').map(weighted).collect::<Result<_, String>>().map(Lengths::Mixed)
}

pub(super) fn wrong_lengths(text: &str) -> Option<String> {
    match text.strip_prefix('@') {
        Some("") => Some("the name of the file is missing".to_owned()),
        Some(_) => None,
        None => given(text).err(),
    }
}

/// Mean of the lengths, as far as it is known without reading a file.
pub(super) fn mean(text: &str) -> Option<f64> {
    match given(text).ok()? {
        Lengths::Fixed(n) => Some(f64::from(n)),
        Lengths::Uniform(a, b) => Some(f64::midpoint(f64::from(a), f64::from(b))),
        Lengths::Mixed(all) => {
            let weights: f64 = all.iter().map(|(_, weight)| weight).sum();
            Some(all.iter().map(|(n, weight)| f64::from(*n) * weight).sum::<f64>() / weights)
        }
    }
}

fn read(path: &str) -> Result<String, String> {
    let shown = crate::model::text::clean(path);
    let mut text = String::new();
    let file = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
    file.map_err(|error| format!("{shown} cannot be read: {error}"))?;
    if text.len() as u64 > MAX_FILE { Err(format!("{shown} is longer than {} MiB", MAX_FILE >> 20)) } else { Ok(text) }
}

fn of_file(path: &str) -> Result<Lengths, String> {
    let lines = read(path)?;
    let lengths: Vec<_> = lines.lines().filter(|line| !line.trim().is_empty()).map(length).collect::<Result<_, _>>()?;
    match lengths.as_slice() {
        [] => Err("the file of lengths is empty".to_owned()),
        all => Ok(Lengths::Mixed(all.iter().map(|&n| (n, 1.0)).collect())),
    }
}

/// "ttft=500ms,tpot=50ms,e2e=10s"; empty for none.
pub(super) fn parse_slo(text: &str) -> Result<Slo, String> {
    let mut slo = Slo::default();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let wrong = || format!("'{}' is no SLO", crate::model::text::clean(part));
        let (name, limit) = part.split_once('=').ok_or_else(wrong)?;
        let limit = limit.trim();
        let (number, scale) = match limit.strip_suffix("ms") {
            Some(ms) => (ms, 1e-3),
            None => (limit.strip_suffix('s').ok_or_else(wrong)?, 1.0),
        };
        let seconds = number.parse::<f64>().ok().filter(|s| *s > 0.0 && s.is_finite()).ok_or_else(wrong)? * scale;
        *match name.trim() {
            "ttft" => &mut slo.ttft_s,
            "tpot" => &mut slo.tpot_s,
            "e2e" => &mut slo.e2e_s,
            _ => return Err(wrong()),
        } = Some(seconds);
    }
    Ok(slo)
}

pub(super) fn wrong_slo(text: &str) -> Option<String> {
    parse_slo(text).err()
}

/// A file of "seconds,prompt tokens,output tokens" a line.
pub(super) fn parse_trace(path: &str) -> Result<Vec<Arrival>, String> {
    let text = read(path)?;
    let arrival = |(i, line): (usize, &str)| {
        let wrong = || format!("line {} of the trace is no 'seconds,prompt tokens,output tokens'", i + 1);
        let mut fields = line.split(',').map(str::trim);
        let mut next = || fields.next().ok_or_else(wrong);
        let at_s = next()?.parse::<f64>().ok().filter(|s| *s >= 0.0 && s.is_finite()).ok_or_else(wrong)?;
        Ok(Arrival {
            at_s,
            prompt: length(next()?).map_err(|_| wrong())?,
            output: length(next()?).map_err(|_| wrong())?,
        })
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let all: Vec<_> = lines.map(arrival).collect::<Result<_, String>>()?;
    if all.is_empty() { Err("the trace holds no request".to_owned()) } else { Ok(all) }
}
