//! Spellings of secrets, what is none, and property tests of what is around a secret.

use proptest::prelude::*;

use super::*;

/// Stands for a secret. No name is in it.
const S: &str = "Qz7Vx.k9+Wb/u==";

fn words(line: &[&str]) -> Vec<String> {
    mask_words(line.iter().map(|&word| word.to_owned()).collect())
}

/// Command lines, their words apart by `|`, with `$` for a secret.
const HIDDEN: &[&str] = &[
    "vllm|serve|m|--api-key|$|--port|8000",
    "vllm|serve|m|--api-key=$|--port|8000",
    "vllm|serve|m|--api_key|$|$|$|--port|8000",
    "vllm|serve|m|--api-key=$,$",
    "vllm|serve|m|--api-k|$",
    "vllm|serve|m|--hf-token|$|--port|8000",
    "vllm|serve|m|--hf_token=$",
    "vllm|serve|m|--ssl-keyfile-password|$",
    "server|-api-key|$",
    "server|--apiKey|$",
    "server|--token|$|--port|1",
    "server|--auth|ann:$",
    "server|--master-key|$",
    "server|--openrouter-key|$",
    "server|--db-pass|$",
    "llama-server|--api-key|$,$|-c|8192",
    "llama-server|-hft|$",
    "tritonserver|--http-restricted-api=inference:x-shared=$",
    "tritonserver|--grpc-restricted-protocol|health:shared=$",
    "lmdeploy|serve|api_server|m|--api-keys|$|$|--tp|2",
    "env|HF_TOKEN=$|OPENAI_API_KEY=$|vllm|serve|m",
    "env|AWS_SECRET_ACCESS_KEY=$|AWS_ACCESS_KEY_ID=$|GITHUB_TOKEN_2=$|PGPASSWORD=$|sleep",
    "docker|run|-e|HF_TOKEN=$|--env=VLLM_API_KEY=$|-eNGC_API_KEY=$|image",
    "bash|-c|HF_TOKEN=$ exec vllm serve m --api-key $ --port 1",
    "bash|-lc|export OPENAI_API_KEY=\"$ $\"; vllm serve m --hf-token '$ $' --port 1",
    "ssh|gpu7|VLLM_API_KEY=$ vllm serve m --api-key $",
    "srun|--wrap=vllm serve m --api-key $ --port 1",
    "curl|-H|Authorization: Bearer $|http://h/v1",
    "curl|--header=x-api-key: $|http://h/v1",
    "curl|--header|X-Auth-Token:$|http://h/v1",
    "curl|-u|ann:$|http://h",
    "curl|--user|ann:$|http://h",
    "x|Authorization:|Bearer|$|$|--port|1",
    "x|Bearer|$",
    "warptop|--engine|http://ann:$@gpu7:8000",
    "x|--url=https://h/v1?a=b&token=$&c=d",
    "x|https://h/v1?api_key=$#top",
    "x|https://h/?X-Amz-Signature=$",
    "x|--dsn|Server=h;AccountKey=$;Pool=2",
    r#"x|--config|{"a":1,"api_key":"$","b":[2]}"#,
    r#"x|--config|{"api_key" : "a \" $ \\", "b" : 2}"#,
    r#"x|--config|{"api_keys": ["$", "$"], "b": 2}"#,
    r#"x|--config|{"credentials": {"user": "$", "x": ["$"]}, "b": 2}"#,
    r#"x|--config={"args":"{\"api_key\":\"$\",\"b\":1}"}"#,
    "x|--config|{'hfToken': '$'}",
    "x|--config|{api_key: $, b: 2}",
    r#"x|--args|["--api-key", "$", "--port", "8000"]"#,
    r#"x|--args|["--api-key","$","--port","8000"]"#,
    r#"x|--env|["HF_TOKEN=$","A=b"]"#,
    "x|--set|auth.token=$",
    "x|--kv.extra_config.api_key|$",
    "python3|-c|import os; os.environ['HF_TOKEN'] = '$'; api_key = \"$\"",
    "hf_AbCdEfGhIjKlMnOpQz7Vx.k9+Wb/u==",
    "x|sk-proj-Qz7Vx.k9+Wb/u==",
    "x|--tag|github_pat_11ABCDEFG0Qz7Vx.k9+Wb/u==",
    "redis-cli|-u|redis://:$@h:6379/0",
    "x|--private-key|-----BEGIN PRIVATE KEY----- $",
    "x|--authkey|$|--adminkey|$",
    "x|--creds|ann:$",
    "x|--session-token|$",
    "x|--set|auth.token[0]=$",
    "x|ghr_AbCdEfGhIjKlMnOpQz7Vx.k9+Wb/u==",
    "x|<hf_AbCdEfGhIjKlMnOpQz7Vx.k9+Wb/u==>",
    "x|a%22hf_AbCdEfGhIjKlMnOpQz7Vx.k9+Wb/u==",
    "x|https://hooks.slack.com/services/T0/B0/Qz7Vx.k9+Wb/u==",
];

/// What of the secret is left in a text.
fn left(text: &str) -> bool {
    ["Qz7Vx", "k9+Wb"].iter().any(|part| text.contains(part))
}

#[test]
fn secrets_are_masked_in_every_spelling() {
    for spelling in HIDDEN {
        let line: Vec<String> = spelling.split('|').map(|word| word.replace('$', S)).collect();
        let masked = mask_words(line.clone());
        assert!(!left(&masked.join(" ")) && masked.join(" ").contains(MASK), "{spelling}: {masked:?}");
        assert_eq!(masked.len(), line.len(), "{spelling}");
        assert_eq!(mask_words(masked.clone()), masked, "{spelling}: it stays as it is");
        // As a recording of an earlier version has it.
        let joined = mask_line(&line.join(" "));
        assert!(!left(&joined), "{spelling}: {joined}");
        let again = mask_line(&masked.join(" "));
        assert_eq!(again, masked.join(" "), "{spelling}: a replay shows what was recorded");
    }
}

#[test]
fn what_is_beside_a_secret_stays() {
    for (line, expected) in [
        ("vllm|serve|m|--api-key|$|--port|8000", "vllm|serve|m|--api-key|***|--port|8000"),
        ("vllm|serve|m|--api-key|$|$|--port=1", "vllm|serve|m|--api-key|***|***|--port=1"),
        ("vllm|serve|--hf-token|$|m", "vllm|serve|--hf-token|***|m"),
        ("vllm|serve|m|--api-key|--port|8000", "vllm|serve|m|--api-key|--port|8000"),
        ("bash|-c|HF_TOKEN=$ exec vllm serve m", "bash|-c|HF_TOKEN=*** exec vllm serve m"),
        ("bash|-c|vllm serve m --api-key $ --port 1", "bash|-c|vllm serve m --api-key *** --port 1"),
        ("x|http://ann:$@gpu7:8000/v1?a=b&token=$&c=d", "x|http://***@gpu7:8000/v1?a=b&token=***&c=d"),
        (r#"x|{"a":1,"api_key":"$","b":[2]}"#, r#"x|{"a":1,"api_key":"***","b":[2]}"#),
        (r#"x|{"api_key": null, "b": [2]}"#, r#"x|{"api_key": ***, "b": [2]}"#),
        (r#"x|["--api-key", "$", "--port", "1"]"#, r#"x|["--api-key", "***", "--port", "1"]"#),
        ("curl|-H|Authorization: Bearer $|h", "curl|-H|Authorization: ***|h"),
    ] {
        let line: Vec<String> = line.split('|').map(|word| word.replace('$', S)).collect();
        assert_eq!(mask_words(line).join("|"), expected);
    }
    assert_eq!(mask_line("vllm serve m --api-key a b --port 1"), "vllm serve m --api-key *** --port 1");
}

#[test]
fn what_is_no_secret_stays() {
    for line in [
        "vllm|serve|org/model|--max-num-batched-tokens|8192|--max-num-seqs=256|--tokenizer|org/t|--port|8000",
        "vllm|serve|m|--skip-tokenizer-init|--tokenizer-mode|auto|--api-server-count|2|--served-model-name|x",
        "vllm|serve|m|--ssl-keyfile|/etc/k.pem|--ssl-certfile|/etc/c.pem|--allowed-origins|[\"*\"]",
        "vllm|serve|m|--kv-cache-dtype|fp8|--override-generation-config|{\"eos_token_id\": 2, \"max_new_tokens\": 9}",
        "vllm|serve|m|--limit-mm-per-prompt|{\"image\":2}|--lora-modules|a=/p/a|b=/p/b|--seed|1",
        "sglang|serve|--model-path|m|--max-total-tokens|100000|--token-budget|7|--stop-token-ids|1|2",
        "server|--api-key-file|/run/keys|--hf-token-path|/run/t|--auth-type|none|--token-count|5",
        "server|--private-key|/etc/k.pem|--tls-key|./k.pem|--key|server.key",
        "llama-server|-hf|org/model:Q4_K_M|-c|8192|-ngl|99|--host|0.0.0.0:8080",
        "TOKENIZERS_PARALLELISM=false|PWD=/srv|HF_HOME=/models|KEYBOARD=de|vllm|serve",
        "python3|-u|-m|vllm.entrypoints.openai.api_server|--model|/models/sk-large-model",
        "docker|run|-u|1000:1000|-v|/a:/b|repo/vllm-token:latest|img@sha256:0123456789abcdef0123",
        "curl|http://h:8000/a@b?max_tokens=5|git@github.com",
        "python3|-c|from huggingface_hub import hf_hub_download; hf_hub_download()",
        "VLLM::EngineCore_DP1",
        "sglang::scheduler_TP0",
        "x|--basic|on|--bypass|1|--tool-call-parser|hermes|--sort-key|name|--time-per-output-token|0.05",
    ] {
        let line: Vec<&str> = line.split('|').collect();
        assert_eq!(words(&line), line);
        assert_eq!(mask_line(&line.join(" ")), line.join(" "), "of a recording");
    }
}

#[test]
fn the_work_for_a_word_is_bounded() {
    // Each name starts a value in quotes that has no end.
    let hostile = "\\\"token\\\":\\\\\"".repeat(100_000);
    let masked = words(&["x", &hostile]);
    assert!(masked[1].len() < 2 * MAX_WORD, "{}", masked[1].len());
    assert!(words(&[&"é".repeat(MAX_WORD)])[0].len() <= MAX_WORD);
}

/// Words that may be around a secret.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,12}",
        "[-=:\"'\\\\{}\\[\\], @/?&#a-c]{0,12}",
        prop::sample::select(vec![
            "--api-key",
            "--password",
            "-c",
            "-u",
            "-H",
            "bash",
            "sh",
            "Bearer",
            "Authorization:",
            "{\"token\":\"",
            "\\\"",
            "HF_TOKEN=",
            "http://a:",
            "--",
            "-",
            "***",
            "api_key=\"",
            "--hf-token=x",
            "token:",
        ])
        .prop_map(str::to_owned),
    ]
}

/// A secret of the kinds that services give, its begin and end known.
fn secret() -> impl Strategy<Value = String> {
    "[A-Za-z0-9+/_.~-]{0,6}Qz7Vx[A-Za-z0-9+/_.~-]{0,12}k9\\+Wb[A-Za-z0-9+/_.~-]{0,6}"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nothing_around_a_secret_makes_it_leak(
        before in prop::collection::vec(word(), 0..5),
        after in prop::collection::vec(word(), 0..4),
        secret in secret(),
        form in 0usize..14,
    ) {
        let own = match form {
            0 => vec!["--api-key".to_owned(), secret],
            1 => vec!["--hf_token".to_owned(), secret],
            2 => vec![format!("--api-key={secret}")],
            3 => vec![format!("HF_TOKEN={secret}")],
            4 => vec![format!("Authorization: Bearer {secret}")],
            5 => vec![format!("--header=x-api-key: {secret}")],
            6 => vec![format!("{{\"a\":1,\"api_key\":\"{secret}\",\"b\":2}}")],
            7 => vec![format!("--config={{\"api_keys\":[\"a\",\"{secret}\"]}}")],
            8 => vec![format!("https://h/v1?a=b&token={secret}&c=d")],
            9 => vec![format!("https://ann:{}@h:80/v1", secret.replace('/', "%2F"))],
            10 => vec!["--ssl-keyfile-password".to_owned(), secret],
            11 => vec![format!("{{\\\"password\\\": \\\"{secret}\\\"}}")],
            12 => vec!["--api-key".to_owned(), "first".to_owned(), secret],
            _ => vec![format!("sk-{secret}")],
        };
        let line: Vec<String> = before.into_iter().chain(own).chain(after).collect();
        let masked = mask_words(line.clone());
        prop_assert!(!left(&masked.join(" ")), "{line:?}: {masked:?}");
        prop_assert_eq!(masked.len(), line.len());
        let joined = mask_line(&line.join(" "));
        prop_assert!(!left(&joined), "{line:?}: {joined}");
    }

    #[test]
    fn any_text_is_taken(text in "\\PC{0,200}") {
        let joined = mask_line(&text);
        prop_assert_eq!(words(&[&text]).len(), 1);
        drop(joined);
    }
}
