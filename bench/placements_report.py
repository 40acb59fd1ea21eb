"""Turns the runs of bench/placements.sh into JSON, a table and a picture."""
import argparse
import json

from report import machine


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("runs", "out", "commit", "shape", "budget", "documents", "length"):
        parser.add_argument("--" + name, required=True)
    args = parser.parse_args()
    with open(args.runs) as file:
        runs = [json.loads(line) for line in file]
    workloads = list(dict.fromkeys(run["result"]["workload"] for run in runs))
    placements = list(dict.fromkeys(run["placement"] for run in runs))

    def mean(workload, placement, key):
        values = [r["result"][key] for r in runs if r["placement"] == placement and r["result"]["workload"] == workload]
        return sum(values) / len(values)

    table = {w: {p: {k: mean(w, p, k) for k in ("mean_first_token_s", "mean_computed_tokens", "mean_shared_tokens")}
                 for p in placements} for w in workloads}
    computer = machine()
    about = {"cpu": computer["processor"], "cores": computer["cores"], "commit": args.commit, "shape": args.shape,
             "kv_budget": args.budget, "documents": int(args.documents), "document_tokens": int(args.length),
             "command": f"bench/placements.sh --shape {args.shape} --budget {args.budget} --documents {args.documents}"}
    with open(args.out + ".json", "w") as file:
        json.dump({"about": about, "mean": table, "runs": runs}, file, indent=1)
    with open(args.out + ".md", "w") as file:
        file.write(f"# Placements of checkpoints side by side\n\n{about['cpu']}, {about['cores']} cores, commit {args.commit}, "
                   f"shape {args.shape}, engine.kv_budget {args.budget} for all, {args.length} tokens a document.\n\n"
                   "Mean time to first token of requests that come back to a document, in seconds; in brackets tokens run.\n\n")
        file.write("| workload | " + " | ".join(placements) + " |\n|---|" + "---|" * len(placements) + "\n")
        for w in workloads:
            cells = [f"{table[w][p]['mean_first_token_s']:.3f} ({table[w][p]['mean_computed_tokens']:.0f})" for p in placements]
            file.write(f"| {w} | " + " | ".join(cells) + " |\n")
        file.write(f"\n`{about['command']}`\n")
    draw(table, workloads, placements, args.out + ".svg")


def draw(table, workloads, placements, path):
    width, height, left, bottom = 640, 300, 50, 40
    colours = ["#1b6ca8", "#e39b3b", "#7a9e48", "#999999"]
    most = max(table[w][p]["mean_first_token_s"] for w in workloads for p in placements)
    group = (width - left - 20) / len(workloads)
    bar = group / (len(placements) + 1)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
             f'<text x="{left}" y="16">mean time to first token, s</text>']
    for i, workload in enumerate(workloads):
        for j, placement in enumerate(placements):
            value = table[workload][placement]["mean_first_token_s"]
            tall = (height - bottom - 50) * value / most
            x = left + i * group + j * bar
            y = height - bottom - tall
            parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar * 0.9:.1f}" height="{tall:.1f}" fill="{colours[j % 4]}"/>')
            parts.append(f'<text x="{x:.1f}" y="{y - 3:.1f}" font-size="10">{value:.2f}</text>')
        parts.append(f'<text x="{left + i * group:.1f}" y="{height - bottom + 16}">{workload}</text>')
    for j, placement in enumerate(placements):
        x = left + j * 130
        parts.append(f'<rect x="{x}" y="{height - 16}" width="10" height="10" fill="{colours[j % 4]}"/>'
                     f'<text x="{x + 14}" y="{height - 7}">{placement}</text>')
    with open(path, "w") as file:
        file.write("\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    main()
