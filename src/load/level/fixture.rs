//! A level for tests: what an H200 does with so many users, in round figures.

use crate::load::buckets::bucket;

use super::{
    Agreement, Bottleneck, Client, Goodput, Lag, Latency, Level, Load, Quantile, Rate, Requests, Server, Silicon,
    Slice, State, Tokens,
};

/// A latency of `n` requests around `value` s, with intervals where n suffices for them.
pub(crate) fn latency(value: f64, n: u64) -> Latency {
    let quantile = |times: f64, needs: u64| {
        let value = value * times;
        let enough = n >= needs;
        Some(Quantile { value, lo: enough.then_some(value * 0.98), hi: enough.then_some(value * 1.03), enough })
    };
    Latency {
        n,
        mean: Some(value * 1.1),
        min: Some(value * 0.5),
        max: Some(value * 3.0),
        p50: quantile(1.0, 6),
        p95: quantile(1.5, 72),
        p99: quantile(2.0, 368),
    }
}

/// A level of `users` users that went as planned: 500 measured requests of 128 tokens in 30 s.
pub(crate) fn level(users: u32) -> Level {
    let load = f64::from(users);
    let (ttft, itl) = (0.02 * (1.0 + load / 8.0), 0.004 * (1.0 + load / 64.0));
    let e2e = ttft + 127.0 * itl;
    let per_s = load / e2e;
    let rate = |value: f64| Some(Rate { value, lo: Some(value * 0.97), hi: Some(value * 1.02) });
    let from_unix_ms = 1_795_960_002_000;
    let mut itl_s = latency(itl, 60_000);
    for quantile in [&mut itl_s.p50, &mut itl_s.p95, &mut itl_s.p99].into_iter().flatten() {
        (quantile.lo, quantile.hi) = (None, None);
    }
    Level {
        place: users.max(1).ilog2(),
        load: Load::Users(users),
        state: State::Done,
        started_unix_ms: from_unix_ms - 2_000,
        from_unix_ms,
        to_unix_ms: from_unix_ms + 30_000,
        ended_unix_ms: from_unix_ms + 31_000,
        requests: Requests { sent: 560, measured: 500, ok: 500, ..Requests::default() },
        tokens: Tokens {
            prompt: Some(256_000),
            cached: Some(0),
            output: Some(64_000),
            events: 64_000,
            ..Tokens::default()
        },
        ttft_s: latency(ttft, 500),
        itl_s,
        tpot_s: latency(itl, 500),
        e2e_s: latency(e2e, 500),
        requests_per_s: rate(per_s),
        output_tokens_per_s: rate(per_s * 128.0),
        total_tokens_per_s: rate(per_s * 640.0),
        goodput: Some(Goodput { good: 490, n: 500, share: 0.98, lo: 0.964, hi: 0.989, per_s: per_s * 0.98 }),
        client: client(load),
        slices: vec![Slice {
            from_unix_ms,
            to_unix_ms: from_unix_ms + 30_000,
            ttft: vec![(bucket(ttft), 300), (bucket(ttft * 2.0), 200)],
            itl: vec![(bucket(itl), 60_000)],
            tpot: vec![(bucket(itl), 500)],
            e2e: vec![(bucket(e2e), 500)],
        }],
        server: Some(server(load)),
        gpus: vec![silicon(0)],
        bottleneck: Some(Bottleneck {
            word: "memory-bound".to_owned(),
            evidence: "GPU 0: DRAM 62 % of peak, SM 65 % (means of 30 s of GPU counters)".to_owned(),
        }),
        ..Level::default()
    }
}

fn client(load: f64) -> Client {
    let lag = |p99: f64| Lag { n: 560, p50: Some(p99 / 4.0), p99: Some(p99), max: Some(p99 * 3.0) };
    Client {
        dispatch_lag: lag(0.000_2),
        loop_lag: lag(0.000_4),
        cpu_pct: Some(12.0),
        in_flight: Some(load),
        most_in_flight: load as u64,
        ..Client::default()
    }
}

fn server(load: f64) -> Server {
    Server {
        running: Some(load),
        waiting: Some(0.0),
        most_waiting: Some(0.0),
        kv_used_pct: Some(load / 3.0),
        most_kv_used_pct: Some(load / 2.5),
        preemptions: Some(0.0),
        prefix_hit_pct: Some(0.0),
        agreement: vec![Agreement {
            what: "in flight, mean".to_owned(),
            unit: "requests".to_owned(),
            client: load,
            server_lo: load,
            server_hi: Some(load),
            agrees: true,
        }],
    }
}

/// A GPU that decodes.
pub(crate) fn silicon(index: u8) -> Silicon {
    Silicon {
        index,
        sm_active_pct: Some(65.0),
        dram_active_pct: Some(62.0),
        tensor_active_pct: Some(4.0),
        sm_clock_mhz: Some(1980.0),
        sm_clock_max_mhz: Some(1980.0),
        power_w: Some(410.0),
        most_temp_c: Some(55.0),
        throttled_ms_per_s: Some(0.0),
        throttled_by: None,
    }
}
