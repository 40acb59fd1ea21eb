#!/usr/bin/env python3
"""Compares Invar's tokenizer with the `tokenizers` library on generated strings.

  pip install tokenizers
  tools/oracle/text/compare_tokenizers.py --encode-lines build/.../encode_lines --count 100000 MODEL_FOLDER...

Per folder it makes --count strings from a seed (letters and marks of all scripts, digits, white space, emoji, contractions,
control tokens, code, random code points), tokenizes them on both sides with control tokens parsed, and compares ids and
decoded text. Every eighth string is also tokenized with control tokens as text (the library without its added tokens),
and every fourth has invalid UTF-8 put into it: the library cannot take such bytes, so each is replaced by a private-use
character of the same class (neither letter, digit nor space) for splitting, and put back before its BPE model merges.
Exit code 1 if anything differs. The first differences are printed as repr.
"""
import argparse
import json
import random
import subprocess
import sys
import unicodedata

from tokenizers import Tokenizer

# Placeholders for invalid bytes: U+E080 to U+E0FF, private use.
PLACEHOLDER = 0xE000
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
ALPHABET = {b: chr(b) for b in PRINTABLE}
for _b in range(256):
    if _b not in ALPHABET:
        ALPHABET[_b] = chr(256 + len(ALPHABET) - len(PRINTABLE))

SPACES = [chr(c) for c in (9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x202F, 0x3000)] + ["\r\n", "  ", "    "]
WORDS = ["the", "Hello", "I'm", "they'LL", "don't", "it'\u017f", "caf\u00e9", "cafe\u0301", "na\u00efve", "return", "def", "x1",
         "\u4f60\u597d", "\ud55c\uad6d", "\u1112\u1161\u11ab", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0645\u0631\u062d\u0628\u0627",
         "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "'S", "'re", "'ve", "'D", "'", "\u2019s", "\u212b", "\u1e9b\u0323", "\ufb01"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f3fd", "\u2764\ufe0f", "\U0001f1e9\U0001f1ea", "\u00bd", "\u2167", "\u0663"]
SYMBOLS = ["->", "(x):\n", "...", "!?", "#", "//", "{}", "<|", "|>", "\u2581", "\u00ad", "\u200b", "\ufeff", "\x00", "\x1c", "\x7f"]
COMBINING = [c for c in range(0x300, 0x1E94B) if unicodedata.combining(chr(c))]
CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "<s>", "</s>", "<unk>", "<|begin_of_text|>", "<|eot_id|>",
           "<|im_end |>", "<|im_end|", "<0x0A>"]


def random_char(rng):
    """Any scalar value but the placeholders; mostly from the Basic Multilingual Plane."""
    while True:
        c = rng.randrange(0x3000) if rng.random() < 0.6 else rng.randrange(0x20000) if rng.random() < 0.9 else rng.randrange(0x110000)
        if not 0xD800 <= c < 0xE100:
            return chr(c)


def random_piece(rng, vocabulary):
    kind = rng.randrange(13)
    if kind == 0:
        return rng.choice(SPACES) * rng.choice((1, 1, 1, 2, 3, 17))
    if kind == 1:
        return "".join(rng.choice("0123456789") for _ in range(rng.choice((1, 2, 3, 4, 7, 40))))
    if kind == 2:
        return rng.choice(EMOJI)
    if kind == 3:
        return rng.choice(SYMBOLS)
    if kind == 4:
        return rng.choice(CONTROL)
    if kind == 5:
        return "".join(random_char(rng) for _ in range(rng.randrange(1, 5)))
    if kind == 6:
        return random_char(rng) + "".join(chr(rng.choice(COMBINING)) for _ in range(rng.randrange(1, 4)))
    if kind == 7:
        return "".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 8)))
    if kind == 8:
        return rng.choice(vocabulary)
    if kind == 9:
        return rng.choice("ab \n0.") * rng.randrange(1, 30)
    return rng.choice(("", " ", " ")) + rng.choice(WORDS)


def decode_piece(token):
    """A vocabulary entry as text, where it is text."""
    back = {c: b for b, c in ALPHABET.items()}
    try:
        return bytes(back[c] for c in token).decode()
    except (KeyError, UnicodeDecodeError):
        return token.replace("\u2581", " ")


class Reference:
    def __init__(self, folder):
        self.json = json.load(open(folder + "/tokenizer.json"))
        self.tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
        plain = dict(self.json, added_tokens=[], post_processor=None)
        self.plain = Tokenizer.from_str(json.dumps(plain))
        self.byte_level = "ByteLevel" in json.dumps(self.json["pre_tokenizer"])
        # The same splits with the text still as text: everything but the ByteLevel step's change of alphabet.
        self.vocabulary = [decode_piece(t) for t in self.json["model"]["vocab"]] or [""]

    def ids(self, text, parse):
        return (self.tokenizer if parse else self.plain).encode(text, add_special_tokens=False).ids

    def invalid_ids(self, text):
        """Ids of text whose placeholders stand for bytes 0x80 to 0xFF, without added tokens."""
        if not self.byte_level:
            ids = self.ids(text, False)
            fallback = [self.plain.token_to_id("<0x%02X>" % b) for b in range(256)]
            byte_of = {id_: b for b, id_ in enumerate(fallback)}
            out, i = [], 0
            while i < len(ids):  # U+E0bb is EE 82 or 83 and one more byte.
                b = [byte_of.get(x) for x in ids[i:i + 3]]
                if len(b) == 3 and b[0] == 0xEE and b[1] in (0x82, 0x83):
                    out.append(fallback[((b[1] & 0x3F) << 6 | b[2] & 0x3F) & 0xFF])
                    i += 3
                else:
                    out.append(ids[i])
                    i += 1
            return out
        normalized = self.plain.normalizer.normalize_str(text) if self.plain.normalizer else text
        out = []
        back = {c: b for b, c in ALPHABET.items()}
        for piece, _ in self.plain.pre_tokenizer.pre_tokenize_str(normalized):
            data = bytes(back[c] for c in piece).decode()
            spelled = "".join(ALPHABET[ord(c) - PLACEHOLDER] if 0xE080 <= ord(c) < 0xE100 else "".join(ALPHABET[b] for b in c.encode()) for c in data)
            out += [t.id for t in self.plain.model.tokenize(spelled)]
        return out


def make_invalid(rng, text):
    """Text with placeholders, and its bytes. Bytes are lone continuation or never-valid bytes, which stay invalid wherever they stand."""
    out = list(text)
    for _ in range(rng.randrange(1, 4)):
        out.insert(rng.randrange(len(out) + 1), chr(PLACEHOLDER + rng.choice((0x80, 0x9F, 0xBF, 0xC0, 0xFE, 0xFF))))
    data = b"".join(bytes([ord(c) - PLACEHOLDER]) if 0xE080 <= ord(c) < 0xE100 else c.encode() for c in out)
    return "".join(out), data


def compare(folder, args):
    rng = random.Random(args.seed)
    reference = Reference(folder)
    lines, expected, shown = [], [], []
    for i in range(args.count):
        text = "".join(random_piece(rng, reference.vocabulary) for _ in range(rng.choice((1, 2, 3, 5, 8, 13))))
        text = "".join(c for c in text if not 0xD800 <= ord(c) < 0xE100)
        parse = i % 8 != 0
        data = text.encode()
        if i % 4 == 2:
            text, data = make_invalid(rng, text)
            parse, ids, decoded = False, reference.invalid_ids(text), None
        else:
            ids = reference.ids(text, parse)
            # The library turns a whole run of fallback bytes into U+FFFD where any of it is invalid; such a run cannot
            # come from encoding valid text, so decoded texts are comparable.
            decoded = reference.tokenizer.decode(ids, skip_special_tokens=False).encode().hex()
        lines.append(("parse " if parse else "text ") + data.hex())
        expected.append((ids, decoded))
        shown.append(text)
    run = subprocess.run([args.encode_lines, folder], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    wrong = 0
    answers = run.stdout.splitlines()
    assert len(answers) == len(lines), (len(answers), len(lines))
    for text, line, answer, (ids, decoded) in zip(shown, lines, answers, expected):
        got, got_text = answer.split("\t")
        if got.split() != [str(i) for i in ids] or decoded is not None and got_text != decoded:
            wrong += 1
            if wrong <= args.show:
                print("differs:", line[:5], ascii(text), "\n  want", ids, "\n  got ", got, "\n", decoded, got_text)
    print(f"{folder}: {args.count} strings, {wrong} differ", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--encode-lines", required=True)
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5)
    args = parser.parse_args()
    sys.exit(1 if sum(compare(folder, args) for folder in args.folders) else 0)


if __name__ == "__main__":
    main()
