#!/usr/bin/env python3
"""Writes a folder of a tiny Qwen3 (configuration and tokenizer; its weights are made up when it is loaded), and tiny
LoRA adapters for it below lora/: make_tiny_model.py FOLDER [ADAPTER...]"""
import glob
import json
import os
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

folder, adapters = sys.argv[1], sys.argv[2:]
HIDDEN, HEADS, KV_HEADS, HEAD, LAYERS, RANK = 256, 4, 2, 64, 2, 8
os.makedirs(folder, exist_ok=True)


def write(name, content):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)


tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
texts = [path for path in glob.glob("/usr/share/common-licenses/*") if os.path.isfile(path)] or [__file__]
special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
alphabet = pre_tokenizers.ByteLevel.alphabet()
tokenizer.train(texts, trainers.BpeTrainer(vocab_size=2000, special_tokens=special, initial_alphabet=alphabet))
write(
    "config.json",
    {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": (tokenizer.get_vocab_size() + 63) // 64 * 64,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
)
write("generation_config.json", {"bos_token_id": 0, "eos_token_id": [0, 2], "pad_token_id": 0})
write(
    "tokenizer_config.json",
    {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 4096,
        "chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    },
)

if adapters:
    import torch
    from safetensors.torch import save_file
for name in adapters:
    os.makedirs(os.path.join(folder, "lora", name), exist_ok=True)
    tensors = {}
    for layer in range(LAYERS):
        for part, size in (("q_proj", HEADS * HEAD), ("v_proj", KV_HEADS * HEAD)):
            key = f"base_model.model.model.layers.{layer}.self_attn.{part}"
            tensors[f"{key}.lora_A.weight"] = torch.randn(RANK, HIDDEN) * 0.02
            tensors[f"{key}.lora_B.weight"] = torch.randn(size, RANK) * 0.02
    save_file(tensors, os.path.join(folder, "lora", name, "adapter_model.safetensors"))
    write(
        f"lora/{name}/adapter_config.json",
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "tiny-qwen3",
            "r": RANK,
            "lora_alpha": 2 * RANK,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": ["q_proj", "v_proj"],
        },
    )
# Last: a folder with a tokenizer is a whole one.
tokenizer.save(os.path.join(folder, "tokenizer.json"))
