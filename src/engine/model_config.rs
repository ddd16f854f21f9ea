//! KV cache of one token, worked out from a model's `config.json` and from how the engine spreads it.
//!
//! Rules, as vLLM's `config/model.py` (`get_num_kv_heads`, `get_head_size`) and the papers have them:
//!
//! - Attention with grouped heads (GQA): 2 (K and V) · layers · KV heads · head size · bytes of the type. A GPU
//!   of a tensor-parallel group holds max(1, KV heads / GPUs) heads, so where there are more GPUs than heads,
//!   each head is stored several times.
//! - Latent attention (MLA): layers · (`kv_lora_rank` + `qk_rope_head_dim`) · bytes, once on every GPU.
//! - Decode context parallelism shares those copies out again: each GPU keeps its part of the tokens.
//!
//! Whatever else a model does with its cache (windows, recurrent layers, shared or compressed layers), the
//! figure is absent and the reason is said. Pure. Invariant: a model type that is not known to store all
//! its layers in full gives no figure.

use serde_json::{Map, Value};

use super::options::{AUTO, Kv};

/// The KV cache of one token.
#[derive(Clone, Debug, PartialEq)]
pub struct KvBytes {
    /// Bytes over all GPUs, every copy counted.
    pub per_token: f64,
    /// How many times it is stored.
    pub copies: f64,
    /// The calculation, for the screen.
    pub how: String,
}

/// Text models whose layers all keep the whole context, in the shape that their configuration tells.
const FULL_ATTENTION: &[&str] = &[
    "llama",
    "mistral",
    "mixtral",
    "ministral",
    "qwen2",
    "qwen2_moe",
    "qwen2_vl",
    "qwen2_vl_text",
    "qwen2_5_vl",
    "qwen2_5_vl_text",
    "qwen3",
    "qwen3_moe",
    "qwen3_vl_text",
    "qwen3_vl_moe_text",
    "gemma",
    "granite",
    "granitemoe",
    "olmo",
    "olmo2",
    "olmoe",
    "phi",
    "phi3",
    "phimoe",
    "stablelm",
    "starcoder2",
    "internlm2",
    "internlm3",
    "nemotron",
    "opt",
    "gpt_neox",
    "cohere",
    "glm",
    "glm4",
    "glm4_moe",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone",
    "seed_oss",
    "smollm3",
    "solar",
    "minimax_m2",
    "apertus",
    "arcee",
];

/// Models with latent attention in every layer.
const LATENT: &[&str] = &["deepseek_v2", "deepseek_v3", "kimi_k2"];

/// Keys that tell of another cache than that of full attention, whatever the model's type.
const OTHER_CACHES: &[(&str, &str)] = &[
    ("attention_chunk_size", "layers attend within chunks"),
    ("index_topk", "attention is sparse and keeps an index of its own"),
    ("num_kv_shared_layers", "layers share their cache"),
    ("cla_share_factor", "layers share their cache"),
    ("block_configs", "layers differ from each other"),
    ("hybrid_override_pattern", "some layers are recurrent"),
    ("layers_block_type", "some layers are recurrent"),
    ("full_attention_interval", "some layers are recurrent"),
    ("attn_layer_period", "some layers are recurrent"),
    ("linear_attn_config", "some layers are recurrent"),
    ("sliding_window_pattern", "some layers keep only a window"),
    ("compress_ratios", "the cache is compressed"),
];

/// Works it out from the text of a `config.json`. `quantised`: the checkpoint has a file of its own about how
/// it is quantised (`hf_quant_config.json`). The error says why there is no figure.
pub fn kv_bytes(config: &str, kv: &Kv, quantised: bool) -> Result<KvBytes, String> {
    if let Some(why) = kv.unknown {
        return Err(why.to_owned());
    }
    let whole: Value = serde_json::from_str(config).map_err(|_| "config.json is no JSON".to_owned())?;
    let whole = whole.as_object().ok_or("config.json holds no object")?;
    // Models that read more than text keep their text model in a part of its own.
    let nested = ["text_config", "llm_config", "language_config"].iter().find_map(|key| whole.get(*key)?.as_object());
    let text = nested.filter(|text| text.contains_key("num_hidden_layers")).unwrap_or(whole);
    let bytes = bytes_of_element(whole, text, kv, quantised)?;
    let shape = Shape::of(text)?;
    shape.spread(kv, bytes)
}

/// Largest number believed, so that no product of them overflows.
const MOST: u64 = 1 << 16;

/// What a token leaves behind.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Heads { layers: u64, kv_heads: u64, head_size: u64 },
    Latent { layers: u64, rank: u64, rope: u64 },
}

impl Shape {
    fn of(text: &Map<String, Value>) -> Result<Self, String> {
        let kind = text.get("model_type").and_then(Value::as_str).unwrap_or("unknown");
        full_context(text)?;
        let number = |key: &str| text.get(key).and_then(Value::as_u64).filter(|n| (1..=MOST).contains(n));
        let need = |key: &str| number(key).ok_or_else(|| format!("config.json has no {key}"));
        let layers = need("num_hidden_layers")?;
        if LATENT.contains(&kind) && is_set(text, "kv_lora_rank") {
            return Ok(Self::Latent { layers, rank: need("kv_lora_rank")?, rope: need("qk_rope_head_dim")? });
        }
        if !FULL_ATTENTION.contains(&kind) || is_set(text, "kv_lora_rank") || is_set(text, "v_head_dim") {
            return Err(format!("how a model of type {kind} stores its cache is not known here"));
        }
        let heads = need("num_attention_heads")?;
        let kv_heads = if is_set(text, "num_key_value_heads") { need("num_key_value_heads")? } else { heads };
        let head_size = match number("head_dim") {
            Some(size) => size,
            None => Some(need("hidden_size")? / heads).filter(|&size| size > 0).ok_or("heads of no size")?,
        };
        Ok(Self::Heads { layers, kv_heads, head_size })
    }

    /// The bytes over all GPUs.
    fn spread(self, kv: &Kv, bytes: u64) -> Result<KvBytes, String> {
        let (tp, dcp) = (u64::from(kv.tensor_parallel), u64::from(kv.context_parallel));
        let (once, kv_heads, formula) = match self {
            Self::Heads { layers, kv_heads, head_size } => (
                2 * layers * kv_heads * head_size * bytes,
                kv_heads,
                format!("2 × {layers} layers × {kv_heads} KV heads × {head_size} × {bytes} B"),
            ),
            Self::Latent { layers, rank, rope } => {
                (layers * (rank + rope) * bytes, 1, format!("{layers} layers × ({rank} + {rope}) × {bytes} B"))
            }
        };
        let (even, stored) = if tp > kv_heads { (tp % kv_heads == 0, tp / kv_heads) } else { (kv_heads % tp == 0, 1) };
        if !even || stored % dcp != 0 {
            return Err(format!("{kv_heads} KV heads cannot be spread evenly over {tp} GPUs"));
        }
        let copies = stored / dcp;
        let more = if copies > 1 { format!(" × {copies} copies (TP {tp})") } else { String::new() };
        let how = format!("config.json: {formula}{more}");
        Ok(KvBytes { per_token: (once * copies) as f64, copies: copies as f64, how })
    }
}

fn is_set(config: &Map<String, Value>, key: &str) -> bool {
    config.get(key).is_some_and(|value| !value.is_null())
}

/// Whether every layer keeps the whole context.
fn full_context(text: &Map<String, Value>) -> Result<(), String> {
    if let Some((key, why)) = OTHER_CACHES.iter().find(|(key, _)| is_set(text, key)) {
        return Err(format!("{why} ({key})"));
    }
    if text.get("is_encoder_decoder").and_then(Value::as_bool) == Some(true) {
        return Err("it has an encoder with a cache of its own".to_owned());
    }
    if let Some(types) = text.get("layer_types").and_then(Value::as_array)
        && types.iter().any(|kind| kind.as_str() != Some("full_attention"))
    {
        return Err("some layers do not keep the whole context (layer_types)".to_owned());
    }
    let windows = text.get("use_sliding_window").and_then(Value::as_bool) != Some(false);
    if is_set(text, "sliding_window") && windows {
        return Err("layers keep only a window (sliding_window)".to_owned());
    }
    Ok(())
}

/// Bytes of one element of the cache.
fn bytes_of_element(
    whole: &Map<String, Value>,
    text: &Map<String, Value>,
    kv: &Kv,
    quantised: bool,
) -> Result<u64, String> {
    if kv.cache_type != AUTO {
        return match kv.cache_type.as_str() {
            "fp8" | "fp8_e4m3" | "fp8_e5m2" => Ok(1),
            "float16" | "half" | "bfloat16" | "bf16" => Ok(2),
            other => Err(format!("bytes of the cache type {other} are not known here")),
        };
    }
    let quantisation = [whole, text].into_iter().find_map(|part| part.get("quantization_config")?.as_object());
    let own_cache = |part: &Map<String, Value>| {
        is_set(part, "kv_cache_scheme")
            || is_set(part, "kv_cache_quant_algo")
            || part
                .get("quant_method")
                .and_then(Value::as_str)
                .is_some_and(|by| by.starts_with("modelopt") || by == "quark")
    };
    if quantised || quantisation.is_some_and(own_cache) {
        return Err("the checkpoint may bring a type for the cache: give --kv-cache-dtype to be sure".to_owned());
    }
    let told =
        ["torch_dtype", "dtype"].iter().find_map(|key| [text, whole].into_iter().find_map(|c| c.get(*key)?.as_str()));
    match kv.model_type.as_deref().or(told) {
        Some("bfloat16" | "float16" | "half") => Ok(2),
        // What is stored in 32 bits is served in 16 unless that is asked for by name.
        Some("float32") if kv.model_type.is_none() => Ok(2),
        Some("float32" | "float") => Ok(4),
        Some(other) => Err(format!("bytes of the type {other} are not known here")),
        None => Err("config.json has no torch_dtype".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA_8B: &str = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":4096,
        "intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
        "max_position_embeddings":131072,"torch_dtype":"bfloat16"}"#;
    const LLAMA_70B: &str = r#"{"model_type":"llama","hidden_size":8192,"num_hidden_layers":80,
        "num_attention_heads":64,"num_key_value_heads":8,"torch_dtype":"bfloat16"}"#;
    const DEEPSEEK_V3: &str = r#"{"model_type":"deepseek_v3","hidden_size":7168,"num_hidden_layers":61,
        "num_attention_heads":128,"num_key_value_heads":128,"kv_lora_rank":512,"q_lora_rank":1536,
        "qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"num_nextn_predict_layers":1,
        "quantization_config":{"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8"},
        "torch_dtype":"bfloat16"}"#;
    const QWEN3_8B: &str = r#"{"model_type":"qwen3","head_dim":128,"hidden_size":4096,"num_hidden_layers":36,
        "num_attention_heads":32,"num_key_value_heads":8,"sliding_window":null,"use_sliding_window":false,
        "max_window_layers":36,"torch_dtype":"bfloat16"}"#;
    const QWEN25_7B: &str = r#"{"model_type":"qwen2","hidden_size":3584,"num_hidden_layers":28,
        "num_attention_heads":28,"num_key_value_heads":4,"sliding_window":131072,"use_sliding_window":false,
        "torch_dtype":"bfloat16"}"#;
    const MIXTRAL: &str = r#"{"model_type":"mixtral","hidden_size":4096,"num_hidden_layers":32,
        "num_attention_heads":32,"num_key_value_heads":8,"sliding_window":null,"num_local_experts":8,
        "torch_dtype":"bfloat16"}"#;
    const OPT: &str = r#"{"model_type":"opt","hidden_size":5120,"num_hidden_layers":40,"num_attention_heads":40,
        "torch_dtype":"float16"}"#;
    const LLAVA: &str = r#"{"model_type":"mistral3","torch_dtype":"bfloat16","text_config":{"model_type":"mistral",
        "head_dim":128,"hidden_size":5120,"num_hidden_layers":40,"num_attention_heads":32,
        "num_key_value_heads":8,"sliding_window":null},"vision_config":{"num_hidden_layers":24}}"#;

    fn tp(gpus: u32) -> Kv {
        Kv { tensor_parallel: gpus, ..Kv::default() }
    }

    fn bytes(config: &str, kv: &Kv) -> (f64, f64) {
        let kv = kv_bytes(config, kv, false).unwrap_or_else(|why| panic!("{why}: {config}"));
        (kv.per_token, kv.copies)
    }

    fn why(config: &str, kv: &Kv) -> String {
        kv_bytes(config, kv, false).expect_err(config)
    }

    #[test]
    fn well_known_models() {
        for (config, expected) in [
            (LLAMA_8B, 131_072.0),
            (LLAMA_70B, 327_680.0),
            (DEEPSEEK_V3, 70_272.0),
            (QWEN3_8B, 147_456.0),
            (QWEN25_7B, 57_344.0),
            (MIXTRAL, 131_072.0),
            // PagedAttention, section 3: 800 KB for a token of OPT-13B.
            (OPT, 819_200.0),
            (LLAVA, 163_840.0),
        ] {
            assert_eq!(bytes(config, &tp(1)), (expected, 1.0), "{config}");
        }
    }

    /// vLLM 0.25.1 said at its start: "Available KV cache memory: 20.26 GiB", and then how many tokens that is.
    #[test]
    fn the_figure_agrees_with_a_real_engine() {
        let log = (20.26 * 1024.0_f64.powi(3), 165_936.0);
        let (per_token, _) = bytes(LLAMA_8B, &tp(1));
        assert!((log.0 / log.1 / per_token - 1.0).abs() < 0.001, "{} against {per_token}", log.0 / log.1);
    }

    #[test]
    fn more_gpus_than_heads_store_copies() {
        assert_eq!(bytes(LLAMA_8B, &tp(8)), (131_072.0, 1.0));
        assert_eq!(bytes(LLAMA_8B, &tp(16)), (262_144.0, 2.0));
        assert_eq!(bytes(DEEPSEEK_V3, &tp(8)), (562_176.0, 8.0));
        let spread = Kv { context_parallel: 4, ..tp(8) };
        assert_eq!(bytes(DEEPSEEK_V3, &spread), (140_544.0, 2.0));
        let how = |config, kv: &Kv| kv_bytes(config, kv, false).unwrap().how;
        assert_eq!(how(LLAMA_8B, &tp(2)), "config.json: 2 × 32 layers × 8 KV heads × 128 × 2 B");
        assert_eq!(how(LLAMA_8B, &tp(16)), "config.json: 2 × 32 layers × 8 KV heads × 128 × 2 B × 2 copies (TP 16)");
        assert_eq!(how(DEEPSEEK_V3, &tp(8)), "config.json: 61 layers × (512 + 64) × 2 B × 8 copies (TP 8)");
        for kv in [tp(3), tp(12), Kv { context_parallel: 2, ..tp(8) }] {
            assert!(why(LLAMA_8B, &kv).contains("evenly"), "{kv:?}");
        }
    }

    #[test]
    fn the_type_of_the_cache() {
        let with = |cache: &str| Kv { cache_type: cache.into(), ..Kv::default() };
        assert_eq!(bytes(LLAMA_8B, &with("fp8")), (65_536.0, 1.0));
        assert_eq!(bytes(LLAMA_8B, &with("fp8_e5m2")), (65_536.0, 1.0));
        assert_eq!(
            bytes(&LLAMA_8B.replace("bfloat16", "float32"), &Kv::default()),
            (131_072.0, 1.0),
            "served in 16 bits"
        );
        let asked = Kv { model_type: Some("float32".into()), ..Kv::default() };
        assert_eq!(bytes(LLAMA_8B, &asked), (262_144.0, 1.0));
        assert_eq!(
            bytes(&LLAMA_8B.replace("torch_dtype", "dtype"), &Kv::default()),
            (131_072.0, 1.0),
            "its newer name"
        );
        assert!(why(LLAMA_8B, &with("nvfp4")).contains("nvfp4"));
        assert!(why(&LLAMA_8B.replace("torch_dtype", "x"), &Kv::default()).contains("no torch_dtype"));
    }

    #[test]
    fn a_checkpoint_with_a_quantised_cache_is_left_out_unless_the_type_is_given() {
        let own = LLAMA_8B.replacen('{', r#"{"quantization_config":{"kv_cache_scheme":{"num_bits":8}},"#, 1);
        assert!(why(&own, &Kv::default()).contains("--kv-cache-dtype"));
        assert!(kv_bytes(LLAMA_8B, &Kv::default(), true).is_err());
        let given = Kv { cache_type: "fp8".into(), ..Kv::default() };
        assert_eq!(bytes(&own, &given), (65_536.0, 1.0));
        let none = LLAMA_8B.replacen('{', r#"{"quantization_config":{"kv_cache_scheme":null},"#, 1);
        assert_eq!(bytes(&none, &Kv::default()), (131_072.0, 1.0));
    }

    #[test]
    fn what_is_not_stored_in_full_has_no_figure() {
        let gemma3 = r#"{"model_type":"gemma3","text_config":{"model_type":"gemma3_text","num_hidden_layers":34,
            "num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"sliding_window":1024,
            "sliding_window_pattern":6},"torch_dtype":"bfloat16"}"#;
        let gpt_oss = r#"{"model_type":"gpt_oss","num_hidden_layers":24,"num_attention_heads":64,"head_dim":64,
            "num_key_value_heads":8,"sliding_window":128,"layer_types":["sliding_attention","full_attention"],
            "torch_dtype":"bfloat16"}"#;
        let qwen3_next = r#"{"model_type":"qwen3_next","full_attention_interval":4,"num_hidden_layers":48,
            "num_attention_heads":16,"num_key_value_heads":2,"head_dim":256,"torch_dtype":"bfloat16"}"#;
        let deepseek_v32 = DEEPSEEK_V3.replacen('{', r#"{"index_topk":2048,"#, 1);
        let mistral_v1 =
            MIXTRAL.replace("mixtral", "mistral").replace(r#""sliding_window":null"#, r#""sliding_window":4096"#);
        let whisper = LLAMA_8B.replacen('{', r#"{"is_encoder_decoder":true,"#, 1);
        let unknown = LLAMA_8B.replace("\"llama\"", "\"brand_new\"");
        for (config, words) in [
            (gemma3, "window"),
            (gpt_oss, "layer_types"),
            (qwen3_next, "recurrent"),
            (&deepseek_v32, "sparse"),
            (&mistral_v1, "window"),
            (&whisper, "encoder"),
            (&unknown, "brand_new"),
            ("", "no JSON"),
            ("[]", "no object"),
            ("{}", "no torch_dtype"),
            (r#"{"torch_dtype":"bfloat16"}"#, "no num_hidden_layers"),
            (&LLAMA_8B.replace("32,", "-1,"), "no num_hidden_layers"),
        ] {
            assert!(why(config, &Kv::default()).contains(words), "{words}: {}", why(config, &Kv::default()));
        }
        let told = Kv { unknown: Some("of a reason"), ..Kv::default() };
        assert_eq!(why(LLAMA_8B, &told), "of a reason");
    }
}
