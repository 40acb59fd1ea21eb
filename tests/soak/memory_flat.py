#!/usr/bin/env python3
"""Soak, run by hand: many requests through a fresh daemon, and whether its memory stays flat.

  tests/soak/memory_flat.py [--bin build/release/bin] [--requests 20000] [--model DIR] [--limit-mib 8]

Memory is RssAnon + VmSwap of /proc/PID/status: pages of mapped weights come and go with the page cache and are not counted. It is read
every half second while `invar bench serve` sends bench/workloads/soak.yaml. Pools grow at first, so the first third is not judged; over
the rest a least-squares line may rise by --limit-mib at most. Exit 0 flat, 1 growing or failed requests.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/deploy"))
from daemon import Daemon  # noqa: E402


def private_mib(pid):
    fields = dict(line.split(":", 1) for line in pathlib.Path("/proc/%d/status" % pid).read_text().splitlines())
    return sum(int(fields[key].split()[0]) for key in ("RssAnon", "VmSwap")) / 1024


def rise(samples):
    """Least-squares rise in MiB over the span of [(seconds, MiB)]."""
    n = len(samples)
    mean_t, mean_m = sum(t for t, _ in samples) / n, sum(m for _, m in samples) / n
    spread = sum((t - mean_t) ** 2 for t, _ in samples)
    slope = sum((t - mean_t) * (m - mean_m) for t, m in samples) / spread if spread else 0.0
    return slope * (samples[-1][0] - samples[0][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "assets/tiny-hybrid")
    parser.add_argument("--limit-mib", type=float, default=8.0)
    a = parser.parse_args()
    samples, done = [], threading.Event()
    with Daemon(a.bin, model=a.model) as daemon:
        start = time.monotonic()

        def watch():
            while not done.wait(0.5):
                samples.append((time.monotonic() - start, private_mib(daemon.process.pid)))

        watcher = threading.Thread(target=watch)
        watcher.start()
        command = [a.bin / "invar", "bench", "serve", "--server", daemon.grpc, "--workload", ROOT / "bench/workloads/soak.yaml"]
        load = subprocess.run([*command, "--requests", str(a.requests), "--json"], stdout=subprocess.PIPE, text=True)
        done.set()
        watcher.join()
        code = daemon.stop()
    report = json.loads(load.stdout) if load.stdout else {"requests": 0, "failed": a.requests}
    judged = samples[len(samples) // 3:]
    risen = rise(judged) if len(judged) > 2 else float("nan")
    print(json.dumps({"requests": report["requests"], "failed": report["failed"], "seconds": round(samples[-1][0], 1) if samples else 0,
                      "samples": len(samples), "first_mib": samples[0][1] if samples else 0, "last_mib": samples[-1][1] if samples else 0,
                      "judged_rise_mib": round(risen, 3), "exit_code_of_daemon": code}, indent=1))
    return 0 if report["requests"] == a.requests and report["failed"] == 0 and risen <= a.limit_mib and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
