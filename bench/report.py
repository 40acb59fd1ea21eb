#!/usr/bin/env python3
"""Joins the JSON of bench/run_all.sh into one file and writes the table beside it. Standard library only."""
import argparse
import datetime
import json
import os
import pathlib
import platform


def machine():
    """Processor, cores, memory and the vector instructions that decide which kernels run."""
    info = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        info.setdefault(key.strip(), value.strip())
    flags = set(info.get("flags", "").split())
    memory = pathlib.Path("/proc/meminfo").read_text().split()[1]
    return {
        "processor": info.get("model name", platform.processor()),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory) / 2**20, 1),
        "vector": [f for f in ("avx2", "avx512f", "avx512_bf16") if f in flags],
        "kernel": platform.release(),
    }


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]


def percent(share):
    return "-" if share is None else "%.0f %%" % (100 * share)


def number(value, digits=1):
    return "-" if value is None else "%.*f" % (digits, value)


def markdown(all_results):
    m = all_results["machine"]
    out = ["# Benches of %s" % all_results["date"], ""]
    out += ["%s, %d cores, %.1f GiB, %s; commit %s; `bench/run_all.sh`. Shares are of limits probed in the same run." % (
        m["processor"], m["cores"], m["memory_gib"], "+".join(m["vector"]) or "no vector unit named", all_results["commit"]), ""]
    kernels, model = all_results["kernels"], all_results["model"]
    out += ["Limits: " + ", ".join("%s %.1f" % (k, v) for k, v in kernels.get("limits", {}).items() if isinstance(v, (int, float))), ""]
    out += ["## Kernels", ""] + table(["kernel", "shape", "GB/s", "GFLOP/s", "share"], [
        [k["name"], k["shape"], number(k.get("gbps")), number(k.get("gflops")), percent(k.get("share"))] for k in kernels.get("kernels", [])])
    out += ["", "## Model %s, %s threads" % (model.get("shape"), model.get("threads")), ""]
    out += table(["decode batch", "context", "tokens/s", "share of bandwidth"], [
        [d["batch"], d["context"], number(d["tokens_per_s"]), percent(d.get("share_of_bandwidth"))] for d in model.get("decode", [])])
    out += [""] + table(["prefill tokens", "tokens/s", "share of peak"], [
        [p["tokens"], number(p["tokens_per_s"]), percent(p.get("share_of_peak"))] for p in model.get("prefill", [])])
    out += ["", "## Daemon on %s" % all_results["served_model"], ""]
    out += table(["workload", "requests", "failed", "tokens/s", "first token p50/p95/p99, ms", "per token p50/p95/p99, ms"], [
        [name, s["requests"], s["failed"], number(s["tokens_per_s"])] +
        [" / ".join(number(1e3 * s[k][p], 2) for p in ("p50", "p95", "p99")) for k in ("first_token_s", "per_token_s")]
        for name, s in all_results["serve"].items()])
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("work", "out", "commit", "model"):
        parser.add_argument("--" + name, required=True)
    a = parser.parse_args()
    work = pathlib.Path(a.work)
    results = {"date": datetime.date.today().isoformat(), "commit": a.commit, "machine": machine(), "served_model": a.model}
    results["kernels"] = json.loads((work / "kernels.json").read_text())
    results["model"] = json.loads((work / "model.json").read_text())
    results["serve"] = {p.stem.removeprefix("serve-"): json.loads(p.read_text()) for p in sorted(work.glob("serve-*.json"))}
    pathlib.Path(a.out + ".json").write_text(json.dumps(results, indent=1) + "\n")
    pathlib.Path(a.out + ".md").write_text(markdown(results))


if __name__ == "__main__":
    main()
