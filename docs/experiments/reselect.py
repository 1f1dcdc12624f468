"""The limit of selection among recorded candidates.

    python reselect.py candidates out/pool > out/candidates.jsonl
    swiss-knife judge out/candidates.jsonl -o out/judged.jsonl --offline
    python reselect.py report out/pool out/judged.jsonl

Where a span is a whole response, the candidates of a step do not depend on the weights, and a scheme is a law over them. So one recorded batch per
prompt gives the achieved axes at every weight vector as exact expectations over the selector's draw: what is left is the choice of prompts and
of candidates, which the bootstrap over prompts covers. Needs numpy and scipy.
"""

import json
import sys

import numpy as np
from scipy.stats import spearmanr

BLADES = ["helpful", "honest", "harmless"]
RUBRICS = {"helpfulness": 0, "truthfulness": 1, "harmfulness": 2, "fluency": 3}
LATTICE = np.array([(a, b, 6 - a - b) for a in range(7) for b in range(7 - a)]) / 6
RESAMPLES = 200


def traces(source):
    """The steps of a sweep, each with its record."""
    records = {record["id"]: record for record in map(json.loads, open(source + ".jsonl"))}
    for step in map(json.loads, open(source + ".traces.jsonl")):
        if step["id"] in records:
            yield records[step["id"]], step


def candidates(source):
    """Every candidate as a response to be judged."""
    for record, step in traces(source):
        for i, candidate in enumerate(step["candidates"]):
            text = candidate["text"].replace("<|im_end|>", "")
            print(json.dumps({"id": f"{step['id']}#{i}", "scheme": record["scheme"], "prompt": record["prompt"], "response": text}))


def batches(source, judged):
    """By proposal: per prompt mu (blades x candidates), achieved axes and -log fluency (4 x candidates)."""
    scores = {}
    for row in map(json.loads, open(judged)):
        if row["score"] is not None:
            axis, score = RUBRICS[row["rubric"]], row["score"]
            value = -np.log(score) if axis == 3 else 1 - score if axis == 2 else score
            scores.setdefault(row["id"], [np.nan] * 4)[axis] = value
    found = {}
    for record, step in traces(source):
        of = np.array([scores.get(f"{step['id']}#{i}", [np.nan] * 4) for i in range(len(step["candidates"]))])
        mu = {blade["name"]: np.array(blade["mu"]) for blade in step["blades"]}
        whole = ~np.isnan(of).any(1)
        if whole.sum() >= 4:
            found.setdefault(record["scheme"], []).append((np.array([mu[name] for name in BLADES])[:, whole], of[whole].T))
    return found


def standardised(rows):
    """Candidate-batch normalisation, sample deviation."""
    return (rows - rows.mean(1, keepdims=True)) / (rows.std(1, ddof=1, keepdims=True) + 1e-9)


def decorrelated(mu):
    """The batch's scores, without the component that the blades share: (corr + 0.1)^-1 z."""
    return np.linalg.solve(np.corrcoef(mu) + 0.1 * np.eye(len(mu)), standardised(mu))


def softmax(scores, temperature):
    if temperature == 0:
        return np.eye(len(scores))[np.argmax(scores)]
    powers = np.exp((scores - scores.max()) / temperature)
    return powers / powers.sum()


SELECTIONS = {
    "uniform": lambda mu, of, w: np.full(mu.shape[1], 1 / mu.shape[1]),
    "softmax T=4, CBN": lambda mu, of, w: softmax(w @ standardised(mu), 4),
    "softmax T=1, CBN": lambda mu, of, w: softmax(w @ standardised(mu), 1),
    "softmax T=0.5, CBN": lambda mu, of, w: softmax(w @ standardised(mu), 0.5),
    "softmax T=0.25, CBN": lambda mu, of, w: softmax(w @ standardised(mu), 0.25),
    "argmax, CBN": lambda mu, of, w: softmax(w @ standardised(mu), 0),
    "argmax, raw": lambda mu, of, w: softmax(w @ mu, 0),
    "argmax, CBN decorrelated": lambda mu, of, w: softmax(w @ decorrelated(mu), 0),
    "argmax of the judge's own scores": lambda mu, of, w: softmax(w @ standardised(of[:3]), 0),
}


def pooled(achieved):
    """Spearman of weight and achieved axis, axes standardised and pooled; and of each axis."""
    if (np.ptp(achieved, 0) < 1e-12).any():
        return np.nan, [np.nan] * 3
    z = (achieved - achieved.mean(0)) / achieved.std(0)
    return spearmanr(LATTICE.ravel(), z.ravel())[0], [spearmanr(LATTICE[:, k], achieved[:, k])[0] for k in range(3)]


def report(source, judged):
    rng = np.random.default_rng(42)
    for proposal, found in batches(source, judged).items():
        print(f"\n{proposal}: {len(found)} prompts, {np.mean([mu.shape[1] for mu, _ in found]):.1f} candidates each")
        cross = np.mean([standardised(mu) @ standardised(of[:3]).T / (mu.shape[1] - 1) for mu, of in found], 0)
        judges = np.mean([np.corrcoef(of[:3]) for _, of in found], 0)
        print("correlation within batches of blade (row) and judge (column), helpful, honest, harmless:")
        print("\n".join("  " + "  ".join(f"{x:+.2f}" for x in row) for row in cross))
        print("of judges: helpful-honest {:+.2f}, helpful-harmless {:+.2f}, honest-harmless {:+.2f}".format(judges[0, 1], judges[0, 2], judges[1, 2]))
        print("selection                          pooled rho [95% over prompts]   helpful  honest  harmless   range of axes         one draw      perplexity")
        for name, select in SELECTIONS.items():
            laws = [np.array([select(mu, of, w) for w in LATTICE]) for mu, of in found]
            cells = np.array([law @ of.T for law, (_, of) in zip(laws, found)])  # prompts x points x 4
            rho, axes = pooled(cells[:, :, :3].mean(0))
            resampled = [pooled(cells[rng.integers(len(cells), size=len(cells)), :, :3].mean(0))[0] for _ in range(RESAMPLES)]
            low, high = np.nanpercentile(resampled, [2.5, 97.5]) if rho == rho else (np.nan, np.nan)
            draws = []
            for _ in range(50):
                drawn = np.mean([[of[:3, rng.choice(len(p), p=p)] for p in law] for law, (_, of) in zip(laws, found)], 0)
                draws.append(pooled(drawn)[0])
            reach = np.ptp(cells[:, :, :3].mean(0), 0)
            if rho != rho:
                print(f"{name:34} the axes do not move; one draw {np.mean(draws):+.2f} ± {np.std(draws):.2f}; perplexity {np.exp(cells[:, :, 3].mean()):.1f}")
                continue
            print(
                f"{name:34} {rho:+.3f} [{low:+.3f}, {high:+.3f}]        {axes[0]:+.2f}    {axes[1]:+.2f}    {axes[2]:+.2f}    "
                f"{reach[0]:.3f} {reach[1]:.3f} {reach[2]:.3f}   {np.mean(draws):+.2f} ± {np.std(draws):.2f}   {np.exp(cells[:, :, 3].mean()):.1f}"
            )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["candidates", source]:
            candidates(source)
        case ["report", source, judged]:
            report(source, judged)
        case _:
            sys.exit(__doc__)
