//! The guard's rules one by one: what refuses a run, what can be forced, what ends one.

use super::*;

fn gpu() -> Gpu {
    Gpu {
        index: 0,
        down: None,
        processes: Ok(Vec::new()),
        busy_pct: Reading::Value(0.0),
        mem_used: Reading::Value(0.5 * GIB),
        mem_total: Reading::Value(140.0 * GIB),
        temp: Reading::Value(40.0),
        temp_slowdown: Reading::Value(87.0),
        compute_mode: Reading::Value(0.0),
        reasons: Reading::Value(1.0),
        ecc: Reading::Value(0.0),
        xids: Reading::Value(0.0),
    }
}

fn host() -> Host {
    Host {
        mem_used: Reading::Value(8.0 * GIB),
        mem_total: Reading::Value(64.0 * GIB),
        cpu_busy_pct: Reading::Value(3.0),
    }
}

fn cost() -> Cost {
    Cost { seconds: 5.0, gpu_bytes: 1 << 30, host_bytes: 1 << 30, watts: None, disturbs: String::new(), load: None }
}

fn on(gpu: Gpu) -> Machine {
    Machine { gpus: vec![gpu], host: host(), engines: Vec::new(), no_gpu: String::new(), endpoint: None }
}

fn process(pid: u32, gib: f64) -> OnGpu {
    OnGpu { pid, mem: Reading::Value(gib * GIB) }
}

fn go(machine: &Machine, forced: bool) -> Verdict {
    preflight(machine, &cost(), Needs::Gpu, forced, None)
}

#[test]
fn a_probe_of_several_gpus_wants_them_all_there_and_free() {
    let go = |gpus: Vec<Gpu>, forced| preflight(&Machine { gpus, ..on(gpu()) }, &cost(), Needs::Gpus(2), forced, None);
    for forced in [false, true] {
        let Verdict::Refused(refusal) = go(vec![gpu()], forced) else { panic!("admitted with one") };
        assert_eq!(refusal.why, "it needs 2 GPUs, 1 here");
        assert!(!refusal.can_force);
    }
    let other = |gpu| Gpu { index: 1, ..gpu };
    assert!(matches!(go(vec![gpu(), other(gpu())], false), Verdict::Admitted(_)));
    let busy = Gpu { busy_pct: Reading::Value(30.0), ..gpu() };
    let Verdict::Refused(refusal) = go(vec![gpu(), other(busy)], false) else { panic!("admitted beside others") };
    assert!(refusal.why.contains("GPU 1 is 30 % busy"), "{}", refusal.why);
}

#[test]
fn a_free_cool_gpu_is_admitted_at_full_duty() {
    let Verdict::Admitted(admission) = go(&on(gpu()), false) else { panic!() };
    assert_eq!((admission.duty_pct, admission.company.as_str()), (100, ""));
    // 139.5 GiB are free, 7 of them stay free.
    assert_eq!(admission.most_bytes, (132.5 * GIB) as u64);
}

/// What refuses, a word of the reason, and whether it can be forced.
#[test]
fn each_rule_refuses_with_its_reason_and_its_override() {
    let missing = Reading::Missing;
    let cases: [(Gpu, &str, bool); 17] = [
        (Gpu { down: Some("GPU is lost".to_owned()), ..gpu() }, "lost", false),
        (Gpu { processes: Ok(vec![process(42, 36.0)]), ..gpu() }, "process 42 (36.0 GiB) computes", true),
        (Gpu { busy_pct: Reading::Value(30.0), ..gpu() }, "30 % busy", true),
        (Gpu { processes: Err(Why::Unsupported), ..gpu() }, "does not list", true),
        (Gpu { mem_used: Reading::Value(132.5 * GIB), ..gpu() }, "stay free for others", false),
        (Gpu { mem_used: missing(Why::Failed), ..gpu() }, "memory of GPU 0 cannot be read", true),
        (Gpu { mem_total: missing(Why::Unsupported), ..gpu() }, "memory of GPU 0 cannot be read", true),
        (Gpu { temp: Reading::Value(73.0), ..gpu() }, "73 °C", false),
        (Gpu { temp: missing(Why::Stale), ..gpu() }, "temperature of GPU 0 cannot be read", true),
        (Gpu { temp_slowdown: missing(Why::Unsupported), ..gpu() }, "slowdown temperature of GPU 0", true),
        (Gpu { busy_pct: missing(Why::NotPermitted), ..gpu() }, "activity of GPU 0 cannot be read", true),
        (Gpu { compute_mode: Reading::Value(2.0), ..gpu() }, "prohibited", false),
        (Gpu { compute_mode: Reading::Value(3.0), processes: Ok(vec![process(1, 1.0)]), ..gpu() }, "exclusive", false),
        (Gpu { compute_mode: Reading::Value(1.0), processes: Err(Why::Failed), ..gpu() }, "exclusive", false),
        (Gpu { reasons: Reading::Value(8.0), ..gpu() }, "hardware slowdown", false),
        (Gpu { reasons: Reading::Value(64.0), ..gpu() }, "hardware slowdown", false),
        (Gpu { reasons: Reading::Value(128.0), ..gpu() }, "hardware slowdown", false),
    ];
    for (gpu, word, can_force) in cases {
        let machine = on(gpu);
        let Verdict::Refused(refusal) = go(&machine, false) else { panic!("{word}: admitted") };
        assert!(refusal.why.contains(word), "{word}: {}", refusal.why);
        assert!(!refusal.hint.is_empty(), "{word}: says not what to do");
        assert_eq!(refusal.can_force, can_force, "{word}");
        assert_eq!(matches!(go(&machine, true), Verdict::Admitted(_)), can_force, "{word}, forced");
    }
    let Verdict::Refused(none) = go(&Machine { gpus: Vec::new(), ..on(gpu()) }, true) else { panic!() };
    assert!(none.why.contains("no such GPU"));
}

#[test]
fn what_is_not_read_yet_is_waited_for_even_when_forced() {
    let not_yet = Reading::Missing(Why::NotYet);
    for gpu in [
        Gpu { temp: not_yet, ..gpu() },
        Gpu { mem_used: not_yet, ..gpu() },
        Gpu { mem_total: not_yet, ..gpu() },
        Gpu { busy_pct: not_yet, ..gpu() },
        Gpu { processes: Err(Why::NotYet), ..gpu() },
    ] {
        let machine = on(gpu);
        assert_eq!((go(&machine, false), go(&machine, true)), (Verdict::NotYet, Verdict::NotYet));
    }
    let machine = Machine { host: Host { mem_used: not_yet, ..host() }, ..on(gpu()) };
    assert_eq!(go(&machine, true), Verdict::NotYet);
}

#[test]
fn a_run_that_is_forced_beside_others_gets_a_duty_cycle() {
    let Verdict::Admitted(admission) = go(&on(Gpu { processes: Ok(vec![process(42, 36.0)]), ..gpu() }), true) else {
        panic!()
    };
    assert_eq!(admission.duty_pct, FORCED_DUTY_PCT);
    assert!(admission.company.contains("process 42"));
    let Verdict::Admitted(alone) = go(&on(gpu()), true) else { panic!() };
    assert_eq!(alone.duty_pct, 100, "with nobody there is nobody to spare");
}

#[test]
fn a_duty_cycle_can_be_chosen_but_forces_nothing() {
    let busy = on(Gpu { processes: Ok(vec![process(42, 36.0)]), ..gpu() });
    let duty = |machine, forced, chosen| match preflight(machine, &cost(), Needs::Gpu, forced, chosen) {
        Verdict::Admitted(admission) => Some(admission.duty_pct),
        Verdict::Refused(_) | Verdict::NotYet => None,
    };
    assert_eq!([duty(&busy, false, Some(1)), duty(&busy, true, Some(100))], [None, Some(100)]);
    assert_eq!([duty(&busy, true, Some(3)), duty(&on(gpu()), false, Some(30))], [Some(3), Some(30)]);
    // Who is asked is told what it means; the usual needs no words.
    assert_eq!(duty_words(Needs::Gpu, None, false), "");
    for (chosen, forced, words) in [
        (None, true, "Beside others it keeps the target busy for 10 % of the time at most, and takes up to 10 times"),
        (Some(30), false, "It keeps the target busy for 30 % of the time at most, and takes up to 4 times as long."),
        (Some(100), true, "Whoever else computes there gets next to nothing while it runs"),
    ] {
        assert!(
            duty_words(Needs::Gpu, chosen, forced).starts_with(words),
            "{}",
            duty_words(Needs::Gpu, chosen, forced)
        );
    }
}

#[test]
fn a_probe_of_the_host_makes_way_for_an_engine_and_leaves_memory() {
    let quiet = Machine { gpus: Vec::new(), host: host(), engines: Vec::new(), no_gpu: String::new(), endpoint: None };
    let go = |machine: &Machine, forced| preflight(machine, &cost(), Needs::Host, forced, None);
    assert!(matches!(go(&quiet, false), Verdict::Admitted(Admission { duty_pct: 100, .. })));
    let serving = Machine { engines: vec![":8000".to_owned()], ..quiet.clone() };
    assert!(matches!(go(&serving, false), Verdict::Refused(Refusal { can_force: true, .. })));
    assert!(matches!(go(&serving, true), Verdict::Admitted(Admission { duty_pct: FORCED_DUTY_PCT, .. })));
    let full = Machine { host: Host { mem_used: Reading::Value(57.0 * GIB), ..host() }, ..quiet.clone() };
    assert!(matches!(go(&full, true), Verdict::Refused(Refusal { can_force: false, .. })));
    let unknown = Machine { host: Host { mem_used: Reading::Missing(Why::Failed), ..host() }, ..quiet };
    assert!(matches!(go(&unknown, true), Verdict::Refused(_)));
}

/// The machine a second into a run: the child with its memory.
fn running() -> Gpu {
    Gpu { processes: Ok(vec![process(99, 1.5)]), mem_used: Reading::Value(2.0 * GIB), busy_pct: 95.0.into(), ..gpu() }
}

fn abort(before: &Gpu, now: Gpu, forced: bool) -> Option<String> {
    Watch::new(&on(before.clone()), &cost(), forced).abort(&on(now), Some(99))
}

#[test]
fn a_run_goes_on_while_nothing_happens() {
    assert_eq!(abort(&gpu(), running(), false), None);
    assert_eq!(abort(&gpu(), gpu(), false), None, "the child has not begun");
    let elsewhere = Gpu { processes: Ok(vec![process(7, 1.5)]), ..running() };
    assert_eq!(abort(&gpu(), elsewhere, false), None, "the child under the host's number");
    let gap = Gpu { temp: Reading::Missing(Why::Stale), mem_used: Reading::Missing(Why::Stale), ..running() };
    assert_eq!(abort(&gpu(), gap, false), None, "a late reading is no reason");
}

#[test]
fn each_rule_ends_a_run_with_its_reason() {
    let cases = [
        (Gpu { down: Some("GPU is lost".to_owned()), ..running() }, "lost"),
        (Gpu { temp: Reading::Value(82.0), ..running() }, "82 °C"),
        (Gpu { reasons: Reading::Value(68.0), ..running() }, "hardware slowdown"),
        (Gpu { ecc: Reading::Value(1.0), ..running() }, "ECC"),
        (Gpu { xids: Reading::Value(1.0), ..running() }, "Xid"),
        (Gpu { processes: Ok(vec![process(99, 1.5), process(100, 0.1)]), ..running() }, "process 100 began"),
        (Gpu { mem_used: Reading::Value(3.0 * GIB), ..running() }, "others took"),
        (Gpu { mem_used: Reading::Value(134.0 * GIB), ..running() }, "others took"),
    ];
    for (now, word) in cases {
        let why = abort(&gpu(), now, false).unwrap_or_else(|| panic!("{word}: goes on"));
        assert!(why.contains(word), "{word}: {why}");
    }
    let empty = Machine { gpus: Vec::new(), ..on(gpu()) };
    assert_eq!(Watch::new(&on(gpu()), &cost(), false).abort(&empty, None).as_deref(), Some("GPU 0 is gone"));
}

#[test]
fn a_forced_run_bears_company_until_memory_is_short() {
    let before = Gpu { processes: Ok(vec![process(42, 100.0)]), mem_used: Reading::Value(100.0 * GIB), ..gpu() };
    let beside = |used: f64| Gpu {
        processes: Ok(vec![process(42, used - 1.5), process(99, 1.5), process(100, 0.2)]),
        mem_used: Reading::Value(used * GIB),
        ..running()
    };
    assert_eq!(abort(&before, beside(120.0), true), None);
    assert!(abort(&before, beside(134.0), true).unwrap().contains("others took"));
    assert!(abort(&before, Gpu { temp: Reading::Value(83.0), ..beside(101.0) }, true).is_some(), "heat is heat");
}

#[test]
fn errors_from_before_the_run_do_not_count() {
    let before = Gpu { ecc: Reading::Value(3.0), xids: Reading::Value(2.0), ..gpu() };
    assert_eq!(abort(&before, Gpu { ecc: Reading::Value(3.0), xids: Reading::Value(2.0), ..running() }, false), None);
    // A counter that was not read at the start is no error that came during the run.
    let before = Gpu { ecc: Reading::Missing(Why::NotYet), ..gpu() };
    assert_eq!(abort(&before, Gpu { ecc: Reading::Value(3.0), ..running() }, false), None);
}

#[test]
fn a_probe_that_takes_the_rest_leaves_the_headroom() {
    let rest = Cost { gpu_bytes: Cost::THE_REST, ..cost() };
    let half = Gpu { mem_used: Reading::Value(70.0 * GIB), ..gpu() };
    let Verdict::Admitted(admission) = preflight(&on(half.clone()), &rest, Needs::Gpu, false, None) else { panic!() };
    assert_eq!(admission.most_bytes, 63 * GIB as u64);
    // Not even a context fits; and what is not known is not taken.
    let full = Gpu { mem_used: Reading::Value(132.5 * GIB), ..gpu() };
    assert!(matches!(preflight(&on(full), &rest, Needs::Gpu, true, None), Verdict::Refused(_)));
    let unknown = Gpu { mem_used: Reading::Missing(Why::Unsupported), ..gpu() };
    let Verdict::Admitted(admission) = preflight(&on(unknown), &rest, Needs::Gpu, true, None) else { panic!() };
    assert_eq!(admission.most_bytes, 1 << 30);
    // A reading may come just while it holds all that it may; what is more is somebody else's.
    let watch = Watch::new(&on(half), &rest, false);
    let holding = |used: f64, own: f64| {
        on(Gpu { processes: Ok(vec![process(99, own)]), mem_used: Reading::Value(used * GIB), ..running() })
    };
    assert_eq!(watch.abort(&holding(133.0, 63.0), Some(99)), None);
    assert_eq!(watch.abort(&holding(133.0, 0.5), Some(99)), None, "the two readings are not of one moment");
    assert!(watch.abort(&holding(133.1, 0.5), Some(99)).unwrap().contains("others took"));
}

fn endpoint(running: Reading) -> Endpoint {
    Endpoint { url: "http://127.0.0.1:8000".to_owned(), down: None, running }
}

fn load(running: Reading, forced: bool) -> Verdict {
    // No GPU is asked for.
    let machine = Machine { gpus: Vec::new(), endpoint: Some(endpoint(running)), ..on(gpu()) };
    preflight(&machine, &cost(), Needs::Endpoint, forced, None)
}

#[test]
fn an_endpoint_is_loaded_when_nobody_else_uses_it_and_by_force_with_its_company_named() {
    let free = Admission { duty_pct: 100, most_bytes: 0, company: String::new(), note: String::new() };
    assert_eq!(load(Reading::Value(0.5), false), Verdict::Admitted(free));
    let Verdict::Refused(refusal) = load(Reading::Value(3.2), false) else { panic!("beside others") };
    let words = "3 requests of others run there (http://127.0.0.1:8000)";
    assert_eq!((refusal.why.as_str(), refusal.can_force), (words, true));
    let Verdict::Admitted(admission) = load(Reading::Value(3.2), true) else { panic!("forced") };
    assert_eq!((admission.company.as_str(), admission.duty_pct), (words, 100), "its levels say how much it loads");
}

#[test]
fn an_endpoint_that_does_not_tell_who_uses_it_is_loaded_with_a_note_and_a_dead_one_never() {
    assert_eq!(load(Reading::Missing(Why::NotYet), true), Verdict::NotYet);
    let Verdict::Admitted(admission) = load(Reading::Missing(Why::Unsupported), false) else { panic!("refused") };
    assert!(admission.company.is_empty() && admission.note.contains("is not told"), "{admission:?}");
    let down = Endpoint { down: Some("connection refused".to_owned()), ..endpoint(Reading::Value(0.0)) };
    for endpoint in [Some(down), None] {
        let machine = Machine { endpoint, ..on(gpu()) };
        let Verdict::Refused(refusal) = preflight(&machine, &cost(), Needs::Endpoint, true, None) else { panic!() };
        assert!(!refusal.can_force && !refusal.hint.is_empty(), "{refusal:?}");
    }
}

#[test]
fn no_other_host_is_loaded_unless_that_was_said_and_no_plan_that_comes_to_nothing() {
    use crate::probe::spec::LoadCost;
    let why = |url: Option<&str>, remote, wrong: &str| {
        let load = Some(LoadCost { remote, wrong: wrong.to_owned(), ..LoadCost::default() });
        let target = Target { endpoint: url.map(ToOwned::to_owned), ..Target::default() };
        unloadable(&target, &Cost { load, ..cost() }).map(|refusal| format!("{} {}", refusal.why, refusal.hint))
    };
    assert_eq!(why(Some("http://127.0.0.1:8000"), false, ""), None);
    assert_eq!(why(Some("https://gw/llm"), true, ""), None);
    for (url, remote, wrong, words) in [
        (Some("https://gw/llm"), false, "", "--remote"),
        (Some("http://127.evil.example:8000"), false, "", "--remote"),
        (None, true, "", "--engine"),
        (Some("http://127.0.0.1:8000"), true, "the budget is for nothing", "the budget is for nothing"),
    ] {
        let why = why(url, remote, wrong).unwrap_or_default();
        assert!(why.contains(words), "{words}: {why}");
    }
    assert_eq!(unloadable(&Target::default(), &cost()), None, "a probe that loads nothing");
}
