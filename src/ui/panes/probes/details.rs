//! A probe's last report as rows for a width: verdict and advice, figures, checks, notes, where and when.
//!
//! The whole report is what `warptop probe show` prints; nothing is here that is not in it. Rows are made again only
//! when report or width change, so that a frame allocates nothing.

use std::fmt::{self, Write};
use std::sync::Arc;

use crate::derive::levels::High;
use crate::load::Level;
use crate::load::level::{Latency, Quantile, Rate};
use crate::probe::page::{methods, number, percent, utc};
use crate::probe::report::{Ending, GpuEnvironment, Judged, Level as Grade, Report};
use crate::probe::{Needs, Params, ProbeSpec, Target};
use crate::ui::panes::latency::words::Compact;
use crate::ui::panes::sweep::words::{Amount, short};
use crate::ui::text::{width, wrap};
use crate::ui::theme::Role;

use super::line::role;

/// Least columns of a figure's name.
const LABEL: u16 = 10;
/// Blanks between columns.
const GAP: u16 = 2;

/// Rows of text.
#[derive(Debug, Default)]
pub(super) struct Details {
    rows: Vec<(Role, String)>,
    /// What they were made for: probe, run, columns.
    made: Option<(&'static str, Option<Arc<str>>, u16)>,
}

impl Details {
    /// The rows.
    pub(super) fn rows(&self) -> &[(Role, String)] {
        &self.rows
    }

    /// Makes the rows for a probe, from its last report if there is one.
    pub(super) fn make(&mut self, spec: &'static ProbeSpec, report: Option<(&Arc<str>, &Report)>, columns: u16) {
        let same = self.made.as_ref().is_some_and(|(id, run, wide)| {
            *id == spec.id && *wide == columns && run.as_ref() == report.map(|(run, _)| run)
        });
        if same {
            return;
        }
        self.rows.clear();
        self.made = Some((spec.id, report.map(|(run, _)| Arc::clone(run)), columns));
        match report {
            Some((_, report)) => self.report(report, columns),
            None => self.about(spec, columns),
        }
    }

    /// What a probe that has no report would do.
    fn about(&mut self, spec: &ProbeSpec, columns: u16) {
        self.say(Role::Text, columns, format_args!("{}", spec.help));
        let cost = (spec.cost)(&Params::of(spec), &Target::default());
        let on = match spec.needs {
            Needs::Host => "on the host",
            Needs::Gpu => "on the chosen GPU",
            Needs::Gpus(_) => "on every GPU",
            Needs::Endpoint => "on the chosen engine",
        };
        self.say(Role::Dim, columns, format_args!("A run {on} takes {cost}."));
    }

    fn report(&mut self, report: &Report, columns: u16) {
        let verdict = &report.verdict;
        self.say(role(verdict.level), columns, format_args!("{}: {}", judged(report), verdict.summary));
        for advice in &verdict.advice {
            self.say(Role::Text, columns, format_args!("- {advice}"));
        }
        self.figures(report, columns);
        self.levels(report, columns);
        for check in &report.checks {
            if check.passed {
                self.say(Role::Dim, columns, format_args!("checked, right: {}", check.what));
            } else {
                self.say(Role::Warn, columns, format_args!("checked, WRONG: {} {}", check.what, check.detail));
            }
        }
        for note in &report.notes {
            self.say(Role::Text, columns, format_args!("- {note}"));
        }
        let mut text = String::new();
        methods(&mut text, report);
        for line in text.lines() {
            self.say(Role::Dim, columns, format_args!("{line}"));
        }
        self.references(report, columns);
        self.place(report, columns);
    }

    /// The figures as a table of as many columns as there is room for; those that are empty are left out.
    fn figures(&mut self, report: &Report, columns: u16) {
        let all = &report.results;
        if all.is_empty() {
            return;
        }
        let column = |head: &str, of: &dyn Fn(&Judged) -> Option<String>| Column::of(head, all.iter().map(of));
        let share = |share: Option<f64>| share.map(|_| percent(share));
        let swept = !report.levels.is_empty();
        let table = [
            column(if swept { "value" } else { "median" }, &|j| {
                Some(format!("{} {}", number(Some(j.figure.value)), j.figure.unit))
            }),
            column("of reference", &|j| share(j.pct_of_reference)),
            column("of baseline", &|j| share(j.pct_of_baseline)),
            column("of datasheet", &|j| share(j.pct_of_datasheet)),
            column(if swept { "95 % interval" } else { "smallest – largest" }, &|j| {
                // A figure of a sweep without an interval has its value at both ends.
                let spreads = if swept { j.figure.lo < j.figure.hi } else { j.figure.n > 1 };
                spreads.then(|| format!("{} – {}", number(Some(j.figure.lo)), number(Some(j.figure.hi))))
            }),
            column("n", &|j| Some(j.figure.n.to_string())),
            column("floor", &|j| j.figure.floor.map(|floor| number(Some(floor)))),
        ]
        .into_iter()
        .flatten()
        .collect();
        let names: Vec<_> = all.iter().map(|judged| judged.figure.label.clone()).collect();
        self.table(&names, table, columns);
    }

    /// The levels of a load sweep, a row each.
    fn levels(&mut self, report: &Report, columns: u16) {
        let all = &report.levels;
        if all.is_empty() {
            return;
        }
        let column = |head: &str, of: &dyn Fn(&Level) -> Option<String>| Column::of(head, all.iter().map(of));
        let allowed = |quantile: Option<Quantile>| quantile.filter(|q| q.enough).map(|q| Compact(q.value).to_string());
        let high = |latency: &Latency| match latency.high() {
            High::P99(q) => Some(Compact(q.value).to_string()),
            High::P95(q) => Some(format!("P95 {}", Compact(q.value))),
            High::Few(n) => Some(format!("n {n}")),
            High::Nothing => None,
        };
        let number = |rate: Option<Rate>| rate.map(|rate| number(Some(rate.value)));
        let table = [
            column("P99 TTFT", &|level| high(&level.ttft_s)),
            column("tokens/s", &|level| number(level.output_tokens_per_s)),
            column("limit", &|level| level.bottleneck.as_ref().map(|limit| limit.word.clone())),
            column("P50 TTFT", &|level| allowed(level.ttft_s.p50)),
            column("P99 ITL", &|level| high(&level.itl_s)),
            column("P99 E2E", &|level| high(&level.e2e_s)),
            column("good", &|level| level.goodput.map(|good| percent(Some(good.share * 100.0)))),
            column("ended", &|level| Some(short(level.state).to_owned()).filter(|word| !word.is_empty())),
        ];
        let names: Vec<_> = all.iter().map(|level| Amount(level.load).to_string()).collect();
        self.table(&names, table.into_iter().flatten().collect(), columns);
        if let Some(knee) = &report.knee {
            self.say(Role::Text, columns, format_args!("knee: {}", knee.words));
        }
    }

    /// Rows with a name each. What does not fit beside the names goes, the last column before the first.
    fn table(&mut self, names: &[String], mut table: Vec<Column>, columns: u16) {
        let widest = names.iter().map(|name| width(name)).max().unwrap_or_default();
        let taken = |table: &[Column]| table.iter().map(|column| column.wide + GAP).sum::<u16>();
        while table.len() > 1 && taken(&table) + widest.min(columns / 3).max(LABEL) > columns {
            table.pop();
        }
        let label = widest.min(columns.saturating_sub(taken(&table)));
        let line = |name: &str, cell: &dyn Fn(&Column) -> String| {
            let mut out = fitted(name, label);
            for column in &table {
                let cell = cell(column);
                let blanks = usize::from(GAP + column.wide.saturating_sub(width(&cell)));
                // Writing to a String never fails.
                let _ = write!(out, "{:blanks$}{cell}", "");
            }
            out
        };
        self.rows.push((Role::Dim, line("", &|column| column.head.clone())));
        for (row, name) in names.iter().enumerate() {
            let text = line(name, &|column| column.cells[row].clone());
            self.rows.push((Role::Text, text));
        }
    }

    fn references(&mut self, report: &Report, columns: u16) {
        for judged in &report.results {
            if let (Some(reference), Some(source)) = (judged.reference, &judged.reference_source) {
                let (label, unit) = (&judged.figure.label, &judged.figure.unit);
                let value = number(Some(reference));
                self.say(Role::Dim, columns, format_args!("{label}: reference {value} {unit}, {source}"));
            }
        }
    }

    /// Where, when and under what circumstances.
    fn place(&mut self, report: &Report, columns: u16) {
        let seconds = report.ended_unix_ms.saturating_sub(report.started_unix_ms) as f64 / 1000.0;
        let mut on = report.target.to_string();
        if let Some(gpu) = report.target.gpus.first() {
            let _ = write!(on, " ({})", gpu.name);
        }
        if !report.host.is_empty() {
            // "the host vm", "GPU 0 (NVIDIA H200) of gpu-07".
            let of = if report.target.gpus.is_empty() { "" } else { "of " };
            let _ = write!(on, " {of}{}", report.host);
        }
        let began = utc(report.started_unix_ms);
        self.say(Role::Dim, columns, format_args!("on {on}, {began}, took {seconds:.1} s, run {}", report.run));
        let environment = &report.environment;
        let mut with = format!("warptop {}", report.warptop);
        if let Some(driver) = &environment.driver {
            let _ = write!(with, ", driver {driver}");
        }
        if let Some(part) = &environment.bound_to {
            let _ = write!(with, ", bound to {part}");
        }
        for (name, value) in report.inputs.iter() {
            let _ = write!(with, ", {name} {value}");
        }
        for (name, value) in &environment.facts {
            let _ = write!(with, ", {name}: {value}");
        }
        self.say(Role::Dim, columns, format_args!("with {with}"));
        for gpu in &environment.gpus {
            self.machine(gpu, columns);
        }
        if report.duty_pct < 100 {
            self.say(Role::Warn, columns, format_args!("busy for {} % of the time at most", report.duty_pct));
        }
        if !environment.company.is_empty() {
            self.say(Role::Warn, columns, format_args!("beside others: {}", environment.company));
        }
    }

    /// "GPU 0: SM 1410 to 1980 MHz, 67 °C and 702 W at most, clocks held down by sw power cap 4100 ms".
    fn machine(&mut self, gpu: &GpuEnvironment, columns: u16) {
        let mut said: Vec<String> = Vec::new();
        if let (Some(min), Some(max)) = (gpu.sm_clock_mhz.min, gpu.sm_clock_mhz.max) {
            said.push(format!("SM {min:.0} to {max:.0} MHz"));
        }
        said.extend(gpu.temp_c.max.map(|temp| format!("{temp:.0} °C at most")));
        said.extend(gpu.mem_temp_c.max.map(|temp| format!("memory {temp:.0} °C at most")));
        let limit = gpu.power_limit_w.map(|limit| format!(" of {limit:.0}")).unwrap_or_default();
        said.extend(gpu.power_w.max.map(|power| format!("{power:.0}{limit} W at most")));
        for (reason, held) in &gpu.throttled_ms {
            if let Some(held) = held.filter(|held| *held >= 1.0) {
                said.push(format!("clocks held down by {} for {held:.0} ms", reason.replace('_', " ")));
            }
        }
        if !said.is_empty() {
            self.say(Role::Dim, columns, format_args!("GPU {}: {}", gpu.index, said.join(", ")));
        }
    }

    /// Adds a text over as many rows as it takes.
    fn say(&mut self, role: Role, columns: u16, text: fmt::Arguments<'_>) {
        let text = text.to_string();
        wrap(&text, columns, |_, line| self.rows.push((role, line.to_owned())));
    }
}

/// How good it is in a word. A sweep is judged by no reference: a good one is measured, not unknown.
fn judged(report: &Report) -> &'static str {
    let measured = report.verdict.level == Grade::Unknown && !report.levels.is_empty();
    if measured && report.ending == Ending::Done { "measured" } else { report.verdict_word() }
}

/// A column of a table.
struct Column {
    head: String,
    cells: Vec<String>,
    wide: u16,
}

impl Column {
    /// The column of these cells; `None` where all are empty.
    fn of(head: &str, cells: impl Iterator<Item = Option<String>>) -> Option<Self> {
        let cells: Vec<_> = cells.map(Option::unwrap_or_default).collect();
        let used = cells.iter().any(|cell| !cell.is_empty());
        let wide = cells.iter().map(|cell| width(cell)).max().unwrap_or_default().max(width(head));
        used.then(|| Self { head: head.to_owned(), cells, wide })
    }
}

/// The text in exactly so many columns.
fn fitted(text: &str, columns: u16) -> String {
    if width(text) <= columns {
        let blanks = usize::from(columns - width(text));
        return format!("{text}{:blanks$}", "");
    }
    let mut out = String::new();
    for c in text.chars() {
        if width(&out) + 2 > columns {
            break;
        }
        out.push(c);
    }
    out.push('…');
    fitted(&out, columns.max(width(&out)))
}
