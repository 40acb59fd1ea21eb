#!/usr/bin/env python3
"""Holds `invar logits` to golden models through the command line: logits, greedy continuations and recurrent states.

  check_logits.py --invar build/release/bin/invar [--backend cpu] [--activations fp32] FOLDER...

A FOLDER is a model with an expected.safetensors beside it (tests/golden/models/NAME). The model tests check the same numbers
inside the process; this script is for other builds and machines. Needs numpy and safetensors.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file


def run(args, folder, tokens, greedy, states):
    with tempfile.TemporaryDirectory() as work:
        tokens_path, out_path = f"{work}/tokens.json", f"{work}/out.safetensors"
        pathlib.Path(tokens_path).write_text(json.dumps([int(t) for t in tokens]))
        command = [args.invar, "logits", "--model", str(folder), "--tokens", tokens_path, "--out", out_path,
                   "--backend", args.backend, "--activations", args.activations]
        if greedy:
            command += ["--greedy", str(greedy)]
        if states:
            command += ["--states", ",".join(str(s) for s in states)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return load_file(out_path)


def check(args, folder):
    expected = load_file(folder / "expected.safetensors")
    hybrid = any(name.startswith("state.") for name in expected) or "linear_num_value_heads" in (folder / "config.json").read_text()
    exact = args.backend == "reference" or args.activations == "fp32"
    errors, state_error, wrong = [], 0.0, 0
    for length in sorted(int(name.split(".")[1]) for name in expected if name.startswith("tokens.")):
        wanted_states = sorted({int(name.split(".")[1]) for name in expected if name.startswith("state.")}) if length == 200 else []
        greedy = expected.get(f"greedy.f32.{length}")
        out = run(args, folder, expected[f"tokens.{length}"], 0 if greedy is None else len(greedy), wanted_states)
        errors.append((out["logits"][expected[f"positions.{length}"]] - expected[f"logits.f32.{length}"]).ravel())
        for name in (n for n in expected if n.startswith("state.") and wanted_states):
            state_error = max(state_error, float(np.abs(out[name] - expected[name]).max() / np.abs(expected[name]).max()))
        if greedy is not None:
            sure = np.cumprod(expected[f"greedy_margin.f32.{length}"] > (1e-3 if exact else 0.6)).astype(bool)
            wrong += int((out["greedy"] != greedy)[sure].sum())
    errors = np.concatenate(errors)
    largest, rms = float(np.abs(errors).max()), float(np.sqrt((errors ** 2).mean()))
    good = wrong == 0 and (largest <= (3e-4 if hybrid else 1e-4) and state_error <= 2e-5 if exact else largest <= 0.6 and rms <= 0.05)
    print(f"{'ok  ' if good else 'FAIL'} {folder}: max {largest:.2e} rms {rms:.2e} states {state_error:.2e} greedy wrong {wrong}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--invar", required=True)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--activations", default="bf16", choices=["bf16", "fp32"])
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    return 0 if all([check(args, folder) for folder in args.folders]) else 1


if __name__ == "__main__":
    sys.exit(main())
