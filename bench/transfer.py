#!/usr/bin/env python3
"""Time to first token of a decode instance behind a shaped link: two daemons in network namespaces, `tc tbf` on both ends of the
wire between them. Ways: the prompt run here, fetched from a producer that has it ready, and from one that must run it; with
--profile and --consumer, in codes of a base model. With --choose shortest the decode instance decides. Wants root (ip netns,
tc) and a built tree.

  bench/transfer.py --model FOLDER [--consumer FOLDER --profile FILE.scd] [--links 100,1000,10000] [--prompts 1024,2048]
                    [--threads 1] [--repeat 1] [--choose always] [--out FILE.md]

With --remote 64: answers of 64 tokens whose prefix lies ready there, while it comes: waited for first (transfer.verify: here), or
run where it lies (there), or that with drafts on a view that comes first (drafted); all bits are compared with those of a run on
the decode instance alone.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/release/bin"
TOKEN = "bench-token-of-the-decode-instance"
SHA = __import__("hashlib").sha256(TOKEN.encode()).hexdigest()
NAMES = ("invar-p", "invar-d")
ADDRESSES = ("10.213.7.1", "10.213.7.2")
VOCABULARY = 250


def run(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True).stdout


def make_wire():
    remove_wire()
    for name in NAMES:
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
    run("ip", "link", "add", "wire-p", "netns", NAMES[0], "type", "veth", "peer", "name", "wire-d", "netns", NAMES[1])
    for name, device, address in zip(NAMES, ("wire-p", "wire-d"), ADDRESSES):
        run("ip", "-n", name, "addr", "add", address + "/24", "dev", device)
        run("ip", "-n", name, "link", "set", device, "up")


def shape(megabits):
    """A bucket of a millisecond, at least a segment of the sender's."""
    burst = max(70_000, int(megabits * 1e6 / 8 / 1000))
    for name, device in zip(NAMES, ("wire-p", "wire-d")):
        run("tc", "-n", name, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{megabits}mbit", "burst",
            str(burst), "latency", "100ms")


def remove_wire():
    for name in NAMES:
        run("ip", "netns", "del", name, check=False)


class Daemon:
    def __init__(self, which, model, options, work):
        self.space, self.address = NAMES[which], f"{ADDRESSES[which]}:50051"
        config = work / f"{NAMES[which]}.yaml"
        config.write_text(
            f"version: 1\nmodel:\n  path: {model}\nserver:\n  listen: {self.address}\n  allow_insecure: true\nops:\n  listen: 127.0.0.1:9464\n"
            f"auth:\n  tokens:\n    - tenant: bench\n      sha256: {SHA}\n      admin: true\n" + options)
        self.log = open(work / f"{NAMES[which]}.log", "w")
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.space, BIN / "invard", "--config", config], stdout=subprocess.PIPE, stderr=self.log,
            text=True)
        while "listening" not in (line := self.process.stdout.readline()):
            if not line:
                sys.exit(f"transfer.py: {NAMES[which]} ended: {(work / f'{NAMES[which]}.log').read_text()}")
        # The line comes before the model is there.
        deadline = time.time() + 120
        while time.time() < deadline:
            answer = subprocess.run(["ip", "netns", "exec", self.space, sys.executable, "-c",
                                     "import urllib.request as u; u.urlopen('http://127.0.0.1:9464/readyz')"], capture_output=True)
            if answer.returncode == 0:
                return
            time.sleep(0.1)
        sys.exit("transfer.py: a daemon does not become ready")

    def ask(self, tokens, transfer, salt, output=1):
        """An answer to a prompt, as JSON. From the daemon's own namespace: the wire is for instances alone."""
        script = [str(BIN / "invar"), "generate", "--server", self.address, "--token", TOKEN, "--tokens",
                  ",".join(map(str, tokens)), "--max-tokens", str(output), "--ignore-eos", "--temperature", "0", "--json",
                  "--transfer", transfer, "--salt", salt]
        done = subprocess.run(["ip", "netns", "exec", self.space] + script, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"transfer.py: {done.stderr}")
        return json.loads(done.stdout)

    def flush(self):
        subprocess.run(["ip", "netns", "exec", self.space, BIN / "invar", "admin", "flush", "--server", self.address, "--token",
                        TOKEN, "--all"], check=True, capture_output=True)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def prompt(seed, tokens):
    draw = random.Random(seed)
    return [draw.randrange(VOCABULARY) for _ in range(tokens)]


def common(options):
    return f"engine:\n  threads: {options.threads}\n  kv_budget: 1GiB\n  speculation:\n    compressor: {options.compressor}\nlimits:\n  request_timeout: 10m\n"


def measure(options):
    work = pathlib.Path(tempfile.mkdtemp())
    coded = options.profile is not None
    (work / "token").write_text(TOKEN + "\n")
    profile = f"  profile: {pathlib.Path(options.profile).resolve()}\n" if coded else ""
    producer = Daemon(0, options.model, common(options) + "transfer:\n  role: prefill\n" + profile, work)
    consumer = decode(options, producer, "here", work)
    way = "any" if coded else "exact"
    rows = []
    try:
        for megabits in options.links:
            shape(megabits)
            # What is known of the link before is forgotten by then.
            time.sleep(11 if options.choose == "shortest" else 0)
            for tokens, repeat in ((t, r) for t in options.prompts for r in range(options.repeat)):
                # A salt of its own: nothing of it is cached but what is meant to be.
                name = f"{tokens} {repeat} {megabits}"
                words = prompt(f"{tokens} {repeat}", tokens)
                here = consumer.ask(words, "none", f"here {name}")
                for warm in ([False, True] if coded else [True, False]):
                    salt = name if coded else f"{name} {warm}"
                    if warm and coded:
                        consumer.flush()  # The producer has the codes of the row before.
                    elif warm:
                        producer.ask(words, "none", salt)
                    answer = consumer.ask(words, way, salt)
                    kv = answer["kv"]
                    row = {
                        "tokens": tokens, "link_mbit": megabits,
                        "way": ("codes, " if coded else "") + ("ready there" if warm else "run there"),
                        "first_token_s": answer["timing"]["first_token_s"], "here_s": here["timing"]["first_token_s"],
                        "bytes": kv["transfer_bytes"], "mode": kv.get("transfer_mode", ""),
                        "link_s": kv["transfer_bytes"] / (megabits * 1e6 / 8), "plan": kv.get("transfer_plan", "")}
                    rows.append(row)
                    print(json.dumps(row), file=sys.stderr, flush=True)
    finally:
        consumer.stop()
        producer.stop()
    return rows


def decode(options, producer, verify, work):
    profile = f"  profile: {pathlib.Path(options.profile).resolve()}\n" if options.profile else ""
    return Daemon(1, options.consumer or options.model, common(options) +
                  f"transfer:\n  role: decode\n  producers: a={producer.address}\n  allow_insecure: true\n  timeout: 300s\n"
                  f"  choose: {options.choose}\n  verify: {verify}\n  token_file: {work}/token\n" + profile, work)


def measure_remote(options):
    work = pathlib.Path(tempfile.mkdtemp())
    (work / "token").write_text(TOKEN + "\n")
    producer = Daemon(0, options.model, common(options) + "transfer:\n  role: prefill\n", work)
    rows = []
    try:
        for verify in options.verify:
            consumer = decode(options, producer, verify, work)
            try:
                for megabits, tokens, repeat in ((m, t, r) for m in options.links for t in options.prompts
                                                 for r in range(options.repeat)):
                    shape(megabits)
                    words = prompt(f"{tokens} {repeat}", tokens)
                    salt = f"{tokens} {repeat} {megabits} {verify}"
                    producer.ask(words, "none", salt)
                    answer = consumer.ask(words, "exact", salt, options.remote)
                    alone = consumer.ask(words, "none", salt + " alone", options.remote)
                    first, decoded = (answer["timing"][key] for key in ("first_token_s", "decode_s"))
                    differ = sum(a != b for key in ("token_ids", "logit_bits", "logprob_bits")
                                 for a, b in zip(answer[key], alone[key], strict=True))
                    rows.append({"tokens": tokens, "link_mbit": megabits, "verify": verify, "first_token_s": first,
                                 "tokens_per_s": options.remote / (first + decoded), "bytes": answer["kv"]["transfer_bytes"],
                                 "mode": answer["kv"]["transfer_mode"], "differ": differ,
                                 "here_s": alone["timing"]["first_token_s"],
                                 "here_tokens_per_s": options.remote / sum(alone["timing"][key] for key in ("first_token_s", "decode_s"))})
                    print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            finally:
                consumer.stop()
    finally:
        producer.stop()
    return rows


def table_remote(rows):
    lines = ["| prompt | link | verify | came | MB | first token, s | tokens/s, whole answer | bits that differ | run here: first token, s | tokens/s |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r['tokens']} | {r['link_mbit']} Mbit/s | {r['verify']} | {r['mode']} | {r['bytes'] / 1e6:.1f} | {r['first_token_s']:.3f} "
                     f"| {r['tokens_per_s']:.1f} | {r['differ']} | {r['here_s']:.3f} | {r['here_tokens_per_s']:.1f} |")
    return "\n".join(lines) + "\n"


def table(rows):
    lines = ["| prompt | link | way | MB | first token, s | bytes / link, s | run here, s | times sooner |", "|---|---|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r['tokens']} | {r['link_mbit']} Mbit/s | {r['way']}{' (' + r['mode'] + ')' if r['mode'] else ', nothing came'} "
                     f"| {r['bytes'] / 1e6:.1f} | {r['first_token_s']:.3f} | {r['link_s']:.3f} | {r['here_s']:.3f} "
                     f"| {r['here_s'] / r['first_token_s']:.2f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--model", required=True)
    parser.add_argument("--consumer")
    parser.add_argument("--profile")
    parser.add_argument("--links", type=numbers, default=[100, 1000, 10000])
    parser.add_argument("--prompts", type=numbers, default=[1024, 2048, 4096])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--choose", default="always")
    parser.add_argument("--remote", type=int, metavar="TOKENS")
    parser.add_argument("--verify", type=lambda text: text.split(","), default=["here", "there", "drafted"])
    parser.add_argument("--compressor", default="kivi4")
    parser.add_argument("--out")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("transfer.py: wants root: it makes network namespaces and shapes links")
    make_wire()
    try:
        text = table_remote(measure_remote(options)) if options.remote else table(measure(options))
    finally:
        remove_wire()
    if options.out:
        pathlib.Path(options.out).write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
