//! One level of a sweep, whole, as lines for a width: what the client measured, whether it was the limit, and what server
//! and GPUs did meanwhile. What is not known says so.

use std::fmt::{self, Write};

use crate::derive::levels::latency;
use crate::load::Level;
use crate::load::level::{Agreement, Lag, Latency, Requests, Server, Silicon};
use crate::model::Metric;
use crate::model::text::Plural;
use crate::ui::panes::latency::words::name;
use crate::ui::text::wrap;
use crate::ui::theme::Role;

use super::words::{Amount, Bounded, Spread, is_planned, number, seconds, state};

/// The lines, and what they were made for.
#[derive(Debug, Default)]
pub(super) struct Readout {
    lines: Vec<(Role, String)>,
}

impl Readout {
    /// The lines.
    pub(super) fn lines(&self) -> &[(Role, String)] {
        &self.lines
    }

    /// Nothing is read out.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    /// Reads a level out, of which this is the place and how many there are; the chosen latency and what is wrong come
    /// first, for screens that have no room for all.
    pub(super) fn make(&mut self, level: &Level, place: (usize, usize), chosen: Metric, columns: u16) {
        self.lines.clear();
        let mut out = Out { lines: &mut self.lines, columns };
        out.head(level, place);
        if is_planned(level) {
            return;
        }
        out.wrong(level);
        out.latency(name(chosen), latency(level, chosen));
        out.rates(level);
        out.bottleneck(level);
        out.gpus(level);
        out.server(level.server.as_ref());
        out.client(level);
        out.latencies(level, chosen);
        out.agreement(level, true);
        for note in &level.notes {
            out.say(Role::Dim, format_args!("- {note}"));
        }
    }
}

struct Out<'a> {
    lines: &'a mut Vec<(Role, String)>,
    columns: u16,
}

impl Out<'_> {
    /// Adds a text over as many lines as it takes.
    fn say(&mut self, role: Role, text: fmt::Arguments<'_>) {
        let text = text.to_string();
        wrap(&text, self.columns, |_, line| self.lines.push((role, line.to_owned())));
    }

    fn head(&mut self, level: &Level, (place, all): (usize, usize)) {
        let again = if level.repeat > 0 { format!(", repetition {}", level.repeat + 1) } else { String::new() };
        let planned = is_planned(level);
        let (load, how) = (Amount(level.load), if planned { "planned" } else { state(level.state) });
        self.say(Role::Accent, format_args!("{load}, level {} of {all}{again}: {how}", place + 1));
        if planned {
            return;
        }
        let Requests { measured, ok, .. } = level.requests;
        let ms = level.to_unix_ms.saturating_sub(level.from_unix_ms);
        let mut text = format!("{} measured in {} s: {ok} ok", Plural(measured, "request", "requests"), ms / 1000);
        for (n, what) in unwell(level.requests) {
            // Writing to a String never fails.
            let _ = write!(text, ", {n} {what}");
        }
        let role = if unwell(level.requests).next().is_some() { Role::Warn } else { Role::Text };
        self.say(role, format_args!("{text}"));
    }

    /// What makes the level worth less.
    fn wrong(&mut self, level: &Level) {
        for limit in &level.client.limits {
            self.say(Role::Warn, format_args!("the client may have been the limit: {limit}"));
        }
        self.agreement(level, false);
    }

    /// What client and server say of the same thing, where they agree or where they do not.
    fn agreement(&mut self, level: &Level, agrees: bool) {
        let all = level.server.iter().flat_map(|server| &server.agreement);
        for same in all.filter(|same| same.agrees == agrees) {
            let (what, client, server) = (&same.what, value(same, same.client), bounds(same));
            let (role, agree) = if agrees { (Role::Dim, "yes") } else { (Role::Warn, "NO") };
            let unit = if same.unit == "s" { String::new() } else { format!(" {}", same.unit) };
            self.say(role, format_args!("agree on {what}: {agree}, client {client}, server {server}{unit}"));
        }
    }

    /// The other latencies.
    fn latencies(&mut self, level: &Level, chosen: Metric) {
        let others =
            [Metric::Ttft, Metric::Itl, Metric::Tpot, Metric::E2e].into_iter().filter(|other| *other != chosen);
        for other in others.filter(|other| latency(level, *other).n > 0) {
            self.latency(name(other), latency(level, other));
        }
        let all = [
            ("TTFT of the answer itself", Some(&level.answer_s)),
            ("TTFT from the intended start", level.scheduled_ttft_s.as_ref()),
            ("E2E from the intended start", level.scheduled_e2e_s.as_ref()),
        ];
        for (name, latency) in all {
            if let Some(latency) = latency.filter(|latency| latency.n > 0) {
                self.latency(name, latency);
            }
        }
    }

    fn latency(&mut self, name: &str, latency: &Latency) {
        if latency.n == 0 {
            return self.say(Role::Dim, format_args!("{name}: not measured"));
        }
        let mut text = name.to_owned();
        let quantiles = [(50, latency.p50), (95, latency.p95), (99, latency.p99)];
        let enough = |q: &(u8, _)| matches!(q.1, Some(crate::load::level::Quantile { enough: true, .. }));
        // A P95 only where there is no P99.
        let p99 = enough(&quantiles[2]);
        for (q, quantile) in quantiles.iter().filter(|q| enough(q) && (q.0 != 95 || !p99)) {
            if let Some(quantile) = quantile {
                // Writing to a String never fails.
                let _ = write!(text, " {}", Bounded(*q, *quantile));
            }
        }
        let few = if p99 { "" } else { ", too few for a P99" };
        self.say(Role::Text, format_args!("{text} n {}{few}", latency.n));
    }

    fn rates(&mut self, level: &Level) {
        let rates = [
            (level.output_tokens_per_s, "output tokens/s"),
            (level.total_tokens_per_s, "tokens/s in all"),
            (level.requests_per_s, "requests/s"),
        ];
        let all: Vec<_> = rates.iter().filter_map(|(rate, of)| Some(format!("{} {of}", Spread((*rate)?)))).collect();
        if !all.is_empty() {
            self.say(Role::Text, format_args!("{}", all.join(", ")));
        }
        match level.goodput {
            Some(good) => {
                let [share, lo, hi] = [good.share, good.lo, good.hi].map(|share| share * 100.0);
                let per_s = number(good.per_s);
                let of = good.n;
                self.say(
                    Role::Text,
                    format_args!("goodput {share:.1} % ({lo:.1}–{hi:.1} %) of {of}, {per_s} good requests/s"),
                );
            }
            None => self.say(Role::Dim, format_args!("goodput: no SLO was given")),
        }
    }

    fn bottleneck(&mut self, level: &Level) {
        match &level.bottleneck {
            Some(limit) => self.say(Role::Text, format_args!("limit: {}: {}", limit.word, limit.evidence)),
            None if level.state.is_over() => self.say(Role::Dim, format_args!("limit: nothing tells")),
            None => {}
        }
    }

    fn gpus(&mut self, level: &Level) {
        if level.gpus.is_empty() {
            self.say(Role::Dim, format_args!("GPU: none of this host was read"));
        }
        for gpu in &level.gpus {
            self.gpu(gpu);
        }
    }

    fn gpu(&mut self, gpu: &Silicon) {
        let mut said: Vec<String> = Vec::new();
        let shares = [("SM", gpu.sm_active_pct), ("DRAM", gpu.dram_active_pct), ("tensor", gpu.tensor_active_pct)];
        said.extend(shares.iter().filter_map(|(name, share)| Some(format!("{name} {:.0} %", (*share)?))));
        match (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz) {
            (Some(clock), Some(most)) => said.push(format!("clock {clock:.0} of {most:.0} MHz")),
            (Some(clock), None) => said.push(format!("clock {clock:.0} MHz")),
            _ => {}
        }
        said.extend(gpu.power_w.map(|power| format!("{power:.0} W")));
        said.extend(gpu.most_temp_c.map(|temp| format!("{temp:.0} °C at most")));
        if gpu.is_throttled() {
            let by = gpu.throttled_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            let long = gpu.throttled_ms_per_s.map(|ms| format!(" {ms:.0} ms of each second")).unwrap_or_default();
            said.push(format!("THROTTLED{long}{by}"));
        }
        if said.is_empty() {
            said.push("nothing was read".to_owned());
        }
        let role = if gpu.is_throttled() { Role::Warn } else { Role::Text };
        self.say(role, format_args!("GPU {}: {}", gpu.index, said.join(", ")));
    }

    fn server(&mut self, server: Option<&Server>) {
        let Some(server) = server else {
            self.say(Role::Dim, format_args!("server: not read"));
            return;
        };
        let mut said: Vec<String> = Vec::new();
        let most = |most: Option<f64>| most.map(|most| format!(" (most {})", number(most))).unwrap_or_default();
        said.extend(server.running.map(|running| format!("{} running", number(running))));
        said.extend(server.waiting.map(|waiting| format!("{} waiting{}", number(waiting), most(server.most_waiting))));
        said.extend(server.kv_used_pct.map(|used| {
            let most = server.most_kv_used_pct.map(|most| format!(" (most {most:.0} %)")).unwrap_or_default();
            format!("KV {used:.0} %{most}")
        }));
        said.extend(server.preemptions.map(|n| format!("{} preempted", number(n))));
        said.extend(server.prefix_hit_pct.map(|share| format!("{share:.0} % of the prompts from the prefix cache")));
        if said.is_empty() {
            said.push("none of its figures".to_owned());
        }
        self.say(Role::Text, format_args!("server: {}", said.join(", ")));
    }

    fn client(&mut self, level: &Level) {
        let client = &level.client;
        let mut said: Vec<String> = Vec::new();
        said.extend(lag("dispatch lag", client.dispatch_lag));
        said.extend(lag("loop lag", client.loop_lag));
        said.extend(client.cpu_pct.map(|cpu| format!("CPU {cpu:.0} % of a core")));
        said.extend(client.in_flight.map(|mean| {
            let server = level.server.as_ref().map(at_server).unwrap_or_default();
            format!("in flight {} (most {}){server}", number(mean), client.most_in_flight)
        }));
        if !said.is_empty() {
            self.say(Role::Dim, format_args!("client: {}", said.join(", ")));
        }
    }
}

/// A figure of both, as lengths of time are said elsewhere, or the bare number.
fn value(of: &Agreement, value: f64) -> String {
    if of.unit == "s" { seconds(value).to_string() } else { number(value).to_string() }
}

/// "43.2 ms–61.0 ms", "3.11", "18 or more": what the server's figure is.
fn bounds(of: &Agreement) -> String {
    let lo = value(of, of.server_lo);
    match of.server_hi.map(|hi| value(of, hi)) {
        Some(hi) if hi == lo => lo,
        Some(hi) => format!("{lo}–{hi}"),
        None => format!("{lo} or more"),
    }
}

/// How late the client was: a P99 only of so many measurements that it is one, else the largest.
fn lag(name: &str, lag: Lag) -> Option<String> {
    match lag.sure_p99() {
        Some(p99) => Some(format!("{name} P99 {}", seconds(p99))),
        None => lag.max.map(|max| format!("{name} at most {} of {}", seconds(max), lag.n)),
    }
}

/// ", the server says 18": running and waiting together where both are known, else what is.
fn at_server(server: &Server) -> String {
    match (server.running, server.waiting) {
        (Some(running), Some(waiting)) => format!(", the server says {}", number(running + waiting)),
        (Some(running), None) => format!(", the server says {} running, ? waiting", number(running)),
        (None, Some(waiting)) => format!(", the server says ? running, {} waiting", number(waiting)),
        (None, None) => String::new(),
    }
}

/// What did not end well, and how often.
fn unwell(requests: Requests) -> impl Iterator<Item = (u64, &'static str)> {
    let all = [
        (requests.failed, "failed"),
        (requests.refused, "refused"),
        (requests.cut, "cut"),
        (requests.unconnected, "without a connection"),
        (requests.held_back, "held back"),
        (requests.not_sent, "not sent"),
    ];
    all.into_iter().filter(|(n, _)| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_the_server_is_no_zero() {
        let says = |running, waiting| at_server(&Server { running, waiting, ..Server::default() });
        assert_eq!(says(Some(18.0), Some(2.0)), ", the server says 20");
        assert_eq!(says(Some(18.0), None), ", the server says 18 running, ? waiting");
        assert_eq!(says(None, Some(2.0)), ", the server says ? running, 2 waiting");
        assert_eq!(says(None, None), "");
    }

    #[test]
    fn a_p99_of_a_lag_has_its_measurements() {
        let of = |n, p99| lag("loop lag", Lag { n, p99, max: Some(0.004), ..Lag::default() });
        assert_eq!(of(368, Some(0.002)).as_deref(), Some("loop lag P99 2.00 ms"));
        assert_eq!(of(367, Some(0.002)).as_deref(), Some("loop lag at most 4.00 ms of 367"));
        assert_eq!(of(900, None).as_deref(), Some("loop lag at most 4.00 ms of 900"));
        assert_eq!(lag("loop lag", Lag::default()), None);
    }

    #[test]
    fn times_that_are_compared_are_told_apart() {
        let of = |unit: &str, server_hi| Agreement {
            unit: unit.to_owned(),
            server_lo: 0.004,
            server_hi,
            ..Default::default()
        };
        assert_eq!(bounds(&of("s", Some(0.006))), "4.00 ms–6.00 ms");
        assert_eq!(bounds(&of("s", None)), "4.00 ms or more");
        assert_eq!(bounds(&Agreement { server_lo: 3.11, ..of("1/s", Some(3.111)) }), "3.11");
    }
}
