//! What a user gives as text: users, rates, SLOs. Lengths have a module of their own.
//!
//! It must not know where the text stands (command line, file). Invariant: each text that is taken is within bounds,
//! and each that is not says why and what to give.

use crate::model::text::clean;

use super::plan::Slo;

/// What a text looks like that gives users.
pub const USERS_FORM: &str = "e.g. 1,2,4,8 or 1..64 (doubling)";
/// What a text looks like that gives rates.
pub const RATES_FORM: &str = "requests/s, e.g. 0.5,1,2 or 1..16 (doubling)";
/// What a text looks like that gives SLOs.
pub const SLO_FORM: &str = "ms, e.g. ttft:500,tpot:50,e2e:10000; or none";

/// Most users at a time.
pub const MOST_USERS: u32 = 4_096;
/// Smallest rate, requests/s.
const LEAST_RATE: f64 = 0.001;
/// Largest rate, requests/s.
const MOST_RATE: f64 = 10_000.0;
/// Most levels of a sweep.
const MOST_LEVELS: usize = 64;
/// Longest time that an SLO may allow, ms.
const MOST_MS: f64 = 3_600_000.0;

/// Users, level by level.
///
/// # Errors
/// What is wrong with the text, and what to give.
pub fn users(text: &str) -> Result<Vec<u32>, String> {
    let one = |text: &str| {
        let number = text.parse().ok().filter(|n| (1..=MOST_USERS).contains(n));
        let wrong = || format!("\"{}\" is no number of users: give 1 to {MOST_USERS}, {USERS_FORM}", clean(text));
        number.ok_or_else(wrong)
    };
    levels(text, one, |n| n.saturating_mul(2))
}

/// Requests/s, level by level.
///
/// # Errors
/// What is wrong with the text, and what to give.
pub fn rates(text: &str) -> Result<Vec<f64>, String> {
    let one = |text: &str| {
        let number = text.parse().ok().filter(|rate: &f64| (LEAST_RATE..=MOST_RATE).contains(rate));
        let wrong = || format!("\"{}\" is no rate: give {LEAST_RATE} to {MOST_RATE} {RATES_FORM}", clean(text));
        number.ok_or_else(wrong)
    };
    levels(text, one, |rate| rate * 2.0)
}

/// Why a text gives no users; `None` where it does.
pub fn users_wrong(text: &str) -> Option<String> {
    users(text).err()
}

/// Why a text gives no rates; `None` where it does.
pub fn rates_wrong(text: &str) -> Option<String> {
    rates(text).err()
}

/// Why a text gives no SLOs; `None` where it does.
pub fn slo_wrong(text: &str) -> Option<String> {
    slo(text).err()
}

/// A list, or a range that is doubled from its first to its last level.
fn levels<T: Copy + PartialOrd>(
    text: &str,
    one: impl Fn(&str) -> Result<T, String>,
    double: impl Fn(T) -> T,
) -> Result<Vec<T>, String> {
    let levels = if let Some((first, last)) = text.split_once("..") {
        let (first, last) = (one(first.trim())?, one(last.trim())?);
        if first > last {
            return Err(format!("{} goes down: put the lower level first", clean(text)));
        }
        let below = std::iter::successors(Some(first), |level| Some(double(*level)));
        below.take_while(|level| *level < last).chain([last]).collect()
    } else {
        text.split(',').map(|text| one(text.trim())).collect::<Result<Vec<T>, _>>()?
    };
    if levels.len() > MOST_LEVELS {
        return Err(format!("{} levels: a sweep has {MOST_LEVELS} at most", levels.len()));
    }
    if levels.iter().enumerate().any(|(i, level)| levels[..i].contains(level)) {
        return Err("a level stands there twice: to measure levels more than once, ask for repetitions".to_owned());
    }
    Ok(levels)
}

/// SLOs; no text or "none" gives none.
///
/// # Errors
/// What is wrong with the text, and what to give.
pub fn slo(text: &str) -> Result<Slo, String> {
    let mut slo = Slo::default();
    let text = text.trim();
    if text.is_empty() || text == "none" {
        return Ok(slo);
    }
    for part in text.split(',') {
        let (name, value) = part.split_once(':').ok_or_else(|| {
            format!("\"{}\" gives no SLO: a name, a colon and ms are expected, {SLO_FORM}", clean(part))
        })?;
        let place = match name.trim() {
            "ttft" => &mut slo.ttft_s,
            "tpot" => &mut slo.tpot_s,
            "e2e" | "e2el" => &mut slo.e2e_s,
            "itl" => {
                return Err("itl is no SLO here: one request has many of them; give tpot, their mean over its tokens"
                    .to_owned());
            }
            other => return Err(format!("\"{}\" is no SLO: ttft, tpot and e2e are, {SLO_FORM}", clean(other))),
        };
        if place.is_some() {
            return Err(format!("{} is given twice: leave one out", name.trim()));
        }
        let ms = value.trim().parse().ok().filter(|ms: &f64| *ms > 0.0 && *ms <= MOST_MS);
        let wrong = || format!("\"{}\" is no time: give ms above 0 and up to {MOST_MS}, {SLO_FORM}", clean(value));
        *place = Some(ms.ok_or_else(wrong)? / 1e3);
    }
    Ok(slo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_listed_or_doubled() {
        assert_eq!(users("1, 2,4"), Ok(vec![1, 2, 4]));
        assert_eq!(users("8,1"), Ok(vec![8, 1]));
        assert_eq!(users("1..64"), Ok(vec![1, 2, 4, 8, 16, 32, 64]));
        assert_eq!(users("3..20"), Ok(vec![3, 6, 12, 20]));
        assert_eq!(users("5..5"), Ok(vec![5]));
        assert_eq!(rates("0.5,1,2"), Ok(vec![0.5, 1.0, 2.0]));
        assert_eq!(rates("0.5..3"), Ok(vec![0.5, 1.0, 2.0, 3.0]));
        assert_eq!(slo("ttft:500, tpot:50,e2el:10000").unwrap(), slo("e2e:10000,tpot:50,ttft:500").unwrap());
        assert_eq!(slo("ttft:500").unwrap(), Slo { ttft_s: Some(0.5), ..Slo::default() });
        assert_eq!((slo(""), slo("none")), (Ok(Slo::default()), Ok(Slo::default())));
        assert_eq!((users_wrong("1..64"), rates_wrong("0.5"), slo_wrong("tpot:50")), (None, None, None));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_give() {
        type Wrong = fn(&str) -> Option<String>;
        let many = (1..=65).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let cases: [(Wrong, &str, &str); 19] = [
            (users_wrong, "", "\"\" is no number of users: give 1 to 4096, e.g. 1,2,4,8"),
            (users_wrong, "0", "\"0\" is no number of users"),
            (users_wrong, "4097", "\"4097\" is no number of users"),
            (users_wrong, "1.5", "\"1.5\" is no number of users"),
            (users_wrong, "1,,2", "\"\" is no number of users"),
            (users_wrong, "64..1", "64..1 goes down"),
            (users_wrong, "2,4,2", "a level stands there twice"),
            (users_wrong, &many, "65 levels: a sweep has 64 at most"),
            (rates_wrong, "0", "\"0\" is no rate: give 0.001 to 10000 requests/s"),
            (rates_wrong, "nan", "\"nan\" is no rate"),
            (rates_wrong, "1e9", "\"1e9\" is no rate"),
            (slo_wrong, "itl:50", "itl is no SLO here"),
            (slo_wrong, "p99:50", "\"p99\" is no SLO: ttft, tpot and e2e are"),
            (slo_wrong, "ttft", "\"ttft\" gives no SLO"),
            (slo_wrong, "ttft:0", "\"0\" is no time: give ms above 0"),
            (slo_wrong, "ttft:inf", "\"inf\" is no time"),
            (slo_wrong, "ttft:nan", "\"nan\" is no time"),
            (slo_wrong, "e2e:1,e2el:2", "e2el is given twice"),
            (slo_wrong, "ttft:50\x1b[31m", "\"50\" is no time"),
        ];
        for (wrong, text, why) in cases {
            let error = wrong(text).unwrap();
            assert!(error.starts_with(why), "{text:?}: {error}");
        }
    }
}
