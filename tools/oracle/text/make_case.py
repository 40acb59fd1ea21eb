#!/usr/bin/env python3
"""What Python's str knows of upper and lower case: the table behind the templates' case changes, and what their test
compares with.

  pip install jinja2
  tools/oracle/text/make_case.py --table models/text/jinja/case_table.h --golden tests/golden/text/case.json
  clang-format -i models/text/jinja/case_table.h
"""
import argparse
import json
import random
import sys
import unicodedata

from jinja2 import Environment

HEAD = """// Made by tools/oracle/text/make_case.py of Python %s, Unicode %s.
// What utf8proc does not say of the case of letters: which become several, and which have a case without being
// letters of one.
#pragma once

#include <cstdint>
#include <string_view>

namespace invar::models::jinja {

struct FullCase {
  int32_t from;
  std::string_view upper;
  std::string_view title;
};
// Ascending.
inline constexpr FullCase kFullCases[] = {
%s};

struct CodeRange {
  int32_t first;
  int32_t last;
};
// Cased, of no category Lu, Ll or Lt. Ascending.
inline constexpr CodeRange kOtherCased[] = {
%s};

}  // namespace invar::models::jinja
"""


def characters():
    return (chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000)


def is_cased(c):
    return (c + "a").title()[-1] == "a"


def is_ignorable(c):
    """Looked through for what stands before and behind a capital sigma."""
    return not is_cased(c) and ("A" + c + "\u03a3").lower()[-1] == "\u03c2"


def ranges(wanted):
    out = []
    for c in map(ord, filter(wanted, characters())):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def escaped(text):
    return "".join(c if c.isascii() else "\\u%04X" % ord(c) for c in text)


def table():
    full = [c for c in characters() if len(c.upper()) > 1 or len(c.title()) > 1]
    rows = "".join('{0x%04X, "%s", "%s"},\n' % (ord(c), escaped(c.upper()), escaped(c.title())) for c in full)
    other = ranges(lambda c: is_cased(c) and unicodedata.category(c) not in ("Lu", "Ll", "Lt"))
    return HEAD % (sys.version.split()[0], unicodedata.unidata_version, rows, "".join("{0x%04X, 0x%04X},\n" % (a, b) for a, b in other))


def texts():
    rng = random.Random(1)
    alphabet = "aBs\u00df\u03a3\u03c3\u03c2\u0391\u0130\u01c6\u01c5\u0149\ufb01\u0345\u0301'.:\u2019 -({1\u4e2d\u00aa\u2160\u1fb3\U00010400"
    return ["\u039f\u0394\u039f\u03a3 \u03a3", "\u4e2dabc", "istanbul \u0130I"] + ["".join(rng.choices(alphabet, k=rng.randint(1, 9))) for _ in range(600)]


def golden():
    title = Environment().from_string("{{ s|title }}")
    return {
        "changed": [[ord(c), c.upper(), c.title(), c.lower()] for c in characters() if not c == c.upper() == c.title() == c.lower()],
        "cased": ranges(is_cased),
        "ignorable": ranges(is_ignorable),
        "texts": [[s, s.upper(), s.lower(), s.title(), s.capitalize(), title.render(s=s)] for s in texts()],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True)
    parser.add_argument("--golden", required=True)
    args = parser.parse_args()
    with open(args.table, "w", encoding="ascii") as out:
        out.write(table())
    with open(args.golden, "w", encoding="utf-8") as out:
        json.dump(golden(), out, separators=(",", ":"), ensure_ascii=False)
        out.write("\n")


if __name__ == "__main__":
    main()
