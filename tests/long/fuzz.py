"""Fuzzing for as long as it takes: 20,000 cases of each kind of question and expression, with a written report.

`python -m tests.long fuzz` prints the seeds of the cases; `FUZZ_SEED=7 python -m tests.long fuzz` runs those of seed 7,
`FUZZ_CASES=500` fewer, and `FUZZ_KINDS=functions,pipelines` those of some kinds. The report is written to
`fuzz-report.txt`, too, or to where `FUZZ_REPORT` says.
"""

import os
import secrets
import time
from pathlib import Path

from tests.fuzz.runs import GRAMMARS, Report, explore

CASES = dict.fromkeys(GRAMMARS, 20_000)


def main() -> bool:
    """Run all fuzzers, print and write what they found, and return whether that was nothing."""
    start = int(os.environ.get("FUZZ_SEED") or secrets.randbits(32))
    path = Path(os.environ.get("FUZZ_REPORT", "fuzz-report.txt"))
    print(f"fuzz: seed {start}", flush=True)
    reports: list[Report] = []
    for name in (os.environ.get("FUZZ_KINDS") or ",".join(CASES)).split(","):
        wanted = int(os.environ.get("FUZZ_CASES") or CASES[name])
        reports.append(explore(name, wanted, start, watch=lambda one: print(f"fuzz: {one.summary()}", flush=True)))
        written = "\n\n".join(map(str, reports))
        path.write_text(f"Fuzzing on {time.strftime('%Y-%m-%d')}, seed {start}\n\n{written}\n", encoding="utf-8")
        print(f"fuzz: {reports[-1]}", flush=True)
    return not any(one.findings for one in reports)
