//! A value or the reason why there is none, and the thing it was measured on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a value is missing. The names are part of the snapshot's contract (`missing[].why`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The device, driver or server does not offer this value.
    Unsupported,
    /// It exists, but this user may not read it.
    NotPermitted,
    /// The last value is too old to be called current.
    Stale,
    /// The call or scrape failed, or its answer was no number.
    Failed,
    /// Not read yet, or a rate that needs one more reading.
    NotYet,
    /// The recording holds no such value up to this moment.
    NotRecorded,
}

impl Why {
    /// Every reason, in the order of their codes.
    pub const ALL: [Self; 6] =
        [Self::Unsupported, Self::NotPermitted, Self::Stale, Self::Failed, Self::NotYet, Self::NotRecorded];

    /// The name used in JSON and recordings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unsupported => "unsupported",
            Self::NotPermitted => "not_permitted",
            Self::Stale => "stale",
            Self::Failed => "failed",
            Self::NotYet => "not_yet",
            Self::NotRecorded => "not_recorded",
        }
    }

    /// A word short enough for a cell on screen.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unsupported | Self::NotRecorded => "n/a",
            Self::NotPermitted => "denied",
            Self::Stale => "stale",
            Self::Failed => "failed",
            Self::NotYet => "…",
        }
    }

    /// The reason with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.name() == name)
    }
}

/// A finite number, or why there is none. NaN and infinities never get in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// A finite number in the unit of its metric.
    Value(f64),
    /// No number, and the reason.
    Missing(Why),
}

impl Reading {
    /// A number, or [`Why::Failed`] when it is NaN or infinite.
    pub const fn new(value: f64) -> Self {
        if value.is_finite() { Self::Value(value) } else { Self::Missing(Why::Failed) }
    }

    /// The number, if there is one.
    pub const fn value(self) -> Option<f64> {
        match self {
            Self::Value(value) => Some(value),
            Self::Missing(_) => None,
        }
    }

    /// The reason, if there is no number.
    pub const fn why(self) -> Option<Why> {
        match self {
            Self::Value(_) => None,
            Self::Missing(why) => Some(why),
        }
    }

    /// Applies `f` to the number; the reason passes through.
    #[must_use]
    pub fn map(self, f: impl FnOnce(f64) -> f64) -> Self {
        match self {
            Self::Value(value) => Self::new(f(value)),
            missing @ Self::Missing(_) => missing,
        }
    }
}

impl From<Result<f64, Why>> for Reading {
    fn from(result: Result<f64, Why>) -> Self {
        result.map_or_else(Self::Missing, Self::new)
    }
}

/// In JSON a reading is a number, or the reason's name as a string.
impl Serialize for Reading {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // Whole numbers without ".0": shorter recordings, and exact.
            #[expect(clippy::float_cmp, reason = "asks whether the number is whole, not whether two are close")]
            Self::Value(v) if v.abs() < 9e15 && v.trunc() == *v => serializer.serialize_i64(*v as i64),
            Self::Value(v) => serializer.serialize_f64(*v),
            Self::Missing(why) => serializer.serialize_str(why.name()),
        }
    }
}

impl<'de> Deserialize<'de> for Reading {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Reading;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a number or the name of a reason")
            }
            fn visit_f64<E>(self, v: f64) -> Result<Reading, E> {
                Ok(Reading::new(v))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Reading, E> {
                Ok(Reading::new(v as f64))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Reading, E> {
                Ok(Reading::new(v as f64))
            }
            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Reading, E> {
                // A newer version's reason is still a missing value.
                Ok(Reading::Missing(Why::from_name(v).unwrap_or(Why::Failed)))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// What a value was measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The machine.
    Host,
    /// GPU by its NVML index.
    Gpu(u8),
    /// Serving engine by its place in the list of engines.
    Engine(u8),
    /// warptop itself.
    App,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Gpu(i) => write!(f, "gpu{i}"),
            Self::Engine(i) => write!(f, "engine{i}"),
            Self::App => f.write_str("app"),
        }
    }
}

/// The text is not the name of a subject.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' names no subject (host, gpuN, engineN or app)")]
pub struct UnknownSubject(String);

impl FromStr for Subject {
    type Err = UnknownSubject;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let index = |prefix: &str| text.strip_prefix(prefix).and_then(|n| n.parse().ok());
        match text {
            "host" => Ok(Self::Host),
            "app" => Ok(Self::App),
            _ => index("gpu")
                .map(Self::Gpu)
                .or_else(|| index("engine").map(Self::Engine))
                .ok_or_else(|| UnknownSubject(text.to_owned())),
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Subject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_infinity_are_missing() {
        assert_eq!(Reading::new(f64::NAN), Reading::Missing(Why::Failed));
        assert_eq!(Reading::new(f64::INFINITY), Reading::Missing(Why::Failed));
        assert_eq!(Reading::Value(1.0).map(|v| v / 0.0), Reading::Missing(Why::Failed));
    }

    #[test]
    fn reads_back_what_it_writes() {
        for reading in
            [Reading::Value(0.0), Reading::Value(-3.0), Reading::Value(81.25), Reading::Missing(Why::NotPermitted)]
        {
            let json = serde_json::to_string(&reading).unwrap();
            assert_eq!(serde_json::from_str::<Reading>(&json).unwrap(), reading, "{json}");
        }
    }

    #[test]
    fn subjects_read_back() {
        for subject in [Subject::Host, Subject::App, Subject::Gpu(7), Subject::Engine(0)] {
            assert_eq!(subject.to_string().parse::<Subject>().unwrap(), subject);
        }
        assert!("gpux".parse::<Subject>().is_err());
    }
}
