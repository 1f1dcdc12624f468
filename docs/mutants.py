#!/usr/bin/env python3
"""Runs the mutants of a crate, many to a build.

cargo-mutants builds a crate and its tests anew for every mutant, which is most of its time. This script gives each function one more body for
each of its mutants, and the environment variable MUTANT selects the one that runs:

    match crate::mutant() { 17 => { the body with mutant 17 } … _ => { the body } }

The mutants are those of `cargo mutants --list`. A mutant that does not compile is unviable. A mutant is caught when a test fails or crashes, and
timed out when a test binary uses more than its share of processor time; the load of the machine makes no difference. Functions that cannot have
two bodies (`const fn`, `-> impl Trait`), and constants, are left to cargo-mutants itself; `left.txt` names their mutants.

    docs/mutants.py -p sk-aggregate --shard 1/4 --skip what_is_broken -o target/mutants/sk-aggregate -- --features parallel

`outcomes.jsonl` has a line per mutant. Mutants run in a random order, so a run that is
stopped early is a random sample.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading

SELECTOR = """
pub(crate) fn mutant() -> u32 {
    static ID: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| std::env::var("MUTANT").map_or(0, |id| id.parse().unwrap_or(0)));
    *ID
}
"""

# The time limit of a test binary in processor seconds: at least the first, and a multiple of its time without a mutant.
LEAST, TIMES = 20, 8


def position(starts, at):
    return starts[at["line"] - 1] + at["column"] - 1


def inside(text, start, end):
    """Start and end of the body of the function at text[start:end]."""
    depth = 0
    for at in range(text.index("fn ", start), end):
        if text[at] in "([":
            depth += 1
        elif text[at] in ")]":
            depth -= 1
        elif text[at] == "{" and depth == 0:
            return at + 1, end - 1
    return end, end


def grouped(mutants):
    """Mutants by file and by the body of the outermost function around them, and those that are left."""
    groups, left = {}, []
    for file in sorted({m["file"] for m in mutants}):
        text = pathlib.Path(file).read_text()
        starts = [0]
        for line in text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        members = [m for m in mutants if m["file"] == file]
        for m in members:
            m["at"] = position(starts, m["span"]["start"]), position(starts, m["span"]["end"])
            span = (m["function"] or m)["span"]
            m["home"] = position(starts, span["start"]), position(starts, span["end"])
        for m in members:
            homes = [n["home"] for n in members if n["function"] and n["home"][0] <= m["at"][0] and m["at"][1] <= n["home"][1]]
            home = min(homes, default=m["home"])
            body = inside(text, *home) if m["function"] else (0, 0)
            if not body[0] <= m["at"][0] <= m["at"][1] <= body[1] or re.search(r"-> impl|const fn", text[home[0] : body[0]]):
                left.append(m)
            else:
                groups.setdefault(file, {}).setdefault(body, []).append(m)
    return groups, left


def write(groups, tree, root):
    """Writes the bodies of the mutants that may compile. Returns the lines of each, by file."""
    places = {}
    for file in {*groups, root}:
        text = pathlib.Path(file).read_text()
        out, done, places[file] = "", 0, []
        for (start, end), members in sorted(groups.get(file, {}).items()):
            out += text[done:start] + "\n#[allow(warnings, clippy::all)] match crate::mutant() {\n"
            for m in members:
                if "unviable" not in m:
                    first = out.count("\n") + 1
                    out += f"{m['id']} => {{{text[start:m['at'][0]]}{m['replacement']}{text[m['at'][1]:end]}\n}}\n"
                    places[file].append((first, out.count("\n"), m))
            out += f"_ => {{{text[start:end]}\n}}\n}}\n"
            done = end
        # Forced inlining would multiply with the number of bodies.
        out = (out + text[done:]).replace("#[inline(always)]", "#[inline]")
        (tree / file).write_text(out + SELECTOR if file == root else out)
    return places


def build(options, groups, tree):
    """Builds the tests without the mutants that do not compile. Returns the test binaries by name."""
    command = ["cargo", "test", "-p", options.package, "--no-run", "--message-format=json", *options.cargo]
    while True:
        places = write(groups, tree, f"{options.package}/src/lib.rs")
        run = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True)
        messages = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        if run.returncode == 0:
            built = [m for m in messages if m.get("executable") and m["profile"]["test"] and m["target"]["kind"][0] in ("lib", "test")]
            return {m["target"]["name"]: m["executable"] for m in built}
        dropped = False
        for message in (m["message"] for m in messages if m["reason"] == "compiler-message" and m["message"]["level"] == "error"):
            for span in message["spans"]:
                for first, last, m in places.get(span["file_name"], []):
                    if span["is_primary"] and first <= span["line_start"] <= last:
                        m["unviable"], dropped = message["message"], True
        if not dropped:
            sys.exit("the crate itself does not compile")


def test(binary, mutant, limit, options):
    """Runs a test binary under a mutant. Returns its failure, None if all tests pass, and its processor seconds."""

    def limits():
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

    # Failing cases of one mutant are not kept for the next.
    settings = {"MUTANT": str(mutant), "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1", "PROPTEST_MAX_SHRINK_ITERS": "0"}
    child = subprocess.Popen(
        [binary, "--test-threads=1", *(word for skip in options.skip for word in ("--skip", skip))],
        cwd=options.package,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=limits,
        text=True,
    )
    last = failed = ""
    for line in child.stdout:
        if line.startswith("test "):
            last = line.split()[1]
        if line.startswith("test ") and line.rstrip().endswith("FAILED"):
            failed = last
            os.kill(child.pid, signal.SIGKILL)
            break
    child.stdout.close()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    seconds = usage.ru_utime + usage.ru_stime
    if failed:
        return ("caught", failed), seconds
    if os.WIFSIGNALED(status) and seconds > limit - 2:
        return ("timeout", last), seconds
    return (("caught", f"status {status} after {last}") if status else None), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-p", dest="package", required=True, help="the crate, which is also the name of its folder")
    parser.add_argument("-o", dest="output", type=pathlib.Path, required=True, help="a folder for what comes out, and for the build")
    parser.add_argument("--shard", default="0/1", help="k/n: every n-th mutant from the k-th on")
    parser.add_argument("--match", default="", help="only mutants whose name matches this expression")
    parser.add_argument("--first", default=[], type=json.loads, help="[[expression, [test binaries]], …]: those run first for files that match")
    parser.add_argument("--skip", action="append", default=[], help="a test to leave out")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("cargo", nargs="*", help="arguments of cargo test")
    options = parser.parse_args()
    os.chdir(pathlib.Path(__file__).resolve().parents[1])
    output = options.output.resolve()
    tree = output / "tree"
    for path in subprocess.run(["git", "ls-files"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, tree / path)
    listed = subprocess.run(["cargo", "mutants", "-p", options.package, "--list", "--json"], stdout=subprocess.PIPE, check=True).stdout
    mutants = [m | {"id": k} for k, m in enumerate(json.loads(listed), 1)]
    k, n = map(int, options.shard.split("/"))
    mutants = [m for m in mutants[k::n] if re.search(options.match, m["name"])]
    groups, left = grouped(mutants)
    (output / "left.txt").write_text("".join(m["name"] + "\n" for m in left))
    os.environ.setdefault("CARGO_TARGET_DIR", str(output / "target"))
    binaries = build(options, groups, tree)

    base = {}
    for name, binary in binaries.items():
        ended, base[name] = test(binary, 0, 3600, options)
        if ended:
            sys.exit(f"{name} fails without a mutant: {ended[1]}")
    counts, lock = {}, threading.Lock()
    outcomes = open(output / "outcomes.jsonl", "w")

    def run(m):
        outcome, by, used = "missed", "", 0.0
        if "unviable" in m:
            outcome, by = "unviable", m["unviable"]
        else:
            first = next((names for expression, names in options.first if re.search(expression, m["file"])), [])
            for name in sorted(base, key=lambda name: (name not in first, base[name])):
                ended, seconds = test(binaries[name], m["id"], int(LEAST + TIMES * base[name]), options)
                used += seconds
                if ended:
                    outcome, by = ended[0], f"{name}: {ended[1]}"
                    break
        with lock:
            counts[outcome] = counts.get(outcome, 0) + 1
            print(json.dumps({"name": m["name"], "outcome": outcome, "by": by, "seconds": round(used, 2)}), file=outcomes, flush=True)
            if outcome in ("missed", "timeout"):
                print(outcome, m["name"], by, flush=True)

    members = [m for bodies in groups.values() for some in bodies.values() for m in some]
    random.Random(1).shuffle(members)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, members))
    print(counts, "left", len(left))


main()
