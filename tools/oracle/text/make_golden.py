#!/usr/bin/env python3
"""Makes the committed text goldens: tests/golden/text.

  pip install tokenizers jinja2
  tools/oracle/text/make_golden.py --tokenizers NAME=FOLDER... --out tests/golden/text

tokenizers/NAME/tokenizer.json is a copy of the folder's, cases.jsonl holds [text, parse control tokens, ids, ids with
special tokens, decoded text] as the `tokenizers` library gives them. tokenizers/flags is made here: added tokens with
every flag. templates.json holds small templates, each with a request and what jinja2 renders (or that it refuses).
"""
import argparse
import json
import os
import random
import shutil

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from compare_tokenizers import Reference, random_piece
from jinja_reference import render
from template_snippets import CASES

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def token_cases(folder, count, seed):
    rng = random.Random(seed)
    reference = Reference(folder)
    out = []
    while len(out) < count:
        text = "".join(random_piece(rng, reference.vocabulary) for _ in range(rng.choice((1, 2, 3, 5, 8))))
        if len(text) > 60 or any(0xD800 <= ord(c) < 0xE100 for c in text):
            continue
        parse = len(out) % 8 != 0
        ids = reference.ids(text, parse)
        special = (reference.tokenizer if parse else reference.plain).encode(text).ids if parse else ids
        out.append([text, parse, ids, special, reference.tokenizer.decode(ids, skip_special_tokens=False)])
    return out


def flags_tokenizer(path):
    """Byte-level BPE over a few merges, with added tokens that use every flag, and a sequence of normalizers."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(alphabet)}
    merges = [("a", "b"), ("ab", "c"), ("\u0120", "a"), ("\u0120a", "b"), ("1", "1"), ("b", "c"), ("a", "bc")]
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("\u2026", "..."), normalizers.NFC()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", special=True, normalized=False), AddedToken("<sep>", lstrip=True, rstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<r>", rstrip=True, normalized=False),
                          AddedToken("word", single_word=True, normalized=False), AddedToken("caf\u00e9", normalized=True),
                          AddedToken("a\u2026b", normalized=True), AddedToken("<ab", normalized=False), AddedToken("<abc>", normalized=False),
                          AddedToken("wordy", single_word=True, normalized=True)])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A <sep>", special_tokens=[("<s>", tokenizer.token_to_id("<s>")), ("<sep>", tokenizer.token_to_id("<sep>"))])
    tokenizer.save(path, pretty=False)


FLAG_PIECES = ["<s>", "<sep>", "<l>", "<r>", "word", "wordy", "caf\u00e9", "cafe\u0301", "a\u2026b", "a...b", "<ab", "<abc>", "<abc", " ", "  ", "\u3000", "x", "_", "ab",
               "abc", "11", "\u0301", "\n", "<", "\u2160"]


def flag_cases(folder, count, seed):
    rng = random.Random(seed)
    tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
    out = []
    for _ in range(count):
        text = "".join(rng.choice(FLAG_PIECES) for _ in range(rng.randrange(9)))
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        out.append([text, True, ids, tokenizer.encode(text).ids, tokenizer.decode(ids, skip_special_tokens=False)])
    return out


def write_cases(path, cases):
    with open(path, "w") as out:
        for case in cases:
            out.write(json.dumps(case, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizers", nargs="+", default=[])
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=2000)
    args = parser.parse_args()
    for seed, entry in enumerate(args.tokenizers):
        name, folder = entry.split("=")
        target = f"{args.out}/tokenizers/{name}"
        os.makedirs(target, exist_ok=True)
        shutil.copyfile(folder + "/tokenizer.json", target + "/tokenizer.json")
        os.chmod(target + "/tokenizer.json", 0o644)
        write_cases(target + "/cases.jsonl", token_cases(target, args.count, seed))
    os.makedirs(f"{args.out}/tokenizers/flags", exist_ok=True)
    flags_tokenizer(f"{args.out}/tokenizers/flags/tokenizer.json")
    write_cases(f"{args.out}/tokenizers/flags/cases.jsonl", flag_cases(f"{args.out}/tokenizers/flags", args.count, 99))
    rendered = []
    for source, case in CASES:
        kind, text = render(source, case, SPECIAL)
        rendered.append(dict(template=source, request=case, **({"text": text} if kind == "text" else {"error": text})))
    json.dump(rendered, open(f"{args.out}/templates.json", "w"), indent=0)
    print(len(rendered), "template cases,", sum("error" in r for r in rendered), "of them refusals")
    for r in rendered:
        if "error" in r:
            print("  refused:", r["template"][:90].replace("\n", "\\n"), "->", r["error"][:90])


if __name__ == "__main__":
    main()
