#!/usr/bin/env python3
"""Writes tokenizer.json from a vocabulary-only GGUF file, to compare tokenizers on published vocabularies.

  pip install gguf tokenizers
  pip download --no-deps --no-binary :all: llama-cpp-python     # its archive holds models/ggml-vocab-*.gguf
  tools/oracle/text/tokenizer_from_gguf.py ggml-vocab-qwen35.gguf qwen3_5 OUT_FOLDER

The GGUF has tokens, kinds and merges; normalizer, pattern and flags are those of the family named: qwen2, qwen3_5,
llama3 or gpt2.
"""
import json
import os
import sys

from gguf import GGUFReader

QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {"qwen2": QWEN2, "qwen3_5": QWEN35, "llama3": QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|"), "gpt2": None}
CONTROL, USER_DEFINED = 3, 4  # Values of tokenizer.ggml.token_type.


def main():
    path, family, out = sys.argv[1:]
    fields = GGUFReader(path).fields
    texts = lambda name: [bytes(fields[name].parts[i]).decode("utf-8") for i in fields[name].data]
    tokens, merges = texts("tokenizer.ggml.tokens"), texts("tokenizer.ggml.merges")
    kinds = [int(fields["tokenizer.ggml.token_type"].parts[i][0]) for i in fields["tokenizer.ggml.token_type"].data]
    added = [dict(id=i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=k == CONTROL)
             for i, (t, k) in enumerate(zip(tokens, kinds)) if k in (CONTROL, USER_DEFINED)]
    skip = {a["id"] for a in added}
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=PATTERNS[family] is None)
    split = dict(type="Split", pattern=dict(Regex=PATTERNS[family]), behavior="Isolated", invert=False)
    json_ = dict(version="1.0", truncation=None, padding=None, added_tokens=added,
                 normalizer=dict(type="NFC") if family.startswith("qwen") else None,
                 pre_tokenizer=byte_level if PATTERNS[family] is None else dict(type="Sequence", pretokenizers=[split, byte_level]),
                 post_processor=None, decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
                 model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                            ignore_merges=family == "llama3", vocab={t: i for i, t in enumerate(tokens) if i not in skip}, merges=merges))
    os.makedirs(out, exist_ok=True)
    json.dump(json_, open(out + "/tokenizer.json", "w"), ensure_ascii=False)
    print(out, len(tokens), "tokens,", len(merges), "merges,", len(added), "added")


if __name__ == "__main__":
    main()
