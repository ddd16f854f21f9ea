//! The parameters of a sweep, the plan that they come to, and what that costs.
//!
//! Invariants: a bound of what a plan costs is known without reading a file; files are read when the plan is made, in the
//! probe's own process, and before that on the command line, which waits for nothing else; a plan that can come to nothing
//! is told before the question.

use super::super::protocol::MAX_LEVELS;
use super::super::spec::{Grouped, counted};
use super::super::{Cost, Kind, LoadCost, Param, Params, Target};
use super::text::{
    LENGTHS, Of, SLO_FORM, lengths_unread, parse_lengths, parse_slo, parse_trace, rates, users, wrong_lengths,
    wrong_slo,
};
use crate::load::Plan;
use crate::load::plan::{Api, Budget, Lengths, Order, PromptAs, Shape, Span};

/// The flag that lets the endpoint be on another host.
pub(super) const REMOTE: &str = "remote";
/// Largest seed: as many bits as a number in JSON keeps.
pub(super) const MOST_SEED: u64 = (1 << 53) - 1;
/// Memory of the client, bytes: connections, measurements of a level, libraries; …
const HOST_BYTES: u64 = 64 << 20;
/// … beside them each request in flight with its prompt, twice: as text and on its way. A token takes so many bytes.
const TOKEN_BYTES: f64 = 8.0 * 2.0;
/// Memory where prompts are as long as a file says that was not read, bytes.
const UNREAD_BYTES: u64 = 256 << 20;

/// What a text looks like that gives levels: whether of users or of rates, `--load` says, so it is not held to more here.
const LEVELS_FORM: &str = "e.g. 1,2,4, 0.5,1 or 1..64 (doubling)";

const fn number(name: &'static str, help: &'static str, (default, least, most): (f64, f64, f64)) -> Param {
    Param { name, help, kind: Kind::Number { default, least, most } }
}

const fn count(name: &'static str, help: &'static str, (default, least, most): (f64, f64, f64)) -> Param {
    Param { name, help, kind: Kind::Count { default, least, most } }
}

const fn choice(name: &'static str, help: &'static str, of: &'static [&'static str]) -> Param {
    Param { name, help, kind: Kind::Choice { default: of[0], of } }
}

const fn text(
    name: &'static str,
    help: &'static str,
    default: &'static str,
    form: &'static str,
    wrong: fn(&str) -> Option<String>,
) -> Param {
    Param { name, help, kind: Kind::Text { default, form, wrong } }
}

const fn flag(name: &'static str, help: &'static str) -> Param {
    Param { name, help, kind: Kind::Flag }
}

/// All of them.
pub(super) const TABLE: &[Param] = &[
    choice(
        "load",
        "what sets the load: closed (so many users, each sends its next request when it has its answer), constant or \
         poisson (so many requests/s, whatever becomes of them), trace (the requests of --trace)",
        &["closed", "constant", "poisson", "trace"],
    ),
    text("levels", "users, or requests/s, of each level", "1,2,4,8,16,32,64", LEVELS_FORM, wrong_plain),
    text("trace", "file of requests for --load trace", "", "a file's path", wrong_plain),
    choice("api", "interface that is loaded: /v1/completions or /v1/chat/completions", &["completions", "chat"]),
    text("model", "model that is asked; empty: the first that the endpoint lists", "", "a name", wrong_plain),
    text("prompt", "length of prompts, tokens", "256", LENGTHS, wrong_lengths),
    text("output", "length of outputs, tokens", "128", LENGTHS, wrong_lengths),
    choice(
        "prompt-as",
        "how prompts are given; auto: as token ids where the endpoint takes them",
        &["auto", "ids", "words"],
    ),
    number(
        "prefix",
        "share of each prompt, from its start, that all have in common, %; the rest is like no other",
        (0.0, 0.0, 100.0),
    ),
    flag("free-length", "let outputs end where the model ends them, instead of making them as long as --output says"),
    flag("each-token", "have the endpoint say of each event how many tokens it holds, where it can"),
    number("seconds", "least time that a level is measured, s", (20.0, 0.5, 3_600.0)),
    count("samples", "requests that are measured at each level at least: 72 give a P95, 368 a P99", (72.0, 0.0, 1e6)),
    number("most-seconds", "most time that a level is measured, s, be the samples there or not", (60.0, 0.5, 3_600.0)),
    number("warmup", "time at each level before it is measured, s", (3.0, 0.0, 600.0)),
    count(
        "requests",
        "exactly so many requests at each level, all measured, instead of by time; 0: by time",
        (0.0, 0.0, 1e6),
    ),
    count("repeats", "how often each level is measured", (1.0, 1.0, 16.0)),
    choice(
        "order",
        "order of levels; random tells an effect of the load from heat or a cache that fills",
        &["listed", "random"],
    ),
    count("seed", "start of the random numbers; 0: a fresh one, which the report names", (0.0, 0.0, MOST_SEED as f64)),
    count(
        "in-flight",
        "requests in flight at most where users do not limit them; more wait, and that counts",
        (1_024.0, 1.0, 16_384.0),
    ),
    number("timeout", "longest wait for an answer, s; after that the request counts as failed", (120.0, 1.0, 3_600.0)),
    text("slo", "what a good request keeps, for goodput; empty: none", "", SLO_FORM, wrong_slo),
    count("tokens", "budget, tokens of prompts and outputs together", (2e6, 1_000.0, 1e12)),
    number("minutes", "budget, minutes", (20.0, 0.1, 240.0)),
    number("errors", "share of requests that may fail, %; above it the sweep ends", (10.0, 0.0, 100.0)),
    flag(REMOTE, "the endpoint may be on another host: others may depend on it, or pay for it"),
];

fn wrong_plain(text: &str) -> Option<String> {
    text.contains(char::is_control).then(|| "it holds a control character: leave it out".to_owned())
}

fn of_levels(why: &str) -> String {
    format!("--levels: {why}")
}

/// Number of levels, repetitions included, and what is wrong with them.
fn levels(params: &Params) -> Result<u64, String> {
    let (load, trace) = (params.word("load"), params.word("trace"));
    if (load == "trace") == trace.is_empty() {
        return Err("--load trace and --trace FILE go together".to_owned());
    }
    let levels = match load {
        "trace" => 1,
        "closed" => users(params.word("levels")).map_err(|why| of_levels(&why))?.len(),
        _ => rates(params.word("levels")).map_err(|why| of_levels(&why))?.len(),
    };
    let all = levels as u64 * params.number("repeats") as u64;
    if all > MAX_LEVELS as u64 {
        return Err(format!("{all} levels, repeats included, are more than the {MAX_LEVELS} that a report holds"));
    }
    Ok(all)
}

/// Requests of a level at least, and whether these are all.
fn requests(params: &Params) -> (u64, bool) {
    match params.number("requests") as u64 {
        0 => (params.number("samples") as u64, false),
        exactly => (exactly, true),
    }
}

/// Why the plan comes to nothing, if it does.
fn wrong(params: &Params) -> Result<(), String> {
    levels(params)?;
    let is_trace = params.word("load") == "trace";
    if params.word("api") == "chat" && params.word("prompt-as") == "ids" {
        return Err("a chat takes no token ids: give --api completions, or --prompt-as words".to_owned());
    }
    let (n, exactly) = requests(params);
    let (least_s, most_s) = (params.number("seconds"), params.number("most-seconds"));
    let one_s = params.number("warmup") + least_s;
    if !exactly && !is_trace {
        if most_s < least_s {
            return Err(format!("a level cannot take {least_s} s at least (--seconds) and {most_s} s at most"));
        }
        if params.number("minutes") * 60.0 < one_s {
            return Err(format!(
                "the budget of {} min (--minutes) is less than the {one_s} s that one level takes",
                params.number("minutes")
            ));
        }
    }
    if let Some((request, _)) = Sizes::unread(params).request {
        let one = request * n.max(1) as f64;
        if params.number("tokens") < one {
            return Err(format!(
                "the budget of {} tokens (--tokens) is less than one level takes: {} of about {request:.0} tokens",
                Grouped(params.number("tokens") as u64),
                counted(n.max(1), "request"),
            ));
        }
    }
    Ok(())
}

/// What is known of a sweep's requests before they are sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    /// Tokens of a request, prompt and output together, on average and at most.
    request: Option<(f64, f64)>,
    /// Tokens of the longest prompt.
    prompt: Option<u32>,
    /// Requests of the trace, and tokens of all of them.
    trace: Option<(u64, u64)>,
}

impl Sizes {
    fn of(prompt: &Lengths, output: &Lengths) -> Self {
        let longest = f64::from(prompt.longest()) + f64::from(output.longest());
        Self { request: Some((prompt.mean() + output.mean(), longest)), prompt: Some(prompt.longest()), trace: None }
    }

    /// As far as no file has to be read.
    fn unread(params: &Params) -> Self {
        let lengths = |name| lengths_unread(params.word(name));
        match (params.word("load"), lengths("prompt"), lengths("output")) {
            ("trace", ..) => Self::default(),
            (_, Some(prompt), Some(output)) => Self::of(&prompt, &output),
            (_, prompt, _) => Self { prompt: prompt.map(|prompt| prompt.longest()), ..Self::default() },
        }
    }

    fn of_plan(plan: &Plan) -> Self {
        let Shape::Trace(arrivals) = &plan.shape else { return Self::of(&plan.prompt, &plan.output) };
        let tokens = arrivals.iter().map(|arrival| u64::from(arrival.prompt) + u64::from(arrival.output)).sum();
        let prompt = arrivals.iter().map(|arrival| arrival.prompt).max();
        Self { request: None, prompt, trace: Some((arrivals.len() as u64, tokens)) }
    }
}

/// Requests at least, and at most where that is known, as far as budgets allow.
fn planned(params: &Params, sizes: &Sizes) -> (u64, Option<u64>) {
    let repeats = params.number("repeats") as u64;
    let (n, exactly) = requests(params);
    let levels = levels(params).unwrap_or(1);
    match params.word("load") {
        "trace" => sizes.trace.map_or((0, None), |(rows, _)| (rows * repeats, Some(rows * repeats))),
        _ if exactly => (levels * n, Some(levels * n)),
        "closed" => (levels * n, None),
        load => {
            let rates = rates(params.word("levels")).unwrap_or_default();
            let most_s = params.number("most-seconds");
            // The load goes on until all that is measured has ended.
            let whole_s = params.number("warmup") + most_s + params.number("timeout");
            let least: u64 = rates.iter().map(|rate| n.min((rate * most_s) as u64)).sum();
            let most: f64 = rates.iter().map(|rate| (rate * whole_s).ceil()).sum();
            let most = most * repeats as f64;
            // At random moments more may come than on average: not so many in 999 of 1,000 cases.
            let (most, chance) = if load == "poisson" { (most, 3.1 * most.sqrt()) } else { (most, 0.0) };
            let least = if load == "poisson" { 0 } else { least * repeats };
            (least, Some((most + chance).ceil() as u64))
        }
    }
}

/// What the sweep may cost: its budget, or what its levels take where that is less.
pub(super) fn cost(params: &Params, _: &Target) -> Cost {
    cost_of(params, &Sizes::unread(params))
}

/// The same, with the files read that the parameters name.
///
/// # Errors
/// Why the parameters come to nothing: what, why, what to do.
pub(in crate::probe) fn cost_with_files(params: &Params) -> Result<Cost, String> {
    let (plan, _) = plan(params, 1)?;
    Ok(cost_of(params, &Sizes::of_plan(&plan)))
}

fn cost_of(params: &Params, sizes: &Sizes) -> Cost {
    let (n, exactly) = requests(params);
    let is_trace = params.word("load") == "trace";
    let (warmup_s, most_s) = (params.number("warmup"), params.number("most-seconds"));
    // Each user is waited for to have had an answer, but no longer than a level may take.
    let warmup_s = if params.word("load") == "closed" { warmup_s.max(most_s) } else { warmup_s };
    // The load goes on until all that is measured has ended; then the last that came are waited for.
    let one_s = warmup_s + most_s + 2.0 * params.number("timeout");
    let levels = levels(params).unwrap_or(1);
    let by_time = if exactly || is_trace { f64::INFINITY } else { one_s * levels as f64 };
    let budget = params.number("tokens") as u64;
    let (least, most) = planned(params, sizes);
    let about = match (sizes.trace, sizes.request) {
        (Some((_, tokens)), _) => Some(tokens * params.number("repeats") as u64),
        (None, Some((mean, _))) if exactly => Some((mean * (levels * n) as f64).round() as u64),
        _ => None,
    };
    let bound = most.zip(sizes.request).map(|(most, (_, longest))| (most as f64 * longest) as u64);
    let fit = sizes.request.map_or(u64::MAX, |(mean, _)| (budget as f64 / mean) as u64);
    let is_cut = about.is_some_and(|about| about > budget);
    let load = LoadCost {
        // Of a trace it is not known which requests are the ones that fit.
        least_requests: if is_cut && is_trace { 0 } else { least.min(fit) },
        most_requests: most,
        about_tokens: about.filter(|_| !is_cut),
        most_tokens: bound.map_or(budget, |bound| bound.min(budget)),
        remote: params.flag(REMOTE),
        wrong: wrong(params).err().unwrap_or_default(),
    };
    Cost {
        seconds: by_time.min(params.number("minutes") * 60.0),
        gpu_bytes: 0,
        host_bytes: host_bytes(params, sizes, most),
        watts: None,
        disturbs: "whoever else uses that server: their requests wait beside these".to_owned(),
        load: Some(load),
    }
}

fn host_bytes(params: &Params, sizes: &Sizes, most_requests: Option<u64>) -> u64 {
    let Some(prompt) = sizes.prompt else { return UNREAD_BYTES };
    let in_flight = match params.word("load") {
        "closed" => users(params.word("levels")).ok().and_then(|users| users.into_iter().max()).map_or(0.0, f64::from),
        _ => params.number("in-flight"),
    };
    let in_flight = most_requests.map_or(in_flight, |most| in_flight.min(most as f64));
    HOST_BYTES + (in_flight * f64::from(prompt) * TOKEN_BYTES) as u64
}

/// The plan that the parameters come to, with files read, and how many rows of its trace were left out: requests without a
/// prompt or an output.
///
/// # Errors
/// What, why, what to do.
pub(super) fn plan(params: &Params, seed: u64) -> Result<(Plan, usize), String> {
    wrong(params)?;
    let mut left_out = 0;
    let levels = params.word("levels");
    let shape = match params.word("load") {
        "closed" => Shape::Closed(users(levels)?),
        "constant" => Shape::Constant(rates(levels)?),
        "poisson" => Shape::Poisson(rates(levels)?),
        _ => {
            let (arrivals, rows) = parse_trace(params.word("trace"))?;
            left_out = rows;
            Shape::Trace(arrivals)
        }
    };
    let model = Some(params.word("model").trim()).filter(|model| !model.is_empty());
    let (requests, exactly) = requests(params);
    let span = if exactly {
        Span::Requests(requests)
    } else {
        Span::Time {
            warmup_s: params.number("warmup"),
            least_s: params.number("seconds"),
            samples: requests,
            most_s: params.number("most-seconds"),
        }
    };
    let plan = Plan {
        api: if params.word("api") == "chat" { Api::Chat } else { Api::Completions },
        model: model.map(ToOwned::to_owned),
        shape,
        prompt: parse_lengths(params.word("prompt"), Of::Prompts)?,
        output: parse_lengths(params.word("output"), Of::Outputs)?,
        prompt_as: match params.word("prompt-as") {
            "ids" => PromptAs::Ids,
            "words" => PromptAs::Words,
            _ => PromptAs::Auto,
        },
        shared_prefix: params.number("prefix") / 100.0,
        force_output: !params.flag("free-length"),
        each_token: params.flag("each-token"),
        seed,
        span,
        repeats: params.number("repeats") as u32,
        order: if params.word("order") == "random" { Order::Random } else { Order::Listed },
        most_in_flight: params.number("in-flight") as u32,
        timeout_s: params.number("timeout"),
        slo: parse_slo(params.word("slo"))?,
        budget: Budget { seconds: params.number("minutes") * 60.0, tokens: params.number("tokens") as u64 },
        most_errors: params.number("errors") / 100.0,
    };
    Ok((plan, left_out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::plan::Slo;
    use crate::probe::Value;

    /// The defaults, and what is given as on a command line.
    fn given(args: &[(&str, &str)]) -> Params {
        let mut params = Params::of(&super::super::SPEC);
        for (name, text) in args {
            let param = TABLE.iter().find(|param| param.name == *name).unwrap();
            params.put(name, param.parse(text).unwrap_or_else(|why| panic!("{name}: {why}")));
        }
        assert!(params.fit(&super::super::SPEC));
        params
    }

    fn load(args: &[(&str, &str)]) -> LoadCost {
        cost(&given(args), &Target::default()).load.unwrap()
    }

    #[test]
    fn the_plan_is_what_the_parameters_say() {
        let (plan, _) = plan(&given(&[]), 7).unwrap();
        assert_eq!(plan.shape, Shape::Closed(vec![1, 2, 4, 8, 16, 32, 64]));
        assert_eq!((plan.model.as_deref(), plan.seed, plan.force_output), (None, 7, true));
        let span = Span::Time { warmup_s: 3.0, least_s: 20.0, samples: 72, most_s: 60.0 };
        assert_eq!((plan.span, plan.prompt, plan.output), (span, Lengths::Fixed(256), Lengths::Fixed(128)));
        assert_eq!(plan.budget, Budget { seconds: 1_200.0, tokens: 2_000_000 });
        let args = [
            ("load", "poisson"),
            ("levels", "0.5, 2"),
            ("model", " m "),
            ("prompt", "10..20"),
            ("output", "8:3,16:1"),
            ("requests", "9"),
            ("prefix", "50"),
            ("free-length", "true"),
            ("order", "random"),
            ("api", "chat"),
            ("slo", "ttft:500,e2e:2000"),
            ("errors", "5"),
        ];
        let (plan, _) = super::plan(&given(&args), 7).unwrap();
        assert_eq!((plan.shape, plan.model.as_deref()), (Shape::Poisson(vec![0.5, 2.0]), Some("m")));
        assert_eq!((plan.span, plan.order, plan.api), (Span::Requests(9), Order::Random, Api::Chat));
        assert_eq!((plan.prompt, plan.output), (Lengths::Uniform(10, 20), Lengths::Mixed(vec![(8, 3.0), (16, 1.0)])));
        assert_eq!(plan.slo, Slo { ttft_s: Some(0.5), tpot_s: None, e2e_s: Some(2.0) });
        assert!((plan.shared_prefix - 0.5).abs() < 1e-9 && (plan.most_errors - 0.05).abs() < 1e-9);
        assert!(!plan.force_output);
    }

    #[test]
    fn the_cost_is_a_bound_and_counts_repeats() {
        let cost = cost(&given(&[]), &Target::default());
        let words = "at most 20.0 min, at least 504 requests, at most 2,000,000 tokens, 64 MiB of host memory. It \
                     disturbs whoever else uses that server";
        assert!(cost.to_string().starts_with(words), "{cost}");
        let (short, twice) =
            (load(&[("requests", "4"), ("levels", "1,2")]), load(&[("repeats", "2"), ("levels", "1")]));
        assert_eq!((short.least_requests, short.most_requests), (8, Some(8)));
        assert_eq!((twice.least_requests, twice.most_requests), (144, None));
        // 2 s at most until each user had an answer, 2 s at most, 10 s for the measured answers and 10 s for the last.
        let args = [("levels", "1"), ("warmup", "1"), ("seconds", "1"), ("most-seconds", "2"), ("timeout", "10")];
        let seconds = super::cost(&given(&args), &Target::default()).seconds;
        assert!((seconds - 24.0).abs() < 1e-9, "{seconds}");
    }

    #[test]
    fn the_cost_is_as_tight_as_what_is_known() {
        let words = |args: &[(&str, &str)]| {
            let words = cost_with_files(&given(args)).unwrap().to_string();
            words.split_once(". It").unwrap().0.to_owned()
        };
        let two = [("requests", "4"), ("levels", "1,2"), ("prompt", "60"), ("output", "40")];
        assert_eq!(words(&two), "at most 20.0 min, 8 requests, about 800 tokens, 64 MiB of host memory");
        let more = [&two[..], &[("levels", "4"), ("requests", "100"), ("repeats", "3"), ("tokens", "11000")]].concat();
        let few =
            "at most 20.0 min, at least 110 and at most 300 requests, at most 11,000 tokens, 64 MiB of host memory";
        assert_eq!(words(&more), few);
        // (1 + 4) · (3 + 60 + 120) requests of 100 tokens; at 4 a second 72 in 60 s, at 1 only 60.
        let open = [("load", "constant"), ("levels", "1,4"), ("prompt", "60"), ("output", "40")];
        let bound =
            "at most 10.1 min, at least 132 and at most 915 requests, at most 91,500 tokens, 65 MiB of host memory";
        assert_eq!(words(&open), bound);
        let (least, most) = planned(&given(&[&open[..], &[("load", "poisson")]].concat()), &Sizes::default());
        assert!(least == 0 && most.is_some_and(|most| most > 950), "{least} {most:?}");
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        std::fs::write(&trace, "timestamp,prompt,output\n0,10,20\n1.5,100000,21\n").unwrap();
        let trace = trace.display().to_string();
        let replay = [("load", "trace"), ("trace", trace.as_str()), ("repeats", "2")];
        assert_eq!(words(&replay), "at most 20.0 min, 4 requests, about 200,102 tokens, 70 MiB of host memory");
        let cut = words(&[&replay[..], &[("tokens", "1000")]].concat());
        assert!(cut.starts_with("at most 20.0 min, at most 4 requests, at most 1,000 tokens"), "{cut}");
        let unread = load(&replay);
        assert_eq!((unread.least_requests, unread.most_requests, unread.most_tokens), (0, None, 2_000_000));
        assert!(cost_with_files(&given(&[("prompt", "@/no/such/file")])).is_err());
    }

    #[test]
    fn a_plan_that_comes_to_nothing_is_told_and_made_no_plan() {
        for (args, words) in [
            (&[("tokens", "1000")][..], "72 requests of about 384 tokens"),
            (&[("tokens", "1000"), ("requests", "3")], "3 requests"),
            (&[("tokens", "1000"), ("requests", "1"), ("prompt", "999")], "takes: 1 request of about 1127 tokens"),
            (&[("minutes", "0.1")], "less than the 23 s that one level takes"),
            (&[("seconds", "61")], "61 s at least"),
            (&[("levels", "1.5")], "--levels: \"1.5\" is no number of users: give 1 to 4096, e.g. 1,2,4,8 or 1..64"),
            (&[("levels", "")], "no number of users"),
            (&[("levels", "1-8"), ("load", "constant")], "\"1-8\" is no rate"),
            (&[("levels", "nan"), ("load", "poisson")], "\"nan\" is no rate"),
            (&[("levels", "5000")], "give 1 to 4096"),
            (&[("load", "trace")], "--trace FILE"),
            (&[("trace", "a.csv")], "--load trace"),
            (&[("repeats", "16"), ("levels", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17")], "272 levels"),
            (&[("api", "chat"), ("prompt-as", "ids")], "--prompt-as words"),
        ] {
            let params = given(args);
            assert!(load(args).wrong.contains(words), "{words}: {}", load(args).wrong);
            assert!(plan(&params, 1).is_err_and(|why| why.contains(words)), "{words}");
        }
        assert_eq!((load(&[]).wrong.as_str(), load(&[]).remote), ("", false));
        assert!(load(&[("remote", "true")]).remote);
        assert_eq!(load(&[("levels", "1.5"), ("load", "constant")]).wrong, "");
        assert_eq!(load(&[("tokens", "1000"), ("prompt", "@a-file")]).wrong, "", "not known before it is read");
    }

    #[test]
    fn texts_are_held_to_their_form_before_anything_starts() {
        for (name, text) in [
            ("prompt", "0"),
            ("prompt", "5..4"),
            ("prompt", "@"),
            ("output", "8:x"),
            ("slo", "ttft=5"),
            ("slo", "itl:5"),
            ("model", "a\u{1b}b"),
            ("seed", "-1"),
        ] {
            let param = TABLE.iter().find(|param| param.name == name).unwrap();
            assert!(param.parse(text).is_err(), "{name} '{text}'");
        }
        let seed = TABLE.iter().find(|param| param.name == "seed").unwrap();
        assert_eq!(seed.parse(&MOST_SEED.to_string()), Ok(Value::Number(MOST_SEED as f64)));
    }

    #[test]
    fn files_are_read_when_the_plan_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (trace, lengths) = (
            file("trace", "timestamp,prompt,output\n0,10,20\n1.5,11,21\n2,0,5\n"),
            format!("@{}", file("lengths", "5\n6\n")),
        );
        let plan = |args: &[(&str, &str)]| super::plan(&given(args), 1);
        let (made, left_out) = plan(&[("load", "trace"), ("trace", &trace), ("prompt", &lengths)]).unwrap();
        let Shape::Trace(arrivals) = made.shape else { panic!("{:?}", made.shape) };
        assert_eq!((arrivals.len(), arrivals[1].at_s, arrivals[1].output), (2, 1.5, 21));
        assert_eq!(left_out, 1, "a request without a prompt");
        assert_eq!(made.prompt, Lengths::Mixed(vec![(5, 1.0), (6, 1.0)]));
        let bad = file("bad", "timestamp,prompt,output\n0,10,20\nx,1,2\n");
        assert!(plan(&[("load", "trace"), ("trace", &bad)]).is_err_and(|why| why.contains("line 3")));
        assert!(plan(&[("prompt", "@/no/such/file")]).is_err());
    }
}
