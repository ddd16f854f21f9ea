//! The options of a command line that a screen may show: those that limit an engine or say how it runs.
//!
//! Only names on the list are shown, and of their values only plain words: a command line may hold keys, and other people
//! look at screens. Pure: a text in, a text out.

/// Options with a value, as the engines' documentation names them.
const VALUED: [&str; 44] = [
    "--model",
    "--model-path",
    "--model-id",
    "--max-model-len",
    "--context-length",
    "--gpu-memory-utilization",
    "--mem-fraction-static",
    "--max-num-seqs",
    "--max-running-requests",
    "--max-concurrent-requests",
    "--max-num-batched-tokens",
    "--max-batch-size",
    "--max-batch-prefill-tokens",
    "--chunked-prefill-size",
    "--long-prefill-token-threshold",
    "--block-size",
    "--kv-cache-dtype",
    "--dtype",
    "--quantization",
    "--quant-policy",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--tp-size",
    "--tp",
    "--dp-size",
    "--api-server-count",
    "--cpu-offload-gb",
    "--swap-space",
    "--speculative-model",
    "--num-speculative-tokens",
    "--speculative-algorithm",
    "--speculative-num-draft-tokens",
    "--cuda-graph-max-bs",
    "--attention-backend",
    "--parallel",
    "-np",
    "--ctx-size",
    "--n-gpu-layers",
    "-ngl",
    "--threads",
    "--batch-size",
    "--ubatch-size",
    "--cache-type-k",
];

/// Options whose name says all, or whose value is too long to show.
const BARE: [&str; 12] = [
    "--enforce-eager",
    "--enable-prefix-caching",
    "--no-enable-prefix-caching",
    "--enable-chunked-prefill",
    "--no-enable-chunked-prefill",
    "--disable-radix-cache",
    "--disable-cuda-graph",
    "--disable-custom-all-reduce",
    "--enable-expert-parallel",
    "--speculative-config",
    "--kv-transfer-config",
    "--cont-batching",
];

/// Longest value that is shown, bytes.
const LONGEST: usize = 48;

/// Appends the options of `command` that may be shown, two blanks between them.
pub fn push(command: &str, out: &mut String) {
    let mut words = command.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let (name, given) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let known = |list: &[&'static str]| list.iter().copied().find(|known| is_same(name, known));
        if let Some(name) = known(&BARE) {
            add(out, name);
        } else if let Some(name) = known(&VALUED)
            && let Some(value) = given.or_else(|| words.peek().copied()).and_then(plain)
        {
            add(out, name);
            out.push(' ');
            out.push_str(value);
        }
    }
}

fn add(out: &mut String, name: &str) {
    if !out.is_empty() {
        out.push_str("  ");
    }
    out.push_str(name);
}

/// Whether a name is this one, with `_` for `-` as the engines' parsers take it.
fn is_same(name: &str, known: &str) -> bool {
    let same = |(a, b): (u8, u8)| a == b || (a == b'_' && b == b'-');
    name.starts_with('-') && name.len() == known.len() && name.bytes().zip(known.bytes()).all(same)
}

/// A number, a word or the end of a path; `None` for what may be anything else.
fn plain(value: &str) -> Option<&str> {
    let value = value.trim_end_matches('/').rsplit('/').next()?;
    let fits = !value.is_empty() && value.len() <= LONGEST && !value.starts_with('-');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ',');
    (fits && value.chars().all(plain)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(command: &str) -> String {
        let mut out = String::new();
        push(command, &mut out);
        out
    }

    #[test]
    fn options_on_the_list_are_shown_and_nothing_else() {
        let vllm = "python3 -m vllm.entrypoints.openai.api_server --model /data/llama-8b/ --max_num_seqs=256 --api-key sk-1 \
                    --gpu-memory-utilization 0.25 --enforce-eager --hf-token hf_x --port 8000";
        assert_eq!(shown(vllm), "--model llama-8b  --max-num-seqs 256  --gpu-memory-utilization 0.25  --enforce-eager");
        assert_eq!(shown("llama-server -m x.gguf --parallel 4 -ngl 99 --api-key=k"), "--parallel 4  -ngl 99");
    }

    #[test]
    fn a_value_that_may_be_anything_is_not_shown() {
        for value in ["https://user:secret@host", "a=b", "{\"key\":1}", "--other", "", &"x".repeat(60)] {
            assert!(!shown(&format!("vllm --model={value}")).contains(value) || value.is_empty(), "{value}");
            assert!(!shown(&format!("vllm --dtype={value}")).contains("secret"), "{value}");
        }
        assert_eq!(shown("vllm --max-num-seqs --enforce-eager"), "--enforce-eager");
    }
}
