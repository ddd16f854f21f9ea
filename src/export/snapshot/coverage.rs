//! How much of the window the figures of a snapshot rest on. It must not know what they mean.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::{Metric, Subject};
use crate::store::{Data, Window};

/// Seconds that were measured, by the name of the figure that rests on them.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Coverage(BTreeMap<&'static str, f64>);

impl Coverage {
    /// The figures of `subject` over `window`, each with a metric that it rests on.
    pub(super) fn of(data: &Data, subject: Subject, window: Window, figures: &[(&'static str, Metric)]) -> Self {
        let seconds = |metric| data.measured_ms(subject, metric, window) as f64 / 1000.0;
        Self(figures.iter().map(|&(name, metric)| (name, seconds(metric))).collect())
    }

    /// One more figure.
    pub(super) fn note(&mut self, name: &'static str, ms: u64) {
        self.0.insert(name, ms as f64 / 1000.0);
    }
}
