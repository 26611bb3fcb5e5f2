"""Reads what the builds and plays of scripts/bench-against wrote.

  program FILE                   prints the path of the benchmark's program, from the messages of cargo
  compare FOLDER PAIRS SIDE...   prints every figure that both sides have: medians, the median of the ratios within pairs, and
                                 their range; the benchmarks of the named sides (old, new) start runs without keys only
"""

import json
import statistics
import sys
from pathlib import Path

KEYLESS = ".without keys"
# Figures of runs that an old benchmark started without keys and a new one starts with them: they are not alike, and nothing
# with their meaning is measured on the other side.
KEYED_ONLY = ("best.callers", "best.runs", "runs.half-load", " / commits")


def program(messages):
    """The executable that cargo names in the messages of a build."""
    found = None
    for line in Path(messages).read_text().splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("executable") and message["target"]["name"] == "engine":
            found = message["executable"]
    if found is None:
        sys.exit(f"bench-against: {messages} names no program of the engine benchmark")
    return found


def figures(path):
    """The figures of one play by name: a rate gives three. The goals repeat them and are left out."""
    found = {}
    for name, value in json.loads(Path(path).read_text()).items():
        if name == "goals":
            continue
        if isinstance(value, dict):
            found[f"{name}, per second"] = value["perSecond"]
            found[f"{name}, p50 µs"] = value["p50Micros"]
            found[f"{name}, p99 µs"] = value["p99Micros"]
        else:
            found[name] = value
    return found


def with_todays_names(found):
    """The figures of a benchmark that had no keys, by the names that those without keys have today."""
    renamed = {}
    for name, value in found.items():
        if name.endswith(KEYED_ONLY) or any(f"{part}," in name for part in KEYED_ONLY):
            continue
        title, comma, unit = name.partition(", ")
        keyless = ".steps." in title or title.endswith(".runs.alone")
        renamed[f"{title}{KEYLESS if keyless else ''}{comma}{unit}"] = value
    return renamed


def plays(folder, side, pairs, keyless):
    """The figures of all plays of one side, under today's names."""
    found = [figures(folder / f"{pair}-{side}.json") for pair in range(1, pairs + 1)]
    return [with_todays_names(play) for play in found] if side in keyless else found


def compare(folder, pairs, keyless):
    old, new = (plays(Path(folder), side, pairs, keyless) for side in ("old", "new"))
    for side in keyless:
        print(f"\nThe {side} benchmark starts runs without keys only. Its figures of steps and runs are compared with those")
        print(f'"{KEYLESS[1:]}" of the other side; figures of runs with keys are left out.')
    in_all = [name for name in new[0] if all(name in play for play in old + new)]
    width = max((len(name) for name in in_all), default=0)
    print(f"\nMedians of {pairs} plays of each side; new / old is the median of the ratios within pairs.\n")
    print(f"{'figure':<{width}} {'old':>12} {'new':>12} {'new / old':>10}  lowest to highest")
    for name in in_all:
        before, after = [play[name] for play in old], [play[name] for play in new]
        ratios = [b / a for a, b in zip(before, after) if a]
        middle = f"{statistics.median(ratios):.3f}" if ratios else "-"
        between = f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else ""
        old_middle, new_middle = statistics.median(before), statistics.median(after)
        print(f"{name:<{width}} {old_middle:>12,.6g} {new_middle:>12,.6g} {middle:>10}  {between}")
    left_out = sorted({name for play in old + new for name in play} - set(in_all))
    if left_out:
        print("\nNot compared, because not every play has them: " + "; ".join(left_out))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["program", messages]:
            print(program(messages))
        case ["compare", folder, pairs, *keyless]:
            compare(folder, int(pairs), keyless)
        case _:
            sys.exit(__doc__)
