"""The tables of docs/src/performance-notes.md, from what `cargo bench -p sk-aggregate` measured.

    python3 sk-aggregate/benches/table.py [target/criterion]

Medians. Time for a batch of seven, time per pair for larger ones, where a batch of N has N(N - 1)/2 pairs; and how much faster a batch is
rated on several threads than on one.
"""
import json
import pathlib
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "target/criterion")

# (group, N) -> function -> threads or None -> median in ns
medians = {}
for path in root.glob("**/new/benchmark.json"):
    bench = json.loads(path.read_text())
    group, n = bench["group_id"].rsplit("/", 1)
    median = json.loads(path.with_name("estimates.json").read_text())["median"]["point_estimate"]
    # Without a function the parameter is the operator; with one it is the number of threads.
    operator = bench["function_id"] or bench["value_str"]
    threads = int(bench["value_str"]) if bench["function_id"] else None
    medians.setdefault((group, int(n)), {}).setdefault(operator, {})[threads] = median


def digits(ns):
    return f"{ns:,.0f} ns" if ns >= 100 else f"{ns:.3g} ns"


def row(cells):
    return "| " + " | ".join(cells) + " |"


for group in sorted({group for group, _ in medians} - {"threads"}):
    sizes = sorted(n for g, n in medians if g == group)
    operators = dict.fromkeys(name for n in sizes for name in medians[group, n])
    heads = [f"N = {n}" if n == 7 else f"per pair at {n:,}" for n in sizes]
    print(f"\n{group}\n\n{row(['operator', *heads])}\n|---|{'---:|' * len(sizes)}")
    for name in operators:
        times = [medians[group, n].get(name, {}).get(None) for n in sizes]
        parts = [1 if n == 7 else n * (n - 1) / 2 for n in sizes]
        print(row([name, *("" if t is None else digits(t / part) for t, part in zip(times, parts))]))

for n in sorted(n for g, n in medians if g == "threads"):
    operators = medians["threads", n]
    counts = sorted({count for times in operators.values() for count in times})
    print(f"\nthreads, N = {n:,}\n\n{row(['operator', *(f'on {count}' for count in counts)])}\n|---|{'---:|' * len(counts)}")
    for name, times in operators.items():
        cells = ["" if count not in times else digits(times[count]) for count in counts]
        cells[1:] = [f"{cell} (× {times[1] / times[count]:.2f})" for cell, count in zip(cells[1:], counts[1:]) if cell]
        print(row([name, *cells]))
