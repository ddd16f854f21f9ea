//! What an engine's command line says about its limits, its model and how the model is spread over GPUs.
//!
//! Only what is given explicitly counts: what holds by default depends on version and GPU. Pure: it must not
//! read files. Invariant: an option that is not understood leaves the value absent, never a default.

use super::launch::{Family, option};

/// What was given. Names of options as in the engines' documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Most requests at once, over all replicas, and the option that says so.
    pub requests_cap: Option<(u64, String)>,
    /// Most requests that may wait.
    pub queue_cap: Option<u64>,
    /// How the model is stored and spread; `None` for engines whose options are not known.
    pub model: Option<Model>,
}

/// The model and what decides how its KV cache is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// Directory, or name on Hugging Face.
    pub name: String,
    /// Revision of it.
    pub revision: Option<String>,
    /// Directory in place of the Hugging Face cache.
    pub cache: Option<String>,
    /// How its KV cache is stored, as far as the command line says.
    pub kv: Kv,
}

/// What the command line says about the KV cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kv {
    /// GPUs that share the attention heads.
    pub tensor_parallel: u32,
    /// GPUs of such a group that share the tokens.
    pub context_parallel: u32,
    /// Type of the cache, `auto` for that of the model.
    pub cache_type: String,
    /// Type of the model where it is not that of its configuration.
    pub model_type: Option<String>,
    /// Why nothing can be said, in words.
    pub unknown: Option<&'static str>,
}

impl Default for Kv {
    fn default() -> Self {
        Self { tensor_parallel: 1, context_parallel: 1, cache_type: AUTO.to_owned(), model_type: None, unknown: None }
    }
}

/// The cache's type is the model's.
pub const AUTO: &str = "auto";

/// Reads the options of a command line that `family` takes.
pub fn read(family: Family, words: &[impl AsRef<str>]) -> Options {
    let number = |names: &[&str]| option(words, names)?.parse::<u32>().ok().filter(|&n| n > 0).map(u64::from);
    let cap = |name: &'static str| number(&[name]).map(|n| (n, name.to_owned()));
    match family {
        Family::Vllm => {
            let replicas = vllm_replicas(words);
            let per_replica = number(&["--max-num-seqs"]).zip(replicas);
            let words_for =
                |n: u64| if n > 1 { format!("--max-num-seqs × {n} replicas") } else { "--max-num-seqs".into() };
            Options {
                requests_cap: per_replica.map(|(cap, n)| (cap * n, words_for(n))),
                model: vllm_model(words),
                ..Options::default()
            }
        }
        Family::Sglang => Options {
            requests_cap: cap("--max-running-requests"),
            queue_cap: number(&["--max-queued-requests"]),
            model: sglang_model(words),
        },
        Family::TrtLlm | Family::Lmdeploy => Options { requests_cap: cap("--max-batch-size"), ..Options::default() },
        _ => Options::default(),
    }
}

/// Whether an option is there at all.
fn has(words: &[impl AsRef<str>], names: &[&str]) -> bool {
    words.iter().any(|word| {
        let name = word.as_ref().split('=').next().unwrap_or_default();
        name.starts_with('-') && names.contains(&name.replace('_', "-").as_str())
    })
}

/// Replicas that one vLLM server puts to work: its limits are for each of them. `None` when the command line
/// does not say how many are behind this server.
fn vllm_replicas(words: &[impl AsRef<str>]) -> Option<u64> {
    if has(words, &["--data-parallel-rank", "-dpn", "--data-parallel-external-lb", "-dpe"]) {
        return Some(1);
    }
    let local = ["--data-parallel-size-local", "-dpl"];
    let all = ["--data-parallel-size", "-dp"];
    let hybrid = has(words, &["--data-parallel-hybrid-lb", "-dph"]);
    match option(words, if hybrid { &local } else { &all }) {
        Some(text) => text.parse::<u32>().ok().map(u64::from),
        None if hybrid => None,
        None => Some(1),
    }
}

/// Most GPUs that a group is believed to have.
const MOST_GPUS: u32 = 4096;

/// A count of GPUs: 1 where the option is absent, `None` where it cannot be read.
fn parallel(words: &[impl AsRef<str>], names: &[&str]) -> Option<u32> {
    match option(words, names) {
        Some(text) => text.parse().ok().filter(|n| (1..=MOST_GPUS).contains(n)),
        None if has(words, names) => None,
        None => Some(1),
    }
}

const VLLM_TP: [&str; 2] = ["--tensor-parallel-size", "-tp"];
const VLLM_DCP: [&str; 2] = ["--decode-context-parallel-size", "-dcp"];
const SGLANG_TP: [&str; 3] = ["--tp-size", "--tensor-parallel-size", "--tp"];

/// Python's parser takes the start of an option for the whole: such an option may be there unnoticed.
fn is_abbreviated(words: &[impl AsRef<str>], full: &[&str]) -> bool {
    words.iter().any(|word| {
        let name = word.as_ref().split('=').next().unwrap_or_default().replace('_', "-");
        let short = |full: &&str| full.len() > name.len() && full.starts_with(&name);
        name.len() > 4 && name.starts_with("--") && !full.contains(&&*name) && full.iter().any(short)
    })
}

const OPTIONS_IN_A_FILE: &str = "options come from a file as well (--config)";
const OVERRIDDEN: &str = "the model's configuration is overridden on the command line";
const SPECULATES: &str = "speculative decoding keeps KV of its own in the same pool";
const UNREAD: &str = "an option on the command line cannot be read";

fn vllm_model(words: &[impl AsRef<str>]) -> Option<Model> {
    const DECISIVE: [&str; 3] = ["--tensor-parallel-size", "--decode-context-parallel-size", "--kv-cache-dtype"];
    let named = option(words, &["--model"]);
    let name = named.or_else(|| positional_after(words, "serve"))?;
    let (tp, dcp) = (parallel(words, &VLLM_TP), parallel(words, &VLLM_DCP));
    let unknown = if has(words, &["--config"]) {
        Some(OPTIONS_IN_A_FILE)
    } else if has(words, &["--hf-overrides", "--hf-config-path", "--config-format"]) {
        Some(OVERRIDDEN)
    } else if has(words, &["--speculative-config", "-sc", "--speculative-model", "--spec-method", "--spec-model"]) {
        Some(SPECULATES)
    } else if has(words, &["--prefill-context-parallel-size", "-pcp"]) {
        Some("the prompt is spread over several GPUs (--prefill-context-parallel-size)")
    } else if tp.is_none() || dcp.is_none() || is_abbreviated(words, &DECISIVE) {
        Some(UNREAD)
    } else {
        None
    };
    let kv = Kv {
        tensor_parallel: tp.unwrap_or(1),
        context_parallel: dcp.unwrap_or(1),
        cache_type: option(words, &["--kv-cache-dtype"]).unwrap_or(AUTO).to_owned(),
        model_type: option(words, &["--dtype"]).filter(|&text| text != AUTO).map(ToOwned::to_owned),
        unknown,
    };
    let given = |names: &[&str]| option(words, names).map(ToOwned::to_owned);
    Some(Model { name: name.to_owned(), revision: given(&["--revision"]), cache: given(&["--download-dir"]), kv })
}

fn sglang_model(words: &[impl AsRef<str>]) -> Option<Model> {
    const DECISIVE: [&str; 3] = ["--tensor-parallel-size", "--kv-cache-dtype", "--tp-size"];
    let name = option(words, &["--model-path", "--model"])?;
    let tp = parallel(words, &SGLANG_TP);
    let unknown = if has(words, &["--config"]) {
        Some(OPTIONS_IN_A_FILE)
    } else if has(words, &["--json-model-override-args"]) {
        Some(OVERRIDDEN)
    } else if has(words, &["--speculative-algorithm", "--speculative-draft-model-path"]) {
        Some(SPECULATES)
    } else if has(words, &["--enable-dp-attention", "--attention-context-parallel-size", "--attn-cp-size"]) {
        Some("attention is spread over GPUs in a way of its own (--enable-dp-attention)")
    } else if tp.is_none() || is_abbreviated(words, &DECISIVE) {
        Some(UNREAD)
    } else {
        None
    };
    let kv = Kv {
        tensor_parallel: tp.unwrap_or(1),
        context_parallel: 1,
        cache_type: option(words, &["--kv-cache-dtype"]).unwrap_or(AUTO).to_owned(),
        model_type: option(words, &["--dtype"]).filter(|&text| text != AUTO).map(ToOwned::to_owned),
        unknown,
    };
    let given = |names: &[&str]| option(words, names).map(ToOwned::to_owned);
    Some(Model { name: name.to_owned(), revision: given(&["--revision"]), cache: given(&["--download-dir"]), kv })
}

/// The word after `verb`, unless it is an option.
fn positional_after<'a>(words: &'a [impl AsRef<str>], verb: &str) -> Option<&'a str> {
    let place = words.iter().position(|word| word.as_ref() == verb)?;
    words.get(place + 1).map(AsRef::as_ref).filter(|word| !word.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(family: Family, line: &str) -> Options {
        read(family, &line.split(' ').collect::<Vec<_>>())
    }

    fn cap(family: Family, line: &str) -> Option<(u64, String)> {
        of(family, line).requests_cap
    }

    fn kv(family: Family, line: &str) -> Kv {
        of(family, line).model.unwrap().kv
    }

    #[test]
    fn limits_that_are_given() {
        let is = |n, text: &str| Some((n, text.to_owned()));
        assert_eq!(cap(Family::Vllm, "vllm serve m --max-num-seqs 256"), is(256, "--max-num-seqs"));
        assert_eq!(cap(Family::Vllm, "vllm serve m --max_num_seqs=256 -dp 4"), is(1024, "--max-num-seqs × 4 replicas"));
        assert_eq!(
            cap(Family::Vllm, "vllm serve m --max-num-seqs 8 --data-parallel-size 4 --data-parallel-rank 0"),
            is(8, "--max-num-seqs")
        );
        assert_eq!(cap(Family::Sglang, "sglang serve --max-running-requests 64"), is(64, "--max-running-requests"));
        assert_eq!(
            cap(Family::Lmdeploy, "lmdeploy serve api_server m --max-batch-size 32"),
            is(32, "--max-batch-size")
        );
        assert_eq!(cap(Family::TrtLlm, "trtllm-serve m --max_batch_size 16"), is(16, "--max-batch-size"));
        assert_eq!(of(Family::Sglang, "x --max-queued-requests 9").queue_cap, Some(9));
    }

    #[test]
    fn what_is_not_given_or_not_understood_is_absent() {
        for line in [
            "vllm serve m",
            "vllm serve m --max-num-seqs",
            "vllm serve m --max-num-seqs many",
            "vllm serve m --max-num-seqs 0",
            "vllm serve m --max-num-seqs -1",
            "vllm serve m --max-num-seqs 8 -dp x",
            "vllm serve m --max-num-seqs 8 --data-parallel-hybrid-lb -dp 8",
        ] {
            assert_eq!(cap(Family::Vllm, line), None, "{line}");
        }
        assert_eq!(of(Family::Ollama, "ollama serve --max-num-seqs 8"), Options::default());
    }

    #[test]
    fn the_model_and_how_it_is_spread() {
        let given = of(
            Family::Vllm,
            "vllm serve org/m -tp 4 --kv-cache-dtype fp8 --dtype half --revision r1 --download-dir /d",
        );
        let model = given.model.unwrap();
        let texts = (model.name.as_str(), model.revision.as_deref(), model.cache.as_deref());
        assert_eq!(texts, ("org/m", Some("r1"), Some("/d")));
        let expected =
            Kv { tensor_parallel: 4, cache_type: "fp8".into(), model_type: Some("half".into()), ..Kv::default() };
        assert_eq!(model.kv, expected);
        assert_eq!(
            kv(Family::Vllm, "python3 -m vllm.entrypoints.openai.api_server --model=m --dtype auto"),
            Kv::default()
        );
        assert_eq!(kv(Family::Vllm, "vllm serve m --tensor_parallel_size 8 -dcp 2").context_parallel, 2);
        assert_eq!(kv(Family::Sglang, "python3 -m sglang.launch_server --model-path m --tp 2").tensor_parallel, 2);
        assert_eq!(of(Family::Vllm, "vllm serve --port 8000").model, None);
        assert_eq!(of(Family::Vllm, "VLLM::APIServer_0").model, None);
    }

    #[test]
    fn what_makes_the_cache_unknown_is_said() {
        for (line, why) in [
            ("vllm serve m --config c.yaml", "--config"),
            ("vllm serve m --hf-overrides {}", "overridden"),
            ("vllm serve m --speculative-config {}", "speculative"),
            ("vllm serve m --tensor-parallel 2", "cannot be read"),
            ("vllm serve m -tp", "cannot be read"),
            ("vllm serve m -tp two", "cannot be read"),
            ("vllm serve m --kv-cache fp8", "cannot be read"),
        ] {
            assert!(kv(Family::Vllm, line).unknown.is_some_and(|words| words.contains(why)), "{line}");
        }
        let dp_attention = kv(Family::Sglang, "sglang serve --model-path m --tp 8 --enable-dp-attention");
        assert!(dp_attention.unknown.is_some());
    }
}
